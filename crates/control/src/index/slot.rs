//! What of an open slot is in memory, and how are its rows read?

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use slatedb::config::{DurabilityLevel, ReadOptions, ScanOptions};
use slatedb::{CloseReason, Db, DbIterator, DbStatus, IterationOrder};
use tokio::sync::{Mutex, watch};
use wire::ids::{BucketId, SeqNum, StreamId};
use wire::slot::Slot;

use super::error::IndexError;
use super::rows::applied::{self, AppliedChunks};
use super::rows::extent::{self, Located};
use super::rows::stream::{self, Known};
use super::rows::{RowError, cursor};
use super::touched::Touched;

/// Counts of buckets that a slot keeps in memory.
pub(super) const COUNTS_MAX: usize = 4096;
/// Streams of a slot that are looked up side by side.
const LOOK_UPS_AT_A_TIME: usize = 16;
/// Streams over their bytes that a slot remembers until somebody asks.
const OVER_BYTES_MAX: usize = 4096;

/// A slot whose database is open.
pub(super) struct OpenSlot {
    pub(super) slot: Slot,
    pub(super) db: Db,
    pub(super) writer: Mutex<Writer>,
    status: watch::Receiver<DbStatus>,
}

/// What whoever changes the rows of a slot needs to know; one at a time does.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) applied: AppliedChunks,
    /// Writes so far.
    pub(super) writes: u64,
    /// Writes that are durable.
    pub(super) durable_writes: u64,
    /// Bytes of rows written that are not known to be durable.
    pub(super) row_bytes: u64,
    pub(super) hot: Hot,
    /// No stream with a higher id has a row, as far as that was looked up. Ids begin with the time, so most new ones are higher.
    pub(super) newest: Option<StreamId>,
    pub(super) counts: HashMap<BucketId, u64>,
    pub(super) over_bytes: BTreeSet<StreamId>,
    /// Whether extents may be left that are to be dropped.
    pub(super) has_cursors: bool,
    /// What has changed since it was in a snapshot.
    pub(super) touched: Touched,
    /// What finds the blocks of its tables was brought into the cache.
    pub(super) has_finders: bool,
    /// When garbage is to be removed.
    pub(super) garbage_due: Option<Instant>,
}

impl Writer {
    /// A stream keeps more bytes than it may.
    pub(super) fn note_over_bytes(&mut self, stream_id: StreamId) {
        if self.over_bytes.len() < OVER_BYTES_MAX {
            self.over_bytes.insert(stream_id);
        }
    }
}

/// Rows of streams by their last use, in two generations: what is not used while the younger one fills is forgotten.
#[derive(Debug, Default)]
pub(super) struct Hot {
    young: HashMap<StreamId, Known>,
    old: HashMap<StreamId, Known>,
}

impl Hot {
    pub(super) fn take(&mut self, stream_id: StreamId) -> Option<Known> {
        let young = self.young.remove(&stream_id);
        let old = self.old.remove(&stream_id);
        young.or(old)
    }

    pub(super) fn has(&self, stream_id: StreamId) -> bool {
        self.young.contains_key(&stream_id) || self.old.contains_key(&stream_id)
    }

    pub(super) fn put(&mut self, stream_id: StreamId, known: Known, max: usize) {
        if self.young.len() >= max.div_ceil(2) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&stream_id);
        self.young.insert(stream_id, known);
    }
}

impl OpenSlot {
    /// Takes an opened database, and reads how far chunks are applied to it.
    pub(super) async fn new(slot: Slot, db: Db) -> Result<Self, IndexError> {
        let writer = Mutex::new(Writer { has_cursors: true, ..Writer::default() });
        let open = Self { slot, status: db.subscribe(), db, writer };
        if let Some(value) = open.get(applied::KEY).await? {
            open.writer.lock().await.applied = open.row(AppliedChunks::decode(&value))?;
        }
        Ok(open)
    }

    /// Up to which chunks it is applied, of what a crash would leave.
    pub(super) async fn durably_applied(&self) -> Result<AppliedChunks, IndexError> {
        let options = ReadOptions { durability_filter: DurabilityLevel::Remote, ..ReadOptions::default() };
        let value = self.db.get_with_options(applied::KEY, &options).await.map_err(|source| self.database(source))?;
        value.map_or_else(|| Ok(AppliedChunks::default()), |value| self.row(AppliedChunks::decode(&value)))
    }

    /// Why its database takes nothing any more, if so.
    pub(super) fn closed(&self) -> Option<CloseReason> {
        self.status.borrow().close_reason
    }

    pub(super) fn database(&self, source: slatedb::Error) -> IndexError {
        IndexError::Database { slot: self.slot, source }
    }

    pub(super) fn row<T>(&self, row: Result<T, RowError>) -> Result<T, IndexError> {
        row.map_err(|source| IndexError::Row { slot: self.slot, source })
    }

    pub(super) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, IndexError> {
        self.db.get(key).await.map_err(|source| self.database(source))
    }

    /// The rows of a range: all there are, or only those that a crash would leave.
    pub(super) async fn scan(&self, range: Range<Vec<u8>>, level: DurabilityLevel) -> Result<Rows<'_>, IndexError> {
        if range.is_empty() {
            return Ok(Rows { open: self, rows: None });
        }
        let options = ScanOptions { durability_filter: level, cache_blocks: true, ..ScanOptions::default() };
        let rows = self.db.scan_with_options(range, &options).await.map_err(|source| self.database(source))?;
        Ok(Rows { open: self, rows: Some(rows) })
    }

    /// The rows of a range, for whoever asks for some of them in the order of their keys.
    pub(super) async fn pass(&self, range: Range<Vec<u8>>) -> Result<Pass<'_>, IndexError> {
        let mut rows = self.scan(range, DurabilityLevel::Memory).await?;
        let head = rows.next().await?;
        Ok(Pass { rows, head })
    }

    /// The extent of a row that comes before a key and begins before a sequence number.
    pub(super) fn located(
        &self,
        row: Option<(Bytes, Bytes)>,
        before: &[u8],
        first_below: SeqNum,
    ) -> Result<Option<Located>, IndexError> {
        let Some((key, value)) = row.filter(|(key, _)| key[..] < *before) else { return Ok(None) };
        let located = self.row(Located::decode(&key, &value))?;
        Ok((located.first < first_below).then_some(located))
    }

    /// What the database has of a stream.
    pub(super) async fn known(&self, stream_id: StreamId) -> Result<Option<Known>, IndexError> {
        let value = self.get(&stream::key(stream_id)).await?;
        value.map(|value| self.row(Known::decode(&value))).transpose()
    }

    /// What the database has of each of these streams, looked up side by side: a look-up mostly waits for the store.
    pub(super) async fn known_of(
        &self,
        streams: Vec<StreamId>,
    ) -> Result<HashMap<StreamId, Option<Known>>, IndexError> {
        let look_up = |stream_id| async move { Ok::<_, IndexError>((stream_id, self.known(stream_id).await?)) };
        iter(streams).map(look_up).buffer_unordered(LOOK_UPS_AT_A_TIME).try_collect().await
    }

    /// The highest id that has a row; the lowest there may be when none has.
    pub(super) async fn newest(&self) -> Result<StreamId, IndexError> {
        let options = ScanOptions::default().with_order(IterationOrder::Descending);
        let rows = self.db.scan_with_options(stream::all(), &options).await.map_err(|source| self.database(source))?;
        let row = Rows { open: self, rows: Some(rows) }.next().await?;
        let newest = row.map(|(key, value)| self.row(Known::of(&key, &value))).transpose()?;
        Ok(newest.map_or(StreamId::from_bytes([0; 16]), |(stream_id, _)| stream_id))
    }

    /// The first extent of a stream with records at or after `from`.
    pub(super) async fn extent_at(&self, stream_id: StreamId, from: SeqNum) -> Result<Option<Located>, IndexError> {
        let mut rows = self.scan(extent::from(stream_id, from), DurabilityLevel::Memory).await?;
        let row = rows.next().await?;
        row.map(|(key, value)| self.row(Located::decode(&key, &value))).transpose()
    }

    /// Whether extents of the stream are still to be dropped.
    pub(super) async fn has_cursor(&self, stream_id: StreamId) -> Result<bool, IndexError> {
        Ok(self.get(&cursor::key(stream_id)).await?.is_some())
    }
}

impl fmt::Debug for OpenSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSlot").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// Rows of a scan, in order of their keys.
pub(super) struct Rows<'a> {
    open: &'a OpenSlot,
    rows: Option<DbIterator>,
}

impl Rows<'_> {
    /// The next row.
    pub(super) async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        let Some(rows) = &mut self.rows else { return Ok(None) };
        let row = rows.next().await.map_err(|source| self.open.database(source))?;
        Ok(row.map(|row| (row.key, row.value)))
    }

    /// Goes on at a key that comes after the last row's.
    async fn seek(&mut self, key: &[u8]) -> Result<(), IndexError> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        rows.seek(key).await.map_err(|source| self.open.database(source))
    }
}

/// Rows of a range of which parts are passed over.
pub(super) struct Pass<'a> {
    rows: Rows<'a>,
    head: Option<(Bytes, Bytes)>,
}

impl Pass<'_> {
    /// The first row at or after a key of the range, which is not before the key asked last.
    pub(super) async fn at(&mut self, key: &[u8]) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        if self.head.as_ref().is_some_and(|(head, _)| head[..] < *key) {
            self.rows.seek(key).await?;
            self.head = self.rows.next().await?;
        }
        Ok(self.head.clone())
    }

    /// The row after the one that was answered last.
    pub(super) async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, IndexError> {
        self.head = self.rows.next().await?;
        Ok(self.head.clone())
    }
}
