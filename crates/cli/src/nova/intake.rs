//! How does an input become batches of records, without holding more than a few of them?

use std::io::Read;
use std::thread;

use client::AppendRecord;
use client::json::{Coding, content_bytes, of_json};
use tokio::sync::mpsc;
use wire::limits::{BATCH_CONTENT_BYTES_MAX, BATCH_RECORDS_MAX, RECORD_CONTENT_BYTES_MAX};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::args::Format;
use super::failure::Failure;
use super::lines::{LineError, Lines};

/// Batches cut ahead of the session. Full: nothing is read until it takes one.
const BATCHES_AHEAD_MAX: usize = 4;

/// Longest line of JSON: the content of a record with every byte escaped, and room for the rest.
const JSON_LINE_BYTES_MAX: usize = 6 * RECORD_CONTENT_BYTES_MAX + (1 << 20);

/// What an input yields next.
pub(super) type Intake = mpsc::Receiver<Result<Vec<AppendRecord>, Failure>>;

/// How lines are records.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) format: Format,
    pub(super) coding: Coding,
}

/// Reads `input` on a thread of its own, to its end or its first fault, which comes after all before it.
pub(super) fn start(input: impl Read + Send + 'static, reading: Reading) -> std::io::Result<Intake> {
    let (sender, receiver) = mpsc::channel(BATCHES_AHEAD_MAX);
    let read = move || {
        // Without a receiver there is nobody to tell.
        if let Err(Stop::Fault(failure)) = read_all(input, reading, &sender) {
            sender.blocking_send(Err(failure)).ok();
        }
    };
    thread::Builder::new().name("nova-stdin".to_owned()).spawn(read)?;
    Ok(receiver)
}

/// Why reading ends before the input does.
enum Stop {
    Fault(Failure),
    NobodyTakes,
}

type Sender = mpsc::Sender<Result<Vec<AppendRecord>, Failure>>;

fn read_all(input: impl Read, reading: Reading, sender: &Sender) -> Result<(), Stop> {
    let line_bytes_max = match reading.format {
        Format::Lines => RECORD_CONTENT_BYTES_MAX,
        Format::Json => JSON_LINE_BYTES_MAX,
    };
    let mut lines = Lines::new(input, line_bytes_max);
    loop {
        let cut_before = lines.lines_cut();
        let Some(some) = lines.next_lines().map_err(|error| Stop::Fault(failure(&error)))? else {
            return Ok(());
        };
        let mut batch = Gathered::default();
        for (line, number) in some.into_iter().zip(cut_before + 1..) {
            let record = match reading.format {
                Format::Lines => Ok(AppendRecord::new(line)),
                Format::Json => of_json(&line, reading.coding),
            };
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    batch.send(sender)?;
                    return Err(Stop::Fault(Failure::from(error.at_line(number))));
                }
            };
            if !batch.has_room_for(&record) {
                batch.send(sender)?;
            }
            batch.push(record);
        }
        batch.send(sender)?;
    }
}

fn failure(error: &LineError) -> Failure {
    match error {
        LineError::Input(_) => Failure::Local(error.to_string()),
        LineError::TooLong { .. } => Failure::from(Refusal::new(Reason::TooLarge, error.to_string())),
    }
}

/// The batch that is being gathered, within the bounds of one.
#[derive(Default)]
struct Gathered {
    records: Vec<AppendRecord>,
    content_bytes: usize,
}

impl Gathered {
    fn has_room_for(&self, record: &AppendRecord) -> bool {
        self.records.len() < BATCH_RECORDS_MAX && self.content_bytes + content_bytes(record) <= BATCH_CONTENT_BYTES_MAX
    }

    fn push(&mut self, record: AppendRecord) {
        self.content_bytes += content_bytes(&record);
        self.records.push(record);
    }

    fn send(&mut self, sender: &Sender) -> Result<(), Stop> {
        let Self { records, .. } = std::mem::take(self);
        if records.is_empty() {
            return Ok(());
        }
        sender.blocking_send(Ok(records)).map_err(|_| Stop::NobodyTakes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Reading, start};
    use crate::nova::args::{Format, Output};
    use client::json::Coding;
    use std::io::Cursor;

    /// How many records each batch has, and the line of the fault at the end.
    fn check(input: &str, format: Format) -> (Vec<usize>, Option<String>) {
        let reading = Reading { format, coding: Coding::Utf8 };
        let mut intake = start(Cursor::new(input.to_owned()), reading).unwrap();
        let mut batches = Vec::new();
        while let Some(next) = intake.blocking_recv() {
            match next {
                Ok(records) => batches.push(records.len()),
                Err(failure) => return (batches, failure.line(Output::Text)),
            }
        }
        (batches, None)
    }

    #[test]
    fn what_is_there_at_once_is_one_batch_within_the_bounds() {
        assert_eq!(check("a\nb\nc", Format::Lines).0, [2, 1]);
        assert_eq!(check(&"\n".repeat(2500), Format::Lines).0, [1000, 1000, 500]);
        let long = "x".repeat(400 << 10);
        let (batches, fault) = check(&format!("{long}\n{long}\n{long}\n"), Format::Lines);
        assert_eq!((batches.iter().sum::<usize>(), fault), (3, None));
        assert_eq!(check("", Format::Lines), (Vec::new(), None));
    }

    #[test]
    fn a_fault_comes_after_all_the_records_before_it() {
        let input = "{\"body\":\"a\"}\n{\"body\":\"b\"}\n{\"body\":\n{\"body\":\"c\"}\n";
        let (batches, fault) = check(input, Format::Json);
        assert_eq!(batches, [2]);
        assert!(fault.unwrap().starts_with("nova: invalid: line 3: it is no record"));
    }

    #[test]
    fn a_line_over_a_mebibyte_is_told_with_its_number_and_size() {
        let input = format!("a\n{}\nb\n", "x".repeat((1 << 20) + 1));
        let (batches, fault) = check(&input, Format::Lines);
        assert_eq!(batches, [1]);
        assert_eq!(fault.unwrap(), "nova: too_large: line 2 has 1048577 bytes: at most 1048576 are allowed");
    }
}
