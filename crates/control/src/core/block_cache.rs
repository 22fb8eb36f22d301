//! What stays in a cache when not all can?
//!
//! The full version of 2Q (Johnson and Shasha, VLDB 1994). What comes in waits in a queue, first in, first out, and touching it
//! there proves nothing: the records of one block are read one behind the other. What is asked for again after it left the queue
//! is proven, and stays by a clock. So one pass over much more than fits costs the proven ones nothing, and while nothing is
//! proven the queue has all the room.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// The share of the room that the queue keeps when there are proven ones, as a divisor.
const FRESH_DIVISOR: usize = 4;
/// The weight of those that left the queue and are remembered by name, against the room, as a divisor.
const GONE_DIVISOR: usize = 2;

/// Values by key, each with a weight, of at most a weight together.
#[derive(Debug)]
pub(crate) struct BlockCache<K, V> {
    weight_max: usize,
    held: HashMap<K, Held<V>>,
    fresh: Queue<K>,
    proven: Queue<K>,
    gone: Gone<K>,
}

#[derive(Debug)]
struct Held<V> {
    value: V,
    weight: usize,
    is_proven: bool,
    was_used: bool,
}

/// Keys in the order they came, with the weight of all.
#[derive(Debug)]
struct Queue<K> {
    keys: VecDeque<K>,
    weight: usize,
}

/// Keys that left the queue a while ago, oldest first.
#[derive(Debug)]
struct Gone<K> {
    keys: HashSet<K>,
    order: VecDeque<(K, usize)>,
    weight: usize,
    weight_max: usize,
}

impl<K: Copy + Eq + Hash, V> BlockCache<K, V> {
    /// Holds nothing yet, and at most `weight_max` together.
    pub(crate) fn new(weight_max: usize) -> Self {
        let queue = || Queue { keys: VecDeque::new(), weight: 0 };
        let gone =
            Gone { keys: HashSet::new(), order: VecDeque::new(), weight: 0, weight_max: weight_max / GONE_DIVISOR };
        Self { weight_max, held: HashMap::new(), fresh: queue(), proven: queue(), gone }
    }

    /// The value of `key`, which counts as used.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let held = self.held.get_mut(key)?;
        held.was_used = true;
        Some(&held.value)
    }

    /// Whether `key` is held.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.held.contains_key(key)
    }

    /// The weight of all that is held.
    pub(crate) fn weight(&self) -> usize {
        self.fresh.weight + self.proven.weight
    }

    /// How many are held.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.held.len()
    }

    /// Takes a value in, in the place of the one that `key` has if it has one, and answers what had to leave: the value itself when
    /// it is heavier than the room.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) -> Vec<(K, V)> {
        if weight > self.weight_max {
            self.remove(&key);
            return vec![(key, value)];
        }
        if let Some(held) = self.held.get_mut(&key) {
            let queue = if held.is_proven { &mut self.proven } else { &mut self.fresh };
            queue.weight = queue.weight - held.weight + weight;
            (held.value, held.weight) = (value, weight);
        } else {
            let is_proven = self.gone.remove(&key);
            let queue = if is_proven { &mut self.proven } else { &mut self.fresh };
            queue.keys.push_back(key);
            queue.weight += weight;
            self.held.insert(key, Held { value, weight, is_proven, was_used: false });
        }
        let mut left = Vec::new();
        while self.weight() > self.weight_max {
            left.extend(self.evict());
        }
        left
    }

    /// Forgets `key`, and that it was ever here.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.gone.remove(key);
        let held = self.held.remove(key)?;
        let queue = if held.is_proven { &mut self.proven } else { &mut self.fresh };
        queue.keys.retain(|queued| queued != key);
        queue.weight -= held.weight;
        Some(held.value)
    }

    fn evict(&mut self) -> Option<(K, V)> {
        if self.fresh.weight > self.weight_max / FRESH_DIVISOR || self.proven.keys.is_empty() {
            return self.evict_fresh();
        }
        self.evict_proven()
    }

    fn evict_fresh(&mut self) -> Option<(K, V)> {
        let key = self.fresh.keys.pop_front()?;
        let held = self.held.remove(&key)?;
        self.fresh.weight -= held.weight;
        self.gone.push(key, held.weight);
        Some((key, held.value))
    }

    /// Goes round the clock to one that was not used since it was last passed.
    fn evict_proven(&mut self) -> Option<(K, V)> {
        loop {
            let key = self.proven.keys.pop_front()?;
            let held = self.held.get_mut(&key)?;
            if !std::mem::take(&mut held.was_used) {
                let held = self.held.remove(&key)?;
                self.proven.weight -= held.weight;
                return Some((key, held.value));
            }
            self.proven.keys.push_back(key);
        }
    }
}

impl<K: Copy + Eq + Hash> Gone<K> {
    fn push(&mut self, key: K, weight: usize) {
        self.keys.insert(key);
        self.order.push_back((key, weight));
        self.weight += weight;
        while self.weight > self.weight_max {
            let Some((oldest, weight)) = self.order.pop_front() else {
                return;
            };
            self.keys.remove(&oldest);
            self.weight -= weight;
        }
    }

    /// Whether it was remembered. Its place in the order stays until its turn comes.
    fn remove(&mut self, key: &K) -> bool {
        self.keys.remove(key)
    }
}

#[cfg(test)]
mod tests;
