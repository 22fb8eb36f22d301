//! Which requests are in the air, and since when?

use std::collections::VecDeque;

/// When a request was due and when it was sent, in nanoseconds since the run's origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    /// When it should have been sent; latency counts from here.
    pub(crate) intended_ns: u64,
    /// When it was handed to the connection; service time counts from here.
    pub(crate) sent_ns: u64,
}

impl Sent {
    /// One that was due when it was sent.
    pub(crate) const fn at(now_ns: u64) -> Self {
        Self { intended_ns: now_ns, sent_ns: now_ns }
    }
}

/// What came down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Landed {
    /// When it went up.
    pub(crate) sent: Sent,
    /// Whether nothing that went up before it is still in the air.
    pub(crate) in_order: bool,
}

/// Requests in the air under dense numbers from 1; bounded by the window of whoever launches.
#[derive(Debug)]
pub(crate) struct Flights {
    first_no: u64,
    sent: VecDeque<Option<Sent>>,
    in_flight: usize,
}

impl Flights {
    pub(crate) const fn new() -> Self {
        Self { first_no: 1, sent: VecDeque::new(), in_flight: 0 }
    }

    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Sends one up and answers its number.
    #[inline]
    pub(crate) fn launch(&mut self, sent: Sent) -> u64 {
        self.sent.push_back(Some(sent));
        self.in_flight += 1;
        self.first_no + self.sent.len() as u64 - 1
    }

    /// Takes one down; `None` when it is not in the air.
    #[inline]
    pub(crate) fn land(&mut self, no: u64) -> Option<Landed> {
        let at = usize::try_from(no.checked_sub(self.first_no)?).ok()?;
        let sent = self.sent.get_mut(at)?.take()?;
        self.in_flight -= 1;
        while let Some(None) = self.sent.front() {
            self.sent.pop_front();
            self.first_no += 1;
        }
        Some(Landed { sent, in_order: at == 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::{Flights, Landed, Sent};

    #[test]
    fn requests_land_in_any_order_and_once() {
        let mut flights = Flights::new();
        let numbers: Vec<_> = (0..4).map(|at| flights.launch(Sent::at(at))).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        let landed = |at, in_order| Some(Landed { sent: Sent::at(at), in_order });
        assert_eq!(flights.land(2), landed(1, false));
        assert_eq!(flights.land(2), None);
        assert_eq!(flights.land(1), landed(0, true));
        assert_eq!(flights.land(3), landed(2, true));
        assert_eq!(flights.in_flight(), 1);
        assert_eq!((flights.land(0), flights.land(5)), (None, None));
        assert_eq!(flights.launch(Sent::at(9)), 5);
        assert_eq!(flights.land(5), landed(9, false));
    }
}
