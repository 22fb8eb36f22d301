//! How are settled records read back?
//!
//! [`History::read`] asks the index where they lie, gets the bytes from memory, the cache file or the store, checks them, and
//! answers entries as they lie there. An extent that is sent whole is checked by the sum that the index has of it; a part of a large
//! one by the sums of its entries. Either is done whenever bytes are served, wherever they come from.

mod blocks;
mod counters;
mod error;
mod locate;
mod nvme;
mod reader;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use wire::crc::crc32c;
use wire::handoff::{HistoryFrom, HistorySpan};
use wire::ids::{SeqNum, StreamId};
use wire::slot::Slot;

use crate::core::extent_walk::{Walk, Wanted};
use crate::core::read_plan::{Piece, Run, runs, whole_extents};
use crate::index::{Enough, Located, ObjectId};
use crate::store::{Store, StoreError};

pub use crate::core::extent_walk::WalkError;
use blocks::{Asked, Block, Blocks};
use counters::Counters;
pub use counters::HistoryCounts;
pub use error::HistoryError;
pub use locate::{Locate, LocateFuture};
pub use nvme::{NvmeOpenError, NvmeOptions, remove_block_cache};
use reader::{Extents, Reader, Readers, Resume};

/// Bytes that a read brings at most, whatever it asks for; one entry and one small extent in any case.
const READ_BYTES_MAX: u32 = 16 << 20;
/// Bytes that room for answers is counted in.
const UNIT_BYTES: usize = 4 << 10;
/// Reads that a reader is fetched ahead at most.
const AHEAD_MAX: u32 = 2;
/// The least part of the memory that an answer may keep from being freed, as a divisor; a smaller answer is copied.
const PINNED_DIVISOR: usize = 4;

/// What reads may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryOptions {
    /// Bytes of blocks in memory at most.
    pub memory_bytes: usize,
    /// A file for blocks that left memory; `None` is none.
    pub nvme: Option<NvmeOptions>,
    /// Bytes of a block, 4 KiB at least: what is fetched at once from an object of which much is read.
    pub block_bytes: u32,
    /// Bytes of answers to reads under way, at most; more reads wait their turn.
    pub reads_bytes: usize,
    /// Gets at the store at a time, at most.
    pub reads_in_flight: usize,
    /// Whether a get that takes long is asked a second time.
    pub hedge: bool,
}

impl HistoryOptions {
    /// So many bytes in memory, no file, blocks of 1 MiB, 64 MiB of answers and 64 gets at a time, each asked once.
    #[must_use]
    pub fn of_memory(memory_bytes: usize) -> Self {
        Self {
            memory_bytes,
            nvme: None,
            block_bytes: 1 << 20,
            reads_bytes: 64 << 20,
            reads_in_flight: 64,
            hedge: false,
        }
    }
}

/// Reads of settled records, by any number of tasks at a time.
#[derive(Debug)]
pub struct History {
    locate: Arc<dyn Locate>,
    blocks: Blocks,
    readers: Mutex<Readers>,
    /// Room for answers, in units of [`UNIT_BYTES`].
    room: Semaphore,
    room_units: u32,
    counters: Arc<Counters>,
}

/// A read.
#[derive(Debug, Clone, Copy)]
struct Question {
    slot: Slot,
    stream_id: StreamId,
    from: HistoryFrom,
    bytes_max: u64,
}

impl History {
    /// Reads objects of `store` that `locate` names. Inside a tokio runtime.
    ///
    /// # Errors
    /// [`NvmeOpenError`] when the file for blocks can't be made.
    pub fn new(
        store: Arc<dyn Store>,
        locate: Arc<dyn Locate>,
        options: &HistoryOptions,
    ) -> Result<Self, NvmeOpenError> {
        let counters = Arc::<Counters>::default();
        let blocks = Blocks::new(store, options, Arc::clone(&counters))?;
        let room_units = u32::try_from((options.reads_bytes / UNIT_BYTES).max(1)).unwrap_or(u32::MAX);
        let room = Semaphore::new(room_units as usize);
        Ok(Self { locate, blocks, readers: Mutex::default(), room, room_units, counters })
    }

    /// The settled entries of a stream from there on: those of one extent or of several in a row, about `bytes_max` bytes, or of
    /// one batch or one extent of up to 512 KiB if that is more. They start with the extent that holds the first record wanted, or
    /// with the batch when the extent is larger. Empty when nothing is settled from there on.
    ///
    /// # Errors
    /// [`HistoryError`]: of what is damaged or missing only after the index and the store were asked afresh.
    pub async fn read(
        &self,
        slot: Slot,
        stream_id: StreamId,
        from: HistoryFrom,
        bytes_max: u32,
    ) -> Result<HistorySpan, HistoryError> {
        self.counters.reads.add(1);
        let question = Question { slot, stream_id, from, bytes_max: u64::from(bytes_max.min(READ_BYTES_MAX)) };
        let units = u32::try_from(question.bytes_max.div_ceil(UNIT_BYTES as u64)).unwrap_or(u32::MAX);
        // It is never closed.
        let _room = self.room.acquire_many(units.clamp(1, self.room_units)).await.ok();
        let reader = self.reader(question);
        let span = match self.answer(question, reader.as_ref()).await {
            Err(error) if error.is_damage() => {
                self.counters.damaged_reads.add(1);
                tracing::warn!(%error, "settled records are not as they should be: asking the index and the store afresh");
                self.answer(question, None).await?
            }
            answer => answer?,
        };
        self.counters.bytes.add(span.bytes.len() as u64);
        Ok(span)
    }

    /// Takes in an object that has just been committed: its records are read without a get while they are new.
    pub fn insert_chunk(&self, object: ObjectId, bytes: &Bytes) {
        self.blocks.insert(object, bytes);
    }

    /// An object as far as memory has it from its start on; whoever asks checks whether that is all of it, and what was put.
    pub(crate) fn in_memory(&self, object: ObjectId) -> Bytes {
        joined(self.blocks.in_memory(object), 0)
    }

    /// What was counted since the start.
    #[must_use]
    pub fn counts(&self) -> HistoryCounts {
        self.counters.counts()
    }

    /// Bytes that answers to reads under way may take.
    #[must_use]
    pub fn reads_bytes(&self) -> usize {
        (self.room_units as usize).saturating_sub(self.room.available_permits()) * UNIT_BYTES
    }

    /// Bytes of the cache file that blocks take up.
    #[must_use]
    pub fn nvme_bytes(&self) -> u64 {
        self.blocks.nvme_bytes()
    }

    /// Bytes of memory that blocks take up.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.blocks.memory_bytes()
    }

    async fn answer(&self, question: Question, reader: Option<&Reader>) -> Result<HistorySpan, HistoryError> {
        let reads = reader.map_or(0, |reader| reader.reads.saturating_add(1));
        let reach = question.bytes_max + self.ahead_bytes(question, reads);
        let known = reader.map(|reader| &reader.extents).filter(|extents| extents.reach(reach));
        let extents = match known {
            Some(extents) => extents.clone(),
            None => self.extents(question, Extents::wanted(reads, reach)).await?,
        };
        let Some(first) = extents.first() else {
            let at = match question.from {
                HistoryFrom::SeqNum(seq_num) => seq_num,
                HistoryFrom::Timestamp(_) => SeqNum::ZERO,
            };
            return Ok(HistorySpan { bytes: Bytes::new(), first: at, end: at });
        };
        let resume = reader.and_then(|reader| reader.resume).filter(|resume| resume.extent == place(first));
        let whole = whole_extents(&extents, question.from, question.bytes_max);
        let (span, next) = if resume.is_none() && whole > 0 {
            (self.whole(question, &extents, whole, reads).await?, None)
        } else {
            let (span, at) = self.part(question, first, resume.map_or(0, |resume| resume.at)).await?;
            let rest = std::iter::once(Run::of(first, at)).chain(runs(&extents[1..]));
            self.fetch_ahead(rest, question, reads);
            (span, Some(Resume { extent: place(first), at }))
        };
        let began = next.map(|next| Resume { at: next.at - span.bytes.len() as u64, ..next });
        let reader = Reader { reads, first: span.first, began, resume: next, extents };
        self.readers().insert(question.stream_id, span.end, reader);
        Ok(span)
    }

    async fn extents(&self, question: Question, enough: Enough) -> Result<Extents, HistoryError> {
        let Question { slot, stream_id, from, .. } = question;
        self.counters.look_ups.add(1);
        let asked = Instant::now();
        let from = match from {
            HistoryFrom::SeqNum(seq_num) => seq_num,
            HistoryFrom::Timestamp(ms) => match self.locate.extent_at_time(slot, stream_id, ms).await? {
                Some(extent) => extent.first,
                None => return Ok(Extents::none(asked)),
            },
        };
        let found = self.locate.extents_from(slot, stream_id, from, enough).await?;
        Ok(Extents::found(found, enough, asked))
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader that got its last records right before these, or these.
    fn reader(&self, question: Question) -> Option<Reader> {
        let HistoryFrom::SeqNum(seq_num) = question.from else {
            return None;
        };
        let reader = self.readers().at(question.stream_id, seq_num)?;
        self.counters.sequential_reads.add(1);
        Some(reader)
    }

    /// The first `whole` extents.
    async fn whole(
        &self,
        question: Question,
        extents: &[Located],
        whole: usize,
        reads: u32,
    ) -> Result<HistorySpan, HistoryError> {
        let (sent, rest) = extents.split_at(whole);
        let asked: Vec<_> = runs(sent).iter().flat_map(|run| self.blocks.pieces(run)).map(|p| self.ask(p)).collect();
        self.fetch_ahead(runs(rest).into_iter(), question, reads);
        let pieces: Vec<_> = asked.iter().map(|(piece, _)| piece.clone()).collect();
        let answer = self.whole_bytes(question, sent, asked).await;
        let bytes = answer.inspect_err(|error| self.forget(error, &pieces))?;
        Ok(HistorySpan { bytes, first: sent[0].first, end: sent[whole - 1].end })
    }

    async fn whole_bytes(
        &self,
        question: Question,
        extents: &[Located],
        asked: Vec<(Piece, Asked)>,
    ) -> Result<Bytes, HistoryError> {
        let mut slices = Vec::with_capacity(asked.len());
        let mut pinned = 0;
        for (piece, asked) in asked {
            let (slice, of) = here(question.stream_id, &piece, asked).await?;
            pinned = of.pinned();
            slices.push(slice);
        }
        let bytes = joined(slices, pinned);
        let mut at = 0;
        for extent in extents {
            let end = at + extent.bytes as usize;
            let computed = crc32c(&bytes[at..end]);
            if computed != extent.crc {
                return Err(HistoryError::Damaged {
                    object: extent.object.name(),
                    stream_id: question.stream_id,
                    at: place(extent).1,
                    bytes: u64::from(extent.bytes),
                    expected: extent.crc,
                    computed,
                });
            }
            at = end;
        }
        Ok(bytes)
    }

    /// A part of an extent, from the entry at `at` in it on, and where the next entry starts.
    async fn part(&self, question: Question, extent: &Located, at: u64) -> Result<(HistorySpan, u64), HistoryError> {
        let mut pieces = Vec::new();
        let answer = self.part_bytes(question, extent, at, &mut pieces).await;
        answer.inspect_err(|error| self.forget(error, &pieces))
    }

    async fn part_bytes(
        &self,
        question: Question,
        extent: &Located,
        at: u64,
        pieces: &mut Vec<Piece>,
    ) -> Result<(HistorySpan, u64), HistoryError> {
        let Question { stream_id, from, bytes_max, .. } = question;
        let (object, start) = place(extent);
        let damaged = |fault: WalkError| HistoryError::Entries {
            object: object.name(),
            stream_id,
            at: start,
            bytes: u64::from(extent.bytes),
            fault,
        };
        let mut walk = Walk::new(Wanted { stream_id, from, end: extent.end, bytes_max }, at);
        let mut ahead = Run::of(extent, at).pieces(self.blocks.block_bytes()).peekable();
        let mut asked = std::collections::VecDeque::new();
        let mut pinned = 0;
        while !walk.is_done() {
            let horizon = start + walk.horizon();
            while let Some(piece) = ahead.next_if(|piece| piece.range.start < horizon || asked.is_empty()) {
                pieces.push(piece.clone());
                asked.push_back(self.ask(piece));
            }
            let Some((piece, next)) = asked.pop_front() else {
                break;
            };
            let (slice, of) = here(stream_id, &piece, next).await?;
            pinned = of.pinned();
            walk.push(&slice).map_err(damaged)?;
        }
        let cut = walk.finish().map_err(damaged)?;
        let span = HistorySpan { bytes: joined(cut.pieces, pinned), first: cut.first, end: cut.end };
        Ok((span, cut.next_at))
    }

    fn ask(&self, piece: Piece) -> (Piece, Asked) {
        let asked = self.blocks.ask(piece.key);
        (piece, asked)
    }

    /// How far ahead a reader is fetched that has come back so often.
    fn ahead_bytes(&self, question: Question, reads: u32) -> u64 {
        u64::from(reads.min(AHEAD_MAX)) * question.bytes_max.max(self.blocks.block_bytes())
    }

    /// Fetches what a reader that has read one behind the other will ask for next.
    fn fetch_ahead(&self, mut rest: impl Iterator<Item = Run>, question: Question, reads: u32) {
        let mut bytes = self.ahead_bytes(question, reads);
        while let Some(run) = (bytes > 0).then(|| rest.next()).flatten() {
            let pieces = self.blocks.pieces(&run);
            let fetched = pieces.iter().take_while(|piece| {
                let is_within = bytes > 0 && self.blocks.prefetch(piece.key);
                bytes = bytes.saturating_sub(piece.range.end - piece.range.start);
                is_within
            });
            if fetched.count() < pieces.len() {
                return;
            }
        }
    }

    /// Drops the blocks that a read met damage in.
    fn forget(&self, error: &HistoryError, pieces: &[Piece]) {
        if error.is_damage() {
            pieces.iter().for_each(|piece| self.blocks.forget(piece.key));
        }
    }
}

/// Where an extent lies.
fn place(extent: &Located) -> (ObjectId, u64) {
    (extent.object, u64::from(extent.offset))
}

/// The bytes of a piece, and the block they are of.
async fn here(stream_id: StreamId, piece: &Piece, asked: Asked) -> Result<(Bytes, Block), HistoryError> {
    let (at, bytes) = (piece.range.start, piece.range.end - piece.range.start);
    let object = || piece.key.object.name();
    let short = |object_bytes| HistoryError::Short { object: object(), stream_id, at, bytes, object_bytes };
    let block = asked.here().await.map_err(|error| match *error {
        StoreError::NotFound { .. } => HistoryError::Missing { object: object(), stream_id, at, bytes },
        StoreError::OutOfRange { size_bytes, .. } => short(size_bytes),
        _ => HistoryError::Store(error),
    })?;
    let slice = block.slice(piece.range.clone()).map_err(short)?;
    Ok((slice, block))
}

/// The slices in one; a single one is copied only when it is a small part of the memory that it would keep from being freed.
fn joined(mut slices: Vec<Bytes>, pinned: usize) -> Bytes {
    if let [slice] = &mut *slices
        && slice.len() >= pinned / PINNED_DIVISOR
    {
        return std::mem::take(slice);
    }
    let mut bytes = Vec::with_capacity(slices.iter().map(Bytes::len).sum());
    slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
    Bytes::from(bytes)
}

#[cfg(test)]
mod tests;
