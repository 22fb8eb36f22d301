//! What is asked for: which headers count, and how is a body taken within bounds?

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::config::StreamJson;
use super::failure::{Code, Failure, Result};
use super::frame::Coding;
use super::json::{self, Format};

/// Longest body, packed and unpacked: a batch of 1 MiB of which JSON escapes every byte fits in.
const BODY_BYTES_MAX: usize = 8 << 20;
/// How long a body may take to arrive.
const BODY_WAIT: Duration = Duration::from_secs(30);
/// Longest request token, in bytes.
const REQUEST_TOKEN_BYTES_MAX: usize = 36;

/// The forms that a body has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Proto,
    /// Frames of a session.
    Session,
    Events,
}

fn form(headers: &HeaderMap, name: HeaderName) -> Option<Form> {
    let first = headers.get(name)?.to_str().ok()?.split(',').next()?;
    let mime = first.split(';').next()?.trim().to_ascii_lowercase();
    match mime.as_str() {
        "application/json" => Some(Form::Json),
        "application/protobuf" | "application/x-protobuf" => Some(Form::Proto),
        "s2s/proto" => Some(Form::Session),
        "text/event-stream" => Some(Form::Events),
        other => (other.starts_with("application/") && other.ends_with("+json")).then_some(Form::Json),
    }
}

/// The form of what is sent, if it is a known one.
pub(super) fn content(headers: &HeaderMap) -> Option<Form> {
    form(headers, CONTENT_TYPE)
}

/// The form that is asked for; JSON unless it is a known one.
pub(super) fn accepted(headers: &HeaderMap) -> Form {
    form(headers, ACCEPT).unwrap_or(Form::Json)
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>> {
    let value = headers.get(name).map(|value| value.to_str());
    value.transpose().map_err(|_| Failure::new(Code::BadHeader, format!("the header {name} is no text")))
}

/// How bytes stand in JSON, as the header says.
///
/// # Errors
/// `bad_header`.
pub(super) fn format(headers: &HeaderMap) -> Result<Format> {
    let Some(name) = text(headers, "s2-format")? else { return Ok(Format::Raw) };
    Format::named(name).ok_or_else(|| {
        let name: String = name.chars().take(20).flat_map(char::escape_debug).collect();
        Failure::new(Code::BadHeader, format!("the header s2-format is '{name}': it is raw or base64"))
    })
}

/// The token under which a create is done once.
///
/// # Errors
/// `bad_header`.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<&str>> {
    let token = text(headers, "s2-request-token")?.filter(|token| !token.is_empty());
    match token {
        Some(token) if token.len() > REQUEST_TOKEN_BYTES_MAX => {
            let bytes = token.len();
            let message = format!("the header s2-request-token has {bytes} bytes: at most {REQUEST_TOKEN_BYTES_MAX}");
            Err(Failure::new(Code::BadHeader, message))
        }
        token => Ok(token),
    }
}

/// The configuration for a stream that the request makes.
///
/// # Errors
/// `bad_header`.
pub(super) fn stream_config(headers: &HeaderMap) -> Result<Option<StreamJson>> {
    let Some(json) = text(headers, "s2-stream-config")? else { return Ok(None) };
    let bad = |error| Failure::new(Code::BadHeader, format!("the header s2-stream-config: {error}"));
    serde_json::from_str(json).map(Some).map_err(bad)
}

/// Where a stream of events was when it broke: the last record, and records and metered bytes that came.
///
/// # Errors
/// `bad_header`.
pub(super) fn last_event(headers: &HeaderMap) -> Result<Option<[u64; 3]>> {
    let Some(id) = text(headers, "last-event-id")?.filter(|id| !id.is_empty()) else { return Ok(None) };
    let numbers: Option<Vec<u64>> = id.split(',').map(|number| number.trim().parse().ok()).collect();
    match numbers.as_deref() {
        Some([seq_num, count, bytes]) => Ok(Some([*seq_num, *count, *bytes])),
        _ => {
            let id: String = id.chars().take(60).flat_map(char::escape_debug).collect();
            let message = format!("the header last-event-id is '{id}': it is a sequence number, a count and bytes");
            Err(Failure::new(Code::BadHeader, message))
        }
    }
}

/// A body that is held, within the bytes that all bodies may have.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) bytes: Bytes,
    /// Given back when it is dropped.
    _room: Option<OwnedSemaphorePermit>,
}

/// Takes a body, unpacked.
///
/// # Errors
/// `invalid` for one that is too long; `bad_header` for an unknown coding; `hot_server` when no room is left for it;
/// `request_timeout` when it takes too long.
pub(super) async fn take(request: Request<Body>, room: &std::sync::Arc<Semaphore>) -> Result<Taken> {
    let named = text(request.headers(), CONTENT_ENCODING.as_str())?.unwrap_or_default();
    let coding = Coding::named(named).ok_or_else(|| {
        let name: String = named.chars().take(20).flat_map(char::escape_debug).collect();
        Failure::new(Code::BadHeader, format!("the header content-encoding is '{name}': zstd and gzip are known"))
    })?;
    let packed = timeout(BODY_WAIT, collect(request.into_body(), room)).await.map_err(|_| {
        let secs = BODY_WAIT.as_secs();
        Failure::new(Code::RequestTimeout, format!("the body did not arrive within {secs} seconds"))
    })??;
    if coding == Coding::Plain {
        return Ok(packed);
    }
    let mut unpacked_room = reserve(room, BODY_BYTES_MAX)?;
    match coding.unpack(packed.bytes, BODY_BYTES_MAX) {
        Ok(Some(bytes)) => {
            // What it did not need goes back.
            drop(unpacked_room.split(BODY_BYTES_MAX - bytes.len()));
            Ok(Taken { bytes, _room: Some(unpacked_room) })
        }
        Ok(None) => Err(too_long()),
        Err(error) => Err(Failure::invalid(format!("the body can't be unpacked: {error}"))),
    }
}

fn too_long() -> Failure {
    Failure::invalid(format!("the body has over {BODY_BYTES_MAX} bytes, which is the bound"))
}

/// Room for so many bytes, given back when it is dropped.
///
/// # Errors
/// `hot_server` when there is none.
pub(super) fn reserve(room: &std::sync::Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    std::sync::Arc::clone(room).try_acquire_many_owned(bytes).map_err(|_| {
        Failure::new(Code::HotServer, "so many requests are held that there is no room for this one: come back later")
    })
}

async fn collect(mut body: Body, room: &std::sync::Arc<Semaphore>) -> Result<Taken> {
    let mut bytes = BytesMut::new();
    let mut held: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Failure::new(Code::RequestTimeout, format!("the body broke off: {error}")))?;
        let Ok(chunk) = frame.into_data() else { continue };
        if bytes.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(too_long());
        }
        let more = reserve(room, chunk.len())?;
        match &mut held {
            Some(held) => held.merge(more),
            None => held = Some(more),
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Taken { bytes: bytes.freeze(), _room: held })
}

/// Takes a body of JSON.
///
/// # Errors
/// As [`take`]; `bad_json`.
pub(super) async fn take_json<T>(request: Request<Body>, room: &std::sync::Arc<Semaphore>) -> Result<T>
where
    T: for<'de> Deserialize<'de>,
{
    if content(request.headers()) != Some(Form::Json) {
        return Err(Failure::new(Code::BadJson, "the header content-type must be application/json"));
    }
    json::parse(&take(request, room).await?.bytes)
}

/// As [`take_json`], where there may be no body.
///
/// # Errors
/// As [`take_json`].
pub(super) async fn take_json_if_any<T>(request: Request<Body>, room: &std::sync::Arc<Semaphore>) -> Result<Option<T>>
where
    T: for<'de> Deserialize<'de>,
{
    let is_json = content(request.headers()) == Some(Form::Json);
    let taken = take(request, room).await?;
    match (taken.bytes.is_empty(), is_json) {
        (true, _) => Ok(None),
        (false, true) => json::parse(&taken.bytes),
        (false, false) => Err(Failure::new(Code::BadJson, "the header content-type must be application/json")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderValue;

    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn forms_are_told_by_the_first_type_that_is_named() {
        let of = |value: &str| content(&headers("content-type", value));
        assert_eq!(of("application/json; charset=utf-8"), Some(Form::Json));
        assert_eq!(of("application/x-protobuf"), Some(Form::Proto));
        assert_eq!((of("S2S/proto"), of("text/plain")), (Some(Form::Session), None));
        let accepts = accepted(&headers("accept", "text/event-stream, application/json"));
        assert_eq!((accepts, accepted(&HeaderMap::new())), (Form::Events, Form::Json));
    }

    #[test]
    fn bad_headers_are_refused_by_name() {
        let code = |failure| match failure {
            Failure::Coded { code, message, .. } => (code, message),
            other => panic!("{other:?}"),
        };
        for (refused, name) in [
            (code(format(&headers("s2-format", "hex")).unwrap_err()), "s2-format"),
            (code(token(&headers("s2-request-token", &"x".repeat(37))).unwrap_err()), "s2-request-token"),
            (code(last_event(&headers("last-event-id", "1,2")).unwrap_err()), "last-event-id"),
            (code(stream_config(&headers("s2-stream-config", "{")).unwrap_err()), "s2-stream-config"),
        ] {
            assert!(refused.0 == Code::BadHeader && refused.1.contains(name), "{refused:?}");
        }
        assert_eq!(last_event(&headers("last-event-id", "7,2,100")).unwrap(), Some([7, 2, 100]));
    }

    #[tokio::test]
    async fn a_body_is_held_within_its_bound_and_that_of_all() {
        let post = |body: Vec<u8>, coding: &str| {
            Request::builder().header("content-encoding", coding).body(Body::from(body)).unwrap()
        };
        let room = Arc::new(Semaphore::new(16 << 20));
        let packed = Coding::Zstd.pack(b"hello").unwrap();
        let taken = take(post(packed, "zstd"), &room).await.unwrap();
        assert_eq!((taken.bytes.as_ref(), room.available_permits()), (&b"hello"[..], (16 << 20) - 5));
        drop(taken);
        assert_eq!(room.available_permits(), 16 << 20);
        let bomb = Coding::Gzip.pack(&vec![0; BODY_BYTES_MAX + 1]).unwrap();
        assert_eq!(take(post(bomb, "gzip"), &room).await.unwrap_err(), too_long());
        assert_eq!(take(post(vec![0; BODY_BYTES_MAX + 1], ""), &room).await.unwrap_err(), too_long());
        assert!(take(post(Vec::new(), "br"), &room).await.is_err());
        let small = Arc::new(Semaphore::new(3));
        let refused = take(post(vec![0; 4], ""), &small).await.unwrap_err();
        assert!(matches!(refused, Failure::Coded { code: Code::HotServer, .. }), "{refused:?}");
        assert_eq!(small.available_permits(), 3);
    }
}
