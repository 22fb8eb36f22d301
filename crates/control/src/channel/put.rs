//! How does a chunk become an object: its bytes, and one attempt to put them?

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use failpoints::{Point, hit};
use tokio::time::{Instant, sleep, timeout};
use wire::chunk::{Footer, ObjectBuilder, ObjectHeader};

use super::read::{ChunkId, chunk_name, probe};
use crate::core::uploader::Cut;
use crate::store::{Effect, ObjectName, PutNonce, Store, StoreError, StoreOp};

/// Entries of so many bytes are built where they are; more on a thread that may take its time.
const BUILT_INLINE_MAX: usize = 64 << 10;
/// Times of puts that are remembered, and how many must be before one counts as late.
const TIMES: usize = 64;
const TIMES_MIN: usize = 8;
/// A put is not late before this.
const LATE_MIN: Duration = Duration::from_millis(200);

/// A chunk as it is put, each time the same.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) bytes: Bytes,
    pub(super) footer: Footer,
    chunk: ChunkId,
    name: ObjectName,
    nonce: PutNonce,
}

/// Why an attempt did not answer that the chunk stands.
#[derive(Debug)]
pub(super) enum PutError {
    /// Something else stands there: the channel is another's.
    Lost(String),
    /// It may or may not stand.
    Failed(StoreError),
}

/// How one attempt is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) timeout: Duration,
    /// When to send the same bytes a second time; `None`: never.
    pub(super) hedge_after: Option<Duration>,
}

impl Built {
    /// Builds the object, elsewhere when it is large.
    pub(super) async fn of(cut: Cut, header: ObjectHeader) -> Self {
        let bytes: usize = cut.parcels.iter().map(|parcel| parcel.bytes.len()).sum();
        if bytes <= BUILT_INLINE_MAX {
            return Self::now(cut, header);
        }
        let built = tokio::task::spawn_blocking(move || Self::now(cut, header)).await;
        built.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
    }

    fn now(cut: Cut, header: ObjectHeader) -> Self {
        let chunk = ChunkId { incarnation: header.incarnation, position: header.position };
        let mut builder = ObjectBuilder::new(header);
        for parcel in &cut.parcels {
            let mut rest = &parcel.bytes[..];
            for item in &parcel.items {
                let (entry, behind) = rest.split_at(item.bytes as usize);
                builder.push(item, entry);
                rest = behind;
            }
            assert!(rest.is_empty(), "a parcel has {} bytes behind its last item", rest.len());
        }
        cut.settles.iter().for_each(|settles| builder.settles(*settles));
        let built = builder.finish();
        let (bytes, name) = (Bytes::from(built.bytes), chunk_name(chunk));
        Self { bytes, footer: built.footer, chunk, name, nonce: PutNonce::fresh() }
    }

    pub(super) fn chunk(&self) -> ChunkId {
        self.chunk
    }

    /// Tries once, and says how long it took. Dropped or timed out, it may still arrive later: the same bytes, so that it does
    /// no harm.
    pub(super) async fn put(&self, store: &Arc<dyn Store>, attempt: Attempt) -> Result<Duration, PutError> {
        let began = Instant::now();
        hit(Point::ChunkPut);
        let answer = match timeout(attempt.timeout, self.put_hedged(store.as_ref(), attempt.hedge_after)).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(StoreError::Unavailable {
                op: StoreOp::PutIfAbsent,
                target: self.name.to_string(),
                effect: Effect::Unknown,
                source: elapsed.into(),
            }),
        };
        match answer {
            Ok(()) => {
                hit(Point::ChunkPutDone);
                Ok(began.elapsed())
            }
            Err(StoreError::AlreadyExists { .. }) => Err(PutError::Lost(self.who_is_there(store.as_ref()).await)),
            Err(e) => Err(PutError::Failed(e)),
        }
    }

    async fn put_hedged(&self, store: &dyn Store, hedge_after: Option<Duration>) -> Result<(), StoreError> {
        let send = || async { store.put_if_absent(&self.name, self.bytes.clone(), self.nonce).await.map(drop) };
        let Some(after) = hedge_after else { return send().await };
        let mut first = Box::pin(send());
        tokio::select! {
            answer = &mut first => return answer,
            () = sleep(after) => {}
        }
        let mut second = Box::pin(send());
        let is_final =
            |answer: &Result<(), StoreError>| matches!(answer, Ok(()) | Err(StoreError::AlreadyExists { .. }));
        tokio::select! {
            answer = &mut first => if is_final(&answer) { answer } else { second.await },
            answer = &mut second => if is_final(&answer) { answer } else { first.await },
        }
    }

    async fn who_is_there(&self, store: &dyn Store) -> String {
        let chunk = self.chunk;
        match probe(store, chunk).await {
            Ok(Some(header)) => format!("at {chunk} stands a {:?} of star {}", header.kind, header.star),
            Ok(None) => format!("at {chunk} stood another's object, which is gone"),
            Err(error) => format!("at {chunk} stands another's object: {error}"),
        }
    }
}

/// How long the last puts took.
#[derive(Debug, Default)]
pub(super) struct PutTimes {
    last: Vec<Duration>,
    next: usize,
}

impl PutTimes {
    pub(super) fn note(&mut self, time: Duration) {
        if self.last.len() < TIMES {
            self.last.push(time);
        } else {
            self.last[self.next] = time;
            self.next = (self.next + 1) % TIMES;
        }
    }

    /// When a put is so late that a second one is likely to be faster: half as much again as all but one in twenty take.
    pub(super) fn late_after(&self) -> Option<Duration> {
        let mut sorted = self.last.clone();
        sorted.sort_unstable();
        let p95 = *sorted.get(sorted.len() * 95 / 100)?;
        (sorted.len() >= TIMES_MIN).then(|| (p95 * 3 / 2).max(LATE_MIN))
    }
}
