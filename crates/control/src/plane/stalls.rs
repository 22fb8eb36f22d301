//! Does the store take what it is given, and who is told when it does not?
//!
//! Shards hear why the Standard lane takes nothing: the uploader's reason, else the index's, else the lease's. The log says it once,
//! then once a minute, and when it is over; single failures are not worth a line.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use wire::handoff::ToShard;

use crate::outbox::Outboxes;
use crate::rarely::SAID_AGAIN_AFTER;
use crate::store::Trouble;

/// How long the index fails to take a chunk, or the lease is not renewed, until shards are told.
const STALL_AFTER: Duration = Duration::from_secs(2);

/// What may keep the Standard lane from taking entries.
#[derive(Debug)]
pub(super) struct Causes {
    /// Chunks are not put; it knows by itself when that is for long.
    pub(super) uploader: watch::Receiver<Option<Arc<str>>>,
    /// A chunk is not applied.
    pub(super) index: watch::Receiver<Option<Trouble>>,
    /// The lease is not renewed.
    pub(super) lease: watch::Receiver<Option<Trouble>>,
}

impl Causes {
    /// Why the lane takes nothing as of now, and when to look again though nothing has changed.
    fn why(&mut self, now: Instant) -> (Option<Arc<str>>, Option<Instant>) {
        let stalled = self.uploader.borrow_and_update().clone();
        let troubles = [self.index.borrow_and_update().clone(), self.lease.borrow_and_update().clone()];
        let late_at = |trouble: &Trouble| trouble.since + STALL_AFTER;
        let (late, early): (Vec<Trouble>, Vec<Trouble>) =
            troubles.into_iter().flatten().partition(|trouble| late_at(trouble) <= now);
        let due = early.iter().map(late_at).min();
        (stalled.or_else(|| late.into_iter().next().map(|trouble| trouble.why)), due)
    }

    /// Waits for a change; false once there is no uploader, no index or no lease to change.
    async fn changed(&mut self) -> bool {
        let changed = tokio::select! {
            changed = self.uploader.changed() => changed,
            changed = self.index.changed() => changed,
            changed = self.lease.changed() => changed,
        };
        changed.is_ok()
    }
}

/// The outage that goes on.
#[derive(Debug)]
struct Outage {
    since: Instant,
    began: String,
    said: Instant,
}

/// Tells shards, the log and `note` whether the Standard lane is stalled, as that changes.
pub(super) async fn tell(outboxes: &Outboxes, mut causes: Causes, note: impl Fn(bool)) {
    let mut told: Option<Arc<str>> = None;
    let mut outage: Option<Outage> = None;
    loop {
        let now = Instant::now();
        let (why, due) = causes.why(now);
        if why != told {
            outboxes.send_all(&ToShard::Stall { why: why.clone() });
            note(why.is_some());
            told = why;
        }
        outage = say(outage, told.as_deref(), now);
        let remind = outage.as_ref().map(|outage| outage.said + SAID_AGAIN_AFTER);
        let goes_on = tokio::select! {
            goes_on = causes.changed() => goes_on,
            () = until(due.into_iter().chain(remind).min()) => true,
        };
        if !goes_on {
            return;
        }
    }
}

/// Says what is new about an outage.
fn say(outage: Option<Outage>, why: Option<&str>, now: Instant) -> Option<Outage> {
    match (outage, why) {
        (None, None) => None,
        (None, Some(why)) => {
            let began = utc_now();
            tracing::warn!(
                why,
                "the store takes nothing since {began}: Standard appends are unavailable, Express goes on"
            );
            Some(Outage { since: now, began, said: now })
        }
        (Some(outage), Some(why)) if now >= outage.said + SAID_AGAIN_AFTER => {
            let lasts_s = now.duration_since(outage.since).as_secs();
            tracing::warn!(why, lasts_s, "the store still takes nothing since {}", outage.began);
            Some(Outage { said: now, ..outage })
        }
        (outage @ Some(_), Some(_)) => outage,
        (Some(outage), None) => {
            let lasted_ms = now.duration_since(outage.since).as_millis();
            tracing::info!(lasted_ms, "the store takes commits again after {} s", lasted_ms / 1_000);
            None
        }
    }
}

/// The time of day, as a log line says it.
fn utc_now() -> String {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02} UTC", second / 3_600, second / 60 % 60, second % 60)
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
