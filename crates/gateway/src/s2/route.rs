//! Which request is which?

use std::sync::Arc;

use axum::body::Body;
use client::{Address, BucketName};
use http::header::{ALLOW, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use serde_json::json;

use super::answer::Answer;
use super::facade::Facade;
use super::failure::{Code, Failure, Result};
use super::frame::Coding;
use super::names;
use super::query::Query;

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// Whether anyone is there.
    Health,
    Basins,
    Basin(BucketName),
    Streams,
    Stream(client::Key),
    Records(client::Key),
    Tail(client::Key),
    /// What S2 has and the façade has not.
    NotServed(&'static str),
    Nothing,
}

fn target(path: &str) -> Result<Target> {
    let bad = |message: String| Failure::new(Code::BadPath, message);
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let decoded = |segment: &str| names::segment(segment).map_err(bad);
    let stream = |segment: &str| decoded(segment).and_then(|name| names::stream(&name).map_err(bad));
    Ok(match segments[..] {
        ["health" | "ping"] => Target::Health,
        ["v1", "basins"] => Target::Basins,
        ["v1", "basins", name] => Target::Basin(names::basin(&decoded(name)?).map_err(bad)?),
        ["v1", "streams"] => Target::Streams,
        ["v1", "streams", name] => Target::Stream(stream(name)?),
        ["v1", "streams", name, "records"] => Target::Records(stream(name)?),
        ["v1", "streams", name, "records", "tail"] => Target::Tail(stream(name)?),
        ["v1", "access-tokens", ..] => Target::NotServed("access tokens"),
        ["v1", "metrics", ..] => Target::NotServed("metrics"),
        ["v1", "locations", ..] => Target::NotServed("locations"),
        _ => Target::Nothing,
    })
}

impl Facade {
    /// Answers a request.
    pub(super) async fn serve(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let coding = Coding::accepted(request.headers());
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        match target(&path) {
            Err(failure) => failure.response(),
            Ok(Target::Nothing) => Answer::empty(StatusCode::NOT_FOUND).response(Coding::Plain),
            Ok(Target::NotServed(what)) => {
                Failure::new(Code::NotImplemented, format!("{what} are not served here")).response()
            }
            Ok(target) => match self.answer(&method, target, request).await {
                Some(Ok(answer)) => answer.response(coding),
                Some(Err(failure)) => {
                    tracing::debug!(%method, path, status = failure.status().as_u16(), ?failure, "refused");
                    failure.response()
                }
                None => not_allowed(&path),
            },
        }
    }

    /// `None` for a method that the target has not.
    async fn answer(
        self: Arc<Self>,
        method: &Method,
        target: Target,
        request: Request<Body>,
    ) -> Option<Result<Answer>> {
        let (headers, version) = (request.headers().clone(), request.version());
        let address = |key| Self::address(&headers, key);
        Some(match (target, method) {
            (Target::Health, &Method::GET) => self.health().await,
            (Target::Basins, &Method::GET) => match query(&request) {
                Ok(query) => self.list_basins(&query).await,
                Err(failure) => Err(failure),
            },
            (Target::Basins, &Method::POST) => self.create_basin(request).await,
            (Target::Basin(name), &Method::GET) => self.get_basin(&name).await,
            (Target::Basin(name), &Method::PUT) => self.ensure_basin(&name, request).await,
            (Target::Basin(name), &Method::PATCH) => self.change_basin(&name, request).await,
            (Target::Basin(name), &Method::DELETE) => self.delete_basin(&name).await,
            (Target::Streams, &Method::GET) => match query(&request) {
                Ok(query) => self.list_streams(&headers, &query).await,
                Err(failure) => Err(failure),
            },
            (Target::Streams, &Method::POST) => self.create_stream(request).await,
            (Target::Stream(key), _) => match address(key) {
                Ok(address) => return self.on_stream(method, &address, request).await,
                Err(failure) => Err(failure),
            },
            (Target::Records(key), &Method::GET) => match (address(key), query(&request)) {
                (Ok(address), Ok(query)) => self.read(&address, &query, &headers, version).await,
                (Err(failure), _) | (_, Err(failure)) => Err(failure),
            },
            (Target::Records(key), &Method::POST) => match address(key) {
                Ok(address) => self.append(address, request).await,
                Err(failure) => Err(failure),
            },
            (Target::Tail(key), &Method::GET) => match address(key) {
                Ok(address) => self.tail(&address, &headers).await,
                Err(failure) => Err(failure),
            },
            _ => return None,
        })
    }

    async fn on_stream(&self, method: &Method, address: &Address, request: Request<Body>) -> Option<Result<Answer>> {
        Some(match *method {
            Method::GET => self.get_stream(address).await,
            Method::PUT => self.ensure_stream(address, request).await,
            Method::PATCH => self.change_stream(address, request).await,
            Method::DELETE => self.delete_stream(address).await,
            _ => return None,
        })
    }

    /// Whether a star answers.
    async fn health(&self) -> Result<Answer> {
        match self.client.star().await {
            Ok(star) => Ok(Answer::json(StatusCode::OK, &json!({ "version": star.version }))),
            Err(error) => Err(Failure::of(&error, Code::Unavailable)),
        }
    }
}

fn query(request: &Request<Body>) -> Result<Query> {
    Query::of(request.uri().query())
}

fn not_allowed(path: &str) -> Response<Body> {
    let methods = match path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>()[..] {
        ["v1", "basins" | "streams"] => "GET, POST",
        ["v1", "basins" | "streams", _] => "GET, PUT, PATCH, DELETE",
        ["v1", "streams", _, "records"] => "GET, POST",
        _ => "GET",
    };
    let mut response = Answer::empty(StatusCode::METHOD_NOT_ALLOWED).response(Coding::Plain);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_what_they_say_with_names_decoded_a_segment_at_a_time() {
        let key = |name| client::Key::new(name).unwrap();
        let cases = [
            ("/health", Target::Health),
            ("/v1/basins", Target::Basins),
            ("/v1/basins/my-basin-1", Target::Basin(BucketName::new("my-basin-1").unwrap())),
            ("/v1/streams/a%2Fb%20%E2%98%83", Target::Stream(key("a/b ☃"))),
            ("/v1/streams/records/records", Target::Records(key("records"))),
            ("/v1/streams/x/records/tail", Target::Tail(key("x"))),
            ("/v1/access-tokens/1", Target::NotServed("access tokens")),
            ("/v1/streams/x/y", Target::Nothing),
            ("/", Target::Nothing),
        ];
        for (path, expected) in cases {
            assert_eq!(target(path), Ok(expected), "{path}");
        }
        for path in ["/v1/basins/Short", "/v1/streams/%00", "/v1/streams/..", "/v1/streams/%ff", "/v1/streams/"] {
            assert!(matches!(target(path), Err(Failure::Coded { code: Code::BadPath, .. })), "{path}");
        }
    }
}
