//! What has the host counted so far? Two looks tell what happens between them.

use super::{Machine, Told, Unknown};

/// Counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    ticks: Told<Ticks>,
    periods_throttled: Told<u64>,
}

/// Time of all CPUs together, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    all: u64,
    steal: u64,
}

impl Sample {
    /// The counters as they stand.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        Self { ticks: machine.ticks(), periods_throttled: machine.periods_throttled() }
    }
}

impl Machine {
    fn ticks(&self) -> Told<Ticks> {
        let path = "/proc/stat";
        let text = self.text(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
        let counts: Vec<u64> =
            line.unwrap_or_default().split_whitespace().map_while(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; what follows is part of user and nice.
        match counts.get(..8) {
            Some(counts) => {
                Ok(Ticks { all: counts.iter().fold(0, |sum, count| sum.saturating_add(*count)), steal: counts[7] })
            }
            None => Err(Unknown::because(format!("{path} does not tell of steal"))),
        }
    }

    /// Share of the CPUs' time that the hypervisor gave to others, in hundredths of a percent: since the earlier look, else since
    /// the host's start.
    ///
    /// # Errors
    /// [`Unknown`] when it is not counted.
    pub fn steal_basis_points(&self) -> Told<u64> {
        let now = self.ticks()?;
        let before = match &self.before {
            Some(Sample { ticks: Ok(ticks), .. }) => *ticks,
            _ => Ticks { all: 0, steal: 0 },
        };
        let all = now.all.saturating_sub(before.all).max(1);
        Ok(now.steal.saturating_sub(before.steal).saturating_mul(10_000) / all)
    }

    /// Periods in which the quota was used up since the earlier look, else since the group was made.
    ///
    /// # Errors
    /// [`Unknown`] when they are not counted.
    pub fn periods_throttled_since(&self) -> Told<u64> {
        let now = self.periods_throttled()?;
        let before = match &self.before {
            Some(Sample { periods_throttled: Ok(before), .. }) => *before,
            _ => 0,
        };
        Ok(now.saturating_sub(before))
    }
}
