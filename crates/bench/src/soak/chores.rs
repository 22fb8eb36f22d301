//! What happens to the streams of a soak besides appends: reads, trims, and streams that come and go?

use std::sync::atomic::Ordering;
use std::time::Duration;

use wire::batch::BatchBuilder;
use wire::ids::SeqNum;
use wire::message::{AppendOnce, Appended, CheckTail, Done, Message, StreamDelete, Tail, Trim, TrimTo, Trimmed};
use wire::names::{Address, FencingToken};
use wire::reason::Reason;

use super::{Shared, SoakOptions};
use crate::dial::Dialled;
use crate::error::BenchError;
use crate::load::Load;
use crate::random::{Random, unique_number};
use crate::read::{Held, page};

/// Pages of one read at most.
const PAGES_MAX: usize = 8;
/// Records before the tail that a trim leaves.
const KEPT_RECORDS: u64 = 100;
/// Names of streams that come and go; each is made again and again.
const CHURNED_NAMES: u64 = 64;
const CHURNED_BODY: &[u8] = b"here and gone";

/// Whether a request may be refused for this reason while all is well: it is counted and not a fault.
pub(super) fn is_part_of_life(reason: Reason) -> bool {
    reason.retryable() || matches!(reason, Reason::NotFound | Reason::Trimmed | Reason::OutOfRange)
}

fn interval(per_s: f64) -> Option<Duration> {
    (per_s > 0.0).then(|| Duration::from_secs_f64(1.0 / per_s))
}

/// A stream of the load, drawn at random.
fn any_stream(load: &Load, random: &mut Random) -> Result<Address, BenchError> {
    let place = random.below(u64::from(load.places.active()));
    let place = u32::try_from(place).unwrap_or(0);
    Ok(load.places.address(load.places.active_at(place))?)
}

fn tail(dialled: &mut Dialled, address: &Address) -> Result<SeqNum, BenchError> {
    let Tail { tail } = dialled.call("asking for the tail", &CheckTail { address: address.clone() })?;
    Ok(tail.seq_num)
}

/// Reads some pages of a stream, from its trim point or from a little before its tail.
pub(super) fn read(options: &SoakOptions, load: &Load, shared: &Shared) -> Result<(), BenchError> {
    let Some(interval) = interval(options.reads_per_s) else { return Ok(()) };
    let mut dialled = Dialled::connect(&load.addr)?;
    let mut random = Random::new(unique_number()?);
    let mut is_old = false;
    while !shared.is_over() {
        shared.pause(interval);
        let address = any_stream(load, &mut random)?;
        let Some(end) = shared.tolerate(tail(&mut dialled, &address))? else { continue };
        is_old = !is_old;
        let mut from = if is_old { SeqNum::ZERO } else { SeqNum::new(end.get().saturating_sub(KEPT_RECORDS)) };
        for _ in 0..PAGES_MAX {
            if from >= end {
                break;
            }
            let held = page(&mut dialled, &address, from, |frame| crate::read::held(frame, from));
            let Some(Held { records, end, .. }) = shared.tolerate(held)? else { break };
            shared.records_read.fetch_add(records, Ordering::Relaxed);
            from = end;
        }
    }
    Ok(())
}

/// Trims streams of the load to a little before their tails.
pub(super) fn trim(options: &SoakOptions, load: &Load, shared: &Shared) -> Result<(), BenchError> {
    let Some(interval) = interval(options.trims_per_s) else { return Ok(()) };
    let mut dialled = Dialled::connect(&load.addr)?;
    let mut random = Random::new(unique_number()?);
    while !shared.is_over() {
        shared.pause(interval);
        let address = any_stream(load, &mut random)?;
        let Some(end) = shared.tolerate(tail(&mut dialled, &address))? else { continue };
        let to = TrimTo::SeqNum(SeqNum::new(end.get().saturating_sub(KEPT_RECORDS)));
        let trimmed = dialled.call::<Trimmed>("trimming", &Trim { address, to });
        shared.trims.fetch_add(u64::from(shared.tolerate(trimmed)?.is_some()), Ordering::Relaxed);
    }
    Ok(())
}

/// Makes streams, reads what was appended, and deletes them; the same names come again.
pub(super) fn churn(options: &SoakOptions, addr: &str, shared: &Shared) -> Result<(), BenchError> {
    let Some(interval) = interval(options.churn_per_s) else { return Ok(()) };
    let mut dialled = Dialled::connect(addr)?;
    let buckets = options.load.buckets();
    let run = unique_number()?;
    let mut number = 0_u64;
    while !shared.is_over() {
        shared.pause(interval);
        let (bucket, _) = &buckets[usize::try_from(number).unwrap_or(0) % buckets.len()];
        let name = number % CHURNED_NAMES;
        number += 1;
        let address = Address::new(bucket, &format!("churn-{run:016x}-{name}"))?;
        if shared.tolerate(append_once(&mut dialled, &address, CHURNED_BODY))?.is_none() {
            continue;
        }
        let held = page(&mut dialled, &address, SeqNum::ZERO, |frame| crate::read::held(frame, SeqNum::ZERO));
        let records = shared.tolerate(held)?.map(|held| held.records);
        if records.is_some_and(|records| records != 1) {
            shared.fault(format!("{address}: made anew with one record, it has {records:?}"));
        }
        let deleted = dialled.call::<Done>("deleting a stream", &StreamDelete { address });
        shared.churned.fetch_add(u64::from(shared.tolerate(deleted)?.is_some()), Ordering::Relaxed);
    }
    Ok(())
}

/// Appends one record outside of any session.
pub(crate) fn append_once(dialled: &mut Dialled, address: &Address, body: &[u8]) -> Result<Appended, BenchError> {
    let (append, batch) = one_record(address, body)?;
    dialled.send_with(|out| append.frame_with(0, &batch, out))?;
    dialled.answer("a one-shot append")
}

/// An append of one record, which is stored once however often it is sent, and its batch.
pub(crate) fn one_record(address: &Address, body: &[u8]) -> Result<(AppendOnce, Vec<u8>), BenchError> {
    let (mut builder, mut batch) = (BatchBuilder::new(), Vec::new());
    builder.push::<&[u8], &[u8]>(None, &[], body)?;
    let append = AppendOnce {
        address: address.clone(),
        fencing_token: FencingToken::default(),
        match_seq_num: None,
        idempotency: (unique_number()?, unique_number()?),
        terms: wire::terms::Terms::default(),
        batch_crc: builder.finish(&mut batch)?,
    };
    Ok((append, batch))
}
