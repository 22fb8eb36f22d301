//! Which streams does a bucket have, when some are in the memory of shards and all others only in the index?

use std::collections::{BTreeMap, HashSet};

use wire::handoff::{ReplyTo, ToControl};
use wire::ids::{BucketId, StreamId};
use wire::message::{StreamInfo, StreamPage};
use wire::names::BucketName;
use wire::stream_row::StreamRow;

/// A page of a bucket's streams that is being put together.
#[derive(Debug)]
pub(crate) struct Listing {
    bucket: BucketId,
    name: BucketName,
    after: String,
    limit: usize,
    in_memory: Vec<StreamInfo>,
    deleted: HashSet<StreamId>,
}

impl Listing {
    /// The first `limit` streams of a bucket at keys after `after`.
    pub(crate) fn new(bucket: BucketId, name: BucketName, after: String, limit: usize) -> Self {
        Self { bucket, name, after, limit, in_memory: Vec::new(), deleted: HashSet::new() }
    }

    /// Takes what a shard has in memory.
    pub(crate) fn add(&mut self, streams: Vec<StreamInfo>, deleted: Vec<StreamId>) {
        self.in_memory.extend(streams);
        self.deleted.extend(deleted);
    }

    /// What is asked of the index: one more than the page has room for tells whether there is a next one, and what is deleted
    /// may still be among it.
    pub(crate) fn ask(&self, reply_to: ReplyTo) -> ToControl {
        let limit = u32::try_from(self.limit + 1 + self.deleted.len()).unwrap_or(u32::MAX);
        ToControl::ListIndex { reply_to, bucket: self.bucket, after: self.after.clone(), limit }
    }

    /// The page, with what the index has.
    pub(crate) fn page(self, rows: Vec<StreamRow>) -> StreamPage {
        let mut found = BTreeMap::new();
        for row in rows.into_iter().filter(|row| !self.deleted.contains(&row.stream_id)) {
            found.insert(row.key.as_str().to_owned(), info_of(row, &self.name));
        }
        // What is in memory is newer.
        found.extend(self.in_memory.into_iter().map(|info| (info.key.as_str().to_owned(), info)));
        let is_more = found.len() > self.limit;
        let streams: Vec<StreamInfo> = found.into_values().take(self.limit).collect();
        let last = streams.last().filter(|_| is_more);
        let next = last.map(|stream| stream.key.as_str().as_bytes().to_vec()).unwrap_or_default();
        StreamPage { streams, next }
    }
}

/// What a client is told of a stream that only the index knows: all of it is settled.
fn info_of(row: StreamRow, bucket: &BucketName) -> StreamInfo {
    StreamInfo {
        stream_id: row.stream_id,
        bucket: bucket.clone(),
        key: row.key,
        config: row.config,
        tail: row.tail,
        trim_point: row.trim_point,
        settled: row.tail.seq_num,
        bytes: row.bytes,
        created_at_ms: row.created_at_ms,
    }
}

#[cfg(test)]
mod tests;
