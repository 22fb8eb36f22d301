//! What becomes of chunks once they are committed and in the index, and what of records that nobody keeps?
//!
//! Chunks are copied into [bundles](Settler::bundle_step) of one slot, and [deleted](Settler::delete_step) once that is durable; what
//! nothing points to any more is [reclaimed](Settler::reclaim_step), what is half dead [rewritten](Settler::compact_step). Records that
//! are too old, or too many, are [trimmed](Settler::retention_step). Every step does a bounded amount of work, may fail or be dropped
//! anywhere, and is then repeated: what it leaves behind is an object that nothing points to, never a record that is missing.

mod bundle;
pub(crate) mod clock;
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

use tokio::time::{Instant, sleep};
use tuning::room::Room;
use wire::handoff::ToShard;
use wire::slot::Slot;

use crate::channel::{Channel, PriorChannel};
use crate::core::settle_clock::ClockGuard;
use crate::core::settle_pack::{Backlog, BundleRules, CompactRules, PackRules, may_rest};
use crate::history::History;
use crate::index::Index;
use crate::rarely::Rarely;
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
use retention::Edges;
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
    /// After so long a step that copies leaves the rest to the next, once a bundle is made: steps of both kinds wait for each other.
    pub copy_time: Duration,
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
            copy_time: Duration::from_secs(5),
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

/// How long a step waits at most while room is wanted.
const HURRIED_PAUSE: Duration = Duration::from_secs(1);
/// How long objects that nothing points to stay then, at most: a read that meets none any more asks the index again.
const HURRIED_GRACE: Duration = Duration::from_secs(2);
/// How old a chunk is that is bundled then.
const HURRIED_AGE_MS: i64 = 1_000;
/// The part of what is free that a bundle takes then, as a divisor.
const HURRIED_DIVISOR: u64 = 4;
/// How long after a start it is made durable what that has found: a star that does not live long must come to it.
const FIRST_CHECKPOINT_AFTER: Duration = Duration::from_secs(30);

/// While chunks are being applied, copying rests after a step for so many times as long as the step took: what is applied late holds
/// up who makes streams, what is copied late only takes more room for a while. It does not while too much waits for it.
const COPY_REST_FACTOR: u32 = 8;
/// It rests for so long at most.
const COPY_REST_MAX: Duration = Duration::from_secs(60);

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
    /// The disk that holds the store, and becomes free by what settling deletes; `None` when the store is elsewhere.
    pub room: Option<Arc<Room>>,
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
    room: Option<Arc<Room>>,
    options: SettleOptions,
    /// What is to be copied; held while extents move: two copies of one would be one too many.
    copying: tokio::sync::Mutex<bundle::Surveyed>,
    frees: tokio::sync::Mutex<Frees>,
    reclaimed: tokio::sync::Mutex<reclaim::Gone>,
    survey: tokio::sync::Mutex<Survey>,
    /// How the clocks are kept; `None` until what was noted of them is read.
    clock: tokio::sync::Mutex<Option<clock::Kept>>,
    guard: Mutex<Option<ClockGuard>>,
    edges: Mutex<Edges>,
    unreadable: Mutex<Unreadable>,
    /// What the last look at chunks found.
    backlog: Mutex<Backlog>,
    counts: Mutex<SettleCounts>,
}

/// A step that is repeated for ever.
type Loop<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl Settler {
    /// Takes what it works with; nothing is done before a step is asked for, or [`Settler::run`] is.
    #[must_use]
    pub fn new(parts: SettleParts, options: SettleOptions) -> Self {
        let SettleParts { store, index, channel, history, prior, newest_ms, confirms_clock, room } = parts;
        let frees = tokio::sync::Mutex::new(Frees::new(channel.incarnation(), &prior));
        Self {
            store,
            index,
            channel,
            history,
            newest_ms,
            confirms_clock,
            room,
            options,
            copying: tokio::sync::Mutex::default(),
            frees,
            reclaimed: tokio::sync::Mutex::default(),
            survey: tokio::sync::Mutex::default(),
            clock: tokio::sync::Mutex::default(),
            guard: Mutex::default(),
            edges: Mutex::default(),
            unreadable: Mutex::default(),
            backlog: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    /// Takes every step, again and again, until it is dropped. What retention asks of streams goes to `trims`, with the slot of each.
    pub async fn run(self: Arc<Self>, trims: impl Fn(Slot, ToShard) + Send + Sync + 'static) {
        let options = &self.options;
        if let Err(error) = self.note_unneeded().await {
            tracing::warn!(%error, "chunks of earlier channels go after a time of grace");
        }
        let first_checkpoint = options.checkpoint_every.min(FIRST_CHECKPOINT_AFTER);
        let boot_id = clock::boot_id();
        let every: [(&str, Duration, Duration); 7] = [
            ("bundling chunks", options.look_every, options.look_every),
            ("deleting chunks", options.look_every, options.look_every),
            ("reclaiming objects", options.look_every, options.look_every),
            ("rewriting bundles", options.compact_every, options.compact_every),
            ("the upkeep of the index", options.upkeep_every, options.upkeep_every),
            ("a checkpoint of the index", first_checkpoint, options.checkpoint_every),
            ("retention", options.retention_every, options.retention_every),
        ];
        let [bundle, delete, reclaim, compact, upkeep, checkpoint, retention] = every;
        tokio::join!(
            self.repeat(bundle, || self.copy_step(self.bundle_step(unix_ms()))),
            self.repeat(delete, || async { self.delete_step().await.map(|done| done.has_more) }),
            self.repeat(reclaim, || async { self.reclaim_step(unix_ms()).await.map(|done| done.has_more) }),
            self.repeat(compact, || self.copy_step(self.compact_step(unix_ms()))),
            self.repeat(upkeep, || async { Ok(self.index.upkeep().await.map(|()| false)?) }),
            self.repeat(checkpoint, || async { Ok(self.index.checkpoint().await.map(|()| false)?) }),
            self.watch_orphans(),
            self.repeat(retention, || async {
                let look = clock::look(boot_id, &*self.store);
                self.retention_step(look, &trims).await.map(|_| false)
            }),
        );
    }

    /// Whether room is wanted, so that what can be freed is freed sooner.
    fn is_hurried(&self) -> bool {
        self.room.as_ref().is_some_and(|room| room.is_low())
    }

    /// How long objects stay that nothing points to.
    fn grace(&self) -> Duration {
        if self.is_hurried() { self.options.grace.min(HURRIED_GRACE) } else { self.options.grace }
    }

    /// Which chunks are bundled: while room is wanted also few, and no more than there is room for the copy of.
    fn bundle_rules(&self) -> BundleRules {
        let rules = self.options.bundle_rules();
        match self.room.as_ref().filter(|room| room.is_low()) {
            Some(room) => BundleRules {
                bytes: rules.bytes.min(room.free_bytes() / HURRIED_DIVISOR),
                age_ms: rules.age_ms.min(HURRIED_AGE_MS),
                ..rules
            },
            None => rules,
        }
    }

    /// Waits between two steps, and not for long while room is wanted.
    async fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            sleep(left.min(HURRIED_PAUSE)).await;
            if left <= HURRIED_PAUSE || self.is_hurried() {
                return;
            }
        }
    }

    /// Takes a step that copies; whether it did. It makes way for chunks that are being applied, unless too much waits to be copied.
    async fn copy_step(&self, step: impl Future<Output = Result<Bundled, SettleError>>) -> Result<bool, SettleError> {
        let done = step.await?;
        if done.extents > 0 && self.index.is_applying() && self.may_rest(unix_ms()) {
            self.pause((done.took * COPY_REST_FACTOR).min(COPY_REST_MAX)).await;
        }
        Ok(done.extents > 0)
    }

    /// Whether what waits to be bundled lets copying rest.
    fn may_rest(&self, now_ms: i64) -> bool {
        may_rest(*self.backlog(), self.options.bundle_rules(), now_ms)
    }

    /// Takes a step again and again: at once while there is more to do and room for it, else after a pause.
    fn repeat<'a, F: Future<Output = Result<bool, SettleError>> + Send + 'a>(
        &'a self,
        (what, first, every): (&'static str, Duration, Duration),
        step: impl Fn() -> F + Send + 'a,
    ) -> Loop<'a> {
        Box::pin(async move {
            self.pause(first).await;
            let said = Rarely::new();
            loop {
                let done = step().await.inspect_err(|error| put_off(what, error, &said));
                match done {
                    Ok(true) if !self.is_hurried() => tokio::task::yield_now().await,
                    _ => self.pause(every).await,
                }
            }
        })
    }

    /// Looks for orphans now and then, whether room is wanted or not: they are known by their age.
    async fn watch_orphans(&self) {
        sleep(self.options.orphans_after).await;
        let said = Rarely::new();
        loop {
            if let Err(error) = self.orphan_step(unix_ms()).await {
                put_off("looking for objects that nothing knows", &error, &said);
            }
            sleep(self.options.orphans_every).await;
        }
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

    fn edges(&self) -> MutexGuard<'_, Edges> {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self) -> MutexGuard<'_, SettleCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put_off(what: &str, error: &(impl std::fmt::Display + ?Sized), said: &Rarely) {
    if said.is_due() {
        tracing::warn!(%error, "{what} is put off");
    }
}

#[cfg(test)]
mod tests;
