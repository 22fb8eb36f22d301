//! What is committed of a stream: the fold of its entries, and all that an idle stream keeps.

use std::sync::Arc;

use smallvec::SmallVec;
use wire::config::StreamConfig;
use wire::dedupe::Dedupe;
use wire::ids::{Epoch, Lsn, Position, Rev, SegmentId, SeqNum, StreamId};
use wire::log_frame::ENTRY_PREFIX_BYTES;
use wire::names::FencingToken;
use wire::slot::Slot;

use super::lane::Entered;
use super::live::Live;

/// Neighbouring batches of one stream in a head log, or in the ring of the Standard lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Its first record.
    pub(crate) first: SeqNum,
    /// That record's stamp.
    pub(crate) first_ms: i64,
    /// Where it lies.
    pub(crate) segment: SegmentId,
    /// First byte, that of the first entry's length.
    pub(crate) offset: u32,
    /// Bytes, lengths included.
    pub(crate) bytes: u32,
    /// Content, in bytes.
    pub(crate) content_bytes: u32,
    /// Which head log.
    pub(crate) log: u16,
}

impl Extent {
    /// One past its last byte.
    pub(crate) fn end_offset(&self) -> u32 {
        self.offset + self.bytes
    }
}

/// A stream's committed state.
#[derive(Debug)]
pub(crate) struct Row {
    /// Minted when it was made.
    pub(crate) stream_id: StreamId,
    /// The slot that its name lies in.
    pub(crate) slot: Slot,
    /// Which bucket, among those the shard knows.
    pub(crate) bucket: u32,
    /// Its key; shared with the index of names.
    pub(crate) key: Arc<str>,
    /// How it behaves; shared between streams of the same.
    pub(crate) config: Arc<StreamConfig>,
    /// When it was made.
    pub(crate) created_at_ms: i64,
    /// The epoch of the last entry applied.
    pub(crate) epoch: Epoch,
    /// The rev of the last entry applied; zero until its creation is durable.
    pub(crate) rev: Rev,
    /// The committed tail.
    pub(crate) tail: Position,
    /// Records below it are gone.
    pub(crate) trim_point: SeqNum,
    /// Content kept, in bytes; of what was trimmed in history the share is estimated.
    pub(crate) bytes: u64,
    /// The last entry that the index may not have, while nothing entered since it went into use.
    pub(crate) entered: Entered,
    /// When it was used last, in seconds since the process started.
    pub(crate) used_at_s: u32,
    /// It stands in the queue of those that nobody uses.
    pub(crate) is_resting: bool,
    /// It ever took records whose stamps were not capped at their arrival, such as are not durable yet among them.
    pub(crate) has_uncapped: bool,
    /// The records given up last, as far as that is known.
    pub(crate) gap: Option<Box<(SeqNum, SeqNum)>>,
    /// The installed token.
    pub(crate) token: Option<Box<FencingToken>>,
    /// Where its newest records lie, in order; those before the first of them are history.
    pub(crate) extents: SmallVec<[Extent; 1]>,
    /// What it remembers of its producers; also of batches that are not durable yet.
    pub(crate) dedupe: Option<Box<Dedupe>>,
    /// What it needs while it is in use.
    pub(crate) live: Option<Box<Live>>,
}

/// Longest extent that grows by one more batch, in bytes.
const EXTENT_BYTES_MAX: u32 = 256 << 10;

/// A committed batch, as far as a row cares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommittedBatch {
    /// Its first record.
    pub(crate) start: Position,
    /// One past its last, with the last one's stamp.
    pub(crate) end: Position,
    /// Content, in bytes.
    pub(crate) content_bytes: u32,
    /// Which head log.
    pub(crate) log: u16,
    /// Where its entry lies.
    pub(crate) pos: express_log::EntryPos,
}

impl Row {
    /// A stream that is being made.
    pub(crate) fn new(slot: Slot, stream_id: StreamId, bucket: u32, key: Arc<str>, config: Arc<StreamConfig>) -> Self {
        Self {
            stream_id,
            slot,
            bucket,
            key,
            config,
            created_at_ms: 0,
            epoch: Epoch::ZERO,
            rev: Rev::ZERO,
            tail: Position::default(),
            trim_point: SeqNum::ZERO,
            bytes: 0,
            entered: Entered::Nothing,
            used_at_s: 0,
            is_resting: false,
            has_uncapped: false,
            gap: None,
            token: None,
            extents: SmallVec::new(),
            dedupe: None,
            live: None,
        }
    }

    /// Whether its creation is durable.
    pub(crate) fn is_committed(&self) -> bool {
        self.rev != Rev::ZERO
    }

    /// The last entry that the index may not have.
    pub(crate) fn entered(&self) -> Entered {
        match self.live.as_deref() {
            Some(live) if live.last_lsn != Lsn::ZERO => Entered::of(live.lane, live.last_lsn),
            Some(_) | None => self.entered,
        }
    }

    /// Takes in a batch that is durable; true when it is the first one of the row in its segment.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the prefix of an entry is four bytes")]
    pub(crate) fn apply_batch(&mut self, batch: &CommittedBatch) -> bool {
        const PREFIX: u32 = ENTRY_PREFIX_BYTES as u32;
        self.tail = batch.end;
        self.bytes += u64::from(batch.content_bytes);
        let offset = batch.pos.offset - PREFIX;
        let bytes = batch.pos.bytes + PREFIX;
        if let Some(last) = self.extents.last_mut()
            && last.segment == batch.pos.segment
            && last.log == batch.log
            && last.end_offset() == offset
            && last.bytes + bytes <= EXTENT_BYTES_MAX
        {
            last.bytes += bytes;
            last.content_bytes += batch.content_bytes;
            return false;
        }
        let last = self.extents.last();
        let is_first = last.is_none_or(|last| (last.log, last.segment) != (batch.log, batch.pos.segment));
        self.extents.push(Extent {
            first: batch.start.seq_num,
            first_ms: batch.start.timestamp_ms,
            segment: batch.pos.segment,
            offset,
            bytes,
            content_bytes: batch.content_bytes,
            log: batch.log,
        });
        is_first
    }

    /// Whether a record that was not trimmed lies before those of the extents.
    pub(crate) fn is_history(&self, seq_num: SeqNum) -> bool {
        self.extents.first().is_none_or(|first| seq_num < first.first)
    }

    /// Forgets what lies in the segments of a log below `first`, and all before it: the index has it.
    pub(crate) fn forget(&mut self, log: u16, first: SegmentId) {
        let last = self.extents.iter().rposition(|extent| extent.log == log && extent.segment < first);
        if let Some(last) = last {
            self.extents.drain(..=last);
        }
    }

    /// Forgets the extent of a record, those before it and those that follow, as far as they are not here any more.
    pub(crate) fn forget_from(&mut self, seq_num: SeqNum, has_left: impl Fn(&Extent) -> bool) {
        let at = self.extent_of(seq_num);
        let gone = self.extents.iter().skip(at).take_while(|extent| has_left(extent)).count();
        if gone > 0 && !self.is_history(seq_num) {
            self.extents.drain(..at + gone);
        }
    }

    /// Moves the trim point, never back, and forgets extents that lie below it as a whole.
    pub(crate) fn apply_trim(&mut self, to: SeqNum) {
        let before = self.trim_point;
        self.trim_point = self.trim_point.max(to.min(self.tail.seq_num));
        self.bytes -= self.trimmed_history(before);
        let kept_from =
            if self.trim_point == self.tail.seq_num { self.extents.len() } else { self.extent_of(self.trim_point) };
        let gone: u64 = self.extents[..kept_from].iter().map(|extent| u64::from(extent.content_bytes)).sum();
        self.bytes -= gone;
        self.extents.drain(..kept_from);
    }

    /// Content of history that a trim from `before` took, by its share of the records; the index counts exactly.
    fn trimmed_history(&self, before: SeqNum) -> u64 {
        let here: u64 = self.extents.iter().map(|extent| u64::from(extent.content_bytes)).sum();
        let history_bytes = self.bytes.saturating_sub(here);
        let end = self.extents.first().map_or(self.tail.seq_num, |extent| extent.first);
        let (records, gone) = (end.since(before), self.trim_point.min(end).since(before));
        if gone == records {
            return history_bytes;
        }
        u64::try_from(u128::from(history_bytes) * u128::from(gone) / u128::from(records)).unwrap_or(history_bytes)
    }

    /// Installs a token; the empty one clears.
    pub(crate) fn apply_token(&mut self, token: &FencingToken) {
        self.token = (!token.is_empty()).then(|| Box::new(token.clone()));
    }

    /// Gives up records that are lost.
    pub(crate) fn apply_gap(&mut self, from: SeqNum, to: SeqNum) {
        if to > self.tail.seq_num {
            self.tail.seq_num = to;
            self.gap = Some(Box::new((from, to)));
        }
    }

    /// Where records go on behind one that is known to be given up.
    pub(crate) fn gap_over(&self, seq_num: SeqNum) -> Option<SeqNum> {
        let (from, to) = *self.gap.as_deref()?;
        (from..to).contains(&seq_num).then_some(to)
    }

    /// Which extent holds a record at or after `seq_num`: the last one that starts at or before it, else the first.
    pub(crate) fn extent_of(&self, seq_num: SeqNum) -> usize {
        self.extents.partition_point(|extent| extent.first <= seq_num).saturating_sub(1)
    }

    /// What a timestamp start comes to.
    pub(crate) fn find_timestamp(&self, ms: i64) -> Found {
        if self.tail.seq_num == self.trim_point || ms > self.tail.timestamp_ms {
            return Found::At(self.tail.seq_num);
        }
        match self.extents.partition_point(|extent| extent.first_ms < ms) {
            0 if self.is_history(self.trim_point) => Found::Within(self.trim_point),
            0 => Found::At(self.trim_point),
            after => Found::Within(self.extents[after - 1].first.max(self.trim_point)),
        }
    }

    /// The installed token; empty when none is.
    pub(crate) fn token(&self) -> FencingToken {
        self.token.as_deref().cloned().unwrap_or_default()
    }
}

/// Where the first record stamped at or after a time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Here.
    At(SeqNum),
    /// In the extent of this record, or right behind it; in history, in whichever extent the index says.
    Within(SeqNum),
}
