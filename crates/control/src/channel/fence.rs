//! How is a channel closed so that nothing is committed to it any more, whatever its writer still does?
//!
//! First the writer's lease is replaced, so that it deletes no chunk from its low on. Then a fence takes the first absent
//! position, so that no chunk at or after it is ever committed. A fence is never deleted and its name never used again: a put
//! that arrives after years must still find it there.

use bytes::Bytes;
use failpoints::{Point, hit};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};
use wire::chunk::{ObjectBuilder, ObjectHeader, ObjectKind};
use wire::ids::{ClusterId, Epoch, StarId};
use wire::slot::Slot;

use std::sync::Arc;

use super::cas::insist;
use super::join::JoinError;
use super::lease::{self, Known, Lease, LeaseState, TTL_MS, Tenure};
use super::read::{ChunkId, chunk_name, probe};
use super::unix_ms;
use crate::store::{PutNonce, Span, Store, StoreError, Version};

/// Positions that are looked at side by side.
const PROBES: u64 = 16;
/// How much longer than its ttl a lease must stand still, in this process's time, before it counts as dead.
const MARGIN: Duration = Duration::from_millis(1_500);
/// Between looks at a lease that is hoped to stand still.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How often a lease is tried that others keep changing.
const ROUNDS: u32 = 16;

/// Reads a star's lease; `None` if it has none.
pub(super) async fn read_lease(store: &dyn Store, star: StarId) -> Result<Option<(Lease, Version)>, JoinError> {
    let object = lease::object_of(star);
    let found = match insist(|| store.get(&object, Span::Whole)).await {
        Ok(found) => found,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    match Lease::decode(&found.body) {
        Ok(lease) => Ok(Some((lease, found.meta.version))),
        Err(source) => Err(JoinError::Lease { object, source }),
    }
}

/// Puts a lease in place of the version that was read, or where none was; `None` when another was first.
pub(super) async fn replace_lease(
    store: &dyn Store,
    star: StarId,
    expected: Option<&Version>,
    lease: &Lease,
) -> Result<Option<Version>, StoreError> {
    let (object, body, nonce) = (lease::object_of(star), Bytes::from(lease.encode()), PutNonce::fresh());
    let put = match expected {
        Some(version) => insist(|| store.put_if_match(&object, version, body.clone(), nonce)).await,
        None => insist(|| store.put_if_absent(&object, body.clone(), nonce)).await,
    };
    match put {
        Ok(version) => Ok(Some(version)),
        Err(StoreError::VersionMismatch { .. } | StoreError::AlreadyExists { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Waits until the lease of another star has stood still for so long that it counts as dead, and gives it back.
pub(super) async fn wait_for_death(store: &dyn Store, owner: Tenure) -> Result<Option<(Lease, Version)>, JoinError> {
    let first = read_lease(store, owner.star).await?;
    // Ended or fenced, it holds nothing.
    if first.as_ref().is_some_and(|(lease, _)| lease.state != LeaseState::Held) {
        return Ok(first);
    }
    let ttl = Duration::from_millis(first.as_ref().map_or(TTL_MS, |(lease, _)| lease.ttl_ms).into());
    let (began, wait) = (Instant::now(), ttl + MARGIN);
    let Tenure { star, incarnation } = owner;
    tracing::info!(%star, %incarnation, wait_ms = wait.as_millis(), "another star has the store: waiting whether it lives");
    while began.elapsed() < wait {
        sleep(LOOK_AGAIN.min(wait.saturating_sub(began.elapsed()))).await;
        let now = read_lease(store, owner.star).await?;
        if now.as_ref().map(|(_, version)| version) != first.as_ref().map(|(_, version)| version) {
            return Err(JoinError::Owned { star, incarnation });
        }
    }
    Ok(first)
}

/// Fences the lease of a star, which must not be in use by a later incarnation than `by`, and gives back what it said.
pub(super) async fn fence_lease(store: &dyn Store, star: StarId, by: Tenure) -> Result<Lease, JoinError> {
    for _ in 0..ROUNDS {
        let found = read_lease(store, star).await?;
        let lease = found.as_ref().map_or_else(Lease::never_held, |(lease, _)| *lease);
        check_later(&lease, by)?;
        if lease.state == LeaseState::Fenced(by) {
            return Ok(lease);
        }
        let fenced = Lease { state: LeaseState::Fenced(by), ..lease };
        if replace_lease(store, star, found.as_ref().map(|(_, version)| version), &fenced).await?.is_some() {
            return Ok(lease);
        }
    }
    Err(JoinError::LeaseContended { object: lease::object_of(star), rounds: ROUNDS })
}

/// Fences exactly this lease; a star that has renewed it meanwhile lives.
pub(super) async fn fence_dead_lease(
    store: &dyn Store,
    owner: Tenure,
    dead: Option<(Lease, Version)>,
    by: Tenure,
) -> Result<(), JoinError> {
    let lease = dead.as_ref().map_or_else(Lease::never_held, |(lease, _)| *lease);
    let fenced = Lease { state: LeaseState::Fenced(by), ..lease };
    if replace_lease(store, owner.star, dead.as_ref().map(|(_, version)| version), &fenced).await?.is_some() {
        return Ok(());
    }
    Err(JoinError::Owned { star: owner.star, incarnation: owner.incarnation })
}

/// Takes the lease of the star that joins.
pub(super) async fn hold_lease(store: &dyn Store, own: Tenure) -> Result<Version, JoinError> {
    for _ in 0..ROUNDS {
        let found = read_lease(store, own.star).await?;
        if let Some((lease, _)) = &found {
            check_later(lease, own)?;
        }
        let version = found.as_ref().map(|(_, version)| version);
        if let Some(held) = replace_lease(store, own.star, version, &Lease::held(own.incarnation)).await? {
            return Ok(held);
        }
    }
    Err(JoinError::LeaseContended { object: lease::object_of(own.star), rounds: ROUNDS })
}

/// A lease belongs to the highest incarnation that has touched it.
fn check_later(lease: &Lease, own: Tenure) -> Result<(), JoinError> {
    let last = match lease.state {
        LeaseState::Fenced(by) => lease.incarnation.max(by.incarnation),
        LeaseState::Held | LeaseState::Released => lease.incarnation,
    };
    if last > own.incarnation {
        return Err(JoinError::Overtaken { incarnation: own.incarnation, by: last });
    }
    Ok(())
}

/// Puts a fence at the first absent position of a channel whose lease is fenced, and says where one stands.
pub(super) async fn seal(
    store: &Arc<dyn Store>,
    (cluster, by): (ClusterId, StarId),
    incarnation: Epoch,
    known: Known,
) -> Result<u64, JoinError> {
    // Pipelined puts leave holes behind the committed ones, so that positions are looked at one by one.
    let mut position = first_absent(store, incarnation, known.low.max(known.hint)).await?;
    loop {
        let chunk = ChunkId { incarnation, position };
        let (name, body, nonce) = (chunk_name(chunk), fence(cluster, by, chunk), PutNonce::fresh());
        hit(Point::FencePut);
        match insist(|| store.put_if_absent(&name, body.clone(), nonce)).await {
            Ok(_) => {
                hit(Point::FencePutDone);
                return Ok(position);
            }
            Err(StoreError::AlreadyExists { .. }) => {}
            Err(e) => return Err(e.into()),
        }
        match probe(store.as_ref(), chunk).await? {
            Some(header) if header.kind == ObjectKind::Fence => return Ok(position),
            Some(_) => position += 1,
            None => {
                let source = StoreError::NotFound { name };
                return Err(source.into());
            }
        }
    }
}

/// The first position from `position` on where no chunk is: nothing stands there, or a fence does.
async fn first_absent(store: &Arc<dyn Store>, incarnation: Epoch, mut position: u64) -> Result<u64, JoinError> {
    loop {
        let mut probes = JoinSet::new();
        for position in position..position + PROBES {
            let store = Arc::clone(store);
            probes.spawn(async move {
                let found = probe(store.as_ref(), ChunkId { incarnation, position }).await;
                (position, found)
            });
        }
        let mut looked = probes.join_all().await;
        looked.sort_by_key(|(position, _)| *position);
        for (at, found) in looked {
            if found?.is_none_or(|header| header.kind == ObjectKind::Fence) {
                return Ok(at);
            }
        }
        position += PROBES;
    }
}

fn fence(cluster: ClusterId, star: StarId, chunk: ChunkId) -> Bytes {
    bare(ObjectKind::Fence, (cluster, star), chunk)
}

/// An object of a channel that holds no entries.
pub(super) fn bare(kind: ObjectKind, (cluster, star): (ClusterId, StarId), chunk: ChunkId) -> Bytes {
    let ChunkId { incarnation, position } = chunk;
    let slot = Slot::new(0).expect("slot 0 is one");
    let header = ObjectHeader { kind, cluster, star, incarnation, position, slot, created_ms: unix_ms() };
    Bytes::from(ObjectBuilder::new(header).finish().bytes)
}
