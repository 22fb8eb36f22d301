//! How does a star become the one that writes a store, and what keeps it from that?

use std::sync::Arc;

use failpoints::{Point, hit};
use wire::chunk::ObjectKind;
use wire::ids::{ClusterId, Epoch, StarId};

use super::cas::{self, ClusterError, insist, update};
use super::cluster::{ChannelRecord, Cluster, Owner};
use super::fence::{bare, fence_dead_lease, fence_lease, hold_lease, seal, wait_for_death};
use super::keeper::Channel;
use super::lease::{LeaseDecodeError, Tenure};
use super::logs::{self, KnownLogs, LogFacts, LogFault};
use super::read::{ChunkId, ReadError, chunk_name};
use crate::store::{ObjectName, PutNonce, Store, StoreError, Version};

/// Who joins, with what.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// The star. The same one after a restart takes over from itself at once.
    pub star: StarId,
    /// Every head log that is here, those that were just made too. Those that the store knows are in use from now on, and in a new
    /// store all are; others once [`Channel::note_logs`] says so.
    pub logs: Vec<LogFacts>,
    /// The incarnation is this one or higher: one more than the highest epoch in any head log.
    pub at_least: Epoch,
    /// An operator says to go on without what can't be had.
    pub accept_loss: bool,
}

/// The channel of an incarnation that is over; its chunks are `low..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorChannel {
    /// The incarnation.
    pub incarnation: Epoch,
    /// Chunks before this position may be deleted.
    pub low: u64,
    /// Where its fence stands.
    pub end: u64,
}

/// What a star has that may write.
#[derive(Debug)]
pub struct Joined {
    /// The cluster.
    pub cluster: ClusterId,
    /// The incarnation of this tenure, of which there is no other.
    pub incarnation: Epoch,
    /// Channels that may hold chunks which are not in every index yet, by incarnation.
    pub prior: Vec<PriorChannel>,
    /// Slots with an index, a bit each.
    pub slots_with_index: u64,
    /// The last incarnation that began with an accepted loss; 0 if none did. This one if this one did.
    pub loss_epoch: Epoch,
    /// What was accepted to be lost. A log in it that is here must not be written: the store has forgotten it.
    pub lost: Vec<LogFault>,
    /// The head logs that the store knew before.
    pub(crate) known_logs: KnownLogs,
    /// The channel that this incarnation writes.
    pub channel: Channel,
}

/// Why a star may not write.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The cluster's object can't be read or changed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A chunk can't be read.
    #[error(transparent)]
    Chunk(#[from] ReadError),
    /// A lease can't be read.
    #[error("object {object} is no lease ({source}); restore it from a copy")]
    Lease {
        /// The object.
        object: ObjectName,
        /// What is wrong with it.
        source: LeaseDecodeError,
    },
    /// Others change the lease all the time.
    #[error("object {object} was changed by others {rounds} times in a row; does a star of the same id run elsewhere?")]
    LeaseContended {
        /// The object.
        object: ObjectName,
        /// How often.
        rounds: u32,
    },
    /// Another star writes the store and is alive.
    #[error("the store is in use by star {star} (incarnation {incarnation}), which is alive; stop it first")]
    Owned {
        /// The star.
        star: StarId,
        /// Its incarnation.
        incarnation: Epoch,
    },
    /// Head logs don't fit the store.
    #[error(
        "{}; bring back what is missing, or start with --accept-loss to go on without it",
        faults.iter().map(LogFault::to_string).collect::<Vec<_>>().join("; ")
    )]
    Logs {
        /// What is wrong with each.
        faults: Vec<LogFault>,
    },
    /// A later start was faster.
    #[error(
        "incarnation {incarnation} was overtaken by incarnation {by}; does another start go on with the same store?"
    )]
    Overtaken {
        /// The one that was being taken.
        incarnation: Epoch,
        /// The later one.
        by: Epoch,
    },
}

/// Takes the store for a star: a new incarnation, every earlier channel fenced, and an empty channel of its own. Waits for up to
/// half a minute to see whether another star that has not released the store is alive. Must run inside a tokio runtime.
///
/// # Errors
/// See [`JoinError`]; it can be asked again. Nothing an earlier incarnation has committed is ever lost by it.
pub async fn join(store: &Arc<dyn Store>, request: JoinRequest) -> Result<Joined, JoinError> {
    let cluster = cas::open(store.as_ref()).await?;
    let faults = logs::judge(&cluster, &request.logs);
    if !request.accept_loss && !faults.is_empty() && other_owner(&cluster, request.star).is_none() {
        return Err(JoinError::Logs { faults });
    }
    join_with(store, &cluster, Asking { request, has_logs: true }).await
}

/// Takes the store to repair it, as [`join`] does, by a star that has no head logs and says nothing of those there are: their stars
/// come back to them as they left them.
///
/// # Errors
/// See [`JoinError`]. A store that has no cluster is none to repair.
pub async fn take_over(store: &Arc<dyn Store>) -> Result<Joined, JoinError> {
    let star = StarId::from_bytes(uuid::Uuid::now_v7().into_bytes());
    let request = JoinRequest { star, logs: Vec::new(), at_least: Epoch::ZERO, accept_loss: false };
    let cluster = cas::find(store.as_ref()).await?;
    join_with(store, &cluster, Asking { request, has_logs: false }).await
}

/// What is asked for.
struct Asking {
    request: JoinRequest,
    /// Whether it is to be judged by its head logs.
    has_logs: bool,
}

async fn join_with(store: &Arc<dyn Store>, cluster: &Cluster, asking: Asking) -> Result<Joined, JoinError> {
    let request = &asking.request;
    let reserved = displace(store.as_ref(), cluster, &asking).await?;
    hit(Point::IncarnationTake);
    let taken = update(store.as_ref(), |cluster| take(cluster, &asking, reserved)).await?;
    hit(Point::IncarnationTaken);
    let own = Tenure { star: request.star, incarnation: taken.incarnation };
    let sealed = seal_all(store, &taken, own).await?;
    hit(Point::SealNoted);
    let lease = begin(store.as_ref(), taken.cluster.id, own).await?;
    let channel = Channel::keep(Arc::clone(store), taken.cluster.id, own, lease);
    Ok(Joined {
        cluster: taken.cluster.id,
        incarnation: own.incarnation,
        prior: sealed,
        slots_with_index: taken.cluster.slots_with_index,
        loss_epoch: taken.cluster.loss_epoch,
        lost: taken.faults,
        known_logs: taken.known_logs,
        channel,
    })
}

/// What the cluster was when this incarnation was taken.
struct Taken {
    cluster: Cluster,
    incarnation: Epoch,
    faults: Vec<LogFault>,
    known_logs: KnownLogs,
}

/// Another star that has not released the store.
fn other_owner(cluster: &Cluster, star: StarId) -> Option<Tenure> {
    let owner = cluster.owner.filter(|owner| owner.star != star && !owner.released)?;
    Some(Tenure { star: owner.star, incarnation: owner.incarnation })
}

/// Fences the lease of another star that holds the store and is dead, and says with which incarnation; `None` if there is none.
async fn displace(store: &dyn Store, cluster: &Cluster, asking: &Asking) -> Result<Option<(Tenure, Epoch)>, JoinError> {
    let request = &asking.request;
    let Some(owner) = other_owner(cluster, request.star) else { return Ok(None) };
    let dead = wait_for_death(store, owner).await?;
    let incarnation = update(store, |cluster| {
        refuse_others(cluster, request.star, Some(owner))?;
        refuse_loss(cluster, asking)?;
        Ok::<_, JoinError>(cluster.take_epoch(request.at_least))
    });
    let incarnation = incarnation.await?;
    fence_dead_lease(store, owner, dead, Tenure { star: request.star, incarnation }).await?;
    Ok(Some((owner, incarnation)))
}

/// Refuses while a star other than this one and the dead one has the store.
fn refuse_others(cluster: &Cluster, star: StarId, dead: Option<Tenure>) -> Result<(), JoinError> {
    match other_owner(cluster, star).filter(|owner| dead != Some(*owner)) {
        Some(Tenure { star, incarnation }) => Err(JoinError::Owned { star, incarnation }),
        None => Ok(()),
    }
}

/// What is wrong with the head logs, if an operator has accepted it.
fn refuse_loss(cluster: &Cluster, Asking { request, has_logs }: &Asking) -> Result<Vec<LogFault>, JoinError> {
    let faults = if *has_logs { logs::judge(cluster, &request.logs) } else { Vec::new() };
    if faults.is_empty() || request.accept_loss { Ok(faults) } else { Err(JoinError::Logs { faults }) }
}

/// Makes the star the owner, with its logs in use and a channel that is not sealed.
fn take(cluster: &mut Cluster, asking: &Asking, reserved: Option<(Tenure, Epoch)>) -> Result<Taken, JoinError> {
    let request = &asking.request;
    refuse_others(cluster, request.star, reserved.map(|(dead, _)| dead))?;
    let faults = refuse_loss(cluster, asking)?;
    let (known_logs, is_new) = (KnownLogs::of(cluster), cluster.owner.is_none());
    let incarnation = reserved.map_or_else(|| cluster.take_epoch(request.at_least), |(_, incarnation)| incarnation);
    if let Some(owner) = cluster.owner.filter(|owner| owner.incarnation > incarnation) {
        return Err(JoinError::Overtaken { incarnation, by: owner.incarnation });
    }
    let star = request.star;
    cluster.owner = Some(Owner { star, incarnation, released: false });
    if cluster.channels.iter().all(|channel| channel.incarnation != incarnation) {
        cluster.channels.push(ChannelRecord { star, incarnation, low: 0, end: None });
    }
    if asking.has_logs {
        logs::take(cluster, star, &request.logs, &faults, is_new);
    }
    if !faults.is_empty() {
        cluster.loss_epoch = incarnation;
    }
    Ok(Taken { cluster: cluster.clone(), incarnation, faults, known_logs })
}

/// Fences every channel but this incarnation's, and gives back those that hold more than position 0.
async fn seal_all(store: &Arc<dyn Store>, taken: &Taken, own: Tenure) -> Result<Vec<PriorChannel>, JoinError> {
    let mut ends = Vec::new();
    let open = |channel: &&ChannelRecord| channel.end.is_none() && channel.incarnation != own.incarnation;
    for channel in taken.cluster.channels.iter().filter(open) {
        let known = fence_lease(store.as_ref(), channel.star, own).await?.known_of(channel.incarnation);
        let end = seal(store, (taken.cluster.id, own.star), channel.incarnation, known).await?;
        tracing::info!(incarnation = %channel.incarnation, end, "an earlier channel is fenced");
        ends.push(PriorChannel { incarnation: channel.incarnation, low: known.low, end });
    }
    update(store.as_ref(), |cluster| {
        if !cluster.is_owned_by(own.incarnation) {
            let by = cluster.owner.map_or(cluster.next_epoch, |owner| owner.incarnation);
            return Err(JoinError::Overtaken { incarnation: own.incarnation, by });
        }
        for channel in &mut cluster.channels {
            if let Some(sealed) = ends.iter().find(|sealed| sealed.incarnation == channel.incarnation) {
                (channel.low, channel.end) = (sealed.low, Some(sealed.end));
            }
        }
        // Position 0 holds no entries: there is nothing to replay.
        cluster.channels.retain(|channel| channel.end.is_none_or(|end| end > 1));
        let prior = |channel: &ChannelRecord| {
            let ChannelRecord { incarnation, low, .. } = *channel;
            channel.end.map(|end| PriorChannel { incarnation, low, end })
        };
        let mut prior: Vec<_> = cluster.channels.iter().filter_map(prior).collect();
        prior.sort_by_key(|channel| channel.incarnation);
        Ok(prior)
    })
    .await
}

/// Writes position 0 of the own channel, and takes the lease.
async fn begin(store: &dyn Store, cluster: ClusterId, own: Tenure) -> Result<Version, JoinError> {
    let chunk = ChunkId { incarnation: own.incarnation, position: 0 };
    let (name, nonce) = (chunk_name(chunk), PutNonce::fresh());
    let body = bare(ObjectKind::Chunk, (cluster, own.star), chunk);
    match insist(|| store.put_if_absent(&name, body.clone(), nonce)).await {
        Ok(_) => {
            hit(Point::ChannelBegun);
            hold_lease(store, own).await
        }
        Err(StoreError::AlreadyExists { .. }) => {
            let cluster = cas::open(store).await?;
            let by = cluster.owner.map_or(cluster.next_epoch, |owner| owner.incarnation);
            Err(JoinError::Overtaken { incarnation: own.incarnation, by })
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests;
