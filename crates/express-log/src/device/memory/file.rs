//! A file of which a crash keeps what was synced, and of the rest what it likes.

use super::Draw;

pub(super) const SECTOR_BYTES: usize = 512;

/// A file: what a crash keeps, and what it may not keep.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryFile {
    durable: Vec<u8>,
    /// Written, but not durable yet.
    cached: Vec<(usize, Vec<u8>)>,
    /// Written, and given up by a sync that failed: no later one makes them durable.
    doomed: Vec<(usize, Vec<u8>)>,
    /// What stood behind the end when the file was cut, which a crash may undo.
    cut: Vec<u8>,
}

impl MemoryFile {
    /// A file that holds these bytes durably.
    pub(super) fn new(durable: Vec<u8>) -> Self {
        Self { durable, ..Self::default() }
    }

    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// Writes, for a crash to keep or not.
    pub(super) fn cache(&mut self, offset: usize, bytes: Vec<u8>) {
        self.cached.push((offset, bytes));
    }

    /// Makes the last write durable by itself.
    pub(super) fn sync_last(&mut self) {
        let (offset, bytes) = self.cached.pop().expect("it was written just now");
        self.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }

    /// Makes every write durable.
    pub(super) fn sync(&mut self) {
        for (offset, bytes) in std::mem::take(&mut self.cached) {
            self.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Fails to make the writes durable; a system takes them for clean all the same.
    pub(super) fn fail_to_sync(&mut self) {
        self.doomed.append(&mut self.cached);
    }

    /// Cuts the file to `bytes`, and answers what it held.
    pub(super) fn cut(&mut self, bytes: usize) -> Vec<u8> {
        let before = self.durable.clone();
        self.cut = self.durable.split_off(bytes);
        before
    }

    /// What is left after a crash: of each write that was not durable the sectors that `draw` keeps.
    pub(super) fn crash(mut self, draw: &mut Draw) -> Vec<u8> {
        if !self.cut.is_empty() && draw.happens(500) {
            self.durable.append(&mut self.cut);
        }
        for (offset, bytes) in self.doomed.into_iter().chain(self.cached) {
            tear(&mut self.durable, offset, &bytes, draw);
        }
        self.durable
    }
}

/// Keeps of `bytes` at `offset` the sectors that `draw` keeps.
fn tear(durable: &mut [u8], offset: usize, bytes: &[u8], draw: &mut Draw) {
    let kept = [0, 500, 900, 1000][draw.below(4)];
    for (sector, at) in bytes.chunks(SECTOR_BYTES).zip((offset..).step_by(SECTOR_BYTES)) {
        if draw.happens(kept) {
            durable[at..at + sector.len()].copy_from_slice(sector);
        }
    }
}
