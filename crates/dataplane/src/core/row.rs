//! What is committed of a stream: the fold of its entries, and all that an idle stream keeps.

use std::sync::Arc;

use smallvec::SmallVec;
use wire::config::StreamConfig;
use wire::dedupe::Dedupe;
use wire::ids::{Epoch, Position, Rev, SegmentId, SeqNum, StreamId};
use wire::log_frame::ENTRY_PREFIX_BYTES;
use wire::names::FencingToken;
use wire::slot::Slot;

use super::live::Live;

/// Neighbouring batches of one stream in a head log.
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
    /// Content kept, in bytes.
    pub(crate) bytes: u64,
    /// The installed token.
    pub(crate) token: Option<Box<FencingToken>>,
    /// Where its records lie, in order.
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

    /// Takes in a batch that is durable.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the prefix of an entry is four bytes")]
    pub(crate) fn apply_batch(&mut self, batch: &CommittedBatch) {
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
            return;
        }
        self.extents.push(Extent {
            first: batch.start.seq_num,
            first_ms: batch.start.timestamp_ms,
            segment: batch.pos.segment,
            offset,
            bytes,
            content_bytes: batch.content_bytes,
            log: batch.log,
        });
    }

    /// Moves the trim point, never back, and forgets extents that lie below it as a whole.
    pub(crate) fn apply_trim(&mut self, to: SeqNum) {
        self.trim_point = self.trim_point.max(to.min(self.tail.seq_num));
        let kept_from =
            if self.trim_point == self.tail.seq_num { self.extents.len() } else { self.extent_of(self.trim_point) };
        let gone: u64 = self.extents[..kept_from].iter().map(|extent| u64::from(extent.content_bytes)).sum();
        self.bytes -= gone;
        self.extents.drain(..kept_from);
    }

    /// Installs a token; the empty one clears.
    pub(crate) fn apply_token(&mut self, token: &FencingToken) {
        self.token = (!token.is_empty()).then(|| Box::new(token.clone()));
    }

    /// Crosses records that are lost.
    pub(crate) fn apply_gap(&mut self, to: SeqNum) {
        if to > self.tail.seq_num {
            self.tail.seq_num = to;
        }
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
    /// In the extent of this record, or right behind it.
    Within(SeqNum),
}
