//! Which object of the store holds an extent?

use wire::ids::Epoch;
use wire::slot::Slot;

use crate::channel::ChunkId;
use crate::store::ObjectName;

/// An object that holds extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectId {
    /// A chunk, which holds extents of many slots.
    Chunk(ChunkId),
    /// A settled object, which holds extents of one slot.
    Bundle {
        /// The slot.
        slot: Slot,
        /// The tenure of the star that made it.
        epoch: Epoch,
        /// Drawn for it.
        id: u128,
    },
}

impl ObjectId {
    /// Its name in the store.
    #[must_use]
    pub fn name(&self) -> ObjectName {
        match self {
            Self::Chunk(id) => crate::channel::chunk_name(*id),
            Self::Bundle { slot, epoch, id } => name(&format!("d/{:02x}/{:016x}-{id:032x}", slot.get(), epoch.get())),
        }
    }

    /// The bundle of a slot that has this name.
    #[must_use]
    pub fn bundle_of(slot: Slot, name: &ObjectName) -> Option<Self> {
        let (epoch, id) = name.segments().nth(2)?.split_once('-')?;
        let epoch = Epoch::new(u64::from_str_radix(epoch, 16).ok()?);
        let object = Self::Bundle { slot, epoch, id: u128::from_str_radix(id, 16).ok()? };
        (object.name() == *name).then_some(object)
    }

    /// Whether it is a chunk.
    #[must_use]
    pub const fn is_chunk(&self) -> bool {
        matches!(self, Self::Chunk(_))
    }
}

fn name(text: &str) -> ObjectName {
    match ObjectName::parse(text) {
        Ok(name) => name,
        Err(error) => unreachable!("digits and slashes are a name: {error}"),
    }
}
