//! Does each answer agree with what had been answered before it was asked for?

use std::collections::BTreeMap;

use super::ledger::Ledger;
use super::{Answer, Ask, Fault, History, Kind, Operation, Token};

/// The tail that an operation found, if its answer tells.
fn tail_found(operation: &Operation) -> Option<u64> {
    match operation.told()? {
        Answer::Appended(tail)
        | Answer::Mismatch(tail)
        | Answer::Fenced(tail)
        | Answer::PastTail(tail)
        | Answer::Tail(tail)
        | Answer::Page { tail, .. }
        | Answer::BelowTrimPoint { tail, .. } => Some(*tail),
        Answer::FencedOut(_) | Answer::Trimmed(_) | Answer::Token(_) | Answer::Refused => None,
    }
}

/// The tail that an operation left, if its answer tells: the stream never stands lower afterwards.
fn tail_left(operation: &Operation) -> Option<u64> {
    match (&operation.ask, operation.told()?) {
        (Ask::Append { records, .. }, Answer::Appended(start)) => Some(start + (records.end - records.start)),
        (_, Answer::Trimmed(trim_point)) => Some(*trim_point),
        _ => tail_found(operation),
    }
}

/// The trim point that an operation was told.
fn trim_point_told(operation: &Operation) -> Option<u64> {
    match operation.told()? {
        Answer::Trimmed(trim_point) | Answer::Page { trim_point, .. } | Answer::BelowTrimPoint { trim_point, .. } => {
            Some(*trim_point)
        }
        _ => None,
    }
}

/// The highest there was, and who was told.
#[derive(Debug, Clone, Copy, Default)]
struct Floor<'a>(Option<(u64, &'a Operation)>);

impl<'a> Floor<'a> {
    fn raise(&mut self, to: Option<u64>, by: &'a Operation) {
        if let Some(to) = to
            && self.0.is_none_or(|(at, _)| at < to)
        {
            self.0 = Some((to, by));
        }
    }

    /// What an operation was told must not lie below.
    fn hold(self, told: Option<u64>, what: &str, operation: &Operation) -> Result<(), Fault> {
        let (Some(told), Some((at, by))) = (told, self.0) else { return Ok(()) };
        if told >= at {
            return Ok(());
        }
        let says = format!("{what} was {at} before this was asked for, and {told} in its answer");
        Err(Fault::new(Kind::Stale, says, [by, operation]))
    }
}

/// Holds a history against its times, in the time of a sort.
pub(super) fn check(history: &History, ledger: &Ledger<'_>) -> Result<(), Fault> {
    check_floors(history)?;
    check_ceilings(history, ledger)?;
    for operation in &history.operations {
        check_match(operation)?;
    }
    check_tokens(history)
}

/// Nothing goes back: neither the tail, nor the trim point.
fn check_floors(history: &History) -> Result<(), Fault> {
    let mut calls: Vec<&Operation> = history.operations.iter().collect();
    calls.sort_by_key(|operation| operation.call);
    let mut returns: Vec<(u64, &Operation)> =
        history.operations.iter().filter_map(|operation| Some((operation.returned()?, operation))).collect();
    returns.sort_by_key(|(at, _)| *at);
    let mut returns = returns.into_iter().peekable();
    let (mut tail, mut trim_point) = (Floor::default(), Floor::default());
    for operation in calls {
        while let Some((_, returned)) = returns.next_if(|(at, _)| *at < operation.call) {
            tail.raise(tail_left(returned), returned);
            trim_point.raise(trim_point_told(returned), returned);
        }
        tail.hold(tail_found(operation), "the tail", operation)?;
        trim_point.hold(trim_point_told(operation), "the trim point", operation)?;
        if let (Ask::Read(from), Some(Answer::Page { records, .. })) = (&operation.ask, operation.told())
            && !records.is_empty()
        {
            trim_point.hold(Some(*from), "the first record that is left", operation)?;
        }
    }
    for (_, returned) in returns {
        tail.raise(tail_left(returned), returned);
        trim_point.raise(trim_point_told(returned), returned);
    }
    let read_back = &history.read_back;
    for (what, floor, left) in
        [("the tail", tail, read_back.tail()), ("the trim point", trim_point, read_back.trim_point)]
    {
        if let Some((at, by)) = floor.0
            && left < at
        {
            return Err(Fault::new(Kind::Stale, format!("{what} was {at}, and is {left} in the read-back"), [by]));
        }
    }
    Ok(())
}

/// Nothing is ahead of what was asked for: no tail past the batches that were under way, no trim point past the trims.
fn check_ceilings(history: &History, ledger: &Ledger<'_>) -> Result<(), Fault> {
    let trims = history.operations.iter().filter_map(|operation| match operation.ask {
        Ask::Trim(to) => Some((operation.call, to)),
        _ => None,
    });
    let mut highest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut trims: Vec<(u64, u64)> = trims.collect();
    trims.sort_unstable();
    let mut ceiling = 0;
    for (call, to) in trims {
        ceiling = ceiling.max(to);
        highest.insert(call, ceiling);
    }
    for operation in &history.operations {
        let Some(returned) = operation.returned() else { continue };
        let below = tail_found(operation).and_then(|tail| tail.checked_sub(1));
        if let Some(owner) = below.and_then(|last| ledger.owner(last))
            && owner.call > returned
        {
            let says = "it was told of a record before anybody appended it".to_owned();
            return Err(Fault::new(Kind::Early, says, [owner, operation]));
        }
        let ceiling = highest.range(..=returned).next_back().map_or(0, |(_, to)| *to);
        if let Some(trim_point) = trim_point_told(operation).filter(|trim_point| *trim_point > ceiling) {
            let says = format!("the trim point is {trim_point}, and nobody had trimmed past {ceiling}");
            return Err(Fault::new(Kind::Early, says, [operation]));
        }
    }
    Ok(())
}

/// A match lands where it was asked for, and is refused anywhere else.
fn check_match(operation: &Operation) -> Result<(), Fault> {
    let Ask::Append { match_seq_num: Some(wanted), .. } = &operation.ask else { return Ok(()) };
    match operation.told() {
        Some(Answer::Appended(start)) if start != wanted => {
            let says = format!("a match of {wanted} was taken at tail {start}");
            Err(Fault::new(Kind::Match, says, [operation]))
        }
        Some(Answer::Mismatch(tail)) if tail == wanted => {
            let says = format!("a match of {wanted} was refused at that tail");
            Err(Fault::new(Kind::Match, says, [operation]))
        }
        _ => Ok(()),
    }
}

/// Each batch stands between the fence of its token and the next one.
///
/// A fence answers the tail it found, so that all fences up to a batch's start came before it and all others after. Those
/// of one tail have no order among them, and one that nobody answered may stand anywhere.
fn check_tokens(history: &History) -> Result<(), Fault> {
    let mut fences: BTreeMap<u64, Vec<(Token, &Operation)>> = BTreeMap::new();
    let mut unanswered: Vec<(Token, &Operation)> = Vec::new();
    for operation in &history.operations {
        match (&operation.ask, operation.told()) {
            (Ask::Fence(token), Some(Answer::Fenced(boundary))) => {
                fences.entry(*boundary).or_default().push((*token, operation));
            }
            (Ask::Fence(token), None) => unanswered.push((*token, operation)),
            _ => {}
        }
    }
    for operation in &history.operations {
        let Ask::Append { token, .. } = &operation.ask else { continue };
        let Some((returned, Answer::Appended(start))) = &operation.answer else { continue };
        if *token == Token::NONE && !history.is_fenced {
            continue;
        }
        let last = fences.range(..=*start).next_back();
        let is_installed = match last {
            Some((_, fences)) => fences.iter().any(|(installed, _)| installed == token),
            None => *token == Token::NONE,
        };
        let may_be = |(installed, fence): &(Token, &Operation)| installed == token && fence.call <= *returned;
        if !is_installed && !unanswered.iter().any(may_be) {
            let says = format!("a batch under {token} was taken at {start}, where another is installed");
            let fences = last.into_iter().flat_map(|(_, fences)| fences.iter().map(|(_, fence)| *fence));
            return Err(Fault::new(Kind::Deposed, says, fences.chain([operation])));
        }
    }
    Ok(())
}
