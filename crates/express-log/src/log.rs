//! How entries get to the disk: the log as a shard uses it.

mod open;
mod release;
mod shared;
#[cfg(any(test, feature = "simulated"))]
pub(crate) mod simulated;
mod tasks;

use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use tuning::room::Room;
use wire::ids::{Epoch, LogId, Lsn, SegmentId};

pub use self::open::OpenError;
use self::shared::{Calls, Shared};
use crate::device::Device;
use crate::device::disk::Disk;
use crate::entry::EntryPos;
use crate::fatal::FatalError;
use crate::metrics::{CommitTimes, LogMetrics};
use crate::options::LogOptions;
use crate::recovery::Recovered;
use crate::room::{NoRoom, RoomClass, TooManyWaiters};

/// Most tasks that wait for room at once.
const ROOM_WAITERS_MAX: usize = 4096;

/// A log that takes entries: a handle, cheap to clone, of the thread that opened it.
pub struct Log<D: Device = Disk> {
    shared: Rc<Shared<D>>,
}

impl<D: Device> Clone for Log<D> {
    fn clone(&self) -> Self {
        Self { shared: Rc::clone(&self.shared) }
    }
}

impl<D: Device> fmt::Debug for Log<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("log", &self.shared.log).field("metrics", &self.metrics()).finish_non_exhaustive()
    }
}

impl Log {
    /// Goes on with a recovered log in `epoch`, inside a glommio executor and before it opens any other file.
    ///
    /// The superblock says so durably before the first segment is made; what stands behind the ends that recovery found
    /// is cut off. `on_durable` is called once a commit, in order, with the LSN up to which all is durable; it may append
    /// and kick. `on_fatal` is called at most once, see [`abort`](crate::abort).
    ///
    /// # Errors
    /// [`OpenError`]; for a log that is corrupt, until [`Recovered::accept_loss`] was called.
    pub async fn open(
        options: LogOptions,
        recovered: Recovered,
        epoch: Epoch,
        on_durable: impl FnMut(Lsn) + 'static,
        on_fatal: impl FnMut(&FatalError) + 'static,
    ) -> Result<Self, OpenError> {
        options.check()?;
        open::check(&recovered.ends, epoch)?;
        let device =
            Disk::open(&recovered.dir, options.sync).await.map_err(OpenError::io("the self-test of the disk"))?;
        remove_unfinished(&recovered)?;
        let calls = Calls::new(on_durable, on_fatal);
        let log = Self::open_on(device, options, recovered.ends, epoch, calls).await?;
        log.shared.keep(recovered.lock);
        Ok(log)
    }
}

/// Removes segments whose making was cut short.
fn remove_unfinished(recovered: &Recovered) -> Result<(), OpenError> {
    let failed = OpenError::io("removing unfinished segments");
    let entries = std::fs::read_dir(&recovered.dir).map_err(&failed)?;
    for entry in entries {
        let entry = entry.map_err(&failed)?;
        if entry.file_name().to_str().is_some_and(crate::names::is_unfinished) {
            std::fs::remove_file(entry.path()).map_err(&failed)?;
        }
    }
    Ok(())
}

impl<D: Device> Log<D> {
    /// Answers whether an entry of `entry_bytes` may be appended next; asked before a sequence number is assigned.
    ///
    /// # Errors
    /// [`NoRoom`], which says whether waiting helps.
    #[inline]
    pub fn room(&self, entry_bytes: usize, class: RoomClass) -> Result<(), NoRoom> {
        self.shared.pipeline.borrow().room(entry_bytes, class)?;
        match self.shared.room.get() {
            Some(room) if class == RoomClass::Data && room.is_low() => Err(full(room)),
            _ => Ok(()),
        }
    }

    /// Takes the log's segments from this room on the disk; called once, right after the log was opened. While the room is low
    /// there is none for data.
    pub fn keep_within(&self, room: Arc<Room>) {
        // It has none before.
        let _ = self.shared.room.set(room);
    }

    /// Waits until there may be room again after [`NoRoom::Busy`]; ask [`room`](Self::room) again then.
    ///
    /// # Errors
    /// [`TooManyWaiters`] when 4096 wait already.
    pub async fn wait_for_room(&self) -> Result<(), TooManyWaiters> {
        let mut waited = false;
        poll_fn(|context| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(Ok(()));
            }
            match self.shared.room_waiters.add(context.waker(), ROOM_WAITERS_MAX) {
                Ok(()) => Poll::Pending,
                Err(waiters) => Poll::Ready(Err(TooManyWaiters { waiters })),
            }
        })
        .await
    }

    /// Appends an entry of `entry_bytes`, which `fill` writes in place, and answers its number, its place, and what `fill`
    /// answers. It goes to the disk after the next [`kick`](Self::kick).
    ///
    /// `fill` must not touch the log.
    ///
    /// # Panics
    /// When [`room`](Self::room) has not said before that there is room for it.
    #[inline]
    pub fn append<R>(&self, entry_bytes: usize, fill: impl FnOnce(&mut [u8]) -> R) -> (Lsn, EntryPos, R) {
        let device = &self.shared.device;
        self.shared.pipeline.borrow_mut().append(entry_bytes, |bytes| device.buffer(bytes), fill)
    }

    /// Starts a commit if it is time for one: called at the end of a turn that has appended.
    pub fn kick(&self) {
        self.shared.kick();
    }

    /// Which log it is.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.shared.log
    }

    /// Every entry at or below it is durable.
    #[inline]
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        self.shared.pipeline.borrow().durable_lsn()
    }

    /// The last LSN that was given out; 0 before the first.
    #[inline]
    #[must_use]
    pub fn assigned_lsn(&self) -> Lsn {
        Lsn::new(self.shared.pipeline.borrow().next_lsn().get() - 1)
    }

    /// Every entry at or below `settled` is held elsewhere: segments with nothing above it are given up, oldest first,
    /// those of earlier epochs too, but never the one that takes frames.
    ///
    /// Returns at once; a task does it, and what it frees makes room. A value that is not higher than one before changes
    /// nothing, but has files removed that could not be removed then. What is not durable here is never given up.
    pub fn release(&self, settled: Lsn) {
        self.shared.on_settled(settled);
    }

    /// The highest LSN that [`release`](Self::release) was told; before the first call, the one before
    /// [`first_lsn`](Self::first_lsn).
    #[must_use]
    pub fn released_lsn(&self) -> Lsn {
        self.shared.release.borrow().settled()
    }

    /// The first entry that is kept, or the next one to come when none is. Entries below it can't be read any more.
    #[must_use]
    pub fn first_lsn(&self) -> Lsn {
        self.shared.superblock.borrow().first_lsn
    }

    /// The first segment that is kept: what lies in one below it was given up, durably, and its file is gone or going.
    #[must_use]
    pub fn first_segment(&self) -> SegmentId {
        self.shared.superblock.borrow().first_segment
    }

    /// Takes no more entries, writes what is there, and marks the log as cleanly closed.
    ///
    /// Called once, last. When it returns, the log's tasks have ended or will with their next step; after a failure it
    /// returns without the mark.
    pub async fn seal(&self) {
        self.shared.seal().await;
    }

    /// How long the commit took by which entries became durable last: while `on_durable` is called, the one that it is called for.
    #[inline]
    #[must_use]
    pub fn commit_times(&self) -> CommitTimes {
        self.shared.pipeline.borrow().commit_times()
    }

    /// What the log counts.
    #[must_use]
    pub fn metrics(&self) -> LogMetrics {
        self.shared.metrics()
    }
}

#[cold]
fn full(room: &Room) -> NoRoom {
    NoRoom::Disk { free_bytes: room.free_bytes(), kept_bytes: room.marks().reserve_bytes }
}

#[cfg(test)]
mod tests;
