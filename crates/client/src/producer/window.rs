//! The batches in flight: their numbers, what an answer means for each caller, and what is sent again.

use std::collections::VecDeque;

use bytes::Bytes;
use wire::batch::BatchBuilder;
use wire::frame::{self, HEADER_BYTES, Kind};
use wire::hot::{APPEND_HEAD_BYTES, Ack, AckGroup, AppendHead};
use wire::ids::{BatchNo, Position, SeqNum};
use wire::message::Appended;
use wire::refusal::Refusal;

use super::stage::{Caller, Staged};
use crate::error::Error;

/// Encoded bytes of a batch beside its content, roughly, so that its buffer is rarely grown.
const SLACK_BYTES: usize = 256;
const RECORD_SLACK_BYTES: usize = 24;

/// A batch that has a number and no answer yet.
#[derive(Debug)]
struct Unacked {
    match_seq_num: Option<SeqNum>,
    /// Its terms as they are sent; empty for none.
    terms: Vec<u8>,
    chained: bool,
    batch_crc: u32,
    records: u32,
    /// The frame as it was first encoded; the batch in it stays as it is.
    frame: Bytes,
    callers: Vec<Caller>,
    /// The place of its frame among those queued on this connection.
    place: u64,
    /// Whether it was sent and nobody knows what came of it.
    maybe_landed: bool,
    answered: bool,
}

/// An answer that answers nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("it answers batch {no}, and {start}..{end} are in flight")]
    Unknown { no: BatchNo, start: u64, end: u64 },
    #[error("it acks {found} records of batch {no}, which has {expected}")]
    Records { no: BatchNo, expected: u32, found: u32 },
}

/// The unanswered batches of a session in order; the first `sent` of them are on this connection.
#[derive(Debug)]
pub(super) struct Window {
    unacked: VecDeque<Unacked>,
    /// The number of the first.
    first: u64,
    sent: usize,
    size: usize,
}

impl Window {
    /// Numbers start at 1.
    pub(super) fn new() -> Self {
        Self { unacked: VecDeque::new(), first: 1, sent: 0, size: 0 }
    }

    /// A session is open that lets so many batches be in flight.
    pub(super) fn on_opened(&mut self, size: u32) {
        self.size = (size as usize).max(1);
        self.sent = 0;
    }

    pub(super) fn has_room(&self) -> bool {
        self.sent < self.size
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unacked.is_empty()
    }

    /// Whether nothing is in flight on this connection.
    pub(super) fn is_quiet(&self) -> bool {
        self.sent == 0
    }

    /// Numbers and encodes a staged batch, which is then the next to send; answers its builder.
    pub(super) fn push(&mut self, session: u32, staged: Staged) -> BatchBuilder {
        let Staged { match_seq_num, terms, mut builder, callers, .. } = staged;
        let chained = terms.as_ref().is_some_and(|terms| terms.chained);
        let terms = terms.map(|terms| terms.to_bytes()).unwrap_or_default();
        let head_bytes = APPEND_HEAD_BYTES + terms.len();
        let records = builder.records();
        let mut head = AppendHead {
            session,
            no: BatchNo::new(self.first + self.unacked.len() as u64),
            match_seq_num,
            resent: false,
            batch_crc: 0,
        };
        let bytes = builder.content_bytes() + records * RECORD_SLACK_BYTES + SLACK_BYTES;
        let mut out = Vec::with_capacity(bytes);
        let open = frame::begin(&mut out);
        out.resize(HEADER_BYTES + head_bytes, 0);
        let open = open.head_ends(&out);
        let finished = builder.finish(&mut out);
        let Ok(batch_crc) = finished else { unreachable!("a staged batch has records") };
        head.batch_crc = batch_crc;
        put_head(&head, &terms, &mut out[HEADER_BYTES..HEADER_BYTES + head_bytes]);
        open.end(Kind::Append, 0, &mut out);
        self.unacked.push_back(Unacked {
            match_seq_num,
            terms,
            chained,
            batch_crc,
            records: u32::try_from(records).unwrap_or(u32::MAX),
            frame: out.into(),
            callers,
            place: u64::MAX,
            maybe_landed: false,
            answered: false,
        });
        builder
    }

    /// Sends the next unsent batch, if the window has room, through `send`, which answers the frame's place.
    pub(super) fn send_next(&mut self, session: u32, send: impl FnOnce(Bytes) -> u64) -> bool {
        if !self.has_room() {
            return false;
        }
        let no = BatchNo::new(self.first + self.sent as u64);
        let Some(unacked) = self.unacked.get_mut(self.sent) else { return false };
        let is_first_time = unacked.place == u64::MAX;
        if !is_first_time {
            unacked.frame = unacked.again(session, no);
        }
        unacked.place = send(unacked.frame.clone());
        self.sent += 1;
        true
    }

    /// The connection broke after it had taken a byte of so many frames.
    pub(super) fn on_broken(&mut self, begun: u64) {
        for unacked in self.unacked.iter_mut().take(self.sent) {
            unacked.maybe_landed |= unacked.place < begun;
        }
        self.sent = 0;
    }

    /// The star gave the session up in order: what it didn't ack it didn't append.
    pub(super) fn on_handed_off(&mut self) {
        self.sent = 0;
    }

    fn answered(&mut self, no: BatchNo) -> Result<&mut Unacked, Fault> {
        let (start, end) = (self.first, self.first + self.sent as u64);
        let unknown = Fault::Unknown { no, start, end };
        let at = no.get().checked_sub(start).and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|at| *at < self.sent).ok_or_else(|| unknown.clone())?;
        self.unacked.get_mut(at).filter(|unacked| !unacked.answered).ok_or(unknown)
    }

    fn forget_answered(&mut self) {
        while self.unacked.front().is_some_and(|unacked| unacked.answered) {
            self.unacked.pop_front();
            self.first += 1;
            self.sent -= 1;
        }
    }

    /// A batch is durable: every caller learns where its own records are.
    pub(super) fn on_ack(&mut self, group: &AckGroup, ack: &Ack) -> Result<(), Fault> {
        let unacked = self.answered(ack.no)?;
        if unacked.records != ack.records {
            let (no, expected, found) = (ack.no, unacked.records, ack.records);
            return Err(Fault::Records { no, expected, found });
        }
        unacked.answered = true;
        let mut records = 0;
        for caller in std::mem::take(&mut unacked.callers) {
            let (start, end) = (records, records + caller.records);
            records = end;
            let at = |records, stamps_max: i64| {
                let stamp = ack.start.timestamp_ms.max(stamps_max.min(ack.last_ms));
                Position::new(ack.start.seq_num.after(records), stamp)
            };
            let appended = Appended {
                start: at(start, if start == 0 { i64::MIN } else { caller.stamps_max.0 }),
                end: if end == u64::from(ack.records) { ack.end() } else { at(end, caller.stamps_max.1) },
                tail: group.tail,
                class: group.class,
            };
            let _ = caller.answer.send(Ok(appended));
        }
        self.forget_answered();
        Ok(())
    }

    /// A batch is refused, alone; answers the error that ends the session when it was a chained one.
    pub(super) fn on_refused(&mut self, no: BatchNo, refusal: Refusal) -> Result<Option<Error>, Fault> {
        let unacked = self.answered(no)?;
        unacked.answered = true;
        let error = Error::refused(refusal, unacked.maybe_landed);
        for caller in std::mem::take(&mut unacked.callers) {
            let _ = caller.answer.send(Err(error.clone()));
        }
        let chained = unacked.chained;
        self.forget_answered();
        if !chained {
            return Ok(None);
        }
        // Those that are not chained to it are judged by themselves, and nobody hears how.
        for later in self.unacked.iter_mut().take(self.sent).filter(|later| !later.chained) {
            later.maybe_landed = true;
        }
        Ok(Some(error))
    }

    /// The session is over: every batch fails, each knowing whether it may have landed. What may have happened to the one that
    /// ended it may have happened to all on this connection.
    pub(super) fn fail(&mut self, error: &Error) {
        if !error.no_side_effect() {
            for sent in self.unacked.iter_mut().take(self.sent) {
                sent.maybe_landed = true;
            }
        }
        self.sent = 0;
        for unacked in self.unacked.drain(..) {
            let error = error.about_batch(unacked.maybe_landed);
            for caller in unacked.callers {
                let _ = caller.answer.send(Err(error.clone()));
            }
        }
    }
}

impl Unacked {
    /// The frame of another attempt.
    fn again(&self, session: u32, no: BatchNo) -> Bytes {
        let head = AppendHead {
            session,
            no,
            match_seq_num: self.match_seq_num,
            resent: self.maybe_landed,
            batch_crc: self.batch_crc,
        };
        let mut out = Vec::with_capacity(self.frame.len());
        let open = frame::begin(&mut out);
        let head_bytes = APPEND_HEAD_BYTES + self.terms.len();
        out.resize(HEADER_BYTES + head_bytes, 0);
        put_head(&head, &self.terms, &mut out[HEADER_BYTES..]);
        let open = open.head_ends(&out);
        out.extend_from_slice(&self.frame[HEADER_BYTES + head_bytes..]);
        open.end(Kind::Append, 0, &mut out);
        out.into()
    }
}

fn put_head(head: &AppendHead, terms: &[u8], out: &mut [u8]) {
    if terms.is_empty() {
        out.copy_from_slice(&head.encode());
    } else {
        out.copy_from_slice(&head.encode_on(terms));
    }
}

#[cfg(test)]
mod tests;
