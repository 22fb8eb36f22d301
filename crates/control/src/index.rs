//! What is where: names, streams and extents, by slot.
//!
//! A slot's rows lie in a [database](database) of its own, whose log is the channel: [`Index::apply`] takes each committed chunk, in order,
//! and changes the rows of each slot in one write that also says which chunk it was. A [`checkpoint`](Index::checkpoint) makes that
//! durable; what was applied after the last one is [replayed](Index::replay) from the chunks.

mod age;
mod apply;
mod checkpoint;
mod database;
mod error;
mod fold;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod lookup;
mod moves;
mod no_log;
mod object_id;
mod objects;
mod options;
mod rebuild;
mod reclaim;
mod replay;
mod rows;
mod slot;
mod snapshot;
mod staged;
mod survey;
mod touched;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use slatedb::CloseReason;
use tokio::task::JoinSet;
use wire::chunk::{ExtentRow, Footer, ObjectHeader};
use wire::ids::{ClusterId, Epoch, StarId};
use wire::slot::Slot;

use crate::channel::{Channel, ChannelError, ChunkId, CommittedChunk};
use crate::store::{Store, Version};

pub use age::{Due, Over};
pub use error::IndexError;
pub use fold::ExtentError;
pub use lookup::Enough;
pub use moves::{Move, Moved, Moves};
pub use object_id::ObjectId;
pub use options::{CheckpointPolicy, IndexOptions, SinceCheckpoint};
pub use rebuild::{Missing, Rebuilding, Rebuilt, Step, rebuild};
pub use reclaim::{DeadObject, Reclaimed};
pub use replay::Replayed;
pub use rows::RowError;
pub use rows::applied::AppliedChunks;
pub use rows::extent::Located;
pub use survey::InUse;

use apply::Part;
use checkpoint::Record;
use database::Databases;
use slot::OpenSlot;
use snapshot::Snapshots;

/// Notes that a slot has an index, durably, before anything is written to it.
pub type SlotMade = Arc<dyn Fn(Slot) -> Pin<Box<dyn Future<Output = Result<(), ChannelError>> + Send>> + Send + Sync>;

/// Who writes the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexOwner {
    /// The cluster.
    pub cluster: ClusterId,
    /// The star.
    pub star: StarId,
    /// Its tenure.
    pub incarnation: Epoch,
}

impl IndexOwner {
    /// The one that writes a channel.
    #[must_use]
    pub fn of(channel: &Channel) -> Self {
        Self { cluster: channel.cluster(), star: channel.star(), incarnation: channel.incarnation() }
    }
}

/// Slots that are opened at a time.
const OPENS_AT_A_TIME: usize = 16;
/// Slots that a chunk is applied to at a time.
const PARTS_AT_A_TIME: usize = 8;

/// The index of all slots. One task applies chunks; any may look things up.
pub struct Index {
    store: Arc<dyn Store>,
    owner: IndexOwner,
    /// Which databases are the index.
    generation: u64,
    databases: Databases,
    options: IndexOptions,
    made: SlotMade,
    slots: Vec<tokio::sync::Mutex<Cell>>,
    order: tokio::sync::Mutex<()>,
    checkpointing: tokio::sync::Mutex<Version>,
    snapshots: Snapshots,
    progress: Mutex<Progress>,
}

/// A slot's database, if it is open.
#[derive(Debug, Default)]
struct Cell {
    has_index: bool,
    open: Option<Arc<OpenSlot>>,
    /// Its database closed itself: what was applied since the checkpoint is to be applied again.
    is_behind: bool,
}

/// How far chunks are applied, and since when.
#[derive(Debug, Default)]
struct Progress {
    /// To every slot that they concern.
    applied: AppliedChunks,
    /// With those that are being applied, so that some slots may have them: a database that is opened meanwhile needs them too.
    applying: AppliedChunks,
    /// The first of each channel that was, in this process.
    first: BTreeMap<Epoch, u64>,
    /// To every slot, durably.
    checkpointed: AppliedChunks,
    since: SinceCheckpoint,
}

impl Index {
    /// Opens the index for its owner, and keeps those from it that had it before; bit `n` of `slots_with_index` is set when slot `n` has one. `made` is called when a slot gets its first rows.
    ///
    /// # Errors
    /// [`IndexError`] when the store fails, or the record of the last checkpoint can't be read.
    pub async fn open(
        store: Arc<dyn Store>,
        owner: IndexOwner,
        slots_with_index: u64,
        options: IndexOptions,
        made: SlotMade,
    ) -> Result<Self, IndexError> {
        let (Record { generation, applied, .. }, version) = checkpoint::take(&*store, owner.incarnation).await?;
        let cell = |slot: Slot| Cell { has_index: slots_with_index >> slot.get() & 1 == 1, ..Cell::default() };
        Ok(Self {
            databases: Databases::new(Arc::clone(&store), &options, generation),
            snapshots: Snapshots::new(Arc::clone(&store), owner),
            store,
            owner,
            generation,
            options,
            made,
            slots: Slot::all().map(|slot| tokio::sync::Mutex::new(cell(slot))).collect(),
            order: tokio::sync::Mutex::default(),
            checkpointing: tokio::sync::Mutex::new(version),
            progress: Mutex::new(Progress { checkpointed: applied, ..Progress::default() }),
        })
    }

    /// Applies committed chunks. Those of a channel come in order, without a gap; one that was applied changes nothing.
    ///
    /// # Errors
    /// [`IndexError`]; chunks may be applied to some slots then, and are to be given again.
    pub async fn apply(&self, chunks: &[CommittedChunk]) -> Result<(), IndexError> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| (chunk.at, &chunk.bytes, &chunk.footer)).collect();
        self.apply_chunks(&chunks).await
    }

    /// Whether chunks are being applied now.
    #[must_use]
    pub fn is_applying(&self) -> bool {
        self.order.try_lock().is_err()
    }

    /// Applies chunks side by side, each slot's parts of them in one write.
    async fn apply_chunks(&self, chunks: &[(ChunkId, &Bytes, &Footer)]) -> Result<(), IndexError> {
        let _order = self.order.lock().await;
        let mut applied = self.progress().applied.clone();
        let mut fresh = Vec::with_capacity(chunks.len());
        for (at, bytes, footer) in chunks {
            let before = applied.of(at.incarnation);
            if before.is_some_and(|before| at.position <= before) {
                continue;
            }
            if let Some(applied) = before.filter(|before| at.position > before + 1) {
                return Err(IndexError::Skipped { at: *at, applied });
            }
            applied.note(*at);
            fresh.push((*at, *bytes, *footer));
        }
        let mut by_slot: BTreeMap<Slot, Vec<Part>> = BTreeMap::new();
        for (at, bytes, footer) in &fresh {
            for (slot, part) in parts(*at, bytes, footer)? {
                by_slot.entry(slot).or_default().push(part);
            }
        }
        self.begin(&fresh, applied);
        self.apply_parts(by_slot).await?;
        let mut progress = self.progress();
        for (at, bytes, _) in fresh {
            progress.applied.note(at);
            progress.since.chunks += 1;
            progress.since.chunk_bytes += bytes.len() as u64;
        }
        Ok(())
    }

    /// Notes what is about to be applied, and what will be once it is.
    fn begin(&self, fresh: &[(ChunkId, &Bytes, &Footer)], applying: AppliedChunks) {
        let mut progress = self.progress();
        for (at, ..) in fresh {
            progress.first.entry(at.incarnation).or_insert(at.position);
        }
        progress.applying = applying;
    }

    /// Applies to each slot its parts.
    async fn apply_parts(&self, by_slot: BTreeMap<Slot, Vec<Part>>) -> Result<(), IndexError> {
        if by_slot.len() == 1
            && let Some((slot, parts)) = by_slot.first_key_value()
        {
            let open = self.open_or_make(*slot).await?;
            return apply::apply(&open, parts, &self.options).await;
        }
        let open = |(slot, parts)| async move { Ok::<_, IndexError>((self.open_or_make(slot).await?, parts)) };
        let mut opened = Box::pin(stream::iter(by_slot).map(open).buffer_unordered(OPENS_AT_A_TIME));
        let mut running = JoinSet::new();
        while let Some((open, parts)) = opened.try_next().await? {
            if running.len() == PARTS_AT_A_TIME {
                finish_one(&mut running).await?;
            }
            let options = self.options;
            running.spawn(async move { apply::apply(&open, &parts, &options).await });
        }
        while !running.is_empty() {
            finish_one(&mut running).await?;
        }
        Ok(())
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot's database; `None` when it has none.
    async fn open_slot(&self, slot: Slot) -> Result<Option<Arc<OpenSlot>>, IndexError> {
        let mut cell = self.slots[usize::from(slot.get())].lock().await;
        if !cell.has_index {
            return Ok(None);
        }
        self.open_cell(slot, &mut cell).await.map(Some)
    }

    /// The slot's database, made now when it has none.
    async fn open_or_make(&self, slot: Slot) -> Result<Arc<OpenSlot>, IndexError> {
        let mut cell = self.slots[usize::from(slot.get())].lock().await;
        self.open_cell(slot, &mut cell).await
    }

    async fn open_cell(&self, slot: Slot, cell: &mut Cell) -> Result<Arc<OpenSlot>, IndexError> {
        if let Some(open) = &cell.open {
            match open.closed() {
                None => return Ok(Arc::clone(open)),
                // Another writer has taken the slot over; taking it back would start a fight.
                Some(CloseReason::Fenced) => return Err(fenced(slot)),
                Some(reason) => {
                    tracing::warn!(slot = slot.get(), ?reason, "the index of a slot closed itself and is opened again");
                    (cell.open, cell.is_behind) = (None, true);
                }
            }
        }
        if cell.has_index && !self.databases.exists(slot).await? {
            return Err(IndexError::Missing { slot });
        }
        let db = self.databases.open(slot).await.map_err(|source| IndexError::Database { slot, source })?;
        let open = Arc::new(OpenSlot::new(slot, db).await?);
        if !cell.has_index {
            self.snapshots.begin(slot).await?;
            (self.made)(slot).await?;
            cell.has_index = true;
        }
        if cell.is_behind {
            // What it had noted of changes went with it.
            open.writer.lock().await.touched.note_all();
            self.catch_up(&open).await?;
            cell.is_behind = false;
        }
        cell.open = Some(Arc::clone(&open));
        Ok(open)
    }

    /// Whether the slot has an index, and its database if this process has opened it.
    async fn has_index(&self, slot: Slot) -> Result<(bool, Option<Arc<OpenSlot>>), IndexError> {
        let mut cell = self.slots[usize::from(slot.get())].lock().await;
        let is_open = cell.open.is_some() || cell.is_behind;
        let open = if is_open { Some(self.open_cell(slot, &mut cell).await?) } else { None };
        Ok((cell.has_index, open))
    }

    /// Every slot that has an index, open.
    async fn open_slots(&self) -> Result<Vec<Arc<OpenSlot>>, IndexError> {
        let open = stream::iter(Slot::all()).map(|slot| self.open_slot(slot)).buffered(OPENS_AT_A_TIME);
        open.try_filter_map(|open| async move { Ok(open) }).try_collect().await
    }

    /// The slots whose database this process has opened.
    async fn opened_slots(&self) -> Result<Vec<Arc<OpenSlot>>, IndexError> {
        let mut open = Vec::new();
        for slot in Slot::all() {
            let mut cell = self.slots[usize::from(slot.get())].lock().await;
            if cell.open.is_some() || cell.is_behind {
                open.push(self.open_cell(slot, &mut cell).await?);
            }
        }
        Ok(open)
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("databases", &self.databases).finish_non_exhaustive()
    }
}

fn fenced(slot: Slot) -> IndexError {
    IndexError::Fenced { slot }
}

async fn finish_one(running: &mut JoinSet<Result<(), IndexError>>) -> Result<(), IndexError> {
    match running.join_next().await {
        Some(Ok(applied)) => applied,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // It was not cancelled by us, so the runtime is going down.
        Some(Err(_)) | None => std::future::pending().await,
    }
}

/// What a chunk holds, by slot.
fn parts(at: ChunkId, bytes: &Bytes, footer: &Footer) -> Result<Vec<(Slot, Part)>, IndexError> {
    let header = match footer.header {
        Some(header) => header,
        None => ObjectHeader::decode(bytes).map_err(|source| IndexError::Chunk { at, source })?,
    };
    let part = |extents: &[ExtentRow]| Part {
        at,
        created_ms: header.created_ms,
        body: bytes.clone(),
        extents: extents.to_vec(),
    };
    let by_slot = footer.extents.chunk_by(|one, next| one.slot == next.slot);
    Ok(by_slot.filter_map(|extents| Some((extents.first()?.slot, part(extents)))).collect())
}

#[cfg(test)]
pub(crate) mod tests;
