//! What the handles and the tasks of a log share.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use failpoints::{Point, hit};
use tuning::room::Room;
use wire::ids::{Epoch, LogId, Lsn, SegmentId};
use wire::superblock::{SEGMENTS_MAX, Superblock};

use crate::core::pipeline::{Commit, NOTE_BYTES, Pipeline};
use crate::core::release::{Release, crc_of, successor};
use crate::device::Device;
use crate::fatal::FatalError;
use crate::metrics::{LogMetrics, micros};
use crate::planted::{Planted, is_planted};

/// A commit of at most this is written in place when nothing is in flight, if that is asked for.
const INLINE_BYTES_MAX: usize = 16 << 10;

type OnDurable = Box<dyn FnMut(Lsn)>;
type OnFatal = Box<dyn FnMut(&FatalError)>;

/// Whom a log calls.
pub(crate) struct Calls {
    pub(super) on_durable: OnDurable,
    pub(super) on_fatal: OnFatal,
}

impl Calls {
    /// Calls `on_durable` once a commit and `on_fatal` at most once, see [`Log::open`](crate::Log::open).
    pub(crate) fn new(on_durable: impl FnMut(Lsn) + 'static, on_fatal: impl FnMut(&FatalError) + 'static) -> Self {
        Self { on_durable: Box::new(on_durable), on_fatal: Box::new(on_fatal) }
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

/// Tasks that wait for one thing.
#[derive(Default)]
pub(super) struct Wakers(RefCell<Vec<Waker>>);

impl Wakers {
    /// Adds `waker` unless `most` wait already; answers how many then.
    pub(super) fn add(&self, waker: &Waker, most: usize) -> Result<(), usize> {
        let mut wakers = self.0.borrow_mut();
        if wakers.len() >= most {
            return Err(wakers.len());
        }
        wakers.push(waker.clone());
        Ok(())
    }

    pub(super) fn wake_one(&self) {
        let waker = self.0.borrow_mut().pop();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn wake_all(&self) {
        if self.0.borrow().is_empty() {
            return;
        }
        for waker in self.0.take() {
            waker.wake();
        }
    }

    /// Waits until `ready` answers something; asked again after each wake.
    pub(super) async fn wait<R>(&self, mut ready: impl FnMut() -> Option<R>) -> R {
        poll_fn(|context| match ready() {
            Some(answer) => Poll::Ready(answer),
            None => {
                self.0.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

/// What the handles and the tasks of a log share.
pub(super) struct Shared<D: Device> {
    pub(super) device: D,
    pub(super) log: LogId,
    pub(super) epoch: Epoch,
    pub(super) inline_commit: bool,
    pub(super) pipeline: RefCell<Pipeline<D::Buffer>>,
    /// The segments that frames may go to, oldest first.
    pub(super) files: RefCell<VecDeque<(SegmentId, Rc<D::Segment>)>>,
    /// The one that is durable.
    pub(super) superblock: RefCell<Superblock>,
    pub(super) release: RefCell<Release>,
    /// Taken out while it is called, so that it may use the log.
    pub(super) on_durable: RefCell<Option<OnDurable>>,
    /// Taken out for good when it is called.
    pub(super) on_fatal: RefCell<Option<OnFatal>>,
    pub(super) idle_slots: Wakers,
    pub(super) room_waiters: Wakers,
    pub(super) clock: Wakers,
    pub(super) heart: Wakers,
    pub(super) maker: Wakers,
    pub(super) releaser: Wakers,
    pub(super) drained: Wakers,
    /// Whether the tasks are to end.
    pub(super) stopped: Cell<bool>,
    /// The disk that it shares with others; none when it has one of its own.
    pub(super) room: OnceCell<Arc<Room>>,
    /// Whether it was told that there is no space for another segment.
    pub(super) told_full: Cell<bool>,
    /// Held as long as the log is.
    pub(super) lock: RefCell<Option<OwnedFd>>,
}

impl<D: Device> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("log", &self.log).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl<D: Device> Shared<D> {
    pub(super) fn keep(&self, lock: OwnedFd) {
        self.lock.replace(Some(lock));
    }

    pub(super) fn kick(&self) {
        let now = self.device.now();
        let mut pipeline = self.pipeline.borrow_mut();
        if !pipeline.on_turn(now) {
            let is_timed = pipeline.start_at().is_some();
            drop(pipeline);
            if is_timed {
                self.clock.wake_one();
            }
            return;
        }
        if self.inline_commit && pipeline.is_small_and_alone(INLINE_BYTES_MAX) {
            let commit = pipeline.take_commit(now);
            drop(pipeline);
            commit.into_iter().for_each(|commit| self.write_now(commit));
            return;
        }
        drop(pipeline);
        self.idle_slots.wake_one();
    }

    /// Writes a commit before anything else is done.
    fn write_now(&self, commit: Commit<D::Buffer>) {
        let Some(file) = self.file(commit.segment) else {
            return;
        };
        let Commit { id, segment, offset, bytes, buffer } = commit;
        hit(Point::HeadWrite);
        match self.device.write_now(&file, &buffer, bytes, offset) {
            Ok(written) if written == bytes => {
                hit(Point::HeadWritten);
                self.on_written(id);
            }
            Ok(written) => self.fail(&FatalError::Short { segment, offset, bytes, written }),
            Err(source) => self.fail(&FatalError::Write { segment, offset, bytes, source }),
        }
    }

    /// Writes a commit, makes it durable, and says so.
    pub(super) async fn write(&self, commit: Commit<D::Buffer>) {
        let Some(file) = self.file(commit.segment) else {
            return;
        };
        let Commit { id, segment, offset, bytes, buffer } = commit;
        hit(Point::HeadWrite);
        match self.device.write(&file, buffer, bytes, offset).await {
            Ok(written) if written == bytes || is_planted(Planted::ShortWriteTaken) => {}
            Ok(written) => return self.fail(&FatalError::Short { segment, offset, bytes, written }),
            Err(source) => return self.fail(&FatalError::Write { segment, offset, bytes, source }),
        }
        let written = self.device.now();
        self.pipeline.borrow_mut().on_bytes_written(id, written);
        let synced = if is_planted(Planted::AckBeforeSync) { Ok(()) } else { self.device.sync(&file).await };
        match synced {
            Ok(()) => {}
            Err(_) if is_planted(Planted::SyncErrorIgnored) => {}
            Err(source) => return self.fail(&FatalError::Sync { segment, source }),
        }
        drop(file);
        hit(Point::HeadWritten);
        self.on_written(id);
        self.close_old_files().await;
    }

    fn file(&self, segment: SegmentId) -> Option<Rc<D::Segment>> {
        let files = self.files.borrow();
        let found = files.iter().find(|(id, _)| *id == segment);
        assert!(found.is_some() || self.stopped.get(), "segment {segment} is open as long as frames go to it");
        found.map(|(_, file)| Rc::clone(file))
    }

    /// Says what a commit has made durable; nothing is borrowed while others are called.
    fn on_written(&self, id: u64) {
        let now = self.device.now();
        self.pipeline.borrow_mut().on_written(id, now);
        if self.stopped.get() {
            return;
        }
        let call = self.on_durable.borrow_mut().take();
        if let Some(mut call) = call {
            while let Some(durable) = self.next_durable() {
                call(durable);
            }
            self.on_durable.replace(Some(call));
        }
        self.room_waiters.wake_all();
        self.after_written(now);
    }

    fn next_durable(&self) -> Option<Lsn> {
        self.pipeline.borrow_mut().next_durable()
    }

    fn after_written(&self, now: std::time::Duration) {
        let pipeline = self.pipeline.borrow();
        let starts = pipeline.should_start(now);
        let (is_idle, wants_heartbeat) = (pipeline.is_drained(), pipeline.wants_heartbeat());
        let wants_segment = pipeline.space.wants_segment(is_idle);
        drop(pipeline);
        if starts {
            self.idle_slots.wake_one();
        }
        if is_idle {
            self.drained.wake_all();
        }
        if wants_heartbeat {
            self.heart.wake_one();
        }
        if wants_segment {
            self.maker.wake_one();
        }
    }

    /// Closes the segments that no frame goes to any more.
    pub(super) async fn close_old_files(&self) {
        let oldest = self.pipeline.borrow().oldest_segment();
        while let Some(file) = self.take_old_file(oldest) {
            hit(Point::SegmentRoll);
            self.device.close(file).await;
            self.release.borrow_mut().on_closed();
            self.releaser.wake_all();
        }
    }

    fn take_old_file(&self, oldest: SegmentId) -> Option<D::Segment> {
        let mut files = self.files.borrow_mut();
        files.front().filter(|(id, file)| *id < oldest && Rc::strong_count(file) == 1)?;
        let (_, file) = files.pop_front()?;
        Rc::into_inner(file)
    }

    /// Fail-stop: nothing is answered from here on.
    pub(super) fn fail(&self, error: &FatalError) {
        self.pipeline.borrow_mut().fail();
        self.stop();
        let call = self.on_fatal.borrow_mut().take();
        if let Some(mut call) = call {
            call(error);
        }
    }

    /// Lets every task come to its end.
    fn stop(&self) {
        self.stopped.set(true);
        let tasks = [&self.idle_slots, &self.clock, &self.heart, &self.maker, &self.releaser];
        for wakers in tasks.into_iter().chain([&self.room_waiters, &self.drained]) {
            wakers.wake_all();
        }
    }

    pub(super) async fn seal(&self) {
        self.pipeline.borrow_mut().close();
        self.idle_slots.wake_all();
        self.maker.wake_all();
        self.releaser.wake_all();
        self.drained.wait(|| (self.stopped.get() || self.is_settled()).then_some(())).await;
        if self.stopped.get() {
            return;
        }
        let buffer = self.device.buffer(NOTE_BYTES);
        let note = self.pipeline.borrow_mut().take_note(true, buffer, self.device.now());
        if let Some(note) = note {
            self.write(note).await;
        }
        if !self.stopped.get() {
            self.write_clean_superblock().await;
        }
        self.stop();
        let files = self.files.take();
        for file in files.into_iter().filter_map(|(_, file)| Rc::into_inner(file)) {
            self.device.close(file).await;
        }
        self.lock.replace(None);
    }

    fn is_settled(&self) -> bool {
        let pipeline = self.pipeline.borrow();
        pipeline.is_drained() && !pipeline.space.is_making() && !self.release.borrow().is_busy()
    }

    async fn write_clean_superblock(&self) {
        let superblock = self.next_superblock();
        hit(Point::SealSuperblock);
        match self.device.write_superblock(&superblock).await {
            Ok(()) => drop(self.superblock.replace(superblock)),
            Err(source) => self.fail(&FatalError::Superblock { source }),
        }
    }

    fn next_superblock(&self) -> Superblock {
        let before = self.superblock.borrow();
        let mut superblock = successor(&before, crc_of(&before));
        superblock.clean = true;
        let pipeline = self.pipeline.borrow();
        superblock.durable_lsn = pipeline.durable_lsn();
        superblock.next_segment = pipeline.space.next_segment();
        let ends = pipeline.ends();
        if superblock.segments.len() + ends.len() <= SEGMENTS_MAX {
            superblock.segments.extend(ends);
        }
        superblock
    }

    pub(super) fn metrics(&self) -> LogMetrics {
        let pipeline = self.pipeline.borrow();
        let counts = &pipeline.counts;
        LogMetrics {
            commits: counts.commits,
            heartbeats: counts.heartbeats,
            entries: counts.entries,
            frame_bytes: counts.frame_bytes,
            padding_bytes: counts.padding_bytes,
            wait_ewma_us: micros(counts.wait_ewma),
            flush_ewma_us: micros(pipeline.flush_ewma()),
            used_bytes: pipeline.space.used_bytes(),
            freed_segments: self.release.borrow().freed(),
            first_lsn: self.superblock.borrow().first_lsn,
        }
    }
}
