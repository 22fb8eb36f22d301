//! How is an index made again that is lost, damaged or of a format that nobody reads?
//!
//! The rows of streams come from [snapshots](super::snapshot) and from the chunks that are not in them, the places of records from the
//! footers of chunks and bundles. They are put into new databases beside those there are, and one replacement of `meta/index` makes
//! them the index: until then the old one stands, and from then on the new one. Nothing that holds records is written or deleted.

mod cut;
mod old;
mod places;
mod report;
mod rows;
mod slot;

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use slatedb::config::{FlushOptions, FlushType};
use tokio::sync::OnceCell;
use wire::chunk::ExtentRow;
use wire::ids::StreamId;
use wire::slot::Slot;

use super::checkpoint::{self, Record};
use super::database::Databases;
use super::object_id::ObjectId;
use super::options::IndexOptions;
use super::replay::check_extents;
use super::rows::applied::AppliedChunks;
use super::slot::OpenSlot;
use super::{IndexError, IndexOwner, SlotMade, apply, parts};
use crate::channel::{ChunkId, PriorChannel, ReadError, chunk_name, read_chunk};
use crate::store::{Store, StoreError};

pub use report::{Missing, Rebuilt, Step};

use rows::FromSnapshots;

/// Chunks that are read ahead of the one that is folded.
const AHEAD: usize = 16;
/// Times that the record is put again after a star that was fenced was faster.
const TRIES_MAX: usize = 8;
/// Tables of a slot after which they are joined before more rows come.
const TABLES_MAX: usize = 16;

/// What an index is made of, and by whom.
pub struct Rebuilding {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Who has the store; nobody else writes to it.
    pub owner: IndexOwner,
    /// The channels that have ended, all of them.
    pub prior: Vec<PriorChannel>,
    /// Slots that have an index by the cluster's word, a bit each.
    pub slots_with_index: u64,
    /// What it may cost.
    pub options: IndexOptions,
    /// Notes that a slot has an index; fails when the owner is one no more.
    pub made: SlotMade,
    /// Whether all of every bundle is read and checked, not its ends alone.
    pub reads_all: bool,
    /// Whether the new index counts though something is missing.
    pub accept_loss: bool,
    /// The time, in milliseconds.
    pub now_ms: i64,
}

impl std::fmt::Debug for Rebuilding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rebuilding").field("owner", &self.owner).field("prior", &self.prior).finish_non_exhaustive()
    }
}

/// An extent that an object has by its footer.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    object: ObjectId,
    row: ExtentRow,
    created_ms: i64,
}

/// Extents by stream.
type Candidates = HashMap<StreamId, Vec<Candidate>>;

/// The new databases.
struct New {
    databases: Databases,
    options: IndexOptions,
    slots: Vec<OnceCell<Arc<OpenSlot>>>,
}

impl New {
    async fn open(&self, slot: Slot) -> Result<Arc<OpenSlot>, IndexError> {
        let open = || async {
            let db = self.databases.open(slot).await.map_err(|source| IndexError::Database { slot, source })?;
            Ok::<_, IndexError>(Arc::new(OpenSlot::new(slot, db).await?))
        };
        self.slots[usize::from(slot.get())].get_or_try_init(open).await.map(Arc::clone)
    }

    /// Joins tables of a slot before they are so many that writes wait for it.
    async fn tidy(&self, open: &OpenSlot) -> Result<(), IndexError> {
        if Databases::wants_compaction(&open.db).is_some_and(|tables| tables >= TABLES_MAX) {
            self.databases.compact(open.slot, &open.db).await.map_err(|source| open.database(source))?;
        }
        Ok(())
    }

    fn opened(&self) -> impl Iterator<Item = &Arc<OpenSlot>> {
        self.slots.iter().filter_map(OnceCell::get)
    }

    /// Sends everything to the store, and closes the databases.
    async fn close(&self) -> Result<(), IndexError> {
        for open in self.opened() {
            let flushed = open.db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await;
            flushed.map_err(|source| open.database(source))?;
            open.db.close().await.map_err(|source| open.database(source))?;
        }
        Ok(())
    }
}

/// Makes the index again, and tells how far it is. When something is missing the index there is stays, unless that is accepted: then
/// reads of what is missing fail with the name of an object.
///
/// # Errors
/// [`IndexError`] when the store fails, or a later start has taken it; the index there is stays.
pub async fn rebuild(what: &Rebuilding, tell: &(dyn Fn(Step) + Send + Sync)) -> Result<Rebuilt, IndexError> {
    let generation = what.owner.incarnation.get();
    let new = New {
        databases: Databases::new(Arc::clone(&what.store), &what.options, generation),
        options: what.options,
        slots: Slot::all().map(|_| OnceCell::new()).collect(),
    };
    let mut done = Rebuilt { generation, ..Rebuilt::default() };
    let snapshots = rows::fold(what, &new, &mut done, tell).await?;
    let mut chunks = fold_chunks(what, &new, &snapshots, (&mut done, tell)).await?;
    for (slot, snapshots) in Slot::all().zip(&snapshots) {
        tell(Step { what: "bundles of slots", done: slot.get().into(), total: Slot::all().count() as u64 });
        let candidates = chunks.remove(&slot).unwrap_or_default();
        slot::place(what, &new, (slot, snapshots, candidates), &mut done).await?;
    }
    if !done.missing.is_empty() && !what.accept_loss {
        new.close().await?;
        old::delete_generation(&*what.store, generation).await?;
        return Ok(done);
    }
    new.close().await?;
    switch(what, &new, generation).await?;
    done.is_in_place = true;
    old::delete_others(&*what.store, generation, generation, tell).await?;
    Ok(done)
}

/// Makes the new databases the index.
async fn switch(what: &Rebuilding, new: &New, generation: u64) -> Result<(), IndexError> {
    let slots: Vec<Slot> = new.opened().map(|open| open.slot).collect();
    let mut applied = AppliedChunks::default();
    for PriorChannel { incarnation, end, .. } in &what.prior {
        if let Some(position) = end.checked_sub(1) {
            applied.note(ChunkId { incarnation: *incarnation, position });
        }
    }
    for _ in 0..TRIES_MAX {
        let (before, version) = checkpoint::find(&*what.store).await?;
        if let Some(by) = before.taken_by.filter(|by| *by > what.owner.incarnation) {
            return Err(IndexError::Taken { by });
        }
        // Whoever takes the store from here on takes the record, too, and this version is another then.
        for slot in &slots {
            (what.made)(*slot).await?;
        }
        let mut applied = applied.clone();
        applied.merge(&before.applied);
        let record = Record { generation, taken_by: what.owner.incarnation, applied };
        if checkpoint::replace(&*what.store, version.as_ref(), &record).await?.is_some() {
            return Ok(());
        }
    }
    Err(IndexError::Contended { tries: TRIES_MAX })
}

/// Folds the chunks there are onto the rows of streams, and answers the extents they have, by slot and stream.
async fn fold_chunks(
    what: &Rebuilding,
    new: &New,
    snapshots: &[FromSnapshots],
    (done, tell): (&mut Rebuilt, &(dyn Fn(Step) + Send + Sync)),
) -> Result<HashMap<Slot, Candidates>, IndexError> {
    let mut prior = what.prior.clone();
    prior.sort_by_key(|channel| channel.incarnation);
    let positions = |channel: &PriorChannel| {
        let incarnation = channel.incarnation;
        (channel.low..channel.end).map(move |position| ChunkId { incarnation, position })
    };
    let all: Vec<ChunkId> = prior.iter().flat_map(positions).collect();
    let total = all.len() as u64;
    let reads = stream::iter(all).map(|at| async move { (at, read_chunk(&*what.store, at).await) });
    let mut reads = Box::pin(reads.buffered(AHEAD));
    let mut found: HashMap<Slot, Candidates> = HashMap::new();
    while let Some((at, read)) = reads.next().await {
        tell(Step { what: "chunks", done: done.chunks, total });
        done.chunks += 1;
        let read = read.and_then(|(bytes, footer)| match check_extents(&bytes, &footer) {
            Ok(()) => Ok((bytes, footer)),
            Err(source) => Err(ReadError::Damaged { object: chunk_name(at), source }),
        });
        let (bytes, footer) = match read {
            Ok(read) => read,
            Err(error) => {
                let missing = Missing::of_object(&chunk_name(at), &error, is_lost(&error));
                done.missing.push(missing.ok_or(error)?);
                continue;
            }
        };
        for (slot, part) in parts(at, &bytes, &footer)? {
            let open = new.open(slot).await?;
            if !snapshots[usize::from(slot.get())].applied.covers(at) {
                let unfit = apply::apply_rows(&open, &part, &new.options).await?;
                let unfit = unfit.into_iter().map(|(stream_id, error)| Missing::of_stream(slot, stream_id, &error));
                done.missing.extend(unfit);
                new.tidy(&open).await?;
            }
            let of_slot = found.entry(slot).or_default();
            for row in part.extents.iter().filter(|row| row.has_records) {
                let one = Candidate { object: ObjectId::Chunk(at), row: *row, created_ms: part.created_ms };
                of_slot.entry(row.stream_id).or_default().push(one);
            }
        }
    }
    Ok(found)
}

/// Whether an object itself is the trouble, not the way to it.
fn is_lost(error: &ReadError) -> bool {
    !matches!(error, ReadError::Store(error) if !is_lost_object(error))
}

fn is_lost_object(error: &StoreError) -> bool {
    matches!(error, StoreError::NotFound { .. } | StoreError::Corrupt { .. })
}
