//! A control whose store commits when told to, and whose index is the fold of what it was given.

use std::collections::{BTreeMap, HashMap, VecDeque};

use wire::batch::VerifiedBatch;
use wire::entry::Entry;
use wire::handoff::{HistoryFrom, HistorySpan, LoadKey, Parcel, ToControl, ToShard};
use wire::ids::{BucketId, Lsn, SegmentId, SeqNum, StreamId};
use wire::names::Key;
use wire::refusal::Refusal;
use wire::stream_row::{Applied, StreamRow};

use super::world::{Fake, Test};
use crate::core::SettledTo;

/// Entries that lie in one extent.
pub(super) const EXTENT_ENTRIES: usize = 3;

/// An entry of a stream in the store.
#[derive(Debug)]
struct Stored {
    bytes: Vec<u8>,
    /// First record, one past the last, and the last one's stamp.
    records: Option<(SeqNum, SeqNum, i64)>,
}

/// The store and its index.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) rows: BTreeMap<StreamId, StreamRow>,
    names: BTreeMap<(BucketId, Key), StreamId>,
    entries: HashMap<StreamId, Vec<Stored>>,
    /// Parcels that are committed and not applied.
    committed: VecDeque<(Lsn, Parcel)>,
    /// Entries of the head log that are settled.
    settled: usize,
    /// Look-ups are refused with this.
    pub(super) broken: Option<Refusal>,
}

impl Store {
    /// Folds one entry.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let (entry, _) = Entry::decode(bytes).unwrap();
        let place = entry.place();
        let (mut records, mut content_bytes) = (None, 0);
        if let Entry::Batch { head, batch, .. } = &entry {
            content_bytes = VerifiedBatch::verify(batch, head.batch_crc).unwrap().content_bytes();
            records = Some((head.first, head.end().seq_num, head.last_ms));
        }
        if let Entry::Verb { verb, .. } = &entry
            && let Some(row) = StreamRow::created(place, verb)
        {
            self.names.insert((row.bucket, row.key.clone()), row.stream_id);
            self.rows.entry(row.stream_id).or_insert(row);
        }
        let Some(row) = self.rows.get_mut(&place.stream_id) else { return };
        let applied = row.apply(&entry, content_bytes).unwrap();
        let name = (row.bucket, row.key.clone());
        if applied == Applied::Deleted {
            self.rows.remove(&place.stream_id);
            if self.names.get(&name) == Some(&place.stream_id) {
                self.names.remove(&name);
            }
        } else {
            let stored = Stored { bytes: bytes.to_vec(), records };
            self.entries.entry(place.stream_id).or_default().push(stored);
        }
    }

    pub(super) fn take_parcel(&mut self, parcel: &Parcel) {
        let mut at = 0;
        for item in &parcel.items {
            let bytes = &parcel.bytes[at..at + item.bytes as usize];
            assert_eq!(Entry::decode(bytes).unwrap().0.place().stream_id, item.stream_id);
            self.take(bytes);
            at += item.bytes as usize;
        }
        assert_eq!(at, parcel.bytes.len());
    }

    /// Applies what is committed; what is not is lost.
    pub(super) fn recover(&mut self, world: &mut Fake) {
        world.parcels.clear();
        for (_, parcel) in std::mem::take(&mut self.committed) {
            self.take_parcel(&parcel);
        }
    }

    pub(super) fn history(&self, stream_id: StreamId, from: HistoryFrom) -> HistorySpan {
        let is_it = |stored: &Stored| match (stored.records, from) {
            (None, _) => false,
            (Some((_, end, _)), HistoryFrom::SeqNum(seq_num)) => end > seq_num,
            (Some((.., last_ms)), HistoryFrom::Timestamp(ms)) => last_ms >= ms,
        };
        let entries = self.entries.get(&stream_id).map_or(&[][..], |entries| entries);
        let Some(at) = entries.iter().position(is_it) else {
            return HistorySpan { bytes: Vec::new().into(), first: SeqNum::ZERO, end: SeqNum::ZERO };
        };
        let from = at - at % EXTENT_ENTRIES;
        let extent = &entries[from..entries.len().min(from + EXTENT_ENTRIES)];
        let mut bytes = Vec::new();
        for stored in extent {
            bytes.extend_from_slice(&u32::try_from(stored.bytes.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(&stored.bytes);
        }
        let mut records = extent.iter().filter_map(|stored| stored.records);
        let (first, mut end, _) = records.next().unwrap();
        end = records.next_back().map_or(end, |(_, end, _)| end);
        HistorySpan { bytes: bytes.into(), first, end }
    }

    pub(super) fn load(&self, key: &LoadKey) -> Result<Option<Box<StreamRow>>, Refusal> {
        if let Some(refusal) = &self.broken {
            return Err(refusal.clone());
        }
        let LoadKey::Name { bucket, key } = key else { panic!("{key:?}") };
        let stream_id = self.names.get(&(*bucket, key.clone()));
        Ok(stream_id.map(|stream_id| Box::new(self.rows[stream_id].clone())))
    }
}

impl Test {
    /// The log and the store make all durable that entered.
    pub(super) fn commit_all(&mut self) {
        self.commit();
        self.commit_standard();
    }

    /// The turn ends, and the store commits what it was given.
    pub(super) fn commit_standard(&mut self) {
        self.shard.hand_over(&mut self.world);
        self.commit_parcels(usize::MAX);
    }

    /// The store commits the first parcels that it was given.
    pub(super) fn commit_parcels(&mut self, parcels: usize) {
        let parcels = parcels.min(self.world.parcels.len());
        let parcels: Vec<_> = self.world.parcels.drain(..parcels).collect();
        let Some(standard) = parcels.last().map(|(lsn, _)| *lsn) else { return };
        self.store.committed.extend(parcels);
        self.shard.on_control(ToShard::Committed { standard }, &mut self.world);
    }

    /// The index applies what the store has committed.
    pub(super) fn apply_standard(&mut self) {
        while self.apply_one() {}
    }

    /// The index applies the oldest parcel that the store has committed; false when there is none.
    pub(super) fn apply_one(&mut self) -> bool {
        let Some((standard, parcel)) = self.store.committed.pop_front() else { return false };
        self.store.take_parcel(&parcel);
        self.shard.on_control(ToShard::Applied { standard }, &mut self.world);
        true
    }

    /// So many entries of the head log that are durable and not settled go to the store and into the index.
    pub(super) fn settle(&mut self, entries: usize) {
        self.apply_standard();
        let durable = usize::try_from(self.world.durable).unwrap();
        for _ in 0..entries.min(durable - self.store.settled) {
            let pos = self.world.entries[self.store.settled];
            let bytes = self.world.log[pos.offset as usize..(pos.offset + pos.bytes) as usize].to_vec();
            self.store.take(&bytes);
            self.store.settled += 1;
        }
        if let Some(last) = self.store.settled.checked_sub(1) {
            let pos = self.world.entries[last];
            let (upto, place) = (Lsn::new(last as u64 + 1), (pos.segment, pos.offset + pos.bytes));
            self.shard.on_log_settled(&SettledTo { log: 0, upto, place });
        }
    }

    /// The segments of the head log that are settled as a whole go.
    pub(super) fn free(&mut self) {
        let Some(last) = self.store.settled.checked_sub(1) else { return };
        let next = self.world.entries.get(last + 1).map_or(1 + self.world.rolled, |pos| pos.segment.get());
        while self.shard.on_settled(0, SegmentId::new(next)) {}
        self.world.freed = next - 1;
    }

    /// The head log goes on in a new segment; what is settled as a whole goes.
    pub(super) fn settle_and_free(&mut self) {
        self.settle(usize::MAX);
        self.world.rolled += 1;
        self.free();
    }

    /// Control answers what it was asked; false when that was nothing.
    pub(super) fn serve_control(&mut self) -> bool {
        let mut served = false;
        for message in std::mem::take(&mut self.world.told) {
            let answer = match message {
                ToControl::Load { reply_to, key } => {
                    ToShard::Loaded { ticket: reply_to.ticket, result: self.store.load(&key) }
                }
                ToControl::ReadHistory { reply_to, stream_id, from, .. } => {
                    ToShard::History { ticket: reply_to.ticket, result: Ok(self.store.history(stream_id, from)) }
                }
                other => {
                    self.world.told.push(other);
                    continue;
                }
            };
            served = true;
            self.shard.on_control(answer, &mut self.world);
        }
        served
    }
}
