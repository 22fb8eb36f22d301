//! How do the rows of a slot change together? All in one write, or not at all.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use slatedb::WriteBatch;
use slatedb::config::DurabilityLevel;
use wire::ids::{BucketId, SeqNum, StreamId};

use super::error::IndexError;
use super::object_id::ObjectId;
use super::options::IndexOptions;
use super::rows::extent::{self, Located};
use super::rows::object::{self, ObjectRow};
use super::rows::queue::{self, Queue};
use super::rows::stream::{self, Known};
use super::rows::{applied, count, cursor, name};
use super::slot::{COUNTS_MAX, OpenSlot, Writer};
use crate::channel::ChunkId;

/// Extents that one write drops; the rest is left to a cursor.
pub(super) const DROPS_MAX: usize = 4096;

/// A row that is put, or goes: where its key and its value are.
#[derive(Debug)]
struct Change {
    key: Range<usize>,
    value: Option<Range<usize>>,
}

/// Changes of a slot's rows that wait to be written.
pub(super) struct Staged<'a> {
    pub(super) open: &'a OpenSlot,
    pub(super) writer: &'a mut Writer,
    pub(super) options: &'a IndexOptions,
    /// The time that queues go by.
    pub(super) now_ms: i64,
    /// Extents that may still be dropped.
    pub(super) drops: usize,
    /// Whether the places of records are noted.
    pub(super) places: bool,
    /// Keys and values, one behind the other, so that a write is one allocation however many rows it has.
    bytes: Vec<u8>,
    changes: Vec<Change>,
    streams: HashMap<StreamId, Known>,
    /// What the database has of streams that are asked for next.
    looked_up: HashMap<StreamId, Option<Known>>,
    names: HashMap<Vec<u8>, Option<StreamId>>,
    counts: HashMap<BucketId, i64>,
    live: HashMap<ObjectId, i64>,
    made: HashMap<ObjectId, ObjectRow>,
    over_bytes: Vec<StreamId>,
    left_cursor: bool,
}

impl<'a> Staged<'a> {
    pub(super) fn new(open: &'a OpenSlot, writer: &'a mut Writer, options: &'a IndexOptions, now_ms: i64) -> Self {
        Self {
            open,
            writer,
            options,
            now_ms,
            drops: DROPS_MAX,
            places: true,
            bytes: Vec::new(),
            changes: Vec::new(),
            streams: HashMap::new(),
            looked_up: HashMap::new(),
            names: HashMap::new(),
            counts: HashMap::new(),
            live: HashMap::new(),
            made: HashMap::new(),
            over_bytes: Vec::new(),
            left_cursor: false,
        }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        let key = self.add(key);
        let value = Some(self.add(value));
        self.changes.push(Change { key, value });
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        let key = self.add(key);
        self.changes.push(Change { key, value: None });
    }

    fn add(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// What is known of a stream, taken out: who changes it puts it back with [`Staged::know`].
    pub(super) async fn take_known(&mut self, stream_id: StreamId) -> Result<Option<Known>, IndexError> {
        if let Some(known) = self.streams.remove(&stream_id).or_else(|| self.writer.hot.take(stream_id)) {
            return Ok(Some(known));
        }
        match self.looked_up.remove(&stream_id) {
            Some(known) => Ok(known),
            None => self.open.known(stream_id).await,
        }
    }

    /// Looks up side by side what of these streams is not in memory, for they are taken next; with each, whether its creation is at hand.
    pub(super) async fn look_up(&mut self, streams: &[(StreamId, bool)]) -> Result<(), IndexError> {
        let mut wanted = Vec::new();
        for (stream_id, is_creation) in streams {
            let is_new = *is_creation && *stream_id > self.newest().await?;
            let is_here = self.streams.contains_key(stream_id) || self.writer.hot.has(*stream_id);
            wanted.extend((!is_new && !is_here).then_some(*stream_id));
        }
        self.looked_up = self.open.known_of(wanted).await?;
        Ok(())
    }

    /// As [`Staged::take_known`], of a stream whose creation is at hand: most such streams are new, which is told without a look-up.
    pub(super) async fn take_created(&mut self, stream_id: StreamId) -> Result<Option<Known>, IndexError> {
        if stream_id > self.newest().await? && !self.streams.contains_key(&stream_id) {
            return Ok(None);
        }
        self.take_known(stream_id).await
    }

    /// The highest id that has a row, or a higher one.
    async fn newest(&mut self) -> Result<StreamId, IndexError> {
        match self.writer.newest {
            Some(newest) => Ok(newest),
            None => Ok(*self.writer.newest.insert(self.open.newest().await?)),
        }
    }

    pub(super) fn know(&mut self, stream_id: StreamId, known: Known) {
        self.put(&stream::key(stream_id), &known.encode());
        self.streams.insert(stream_id, known);
    }

    /// Keeps what was taken and is as it was.
    pub(super) fn keep(&mut self, stream_id: StreamId, known: Known) {
        self.writer.hot.put(stream_id, known, self.options.hot_rows);
    }

    /// Which stream has a name.
    pub(super) async fn holder(&self, name: &[u8]) -> Result<Option<StreamId>, IndexError> {
        if let Some(holder) = self.names.get(name) {
            return Ok(*holder);
        }
        let value = self.open.get(name).await?;
        value.map(|value| self.open.row(name::decode(&value))).transpose()
    }

    pub(super) fn name(&mut self, name: Vec<u8>, stream_id: StreamId) {
        self.put(&name, &name::value(stream_id));
        self.names.insert(name, Some(stream_id));
    }

    pub(super) fn unname(&mut self, name: Vec<u8>) {
        self.delete(&name);
        self.names.insert(name, None);
    }

    pub(super) fn count(&mut self, bucket: BucketId, change: i64) {
        *self.counts.entry(bucket).or_default() += change;
    }

    /// An object comes to be; extents that are put count as its live bytes.
    pub(super) fn make(&mut self, object: ObjectId, created_ms: i64) {
        self.made.entry(object).or_insert(ObjectRow { live_bytes: 0, bytes: 0, created_ms });
    }

    pub(super) fn put_extent(&mut self, stream_id: StreamId, extent: &Located) {
        self.put(&extent.key(stream_id), &extent.encode());
        *self.live.entry(extent.object).or_default() += i64::from(extent.bytes);
    }

    pub(super) fn drop_extent(&mut self, stream_id: StreamId, extent: &Located) {
        self.delete(&extent.key(stream_id));
        *self.live.entry(extent.object).or_default() -= i64::from(extent.bytes);
    }

    /// Drops the extents of a stream that end at or before `below`, as many as may be; a cursor stays for the rest. Answers how much
    /// content they had. Extents put in the same write are not seen.
    pub(super) async fn drop_below(&mut self, stream_id: StreamId, below: SeqNum) -> Result<u64, IndexError> {
        let mut rows = self.open.scan(extent::below(stream_id, below), DurabilityLevel::Memory).await?;
        let mut content_bytes = 0;
        while let Some((key, value)) = rows.next().await? {
            if self.drops == 0 {
                self.put(&cursor::key(stream_id), &cursor::value(below));
                self.left_cursor = true;
                break;
            }
            let extent = self.open.row(Located::decode(&key, &value))?;
            self.drop_extent(stream_id, &extent);
            self.drops -= 1;
            content_bytes += u64::from(extent.content_bytes);
        }
        Ok(content_bytes)
    }

    /// Puts a stream's row in the queue of ages to where it belongs; answers its due.
    pub(super) fn schedule(&mut self, stream_id: StreamId, due_ms: i64, wanted_ms: i64) -> i64 {
        if wanted_ms != due_ms {
            if due_ms != 0 {
                self.delete(&Queue::Age.stream_key(due_ms, stream_id));
            }
            if wanted_ms != 0 {
                self.put(&Queue::Age.stream_key(wanted_ms, stream_id), &[]);
            }
        }
        wanted_ms
    }

    pub(super) fn note_over_bytes(&mut self, stream_id: StreamId) {
        self.over_bytes.push(stream_id);
    }

    async fn stage_counts(&mut self) -> Result<Vec<(BucketId, u64)>, IndexError> {
        let mut counts = Vec::with_capacity(self.counts.len());
        for (bucket, change) in std::mem::take(&mut self.counts) {
            let before = match self.writer.counts.get(&bucket) {
                Some(streams) => *streams,
                None => match self.open.get(&count::key(bucket)).await? {
                    Some(value) => self.open.row(count::decode(&value))?,
                    None => 0,
                },
            };
            let streams = before.saturating_add_signed(change);
            self.put(&count::key(bucket), &count::value(streams));
            counts.push((bucket, streams));
        }
        Ok(counts)
    }

    /// Whether an object is a chunk that is being applied, so that nothing is known of it.
    fn is_fresh(&self, object: ObjectId) -> bool {
        matches!(object, ObjectId::Chunk(at) if !self.writer.applied.covers(at))
    }

    async fn stage_objects(&mut self) -> Result<(), IndexError> {
        for (object, change) in std::mem::take(&mut self.live) {
            let made = self.made.remove(&object);
            let stored = match made {
                Some(_) if self.is_fresh(object) => None,
                _ => self.open.get(&object::key(object)).await?,
            };
            let stored = stored.map(|value| self.open.row(ObjectRow::decode(&value))).transpose()?;
            let Some(before) = stored.or(made) else {
                // Its extents go all the same; that it stays for ever is the lesser evil.
                tracing::error!(slot = self.open.slot.get(), ?object, "an object has extents and no row");
                continue;
            };
            let live_bytes = before.live_bytes.saturating_add_signed(change);
            let bytes = before.bytes + u64::try_from(change).unwrap_or(0);
            self.put_object(object, ObjectRow { live_bytes, bytes, ..before });
        }
        for (object, row) in std::mem::take(&mut self.made) {
            self.put_object(object, row);
        }
        Ok(())
    }

    /// A chunk's row goes when it holds nothing for the slot; any other object's death is put off.
    fn put_object(&mut self, object: ObjectId, row: ObjectRow) {
        if row.live_bytes > 0 {
            return self.put(&object::key(object), &row.encode());
        }
        if object.is_chunk() {
            return self.delete(&object::key(object));
        }
        let due_ms = self.now_ms.saturating_add(self.options.dead_grace_ms);
        self.put(&object::key(object), &row.encode());
        self.put(&queue::dead_key(due_ms, object), &[]);
    }

    /// Writes everything, with the note that `chunk` is applied.
    pub(super) async fn commit(mut self, chunk: Option<ChunkId>) -> Result<(), IndexError> {
        let counts = self.stage_counts().await?;
        self.stage_objects().await?;
        let mut applied = self.writer.applied.clone();
        if let Some(at) = chunk {
            applied.note(at);
            self.put(applied::KEY, &applied.encode());
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        let Self { open, writer, changes, bytes, streams, options, over_bytes, left_cursor, .. } = self;
        let (row_bytes, batch) = (bytes.len() as u64, batch(bytes.into(), changes));
        // Whether a write that failed or was given up took effect is not known: what it changes is remembered after it alone.
        writer.writes += 1;
        if let Some(newest) = &mut writer.newest {
            *newest = streams.keys().copied().fold(*newest, StreamId::max);
        }
        for (bucket, _) in &counts {
            writer.counts.remove(bucket);
        }
        open.db.write(batch).await.map_err(|source| open.database(source))?;
        writer.applied = applied;
        writer.row_bytes += row_bytes;
        writer.has_cursors |= left_cursor;
        if writer.counts.len() + counts.len() > COUNTS_MAX {
            writer.counts.clear();
        }
        writer.counts.extend(counts);
        for (stream_id, known) in streams {
            writer.hot.put(stream_id, known, options.hot_rows);
        }
        over_bytes.into_iter().for_each(|stream_id| writer.note_over_bytes(stream_id));
        Ok(())
    }
}

/// The changes, of rows in `bytes`, as the database takes them; of one row, the last counts.
fn batch(bytes: Bytes, changes: Vec<Change>) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for Change { key, value } in changes {
        match value {
            Some(value) => batch.put_bytes(bytes.slice(key), bytes.slice(value)),
            None => batch.delete(&bytes[key]),
        }
    }
    batch
}
