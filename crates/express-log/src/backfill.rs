//! How the entries of a log are read again to settle them, while its shard writes it or long after.
//!
//! Blocking reads on any thread, through a window that moves forward. They go past the page cache where the file system
//! can: pages that a buffered read leaves behind take memory from what is read often, and each direct write of the shard
//! behind them would have to look for them and drop them before its commit is answered.
//!
//! Only what is durable is looked at, so no frame is met that is still being written: one that doesn't check is damage.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use wire::ids::{LogId, Lsn, SegmentId};
use wire::log_frame::{BLOCK_BYTES, FrameHeader};
use wire::segment::{FRAMES_AT, SegmentHeader};
use wire::superblock::Superblock;

use crate::core::scan::Span;
use crate::entry::ReplayedEntry;
use crate::names::segment_name;
use crate::recovery::RecoveryError;
use crate::recovery::files::{list, read_superblock, whole_blocks};
use crate::recovery::read_ahead::Window;
use crate::recovery::replay::{BLOCK, Found, Source, ZEROES, deliver, plan};

/// Bytes read at once where reading begins; doubled with each read that goes on behind the one before.
const READ_BYTES_MIN: usize = 64 << 10;
/// The most that is read at once, unless one frame is longer.
const READ_BYTES_MAX: usize = 1 << 20;

/// Why entries of a log can't be read again.
#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    /// An entry that was durable is not there, or its frame does not check.
    #[error("entry {lsn} was durable, but at {offset} of segment {segment} stands no frame that holds it")]
    Damaged {
        /// The segment.
        segment: SegmentId,
        /// Where in its file the frame is missing or broken.
        offset: u32,
        /// The first entry that can't be read.
        lsn: Lsn,
    },
    /// The entry lies below what the log keeps.
    #[error("entry {lsn} was freed: the log begins with {first_lsn}")]
    Freed {
        /// The entry.
        lsn: Lsn,
        /// The first one that is kept.
        first_lsn: Lsn,
    },
    /// The system refused an operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// On what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Reads the entries of one log again, in order; remembers where it stands.
#[derive(Debug)]
pub struct Backfill {
    dir: PathBuf,
    /// Knows where the segments of earlier epochs end.
    superblock: Superblock,
    source: Forward,
    stand: Option<Stand>,
}

/// Where the next entry is looked for.
#[derive(Debug, Clone, Copy)]
struct Stand {
    span: Span,
    /// Where the frame of the next entry starts, or one before it.
    at: u32,
    next: Lsn,
}

/// What a call may still give.
struct Budget {
    durable: Lsn,
    bytes: usize,
    /// Whether an entry was given.
    begun: bool,
    /// Whether the next entry is too long.
    full: bool,
}

impl Budget {
    fn take(&mut self, entry_bytes: usize) -> bool {
        self.full |= self.begun && entry_bytes > self.bytes;
        if !self.full {
            self.begun = true;
            self.bytes = self.bytes.saturating_sub(entry_bytes);
        }
        !self.full
    }
}

/// Blocks without a frame, since the last one that held.
#[derive(Debug, Default)]
struct Gap {
    from: Option<(SegmentId, u32)>,
    /// The first with other bytes than zeroes.
    written: Option<(SegmentId, u32)>,
    /// Whether an operator knows of it.
    accepted: bool,
}

impl Gap {
    fn on_block(&mut self, stand: &Stand, block: &[u8]) {
        let here = (stand.span.segment, stand.at);
        self.from.get_or_insert(here);
        if block.get(..BLOCK_BYTES).is_some_and(|block| block != ZEROES) {
            self.written.get_or_insert(here);
        }
    }

    /// A header holds whose body does not: a part of the gap if that is accepted.
    fn on_bad_body(&mut self, stand: &Stand) -> Result<(), BackfillError> {
        let here = (stand.span.segment, stand.at);
        self.from.get_or_insert(here);
        self.written.get_or_insert(here);
        if self.accepted { Ok(()) } else { Err(self.damage(stand)) }
    }

    /// The entries up to `next` are not there: answers it if that is accepted.
    fn skip_to(&self, next: Lsn, stand: &Stand) -> Result<Lsn, BackfillError> {
        if self.accepted { Ok(next) } else { Err(self.damage(stand)) }
    }

    /// The gap, or a frame at this place, hides the next entry.
    fn damage(&self, stand: &Stand) -> BackfillError {
        let (segment, offset) = self.written.or(self.from).unwrap_or((stand.span.segment, stand.at));
        BackfillError::Damaged { segment, offset, lsn: stand.next }
    }
}

impl Backfill {
    /// Reads `log` in `dir`, which its shard has opened before; for one that nobody writes, see
    /// [`Recovered::backfill`](crate::Recovered::backfill).
    ///
    /// # Errors
    /// [`RecoveryError`] when the directory holds no superblock that can be used, or another log.
    pub fn open(dir: &Path, log: LogId) -> Result<Self, RecoveryError> {
        let Some((superblock, _)) = read_superblock(dir)? else {
            let segments = list(dir).map_err(|source| RecoveryError::Io { path: dir.to_owned(), source })?.len();
            return Err(RecoveryError::NoSuperblock { path: dir.to_owned(), segments });
        };
        if superblock.log != log {
            return Err(RecoveryError::Foreign { path: dir.to_owned(), found: superblock.log, expected: log });
        }
        Ok(Self::new(dir.to_owned(), superblock))
    }

    /// Reads the log in `dir`, of which `superblock` lists the segments that have ended.
    pub(crate) fn new(dir: PathBuf, superblock: Superblock) -> Self {
        let source = Forward { dir: dir.clone(), window: Window::default(), bytes: READ_BYTES_MIN };
        Self { dir, superblock, source, stand: None }
    }

    /// Gives `sink` the entries from `from` on in order, up to `durable`, which are durable, and answers the LSN to go on
    /// with.
    ///
    /// Ends before an entry with which there were more than `bytes_max` bytes of them, but gives at least one. Entries
    /// that an operator has given up are skipped. A call that goes on where the one before has ended reads on from
    /// there; any other first looks for the segment. Segments below `from` may be freed meanwhile.
    ///
    /// # Errors
    /// [`BackfillError`]; entries before the one it names were given.
    pub fn read(
        &mut self,
        from: Lsn,
        durable: Lsn,
        bytes_max: usize,
        sink: &mut dyn FnMut(ReplayedEntry<'_>),
    ) -> Result<Lsn, BackfillError> {
        if from > durable {
            return Ok(from);
        }
        // What was read ahead may have been written since.
        self.source.forget();
        let mut stand = match self.stand.take() {
            Some(stand) if stand.next == from => stand,
            _ => self.find(from)?,
        };
        let mut budget = Budget { durable, bytes: bytes_max, begun: false, full: false };
        while stand.next <= durable && !budget.full {
            let Some(header) = self.seek(&mut stand, durable)? else {
                break;
            };
            self.give(&mut stand, &header, &mut budget, sink)?;
        }
        self.stand = Some(stand);
        Ok(stand.next)
    }

    /// Moves to the frame that holds the next entry, and checks it; none when what is left up to `durable` is lost.
    fn seek(&mut self, stand: &mut Stand, durable: Lsn) -> Result<Option<FrameHeader>, BackfillError> {
        let mut gap = Gap::default();
        while stand.next <= durable {
            gap.accepted |= stand.span.loss_accepted;
            if stand.at >= stand.span.limit {
                match self.span_after(stand.span.segment)? {
                    Some(next) => (stand.span, stand.at) = (next, FRAMES_AT),
                    None => stand.next = gap.skip_to(durable.next(), stand)?,
                }
                continue;
            }
            let Some(block) = self.read_at(stand, BLOCK_BYTES)? else {
                *stand = self.find(stand.next)?;
                continue;
            };
            let Some(header) = stand.span.frame_at(stand.at, block) else {
                gap.on_block(stand, block);
                stand.at += BLOCK;
                continue;
            };
            if header.first_lsn > stand.next {
                stand.next = gap.skip_to(header.first_lsn.min(durable.next()), stand)?;
                gap = Gap::default();
                continue;
            }
            if header.end_lsn() <= stand.next {
                gap = Gap::default();
            } else if self.holds(stand, &header)? {
                return Ok(Some(header));
            } else {
                gap.on_bad_body(stand)?;
            }
            stand.at += disk_bytes(&header);
        }
        Ok(None)
    }

    fn holds(&mut self, stand: &Stand, header: &FrameHeader) -> Result<bool, BackfillError> {
        let frame = self.read_at(stand, header.disk_bytes())?;
        Ok(frame.is_some_and(|frame| header.body_holds(frame)))
    }

    /// Gives the entries of the frame at `stand`.
    fn give(
        &mut self,
        stand: &mut Stand,
        header: &FrameHeader,
        budget: &mut Budget,
        sink: &mut dyn FnMut(ReplayedEntry<'_>),
    ) -> Result<(), BackfillError> {
        let (span, at) = (stand.span, stand.at);
        let Some(frame) = self.read_at(stand, header.disk_bytes())? else {
            return Err(Gap::default().damage(stand));
        };
        deliver(&span, at, header, frame, &mut |entry| {
            if entry.lsn == stand.next && entry.lsn <= budget.durable && budget.take(entry.bytes.len()) {
                stand.next = entry.lsn.next();
                sink(entry);
            }
        });
        if stand.next == header.end_lsn() {
            stand.at += disk_bytes(header);
        }
        Ok(())
    }

    /// At least `bytes` from where `stand` is, fewer at the end of the file; none when the file was removed.
    fn read_at(&mut self, stand: &Stand, bytes: usize) -> Result<Option<&[u8]>, BackfillError> {
        let segment = stand.span.segment;
        match self.source.read(segment, stand.at, bytes) {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(BackfillError::Io { path: self.dir.join(segment_name(segment)), source }),
        }
    }

    /// The last segment that begins at or before `from`.
    fn find(&mut self, from: Lsn) -> Result<Stand, BackfillError> {
        let mut first_lsn = None;
        let mut unclear = None;
        for segment in self.list()?.into_iter().rev() {
            let Some(span) = self.span_of(segment)? else {
                continue;
            };
            let stand = Stand { span, at: FRAMES_AT, next: from };
            let first = self.read_at(&stand, BLOCK_BYTES)?.and_then(|block| span.frame_at(FRAMES_AT, block));
            match first {
                Some(first) if first.first_lsn <= from => return Ok(stand),
                Some(first) => (first_lsn, unclear) = (Some(first.first_lsn), None),
                None => unclear = Some(stand),
            }
        }
        // A first segment that does not say where it begins may hold it.
        unclear.ok_or_else(|| BackfillError::Freed {
            lsn: from,
            first_lsn: first_lsn.unwrap_or(self.superblock.first_lsn),
        })
    }

    fn span_after(&mut self, segment: SegmentId) -> Result<Option<Span>, BackfillError> {
        for next in self.list()?.into_iter().filter(|next| *next > segment) {
            let span = self.span_of(next)?;
            if span.is_some() {
                return Ok(span);
            }
        }
        Ok(None)
    }

    /// What is to be read of a segment; none when it was removed or never written to.
    fn span_of(&mut self, segment: SegmentId) -> Result<Option<Span>, BackfillError> {
        match self.read_span(segment) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(BackfillError::Io { path: self.dir.join(segment_name(segment)), source }),
            Ok(span) => Ok(span),
        }
    }

    fn read_span(&mut self, segment: SegmentId) -> io::Result<Option<Span>> {
        let bytes = fs::metadata(self.dir.join(segment_name(segment)))?.len();
        let file_bytes = whole_blocks(bytes).ok_or(io::ErrorKind::FileTooLarge)?;
        let first = self.source.read(segment, 0, BLOCK_BYTES)?;
        let header = SegmentHeader::decode(first).ok().filter(|header| header.segment == segment);
        let planned = plan(Some(&self.superblock), &Found { segment, file_bytes, header }, &mut self.source)?;
        Ok(planned.map(|planned| planned.span))
    }

    /// The segments that are kept, ascending.
    fn list(&self) -> Result<Vec<SegmentId>, BackfillError> {
        let mut segments = list(&self.dir).map_err(|source| BackfillError::Io { path: self.dir.clone(), source })?;
        segments.retain(|segment| *segment >= self.superblock.first_segment);
        Ok(segments)
    }
}

fn disk_bytes(header: &FrameHeader) -> u32 {
    u32::try_from(header.disk_bytes()).expect("a frame is bounded")
}

/// The segments of a directory, read forward; no file stays open in between, so that a freed one gives its space back.
#[derive(Debug)]
struct Forward {
    dir: PathBuf,
    window: Window,
    /// How much the last read asked for.
    bytes: usize,
}

impl Forward {
    fn forget(&mut self) {
        self.window.clear();
        self.bytes = READ_BYTES_MIN;
    }
}

impl Source for Forward {
    fn read(&mut self, segment: SegmentId, offset: u32, bytes: usize) -> io::Result<&[u8]> {
        let start = u64::from(offset);
        if self.window.held(segment, start).len() < bytes {
            let goes_on = self.window.reaches(segment, start);
            self.bytes = if goes_on { (2 * self.bytes).min(READ_BYTES_MAX) } else { READ_BYTES_MIN };
            self.window.load(&self.dir, segment, start..start + self.bytes.max(bytes) as u64)?;
        }
        Ok(self.window.held(segment, start))
    }
}
