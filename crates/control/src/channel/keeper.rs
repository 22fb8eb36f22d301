//! How does a star keep its lease, say how far its channel is, and learn that another has taken over?
//!
//! One task holds the lease, and replaces it one step after another: every tenth of a minute, when the hint has fallen behind,
//! and when somebody asks for a higher low. A lease that is not what this task put there last is another's: the tenure is over.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use failpoints::{Point, hit};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use wire::ids::{ClusterId, Epoch, StarId};

use super::cas::{ClusterError, update_as};
use super::fence::read_lease;
use super::lease::{self, Lease, LeaseState, Tenure};
use super::logs::{self, LogFacts};
use crate::store::{PutNonce, Store, StoreError, Trouble, Version};

/// Between renewals: a third of the ttl.
const RENEW_AFTER: Duration = Duration::from_secs(10);
/// Committed positions that the hint falls behind at most.
const HINT_BEHIND: u64 = 64;
/// Between attempts while the store fails.
const AGAIN: Duration = Duration::from_millis(500);
/// A request that is not answered by then counts as failed: longer than a store of any kind that works.
pub(crate) const HANGS_AFTER: Duration = Duration::from_secs(10);

/// Why a star must stop: what it goes on to write is never committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "incarnation {incarnation} was fenced ({how}): another start has taken over this star's channel, and this one must end"
)]
pub struct Fenced {
    /// The incarnation that is over.
    pub incarnation: Epoch,
    /// How it shows.
    pub how: String,
}

/// Why something was not noted in the store.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// Another has taken over.
    #[error(transparent)]
    Fenced(#[from] Arc<Fenced>),
    /// The cluster's object can't be changed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The lease was released, or its task ended with the runtime.
    #[error("incarnation {incarnation} has released its lease")]
    Ended {
        /// The incarnation.
        incarnation: Epoch,
    },
}

/// The channel that this incarnation may write. Clones are the same channel; while one lives, its lease is kept.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("own", &self.shared.own).finish_non_exhaustive()
    }
}

struct Shared {
    store: Arc<dyn Store>,
    cluster: ClusterId,
    own: Tenure,
    /// The first position that is not committed.
    committed_to: AtomicU64,
    hint_is_old: Notify,
    fenced: watch::Sender<Option<Arc<Fenced>>>,
    /// Why the lease is not renewed.
    unrenewed: watch::Sender<Option<Trouble>>,
}

enum Command {
    Low(u64, oneshot::Sender<()>),
    Release(oneshot::Sender<()>),
}

impl Channel {
    /// Keeps the lease that this tenure has just taken.
    pub(super) fn keep(store: Arc<dyn Store>, cluster: ClusterId, own: Tenure, lease: Version) -> Self {
        let (committed_to, hint_is_old) = (AtomicU64::new(1), Notify::new());
        let (fenced, unrenewed) = (watch::Sender::new(None), watch::Sender::new(None));
        let shared = Arc::new(Shared { store, cluster, own, committed_to, hint_is_old, fenced, unrenewed });
        let (commands, asked) = mpsc::unbounded_channel();
        let keeper = Keeper { shared: Arc::clone(&shared), asked, lease: Lease::held(own.incarnation) };
        tokio::spawn(keeper.run(lease));
        Self { shared, commands }
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.shared.cluster
    }

    /// The star that writes it.
    #[must_use]
    pub fn star(&self) -> StarId {
        self.shared.own.star
    }

    /// The incarnation whose channel it is.
    #[must_use]
    pub fn incarnation(&self) -> Epoch {
        self.shared.own.incarnation
    }

    /// The store it lies in.
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Waits until another has taken over: the star must then answer nothing more and end.
    pub async fn fenced(&self) -> Arc<Fenced> {
        let mut told = self.shared.fenced.subscribe();
        match told.wait_for(Option::is_some).await.map(|fenced| fenced.clone()) {
            Ok(Some(fenced)) => fenced,
            // The sender lives as long as this channel does.
            _ => std::future::pending().await,
        }
    }

    /// Why the lease is not renewed now; `None` while it is.
    pub(crate) fn unrenewed(&self) -> watch::Receiver<Option<Trouble>> {
        self.shared.unrenewed.subscribe()
    }

    /// Whether another has taken over.
    pub(super) fn is_fenced(&self) -> bool {
        self.shared.fenced.borrow().is_some()
    }

    /// Why nothing more comes of this channel.
    pub(super) fn why_ended(&self) -> ChannelError {
        match self.shared.fenced.borrow().as_ref() {
            Some(fenced) => ChannelError::Fenced(Arc::clone(fenced)),
            None => ChannelError::Ended { incarnation: self.incarnation() },
        }
    }

    /// Notes that another has taken over.
    pub(super) fn end(&self, how: String) {
        self.shared.end(how);
    }

    /// The first position that is not committed.
    pub(crate) fn committed_to(&self) -> u64 {
        self.shared.committed_to.load(Ordering::Acquire)
    }

    /// Notes that every chunk before this position is committed.
    pub(super) fn on_committed(&self, committed_to: u64) {
        self.shared.committed_to.store(committed_to, Ordering::Release);
        if committed_to.is_multiple_of(HINT_BEHIND) {
            self.shared.hint_is_old.notify_one();
        }
    }

    /// Says to all that chunks before `low` are needed by no one. Once it has answered, and not before, they may be deleted.
    ///
    /// # Errors
    /// See [`ChannelError`]; nothing may be deleted then.
    ///
    /// # Panics
    /// If chunks before `low` are not all committed.
    pub async fn publish_low(&self, low: u64) -> Result<(), ChannelError> {
        let committed_to = self.shared.committed_to.load(Ordering::Acquire);
        assert!(low <= committed_to, "low {low} is past the {committed_to} chunks that are committed");
        self.ask(|answer| Command::Low(low, answer)).await
    }

    /// Notes how far head logs have come, and that they are in use. A log that was made after the star joined, or begun anew in its
    /// epoch, takes no record before this has answered.
    ///
    /// # Errors
    /// See [`ChannelError`].
    pub async fn note_logs(&self, logs: &[LogFacts]) -> Result<(), ChannelError> {
        let star = self.star();
        Ok(self.update(|cluster| logs::note(cluster, star, logs, |_| false)).await?)
    }

    /// Notes that these slots have an index, a bit each, before the first of it is written.
    ///
    /// # Errors
    /// See [`ChannelError`].
    pub async fn add_slots_with_index(&self, slots: u64) -> Result<u64, ChannelError> {
        let added = self.update(|cluster| {
            cluster.slots_with_index |= slots;
            cluster.slots_with_index
        });
        Ok(added.await?)
    }

    /// Forgets an earlier channel, all of whose chunks are in the durable index of every slot. Only then may they be deleted, its
    /// fence never.
    ///
    /// # Errors
    /// See [`ChannelError`].
    pub async fn forget_prior(&self, incarnation: Epoch) -> Result<(), ChannelError> {
        let forget = self.update(|cluster| {
            cluster.channels.retain(|channel| channel.incarnation != incarnation || channel.end.is_none());
        });
        Ok(forget.await?)
    }

    /// Ends the tenure in order: the store is free for any star, and those of the logs that are clean can do without this one's
    /// disk. Everything that was handed over is committed before.
    ///
    /// # Errors
    /// See [`ChannelError`]; the next start then takes over as after a crash.
    pub async fn release(&self, logs: &[LogFacts]) -> Result<(), ChannelError> {
        hit(Point::Release);
        self.ask(Command::Release).await?;
        hit(Point::Released);
        let star = self.star();
        let released = self.update(|cluster| {
            logs::note(cluster, star, logs, |facts| facts.clean);
            if let Some(owner) = &mut cluster.owner {
                owner.released = true;
            }
        });
        Ok(released.await?)
    }

    async fn update<T>(&self, change: impl FnMut(&mut super::cluster::Cluster) -> T) -> Result<T, ClusterError> {
        update_as(self.shared.store.as_ref(), self.incarnation(), change).await
    }

    async fn ask(&self, command: impl FnOnce(oneshot::Sender<()>) -> Command) -> Result<(), ChannelError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).map_err(|_| self.why_ended())?;
        answered.await.map_err(|_| self.why_ended())
    }
}

impl Shared {
    fn end(&self, how: String) {
        let fenced = Arc::new(Fenced { incarnation: self.own.incarnation, how });
        self.fenced.send_if_modified(|told| {
            let is_first = told.is_none();
            if is_first {
                tracing::error!(error = %fenced, "fenced");
                *told = Some(fenced);
            }
            is_first
        });
    }
}

/// Holds the lease.
struct Keeper {
    shared: Arc<Shared>,
    asked: mpsc::UnboundedReceiver<Command>,
    lease: Lease,
}

impl Keeper {
    async fn run(mut self, mut version: Version) {
        let shared = Arc::clone(&self.shared);
        let mut told = shared.fenced.subscribe();
        let mut renew_at = Instant::now() + RENEW_AFTER;
        loop {
            let mut answers = Vec::new();
            let mut ends = false;
            tokio::select! {
                _ = told.wait_for(Option::is_some) => return,
                command = self.asked.recv() => match command {
                    Some(Command::Low(low, answer)) => {
                        self.lease.low = self.lease.low.max(low);
                        answers.push(answer);
                    }
                    Some(Command::Release(answer)) => {
                        (self.lease.state, ends) = (LeaseState::Released, true);
                        answers.push(answer);
                    }
                    None => return,
                },
                () = shared.hint_is_old.notified() => {}
                () = sleep_until(renew_at) => {}
            }
            self.lease.renewals += 1;
            self.lease.hint = shared.committed_to.load(Ordering::Acquire);
            let began = Instant::now();
            hit(Point::LeaseRenew);
            version = match self.replace(&version).await {
                Ok(replaced) => replaced,
                Err(how) => return shared.end(how),
            };
            hit(Point::LeaseRenewed);
            renew_at = began + RENEW_AFTER;
            // Whoever asked and is gone does not need the answer.
            for answer in answers {
                answer.send(()).ok();
            }
            if ends {
                return;
            }
        }
    }

    /// Puts the lease in place of the one put before, however long it takes; says how it shows that another is there.
    async fn replace(&self, version: &Version) -> Result<Version, String> {
        let (object, nonce) = (lease::object_of(self.shared.own.star), PutNonce::fresh());
        let (body, since) = (Bytes::from(self.lease.encode()), Instant::now());
        loop {
            // Given up, it may still arrive later, and is then found to be the same.
            let put = self.shared.store.put_if_match(&object, version, body.clone(), nonce);
            match timeout(HANGS_AFTER, put).await {
                Ok(Ok(replaced)) => {
                    self.shared.unrenewed.send_if_modified(|trouble| trouble.take().is_some());
                    return Ok(replaced);
                }
                Ok(Err(StoreError::VersionMismatch { .. } | StoreError::NotFound { .. })) => {
                    return Err(self.whose().await);
                }
                Ok(Err(error)) => {
                    tracing::debug!(%object, %error, "the lease is not renewed");
                    self.is_unrenewed(since, &error.to_string());
                }
                Err(_) => self.is_unrenewed(since, &format!("no answer within {} s", HANGS_AFTER.as_secs())),
            }
            sleep(AGAIN).await;
        }
    }

    fn is_unrenewed(&self, since: Instant, error: &str) {
        let why = format!("the lease is not renewed: {error}").into();
        self.shared.unrenewed.send_replace(Some(Trouble { since, why }));
    }

    /// Whose lease stands there.
    async fn whose(&self) -> String {
        match read_lease(self.shared.store.as_ref(), self.shared.own.star).await {
            Ok(Some((Lease { state: LeaseState::Fenced(by), .. }, _))) => {
                format!("its lease was taken by star {} with incarnation {}", by.star, by.incarnation)
            }
            Ok(Some((lease, _))) => format!("its lease is held by incarnation {}", lease.incarnation),
            Ok(None) => "its lease is gone".to_owned(),
            Err(error) => format!("its lease is another's: {error}"),
        }
    }
}
