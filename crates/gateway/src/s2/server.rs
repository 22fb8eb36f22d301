//! How are the connections of S2's clients served?
//!
//! HTTP/1.1 and HTTP/2 by prior knowledge share the listener: the first bytes of a connection tell which it is.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use client::Client;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::facade::Facade;
use crate::surface::{Bound, Options, Serve, Server, StartError};

/// Requests of one HTTP/2 connection at once.
const STREAMS_MAX: u32 = 256;
/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: u32 = 64 << 10;
/// How long a head may take to arrive.
const HEAD_WAIT: Duration = Duration::from_secs(10);
/// How often it is looked whether more of the first bytes is there.
const PEEK_EVERY: Duration = Duration::from_millis(20);
/// What HTTP/2 by prior knowledge begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes that one request, and all of a connection, may have under way to the façade: one that waits leaves room for others.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// Bytes of answers that one request may have under way in the façade.
const SEND_BYTES_MAX: usize = 1 << 20;
const FRAME_BYTES_MAX: u32 = 256 << 10;
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WAIT: Duration = Duration::from_secs(10);

/// Listens where `bound` says, and serves what `client` reaches.
///
/// # Errors
/// [`StartError`] when it can't listen, or has no thread to run on.
pub fn start(bound: Bound, options: &Options, client: Client) -> Result<Server, StartError> {
    Server::start(bound, options, |draining| Connections(Arc::new(Facade::new(client, draining))))
}

#[derive(Clone)]
struct Connections(Arc<Facade>);

impl Serve for Connections {
    async fn connection(self, socket: TcpStream) {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "a connection that broke at once");
            return;
        }
        let mut draining = self.0.draining();
        let is_told = tokio::select! {
            is_told = tells_version(&socket) => is_told,
            _ = draining.begun() => false,
        };
        if !is_told {
            tracing::debug!("a connection said nothing");
            return;
        }
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = Arc::clone(&self.0).serve(request.map(Body::new));
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(HEAD_BYTES_MAX as usize);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX)
            .max_send_buf_size(SEND_BYTES_MAX)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_WAIT);
        let mut serving = pin!(http.serve_connection(TokioIo::new(socket), service));
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            _ = draining.begun() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error, "a connection of an S2 client ended");
        }
    }

    fn turn_away(&self, _socket: &TcpStream) {
        tracing::debug!("a connection over the bound is closed");
    }
}

/// Waits until the first bytes tell which version a client speaks; false when they don't in time. Whoever serves the
/// connection then finds it out without a bound of time.
async fn tells_version(socket: &TcpStream) -> bool {
    let told = async {
        let mut first = [0; PREFACE.len()];
        loop {
            match socket.peek(&mut first).await {
                Ok(0) | Err(_) => return false,
                Ok(bytes) if bytes == PREFACE.len() || first[..bytes] != PREFACE[..bytes] => return true,
                // It answers at once however little is there.
                Ok(_) => sleep(PEEK_EVERY).await,
            }
        }
    };
    timeout(HEAD_WAIT, told).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_does_not_tell_its_version_is_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        for (first, is_told) in
            [(&b""[..], false), (b"P", false), (&PREFACE[..23], false), (b"G", true), (b"POST", true), (PREFACE, true)]
        {
            let (mut theirs, ours) = (TcpStream::connect(at).await.unwrap(), listener.accept().await.unwrap().0);
            theirs.write_all(first).await.unwrap();
            let began = Instant::now();
            assert_eq!(tells_version(&ours).await, is_told, "{first:?}");
            assert_eq!(began.elapsed() >= HEAD_WAIT, !is_told, "{first:?}");
            drop(theirs);
        }
    }
}
