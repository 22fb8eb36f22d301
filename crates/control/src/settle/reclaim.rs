//! How does room come back that trims, deletes and moves have freed?

use std::collections::BTreeSet;

use failpoints::{Point, hit};
use futures_util::stream::{self, StreamExt};

use super::delete::DELETES_AT_A_TIME;
use super::{SettleError, Settler, millis};
use crate::index::{DeadObject, ObjectId};

/// Steps of the index that one step takes.
const STEPS_MAX: usize = 16;

/// What a step has freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Freed {
    /// Extents of trimmed and deleted streams.
    pub extents: usize,
    /// Objects that nothing pointed to.
    pub objects: usize,
    /// Whether more could be freed at once.
    pub has_more: bool,
}

/// Objects that went, until the index has forgotten them durably.
#[derive(Debug, Default)]
pub(super) struct Gone(BTreeSet<ObjectId>);

impl Settler {
    /// Drops extents that trims and deletes left behind, and deletes bundles that nothing has pointed to for the time of grace. While
    /// the wall clock is not believed, time goes on by the clock since boot.
    ///
    /// # Errors
    /// [`SettleError`]; what was not freed is freed later.
    pub async fn reclaim_step(&self, now_ms: i64) -> Result<Freed, SettleError> {
        let mut gone = self.reclaimed.lock().await;
        let Some(now_ms) = self.believed_ms(now_ms) else { return Ok(Freed::default()) };
        let mut freed = Freed { has_more: true, ..Freed::default() };
        for _ in 0..STEPS_MAX {
            let step = self.index.reclaim_step(now_ms).await?;
            freed.extents += step.extents;
            if step.extents == 0 && step.marks == 0 {
                freed.has_more = false;
                break;
            }
        }
        // What is due later is due now when room is wanted.
        let due_ms = now_ms.saturating_add(millis(self.options.grace.saturating_sub(self.grace())));
        let dead = self.index.dead(due_ms, self.options.deletes_max).await?;
        let still_dead: BTreeSet<_> = dead.iter().map(|one| one.object).collect();
        gone.0.retain(|object| still_dead.contains(object));
        // A chunk is no object of one slot: it goes by its channel.
        let is_new = |one: &DeadObject| !one.object.is_chunk() && !gone.0.contains(&one.object);
        let fresh: Vec<_> = dead.iter().copied().filter(is_new).collect();
        if fresh.is_empty() {
            if dead.len() >= self.options.deletes_max {
                // All that fits is forgotten and not durably: behind it there may be more.
                self.index.checkpoint().await?;
                freed.has_more = true;
            }
            return Ok(freed);
        }
        let deleted = self.delete_dead(&fresh, &mut gone).await;
        let done: Vec<_> = fresh.iter().copied().filter(|one| gone.0.contains(&one.object)).collect();
        hit(Point::ObjectDeleted);
        self.index.forget_dead(&done, now_ms).await?;
        hit(Point::ObjectForgotten);
        freed.objects = done.len();
        self.counted().objects_deleted += done.len() as u64;
        deleted.map(|()| freed)
    }

    async fn delete_dead(&self, dead: &[DeadObject], gone: &mut Gone) -> Result<(), SettleError> {
        let delete = |object: ObjectId| async move {
            hit(Point::ObjectDelete);
            (object, self.store.delete(&object.name()).await)
        };
        let objects: Vec<ObjectId> = dead.iter().map(|one| one.object).collect();
        let mut deletes = Box::pin(stream::iter(objects).map(delete).buffer_unordered(DELETES_AT_A_TIME));
        let mut failed = None;
        while let Some((object, deleted)) = deletes.next().await {
            match deleted {
                Ok(()) => drop(gone.0.insert(object)),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
