//! How does the body of a request come in whole, and what object is in it?

use std::sync::PoisonError;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use client::json::describe;
use http::StatusCode;
use http::header::CONTENT_ENCODING;
use http_body_util::BodyExt;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::bounds::{BODY_BYTES_MAX, BODY_WAIT_MAX};
use super::budget::{Budget, Hold};
use super::failure::HttpRefusal;
use super::route::{Ask, JSON};

/// A body that is here whole, with what it holds of the budget.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    _hold: Hold,
}

impl Ask {
    /// Takes the body in.
    ///
    /// # Errors
    /// `too_large` past `bytes_max`, told before a byte is read where the length is; `resource_exhausted`; 408 for one that
    /// doesn't come in time; 415 for one that is compressed.
    pub(super) async fn whole(&mut self, bytes_max: usize) -> Result<Whole, HttpRefusal> {
        if let Some(coding) = self.header(CONTENT_ENCODING.as_str()).filter(|coding| *coding != "identity") {
            let message = format!("the body is encoded as '{coding}': send it as it is");
            return Err(HttpRefusal::of_http(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let told = http_body::Body::size_hint(body).exact();
        if let Some(bytes) = told.filter(|bytes| *bytes > bytes_max as u64) {
            return Err(too_large(bytes, bytes_max));
        }
        gather(body, bytes_max, &self.gateway.budget).await
    }

    /// The object that the body is; an empty body is an empty object.
    pub(super) async fn object(&mut self) -> Result<Map<String, Value>, HttpRefusal> {
        let whole = self.whole(BODY_BYTES_MAX).await?;
        if whole.bytes.is_empty() {
            return Ok(Map::new());
        }
        self.content(&[JSON])?;
        match serde_json::from_slice(&whole.bytes) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(other) => {
                Err(HttpRefusal::invalid(format!("the body is {}: it must be a JSON object", describe(&other))))
            }
            Err(error) => Err(HttpRefusal::invalid(format!("the body is not JSON: {error}"))),
        }
    }
}

fn too_large(bytes: u64, bytes_max: usize) -> HttpRefusal {
    let message = format!("a body of {bytes} bytes or more: at most {bytes_max} are taken here");
    HttpRefusal::from(Refusal::new(Reason::TooLarge, message))
}

async fn gather(body: &mut Body, bytes_max: usize, budget: &Budget) -> Result<Whole, HttpRefusal> {
    let by = Instant::now() + BODY_WAIT_MAX;
    let mut hold = Hold::default();
    // A body that comes in one piece, as small ones do, is not copied.
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    loop {
        let frame = timeout_at(by, body.frame()).await.map_err(|_| {
            let message = format!("the body was not there within {} s", BODY_WAIT_MAX.as_secs());
            HttpRefusal::of_http(StatusCode::REQUEST_TIMEOUT, message)
        })?;
        let data =
            match frame.transpose().map_err(|error| HttpRefusal::invalid(format!("the body broke off: {error}")))? {
                Some(frame) => frame.into_data().unwrap_or_default(),
                None => break,
            };
        let bytes = first.len() + joined.len() + data.len();
        if bytes > bytes_max {
            return Err(too_large(bytes as u64, bytes_max));
        }
        budget.cover(&mut hold, bytes)?;
        if bytes == data.len() {
            first = data;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut first));
            joined.extend_from_slice(&data);
        }
    }
    Ok(Whole { bytes: if joined.is_empty() { first } else { joined.freeze() }, _hold: hold })
}

/// Takes a field out of an object as text; null is absent.
pub(super) fn text(object: &mut Map<String, Value>, name: &str) -> Result<Option<String>, Refusal> {
    match object.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(name, &other, "a string")),
    }
}

/// As [`text`], a switch.
pub(super) fn switch(object: &mut Map<String, Value>, name: &str) -> Result<Option<bool>, Refusal> {
    match object.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(set)) => Ok(Some(set)),
        Some(other) => Err(wrong(name, &other, "true or false")),
    }
}

/// As [`text`], a whole number.
pub(super) fn count(object: &mut Map<String, Value>, name: &str) -> Result<Option<u64>, Refusal> {
    let Some(value) = object.remove(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let wanted = || wrong(name, &value, &format!("a whole number from 0 to {}", u64::MAX));
    value.as_u64().map(Some).ok_or_else(wanted)
}

/// As [`text`], milliseconds.
pub(super) fn stamp(object: &mut Map<String, Value>, name: &str) -> Result<Option<i64>, Refusal> {
    let Some(value) = object.remove(name).filter(|value| !value.is_null()) else { return Ok(None) };
    let wanted = || wrong(name, &value, &format!("milliseconds from {} to {}", i64::MIN, i64::MAX));
    value.as_i64().map(Some).ok_or_else(wanted)
}

fn wrong(name: &str, value: &Value, wanted: &str) -> Refusal {
    Refusal::invalid(format!("field '{name}' is {}: it takes {wanted}", describe(value)))
}

/// What is left of an object once every field that is known was taken out.
///
/// # Errors
/// `invalid` with the name of the first.
pub(super) fn nothing_else(object: &Map<String, Value>, takes: &str) -> Result<(), Refusal> {
    match object.keys().next() {
        None => Ok(()),
        Some(name) => {
            let shown: String = name.chars().take(40).collect();
            Err(Refusal::invalid(format!("field '{shown}' is unknown here: this path takes {takes}")))
        }
    }
}
