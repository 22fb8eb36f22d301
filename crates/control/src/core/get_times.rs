//! When has a get taken so long that asking again is worth it?

use std::time::Duration;

/// How many of the last gets count.
const RECENT: usize = 128;
/// Fewer say nothing.
const RECENT_MIN: usize = 16;
/// While nothing is known.
const UNKNOWN: Duration = Duration::from_millis(500);
/// A get in less is never worth a second one.
const FLOOR: Duration = Duration::from_millis(2);

/// How long the last gets took, in microseconds.
#[derive(Debug)]
pub(crate) struct GetTimes {
    recent: Vec<u32>,
    next: usize,
    p95: Duration,
}

impl GetTimes {
    /// Knows of no get yet.
    pub(crate) fn new() -> Self {
        Self { recent: Vec::with_capacity(RECENT), next: 0, p95: UNKNOWN }
    }

    /// Takes the time of a get that answered.
    pub(crate) fn add(&mut self, took: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        if self.recent.len() < RECENT {
            self.recent.push(us);
        } else {
            self.recent[self.next] = us;
            self.next = (self.next + 1) % RECENT;
        }
        if self.recent.len() >= RECENT_MIN {
            let mut sorted = self.recent.clone();
            let at = sorted.len() * 95 / 100;
            let (_, p95, _) = sorted.select_nth_unstable(at);
            self.p95 = Duration::from_micros(u64::from(*p95)).max(FLOOR);
        }
    }

    /// The time that nineteen in twenty of the last gets stayed under.
    pub(crate) fn p95(&self) -> Duration {
        self.p95
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{GetTimes, RECENT};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn one_in_twenty_takes_longer() {
        let mut times = GetTimes::new();
        (0..100).for_each(|n| times.add(ms(n)));
        assert_eq!(times.p95(), ms(95));
    }

    #[test]
    fn few_gets_say_nothing_and_old_ones_are_forgotten() {
        let mut times = GetTimes::new();
        (0..15).for_each(|_| times.add(ms(1)));
        assert_eq!(times.p95(), ms(500));
        (0..RECENT).for_each(|_| times.add(ms(3000)));
        assert_eq!(times.p95(), ms(3000));
        (0..RECENT).for_each(|_| times.add(ms(20)));
        assert_eq!(times.p95(), ms(20));
    }
}
