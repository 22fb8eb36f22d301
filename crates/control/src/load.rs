//! What does the store hold when a star starts, and is all of it readable?
//!
//! What can't be read is never taken for absent: the star does not start, and the object is named.

use std::sync::Arc;

use tokio::task::JoinSet;
use wire::bucket::{Bucket, BucketDecodeError};
use wire::ids::ClusterId;
use wire::names::BucketName;

use crate::channel::{self, ClusterError};
use crate::store::{ListPage, NameError, ObjectName, ObjectPrefix, Span, Store, StoreError, Version};

const BUCKETS: &str = "meta/buckets/";
/// Buckets read at a time.
const PAGE: usize = 64;

/// Why what the store holds can't be served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store failed, or holds a damaged object.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The cluster can't be told, and the store did not fail.
    #[error(transparent)]
    Cluster(ClusterError),
    /// A bucket is damaged or of a later format.
    #[error("object {object} is no bucket ({source}); restore it from a copy")]
    Bucket {
        /// The object.
        object: ObjectName,
        /// What is wrong with it.
        source: BucketDecodeError,
    },
    /// A bucket stands where another belongs.
    #[error("object {object} holds bucket {found}; put it back under its own name")]
    Misplaced {
        /// The object.
        object: ObjectName,
        /// Whose bytes it holds.
        found: BucketName,
    },
    /// A name that is made of valid parts is too long for the store.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl From<ClusterError> for LoadError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Store(e) => Self::Store(e),
            other => Self::Cluster(other),
        }
    }
}

/// All that control starts from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) cluster: ClusterId,
    pub(crate) buckets: Vec<(Bucket, Version)>,
}

/// The object of a bucket.
pub(crate) fn object_of(bucket: &BucketName) -> Result<ObjectName, NameError> {
    ObjectName::parse(&format!("{BUCKETS}{bucket}"))
}

/// Reads the cluster's identity and all buckets. It must be the one that is known; when none is, it is made in a store that has
/// none and no bucket.
pub(crate) async fn load(store: &Arc<dyn Store>, known: Option<ClusterId>) -> Result<Loaded, LoadError> {
    let cluster = match known {
        Some(known) => channel::open_known(store.as_ref(), known).await?.id,
        None => channel::open(store.as_ref()).await?.id,
    };
    let prefix = ObjectPrefix::parse(BUCKETS)?;
    let (mut buckets, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(&prefix, after.as_ref(), PAGE).await?;
        read_page(store, &page, &mut buckets).await?;
        match page.objects.last() {
            Some(last) if page.more => after = Some(last.name.clone()),
            _ => return Ok(Loaded { cluster, buckets }),
        }
    }
}

/// Reads one bucket; `None` if its object is not there.
pub(crate) async fn read_bucket(
    store: &dyn Store,
    object: &ObjectName,
) -> Result<Option<(Bucket, Version)>, LoadError> {
    let found = match store.get(object, Span::Whole).await {
        Ok(found) => found,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let bucket = Bucket::decode(&found.body).map_err(|source| LoadError::Bucket { object: object.clone(), source })?;
    if object_of(&bucket.name)? != *object {
        return Err(LoadError::Misplaced { object: object.clone(), found: bucket.name });
    }
    Ok(Some((bucket, found.meta.version)))
}

async fn read_page(
    store: &Arc<dyn Store>,
    page: &ListPage,
    buckets: &mut Vec<(Bucket, Version)>,
) -> Result<(), LoadError> {
    let mut reads = JoinSet::new();
    for row in &page.objects {
        let (store, object) = (Arc::clone(store), row.name.clone());
        reads.spawn(async move { read_bucket(store.as_ref(), &object).await });
    }
    for read in reads.join_all().await {
        // Removed by another star since it was listed: not there is what it is.
        buckets.extend(read?);
    }
    Ok(())
}
