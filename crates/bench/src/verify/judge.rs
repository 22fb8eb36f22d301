//! Is what a stream serves what was written to it, in order, once, and stamped in order?

use serde::Serialize;
use wire::batch::VerifiedBatch;
use wire::entry::{BatchHead, Entry, Verb};
use wire::frame::{Frame, FrameError};
use wire::hot::RecordsHead;
use wire::ids::SeqNum;

use crate::chain::{Broken, Link};
use crate::error::BenchError;

/// A promise that a star broke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// What was acked is not there.
    #[error("loss: {acked} records are acked, and there are {found}")]
    Loss {
        /// Records that are acked.
        acked: u64,
        /// Records up to the first that is missing.
        found: u64,
    },
    /// A record stands twice.
    #[error("double: record {place} stands again at sequence number {seq_num}")]
    Double {
        /// Which record.
        place: u64,
        /// Where it stands again.
        seq_num: u64,
    },
    /// All records are there, not in the order in which they were written.
    #[error("reorder: record {place} stands at sequence number {seq_num}")]
    Reorder {
        /// The first that is out of order.
        place: u64,
        /// Where it stands.
        seq_num: u64,
    },
    /// Sequence numbers that no record has.
    #[error("gap: no record has the sequence numbers {from}..{to}")]
    Gap {
        /// The first.
        from: u64,
        /// One past the last.
        to: u64,
    },
    /// A record that is none of those that were written, or has other bytes.
    #[error("wrong body: at sequence number {seq_num}, {why}")]
    Body {
        /// Where.
        seq_num: u64,
        /// What is wrong with it.
        why: String,
    },
    /// An append under an old fencing token was accepted.
    #[error("late append: after the fence at {fence} one under the token before was accepted at {seq_num}")]
    LateAppend {
        /// The tail that the fence answered.
        fence: u64,
        /// Where the append was put.
        seq_num: u64,
    },
    /// Two appends that expected the same sequence number were accepted.
    #[error("two winners: two appends that both expected sequence number {seq_num} were accepted")]
    TwoWinners {
        /// Which.
        seq_num: u64,
    },
    /// A record that a reader got is another one now, or gone.
    #[error("read, then lost: record {place} was read, and is not there as it was")]
    ReadThenLost {
        /// Which.
        place: u64,
    },
    /// A tail that is not one past the last record.
    #[error("wrong tail: {told} is told, and there are {found} records")]
    Tail {
        /// What was told.
        told: u64,
        /// Records there are.
        found: u64,
    },
    /// A record stamped before the one before it.
    #[error("wrong stamp order: sequence number {seq_num} is stamped {found} ms, the one before {before} ms")]
    Stamps {
        /// Which.
        seq_num: u64,
        /// The stamp before.
        before: i64,
        /// Its own.
        found: i64,
    },
}

/// Goes through a stream's records from some place on.
#[derive(Debug, Clone)]
pub(super) struct Judge {
    /// Where the writing stands after what was looked at.
    pub(super) link: Link,
    /// The next sequence number.
    pub(super) due: SeqNum,
    stamp_ms: i64,
    /// What was known before: when the judge comes past such a place, the hash must be this one.
    marks: Vec<(Known, Link)>,
}

/// How a place is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Its writer got an ack.
    Acked,
    /// A reader got its record.
    Read,
}

/// Why a judge stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// For certain.
    Fault(Fault),
    /// A record of another place stands where one was due: all of the stream must be seen to say what that is.
    Place {
        /// The one that was due.
        expected: u64,
        /// The one that stands there.
        found: u64,
    },
}

impl Judge {
    /// From a link on, which is that of the record before sequence number `link.place`.
    pub(super) fn from(link: Link) -> Self {
        Self { link, due: SeqNum::new(link.place), stamp_ms: i64::MIN, marks: Vec::new() }
    }

    /// The same, which also checks what was acked or read before.
    pub(super) fn with_marks(mut self, marks: impl IntoIterator<Item = (Known, Link)>) -> Self {
        self.marks.clear();
        self.marks.extend(marks.into_iter().filter(|(_, mark)| mark.place > self.link.place));
        self
    }

    /// Looks at a page; the answer says whether it reached the tail that the server knew, and that tail.
    pub(super) fn page(&mut self, frame: &Frame<'_>) -> Result<Result<RecordsHead, Stop>, BenchError> {
        let head =
            RecordsHead::decode(frame.head).map_err(|_| BenchError::Frame(FrameError::Body { kind: frame.kind }))?;
        let mut at = 0;
        while at < frame.payload.len() {
            let (entry, bytes) = Entry::decode(&frame.payload[at..])?;
            at += bytes;
            let judged = match entry {
                Entry::Batch { head: of, batch, .. } => self.batch(&of, &VerifiedBatch::verify(batch, of.batch_crc)?),
                Entry::Verb { verb: Verb::Gap { from, to }, .. } if to > self.due => {
                    Err(Stop::Fault(Fault::Gap { from: from.get(), to: to.get() }))
                }
                Entry::Verb { .. } => Ok(()),
            };
            if let Err(stop) = judged {
                return Ok(Err(stop));
            }
        }
        if self.due < head.end {
            let (from, to) = (self.due.get(), head.end.get());
            return Ok(Err(Stop::Fault(Fault::Gap { from, to })));
        }
        Ok(Ok(head))
    }

    fn batch(&mut self, head: &BatchHead, batch: &VerifiedBatch<'_>) -> Result<(), Stop> {
        if head.first > self.due {
            return Err(Stop::Fault(Fault::Gap { from: self.due.get(), to: head.first.get() }));
        }
        let mut stamp_ms = head.stamping.previous_ms;
        for (seq_num, record) in (head.first.get()..).zip(batch) {
            stamp_ms = head.stamping.effective(record.timestamp_ms, stamp_ms);
            if seq_num < self.due.get() {
                continue;
            }
            if stamp_ms < self.stamp_ms {
                return Err(Stop::Fault(Fault::Stamps { seq_num, before: self.stamp_ms, found: stamp_ms }));
            }
            self.stamp_ms = stamp_ms;
            self.record(seq_num, record.body)?;
        }
        Ok(())
    }

    fn record(&mut self, seq_num: u64, body: &[u8]) -> Result<(), Stop> {
        match self.link.follow(body) {
            Ok(()) => {}
            Err(Broken::Place { expected, found }) => return Err(Stop::Place { expected, found }),
            Err(other) => return Err(Stop::Fault(Fault::Body { seq_num, why: other.to_string() })),
        }
        self.due = SeqNum::new(seq_num + 1);
        let link = self.link;
        match self.marks.iter().find(|(_, mark)| mark.place == link.place && mark.hash != link.hash) {
            Some((Known::Read, _)) => Err(Stop::Fault(Fault::ReadThenLost { place: link.place - 1 })),
            Some((Known::Acked, _)) => {
                let why = "it is another record than the one that was acked".to_owned();
                Err(Stop::Fault(Fault::Body { seq_num, why }))
            }
            None => Ok(()),
        }
    }
}

/// What a stream is guilty of whose records have these places, from sequence number 0 on, and of which so many are acked.
pub(super) fn sentence(places: &[u64], acked: u64) -> Option<Fault> {
    let mut sorted: Vec<(u64, u64)> = places.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let double = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[1]);
    if let Some((place, seq_num)) = double {
        return Some(Fault::Double { place, seq_num });
    }
    let missing = (0..).zip(&sorted).find(|(due, (place, _))| due != place).map(|(due, _)| due);
    let found = missing.unwrap_or(places.len() as u64);
    if found < acked || missing.is_some() {
        return Some(Fault::Loss { acked, found });
    }
    let moved = places.iter().copied().zip(0..).find(|(place, seq_num)| place != seq_num);
    moved.map(|(place, seq_num)| Fault::Reorder { place, seq_num })
}

#[cfg(test)]
mod tests {
    use super::{Fault, sentence};

    #[test]
    fn a_stream_is_sentenced_by_the_places_of_its_records() {
        assert_eq!(sentence(&[0, 1, 2, 3], 4), None);
        assert_eq!(sentence(&[0, 1, 2, 3], 2), None);
        assert_eq!(sentence(&[0, 1, 2], 4), Some(Fault::Loss { acked: 4, found: 3 }));
        assert_eq!(sentence(&[0, 2, 3], 4), Some(Fault::Loss { acked: 4, found: 1 }));
        assert_eq!(sentence(&[0, 1, 1, 2], 3), Some(Fault::Double { place: 1, seq_num: 2 }));
        assert_eq!(sentence(&[0, 2, 1, 3], 4), Some(Fault::Reorder { place: 2, seq_num: 1 }));
    }
}
