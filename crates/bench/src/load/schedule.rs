//! When is each append of an open loop due?

/// Due times at a constant rate, of one thread among several: due times of all threads together are evenly spaced.
///
/// A due time is a formula of its number, so that appends that can't be sent yet wait without a queue.
#[derive(Debug)]
pub(crate) struct Schedule {
    start_ns: u64,
    interval_ns: f64,
    phase: f64,
    threads: f64,
    next: u64,
}

impl Schedule {
    /// The schedule of thread `thread` of `threads`, which together send `per_s` a second from `start_ns` on.
    pub(crate) fn new(start_ns: u64, per_s: f64, thread: u16, threads: u16) -> Self {
        Self { start_ns, interval_ns: 1e9 / per_s, phase: f64::from(thread), threads: f64::from(threads), next: 0 }
    }

    /// When the next append is due.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "not negative, and nanoseconds of a run stay below 2^53"
    )]
    pub(crate) fn next_ns(&self) -> u64 {
        let number = (self.next as f64).mul_add(self.threads, self.phase);
        self.start_ns + (number * self.interval_ns) as u64
    }

    /// Takes the next append if it is due.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next_ns();
        (due_ns <= now_ns).then(|| {
            self.next += 1;
            due_ns
        })
    }

    /// How many were due before `end_ns` and are not taken.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and far below 2^53")]
    pub(crate) fn untaken_before(&self, end_ns: u64) -> u64 {
        let left_ns = crate::progress::as_f64(end_ns.saturating_sub(self.next_ns()));
        (left_ns / (self.interval_ns * self.threads)).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn the_threads_together_send_evenly_at_the_rate() {
        let mut due: Vec<u64> = (0..3)
            .flat_map(|thread| {
                let mut schedule = Schedule::new(1_000, 1e6, thread, 3);
                std::iter::from_fn(move || schedule.take(30_000)).collect::<Vec<_>>()
            })
            .collect();
        due.sort_unstable();
        assert_eq!(due, (0..30).map(|i| 1_000 + i * 1_000).collect::<Vec<_>>());
    }

    #[test]
    fn what_waits_keeps_its_due_time_and_what_is_left_is_counted() {
        let mut schedule = Schedule::new(0, 1e3, 0, 1);
        assert_eq!(schedule.take(0), Some(0));
        assert_eq!(schedule.take(500_000), None);
        assert_eq!(schedule.take(9_000_000), Some(1_000_000));
        assert_eq!(schedule.take(9_000_000), Some(2_000_000));
        assert_eq!(schedule.untaken_before(9_000_000), 6);
        assert_eq!(schedule.untaken_before(3_000_000), 0);
    }
}
