//! A disk in memory that fails as it is told, and a thread whose steps are chosen by a seed.
//!
//! Everything runs on virtual time. [`World::step`] does one thing, drawn from the seed: polls a task, ends a write or a
//! sync, or moves the clock. [`World::crash`] keeps what was durable, and of each write that was not, a part drawn sector
//! by sector: writes are lost, torn and reordered; a file that was removed may be there again, and one that was cut as
//! long as it was. [`World::trace`] sums up all that was done.

mod draw;
mod faults;
mod file;
mod remains;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rustix::io::Errno;
use wire::crc::crc32c;
use wire::ids::SegmentId;
use wire::log_frame::BLOCK_BYTES;
use wire::segment::SegmentHeader;
use wire::superblock::{COPIES, COPY_BYTES, Superblock};

pub(crate) use self::draw::Draw;
pub(crate) use self::draw::Trace;
pub(crate) use self::faults::Faults;
use self::file::{MemoryFile, SECTOR_BYTES};
pub(crate) use self::remains::{RecoveredRemains, Remains};
use super::{Blankness, Device};

/// Files that are gone and whose bytes may turn up again.
const GRAVES_MAX: usize = 4;

#[derive(Debug)]
enum Operation {
    Write { segment: SegmentId, offset: usize, bytes: Vec<u8> },
    Sync { segment: SegmentId },
}

#[derive(Debug)]
enum Pending {
    Waiting(Operation, Waker),
    Done(io::Result<usize>),
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks that are to be polled.
#[derive(Debug, Default)]
struct Runnable(Mutex<Vec<usize>>);

struct TaskWaker {
    task: usize,
    runnable: Arc<Runnable>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut tasks = self.runnable.0.lock().expect("no one panics with it");
        if !tasks.contains(&self.task) {
            tasks.push(self.task);
        }
    }
}

struct State {
    draw: Draw,
    faults: Faults,
    /// Whether a write is durable only after a sync.
    cached_writes: bool,
    superblock_fails: bool,
    now: Duration,
    files: BTreeMap<SegmentId, MemoryFile>,
    /// Removed, and there again after a crash unless their names are synced.
    removed: BTreeMap<SegmentId, MemoryFile>,
    superblock: Vec<u8>,
    /// What stood in segments that are gone, and behind the ends of those that were cut.
    graves: VecDeque<Vec<u8>>,
    /// The random number of each segment that was ever made.
    salts: BTreeMap<SegmentId, u64>,
    trace: Trace,
    pending: BTreeMap<u64, Pending>,
    sleepers: Vec<(Duration, Waker)>,
    next_operation: u64,
    tasks: Vec<Option<Task>>,
    spawned: VecDeque<Task>,
    runnable: Arc<Runnable>,
}

/// A disk in memory and the only thread that uses it; a cheap handle.
#[derive(Clone)]
pub(crate) struct World(Rc<RefCell<State>>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.borrow();
        f.debug_struct("World").field("now", &state.now).field("segments", &state.files.len()).finish_non_exhaustive()
    }
}

impl World {
    /// A disk that holds `remains`, with all that happens drawn from `seed`.
    #[must_use]
    pub(crate) fn new(remains: Remains, seed: u64, faults: Faults, cached_writes: bool) -> Self {
        let files = remains.segments.into_iter().map(|(segment, bytes)| (segment, MemoryFile::new(bytes))).collect();
        Self(Rc::new(RefCell::new(State {
            draw: Draw::new(seed),
            faults,
            cached_writes,
            superblock_fails: false,
            now: Duration::ZERO,
            files,
            removed: BTreeMap::new(),
            superblock: remains.superblock,
            graves: remains.graves,
            salts: remains.salts,
            trace: Trace::default(),
            pending: BTreeMap::new(),
            sleepers: Vec::new(),
            next_operation: 0,
            tasks: Vec::new(),
            spawned: VecDeque::new(),
            runnable: Arc::default(),
        })))
    }

    /// Does one thing; answers false when there is nothing to do.
    pub(crate) fn step(&self) -> bool {
        self.admit();
        let (task, disk_first, clock_first) = {
            let mut state = self.0.borrow_mut();
            let disk_first = state.draw.happens(300);
            let clock_first = state.draw.happens(20);
            let mut tasks = state.runnable.0.lock().expect("no one panics with it");
            (if disk_first || clock_first { None } else { tasks.pop() }, disk_first, clock_first)
        };
        if let Some(task) = task {
            self.poll(task);
            return true;
        }
        (disk_first && self.end_operation())
            || (clock_first && self.move_clock())
            || self.poll_any()
            || self.end_operation()
            || self.move_clock()
    }

    fn poll_any(&self) -> bool {
        let task = self.0.borrow().runnable.0.lock().expect("no one panics with it").pop();
        task.map(|task| self.poll(task)).is_some()
    }

    #[cfg(test)]
    /// Runs `future` to its end.
    ///
    /// # Panics
    /// When nothing can be done any more and it has not ended.
    pub(crate) fn run<R: 'static>(&self, future: impl Future<Output = R> + 'static) -> R {
        let answer = Rc::new(RefCell::new(None));
        let put = Rc::clone(&answer);
        self.spawn(async move {
            let done = future.await;
            put.replace(Some(done));
        });
        loop {
            if let Some(answer) = answer.take() {
                return answer;
            }
            assert!(self.step(), "the future waits for something that never happens");
        }
    }

    /// The power goes: answers what the disk holds then. All tasks are gone.
    #[must_use]
    pub(crate) fn crash(self) -> Remains {
        let (remains, tasks) = self.0.borrow_mut().crash();
        // The tasks hold this world, so they go when nothing of it is borrowed.
        drop(tasks);
        remains
    }

    #[cfg(test)]
    /// Changes how often things go wrong from here on.
    pub(crate) fn set_faults(&self, faults: Faults) {
        self.0.borrow_mut().faults = faults;
    }

    #[cfg(test)]
    /// Has every superblock fail from here on, or not.
    pub(crate) fn set_superblock_fails(&self, fails: bool) {
        self.0.borrow_mut().superblock_fails = fails;
    }

    #[cfg(test)]
    /// What the disk holds durably right now.
    #[must_use]
    pub(crate) fn snapshot(&self) -> Remains {
        let state = self.0.borrow();
        let segments = state.files.iter().map(|(&segment, file)| (segment, file.durable().to_vec())).collect();
        Remains { superblock: state.superblock.clone(), segments, ..Remains::default() }
    }

    /// The sum of all that was done: two runs that differ in anything have different ones.
    #[must_use]
    pub(crate) fn trace(&self) -> u64 {
        self.0.borrow().trace.sum()
    }

    /// Durable bytes of a segment; none when it is gone.
    #[cfg(any(test, feature = "simulated"))]
    pub(crate) fn read(&self, segment: SegmentId, offset: u32, bytes: u32) -> Option<Vec<u8>> {
        let state = self.0.borrow();
        let file = state.files.get(&segment)?;
        file.durable().get(offset as usize..(offset + bytes) as usize).map(<[u8]>::to_vec)
    }

    fn admit(&self) {
        let mut state = self.0.borrow_mut();
        while let Some(task) = state.spawned.pop_front() {
            let number = state.tasks.len();
            state.tasks.push(Some(task));
            state.runnable.0.lock().expect("no one panics with it").push(number);
        }
    }

    fn poll(&self, number: usize) {
        let (task, runnable) = {
            let mut state = self.0.borrow_mut();
            state.trace.note(number as u64);
            (state.tasks[number].take(), Arc::clone(&state.runnable))
        };
        let Some(mut task) = task else {
            return;
        };
        let waker = Waker::from(Arc::new(TaskWaker { task: number, runnable }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.0.borrow_mut().tasks[number] = Some(task);
        }
    }

    /// Ends one operation, any of those that wait.
    fn end_operation(&self) -> bool {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let waiting: Vec<u64> =
            state.pending.iter().filter(|(_, op)| matches!(op, Pending::Waiting(..))).map(|(&id, _)| id).collect();
        if waiting.is_empty() {
            return false;
        }
        state.now += Duration::from_micros(state.draw.next_number() % 200);
        let id = waiting[state.draw.below(waiting.len())];
        if let Some(Pending::Waiting(operation, waker)) = state.pending.remove(&id) {
            let result = state.perform(operation);
            state.pending.insert(id, Pending::Done(result));
            waker.wake();
        }
        true
    }

    fn move_clock(&self) -> bool {
        let mut state = self.0.borrow_mut();
        let Some(first) = state.sleepers.iter().map(|(at, _)| *at).min() else {
            return false;
        };
        state.now = state.now.max(first);
        let now = state.now;
        state.trace.note(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        let due: Vec<_> = state.sleepers.extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().for_each(|(_, waker)| waker.wake());
        true
    }

    fn superblock_fails(&self) -> bool {
        let mut state = self.0.borrow_mut();
        let superblock_error = state.faults.superblock_error;
        state.superblock_fails || state.draw.happens(superblock_error)
    }

    fn put_superblock(&self, at: usize, bytes: &[u8]) {
        let superblock = &mut self.0.borrow_mut().superblock;
        superblock.resize(COPIES * COPY_BYTES, 0);
        superblock[at..at + bytes.len()].copy_from_slice(bytes);
    }

    async fn operate(&self, operation: Operation) -> io::Result<usize> {
        let mut operation = Some(operation);
        let mut id = 0;
        poll_fn(|context| {
            let mut state = self.0.borrow_mut();
            if let Some(operation) = operation.take() {
                id = state.next_operation;
                state.next_operation += 1;
                state.pending.insert(id, Pending::Waiting(operation, context.waker().clone()));
                return Poll::Pending;
            }
            match state.pending.remove(&id) {
                Some(Pending::Done(result)) => Poll::Ready(result),
                Some(waiting) => {
                    state.pending.insert(id, waiting);
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        })
        .await
    }
}

impl State {
    fn crash(&mut self) -> (Remains, Vec<Option<Task>>) {
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.extend(self.spawned.drain(..).map(Some));
        let mut files = std::mem::take(&mut self.files);
        for (segment, file) in std::mem::take(&mut self.removed) {
            if self.draw.happens(500) {
                files.insert(segment, file);
            }
        }
        for pending in std::mem::take(&mut self.pending).into_values() {
            if let Pending::Waiting(Operation::Write { segment, offset, bytes }, _) = pending
                && let Some(file) = files.get_mut(&segment)
            {
                file.cache(offset, bytes);
            }
        }
        let segments = files.into_iter().map(|(segment, file)| (segment, file.crash(&mut self.draw))).collect();
        let superblock = std::mem::take(&mut self.superblock);
        let (graves, salts) = (std::mem::take(&mut self.graves), std::mem::take(&mut self.salts));
        (Remains { segments, superblock, graves, salts }, tasks)
    }

    /// Keeps what stood in a file that is gone.
    fn bury(&mut self, bytes: Vec<u8>) {
        self.graves.push_back(bytes);
        if self.graves.len() > GRAVES_MAX {
            self.graves.pop_front();
        }
    }

    /// What a new segment holds behind its header when its zeroes did not get there.
    fn unearth(&mut self, bytes: &mut [u8]) {
        let stale = self.faults.stale_blank;
        if self.graves.is_empty() || !self.draw.happens(stale) {
            return;
        }
        let grave = &self.graves[self.draw.below(self.graves.len())];
        let blocks = bytes.chunks_mut(BLOCK_BYTES).zip(grave.chunks(BLOCK_BYTES)).skip(1);
        for (block, old) in blocks {
            if self.draw.happens(700) {
                block[..old.len()].copy_from_slice(old);
            }
        }
    }

    /// Where a write goes that is not done where it should.
    fn misdirect(&mut self, bytes: usize) -> Option<(SegmentId, usize)> {
        let fitting: Vec<_> = self.files.iter().filter(|(_, file)| file.durable().len() >= bytes).collect();
        let (segment, file) = fitting.get(self.draw.below(fitting.len()))?;
        let places = (file.durable().len() - bytes) / BLOCK_BYTES + 1;
        Some((**segment, self.draw.below(places) * BLOCK_BYTES))
    }

    fn perform(&mut self, operation: Operation) -> io::Result<usize> {
        let fails = self.draw.happens(self.faults.io_error);
        match operation {
            Operation::Sync { segment } => {
                let file = self.files.get_mut(&segment).ok_or(io::ErrorKind::NotFound)?;
                self.trace.note(segment.get());
                if fails {
                    file.fail_to_sync();
                    return Err(Errno::IO.into());
                }
                file.sync();
                Ok(0)
            }
            Operation::Write { segment, offset, bytes } => self.write(segment, offset, bytes, fails),
        }
    }

    fn write(&mut self, segment: SegmentId, offset: usize, mut bytes: Vec<u8>, fails: bool) -> io::Result<usize> {
        if self.draw.happens(self.faults.short_write) {
            bytes.truncate(bytes.len() / 2);
        }
        let written = bytes.len();
        [segment.get(), offset as u64, u64::from(crc32c(&bytes))].into_iter().for_each(|part| self.trace.note(part));
        let mut place = Some((segment, offset)).filter(|_| !self.draw.happens(self.faults.lost_write));
        if self.draw.happens(self.faults.misdirected_write) {
            place = self.misdirect(written);
        }
        let Some((segment, offset)) = place else { return Ok(written) };
        let file = self.files.get_mut(&segment).ok_or(io::ErrorKind::NotFound)?;
        file.cache(offset, bytes);
        if fails {
            return Err(Errno::IO.into());
        }
        if !self.cached_writes {
            file.sync_last();
        }
        Ok(written)
    }
}

impl Device for World {
    type Buffer = Vec<u8>;
    type Segment = SegmentId;

    fn buffer(&self, bytes: usize) -> Vec<u8> {
        // Whatever was there before: padding that is not cleared shows.
        vec![0xDB; bytes]
    }

    async fn create(&self, header: SegmentHeader, _: Blankness) -> io::Result<SegmentId> {
        self.sleep(Duration::from_micros(300)).await;
        let mut state = self.0.borrow_mut();
        let no_space = state.faults.no_space;
        if state.draw.happens(no_space) {
            return Err(Errno::NOSPC.into());
        }
        let mut bytes = vec![0; header.bytes as usize];
        header.encode(&mut bytes[..BLOCK_BYTES]);
        state.unearth(&mut bytes);
        state.removed.clear();
        state.salts.insert(header.segment, header.salt);
        let before = state.files.insert(header.segment, MemoryFile::new(bytes));
        assert!(before.is_none(), "a segment id is used once");
        Ok(header.segment)
    }

    async fn write(&self, segment: &SegmentId, buffer: Vec<u8>, bytes: usize, offset: u32) -> io::Result<usize> {
        let bytes = buffer[..bytes].to_vec();
        self.operate(Operation::Write { segment: *segment, offset: offset as usize, bytes }).await
    }

    async fn sync(&self, segment: &SegmentId) -> io::Result<()> {
        let cached = self.0.borrow().cached_writes;
        if cached { self.operate(Operation::Sync { segment: *segment }).await.map(drop) } else { Ok(()) }
    }

    fn write_now(&self, segment: &SegmentId, buffer: &Vec<u8>, bytes: usize, offset: u32) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        let bytes = buffer[..bytes].to_vec();
        let written = state.perform(Operation::Write { segment: *segment, offset: offset as usize, bytes })?;
        state.perform(Operation::Sync { segment: *segment })?;
        Ok(written)
    }

    async fn close(&self, _segment: SegmentId) {}

    async fn write_superblock(&self, superblock: &Superblock) -> io::Result<()> {
        for (copy, number) in (0..COPIES).zip(0..) {
            let bytes = superblock.encode(number).map_err(io::Error::other)?;
            self.sleep(Duration::from_micros(100)).await;
            if self.superblock_fails() {
                return Err(Errno::IO.into());
            }
            let at = copy * COPY_BYTES;
            self.put_superblock(at, &bytes[..SECTOR_BYTES]);
            // A crash in between leaves a torn copy.
            self.sleep(Duration::from_micros(50)).await;
            self.put_superblock(at, &bytes);
        }
        Ok(())
    }

    async fn truncate(&self, segment: SegmentId, bytes: u32) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        let file = state.files.get_mut(&segment).ok_or(io::ErrorKind::NotFound)?;
        let before = file.cut(bytes as usize);
        state.bury(before);
        Ok(())
    }

    async fn remove(&self, segment: SegmentId) -> io::Result<()> {
        self.sleep(Duration::from_micros(50)).await;
        let mut state = self.0.borrow_mut();
        let not_removed = state.faults.not_removed;
        if state.draw.happens(not_removed) {
            return Err(Errno::BUSY.into());
        }
        let file = state.files.remove(&segment).ok_or(io::ErrorKind::NotFound)?;
        state.bury(file.durable().to_vec());
        state.removed.insert(segment, file);
        Ok(())
    }

    async fn sync_names(&self) -> io::Result<()> {
        self.sleep(Duration::from_micros(50)).await;
        self.0.borrow_mut().removed.clear();
        Ok(())
    }

    fn random(&self) -> io::Result<u64> {
        Ok(self.0.borrow_mut().draw.next_number())
    }

    fn unix_ms(&self) -> u64 {
        u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().spawned.push_back(Box::pin(task));
    }

    fn now(&self) -> Duration {
        self.0.borrow().now
    }

    async fn sleep(&self, time: Duration) {
        let at = self.now() + time;
        poll_fn(|context| {
            let mut state = self.0.borrow_mut();
            if state.now >= at {
                return Poll::Ready(());
            }
            state.sleepers.push((at, context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}
