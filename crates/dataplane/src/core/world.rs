//! What the core needs from its surroundings.

use std::time::Duration;

use express_log::{CommitTimes, EntryPos, NoRoom, RoomClass};
use failpoints::Point;
use wire::handoff::{Full, Parcel, ToControl};
use wire::ids::{Lsn, SegmentId, ShardId};

use super::outbox::OutBuffer;
use super::shares::Work;

/// The two clocks, read once a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// Milliseconds since the Unix epoch; may jump.
    pub(crate) wall_ms: i64,
    /// Since the process started; never goes back.
    pub(crate) mono: Duration,
}

/// A connection: on which shard it is, its place there, and how often that place was taken before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnId {
    /// The shard that reads from it.
    pub(crate) shard: ShardId,
    /// Its place among that shard's connections.
    pub(crate) slot: u32,
    /// Tells it from earlier connections at the same place.
    pub(crate) generation: u32,
}

/// Whether an input was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Flow {
    /// It was; its answer has gone out or will.
    Done,
    /// A lane has no room or is behind for the moment, or something is looked up: nothing was done, offer it again.
    Blocked,
}

/// Bytes of a head log that a reader waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fetch {
    /// Comes back with the answer.
    pub(crate) ticket: u64,
    /// Which of the head logs of this run.
    pub(crate) log: u16,
    /// The segment.
    pub(crate) segment: SegmentId,
    /// The first byte.
    pub(crate) offset: u32,
    /// How many.
    pub(crate) bytes: u32,
}

/// A fetch that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("reading {bytes} bytes at {offset} of segment {segment} failed: {message}")]
pub(crate) struct FetchError {
    /// The segment.
    pub(crate) segment: SegmentId,
    /// The first byte.
    pub(crate) offset: u32,
    /// How many.
    pub(crate) bytes: u32,
    /// What the device said.
    pub(crate) message: String,
    /// There is no such segment any more.
    pub(crate) is_gone: bool,
}

/// What the core needs from its surroundings.
pub(crate) trait World {
    /// The clocks.
    fn now(&self) -> Now;

    /// When what is served now was received, by the clock that never goes back; that of the turn when it did not wait.
    #[inline]
    fn received_at(&self) -> Duration {
        self.now().mono
    }

    /// How long the commit took that made entries of the log durable last.
    #[inline]
    fn commit_times(&self) -> CommitTimes {
        CommitTimes::default()
    }

    /// Whether the log takes an entry of this size now.
    fn room(&self, entry_bytes: usize, class: RoomClass) -> Result<(), NoRoom>;

    /// Whether the disk of the store takes records now.
    fn store_room(&self) -> Result<(), NoRoom>;

    /// What the batch holds that is appended next: content in bytes, and the stamp of its first record.
    fn note_batch(&mut self, content_bytes: u32, first_ms: i64);

    /// Appends an entry for which there is room.
    fn append(&mut self, entry_bytes: usize, fill: impl FnOnce(&mut [u8])) -> (Lsn, EntryPos);

    /// The highest LSN with all at or below it durable.
    fn durable_lsn(&self) -> Lsn;

    /// The LSN of the last entry appended.
    fn assigned_lsn(&self) -> Lsn;

    /// What goes to a connection; `None` once it is gone.
    fn out(&mut self, conn: ConnId) -> Option<&mut OutBuffer>;

    /// Bytes for a connection that the kernel has not taken yet.
    fn backlog_bytes(&self, conn: ConnId) -> usize;

    /// A page of a connection, or a search for where one starts, is under way: until it is answered it counts as what the
    /// connection has not taken.
    fn page_begins(&mut self, conn: ConnId);

    /// It is answered, or given up.
    fn page_ends(&mut self, conn: ConnId);

    /// Starts a read, answered by [`super::Shard::on_fetched`].
    fn fetch(&mut self, fetch: Fetch);

    /// Tells control something.
    fn to_control(&mut self, message: ToControl) -> Result<(), Full>;

    /// Gives control entries of the Standard lane, up to this one; they come back when its queue has no room.
    fn hand_over(&mut self, shard: ShardId, upto: Lsn, parcel: Parcel) -> Result<(), Parcel>;

    /// A line is reached that a test may have chosen.
    fn reach(&mut self, _point: Point) {}

    /// Work of this kind begins, and what was done before ends; which that was.
    #[inline]
    fn works(&mut self, work: Work) -> Work {
        work
    }

    /// Whether work of this kind may go on, or is put off for others.
    fn may_go(&mut self, _work: Work) -> bool {
        true
    }

    /// Random bytes for an id.
    fn random(&mut self) -> [u8; 10];
}
