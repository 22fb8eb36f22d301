//! What runs for a log beside its callers: the writers of commits, the clock, the heartbeat, the maker of segments; who
//! frees them stands in `release`.
//!
//! Each task lives as long as the log and waits by a waker of its own; none is ever dropped in mid-write.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use wire::ids::SegmentId;
use wire::segment::SegmentHeader;

use super::release::release_settled;
use super::shared::Shared;
use crate::core::pipeline::{Commit, NOTE_BYTES};
use crate::core::space::Blank;
use crate::device::{Blankness, Device};
use crate::fatal::FatalError;

/// How long to wait when the disk was full.
const FULL_PAUSE: Duration = Duration::from_secs(1);

impl<D: Device> Shared<D> {
    /// Starts the tasks of a log that may have `slots` commits in flight.
    pub(super) fn start(self: &Rc<Self>, slots: usize) {
        for _ in 0..slots {
            self.device.spawn(write_commits(Rc::clone(self)));
        }
        self.device.spawn(watch_the_clock(Rc::clone(self)));
        self.device.spawn(beat(Rc::clone(self)));
        self.device.spawn(make_segments(Rc::clone(self)));
        self.device.spawn(release_settled(Rc::clone(self)));
    }
}

/// One commit in flight after the other.
async fn write_commits<D: Device>(shared: Rc<Shared<D>>) {
    loop {
        let commit = shared
            .idle_slots
            .wait(|| {
                let now = shared.device.now();
                let mut pipeline = shared.pipeline.borrow_mut();
                if shared.stopped.get() {
                    return Some(None);
                }
                if !pipeline.should_start(now) {
                    return None;
                }
                pipeline.take_commit(now).map(Some)
            })
            .await;
        match commit {
            Some(commit) => shared.write(commit).await,
            None => return,
        }
    }
}

/// Starts a commit when its oldest entry has waited for half a flush.
async fn watch_the_clock<D: Device>(shared: Rc<Shared<D>>) {
    while !shared.stopped.get() {
        let stopped_or = |at: Option<Duration>| if shared.stopped.get() { Some(Duration::ZERO) } else { at };
        let at = shared.clock.wait(|| stopped_or(shared.pipeline.borrow().start_at())).await;
        let now = shared.device.now();
        if now < at {
            // What waits afterwards may be younger.
            shared.device.sleep(at - now).await;
            continue;
        }
        shared.idle_slots.wake_one();
        let mut passed = shared.stopped.get();
        shared.clock.wait(|| std::mem::replace(&mut passed, true).then_some(())).await;
    }
}

/// Writes on disk how far the log is durable, once it is idle.
async fn beat<D: Device>(shared: Rc<Shared<D>>) {
    while !shared.stopped.get() {
        let stopped_or = |at: Option<Duration>| if shared.stopped.get() { Some(Duration::ZERO) } else { at };
        let at = shared.heart.wait(|| stopped_or(shared.pipeline.borrow().heartbeat_at())).await;
        let now = shared.device.now();
        if now < at {
            shared.device.sleep(at - now).await;
            continue;
        }
        if let Some(note) = take_heartbeat(&shared, now) {
            shared.write(note).await;
        }
    }
}

fn take_heartbeat<D: Device>(shared: &Shared<D>, now: Duration) -> Option<Commit<D::Buffer>> {
    let mut pipeline = shared.pipeline.borrow_mut();
    if !pipeline.wants_heartbeat() {
        return None;
    }
    pipeline.take_note(false, shared.device.buffer(NOTE_BYTES), now)
}

/// Keeps blank segments ready.
async fn make_segments<D: Device>(shared: Rc<Shared<D>>) {
    loop {
        let wish = shared
            .maker
            .wait(|| {
                let mut pipeline = shared.pipeline.borrow_mut();
                match (pipeline.is_closed(), pipeline.space.is_disk_full()) {
                    (true, _) => Some(None),
                    (false, true) => Some(Some(None)),
                    (false, false) => {
                        let is_idle = pipeline.is_drained();
                        pipeline.space.take_wish(is_idle).map(|id| Some(Some(id)))
                    }
                }
            })
            .await;
        match wish {
            None => return,
            Some(Some(id)) => make(&shared, id).await,
            Some(None) => {
                shared.device.sleep(FULL_PAUSE).await;
                shared.pipeline.borrow_mut().space.on_retry();
            }
        }
    }
}

async fn make<D: Device>(shared: &Rc<Shared<D>>, segment: SegmentId) {
    let (bytes, blank) = {
        let pipeline = shared.pipeline.borrow();
        let blank = if pipeline.commits_are_large() { Blankness::Reserved } else { Blankness::Written };
        (pipeline.space.limits().segment_bytes, blank)
    };
    let made = match shared.device.random() {
        Err(source) => Err(source),
        Ok(_) if !has_room(shared, bytes) => Err(Errno::NOSPC.into()),
        Ok(salt) => {
            let header = SegmentHeader { log: shared.log, segment, salt, epoch: shared.epoch, bytes };
            shared.device.create(header, blank).await.map(|file| (salt, file))
        }
    };
    match made {
        Ok((salt, file)) => {
            shared.files.borrow_mut().push_back((segment, Rc::new(file)));
            shared.pipeline.borrow_mut().space.on_made(Blank { segment, salt });
            shared.told_full.set(false);
        }
        Err(error) if is_want_of_space(&error) => {
            if !shared.told_full.replace(true) {
                tracing::warn!(%segment, %error, "no space for another segment of the head log: it is tried again and again");
            }
            shared.pipeline.borrow_mut().space.on_not_made();
        }
        Err(source) => shared.fail(&FatalError::Create { segment, source }),
    }
    shared.room_waiters.wake_all();
    if shared.pipeline.borrow().is_closed() {
        shared.drained.wake_all();
    }
}

/// Whether the disk has room for another segment. What is kept back of it is used only when nothing else could be written
/// any more.
fn has_room<D: Device>(shared: &Shared<D>, bytes: u32) -> bool {
    let Some(room) = shared.room.get() else { return true };
    let pipeline = shared.pipeline.borrow();
    let fits = if pipeline.space.is_short() { room.takes(bytes.into()) } else { room.fits(bytes.into()) };
    fits || pipeline.space.is_nearly_over()
}

/// Whether others may make it pass.
fn is_want_of_space(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE))
}
