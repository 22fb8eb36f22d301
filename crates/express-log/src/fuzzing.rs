//! What must hold of recovery, whatever became of the files of a log?
//!
//! An input is a script. Its first byte says which of a few [logs](lives), as the log itself left them through lives that ended in
//! crashes; behind it stand [damages](damage), each of eight bytes.

mod damage;
mod files;
mod lives;

use std::io;

use wire::fuzzing::Target;
use wire::ids::Lsn;
use wire::log_frame::{BLOCK_BYTES, FrameHeader};
use wire::segment::{FRAMES_AT, SegmentHeader};
use wire::superblock::COPY_BYTES;

use self::lives::Lived;
use crate::core::choice::{Choice, choose};
use crate::device::memory::Remains;
use crate::recovery::Verdict;

/// The targets of this crate.
pub const TARGETS: &[Target] =
    &[Target { name: "head_log", check: head_log }, Target { name: "head_log_files", check: head_log_files }];

/// A log that was damaged, read again.
///
/// Each entry that recovery gives is the one that was appended under its LSN, whole. When it says that nothing is missing, then nothing
/// is that anything left on the disk calls durable, and there is no gap.
///
/// # Panics
/// When that is not so.
pub fn head_log(script: &[u8]) {
    let Some(damaged) = Damaged::by(script) else { return };
    if let Ok(found) = Found::in_memory(&damaged.remains) {
        damaged.check(&found);
    }
}

/// The same of a log in a directory, read as a start reads it: it finds what is found in memory, and so does whoever reads it again to
/// settle it.
///
/// # Panics
/// When that is not so.
pub fn head_log_files(script: &[u8]) {
    let Some(damaged) = Damaged::by(script) else { return };
    let in_memory = Found::in_memory(&damaged.remains);
    match files::recover(&damaged) {
        Ok(found) => {
            damaged.check(&found);
            if let Ok(in_memory) = in_memory {
                assert_eq!((found.entries, found.end_lsn), (in_memory.entries, in_memory.end_lsn));
                assert_eq!(is_corrupt(&found.verdict), is_corrupt(&in_memory.verdict));
            }
        }
        Err(error) => assert!(in_memory.is_err() || damaged.is_forged, "only the directory is refused: {error}"),
    }
}

/// Number and bytes of entries, in order.
type Entries = Vec<(Lsn, Vec<u8>)>;

fn is_corrupt(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Corrupt(_))
}

/// A log to which something was done.
struct Damaged {
    lived: &'static Lived,
    remains: Remains,
    /// Whether nothing was done.
    is_whole: bool,
    /// Whether sums were made to hold for what no log wrote: then all that is asked for is an answer.
    is_forged: bool,
}

/// What recovery finds.
struct Found {
    entries: Entries,
    end_lsn: Lsn,
    verdict: Verdict,
}

impl Found {
    fn in_memory(remains: &Remains) -> io::Result<Self> {
        let mut entries = Vec::new();
        let recovered = remains.recover(&mut |entry| {
            let at = entry.pos.offset as usize;
            let lies = remains.segments[&entry.pos.segment].get(at..at + entry.pos.bytes as usize);
            assert_eq!(lies, Some(entry.bytes), "an entry lies where it is said to");
            entries.push((entry.lsn, entry.bytes.to_vec()));
        })?;
        Ok(Self { entries, end_lsn: recovered.end_lsn(), verdict: recovered.verdict().clone() })
    }
}

impl Damaged {
    fn by(script: &[u8]) -> Option<Self> {
        let (which, damages) = script.split_first()?;
        let lived = lives::log(*which);
        let mut remains = lived.remains.clone();
        let (damages, _) = damages.as_chunks::<{ damage::BYTES }>();
        let mut is_forged = false;
        for damage in damages.iter().take(damage::MAX) {
            is_forged |= damage::inflict(&mut remains, *damage);
        }
        Some(Self { lived, remains, is_whole: damages.is_empty(), is_forged })
    }

    fn check(&self, found: &Found) {
        if self.is_forged {
            return;
        }
        self.check_entries(&found.entries);
        let lsns: Vec<u64> = found.entries.iter().map(|(lsn, _)| lsn.get()).collect();
        assert!(lsns.is_sorted_by(|left, right| left < right), "entries come in order: {lsns:?}");
        assert!(lsns.last().is_none_or(|last| *last < found.end_lsn.get()));
        if is_corrupt(&found.verdict) {
            return;
        }
        let first = lsns.first().copied().unwrap_or_default();
        assert!(lsns.iter().copied().eq(first..first + lsns.len() as u64), "none is missing in between: {lsns:?}");
        let told = told(&self.remains);
        assert!(found.end_lsn > told, "{told} was durable and the log ends before {}", found.end_lsn);
    }

    fn check_entries(&self, entries: &Entries) {
        let Lived { kept, appended, .. } = self.lived;
        for (lsn, bytes) in entries {
            let is_known = match kept.get(lsn) {
                Some(kept) => kept == bytes,
                None => appended.get(lsn).is_some_and(|all| all.contains(bytes)),
            };
            assert!(is_known, "entry {lsn} was never written so: {} bytes", bytes.len());
        }
        assert!(!self.is_whole || entries.len() == kept.len(), "a log that nothing was done to is whole");
    }
}

/// The highest LSN that anything in `remains` calls durable, looked for as simply as can be.
fn told(remains: &Remains) -> Lsn {
    let copies: Vec<&[u8]> = remains.superblock.chunks(COPY_BYTES).collect();
    let Ok(Choice::Found(superblock, _)) = choose(&copies) else { return Lsn::ZERO };
    let mut told = superblock.durable_lsn;
    for (segment, bytes) in remains.segments.range(superblock.first_segment..) {
        let ended = superblock.segments.iter().find(|ended| ended.segment == *segment);
        let header = SegmentHeader::decode(bytes).ok().filter(|header| header.segment == *segment);
        let named =
            ended.map(|ended| (ended.salt, ended.epoch)).or_else(|| header.map(|header| (header.salt, header.epoch)));
        let end = ended.map_or(bytes.len(), |ended| bytes.len().min(ended.end_offset as usize));
        let blocks = bytes.chunks(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES));
        for (block, at) in blocks.skip_while(|(_, at)| *at < FRAMES_AT as usize) {
            let Ok(header) = FrameHeader::decode(block) else { continue };
            let is_here = (header.segment, header.offset as usize) == (*segment, at) && at + header.disk_bytes() <= end;
            if is_here && named == Some((header.salt, header.epoch)) {
                told = told.max(header.durable_lsn);
            }
        }
    }
    told
}

#[cfg(test)]
mod tests;
