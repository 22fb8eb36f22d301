//! How are calls made where the addresses are those of HTTP?
//!
//! The same types, errors and promises as over the wire: what only asks is asked again within the request timeout, what
//! changes something is sent at most once. Sessions and the admin plane need the wire.

mod dial;
mod follow;
pub(crate) mod verbs;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{Instant, timeout_at};
use wire::names::{Address, BucketName};
use wire::reason::Reason;
use wire::refusal::Refusal;

use crate::client::{Again, Client, Inner, outcome_unknown};
use crate::error::{Error, Result};
use crate::json::FailureForm;
use crate::search::Search;
use dial::{Dialer, Unanswered};

pub(crate) use follow::start as follow;

const JSON: &str = "application/json";

/// Everything but what RFC 3986 calls unreserved; dots too, which clients on the way would take for steps in a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// The HTTP plane of a client.
#[derive(Debug)]
pub(crate) struct Plane {
    dialer: Dialer,
}

/// A request, but for the star that it goes to.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    method: Method,
    /// From `/v1` on.
    path: String,
    kind: Option<&'static str>,
    body: Bytes,
    idempotency_key: Option<u128>,
    /// How long the star may wait before it answers.
    waits: Duration,
}

impl Ask {
    fn new(method: Method, path: String) -> Self {
        Self { method, path, kind: None, body: Bytes::new(), idempotency_key: None, waits: Duration::ZERO }
    }

    /// With a body of JSON.
    fn json(mut self, value: &impl serde::Serialize) -> Result<Self> {
        let body = serde_json::to_vec(value).map_err(|error| Error::harmless(Reason::Internal, error.to_string()))?;
        (self.kind, self.body) = (Some(JSON), body.into());
        Ok(self)
    }
}

/// A part of a path that stands for itself whatever is in it.
fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

fn bucket_path(bucket: &BucketName) -> String {
    format!("/v1/buckets/{}", segment(bucket.as_str()))
}

fn stream_path(address: &Address) -> String {
    format!("{}/streams/{}", bucket_path(&address.bucket), segment(address.key.as_str()))
}

/// The error of a call that HTTP doesn't have.
pub(crate) fn wire_only(what: &str) -> Error {
    Error::harmless(Reason::WireOnly, format!("{what} needs the wire: give host:port in place of an HTTP address"))
}

impl Plane {
    /// A plane for these bases, `http://…` or `https://…`.
    pub(crate) fn new(bases: &[String], options: &crate::Options) -> Result<Self> {
        Ok(Self { dialer: Dialer::new(bases, options)? })
    }

    async fn attempt(&self, base: &str, ask: &Ask, name: &str) -> Result<Bytes, Missed> {
        let target = format!("{base}{}", ask.path);
        let mut request = Request::builder().method(ask.method.clone()).uri(&target).header(ACCEPT, JSON);
        if let Ok(name) = HeaderValue::from_str(name) {
            request = request.header(USER_AGENT, name);
        }
        if let Some(kind) = ask.kind {
            request = request.header(CONTENT_TYPE, kind);
        }
        if let Some(key) = ask.idempotency_key {
            let id = wire::ids::StreamId::from_bytes(key.to_be_bytes());
            request = request.header("idempotency-key", id.to_string());
        }
        let request = request.body(Full::new(ask.body.clone())).map_err(|error| {
            Missed::Unsent(Error::harmless(Reason::Invalid, format!("'{target}' can't be asked for: {error}")))
        })?;
        let unreached = |why: &str| Error::harmless(Reason::Unavailable, format!("no star answers at {base}: {why}"));
        match self.dialer.ask(request).await {
            Ok((status, body)) if status.is_success() => Ok(body),
            Ok((status, body)) => Err(Missed::Refused(status, body)),
            Err(Unanswered::Unsent(why)) => Err(Missed::Unsent(unreached(&why))),
            Err(Unanswered::Broken(why)) => Err(Missed::Broken(format!("the connection to {base} broke: {why}"))),
        }
    }
}

/// Why an attempt brought nothing.
enum Missed {
    Unsent(Error),
    Broken(String),
    Refused(StatusCode, Bytes),
}

impl Client {
    /// Asks over HTTP, within the request timeout, and answers the body.
    pub(crate) async fn ask_http(&self, plane: &Plane, again: Again, ask: Ask) -> Result<Bytes> {
        let timeout = self.inner.options.request_timeout + ask.waits;
        let by = Instant::now() + timeout;
        let mut sent = false;
        match timeout_at(by, attempts(&self.inner, plane, again, &ask, &mut sent)).await {
            Ok(answer) => answer,
            Err(_) => {
                let message = format!("no answer within {} ms", timeout.as_millis());
                Err(outcome_unknown(if sent { again } else { Again::Asks }, Reason::DeadlineExceeded, message))
            }
        }
    }
}

async fn attempts(inner: &Arc<Inner>, plane: &Plane, again: Again, ask: &Ask, sent: &mut bool) -> Result<Bytes> {
    let options = &inner.options;
    let mut connecting = Search::new(inner, options.connect_budget);
    let mut asking = Search::new(inner, options.request_timeout);
    loop {
        *sent = true;
        let error = match plane.attempt(&connecting.target(), ask, &options.name).await {
            Ok(body) => return Ok(body),
            Err(Missed::Unsent(error)) => {
                *sent = false;
                if !error.retryable() {
                    return Err(error);
                }
                connecting.missed(error).await?;
                continue;
            }
            Err(Missed::Broken(why)) => outcome_unknown(again, Reason::Unavailable, why),
            Err(Missed::Refused(status, body)) => refused(status, &body, again),
        };
        if again == Again::Never || error.reason() != Reason::Unavailable {
            return Err(error);
        }
        asking.missed(error).await?;
    }
}

/// The error of an answer of no; of one that no gateway wrote, as much as its status tells.
fn refused(status: StatusCode, body: &[u8], again: Again) -> Error {
    if let Ok(form) = serde_json::from_slice::<FailureForm>(body) {
        let no_side_effect = form.no_side_effect || again == Again::Asks;
        return Error::told(form.refusal(), no_side_effect, form.resent);
    }
    let reason = match status.as_u16() {
        400..=499 => Reason::ALL.iter().copied().find(|reason| reason.http_status() == Some(status.as_u16())),
        502 | 503 => Some(Reason::Unavailable),
        504 => Some(Reason::DeadlineExceeded),
        _ => None,
    };
    let shown: String = String::from_utf8_lossy(body).chars().take(200).collect();
    let refusal = Refusal::new(reason.unwrap_or(Reason::Internal), format!("the answer is {status}: {}", shown.trim()));
    let no_side_effect = again == Again::Asks || refusal.reason.no_side_effect();
    Error::told(refusal, no_side_effect, false)
}

#[cfg(test)]
mod tests;
