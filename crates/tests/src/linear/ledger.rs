//! Which record stood where, by all that was acked, read and read back?

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::{Answer, Ask, Fault, History, Kind, Operation};

/// Where a batch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// From here on.
    At(u64),
    /// Nowhere: it did not happen, or it is no batch.
    Nowhere,
    /// Below the last trim point, or nowhere.
    Open,
}

/// What is known of the records of a stream.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    history: &'a History,
    /// Of each append its records' start, and which operation it is.
    writers: BTreeMap<u64, usize>,
    /// The record at each sequence number that is known of.
    standing: BTreeMap<u64, u64>,
    /// Where each record stands.
    places: HashMap<u64, u64>,
    /// Of each operation.
    batches: Vec<Place>,
}

/// The records of an append.
fn records_of(operation: &Operation) -> Option<&Range<u64>> {
    match &operation.ask {
        Ask::Append { records, .. } => Some(records),
        _ => None,
    }
}

impl<'a> Ledger<'a> {
    /// All that a history tells of its records.
    pub(super) fn of(history: &'a History) -> Result<Self, Fault> {
        let mut ledger = Self {
            history,
            writers: BTreeMap::new(),
            standing: BTreeMap::new(),
            places: HashMap::new(),
            batches: vec![Place::Nowhere; history.operations.len()],
        };
        ledger.note_writers();
        for operation in &history.operations {
            check_form(operation)?;
        }
        let read_back = &history.read_back;
        ledger.see_all(read_back.records.iter().copied(), read_back.trim_point, None)?;
        for operation in &history.operations {
            match (&operation.ask, operation.told()) {
                (Ask::Append { records, .. }, Some(Answer::Appended(start))) => {
                    ledger.see_all(records.clone(), *start, Some(operation))?;
                }
                (Ask::Read(from), Some(Answer::Page { records, .. })) => {
                    ledger.see_all(records.iter().copied(), *from, Some(operation))?;
                }
                _ => {}
            }
        }
        ledger.complete_batches()?;
        ledger.settle_open();
        Ok(ledger)
    }

    fn note_writers(&mut self) {
        for (index, operation) in self.history.operations.iter().enumerate() {
            let Some(records) = records_of(operation) else { continue };
            assert!(!records.is_empty(), "a batch has a record");
            self.writers.insert(records.start, index);
        }
        let starts: Vec<(u64, usize)> = self.writers.iter().map(|(start, index)| (*start, *index)).collect();
        let appends = self.history.operations.iter().filter(|operation| records_of(operation).is_some()).count();
        let ends = starts.iter().map(|(_, index)| records_of(&self.history.operations[*index]).map_or(0, |r| r.end));
        let is_apart = ends.zip(starts.iter().skip(1)).all(|(end, (next, _))| end <= *next);
        assert!(is_apart && appends == starts.len(), "two appends have a record in common");
    }

    /// Which operation appended a record.
    fn writer_of(&self, record: u64) -> Option<usize> {
        let (_, index) = self.writers.range(..=record).next_back()?;
        records_of(&self.history.operations[*index]).filter(|records| records.contains(&record)).map(|_| *index)
    }

    /// Records were seen from a place on, by this operation or in the read-back.
    fn see_all(&mut self, records: impl Iterator<Item = u64>, start: u64, by: Option<&Operation>) -> Result<(), Fault> {
        records.zip(start..).try_for_each(|(record, seq_num)| self.see(record, seq_num, by))
    }

    /// A record was seen at a place, by this operation or in the read-back.
    fn see(&mut self, record: u64, seq_num: u64, by: Option<&Operation>) -> Result<(), Fault> {
        let where_seen = if by.is_some() { "an answer" } else { "the read-back" };
        let Some(writer) = self.writer_of(record) else {
            let says = format!("{where_seen} has record {record} at {seq_num}, and nobody appended it");
            return Err(Fault::new(Kind::Foreign, says, by));
        };
        let writer = &self.history.operations[writer];
        let both = [Some(writer), by].into_iter().flatten();
        if !matches!(writer.told(), None | Some(Answer::Appended(_))) {
            let says = format!("record {record} was refused, and {where_seen} has it at {seq_num}");
            return Err(Fault::new(Kind::RefusedButThere, says, both));
        }
        let (trim_point, tail) = (self.history.read_back.trim_point, self.history.read_back.tail());
        match self.places.get(&record) {
            Some(place) if *place == seq_num => return Ok(()),
            Some(place) => {
                let says = format!("record {record} stands at {place} and at {seq_num}");
                return Err(Fault::new(Kind::Doubled, says, both));
            }
            None if by.is_some() && seq_num >= trim_point => {
                let says = format!("record {record} stood at {seq_num}, and is not in {trim_point}..{tail} read back");
                return Err(Fault::new(Kind::Lost, says, both));
            }
            None => {}
        }
        if let Some(other) = self.standing.insert(seq_num, record) {
            let other_writer = self.writer_of(other).map(|index| &self.history.operations[index]);
            let says = format!("records {other} and {record} both stood at {seq_num}");
            return Err(Fault::new(Kind::Doubled, says, both.chain(other_writer)));
        }
        self.places.insert(record, seq_num);
        Ok(())
    }

    /// A batch of which one record is known to stand somewhere stands there as a whole.
    fn complete_batches(&mut self) -> Result<(), Fault> {
        for (index, operation) in self.history.operations.iter().enumerate() {
            let Some(records) = records_of(operation) else { continue };
            let first_seen = records.clone().find_map(|record| Some((record, *self.places.get(&record)?)));
            let Some((record, seq_num)) = first_seen else { continue };
            let torn = |at: u64| {
                let says = format!("of records {}..{} one stands at {at}, and not all do", records.start, records.end);
                Fault::new(Kind::Torn, says, [operation])
            };
            let start = seq_num.checked_sub(record - records.start).ok_or_else(|| torn(seq_num))?;
            self.see_all(records.clone(), start, Some(operation)).map_err(|_| torn(start))?;
            self.batches[index] = Place::At(start);
        }
        Ok(())
    }

    /// A batch that nobody answered and nobody saw did not happen, unless there is room for it below the trim point.
    fn settle_open(&mut self) {
        let trim_point = self.history.read_back.trim_point;
        let (mut room_max, mut next) = (0, 0);
        for seq_num in self.standing.range(..trim_point).map(|(seq_num, _)| *seq_num).chain([trim_point]) {
            room_max = room_max.max(seq_num - next);
            next = seq_num + 1;
        }
        for (index, operation) in self.history.operations.iter().enumerate() {
            let Some(records) = records_of(operation) else { continue };
            let is_open = operation.answer.is_none() && self.batches[index] == Place::Nowhere;
            if is_open && records.end - records.start <= room_max {
                self.batches[index] = Place::Open;
            }
        }
    }

    /// Where the batch of an operation stands.
    pub(super) fn place(&self, index: usize) -> Place {
        self.batches[index]
    }

    /// Whether a batch of so many records that nobody saw may stand there.
    pub(super) fn has_room(&self, start: u64, records: u64) -> bool {
        let end = start + records;
        end <= self.history.read_back.trim_point && self.standing.range(start..end).next().is_none()
    }

    /// The operation that appended what stands there.
    pub(super) fn owner(&self, seq_num: u64) -> Option<&'a Operation> {
        let writer = self.writer_of(*self.standing.get(&seq_num)?)?;
        Some(&self.history.operations[writer])
    }

    /// Of the appends that nobody answered, how many are there, and of how many it stays open.
    pub(super) fn resolved(&self) -> (usize, usize) {
        let unanswered = self.history.operations.iter().zip(&self.batches);
        let places: Vec<Place> =
            unanswered.filter(|(operation, _)| operation.answer.is_none()).map(|(_, place)| *place).collect();
        let found = places.iter().filter(|place| matches!(place, Place::At(_))).count();
        (found, places.iter().filter(|place| **place == Place::Open).count())
    }
}

/// Whether an answer is one to what was asked.
fn check_form(operation: &Operation) -> Result<(), Fault> {
    let Some((returned, answer)) = &operation.answer else { return Ok(()) };
    let fits = match (&operation.ask, answer) {
        (_, Answer::Refused)
        | (Ask::Append { .. }, Answer::Appended(_) | Answer::FencedOut(_))
        | (Ask::Fence(_), Answer::Fenced(_))
        | (Ask::Trim(_), Answer::Trimmed(_))
        | (Ask::Read(_), Answer::PastTail(_))
        | (Ask::Tail, Answer::Tail(_))
        | (Ask::Token, Answer::Token(_)) => true,
        (Ask::Append { match_seq_num, .. }, Answer::Mismatch(_)) => match_seq_num.is_some(),
        (Ask::Read(from), Answer::Page { records, tail, trim_point }) => {
            let is_empty_for_a_reason = from >= tail || from < trim_point;
            from + records.len() as u64 <= *tail && (!records.is_empty() || is_empty_for_a_reason)
        }
        (Ask::Read(_), Answer::BelowTrimPoint { tail, trim_point }) => trim_point <= tail,
        _ => false,
    };
    if fits && operation.call <= *returned {
        return Ok(());
    }
    Err(Fault::new(Kind::WrongAnswer, "an answer that can't be one to this".to_owned(), [operation]))
}
