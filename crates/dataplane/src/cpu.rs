//! How much of its CPU does each shard get?

use std::time::Duration;

use rustix::thread::{gettid, sched_getcpu};
use rustix::time::{ClockId, clock_gettime};

/// Ticks of `/proc/stat` a second: what Linux tells every program, whatever it counts with.
const TICKS_A_SECOND: u64 = 100;

/// The thread of a shard, and the CPU that it is pinned to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thread {
    id: i32,
    pub(crate) cpu: usize,
}

impl Thread {
    /// The thread that asks.
    pub(crate) fn of_caller() -> Self {
        Self { id: gettid().as_raw_nonzero().get(), cpu: sched_getcpu() }
    }

    /// Where the kernel tells how it is scheduled.
    pub(crate) fn schedstat(&self) -> String {
        format!("/proc/self/task/{}/schedstat", self.id)
    }
}

/// How long the thread that asks has run, in microseconds.
pub(crate) fn busy_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let time = Duration::try_from(time).unwrap_or_default();
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How long a thread has run, by its `schedstat`.
pub(crate) fn ran(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// How long a thread might have run and others did, in microseconds, by its `schedstat`.
pub(crate) fn waited_us(schedstat: &str) -> Option<u64> {
    let ns: u64 = schedstat.split_whitespace().nth(1)?.parse().ok()?;
    Some(ns / 1_000)
}

/// How long a CPU might have run and the hypervisor ran something else, in microseconds, by `/proc/stat`.
pub(crate) fn steal_us(stat: &str, cpu: usize) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let mut words =
        stat.lines().map(str::split_whitespace).find(|words| words.clone().next() == Some(name.as_str()))?;
    // Its name, user nice system idle iowait irq softirq steal.
    let ticks: u64 = words.nth(8)?.parse().ok()?;
    Some(ticks.saturating_mul(1_000_000 / TICKS_A_SECOND))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Thread, busy_us, ran, steal_us, waited_us};

    const STAT: &str = "cpu  10 0 20 30 0 0 0 9 0 0\ncpu0 5 0 10 15 0 0 0 2 0 0\ncpu1 5 0 10 15 0 0 0 7 1 0\n\
                        cpu10 5 0 10 15 0 0 0 8 0 0\nintr 5 0\n";

    #[test]
    fn the_share_that_others_got_is_that_of_the_cpu_asked_for() {
        assert_eq!([0, 1, 10, 2].map(|cpu| steal_us(STAT, cpu)), [Some(20_000), Some(70_000), Some(80_000), None]);
        for stat in ["", "cpu0", "cpu0 1 2 3", "cpu0 1 2 3 4 5 6 7 x"] {
            assert_eq!(steal_us(stat, 0), None, "{stat}");
        }
    }

    #[test]
    fn a_thread_that_was_ready_and_did_not_run_has_waited() {
        let schedstat = "5000000 1234567 89\n";
        assert_eq!((ran(schedstat), waited_us(schedstat)), (Some(Duration::from_millis(5)), Some(1_234)));
        for schedstat in ["", "1", "1 x 2"] {
            assert_eq!(waited_us(schedstat), None, "{schedstat}");
        }
        assert_eq!((ran(""), ran("x 1 2")), (None, None));
    }

    #[test]
    fn a_thread_knows_itself() {
        let before = busy_us();
        assert!(Thread::of_caller().schedstat().starts_with("/proc/self/task/"));
        assert!(busy_us() >= before);
    }
}
