//! Where do the records of a slot's streams lie, by the ends of its bundles and the chunks there are?

use std::collections::{BTreeSet, HashMap};

use futures_util::stream::{self, StreamExt};
use slatedb::config::DurabilityLevel;
use wire::chunk::{ExtentRow, Footer, ObjectHeader, ObjectKind};
use wire::ids::{Epoch, Rev, StreamId};
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use super::cut::{cut, whole};
use super::places::{Part, Places, choose, seq_nums};
use super::report::{Missing, Rebuilt};
use super::rows::FromSnapshots;
use super::{Candidate, Candidates, New, Rebuilding, is_lost};
use crate::channel::ReadError;
use crate::index::IndexError;
use crate::index::age::due;
use crate::index::fold::ExtentError;
use crate::index::object_id::ObjectId;
use crate::index::replay::check_extents;
use crate::index::rows::applied;
use crate::index::rows::extent::Located;
use crate::index::rows::object::{self, ObjectRow};
use crate::index::rows::queue::dead_key;
use crate::index::rows::stream::{self as stream_row, Known};
use crate::index::slot::OpenSlot;
use crate::index::snapshot::footer_of;
use crate::index::staged::Staged;
use crate::store::{ObjectName, ObjectPrefix, Span, Store};

/// Bundles whose ends are read at a time.
const READS_AT_A_TIME: usize = 16;
/// A bundle up to this size is read and checked whole: that costs no more than its ends.
const SMALL_BYTES: u64 = 256 << 10;
/// Names in a page of a listing.
const PAGE: usize = 1000;
/// Streams whose rows change in one write.
const STREAMS_A_WRITE: usize = 256;

/// An object, and how much of it extents point to.
#[derive(Debug, Clone, Copy)]
struct Tally {
    live_bytes: u64,
    bytes: u64,
    created_ms: i64,
}

/// What a slot is made of.
struct Placing<'a> {
    what: &'a Rebuilding,
    new: &'a New,
    slot: Slot,
    done: &'a mut Rebuilt,
    /// By stream, those that count first coming first.
    candidates: Candidates,
    tallies: HashMap<ObjectId, Tally>,
    /// Bundles that are missing or damaged.
    lost: Vec<ObjectId>,
    /// Whether something is missing, so that what nothing points to may be needed.
    is_partial: bool,
}

/// Finds the places of a slot's records, and puts all rows that tell of them.
pub(super) async fn place(
    what: &Rebuilding,
    new: &New,
    (slot, snapshots, chunks): (Slot, &FromSnapshots, Candidates),
    done: &mut Rebuilt,
) -> Result<(), IndexError> {
    let (candidates, tallies, lost) = (HashMap::new(), HashMap::new(), Vec::new());
    // A chunk that is missing may have held anything.
    let is_partial = snapshots.is_partial
        || done.missing.iter().any(|one| matches!(one, Missing::Object { name, .. } if name.starts_with("c/")));
    let mut placing = Placing { what, new, slot, done, candidates, tallies, lost, is_partial };
    let seen = placing.bundles().await?;
    placing.chunks(chunks);
    // The newest first: of the older ones more were deleted when they had been copied.
    let known = snapshots.bundles.iter().rev().map(|(epoch, id)| ObjectId::Bundle { slot, epoch: *epoch, id: *id });
    placing.lost.extend(known.filter(|object| !seen.contains(object)));
    if new.slots[usize::from(slot.get())].get().is_none() && seen.is_empty() {
        return Ok(());
    }
    let open = new.open(slot).await?;
    placing.streams(&open).await?;
    placing.objects(&open).await
}

impl Placing<'_> {
    /// Reads the ends of the slot's bundles, and takes their extents in, the newest first. Answers which there are.
    async fn bundles(&mut self) -> Result<BTreeSet<ObjectId>, IndexError> {
        let (store, slot) = (&*self.what.store, self.slot);
        let mut listed = bundles_of(store, slot).await?;
        listed.sort_by(|one, next| next.cmp(one));
        let seen = listed.iter().map(|(object, _)| *object).collect();
        let reads_all = self.what.reads_all;
        let reads = listed
            .into_iter()
            .map(|(object, bytes)| async move { (object, read(store, object, bytes, reads_all).await) });
        let mut reads = Box::pin(stream::iter(reads).buffered(READS_AT_A_TIME));
        while let Some((object, read)) = reads.next().await {
            self.done.bundles += 1;
            match read {
                Ok((header, footer)) if self.is_it(object, &header) => self.add_bundle(object, &header, &footer),
                Ok(_) => self.lose(object, &"it is another object than its name says"),
                Err(error) if is_lost(&error) => self.lose(object, &error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(seen)
    }

    fn add_bundle(&mut self, object: ObjectId, header: &ObjectHeader, footer: &Footer) {
        let created_ms = header.created_ms;
        self.tallies.entry(object).or_insert(Tally { live_bytes: 0, bytes: 0, created_ms });
        let slot = self.slot;
        for row in footer.extents.iter().filter(|row| row.has_records && row.slot == slot) {
            self.add(Candidate { object, row: *row, created_ms });
        }
    }

    fn is_it(&self, object: ObjectId, header: &ObjectHeader) -> bool {
        let ObjectId::Bundle { epoch, .. } = object else { return false };
        let found = (header.kind, header.cluster, header.slot, header.incarnation);
        found == (ObjectKind::Bundle, self.what.owner.cluster, self.slot, epoch)
    }

    fn lose(&mut self, object: ObjectId, error: &impl ToString) {
        self.is_partial = true;
        self.lost.push(object);
        self.done.missing.extend(Missing::of_object(&object.name(), error, true));
    }

    /// Of chunks the oldest counts: what comes again is a copy.
    fn chunks(&mut self, chunks: Candidates) {
        chunks.into_values().flatten().for_each(|one| self.add(one));
    }

    fn add(&mut self, one: Candidate) {
        let Candidate { object, row, created_ms } = one;
        let tally = self.tallies.entry(object).or_insert(Tally { live_bytes: 0, bytes: 0, created_ms });
        tally.bytes += u64::from(row.bytes);
        self.candidates.entry(row.stream_id).or_default().push(one);
    }

    /// Finds the places of every stream that lives.
    async fn streams(&mut self, open: &OpenSlot) -> Result<(), IndexError> {
        let mut rows = open.scan(stream_row::all(), DurabilityLevel::Memory).await?;
        let mut batch = Vec::new();
        loop {
            let next = rows.next().await?;
            let is_last = next.is_none();
            if let Some((key, value)) = next
                && let (_, Known::Lives { row, .. }) = open.row(Known::of(&key, &value))?
            {
                let extents = self.locate(&row).await?;
                batch.push((row, extents));
            }
            if batch.len() >= STREAMS_A_WRITE || is_last {
                self.write(open, std::mem::take(&mut batch)).await?;
                self.new.tidy(open).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// The places of a stream's records.
    async fn locate(&mut self, row: &StreamRow) -> Result<Vec<Located>, IndexError> {
        let candidates = self.candidates.remove(&row.stream_id).unwrap_or_default();
        let extents: Vec<ExtentRow> = candidates.iter().map(|one| one.row).collect();
        let Places { chosen, holes, past_tail } = choose(row, &extents);
        let mut located = Vec::with_capacity(chosen.len());
        for (at, part) in chosen {
            let Candidate { object, row, .. } = candidates[at];
            match part {
                Part::Whole => located.push(whole(&row, object)),
                Part::Records(records) => match self.cut(object, &row, seq_nums(&records)).await {
                    Ok(Ok(part)) => located.extend(part),
                    Ok(Err(error)) => self.lose(object, &error),
                    Err(error) if is_lost(&error) => self.lose(object, &error),
                    Err(error) => return Err(error.into()),
                },
            }
        }
        if let Some(end) = past_tail {
            let tail = row.tail.seq_num;
            let what = format!(
                "objects have records up to {end}, what is known of it ends at {tail}: a snapshot or a chunk is missing"
            );
            self.miss(Missing::of_stream(self.slot, row.stream_id, &what));
        }
        for hole in holes {
            let (from, to) = seq_nums(&hole);
            let objects = self.lost.iter().map(|object| object.name().to_string()).collect();
            let (stream_id, key) = (row.stream_id, row.key.as_str().to_owned());
            self.miss(Missing::Records { stream_id, key, from, to, objects });
            located.push(self.hole(row, (from, to)));
        }
        located.sort_by_key(|one| one.first);
        Ok(located)
    }

    fn miss(&mut self, missing: Missing) {
        self.is_partial = true;
        self.done.missing.push(missing);
    }

    async fn cut(
        &self,
        object: ObjectId,
        row: &ExtentRow,
        records: (wire::ids::SeqNum, wire::ids::SeqNum),
    ) -> Result<Result<Option<Located>, ExtentError>, ReadError> {
        let (start, name) = (u64::from(row.offset), object.name());
        let found = self.what.store.get(&name, Span::Range { start, end: start + u64::from(row.bytes) }).await?;
        let damaged = |source| ReadError::Damaged { object: name.clone(), source };
        wire::chunk::check_extent(row, &found.body).map_err(damaged)?;
        Ok(cut((row, object), &found.body, records))
    }

    /// A place for records that are nowhere: who reads them is told of an object.
    fn hole(&self, row: &StreamRow, (first, end): (wire::ids::SeqNum, wire::ids::SeqNum)) -> Located {
        let nameless = ObjectId::Bundle { slot: self.slot, epoch: Epoch::ZERO, id: 0 };
        Located {
            object: self.lost.first().copied().unwrap_or(nameless),
            offset: 0,
            bytes: 1,
            content_bytes: 0,
            entries: 0,
            crc: 0,
            first,
            end,
            first_rev: Rev::ZERO,
            last_rev: Rev::ZERO,
            slot_epoch: row.epoch,
            first_ms: 0,
            last_ms: row.tail.timestamp_ms,
            arrival_ms: row.arrival_ms,
        }
    }

    fn note(&mut self, row: &StreamRow, extent: &Located) {
        let tally = self.tallies.entry(extent.object).or_insert(Tally { live_bytes: 0, bytes: 0, created_ms: 0 });
        tally.live_bytes += u64::from(extent.bytes);
        if extent.entries > 0 {
            self.done.records += extent.end.since(extent.first.max(row.trim_point));
        }
    }

    async fn write(&mut self, open: &OpenSlot, streams: Vec<(Box<StreamRow>, Vec<Located>)>) -> Result<(), IndexError> {
        let mut writer = open.writer.lock().await;
        let mut staged = Staged::new(open, &mut writer, &self.new.options, self.what.now_ms);
        for (mut row, extents) in streams {
            let stream_id: StreamId = row.stream_id;
            self.done.streams += 1;
            row.bytes = extents.iter().map(|extent| u64::from(extent.content_bytes)).sum();
            for extent in &extents {
                staged.put(&extent.key(stream_id), &extent.encode());
                self.note(&row, extent);
            }
            self.done.bytes += row.bytes;
            let due_ms = staged.schedule(stream_id, 0, due(&row, extents.first(), self.what.now_ms));
            // What is known of it is by the key alone: the row in memory is one of before.
            drop(staged.take_known(stream_id).await?);
            staged.know(stream_id, Known::Lives { row, due_ms });
        }
        staged.commit(None).await
    }

    /// Puts the rows of objects. A bundle that nothing points to may go after the time of grace, but not while something is missing.
    async fn objects(&mut self, open: &OpenSlot) -> Result<(), IndexError> {
        let mut writer = open.writer.lock().await;
        let mut staged = Staged::new(open, &mut writer, &self.new.options, self.what.now_ms);
        for (object, tally) in &self.tallies {
            let Tally { mut live_bytes, bytes, created_ms } = *tally;
            let bytes = bytes.max(live_bytes);
            let is_dead = live_bytes == 0;
            if is_dead && object.is_chunk() {
                continue;
            }
            if is_dead && self.is_partial {
                live_bytes = bytes.max(1);
            } else if is_dead {
                let due_ms = self.what.now_ms.saturating_add(self.new.options.dead_grace_ms);
                staged.put(&dead_key(due_ms, *object), &[]);
            }
            staged.put(&object::key(*object), &ObjectRow { live_bytes, bytes, created_ms }.encode());
        }
        // So that none of them is deleted as one that nothing knows of.
        for object in self.lost.iter().filter(|object| !self.tallies.contains_key(object)) {
            let row = ObjectRow { live_bytes: 1, bytes: 1, created_ms: 0 };
            if self.is_partial {
                staged.put(&object::key(*object), &row.encode());
            }
        }
        let applied = staged.writer.applied.encode();
        staged.put(applied::KEY, &applied);
        staged.commit(None).await
    }
}

/// The bundles of a slot, and their bytes.
async fn bundles_of(store: &dyn Store, slot: Slot) -> Result<Vec<(ObjectId, u64)>, IndexError> {
    let Ok(prefix) = ObjectPrefix::parse(&format!("d/{:02x}/", slot.get())) else {
        unreachable!("digits and a slash are a prefix")
    };
    let (mut found, mut after): (Vec<_>, Option<ObjectName>) = (Vec::new(), None);
    loop {
        let page = store.list(&prefix, after.as_ref(), PAGE).await?;
        let bundles = page
            .objects
            .iter()
            .filter_map(|listed| ObjectId::bundle_of(slot, &listed.name).map(|object| (object, listed.size_bytes)));
        found.extend(bundles);
        after = page.objects.last().map(|listed| listed.name.clone());
        if !page.more || after.is_none() {
            return Ok(found);
        }
    }
}

/// What a bundle says of itself and holds.
async fn read(
    store: &dyn Store,
    object: ObjectId,
    bytes: u64,
    reads_all: bool,
) -> Result<(ObjectHeader, Footer), ReadError> {
    let name = object.name();
    let damaged = |source| ReadError::Damaged { object: name.clone(), source };
    if bytes > SMALL_BYTES && !reads_all {
        let head = store.get(&name, Span::Range { start: 0, end: ObjectHeader::BYTES as u64 }).await?;
        let header = ObjectHeader::decode(&head.body).map_err(damaged)?;
        return Ok((header, footer_of(store, &name).await?));
    }
    let found = store.get(&name, Span::Whole).await?;
    let header = ObjectHeader::decode(&found.body).map_err(damaged)?;
    let footer = Footer::decode_suffix(&found.body, found.body.len() as u64).map_err(damaged)?;
    check_extents(&found.body, &footer).map_err(damaged)?;
    Ok((header, footer))
}
