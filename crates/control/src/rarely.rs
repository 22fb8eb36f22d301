//! May this be said again, after it was said a moment ago?

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Between two of the same line in the log.
pub(crate) const SAID_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What is worth a line in the log once a minute, however often it happens.
#[derive(Debug, Default)]
pub(crate) struct Rarely(Mutex<Option<Instant>>);

impl Rarely {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Whether a line is due, which is then taken to be said.
    pub(crate) fn is_due(&self) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = said.is_none_or(|at| at.elapsed() >= SAID_AGAIN_AFTER);
        if is_due {
            *said = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::{Rarely, SAID_AGAIN_AFTER};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_line_is_due_at_once_and_then_once_a_minute() {
        let line = Rarely::new();
        assert!(line.is_due() && !line.is_due());
        tokio::time::sleep(SAID_AGAIN_AFTER - Duration::from_millis(10)).await;
        assert!(!line.is_due());
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(line.is_due() && !line.is_due());
    }
}
