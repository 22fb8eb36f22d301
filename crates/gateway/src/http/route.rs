//! What is a route made of, and what does its handler get?

use std::sync::{Arc, Mutex};

use axum::body::Body;
use client::json::Coding;
use client::{Address, BucketName, Client};
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{Method, Response, StatusCode};

use super::failure::HttpRefusal;
use super::gateway::Gateway;
use super::percent;
use super::query::{Param, Query};

/// What a handler answers.
pub(super) type Outcome = Result<Response<Body>, HttpRefusal>;
pub(super) type Handler = fn(Ask) -> BoxFuture<'static, Outcome>;

pub(super) const JSON: &str = "application/json";
pub(super) const NDJSON: &str = "application/x-ndjson";
pub(super) const OCTETS: &str = "application/octet-stream";
pub(super) const EVENTS: &str = "text/event-stream";

/// A route: the router, the refusal of what it doesn't take, and the OpenAPI document are all made from it.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    /// As axum matches it and OpenAPI writes it.
    pub(super) path: &'static str,
    /// Its name in the OpenAPI document.
    pub(super) id: &'static str,
    pub(super) doc: &'static str,
    pub(super) params: &'static [Param],
    pub(super) takes: Takes,
    pub(super) gives: Gives,
    pub(super) handler: Handler,
}

/// What the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    BucketMake,
    BucketPatch,
    StreamConfig,
    Records,
    Trim,
    Fence,
}

/// What the body of an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gives {
    Nothing,
    Bucket,
    NewBucket,
    Buckets,
    Stream,
    NewStream,
    Streams,
    Ack,
    Records,
    Place,
    TrimPoint,
    Token,
    Document,
    Text,
}

/// A request that its route takes.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) gateway: Arc<Gateway>,
    pub(super) parts: Parts,
    /// Shared by nobody; the lock is what lets an ask be looked at from a future that moves between threads.
    pub(super) body: Mutex<Body>,
    pub(super) query: Query,
}

impl Ask {
    pub(super) fn client(&self) -> &Client {
        &self.gateway.client
    }

    /// A segment of the path as it was sent; the first one is 0.
    fn segment(&self, at: usize) -> &str {
        self.parts.uri.path().split('/').nth(at + 1).unwrap_or_default()
    }

    /// The bucket that the path names.
    pub(super) fn bucket(&self) -> Result<BucketName, HttpRefusal> {
        Ok(BucketName::from_bytes(&percent::decode("the bucket in the path", self.segment(2))?)?)
    }

    /// The stream that the path names.
    pub(super) fn address(&self) -> Result<Address, HttpRefusal> {
        let bucket = percent::decode("the bucket in the path", self.segment(2))?;
        let key = percent::decode("the key in the path", self.segment(4))?;
        Ok(Address::from_bytes(&bucket, &key)?)
    }

    /// How bodies and headers stand in JSON.
    pub(super) fn coding(&self) -> Coding {
        if self.query.text("encoding") == Some("base64") { Coding::Base64 } else { Coding::Utf8 }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.parts.headers.get(name)?.to_str().ok()
    }

    /// The kind of the body, of those that the route takes; what nobody named is the first of them.
    pub(super) fn content(&self, kinds: &[&'static str]) -> Result<&'static str, HttpRefusal> {
        let Some(given) = self.parts.headers.get(CONTENT_TYPE) else { return Ok(kinds[0]) };
        let given = given.to_str().unwrap_or_default();
        let named = given.split(';').next().unwrap_or_default().trim();
        kinds.iter().copied().find(|kind| kind.eq_ignore_ascii_case(named)).ok_or_else(|| {
            let message = format!("the body is of type '{named}': this path takes {}", kinds.join(", "));
            HttpRefusal::of_http(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
        })
    }

    /// The kind of the answer, of those that the route gives, that the client likes best; the first of them if it likes all alike.
    pub(super) fn accepted(&self, kinds: &[&'static str]) -> Result<&'static str, HttpRefusal> {
        let given: Vec<_> = self.parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        let given = given.join(",");
        if given.trim().is_empty() {
            return Ok(kinds[0]);
        }
        let mut best: Option<(f32, &'static str)> = None;
        for kind in kinds {
            let liked = liking(&given, kind);
            if liked > best.map_or(0.0, |(liked, _)| liked) {
                best = Some((liked, kind));
            }
        }
        best.map(|(_, kind)| kind).ok_or_else(|| {
            let message = format!("the answer may be of type '{given}' only: this path gives {}", kinds.join(", "));
            HttpRefusal::of_http(StatusCode::NOT_ACCEPTABLE, message)
        })
    }
}

/// How much a header `Accept` likes a kind, from 0 to 1: what names it most closely counts (RFC 9110 section 12.5.1).
pub(super) fn liking(accept: &str, kind: &str) -> f32 {
    let main = kind.split('/').next().unwrap_or_default();
    let mut best = (0, 0.0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let named = parts.next().unwrap_or_default();
        let closeness = match named.split_once('/') {
            _ if named.eq_ignore_ascii_case(kind) => 3,
            Some((of, "*")) if of.eq_ignore_ascii_case(main) => 2,
            Some(("*", "*")) => 1,
            _ => continue,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let quality = quality.map_or(1.0, |text| text.trim().parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0));
        if closeness > best.0 {
            best = (closeness, quality);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::{EVENTS, JSON, NDJSON, liking};

    #[test]
    fn what_names_a_kind_most_closely_says_how_much_it_is_liked() {
        let accept = "text/*;q=0.3, application/json; q=0.5, */*;q=0.1";
        assert!((liking(accept, JSON) - 0.5).abs() < 1e-6);
        assert!((liking(accept, EVENTS) - 0.3).abs() < 1e-6);
        assert!((liking(accept, NDJSON) - 0.1).abs() < 1e-6);
        assert!(liking("text/html", JSON) < 1e-6);
        assert!(liking("application/json;q=0", JSON) < 1e-6);
    }
}
