//! What may go: extents of trimmed and deleted streams, marks of deleted ones, objects that nothing points to, chunks, and files of the
//! databases themselves.
//!
//! Nothing is reported as gone before that is durable: a crash brings back what a write in memory took away.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use futures_util::stream::{self, StreamExt};
use slatedb::config::DurabilityLevel;
use wire::ids::{Epoch, SeqNum, StreamId};
use wire::slot::Slot;

use super::database::Databases;
use super::object_id::ObjectId;
use super::rows::queue::Queue;
use super::rows::stream::Known;
use super::rows::{self, cursor, object, queue};
use super::slot::OpenSlot;
use super::staged::{DROPS_MAX, Staged};
use super::{Index, IndexError};
use crate::channel::ChunkId;

/// Slots that are tended side by side: each mostly waits.
const SLOTS_AT_A_TIME: usize = 2;
/// Marks that one step forgets.
const FORGETS_MAX: usize = 1024;

/// An object that nothing points to, and whose time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadObject {
    /// The slot it was made for.
    pub slot: Slot,
    /// When it became due, in milliseconds.
    pub due_ms: i64,
    /// The object.
    pub object: ObjectId,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reclaimed {
    /// Extents dropped.
    pub extents: usize,
    /// Marks of deleted streams forgotten.
    pub marks: usize,
}

impl Index {
    /// Goes on with what trims and deletes left behind, a bounded part of it a slot. When it did nothing, nothing is left.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails.
    pub async fn reclaim_step(&self, now_ms: i64) -> Result<Reclaimed, IndexError> {
        let mut done = Reclaimed::default();
        for open in self.open_slots().await? {
            done.extents += self.drop_left(&open, now_ms).await?;
            done.marks += self.forget(&open, now_ms).await?;
        }
        Ok(done)
    }

    async fn drop_left(&self, open: &OpenSlot, now_ms: i64) -> Result<usize, IndexError> {
        let mut writer = open.writer.lock().await;
        if !writer.has_cursors {
            return Ok(0);
        }
        let mut staged = Staged::new(open, &mut writer, &self.options, now_ms);
        let mut rows = open.scan(cursor::all(), DurabilityLevel::Memory).await?;
        let mut is_last = true;
        while let Some((key, value)) = rows.next().await? {
            if staged.drops == 0 {
                is_last = false;
                break;
            }
            let (stream_id, below) = open.row(cursor::decode(&key, &value))?;
            // Before the drop, which puts it again if it doesn't come to the end.
            staged.delete(&key);
            drop_one(&mut staged, stream_id, below).await?;
        }
        let dropped = DROPS_MAX - staged.drops;
        staged.commit(None).await?;
        writer.has_cursors &= !is_last || dropped > 0;
        Ok(dropped)
    }

    async fn forget(&self, open: &OpenSlot, now_ms: i64) -> Result<usize, IndexError> {
        let mut writer = open.writer.lock().await;
        let mut staged = Staged::new(open, &mut writer, &self.options, now_ms);
        let mut rows = open.scan(Queue::Forget.due(now_ms), DurabilityLevel::Memory).await?;
        let mut forgotten = Vec::new();
        while forgotten.len() < FORGETS_MAX {
            let Some((key, _)) = rows.next().await? else { break };
            let (_, stream_id) = open.row(Queue::Forget.decode_stream(&key))?;
            if open.has_cursor(stream_id).await? {
                continue;
            }
            staged.delete(&key);
            staged.delete(&rows::stream::key(stream_id));
            forgotten.push(stream_id);
        }
        staged.commit(None).await?;
        for stream_id in &forgotten {
            writer.hot.take(*stream_id);
        }
        Ok(forgotten.len())
    }

    /// The first position of a channel that is still needed, by a row or for a replay: chunks before it may be deleted once that is
    /// published. `None` before the first checkpoint of the channel.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails; then nothing may be deleted.
    pub async fn chunk_low(&self, incarnation: Epoch) -> Result<Option<u64>, IndexError> {
        let Some(checkpointed) = self.checkpointed(incarnation) else { return Ok(None) };
        let mut low = checkpointed + 1;
        for open in self.open_slots().await? {
            let mut rows = open.scan(object::chunks_of(incarnation), DurabilityLevel::Remote).await?;
            let Some((key, _)) = rows.next().await? else { continue };
            if let ObjectId::Chunk(ChunkId { position, .. }) = open.row(object::decode_key(&key))? {
                low = low.min(position);
            }
        }
        Ok(Some(low))
    }

    /// At most `limit` objects that nothing has pointed to for the time of grace.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails.
    pub async fn dead(&self, now_ms: i64, limit: usize) -> Result<Vec<DeadObject>, IndexError> {
        let mut dead = Vec::new();
        for open in self.open_slots().await? {
            dead_of(&open, now_ms, (limit, &mut dead)).await?;
        }
        Ok(dead)
    }

    /// Forgets objects that were deleted from the store.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails; they are given again then.
    pub async fn forget_dead(&self, dead: &[DeadObject], now_ms: i64) -> Result<(), IndexError> {
        for of_slot in dead.chunk_by(|one, next| one.slot == next.slot) {
            let Some(slot) = of_slot.first().map(|one| one.slot) else { continue };
            let Some(open) = self.open_slot(slot).await? else { continue };
            let mut writer = open.writer.lock().await;
            let mut staged = Staged::new(&open, &mut writer, &self.options, now_ms);
            for DeadObject { due_ms, object, .. } in of_slot {
                staged.delete(&queue::dead_key(*due_ms, *object));
                staged.delete(&object::key(*object));
            }
            staged.commit(None).await?;
        }
        Ok(())
    }

    /// Tends slot after slot: compacts the databases that want it, gets ready for look-ups what was opened since, and removes garbage
    /// when its time has come. To be called every few seconds; one at a time is enough.
    ///
    /// # Errors
    /// [`IndexError`] of the first slot whose database fails; the others are tended all the same.
    pub async fn upkeep(&self) -> Result<(), IndexError> {
        let mut slots = self.opened_slots().await?;
        // The fullest first: its writers may wait.
        slots.sort_by_cached_key(|open| Reverse(Databases::wants_compaction(&open.db)));
        let tended = stream::iter(slots).map(|open| async move { self.tend(&open).await });
        // A compaction that is dropped half-way would go on by itself.
        let ended: Vec<Result<(), IndexError>> = tended.buffer_unordered(SLOTS_AT_A_TIME).collect().await;
        ended.into_iter().collect()
    }

    async fn tend(&self, open: &Arc<OpenSlot>) -> Result<(), IndexError> {
        let failed = |source| open.database(source);
        if Databases::wants_compaction(&open.db).is_some() {
            // What finds the blocks of its new tables comes into the cache with that.
            self.databases.compact(open.slot, &open.db).await.map_err(failed)?;
            open.writer.lock().await.has_finders = true;
        } else if !open.writer.lock().await.has_finders {
            Databases::take_finders(&open.db).await.map_err(failed)?;
            open.writer.lock().await.has_finders = true;
        }
        if self.takes_garbage(open).await {
            self.databases.collect(open.slot).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Whether it is time to remove a slot's garbage. The first time is a tenth of the interval after the slot was opened, so that what
    /// short lives leave behind does not pile up.
    async fn takes_garbage(&self, open: &Arc<OpenSlot>) -> bool {
        let (mut writer, now) = (open.writer.lock().await, Instant::now());
        let every = self.options.garbage_every;
        let due = *writer.garbage_due.get_or_insert(now + every / 10);
        let is_due = now >= due;
        if is_due {
            writer.garbage_due = Some(now + every);
        }
        is_due
    }
}

/// The dead objects of a slot, until there are `limit` in all.
async fn dead_of(open: &OpenSlot, now_ms: i64, (limit, dead): (usize, &mut Vec<DeadObject>)) -> Result<(), IndexError> {
    let mut rows = open.scan(Queue::Dead.due(now_ms), DurabilityLevel::Remote).await?;
    while dead.len() < limit {
        let Some((key, _)) = rows.next().await? else { break };
        let (due_ms, object) = open.row(queue::decode_dead(&key))?;
        dead.push(DeadObject { slot: open.slot, due_ms, object });
    }
    Ok(())
}

/// Drops what is left of one stream, as much as may be.
async fn drop_one(staged: &mut Staged<'_>, stream_id: StreamId, below: SeqNum) -> Result<(), IndexError> {
    let content_bytes = staged.drop_below(stream_id, below).await?;
    if content_bytes == 0 {
        return Ok(());
    }
    match staged.take_known(stream_id).await? {
        Some(Known::Lives { mut row, due_ms }) => {
            row.bytes = row.bytes.saturating_sub(content_bytes);
            staged.know(stream_id, Known::Lives { row, due_ms });
        }
        Some(Known::Deleted) => staged.keep(stream_id, Known::Deleted),
        None => {}
    }
    Ok(())
}
