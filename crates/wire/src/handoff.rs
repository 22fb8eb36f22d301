//! The plain values that shards and control exchange, over bounded queues that the binary creates.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bucket::{Bucket, BucketPatch, BucketSpec};
use crate::ids::{BucketId, ShardId};
use crate::names::BucketName;
use crate::refusal::Refusal;

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
    /// The shard makes no more streams in a bucket, and has this many.
    Frozen {
        /// Which shard.
        shard: ShardId,
        /// Which bucket.
        bucket: BucketId,
        /// Streams that live there, those being made included.
        streams: u64,
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
    /// Make no more streams in this bucket and count those there are; answered by [`ToControl::Frozen`]. The next table tells how it ended.
    Freeze {
        /// Which bucket.
        bucket: BucketId,
    },
    /// The star stops: finish what is in flight, refuse what is new, then stop.
    Drain,
}

/// Every bucket there is, of one version; replaced as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BucketTable {
    /// Counts the tables of this run; a shard ignores an older one.
    pub version: u64,
    /// By name; a bucket that is being deleted is in it, frozen.
    pub buckets: BTreeMap<BucketName, Arc<Bucket>>,
}
