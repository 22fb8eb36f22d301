//! What becomes of chunks once they are committed and in the index, and what of records that nobody keeps?
//!
//! Chunks are copied into [bundles](Settler::bundle_step) of one slot, and [deleted](Settler::delete_step) once that is durable; what
//! nothing points to any more is [reclaimed](Settler::reclaim_step), what is half dead [rewritten](Settler::compact_step). Records that
//! are too old, or too many, are [trimmed](Settler::retention_step). Every step does a bounded amount of work, may fail or be dropped
//! anywhere, and is then repeated: what it leaves behind is an object that nothing points to, never a record that is missing.

mod bundle;
mod clock;
mod compact;
mod copy;
mod counts;
mod delete;
mod error;
mod orphans;
mod reclaim;
mod retention;
mod source;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use wire::handoff::ToShard;
use wire::slot::Slot;

use crate::channel::{Channel, PriorChannel};
use crate::core::settle_clock::ClockGuard;
use crate::core::settle_pack::{BundleRules, CompactRules, PackRules};
use crate::history::History;
use crate::index::Index;
use crate::shell::unix_ms;
use crate::store::Store;

pub use crate::core::settle_clock::{ClockFault, ClockLook};
pub use bundle::Bundled;
pub use counts::SettleCounts;
pub use delete::Deleted;
pub use error::SettleError;
pub use orphans::Orphans;
pub use reclaim::Freed;

use compact::Survey;
use delete::Frees;
use source::Unreadable;

const MIB: u64 = 1 << 20;

/// When settling does what.
#[derive(Debug, Clone)]
pub struct SettleOptions {
    /// Chunks are bundled once extents in them have so many bytes. More makes fewer, larger bundles, and takes as much memory.
    pub bundle_bytes: u64,
    /// At the latest once there are so many chunks.
    pub bundle_chunks: usize,
    /// At the latest when the oldest chunk has this age.
    pub bundle_age: Duration,
    /// A stream with so many bytes in a batch of chunks has bundles of its own.
    pub own_bytes: u64,
    /// Bytes of a bundle at most.
    pub object_bytes: u64,
    /// How long chunks stay once it is said that nothing points to them: longer than any read of them takes.
    pub grace: Duration,
    /// Objects that one step deletes.
    pub deletes_max: usize,
    /// A bundle with fewer bytes is small, and becomes one with others of its slot.
    pub small_bytes: u64,
    /// How many small bundles become one.
    pub small_count: usize,
    /// Between looks at what is to be bundled, deleted and reclaimed.
    pub look_every: Duration,
    /// Between rewrites of bundles.
    pub compact_every: Duration,
    /// Between looks at the files of the index.
    pub upkeep_every: Duration,
    /// Between looks at what is too old or too much.
    pub retention_every: Duration,
    /// Between checkpoints of what settling changed.
    pub checkpoint_every: Duration,
    /// Between notes of what the clocks say.
    pub clock_every: Duration,
    /// How long after the start objects are looked for that nothing knows.
    pub orphans_after: Duration,
    /// Between such looks.
    pub orphans_every: Duration,
    /// How old such an object is at least.
    pub orphan_age: Duration,
}

impl Default for SettleOptions {
    fn default() -> Self {
        let day = Duration::from_secs(86_400);
        Self {
            bundle_bytes: 32 * MIB,
            bundle_chunks: 1024,
            bundle_age: Duration::from_secs(600),
            own_bytes: 8 * MIB,
            object_bytes: 64 * MIB,
            grace: Duration::from_secs(60),
            deletes_max: 1000,
            small_bytes: MIB,
            small_count: 16,
            look_every: Duration::from_secs(10),
            compact_every: Duration::from_secs(60),
            upkeep_every: Duration::from_secs(5),
            retention_every: Duration::from_secs(1),
            checkpoint_every: Duration::from_secs(300),
            clock_every: Duration::from_secs(60),
            orphans_after: day,
            orphans_every: 7 * day,
            orphan_age: day,
        }
    }
}

/// Streams of one bundle at most: their rows change in one write.
const OBJECT_STREAMS_MAX: usize = 16_384;

impl SettleOptions {
    fn bundle_rules(&self) -> BundleRules {
        BundleRules { bytes: self.bundle_bytes, chunks: self.bundle_chunks, age_ms: millis(self.bundle_age) }
    }

    fn compact_rules(&self) -> CompactRules {
        let bytes = self.object_bytes;
        CompactRules { small_bytes: self.small_bytes, small_count: self.small_count, bytes }
    }

    fn pack_rules(&self) -> PackRules {
        PackRules { own_bytes: self.own_bytes, object_bytes: self.object_bytes, streams: OBJECT_STREAMS_MAX }
    }
}

/// A duration in milliseconds.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// What settling works with.
#[derive(Debug)]
pub struct SettleParts {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The index, with all that was committed before.
    pub index: Arc<Index>,
    /// The channel of this incarnation.
    pub channel: Channel,
    /// Reads of settled records.
    pub history: Arc<History>,
    /// Channels that ended and are still kept, as the join found them.
    pub prior: Vec<PriorChannel>,
    /// The newest time that is known to have been written, in milliseconds; `None` when none is.
    pub newest_ms: Option<i64>,
    /// An operator says that the wall clock is right.
    pub confirms_clock: bool,
}

/// The background behind the channel. Its steps may run side by side; each of them does once at a time.
#[derive(Debug)]
pub struct Settler {
    store: Arc<dyn Store>,
    index: Arc<Index>,
    channel: Channel,
    history: Arc<History>,
    newest_ms: Option<i64>,
    confirms_clock: bool,
    options: SettleOptions,
    /// Held while extents move: two copies of one would be one too many.
    copying: tokio::sync::Mutex<()>,
    frees: tokio::sync::Mutex<Frees>,
    reclaimed: tokio::sync::Mutex<reclaim::Gone>,
    survey: tokio::sync::Mutex<Survey>,
    /// How the clocks are kept; `None` until what was noted of them is read.
    clock: tokio::sync::Mutex<Option<clock::Kept>>,
    guard: Mutex<Option<ClockGuard>>,
    unreadable: Mutex<Unreadable>,
    counts: Mutex<SettleCounts>,
}

/// A step that is repeated for ever.
type Loop<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl Settler {
    /// Takes what it works with; nothing is done before a step is asked for, or [`Settler::run`] is.
    #[must_use]
    pub fn new(parts: SettleParts, options: SettleOptions) -> Self {
        let SettleParts { store, index, channel, history, prior, newest_ms, confirms_clock } = parts;
        let frees = tokio::sync::Mutex::new(Frees::new(channel.incarnation(), &prior));
        Self {
            store,
            index,
            channel,
            history,
            newest_ms,
            confirms_clock,
            options,
            copying: tokio::sync::Mutex::default(),
            frees,
            reclaimed: tokio::sync::Mutex::default(),
            survey: tokio::sync::Mutex::default(),
            clock: tokio::sync::Mutex::default(),
            guard: Mutex::default(),
            unreadable: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// Takes every step, again and again, until it is dropped. What retention asks of streams goes to `trims`, with the slot of each.
    pub async fn run(self: Arc<Self>, trims: impl Fn(Slot, ToShard) + Send + Sync + 'static) {
        let options = &self.options;
        let boot_id = clock::boot_id();
        let every: [(&str, Duration, Duration); 8] = [
            ("bundling chunks", options.look_every, options.look_every),
            ("deleting chunks", options.look_every, options.look_every),
            ("reclaiming objects", options.look_every, options.look_every),
            ("rewriting bundles", options.compact_every, options.compact_every),
            ("the upkeep of the index", options.upkeep_every, options.upkeep_every),
            ("a checkpoint of the index", options.checkpoint_every, options.checkpoint_every),
            ("looking for objects that nothing knows", options.orphans_after, options.orphans_every),
            ("retention", options.retention_every, options.retention_every),
        ];
        let [bundle, delete, reclaim, compact, upkeep, checkpoint, orphans, retention] = every;
        tokio::join!(
            repeat(bundle, || async { self.bundle_step(unix_ms()).await.map(|done| done.extents > 0) }),
            repeat(delete, || async { self.delete_step().await.map(|done| done.has_more) }),
            repeat(reclaim, || async { self.reclaim_step(unix_ms()).await.map(|done| done.has_more) }),
            repeat(compact, || async { self.compact_step(unix_ms()).await.map(|done| done.extents > 0) }),
            repeat(upkeep, || async { Ok(self.index.upkeep().await.map(|()| false)?) }),
            repeat(checkpoint, || async { Ok(self.index.checkpoint().await.map(|()| false)?) }),
            repeat(orphans, || async { self.orphan_step(unix_ms()).await.map(|_| false) }),
            repeat(retention, || async {
                let look = clock::look(boot_id, &*self.store);
                self.retention_step(look, &trims).await.map(|_| false)
            }),
        );
    }

    /// What was counted since the start.
    #[must_use]
    pub fn counts(&self) -> SettleCounts {
        let mut counts = *self.counted();
        counts.retention_stopped = self.guard().as_ref().is_some_and(|guard| guard.fault().is_some());
        counts
    }

    /// Why records are not dropped by their age; `None` when they are.
    #[must_use]
    pub fn clock_fault(&self) -> Option<ClockFault> {
        self.guard().as_ref().and_then(ClockGuard::fault)
    }

    /// An operator says that the wall clock is right: records are dropped by their age again.
    pub fn confirm_clock(&self) {
        if let Some(guard) = &mut *self.guard() {
            guard.on_confirm();
        }
    }

    fn guard(&self) -> MutexGuard<'_, Option<ClockGuard>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self) -> MutexGuard<'_, SettleCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a step again and again: at once while there is more to do, else after a pause.
fn repeat<'a, F: Future<Output = Result<bool, SettleError>> + Send + 'a>(
    (what, first, every): (&'static str, Duration, Duration),
    step: impl Fn() -> F + Send + 'a,
) -> Loop<'a> {
    Box::pin(async move {
        sleep(first).await;
        loop {
            match step().await {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => sleep(every).await,
                Err(error) => {
                    tracing::warn!(%error, "{what} is put off");
                    sleep(every).await;
                }
            }
        }
    })
}

#[cfg(test)]
mod tests;
