//! The rows of a shard, by name; made anew from the logs by folding every entry.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use express_log::EntryPos;
use hashbrown::HashSet;
use slab::Slab;
use wire::batch::{BatchError, VerifiedBatch};
use wire::config::StreamConfig;
use wire::dedupe::{Answer, is_remembered};
use wire::entry::{BatchHead, Effect, Entry, EntryError, Place, Verb};
use wire::ids::{BucketId, Epoch, Lsn, Position, Rev, SegmentId, SeqNum, StreamId};
use wire::names::Key;
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use super::lane::Entered;
use super::placement::Placement;
use super::row::{CommittedBatch, Row};
use super::settled::LogPlace;
use super::tombstones::{Burial, Tombstone, Tombstones};
use crate::planted::{Planted, is_planted};

/// Configurations that are kept though no row may have them.
const CONFIGS_KEPT: usize = 64;

/// Stands for the row of a stream that is deleted.
const GONE: u32 = u32::MAX;

/// Rows, and what finds them.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    rows: Slab<Row>,
    buckets: Vec<BucketId>,
    names: Vec<BTreeMap<Arc<str>, u32>>,
    pub(super) configs: HashSet<Arc<StreamConfig>>,
    /// With so many, those that no row has any more are dropped.
    configs_max: usize,
    /// Streams that are deleted and that the index may still have.
    pub(super) tombstones: Tombstones,
    /// Rows with extents in each segment of each log, at least.
    touched: BTreeMap<(u16, SegmentId), Vec<u32>>,
    /// Only while entries are replayed.
    replayed: HashMap<StreamId, u32>,
    /// Where the last entry replayed of each head log ends.
    ends: Vec<LogPlace>,
}

/// An entry that can't be folded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FoldError {
    /// It doesn't decode.
    #[error("the entry at {offset} of segment {segment} can't be read: {source}")]
    Entry {
        /// The segment.
        segment: u64,
        /// The first byte.
        offset: u32,
        /// What is wrong with it.
        source: EntryError,
    },
    /// Its batch doesn't decode.
    #[error("the batch at {offset} of segment {segment} can't be read: {source}")]
    Batch {
        /// The segment.
        segment: u64,
        /// The first byte.
        offset: u32,
        /// What is wrong with it.
        source: BatchError,
    },
    /// An entry of a stream that was never made, or is deleted.
    #[error("an entry of stream {stream_id} (epoch {epoch}, rev {rev}) comes without the stream's creation")]
    NoStream {
        /// The stream.
        stream_id: StreamId,
        /// The entry's epoch.
        epoch: Epoch,
        /// The entry's rev.
        rev: Rev,
    },
    /// Entries before it are missing.
    #[error(
        "stream {stream_id} goes from rev {applied} to rev {rev} of epoch {epoch}: entries between them are missing"
    )]
    Hole {
        /// The stream.
        stream_id: StreamId,
        /// The last rev that was applied.
        applied: Rev,
        /// The entry's rev.
        rev: Rev,
        /// The entry's epoch.
        epoch: Epoch,
    },
    /// Its records don't begin where those before it end.
    #[error("rev {rev} of stream {stream_id} begins at record {first}, where the stream has come to {tail}")]
    Records {
        /// The stream.
        stream_id: StreamId,
        /// The entry's rev.
        rev: Rev,
        /// Its first record.
        first: SeqNum,
        /// One past the last record before it.
        tail: SeqNum,
    },
}

impl Streams {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// How many there are, those being made or deleted included.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The shard's number for a bucket.
    pub(crate) fn bucket_number(&mut self, bucket: BucketId) -> u32 {
        let known = self.buckets.iter().position(|known| *known == bucket);
        let at = known.unwrap_or_else(|| {
            self.buckets.push(bucket);
            self.names.push(BTreeMap::new());
            self.buckets.len() - 1
        });
        number(at)
    }

    /// The bucket of a number.
    pub(crate) fn bucket_id(&self, bucket: u32) -> BucketId {
        self.buckets[bucket as usize]
    }

    /// The bucket of a row.
    pub(crate) fn bucket_of(&self, row: u32) -> BucketId {
        self.bucket_id(self.rows[row as usize].bucket)
    }

    fn names_of(&self, bucket: BucketId) -> Option<&BTreeMap<Arc<str>, u32>> {
        let at = self.buckets.iter().position(|known| *known == bucket)?;
        self.names.get(at)
    }

    /// The row of a name.
    pub(crate) fn find(&self, bucket: BucketId, key: &str) -> Option<u32> {
        self.names_of(bucket)?.get(key).copied()
    }

    /// The rows of a bucket's keys after `after`, in order.
    pub(crate) fn after(&self, bucket: BucketId, after: &str) -> impl Iterator<Item = &Row> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = if after.is_empty() { Unbounded } else { Excluded(after) };
        self.names_of(bucket)
            .into_iter()
            .flat_map(move |names| names.range::<str, _>((from, Unbounded)))
            .map(|(_, row)| &self.rows[*row as usize])
    }

    /// Adds a row under its name, and answers its number.
    pub(crate) fn insert(&mut self, bucket: BucketId, key: &Key, stream_id: StreamId, config: &StreamConfig) -> u32 {
        let slot = Slot::of(bucket, key);
        let bucket = self.bucket_number(bucket);
        let config = self.share(config);
        let key: Arc<str> = key.as_str().into();
        let row = number(self.rows.insert(Row::new(slot, stream_id, bucket, Arc::clone(&key), config)));
        self.names[bucket as usize].insert(key, row);
        row
    }

    /// Adds the row of a stream that the index knows, and answers its number: all of its records are history.
    pub(crate) fn insert_row(&mut self, from: &StreamRow) -> u32 {
        let at = self.insert(from.bucket, &from.key, from.stream_id, &from.config);
        let row = &mut self.rows[at as usize];
        row.created_at_ms = from.created_at_ms;
        (row.epoch, row.rev) = (from.epoch, from.rev);
        (row.tail, row.trim_point, row.bytes) = (from.tail, from.trim_point, from.bytes);
        row.has_uncapped = from.has_uncapped;
        row.apply_token(&from.token);
        row.dedupe = (!from.dedupe.is_empty()).then(|| Box::new(from.dedupe.clone()));
        at
    }

    /// Notes what is left of a row that is deleted by this entry, and takes its name away.
    pub(crate) fn bury(&mut self, row: u32, entered: Entered) {
        let Row { bucket, key, stream_id, .. } = &self.rows[row as usize];
        let tombstone = Tombstone { stream_id: *stream_id, entered };
        self.tombstones.push(Burial { bucket: *bucket, key: Arc::clone(key), tombstone });
        self.unname(row);
    }

    /// What is left of the stream that was at a name, if the index may still have it.
    pub(crate) fn tombstone(&self, bucket: BucketId, key: &str) -> Option<Tombstone> {
        self.tombstones.get(self.known_bucket(bucket)?, key)
    }

    /// The deleted streams of a bucket at keys after `after`, in order, as far as the index may still have them.
    pub(crate) fn buried_after(&self, bucket: BucketId, after: &str) -> impl Iterator<Item = (&str, StreamId)> {
        self.known_bucket(bucket).into_iter().flat_map(move |bucket| self.tombstones.after(bucket, after))
    }

    fn known_bucket(&self, bucket: BucketId) -> Option<u32> {
        self.buckets.iter().position(|known| *known == bucket).map(number)
    }

    /// Notes that a row has an extent in a segment.
    pub(crate) fn touch(&mut self, log: u16, segment: SegmentId, row: u32) {
        self.touched.entry((log, segment)).or_default().push(row);
    }

    /// Takes up to so many rows that have extents in a log's segments below `first`, or had.
    pub(crate) fn take_touched(&mut self, log: u16, first: SegmentId, rows_max: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        while taken.len() < rows_max
            && let Some((at, rows)) = self.touched.range_mut((log, SegmentId::ZERO)..(log, first)).next()
        {
            let at = *at;
            taken.extend(rows.drain(rows.len().saturating_sub(rows_max - taken.len())..));
            if rows.is_empty() {
                self.touched.remove(&at);
            }
        }
        taken
    }

    /// Whether there are such rows.
    pub(crate) fn is_touched(&self, log: u16, first: SegmentId) -> bool {
        self.touched.range((log, SegmentId::ZERO)..(log, first)).next().is_some()
    }

    /// Where the last entry of each head log ended that recovery found.
    pub(crate) fn ends(&self) -> &[LogPlace] {
        &self.ends
    }

    /// Every row.
    pub(crate) fn rows_mut(&mut self) -> impl Iterator<Item = (u32, &mut Row)> {
        self.rows.iter_mut().map(|(at, row)| (number(at), row))
    }

    /// Takes a row's name away; the row stays until [`Streams::remove`].
    pub(crate) fn unname(&mut self, row: u32) {
        let Row { bucket, key, .. } = &self.rows[row as usize];
        let names = &mut self.names[*bucket as usize];
        if names.get(key) == Some(&row) {
            names.remove(key);
        }
    }

    /// Forgets a row whose name is gone.
    pub(crate) fn remove(&mut self, row: u32) {
        self.rows.remove(row as usize);
    }

    /// One configuration for all streams that have the same.
    pub(crate) fn share(&mut self, config: &StreamConfig) -> Arc<StreamConfig> {
        if let Some(shared) = self.configs.get(config) {
            return Arc::clone(shared);
        }
        if self.configs.len() >= self.configs_max {
            self.configs.retain(|config| Arc::strong_count(config) > 1);
            self.configs_max = (2 * self.configs.len()).max(CONFIGS_KEPT);
        }
        let shared = Arc::new(*config);
        self.configs.insert(Arc::clone(&shared));
        shared
    }

    /// A row.
    #[inline]
    pub(crate) fn row(&self, row: u32) -> Option<&Row> {
        self.rows.get(row as usize)
    }

    /// A row, to change.
    #[inline]
    pub(crate) fn row_mut(&mut self, row: u32) -> Option<&mut Row> {
        self.rows.get_mut(row as usize)
    }

    /// Folds an entry of a head log. Entries come epoch by epoch; what is at or below the applied rev is ignored.
    ///
    /// # Errors
    /// [`FoldError`]; the entry is not applied, and the stream is not to be written.
    pub(crate) fn replay(&mut self, log: u16, pos: EntryPos, bytes: &[u8]) -> Result<(), FoldError> {
        let at = |source| FoldError::Entry { segment: pos.segment.get(), offset: pos.offset, source };
        self.note_end(log, (pos.segment, pos.offset + pos.bytes));
        let (entry, _) = Entry::decode(bytes).map_err(at)?;
        let place = entry.place();
        let Some(row) = self.replayed.get(&place.stream_id).copied() else {
            return self.replay_create(&entry);
        };
        let Some(row_state) = self.rows.get_mut(row as usize) else { return Ok(()) };
        if place.rev <= row_state.rev {
            return Ok(());
        }
        if place.rev != row_state.rev.next() || place.slot_epoch < row_state.epoch {
            let (stream_id, rev, epoch) = (place.stream_id, place.rev, place.slot_epoch);
            return Err(FoldError::Hole { stream_id, applied: row_state.rev, rev, epoch });
        }
        if let Entry::Batch { head, .. } = &entry
            && head.first != row_state.tail.seq_num
        {
            let (stream_id, rev, first, tail) = (place.stream_id, place.rev, head.first, row_state.tail.seq_num);
            return Err(FoldError::Records { stream_id, rev, first, tail });
        }
        (row_state.rev, row_state.epoch) = (place.rev, place.slot_epoch);
        row_state.entered = Entered::Before;
        match entry {
            Entry::Batch { head, batch, effect } => {
                let is_first = replay_batch(row_state, log, pos, (&head, batch))?;
                if is_first {
                    self.touched.entry((log, pos.segment)).or_default().push(row);
                }
                if let Some(effect) = effect {
                    apply_effect(row_state, &effect);
                }
            }
            Entry::Verb { verb, .. } => self.replay_verb(row, &verb),
        }
        Ok(())
    }

    fn note_end(&mut self, log: u16, end: LogPlace) {
        let at = usize::from(log);
        if self.ends.len() <= at {
            self.ends.resize(at + 1, LogPlace::default());
        }
        self.ends[at] = self.ends[at].max(end);
    }

    /// Whether a stream has entries that were replayed, or a row that was taken in for them.
    pub(crate) fn knows(&self, stream_id: StreamId) -> bool {
        self.replayed.contains_key(&stream_id)
    }

    /// Adds the row of a stream that the index knows, so that the entries after it may be replayed.
    pub(crate) fn replay_row(&mut self, from: &StreamRow) {
        let row = self.insert_row(from);
        self.replayed.insert(from.stream_id, row);
    }

    fn replay_create(&mut self, entry: &Entry<'_>) -> Result<(), FoldError> {
        let Place { stream_id, slot_epoch, rev, .. } = entry.place();
        let Entry::Verb { verb: Verb::Create { bucket, key, config, created_at_ms }, .. } = entry else {
            return Err(FoldError::NoStream { stream_id, epoch: slot_epoch, rev });
        };
        let row = self.insert(*bucket, key, stream_id, config);
        let state = &mut self.rows[row as usize];
        (state.rev, state.epoch, state.created_at_ms) = (rev, slot_epoch, *created_at_ms);
        state.entered = Entered::Before;
        self.replayed.insert(stream_id, row);
        Ok(())
    }

    fn replay_verb(&mut self, row: u32, verb: &Verb) {
        match verb {
            Verb::Delete if is_planted(Planted::DeleteForgotten) => {}
            Verb::Delete => {
                let stream_id = self.rows[row as usize].stream_id;
                self.bury(row, Entered::Before);
                self.remove(row);
                // The id stays known, so that a second copy of its entries is not taken for a stream never made.
                self.replayed.insert(stream_id, GONE);
            }
            Verb::Reconfigure { config } => {
                let config = self.share(config);
                self.rows[row as usize].config = config;
            }
            Verb::Fence { .. } if is_planted(Planted::TokenForgotten) => {}
            Verb::Fence { token } => self.rows[row as usize].apply_token(token),
            Verb::Trim { .. } if is_planted(Planted::TrimForgotten) => {}
            Verb::Trim { to } => self.rows[row as usize].apply_trim(*to),
            Verb::Gap { from, to } => self.rows[row as usize].apply_gap(*from, *to),
            Verb::Create { .. } => {}
        }
    }

    /// One part a shard.
    pub(crate) fn split(mut self, placement: &Placement) -> Vec<Self> {
        if placement.shards() == 1 {
            self.replayed = HashMap::new();
            return vec![self];
        }
        let empty = || Self { ends: self.ends.clone(), ..Self::default() };
        let mut parts: Vec<Self> = (0..placement.shards()).map(|_| empty()).collect();
        for (_, mut row) in self.rows {
            let bucket = self.buckets[row.bucket as usize];
            let part = &mut parts[usize::from(placement.shard(row.slot).get())];
            row.bucket = part.bucket_number(bucket);
            row.config = part.share(&row.config);
            part.adopt(row);
        }
        for burial in self.tombstones.into_burials() {
            let bucket = self.buckets[burial.bucket as usize];
            let Ok(key) = Key::new(&burial.key) else { unreachable!("a key that was checked") };
            let part = &mut parts[usize::from(placement.shard(Slot::of(bucket, &key)).get())];
            let bucket = part.bucket_number(bucket);
            part.tombstones.push(Burial { bucket, ..burial });
        }
        parts
    }

    /// Takes in a row whose bucket and configuration are this one's.
    fn adopt(&mut self, row: Row) {
        let (bucket, key) = (row.bucket as usize, Arc::clone(&row.key));
        let mut segments: Vec<_> = row.extents.iter().map(|extent| (extent.log, extent.segment)).collect();
        segments.dedup();
        let row = number(self.rows.insert(row));
        self.names[bucket].insert(key, row);
        for (log, segment) in segments {
            self.touch(log, segment, row);
        }
    }
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or_else(|_| panic!("{at} rows on one shard"))
}

/// Applies what came with a batch.
pub(crate) fn apply_effect(row: &mut Row, effect: &Effect) {
    if let Some(token) = effect.token() {
        row.apply_token(token);
    }
    if let Some(to) = effect.trim() {
        row.apply_trim(to);
    }
}

/// True when it is the first one of the row in its segment.
fn replay_batch(row: &mut Row, log: u16, pos: EntryPos, (head, batch): (&BatchHead, &[u8])) -> Result<bool, FoldError> {
    let at = |source| FoldError::Batch { segment: pos.segment.get(), offset: pos.offset, source };
    let batch = VerifiedBatch::summed(batch, head.batch_crc).map_err(at)?;
    let first_ms = head.stamping.effective(batch.stamp(0), head.stamping.previous_ms);
    let start = Position::new(head.first, first_ms);
    let committed = CommittedBatch { start, end: head.end(), content_bytes: batch.content_bytes(), log, pos };
    let is_first = row.apply_batch(&committed);
    row.has_uncapped |= !head.stamping.capped;
    if is_remembered(head.numbered) && !is_planted(Planted::DedupeForgotten) {
        let answer = Answer {
            no: head.numbered.no,
            batch_crc: head.batch_crc,
            records: head.records,
            start,
            last_ms: head.last_ms,
            lsn: Lsn::ZERO,
        };
        row.dedupe.get_or_insert_default().note(head.numbered, answer);
    }
    Ok(is_first)
}

#[cfg(test)]
mod tests;
