//! Where does the power go, and what of the disks is left then?
//!
//! A flush covers what was answered before it came, and nothing else. What no flush covers may be there or not, each write or each
//! sector of it by itself: a disk has a cache, and takes from it in the order it likes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ::tests::Dice;
use rustix::fs::FallocateFlags;

use crate::recording::{Content, Event};

/// A disk writes so many bytes as one.
const SECTOR_BYTES: u64 = 512;
/// So many places are compared for one where many writes are open.
const PLACES: usize = 8;
/// The first block of a disk lands whole or not at all. ext4 keeps its superblock there, in two sectors that it writes past its
/// journal when something fails: torn apart they take a repair before anything can be mounted, let alone served.
const WHOLE_BYTES: u64 = 4096;

/// What becomes of the writes that no flush covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// None of them is there.
    All,
    /// All of them are there.
    Nothing,
    /// Each is there or not.
    Some,
    /// Those that came last are there, those that came first are not.
    First,
    /// Of each some sectors are there.
    Torn,
}

impl Loss {
    pub(crate) const EACH: [Self; 5] = [Self::All, Self::Torn, Self::Some, Self::First, Self::Nothing];
}

/// A loss of power.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    /// How many events come before it.
    pub(crate) at: usize,
    /// What is lost of each disk.
    pub(crate) losses: Vec<Loss>,
    /// Flushes that were answered from this event on are lies: nothing was flushed.
    pub(crate) lies_from: usize,
    /// Chooses what is lost, where that is open.
    pub(crate) seed: u64,
}

impl Cut {
    /// One of many, each in the next phase, at a moment that a seed chooses.
    pub(crate) fn choose(events: &[Event], disks: usize, number: usize, seed: u64) -> Self {
        let phases = phases(events).len();
        let cut = Self::in_phase(events, disks, number % phases, seed);
        // Every way comes up, and not always in the same phase.
        cut.losing(Loss::EACH[(number + number / phases) % Loss::EACH.len()])
    }

    /// One in the last phase.
    pub(crate) fn choose_late(events: &[Event], disks: usize, number: usize, seed: u64) -> Self {
        let cut = Self::in_phase(events, disks, phases(events).len() - 1, seed);
        cut.losing(Loss::EACH[number % Loss::EACH.len()])
    }

    fn in_phase(events: &[Event], disks: usize, phase: usize, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let (_, range) = &phases(events)[phase];
        let at = moment(events, range.clone(), &mut dice);
        let losses = (0..disks).map(|_| Loss::EACH[index(&mut dice, Loss::EACH.len())]).collect();
        Self { at, losses, lies_from: usize::MAX, seed }
    }

    /// The same, losing so of the first disk.
    pub(crate) fn losing(mut self, loss: Loss) -> Self {
        self.losses[0] = loss;
        self
    }

    /// What is on a disk after it: writes, in an order in which later ones win.
    pub(crate) fn left(&self, events: &[Event], disk: usize) -> Vec<(u64, Content)> {
        let events = &events[..self.at];
        let (mut left, mut open) = (Vec::new(), Vec::new());
        for (offset, content, is_covered) in writes(events, disk, self.lies_from) {
            if is_covered {
                left.push((left.len() + open.len(), offset, content.clone()));
            } else {
                open.push((left.len() + open.len(), offset, content.clone()));
            }
        }
        left.extend(kept(open, self.losses[disk], &mut Dice::new(self.seed ^ disk as u64)));
        // Of two writes to one place the later one wins, covered or not.
        left.sort_by_key(|(place, _, _)| *place);
        left.into_iter().map(|(_, offset, content)| (offset, content)).collect()
    }

    /// How many writes to a disk no flush covers then.
    pub(crate) fn open(&self, events: &[Event], disk: usize) -> usize {
        writes(&events[..self.at], disk, self.lies_from).filter(|(_, _, is_covered)| !is_covered).count()
    }

    /// In which phase it comes.
    pub(crate) fn phase(&self, events: &[Event]) -> &'static str {
        phases(events)
            .into_iter()
            .rev()
            .find(|(_, range)| range.start <= self.at)
            .map_or("before all", |(name, _)| name)
    }
}

fn index(dice: &mut Dice, bound: usize) -> usize {
    usize::try_from(dice.below(bound as u64)).expect("below a bound of that type")
}

/// Each phase with its events.
fn phases(events: &[Event]) -> Vec<(&'static str, Range<usize>)> {
    let named = |(at, event): (usize, &Event)| match event {
        Event::Phase(name) => Some((*name, at)),
        _ => None,
    };
    let starts: Vec<_> = events.iter().enumerate().filter_map(named).collect();
    let ends = starts.iter().skip(1).map(|(_, at)| *at).chain([events.len()]);
    starts.iter().zip(ends).map(|((name, start), end)| (*name, *start..end)).collect()
}

/// Just after a client was answered, just before a flush is, or where more writes are open than elsewhere.
fn moment(events: &[Event], range: Range<usize>, dice: &mut Dice) -> usize {
    let is_answer = |at: &usize| matches!(&events[*at], Event::Told(fact) if fact.is_answer());
    let is_flush = |at: &usize| matches!(events[*at], Event::Flushed { .. });
    let places: Vec<usize> = match dice.below(3) {
        0 => range.clone().filter(is_answer).map(|at| at + 1).collect(),
        1 => range.clone().filter(is_flush).collect(),
        _ => Vec::new(),
    };
    if !places.is_empty() {
        return places[index(dice, places.len())];
    }
    let anywhere = (0..PLACES).map(|_| range.start + index(dice, range.len().max(1)));
    let open = |at: &usize| writes(&events[..*at], 0, usize::MAX).filter(|(_, _, is_covered)| !is_covered).count();
    anywhere.max_by_key(open).expect("there are places")
}

/// The writes to a disk, each with whether a flush covers it.
fn writes(events: &[Event], disk: usize, lies_from: usize) -> impl Iterator<Item = (u64, &Content, bool)> {
    let mut answered = vec![usize::MAX; events.len()];
    let mut covered = 0;
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Answered(write) => answered[*write] = at,
            Event::Flushed { disk: of, came } if *of == disk && at < lies_from => covered = covered.max(*came),
            _ => {}
        }
    }
    events.iter().enumerate().filter_map(move |(at, event)| match event {
        Event::Written { disk: of, offset, content } if *of == disk => Some((*offset, content, answered[at] < covered)),
        _ => None,
    })
}

/// A write with its place among all of them.
type Placed = (usize, u64, Content);

fn kept(open: Vec<Placed>, loss: Loss, dice: &mut Dice) -> Vec<Placed> {
    match loss {
        Loss::All => Vec::new(),
        Loss::Nothing => open,
        Loss::Some => open.into_iter().filter(|_| dice.is_one_of(2)).collect(),
        Loss::First => {
            let first = index(dice, open.len() + 1);
            open.into_iter().skip(first).collect()
        }
        Loss::Torn => open.into_iter().flat_map(|write| sectors(&write, dice)).collect(),
    }
}

/// The sectors of a write that are there, neighbours together.
fn sectors((place, offset, content): &Placed, dice: &mut Dice) -> Vec<Placed> {
    let mut kept: Vec<Range<u64>> = Vec::new();
    let mut from = 0;
    while from < content.bytes() {
        let at_once = WHOLE_BYTES.saturating_sub(offset + from).max(SECTOR_BYTES);
        let to = (from + at_once).min(content.bytes());
        if dice.is_one_of(2) {
            match kept.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => kept.push(from..to),
            }
        }
        from = to;
    }
    kept.into_iter().map(|range| (*place, offset + range.start, content.part(range.start, range.end))).collect()
}

/// Makes a disk of what is left.
///
/// # Errors
/// What the system says.
pub(crate) fn lay(left: &[(u64, Content)], path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options().create(true).write(true).truncate(true).open(path)?;
    file.set_len(bytes)?;
    for (offset, content) in left {
        write(&file, *offset, content)?;
    }
    Ok(())
}

/// Writes to a file that stands for a disk.
///
/// # Errors
/// What the system says.
pub(crate) fn write(file: &File, offset: u64, content: &Content) -> io::Result<()> {
    match content {
        Content::Zeroes(bytes) => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(rustix::fs::fallocate(file, hole, offset, *bytes)?)
        }
        Content::Bytes(bytes, range) => file.write_all_at(&bytes[range.clone()], offset),
    }
}

#[cfg(test)]
mod tests;
