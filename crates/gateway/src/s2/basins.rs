//! How are basins made, looked at, changed, deleted and listed? They are buckets.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use client::{Bucket, BucketName, BucketPatch, BucketSpec, BucketState, Error, Reason};
use futures_util::StreamExt;
use futures_util::stream;
use http::{Request, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use xxhash_rust::xxh3::xxh3_128;

use super::answer::Answer;
use super::config::{BasinJson, Wanted, show_basin};
use super::facade::Facade;
use super::failure::{Code, Failure, Result};
use super::names;
use super::query::{Listing, Query, Rows};
use super::request::{take_json, take_json_if_any, token};

/// Rows of nova's pages that are looked through at a time.
const ROWS: u32 = 1_000;
/// How long a delete is waited for before it goes on unobserved.
const DELETE_WAIT: Duration = Duration::from_secs(5);
/// How long a basin is tried to be emptied.
const EMPTYING_MAX: Duration = Duration::from_secs(600);
/// Wait before the next try when one got a basin no emptier.
const EMPTYING_PAUSE: Duration = Duration::from_millis(200);
/// Streams of a basin that are deleted at a time.
const DELETES_AT_A_TIME: usize = 16;
/// Hexadecimal digits of a hash that fit into a creation token beside a request token.
const HASH_DIGITS: usize = 24;

#[derive(Debug, Deserialize)]
struct CreateJson {
    basin: String,
    config: Option<BasinJson>,
    location: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct EnsureJson {
    config: Option<BasinJson>,
    location: Option<String>,
}

impl Facade {
    /// `GET /v1/basins`.
    pub(super) async fn list_basins(&self, query: &Query) -> Result<Answer> {
        let listing = Listing::of(query)?;
        let mut after = listing.cursor();
        let mut rows = Rows::of(listing);
        loop {
            let page = self.client.list_buckets(&after, ROWS).await.map_err(|error| no_basin(&error))?;
            let mut known = page.buckets.iter().filter(|bucket| names::is_basin(bucket.name.as_str()));
            if known.any(|bucket| rows.offer(bucket.name.as_str(), || self.info(bucket))) || page.next.is_empty() {
                return Ok(Answer::json(StatusCode::OK, &rows.page("basins")));
            }
            after = page.next;
        }
    }

    /// `POST /v1/basins`.
    pub(super) async fn create_basin(&self, request: Request<Body>) -> Result<Answer> {
        let token = token(request.headers())?.map(str::to_owned);
        let asked: CreateJson = take_json(request, &self.bodies).await?;
        let name = names::basin(&asked.basin).map_err(|message| Failure::new(Code::BadJson, message))?;
        let config = asked.config.unwrap_or_default();
        let mut spec = spec(&name, &config, asked.location)?;
        spec.creation_token = token.map(|token| creation_token(&token, &config, &spec.location)).unwrap_or_default();
        self.pending.check(&name)?;
        let there = self.bucket_if_any(&name).await?;
        let is_again =
            |bucket: &Bucket| !bucket.creation_token.is_empty() && bucket.creation_token == spec.creation_token;
        let how = if there.as_ref().is_some_and(is_again) { "noop" } else { "created" };
        let bucket = self.client.create_bucket(spec).await.map_err(|error| no_basin(&error))?;
        Ok(Answer::provisioned(how, StatusCode::CREATED, &self.info(&bucket)))
    }

    /// `GET /v1/basins/{basin}`.
    pub(super) async fn get_basin(&self, name: &BucketName) -> Result<Answer> {
        let bucket = self.bucket(name).await?;
        Ok(Answer::json(StatusCode::OK, &show_basin(&bucket)))
    }

    /// `PUT /v1/basins/{basin}`: what is left out is set to its default.
    pub(super) async fn ensure_basin(&self, name: &BucketName, request: Request<Body>) -> Result<Answer> {
        let asked: EnsureJson = take_json_if_any(request, &self.bodies).await?.unwrap_or_default();
        let config = asked.config.unwrap_or_default();
        let spec = spec(name, &config, asked.location)?;
        self.pending.check(name)?;
        if let Some(bucket) = self.bucket_if_any(name).await? {
            return self.set_basin(&bucket, &config, &spec).await;
        }
        match self.client.create_bucket(spec.clone()).await {
            Ok(bucket) => Ok(Answer::provisioned("created", StatusCode::CREATED, &self.info(&bucket))),
            // Somebody else was faster.
            Err(error) if error.reason() == Reason::AlreadyExists => {
                let bucket = self.bucket(name).await?;
                self.set_basin(&bucket, &config, &spec).await
            }
            Err(error) => Err(no_basin(&error)),
        }
    }

    async fn set_basin(&self, bucket: &Bucket, config: &BasinJson, spec: &BucketSpec) -> Result<Answer> {
        if !spec.location.is_empty() && spec.location != bucket.location {
            let (name, there) = (&bucket.name, &bucket.location);
            let message = format!("basin '{name}' has the location '{there}', which can't be changed");
            return Err(Failure::invalid(message));
        }
        let patch = BucketPatch {
            create_stream_on_append: Some(spec.create_stream_on_append),
            create_stream_on_read: Some(spec.create_stream_on_read),
            defaults: config.created()?.patch(),
        };
        let how = if patch.apply(bucket) == *bucket { "noop" } else { "updated" };
        let bucket = match how {
            "noop" => bucket.clone(),
            _ => self.client.update_bucket(&bucket.name, patch).await.map_err(|error| no_basin(&error))?,
        };
        Ok(Answer::provisioned(how, StatusCode::OK, &self.info(&bucket)))
    }

    /// `PATCH /v1/basins/{basin}`.
    pub(super) async fn change_basin(&self, name: &BucketName, request: Request<Body>) -> Result<Answer> {
        let asked: BasinJson = take_json(request, &self.bodies).await?;
        asked.check()?;
        self.pending.check(name)?;
        let bucket = self.bucket(name).await?;
        let wanted: Wanted = asked.changed(&bucket.defaults)?;
        let (create_stream_on_append, create_stream_on_read) = asked.flags();
        let patch = BucketPatch { create_stream_on_append, create_stream_on_read, defaults: wanted.patch() };
        let bucket = self.client.update_bucket(name, patch).await.map_err(|error| no_basin(&error))?;
        Ok(Answer::json(StatusCode::OK, &show_basin(&bucket)))
    }

    /// `DELETE /v1/basins/{basin}`: with all its streams, which goes on after the answer when there are many.
    pub(super) async fn delete_basin(self: &Arc<Self>, name: &BucketName) -> Result<Answer> {
        if self.pending.deleting_since(name).is_none() {
            self.bucket(name).await?;
        }
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        if self.pending.begin(name, i64::try_from(now_ms).unwrap_or(i64::MAX))? {
            let (facade, name) = (Arc::clone(self), name.clone());
            let emptying = tokio::spawn(async move { facade.empty_in_time(&name).await });
            // It goes on when it takes longer, or when this client goes away.
            if let Ok(Ok(Err(error))) = timeout(DELETE_WAIT, emptying).await {
                return Err(no_basin(&error));
            }
        }
        Ok(Answer::empty(StatusCode::ACCEPTED))
    }

    async fn empty_in_time(&self, name: &BucketName) -> client::Result<()> {
        let emptied = timeout(EMPTYING_MAX, self.empty(name)).await;
        self.pending.end(name);
        if !matches!(emptied, Ok(Ok(()))) {
            tracing::warn!(basin = %name, ?emptied, "a basin could not be deleted");
        }
        emptied.unwrap_or(Ok(()))
    }

    /// Deletes the streams of a bucket, and then the bucket.
    async fn empty(&self, name: &BucketName) -> client::Result<()> {
        let began = Instant::now();
        loop {
            match self.client.delete_bucket(name).await {
                Ok(()) => return Ok(()),
                Err(error) if error.reason() == Reason::NotFound => return Ok(()),
                Err(error) if error.reason() == Reason::BucketNotEmpty => {}
                Err(error) if error.retryable() && began.elapsed() < EMPTYING_MAX => {
                    sleep(EMPTYING_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let page = self.client.list_streams(name, &[], ROWS).await?;
            let deletes = page.streams.into_iter().map(|stream| self.delete_in(name, stream.key));
            let mut deletes = stream::iter(deletes).buffer_unordered(DELETES_AT_A_TIME);
            let mut deleted = 0;
            while let Some(is_deleted) = deletes.next().await {
                deleted += usize::from(is_deleted?);
            }
            if deleted == 0 {
                sleep(EMPTYING_PAUSE).await;
            }
        }
    }

    /// Deletes a stream; false when somebody else did before.
    async fn delete_in(&self, bucket: &BucketName, key: client::Key) -> client::Result<bool> {
        match self.client.delete_stream(&client::Address { bucket: bucket.clone(), key }).await {
            Ok(()) => Ok(true),
            Err(error) if error.reason() == Reason::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A basin that must be there.
    ///
    /// # Errors
    /// `basin_not_found`.
    pub(super) async fn bucket(&self, name: &BucketName) -> Result<Bucket> {
        self.client.get_bucket(name).await.map_err(|error| no_basin(&error))
    }

    async fn bucket_if_any(&self, name: &BucketName) -> Result<Option<Bucket>> {
        match self.bucket(name).await {
            Ok(bucket) => Ok(Some(bucket)),
            Err(failure) if failure.is_missing() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn info(&self, bucket: &Bucket) -> Value {
        let since = self.pending.deleting_since(&bucket.name);
        let is_going = since.is_some() || bucket.state == BucketState::Deleting;
        json!({
            "name": bucket.name.as_str(),
            "location": names::location(&bucket.location),
            "created_at": names::moment(bucket.created_at_ms),
            "deleted_at": is_going.then(|| names::moment(since.unwrap_or(bucket.created_at_ms))),
            "state": if is_going { "deleting" } else { "active" },
        })
    }
}

fn no_basin(error: &Error) -> Failure {
    Failure::of(error, Code::BasinNotFound)
}

fn spec(name: &BucketName, config: &BasinJson, location: Option<String>) -> Result<BucketSpec> {
    config.check()?;
    if let Some(location) = location.as_deref().filter(|location| names::location(location).is_none()) {
        let location: String = location.chars().take(20).flat_map(char::escape_debug).collect();
        return Err(Failure::invalid(format!("location '{location}' must be of letters, digits, ':', '-' and '.'")));
    }
    let (append, read) = config.flags();
    Ok(BucketSpec {
        location: location.unwrap_or_default(),
        create_stream_on_append: append.unwrap_or(false),
        create_stream_on_read: read.unwrap_or(false),
        defaults: config.created()?.patch(),
        ..BucketSpec::named(name.clone())
    })
}

/// What a bucket is known by to a create that is tried again: its token, and a hash of all else that it asked for.
fn creation_token(token: &str, config: &BasinJson, location: &str) -> String {
    let hash = xxh3_128(format!("{}\n{location}", config.fingerprint()).as_bytes());
    format!("{token}/{:.HASH_DIGITS$}", format!("{hash:032x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_token_fits_and_differs_by_what_was_asked_for() {
        let of = |json: &str, location: &str| {
            creation_token(&"t".repeat(36), &serde_json::from_str(json).unwrap(), location)
        };
        let plain = of("{}", "");
        assert_eq!(plain, of("{}", ""));
        assert!(plain.len() <= 64 && plain.len() == 36 + 1 + HASH_DIGITS, "{plain}");
        assert_ne!(plain, of(r#"{"create_stream_on_append":true}"#, ""));
        assert_ne!(plain, of("{}", "aws:us-east-1"));
    }
}
