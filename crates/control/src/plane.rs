//! What becomes of the entries that shards hand over, and how are shards answered from the index?
//!
//! Entries go to the uploader. A chunk that is committed is told to the shards at once, then applied to the index, in order,
//! and told again; while the index does not take it, Standard entries are refused. Lookups and reads each run as a task of their own, as many at once as shards may have under way.

mod stalls;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};
use wire::handoff::{HistoryFrom, LoadKey, ReplyTo, SettledLogs, ToControl, ToShard};
use wire::ids::{BucketId, LogId, Lsn, ShardId, StreamId};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;

use crate::channel::{Channel, ChannelError, CommittedChunk, UploaderHandle};
use crate::history::History;
use crate::index::{Index, IndexError, ObjectId};
use crate::outbox::Outboxes;
use stalls::Untaken;

/// Chunks that are committed and not applied yet; with more, the next commits wait to be told.
const UNAPPLIED_MAX: usize = 32;
/// Between attempts to apply a chunk that the index could not take.
const APPLY_AGAIN: Duration = Duration::from_secs(1);
/// How often it is looked whether what is applied should be made durable.
const CHECKPOINT_LOOK: Duration = Duration::from_secs(1);

/// How far each lane is in the index.
#[derive(Debug)]
pub(crate) struct AppliedTo {
    lanes: Mutex<Lanes>,
    changed: Notify,
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
    pub(crate) fn new(settled: &SettledLogs) -> Self {
        let express = settled.iter().map(|(log, upto)| (*log, *upto)).collect();
        Self { lanes: Mutex::new(Lanes { express, ..Lanes::default() }), changed: Notify::new() }
    }

    fn note(&self, chunk: &CommittedChunk) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.standard.extend(chunk.standard.iter().copied());
        lanes.express.extend(chunk.settled.iter().map(|(_, log, upto)| (*log, *upto)));
        lanes.position = chunk.at.position;
        drop(lanes);
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
            tracing::warn!(%stream_id, ?from, %error, "settled records can't be read");
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
    pub(crate) async fn tell_commits(self: Arc<Self>, mut committed: mpsc::Receiver<CommittedChunk>) {
        let (to_apply, unapplied) = mpsc::channel(UNAPPLIED_MAX);
        let (untaken, still_untaken) = watch::channel(None);
        let applying = tokio::spawn(Arc::clone(&self).apply_commits(unapplied, untaken));
        let telling = tokio::spawn({
            let plane = Arc::clone(&self);
            async move { stalls::tell(&plane.outboxes, plane.uploader.stall(), still_untaken).await }
        });
        while let Some(chunk) = committed.recv().await {
            self.unapplied.fetch_add(1, Ordering::AcqRel);
            for (shard, upto) in &chunk.standard {
                self.outboxes.send(*shard, ToShard::Committed { standard: *upto });
            }
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

    /// Applies what is committed to the index, in order.
    async fn apply_commits(
        self: Arc<Self>,
        mut unapplied: mpsc::Receiver<CommittedChunk>,
        untaken: watch::Sender<Option<Untaken>>,
    ) {
        while let Some(chunk) = unapplied.recv().await {
            self.history.insert_chunk(ObjectId::Chunk(chunk.at), &chunk.bytes);
            self.apply(&chunk, &untaken).await;
            self.applied.note(&chunk);
            for (shard, upto) in &chunk.standard {
                self.outboxes.send(*shard, ToShard::Applied { standard: *upto });
            }
            for (shard, log, upto) in &chunk.settled {
                self.outboxes.send(*shard, ToShard::Settled { log: *log, upto: *upto });
            }
            self.unapplied.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Applies a chunk, however often that fails.
    async fn apply(&self, chunk: &CommittedChunk, untaken: &watch::Sender<Option<Untaken>>) {
        let mut failed: Option<Instant> = None;
        while let Err(error) = self.index.apply(chunk).await {
            // Nothing is freed or forgotten until it is applied.
            tracing::error!(chunk = %chunk.at, %error, "the index does not take a chunk");
            let since = *failed.get_or_insert_with(Instant::now);
            let why = format!("the index does not take chunk {}: {error}", chunk.at).into();
            untaken.send_replace(Some(Untaken { since, why }));
            sleep(APPLY_AGAIN).await;
        }
        if failed.is_some() {
            untaken.send_replace(None);
        }
    }

    /// Makes durable what is applied, when it is time for it.
    pub(crate) async fn checkpoint(self: Arc<Self>) {
        let mut last = Instant::now();
        loop {
            sleep(CHECKPOINT_LOOK).await;
            match self.index.checkpoint_if_due(last.elapsed()).await {
                Ok(true) => last = Instant::now(),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the index is not made durable: it is tried again"),
            }
        }
    }
}

fn unreadable(error: &crate::index::IndexError) -> Refusal {
    tracing::warn!(%error, "the index can't be read");
    Refusal::new(Reason::Unavailable, format!("the index can't be read: {error}"))
}

#[cfg(test)]
mod tests;
