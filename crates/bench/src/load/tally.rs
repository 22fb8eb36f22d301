//! What did a thread see?

use std::collections::BTreeMap;
use std::ops::Range;

use wire::config::Class;
use wire::reason::Reason;

use super::flights::Sent;
use super::slices::Slice;
use crate::latency::Latencies;

/// A send this much after its due time is late.
const LATE_AFTER_NS: u64 = 1_000_000;

/// Counts and latencies of a thread, of the measured span only; violations of the whole run.
#[derive(Debug)]
pub(crate) struct Tally {
    span_ns: Range<u64>,
    is_open_loop: bool,
    /// Acks that came within the span.
    pub(crate) acks: u64,
    /// Acks of the whole run.
    pub(crate) acks_ever: u64,
    /// When the last ack came.
    pub(crate) last_ack_ns: u64,
    /// From the due time to the ack.
    pub(crate) latency: Latencies,
    /// From the send to the ack.
    pub(crate) service: Latencies,
    /// From the due time to the ack, of each class; empty unless the load has several.
    pub(crate) by_class: Vec<(Class, Latencies)>,
    /// Sends more than a millisecond after their due time.
    pub(crate) late_sends: u64,
    /// Longest time that a send came after its due time.
    pub(crate) lag_ns_max: u64,
    /// Of the late sends, those for which a window had room: the generator itself was behind.
    pub(crate) late_by_itself: u64,
    /// Longest time that the generator itself was behind.
    pub(crate) own_lag_ns_max: u64,
    /// Refusals by reason.
    pub(crate) refusals: BTreeMap<&'static str, u64>,
    /// What the first refusal of a peer said.
    pub(crate) why: Option<String>,
    /// Promises broken.
    pub(crate) violations: u64,
    /// The first of them.
    pub(crate) first_violation: Option<String>,
    /// Class of the acks; of two, the one that came first.
    pub(crate) class: Option<Class>,
    /// Whether acks of another class came too.
    pub(crate) is_class_mixed: bool,
    /// The second that is not over yet.
    pub(crate) slice: Slice,
}

impl Tally {
    /// Nothing yet. In a closed loop an ack belongs to the span when it comes within it; in an open loop when its
    /// append was due within it, so that a stall at the end is not left out.
    pub(crate) fn new(is_open_loop: bool) -> Self {
        Self {
            span_ns: 0..0,
            is_open_loop,
            acks: 0,
            acks_ever: 0,
            last_ack_ns: 0,
            latency: Latencies::new(),
            service: Latencies::new(),
            by_class: Vec::new(),
            late_sends: 0,
            lag_ns_max: 0,
            late_by_itself: 0,
            own_lag_ns_max: 0,
            why: None,
            refusals: BTreeMap::new(),
            violations: 0,
            first_violation: None,
            class: None,
            is_class_mixed: false,
            slice: Slice::new(0),
        }
    }

    /// Nothing yet, of a load with streams of both classes.
    pub(crate) fn by_class(is_open_loop: bool) -> Self {
        let by_class = [Class::Express, Class::Standard].map(|class| (class, Latencies::new()));
        Self { by_class: by_class.into(), ..Self::new(is_open_loop) }
    }

    /// Says which span is measured.
    pub(crate) const fn measure(&mut self, span_ns: Range<u64>) {
        self.span_ns = span_ns;
    }

    /// Counts an append that goes out, and whether it had to wait for room in a window.
    #[inline]
    pub(crate) fn on_sent(&mut self, sent: Sent, waited_for_room: bool) {
        if !self.is_open_loop {
            return;
        }
        let lag_ns = sent.sent_ns.saturating_sub(sent.intended_ns);
        let late = u64::from(lag_ns > LATE_AFTER_NS);
        self.slice.late_sends += late;
        self.slice.lag_ns_max = self.slice.lag_ns_max.max(lag_ns);
        if self.span_ns.contains(&sent.intended_ns) {
            self.late_sends += late;
            self.lag_ns_max = self.lag_ns_max.max(lag_ns);
            if !waited_for_room {
                self.late_by_itself += late;
                self.own_lag_ns_max = self.own_lag_ns_max.max(lag_ns);
            }
        }
    }

    /// Counts an append that is acked, made durable as its class says.
    #[inline]
    pub(crate) fn on_ack(&mut self, sent: Sent, now_ns: u64, class: Class) {
        self.is_class_mixed |= *self.class.get_or_insert(class) != class;
        self.acks_ever += 1;
        self.last_ack_ns = now_ns;
        let came_within = self.span_ns.contains(&now_ns);
        self.acks += u64::from(came_within);
        // In a closed loop an append is due when it is sent.
        let latency_ns = now_ns.saturating_sub(sent.intended_ns);
        self.slice.acks += 1;
        self.slice.latency.record(latency_ns);
        let counts = if self.is_open_loop { self.span_ns.contains(&sent.intended_ns) } else { came_within };
        if !counts {
            return;
        }
        self.latency.record(latency_ns);
        if self.is_open_loop {
            self.service.record(now_ns.saturating_sub(sent.sent_ns));
        }
        if let Some((_, latencies)) = self.by_class.iter_mut().find(|(of, _)| *of == class) {
            latencies.record(latency_ns);
        }
    }

    /// Counts a refusal.
    pub(crate) fn on_refusal(&mut self, reason: Reason, now_ns: u64) {
        self.slice.refusals += 1;
        if self.span_ns.contains(&now_ns) {
            *self.refusals.entry(reason.word()).or_default() += 1;
        }
    }

    /// Notes what a peer says of a refusal.
    pub(crate) fn note_why(&mut self, why: &str) {
        self.why.get_or_insert_with(|| why.chars().take(200).collect());
    }

    /// Counts a broken promise.
    #[cold]
    pub(crate) fn on_violation(&mut self, violation: &impl ToString) {
        self.violations += 1;
        self.first_violation.get_or_insert_with(|| violation.to_string());
    }

    /// Adds what another thread saw.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.acks += other.acks;
        self.acks_ever += other.acks_ever;
        self.last_ack_ns = self.last_ack_ns.max(other.last_ack_ns);
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        for ((_, mine), (_, others)) in self.by_class.iter_mut().zip(&other.by_class) {
            mine.merge(others);
        }
        self.late_sends += other.late_sends;
        self.lag_ns_max = self.lag_ns_max.max(other.lag_ns_max);
        self.late_by_itself += other.late_by_itself;
        self.own_lag_ns_max = self.own_lag_ns_max.max(other.own_lag_ns_max);
        if self.why.is_none() {
            self.why.clone_from(&other.why);
        }
        for (reason, count) in &other.refusals {
            *self.refusals.entry(reason).or_default() += count;
        }
        self.violations += other.violations;
        if self.first_violation.is_none() {
            self.first_violation.clone_from(&other.first_violation);
        }
        self.is_class_mixed |= other.is_class_mixed;
        if let Some(class) = other.class {
            self.is_class_mixed |= *self.class.get_or_insert(class) != class;
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::config::Class;
    use wire::reason::Reason;

    use super::{Sent, Tally};

    const MS: u64 = 1_000_000;

    fn sent(intended_ms: u64, sent_ms: u64) -> Sent {
        Sent { intended_ns: intended_ms * MS, sent_ns: sent_ms * MS }
    }

    #[test]
    fn a_closed_loop_counts_what_comes_within_the_span() {
        let mut tally = Tally::new(false);
        tally.measure(10 * MS..20 * MS);
        for now_ms in [9, 10, 19, 20] {
            tally.on_ack(sent(8, 8), now_ms * MS, Class::Express);
        }
        assert_eq!((tally.acks, tally.latency.samples(), tally.acks_ever), (2, 2, 4));
    }

    #[test]
    fn an_open_loop_counts_from_the_due_time_also_what_comes_after_the_end() {
        let mut tally = Tally::new(true);
        tally.measure(10 * MS..20 * MS);
        for (intended_ms, sent_ms) in [(9, 9), (12, 12), (13, 18), (25, 25)] {
            tally.on_sent(sent(intended_ms, sent_ms), intended_ms == 13);
            tally.on_ack(sent(intended_ms, sent_ms), 1_012 * MS, Class::Express);
        }
        assert_eq!((tally.acks, tally.latency.samples()), (0, 2));
        assert_eq!((tally.late_sends, tally.lag_ns_max), (1, 5 * MS));
        assert_eq!((tally.late_by_itself, tally.own_lag_ns_max), (0, 0), "it waited for room");
        tally.on_sent(sent(14, 17), false);
        assert_eq!((tally.late_by_itself, tally.own_lag_ns_max), (1, 3 * MS));
        let max = |of: &crate::latency::Latencies| of.quantiles().max.unwrap();
        assert!(max(&tally.latency) > 999_000.0 && max(&tally.service) > 999_000.0);
    }

    /// One append every quarter of a millisecond for five seconds, one in flight at a time, each answered at once but for a second in
    /// which the server stands still.
    #[test]
    fn a_second_s_stall_is_in_the_open_loop_s_p99_9_and_not_in_that_of_the_service() {
        let mut tally = Tally::new(true);
        tally.measure(0..5_000 * MS);
        let (stall, mut free_ns) = (1_000 * MS..2_000 * MS, 0);
        for intended_ns in (0..5_000 * MS).step_by(250_000) {
            let sent_ns = intended_ns.max(free_ns);
            let answer_ns = sent_ns + 20_000;
            free_ns = if stall.contains(&answer_ns) { stall.end } else { answer_ns };
            let sent = Sent { intended_ns, sent_ns };
            tally.on_sent(sent, sent_ns > intended_ns);
            tally.on_ack(sent, free_ns, Class::Express);
        }
        let (latency, service) = (tally.latency.quantiles(), tally.service.quantiles());
        assert!(latency.p99_9.is_some_and(|us| us > 900_000.0), "{latency}");
        assert!(
            service.p99_9.is_some_and(|us| us < 100.0) && service.max.is_some_and(|us| us > 900_000.0),
            "{service}"
        );
        assert!(tally.late_sends > 4_000 && tally.late_by_itself == 0, "{}", tally.late_sends);
    }

    #[test]
    fn merging_adds_counts_and_keeps_the_first_violation() {
        let mut all = Tally::new(false);
        let mut one = Tally::new(false);
        one.measure(0..MS);
        one.on_refusal(Reason::ResourceExhausted, 5);
        one.on_refusal(Reason::ResourceExhausted, MS);
        one.on_violation(&"first");
        one.on_violation(&"second");
        all.merge(&one);
        all.merge(&one);
        assert_eq!((all.violations, all.first_violation.as_deref()), (4, Some("first")));
        assert_eq!(all.refusals["resource_exhausted"], 2);
    }
}
