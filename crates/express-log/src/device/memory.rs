//! A disk in memory that fails as it is told, and a thread whose steps are chosen by a seed.
//!
//! Everything runs on virtual time. [`World::step`] does one thing, drawn from the seed: polls a task, ends a write or a
//! sync, or moves the clock. [`World::crash`] keeps what was durable, and of each write that was not, a part drawn sector
//! by sector: writes are lost, torn and reordered; a file that was removed may be there again.

mod draw;
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
use wire::ids::SegmentId;
use wire::log_frame::BLOCK_BYTES;
use wire::segment::SegmentHeader;
use wire::superblock::{COPIES, COPY_BYTES, Superblock};

pub(crate) use self::draw::Draw;
pub(crate) use self::remains::{RecoveredRemains, Remains};
use super::{Blankness, Device};

const SECTOR_BYTES: usize = 512;

/// How often things go wrong, in parts of 1,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Faults {
    /// A write or sync fails.
    pub(crate) io_error: u32,
    /// A write ends before its end.
    pub(crate) short_write: u32,
    /// A segment finds no space.
    pub(crate) no_space: u32,
    /// A segment is not removed.
    pub(crate) not_removed: u32,
}

/// A file: what a crash keeps, and the writes that it may not keep.
#[derive(Debug, Clone, Default)]
struct MemoryFile {
    durable: Vec<u8>,
    /// Done, but not durable yet.
    cached: Vec<(usize, Vec<u8>)>,
    /// What a read sees.
    seen: Vec<u8>,
}

impl MemoryFile {
    fn sync(&mut self) {
        self.durable.clone_from(&self.seen);
        self.cached.clear();
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
        let file = |durable: Vec<u8>| MemoryFile { seen: durable.clone(), durable, cached: Vec::new() };
        let files = remains.segments.into_iter().map(|(segment, bytes)| (segment, file(bytes))).collect();
        Self(Rc::new(RefCell::new(State {
            draw: Draw::new(seed),
            faults,
            cached_writes,
            superblock_fails: false,
            now: Duration::ZERO,
            files,
            removed: BTreeMap::new(),
            superblock: remains.superblock,
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

    /// Changes how often things go wrong from here on.
    pub(crate) fn set_faults(&self, faults: Faults) {
        self.0.borrow_mut().faults = faults;
    }

    /// Has every superblock fail from here on, or not.
    pub(crate) fn set_superblock_fails(&self, fails: bool) {
        self.0.borrow_mut().superblock_fails = fails;
    }

    /// What the disk holds durably right now.
    #[must_use]
    pub(crate) fn snapshot(&self) -> Remains {
        let state = self.0.borrow();
        let segments = state.files.iter().map(|(&segment, file)| (segment, file.durable.clone())).collect();
        Remains { superblock: state.superblock.clone(), segments }
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
        let due: Vec<_> = state.sleepers.extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().for_each(|(_, waker)| waker.wake());
        true
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
        let mut remains = Remains { superblock: std::mem::take(&mut self.superblock), segments: BTreeMap::new() };
        let mut files = std::mem::take(&mut self.files);
        for (segment, file) in std::mem::take(&mut self.removed) {
            if self.draw.happens(500) {
                files.insert(segment, file);
            }
        }
        for (segment, file) in files {
            let mut durable = file.durable;
            for (offset, bytes) in &file.cached {
                tear(&mut durable, *offset, bytes, &mut self.draw);
            }
            remains.segments.insert(segment, durable);
        }
        for pending in std::mem::take(&mut self.pending).into_values() {
            if let Pending::Waiting(Operation::Write { segment, offset, bytes }, _) = pending
                && let Some(durable) = remains.segments.get_mut(&segment)
            {
                tear(durable, offset, &bytes, &mut self.draw);
            }
        }
        (remains, tasks)
    }

    fn perform(&mut self, operation: Operation) -> io::Result<usize> {
        if self.draw.happens(self.faults.io_error) {
            return Err(Errno::IO.into());
        }
        match operation {
            Operation::Sync { segment } => {
                self.files.get_mut(&segment).ok_or(io::ErrorKind::NotFound)?.sync();
                Ok(0)
            }
            Operation::Write { segment, offset, mut bytes } => {
                if self.draw.happens(self.faults.short_write) {
                    bytes.truncate(bytes.len() / 2);
                }
                let file = self.files.get_mut(&segment).ok_or(io::ErrorKind::NotFound)?;
                let written = bytes.len();
                file.seen[offset..offset + written].copy_from_slice(&bytes);
                if self.cached_writes {
                    file.cached.push((offset, bytes));
                } else {
                    file.durable[offset..offset + written].copy_from_slice(&bytes);
                }
                Ok(written)
            }
        }
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
        let file = MemoryFile { seen: bytes.clone(), durable: bytes, cached: Vec::new() };
        state.removed.clear();
        assert!(state.files.insert(header.segment, file).is_none(), "a segment id is used once");
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
            if self.0.borrow().superblock_fails {
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
        file.durable.truncate(bytes as usize);
        file.seen.truncate(bytes as usize);
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
