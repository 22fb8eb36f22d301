//! Do streams hold what was acked, in order and once, while all goes on around them?

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wire::batch::{BatchBuilder, VerifiedBatch};
use wire::entry::Entry;
use wire::frame::Frame;
use wire::hot::RecordsHead;
use wire::ids::SeqNum;
use wire::message::{AppendOnce, Appended, Message};
use wire::names::{Address, FencingToken};

use super::{Shared, SoakOptions};
use crate::chain::{BODY_BYTES_MIN, Link};
use crate::dial::Dialled;
use crate::error::BenchError;
use crate::random::unique_number;
use crate::read::{Held, page};

/// Between two appends to witnesses.
const APPEND_EVERY: Duration = Duration::from_millis(20);
/// Records of an append to a witness.
const RECORDS: usize = 4;
/// Times of acks that are remembered of a witness, to know what retention may have dropped.
const ACKS_KEPT: usize = 256;

/// A stream with one writer, whose records are chained from sequence number 0 on.
struct Witness {
    address: Address,
    link: Link,
    /// When it had how many acked records, oldest first, a sample now and then.
    acked: VecDeque<(Instant, u64)>,
}

/// Appends to the witnesses of a bucket in turn, and reads all of them back in every window and at the end.
pub(super) fn run(options: &SoakOptions, addr: &str, bucket: &str, shared: &Shared) -> Result<(), BenchError> {
    if options.witnesses == 0 {
        return Ok(());
    }
    let mut dialled = Dialled::connect(addr)?;
    let number = unique_number()?;
    let witness = |at| {
        let address = Address::new(bucket, &format!("witness-{number:016x}-{at}"))?;
        Ok(Witness { address, link: Link::default(), acked: VecDeque::new() })
    };
    let mut witnesses = (0..options.witnesses).map(witness).collect::<Result<Vec<_>, BenchError>>()?;
    let mut look = Instant::now() + options.window / 2;
    let mut turn = 0;
    while !shared.is_over() {
        shared.pause(APPEND_EVERY);
        turn = (turn + 1) % witnesses.len();
        let witness = &mut witnesses[turn];
        let appended = witness.append(&mut dialled, options);
        shared.tolerate(appended)?;
        if Instant::now() >= look {
            look += options.window;
            witnesses.iter().try_for_each(|witness| verify(witness, &mut dialled, options, shared))?;
        }
    }
    witnesses.iter().try_for_each(|witness| verify(witness, &mut dialled, options, shared))
}

fn verify(witness: &Witness, dialled: &mut Dialled, options: &SoakOptions, shared: &Shared) -> Result<(), BenchError> {
    let Some(outcome) = shared.tolerate(witness.read_back(dialled, options.retention))? else { return Ok(()) };
    match outcome {
        Ok(records) => _ = shared.records_verified.fetch_add(records, Ordering::Relaxed),
        Err(fault) => shared.fault(format!("{}: {fault}", witness.address)),
    }
    Ok(())
}

impl Witness {
    /// Appends the next records, at the sequence number that they must get.
    fn append(&mut self, dialled: &mut Dialled, options: &SoakOptions) -> Result<(), BenchError> {
        let mut link = self.link;
        let mut body = vec![0; options.load.record_bytes.max(BODY_BYTES_MIN)];
        let (mut builder, mut batch) = (BatchBuilder::new(), Vec::new());
        for _ in 0..RECORDS {
            link.write(0, &mut body);
            builder.push::<&[u8], &[u8]>(None, &[], &body)?;
        }
        let append = AppendOnce {
            address: self.address.clone(),
            fencing_token: FencingToken::default(),
            match_seq_num: Some(SeqNum::new(self.link.place)),
            idempotency: (0, 0),
            terms: wire::terms::Terms::default(),
            batch_crc: builder.finish(&mut batch)?,
        };
        dialled.send_with(|out| append.frame_with(0, &batch, out))?;
        let _: Appended = dialled.answer("an append to a witness")?;
        self.link = link;
        self.note();
        Ok(())
    }

    fn note(&mut self) {
        self.acked.push_back((Instant::now(), self.link.place));
        if self.acked.len() > ACKS_KEPT {
            // Every other one goes, so that what is kept reaches back as far as before.
            let mut keep = false;
            self.acked.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// Reads all that the stream holds. Answers how many records are what was acked, or what is wrong.
    fn read_back(&self, dialled: &mut Dialled, retention: Duration) -> Result<Result<u64, String>, BenchError> {
        let (mut from, mut link, mut records) = (SeqNum::ZERO, None, 0);
        let (mut first, end) = (None, SeqNum::new(self.link.place));
        while from < end {
            let mut fault = None;
            let (held, trim_point) = page(dialled, &self.address, from, |frame| {
                let head = RecordsHead::decode(frame.head).map(|head| head.trim_point).unwrap_or_default();
                let held = crate::read::held(frame, from)?;
                fault = follow(frame, &mut link).err();
                Ok((held, head))
            })?;
            if let Some(fault) = fault {
                return Ok(Err(fault));
            }
            let Held { records: found, end: next, .. } = held;
            first.get_or_insert_with(|| trim_point.max(from));
            if next == from {
                return Ok(Err(format!("nothing is read at {from}, and {end} records are acked")));
            }
            records += found;
            from = next;
        }
        Ok(self.judge(first.unwrap_or_default(), link, retention).map(|()| records))
    }

    /// Whether what is held reaches from what retention may have dropped to what was acked.
    fn judge(&self, first: SeqNum, link: Option<Link>, retention: Duration) -> Result<(), String> {
        let last = link.unwrap_or(self.link);
        if last != self.link {
            return Err(format!("{} records are acked, and the last one read is {}", self.link.place, last.place));
        }
        let now = Instant::now();
        let old = self.acked.iter().take_while(|(at, _)| now.duration_since(*at) + Duration::from_secs(1) >= retention);
        let dropped_max = old.last().map_or(0, |(_, place)| *place);
        // Ages are told apart by samples: the one after the last old one may be old in part.
        let next = self.acked.iter().find(|(_, place)| *place > dropped_max).map_or(dropped_max, |(_, place)| *place);
        if first.get() > next {
            return Err(format!("records up to {first} are gone, and those from {next} on are younger than retention"));
        }
        Ok(())
    }
}

/// Follows the chain through the records of a page; the first one says where it begins.
fn follow(frame: &Frame<'_>, link: &mut Option<Link>) -> Result<(), String> {
    let mut at = 0;
    while at < frame.payload.len() {
        let (entry, bytes) = Entry::decode(&frame.payload[at..]).map_err(|error| error.to_string())?;
        at += bytes;
        let Entry::Batch { head, batch, .. } = entry else { continue };
        let batch = VerifiedBatch::verify(batch, head.batch_crc).map_err(|error| error.to_string())?;
        for (seq_num, record) in (head.first.get()..).zip(&batch) {
            let mut here = match *link {
                Some(link) => link,
                None => Link::before(record.body).map_err(|error| format!("at {seq_num}: {error}"))?,
            };
            if here.place > seq_num {
                // Pages are whole batches: the one that a page began in came with the page before.
                continue;
            }
            here.follow(record.body).map_err(|error| format!("at {seq_num}: {error}"))?;
            if here.place != seq_num + 1 {
                return Err(format!("at {seq_num} stands record {}", here.place - 1));
            }
            *link = Some(here);
        }
    }
    Ok(())
}
