//! An answer of no: the reason, one sentence, and the data a program needs to go on.

use crate::ids::{Position, SeqNum};
use crate::names::{FencingToken, NameError};
use crate::reason::Reason;

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// What was wrong and with which value, in one sentence.
    pub message: String,
    /// The data that goes with the reason; boxed, since most refusals have none.
    pub details: Option<Box<Details>>,
}

/// What a program needs to go on after a refusal; each field where its reason calls for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// The committed tail.
    pub tail: Option<Position>,
    /// The first sequence number that is still there.
    pub trim_point: Option<SeqNum>,
    /// The installed fencing token; empty when none is.
    pub fencing_token: Option<FencingToken>,
    /// Where the leader is, `host:port`.
    pub leader: Option<String>,
    /// How long to wait before the next try, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

impl Refusal {
    /// A refusal without details.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), details: None }
    }

    /// The request can't be right: `invalid`.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Reason::Invalid, message)
    }

    /// The same, with the committed tail.
    #[must_use]
    pub fn with_tail(mut self, tail: Position) -> Self {
        self.details.get_or_insert_default().tail = Some(tail);
        self
    }

    /// The same, with the trim point.
    #[must_use]
    pub fn with_trim_point(mut self, trim_point: SeqNum) -> Self {
        self.details.get_or_insert_default().trim_point = Some(trim_point);
        self
    }

    /// The same, with the installed token.
    #[must_use]
    pub fn with_fencing_token(mut self, token: FencingToken) -> Self {
        self.details.get_or_insert_default().fencing_token = Some(token);
        self
    }

    /// The same, with the time to wait before the next try.
    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.details.get_or_insert_default().retry_after_ms = Some(retry_after_ms);
        self
    }

    /// The committed tail, where the refusal carries one.
    #[must_use]
    pub fn tail(&self) -> Option<Position> {
        self.details.as_ref().and_then(|details| details.tail)
    }
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Self {
        Self::invalid(error.to_string())
    }
}
