//! How does a request reach a star over HTTP, with TLS where the address says so?

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use wire::reason::Reason;

use crate::error::{Error, Result};
use crate::options::Options;

/// Longest answer: a page with every byte escaped, and room for the rest.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Connections to one star that are kept while nobody uses them.
const IDLE_CONNECTIONS_MAX: usize = 64;
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Connections to all stars.
#[derive(Debug)]
pub(super) enum Dialer {
    Plain(Client<HttpConnector, Full<Bytes>>),
    Tls(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// It was not sent.
    Unsent(String),
    /// It may have been.
    Broken(String),
}

impl Dialer {
    /// # Errors
    /// `invalid` when TLS is wanted and this system has no roots to trust.
    pub(super) fn new(bases: &[String], options: &Options) -> Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(options.connect_timeout));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let mut pool = Client::builder(TokioExecutor::new());
        pool.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_MAX).pool_max_idle_per_host(IDLE_CONNECTIONS_MAX);
        if bases.iter().all(|base| base.starts_with("http://")) {
            return Ok(Self::Plain(pool.build(connector)));
        }
        let provider = rustls::crypto::ring::default_provider();
        let builder = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider).map_err(|error| {
            Error::harmless(Reason::Invalid, format!("https needs the roots that this system trusts: {error}"))
        })?;
        Ok(Self::Tls(pool.build(builder.https_or_http().enable_http1().wrap_connector(connector))))
    }

    pub(super) async fn ask(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), Unanswered> {
        let answer = match self {
            Self::Plain(client) => client.request(request),
            Self::Tls(client) => client.request(request),
        };
        let answer = answer.await.map_err(|error| {
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            if error.is_connect() { Unanswered::Unsent(why) } else { Unanswered::Broken(why) }
        })?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Unanswered::Broken(error.to_string()))?;
        Ok((head.status, body.to_bytes()))
    }
}
