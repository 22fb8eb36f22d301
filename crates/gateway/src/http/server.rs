//! How is a connection of HTTP served?

use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use client::Client;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tower_service::Service;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::bounds::{HEAD_BYTES_MAX, HEAD_WAIT_MAX, WRITE_WAIT_MAX};
use super::failure::HttpRefusal;
use super::gateway::Gateway;
use super::routes;
use super::socket::Timed;
use crate::surface::{Bound, Options, Serve, Server, StartError};

/// Listens where `bound` says, and serves what `client` reaches.
///
/// # Errors
/// [`StartError`] when it can't listen, or has no thread to run on.
pub fn start(bound: Bound, options: &Options, client: Client) -> Result<Server, StartError> {
    Server::start(bound, options, |draining| {
        let gateway = Arc::new(Gateway::new(client, draining));
        Connections { router: routes::router(&gateway), turned_away: turning_away().into(), gateway }
    })
}

#[derive(Clone)]
struct Connections {
    gateway: Arc<Gateway>,
    router: Router,
    turned_away: Arc<[u8]>,
}

impl Serve for Connections {
    async fn connection(self, socket: TcpStream) {
        let Self { gateway, router, .. } = self;
        gateway.counts.connections.inc();
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "a connection that broke at once");
            return;
        }
        let service = service_fn(move |request: Request<Incoming>| router.clone().call(request.map(Body::new)));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT_MAX).max_buf_size(HEAD_BYTES_MAX);
        let io = TokioIo::new(Timed::new(socket, WRITE_WAIT_MAX));
        let mut draining = gateway.draining();
        let mut serving = pin!(http.serve_connection(io, service));
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            _ = draining.begun() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }

    fn turn_away(&self, socket: &TcpStream) {
        // Its buffer is empty, so that there is room for all of it; a client that is gone misses nothing.
        drop(socket.try_write(&self.turned_away));
    }
}

/// What a connection over the bound is told.
fn turning_away() -> Vec<u8> {
    let refusal = Refusal::new(Reason::Unavailable, "too many connections are open: come back in a while");
    let body = HttpRefusal::from(refusal).body("");
    let bytes = body.len();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {bytes}\r\n\r\n{body}"
    )
    .into_bytes()
}
