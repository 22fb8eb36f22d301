//! The frames of the hot paths, whose heads are laid by hand: append, acks, records.
//!
//! All fields are little-endian. The layouts:
//! append head: session (u32), flags (u32: 1 conditional, 2 resent, 4 on terms), batch number (u64), expected sequence number
//! (u64), batch CRC-32C (u32), zero (u32), the terms up to the end of the head, then the batch as payload.
//! acks: groups of session (u32), class (u8), zero (u8), count (u16), tail sequence number (u64) and stamp (i64), each
//! followed by its acks of batch number (u64), first sequence number (u64), first stamp (i64), last stamp (i64), records (u32), zero (u32).
//! records head: subscription (u32), flags (u32: 1 at the tail), start and end (u64, half-open, what of the payload was asked for),
//! tail sequence number (u64) and stamp (i64), trim point (u64), then whole entries as payload.

use crate::bytes::{i64_at, put_i64, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::config::Class;
use crate::ids::{BatchNo, Position, SeqNum};
use crate::refusal::Refusal;
use crate::terms::Terms;

/// Bytes of the head of an append.
pub const APPEND_HEAD_BYTES: usize = 32;
const APPEND_CONDITIONAL: u32 = 1;
const APPEND_RESENT: u32 = 2;
const APPEND_ON_TERMS: u32 = 4;

/// The head of a session's append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendHead {
    /// The session's handle on this connection.
    pub session: u32,
    /// The producer's number for the batch.
    pub no: BatchNo,
    /// The sequence number its first record must get.
    pub match_seq_num: Option<SeqNum>,
    /// Whether an earlier attempt may have landed.
    pub resent: bool,
    /// The CRC-32C of the batch.
    pub batch_crc: u32,
}

/// A head that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the head of a frame doesn't validate")]
pub struct BadHead;

impl AppendHead {
    /// Its bytes.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> [u8; APPEND_HEAD_BYTES] {
        let mut out = [0; APPEND_HEAD_BYTES];
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        put_u32(&mut out, 0, self.session);
        put_u32(&mut out, 4, flag(self.match_seq_num.is_some(), APPEND_CONDITIONAL) | flag(self.resent, APPEND_RESENT));
        put_u64(&mut out, 8, self.no.get());
        put_u64(&mut out, 16, self.match_seq_num.unwrap_or_default().get());
        put_u32(&mut out, 24, self.batch_crc);
        out
    }

    /// Its bytes and those of terms, which are not empty.
    #[must_use]
    pub fn encode_on(&self, terms: &[u8]) -> Vec<u8> {
        let mut head = self.encode();
        let flags = u32_at(&head, 4);
        put_u32(&mut head, 4, flags | APPEND_ON_TERMS);
        [&head, terms].concat()
    }

    /// The head of these bytes, and its terms.
    ///
    /// # Errors
    /// A refusal at a wrong length, an unknown flag or bad terms.
    #[inline]
    pub fn decode_on_terms(head: &[u8]) -> Result<(Self, Terms), Refusal> {
        let bad = |_| Refusal::invalid("the head of an append doesn't validate");
        let Some((fixed, terms)) = head.split_at_checked(APPEND_HEAD_BYTES).filter(|(_, terms)| !terms.is_empty())
        else {
            return Ok((Self::decode(head).map_err(bad)?, Terms::default()));
        };
        let mut fixed: [u8; APPEND_HEAD_BYTES] = fixed.try_into().map_err(|_| bad(BadHead))?;
        let flags = u32_at(&fixed, 4);
        if flags & APPEND_ON_TERMS == 0 {
            return Err(bad(BadHead));
        }
        put_u32(&mut fixed, 4, flags & !APPEND_ON_TERMS);
        Ok((Self::decode(&fixed).map_err(bad)?, Terms::from_bytes(terms)?))
    }

    /// The head of these bytes, which carry no terms.
    ///
    /// # Errors
    /// [`BadHead`] at a wrong length or an unknown flag.
    #[inline]
    pub fn decode(head: &[u8]) -> Result<Self, BadHead> {
        let head: &[u8; APPEND_HEAD_BYTES] = head.try_into().map_err(|_| BadHead)?;
        let flags = u32_at(head, 4);
        if flags & !(APPEND_CONDITIONAL | APPEND_RESENT) != 0 {
            return Err(BadHead);
        }
        Ok(Self {
            session: u32_at(head, 0),
            no: BatchNo::new(u64_at(head, 8)),
            match_seq_num: (flags & APPEND_CONDITIONAL != 0).then(|| SeqNum::new(u64_at(head, 16))),
            resent: flags & APPEND_RESENT != 0,
            batch_crc: u32_at(head, 24),
        })
    }
}

/// A batch that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The producer's number for the batch.
    pub no: BatchNo,
    /// Its first record.
    pub start: Position,
    /// How many records it has.
    pub records: u32,
    /// The stamp of its last record.
    pub last_ms: i64,
}

impl Ack {
    /// One past its last record, with that record's stamp.
    #[must_use]
    #[inline]
    pub fn end(&self) -> Position {
        Position::new(self.start.seq_num.after(u64::from(self.records)), self.last_ms)
    }
}

/// The acks of one session that share a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckGroup {
    /// The session's handle on this connection.
    pub session: u32,
    /// What made them durable.
    pub class: Class,
    /// How many acks follow.
    pub count: u16,
    /// The committed tail as of these acks.
    pub tail: Position,
}

const GROUP_BYTES: usize = 24;
const ACK_BYTES: usize = 40;

/// Writes the acks of a frame: groups in order, each group's acks right after it.
#[derive(Debug)]
pub struct AckWriter {
    group_at: Option<usize>,
}

impl AckWriter {
    /// Starts at the end of a buffer.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { group_at: None }
    }

    /// Starts a group; its tail is set by [`AckWriter::end_group`].
    #[inline]
    pub fn begin_group(&mut self, session: u32, class: Class, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + GROUP_BYTES, 0);
        put_u32(out, at, session);
        out[at + 4] = class as u8;
        self.group_at = Some(at);
    }

    /// Adds an ack to the group that is begun.
    #[inline]
    pub fn push(&mut self, ack: &Ack, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + ACK_BYTES, 0);
        let fields = &mut out[at..];
        put_u64(fields, 0, ack.no.get());
        put_u64(fields, 8, ack.start.seq_num.get());
        put_i64(fields, 16, ack.start.timestamp_ms);
        put_i64(fields, 24, ack.last_ms);
        put_u32(fields, 32, ack.records);
    }

    /// Ends the group: fills in its count and tail.
    ///
    /// # Panics
    /// When no group is begun, or it has more than 65 535 acks.
    #[inline]
    pub fn end_group(&mut self, tail: Position, out: &mut [u8]) {
        let Some(at) = self.group_at.take() else { panic!("a group is begun") };
        let acks = (out.len() - at - GROUP_BYTES) / ACK_BYTES;
        let count = u16::try_from(acks).unwrap_or_else(|_| panic!("{acks} acks in a group"));
        put_u16(out, at + 6, count);
        put_u64(out, at + 8, tail.seq_num.get());
        put_i64(out, at + 16, tail.timestamp_ms);
    }
}

impl Default for AckWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// Walks the acks of a frame: `on_ack` gets each with its group.
///
/// # Errors
/// [`BadHead`] when the bytes don't add up; what was walked until then stands.
pub fn walk_acks(mut head: &[u8], mut on_ack: impl FnMut(&AckGroup, Ack)) -> Result<(), BadHead> {
    while !head.is_empty() {
        let (group, rest) = head.split_at_checked(GROUP_BYTES).ok_or(BadHead)?;
        let group = AckGroup {
            session: u32_at(group, 0),
            class: Class::of_code(group[4]).ok_or(BadHead)?,
            count: u16_at(group, 6),
            tail: Position::new(SeqNum::new(u64_at(group, 8)), i64_at(group, 16)),
        };
        let (acks, rest) = rest.split_at_checked(usize::from(group.count) * ACK_BYTES).ok_or(BadHead)?;
        for ack in acks.chunks_exact(ACK_BYTES) {
            let (first, records) = (u64_at(ack, 8), u32_at(ack, 32));
            // The end of a batch is a number too.
            first.checked_add(records.into()).ok_or(BadHead)?;
            let start = Position::new(SeqNum::new(first), i64_at(ack, 16));
            on_ack(&group, Ack { no: BatchNo::new(u64_at(ack, 0)), start, records, last_ms: i64_at(ack, 24) });
        }
        head = rest;
    }
    Ok(())
}

/// Bytes of the head of a page or of a subscription's records.
pub const RECORDS_HEAD_BYTES: usize = 48;
const RECORDS_AT_TAIL: u32 = 1;

/// The head of a page of records, and of the records of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordsHead {
    /// The subscription's handle on this connection; 0 for a page.
    pub subscription: u32,
    /// Whether nothing is left up to the tail within what was asked for.
    pub at_tail: bool,
    /// First record of the payload that was asked for.
    pub start: SeqNum,
    /// One past the last record of the payload that was asked for.
    pub end: SeqNum,
    /// The committed tail.
    pub tail: Position,
    /// Records below it are gone.
    pub trim_point: SeqNum,
}

impl RecordsHead {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORDS_HEAD_BYTES] {
        let mut out = [0; RECORDS_HEAD_BYTES];
        put_u32(&mut out, 0, self.subscription);
        put_u32(&mut out, 4, if self.at_tail { RECORDS_AT_TAIL } else { 0 });
        put_u64(&mut out, 8, self.start.get());
        put_u64(&mut out, 16, self.end.get());
        put_u64(&mut out, 24, self.tail.seq_num.get());
        put_i64(&mut out, 32, self.tail.timestamp_ms);
        put_u64(&mut out, 40, self.trim_point.get());
        out
    }

    /// The head of these bytes.
    ///
    /// # Errors
    /// [`BadHead`] at a wrong length, an unknown flag or an end before the start.
    pub fn decode(head: &[u8]) -> Result<Self, BadHead> {
        let head: &[u8; RECORDS_HEAD_BYTES] = head.try_into().map_err(|_| BadHead)?;
        let flags = u32_at(head, 4);
        let (start, end) = (SeqNum::new(u64_at(head, 8)), SeqNum::new(u64_at(head, 16)));
        if flags & !RECORDS_AT_TAIL != 0 || end < start {
            return Err(BadHead);
        }
        Ok(Self {
            subscription: u32_at(head, 0),
            at_tail: flags & RECORDS_AT_TAIL != 0,
            start,
            end,
            tail: Position::new(SeqNum::new(u64_at(head, 24)), i64_at(head, 32)),
            trim_point: SeqNum::new(u64_at(head, 40)),
        })
    }
}

#[cfg(test)]
mod tests;
