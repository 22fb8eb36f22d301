//! Which streams of a connection still get their one append, and was it stored whole?

use wire::message::{AppendOnce, Appended, Message};
use wire::names::FencingToken;
use wire::terms::Terms;

use super::Load;
use super::flights::{Flights, Sent};
use crate::error::BenchError;

/// The one-shot appends of a connection: one to each of its streams.
#[derive(Debug)]
pub(crate) struct OneShots {
    next: u32,
    step: u32,
    window: usize,
    flights: Flights,
}

/// A one-shot answer that can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAnswer {
    #[error("an answer to one-shot append {no}, which is not in flight")]
    NotInFlight { no: u64 },
    #[error("a one-shot append of {sent} records was stored as {start}..{end}, with the tail at {tail}")]
    Range { sent: u32, start: u64, end: u64, tail: u64 },
}

impl OneShots {
    /// Those of every `step`th stream from `first` on.
    pub(crate) const fn new(first: u32, step: u32, window: usize) -> Self {
        Self { next: first, step, window, flights: Flights::new() }
    }

    pub(crate) const fn in_flight(&self) -> usize {
        self.flights.in_flight()
    }

    pub(crate) const fn window(&self) -> usize {
        self.window
    }

    /// Whether every stream got its append and every append its answer.
    pub(crate) const fn is_done(&self, load: &Load) -> bool {
        self.next >= load.places.streams() && self.flights.in_flight() == 0
    }

    /// Writes the next append, if there is one and the window has room.
    pub(crate) fn launch(&mut self, load: &Load, sent: Sent, out: &mut Vec<u8>) -> Result<bool, BenchError> {
        if self.flights.in_flight() >= self.window || self.next >= load.places.streams() {
            return Ok(false);
        }
        let batch = load.batches.at(self.next.into());
        let append = AppendOnce {
            address: load.places.address(self.next)?,
            fencing_token: FencingToken::default(),
            match_seq_num: None,
            idempotency: (0, 0),
            terms: Terms::default(),
            batch_crc: batch.crc,
        };
        self.next = self.next.saturating_add(self.step);
        let no = self.flights.launch(sent);
        append.frame_with(no, &batch.bytes, out);
        Ok(true)
    }

    /// Takes an append down that was answered by no.
    pub(crate) fn on_refused(&mut self, no: u64) -> Result<Sent, BadAnswer> {
        let landed = self.flights.land(no);
        landed.map(|landed| landed.sent).ok_or(BadAnswer::NotInFlight { no })
    }

    /// Takes an append down that was stored, and checks where.
    pub(crate) fn on_appended(&mut self, no: u64, appended: &Appended, sent: u32) -> (Option<Sent>, Option<BadAnswer>) {
        let Some(landed) = self.flights.land(no) else {
            return (None, Some(BadAnswer::NotInFlight { no }));
        };
        let start = appended.start.seq_num.get();
        let (end, tail) = (appended.end.seq_num.get(), appended.tail.seq_num.get());
        let is_whole = start.checked_add(sent.into()) == Some(end) && end <= tail;
        let bad = BadAnswer::Range { sent, start, end, tail };
        (Some(landed.sent), (!is_whole).then_some(bad))
    }
}
