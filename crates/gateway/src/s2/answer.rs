//! How does an answer that is whole go back?

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY};
use http::{Response, StatusCode};
use serde_json::Value;

use super::frame::{COMPRESSED_BYTES_MIN, Coding};

/// An answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// All of it at once.
    Whole(Whole),
    /// A session or a stream of events.
    Streamed(Response<Body>),
}

/// An answer that is whole.
#[derive(Debug)]
pub(super) struct Whole {
    status: StatusCode,
    content_type: Option<&'static str>,
    body: Bytes,
    provisioned: Option<&'static str>,
}

impl Answer {
    pub(super) fn json(status: StatusCode, value: &Value) -> Self {
        Self::whole(status, Some("application/json"), value.to_string().into())
    }

    pub(super) fn proto(message: &impl prost::Message) -> Self {
        Self::whole(StatusCode::OK, Some("application/protobuf"), message.encode_to_vec().into())
    }

    pub(super) fn empty(status: StatusCode) -> Self {
        Self::whole(status, None, Bytes::new())
    }

    /// A value that was asked to be there, and what that took: `created`, `updated` or `noop`.
    pub(super) fn provisioned(how: &'static str, status: StatusCode, value: &Value) -> Self {
        let body = value.to_string().into();
        Self::Whole(Whole { status, content_type: Some("application/json"), body, provisioned: Some(how) })
    }

    fn whole(status: StatusCode, content_type: Option<&'static str>, body: Bytes) -> Self {
        Self::Whole(Whole { status, content_type, body, provisioned: None })
    }

    /// The response, packed when it is worth it and the client accepts it.
    pub(super) fn response(self, coding: Coding) -> Response<Body> {
        let whole = match self {
            Self::Streamed(response) => return response,
            Self::Whole(whole) => whole,
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = whole.status;
        let headers = response.headers_mut();
        if let Some(content_type) = whole.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Some(how) = whole.provisioned {
            headers.insert("s2-provision-result", HeaderValue::from_static(how));
        }
        let mut body = whole.body;
        if let Some(name) = coding.name().filter(|_| body.len() >= COMPRESSED_BYTES_MIN)
            && let Ok(packed) = coding.pack(&body)
        {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
            headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
            body = packed.into();
        }
        *response.body_mut() = Body::from(body);
        response
    }
}
