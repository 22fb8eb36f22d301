//! How far is what lies here also in the store and its index, and what is forgotten here once it is?

use wire::ids::{Lsn, SegmentId, SeqNum};

use super::lane::{Entered, Lane, STANDARD_LOG};
use super::row::Row;
use super::shard::Shard;

/// Rows whose extents are looked at in one turn.
const ROWS_TURN_MAX: usize = 4_096;

/// Where in a head log an entry ends: the segment, and one past the entry's last byte.
pub(crate) type LogPlace = (SegmentId, u32);

/// How far a head log is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SettledTo {
    /// Which of the head logs of this run.
    pub(crate) log: u16,
    /// The last entry that is in the store and in the index.
    pub(crate) upto: Lsn,
    /// Where it ends.
    pub(crate) place: LogPlace,
}

/// How far each head log is settled.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// The last entry of the shard's own log that is.
    own: Lsn,
    /// By the number of the log.
    places: Vec<LogPlace>,
    /// The first segment that each log keeps, by its number.
    kept: Vec<SegmentId>,
    /// Where the logs ended when the run began, as far as that is not settled.
    before: Vec<(u16, LogPlace)>,
}

impl Settled {
    /// Nothing of what recovery found, which ends there in each log.
    pub(super) fn new(ends: &[LogPlace]) -> Self {
        let before = (0..).zip(ends.iter().copied()).filter(|(_, end)| *end != LogPlace::default()).collect();
        Self { own: Lsn::ZERO, places: Vec::new(), kept: Vec::new(), before }
    }

    /// Whether the index has an entry, when it has the Standard lane up to `applied`.
    pub(super) fn has(&self, entered: Entered, applied: Lsn) -> bool {
        match entered {
            Entered::Nothing => true,
            Entered::Before => self.before.is_empty(),
            Entered::Express(lsn) => lsn <= self.own,
            Entered::Standard(lsn) => lsn <= applied,
        }
    }

    /// Where the settled part of a log ends.
    fn place(&self, log: u16) -> LogPlace {
        self.places.get(usize::from(log)).copied().unwrap_or_default()
    }

    fn note_kept(&mut self, log: u16, first: SegmentId) {
        let at = usize::from(log);
        if self.kept.len() <= at {
            self.kept.resize(at + 1, SegmentId::ZERO);
        }
        self.kept[at] = self.kept[at].max(first);
    }

    fn note(&mut self, to: &SettledTo, own_log: u16) {
        let at = usize::from(to.log);
        if self.places.len() <= at {
            self.places.resize(at + 1, LogPlace::default());
        }
        self.places[at] = self.places[at].max(to.place);
        if to.log == own_log {
            self.own = self.own.max(to.upto);
        }
        let places = &self.places;
        self.before.retain(|(log, end)| places.get(usize::from(*log)).is_none_or(|place| place < end));
    }
}

impl Shard {
    /// A head log is settled further.
    pub(crate) fn on_log_settled(&mut self, to: &SettledTo) {
        self.settled.note(to, self.config.own_log);
        self.forget_tombstones();
    }

    /// A head log frees the segments below `first`: rows forget what lies there, some of them in each call; true when there
    /// are more, and the call is to be made again before the files go.
    pub(crate) fn on_settled(&mut self, log: u16, first: SegmentId) -> bool {
        self.settled.note_kept(log, first);
        self.forget_segments(log, first)
    }

    fn forget_segments(&mut self, log: u16, first: SegmentId) -> bool {
        let rows = self.streams.take_touched(log, first, ROWS_TURN_MAX);
        for at in rows {
            if let Some(row) = self.streams.row_mut(at) {
                row.forget(log, first);
            }
        }
        self.streams.is_touched(log, first)
    }

    /// Rows forget what the ring of the Standard lane has forgotten.
    pub(super) fn forget_what_left_the_ring(&mut self) {
        if let Some(first) = self.standard.ring.first_segment() {
            self.forget_segments(STANDARD_LOG, first);
        }
    }

    /// Whether the index has all of a row.
    pub(super) fn is_applied(&self, row: &Row) -> bool {
        self.settled.has(row.entered(), self.standard.applied())
    }

    /// Whether a head log was told to free a segment.
    pub(crate) fn is_freed(&self, log: u16, segment: SegmentId) -> bool {
        self.settled.kept.get(usize::from(log)).is_some_and(|first| segment < *first)
    }

    /// The first record of a row that may not be in the index yet.
    pub(super) fn settled_of(&self, row: &Row) -> SeqNum {
        if Lane::from(row.config.class) == Lane::Standard || self.is_applied(row) {
            return row.tail.seq_num;
        }
        let is_in_store = |extent: &super::row::Extent| {
            extent.log == STANDARD_LOG || (extent.segment, extent.end_offset()) <= self.settled.place(extent.log)
        };
        let first = row.extents.get(row.extents.partition_point(is_in_store));
        first.map_or(row.tail.seq_num, |extent| extent.first.max(row.trim_point))
    }
}
