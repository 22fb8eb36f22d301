//! One history of a log: a quiet beginning, lives in which things go wrong, and an end at which all must come right.

use std::cell::Cell;

use wire::superblock::{COPIES, COPY_BYTES, Superblock};

use super::super::*;
use super::swarm::Swarm;
use super::truth::{ReadBack, Truth};
use crate::device::memory::Trace;

/// Steps in which a log on a disk that works comes to the end of anything.
const DEADLINE_STEPS: usize = 50_000;

/// What became of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Outcome {
    /// The sum of all that happened.
    pub(super) trace: u64,
    pub(super) crashes: u64,
    pub(super) acked: u64,
    pub(super) freed: u64,
    pub(super) failed: u64,
    pub(super) reported: u64,
    pub(super) undecidable: u64,
}

impl Outcome {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            trace: self.trace ^ other.trace,
            crashes: self.crashes + other.crashes,
            acked: self.acked + other.acked,
            freed: self.freed + other.freed,
            failed: self.failed + other.failed,
            reported: self.reported + other.reported,
            undecidable: self.undecidable + other.undecidable,
        }
    }
}

#[derive(Debug)]
struct History {
    draw: Draw,
    swarm: Swarm,
    truth: Truth,
    remains: Remains,
    epoch: u64,
    /// Whether the disk has kept what was synced so far.
    is_honest: bool,
    trace: Trace,
    outcome: Outcome,
}

/// Lives through the history of `seed`.
///
/// # Panics
/// When what was promised does not hold.
pub(super) fn run(seed: u64) -> Outcome {
    let mut draw = Draw::new(seed);
    let swarm = Swarm::draw(&mut draw);
    let is_honest = !swarm.is_lying();
    let mut history = History {
        draw,
        swarm,
        truth: Truth::default(),
        remains: Remains::default(),
        epoch: 0,
        is_honest,
        trace: Trace::default(),
        outcome: Outcome::default(),
    };
    history.live(false);
    for _ in 0..history.swarm.lives {
        history.live(true);
    }
    history.come_to_rest();
    history.outcome.acked = history.truth.acked();
    history.outcome.trace = history.trace.sum();
    history.outcome
}

impl History {
    /// Reads what is left and answers how it may be gone on with.
    fn read_back(&mut self) -> RecoveredRemains {
        self.read_with_errors();
        let ReadBack { recovered, lsns, undecidable } = self.truth.read_back(&self.remains, self.is_honest);
        self.outcome.undecidable += undecidable as u64;
        self.trace.note(lsns.len() as u64);
        self.trace.note(recovered.end_lsn().get());
        if !matches!(recovered.verdict(), Verdict::Corrupt(_)) {
            return recovered;
        }
        self.outcome.reported += 1;
        let refused = open::check(&recovered.ends, Epoch::new(self.epoch + 1));
        assert!(matches!(refused, Err(OpenError::Corrupt { .. })), "a corrupt log is not written to");
        self.truth.on_loss_accepted(recovered.verdict());
        // A file that goes missing beside a segment whose loss was accepted is taken for a part of that loss.
        self.swarm.missing = 0;
        recovered.accept_loss()
    }

    /// A disk that can't be read, or has no superblock that holds, is an error and no verdict.
    fn read_with_errors(&mut self) {
        let reads = self.draw.below(30) as u64;
        let read = if self.draw.happens(100) { self.remains.recover_within(reads, &mut |_| {}).ok() } else { None };
        if let Some(read) = read {
            let again = self.remains.recover(&mut |_| {}).expect("it was read");
            assert_eq!(read.verdict(), again.verdict(), "all was read in {reads} reads");
        }
        if self.draw.happens(20) && self.is_whole_superblock() {
            let mut damaged = self.remains.clone();
            for copy in 0..COPIES {
                damaged.superblock[copy * COPY_BYTES + 12 + self.draw.below(80)] ^= 1 << self.draw.below(8);
            }
            damaged.recover(&mut |_| {}).expect_err("no copy of the superblock holds");
        }
    }

    fn is_whole_superblock(&self) -> bool {
        let mut copies = self.remains.superblock.chunks(COPY_BYTES).map(Superblock::decode);
        let Some(Ok((first, _))) = copies.next() else { return false };
        copies.all(|copy| copy.is_ok_and(|(copy, _)| copy.sequence == first.sequence))
    }

    /// The next life, until it crashes; `goes_wrong` says that not all goes well in it.
    fn live(&mut self, goes_wrong: bool) {
        let (world, told, opened) = self.start(if goes_wrong { self.swarm.faults } else { Faults::default() });
        let steps = if self.draw.happens(300) { self.draw.below(150) } else { 400 };
        step(&world, steps);
        if let Some(log) = opened.take() {
            self.truth.on_open();
            for _ in 0..self.draw.below(1 + self.swarm.turns) {
                self.take_turn(&world, &log, &told);
            }
            self.outcome.freed += log.metrics().freed_segments;
            if self.draw.happens(self.swarm.seal) {
                crate::Device::spawn(&world, seal(log, Rc::default()));
                step(&world, self.draw.below(300));
            }
        }
        self.crash(world, &told);
    }

    fn start(&mut self, faults: Faults) -> (World, Rc<Told>, Opened) {
        let recovered = self.read_back();
        let cached_writes = self.swarm.options.sync == SyncMode::Fdatasync;
        let world = World::new(std::mem::take(&mut self.remains), self.draw.next_number(), faults, cached_writes);
        self.epoch += 1;
        let (told, opened) = super::super::start(&world, recovered, self.epoch, self.swarm.options);
        (world, told, opened)
    }

    fn take_turn(&mut self, world: &World, log: &Log<World>, told: &Told) {
        for _ in 0..self.draw.below(1 + self.swarm.burst) {
            let class = if self.draw.happens(50) { RoomClass::Control } else { RoomClass::Data };
            if let Ok((lsn, pos)) = append(log, told, self.entry(told), class) {
                self.truth.on_place(lsn, pos.segment);
            }
        }
        log.kick();
        let steps = if self.draw.happens(self.swarm.idle) { 150 } else { self.draw.below(1 + self.swarm.steps) };
        step(world, steps);
        if self.draw.happens(self.swarm.release) {
            let settled = Lsn::new(self.draw.next_number() % told.durable.get().next().get());
            self.truth.on_settled(settled);
            log.release(self.truth.settled());
        }
    }

    /// The entry that is appended next: no two of a history are alike.
    fn entry(&mut self, told: &Told) -> Vec<u8> {
        let mut entry = format!("{}/{}/", self.epoch, told.appended.borrow().len()).into_bytes();
        let most = if self.draw.happens(300) { self.swarm.entry_bytes_max } else { 60 };
        let [byte, ..] = self.draw.next_number().to_le_bytes();
        entry.resize(entry.len() + self.draw.below(most), byte);
        entry
    }

    fn crash(&mut self, world: World, told: &Told) {
        self.outcome.crashes += 1;
        self.outcome.failed += told.fatal.get();
        assert!(told.fatal.get() <= 1, "a log fails once");
        self.truth.on_life(told.appended.take(), told.durable.get());
        self.trace.note(world.trace());
        self.remains = world.crash();
        self.rot();
    }

    /// Does to what is left what an honest disk does not.
    fn rot(&mut self) {
        let segments: Vec<SegmentId> = self.remains.segments.keys().copied().collect();
        if segments.is_empty() {
            return;
        }
        if self.draw.happens(self.swarm.flipped) {
            let segment = segments[self.draw.below(segments.len())];
            let bytes = self.remains.segments.get_mut(&segment).expect("it is there");
            let at = self.draw.below(bytes.len());
            bytes[at] ^= 1 << self.draw.below(8);
        }
        if self.draw.happens(self.swarm.flipped) && self.is_whole_superblock() {
            let at = self.draw.below(COPIES) * COPY_BYTES + self.draw.below(200);
            self.remains.superblock[at] ^= 1 << self.draw.below(8);
        }
        if self.draw.happens(self.swarm.missing) {
            self.remains.segments.remove(&segments[self.draw.below(segments.len())]);
        }
    }

    /// Nothing goes wrong any more: all must come to its end, all be there, and be there again.
    fn come_to_rest(&mut self) {
        self.swarm.stop_rotting();
        let (world, told, opened) = self.start(Faults::default());
        until(&world, "the log is open", || opened.borrow().is_some());
        self.truth.on_open();
        let log = opened.take().expect("it is open");
        self.release_all(&world, &log, &told);
        for _ in 0..10 {
            let entry = self.entry(&told);
            until(&world, "there is room", || log.room(entry.len(), RoomClass::Data).is_ok());
            let (lsn, pos) = append(&log, &told, entry, RoomClass::Data).expect("there is room");
            self.truth.on_place(lsn, pos.segment);
            log.kick();
        }
        until(&world, "all is durable", || log.durable_lsn() == log.assigned_lsn());
        assert_eq!(told.durable.get(), log.assigned_lsn(), "all is answered for");
        self.release_all(&world, &log, &told);
        let sealed = Rc::new(Cell::new(false));
        crate::Device::spawn(&world, seal(log, Rc::clone(&sealed)));
        until(&world, "the log is sealed", || sealed.get());
        let acked = told.durable.get();
        self.crash(world, &told);
        let recovered = self.read_back();
        assert_eq!(recovered.verdict(), &Verdict::Clean, "what was sealed is clean");
        assert_eq!(recovered.end_lsn(), acked.next());
        let (world, told, opened) = self.start(Faults::default());
        until(&world, "the log is open again", || opened.borrow().is_some());
        self.crash(world, &told);
        assert_eq!(self.read_back().end_lsn(), acked.next());
    }

    fn release_all(&mut self, world: &World, log: &Log<World>, told: &Told) {
        self.truth.on_settled(told.durable.get());
        log.release(self.truth.settled());
        until(world, "what is settled is freed", || {
            let first_open = log.shared.files.borrow().front().map(|(segment, _)| *segment);
            !log.shared.release.borrow().is_busy() && first_open == Some(log.first_segment())
        });
        self.outcome.freed += log.metrics().freed_segments;
    }
}

async fn seal(log: Log<World>, sealed: Rc<Cell<bool>>) {
    log.seal().await;
    sealed.set(true);
}

fn step(world: &World, steps: usize) {
    for _ in 0..steps {
        world.step();
    }
}

fn until(world: &World, what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..DEADLINE_STEPS {
        if is_so() {
            return;
        }
        world.step();
    }
    panic!("never: {what}");
}
