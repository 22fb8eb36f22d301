//! How settled segments are freed, beside the commits and without holding them up.
//!
//! One task does it, a round for however many calls came in the meantime: it writes a superblock that does not list the
//! segments, and removes their files after that is durable. A freed file is not used again as a blank segment: whoever
//! has it open still reads the bytes it was opened for.

use std::io;
use std::rc::Rc;

use failpoints::{Point, hit};
use wire::ids::Lsn;
use wire::superblock::Superblock;

use super::shared::Shared;
use crate::core::release::{GivenUp, Kept, crc_of, successor};
use crate::device::Device;
use crate::fatal::FatalError;
use crate::planted::{Planted, is_planted};

/// Gives segments up as they are settled.
pub(super) async fn release_settled<D: Device>(shared: Rc<Shared<D>>) {
    loop {
        let goes_on = shared.releaser.wait(|| shared.next_round()).await;
        if !goes_on {
            return;
        }
        shared.release_once().await;
        shared.release.borrow_mut().on_done();
        if shared.pipeline.borrow().is_closed() {
            shared.drained.wake_all();
        }
    }
}

impl<D: Device> Shared<D> {
    pub(super) fn on_settled(&self, settled: Lsn) {
        self.release.borrow_mut().on_settled(settled);
        self.releaser.wake_all();
    }

    /// Whether there is another round; none answers that it is not known yet.
    fn next_round(&self) -> Option<bool> {
        if self.pipeline.borrow().is_closed() {
            return Some(false);
        }
        self.release.borrow_mut().take_turn().then_some(true)
    }

    async fn release_once(&self) {
        self.close_old_files().await;
        if let Some(given_up) = self.plan_release() {
            let superblock = self.superblock_without(&given_up);
            hit(Point::FreeSuperblock);
            let freed = if is_planted(Planted::FreedBeforeSuperblock) { &given_up.segments[..] } else { &[] };
            for kept in freed {
                let _ = self.device.remove(kept.segment).await;
            }
            if let Err(source) = self.device.write_superblock(&superblock).await {
                return self.fail(&FatalError::Superblock { source });
            }
            hit(Point::FreeSuperblockWritten);
            self.superblock.replace(superblock);
            self.pipeline.borrow_mut().forget_ended_below(given_up.first_segment);
            self.release.borrow_mut().on_given_up(&given_up);
        }
        self.remove_given_up().await;
    }

    fn plan_release(&self) -> Option<GivenUp> {
        let pipeline = self.pipeline.borrow();
        let open = self.files.borrow().front().map(|(segment, _)| *segment)?;
        self.release.borrow().plan(pipeline.kept(), pipeline.durable_lsn(), open)
    }

    fn superblock_without(&self, given_up: &GivenUp) -> Superblock {
        let before = self.superblock.borrow();
        let pipeline = self.pipeline.borrow();
        let mut superblock = successor(&before, crc_of(&before));
        superblock.durable_lsn = pipeline.durable_lsn();
        superblock.next_segment = pipeline.space.next_segment();
        superblock.first_segment = given_up.first_segment;
        superblock.first_lsn = given_up.first_lsn;
        superblock.segments.retain(|ended| ended.segment >= given_up.first_segment);
        superblock
    }

    async fn remove_given_up(&self) {
        let mut removed = Vec::new();
        let to_remove = self.release.borrow().to_remove();
        for kept in to_remove {
            hit(Point::SegmentUnlink);
            match self.device.remove(kept.segment).await {
                Ok(()) => removed.push(kept),
                Err(error) if error.kind() == io::ErrorKind::NotFound => removed.push(kept),
                Err(error) => tracing::warn!(segment = %kept.segment, %error, "removing a settled segment"),
            }
        }
        if removed.is_empty() {
            return;
        }
        hit(Point::SegmentUnlinked);
        if let Err(error) = self.device.sync_names().await {
            tracing::warn!(%error, "syncing the directory of a log; what comes back is removed when it is opened");
        }
        self.on_removed(&removed);
    }

    fn on_removed(&self, removed: &[Kept]) {
        {
            let (mut pipeline, mut release) = (self.pipeline.borrow_mut(), self.release.borrow_mut());
            for kept in removed {
                pipeline.space.on_freed(kept.bytes);
                release.on_removed(kept);
            }
        }
        self.maker.wake_all();
        self.room_waiters.wake_all();
    }
}
