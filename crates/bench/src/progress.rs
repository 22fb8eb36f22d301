//! What can a measurement say while it runs?

use std::time::Duration;

/// What a measurement is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Connecting and opening streams.
    Opening,
    /// Running, not yet measured.
    WarmUp,
    /// Running and measured.
    Measuring,
    /// Waiting for the last answers.
    Draining,
    /// Measuring what the host allows.
    Floor,
}

/// Where a measurement stands; given about once a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// What it is doing.
    pub step: Step,
    /// Time since the measurement began.
    pub elapsed: Duration,
    /// How far it is, in percent, where that is known.
    pub percent: Option<f64>,
    /// Answers so far: acks, streams opened, or writes.
    pub answers: u64,
    /// Answers a second since the progress before.
    pub answers_per_s: f64,
}

/// Gets the progress of a measurement, on the thread that called it.
pub type OnProgress<'a> = &'a mut dyn FnMut(&Progress);

/// Rate since the call before.
#[derive(Debug, Default)]
pub(crate) struct RateMeter {
    answers: u64,
    at: Duration,
}

impl RateMeter {
    /// Answers a second since the call before; a count that began anew counts from zero.
    pub(crate) fn per_s(&mut self, answers: u64, at: Duration) -> f64 {
        let passed = at.saturating_sub(self.at).as_secs_f64();
        let came = answers.checked_sub(self.answers).unwrap_or(answers);
        (self.answers, self.at) = (answers, at);
        if passed > 0.0 { as_f64(came) / passed } else { 0.0 }
    }
}

/// A count as a floating-point number, exact up to 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and nanoseconds stay far below 2^53, and are printed with few digits"
)]
pub(crate) const fn as_f64(count: u64) -> f64 {
    count as f64
}
