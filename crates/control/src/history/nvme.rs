//! How do blocks that left memory wait in a file?
//!
//! One file of equal slots, allocated when the star starts, which also forgets what a file of that name held. A slot:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | XXH3-64 of all behind it |
//! | 8 | 4 | bytes of the block |
//! | 12 | 4 | number of the block in its object |
//! | 16 | 16 | XXH3-128 of the object's name |
//! | 32 | | the block |
//!
//! A slot that is torn, or that holds another block by the time it is read, doesn't sum to what it says: that is a miss, and so no
//! reader waits for a writer. Blocks are read by `pread` on the blocking threads rather than through a mapping: a fault of a
//! mapping would hold up the runtime where nobody sees it, and an error of the device would end the process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tokio::sync::mpsc;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::counters::Counters;
use crate::core::block_cache::BlockCache;
use crate::index::ObjectId;

const HEAD_BYTES: usize = 32;
const FILE_NAME: &str = "blocks.cache";
/// Blocks that wait to be written at most; what leaves memory meanwhile is dropped.
const WAITING_MAX: usize = 16;
/// Slots at least: one to read and one to write.
const SLOTS_MIN: u64 = 2;
/// Slots begin on multiples of this.
const ALIGN_BYTES: u64 = 4096;

/// The file for blocks that left memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeOptions {
    /// The directory it lies in.
    pub directory: PathBuf,
    /// Bytes it takes up, from the start on.
    pub bytes: u64,
}

/// Removes the file that an earlier run left in a directory, if any.
pub fn remove_block_cache(directory: &Path) {
    let path = directory.join(FILE_NAME);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "an old block cache stays");
        }
        _ => {}
    }
}

/// Why the file can't be had.
#[derive(Debug, thiserror::Error)]
pub enum NvmeOpenError {
    /// Too small for anything.
    #[error("the block cache {path} can't have {bytes} bytes: give it at least {bytes_min}, or none")]
    Small {
        /// The file.
        path: PathBuf,
        /// Bytes it should take up.
        bytes: u64,
        /// Bytes it needs.
        bytes_min: u64,
    },
    /// The system refused it.
    #[error(
        "the block cache {path} of {bytes} bytes can't be made ({source}); give its directory room and nova's user the right to write"
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// Bytes it should take up.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
}

impl NvmeOpenError {
    /// Whether it is for want of room.
    pub(super) fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }
}

/// A block by its object and number.
pub(super) type BlockId = (ObjectId, u32);

/// Blocks in a file.
#[derive(Debug)]
pub(super) struct Nvme {
    disk: Arc<Disk>,
    waiting: mpsc::Sender<(BlockId, Bytes)>,
}

#[derive(Debug)]
struct Disk {
    file: File,
    path: PathBuf,
    slot_bytes: u64,
    slots: Mutex<Slots>,
    /// After an error of the device it is left alone.
    is_broken: AtomicBool,
    counters: Arc<Counters>,
}

/// Which block is in which slot. There is always a free one beyond those that may be taken.
#[derive(Debug)]
struct Slots {
    taken: BlockCache<BlockId, Slot>,
    free: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    no: u64,
    bytes: u32,
}

impl Nvme {
    /// Makes the file, for blocks of at most `block_bytes`, and starts to write what is offered. Inside a tokio runtime.
    pub(super) fn open(
        options: &NvmeOptions,
        block_bytes: u64,
        counters: Arc<Counters>,
    ) -> Result<Self, NvmeOpenError> {
        let path = options.directory.join(FILE_NAME);
        let slot_bytes = (HEAD_BYTES as u64 + block_bytes).next_multiple_of(ALIGN_BYTES);
        let (bytes, count) = (options.bytes, options.bytes / slot_bytes);
        if count < SLOTS_MIN {
            return Err(NvmeOpenError::Small { path, bytes, bytes_min: SLOTS_MIN * slot_bytes });
        }
        let file = allocate(&path, count * slot_bytes);
        let file = file.map_err(|source| NvmeOpenError::Io { path: path.clone(), bytes, source })?;
        let room = usize::try_from(count - 1).unwrap_or(usize::MAX);
        let slots = Mutex::new(Slots { taken: BlockCache::new(room), free: (0..count).rev().collect() });
        let disk = Arc::new(Disk { file, path, slot_bytes, slots, is_broken: AtomicBool::new(false), counters });
        let (waiting, queue) = mpsc::channel(WAITING_MAX);
        tokio::spawn(write_waiting(Arc::clone(&disk), queue));
        Ok(Self { disk, waiting })
    }

    /// Takes a block that leaves memory, unless it is there or the disk is behind.
    pub(super) fn offer(&self, id: BlockId, block: Bytes) {
        if self.disk.is_usable() && !self.contains(id) && self.waiting.try_send((id, block)).is_err() {
            self.disk.counters.nvme_skips.add(1);
        }
    }

    /// Whether the block is there, if its slot is whole.
    pub(super) fn contains(&self, id: BlockId) -> bool {
        self.disk.slots().taken.contains(&id)
    }

    /// The block, if it is there and whole.
    pub(super) async fn get(&self, id: BlockId) -> Option<Bytes> {
        let slot = self.disk.slots().taken.get(&id).copied().filter(|_| self.disk.is_usable())?;
        let disk = Arc::clone(&self.disk);
        let read = tokio::task::spawn_blocking(move || disk.read(id, slot)).await;
        let block = read.ok().and_then(|read| self.disk.notice(read)).flatten();
        if block.is_none() {
            self.disk.counters.nvme_stale.add(1);
            self.remove(id);
        }
        block
    }

    /// Bytes of the blocks that are there, and of what stands before and behind each.
    pub(super) fn used_bytes(&self) -> u64 {
        self.disk.slots().taken.weight() as u64 * self.disk.slot_bytes
    }

    /// Drops the block.
    pub(super) fn remove(&self, id: BlockId) {
        let mut slots = self.disk.slots();
        if let Some(slot) = slots.taken.remove(&id) {
            slots.free.push(slot.no);
        }
    }
}

/// Writes one block after the other, until nobody offers any more.
async fn write_waiting(disk: Arc<Disk>, mut queue: mpsc::Receiver<(BlockId, Bytes)>) {
    while let Some((id, block)) = queue.recv().await {
        let Some(slot) = disk.claim(id, &block) else {
            continue;
        };
        let writer = Arc::clone(&disk);
        let written = tokio::task::spawn_blocking(move || writer.write(id, slot, &block)).await;
        let is_written = written.ok().and_then(|written| disk.notice(written)).is_some();
        disk.settle(id, slot, is_written);
    }
}

impl Disk {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_usable(&self) -> bool {
        !self.is_broken.load(Ordering::Relaxed)
    }

    /// Gives the file up at the first error of its device: what it holds can be had from the store.
    fn notice<T>(&self, answer: io::Result<T>) -> Option<T> {
        let error = match answer {
            Ok(answer) => return Some(answer),
            // A file system that reserves nothing may be full for a while.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return None,
            Err(error) => error,
        };
        if !self.is_broken.swap(true, Ordering::Relaxed) {
            tracing::warn!(path = %self.path.display(), %error, "the block cache failed: going on without it until the next start");
        }
        None
    }

    /// A free slot for the block; none when it is there already, or can't be written.
    fn claim(&self, id: BlockId, block: &Bytes) -> Option<Slot> {
        let mut slots = self.slots();
        let fits = (HEAD_BYTES + block.len()) as u64 <= self.slot_bytes;
        if !fits || !self.is_usable() || slots.taken.contains(&id) {
            return None;
        }
        let bytes = u32::try_from(block.len()).ok()?;
        slots.free.pop().map(|no| Slot { no, bytes })
    }

    /// The slot holds the block now, or is free again.
    fn settle(&self, id: BlockId, slot: Slot, is_written: bool) {
        let mut slots = self.slots();
        if !is_written {
            slots.free.push(slot.no);
            return;
        }
        self.counters.nvme_writes.add(1);
        for (_, left) in slots.taken.insert(id, slot, 1) {
            self.counters.nvme_evictions.add(1);
            slots.free.push(left.no);
        }
    }

    fn write(&self, id: BlockId, slot: Slot, block: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + block.len());
        bytes.extend_from_slice(&head(id, block));
        bytes.extend_from_slice(block);
        self.file.write_all_at(&bytes, slot.no * self.slot_bytes)
    }

    /// The block, or `None` when the slot holds another or a torn one.
    fn read(&self, id: BlockId, slot: Slot) -> io::Result<Option<Bytes>> {
        let mut bytes = vec![0; HEAD_BYTES + slot.bytes as usize];
        self.file.read_exact_at(&mut bytes, slot.no * self.slot_bytes)?;
        let is_whole = bytes[..HEAD_BYTES] == head(id, &bytes[HEAD_BYTES..]);
        Ok(is_whole.then(|| Bytes::from(bytes).slice(HEAD_BYTES..)))
    }
}

/// What stands before a block in its slot.
fn head((object, no): BlockId, block: &[u8]) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let bytes = u32::try_from(block.len()).unwrap_or(u32::MAX);
    head[8..12].copy_from_slice(&bytes.to_le_bytes());
    head[12..16].copy_from_slice(&no.to_le_bytes());
    head[16..].copy_from_slice(&xxh3_128(object.name().as_str().as_bytes()).to_le_bytes());
    let mut sum = Xxh3::new();
    sum.update(&head[8..]);
    sum.update(block);
    head[..8].copy_from_slice(&sum.digest().to_le_bytes());
    head
}

/// An empty file with room for so many bytes, or at least of that length where the file system reserves none.
fn allocate(path: &Path, bytes: u64) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(file),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes).map(|()| file),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
