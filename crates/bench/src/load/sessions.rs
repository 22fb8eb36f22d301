//! Whose turn is it to append, and do the acks keep what the server promised?

use std::collections::HashMap;

use wire::hot::{Ack, AckGroup};
use wire::ids::{BatchNo, Position, SeqNum};

use super::flights::{Flights, Sent};
use crate::shape::Picker;

/// A session as it was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenedSession {
    /// Its handle on this connection.
    pub(crate) handle: u32,
    /// Batches that it may have in flight.
    pub(crate) window: usize,
    /// The tail when it opened.
    pub(crate) tail: Position,
    /// Whether nobody else appends to its stream, so that its records are contiguous.
    pub(crate) is_alone: bool,
}

/// A promise that an answer broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("an answer to session {handle}, which is not open")]
    UnknownSession { handle: u32 },
    #[error("session {handle}: an answer to batch {no}, which is not in flight")]
    NotInFlight { handle: u32, no: u64 },
    #[error("session {handle}: batch {no} was acked before one sent earlier")]
    OutOfOrder { handle: u32, no: u64 },
    #[error("session {handle}: batch {no} starts at sequence number {found} where {expected} was due")]
    Gap { handle: u32, no: u64, expected: u64, found: u64 },
    #[error("session {handle}: batch {no} has {sent} records, {found} were acked")]
    Records { handle: u32, no: u64, sent: u32, found: u32 },
    #[error("session {handle}: batch {no} is stamped {found} ms after {previous} ms")]
    StampFell { handle: u32, no: u64, previous: i64, found: i64 },
    #[error("session {handle}: batch {no} ends at {end}, past the tail {tail} of its own ack")]
    PastTail { handle: u32, no: u64, end: u64, tail: u64 },
}

/// A batch that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Launched {
    /// Its session's handle.
    pub(crate) session: u32,
    /// Its number.
    pub(crate) no: BatchNo,
    /// The sequence number that its first record must get, of a conditional load.
    pub(crate) match_seq_num: Option<SeqNum>,
}

#[derive(Debug)]
struct Session {
    opened: OpenedSession,
    flights: Flights,
    end: Position,
    /// Where the next batch will be if all in flight are stored; `None` once one was refused, until the others have landed.
    next: Option<SeqNum>,
}

/// The writer sessions of a connection, which take turns round robin.
#[derive(Debug)]
pub(crate) struct Sessions {
    all: Vec<Session>,
    by_handle: HashMap<u32, usize>,
    latest: Option<(u32, usize)>,
    turn: usize,
    in_flight: usize,
    window: usize,
    records: u32,
    picker: Picker,
    is_conditional: bool,
}

impl Sessions {
    /// None yet; every batch has `records` records, and `window` of them may be in flight on the connection.
    pub(crate) fn new(window: usize, records: u32, picker: Picker, is_conditional: bool) -> Self {
        Self {
            all: Vec::new(),
            by_handle: HashMap::new(),
            latest: None,
            turn: 0,
            in_flight: 0,
            window,
            records,
            picker,
            is_conditional,
        }
    }

    /// Adds one that was opened.
    pub(crate) fn add(&mut self, opened: OpenedSession) {
        self.by_handle.insert(opened.handle, self.all.len());
        let next = Some(opened.tail.seq_num);
        self.all.push(Session { opened, flights: Flights::new(), end: opened.tail, next });
    }

    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How many batches can be in flight at once: the window, or what the sessions' own windows allow if that is less.
    pub(crate) fn window_reached(&self) -> usize {
        let windows = self.all.iter().map(|session| session.opened.window);
        windows.sum::<usize>().min(self.window)
    }

    /// Launches the next batch: of the session that is drawn, or whose turn it is, or of the next one after it that has room.
    #[inline]
    pub(crate) fn launch(&mut self, sent: Sent) -> Option<Launched> {
        if self.in_flight >= self.window {
            return None;
        }
        let mut drawn = self.picker.pick(self.all.len());
        for _ in 0..self.all.len() {
            let at = drawn.take().unwrap_or(self.turn);
            self.turn = if at + 1 == self.all.len() { 0 } else { at + 1 };
            let session = &mut self.all[at];
            if session.has_room(self.is_conditional) {
                self.in_flight += 1;
                return Some(session.launch(sent, self.records, self.is_conditional));
            }
        }
        None
    }

    #[inline]
    fn of(&mut self, handle: u32) -> Option<&mut Session> {
        let at = match self.latest {
            Some((latest, at)) if latest == handle => at,
            _ => *self.by_handle.get(&handle)?,
        };
        self.latest = Some((handle, at));
        self.all.get_mut(at)
    }

    /// Takes a refused batch down; nothing of it was appended.
    pub(crate) fn on_refused(&mut self, handle: u32, no: BatchNo) -> Result<Sent, Violation> {
        let session = self.of(handle).ok_or(Violation::UnknownSession { handle })?;
        let no = no.get();
        let landed = session.flights.land(no).ok_or(Violation::NotInFlight { handle, no })?;
        session.is_refused();
        self.in_flight -= 1;
        Ok(landed.sent)
    }

    /// Takes an acked batch down and checks its ack; the first promise that it breaks comes beside it.
    #[inline]
    pub(crate) fn on_ack(&mut self, group: &AckGroup, ack: &Ack) -> (Option<Sent>, Option<Violation>) {
        let (handle, no, records) = (group.session, ack.no.get(), self.records);
        let Some(session) = self.of(handle) else {
            return (None, Some(Violation::UnknownSession { handle }));
        };
        let Some(landed) = session.flights.land(no) else {
            return (None, Some(Violation::NotInFlight { handle, no }));
        };
        let broken = if landed.in_order {
            session.broken(group, ack, records)
        } else {
            Some(Violation::OutOfOrder { handle, no })
        };
        // What an ack says is where the next one is judged from, so that one fault is counted once.
        session.end = ack.end();
        session.settle();
        self.in_flight -= 1;
        (Some(landed.sent), broken)
    }
}

impl Session {
    #[inline]
    fn has_room(&self, is_conditional: bool) -> bool {
        self.flights.in_flight() < self.opened.window && (self.next.is_some() || !is_conditional)
    }

    #[inline]
    fn launch(&mut self, sent: Sent, records: u32, is_conditional: bool) -> Launched {
        let match_seq_num = self.next.filter(|_| is_conditional);
        self.next = self.next.map(|next| next.after(records.into()));
        let no = BatchNo::new(self.flights.launch(sent));
        Launched { session: self.opened.handle, no, match_seq_num }
    }

    /// Once one is refused, those behind it expect the wrong place: nothing more is sent until they have landed.
    fn is_refused(&mut self) {
        self.next = None;
        self.settle();
    }

    /// When nothing is in flight, the next batch goes where the last ack ended.
    #[inline]
    fn settle(&mut self) {
        if self.next.is_none() && self.flights.in_flight() == 0 {
            self.next = Some(self.end.seq_num);
        }
    }

    #[inline]
    fn broken(&self, group: &AckGroup, ack: &Ack, records: u32) -> Option<Violation> {
        let (handle, no) = (group.session, ack.no.get());
        let (expected, found) = (self.end.seq_num.get(), ack.start.seq_num.get());
        if found < expected || (found > expected && self.opened.is_alone) {
            return Some(Violation::Gap { handle, no, expected, found });
        }
        if ack.records != records {
            return Some(Violation::Records { handle, no, sent: records, found: ack.records });
        }
        let previous = self.end.timestamp_ms;
        let fell = [(previous, ack.start.timestamp_ms), (ack.start.timestamp_ms, ack.last_ms)]
            .into_iter()
            .find(|(before, behind)| behind < before);
        if let Some((previous, found)) = fell {
            return Some(Violation::StampFell { handle, no, previous, found });
        }
        let (end, tail) = (ack.end().seq_num.get(), group.tail.seq_num.get());
        (end > tail).then_some(Violation::PastTail { handle, no, end, tail })
    }
}

#[cfg(test)]
mod tests;
