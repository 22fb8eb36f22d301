//! How does a refusal look in JSON?

use serde::{Deserialize, Serialize};
use wire::ids::SeqNum;
use wire::names::FencingToken;
use wire::reason::Reason;
use wire::refusal::{Details, Refusal};

use super::answers::Place;

/// The body of an answer of no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureForm {
    /// The word of the reason.
    pub code: String,
    /// What was wrong and with which value, in one sentence.
    pub message: String,
    /// Whether the same request may succeed later, unchanged.
    pub retryable: bool,
    /// Whether it is certain that nothing was appended or changed.
    pub no_side_effect: bool,
    /// What the logs of the server call the request.
    #[serde(default)]
    pub request_id: String,
    /// Whether an earlier attempt of the same batch may have landed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resent: bool,
    /// The committed tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Place>,
    /// The first record that is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trim_point: Option<u64>,
    /// The installed token; empty when none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<String>,
    /// Where the leader is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// How long to wait before the next try, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl FailureForm {
    /// The form of a refusal.
    #[must_use]
    pub fn new(refusal: &Refusal, no_side_effect: bool, resent: bool, request_id: String) -> Self {
        let details = refusal.details.as_deref().cloned().unwrap_or_default();
        Self {
            code: refusal.reason.word().to_owned(),
            message: refusal.message.clone(),
            retryable: refusal.reason.retryable(),
            no_side_effect,
            request_id,
            resent,
            tail: details.tail.map(Place::from),
            trim_point: details.trim_point.map(SeqNum::get),
            fencing_token: details.fencing_token.map(|token| token.as_str().to_owned()),
            leader: details.leader,
            retry_after_ms: details.retry_after_ms,
        }
    }

    /// The refusal that it tells of; one of an unknown reason is `internal`.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        let reason = Reason::ALL.iter().copied().find(|reason| reason.word() == self.code);
        let details = Details {
            tail: self.tail.map(Into::into),
            trim_point: self.trim_point.map(SeqNum::new),
            fencing_token: self.fencing_token.as_deref().and_then(|token| FencingToken::new(token).ok()),
            leader: self.leader.clone(),
            retry_after_ms: self.retry_after_ms,
        };
        let mut refusal = Refusal::new(reason.unwrap_or(Reason::Internal), &self.message);
        refusal.details = (details != Details::default()).then(|| Box::new(details));
        refusal
    }
}
