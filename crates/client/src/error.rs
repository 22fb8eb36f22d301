//! What a call answers when it doesn't do what was asked.

use std::fmt;
use std::sync::Arc;

use wire::batch::BatchError;
use wire::config::ConfigError;
use wire::ids::{Position, SeqNum};
use wire::names::{FencingToken, NameError};
use wire::reason::Reason;
use wire::refusal::Refusal;

/// The answer of every call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed: a [`Reason`] to branch on, one sentence to print, and the data to go on with.
///
/// Cheap to clone: all callers whose records rode in one batch get the same one.
///
/// ```
/// use client::{Error, Reason};
///
/// fn advice(error: &Error) -> &'static str {
///     match error.reason() {
///         Reason::SequenceMismatch if error.resent() => "read back: an earlier attempt may have landed",
///         Reason::SequenceMismatch => "nothing was appended: try again at the tail",
///         Reason::FencedOut | Reason::Superseded => "another writer took over",
///         _ if error.retryable() => "try again later",
///         _ => "change the request",
///     }
/// }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct Error(Arc<Failure>);

#[derive(Debug, thiserror::Error)]
struct Failure {
    refusal: Refusal,
    no_side_effect: bool,
    resent: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.refusal)?;
        if self.resent {
            f.write_str(" (an earlier attempt may have landed)")?;
        }
        Ok(())
    }
}

impl Error {
    /// A star's refusal of an attempt; `resent` when an earlier attempt of the same may have landed.
    pub(crate) fn refused(refusal: Refusal, resent: bool) -> Self {
        let no_side_effect = refusal.reason.no_side_effect() && !resent;
        Self(Arc::new(Failure { refusal, no_side_effect, resent }))
    }

    /// A gateway's refusal, with what it says of the effect.
    pub(crate) fn told(refusal: Refusal, no_side_effect: bool, resent: bool) -> Self {
        Self(Arc::new(Failure { refusal, no_side_effect, resent }))
    }

    /// Decided on this side, before anything was sent, or about a call that changes nothing.
    pub(crate) fn harmless(reason: Reason, message: impl Into<String>) -> Self {
        Self(Arc::new(Failure { refusal: Refusal::new(reason, message), no_side_effect: true, resent: false }))
    }

    /// What was sent may have taken effect, and nobody answered.
    pub(crate) fn ambiguous(reason: Reason, message: impl Into<String>) -> Self {
        Self(Arc::new(Failure { refusal: Refusal::new(reason, message), no_side_effect: false, resent: false }))
    }

    /// The same failure for a batch of which an earlier attempt may have landed, or certainly has not.
    pub(crate) fn about_batch(&self, maybe_landed: bool) -> Self {
        if self.0.resent == maybe_landed && self.0.no_side_effect != maybe_landed {
            return self.clone();
        }
        Self(Arc::new(Failure { refusal: self.0.refusal.clone(), no_side_effect: !maybe_landed, resent: maybe_landed }))
    }

    /// Why, to branch on.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.0.refusal.reason
    }

    /// The refusal itself: reason, sentence and details.
    #[must_use]
    pub fn refusal(&self) -> &Refusal {
        &self.0.refusal
    }

    /// What was wrong and with which value, in one sentence, without the reason's word.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.refusal.message
    }

    /// Whether the same request may succeed later, unchanged.
    #[must_use]
    pub fn retryable(&self) -> bool {
        self.reason().retryable()
    }

    /// Whether it is certain that nothing was appended or changed.
    #[must_use]
    pub fn no_side_effect(&self) -> bool {
        self.0.no_side_effect
    }

    /// Whether an attempt of this batch was sent on a connection that broke, and may have landed.
    ///
    /// Without it nothing was appended; with it, read back to decide.
    #[must_use]
    pub fn resent(&self) -> bool {
        self.0.resent
    }

    /// The committed tail, with `sequence_mismatch`, `trimmed` and `out_of_range`.
    #[must_use]
    pub fn tail(&self) -> Option<Position> {
        self.0.refusal.tail()
    }

    /// The first record that is still there, with `trimmed`.
    #[must_use]
    pub fn trim_point(&self) -> Option<SeqNum> {
        self.0.refusal.details.as_ref()?.trim_point
    }

    /// The token that is installed, with `fenced_out`; empty when none is.
    #[must_use]
    pub fn fencing_token(&self) -> Option<&FencingToken> {
        self.0.refusal.details.as_ref()?.fencing_token.as_ref()
    }

    /// Where the leader is, with `not_owner`.
    #[must_use]
    pub fn leader(&self) -> Option<&str> {
        self.0.refusal.details.as_ref()?.leader.as_deref()
    }

    /// How long to wait before the next try, with `resource_exhausted`.
    #[must_use]
    pub fn retry_after(&self) -> Option<std::time::Duration> {
        let ms = self.0.refusal.details.as_ref()?.retry_after_ms?;
        Some(std::time::Duration::from_millis(ms))
    }
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Self {
        Self::refused(error.into(), false)
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::refused(error.into(), false)
    }
}

impl From<BatchError> for Error {
    fn from(error: BatchError) -> Self {
        Self::refused(error.into(), false)
    }
}
