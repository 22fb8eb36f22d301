//! What is told to shards of why the Standard lane takes nothing: the uploader's reason, else the index's.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use wire::handoff::ToShard;

use crate::outbox::Outboxes;

/// How long the index fails to take a chunk until shards are told.
const INDEX_STALL_AFTER: Duration = Duration::from_secs(2);

/// A chunk that the index does not take.
#[derive(Clone, Debug)]
pub(super) struct Untaken {
    /// When it failed first.
    pub(super) since: Instant,
    /// How it failed last.
    pub(super) why: Arc<str>,
}

/// Tells shards whether the Standard lane takes entries, as that changes; until there is no uploader, or no index.
pub(super) async fn tell(
    outboxes: &Outboxes,
    mut uploader: watch::Receiver<Option<Arc<str>>>,
    mut index: watch::Receiver<Option<Untaken>>,
) {
    let mut told: Option<Arc<str>> = None;
    loop {
        let stalled = uploader.borrow_and_update().clone();
        let untaken = index.borrow_and_update().clone();
        let now = Instant::now();
        let (late, due) = match untaken {
            Some(Untaken { since, why }) if now >= since + INDEX_STALL_AFTER => (Some(why), None),
            Some(Untaken { since, .. }) => (None, Some(since + INDEX_STALL_AFTER)),
            None => (None, None),
        };
        let why = stalled.or(late);
        if why != told {
            outboxes.send_all(&ToShard::Stall { why: why.clone() });
            told = why;
        }
        let changed = tokio::select! {
            changed = uploader.changed() => changed,
            changed = index.changed() => changed,
            () = until(due) => Ok(()),
        };
        if changed.is_err() {
            return;
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
