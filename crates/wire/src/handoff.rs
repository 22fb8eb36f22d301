//! The plain values that shards and control exchange, over bounded queues that the binary creates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::bucket::{Bucket, BucketPatch, BucketSpec};
use crate::ids::{BucketId, LogId, Lsn, Rev, SeqNum, ShardId, StreamId};
use crate::names::{BucketName, Key};
use crate::refusal::Refusal;
use crate::slot::Slot;
use crate::stream_row::StreamRow;

/// A queue that has no room now; the sender answers its client with a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct Full;

/// A bucket verb, as a client asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketVerb {
    /// Create.
    Create(BucketSpec),
    /// Create or join.
    Ensure(BucketSpec),
    /// Change.
    Update(BucketName, BucketPatch),
    /// Look.
    Get(BucketName),
    /// Delete when empty.
    Delete(BucketName),
    /// List by name.
    List {
        /// Starts after this name; empty from the first.
        after: String,
        /// Most rows; 0 is the default.
        limit: u32,
    },
}

/// The answer of yes to a bucket verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketAnswer {
    /// The bucket.
    Bucket(Arc<Bucket>),
    /// Deleted.
    Deleted,
    /// A page, and where the next one starts after; empty at the end.
    Page(Vec<Arc<Bucket>>, String),
}

/// Where an answer goes: a shard, and the number under which it waits there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplyTo {
    /// The shard.
    pub shard: ShardId,
    /// What the shard knows the request by.
    pub ticket: u64,
}

/// One entry of a parcel, as far as its shard knows it; the rest stands in the entry's own head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParcelItem {
    /// The slot of its stream.
    pub slot: Slot,
    /// Its stream.
    pub stream_id: StreamId,
    /// Its bytes, without a length before them.
    pub bytes: u32,
    /// Content of its records, in bytes; 0 for a verb.
    pub content_bytes: u32,
    /// The stamp of its first record; 0 for a verb.
    pub first_ms: i64,
}

/// Entries in the order of their lane, one behind the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parcel {
    /// Each entry.
    pub items: Vec<ParcelItem>,
    /// The bytes of all of them.
    pub bytes: Vec<u8>,
}

/// Which row of the index is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadKey {
    /// The stream at a name.
    Name {
        /// The bucket.
        bucket: BucketId,
        /// The key.
        key: Key,
    },
    /// A stream that is known.
    Stream {
        /// Its slot.
        slot: Slot,
        /// The stream.
        stream_id: StreamId,
    },
}

/// Where a read of settled records starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryFrom {
    /// In the extent that holds this record, or the first one after it.
    SeqNum(SeqNum),
    /// In the first extent whose last record is stamped at or after this.
    Timestamp(i64),
}

/// Settled entries of one stream, as they lie in an object: each behind its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistorySpan {
    /// The entries, batches and verbs, in order; empty when nothing is settled from there on.
    pub bytes: Bytes,
    /// The first record in them.
    pub first: SeqNum,
    /// One past the last record in them.
    pub end: SeqNum,
}

/// How far head logs are settled, by log: every entry at or below is in the store and in the index.
pub type SettledLogs = BTreeMap<LogId, Lsn>;

/// What a shard asks or tells control.
#[derive(Debug)]
pub enum ToControl {
    /// A client's bucket verb.
    Bucket {
        /// Where the answer goes.
        reply_to: ReplyTo,
        /// What is asked.
        verb: BucketVerb,
    },
    /// The shard serves by the table of this version.
    TableConfirmed {
        /// Which shard.
        shard: ShardId,
        /// The version.
        version: u64,
    },
    /// The shard makes no more streams in a bucket; once both its lanes are in the index up to here, the index counts right.
    Frozen {
        /// Which shard.
        shard: ShardId,
        /// Which bucket.
        bucket: BucketId,
        /// The last entry of its Standard lane.
        standard: Lsn,
        /// Its head log and the last entry there.
        express: (LogId, Lsn),
    },
    /// Entries of the shard's Standard lane: commit them. Answered by [`ToShard::Committed`], later [`ToShard::Applied`].
    Standard {
        /// Which shard.
        shard: ShardId,
        /// The number of the last one in its lane; they are numbered without a gap.
        upto: Lsn,
        /// The entries.
        parcel: Parcel,
    },
    /// Entries that are durable in a head log: take them over. Answered by [`ToShard::Settled`].
    Settle {
        /// Which shard.
        shard: ShardId,
        /// Which head log.
        log: LogId,
        /// The first one's LSN; where the parcel before ended.
        from: Lsn,
        /// One past the last one's LSN.
        to: Lsn,
        /// The entries.
        parcel: Parcel,
    },
    /// Commit what was sent without waiting for more: somebody waits for it to be settled.
    Flush,
    /// Look a stream up; answered by [`ToShard::Loaded`].
    Load {
        /// Where the answer goes.
        reply_to: ReplyTo,
        /// Which.
        key: LoadKey,
    },
    /// Read settled records; answered by [`ToShard::History`].
    ReadHistory {
        /// Where the answer goes.
        reply_to: ReplyTo,
        /// The slot of the stream.
        slot: Slot,
        /// The stream.
        stream_id: StreamId,
        /// Where to start.
        from: HistoryFrom,
        /// About how many bytes to bring; one extent in any case.
        bytes_max: u32,
    },
    /// List streams that the index knows; answered by [`ToShard::Listed`].
    ListIndex {
        /// Where the answer goes.
        reply_to: ReplyTo,
        /// In which bucket.
        bucket: BucketId,
        /// Starts after this key; empty from the first.
        after: String,
        /// Most rows.
        limit: u32,
    },
}

/// What control asks or tells a shard.
#[derive(Debug, Clone)]
pub enum ToShard {
    /// Serve by this table; answered by [`ToControl::TableConfirmed`].
    Buckets(Arc<BucketTable>),
    /// The answer to a bucket verb.
    BucketReply {
        /// What the shard knows the request by.
        ticket: u64,
        /// The answer.
        result: Result<BucketAnswer, Refusal>,
    },
    /// Make no more streams in this bucket; answered by [`ToControl::Frozen`]. The next table tells how it ended.
    Freeze {
        /// Which bucket.
        bucket: BucketId,
    },
    /// The star stops: finish what is in flight, refuse what is new, then stop.
    Drain,
    /// The Standard lane is committed up to here.
    Committed {
        /// The last entry.
        standard: Lsn,
    },
    /// The Standard lane is in the index up to here.
    Applied {
        /// The last entry.
        standard: Lsn,
    },
    /// A head log is in the store and in the index up to here.
    Settled {
        /// Which log.
        log: LogId,
        /// The last entry.
        upto: Lsn,
    },
    /// Whether the store and its index take chunks now; while one of them doesn't, the Standard lane takes no more.
    Stall {
        /// What is wrong; `None` when it takes them again.
        why: Option<Arc<str>>,
    },
    /// A row of the index; `None` when there is none.
    Loaded {
        /// What the shard knows the request by.
        ticket: u64,
        /// The row.
        result: Result<Option<Box<StreamRow>>, Refusal>,
    },
    /// Settled records.
    History {
        /// What the shard knows the request by.
        ticket: u64,
        /// The records.
        result: Result<HistorySpan, Refusal>,
    },
    /// Streams that the index knows, by key.
    Listed {
        /// What the shard knows the request by.
        ticket: u64,
        /// The rows.
        result: Result<Vec<StreamRow>, Refusal>,
    },
    /// Retention: the stream, if it still is this one, keeps nothing below this.
    TrimTo {
        /// The bucket.
        bucket: BucketId,
        /// The key.
        key: Key,
        /// The stream.
        stream_id: StreamId,
        /// The first record that stays.
        to: SeqNum,
    },
    /// Retention: the stream has been empty for long enough; if nothing happened to it since, it goes.
    DeleteEmpty {
        /// The bucket.
        bucket: BucketId,
        /// The key.
        key: Key,
        /// The stream.
        stream_id: StreamId,
        /// Its last entry when it was looked at.
        rev: Rev,
    },
    /// What control counts, for whoever asks the star.
    Counters(Arc<Vec<(String, u64)>>),
}

/// Every bucket there is, of one version; replaced as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BucketTable {
    /// Counts the tables of this run; a shard ignores an older one.
    pub version: u64,
    /// By name; a bucket that is being deleted is in it, frozen.
    pub buckets: BTreeMap<BucketName, Arc<Bucket>>,
    /// Buckets made in this run: the index knew none of their streams when it began.
    pub fresh: BTreeSet<BucketId>,
}
