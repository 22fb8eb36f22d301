//! What is an S2 client told when its request is refused?
//!
//! S2 has a code for each cause, with a status, and clients decide by the code alone whether to try again and whether
//! something may have happened. So a failure of which nothing is known must never get a code that promises no side effect.

use std::time::Duration;

use axum::body::Body;
use client::{Error, Position, Reason};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::json;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:literal;)*) => {
        /// S2's codes, as far as the façade gives them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// The word in the body.
            pub(super) const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The status of the response.
            pub(super) fn status(self) -> StatusCode {
                let status = match self { $(Self::$name => $status,)* };
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    };
}

codes! {
    /// Nobody said who is asking.
    Authn = "authn", 401;
    /// A frame of a session that is none.
    BadFrame = "bad_frame", 400;
    /// A header that is missing or wrong.
    BadHeader = "bad_header", 400;
    /// A body that is not the JSON that is due.
    BadJson = "bad_json", 400;
    /// A path that names nothing.
    BadPath = "bad_path", 400;
    /// A body that is not the message that is due.
    BadProto = "bad_proto", 400;
    /// A query that is wrong.
    BadQuery = "bad_query", 400;
    /// The basin is being deleted.
    BasinDeletionPending = "basin_deletion_pending", 409;
    /// No such basin.
    BasinNotFound = "basin_not_found", 404;
    /// The star can't take it now, and nothing happened.
    HotServer = "hot_server", 502;
    /// The request can't be right.
    Invalid = "invalid", 422;
    /// The façade doesn't do this.
    NotImplemented = "not_implemented", 501;
    /// Something is wrong inside.
    Other = "other", 500;
    /// Who is asking may not do this.
    PermissionDenied = "permission_denied", 403;
    /// A bound of the stream or the star is reached for now.
    RateLimited = "rate_limited", 429;
    /// The request took too long to arrive.
    RequestTimeout = "request_timeout", 408;
    /// There is one of this name.
    ResourceAlreadyExists = "resource_already_exists", 409;
    /// The façade is about to end.
    ServerDraining = "server_draining", 503;
    /// No such stream.
    StreamNotFound = "stream_not_found", 404;
    /// Another writer was in the way, and nothing happened.
    TransactionConflict = "transaction_conflict", 409;
    /// Nobody answers, and something may have happened.
    Unavailable = "unavailable", 503;
    /// The star took too long, and something may have happened.
    UpstreamTimeout = "upstream_timeout", 504;
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// For a cause that has a code.
    Coded {
        /// Which.
        code: Code,
        /// In one sentence, with the value that was wrong.
        message: String,
        /// How long to wait before the next try.
        retry_after: Option<Duration>,
    },
    /// The next record gets this number, not the one that was expected.
    SeqNum(u64),
    /// This token is installed, not the one that was presented.
    FencingToken(String),
    /// There is nothing to read from there: the tail.
    Unwritten(Position),
}

pub(super) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self::Coded { code, message: message.into(), retry_after: None }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::Invalid, message)
    }

    /// What a client of nova was told, in S2's words; `missing` is what a name that is not there stands for.
    pub(super) fn of(error: &Error, missing: Code) -> Self {
        match (error.reason(), error.tail(), error.fencing_token()) {
            // An earlier attempt may have landed, so that a condition which failed proves nothing.
            _ if error.resent() => Self::new(Code::Unavailable, error.message()),
            (Reason::SequenceMismatch, Some(tail), _) => Self::SeqNum(tail.seq_num.get()),
            (Reason::FencedOut, _, Some(token)) => Self::FencingToken(token.as_str().to_owned()),
            (Reason::OutOfRange, Some(tail), _) => Self::Unwritten(tail),
            (reason, ..) => {
                let code = code_of(reason, error.no_side_effect(), missing);
                Self::Coded { code, message: error.message().to_owned(), retry_after: error.retry_after() }
            }
        }
    }

    /// Whether it says that what was named is not there.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Coded { code: Code::StreamNotFound | Code::BasinNotFound, .. })
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Coded { code, .. } => code.status(),
            Self::SeqNum(_) | Self::FencingToken(_) => StatusCode::PRECONDITION_FAILED,
            Self::Unwritten(_) => StatusCode::RANGE_NOT_SATISFIABLE,
        }
    }

    /// The body: a condition that failed, and a range that is not there, have the data that a client goes on with and no code.
    pub(super) fn body(&self) -> String {
        let body = match self {
            Self::Coded { code, message, .. } => json!({ "code": code.word(), "message": message }),
            Self::SeqNum(next) => json!({ "seq_num_mismatch": next }),
            Self::FencingToken(installed) => json!({ "fencing_token_mismatch": installed }),
            Self::Unwritten(tail) => json!({ "tail": super::json::position(*tail) }),
        };
        body.to_string()
    }

    pub(super) fn response(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Self::Coded { retry_after: Some(wait), .. } = self {
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            headers.insert("retry-after-ms", HeaderValue::from(ms));
        }
        response
    }
}

fn code_of(reason: Reason, no_side_effect: bool, missing: Code) -> Code {
    match reason {
        Reason::NotFound => missing,
        Reason::Invalid | Reason::TooLarge | Reason::FailedPrecondition => Code::Invalid,
        Reason::AlreadyExists => Code::ResourceAlreadyExists,
        Reason::WriterHeld | Reason::Superseded | Reason::BucketNotEmpty => Code::TransactionConflict,
        Reason::ResourceExhausted => Code::RateLimited,
        Reason::Unauthenticated => Code::Authn,
        Reason::PermissionDenied => Code::PermissionDenied,
        Reason::NotOwner => Code::HotServer,
        Reason::Unavailable | Reason::DeadlineExceeded if no_side_effect => Code::HotServer,
        Reason::Unavailable => Code::Unavailable,
        Reason::DeadlineExceeded => Code::UpstreamTimeout,
        Reason::WireOnly => Code::NotImplemented,
        Reason::SequenceMismatch | Reason::FencedOut | Reason::Trimmed | Reason::OutOfRange | Reason::Internal => {
            Code::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use client::SeqNum;

    use super::*;

    /// The codes that promise a client that nothing happened.
    const PROMISE_NOTHING_HAPPENED: &[Code] = &[Code::HotServer, Code::RateLimited, Code::TransactionConflict];

    #[test]
    fn what_may_have_happened_never_gets_a_code_that_promises_that_nothing_did() {
        for reason in Reason::ALL.iter().filter(|reason| !reason.no_side_effect()) {
            let code = code_of(*reason, false, Code::StreamNotFound);
            assert!(!PROMISE_NOTHING_HAPPENED.contains(&code), "{reason} is {code:?}");
            assert!(code.status().is_server_error(), "{reason} is {code:?}");
        }
        assert_eq!(code_of(Reason::Unavailable, true, Code::StreamNotFound), Code::HotServer);
    }

    #[test]
    fn conditions_and_ranges_have_data_and_no_code() {
        let tail = Position::new(SeqNum::new(7), 9);
        let cases = [
            (Failure::SeqNum(7), 412, r#"{"seq_num_mismatch":7}"#),
            (Failure::FencingToken(String::new()), 412, r#"{"fencing_token_mismatch":""}"#),
            (Failure::Unwritten(tail), 416, r#"{"tail":{"seq_num":7,"timestamp":9}}"#),
            (Failure::invalid("no"), 422, r#"{"code":"invalid","message":"no"}"#),
        ];
        for (failure, status, body) in cases {
            assert_eq!((failure.status().as_u16(), failure.body()), (status, body.to_owned()));
        }
    }
}
