//! Where does a thread run, and how much of a CPU does it take?

use std::fs;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::error::BenchError;

/// Keeps the calling thread on one CPU.
pub(crate) fn pin(cpu: usize) -> Result<(), BenchError> {
    let refuse = |errno: rustix::io::Errno| BenchError::Pin { cpu, source: errno.into() };
    if cpu >= CpuSet::MAX_CPU {
        return Err(refuse(rustix::io::Errno::INVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(refuse)
}

/// What the calling thread has had since it began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadTime {
    /// Time on a CPU.
    pub(crate) busy: Duration,
    /// Time ready to run, waiting for a CPU.
    pub(crate) waiting: Duration,
}

impl ThreadTime {
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let busy = Duration::try_from(time).unwrap_or_default();
        let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waiting = schedstat.split_whitespace().nth(1);
        let waiting_ns = waiting.and_then(|ns| ns.parse().ok()).unwrap_or(0);
        Self { busy, waiting: Duration::from_nanos(waiting_ns) }
    }

    /// What was had since an earlier time.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { busy: self.busy.saturating_sub(earlier.busy), waiting: self.waiting.saturating_sub(earlier.waiting) }
    }
}

#[cfg(test)]
mod tests {
    use super::{ThreadTime, pin};

    #[test]
    fn a_thread_that_works_has_had_time_and_a_cpu_that_is_not_there_is_refused() {
        let before = ThreadTime::now();
        let mut sum = 0u64;
        for i in 0..20_000_000u64 {
            sum = std::hint::black_box(sum ^ i);
        }
        assert!(ThreadTime::now().since(before).busy.as_micros() > 100);
        assert!(pin(1_000_000).is_err());
    }
}
