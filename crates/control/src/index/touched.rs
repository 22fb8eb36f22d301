//! Which streams of a slot have changed since they were in a snapshot?

use std::collections::BTreeSet;

use wire::ids::StreamId;

/// Streams that are remembered one by one; with more of them, all of the slot count as changed.
const STREAMS_MAX: usize = 16_384;

/// Streams that a snapshot is to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    Some(Vec<StreamId>),
    All,
}

#[derive(Debug, Default)]
struct Streams {
    some: BTreeSet<StreamId>,
    are_all: bool,
}

impl Streams {
    fn add(&mut self, stream_id: StreamId) {
        if !self.are_all {
            self.some.insert(stream_id);
            if self.some.len() > STREAMS_MAX {
                *self = Self { some: BTreeSet::new(), are_all: true };
            }
        }
    }
}

/// Streams that have changed. Those that a snapshot is being made of stay here until it is in the store.
#[derive(Debug, Default)]
pub(super) struct Touched {
    since: Streams,
    pending: Streams,
}

impl Touched {
    /// A stream changes.
    pub(super) fn note(&mut self, stream_id: StreamId) {
        self.since.add(stream_id);
    }

    /// It is not known which have changed.
    pub(super) fn note_all(&mut self) {
        self.since = Streams { some: BTreeSet::new(), are_all: true };
    }

    /// What the next snapshot is to hold: their rows are read after this.
    pub(super) fn begin(&mut self) -> Wanted {
        let Streams { some, are_all } = std::mem::take(&mut self.since);
        self.pending.are_all |= are_all;
        some.into_iter().for_each(|stream_id| self.pending.add(stream_id));
        if self.pending.are_all { Wanted::All } else { Wanted::Some(self.pending.some.iter().copied().collect()) }
    }

    /// What was asked for at last is in the store.
    pub(super) fn end(&mut self) {
        self.pending = Streams::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: u32) -> StreamId {
        StreamId::from_bytes([number.to_be_bytes(); 4].concat().try_into().unwrap())
    }

    #[test]
    fn what_changes_while_a_snapshot_is_made_is_in_the_next_one() {
        let mut touched = Touched::default();
        touched.note(stream(1));
        assert_eq!(touched.begin(), Wanted::Some(vec![stream(1)]));
        touched.note(stream(2));
        assert_eq!(touched.begin(), Wanted::Some(vec![stream(1), stream(2)]), "the first was given up");
        touched.note(stream(1));
        touched.end();
        assert_eq!(touched.begin(), Wanted::Some(vec![stream(1)]));
        touched.end();
        assert_eq!(touched.begin(), Wanted::Some(Vec::new()));
        touched.note_all();
        touched.note(stream(3));
        assert_eq!(touched.begin(), Wanted::All);
        touched.end();
        (0..=u32::try_from(STREAMS_MAX).unwrap()).for_each(|number| touched.note(stream(number)));
        assert_eq!(touched.begin(), Wanted::All);
    }
}
