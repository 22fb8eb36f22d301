//! May records be dropped by their age, as far as the clocks go?
//!
//! The wall clock is believed only while it moves as the clock does that counts since the machine was booted. A step between two
//! looks, or against what was noted in an earlier run, stops retention by age until an operator confirms the time.

/// How far clocks may part before they count as stepped, in milliseconds.
pub(crate) const STEP_MAX_MS: i64 = 60_000;

/// What the clocks say at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockLook {
    /// Which boot of which machine.
    pub boot_id: [u8; 16],
    /// Milliseconds since that boot, sleep included.
    pub boot_ms: i64,
    /// The wall clock, in milliseconds since the Unix epoch.
    pub wall_ms: i64,
    /// How far the store's clock is ahead of the wall clock; `None` when it has none.
    pub store_skew_ms: Option<i64>,
}

/// What an earlier look left for later runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) boot_id: [u8; 16],
    pub(crate) boot_ms: i64,
    pub(crate) wall_ms: i64,
    /// Retention by age was stopped, and nobody has confirmed the time.
    pub(crate) is_stopped: bool,
}

/// Why the wall clock is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClockFault {
    /// It moved by itself.
    #[error("the wall clock stepped by {step_ms} ms against the clock since boot")]
    Stepped {
        /// Forward, or backward when negative.
        step_ms: i64,
    },
    /// It is before what was written by it.
    #[error("the wall clock is {behind_ms} ms behind a time that was noted before")]
    Behind {
        /// How far.
        behind_ms: i64,
    },
    /// The store has another time.
    #[error("the store's clock is {skew_ms} ms ahead of the wall clock")]
    Store {
        /// How far; behind when negative.
        skew_ms: i64,
    },
    /// It was not believed in an earlier run.
    #[error("the wall clock was not believed in an earlier run")]
    Earlier,
    /// What was noted can't be read.
    #[error("what an earlier run has noted of the clocks can't be read")]
    Unreadable,
}

/// Watches the clocks.
#[derive(Debug, Clone)]
pub(crate) struct ClockGuard {
    last: ClockLook,
    /// The last moment at which the wall clock was believed, in this run or an earlier one.
    believed: Option<Noted>,
    fault: Option<ClockFault>,
    /// A skew of the store's clock that an operator has confirmed.
    confirmed_skew_ms: i64,
}

impl ClockGuard {
    /// Begins with what an earlier run has noted, and the newest time that was written by any clock.
    pub(crate) fn new(now: ClockLook, noted: Result<Option<Noted>, ClockFault>, newest_ms: Option<i64>) -> Self {
        let (believed, fault) = match noted {
            Ok(noted) => (noted, judge_start(&now, noted.as_ref(), newest_ms)),
            Err(fault) => (None, Some(fault)),
        };
        let mut guard = Self { last: now, believed, fault, confirmed_skew_ms: 0 };
        guard.fault = guard.fault.or_else(|| guard.store_fault(&now));
        guard.believe(&now);
        guard
    }

    /// Takes a look; the fault if this one is where the wall clock stops to be believed.
    pub(crate) fn on_look(&mut self, now: ClockLook) -> Option<ClockFault> {
        let step_ms = step(&now, (self.last.boot_ms, self.last.wall_ms));
        self.last = now;
        if self.fault.is_some() {
            return None;
        }
        let stepped = (step_ms.abs() > STEP_MAX_MS).then_some(ClockFault::Stepped { step_ms });
        self.fault = stepped.or_else(|| self.store_fault(&now));
        self.believe(&now);
        self.fault
    }

    /// An operator says that the wall clock is right.
    pub(crate) fn on_confirm(&mut self) {
        self.fault = None;
        self.confirmed_skew_ms = self.last.store_skew_ms.unwrap_or(0);
        let last = self.last;
        self.believe(&last);
    }

    /// Why records are not dropped by their age; `None` when they may be.
    pub(crate) fn fault(&self) -> Option<ClockFault> {
        self.fault
    }

    /// The time by the wall clock when it was believed last, and the clock since boot from then on; `None` when that was in another
    /// boot, or never.
    pub(crate) fn steady_ms(&self) -> Option<i64> {
        let Noted { boot_ms, wall_ms, .. } = self.believed.filter(|believed| believed.boot_id == self.last.boot_id)?;
        Some(wall_ms.saturating_add(self.last.boot_ms.saturating_sub(boot_ms)))
    }

    /// What is left for later runs: the last moment at which the wall clock was believed, and whether it still is.
    pub(crate) fn noted(&self) -> Option<Noted> {
        let is_stopped = self.fault.is_some();
        self.believed.map(|believed| Noted { is_stopped, ..believed })
    }

    fn believe(&mut self, now: &ClockLook) {
        if self.fault.is_none() {
            let ClockLook { boot_id, boot_ms, wall_ms, .. } = *now;
            self.believed = Some(Noted { boot_id, boot_ms, wall_ms, is_stopped: false });
        }
    }

    fn store_fault(&self, now: &ClockLook) -> Option<ClockFault> {
        let skew_ms = now.store_skew_ms?;
        let parted_ms = skew_ms.saturating_sub(self.confirmed_skew_ms).saturating_abs();
        (parted_ms > STEP_MAX_MS).then_some(ClockFault::Store { skew_ms })
    }
}

/// How far the wall clock has moved beyond the clock since boot.
fn step(now: &ClockLook, (boot_ms, wall_ms): (i64, i64)) -> i64 {
    now.wall_ms.saturating_sub(wall_ms).saturating_sub(now.boot_ms.saturating_sub(boot_ms))
}

/// In the same boot a step in either direction shows; in another one only that time does not go back.
fn judge_start(now: &ClockLook, noted: Option<&Noted>, newest_ms: Option<i64>) -> Option<ClockFault> {
    if noted.is_some_and(|noted| noted.is_stopped) {
        return Some(ClockFault::Earlier);
    }
    if let Some(noted) = noted.filter(|noted| noted.boot_id == now.boot_id) {
        let step_ms = step(now, (noted.boot_ms, noted.wall_ms));
        if step_ms.saturating_abs() > STEP_MAX_MS {
            return Some(ClockFault::Stepped { step_ms });
        }
    }
    let newest_ms = noted.map(|noted| noted.wall_ms).into_iter().chain(newest_ms).max()?;
    let behind_ms = newest_ms.saturating_sub(now.wall_ms);
    (behind_ms > STEP_MAX_MS).then_some(ClockFault::Behind { behind_ms })
}

#[cfg(test)]
mod tests;
