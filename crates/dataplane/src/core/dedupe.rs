//! What a stream remembers of its producers, so that a batch resent is stored once.

use std::collections::VecDeque;

use smallvec::SmallVec;
use wire::entry::Numbered;
use wire::ids::{BatchNo, Lsn, Position, ProducerId};

/// Producers that a stream remembers; the one heard least recently goes first.
const PRODUCERS_MAX: usize = 8;
/// Answers remembered a producer.
const ANSWERS_MAX: usize = 16;
/// One-shot keys that a stream remembers; the oldest goes first.
const ONE_SHOTS_MAX: usize = 32;

/// The first answer to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The producer's number.
    pub(crate) no: BatchNo,
    /// The CRC-32C of the batch: the same number with other bytes is an error.
    pub(crate) batch_crc: u32,
    /// How many records it has.
    pub(crate) records: u16,
    /// Its first record.
    pub(crate) start: Position,
    /// The stamp of its last record.
    pub(crate) last_ms: i64,
    /// What must be durable before it is answered again; zero once it is known to be.
    pub(crate) lsn: Lsn,
}

/// What is known of a numbered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing.
    New,
    /// It was stored: this was its answer.
    Stored(Answer),
    /// Its number was used for other bytes.
    OtherBytes,
    /// Its number is older than what is remembered: it may or may not be stored.
    Forgotten,
}

/// A producer. A batch numbered past its newest is new, so that the hot path needs no look at its answers.
#[derive(Debug)]
struct Producer {
    id: ProducerId,
    newest: BatchNo,
    /// By number.
    answers: VecDeque<Answer>,
}

impl Producer {
    fn note(&mut self, answer: Answer) {
        if self.answers.len() == ANSWERS_MAX {
            self.answers.pop_front();
        }
        if answer.no > self.newest {
            self.newest = answer.no;
            self.answers.push_back(answer);
            return;
        }
        let at = self.answers.partition_point(|other| other.no < answer.no);
        self.answers.insert(at, answer);
    }
}

/// Whether a batch has a number that a resend of it would repeat.
pub(crate) fn is_remembered(numbered: Numbered) -> bool {
    numbered.one_shot || numbered.producer != ProducerId::ZERO
}

/// The producers and one-shot keys that a stream remembers.
#[derive(Debug, Default)]
pub(crate) struct Dedupe {
    /// The one heard most recently last.
    producers: SmallVec<[Producer; 1]>,
    one_shots: Vec<(ProducerId, Answer)>,
}

impl Dedupe {
    /// What is known of a batch.
    pub(crate) fn look(&self, numbered: Numbered, batch_crc: u32) -> Seen {
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
            // A number between remembered ones was refused before, so that nothing of it is stored.
            None => Seen::New,
        }
    }

    /// Remembers a batch; deterministic, so that a replay remembers the same.
    pub(crate) fn note(&mut self, numbered: Numbered, answer: Answer) {
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
    pub(crate) fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.one_shots.is_empty()
    }

    /// Forgets a producer that said it is done.
    pub(crate) fn forget(&mut self, producer: ProducerId) {
        self.producers.retain(|known| known.id != producer);
    }
}

fn judge(answer: &Answer, batch_crc: u32) -> Seen {
    if answer.batch_crc == batch_crc { Seen::Stored(*answer) } else { Seen::OtherBytes }
}

#[cfg(test)]
mod tests;
