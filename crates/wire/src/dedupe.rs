//! What a stream remembers of its producers, so that a batch resent is stored once.
//!
//! Its bytes, little-endian: nothing when nothing is remembered, else the number of producers (u16) and of one-shot keys
//! (u16), then each producer, the one heard most recently last: its id (8), the number of its answers (u16), and the
//! answers by number; then each one-shot key, the oldest first: its high half (8) and its answer.
//!
//! | at | bytes | field of an answer |
//! |---|---|---|
//! | 0 | 8 | the batch's number; the low half of a one-shot key |
//! | 8 | 4 | CRC-32C of the batch |
//! | 12 | 2 | records |
//! | 14 | 8 | sequence number of its first record |
//! | 22 | 8 | stamp of its first record, milliseconds |
//! | 30 | 8 | stamp of its last record, milliseconds |

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::bytes::{i64_at, u16_at, u32_at, u64_at};
use crate::entry::Numbered;
use crate::ids::{BatchNo, Lsn, Position, ProducerId, SeqNum};

/// Producers that a stream remembers; the one heard least recently goes first.
const PRODUCERS_MAX: usize = 8;
/// Answers remembered a producer.
const ANSWERS_MAX: usize = 16;
/// One-shot keys that a stream remembers; the oldest goes first.
const ONE_SHOTS_MAX: usize = 32;
/// Bytes of an encoded answer.
const ANSWER_BYTES: usize = 38;

/// The first answer to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The producer's number.
    pub no: BatchNo,
    /// The CRC-32C of the batch: the same number with other bytes is an error.
    pub batch_crc: u32,
    /// How many records it has.
    pub records: u16,
    /// Its first record.
    pub start: Position,
    /// The stamp of its last record.
    pub last_ms: i64,
    /// What must be durable before it is answered again; zero once it is known to be.
    pub lsn: Lsn,
}

impl Answer {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.no.get().to_le_bytes());
        out.extend_from_slice(&self.batch_crc.to_le_bytes());
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&self.start.seq_num.get().to_le_bytes());
        out.extend_from_slice(&self.start.timestamp_ms.to_le_bytes());
        out.extend_from_slice(&self.last_ms.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            no: BatchNo::new(u64_at(bytes, 0)),
            batch_crc: u32_at(bytes, 8),
            records: u16_at(bytes, 12),
            start: Position::new(SeqNum::new(u64_at(bytes, 14)), i64_at(bytes, 22)),
            last_ms: i64_at(bytes, 30),
            lsn: Lsn::ZERO,
        }
    }
}

/// Why bytes are no memory of producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DedupeError {
    /// They end too early, or too late.
    #[error("what is remembered of producers does not fill its {bytes} bytes, or is longer")]
    Length {
        /// How many there are, from where it fails.
        bytes: usize,
    },
    /// More of something than is ever remembered.
    #[error("{found} {what} are remembered where at most {max} can be")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        found: u16,
        /// How many there can be.
        max: usize,
    },
    /// A producer without an answer, or with answers that are out of order.
    #[error("the answers of a producer are missing or out of order")]
    Order,
}

/// What is known of a numbered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    New,
    /// It was stored: this was its answer.
    Stored(Answer),
    /// Its number was used for other bytes.
    OtherBytes,
    /// It was refused, so that nothing of it is stored, and later ones of its producer are.
    Refused,
    /// Its number is older than what is remembered: it may or may not be stored.
    Forgotten,
}

/// A producer, with an answer at least. A batch numbered past its newest is new, so that the hot path needs no look at its answers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Producer {
    id: ProducerId,
    newest: BatchNo,
    /// By number.
    answers: VecDeque<Answer>,
}

impl Producer {
    fn note(&mut self, answer: Answer) {
        self.newest = answer.no.max(self.newest);
        let at = match self.answers.back() {
            Some(newest) if newest.no > answer.no => self.answers.partition_point(|other| other.no < answer.no),
            _ => self.answers.len(),
        };
        self.answers.insert(at, answer);
        // The lowest number goes, also when that is the one: what stands between two that are remembered was refused.
        if self.answers.len() > ANSWERS_MAX {
            self.answers.pop_front();
        }
    }
}

/// Whether a batch has a number that a resend of it would repeat.
#[must_use]
#[inline]
pub fn is_remembered(numbered: Numbered) -> bool {
    numbered.one_shot || numbered.producer != ProducerId::ZERO
}

/// The producers and one-shot keys that a stream remembers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dedupe {
    /// The one heard most recently last.
    producers: SmallVec<[Producer; 1]>,
    one_shots: Vec<(ProducerId, Answer)>,
}

impl Dedupe {
    /// What is known of a batch.
    #[must_use]
    pub fn look(&self, numbered: Numbered, batch_crc: u32) -> Seen {
        if numbered.one_shot {
            let key = (numbered.producer, numbered.no);
            let seen = self.one_shots.iter().find(|(high, answer)| (*high, answer.no) == key);
            return seen.map_or(Seen::New, |(_, answer)| judge(answer, batch_crc));
        }
        let Some(producer) = self.producers.iter().rfind(|producer| producer.id == numbered.producer) else {
            return Seen::New;
        };
        if numbered.no > producer.newest {
            return Seen::New;
        }
        match producer.answers.iter().rfind(|answer| answer.no == numbered.no) {
            Some(answer) => judge(answer, batch_crc),
            None if producer.answers.front().is_some_and(|first| first.no > numbered.no) => Seen::Forgotten,
            None => Seen::Refused,
        }
    }

    /// Remembers a batch; deterministic, so that a replay remembers the same.
    pub fn note(&mut self, numbered: Numbered, answer: Answer) {
        if numbered.one_shot {
            if self.one_shots.len() == ONE_SHOTS_MAX {
                self.one_shots.remove(0);
            }
            self.one_shots.push((numbered.producer, answer));
            return;
        }
        let known = self.producers.iter().rposition(|producer| producer.id == numbered.producer);
        match known {
            Some(at) if at + 1 < self.producers.len() => {
                let producer = self.producers.remove(at);
                self.producers.push(producer);
            }
            Some(_) => {}
            None => {
                if self.producers.len() == PRODUCERS_MAX {
                    self.producers.remove(0);
                }
                let (id, newest) = (numbered.producer, BatchNo::ZERO);
                self.producers.push(Producer { id, newest, answers: VecDeque::new() });
            }
        }
        let Some(producer) = self.producers.last_mut() else { unreachable!("one was just put there") };
        producer.note(answer);
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.one_shots.is_empty()
    }

    /// Forgets a producer that said it is done.
    pub fn forget(&mut self, producer: ProducerId) {
        self.producers.retain(|known| known.id != producer);
    }

    /// Appends its bytes to `out`; what must be durable before an answer is given again is not among them.
    #[expect(clippy::cast_possible_truncation, reason = "each is bounded by a constant that fits")]
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        out.extend_from_slice(&(self.producers.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.one_shots.len() as u16).to_le_bytes());
        for producer in &self.producers {
            out.extend_from_slice(&producer.id.get().to_le_bytes());
            out.extend_from_slice(&(producer.answers.len() as u16).to_le_bytes());
            producer.answers.iter().for_each(|answer| answer.encode(out));
        }
        for (high, answer) in &self.one_shots {
            out.extend_from_slice(&high.get().to_le_bytes());
            answer.encode(out);
        }
    }

    /// What these bytes, all of them, remember; every answer counts as durable.
    ///
    /// # Errors
    /// [`DedupeError`] for anything that [`encode`](Self::encode) does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, DedupeError> {
        let mut dedupe = Self::default();
        if bytes.is_empty() {
            return Ok(dedupe);
        }
        let mut rest = bytes;
        let counts = take(&mut rest, 4)?;
        let producers = at_most("producers", u16_at(counts, 0), PRODUCERS_MAX)?;
        let one_shots = at_most("one-shot keys", u16_at(counts, 2), ONE_SHOTS_MAX)?;
        for _ in 0..producers {
            let head = take(&mut rest, 10)?;
            let mut answers = VecDeque::new();
            for _ in 0..at_most("answers of a producer", u16_at(head, 8), ANSWERS_MAX)? {
                answers.push_back(Answer::decode(take(&mut rest, ANSWER_BYTES)?));
            }
            let newest = answers.back().ok_or(DedupeError::Order)?.no;
            if !answers.iter().is_sorted_by_key(|answer| answer.no) {
                return Err(DedupeError::Order);
            }
            dedupe.producers.push(Producer { id: ProducerId::new(u64_at(head, 0)), newest, answers });
        }
        for _ in 0..one_shots {
            let high = ProducerId::new(u64_at(take(&mut rest, 8)?, 0));
            dedupe.one_shots.push((high, Answer::decode(take(&mut rest, ANSWER_BYTES)?)));
        }
        if dedupe.is_empty() || !rest.is_empty() {
            return Err(DedupeError::Length { bytes: bytes.len() });
        }
        Ok(dedupe)
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], DedupeError> {
    let (taken, left) = rest.split_at_checked(bytes).ok_or(DedupeError::Length { bytes: rest.len() })?;
    *rest = left;
    Ok(taken)
}

fn at_most(what: &'static str, found: u16, max: usize) -> Result<u16, DedupeError> {
    if usize::from(found) <= max { Ok(found) } else { Err(DedupeError::TooMany { what, found, max }) }
}

fn judge(answer: &Answer, batch_crc: u32) -> Seen {
    if answer.batch_crc == batch_crc { Seen::Stored(*answer) } else { Seen::OtherBytes }
}

#[cfg(test)]
mod tests;
