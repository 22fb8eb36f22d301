//! How do extents get from some objects into new ones?
//!
//! What the index points to in the sources is copied, by slot and stream, neighbours into one extent; with it go the verbs that lie in
//! the sources, so that bundles can be understood without the index. A bundle is in the store before the index hears of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;

use bytes::Bytes;
use failpoints::{Point, hit};
use tokio::time::Instant;
use wire::batch::VerifiedBatch;
use wire::chunk::{Built, ExtentRow, ObjectBuilder, ObjectHeader, ObjectKind, entries};
use wire::crc::crc32c;
use wire::entry::Entry;
use wire::handoff::ParcelItem;
use wire::ids::{Rev, SeqNum, StreamId};
use wire::slot::Slot;

use super::source::Source;
use super::{SettleError, Settler};
use crate::core::settle_pack::pack;
use crate::index::{Located, Move, Moves, ObjectId};
use crate::store::{PutNonce, StoreError};

/// Attempts to put a bundle before the step is put off.
const PUTS_MAX: u32 = 3;
/// How far records of one extent are apart at most, unless they were before: what is too old goes by whole extents.
const EXTENT_SPAN_MS_MAX: i64 = 3_600_000;
/// Bytes of an extent that several became, at most: a reader is given them in one piece, and one that begins within it reads no more.
const EXTENT_BYTES_MAX: u32 = 512 << 10;
/// Streams that are looked up before other tasks get a turn.
const STREAMS_A_TURN: usize = 256;

/// Contiguous entries of a stream in a source.
#[derive(Debug, Clone, Copy)]
struct Piece {
    source: usize,
    offset: u32,
    bytes: u32,
    first_rev: Rev,
    /// What the index says of it; of the others only the verbs are copied.
    located: Option<Located>,
}

/// What is copied of a stream, by rev.
#[derive(Debug)]
struct Copied {
    stream_id: StreamId,
    pieces: Vec<Piece>,
}

/// What copying did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Copying {
    pub(super) bundles: usize,
    pub(super) extents: usize,
    /// Whether there was time for all.
    pub(super) is_whole: bool,
}

/// A step that copies.
#[derive(Debug)]
struct Run {
    sources: Arc<Vec<Source>>,
    now_ms: i64,
    until: Instant,
    done: Copying,
}

impl Run {
    /// Whether it is time to leave the rest to the next step, which finds it where it is.
    fn is_over(&self) -> bool {
        self.done.bundles > 0 && Instant::now() >= self.until
    }
}

impl Settler {
    /// Copies what the index points to in the sources into bundles, and moves it there; when that takes long, a part of it.
    pub(super) async fn copy(&self, sources: Vec<Source>, now_ms: i64) -> Result<Copying, SettleError> {
        let until = Instant::now() + self.options.copy_time;
        let objects: BTreeSet<ObjectId> = sources.iter().map(|source| source.object).collect();
        let sources = Arc::new(sources);
        let mut by_slot: BTreeMap<Slot, BTreeMap<StreamId, Vec<(usize, ExtentRow)>>> = BTreeMap::new();
        for (at, source) in sources.iter().enumerate() {
            for row in &source.footer.extents {
                by_slot.entry(row.slot).or_default().entry(row.stream_id).or_default().push((at, *row));
            }
        }
        let mut run = Run { sources: Arc::clone(&sources), now_ms, until, done: Copying::default() };
        let mut wanted = vec![false; sources.len()];
        for (slot, streams) in by_slot {
            // What an earlier step has moved is not looked up again.
            if !self.index.points_to(slot, &objects).await? {
                continue;
            }
            if run.is_over() {
                return Ok(run.done);
            }
            let copied = self.slot_pieces(slot, streams, &sources).await?;
            for piece in copied.iter().flat_map(|copied| &copied.pieces) {
                wanted[piece.source] |= piece.located.is_some();
            }
            // Verbs alone are in the rows of the index, and a bundle that nothing points to would go at once.
            if !copied.iter().flat_map(|copied| &copied.pieces).any(|piece| piece.located.is_some()) {
                continue;
            }
            if !self.copy_slot(slot, copied, &mut run).await? {
                return Ok(run.done);
            }
        }
        for (source, _) in sources.iter().zip(wanted).filter(|(_, is_wanted)| !is_wanted) {
            // Trimmed a moment ago, or its row is wrong: then it is not to be read again and again.
            self.skip(source.object);
        }
        Ok(Copying { is_whole: true, ..run.done })
    }

    /// What there is to copy of a slot's streams; nothing of one that is deleted.
    async fn slot_pieces(
        &self,
        slot: Slot,
        streams: BTreeMap<StreamId, Vec<(usize, ExtentRow)>>,
        sources: &[Source],
    ) -> Result<Vec<Copied>, SettleError> {
        let numbers: HashMap<ObjectId, usize> = sources.iter().map(|s| s.object).zip(0..).collect();
        let streams: Vec<_> = streams.into_iter().collect();
        let mut copied = Vec::new();
        for streams in streams.chunks(STREAMS_A_TURN) {
            tokio::task::yield_now().await;
            let wanted: Vec<_> = streams.iter().filter_map(|(id, rows)| Some((*id, records_of(rows)?))).collect();
            let found = self.index.extents_within(slot, &wanted, |object| numbers.contains_key(&object)).await?;
            let mut found = wanted.iter().zip(found).peekable();
            for (stream_id, rows) in streams {
                let extents = found.next_if(|((of, _), _)| of == stream_id).map(|(_, extents)| extents);
                let extents = extents.unwrap_or_default();
                let is_gone = extents.is_empty() && self.index.rows_by_id(&[(slot, *stream_id)]).await?.is_empty();
                let pieces = (!is_gone).then(|| pieces(rows, &extents, &numbers)).filter(|pieces| !pieces.is_empty());
                copied.extend(pieces.map(|pieces| Copied { stream_id: *stream_id, pieces }));
            }
        }
        Ok(copied)
    }

    /// Copies what there is of a slot; false when a part of it is left.
    async fn copy_slot(&self, slot: Slot, streams: Vec<Copied>, run: &mut Run) -> Result<bool, SettleError> {
        let bytes = |copied: &Copied| copied.pieces.iter().map(|piece| piece.bytes).collect();
        let sizes: Vec<Vec<u32>> = streams.iter().map(bytes).collect();
        for packed in pack(&sizes, self.options.pack_rules()) {
            if run.is_over() {
                return Ok(false);
            }
            let of = |(stream, pieces): (usize, Range<usize>)| {
                let Copied { stream_id, pieces: all } = &streams[stream];
                Copied { stream_id: *stream_id, pieces: all[pieces].to_vec() }
            };
            let bundle = Bundle {
                header: self.bundle_header(slot, run.now_ms),
                id: uuid::Uuid::now_v7().as_u128(),
                streams: packed.into_iter().map(of).collect(),
            };
            let sources = Arc::clone(&run.sources);
            let built = tokio::task::spawn_blocking(move || bundle.build(&sources)).await;
            let Ready { bytes, moves, failed } = built.unwrap_or_else(|error| resume_unwind(error.into_panic()));
            for (object, error) in failed {
                self.leave_alone(object, &error);
            }
            if moves.moves.is_empty() {
                continue;
            }
            hit(Point::BundlePut);
            self.put(moves.object, &bytes).await?;
            hit(Point::BundlePutDone);
            let moved = self.index.move_extents(&moves).await?;
            hit(Point::BundleMoved);
            run.done.bundles += 1;
            run.done.extents += moves.moves.iter().map(|one| one.from.len()).sum::<usize>();
            let mut counts = self.counted();
            counts.bundles += 1;
            counts.bundle_bytes += bytes.len() as u64;
            counts.extents_moved += moves.moves.iter().map(|one| one.from.len() as u64).sum::<u64>();
            counts.streams_stale += moved.stale as u64;
        }
        Ok(true)
    }

    fn bundle_header(&self, slot: Slot, created_ms: i64) -> ObjectHeader {
        ObjectHeader {
            kind: ObjectKind::Bundle,
            cluster: self.channel.cluster(),
            star: self.channel.star(),
            incarnation: self.channel.incarnation(),
            position: 0,
            slot,
            created_ms,
        }
    }

    async fn put(&self, object: ObjectId, bytes: &Bytes) -> Result<(), StoreError> {
        let (name, nonce) = (object.name(), PutNonce::fresh());
        for _ in 1..PUTS_MAX {
            match self.store.put_if_absent(&name, bytes.clone(), nonce).await {
                Err(StoreError::Unavailable { .. }) => {}
                answered => return answered.map(drop),
            }
        }
        self.store.put_if_absent(&name, bytes.clone(), nonce).await.map(drop)
    }
}

/// The records that extents of a stream span.
fn records_of(rows: &[(usize, ExtentRow)]) -> Option<Range<SeqNum>> {
    let records = || rows.iter().map(|(_, row)| row).filter(|row| row.has_records);
    Some(records().map(|row| row.first).min()?..records().map(|row| row.end).max()?)
}

/// What there is to copy of a stream: the extents that the index has, and of the rest the verbs.
fn pieces(rows: &[(usize, ExtentRow)], extents: &[Located], numbers: &HashMap<ObjectId, usize>) -> Vec<Piece> {
    let is_located = |row: &ExtentRow| {
        extents.iter().any(|extent| extent.first_rev <= row.first_rev && row.last_rev <= extent.last_rev)
    };
    let verbs = rows.iter().filter(|(_, row)| !is_located(row)).map(|(source, row)| Piece {
        source: *source,
        offset: row.offset,
        bytes: row.bytes,
        first_rev: row.first_rev,
        located: None,
    });
    let located = extents.iter().map(|extent| Piece {
        source: numbers[&extent.object],
        offset: extent.offset,
        bytes: extent.bytes,
        first_rev: extent.first_rev,
        located: Some(*extent),
    });
    let mut pieces: Vec<_> = verbs.chain(located).collect();
    pieces.sort_by_key(|piece| (piece.first_rev, piece.located.is_none()));
    pieces
}

/// A bundle before it is built.
#[derive(Debug)]
struct Bundle {
    header: ObjectHeader,
    id: u128,
    streams: Vec<Copied>,
}

/// A bundle that is built.
#[derive(Debug)]
struct Ready {
    bytes: Bytes,
    moves: Moves,
    /// Objects with entries that are not what the index says of them, and what is wrong.
    failed: Vec<(ObjectId, SettleError)>,
}

impl Bundle {
    /// Builds it. Streams whose entries are not what the index says stay where they are.
    fn build(self, sources: &[Source]) -> Ready {
        let ObjectHeader { slot, incarnation, created_ms, .. } = self.header;
        let mut builder = ObjectBuilder::new(self.header);
        let (mut taken, mut failed) = (Vec::with_capacity(self.streams.len()), Vec::new());
        for Copied { stream_id, pieces } in &self.streams {
            match gather((slot, *stream_id), pieces, sources) {
                Ok(entries) => {
                    push(&mut builder, &entries);
                    taken.push((*stream_id, pieces));
                }
                Err((source, error)) => failed.push((sources[source].object, error)),
            }
        }
        let Built { bytes, footer } = builder.finish();
        let object = ObjectId::Bundle { slot, epoch: incarnation, id: self.id };
        let mut moves = Vec::new();
        let mut rows = footer.extents.iter().filter(|row| row.has_records).peekable();
        // Both by stream, then by rev.
        for (stream_id, pieces) in taken {
            let mut located = pieces.iter().filter_map(|piece| piece.located).peekable();
            while let Some(row) = rows.next_if(|row| row.stream_id == stream_id) {
                let from: Vec<_> = std::iter::from_fn(|| located.next_if(|one| one.last_rev <= row.last_rev)).collect();
                let first = from.first().map_or(object, |one| one.object);
                match moved(stream_id, from, (row, object)) {
                    Ok(one) => moves.push(one),
                    Err(error) => failed.push((first, error)),
                }
            }
        }
        Ready { bytes: bytes.into(), moves: Moves { slot, object, created_ms, moves }, failed }
    }
}

fn push<'a>(builder: &mut ObjectBuilder<'a>, entries: &[Taken<'a>]) {
    for Taken { item, bytes, begins_extent } in entries {
        if *begins_extent {
            builder.end_extent(item.slot, item.stream_id);
        }
        builder.push(item, bytes);
    }
}

/// The extents that one extent of a bundle takes the place of.
fn moved(stream_id: StreamId, from: Vec<Located>, (row, object): (&ExtentRow, ObjectId)) -> Result<Move, SettleError> {
    let to = Located {
        object,
        offset: row.offset,
        bytes: row.bytes,
        content_bytes: row.content_bytes,
        entries: row.entries,
        crc: row.crc,
        first: row.first,
        end: row.end,
        first_rev: row.first_rev,
        last_rev: row.last_rev,
        slot_epoch: row.slot_epoch,
        first_ms: row.first_ms,
        last_ms: row.last_ms,
        arrival_ms: row.arrival_ms,
    };
    let bounds = from.first().map(|from| from.first).zip(from.last().map(|from| from.end));
    if bounds != Some((to.first, to.end)) {
        let what = format!("records {}..{} were copied, the index has {bounds:?}", to.first, to.end);
        return Err(SettleError::Copy { stream_id, what });
    }
    Ok(Move { stream_id, from, to })
}

/// An entry that is copied.
#[derive(Debug)]
struct Taken<'a> {
    item: ParcelItem,
    bytes: &'a [u8],
    begins_extent: bool,
}

/// Cuts what is copied of a stream into extents of bounded size that span a bounded time.
#[derive(Debug, Default)]
struct Spans {
    start_ms: Option<i64>,
    bytes: u32,
}

impl Spans {
    /// Whether these records begin a new extent.
    fn cuts_before(&mut self, located: &Located) -> bool {
        let start_ms = *self.start_ms.get_or_insert(located.first_ms);
        self.bytes = self.bytes.saturating_add(located.bytes);
        let is_long = located.last_ms.saturating_sub(start_ms) > EXTENT_SPAN_MS_MAX;
        let cuts = is_long || self.bytes > EXTENT_BYTES_MAX;
        if cuts {
            *self = Self { start_ms: Some(located.first_ms), bytes: located.bytes };
        }
        cuts
    }
}

/// The entries of a stream's pieces, in order: all of those that the index points to, and the verbs of the rest. An error comes with
/// the source that it is about.
fn gather<'a>(
    stream: (Slot, StreamId),
    pieces: &[Piece],
    sources: &'a [Source],
) -> Result<Vec<Taken<'a>>, (usize, SettleError)> {
    let (mut taken, mut last, mut spans) = (Vec::new(), Rev::ZERO, Spans::default());
    for (at, piece) in pieces.iter().enumerate() {
        let next = pieces[at + 1..].iter().find(|piece| piece.located.is_some()).map(|piece| piece.first_rev);
        let all = take(stream, piece, &sources[piece.source]).map_err(|error| (piece.source, error))?;
        let mut begins_extent = piece.located.is_some_and(|located| spans.cuts_before(&located));
        for Single { rev, is_verb, item, bytes } in all {
            let is_covered = rev <= last || next.is_some_and(|next| rev >= next);
            if piece.located.is_none() && (is_covered || !is_verb) {
                continue;
            }
            last = rev;
            taken.push(Taken { item, bytes, begins_extent });
            begins_extent = false;
        }
    }
    Ok(taken)
}

/// An entry of a piece, and what its shard knew of it.
#[derive(Debug)]
struct Single<'a> {
    rev: Rev,
    is_verb: bool,
    item: ParcelItem,
    bytes: &'a [u8],
}

/// The entries of a piece.
fn take<'a>(
    (slot, stream_id): (Slot, StreamId),
    piece: &Piece,
    source: &'a Source,
) -> Result<Vec<Single<'a>>, SettleError> {
    let wrong = |what: String| SettleError::Copy { stream_id, what };
    let start = piece.offset as usize;
    let bytes = source.bytes.get(start..start.saturating_add(piece.bytes as usize));
    let bytes = bytes.ok_or_else(|| wrong("they end past the end of their object".to_owned()))?;
    if piece.located.is_some_and(|located| located.crc != crc32c(bytes)) {
        return Err(wrong("their sum is another one than the index has".to_owned()));
    }
    let mut taken = Vec::new();
    for entry in entries(bytes) {
        let (entry, bytes) = entry.map_err(|error| wrong(error.to_string()))?;
        let is_verb = matches!(entry, Entry::Verb { .. });
        let item = item((slot, stream_id), &entry, bytes)?;
        taken.push(Single { rev: entry.place().rev, is_verb, item, bytes });
    }
    Ok(taken)
}

/// What an entry's shard knew of it.
fn item((slot, stream_id): (Slot, StreamId), entry: &Entry<'_>, bytes: &[u8]) -> Result<ParcelItem, SettleError> {
    let wrong = |what: String| SettleError::Copy { stream_id, what };
    let length = u32::try_from(bytes.len()).map_err(|error| wrong(error.to_string()))?;
    if entry.place().stream_id != stream_id {
        return Err(wrong(format!("an entry of stream {} lies among them", entry.place().stream_id)));
    }
    let (content_bytes, first_ms) = match entry {
        Entry::Verb { .. } => (0, 0),
        Entry::Batch { head, batch, .. } => {
            let batch = VerifiedBatch::summed(batch, head.batch_crc).map_err(|error| wrong(error.to_string()))?;
            let stamping = head.stamping;
            (batch.content_bytes(), stamping.effective(batch.stamp(0), stamping.previous_ms))
        }
    };
    Ok(ParcelItem { slot, stream_id, bytes: length, content_bytes, first_ms })
}
