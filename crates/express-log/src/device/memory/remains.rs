//! What a disk in memory holds after a crash, and what recovery makes of it.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use rustix::io::Errno;
use wire::ids::{Lsn, SegmentId};
use wire::segment::SegmentHeader;
use wire::superblock::COPY_BYTES;

use crate::core::choice::{Choice, choose};
use crate::entry::ReplayedEntry;
use crate::recovery::Verdict;
use crate::recovery::replay::{Ends, Found, Replay, Source};

/// What is left of a disk after a crash.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remains {
    /// The segments by id.
    pub(crate) segments: BTreeMap<SegmentId, Vec<u8>>,
    /// The file of the superblock.
    pub(crate) superblock: Vec<u8>,
    /// What stood in files that are gone.
    pub(super) graves: VecDeque<Vec<u8>>,
    /// The random number of each segment that was ever made.
    pub(crate) salts: BTreeMap<SegmentId, u64>,
}

/// The segments of remains, for a replay.
struct RemainsSource<'a> {
    segments: &'a BTreeMap<SegmentId, Vec<u8>>,
    /// Reads that come to their end before one fails.
    reads: u64,
}

impl Source for RemainsSource<'_> {
    fn read(&mut self, segment: SegmentId, offset: u32, bytes: usize) -> io::Result<&[u8]> {
        self.reads = self.reads.checked_sub(1).ok_or(Errno::IO)?;
        let file = self.segments.get(&segment).ok_or(io::ErrorKind::NotFound)?;
        let start = (offset as usize).min(file.len());
        Ok(&file[start..(start + bytes).min(file.len())])
    }
}

/// Remains that were read to their end.
#[derive(Debug, Clone)]
pub(crate) struct RecoveredRemains {
    pub(crate) ends: Ends,
}

impl RecoveredRemains {
    /// How the log was left.
    #[must_use]
    pub(crate) fn verdict(&self) -> &Verdict {
        &self.ends.verdict
    }

    /// The LSN after the last entry.
    #[must_use]
    pub(crate) fn end_lsn(&self) -> Lsn {
        self.ends.next_lsn
    }

    #[cfg(test)]
    /// Goes on without what is lost.
    #[must_use]
    pub(crate) fn accept_loss(mut self) -> Self {
        self.ends.accept_loss();
        self
    }
}

impl Remains {
    /// Reads the log, giving `sink` every entry in order.
    ///
    /// # Errors
    /// What is wrong with the superblock.
    pub(crate) fn recover(&self, sink: &mut dyn FnMut(ReplayedEntry<'_>)) -> io::Result<RecoveredRemains> {
        self.recover_within(u64::MAX, sink)
    }

    /// The same of a disk that fails after so many `reads`.
    ///
    /// # Errors
    /// What is wrong with the superblock, or that a read failed.
    pub(crate) fn recover_within(
        &self,
        reads: u64,
        sink: &mut dyn FnMut(ReplayedEntry<'_>),
    ) -> io::Result<RecoveredRemains> {
        let copies: Vec<&[u8]> = self.superblock.chunks(COPY_BYTES).collect();
        let superblock = match choose(&copies).map_err(io::Error::other)? {
            Choice::Fresh if !self.segments.is_empty() => return Err(io::Error::other("segments and no superblock")),
            Choice::Fresh => None,
            Choice::Found(superblock, crc) => Some((*superblock, crc)),
        };
        let found = |(&segment, bytes): (&SegmentId, &Vec<u8>)| Found {
            segment,
            file_bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            header: SegmentHeader::decode(bytes).ok().filter(|header| header.segment == segment),
        };
        let found: Vec<Found> = self.segments.iter().map(found).collect();
        let mut replay = Replay::new(superblock, &found, RemainsSource { segments: &self.segments, reads })?;
        for epoch in replay.epochs() {
            replay.replay_to(Some(epoch), sink)?;
        }
        Ok(RecoveredRemains { ends: replay.finish()? })
    }
}
