//! How is a stream read to its tail and judged?

use wire::ids::SeqNum;
use wire::message::{CheckTail, Tail};
use wire::names::Address;

use super::judge::{Fault, Judge, Stop, sentence};
use crate::chain::Link;
use crate::dial::Dialled;
use crate::error::BenchError;
use crate::read::page;

/// Records whose places are kept to say what is wrong with a stream.
const PLACES_MAX: usize = 50_000_000;

/// What came of reading a stream to its tail.
#[derive(Debug)]
pub(super) enum Looked {
    /// All is what it must be, up to here.
    Whole(Judge),
    /// Something is not.
    Fault(Fault),
}

/// The tail of a stream; 0 when it is not there.
pub(super) fn tail(line: &mut Dialled, address: &Address) -> Result<SeqNum, BenchError> {
    match line.call("asking for the tail", &CheckTail { address: address.clone() }) {
        Ok(Tail { tail }) => Ok(tail.seq_num),
        Err(BenchError::Refused { refusal, .. }) if refusal.reason == wire::reason::Reason::NotFound => {
            Ok(SeqNum::ZERO)
        }
        Err(error) => Err(error),
    }
}

/// Reads from where the judge stands to the tail, which must not be before what it begins at, and be where the records end.
pub(super) fn judge_to_tail(line: &mut Dialled, address: &Address, mut judge: Judge) -> Result<Looked, BenchError> {
    let acked = judge.link.place;
    let told = tail(line, address)?;
    if told.get() < acked {
        // When the records are there all the same, it is the tail that is wrong.
        let is_there =
            matches!(page(line, address, told, |frame| crate::read::held(frame, told)), Ok(held) if held.records > 0);
        let (told, found) = (told.get(), told.get());
        let fault = if is_there { Fault::Tail { told, found: acked } } else { Fault::Loss { acked, found } };
        return Ok(Looked::Fault(fault));
    }
    while judge.due < told {
        let before = judge.due;
        match page(line, address, before, |frame| judge.page(frame))? {
            Ok(_) if judge.due == before => {
                return Ok(Looked::Fault(Fault::Tail { told: told.get(), found: before.get() }));
            }
            Ok(_) => {}
            Err(Stop::Fault(fault)) => return Ok(Looked::Fault(fault)),
            Err(Stop::Place { expected, found }) => {
                let fault = whole_story(line, address, acked)?;
                let seq_num = judge.due.get();
                let short = || match found < expected {
                    true => Fault::Double { place: found, seq_num },
                    false => Fault::Loss { acked: acked.max(expected + 1), found: expected },
                };
                return Ok(Looked::Fault(fault.unwrap_or_else(short)));
            }
        }
    }
    Ok(Looked::Whole(judge))
}

/// What all of a stream's records together say of it.
fn whole_story(line: &mut Dialled, address: &Address, acked: u64) -> Result<Option<Fault>, BenchError> {
    let (end, mut from, mut places) = (tail(line, address)?, SeqNum::ZERO, Vec::new());
    while from < end && places.len() < PLACES_MAX {
        let before = from;
        from = page(line, address, from, |frame| {
            let held = crate::read::held(frame, from)?;
            crate::read::bodies(frame, |seq_num, body| {
                let link = Link::before(body).ok().filter(|_| seq_num >= from.get());
                places.extend(link.map(|link| link.place));
            })?;
            Ok(held.end)
        })?;
        if from == before {
            break;
        }
    }
    Ok(sentence(&places, acked))
}
