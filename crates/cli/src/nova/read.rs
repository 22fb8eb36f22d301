//! How do records come out: up to the tail, or for as long as someone reads them?

use std::io::{self, Write};
use std::time::Duration;

use client::json::{Coding, WriteError, write_json};
use futures_util::FutureExt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::ids::SeqNum;
use wire::limits::READ_PAGE_RECORDS_MAX;
use wire::message::Start as Place;

use super::Star;
use super::args::{Output, Read, Start, Subscribe};
use super::failure::Failure;

/// How often a subscription without records looks whether someone still reads its output.
const LOOK_AT_READER_EVERY: Duration = Duration::from_millis(250);

impl Start {
    /// Where it starts, and whether that is pulled into range. What nobody said is the first record that is there.
    fn place(&self) -> (Place, bool) {
        let nobody_said = self.from.is_none() && self.from_ms.is_none() && self.last.is_none();
        let start = match (self.from_ms, self.last) {
            (Some(ms), _) => Place::Timestamp(ms),
            (None, Some(records)) => Place::Last(records),
            (None, None) => Place::SeqNum(SeqNum::new(self.from.unwrap_or(0))),
        };
        (start, self.clamp || nobody_said)
    }
}

/// Writes records to standard output, as many as are wanted.
struct Printer<W> {
    out: W,
    output: Output,
    coding: Coding,
    left: u64,
}

impl<W: Write> Printer<W> {
    fn new(out: W, output: Output, base64: bool, limit: Option<u64>) -> Result<Self, Failure> {
        if base64 && output == Output::Text {
            return Err(Failure::invalid("--base64 goes with --output json: text is the bytes already"));
        }
        Ok(Self {
            out,
            output,
            coding: if base64 { Coding::Base64 } else { Coding::Utf8 },
            left: limit.unwrap_or(u64::MAX),
        })
    }

    fn print(&mut self, records: &[client::Record]) -> Result<(), Failure> {
        for record in records {
            if self.left == 0 {
                return Ok(());
            }
            self.left -= 1;
            if let Err(error) = self.print_one(record) {
                self.out.flush()?;
                return Err(error);
            }
        }
        Ok(())
    }

    fn print_one(&mut self, record: &client::Record) -> Result<(), Failure> {
        match self.output {
            Output::Text => self.out.write_all(&record.body)?,
            Output::Json => write_json(record, self.coding, &mut self.out).map_err(|error| match error {
                WriteError::NotUtf8 { .. } => Failure::invalid(format!("{error} with --base64")),
                WriteError::Output(error) => Failure::from(error),
            })?,
        }
        Ok(self.out.write_all(b"\n")?)
    }
}

/// Reads to the tail as it is when the first page comes, or to the limit.
pub(super) async fn read(args: Read, star: &Star) -> Result<(), Failure> {
    let mut printer = Printer::new(super::stdout(), star.output, args.base64, args.limit)?;
    let (mut start, mut clamp) = args.start.place();
    let mut end = None;
    while printer.left > 0 {
        let options = client::ReadOptions {
            clamp,
            limit: page_limit(printer.left, end, start),
            until_ms: args.until_ms,
            start,
            ..client::ReadOptions::default()
        };
        let page = star.client.read(&args.stream.address, options).await?;
        printer.print(&page.records)?;
        printer.out.flush()?;
        let end = *end.get_or_insert(page.tail.seq_num);
        if page.records.is_empty() || page.end >= end {
            break;
        }
        // A trim point that passes the next page meanwhile is told, for records would be missing in between.
        (start, clamp) = (Place::SeqNum(page.end), false);
    }
    Ok(printer.out.flush()?)
}

fn page_limit(left: u64, end: Option<SeqNum>, start: Place) -> u32 {
    let before_end = match (end, start) {
        (Some(end), Place::SeqNum(next)) => end.since(next),
        _ => u64::MAX,
    };
    let limit = left.min(before_end).min(u64::from(READ_PAGE_RECORDS_MAX));
    u32::try_from(limit).unwrap_or(READ_PAGE_RECORDS_MAX)
}

/// Prints what there is and what comes, flushing whenever there is nothing more to print at once.
pub(super) async fn subscribe(args: Subscribe, star: &Star) -> Result<(), Failure> {
    let mut printer = Printer::new(super::stdout(), star.output, args.base64, args.limit)?;
    let (start, clamp) = args.start.place();
    let options = client::SubscribeOptions { start, clamp, ..client::SubscribeOptions::default() };
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let mut subscription = tokio::select! {
        opened = star.client.subscribe(&args.stream.address, options) => opened?,
        _ = &mut interrupted => return Ok(()),
    };
    while printer.left > 0 {
        let next = if let Some(next) = subscription.next().now_or_never() {
            next
        } else {
            printer.out.flush()?;
            tokio::select! {
                next = subscription.next() => next,
                _ = &mut interrupted => break,
                () = reader_is_gone() => break,
            }
        };
        match next {
            Some(Ok(page)) => printer.print(&page.records)?,
            Some(Err(error)) => {
                printer.out.flush()?;
                return Err(error.into());
            }
            None => break,
        }
    }
    Ok(printer.out.flush()?)
}

/// Waits until standard output is a pipe or socket that nobody reads.
async fn reader_is_gone() {
    loop {
        tokio::time::sleep(LOOK_AT_READER_EVERY).await;
        let stdout = io::stdout();
        // An error is told without being asked for.
        let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = poll(&mut fds, Some(&at_once));
        if polled.is_ok() && fds[0].revents().contains(PollFlags::ERR) {
            return;
        }
    }
}
