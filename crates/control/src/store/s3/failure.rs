//! What did the store mean by this answer, and what can be done about it?

use std::error::Error;
use std::fmt;
use std::time::Duration;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

/// Characters of a store's sentence that are told: some stores repeat the request in it, in which credentials stand far behind.
const MESSAGE_CHARS_MAX: usize = 200;

/// How one attempt at an S3 store failed: what the store answered, or why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Failure {
    /// HTTP status; `None` without an answer.
    pub status: Option<u16>,
    /// The store's word for it, such as `NoSuchBucket`.
    pub code: Option<String>,
    /// In the store's sentence, or the system's.
    pub message: String,
    /// What the store's operators find this request by.
    pub request_id: Option<String>,
    /// The region that the bucket is in, where an answer says that it is another.
    pub region: Option<String>,
}

impl fmt::Display for S3Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, self.code.as_deref()) {
            (Some(status), Some(code)) => write!(f, "status {status} {code}: {}", self.message)?,
            (Some(status), None) => write!(f, "status {status}: {}", self.message)?,
            (None, _) => f.write_str(&self.message)?,
        }
        self.request_id.as_ref().map_or(Ok(()), |id| write!(f, ", request {id}"))
    }
}

impl Error for S3Failure {}

/// What an answer says of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is no such object.
    Absent,
    /// The condition does not hold.
    ConditionFailed,
    /// The range starts past the end.
    OutOfRange,
    /// It was not carried out, and may be tried again.
    Again,
    /// It may have been carried out, and may be tried again.
    AgainUnknown,
    /// The request was signed at the wrong time; the SDK signs the next one by the store's clock.
    Skewed,
    /// It will not be carried out until somebody changes something.
    Never,
}

impl S3Failure {
    /// Without an answer.
    pub(super) fn unanswered(message: impl Into<String>) -> Self {
        Self { status: None, code: None, message: message.into(), request_id: None, region: None }
    }

    pub(super) fn timeout(after: Duration) -> Self {
        Self::unanswered(format!("no answer within {} ms", after.as_millis()))
    }

    /// Of what the SDK says.
    pub(super) fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: Error + ProvideErrorMetadata + 'static,
    {
        let raw = error.raw_response();
        let header = |name| raw.and_then(|raw| raw.headers().get(name)).map(str::to_owned);
        let service = error.as_service_error();
        let message = service.and_then(ProvideErrorMetadata::message).map_or_else(|| chain(error), short);
        Self {
            status: raw.map(|raw| raw.status().as_u16()),
            code: service.and_then(ProvideErrorMetadata::code).map(str::to_owned),
            message,
            request_id: header("x-amz-request-id"),
            region: header("x-amz-bucket-region"),
        }
    }

    fn code(&self) -> &str {
        self.code.as_deref().unwrap_or("")
    }

    pub(super) fn verdict(&self) -> Verdict {
        let Some(status) = self.status else {
            return Verdict::AgainUnknown;
        };
        match (status, self.code()) {
            (_, "RequestTimeTooSkewed") => Verdict::Skewed,
            (_, "SlowDown" | "ConditionalRequestConflict" | "OperationAborted") | (409 | 429, _) => Verdict::Again,
            (412, _) => Verdict::ConditionFailed,
            (416, _) => Verdict::OutOfRange,
            // A 404 without this code comes from something that is no store, and says nothing of the object.
            (404, "NoSuchKey") => Verdict::Absent,
            (501 | 505 | 507, _) => Verdict::Never,
            (_, "RequestTimeout" | "InternalError") | (200..=299 | 408 | 500.., _) => Verdict::AgainUnknown,
            _ => Verdict::Never,
        }
    }

    /// Whether the store has no room.
    pub(super) fn is_full(&self) -> bool {
        self.status == Some(507)
            || matches!(self.code(), "QuotaExceeded" | "XMinioStorageFull" | "InsufficientCapacity")
    }

    /// What an operator changes so that the store takes the request.
    pub(super) fn remedy(&self, bucket: &str, skew_ms: Option<i64>) -> String {
        let fixed = match self.code() {
            "NoSuchBucket" => return format!("make the bucket {bucket}, or name another with --store"),
            "RequestTimeTooSkewed" => return skew_remedy(skew_ms),
            "ExpiredToken" | "TokenRefreshRequired" | "InvalidToken" | "RequestExpired" => {
                "the credentials have expired: renew them"
            }
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" => {
                "the credentials are not the store's: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile"
            }
            "PermanentRedirect" | "AuthorizationHeaderMalformed" => {
                let region = self.region.as_deref().unwrap_or("the bucket's");
                return format!("the bucket is in another region: set s3.region to {region}");
            }
            "NotImplemented" => {
                "the store lacks what nova stands on: conditional writes (If-None-Match and If-Match), or the checksum that \
                 s3.checksum names"
            }
            "KeyTooLongError" => "name a shorter prefix with --store",
            _ if matches!(self.status, Some(401 | 403)) => {
                "let nova's credentials do s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket there"
            }
            _ if self.status == Some(404) => "check that s3.endpoint is an S3 store and that s3.path_style suits it",
            _ => {
                "check s3.endpoint, s3.region, s3.path_style, s3.checksum and s3.sign_payload against the store's manual"
            }
        };
        fixed.to_owned()
    }
}

/// A sentence, and no more of it than is told.
pub(super) fn short(sentence: &str) -> String {
    match sentence.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &sentence[..end]),
        None => sentence.to_owned(),
    }
}

fn skew_remedy(skew_ms: Option<i64>) -> String {
    let by = skew_ms.map_or_else(String::new, |ms| {
        let side = if ms < 0 { "ahead of" } else { "behind" };
        format!(" by {} s {side} the store's", ms.unsigned_abs() / 1_000)
    });
    format!("this machine's clock is wrong{by}: set it, for instance by NTP")
}

/// An error and its causes, as one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests;
