//! How the segments of a log are read in order, wherever their bytes come from.

use std::io;

use wire::ids::{Epoch, LogId, Lsn, SegmentId};
use wire::log_frame::{BLOCK_BYTES, FrameHeader};
use wire::segment::{FRAMES_AT, SegmentHeader};
use wire::superblock::{EndedSegment, Superblock};

use super::Verdict;
use crate::core::release::successor;
use crate::core::scan::{Judged, Scan, Span};
use crate::entry::{EntryPos, ReplayedEntry};
use crate::planted::{Planted, is_planted};

/// A block, as a distance in a file.
pub(crate) const BLOCK: u32 = 4096;
pub(crate) const ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Where the bytes of segments come from.
pub(crate) trait Source {
    /// At least `bytes` from `offset` of `segment`, fewer only at the end of its file; both are whole blocks.
    fn read(&mut self, segment: SegmentId, offset: u32, bytes: usize) -> io::Result<&[u8]>;

    /// Tells that the frames of `spans` are going to be read, one after the other, so that the source can be ahead.
    fn expect(&mut self, _spans: impl Iterator<Item = Span>) {}
}

/// A segment file that is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) segment: SegmentId,
    pub(crate) file_bytes: u32,
    /// What its first block says, if it can be read.
    pub(crate) header: Option<SegmentHeader>,
}

/// A segment that belongs to the log, and what was found in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scanned {
    pub(crate) span: Span,
    pub(crate) file_bytes: u32,
    pub(crate) entries: u64,
    /// Where what was found in it begins.
    pub(crate) first_lsn: Option<Lsn>,
    pub(crate) end_offset: u32,
    pub(crate) end_lsn: Lsn,
    /// Whether the superblock knows its end.
    pub(crate) ended: bool,
}

impl Scanned {
    pub(crate) fn to_ended(self) -> EndedSegment {
        EndedSegment {
            segment: self.span.segment,
            salt: self.span.salt,
            epoch: self.span.epoch,
            end_lsn: self.end_lsn,
            end_offset: self.end_offset,
            loss_accepted: self.span.loss_accepted,
        }
    }
}

/// Where the log of a directory ends, and all that a writer must know to go on.
#[derive(Debug, Clone)]
pub(crate) struct Ends {
    pub(crate) superblock: Option<(Superblock, u32)>,
    pub(crate) segments: Vec<Scanned>,
    /// Segments that were freed and whose files are still there.
    pub(crate) leftovers: Vec<SegmentId>,
    /// The LSN of the next entry.
    pub(crate) next_lsn: Lsn,
    pub(crate) next_segment: SegmentId,
    pub(crate) verdict: Verdict,
    pub(crate) notes_lost: u64,
}

fn last_epoch(superblock: Option<&(Superblock, u32)>, segments: &[Scanned]) -> Epoch {
    let block = superblock.map_or(Epoch::ZERO, |(block, _)| block.epoch);
    segments.iter().map(|segment| segment.span.epoch).fold(block, Epoch::max)
}

impl Ends {
    /// The highest epoch that anything says.
    pub(crate) fn last_epoch(&self) -> Epoch {
        last_epoch(self.superblock.as_ref(), &self.segments)
    }

    /// The LSN of the first entry that is kept, or of the next one when there is none.
    pub(crate) fn first_lsn(&self) -> Lsn {
        match &self.superblock {
            Some((block, _)) if self.segments.iter().any(|segment| segment.entries > 0) => block.first_lsn,
            _ => self.next_lsn,
        }
    }

    /// The superblock that gives up all in the log; none when the present one does.
    pub(crate) fn emptied(&self) -> Option<Superblock> {
        let (before, crc) = self.superblock.as_ref()?;
        if before.clean && before.segments.is_empty() && self.segments.is_empty() {
            return None;
        }
        Some(Superblock {
            clean: true,
            epoch: self.last_epoch(),
            durable_lsn: Lsn::new(self.next_lsn.get() - 1),
            next_segment: self.next_segment,
            first_segment: self.next_segment,
            first_lsn: self.next_lsn,
            segments: Vec::new(),
            ..successor(before, *crc)
        })
    }

    /// Takes the damage as it is: what can be read stays, and the log goes on behind what is lost.
    pub(crate) fn accept_loss(&mut self) {
        let Verdict::Corrupt(damages) = &self.verdict else {
            return;
        };
        let mut end_lsn = self.next_lsn;
        for segment in self.segments.iter_mut().rev() {
            if damages.iter().any(|damage| damage.segment == segment.span.segment) {
                segment.span.loss_accepted = true;
                segment.end_lsn = end_lsn;
            }
            end_lsn = segment.first_lsn.unwrap_or(end_lsn);
        }
        self.verdict = Verdict::LossAccepted(damages.clone());
    }
}

/// Reads a log from its first segment to its end.
#[derive(Debug)]
pub(crate) struct Replay<S> {
    source: S,
    superblock: Option<(Superblock, u32)>,
    segments: Vec<Scanned>,
    leftovers: Vec<SegmentId>,
    scan: Scan,
    next_segment: SegmentId,
    /// How many segments have been read.
    read: usize,
}

impl<S: Source> Replay<S> {
    /// A replay of the `found` segments, which are in order of their ids.
    pub(crate) fn new(superblock: Option<(Superblock, u32)>, found: &[Found], mut source: S) -> io::Result<Self> {
        let block = superblock.as_ref().map(|(block, _)| block);
        let first = block.map_or(SegmentId::ZERO, |block| block.first_segment);
        let (mut segments, mut leftovers) = (Vec::new(), Vec::new());
        for found in found {
            if found.segment < first {
                leftovers.push(found.segment);
            } else if let Some(segment) = plan(block, found, &mut source)? {
                segments.push(segment);
            } else {
                leftovers.push(found.segment);
            }
        }
        let first_lsn = block.map_or(Lsn::new(1), |block| block.first_lsn);
        let durable_lsn = block.map_or(Lsn::ZERO, |block| block.durable_lsn);
        let after_found = found.last().map_or(SegmentId::new(1), |last| last.segment.next());
        let after_found = if is_planted(Planted::SegmentIdReused) { SegmentId::ZERO } else { after_found };
        let next_segment = block.map_or(after_found, |block| block.next_segment.max(after_found));
        let scan = Scan::new(first_lsn, durable_lsn);
        source.expect(segments.iter().map(|segment| segment.span));
        Ok(Self { source, superblock, segments, leftovers, scan, next_segment, read: 0 })
    }

    pub(crate) fn log_id(&self) -> Option<LogId> {
        self.superblock.as_ref().map(|(block, _)| block.log)
    }

    /// The epochs that have segments, ascending.
    pub(crate) fn epochs(&self) -> Vec<Epoch> {
        let mut epochs: Vec<_> = self.segments.iter().map(|segment| segment.span.epoch).collect();
        epochs.dedup();
        epochs
    }

    /// The highest epoch that anything says.
    pub(crate) fn last_epoch(&self) -> Epoch {
        last_epoch(self.superblock.as_ref(), &self.segments)
    }

    /// Gives `sink` the entries up to and with those of `epoch`, in order.
    pub(crate) fn replay_to(
        &mut self,
        epoch: Option<Epoch>,
        sink: &mut dyn FnMut(ReplayedEntry<'_>),
    ) -> io::Result<()> {
        while let Some(segment) = self.segments.get(self.read) {
            if epoch.is_some_and(|epoch| epoch < segment.span.epoch) {
                break;
            }
            let index = self.read;
            self.read += 1;
            if self.scan.has_ended() {
                self.discard(index);
            } else {
                self.replay_segment(index, sink)?;
            }
        }
        Ok(())
    }

    fn discard(&mut self, index: usize) {
        let segment = &mut self.segments[index];
        segment.end_offset = FRAMES_AT;
        segment.end_lsn = self.scan.next_lsn();
    }

    fn replay_segment(&mut self, index: usize, sink: &mut dyn FnMut(ReplayedEntry<'_>)) -> io::Result<()> {
        let span = self.segments[index].span;
        let mut end = (FRAMES_AT, self.scan.next_lsn());
        let mut at = FRAMES_AT;
        while at < span.limit && !self.scan.has_ended() {
            let block = self.source.read(span.segment, at, BLOCK_BYTES)?;
            let Some(header) = span.frame_at(at, block) else {
                let written = block.get(..BLOCK_BYTES).is_some_and(|block| block != ZEROES);
                self.scan.on_hole(&span, at, written);
                at += BLOCK;
                continue;
            };
            let next = at + u32::try_from(header.disk_bytes()).expect("a frame is bounded");
            if self.judge(index, at, &header)? {
                let frame = self.source.read(span.segment, at, header.disk_bytes())?;
                self.segments[index].entries += u64::from(header.entries);
                self.segments[index].first_lsn.get_or_insert(header.first_lsn);
                deliver(&span, at, &header, frame, sink);
                end = (next, header.end_lsn());
            }
            at = next;
        }
        let segment = &mut self.segments[index];
        if !segment.ended {
            (segment.end_offset, segment.end_lsn) = end;
        } else if !self.scan.has_ended() {
            self.scan.on_known_end(&span, segment.end_offset, segment.end_lsn);
        }
        Ok(())
    }

    /// Whether the frame at `at` is part of the log.
    fn judge(&mut self, index: usize, at: u32, header: &FrameHeader) -> io::Result<bool> {
        let span = self.segments[index].span;
        let frame = self.source.read(span.segment, at, header.disk_bytes())?;
        if !header.body_holds(frame) && !is_planted(Planted::BodySumIgnored) {
            self.scan.on_bad_body(&span, header);
            return Ok(false);
        }
        match self.scan.on_frame(&span, header) {
            Judged::Deliver => Ok(true),
            Judged::Stale => Ok(false),
            Judged::Unsure => {
                let durable = self.durable_after(index, at)?;
                Ok(self.scan.on_evidence(&span, header, durable))
            }
        }
    }

    /// The highest durable LSN that any frame from `at` of segment `index` on tells.
    fn durable_after(&mut self, index: usize, at: u32) -> io::Result<Lsn> {
        let mut durable = Lsn::ZERO;
        let mut start = at;
        for segment in &self.segments[index..] {
            let span = segment.span;
            let mut at = start;
            while at < span.limit {
                let block = self.source.read(span.segment, at, BLOCK_BYTES)?;
                let header = span.frame_at(at, block);
                durable = header.map_or(durable, |header| durable.max(header.durable_lsn));
                let step = header.map_or(BLOCK_BYTES, |header| header.disk_bytes());
                at += u32::try_from(step).expect("a frame is bounded");
            }
            start = FRAMES_AT;
        }
        Ok(durable)
    }

    /// Reads what was not asked for, and says where the log ends.
    pub(crate) fn finish(mut self) -> io::Result<Ends> {
        self.replay_to(None, &mut |_| {})?;
        let at =
            self.segments.last().map_or((self.next_segment, FRAMES_AT), |last| (last.span.segment, last.end_offset));
        self.scan.on_end(at);
        let verdict = self.verdict(at);
        Ok(Ends {
            superblock: self.superblock,
            segments: self.segments,
            leftovers: self.leftovers,
            next_lsn: self.scan.next_lsn(),
            next_segment: self.next_segment,
            verdict,
            notes_lost: self.scan.notes_lost(),
        })
    }

    fn verdict(&self, at: (SegmentId, u32)) -> Verdict {
        let Some((block, _)) = &self.superblock else {
            return Verdict::Fresh;
        };
        let damages: Vec<_> = self.scan.damages().filter(|damage| !damage.accepted).collect();
        if !damages.is_empty() {
            return Verdict::Corrupt(damages);
        }
        if block.clean && (self.scan.is_sealed() || self.segments.is_empty()) {
            return Verdict::Clean;
        }
        let last = self.segments.iter().rev().find(|segment| segment.entries > 0);
        let (segment, offset) = last.map_or(at, |last| (last.span.segment, last.end_offset));
        Verdict::Ended { segment, offset, torn: self.scan.is_torn() }
    }
}

/// What is to be scanned of a segment; none when it was never written to.
pub(crate) fn plan<S: Source>(
    block: Option<&Superblock>,
    found: &Found,
    source: &mut S,
) -> io::Result<Option<Scanned>> {
    let ended = block.and_then(|block| block.segments.iter().find(|ended| ended.segment == found.segment));
    if let Some(ended) = ended {
        let end = if is_planted(Planted::TailNotCut) { found.file_bytes } else { ended.end_offset };
        let limit = end.min(found.file_bytes);
        let EndedSegment { segment, salt, epoch, end_lsn, end_offset, loss_accepted } = *ended;
        let span = Span { segment, salt, epoch, limit, loss_accepted };
        let file_bytes = found.file_bytes;
        return Ok(Some(Scanned { span, file_bytes, entries: 0, first_lsn: None, end_offset, end_lsn, ended: true }));
    }
    let (salt, epoch) = match found.header {
        Some(header) => (header.salt, header.epoch),
        None => match probe(found, source)? {
            Some(header) => (header.salt, header.epoch),
            None => return Ok(None),
        },
    };
    let limit = found.file_bytes;
    let span = Span { segment: found.segment, salt, epoch, limit, loss_accepted: false };
    Ok(Some(Scanned {
        span,
        file_bytes: limit,
        entries: 0,
        first_lsn: None,
        end_offset: FRAMES_AT,
        end_lsn: Lsn::ZERO,
        ended: false,
    }))
}

/// The first frame header of a segment whose own header is damaged.
fn probe<S: Source>(found: &Found, source: &mut S) -> io::Result<Option<FrameHeader>> {
    let mut at = FRAMES_AT;
    while at < found.file_bytes {
        let header = FrameHeader::decode(source.read(found.segment, at, BLOCK_BYTES)?);
        match header {
            Ok(header) if header.segment == found.segment && header.offset == at => return Ok(Some(header)),
            _ => at += BLOCK,
        }
    }
    Ok(None)
}

/// Gives `sink` the entries of the frame at `at`, which holds.
pub(crate) fn deliver(
    span: &Span,
    at: u32,
    header: &FrameHeader,
    frame: &[u8],
    sink: &mut dyn FnMut(ReplayedEntry<'_>),
) {
    let mut lsn = header.first_lsn;
    for (offset, bytes) in header.entries(frame) {
        let in_frame = |number: usize| u32::try_from(number).expect("a frame is bounded");
        let pos = EntryPos { segment: span.segment, offset: at + in_frame(offset), bytes: in_frame(bytes.len()) };
        sink(ReplayedEntry { lsn, pos, bytes });
        lsn = lsn.next();
    }
}
