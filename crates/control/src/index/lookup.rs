//! What is known of names, streams and extents? All of it as far as chunks are applied.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use slatedb::config::DurabilityLevel;
use wire::ids::{BucketId, SeqNum, StreamId};
use wire::names::Key;
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use super::rows::extent::{self, Located};
use super::rows::stream::Known;
use super::rows::{count, name};
use super::slot::{OpenSlot, Rows};
use super::{Index, IndexError};

/// Slots that are asked at a time.
const SCANS_AT_A_TIME: usize = 16;
/// Streams that are looked up at a time.
const ROWS_AT_A_TIME: usize = 64;

/// How many extents are enough: a look-up ends with the one that brings the last byte, or is the last one.
///
/// It matters that it ends: rows of extents that became part of others are passed one by one until compaction drops them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enough {
    /// Extents at most.
    pub extents: usize,
    /// Bytes of extents; the last one may bring more.
    pub bytes: u64,
}

impl Enough {
    /// So many, however large.
    #[must_use]
    pub fn extents(extents: usize) -> Self {
        Self { extents, bytes: u64::MAX }
    }

    /// Whether there is not enough yet.
    pub(crate) fn wants_more(&self) -> bool {
        self.extents > 0 && self.bytes > 0
    }

    /// One more was found.
    pub(crate) fn count(&mut self, extent: &Located) {
        self.extents -= 1;
        self.bytes = self.bytes.saturating_sub(u64::from(extent.bytes));
    }
}

impl Index {
    /// The stream that has a name.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database fails.
    pub async fn row_by_name(&self, bucket: BucketId, key: &Key) -> Result<Option<StreamRow>, IndexError> {
        let Some(open) = self.open_slot(Slot::of(bucket, key)).await? else { return Ok(None) };
        let Some(value) = open.get(&name::key(bucket, key.as_str())).await? else { return Ok(None) };
        let stream_id = open.row(name::decode(&value))?;
        Ok(open.known(stream_id).await?.and_then(Known::into_row))
    }

    /// The rows of streams, in the order asked; those that are not there are left out.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails.
    pub async fn rows_by_id(&self, streams: &[(Slot, StreamId)]) -> Result<Vec<StreamRow>, IndexError> {
        let row = |(slot, stream_id): (Slot, StreamId)| async move {
            let Some(open) = self.open_slot(slot).await? else { return Ok(None) };
            Ok::<_, IndexError>(open.known(stream_id).await?.and_then(Known::into_row))
        };
        let rows = stream::iter(streams.iter().copied()).map(row).buffered(ROWS_AT_A_TIME);
        rows.try_filter_map(|row| async move { Ok(row) }).try_collect().await
    }

    /// At most `limit` streams of a bucket whose keys sort after `after` by bytes, in that order; from the first when it is empty.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails.
    pub async fn list(&self, bucket: BucketId, after: &str, limit: usize) -> Result<Vec<StreamRow>, IndexError> {
        let slots = self.open_slots().await?;
        let mut names = Names::new(&slots, bucket, after).await?;
        let mut rows = Vec::new();
        while rows.len() < limit {
            let Some((open, stream_id)) = names.next().await? else { break };
            rows.extend(open.known(stream_id).await?.and_then(Known::into_row));
        }
        Ok(rows)
    }

    /// How many streams a bucket has.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails.
    pub async fn count(&self, bucket: BucketId) -> Result<u64, IndexError> {
        let count = |open: Arc<OpenSlot>| async move {
            let value = open.get(&count::key(bucket)).await?;
            value.map_or(Ok(0), |value| open.row(count::decode(&value)))
        };
        let counts = stream::iter(self.open_slots().await?).map(count).buffered(SCANS_AT_A_TIME);
        counts.try_fold(0, |sum, streams| async move { Ok(sum + streams) }).await
    }

    /// Extents of a stream, in order, until there are enough: from the one that holds `from`, or the first one after it.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database fails.
    pub async fn extents_from(
        &self,
        slot: Slot,
        stream_id: StreamId,
        from: SeqNum,
        mut enough: Enough,
    ) -> Result<Vec<Located>, IndexError> {
        let Some(open) = self.open_slot(slot).await? else { return Ok(Vec::new()) };
        if let Some(last) = last_extent(&open, stream_id, from).await? {
            return Ok(vec![last]);
        }
        let mut extents = Vec::new();
        let mut rows = open.scan(extent::from(stream_id, from), DurabilityLevel::Memory).await?;
        while enough.wants_more() {
            let Some((key, value)) = rows.next().await? else { break };
            let extent = open.row(Located::decode(&key, &value))?;
            enough.count(&extent);
            extents.push(extent);
        }
        Ok(extents)
    }

    /// The first extent of a stream whose last record is stamped at or after `ms`. Takes a seek for each halving of the
    /// stream's sequence numbers, at most.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database fails.
    pub async fn extent_at_time(
        &self,
        slot: Slot,
        stream_id: StreamId,
        ms: i64,
    ) -> Result<Option<Located>, IndexError> {
        let Some(open) = self.open_slot(slot).await? else { return Ok(None) };
        let Some(row) = open.known(stream_id).await?.and_then(Known::into_row) else { return Ok(None) };
        extent_at_time(&open, &row, ms).await
    }
}

/// The last extent of a stream, if it holds a record. It is asked for by its key, which filters tell of each table whether it is there; a
/// range of keys has a block of every table read.
async fn last_extent(open: &OpenSlot, stream_id: StreamId, from: SeqNum) -> Result<Option<Located>, IndexError> {
    let Some(row) = open.known(stream_id).await?.and_then(Known::into_row) else { return Ok(None) };
    let Some(key) = extent::ending(stream_id, row.tail.seq_num).filter(|_| from < row.tail.seq_num) else {
        return Ok(None);
    };
    let Some(value) = open.get(&key).await? else { return Ok(None) };
    let extent = open.row(Located::decode(&key, &value))?;
    Ok((extent.first <= from).then_some(extent))
}

/// As [`Index::extent_at_time`], of a stream whose row is at hand.
pub(super) async fn extent_at_time(open: &OpenSlot, row: &StreamRow, ms: i64) -> Result<Option<Located>, IndexError> {
    let (mut low, mut high) = (row.trim_point, row.tail.seq_num);
    // Stamps don't fall along a stream. All that ends below `low` is too old, and nothing from `high` on is needed.
    let mut found = None;
    while low < high {
        let middle = low.after(high.since(low) / 2);
        match open.extent_at(row.stream_id, middle).await? {
            Some(extent) if extent.last_ms < ms => low = extent.end,
            Some(extent) => {
                high = extent.first.min(middle);
                found = Some(extent);
            }
            None => high = middle,
        }
    }
    Ok(found)
}

/// The names of a bucket from every slot, merged.
struct Names<'a> {
    skip: usize,
    scans: Vec<(&'a OpenSlot, Rows<'a>)>,
    heads: BinaryHeap<Reverse<(Bytes, usize, Bytes)>>,
}

impl<'a> Names<'a> {
    async fn new(slots: &'a [Arc<OpenSlot>], bucket: BucketId, after: &str) -> Result<Self, IndexError> {
        let start = name::key(bucket, "");
        let mut first = name::key(bucket, after);
        if !after.is_empty() {
            first.push(0);
        }
        // No key of UTF-8 starts with this byte.
        let end = [&start[..], &[0xff]].concat();
        let scan = |open: &'a Arc<OpenSlot>| {
            let range = first.clone()..end.clone();
            async move {
                let mut rows = open.scan(range, DurabilityLevel::Memory).await?;
                let head = rows.next().await?;
                Ok::<_, IndexError>((&**open, rows, head))
            }
        };
        let scans: Vec<_> = slots.iter().map(scan).collect();
        let mut scans = Box::pin(stream::iter(scans).buffered(SCANS_AT_A_TIME));
        let mut names = Self { skip: start.len(), scans: Vec::new(), heads: BinaryHeap::new() };
        while let Some((open, rows, head)) = scans.try_next().await? {
            names.scans.push((open, rows));
            names.push(names.scans.len() - 1, head);
        }
        Ok(names)
    }

    fn push(&mut self, scan: usize, head: Option<(Bytes, Bytes)>) {
        let skip = self.skip;
        self.heads.extend(head.map(|(key, value)| Reverse((key.slice(skip..), scan, value))));
    }

    async fn next(&mut self) -> Result<Option<(&'a OpenSlot, StreamId)>, IndexError> {
        let Some(Reverse((_, scan, value))) = self.heads.pop() else { return Ok(None) };
        let head = self.scans[scan].1.next().await?;
        self.push(scan, head);
        let open = self.scans[scan].0;
        Ok(Some((open, open.row(name::decode(&value))?)))
    }
}
