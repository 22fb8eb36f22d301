//! How a log is opened for writing after recovery.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use failpoints::{Point, hit};
use wire::ids::{Epoch, LogId, Lsn};
use wire::segment::{FRAMES_AT, SegmentHeader};
use wire::superblock::{SEGMENTS_MAX, Superblock};

use super::Log;
use super::shared::{Calls, Shared, Wakers};
use crate::core::pipeline::{Pipeline, Policy};
use crate::core::release::{Kept, Release};
use crate::core::space::{Blank, Space, SpaceLimits};
use crate::device::{Blankness, Device};
use crate::options::{LogOptions, OptionsError};
use crate::planted::{Planted, is_planted};
use crate::recovery::replay::{Ends, Scanned};
use crate::recovery::{Damage, Verdict};

/// Why a log cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An option cannot be.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Entries that were durable are not there.
    #[error("the log is corrupt in {} places, first at {} of segment {}: entries {} to {} are lost", damages.len(),
        damages[0].offset, damages[0].segment, damages[0].lsns.start, damages[0].lsns.end)]
    Corrupt {
        /// Where, and which entries; at least one.
        damages: Vec<Damage>,
    },
    /// The epoch was there before.
    #[error("epoch {epoch} does not come after {last}, in which the log was written")]
    StaleEpoch {
        /// The epoch asked for.
        epoch: Epoch,
        /// The highest the log knows.
        last: Epoch,
    },
    /// The log has too many segments to list.
    #[error("the log has {segments} segments, more than the {SEGMENTS_MAX} that a superblock lists")]
    TooManySegments {
        /// How many.
        segments: usize,
    },
    /// The system refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// Which.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// Whether a log that was left like this can be opened in `epoch`.
pub(super) fn check(ends: &Ends, epoch: Epoch) -> Result<(), OpenError> {
    if let Verdict::Corrupt(damages) = &ends.verdict {
        return Err(OpenError::Corrupt { damages: damages.clone() });
    }
    let last = ends.last_epoch();
    if epoch <= last {
        return Err(OpenError::StaleEpoch { epoch, last });
    }
    if ends.segments.len() >= SEGMENTS_MAX {
        return Err(OpenError::TooManySegments { segments: ends.segments.len() });
    }
    Ok(())
}

impl<D: Device> Log<D> {
    /// Opens the log that recovery found to end like this, on any device.
    pub(crate) async fn open_on(
        device: D,
        options: LogOptions,
        ends: Ends,
        epoch: Epoch,
        calls: Calls,
    ) -> Result<Self, OpenError> {
        let superblock = next_superblock(&device, &ends, epoch)?;
        hit(Point::OpenSuperblock);
        if !is_planted(Planted::EpochNotWritten) {
            device.write_superblock(&superblock).await.map_err(OpenError::io("writing the superblock"))?;
        }
        hit(Point::OpenSuperblockWritten);
        tidy(&device, &ends).await.map_err(OpenError::io("cutting off the old segments"))?;
        let kept = kept(&ends);
        let old_bytes: u64 = kept.iter().map(|kept| kept.bytes).sum();
        let active = ends.next_segment;
        let salt = device.random().map_err(OpenError::io("a random number"))?;
        let bytes = options.segment_bytes;
        let header = SegmentHeader { log: superblock.log, segment: active, salt, epoch, bytes };
        let segment =
            device.create(header, Blankness::Written).await.map_err(OpenError::io("making the first segment"))?;
        let limits = SpaceLimits {
            segment_bytes: bytes,
            log_bytes_max: options.log_bytes_max,
            // The one that is made here, and one that is made when the log is opened next.
            segments_max: (SEGMENTS_MAX - 2).saturating_sub(kept.len()),
            ready_segments: options.ready_segments,
            idle_segments: options.idle_segments,
        };
        let space = Space::new(limits, Blank { segment: active, salt }, old_bytes + u64::from(bytes));
        let policy = Policy {
            commits_in_flight: options.commits_in_flight,
            start_bytes: options.commit_start_bytes,
            commit_bytes_max: options.commit_bytes_max,
            pending_bytes_max: options.pending_bytes_max,
        };
        let shared = Rc::new(Shared {
            log: superblock.log,
            epoch,
            inline_commit: options.inline_commit,
            pipeline: RefCell::new(Pipeline::new(policy, epoch, space, ends.next_lsn)),
            files: RefCell::new([(active, Rc::new(segment))].into()),
            release: RefCell::new(Release::new(kept, superblock.first_lsn)),
            superblock: RefCell::new(superblock),
            on_durable: RefCell::new(Some(calls.on_durable)),
            on_fatal: RefCell::new(Some(calls.on_fatal)),
            idle_slots: Wakers::default(),
            room_waiters: Wakers::default(),
            clock: Wakers::default(),
            heart: Wakers::default(),
            maker: Wakers::default(),
            releaser: Wakers::default(),
            drained: Wakers::default(),
            stopped: Cell::new(false),
            room: OnceCell::new(),
            told_full: Cell::new(false),
            lock: RefCell::new(None),
            device,
        });
        shared.start(options.commits_in_flight);
        Ok(Self { shared })
    }
}

/// The superblock of a new epoch: it knows the end of every segment that is there.
fn next_superblock<D: Device>(device: &D, ends: &Ends, epoch: Epoch) -> Result<Superblock, OpenError> {
    let before = ends.superblock.as_ref();
    // With no segment left, the log begins where it ends.
    let (first_segment, first_lsn) = match (before, ends.segments.iter().find(|segment| is_kept(segment))) {
        (Some((block, _)), Some(first)) => (first.span.segment, block.first_lsn),
        _ => (ends.next_segment, ends.next_lsn),
    };
    let log = match before {
        Some((block, _)) => block.log,
        None => mint(device).map_err(OpenError::io("a random number"))?,
    };
    Ok(Superblock {
        clean: false,
        incompat: 0,
        log,
        sequence: before.map_or(1, |(block, _)| block.sequence + 1),
        parent_crc: before.map_or(0, |&(_, crc)| crc),
        epoch,
        durable_lsn: Lsn::new(ends.next_lsn.get() - 1),
        next_segment: ends.next_segment,
        first_segment,
        first_lsn,
        segments: ends.segments.iter().map(|segment| segment.to_ended()).collect(),
    })
}

/// A segment without entries is removed, unless it stands for a loss that was accepted.
fn is_kept(segment: &Scanned) -> bool {
    segment.entries > 0 || segment.span.loss_accepted
}

/// What a segment is cut to.
fn cut_bytes(segment: &Scanned) -> u32 {
    segment.end_offset.max(FRAMES_AT).min(segment.file_bytes)
}

/// The segments that stay, oldest first.
fn kept(ends: &Ends) -> VecDeque<Kept> {
    let mut kept = VecDeque::new();
    let mut end_lsn = ends.next_lsn;
    for segment in ends.segments.iter().rev().filter(|segment| is_kept(segment)) {
        kept.push_front(Kept { segment: segment.span.segment, end_lsn, bytes: cut_bytes(segment).into() });
        end_lsn = segment.first_lsn.unwrap_or(end_lsn);
    }
    kept
}

/// Removes segments that were freed or hold nothing, and cuts the others to what they hold.
async fn tidy<D: Device>(device: &D, ends: &Ends) -> io::Result<()> {
    for segment in &ends.leftovers {
        device.remove(*segment).await?;
    }
    for segment in &ends.segments {
        if !is_kept(segment) {
            device.remove(segment.span.segment).await?;
            continue;
        }
        let bytes = cut_bytes(segment);
        if bytes < segment.file_bytes && !is_planted(Planted::TailNotCut) {
            device.truncate(segment.span.segment, bytes).await?;
        }
    }
    Ok(())
}

fn mint<D: Device>(device: &D) -> io::Result<LogId> {
    let mut random = [0; 10];
    random[..8].copy_from_slice(&device.random()?.to_le_bytes());
    random[8..].copy_from_slice(&device.random()?.to_le_bytes()[..2]);
    Ok(LogId::mint(device.unix_ms(), random))
}
