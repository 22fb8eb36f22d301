//! Is there room on a disk for more records, and is enough kept back to make room again?
//!
//! Who trims or deletes needs room before he gets room: the trim itself, a chunk that settles it, rows of the index, a copy
//! of what stays. So a part of the disk is kept back, as a file that takes it up where nova has a directory there. When little
//! is left besides, the disk is *low*: the file gives its bytes up, no more records are taken, and everything else goes on with
//! what the file gave. Once that much is free again and some more, the file takes it back, and records are taken.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::host;
use crate::units::Bytes;

/// The file that takes up what is kept back, in the data directory.
const FILE: &str = "RESERVE";
const MIB: u64 = 1 << 20;
/// What chunks under way, a bundle and the rows of the index take at most, besides the segments of head logs.
const WORK_BYTES: u64 = 256 * MIB;
/// The same on a disk that holds head logs and no store.
const WORK_BYTES_WITHOUT_STORE: u64 = 16 * MIB;
/// The least that anything can be done with.
const WORK_BYTES_MIN: u64 = 16 * MIB;
/// The part of a small disk that is kept back at most, as a divisor.
const SHARE_DIVISOR: u64 = 8;
/// What is left besides when the disk is low, as a part of what is kept back, and its bounds.
const LOW_DIVISOR: u64 = 4;
const LOW_BYTES: std::ops::RangeInclusive<u64> = 4 * MIB..=64 * MIB;

/// How much of a disk is kept back, and when it is low.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// Bytes that are kept back.
    pub reserve_bytes: u64,
    /// With less free besides, the disk is low.
    pub low_bytes: u64,
    /// With so much free besides, it is not any more.
    pub ample_bytes: u64,
}

impl Marks {
    /// Of a disk of `capacity` bytes with head logs whose next segments take `segments_bytes`, and with the store or not.
    #[must_use]
    pub fn of(capacity: u64, segments_bytes: u64, has_store: bool) -> Self {
        let work = if has_store { WORK_BYTES } else { WORK_BYTES_WITHOUT_STORE };
        let least = segments_bytes + WORK_BYTES_MIN;
        let reserve_bytes = (segments_bytes + work).min(least.max(capacity / SHARE_DIVISOR));
        let low_bytes = (reserve_bytes / LOW_DIVISOR).clamp(*LOW_BYTES.start(), *LOW_BYTES.end());
        Self { reserve_bytes, low_bytes, ample_bytes: low_bytes + low_bytes.max(segments_bytes) }
    }

    /// Bytes of what is kept back that are for other things than the next segments of head logs.
    #[must_use]
    pub fn work_bytes(&self, segments_bytes: u64) -> u64 {
        self.reserve_bytes.saturating_sub(segments_bytes).max(WORK_BYTES_MIN)
    }
}

/// What is to be done about a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It stays as it is.
    Keep,
    /// It is low from now on.
    Low,
    /// It is not low any more.
    Ample,
}

/// What becomes of a disk with `free` bytes besides what is kept back, where there are so many.
fn judge(is_low: bool, free: Option<u64>, marks: &Marks) -> Turn {
    match (is_low, free) {
        (false, free) if free.is_none_or(|free| free < marks.low_bytes) => Turn::Low,
        (true, Some(free)) if free >= marks.ample_bytes => Turn::Ample,
        _ => Turn::Keep,
    }
}

/// The room on one disk, for everybody who takes some of it.
#[derive(Debug)]
pub struct Room {
    directory: PathBuf,
    marks: Marks,
    /// What takes up what is kept back; `None` leaves it free.
    file: Option<PathBuf>,
    /// Whether the file takes it up now.
    holds: Mutex<bool>,
    is_low: AtomicBool,
    /// As of the last look.
    free_bytes: AtomicU64,
}

impl Room {
    /// The room below `directory`, which exists; with a file in it, or with nothing that takes up what is kept back.
    ///
    /// # Errors
    /// What the system says of the disk.
    pub fn open(directory: &Path, marks: Marks, with_file: bool) -> io::Result<Self> {
        let file = with_file.then(|| directory.join(FILE));
        let holds = file.is_some() && taken_bytes(file.as_deref()) >= marks.reserve_bytes;
        let room = Self {
            directory: directory.to_owned(),
            marks,
            file,
            holds: Mutex::new(holds),
            // Until there is what is to be kept back there is no room.
            is_low: AtomicBool::new(!holds),
            free_bytes: AtomicU64::new(0),
        };
        room.look()?;
        Ok(room)
    }

    /// Looks how much is free, and gives up what is kept back or takes it again. Blocks; to be called a few times a second.
    ///
    /// # Errors
    /// What the system says; nothing has changed then that does not show at the next look.
    pub fn look(&self) -> io::Result<()> {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        let free = host::free_bytes(&self.directory)?;
        self.free_bytes.store(free, Ordering::Relaxed);
        match judge(self.is_low(), self.besides(free, *holds), &self.marks) {
            Turn::Keep => {}
            Turn::Low => self.is_low.store(true, Ordering::Relaxed),
            Turn::Ample if *holds => self.is_low.store(false, Ordering::Relaxed),
            Turn::Ample => {
                *holds = self.take_back()?;
                self.is_low.store(false, Ordering::Relaxed);
            }
        }
        // Also what an earlier run left, with other marks or in the middle of taking it.
        if self.is_low() && (*holds || taken_bytes(self.file.as_deref()) > 0) {
            self.give_up()?;
            *holds = false;
            self.free_bytes.store(host::free_bytes(&self.directory)?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether so little is left that no records are taken.
    #[inline]
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Relaxed)
    }

    /// Whether there is room for a file of records of so many bytes that may wait. A disk that does not answer has none.
    #[must_use]
    pub fn fits(&self, bytes: u64) -> bool {
        let holds = *self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        let free = host::free_bytes(&self.directory).ok().and_then(|free| self.besides(free, holds));
        let left = free.and_then(|free| free.checked_sub(bytes));
        !self.is_low() && left.is_some_and(|left| left >= self.marks.low_bytes)
    }

    /// Whether there is room for a file of records of so many bytes. When there is none, the disk is low.
    pub fn takes(&self, bytes: u64) -> bool {
        let fits = self.fits(bytes);
        if !fits {
            self.is_low.store(true, Ordering::Relaxed);
        }
        fits
    }

    /// Bytes that could still be written, as of the last look.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that a file takes up of what is kept back.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let holds = *self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        if holds { self.marks.reserve_bytes } else { 0 }
    }

    /// What is kept back, and when the disk is low.
    #[must_use]
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// What is free besides what is kept back; `None` when that is not even there.
    fn besides(&self, free: u64, holds: bool) -> Option<u64> {
        if holds { Some(free) } else { free.checked_sub(self.marks.reserve_bytes) }
    }

    /// Makes the file take up what is kept back; whether this file system can.
    fn take_back(&self) -> io::Result<bool> {
        let Some(path) = &self.file else { return Ok(false) };
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.marks.reserve_bytes) {
            Ok(()) => file.sync_all().map(|()| true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => {
                file.set_len(0)?;
                Err(error.into())
            }
        }
    }

    /// Frees what the file takes up; durable, for some file systems give blocks back only then.
    fn give_up(&self) -> io::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let file = match File::options().write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        file.set_len(0)?;
        file.sync_all()
    }
}

/// Bytes of the disk that a file takes up, if it is there.
fn taken_bytes(file: Option<&Path>) -> u64 {
    file.and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.blocks() * 512)
}

/// The disks that a star writes.
#[derive(Debug, Clone)]
pub struct Rooms {
    /// That of the data directory, with the head logs.
    pub data: Arc<Room>,
    /// That of the store, the same one or another; `None` when the store is elsewhere.
    pub store: Option<Arc<Room>>,
}

impl Rooms {
    /// The rooms of a star whose data lies in `data`, and whose store in `store` if in a directory; the head logs' next segments
    /// take `segments_bytes` together.
    ///
    /// # Errors
    /// What the system says of a disk.
    pub fn open(data: &Path, store: Option<&Path>, segments_bytes: u64) -> io::Result<Self> {
        let store = store.map(existing);
        let is_shared = store.is_some_and(|store| is_on_one_disk(data, store));
        let marks = Marks::of(host::disk_bytes(data)?, segments_bytes, is_shared);
        let room = Arc::new(Room::open(data, marks, true)?);
        let store = match store {
            Some(_) if is_shared => Some(Arc::clone(&room)),
            Some(store) => {
                let marks = Marks::of(host::disk_bytes(store)?, 0, true);
                Some(Arc::new(Room::open(store, marks, false)?))
            }
            None => None,
        };
        Ok(Self { data: room, store })
    }

    /// Each disk once.
    pub fn each(&self) -> impl Iterator<Item = &Arc<Room>> {
        let other = self.store.as_ref().filter(|store| !Arc::ptr_eq(store, &self.data));
        std::iter::once(&self.data).chain(other)
    }

    /// Whether one of them is low.
    #[must_use]
    pub fn is_any_low(&self) -> bool {
        self.each().any(|room| room.is_low())
    }
}

/// The nearest directory above `path` that is there already.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or_else(|| Path::new("."))
}

fn is_on_one_disk(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|meta| meta.dev()).ok();
    device(one).is_some_and(|one| device(other) == Some(one))
}

/// As errors and greetings show it.
impl std::fmt::Display for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (free, kept) = (Bytes::new(self.free_bytes()), Bytes::new(self.marks.reserve_bytes));
        write!(f, "{free} are free below {}, of which {kept} are kept back", self.directory.display())
    }
}

#[cfg(test)]
mod tests;
