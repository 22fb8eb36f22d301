//! How is the cluster's object read, made and changed, however often the store fails or another star is first?

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use wire::ids::{ClusterId, Epoch, StarId};

use super::cluster::{Cluster, ClusterDecodeError};
use crate::store::{ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError, StoreFuture, Version};

const CLUSTER: &str = "meta/cluster";
/// What a store has only once it has a cluster: buckets, chunks, and the index of slots.
const BELONGINGS: [&str; 3] = ["meta/buckets/", "c/", "m/"];
/// How often one operation is tried while the store can't be reached.
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// How often a change is decided again because someone else was first.
const ROUNDS: u32 = 16;

/// Why the cluster's object can't be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The object is damaged or of a later format.
    #[error("object {object} is no cluster ({source}); restore it from a copy")]
    Unreadable {
        /// The object.
        object: ObjectName,
        /// What is wrong with it.
        source: ClusterDecodeError,
    },
    /// It is not there, and what belongs to a cluster is.
    #[error("object {missing} is missing while {found} is there; restore it from a copy")]
    Lost {
        /// What is missing.
        missing: ObjectName,
        /// What is there.
        found: ObjectName,
    },
    /// It is not the one that the star's data belong to.
    #[error(
        "this star's data belong to cluster {known}, and {}; name the store of that cluster or bring it back, or start with \
         another data directory",
        what_is_there(*.found)
    )]
    Other {
        /// The cluster of the data.
        known: ClusterId,
        /// The store's, if it has one.
        found: Option<ClusterId>,
    },
    /// Others changed it each time.
    #[error("object {object} was changed by others {rounds} times in a row; try again")]
    Contended {
        /// The object.
        object: ObjectName,
        /// How often.
        rounds: u32,
    },
    /// The store is written by a later incarnation.
    #[error("incarnation {incarnation} is over: {}", by_whom(*.by))]
    Superseded {
        /// The one that is over.
        incarnation: Epoch,
        /// The one that goes on, if there is one.
        by: Option<(StarId, Epoch)>,
    },
}

impl ClusterError {
    /// Whether the store can't be reached or did not answer.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_away())
    }
}

fn what_is_there(found: Option<ClusterId>) -> String {
    found.map_or_else(|| "the store is empty".to_owned(), |found| format!("the store is that of cluster {found}"))
}

fn by_whom(by: Option<(StarId, Epoch)>) -> String {
    match by {
        Some((star, incarnation)) => format!("star {star} has taken the store over with incarnation {incarnation}"),
        None => "nobody has the store".to_owned(),
    }
}

/// Asks until the store answers, a few times.
pub(super) async fn insist<'a, T>(mut ask: impl FnMut() -> StoreFuture<'a, T>) -> Result<T, StoreError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        match ask().await {
            Err(StoreError::Unavailable { .. }) => {}
            answered => return answered,
        }
        sleep(pause).await;
        pause *= 2;
    }
    ask().await
}

/// The cluster's object.
pub(crate) fn object() -> ObjectName {
    ObjectName::parse(CLUSTER).expect("the name is plain")
}

/// Reads the cluster, making one in a store that has nothing.
pub(crate) async fn open(store: &dyn Store) -> Result<Cluster, ClusterError> {
    if let Some((cluster, _)) = read(store).await? {
        return Ok(cluster);
    }
    let missing = object();
    refuse_belongings(store).await?;
    let cluster = Cluster::new(ClusterId::from_bytes(uuid::Uuid::now_v7().into_bytes()));
    let (body, nonce) = (Bytes::from(cluster.encode()), PutNonce::fresh());
    match insist(|| store.put_if_absent(&missing, body.clone(), nonce)).await {
        Ok(_) => Ok(cluster),
        Err(StoreError::AlreadyExists { .. }) => {
            let made = read(store).await?.ok_or(StoreError::NotFound { name: missing })?;
            Ok(made.0)
        }
        Err(e) => Err(e.into()),
    }
}

/// Reads the cluster that a star's data belong to.
pub(crate) async fn open_known(store: &dyn Store, known: ClusterId) -> Result<Cluster, ClusterError> {
    match read(store).await? {
        Some((cluster, _)) if cluster.id == known => Ok(cluster),
        found => Err(ClusterError::Other { known, found: found.map(|(cluster, _)| cluster.id) }),
    }
}

/// The cluster that a store has, changing nothing; `None` for a store that has none and nothing that belongs to one. It must be the
/// one that is known.
pub(crate) async fn look(store: &dyn Store, known: Option<ClusterId>) -> Result<Option<ClusterId>, ClusterError> {
    if let Some(known) = known {
        return Ok(Some(open_known(store, known).await?.id));
    }
    match read(store).await? {
        Some((cluster, _)) => Ok(Some(cluster.id)),
        None => refuse_belongings(store).await.map(|()| None),
    }
}

/// Refuses a store without a cluster's object that has what belongs to one.
async fn refuse_belongings(store: &dyn Store) -> Result<(), ClusterError> {
    for prefix in BELONGINGS {
        let prefix = ObjectPrefix::parse(prefix).expect("the prefix is plain");
        if let Some(row) = insist(|| store.list(&prefix, None, 1)).await?.objects.first() {
            return Err(ClusterError::Lost { missing: object(), found: row.name.clone() });
        }
    }
    Ok(())
}

/// Reads the cluster of a store that has one.
pub(super) async fn find(store: &dyn Store) -> Result<Cluster, ClusterError> {
    let found = read(store).await?.map(|(cluster, _)| cluster);
    found.ok_or_else(|| StoreError::NotFound { name: object() }.into())
}

async fn read(store: &dyn Store) -> Result<Option<(Cluster, Version)>, ClusterError> {
    let object = object();
    let found = match insist(|| store.get(&object, Span::Whole)).await {
        Ok(found) => found,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    match Cluster::decode(&found.body) {
        Ok(cluster) => Ok(Some((cluster, found.meta.version))),
        Err(source) => Err(ClusterError::Unreadable { object, source }),
    }
}

/// Changes the cluster. `change` may be asked again about a newer one, and also about one that its own change is already in,
/// when the answer was lost and another star's change followed.
pub(crate) async fn update<T, E: From<ClusterError>>(
    store: &dyn Store,
    mut change: impl FnMut(&mut Cluster) -> Result<T, E>,
) -> Result<T, E> {
    let object = object();
    for _ in 0..ROUNDS {
        let found = read(store).await?;
        let (before, version) =
            found.ok_or_else(|| ClusterError::Store(StoreError::NotFound { name: object.clone() }))?;
        let mut cluster = before.clone();
        let answer = change(&mut cluster)?;
        if cluster == before {
            return Ok(answer);
        }
        let (body, nonce) = (Bytes::from(cluster.encode()), PutNonce::fresh());
        match insist(|| store.put_if_match(&object, &version, body.clone(), nonce)).await {
            Ok(_) => return Ok(answer),
            Err(StoreError::VersionMismatch { .. }) => {}
            Err(e) => return Err(ClusterError::Store(e).into()),
        }
    }
    Err(ClusterError::Contended { object, rounds: ROUNDS }.into())
}

/// The same by an incarnation that must still be the one that writes the store.
pub(crate) async fn update_as<T>(
    store: &dyn Store,
    incarnation: Epoch,
    mut change: impl FnMut(&mut Cluster) -> T,
) -> Result<T, ClusterError> {
    update(store, |cluster| {
        if !cluster.is_owned_by(incarnation) {
            let by = cluster.owner.map(|owner| (owner.star, owner.incarnation));
            return Err(ClusterError::Superseded { incarnation, by });
        }
        Ok(change(cluster))
    })
    .await
}
