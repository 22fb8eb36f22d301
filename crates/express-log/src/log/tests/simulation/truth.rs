//! What must be there, and what the disk still says.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use wire::ids::{Lsn, SegmentId};
use wire::log_frame::{BLOCK_BYTES, FrameHeader};

use crate::device::memory::{RecoveredRemains, Remains};
use crate::recovery::Verdict;

/// All that was ever done to a log.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// What was appended, by LSN from 1 on; what a crash took is taken out.
    entries: Vec<Vec<u8>>,
    /// Every entry up to it was answered for, or was there after a crash.
    acked: u64,
    /// Every entry up to it may go.
    settled: u64,
    /// The first entry that the log keeps.
    first: u64,
    /// Entries that were reported as lost, with leave to go on without them.
    lost: BTreeSet<u64>,
    /// The same, as long as it is not known that the leave is durable.
    given_up: BTreeSet<u64>,
    /// The segment of each entry, as the log has told it.
    places: BTreeMap<u64, SegmentId>,
    /// Segments of which a loss was accepted: what goes wrong there later on is taken for a part of it.
    accepted: BTreeSet<SegmentId>,
}

/// What a read of a whole log has shown.
#[derive(Debug)]
pub(super) struct ReadBack {
    pub(super) recovered: RecoveredRemains,
    /// The entries that are there.
    pub(super) lsns: Vec<u64>,
    /// Acked entries that are gone, and of which the disk no more says that they were durable.
    pub(super) undecidable: usize,
}

impl Truth {
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// A life has appended these, and was told that all up to `durable` is.
    pub(super) fn on_life(&mut self, appended: Vec<Vec<u8>>, durable: Lsn) {
        self.entries.extend(appended);
        self.acked = self.acked.max(durable.get());
        assert!(self.acked <= self.entries.len() as u64, "nothing is durable that was not appended");
    }

    /// An entry was appended to this segment.
    pub(super) fn on_place(&mut self, lsn: Lsn, segment: SegmentId) {
        self.places.insert(lsn.get(), segment);
    }

    /// The log is open: a leave that was given is durable.
    pub(super) fn on_open(&mut self) {
        self.lost.append(&mut self.given_up);
    }

    /// The log goes on without what this reports.
    pub(super) fn on_loss_accepted(&mut self, verdict: &Verdict) {
        if let Verdict::Corrupt(damages) = verdict {
            self.accepted.extend(damages.iter().map(|damage| damage.segment));
        }
    }

    /// All up to `settled` may go.
    pub(super) fn on_settled(&mut self, settled: Lsn) {
        self.settled = self.settled.max(settled.get());
    }

    pub(super) fn settled(&self) -> Lsn {
        Lsn::new(self.settled)
    }

    /// Reads all that is there, and checks it. `is_honest` says that the disk has kept what was synced.
    pub(super) fn read_back(&mut self, remains: &Remains, is_honest: bool) -> ReadBack {
        let mut lsns: Vec<u64> = Vec::new();
        let recovered = remains.recover(&mut |entry| {
            let lsn = entry.lsn.get();
            let appended = self.entries.get(usize::try_from(lsn).expect("an index") - 1);
            assert!(appended.is_some_and(|bytes| bytes == entry.bytes), "entry {lsn} is not what was appended there");
            assert!(!self.lost.contains(&lsn), "entry {lsn} was lost");
            let file = &remains.segments[&entry.pos.segment];
            let at = entry.pos.offset as usize;
            assert_eq!(
                &file[at..at + entry.pos.bytes as usize],
                entry.bytes,
                "entry {lsn} lies where it is said to lie"
            );
            assert!(lsns.last().is_none_or(|last| *last < lsn), "entry {lsn} comes in order");
            lsns.push(lsn);
        });
        let recovered = recovered.expect("the superblock holds");
        let missing = self.missing(&recovered, &lsns);
        let reported = reported(recovered.verdict());
        if is_honest {
            assert!(missing.is_empty(), "acked entries {missing:?} are gone: {:?}", recovered.verdict());
            assert!(reported.is_empty(), "a crash is no corruption: {reported:?}");
        }
        let undecidable = self.check_report(&missing, &reported, &lsns, told_durable(remains, &recovered));
        let end = recovered.end_lsn().get();
        let not_acked = self.acked + 1..end;
        let is_whole = not_acked.clone().all(|lsn| lsns.binary_search(&lsn).is_ok());
        assert!(is_whole || !is_honest, "{not_acked:?} has holes: {lsns:?}");
        // What was reported before and is not again was given up durably.
        let again: BTreeSet<u64> = reported.into_iter().flatten().filter(|lsn| self.given_up.contains(lsn)).collect();
        let before = std::mem::replace(&mut self.given_up, again);
        self.lost.extend(before.difference(&self.given_up));
        self.given_up
            .extend((self.first..end).filter(|lsn| lsns.binary_search(lsn).is_err() && !self.lost.contains(lsn)));
        self.lost.split_off(&end);
        self.entries.truncate(usize::try_from(end).expect("a length") - 1);
        (self.acked, self.settled) = (end - 1, self.settled.min(end - 1));
        ReadBack { recovered, lsns, undecidable }
    }

    /// The acked entries that should be there and are not.
    fn missing(&mut self, recovered: &RecoveredRemains, lsns: &[u64]) -> Vec<u64> {
        self.first = recovered.ends.superblock.as_ref().map_or(1, |(block, _)| block.first_lsn.get());
        let is_lost = |lsn: &u64| self.lost.contains(lsn) || self.given_up.contains(lsn);
        let wanted = (self.settled + 1..self.first).find(|lsn| !is_lost(lsn));
        assert_eq!(
            wanted, None,
            "{} is the first entry that is kept, and only {} are settled",
            self.first, self.settled
        );
        let is_missing = |lsn: &u64| lsns.binary_search(lsn).is_err() && !is_lost(lsn);
        (self.first..=self.acked).filter(is_missing).collect()
    }

    fn is_accepted(&self, lsn: u64) -> bool {
        self.places.get(&lsn).is_some_and(|segment| self.accepted.contains(segment))
    }

    /// Answers how many acked entries are gone that nothing on the disk speaks of.
    fn check_report(&self, missing: &[u64], reported: &[Range<u64>], lsns: &[u64], told: u64) -> usize {
        for range in reported {
            assert!(
                !range.is_empty() && range.end <= self.acked + 1,
                "{range:?} is reported, {} are acked",
                self.acked
            );
            let is_news = |lsn: u64| missing.contains(&lsn) || self.given_up.contains(&lsn);
            assert!(range.clone().any(is_news), "{range:?} is reported, {missing:?} are gone");
            assert!(range.clone().all(|lsn| lsns.binary_search(&lsn).is_err()), "what is in {range:?} is there");
        }
        let is_reported = |lsn: &u64| reported.iter().any(|range| range.contains(lsn));
        let silent: Vec<u64> =
            missing.iter().copied().filter(|lsn| !is_reported(lsn) && !self.is_accepted(*lsn)).collect();
        let known = silent.iter().find(|lsn| **lsn <= told);
        assert_eq!(known, None, "gone without a word, though the disk says that all up to {told} was durable");
        silent.len()
    }
}

fn reported(verdict: &Verdict) -> Vec<Range<u64>> {
    match verdict {
        Verdict::Corrupt(damages) => {
            damages.iter().map(|damage| damage.lsns.start.get()..damage.lsns.end.get()).collect()
        }
        _ => Vec::new(),
    }
}

/// The highest LSN of which anything that is left says that it was durable.
fn told_durable(remains: &Remains, recovered: &RecoveredRemains) -> u64 {
    let Some((block, _)) = &recovered.ends.superblock else { return 0 };
    let mut told = block.durable_lsn;
    for (&segment, bytes) in remains.segments.range(block.first_segment..) {
        for (frame, at) in bytes.chunks(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES)) {
            if let Ok(header) = FrameHeader::decode(frame)
                && (header.segment, header.salt, header.offset) == (segment, remains.salts[&segment], at)
            {
                told = told.max(header.durable_lsn);
            }
        }
    }
    told.get()
}
