//! How often is a request repeated, and how long is waited in between?

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::failure::{S3Failure, Verdict};
use crate::store::Trouble;

/// First wait before a repetition; it doubles from there.
const BACKOFF: Duration = Duration::from_millis(20);
/// Longest wait before a repetition.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// All attempts at one operation take at most this many timeouts of one.
const TIMEOUTS: u32 = 4;

/// How attempts at any operation have failed since one did not.
#[derive(Clone, Debug, Default)]
pub(super) struct Troubles(Arc<Mutex<Option<Trouble>>>);

impl Troubles {
    pub(super) fn now(&self) -> Option<Trouble> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes how an attempt went.
    fn note(&self, failed: Option<&S3Failure>) {
        let is_away = |failure: &&S3Failure| matches!(failure.verdict(), Verdict::Again | Verdict::AgainUnknown);
        let mut trouble = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = failed.filter(is_away).map(|failure| Trouble {
            since: trouble.as_ref().map_or_else(Instant::now, |trouble| trouble.since),
            why: failure.to_string().into(),
        });
    }
}

/// The attempts at one operation.
#[derive(Debug)]
pub(super) struct Tries {
    troubles: Troubles,
    deadline: Instant,
    failed: u32,
    /// One of the attempts may have been carried out, though it failed.
    pub(super) is_unknown: bool,
}

impl Tries {
    pub(super) fn new(attempt_timeout: Duration, troubles: &Troubles) -> Self {
        let troubles = troubles.clone();
        Self { troubles, deadline: Instant::now() + attempt_timeout * TIMEOUTS, failed: 0, is_unknown: false }
    }

    /// An attempt has ended, and failed like this if it did.
    pub(super) fn on_end(&self, failed: Option<&S3Failure>) {
        self.troubles.note(failed);
    }

    /// After an attempt that failed: waits, and answers whether there may be another.
    pub(super) async fn again(&mut self, failure: &S3Failure) -> bool {
        let verdict = failure.verdict();
        self.is_unknown |= verdict == Verdict::AgainUnknown;
        // The second failure by skew is one that signing by the store's clock did not help.
        let may = match verdict {
            Verdict::Again | Verdict::AgainUnknown | Verdict::ConditionFailed => true,
            Verdict::Skewed => self.failed == 0,
            Verdict::Absent | Verdict::OutOfRange | Verdict::Never => false,
        };
        let wait = backoff(self.failed, uuid::Uuid::now_v7().as_bytes()[15]);
        self.failed += 1;
        if !may || Instant::now() + wait >= self.deadline {
            return false;
        }
        tokio::time::sleep(wait).await;
        true
    }
}

/// Between half of the whole and the whole of a time that doubles, so that rivals part.
fn backoff(failed: u32, random: u8) -> Duration {
    let whole = BACKOFF.saturating_mul(1 << failed.min(10)).min(BACKOFF_MAX);
    whole / 2 + whole / 2 * u32::from(random) / 255
}

#[cfg(test)]
mod tests {
    use super::{BACKOFF, BACKOFF_MAX, backoff};

    #[test]
    fn waits_double_up_to_a_bound_and_differ_by_half() {
        assert_eq!((backoff(0, 0), backoff(0, 255)), (BACKOFF / 2, BACKOFF));
        assert_eq!((backoff(3, 0), backoff(3, 255)), (BACKOFF * 4, BACKOFF * 8));
        assert_eq!(backoff(60, 255), BACKOFF_MAX);
    }
}
