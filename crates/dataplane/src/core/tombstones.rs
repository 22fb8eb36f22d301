//! What is left of deleted streams, until the index knows that they are gone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::ids::StreamId;

use super::lane::{Entered, Lane};

/// Tombstones of a lane that are forgotten in one turn.
const FORGOTTEN_TURN_MAX: usize = 16 << 10;

/// What is left of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tombstone {
    /// The stream.
    pub(crate) stream_id: StreamId,
    /// Its delete.
    pub(crate) entered: Entered,
}

/// One that is in line to be forgotten.
#[derive(Debug)]
pub(crate) struct Burial {
    /// The number of its bucket.
    pub(crate) bucket: u32,
    /// Its key.
    pub(crate) key: Arc<str>,
    /// The rest.
    pub(crate) tombstone: Tombstone,
}

/// The tombstones of a shard. A name has that of the last stream deleted there.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    /// By the number of their bucket.
    by_name: Vec<BTreeMap<Arc<str>, Tombstone>>,
    /// In the order of the head logs.
    express: VecDeque<Burial>,
    /// In the order of the Standard lane.
    standard: VecDeque<Burial>,
}

impl Tombstones {
    fn queue(&mut self, lane: Lane) -> &mut VecDeque<Burial> {
        match lane {
            Lane::Express => &mut self.express,
            Lane::Standard => &mut self.standard,
        }
    }

    /// Adds one.
    pub(crate) fn push(&mut self, burial: Burial) {
        let at = burial.bucket as usize;
        if self.by_name.len() <= at {
            self.by_name.resize_with(at + 1, BTreeMap::new);
        }
        self.by_name[at].insert(Arc::clone(&burial.key), burial.tombstone);
        self.queue(burial.tombstone.entered.lane().0).push_back(burial);
    }

    /// The one at a name.
    pub(crate) fn get(&self, bucket: u32, key: &str) -> Option<Tombstone> {
        self.by_name.get(bucket as usize)?.get(key).copied()
    }

    /// Those of a bucket at keys after `after`, in order.
    pub(crate) fn after(&self, bucket: u32, after: &str) -> impl Iterator<Item = (&str, StreamId)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = if after.is_empty() { Unbounded } else { Excluded(after) };
        self.by_name
            .get(bucket as usize)
            .into_iter()
            .flat_map(move |names| names.range::<str, _>((from, Unbounded)))
            .map(|(key, tombstone)| (&**key, tombstone.stream_id))
    }

    /// Forgets those of a lane, the oldest first, as long as the index has their delete; true when that may be so of more.
    pub(crate) fn forget(&mut self, lane: Lane, is_in_index: impl Fn(Entered) -> bool) -> bool {
        for _ in 0..FORGOTTEN_TURN_MAX {
            let queue = self.queue(lane);
            if queue.front().is_none_or(|oldest| !is_in_index(oldest.tombstone.entered)) {
                return false;
            }
            let Some(Burial { bucket, key, tombstone }) = queue.pop_front() else { return false };
            let names = &mut self.by_name[bucket as usize];
            if names.get(&key).is_some_and(|last| last.stream_id == tombstone.stream_id) {
                names.remove(&key);
            }
        }
        true
    }

    /// All of them, the oldest of each lane first.
    pub(crate) fn into_burials(self) -> impl Iterator<Item = Burial> {
        self.express.into_iter().chain(self.standard)
    }
}

#[cfg(test)]
mod tests {
    use wire::ids::Lsn;

    use super::*;

    #[test]
    fn many_that_the_index_has_are_forgotten_in_turns() {
        let mut tombstones = Tombstones::default();
        let key = |number: usize| Arc::from(number.to_string());
        for number in 0..=FORGOTTEN_TURN_MAX {
            let tombstone = Tombstone { stream_id: StreamId::default(), entered: Entered::Express(Lsn::new(1)) };
            tombstones.push(Burial { bucket: 0, key: key(number), tombstone });
        }
        assert!(!tombstones.forget(Lane::Express, |_| false), "the index has none");
        assert!(tombstones.get(0, "0").is_some());
        assert!(tombstones.forget(Lane::Express, |_| true));
        assert!(tombstones.get(0, "0").is_none() && tombstones.get(0, &key(FORGOTTEN_TURN_MAX)).is_some());
        assert!(!tombstones.forget(Lane::Express, |_| true));
        assert!(tombstones.get(0, &key(FORGOTTEN_TURN_MAX)).is_none());
    }
}
