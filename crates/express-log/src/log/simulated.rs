//! A head log on a disk in memory that crashes, for simulations of what stands on it.
//!
//! It is the [`Log`] with all of its tasks, on virtual time, and what recovery finds is what [`Recovery`](crate::Recovery)
//! would. Only with the feature `simulated`, which no binary for users has.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use wire::ids::{Epoch, LogId, Lsn, SegmentId};

use super::Log;
use super::shared::Calls;
use crate::device::Device;
use crate::device::memory::{Faults, RecoveredRemains, Remains, World};
use crate::entry::{EntryPos, ReplayedEntry};
use crate::options::{LogOptions, SyncMode};
use crate::recovery::Verdict;
use crate::room::{NoRoom, RoomClass};

/// What the disk of one log holds while nobody writes to it.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk(pub(crate) Remains);

impl SimulatedDisk {
    /// Gives `sink` every entry that is there, in order, and answers one past the last.
    ///
    /// # Panics
    /// When something is gone that was durable: the disk is an honest one.
    pub fn replay(&self, sink: &mut dyn FnMut(ReplayedEntry<'_>)) -> Lsn {
        self.recover(sink).end_lsn()
    }

    fn recover(&self, sink: &mut dyn FnMut(ReplayedEntry<'_>)) -> RecoveredRemains {
        let recovered = self.0.recover(sink).expect("the superblock holds");
        assert!(!matches!(recovered.verdict(), Verdict::Corrupt(_)), "a crash is no corruption");
        recovered
    }

    /// Bytes of a segment; none when it is gone.
    #[must_use]
    pub fn read(&self, segment: SegmentId, offset: u32, bytes: u32) -> Option<Vec<u8>> {
        self.0.segments.get(&segment)?.get(offset as usize..(offset + bytes) as usize).map(<[u8]>::to_vec)
    }
}

/// A head log that takes entries, and all that it stands on.
#[derive(Debug)]
pub struct SimulatedLog {
    world: World,
    log: Log<World>,
    told: Rc<RefCell<VecDeque<Lsn>>>,
}

impl SimulatedLog {
    /// Goes on with what a disk holds, in `epoch`. `options` are not checked, so that segments may be small; what happens when
    /// follows from `seed`.
    ///
    /// # Panics
    /// When the log can't be opened.
    #[must_use]
    pub fn open(disk: SimulatedDisk, options: LogOptions, epoch: Epoch, seed: u64) -> Self {
        let recovered = disk.recover(&mut |_| {});
        let world = World::new(disk.0, seed, Faults::default(), options.sync == SyncMode::Fdatasync);
        let told = Rc::new(RefCell::new(VecDeque::new()));
        let put = Rc::clone(&told);
        let calls = Calls::new(
            move |lsn| put.borrow_mut().push_back(lsn),
            |error| unreachable!("a disk that works fails: {error}"),
        );
        let opened = Rc::new(RefCell::new(None));
        let (own, done) = (world.clone(), Rc::clone(&opened));
        world.spawn(async move {
            let log = Log::open_on(own, options, recovered.ends, epoch, calls).await;
            done.replace(Some(log));
        });
        let log = loop {
            if let Some(log) = opened.take() {
                break log.expect("what was recovered is opened");
            }
            assert!(world.step(), "the log is opened");
        };
        Self { world, log, told }
    }

    /// Does one thing, of the disk or of the log; false when there is nothing to do.
    pub fn step(&self) -> bool {
        self.world.step()
    }

    /// What the log tells of next: all up to it is durable.
    #[must_use]
    pub fn take_durable(&self) -> Option<Lsn> {
        self.told.borrow_mut().pop_front()
    }

    /// See [`Log::id`].
    #[must_use]
    pub fn id(&self) -> LogId {
        self.log.id()
    }

    /// See [`Log::room`].
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn room(&self, entry_bytes: usize, class: RoomClass) -> Result<(), NoRoom> {
        self.log.room(entry_bytes, class)
    }

    /// See [`Log::append`].
    ///
    /// # Panics
    /// When there is no room.
    pub fn append(&self, entry: &[u8]) -> (Lsn, EntryPos) {
        let (lsn, pos, ()) = self.log.append(entry.len(), |out| out.copy_from_slice(entry));
        (lsn, pos)
    }

    /// See [`Log::kick`].
    pub fn kick(&self) {
        self.log.kick();
    }

    /// See [`Log::durable_lsn`].
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        self.log.durable_lsn()
    }

    /// See [`Log::assigned_lsn`].
    #[must_use]
    pub fn assigned_lsn(&self) -> Lsn {
        self.log.assigned_lsn()
    }

    /// See [`Log::release`].
    pub fn release(&self, settled: Lsn) {
        self.log.release(settled);
    }

    /// See [`Log::first_segment`].
    #[must_use]
    pub fn first_segment(&self) -> SegmentId {
        self.log.first_segment()
    }

    /// Durable bytes of a segment; none when it is gone.
    #[must_use]
    pub fn read(&self, segment: SegmentId, offset: u32, bytes: u32) -> Option<Vec<u8>> {
        self.world.read(segment, offset, bytes)
    }

    /// The sum of all that was done: two runs that differ in anything have different ones.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.world.trace()
    }

    /// The power goes: answers what is left.
    #[must_use]
    pub fn crash(self) -> SimulatedDisk {
        let Self { world, log, .. } = self;
        drop(log);
        SimulatedDisk(world.crash())
    }
}
