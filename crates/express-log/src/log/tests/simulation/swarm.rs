//! What a seed chooses before anything happens: most things that may go wrong don't in most runs, so that what needs one of
//! them alone is found beside what needs many.

use crate::device::memory::{Draw, Faults};
use crate::{LogOptions, SyncMode};

/// What one run is like.
#[derive(Debug, Clone)]
pub(super) struct Swarm {
    pub(super) options: LogOptions,
    pub(super) faults: Faults,
    /// How often a crash finds a bit flipped, in parts of 1,000.
    pub(super) flipped: u32,
    /// How often a crash finds a segment's file missing.
    pub(super) missing: u32,
    /// Lives that may go wrong.
    pub(super) lives: usize,
    /// Turns of a life, at most.
    pub(super) turns: usize,
    /// Entries of a turn, at most.
    pub(super) burst: usize,
    pub(super) entry_bytes_max: usize,
    /// Steps between two turns, at most.
    pub(super) steps: usize,
    /// How often something is released after a turn, in parts of 1,000.
    pub(super) release: u32,
    /// How often a life ends with a seal, in parts of 1,000.
    pub(super) seal: u32,
    /// How often the log is idle after a turn, in parts of 1,000.
    pub(super) idle: u32,
}

/// Often none, else up to `most` parts of 1,000.
fn parts(draw: &mut Draw, most: usize) -> u32 {
    if draw.happens(500) {
        return 0;
    }
    u32::try_from(1 + draw.below(most)).expect("parts of 1,000")
}

impl Swarm {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let options = options(draw);
        let (is_failing, is_lying) = (draw.happens(300), draw.happens(400));
        let failing = |draw: &mut Draw, most| if is_failing { parts(draw, most) } else { 0 };
        let lying = |draw: &mut Draw, most| if is_lying { parts(draw, most) } else { 0 };
        let faults = Faults {
            io_error: failing(draw, 20),
            short_write: failing(draw, 20),
            superblock_error: failing(draw, 50),
            no_space: parts(draw, 300),
            not_removed: parts(draw, 300),
            stale_blank: parts(draw, 1000),
            lost_write: lying(draw, 50),
            misdirected_write: lying(draw, 50),
        };
        Self {
            faults,
            flipped: lying(draw, 700),
            missing: lying(draw, 200),
            lives: 1 + draw.below(4),
            turns: 1 + draw.below(40),
            burst: 1 + draw.below(8),
            entry_bytes_max: [40, 400, 4_000, options.segment_bytes as usize / 4][draw.below(4)],
            steps: 1 + draw.below(30),
            release: parts(draw, 300),
            seal: parts(draw, 500),
            idle: parts(draw, 200),
            options,
        }
    }

    /// Whether the disk does what no honest one does.
    pub(super) fn is_lying(&self) -> bool {
        self.flipped + self.missing + self.faults.lost_write + self.faults.misdirected_write > 0
    }

    /// Nothing that is left is damaged from here on.
    pub(super) fn stop_rotting(&mut self) {
        (self.flipped, self.missing) = (0, 0);
    }
}

fn options(draw: &mut Draw) -> LogOptions {
    let segment_bytes = [24, 32, 48, 64][draw.below(4)] << 10;
    let commit_bytes_max = [4, 8, 16][draw.below(3)] << 10;
    let segments = 4 + draw.below(30) as u64;
    LogOptions {
        segment_bytes,
        log_bytes_max: segments * u64::from(segment_bytes),
        commits_in_flight: 1 + draw.below(4),
        commit_start_bytes: 1 + draw.below(commit_bytes_max),
        commit_bytes_max,
        pending_bytes_max: 48 << 10,
        sync: if draw.happens(500) { SyncMode::Dsync } else { SyncMode::Fdatasync },
        ready_segments: 1,
        idle_segments: 1 + draw.below(2),
        inline_commit: draw.happens(250),
    }
}
