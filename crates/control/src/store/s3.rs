//! How are objects kept in an S3 bucket so that a lost answer never leaves a doubt about who wrote?
//!
//! Every object ends in the closing bytes of `layout`, with the nonce of its put, and so its ETag names one put: an `If-Match` by
//! the ETag of bytes that came back later does not hold. A conditional put is sent once at a time. When its answer is lost it is
//! repeated with the same bytes, and when its condition then fails what stands there is read: with its own closing bytes it was an
//! earlier attempt that went through. The SDK itself repeats nothing, since it would take such an attempt for another's.

mod connect;
mod failure;
mod tries;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::ChecksumAlgorithm;
use bytes::{Bytes, BytesMut};
use tokio::sync::OnceCell;
use tuning::settings::{S3, S3Checksum, S3Endpoint};

use super::layout::{TRAILER_BYTES, Trailer};
use super::{
    CorruptObject, Effect, ListPage, Listed, Object, ObjectMeta, ObjectName, ObjectPrefix, PutNonce, Span, Store,
    StoreError, StoreFuture, StoreOp, Trouble, Version,
};
use connect::Skew;
pub use failure::S3Failure;
use failure::Verdict;
use tries::{Tries, Troubles};

/// Where the nonce is kept besides the closing bytes, as hexadecimal digits: a read of a part has it without a second request.
const NONCE_KEY: &str = "nova-nonce";
/// A body moves at least this fast, or the attempt is given up: what is added to the timeout for each byte.
const BYTES_PER_SECOND_MIN: u64 = 4 << 20;
/// Rows that a store gives at once.
const PAGE_ROWS_MAX: usize = 1_000;

/// A store in an S3 bucket. Must be used inside a tokio runtime; the first operation connects.
#[derive(Clone, Debug)]
pub struct S3Store(Arc<Bucket>);

#[derive(Debug)]
struct Bucket {
    name: String,
    /// What all keys begin with: empty, or ending in a slash.
    prefix: String,
    s3: S3,
    client: OnceCell<Client>,
    skew: Skew,
    troubles: Troubles,
}

/// One operation, as errors name it.
#[derive(Debug)]
struct Call {
    op: StoreOp,
    key: String,
}

/// The condition of a put.
#[derive(Clone, Copy, Debug)]
enum Condition<'a> {
    Absent,
    Is(&'a Version),
}

/// An operation that ended without success.
#[derive(Debug)]
struct Ended {
    failure: S3Failure,
    verdict: Verdict,
}

/// What a read gave: bytes from `start` on of `total` that are stored.
#[derive(Debug)]
struct Fetched {
    start: u64,
    total: u64,
    bytes: Bytes,
    version: Version,
    nonce: Option<PutNonce>,
}

impl Fetched {
    fn reaches_end(&self) -> bool {
        self.start + self.bytes.len() as u64 == self.total
    }

    /// The closing bytes, of what reaches the end.
    fn trailer(&self) -> Result<Trailer, CorruptObject> {
        let size_bytes = self.size_bytes()?;
        match self.bytes.last_chunk() {
            Some(closing) => Trailer::decode(closing, size_bytes),
            None => Err(CorruptObject::Short { found: self.bytes.len() as u64, expected: TRAILER_BYTES as u64 }),
        }
    }

    fn size_bytes(&self) -> Result<u64, CorruptObject> {
        let expected = TRAILER_BYTES as u64;
        self.total.checked_sub(expected).ok_or(CorruptObject::Short { found: self.total, expected })
    }

    /// The bytes `range` of the object, all of which were read.
    fn cut(&self, range: &std::ops::Range<u64>) -> Option<Bytes> {
        let index = |at: u64| at.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let (start, end) = (index(range.start)?, index(range.end)?);
        (start <= end && end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }
}

impl S3Store {
    /// The store below `prefix` of `bucket`; nothing is asked of it yet.
    #[must_use]
    pub fn new(bucket: &str, prefix: &str, s3: &S3) -> Self {
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let (client, skew, troubles) = (OnceCell::new(), Skew::new(), Troubles::default());
        Self(Arc::new(Bucket { name: bucket.to_owned(), prefix, s3: s3.clone(), client, skew, troubles }))
    }

    fn call(&self, op: StoreOp, name: &str) -> Call {
        Call { op, key: format!("{}{name}", self.0.prefix) }
    }

    fn tries(&self) -> Tries {
        Tries::new(self.0.s3.attempt_timeout_ms.duration(), &self.0.troubles)
    }

    fn timeout_for(&self, bytes: u64) -> Duration {
        let moving = Duration::from_millis(bytes.saturating_mul(1_000) / BYTES_PER_SECOND_MIN);
        self.0.s3.attempt_timeout_ms.duration() + moving
    }

    async fn client(&self, call: &Call) -> Result<&Client, StoreError> {
        let connect = || async {
            let environment = connect::environment(&self.0.s3).await?;
            Ok(connect::client(&self.0.s3, &environment, &self.0.skew))
        };
        self.0.client.get_or_try_init(connect).await.map_err(|failure: S3Failure| StoreError::Refused {
            op: call.op,
            target: self.target(call),
            answer: Box::new(failure),
            remedy: "they were looked for in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a web identity, the container \
                     and the instance's role: give them by one of these"
                .to_owned(),
        })
    }

    fn target(&self, call: &Call) -> String {
        format!("s3://{}/{}", self.0.name, call.key)
    }

    /// Repeats an attempt until it succeeds, is answered for good, or the time is up.
    async fn settle<T, F: Future<Output = Result<T, S3Failure>>>(
        tries: &mut Tries,
        attempt: impl Fn() -> F,
    ) -> Result<T, Ended> {
        loop {
            let ended = attempt().await;
            tries.on_end(ended.as_ref().err());
            let failure = match ended {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let verdict = failure.verdict();
            // A failed condition is judged by whoever made it.
            if verdict == Verdict::ConditionFailed || !tries.again(&failure).await {
                return Err(Ended { failure, verdict });
            }
        }
    }

    fn failed(&self, call: &Call, ended: Ended, tries: &Tries) -> StoreError {
        let Ended { failure, verdict } = ended;
        let (op, target) = (call.op, self.target(call));
        let is_final = matches!(verdict, Verdict::Never | Verdict::Skewed);
        if is_final && !tries.is_unknown {
            if failure.is_full() {
                return StoreError::Full { target, source: std::io::Error::other(failure) };
            }
            let remedy = failure.remedy(&self.0.name, self.0.skew.ms());
            return StoreError::Refused { op, target, answer: Box::new(failure), remedy };
        }
        let effect = if tries.is_unknown && !op.is_read() { Effect::Unknown } else { Effect::None };
        StoreError::Unavailable { op, target, effect, source: Box::new(failure) }
    }

    /// What was found does not say whether an earlier attempt, whose answer was lost, was carried out; of a read, that what was
    /// found does not hold together.
    fn unsure(&self, call: &Call, why: &str) -> StoreError {
        let effect = if call.op.is_read() { Effect::None } else { Effect::Unknown };
        let source = Box::new(S3Failure::unanswered(why));
        StoreError::Unavailable { op: call.op, target: self.target(call), effect, source }
    }

    fn damaged(&self, call: &Call) -> impl Fn(CorruptObject) -> StoreError {
        let target = self.target(call);
        move |fault| StoreError::Corrupt { target: target.clone(), fault }
    }

    async fn put(
        &self,
        op: StoreOp,
        name: &ObjectName,
        condition: Condition<'_>,
        (body, nonce): (Bytes, PutNonce),
    ) -> Result<Version, StoreError> {
        let call = self.call(op, name.as_str());
        let client = self.client(&call).await?;
        let trailer = Trailer::of(&body, nonce);
        let mut stored = BytesMut::with_capacity(body.len() + TRAILER_BYTES);
        stored.extend_from_slice(&body);
        stored.extend_from_slice(&trailer.encode());
        let stored = stored.freeze();
        let mut tries = self.tries();
        loop {
            let attempt = || self.put_once(client, &call.key, condition, (stored.clone(), nonce));
            let ended = match Self::settle(&mut tries, attempt).await {
                Ok(version) => return Ok(version),
                Err(ended) => ended,
            };
            match (ended.verdict, condition) {
                (Verdict::ConditionFailed, _) => {}
                (Verdict::Absent, Condition::Is(_)) if tries.is_unknown => {
                    return Err(self.unsure(&call, "an answer was lost, and there is no such object"));
                }
                (Verdict::Absent, Condition::Is(_)) => return Err(StoreError::NotFound { name: name.clone() }),
                _ => return Err(self.failed(&call, ended, &tries)),
            }
            if let Some(answer) = self.judge(&call, name, condition, (&trailer, tries.is_unknown)).await {
                return answer;
            }
            if !tries.again(&ended.failure).await {
                return Err(self.failed(&call, ended, &tries));
            }
        }
    }

    /// The condition of a put does not hold: says what that means by what stands there, or that it is to be tried again.
    async fn judge(
        &self,
        call: &Call,
        name: &ObjectName,
        condition: Condition<'_>,
        (own, is_unknown): (&Trailer, bool),
    ) -> Option<Result<Version, StoreError>> {
        let (found, current) = match self.closing(call, name).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => {
                return match condition {
                    Condition::Absent => None,
                    Condition::Is(_) if is_unknown => {
                        Some(Err(self.unsure(call, "an answer was lost, and there is no such object")))
                    }
                    Condition::Is(_) => Some(Err(StoreError::NotFound { name: name.clone() })),
                };
            }
            Err(error) => return Some(Err(error)),
        };
        if found == *own {
            return Some(Ok(current));
        }
        match condition {
            Condition::Absent => Some(Err(StoreError::AlreadyExists { name: name.clone(), current })),
            Condition::Is(expected) if *expected == current => None,
            Condition::Is(_) if is_unknown => {
                Some(Err(self.unsure(call, "an answer was lost, and another version stands there")))
            }
            Condition::Is(expected) => {
                Some(Err(StoreError::VersionMismatch { name: name.clone(), expected: expected.clone(), current }))
            }
        }
    }

    async fn put_once(
        &self,
        client: &Client,
        key: &str,
        condition: Condition<'_>,
        (stored, nonce): (Bytes, PutNonce),
    ) -> Result<Version, S3Failure> {
        let s3 = &self.0.s3;
        let limit = self.timeout_for(stored.len() as u64);
        let put = client.put_object().bucket(&self.0.name).key(key).metadata(NONCE_KEY, nonce.to_string());
        let put = match condition {
            Condition::Absent => put.if_none_match("*"),
            Condition::Is(version) => put.if_match(version.as_str()),
        };
        let put = put.set_checksum_algorithm(match s3.checksum {
            S3Checksum::None => None,
            S3Checksum::Crc32 => Some(ChecksumAlgorithm::Crc32),
            S3Checksum::Crc32c => Some(ChecksumAlgorithm::Crc32C),
            S3Checksum::Crc64nvme => Some(ChecksumAlgorithm::Crc64Nvme),
        });
        let put = put.body(ByteStream::from(stored)).customize();
        // Without TLS nothing else says that the bytes are those that were sent.
        let is_plain = matches!(&s3.endpoint, S3Endpoint::Url(url) if url.starts_with("http://"));
        let put = if s3.sign_payload || is_plain { put } else { put.disable_payload_signing() };
        let done = within(limit, put.send()).await?.map_err(|error| S3Failure::of(&error))?;
        let version = done.e_tag().map(Version::new);
        version.ok_or_else(|| S3Failure::unanswered("the answer to a put has no ETag"))
    }

    /// Reads `range`, an HTTP range of bytes, or all; `None` when it starts past the end.
    async fn fetch(
        &self,
        call: &Call,
        name: &ObjectName,
        range: Option<String>,
    ) -> Result<Option<Fetched>, StoreError> {
        let client = self.client(call).await?;
        let mut tries = self.tries();
        match Self::settle(&mut tries, || self.fetch_once(client, &call.key, range.clone())).await {
            Ok(fetched) => Ok(Some(fetched)),
            Err(Ended { verdict: Verdict::OutOfRange, .. }) => Ok(None),
            Err(Ended { verdict: Verdict::Absent, .. }) => Err(StoreError::NotFound { name: name.clone() }),
            Err(ended) => Err(self.failed(call, ended, &tries)),
        }
    }

    async fn fetch_once(&self, client: &Client, key: &str, range: Option<String>) -> Result<Fetched, S3Failure> {
        let get = client.get_object().bucket(&self.0.name).key(key).set_range(range);
        let answer = within(self.timeout_for(0), get.send()).await?.map_err(|error| S3Failure::of(&error))?;
        let promised = answer.content_length().and_then(|len| u64::try_from(len).ok()).unwrap_or(0);
        let version = answer.e_tag().map(Version::new);
        let version = version.ok_or_else(|| S3Failure::unanswered("the answer to a get has no ETag"))?;
        let nonce = answer.metadata().and_then(|metadata| parse_nonce(metadata.get(NONCE_KEY)?));
        let place = answer.content_range().and_then(parse_content_range);
        let body = within(self.timeout_for(promised), answer.body.collect()).await?;
        let bytes = body.map_err(|error| S3Failure::unanswered(failure::chain(&error)))?.into_bytes();
        if promised != bytes.len() as u64 {
            let found = bytes.len();
            return Err(S3Failure::unanswered(format!("{found} of {promised} bytes came")));
        }
        let (start, total) = place.unwrap_or((0, promised));
        Ok(Fetched { start, total, bytes, version, nonce })
    }

    /// The closing bytes of an object and its version: for what a HEAD would cost, and a missing bucket shows, which it does not
    /// in the answer to a HEAD.
    async fn closing(&self, call: &Call, name: &ObjectName) -> Result<(Trailer, Version), StoreError> {
        let fetched = self.fetch(call, name, Some(format!("bytes=-{TRAILER_BYTES}"))).await?;
        // Only of an object without bytes the end is past the end.
        let expected = TRAILER_BYTES as u64;
        let fetched = fetched.ok_or_else(|| self.damaged(call)(CorruptObject::Short { found: 0, expected }))?;
        let trailer = fetched.trailer().map_err(self.damaged(call))?;
        Ok((trailer, fetched.version))
    }

    async fn head_of(&self, call: &Call, name: &ObjectName) -> Result<ObjectMeta, StoreError> {
        let (trailer, version) = self.closing(call, name).await?;
        Ok(ObjectMeta { size_bytes: trailer.body_bytes, version, nonce: trailer.nonce })
    }

    async fn get_span(&self, call: &Call, name: &ObjectName, span: Span) -> Result<Object, StoreError> {
        /// Places past it do not exist, and some stores do not parse them.
        const PLACE_MAX: u64 = i64::MAX as u64;
        let range = match span {
            Span::Whole => None,
            Span::Suffix(len) => Some(format!("bytes=-{}", len.saturating_add(TRAILER_BYTES as u64).min(PLACE_MAX))),
            Span::Range { start, end } if start < end => Some(format!("bytes={start}-{}", (end - 1).min(PLACE_MAX))),
            // HTTP has no empty range.
            Span::Range { .. } => return self.get_nothing(call, name, span).await,
        };
        let Some(fetched) = self.fetch(call, name, range).await? else {
            return self.get_nothing(call, name, span).await;
        };
        let damaged = self.damaged(call);
        let size_bytes = fetched.size_bytes().map_err(&damaged)?;
        let range = span.of(name, size_bytes)?;
        let body = fetched.cut(&range).ok_or_else(|| self.unsure(call, "other bytes came than were asked for"))?;
        let nonce = if fetched.reaches_end() {
            let trailer = fetched.trailer().map_err(&damaged)?;
            if range == (0..size_bytes) {
                trailer.check(&body).map_err(&damaged)?;
            }
            trailer.nonce
        } else if let Some(nonce) = fetched.nonce {
            nonce
        } else {
            // A gateway has dropped the metadata.
            let (trailer, version) = self.closing(call, name).await?;
            if version != fetched.version {
                return Err(self.unsure(call, "the object was replaced while it was read"));
            }
            trailer.nonce
        };
        Ok(Object { meta: ObjectMeta { size_bytes, version: fetched.version, nonce }, body })
    }

    /// No bytes of an object, or why there is not even that.
    async fn get_nothing(&self, call: &Call, name: &ObjectName, span: Span) -> Result<Object, StoreError> {
        let meta = self.head_of(call, name).await?;
        let range = span.of(name, meta.size_bytes)?;
        if !range.is_empty() {
            return Err(self.unsure(call, "the object was replaced while it was read"));
        }
        Ok(Object { meta, body: Bytes::new() })
    }

    async fn remove(&self, call: &Call, name: &ObjectName, expected: Option<&Version>) -> Result<(), StoreError> {
        let client = self.client(call).await?;
        let mut tries = self.tries();
        let attempt = || async {
            let delete = client.delete_object().bucket(&self.0.name).key(&call.key);
            let delete = delete.set_if_match(expected.map(|version| version.as_str().to_owned()));
            let done = within(self.timeout_for(0), delete.send()).await?;
            done.map(drop).map_err(|error| S3Failure::of(&error))
        };
        let ended = match Self::settle(&mut tries, attempt).await {
            Ok(()) => return Ok(()),
            Err(ended) => ended,
        };
        match (ended.verdict, expected) {
            (Verdict::Absent, None) => Ok(()),
            (Verdict::Absent, Some(_)) if tries.is_unknown => {
                Err(self.unsure(call, "an answer was lost, and there is no such object"))
            }
            (Verdict::Absent, Some(_)) => Err(StoreError::NotFound { name: name.clone() }),
            (Verdict::ConditionFailed, Some(expected)) => {
                // Some stores say of an absent object that its condition fails.
                let current = self.closing(call, name).await?.1;
                if tries.is_unknown || current == *expected {
                    return Err(self.unsure(call, "an answer was lost, and another version stood there"));
                }
                Err(StoreError::VersionMismatch { name: name.clone(), expected: expected.clone(), current })
            }
            _ => Err(self.failed(call, ended, &tries)),
        }
    }

    async fn remove_if_match(&self, call: &Call, name: &ObjectName, expected: &Version) -> Result<(), StoreError> {
        // Some stores answer that they removed what was not there.
        let current = self.closing(call, name).await?.1;
        if current != *expected {
            return Err(StoreError::VersionMismatch { name: name.clone(), expected: expected.clone(), current });
        }
        self.remove(call, name, Some(expected)).await
    }

    async fn page(&self, call: &Call, after: Option<&ObjectName>, limit: usize) -> Result<ListPage, StoreError> {
        let client = self.client(call).await?;
        let mut tries = self.tries();
        let rows = i32::try_from(limit.clamp(1, PAGE_ROWS_MAX)).unwrap_or(i32::MAX);
        let after = after.map(|name| format!("{}{name}", self.0.prefix));
        let attempt = || async {
            let list = client.list_objects_v2().bucket(&self.0.name).prefix(&call.key).max_keys(rows);
            let listed = within(self.timeout_for(0), list.set_start_after(after.clone()).send()).await?;
            listed.map_err(|error| S3Failure::of(&error))
        };
        let listed = match Self::settle(&mut tries, attempt).await {
            Ok(listed) => listed,
            Err(ended) => return Err(self.failed(call, ended, &tries)),
        };
        let row = |found: &aws_sdk_s3::types::Object| {
            let key = found.key().unwrap_or_default();
            let name = key.strip_prefix(&self.0.prefix).and_then(|name| ObjectName::parse(name).ok());
            let target = || format!("s3://{}/{key}", self.0.name);
            let name = name.ok_or_else(|| StoreError::Corrupt { target: target(), fault: CorruptObject::FileName })?;
            let stored = found.size().and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
            Ok(Listed { name, size_bytes: stored.saturating_sub(TRAILER_BYTES as u64) })
        };
        let objects: Result<Vec<_>, StoreError> = listed.contents().iter().map(row).collect();
        Ok(ListPage { objects: objects?, more: listed.is_truncated().unwrap_or(false) })
    }
}

async fn within<T>(limit: Duration, answer: impl Future<Output = T>) -> Result<T, S3Failure> {
    tokio::time::timeout(limit, answer).await.map_err(|_| S3Failure::timeout(limit))
}

fn parse_nonce(text: &str) -> Option<PutNonce> {
    (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(|n| PutNonce::from_bytes(n.to_be_bytes())))?
}

/// First byte and size of the whole, of `bytes 0-9/58`.
fn parse_content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()?))
}

impl Store for S3Store {
    fn put_if_absent<'a>(&'a self, name: &'a ObjectName, body: Bytes, nonce: PutNonce) -> StoreFuture<'a, Version> {
        Box::pin(self.put(StoreOp::PutIfAbsent, name, Condition::Absent, (body, nonce)))
    }

    fn put_if_match<'a>(
        &'a self,
        name: &'a ObjectName,
        expected: &'a Version,
        body: Bytes,
        nonce: PutNonce,
    ) -> StoreFuture<'a, Version> {
        Box::pin(self.put(StoreOp::PutIfMatch, name, Condition::Is(expected), (body, nonce)))
    }

    fn get<'a>(&'a self, name: &'a ObjectName, span: Span) -> StoreFuture<'a, Object> {
        Box::pin(async move { self.get_span(&self.call(StoreOp::Get, name.as_str()), name, span).await })
    }

    fn head<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ObjectMeta> {
        Box::pin(async move { self.head_of(&self.call(StoreOp::Head, name.as_str()), name).await })
    }

    fn delete<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.remove(&self.call(StoreOp::Delete, name.as_str()), name, None).await })
    }

    fn delete_if_match<'a>(&'a self, name: &'a ObjectName, expected: &'a Version) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.remove_if_match(&self.call(StoreOp::DeleteIfMatch, name.as_str()), name, expected).await
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a ObjectPrefix,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> StoreFuture<'a, ListPage> {
        Box::pin(async move { self.page(&self.call(StoreOp::List, prefix.as_str()), after, limit).await })
    }

    fn clock_skew_ms(&self) -> Option<i64> {
        self.0.skew.ms()
    }

    fn trouble(&self) -> Option<Trouble> {
        self.0.troubles.now()
    }
}

#[cfg(test)]
mod tests;
