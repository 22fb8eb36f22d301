//! Which paths are there, and how does a request find its handler?

use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::routing::{MethodFilter, on};
use http::header::{HOST, ORIGIN};
use http::{Method, Request, Response, StatusCode};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::bounds::WAIT_MS_MAX;
use super::failure::HttpRefusal;
use super::gateway::Gateway;
use super::query::{Param, Query, Takes as Of};
use super::route::{Ask, Gives, Outcome, Route, Takes};
use super::{append, buckets, console, health, metrics, openapi, read, streams};

const LIST: &[Param] = &[
    Param { name: "after", doc: "Where the page starts after: the `next` of the page before.", takes: Of::Text },
    Param { name: "limit", doc: "Most rows; 0 is 100, more than 1000 is 1000.", takes: Of::Count(u64::MAX) },
];

const ENCODING: Param = Param {
    name: "encoding",
    doc: "How bodies, header names and header values stand in JSON strings: as UTF-8 text, or as base64 with padding.",
    takes: Of::Word(&["utf8", "base64"]),
};

const APPEND: &[Param] = &[
    ENCODING,
    Param {
        name: "match_seq_num",
        doc: "Stored only if the first record gets this sequence number.",
        takes: Of::Count(u64::MAX),
    },
    Param { name: "fencing_token", doc: "The token that is presented; at most 36 bytes.", takes: Of::Text },
    Param {
        name: "timestamp_ms",
        doc: "The stamp of the one record of a body of type application/octet-stream.",
        takes: Of::Stamp,
    },
];

const READ: &[Param] = &[
    Param { name: "from", doc: "Start at this sequence number.", takes: Of::Count(u64::MAX) },
    Param { name: "from_ms", doc: "Start at the first record stamped at or after it.", takes: Of::Stamp },
    Param { name: "last", doc: "Start at the last so many records.", takes: Of::Count(u64::MAX) },
    Param {
        name: "limit",
        doc: "Most records; 0 is as many as a page holds, 1000. A subscription ends after so many.",
        takes: Of::Count(u64::MAX),
    },
    Param { name: "until_ms", doc: "Cut at the first record stamped at or after it.", takes: Of::Stamp },
    Param { name: "max_bytes", doc: "Most bytes of content; 0 is 1 MiB, and more is too.", takes: Of::Count(u64::MAX) },
    Param { name: "clamp", doc: "Pull a start below the trim point or past the tail into range.", takes: Of::Flag },
    Param {
        name: "wait_ms",
        doc: "Where there is nothing to read yet, wait so long for it, in milliseconds.",
        takes: Of::Count(WAIT_MS_MAX),
    },
    ENCODING,
];

const METRICS: &[Param] = &[Param {
    name: "streams",
    doc: "Tell by name too which streams weigh most on each shard. They are few, but not always the same.",
    takes: Of::Flag,
}];

macro_rules! routes {
    ($($method:ident $path:literal $id:literal $doc:literal ($params:expr) $takes:ident => $gives:ident, $handler:path;)*) => {
        /// Every route there is.
        pub(super) const ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            path: $path,
            id: $id,
            doc: $doc,
            params: $params,
            takes: Takes::$takes,
            gives: Gives::$gives,
            handler: |ask| Box::pin($handler(ask)),
        }),*];
    };
}

routes! {
    // method, path, name, what it does, query, body of the request and of the answer, handler
    GET "/v1/buckets" "listBuckets" "Buckets in the order of their names." (LIST) Nothing => Buckets, buckets::list;
    POST "/v1/buckets/{bucket}" "createBucket" "Create a bucket." (&[]) BucketMake => NewBucket, buckets::create;
    PUT "/v1/buckets/{bucket}" "ensureBucket" "Create a bucket, or take the one that is there as it is."
        (&[]) BucketMake => Bucket, buckets::ensure;
    GET "/v1/buckets/{bucket}" "getBucket" "Look at a bucket." (&[]) Nothing => Bucket, buckets::get;
    PATCH "/v1/buckets/{bucket}" "updateBucket" "Set what is set; what is absent is untouched, and 0 is 0."
        (&[]) BucketPatch => Bucket, buckets::update;
    DELETE "/v1/buckets/{bucket}" "deleteBucket" "Delete a bucket that holds no stream."
        (&[]) Nothing => Nothing, buckets::delete;
    GET "/v1/buckets/{bucket}/streams" "listStreams" "Streams of a bucket in the order of their keys."
        (LIST) Nothing => Streams, streams::list;
    POST "/v1/buckets/{bucket}/streams/{key}" "createStream"
        "Create a stream; what is absent or 0 is filled from the bucket's defaults."
        (&[]) StreamConfig => NewStream, streams::create;
    GET "/v1/buckets/{bucket}/streams/{key}" "getStream" "Look at a stream." (&[]) Nothing => Stream, streams::get;
    PATCH "/v1/buckets/{bucket}/streams/{key}" "reconfigureStream"
        "Set what is set; what is absent is untouched, and 0 is 0." (&[]) StreamConfig => Stream, streams::reconfigure;
    DELETE "/v1/buckets/{bucket}/streams/{key}" "deleteStream"
        "Delete a stream for every caller at once; deleting what is not there succeeds."
        (&[]) Nothing => Nothing, streams::delete;
    POST "/v1/buckets/{bucket}/streams/{key}/records" "append"
        "Append records as one batch: all of them, contiguous, or none." (APPEND) Records => Ack, append::append;
    GET "/v1/buckets/{bucket}/streams/{key}/records" "read"
        "Read a page; with `Accept: text/event-stream` follow the stream from the start on."
        (READ) Nothing => Records, read::read;
    GET "/v1/buckets/{bucket}/streams/{key}/tail" "checkTail"
        "The next sequence number, and the last record's stamp." (&[]) Nothing => Place, streams::tail;
    POST "/v1/buckets/{bucket}/streams/{key}/trim" "trim"
        "Make the records below a sequence number go away, or those before the first one stamped at or after a time."
        (&[]) Trim => TrimPoint, streams::trim;
    POST "/v1/buckets/{bucket}/streams/{key}/fence" "fence"
        "Install or rotate the fencing token, or clear it with the empty one." (&[]) Fence => Place, streams::fence;
    GET "/v1/buckets/{bucket}/streams/{key}/fence" "fencingToken" "The installed token; empty when none is."
        (&[]) Nothing => Token, streams::token;
    GET "/v1/openapi.json" "openapi" "This document." (&[]) Nothing => Document, openapi::document;
    GET "/healthz" "health" "Whether the process answers." (&[]) Nothing => Document, health::health;
    GET "/readyz" "ready" "Whether the star answers and its store takes what it is given."
        (&[]) Nothing => Document, health::ready;
    GET "/metrics" "metrics" "What the gateway and the star count, as Prometheus reads it."
        (METRICS) Nothing => Text, metrics::metrics;
}

/// The router of all routes.
pub(super) fn router(gateway: &Arc<Gateway>) -> Router {
    let mut router = Router::new();
    for (at, route) in ROUTES.iter().enumerate() {
        let gateway = Arc::clone(gateway);
        let handler = move |request: Request<Body>| run(Arc::clone(&gateway), at, request);
        router = router.route(route.path, on(filter(&route.method), handler));
    }
    router = console::on(router);
    let (unknown, unfit) = (Arc::clone(gateway), Arc::clone(gateway));
    router
        .fallback(move |request: Request<Body>| async move {
            let path: String = request.uri().path().chars().take(200).collect();
            let message = format!("there is no path {path}: /v1/openapi.json lists those there are");
            HttpRefusal::from(Refusal::new(Reason::NotFound, message)).response(&unknown.request_id(request.headers()))
        })
        .method_not_allowed_fallback(move |request: Request<Body>| async move {
            let message = format!("{} is not for this path: the header Allow says what is", request.method());
            let failure = HttpRefusal::of_http(StatusCode::METHOD_NOT_ALLOWED, message);
            failure.response(&unfit.request_id(request.headers()))
        })
}

fn filter(method: &Method) -> MethodFilter {
    match *method {
        Method::POST => MethodFilter::POST,
        Method::PUT => MethodFilter::PUT,
        Method::PATCH => MethodFilter::PATCH,
        Method::DELETE => MethodFilter::DELETE,
        _ => MethodFilter::GET,
    }
}

async fn run(gateway: Arc<Gateway>, at: usize, request: Request<Body>) -> Response<Body> {
    let began = Instant::now();
    let counting = Arc::clone(&gateway);
    let named = request.headers().get("x-request-id").cloned();
    let response = match handle(gateway, &ROUTES[at], request).await {
        Ok(response) => response,
        Err(failure) => {
            let headers = named.into_iter().map(|id| (http::HeaderName::from_static("x-request-id"), id)).collect();
            failure.response(&counting.request_id(&headers))
        }
    };
    counting.counts.answered(at, response.status(), began.elapsed());
    response
}

async fn handle(gateway: Arc<Gateway>, route: &'static Route, request: Request<Body>) -> Outcome {
    let (parts, body) = request.into_parts();
    if route.method != Method::GET {
        of_this_origin(&parts.headers)?;
    }
    let query = Query::parse(parts.uri.query(), route.params)?;
    (route.handler)(Ask { gateway, parts, body: Mutex::new(body), query }).await
}

/// Refuses what a page of another site has its visitor's browser send: on loopback there may be no other guard.
fn of_this_origin(headers: &http::HeaderMap) -> Result<(), HttpRefusal> {
    let text = |name: http::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = text(ORIGIN) else { return Ok(()) };
    let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
    if text(HOST) == Some(authority) {
        return Ok(());
    }
    let message = format!("the request comes from a page of '{origin}', which is not the origin that it is for");
    Err(HttpRefusal::from(Refusal::new(Reason::PermissionDenied, message)))
}

#[cfg(test)]
mod tests {
    use super::{ROUTES, of_this_origin};
    use http::HeaderMap;
    use std::collections::BTreeSet;

    #[test]
    fn routes_have_names_of_their_own() {
        let names: BTreeSet<_> = ROUTES.iter().map(|route| route.id).collect();
        let places: BTreeSet<_> = ROUTES.iter().map(|route| (route.method.as_str(), route.path)).collect();
        assert_eq!((names.len(), places.len()), (ROUTES.len(), ROUTES.len()));
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let check = |origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert("host", "127.0.0.1:8080".parse().unwrap());
            if let Some(origin) = origin {
                headers.insert("origin", origin.parse().unwrap());
            }
            of_this_origin(&headers).is_ok()
        };
        assert!(check(None) && check(Some("http://127.0.0.1:8080")));
        assert!(!check(Some("http://evil.example")) && !check(Some("http://127.0.0.1:9")) && !check(Some("null")));
    }
}
