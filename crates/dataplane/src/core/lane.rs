//! Where does an entry become durable: in the shard's head log, or in the standard store?
//!
//! The Express lane is the head log. The Standard lane counts its own LSNs: its entries wait in a parcel until the turn
//! ends, control commits them and says so, and later that the index has them. Until then their bytes stay in a ring that
//! has room for all of them, so that a reader finds a record here or, from then on, in the store.

use std::collections::VecDeque;
use std::time::Duration;

use express_log::{EntryPos, NoRoom, RoomClass};
use wire::config::Class;
use wire::entry::ENTRY_BYTES_MAX;
use wire::handoff::{Parcel, ParcelItem};
use wire::ids::{Lsn, SegmentId, ShardId};
use wire::log_frame::ENTRY_PREFIX_BYTES;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::append::{no_room, store_is_full};
use super::commit::PendingQueue;
use super::outage::{STALLED_RETRY_AFTER_MS, Stalled};
use super::ring::Ring;
use super::shard::{PENDING_MAX, Shard};
use super::world::World;

/// Stands where the number of a head log does, for entries in the ring of the Standard lane.
pub(crate) const STANDARD_LOG: u16 = u16::MAX;

/// Longest entry together with its length.
const LONGEST_BYTES: usize = ENTRY_PREFIX_BYTES + ENTRY_BYTES_MAX;
/// Bytes of a Standard lane that the index doesn't have yet, at most.
const UNAPPLIED_BYTES_MAX: usize = 32 << 20;

/// A way for entries to become durable. A stream has entries in flight in one of them only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Lane {
    /// The shard's head log.
    #[default]
    Express,
    /// The standard store.
    Standard,
}

impl From<Class> for Lane {
    #[inline]
    fn from(class: Class) -> Self {
        match class {
            Class::Express => Self::Express,
            Class::Standard => Self::Standard,
        }
    }
}

impl From<Lane> for Class {
    #[inline]
    fn from(lane: Lane) -> Self {
        match lane {
            Lane::Express => Self::Express,
            Lane::Standard => Self::Standard,
        }
    }
}

/// The last entry of a stream that the index may not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Entered {
    /// There is none.
    #[default]
    Nothing,
    /// One that recovery found in a head log.
    Before,
    /// This one of the head log.
    Express(Lsn),
    /// This one of the Standard lane.
    Standard(Lsn),
}

impl Entered {
    /// The entry of this number.
    pub(crate) fn of(lane: Lane, lsn: Lsn) -> Self {
        match lane {
            Lane::Express => Self::Express(lsn),
            Lane::Standard => Self::Standard(lsn),
        }
    }

    /// What has to be durable before an answer that stands on it.
    pub(crate) fn lane(self) -> (Lane, Lsn) {
        match self {
            Self::Nothing | Self::Before => (Lane::Express, Lsn::ZERO),
            Self::Express(lsn) => (Lane::Express, lsn),
            Self::Standard(lsn) => (Lane::Standard, lsn),
        }
    }
}

/// Why a lane takes no entry.
#[derive(Debug)]
pub(super) enum Shut {
    /// It is behind for the moment.
    Busy,
    /// For longer.
    Refused(Refusal),
}

/// Entries on their way to the standard store.
#[derive(Debug)]
pub(crate) struct StandardLane {
    /// What waits for them to be durable.
    pub(super) pending: PendingQueue,
    /// Their bytes, as long as readers may want them from here.
    pub(super) ring: Ring,
    /// Why the store takes none now.
    pub(super) stalled: Option<Stalled>,
    assigned: Lsn,
    durable: Lsn,
    applied: Lsn,
    parcel: Parcel,
    /// Where in the ring's running count the next entry's length goes.
    next: (SegmentId, u32),
    segment_bytes: usize,
    unapplied_bytes: usize,
    unapplied_bytes_max: usize,
    /// Parcels that the index doesn't have yet.
    handed: VecDeque<Handed>,
}

/// A parcel that control has.
#[derive(Debug)]
struct Handed {
    upto: Lsn,
    bytes: usize,
    at: Duration,
}

impl StandardLane {
    /// The lane of a shard that has this much memory.
    pub(super) fn new(memory_bytes: usize) -> Self {
        let unapplied_bytes_max = (memory_bytes / 8).clamp(4 * LONGEST_BYTES, UNAPPLIED_BYTES_MAX);
        Self {
            pending: VecDeque::new(),
            // Room for every length too, for the segment that goes as a whole, and for what is left at the end.
            ring: Ring::new(2 * unapplied_bytes_max + 2 * LONGEST_BYTES),
            stalled: None,
            assigned: Lsn::ZERO,
            durable: Lsn::ZERO,
            applied: Lsn::ZERO,
            parcel: Parcel::default(),
            next: (SegmentId::ZERO, 0),
            segment_bytes: unapplied_bytes_max / 4,
            unapplied_bytes: 0,
            unapplied_bytes_max,
            handed: VecDeque::new(),
        }
    }

    /// The last entry there is.
    pub(super) fn assigned(&self) -> Lsn {
        self.assigned
    }

    /// The last entry that the index has.
    pub(super) fn applied(&self) -> Lsn {
        self.applied
    }

    /// Bytes that the index doesn't have yet.
    pub(super) fn unapplied_bytes(&self) -> usize {
        self.unapplied_bytes
    }

    /// Whether so many answers wait that nothing is asked any more; entries stop to enter long before.
    pub(super) fn is_behind(&self) -> bool {
        self.pending.len() >= 2 * PENDING_MAX
    }

    /// The refusal while the store takes nothing.
    pub(super) fn stalled(&self) -> Option<Refusal> {
        self.stalled.as_ref().map(Stalled::refusal)
    }

    /// Whether an entry may enter.
    fn room(&self, entry_bytes: usize) -> Result<(), Shut> {
        if let Some(refusal) = self.stalled() {
            return Err(Shut::Refused(refusal));
        }
        let has_room = self.unapplied_bytes + entry_bytes <= self.unapplied_bytes_max;
        if has_room && self.pending.len() < PENDING_MAX { Ok(()) } else { Err(Shut::Busy) }
    }

    /// Takes in an entry for which there is room.
    pub(super) fn append(&mut self, item: ParcelItem, fill: impl FnOnce(&mut [u8])) -> (Lsn, EntryPos) {
        let entry_bytes = item.bytes as usize;
        let (mut segment, mut offset) = self.next;
        // What follows on in a segment follows on in the ring, so that an extent is there as a whole or not at all.
        let is_full = offset as usize + ENTRY_PREFIX_BYTES + entry_bytes > self.segment_bytes;
        if is_full || self.ring.wraps(entry_bytes) {
            (segment, offset) = (segment.next(), 0);
        }
        let pos = EntryPos { segment, offset: offset + PREFIX_BYTES, bytes: item.bytes };
        self.next = (segment, pos.offset + item.bytes);
        let parcel = &mut self.parcel;
        let ((), pos) = self.ring.push_with(entry_bytes, fill, |entry| {
            parcel.bytes.extend_from_slice(entry);
            ((), pos)
        });
        parcel.items.push(item);
        self.unapplied_bytes += entry_bytes;
        self.assigned = self.assigned.next();
        (self.assigned, pos)
    }

    fn on_applied(&mut self, lsn: Lsn) {
        self.applied = self.applied.max(lsn);
        while let Some(handed) = self.handed.front().filter(|handed| handed.upto <= lsn) {
            self.unapplied_bytes -= handed.bytes;
            self.handed.pop_front();
        }
    }

    /// When control was given an entry that the index doesn't have yet.
    pub(super) fn given_at(&self, lsn: Lsn) -> Option<Duration> {
        let at = self.handed.partition_point(|handed| handed.upto < lsn);
        self.handed.get(at).map(|handed| handed.at)
    }

    fn hand_over(&mut self, shard: ShardId, at: Duration, world: &mut impl World) {
        if self.parcel.items.is_empty() {
            return;
        }
        let parcel = std::mem::take(&mut self.parcel);
        let bytes = parcel.bytes.len();
        match world.hand_over(shard, self.assigned, parcel) {
            Ok(()) => self.handed.push_back(Handed { upto: self.assigned, bytes, at }),
            Err(kept) => self.parcel = kept,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the prefix of an entry is four bytes")]
const PREFIX_BYTES: u32 = ENTRY_PREFIX_BYTES as u32;

impl Shard {
    /// Says why the head log takes no more records, though it has room: what is not settled is too old. `None` opens it again.
    pub(crate) fn shut_express(&mut self, why: Option<String>) {
        self.backlog = why;
    }

    #[cold]
    fn backlogged(&self) -> Refusal {
        let why = self.backlog.clone().unwrap_or_default();
        Refusal::new(Reason::ResourceExhausted, why).with_retry_after_ms(STALLED_RETRY_AFTER_MS)
    }

    /// Whether the standard store takes no entries now.
    pub(crate) fn is_stalled(&self) -> bool {
        self.standard.stalled.is_some()
    }

    /// Gives control what entered the Standard lane, and asks again what its queue had no room for; at the end of each turn.
    pub(crate) fn hand_over(&mut self, world: &mut impl World) {
        self.standard.hand_over(self.config.shard, self.now.mono, world);
        if !self.unasked.is_empty() {
            self.ask_again(world);
        }
    }

    /// Whether a lane takes an entry now.
    #[inline]
    pub(super) fn room(
        &self,
        lane: Lane,
        entry_bytes: usize,
        class: RoomClass,
        world: &impl World,
    ) -> Result<(), Shut> {
        // What enters a head log is settled in the store too, and must not take what is left free there.
        if class == RoomClass::Data {
            world.store_room().map_err(|full| Shut::Refused(store_is_full(&full)))?;
        }
        match lane {
            Lane::Express if class == RoomClass::Data && self.backlog.is_some() => {
                Err(Shut::Refused(self.backlogged()))
            }
            Lane::Express => world.room(entry_bytes, class).map_err(|full| match full {
                NoRoom::Busy => Shut::Busy,
                NoRoom::Full { .. } | NoRoom::Disk { .. } | NoRoom::Closed => Shut::Refused(no_room(&full)),
            }),
            Lane::Standard => self.standard.room(entry_bytes),
        }
    }

    /// The last entry of a lane with all before it durable.
    pub(super) fn durable(&self, lane: Lane, world: &impl World) -> Lsn {
        match lane {
            Lane::Express => world.durable_lsn(),
            Lane::Standard => self.standard.durable,
        }
    }

    /// The Standard lane is durable up to here.
    pub(super) fn on_committed(&mut self, lsn: Lsn, world: &mut impl World) {
        self.standard.durable = self.standard.durable.max(lsn);
        self.commit::<true>(lsn, world);
        self.forget_what_left_the_ring();
    }

    /// The Standard lane is in the index up to here.
    pub(super) fn on_applied(&mut self, lsn: Lsn) {
        self.standard.on_applied(lsn);
        self.forget_tombstones();
    }
}
