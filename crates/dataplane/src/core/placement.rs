//! Which shard owns which slot.

use wire::ids::ShardId;
use wire::slot::{SLOTS, Slot};

/// The table of slots to shards; made once a run.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    shards: [ShardId; SLOTS as usize],
    count: u16,
}

impl Placement {
    /// Spreads the slots over `shards` shards in even, contiguous runs.
    ///
    /// # Panics
    /// When `shards` is 0 or more than there are slots.
    pub(crate) fn even(shards: u16) -> Self {
        assert!((1..=u16::from(SLOTS)).contains(&shards), "1 to {SLOTS} shards, not {shards}");
        let mut table = [ShardId::ZERO; SLOTS as usize];
        for slot in Slot::all() {
            table[usize::from(slot.get())] = ShardId::new(u16::from(slot.get()) * shards / u16::from(SLOTS));
        }
        Self { shards: table, count: shards }
    }

    /// The shard of a slot.
    #[inline]
    pub(crate) fn shard(&self, slot: Slot) -> ShardId {
        self.shards[usize::from(slot.get())]
    }

    /// How many shards there are.
    pub(crate) fn shards(&self) -> u16 {
        self.count
    }
}
