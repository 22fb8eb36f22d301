//! What waits to be written: whole frames in order, and how much of the first is gone.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

/// Most slices a write is given.
pub(super) const SLICES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Output {
    frames: VecDeque<Bytes>,
    /// Bytes of the first that are written.
    written: usize,
    /// Frames that are written whole.
    done: u64,
}

impl Output {
    /// Queues a frame; answers how many were queued before it.
    pub(super) fn push(&mut self, frame: Bytes) -> u64 {
        let place = self.done + self.frames.len() as u64;
        self.frames.push_back(frame);
        place
    }

    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Frames of which at least a byte is written.
    pub(super) fn begun(&self) -> u64 {
        self.done + u64::from(self.written > 0)
    }

    /// Fills `slices` with what is next; answers how many.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut skip = self.written;
        let mut count = 0;
        for (slice, frame) in slices.iter_mut().zip(&self.frames) {
            *slice = IoSlice::new(&frame[skip..]);
            skip = 0;
            count += 1;
        }
        count
    }

    /// Notes that so many bytes are written.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        while let Some(frame) = self.frames.front() {
            if self.written < frame.len() {
                return;
            }
            self.written -= frame.len();
            self.frames.pop_front();
            self.done += 1;
        }
    }
}
