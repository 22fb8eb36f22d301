//! How are streams made, looked at, changed, deleted and listed?

use axum::body::Body;
use client::{Address, Bucket, Error, Reason, StreamInfo};
use http::{HeaderMap, Request, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::Answer;
use super::config::{StreamJson, Wanted, show};
use super::facade::Facade;
use super::failure::{Code, Failure, Result};
use super::names;
use super::pending::{Claim, Create};
use super::query::{Listing, Query, Rows};
use super::request::{self, take_json, take_json_if_any};

/// Rows of nova's pages that are looked through at a time.
const ROWS: u32 = 1_000;

#[derive(Debug, Deserialize)]
struct CreateJson {
    stream: String,
    config: Option<StreamJson>,
}

/// What makes a stream that is not there.
#[derive(Debug, Clone, Copy)]
pub(super) enum On {
    Append,
    Read,
}

impl On {
    const fn is_set(self, bucket: &Bucket) -> bool {
        match self {
            Self::Append => bucket.create_stream_on_append,
            Self::Read => bucket.create_stream_on_read,
        }
    }
}

impl Facade {
    /// `GET /v1/streams`.
    pub(super) async fn list_streams(&self, headers: &HeaderMap, query: &Query) -> Result<Answer> {
        let basin = Self::basin(headers)?;
        let listing = Listing::of(query)?;
        // A page's cursor is its last key.
        let mut after = listing.cursor().into_bytes();
        let mut rows = Rows::of(listing);
        loop {
            let page = self.client.list_streams(&basin, &after, ROWS).await;
            let page = page.map_err(|error| Failure::of(&error, Code::BasinNotFound))?;
            let mut known = page.streams.iter().filter(|stream| names::is_stream(stream.key.as_str()));
            if known.any(|stream| rows.offer(stream.key.as_str(), || info(stream))) || page.next.is_empty() {
                return Ok(Answer::json(StatusCode::OK, &rows.page("streams")));
            }
            after = page.next;
        }
    }

    /// `POST /v1/streams`.
    pub(super) async fn create_stream(&self, request: Request<Body>) -> Result<Answer> {
        let bucket = Self::basin(request.headers())?;
        let token = request::token(request.headers())?.map(str::to_owned);
        let asked: CreateJson = take_json(request, &self.bodies).await?;
        let key = names::stream(&asked.stream).map_err(|message| Failure::new(Code::BadJson, message))?;
        let address = Address { bucket, key };
        let config = asked.config.unwrap_or_default();
        self.pending.check(&address.bucket)?;
        let bucket = self.bucket(&address.bucket).await?;
        let wanted = config.created(&bucket.defaults)?;
        let (how, stream) = match token {
            Some(token) => {
                let asked = format!("{token}\n{}", config.fingerprint());
                self.make_once(&Create { address, asked }, &wanted).await?
            }
            None => ("created", self.make(&address, &wanted).await.map_err(|unmade| unmade.failure())?),
        };
        Ok(Answer::provisioned(how, StatusCode::CREATED, &info(&stream)))
    }

    /// Makes a stream, or finds that an earlier attempt of the same create did, also one whose answer was lost.
    async fn make_once(&self, create: &Create, wanted: &Wanted) -> Result<(&'static str, StreamInfo)> {
        let address = &create.address;
        // What is there before the first attempt was made by somebody else.
        if self.pending.knows(create) || !self.is_there(address).await? {
            self.pending.begin_create(create);
        }
        let unmade = match self.make(address, wanted).await {
            Ok(stream) => {
                self.pending.note_created(create, stream.stream_id);
                return Ok(("created", stream));
            }
            Err(unmade) => unmade,
        };
        if unmade.is_certain() {
            self.pending.end_create(create);
        }
        if !unmade.is_taken() {
            return Err(unmade.failure());
        }
        let mut stream = self.stream(address).await?;
        match self.pending.claim(create, stream.stream_id) {
            None => return Err(unmade.failure()),
            Some(Claim::InDoubt) if !wanted.is(&stream.config) => {
                let configured = self.client.reconfigure_stream(address, wanted.patch()).await;
                stream = configured.map_err(|error| Unmade::Unconfigured(error).failure())?;
            }
            Some(_) => {}
        }
        self.pending.note_created(create, stream.stream_id);
        Ok(("noop", stream))
    }

    async fn is_there(&self, address: &Address) -> Result<bool> {
        match self.client.get_stream(address).await {
            Ok(_) => Ok(true),
            Err(error) if error.reason() == Reason::NotFound => Ok(false),
            Err(error) => Err(Failure::of(&error, Code::BasinNotFound)),
        }
    }

    /// Makes a stream as it is wanted. A create takes what is zero from the bucket, so a zero over a default that is none takes
    /// a second step.
    async fn make(&self, address: &Address, wanted: &Wanted) -> Result<StreamInfo, Unmade> {
        let stream = self.client.create_stream(address, wanted.patch()).await.map_err(Unmade::Refused)?;
        if wanted.is(&stream.config) {
            return Ok(stream);
        }
        self.client.reconfigure_stream(address, wanted.patch()).await.map_err(Unmade::Unconfigured)
    }

    /// `GET /v1/streams/{stream}`.
    pub(super) async fn get_stream(&self, address: &Address) -> Result<Answer> {
        let stream = self.stream(address).await?;
        Ok(Answer::json(StatusCode::OK, &show(&stream.config)))
    }

    /// `PUT /v1/streams/{stream}`: what is left out is set to the basin's default.
    pub(super) async fn ensure_stream(&self, address: &Address, request: Request<Body>) -> Result<Answer> {
        let config: StreamJson = take_json_if_any(request, &self.bodies).await?.unwrap_or_default();
        self.pending.check(&address.bucket)?;
        let bucket = self.bucket(&address.bucket).await?;
        let wanted = config.created(&bucket.defaults)?;
        let refused = |error: Error| Failure::of(&error, Code::StreamNotFound);
        let stream = match self.client.get_stream(address).await {
            Ok(stream) => stream,
            Err(error) if error.reason() == Reason::NotFound => match self.make(address, &wanted).await {
                Ok(stream) => return Ok(Answer::provisioned("created", StatusCode::CREATED, &info(&stream))),
                // Somebody else was faster.
                Err(unmade) if unmade.is_taken() => self.stream(address).await?,
                Err(unmade) => return Err(unmade.failure()),
            },
            Err(error) => return Err(refused(error)),
        };
        if wanted.is(&stream.config) {
            return Ok(Answer::provisioned("noop", StatusCode::OK, &info(&stream)));
        }
        let stream = self.client.reconfigure_stream(address, wanted.patch()).await.map_err(refused)?;
        Ok(Answer::provisioned("updated", StatusCode::OK, &info(&stream)))
    }

    /// `PATCH /v1/streams/{stream}`.
    pub(super) async fn change_stream(&self, address: &Address, request: Request<Body>) -> Result<Answer> {
        let asked: StreamJson = take_json(request, &self.bodies).await?;
        self.pending.check(&address.bucket)?;
        let stream = self.stream(address).await?;
        let bucket = self.bucket(&address.bucket).await?;
        let wanted = asked.changed(&stream.config, &bucket.defaults)?;
        if wanted.is(&stream.config) {
            return Ok(Answer::json(StatusCode::OK, &show(&stream.config)));
        }
        match self.client.reconfigure_stream(address, wanted.patch()).await {
            Ok(stream) => Ok(Answer::json(StatusCode::OK, &show(&stream.config))),
            Err(error) => Err(self.refused(&address.bucket, &error).await),
        }
    }

    /// `DELETE /v1/streams/{stream}`.
    pub(super) async fn delete_stream(&self, address: &Address) -> Result<Answer> {
        match self.stream(address).await {
            Ok(_) => {}
            Err(failure) if failure.is_missing() && self.pending.was_deleted(address) => {
                return Ok(Answer::empty(StatusCode::ACCEPTED));
            }
            Err(failure) => return Err(failure),
        }
        match self.client.delete_stream(address).await {
            Ok(()) => {
                self.pending.note_deleted(address);
                Ok(Answer::empty(StatusCode::ACCEPTED))
            }
            Err(error) => Err(self.refused(&address.bucket, &error).await),
        }
    }

    /// A stream that must be there.
    ///
    /// # Errors
    /// `stream_not_found`, `basin_not_found`.
    pub(super) async fn stream(&self, address: &Address) -> Result<StreamInfo> {
        match self.client.get_stream(address).await {
            Ok(stream) => Ok(stream),
            Err(error) => Err(self.refused(&address.bucket, &error).await),
        }
    }

    /// A stream that is made when it is not there and its basin says so, as the header of the request says and else as the
    /// basin does; `None` when it is for nova to make it.
    ///
    /// # Errors
    /// `stream_not_found`, `basin_not_found`, `basin_deletion_pending`, and those of the header.
    pub(super) async fn stream_or_new(
        &self,
        address: &Address,
        on: On,
        headers: &HeaderMap,
    ) -> Result<Option<StreamInfo>> {
        let config = request::stream_config(headers)?;
        match self.client.get_stream(address).await {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) if error.reason() == Reason::NotFound => {}
            Err(error) => return Err(Failure::of(&error, Code::StreamNotFound)),
        }
        let bucket = self.bucket(&address.bucket).await?;
        if !on.is_set(&bucket) {
            return Err(missing(address));
        }
        self.pending.check(&address.bucket)?;
        if config.is_none() && matches!(on, On::Append) {
            return Ok(None);
        }
        match self.make(address, &config.unwrap_or_default().created(&bucket.defaults)?).await {
            Ok(stream) => Ok(Some(stream)),
            Err(unmade) if unmade.is_taken() => self.stream(address).await.map(Some),
            Err(unmade) => Err(unmade.failure()),
        }
    }
}

/// Why a stream could not be made as it is wanted.
#[derive(Debug)]
enum Unmade {
    /// The create failed.
    Refused(Error),
    /// The stream was made, and what it should be besides could not be set.
    Unconfigured(Error),
}

impl Unmade {
    /// Whether it is certain that no stream was made.
    fn is_certain(&self) -> bool {
        matches!(self, Self::Refused(error) if error.no_side_effect())
    }

    /// Whether there is a stream of this name already.
    fn is_taken(&self) -> bool {
        matches!(self, Self::Refused(error) if error.reason() == Reason::AlreadyExists)
    }

    fn failure(&self) -> Failure {
        match self {
            Self::Refused(error) => Failure::of(error, Code::BasinNotFound),
            // No code of the second step may promise that the first one did not happen.
            Self::Unconfigured(error) => {
                let message = format!("the stream was made, and is not yet as it was asked for: {}", error.message());
                Failure::new(Code::Unavailable, message)
            }
        }
    }
}

fn missing(address: &Address) -> Failure {
    let Address { bucket, key } = address;
    Failure::new(Code::StreamNotFound, format!("there is no stream '{key}' in basin '{bucket}'"))
}

fn info(stream: &StreamInfo) -> Value {
    json!({
        "name": stream.key.as_str(),
        "created_at": names::moment(stream.created_at_ms),
        "deleted_at": null,
        "cipher": null,
    })
}

#[cfg(test)]
mod tests;
