//! What is known of whoever reads on from where a read ended?

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wire::ids::{SeqNum, StreamId};

use crate::index::{Enough, Located, ObjectId};

/// Extents that a first read looks up at most.
const FIRST_EXTENTS: usize = 64;
/// Extents that are looked up at most for a reader that came back, and with how many it is not looked up for again yet.
const EXTENTS_MAX: usize = 1024;
const EXTENTS_LEFT: usize = EXTENTS_MAX / 4;
/// Reads that one look-up is to suffice for, if extents are small.
const READS_A_LOOK_UP: u64 = 4;
/// How long what a look-up found is used: objects stay for longer than that when their records have moved to others.
const FRESH: Duration = Duration::from_secs(1);

/// What is kept of readers at most: one for each place where a read ended, and one for each extent that is known to follow.
const WEIGHT_MAX: usize = 128 << 10;

/// A reader between two reads.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    /// Reads that each began where the one before ended, or within it.
    pub(super) reads: u32,
    /// The first record that it was given last.
    pub(super) first: SeqNum,
    /// Where that began in an extent of which it has had a part.
    pub(super) began: Option<Resume>,
    /// Where it goes on in such an extent.
    pub(super) resume: Option<Resume>,
    /// Where it was given records from, and what follows.
    pub(super) extents: Extents,
}

/// A place in an extent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resume {
    pub(super) extent: (ObjectId, u64),
    pub(super) at: u64,
}

/// Readers by the stream and where they go on; those that were heard of last.
#[derive(Debug, Default)]
pub(super) struct Readers {
    by_end: BTreeMap<(StreamId, SeqNum), (u64, Reader)>,
    by_age: BTreeMap<u64, (StreamId, SeqNum)>,
    inserted: u64,
    weight: usize,
}

impl Readers {
    /// Who was given the record last, or has it to come next: whoever takes only a part of an answer asks for the rest again.
    pub(super) fn at(&self, stream_id: StreamId, seq_num: SeqNum) -> Option<Reader> {
        let ((of, end), (_, reader)) = self.by_end.range((stream_id, seq_num)..).next()?;
        let is_it = *of == stream_id && reader.first <= seq_num;
        let resume = if *end == seq_num { reader.resume } else { reader.began };
        is_it.then(|| Reader { resume, extents: reader.extents.after(seq_num), ..reader.clone() })
    }

    /// Notes who goes on there, and forgets whoever was not heard of for long.
    pub(super) fn insert(&mut self, stream_id: StreamId, end: SeqNum, reader: Reader) {
        self.inserted += 1;
        self.weight += reader.weight();
        self.by_age.insert(self.inserted, (stream_id, end));
        if let Some((age, left)) = self.by_end.insert((stream_id, end), (self.inserted, reader)) {
            self.by_age.remove(&age);
            self.weight -= left.weight();
        }
        while self.weight > WEIGHT_MAX {
            let Some((_, place)) = self.by_age.pop_first() else { return };
            self.weight -= self.by_end.remove(&place).map_or(0, |(_, reader)| reader.weight());
        }
    }
}

impl Reader {
    fn weight(&self) -> usize {
        1 + self.extents.len()
    }
}

/// The extents that a look-up found, from one of them on.
#[derive(Debug, Clone)]
pub(super) struct Extents {
    found: Arc<[Located]>,
    at: usize,
    /// Whether there were no more.
    is_all: bool,
    asked: Instant,
}

impl Extents {
    /// None at all.
    pub(super) fn none(asked: Instant) -> Self {
        Self { found: Arc::new([]), at: 0, is_all: true, asked }
    }

    /// What is to be looked up for a reader that came back so often and wants to know of so many bytes.
    pub(super) fn wanted(reads: u32, reach: u64) -> Enough {
        match reads {
            0 => Enough { extents: FIRST_EXTENTS, bytes: reach },
            _ => Enough { extents: EXTENTS_MAX, bytes: READS_A_LOOK_UP * reach },
        }
    }

    /// What was found when so many were asked for.
    pub(super) fn found(found: Vec<Located>, mut enough: Enough, asked: Instant) -> Self {
        found.iter().for_each(|extent| enough.count(extent));
        Self { found: found.into(), at: 0, is_all: enough.wants_more(), asked }
    }

    /// Whether there are any, found a moment ago, and many or so many bytes of them if there are more.
    pub(super) fn reach(&self, bytes: u64) -> bool {
        let is_enough = || self.iter().map(|extent| u64::from(extent.bytes)).sum::<u64>() >= bytes;
        let is_long = self.is_all || self.len() > EXTENTS_LEFT || is_enough();
        !self.is_empty() && self.asked.elapsed() < FRESH && is_long
    }

    /// Those that end after it.
    fn after(&self, seq_num: SeqNum) -> Self {
        let passed = self.iter().take_while(|extent| extent.end <= seq_num).count();
        Self { at: self.at + passed, ..self.clone() }
    }
}

impl Deref for Extents {
    type Target = [Located];

    fn deref(&self) -> &[Located] {
        &self.found[self.at..]
    }
}
