//! How is the index of a store made again by someone who runs no star?
//!
//! The store is taken as a star takes it: a star that has it and lives is named and left alone, one that is dead is fenced first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::channel::{self, Fenced, JoinError};
use crate::index::{self, IndexError, IndexOptions, IndexOwner, Rebuilding, SlotMade};
use crate::shell::unix_ms;
use crate::store::Store;

pub use crate::index::{Missing, Rebuilt, Step};

/// What is wanted of a rebuild.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RebuildOptions {
    /// All of every bundle is read and checked, not its ends alone.
    pub reads_all: bool,
    /// The new index counts though something is missing.
    pub accept_loss: bool,
}

/// Why the index was not made again. The one there is stays.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The store can't be taken.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// It can't be read, or the new one can't be put.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Another start has taken the store meanwhile.
    #[error(transparent)]
    Fenced(#[from] Arc<Fenced>),
}

/// Makes the index of a store again from its objects, and tells how far it is. Must run inside a tokio runtime.
///
/// # Errors
/// See [`RebuildError`]. Objects that are missing are no error: they stand in what is answered.
pub async fn rebuild_index(
    store: Arc<dyn Store>,
    options: RebuildOptions,
    tell: &(dyn Fn(Step) + Send + Sync),
) -> Result<Rebuilt, RebuildError> {
    let joined = channel::take_over(&store).await?;
    let channel = joined.channel;
    let what = Rebuilding {
        owner: IndexOwner::of(&channel),
        prior: joined.prior,
        slots_with_index: joined.slots_with_index,
        options: IndexOptions::default(),
        made: made(&channel),
        reads_all: options.reads_all,
        accept_loss: options.accept_loss,
        now_ms: unix_ms(),
        store,
    };
    let done = tokio::select! {
        done = Box::pin(index::rebuild(&what, tell)) => done,
        fenced = channel.fenced() => return Err(fenced.into()),
    };
    if let Err(error) = channel.release(&[]).await {
        tracing::warn!(%error, "the store is not given free: the next start waits until this tenure counts as dead");
    }
    Ok(done?)
}

/// Notes slots in the cluster, and fails once another start has taken the store.
fn made(channel: &channel::Channel) -> SlotMade {
    let channel = channel.clone();
    let wanted = Arc::new(AtomicU64::new(0));
    Arc::new(move |slot| {
        let (channel, bit) = (channel.clone(), 1 << slot.get());
        let slots = wanted.fetch_or(bit, Ordering::AcqRel) | bit;
        Box::pin(async move { channel.add_slots_with_index(slots).await.map(drop) })
    })
}
