//! Lays entries out as an object: those of a stream together, each copied once.

use std::collections::HashMap;
use std::collections::hash_map;

use super::footer::sort_key;
use super::{
    EXTENT_ROW_BYTES, ExtentRow, Footer, HEADER_BYTES, ObjectHeader, SETTLES_ROW_BYTES, Settles, TRAILER_BYTES,
};
use crate::crc::crc32c;
use crate::entry::{self, Peek};
use crate::handoff::ParcelItem;
use crate::ids::{SeqNum, StreamId};
use crate::log_frame::{ENTRY_PREFIX_BYTES, put_entry_prefix};
use crate::slot::Slot;

/// Behind the last entry of an extent.
const NONE: u32 = u32::MAX;

/// An object, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What they hold.
    pub footer: Footer,
}

/// An entry, and the next one of its extent.
#[derive(Debug)]
struct Piece<'a> {
    bytes: &'a [u8],
    next: u32,
}

/// An extent that grows.
#[derive(Debug)]
struct Growing {
    row: ExtentRow,
    first: u32,
    last: u32,
}

/// Gathers entries, which it borrows until they are copied to their place in the object.
#[derive(Debug)]
pub struct ObjectBuilder<'a> {
    header: ObjectHeader,
    pieces: Vec<Piece<'a>>,
    extents: Vec<Growing>,
    /// The extent that each stream's next entry goes to.
    open: HashMap<(Slot, StreamId), u32>,
    settles: Vec<Settles>,
    body_bytes: usize,
}

impl<'a> ObjectBuilder<'a> {
    /// An object without entries.
    #[must_use]
    pub fn new(header: ObjectHeader) -> Self {
        let (pieces, extents, settles) = (Vec::new(), Vec::new(), Vec::new());
        Self { header, pieces, extents, open: HashMap::new(), settles, body_bytes: 0 }
    }

    /// Adds an entry. Those of a stream come in their order; where the epoch changes or a rev is left out, a new extent
    /// begins.
    ///
    /// # Panics
    /// When `bytes` are not the sound entry that `item` says they are.
    #[expect(clippy::cast_possible_truncation, reason = "finish refuses an object of 4 GiB")]
    pub fn push(&mut self, item: &ParcelItem, bytes: &'a [u8]) {
        let peek = entry::peek(bytes).unwrap_or_else(|e| panic!("stream {}: {e}", item.stream_id));
        let said = (item.stream_id, item.bytes as usize);
        assert_eq!((peek.place.stream_id, peek.entry_bytes), said, "the stream and length of an entry");
        assert_eq!(bytes.len(), peek.entry_bytes, "an entry comes alone");
        let piece = self.pieces.len() as u32;
        self.pieces.push(Piece { bytes, next: NONE });
        self.body_bytes += ENTRY_PREFIX_BYTES + bytes.len();
        let fresh = self.extents.len() as u32;
        let at = match self.open.entry((item.slot, item.stream_id)) {
            hash_map::Entry::Occupied(mut open) => {
                let row = &self.extents[*open.get() as usize].row;
                if row.slot_epoch != peek.place.slot_epoch || peek.place.rev != row.last_rev.next() {
                    open.insert(fresh);
                }
                *open.get()
            }
            hash_map::Entry::Vacant(vacant) => *vacant.insert(fresh),
        };
        if at == fresh {
            self.extents.push(Growing { row: opened(item, &peek), first: piece, last: piece });
        } else {
            let extent = &mut self.extents[at as usize];
            self.pieces[extent.last as usize].next = piece;
            extent.last = piece;
        }
        note(&mut self.extents[at as usize].row, item, &peek);
    }

    /// Ends the extent of a stream: its next entry begins a new one.
    pub fn end_extent(&mut self, slot: Slot, stream_id: StreamId) {
        self.open.remove(&(slot, stream_id));
    }

    /// Says what part of a head log the entries take over.
    pub fn settles(&mut self, settles: Settles) {
        self.settles.push(settles);
    }

    /// Bytes of the extents so far.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The object.
    ///
    /// # Panics
    /// When it is 4 GiB or longer.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "checked first")]
    pub fn finish(self) -> Built {
        let Self { header, pieces, mut extents, settles, body_bytes, .. } = self;
        let footer_bytes = extents.len() * EXTENT_ROW_BYTES + settles.len() * SETTLES_ROW_BYTES;
        let object_bytes = HEADER_BYTES + body_bytes + footer_bytes + TRAILER_BYTES;
        assert!(object_bytes < u32::MAX as usize, "an object of {object_bytes} bytes");
        extents.sort_by_key(|extent| sort_key(&extent.row));
        let mut bytes = Vec::with_capacity(object_bytes);
        bytes.extend_from_slice(&header.to_bytes());
        let mut rows = Vec::with_capacity(extents.len());
        for Growing { mut row, first, .. } in extents {
            let start = bytes.len();
            let mut at = first;
            while let Some(piece) = pieces.get(at as usize) {
                let mut prefix = [0; ENTRY_PREFIX_BYTES];
                put_entry_prefix(&mut prefix, piece.bytes.len());
                bytes.extend_from_slice(&prefix);
                bytes.extend_from_slice(piece.bytes);
                at = piece.next;
            }
            row.offset = start as u32;
            row.crc = crc32c(&bytes[start..]);
            rows.push(row);
        }
        let footer = Footer { header: Some(header), extents: rows, settles };
        footer.encode(&mut bytes);
        Built { bytes, footer }
    }
}

/// An extent that begins with this entry, before it is noted.
fn opened(item: &ParcelItem, peek: &Peek) -> ExtentRow {
    ExtentRow {
        slot: item.slot,
        stream_id: item.stream_id,
        slot_epoch: peek.place.slot_epoch,
        first_rev: peek.place.rev,
        last_rev: peek.place.rev,
        has_records: false,
        first: SeqNum::ZERO,
        end: SeqNum::ZERO,
        first_ms: 0,
        last_ms: 0,
        arrival_ms: 0,
        offset: 0,
        bytes: 0,
        content_bytes: 0,
        entries: 0,
        crc: 0,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the prefix of an entry is four bytes")]
fn note(row: &mut ExtentRow, item: &ParcelItem, peek: &Peek) {
    row.last_rev = peek.place.rev;
    row.bytes += item.bytes + ENTRY_PREFIX_BYTES as u32;
    row.content_bytes += item.content_bytes;
    row.entries += 1;
    let Some(records) = peek.records else { return };
    if !row.has_records {
        (row.has_records, row.first, row.first_ms) = (true, records.first, item.first_ms);
        row.arrival_ms = records.arrival_ms;
    }
    row.end = records.first.after(records.records.into());
    row.last_ms = records.last_ms;
    row.arrival_ms = row.arrival_ms.max(records.arrival_ms);
}
