//! Whatever is put in, asked for and taken out, a cache keeps to its room, answers what leaves and gives what was put in.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::BlockCache;

const WEIGHT_MAX: usize = 100;

#[derive(Debug, Clone)]
enum Step {
    Insert { key: u8, weight: usize },
    Get { key: u8 },
    Remove { key: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..40_u8;
    // Some are heavier than all the room.
    let weight = prop_oneof![9 => 1..30_usize, 1 => 90..110_usize];
    prop_oneof![
        4 => (key(), weight).prop_map(|(key, weight)| Step::Insert { key, weight }),
        4 => key().prop_map(|key| Step::Get { key }),
        1 => key().prop_map(|key| Step::Remove { key }),
    ]
}

/// A cache, and what must be in it: the number and the weight of what was put in under each key.
struct Machine {
    cache: BlockCache<u8, u64>,
    held: BTreeMap<u8, (u64, usize)>,
    number: u64,
}

impl Machine {
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Insert { key, weight } => self.insert(key, weight),
            Step::Get { key } => {
                let wanted = self.held.get(&key).map(|(number, _)| *number);
                assert_eq!(self.cache.get(&key).copied(), wanted, "key {key}");
            }
            Step::Remove { key } => {
                let wanted = self.held.remove(&key).map(|(number, _)| number);
                assert_eq!(self.cache.remove(&key), wanted, "key {key}");
            }
        }
        let weight: usize = self.held.values().map(|(_, weight)| weight).sum();
        assert_eq!((self.cache.len(), self.cache.weight()), (self.held.len(), weight));
        assert!(weight <= WEIGHT_MAX, "{weight}");
    }

    fn insert(&mut self, key: u8, weight: usize) {
        self.number += 1;
        let left = self.cache.insert(key, self.number, weight);
        self.held.insert(key, (self.number, weight));
        for (key, number) in left {
            let was = self.held.remove(&key).expect("what leaves was there");
            assert_eq!(was.0, number, "what leaves is what was there");
        }
        assert_eq!(self.held.contains_key(&key), self.cache.contains(&key));
        assert!(weight <= WEIGHT_MAX || !self.cache.contains(&key));
    }
}

proptest! {
    #[test]
    fn whatever_happens_it_keeps_to_its_room_and_gives_what_was_put_in(steps in prop::collection::vec(step(), 1..400)) {
        let mut machine = Machine { cache: BlockCache::new(WEIGHT_MAX), held: BTreeMap::new(), number: 0 };
        steps.iter().for_each(|step| machine.take(step));
    }
}
