//! What of a head log goes to control next, to be settled.
//!
//! Entries are copied as they are appended and leave in parcels once they are durable. When control takes them more slowly
//! than they come, the copies are dropped and the log is read again from disk instead, piece by piece, until the reading
//! has come to where the copies begin. Either way the parcels of a log follow each other without a gap.

use std::collections::VecDeque;

use express_log::EntryPos;
use wire::handoff::{Parcel, ParcelItem};
use wire::ids::{Epoch, LogId, Lsn};

/// A parcel is cut at this many bytes.
pub(crate) const PARCEL_BYTES: usize = 1 << 20;
/// Copies that wait for durability or for control, in bytes; with more they are dropped and read again.
const COPIES_BYTES_MAX: usize = 16 << 20;
/// Bytes that control has been sent and has not settled; with more it is sent nothing.
const OUTSTANDING_BYTES_MAX: usize = 32 << 20;

/// Entries of `from..to`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first one's LSN.
    pub(crate) from: Lsn,
    /// One past the last one's.
    pub(crate) to: Lsn,
    /// The entries.
    pub(crate) parcel: Parcel,
    /// Where the last one lies.
    pub(crate) end: Option<EntryPos>,
}

impl Piece {
    /// A piece without entries yet.
    pub(crate) fn starting(from: Lsn) -> Self {
        Self { from, to: from, parcel: Parcel::default(), end: None }
    }
}

/// What is sent and not settled.
#[derive(Debug)]
struct Sent {
    to: Lsn,
    bytes: usize,
    end: Option<EntryPos>,
}

/// What is read from disk.
#[derive(Debug)]
struct Behind {
    /// The next entry that is to be read.
    from: Lsn,
    /// Where the copies begin.
    to: Lsn,
    is_reading: bool,
}

/// The feed of one head log.
#[derive(Debug)]
pub(crate) struct Feed {
    log: LogId,
    filling: Piece,
    sealed: VecDeque<Piece>,
    copies_bytes: usize,
    behind: Option<Behind>,
    outstanding: VecDeque<Sent>,
    outstanding_bytes: usize,
    settled: Lsn,
    /// Where the entries of each earlier tenure end that are not settled, oldest first.
    old: VecDeque<(Epoch, Lsn)>,
    /// Nothing from here on is sent: other logs hold older entries of the same streams.
    barrier: Option<Lsn>,
}

impl Feed {
    /// The feed of a log that is settled up to `settled` and will append `next` next. What lies between is read from disk; `old` says
    /// where in it each tenure ends. Nothing is sent before [`Feed::let_through`] has said up to which.
    pub(crate) fn new(log: LogId, settled: Lsn, next: Lsn, old: Vec<(Epoch, Lsn)>) -> Self {
        let from = settled.next();
        let behind = (from < next).then_some(Behind { from, to: next, is_reading: false });
        Self {
            log,
            filling: Piece::starting(next),
            sealed: VecDeque::new(),
            copies_bytes: 0,
            behind,
            outstanding: VecDeque::new(),
            outstanding_bytes: 0,
            settled,
            old: old.into(),
            barrier: Some(from),
        }
    }

    /// The log.
    pub(crate) fn log(&self) -> LogId {
        self.log
    }

    /// The last entry that is settled.
    pub(crate) fn settled(&self) -> Lsn {
        self.settled
    }

    /// Whether all that earlier tenures wrote is settled.
    pub(crate) fn is_old_settled(&self) -> bool {
        self.old.is_empty()
    }

    /// The oldest tenure whose entries are settled now, told once.
    pub(crate) fn next_old_settled(&mut self) -> Option<Epoch> {
        let (epoch, _) = self.old.front().copied().filter(|(_, end)| *end <= self.settled.next())?;
        self.old.pop_front();
        Some(epoch)
    }

    /// Lets through what was written in `oldest` and before, the oldest tenure of which any log holds unsettled entries; all when there
    /// is none.
    pub(crate) fn let_through(&mut self, oldest: Option<Epoch>) {
        self.barrier = oldest.map(|oldest| {
            let ends = self.old.iter().take_while(|(epoch, _)| *epoch <= oldest);
            ends.last().map_or_else(|| self.settled.next(), |(_, end)| *end)
        });
    }

    /// Copies an entry that was just appended as the next one.
    #[inline]
    pub(crate) fn copy(&mut self, item: ParcelItem, entry: &[u8]) {
        self.filling.parcel.items.push(item);
        self.filling.parcel.bytes.extend_from_slice(entry);
        self.filling.to = self.filling.to.next();
        self.copies_bytes += entry.len();
    }

    /// Notes where the entry lies that was copied last.
    #[inline]
    pub(crate) fn note_copied(&mut self, pos: EntryPos) {
        self.filling.end = Some(pos);
        if self.filling.parcel.bytes.len() >= PARCEL_BYTES {
            self.seal();
        }
        if self.copies_bytes > COPIES_BYTES_MAX {
            self.fall_behind();
        }
    }

    /// Lets what was copied leave although a parcel is not full.
    pub(crate) fn seal(&mut self) {
        if self.filling.parcel.items.is_empty() {
            return;
        }
        let (items, bytes) = (self.filling.parcel.items.len(), self.filling.parcel.bytes.len());
        let mut next = Piece::starting(self.filling.to);
        // The next one is likely as large.
        next.parcel.items.reserve(items);
        next.parcel.bytes.reserve(bytes);
        self.sealed.push_back(std::mem::replace(&mut self.filling, next));
    }

    fn fall_behind(&mut self) {
        let (from, to) = (self.sealed.front().map_or(self.filling.from, |piece| piece.from), self.filling.to);
        self.sealed.clear();
        self.filling = Piece::starting(to);
        self.copies_bytes = 0;
        match &mut self.behind {
            Some(behind) => behind.to = to,
            None => self.behind = Some(Behind { from, to, is_reading: false }),
        }
    }

    fn may_send(&self) -> bool {
        self.outstanding_bytes < OUTSTANDING_BYTES_MAX
    }

    /// Whether a piece that was read may be sent now.
    pub(crate) fn takes_read(&self) -> bool {
        self.may_send()
    }

    /// The next copies to send, all durable.
    pub(crate) fn next_piece(&mut self, durable: Lsn) -> Option<Piece> {
        if self.behind.is_some() || !self.may_send() {
            return None;
        }
        let barrier = self.barrier;
        let front = self.sealed.front().filter(|piece| piece.to <= durable.next());
        front.filter(|piece| barrier.is_none_or(|barrier| piece.to <= barrier))?;
        let piece = self.sealed.pop_front()?;
        self.copies_bytes -= piece.parcel.bytes.len();
        self.note_sent(&piece);
        Some(piece)
    }

    fn note_sent(&mut self, piece: &Piece) {
        let bytes = piece.parcel.bytes.len();
        self.outstanding.push_back(Sent { to: piece.to, bytes, end: piece.end });
        self.outstanding_bytes += bytes;
    }

    /// The range to be read from disk next, all durable; once it was answered, [`Feed::on_read`] or [`Feed::on_read_end`] follow.
    pub(crate) fn next_read(&mut self, durable: Lsn) -> Option<(Lsn, Lsn)> {
        let behind = self.behind.as_mut().filter(|behind| !behind.is_reading)?;
        let mut to = behind.to.min(durable.next());
        if let Some(barrier) = self.barrier {
            to = to.min(barrier);
        }
        if behind.from >= to {
            return None;
        }
        behind.is_reading = true;
        Some((behind.from, to))
    }

    /// A piece was read; it is sent now.
    pub(crate) fn on_read(&mut self, piece: &Piece) {
        self.note_sent(piece);
        if let Some(behind) = &mut self.behind {
            behind.from = piece.to;
        }
    }

    /// The reading has ended: at the end of its range, or early.
    pub(crate) fn on_read_end(&mut self) {
        if let Some(behind) = &mut self.behind {
            behind.is_reading = false;
            if behind.from >= behind.to {
                self.behind = None;
            }
        }
    }

    /// Whether nothing waits to be sent or read.
    pub(crate) fn is_quiet(&self) -> bool {
        self.behind.is_none() && self.copies_bytes == 0
    }

    /// Control has settled everything up to `upto`; answers where the last entry lies of what was sent up to there.
    pub(crate) fn on_settled(&mut self, upto: Lsn) -> Option<EntryPos> {
        self.settled = self.settled.max(upto);
        let mut end = None;
        while self.outstanding.front().is_some_and(|sent| sent.to <= upto.next()) {
            if let Some(sent) = self.outstanding.pop_front() {
                self.outstanding_bytes -= sent.bytes;
                end = sent.end.or(end);
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ids::{SegmentId, StreamId};
    use wire::slot::Slot;

    const LOG: LogId = LogId::from_bytes([7; 16]);

    fn lsn(lsn: u64) -> Lsn {
        Lsn::new(lsn)
    }

    fn item(bytes: usize) -> ParcelItem {
        let slot = Slot::all().next().unwrap();
        let stream_id = StreamId::from_bytes([1; 16]);
        ParcelItem { slot, stream_id, bytes: u32::try_from(bytes).unwrap(), content_bytes: 1, first_ms: 5 }
    }

    fn piece(from: u64, to: u64) -> Piece {
        Piece { from: lsn(from), to: lsn(to), parcel: Parcel::default(), end: None }
    }

    fn copy(feed: &mut Feed, bytes: usize) {
        feed.copy(item(bytes), &vec![3; bytes]);
        feed.note_copied(EntryPos { segment: SegmentId::new(1), offset: 4096, bytes: 1 });
    }

    #[test]
    fn copies_leave_once_they_are_durable_and_sealed() {
        let mut feed = Feed::new(LOG, lsn(0), lsn(1), Vec::new());
        feed.let_through(None);
        copy(&mut feed, 100);
        copy(&mut feed, 100);
        assert_eq!(feed.next_piece(lsn(2)), None, "not sealed");
        feed.seal();
        assert_eq!(feed.next_piece(lsn(1)), None, "not durable");
        let piece = feed.next_piece(lsn(2)).unwrap();
        assert_eq!((piece.from, piece.to, piece.parcel.items.len()), (lsn(1), lsn(3), 2));
        assert_eq!(feed.next_piece(lsn(2)), None);
    }

    #[test]
    fn what_is_not_settled_at_the_start_is_read_first_tenure_by_tenure() {
        let (fourth, fifth) = (Epoch::new(4), Epoch::new(5));
        let mut feed = Feed::new(LOG, lsn(10), lsn(21), vec![(fourth, lsn(16)), (fifth, lsn(21))]);
        copy(&mut feed, 10);
        feed.seal();
        assert_eq!(
            (feed.next_piece(lsn(21)), feed.next_read(lsn(21))),
            (None, None),
            "nobody has let anything through"
        );
        feed.let_through(Some(Epoch::new(3)));
        assert_eq!(feed.next_read(lsn(21)), None, "another log holds older entries");
        feed.let_through(Some(fourth));
        assert_eq!(feed.next_read(lsn(21)), Some((lsn(11), lsn(16))));
        assert_eq!(feed.next_read(lsn(21)), None, "one at a time");
        feed.on_read(&piece(11, 16));
        feed.on_read_end();
        assert_eq!(feed.next_read(lsn(21)), None, "the next tenure waits");
        feed.on_settled(lsn(15));
        assert_eq!((feed.next_old_settled(), feed.next_old_settled()), (Some(fourth), None));
        feed.let_through(Some(fifth));
        assert_eq!(feed.next_read(lsn(21)), Some((lsn(16), lsn(21))));
        feed.on_read(&piece(16, 21));
        feed.on_read_end();
        assert_eq!(feed.next_piece(lsn(21)), None, "what is new waits for all that is old");
        feed.on_settled(lsn(20));
        assert_eq!(feed.next_old_settled(), Some(fifth));
        assert!(feed.is_old_settled());
        feed.let_through(None);
        assert_eq!(feed.next_piece(lsn(21)).unwrap().from, lsn(21));
    }

    #[test]
    fn copies_that_nobody_takes_are_dropped_and_read_again() {
        let mut feed = Feed::new(LOG, lsn(0), lsn(1), Vec::new());
        feed.let_through(None);
        for _ in 0..17 {
            copy(&mut feed, 1 << 20);
        }
        assert_eq!(feed.next_piece(lsn(17)), None);
        copy(&mut feed, 50);
        feed.seal();
        assert_eq!(feed.next_read(lsn(5)), Some((lsn(1), lsn(6))));
        feed.on_read(&Piece { from: lsn(1), to: lsn(6), parcel: Parcel::default(), end: None });
        feed.on_read_end();
        assert_eq!(feed.next_read(lsn(18)), Some((lsn(6), lsn(18))), "up to where the copies begin");
        feed.on_read(&Piece { from: lsn(6), to: lsn(18), parcel: Parcel::default(), end: None });
        feed.on_read_end();
        let piece = feed.next_piece(lsn(18)).unwrap();
        assert_eq!((piece.from, piece.to), (lsn(18), lsn(19)));
    }

    #[test]
    fn no_more_is_sent_than_control_has_room_for() {
        let mut feed = Feed::new(LOG, lsn(0), lsn(1), Vec::new());
        feed.let_through(None);
        let mut sent = 0;
        for at in 1..=60 {
            copy(&mut feed, 1 << 20);
            sent += usize::from(feed.next_piece(lsn(at)).is_some());
        }
        assert_eq!(sent, 32);
        feed.on_settled(lsn(16));
        assert!(feed.takes_read());
    }
}
