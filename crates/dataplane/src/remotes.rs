//! What does a shard keep of a connection that another shard reads from?

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use wire::ids::ShardId;

use crate::conns::PAGES_MAX;
use crate::core::{BACKLOG_BYTES_MAX, ConnId, OutBuffer};

/// A connection of another shard.
#[derive(Debug)]
pub(crate) struct Remote {
    generation: u32,
    /// Frames for it that are not sent to its shard yet.
    pub(crate) out: OutBuffer,
    pub(crate) is_dirty: bool,
    /// Bytes sent to its shard that the kernel has not taken there.
    pub(crate) untaken: usize,
    /// Hops worked off that its shard has not been told of.
    pub(crate) done: u32,
    /// Pages that this shard gathers for it.
    pub(crate) pages_under_way: u32,
    /// Hops that wait, with when each was received, the first one served up to `at`.
    pub(crate) waiting: VecDeque<(Duration, Vec<u8>)>,
    pub(crate) at: usize,
    /// It stands in the list of those to go on with.
    pub(crate) is_held: bool,
    pub(crate) backlog_asked: Cell<bool>,
}

impl Remote {
    fn new(generation: u32) -> Self {
        Self {
            generation,
            out: OutBuffer::default(),
            is_dirty: false,
            untaken: 0,
            done: 0,
            pages_under_way: 0,
            waiting: VecDeque::new(),
            at: 0,
            is_held: false,
            backlog_asked: Cell::new(false),
        }
    }

    /// Bytes for it that the kernel of its shard has not taken.
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.out.len() + self.untaken
    }

    /// Whether its next frame may be served.
    pub(crate) fn may_serve(&self) -> bool {
        self.backlog_bytes() < BACKLOG_BYTES_MAX && self.pages_under_way < PAGES_MAX
    }
}

/// The connections of other shards, by shard and place.
#[derive(Debug)]
pub(crate) struct Remotes {
    places: Vec<Vec<Option<Box<Remote>>>>,
}

impl Remotes {
    /// None yet, of `shards` shards.
    pub(crate) fn new(shards: usize) -> Self {
        Self { places: (0..shards).map(|_| Vec::new()).collect() }
    }

    /// One that is still there.
    pub(crate) fn get(&self, id: ConnId) -> Option<&Remote> {
        let place = self.places.get(usize::from(id.shard.get()))?.get(id.slot as usize)?;
        place.as_deref().filter(|remote| remote.generation == id.generation)
    }

    /// One that is still there.
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Remote> {
        let place = self.places.get_mut(usize::from(id.shard.get()))?.get_mut(id.slot as usize)?;
        place.as_deref_mut().filter(|remote| remote.generation == id.generation)
    }

    /// The one of this id, made when it is new; `None` for a shard that there is not.
    pub(crate) fn get_or_insert(&mut self, id: ConnId) -> Option<&mut Remote> {
        let places = self.places.get_mut(usize::from(id.shard.get()))?;
        let slot = id.slot as usize;
        if places.len() <= slot {
            places.resize_with(slot + 1, || None);
        }
        let place = places.get_mut(slot)?;
        let is_known = place.as_ref().is_some_and(|remote| remote.generation == id.generation);
        if !is_known {
            *place = Some(Box::new(Remote::new(id.generation)));
        }
        place.as_deref_mut()
    }

    /// Forgets one.
    pub(crate) fn remove(&mut self, id: ConnId) {
        if self.get(id).is_some() {
            self.places[usize::from(id.shard.get())][id.slot as usize] = None;
        }
    }
}

/// The bit of a shard in a set of shards.
pub(crate) fn bit(shard: ShardId) -> u64 {
    1_u64.checked_shl(u32::from(shard.get())).unwrap_or(0)
}
