//! How do answers of yes look?

use axum::body::Body;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::failure::HttpRefusal;
use super::route::{JSON, Outcome};

/// An answer that nobody keeps: what it tells may be otherwise a moment later.
pub(super) fn fresh(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // What is in a stream is its writers' and must not be taken for a page of ours.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Outcome {
    let mut text = serde_json::to_vec(value).map_err(|error| {
        HttpRefusal::from(Refusal::new(Reason::Internal, format!("the answer can't be written as JSON: {error}")))
    })?;
    // So that a terminal shows the next prompt on a line of its own.
    text.push(b'\n');
    Ok(fresh(status, JSON, Bytes::from(text)))
}

/// Done, with nothing more to say.
pub(super) fn nothing() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
