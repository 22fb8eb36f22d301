//! Whatever is appended, and in whichever order the disk comes to an end with it: frames lie apart, become durable in order and leave
//! room for control entries.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use wire::ids::{Epoch, Lsn, SegmentId};
use wire::log_frame::{BLOCK_BYTES, FrameHeader};

use crate::core::pipeline::{Commit, NOTE_BYTES, Pipeline, Policy};
use crate::core::space::{Blank, Space, SpaceLimits};
use crate::room::{NoRoom, RoomClass};

const SEGMENT_BYTES: u32 = 64 << 10;
const SEGMENTS_MAX: usize = 6;
const IN_FLIGHT: usize = 3;
/// Most bytes of an entry here.
const ENTRY_MAX: usize = 9_000;

#[derive(Debug, Clone)]
enum Step {
    Append {
        bytes: usize,
        is_control: bool,
    },
    /// Time passes, and a commit starts if it should.
    Turn {
        ms: u64,
    },
    /// A commit that is in flight is on the disk.
    Written {
        which: usize,
    },
    /// A segment is wished for.
    Wish {
        is_idle: bool,
    },
    /// A wished one is there, or could not be made.
    Made {
        fits: bool,
    },
    Retry,
    Heartbeat,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..ENTRY_MAX, prop::bool::weighted(0.2))
            .prop_map(|(bytes, is_control)| Step::Append { bytes, is_control }),
        4 => (0..5_u64).prop_map(|ms| Step::Turn { ms }),
        4 => (0..IN_FLIGHT).prop_map(|which| Step::Written { which }),
        2 => any::<bool>().prop_map(|is_idle| Step::Wish { is_idle }),
        2 => prop::bool::weighted(0.8).prop_map(|fits| Step::Made { fits }),
        1 => Just(Step::Retry),
        1 => Just(Step::Heartbeat),
    ]
}

/// A pipeline, and what is known of it.
struct Machine {
    pipeline: Pipeline<Vec<u8>>,
    now: Duration,
    /// The segment that is being made: the shell makes one at a time.
    wished: Option<SegmentId>,
    /// Commits in flight: their numbers, and how far entries are durable with them.
    in_flight: Vec<(u64, Lsn)>,
    /// The same of those that are on the disk and wait for an earlier one.
    on_disk: BTreeMap<u64, Lsn>,
    /// The first commit that is not on the disk.
    first_open: u64,
    durable: Lsn,
    appended: Lsn,
    /// Where each frame begins and ends that was started.
    frames: BTreeMap<(SegmentId, u32), u32>,
    prev_header_crc: u32,
    /// Bytes of control entries, with all that padding may add to them, since data was taken last.
    control_bytes: usize,
}

impl Machine {
    fn new() -> Self {
        let limits = SpaceLimits {
            segment_bytes: SEGMENT_BYTES,
            log_bytes_max: SEGMENTS_MAX as u64 * u64::from(SEGMENT_BYTES),
            segments_max: SEGMENTS_MAX,
            ready_segments: 1,
            idle_segments: 2,
        };
        let space = Space::new(limits, Blank { segment: SegmentId::new(1), salt: 1 }, SEGMENT_BYTES.into());
        let policy = Policy {
            commits_in_flight: IN_FLIGHT,
            start_bytes: 8 << 10,
            commit_bytes_max: 16 << 10,
            pending_bytes_max: 40 << 10,
        };
        Self {
            pipeline: Pipeline::new(policy, Epoch::new(1), space, Lsn::new(1)),
            now: Duration::ZERO,
            wished: None,
            in_flight: Vec::new(),
            on_disk: BTreeMap::new(),
            first_open: 0,
            durable: Lsn::ZERO,
            appended: Lsn::ZERO,
            frames: BTreeMap::new(),
            prev_header_crc: 0,
            control_bytes: 0,
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Append { bytes, is_control } => self.append(bytes, is_control),
            Step::Turn { ms } => {
                self.now += Duration::from_millis(ms);
                if self.pipeline.on_turn(self.now) {
                    let commit = self.pipeline.take_commit(self.now).expect("it should start");
                    self.start(&commit);
                }
            }
            Step::Written { which } => self.written(which),
            Step::Wish { is_idle } if self.wished.is_none() => self.wished = self.pipeline.space.take_wish(is_idle),
            Step::Wish { .. } => {}
            Step::Made { fits } => match self.wished.take() {
                Some(segment) if fits => self.pipeline.space.on_made(Blank { segment, salt: 1 }),
                Some(_) => self.pipeline.space.on_not_made(),
                None => {}
            },
            Step::Retry => self.pipeline.space.on_retry(),
            Step::Heartbeat if self.pipeline.wants_heartbeat() => {
                let note = self.pipeline.take_note(false, vec![0; NOTE_BYTES], self.now).expect("it wants one");
                self.start(&note);
            }
            Step::Heartbeat => {}
        }
    }

    fn append(&mut self, bytes: usize, is_control: bool) {
        let class = if is_control { RoomClass::Control } else { RoomClass::Data };
        match self.pipeline.room(bytes, class) {
            Ok(()) => {
                let (lsn, pos, ()) = self.pipeline.append(bytes, |most| vec![0; most], |out| out.fill(7));
                assert_eq!(lsn, self.appended.next(), "LSNs are dense");
                self.appended = lsn;
                assert_eq!(pos.bytes as usize, bytes);
                self.control_bytes = if is_control { self.control_bytes + bytes + 2 * BLOCK_BYTES } else { 0 };
            }
            Err(NoRoom::Full { .. }) if is_control => {
                let kept = self.kept_for_control();
                assert!(self.control_bytes + bytes > kept, "{} bytes of {kept} were taken", self.control_bytes);
            }
            Err(NoRoom::Full { .. } | NoRoom::Busy) => {}
            Err(NoRoom::Disk { .. }) => panic!("nobody told it of the disk"),
            Err(NoRoom::Closed) => panic!("nobody closed it"),
        }
    }

    /// What data leaves to control entries at least: an eighth of the first segment, and a whole one once there is a second.
    fn kept_for_control(&self) -> usize {
        let segment_bytes = SEGMENT_BYTES as usize;
        let is_alone = self.pipeline.space.active() == SegmentId::new(1);
        (if is_alone { segment_bytes / 8 } else { segment_bytes }).saturating_sub(ENTRY_MAX + 3 * BLOCK_BYTES)
    }

    /// A frame goes to the disk: it is whole, lies where no other does, and says only what is so.
    fn start(&mut self, commit: &Commit<Vec<u8>>) {
        let header = FrameHeader::decode(&commit.buffer).expect("a frame");
        assert_eq!((header.segment, header.offset), (commit.segment, commit.offset));
        assert_eq!(header.prev_header_crc, self.prev_header_crc, "frames are a chain");
        assert!(header.durable_lsn <= self.durable, "{} of {}", header.durable_lsn, self.durable);
        let bytes = u32::try_from(commit.bytes).expect("a frame is short");
        assert!(commit.offset.is_multiple_of(4096) && bytes.is_multiple_of(4096));
        assert!(commit.offset + bytes <= SEGMENT_BYTES, "it ends with its segment");
        let before = self.frames.range(..=(commit.segment, commit.offset)).next_back();
        if let Some((_, end)) = before.filter(|((segment, _), _)| *segment == commit.segment) {
            assert!(*end <= commit.offset, "two frames at {} of {}", commit.offset, commit.segment);
        }
        let after = self.frames.range((commit.segment, commit.offset)..).next();
        assert!(after.is_none(), "frames are laid in order");
        self.frames.insert((commit.segment, commit.offset), commit.offset + bytes);
        // The next frame repeats the sum of this one's header.
        self.prev_header_crc = header.encode(&mut commit.buffer.clone());
        self.in_flight.push((commit.id, Lsn::new(header.end_lsn().get() - 1)));
    }

    fn written(&mut self, which: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let (id, end) = self.in_flight.remove(which % self.in_flight.len());
        self.on_disk.insert(id, end);
        self.pipeline.on_bytes_written(id, self.now);
        self.pipeline.on_written(id, self.now);
        while let Some(end) = self.on_disk.remove(&self.first_open) {
            self.durable = self.durable.max(end);
            self.first_open += 1;
        }
        let told = std::iter::from_fn(|| self.pipeline.next_durable()).last();
        assert!(told.is_none_or(|told| told == self.durable), "{told:?}, and all up to {} is there", self.durable);
        assert_eq!(self.pipeline.durable_lsn(), self.durable);
    }

    /// Whatever was appended becomes durable.
    fn end(&mut self) {
        for _ in 0..10_000 {
            if self.pipeline.is_drained() {
                return assert_eq!(self.durable, self.appended);
            }
            self.take(&Step::Turn { ms: 100 });
            self.take(&Step::Written { which: 0 });
        }
        panic!("it does not end");
    }
}

proptest! {
    #[test]
    fn whatever_comes_frames_lie_apart_and_become_durable_in_order(steps in prop::collection::vec(step(), 1..300)) {
        let mut machine = Machine::new();
        steps.iter().for_each(|step| machine.take(step));
        machine.end();
    }
}
