//! What must hold of the rows of the index, of its record, and of what the entries of a chunk make of a stream?

use wire::chunk::{ExtentRow, entries};
use wire::crc::crc32c;
use wire::entry::Entry;
use wire::fuzzing::{mend_entries, mend_sum, with_mended_sums};
use wire::ids::{Epoch, SeqNum, StreamId};
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use super::checkpoint::Record;
use super::fold::{Folded, Folding};
use super::object_id::ObjectId;
use super::rows::applied::AppliedChunks;
use super::rows::extent::Located;
use super::rows::object::{self, ObjectRow};
use super::rows::queue::{self, Queue};
use super::rows::stream::{self, Known};
use super::rows::{count, cursor, name};
use super::snapshot::Named;
use crate::channel::ChunkId;
use crate::store::{ObjectName, ObjectPrefix};

/// The record of the last checkpoint.
pub(crate) fn check_record(bytes: &[u8]) {
    let mend = |bytes: &mut [u8]| {
        if bytes.len() >= 12 {
            let sum = crc32c(&bytes[12..]);
            bytes[8..12].copy_from_slice(&sum.to_be_bytes());
        }
    };
    with_mended_sums(bytes, mend, |bytes| {
        let Ok(record) = Record::decode(bytes) else { return };
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    });
}

/// A row of a slot: its kind, how long its key is, the key and the value.
///
/// What is taken is the same bytes once it is written again.
///
/// # Panics
/// When that is not so.
pub fn index_rows(bytes: &[u8]) {
    let [kind, key_bytes, row @ ..] = bytes else { return };
    let (key, value) = row.split_at(row.len().min(usize::from(*key_bytes)));
    match kind {
        b'X' => check_extent(key, value),
        b'O' => check_object(key, value),
        b'S' => check_stream(key, value),
        b'D' => {
            let Ok((stream_id, below)) = cursor::decode(key, value) else { return };
            assert_eq!((&cursor::key(stream_id)[..], &cursor::value(below)[..]), (key, value));
        }
        b'N' => {
            let Ok(stream_id) = name::decode(value) else { return };
            assert_eq!(name::value(stream_id)[..], *value);
        }
        b'C' => {
            let Ok(streams) = count::decode(value) else { return };
            assert_eq!(count::value(streams)[..], *value);
        }
        b'M' => {
            let Ok(applied) = AppliedChunks::decode(value) else { return };
            assert_eq!(AppliedChunks::decode(&applied.encode()), Ok(applied));
        }
        _ => check_queues(key),
    }
}

fn check_extent(key: &[u8], value: &[u8]) {
    let Ok(located) = Located::decode(key, value) else { return };
    let stream_id = key.get(1..17).and_then(|id| id.first_chunk()).map_or_else(StreamId::default, stream_id_of);
    assert_eq!((&located.key(stream_id)[..], &located.encode()[..]), (key, value));
}

fn stream_id_of(bytes: &[u8; 16]) -> StreamId {
    StreamId::from_bytes(*bytes)
}

fn check_object(key: &[u8], value: &[u8]) {
    if let Ok(row) = ObjectRow::decode(value) {
        assert_eq!(row.encode(), value);
    }
    let Ok(id) = object::decode_key(key) else { return };
    assert_eq!(object::key(id), key);
    if let ObjectId::Bundle { slot, .. } = id {
        assert_eq!(ObjectId::bundle_of(slot, &id.name()), Some(id), "a bundle is found under its name");
    }
}

fn check_stream(key: &[u8], value: &[u8]) {
    let Some(sum_at) = value.len().checked_sub(4) else { return };
    with_mended_sums(
        value,
        |value| mend_sum(value, 9..sum_at, sum_at),
        |value| {
            let Ok((stream_id, known)) = Known::of(key, value) else { return };
            assert_eq!(stream::key(stream_id), key);
            assert_eq!(Known::decode(&known.encode()), Ok(known));
        },
    );
}

fn check_queues(key: &[u8]) {
    for queue in [Queue::Age, Queue::Forget] {
        let Ok((due_ms, stream_id)) = queue.decode_stream(key) else { continue };
        assert!(due_ms < 0 || queue.stream_key(due_ms, stream_id) == key);
    }
    if let Ok((due_ms, object)) = queue::decode_dead(key) {
        assert!(due_ms < 0 || queue::dead_key(due_ms, object) == key);
    }
}

/// Names of objects, and of what the index looks for among them.
pub(crate) fn check_names(text: &str) {
    if let Ok(prefix) = ObjectPrefix::parse(text) {
        assert_eq!(prefix.as_str(), text);
    }
    let Ok(object) = ObjectName::parse(text) else { return };
    assert_eq!((object.as_str(), object.segments().collect::<Vec<_>>().join("/")), (text, text.to_owned()));
    for slot in Slot::all() {
        if let Some(id) = ObjectId::bundle_of(slot, &object) {
            assert_eq!(id.name(), object);
        }
        if let Some(named) = Named::parse(slot, &object, 1) {
            assert_eq!(named.name(slot), object);
        }
    }
}

/// An extent of a chunk, folded over a stream that is not known.
///
/// To fold it once more changes nothing, unless it deletes the stream, and each of its extents has a key.
///
/// # Panics
/// When that is not so.
pub fn fold(extent: &[u8]) {
    with_mended_sums(extent, mend_entries, |body| {
        let Some(extent) = row_of(body) else { return };
        let Some(once) = folded(None, &extent, body) else { return };
        once.extents.iter().for_each(|located| {
            let key = located.key(once.row.stream_id);
            assert_eq!(Located::decode(&key, &located.encode()).as_ref(), Ok(located));
        });
        assert_eq!(StreamRow::decode(&once.row.encode()).as_ref(), Ok(&*once.row));
        if once.is_deleted {
            return;
        }
        let twice = folded(Some(once.row.clone()), &extent, body).expect("the stream is known");
        assert_eq!((&twice.row, twice.is_changed, twice.extents.len()), (&once.row, false, 0));
    });
}

/// The row of an extent that begins a body: what its first entry says, and its last.
fn row_of(body: &[u8]) -> Option<ExtentRow> {
    let places: Vec<_> = entries(body).map_while(Result::ok).map(|(entry, _)| Entry::place(&entry)).collect();
    let (first, last) = (places.first()?, places.last()?);
    Some(ExtentRow {
        slot: first.slot,
        stream_id: first.stream_id,
        slot_epoch: first.slot_epoch,
        first_rev: first.rev,
        last_rev: last.rev,
        has_records: true,
        first: SeqNum::ZERO,
        end: SeqNum::ZERO,
        first_ms: 0,
        last_ms: 0,
        arrival_ms: 0,
        offset: 0,
        bytes: u32::try_from(body.len()).ok()?,
        content_bytes: 1,
        entries: u32::try_from(places.len()).ok()?,
        crc: crc32c(body),
    })
}

fn folded(row: Option<Box<StreamRow>>, extent: &ExtentRow, body: &[u8]) -> Option<Folded> {
    let mut folding = Folding::over(row);
    let object = ObjectId::Chunk(ChunkId { incarnation: Epoch::new(1), position: 1 });
    folding.take(extent, object, body).ok()?;
    folding.end()
}

#[cfg(test)]
pub(crate) mod tests;
