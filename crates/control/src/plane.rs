//! What becomes of the entries that shards hand over, and how are shards answered from the index?
//!
//! Entries go to the uploader. A chunk that is committed is told to the shards at once, then applied to the index, in order,
//! and told again; while the index does not take it, Standard entries are refused. Lookups and reads each run as a task of their own, as many at once as shards may have under way.

mod stalls;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use failpoints::{Point, hit};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use wire::handoff::{HistoryFrom, LoadKey, ReplyTo, SettledLogs, ToControl, ToShard};
use wire::ids::{BucketId, LogId, Lsn, ShardId, StreamId};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;

use crate::channel::{Channel, ChannelError, CommittedChunk, HANGS_AFTER, UploaderHandle};
use crate::history::History;
use crate::index::{Index, IndexError, ObjectId};
use crate::outbox::Outboxes;
use crate::rarely::Rarely;
use crate::store::Trouble;
use stalls::Causes;

/// Committed chunks that wait while as many are being applied; with more, the next commits wait to be told.
const UNAPPLIED_MAX: usize = 16;
/// Bytes that room for chunks is counted in.
const UNIT_BYTES: usize = 4 << 10;
/// Between attempts to apply a chunk that the index could not take.
const APPLY_AGAIN: Duration = Duration::from_secs(1);
/// How often it is looked whether what is applied should be made durable.
const CHECKPOINT_LOOK: Duration = Duration::from_secs(1);
/// How long after a start it is made durable what that has applied: else a star that never lives as long as the time between
/// two checkpoints would apply ever more at each start, and free nothing.
const FIRST_CHECKPOINT_AFTER: Duration = Duration::from_secs(10);

/// How far each lane is in the index.
#[derive(Debug)]
pub(crate) struct AppliedTo {
    lanes: Mutex<Lanes>,
    changed: Notify,
    /// Room for chunks that are not applied yet, in units of [`UNIT_BYTES`].
    room: Semaphore,
    room_units: u32,
}

#[derive(Debug, Default)]
struct Lanes {
    standard: HashMap<ShardId, Lsn>,
    express: HashMap<LogId, Lsn>,
    /// The position of the last chunk.
    position: u64,
}

impl AppliedTo {
    /// Head logs are in the index up to here already.
    pub(crate) fn new(settled: &SettledLogs, unapplied_bytes: usize) -> Self {
        let express = settled.iter().map(|(log, upto)| (*log, *upto)).collect();
        let room_units = u32::try_from((unapplied_bytes / UNIT_BYTES).max(1)).unwrap_or(u32::MAX);
        let room = Semaphore::new(room_units as usize);
        let lanes = Mutex::new(Lanes { express, ..Lanes::default() });
        Self { lanes, changed: Notify::new(), room, room_units }
    }

    /// What a chunk takes of the room for those that are not applied; the largest takes all of it.
    fn units(&self, chunk: &CommittedChunk) -> u32 {
        let units = u32::try_from(chunk.bytes.len().div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        units.min(self.room_units)
    }

    /// Waits until there is room for a chunk that is not applied yet; it is given back when the chunk is noted.
    async fn takes(&self, chunk: &CommittedChunk) {
        if let Ok(taken) = self.room.acquire_many(self.units(chunk)).await {
            taken.forget();
        }
    }

    /// Bytes of chunks that are not applied yet, about.
    pub(crate) fn unapplied_bytes(&self) -> usize {
        (self.room_units as usize).saturating_sub(self.room.available_permits()) * UNIT_BYTES
    }

    /// How far a head log is in the index.
    pub(crate) fn express(&self, log: LogId) -> Lsn {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.express.get(&log).copied().unwrap_or(Lsn::ZERO)
    }

    fn note(&self, chunk: &CommittedChunk) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.standard.extend(chunk.standard.iter().copied());
        lanes.express.extend(chunk.settled.iter().map(|(_, log, upto)| (*log, *upto)));
        lanes.position = chunk.at.position;
        drop(lanes);
        self.room.add_permits(self.units(chunk) as usize);
        self.changed.notify_waiters();
    }

    /// Waits until both lanes of a shard are in the index up to here.
    pub(crate) async fn reaches(&self, shard: ShardId, standard: Lsn, express: (LogId, Lsn)) {
        self.wait_for(|lanes| {
            let upto = |lane: Option<&Lsn>| lane.copied().unwrap_or(Lsn::ZERO);
            upto(lanes.standard.get(&shard)) >= standard && upto(lanes.express.get(&express.0)) >= express.1
        })
        .await;
    }

    /// Waits until every chunk before a position is applied.
    async fn reaches_position(&self, position: u64) {
        self.wait_for(|lanes| lanes.position + 1 >= position).await;
    }

    async fn wait_for(&self, is_reached: impl Fn(&Lanes) -> bool) {
        loop {
            // It hears of all that changes from here on.
            let changed = self.changed.notified();
            if is_reached(&self.lanes.lock().unwrap_or_else(PoisonError::into_inner)) {
                return;
            }
            changed.await;
        }
    }
}

/// The parts of control that have to do with streams.
#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) uploader: UploaderHandle,
    pub(crate) index: Arc<Index>,
    pub(crate) history: Arc<History>,
    pub(crate) outboxes: Arc<Outboxes>,
    pub(crate) applied: AppliedTo,
    /// Chunks that were taken and are not applied yet.
    pub(crate) unapplied: AtomicUsize,
    /// Whether shards are told that the store takes nothing.
    pub(crate) is_stalled: AtomicBool,
}

/// Why not everything is in the index.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FinishError {
    /// It is not committed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The index can't be made durable.
    #[error(transparent)]
    Index(#[from] IndexError),
}

impl Plane {
    /// Takes entries as they come, until shards are gone; those that are there already also once it is told to `stop`.
    pub(crate) async fn take_entries(
        self: Arc<Self>,
        mut entries: mpsc::UnboundedReceiver<ToControl>,
        mut stop: oneshot::Receiver<()>,
    ) {
        loop {
            tokio::select! {
                biased;
                message = entries.recv() => match message {
                    Some(message) => self.take(message),
                    None => return,
                },
                _ = &mut stop, if !entries.is_closed() => entries.close(),
            }
        }
    }

    /// Commits everything that was handed over, applies it, and makes the index durable.
    pub(crate) async fn finish(&self, channel: &Channel) -> Result<(), FinishError> {
        self.uploader.finish().await?;
        self.applied.reaches_position(channel.committed_to()).await;
        self.index.close().await?;
        Ok(())
    }

    /// Takes entries that shards hand over.
    pub(crate) fn take(&self, message: ToControl) {
        match message {
            ToControl::Standard { shard, upto, parcel } => self.uploader.standard(shard, upto, parcel),
            ToControl::Settle { shard, log, from, to, parcel } => self.uploader.settle(shard, log, (from, to), parcel),
            ToControl::Flush => self.uploader.flush(),
            _ => {}
        }
    }

    /// Looks a stream up.
    pub(crate) async fn load(self: Arc<Self>, to: ReplyTo, key: LoadKey) {
        let found = match key {
            LoadKey::Name { bucket, key } => self.index.row_by_name(bucket, &key).await,
            LoadKey::Stream { slot, stream_id } => {
                self.index.rows_by_id(&[(slot, stream_id)]).await.map(|rows| rows.into_iter().next())
            }
        };
        let result = found.map(|row| row.map(Box::new)).map_err(|error| unreadable(&error));
        self.outboxes.send(to.shard, ToShard::Loaded { ticket: to.ticket, result });
    }

    /// Reads settled records.
    pub(crate) async fn read(
        self: Arc<Self>,
        to: ReplyTo,
        (slot, stream_id): (Slot, StreamId),
        from: HistoryFrom,
        bytes_max: u32,
    ) {
        let read = self.history.read(slot, stream_id, from, bytes_max).await;
        let result = read.map_err(|error| {
            static SAID: Rarely = Rarely::new();
            if SAID.is_due() {
                tracing::warn!(%stream_id, ?from, %error, "settled records can't be read");
            }
            Refusal::new(error.reason(), error.to_string())
        });
        self.outboxes.send(to.shard, ToShard::History { ticket: to.ticket, result });
    }

    /// Lists what the index knows.
    pub(crate) async fn list(self: Arc<Self>, to: ReplyTo, bucket: BucketId, (after, limit): (String, u32)) {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let listed = self.index.list(bucket, &after, limit).await;
        let result = listed.map_err(|error| unreadable(&error));
        self.outboxes.send(to.shard, ToShard::Listed { ticket: to.ticket, result });
    }

    /// Tells shards what is committed, as it comes.
    pub(crate) async fn tell_commits(
        self: Arc<Self>,
        mut committed: mpsc::Receiver<CommittedChunk>,
        lease: watch::Receiver<Option<Trouble>>,
    ) {
        let (to_apply, unapplied) = mpsc::channel(UNAPPLIED_MAX);
        let (untaken, still_untaken) = watch::channel(None);
        let applying = tokio::spawn(Arc::clone(&self).apply_commits(unapplied, untaken));
        let telling = tokio::spawn({
            let plane = Arc::clone(&self);
            async move {
                let causes = Causes { uploader: plane.uploader.stall(), index: still_untaken, lease };
                let note = |is_stalled| plane.is_stalled.store(is_stalled, Ordering::Relaxed);
                stalls::tell(&plane.outboxes, causes, note).await;
            }
        });
        while let Some(chunk) = committed.recv().await {
            self.unapplied.fetch_add(1, Ordering::AcqRel);
            for (shard, upto) in &chunk.standard {
                self.outboxes.send(*shard, ToShard::Committed { standard: *upto });
            }
            self.applied.takes(&chunk).await;
            if to_apply.send(chunk).await.is_err() {
                break;
            }
        }
        drop(to_apply);
        for ended in [applying.await, telling.await] {
            if let Err(panic) = ended {
                std::panic::resume_unwind(panic.into_panic());
            }
        }
    }

    /// Applies what is committed to the index, in order: the more waits, the more in one write.
    async fn apply_commits(
        self: Arc<Self>,
        mut unapplied: mpsc::Receiver<CommittedChunk>,
        untaken: watch::Sender<Option<Trouble>>,
    ) {
        let mut chunks = Vec::with_capacity(UNAPPLIED_MAX);
        while unapplied.recv_many(&mut chunks, UNAPPLIED_MAX).await > 0 {
            for chunk in &chunks {
                self.history.insert_chunk(ObjectId::Chunk(chunk.at), &chunk.bytes);
            }
            hit(Point::ChunkApply);
            self.apply(&chunks, &untaken).await;
            hit(Point::ChunkApplied);
            chunks.drain(..).for_each(|chunk| self.on_applied(&chunk));
        }
    }

    fn on_applied(&self, chunk: &CommittedChunk) {
        self.applied.note(chunk);
        for (shard, upto) in &chunk.standard {
            self.outboxes.send(*shard, ToShard::Applied { standard: *upto });
        }
        for (shard, log, upto) in &chunk.settled {
            self.outboxes.send(*shard, ToShard::Settled { log: *log, upto: *upto });
        }
        self.unapplied.fetch_sub(1, Ordering::AcqRel);
    }

    /// Applies chunks, however often that fails and however long it takes.
    async fn apply(&self, chunks: &[CommittedChunk], untaken: &watch::Sender<Option<Trouble>>) {
        let Some(first) = chunks.first().map(|chunk| chunk.at) else { return };
        let since = Instant::now();
        let is_untaken = |error: &str| {
            // Nothing is freed or forgotten until it is applied.
            let why = format!("the index does not take chunk {first}: {error}").into();
            untaken.send_replace(Some(Trouble { since, why }));
        };
        loop {
            let mut applying = Box::pin(self.index.apply(chunks));
            let applied = match timeout(HANGS_AFTER, &mut applying).await {
                Ok(applied) => applied,
                Err(_) => {
                    is_untaken(&format!("no answer within {} s", HANGS_AFTER.as_secs()));
                    applying.await
                }
            };
            let Err(error) = applied else { break };
            tracing::debug!(chunk = %first, %error, "the index does not take a chunk");
            is_untaken(&error.to_string());
            sleep(APPLY_AGAIN).await;
        }
        untaken.send_if_modified(|trouble| trouble.take().is_some());
    }

    /// Makes durable what is applied, when it is time for it.
    pub(crate) async fn checkpoint(self: Arc<Self>) {
        let (began, mut last) = (Instant::now(), None::<Instant>);
        let said = Rarely::new();
        loop {
            sleep(CHECKPOINT_LOOK).await;
            let elapsed = match last {
                Some(last) => last.elapsed(),
                None if began.elapsed() >= FIRST_CHECKPOINT_AFTER => Duration::MAX,
                None => began.elapsed(),
            };
            match self.index.checkpoint_if_due(elapsed).await {
                Ok(true) => last = Some(Instant::now()),
                Ok(false) => {}
                Err(error) if said.is_due() => {
                    tracing::warn!(%error, "the index is not made durable: it is tried again");
                }
                Err(_) => {}
            }
        }
    }
}

fn unreadable(error: &crate::index::IndexError) -> Refusal {
    static SAID: Rarely = Rarely::new();
    if SAID.is_due() {
        tracing::warn!(%error, "the index can't be read");
    }
    Refusal::new(Reason::Unavailable, format!("the index can't be read: {error}"))
}

#[cfg(test)]
mod tests;
