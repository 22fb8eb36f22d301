//! What a log asks of a disk and of the thread it runs on.

pub(crate) mod disk;
#[cfg(any(test, feature = "simulated"))]
pub(crate) mod memory;

use std::future::Future;
use std::io;
use std::time::Duration;

use wire::ids::SegmentId;
use wire::segment::SegmentHeader;
use wire::superblock::Superblock;

/// How a new segment comes to read as zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blankness {
    /// Zeroes are written: a commit is then one write and one flush.
    Written,
    /// The file system reserves the space and knows that nothing was written: a commit also waits for its journal, but no
    /// byte of the log is written twice, which large commits gain from.
    Reserved,
}

/// A disk with the files of one log, and the executor its tasks run on: a real one under glommio, or in tests one in memory
/// that fails as it is told.
///
/// A future that writes is always driven to its end: dropping one leaves open whether the bytes reach the disk.
pub trait Device: 'static {
    /// Memory that the disk can take from: aligned, and not cleared.
    type Buffer: AsRef<[u8]> + AsMut<[u8]>;
    /// A segment that is open for writing.
    type Segment: 'static;

    /// A buffer of `bytes`, which are whole blocks.
    fn buffer(&self, bytes: usize) -> Self::Buffer;

    /// Makes a segment that begins with `header` and reads as zeroes behind it; its bytes and its name are durable afterwards.
    fn create(&self, header: SegmentHeader, blank: Blankness) -> impl Future<Output = io::Result<Self::Segment>>;

    /// Writes the first `bytes` of `buffer` at `offset`, and answers how many were written.
    fn write(
        &self,
        segment: &Self::Segment,
        buffer: Self::Buffer,
        bytes: usize,
        offset: u32,
    ) -> impl Future<Output = io::Result<usize>>;

    /// Makes the writes that have ended durable; does nothing when each write was durable by itself.
    fn sync(&self, segment: &Self::Segment) -> impl Future<Output = io::Result<()>>;

    /// Writes the first `bytes` of `buffer` durably before it returns, blocking the thread.
    ///
    /// # Errors
    /// What the system says.
    fn write_now(&self, segment: &Self::Segment, buffer: &Self::Buffer, bytes: usize, offset: u32)
    -> io::Result<usize>;

    /// Lets go of a segment that no more frames go to.
    fn close(&self, segment: Self::Segment) -> impl Future<Output = ()>;

    /// Writes all copies of the superblock, one after the other, each durable before the next.
    fn write_superblock(&self, superblock: &Superblock) -> impl Future<Output = io::Result<()>>;

    /// Cuts the file of a segment to `bytes`.
    fn truncate(&self, segment: SegmentId, bytes: u32) -> impl Future<Output = io::Result<()>>;

    /// Removes the file of a segment; durably once [`sync_names`](Self::sync_names) or [`create`](Self::create) has ended.
    fn remove(&self, segment: SegmentId) -> impl Future<Output = io::Result<()>>;

    /// Makes durable which files there are.
    fn sync_names(&self) -> impl Future<Output = io::Result<()>>;

    /// A random number that no one foresees.
    ///
    /// # Errors
    /// What the system says.
    fn random(&self) -> io::Result<u64>;

    /// Milliseconds since the Unix epoch, as the system has it.
    fn unix_ms(&self) -> u64;

    /// Runs a task on this thread, to its end.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// The time since some fixed moment; never goes back.
    fn now(&self) -> Duration;

    /// Ends after `time`.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()>;
}
