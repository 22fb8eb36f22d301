//! How do frames and events leave for a client that may be slow, gone, or told to reconnect?

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::failure::Failure;
use super::frame::{self, Coding};
use crate::surface::Draining;

/// Chunks that wait for the connection.
const CHUNKS_MAX: usize = 4;
/// How long a client may take nothing before it is given up.
const STALLED_MAX: Duration = Duration::from_secs(60);
/// How long sessions have to go by themselves once they are advised to.
const GRACE: Duration = Duration::from_secs(2);

/// The frames of a session on their way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    chunks: mpsc::Sender<Bytes>,
    chunk: BytesMut,
    coding: Coding,
    draining: Draining,
}

/// When a session must end because the server does.
#[derive(Debug, Clone)]
pub(super) struct Grace(Draining);

impl Grace {
    pub(super) fn new(draining: Draining) -> Self {
        Self(draining)
    }

    /// Waits until sessions are advised to go elsewhere.
    pub(super) async fn advised(&self) -> Instant {
        self.0.clone().begun().await
    }

    /// Waits until they must; some of the time is left for their last frames.
    pub(super) async fn ended(&self) {
        let until = self.advised().await;
        sleep(GRACE.min(until.saturating_duration_since(Instant::now()) / 2)).await;
    }
}

/// The response of a session with this body.
pub(super) fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("s2s/proto"));
    response
}

impl Outgoing {
    pub(super) fn new(coding: Coding, draining: Draining) -> (Self, Body) {
        let (chunks, mut waiting) = mpsc::channel(CHUNKS_MAX);
        let chunk =
            stream::poll_fn(move |context| waiting.poll_recv(context).map(|chunk| chunk.map(Ok::<_, Infallible>)));
        (Self { chunks, chunk: BytesMut::new(), coding, draining }, Body::from_stream(chunk))
    }

    pub(super) fn grace(&self) -> Grace {
        Grace::new(self.draining.clone())
    }

    /// Adds a message to the next chunk, and the advice to reconnect when it is time.
    pub(super) fn put(&mut self, message: &impl prost::Message) {
        let reconnect = self.draining.has_begun();
        frame::put(message, self.coding, reconnect, &mut self.chunk);
    }

    /// Adds the end.
    pub(super) fn put_terminal(&mut self, failure: &Failure) {
        frame::put_terminal(failure, &mut self.chunk);
    }

    /// Adds a text.
    pub(super) fn put_text(&mut self, text: &str) {
        self.chunk.extend_from_slice(text.as_bytes());
    }

    /// Sends what was added; false when the client is gone or takes nothing.
    pub(super) async fn send(&mut self) -> bool {
        if self.chunk.is_empty() {
            return true;
        }
        let chunk = self.chunk.split().freeze();
        matches!(timeout(STALLED_MAX, self.chunks.send(chunk)).await, Ok(Ok(())))
    }

    /// Waits until the client is gone.
    pub(super) async fn closed(&self) {
        self.chunks.closed().await;
    }
}
