//! What do shards say to each other?
//!
//! A request that belongs to another shard hops there with the whole frame; what that shard answers comes back on a lane
//! of its own, so that answers are never stuck behind requests. A connection may have [`HOPS_MAX`] hops under way; then
//! it is not read until the owner has worked some off, which bounds what waits in all lanes together.

use std::os::fd::OwnedFd;
use std::time::Duration;

use wire::handoff::ToShard;
use wire::ids::{BucketId, SegmentId, ShardId, StreamId};
use wire::message::{Counter, StreamInfo};
use wire::star_detail::StarDetail;

use crate::core::{ConnId, SettledTo};
use crate::feeding::Read;
use crate::mailbox::Lane;
use crate::watchdog::Pulse;

/// Hops of one connection that may be under way.
pub(crate) const HOPS_MAX: u32 = 4;
/// What control may have told a shard that it has not heard yet.
const CONTROL_MAX: usize = 4_096;
/// Pieces of head logs that were read again and that the shard has not taken.
const READS_MAX: usize = 16;

/// What one shard asks of another.
#[derive(Debug)]
pub(crate) enum Hop {
    /// Whole frames of a connection.
    Frames {
        /// Whose.
        conn: ConnId,
        /// When the first of them was received.
        received_at: Duration,
        /// One frame after the other.
        frames: Vec<u8>,
    },
    /// The connection is gone.
    Closed {
        /// Which.
        conn: ConnId,
    },
    /// Serve this connection from now on.
    Adopt(Box<Adopted>),
    /// Answer with your part of something.
    Gather {
        /// Who asks.
        from: ShardId,
        /// What the asker knows it by.
        ticket: u64,
        /// Of what.
        ask: Ask,
    },
    /// All that earlier tenures wrote into one of the head logs is settled up to here: nothing of it need be read here.
    OldSettled(SettledTo),
    /// A head log gives up what earlier tenures wrote into segments below this one.
    OldFreed {
        /// Which of the head logs of this run.
        log: u16,
        /// The first that is kept.
        first: SegmentId,
    },
}

/// A connection that is handed over.
#[derive(Debug)]
pub(crate) struct Adopted {
    /// Its socket.
    pub(crate) socket: OwnedFd,
    /// What was received and not served yet.
    pub(crate) received: Vec<u8>,
}

/// What every shard has a part of.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    /// The streams of a bucket after a key, at most so many.
    Streams {
        /// Which bucket.
        bucket: BucketId,
        /// After this key.
        after: String,
        /// At most so many.
        limit: usize,
    },
    /// What it counts.
    Counters,
}

/// A shard's part.
#[derive(Debug)]
pub(crate) enum Part {
    /// Streams in memory, in the order of their keys, and those that are deleted though the index may list them.
    Streams {
        /// What there is.
        streams: Vec<StreamInfo>,
        /// What there is no more.
        deleted: Vec<StreamId>,
    },
    /// What it counts, and what it tells of itself besides.
    Counters(Vec<Counter>, StarDetail),
}

/// What one shard answers another.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Whole frames for a connection, and how many of its hops are worked off.
    Frames {
        /// Whose.
        conn: ConnId,
        /// Who answers.
        from: ShardId,
        /// One frame after the other; may be none.
        frames: Vec<u8>,
        /// Hops worked off.
        done: u32,
    },
    /// The kernel has taken frames that came from you.
    Taken {
        /// Of which connection.
        conn: ConnId,
        /// Bytes of them.
        bytes: usize,
    },
    /// A part that was asked for.
    Part {
        /// What the asker knows it by.
        ticket: u64,
        /// The part.
        part: Part,
    },
}

/// What reaches one shard from outside of its thread.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) requests: Lane<Hop>,
    pub(crate) replies: Lane<Reply>,
    pub(crate) control: Lane<ToShard>,
    pub(crate) reads: Lane<Read>,
    pub(crate) pulse: Pulse,
}

impl Mailbox {
    /// The mailbox of one of `shards` shards.
    pub(crate) fn new(shards: usize) -> Self {
        // Beyond eight other shards they share the places of eight: the lanes are allocated whole.
        let others = shards.saturating_sub(1).clamp(1, 8);
        Self {
            requests: Lane::new(tuning::bounds::MAILBOX_REQUESTS_MAX * others),
            replies: Lane::new(tuning::bounds::MAILBOX_REQUESTS_MAX * others),
            control: Lane::new(CONTROL_MAX),
            reads: Lane::new(READS_MAX),
            pulse: Pulse::default(),
        }
    }
}
