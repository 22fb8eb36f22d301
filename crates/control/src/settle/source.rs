//! Where do the bytes that are copied come from?

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;
use wire::chunk::{Footer, ObjectError, ObjectHeader, check_extent};

use super::{SettleError, Settler};
use crate::index::ObjectId;
use crate::store::{Span, StoreError};

/// Objects that are read at a time.
const READS_AT_A_TIME: usize = 8;
/// How long an object that could not be read is left alone.
const LEAVE_ALONE: Duration = Duration::from_secs(3600);
/// Objects that are left alone at most.
const LEFT_ALONE_MAX: usize = 4096;

/// An object whose bytes are those that were put.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) object: ObjectId,
    pub(super) bytes: Bytes,
    pub(super) footer: Footer,
}

/// Objects that could not be copied, and when that was.
#[derive(Debug, Default)]
pub(super) struct Unreadable(BTreeMap<ObjectId, Instant>);

/// Why an object is no source.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("it is damaged: {0}")]
    Damaged(#[from] ObjectError),
}

impl Settler {
    /// Reads objects in order, until so many bytes are here; those that are missing or damaged are left out, and left alone for a
    /// while.
    pub(super) async fn sources(&self, objects: Vec<ObjectId>, bytes_max: u64) -> Result<Vec<Source>, SettleError> {
        let reads = objects.into_iter().map(|object| async move { (object, self.source(object).await) });
        let mut reads = Box::pin(stream::iter(reads).buffered(READS_AT_A_TIME));
        let (mut sources, mut bytes) = (Vec::new(), 0);
        while bytes < bytes_max
            && let Some((object, read)) = reads.next().await
        {
            match read {
                Ok(source) => {
                    bytes += source.bytes.len() as u64;
                    sources.push(source);
                }
                Err(Unfit::Store(error))
                    if !matches!(error, StoreError::NotFound { .. } | StoreError::Corrupt { .. }) =>
                {
                    return Err(error.into());
                }
                Err(unfit) => self.leave_alone(object, &unfit),
            }
        }
        Ok(sources)
    }

    /// From memory if it has all of it, else from the store.
    pub(super) async fn source(&self, object: ObjectId) -> Result<Source, Unfit> {
        if let Ok(source) = check(object, self.history.in_memory(object)) {
            return Ok(source);
        }
        let found = self.store.get(&object.name(), Span::Whole).await?;
        Ok(check(object, found.body)?)
    }

    /// Notes that an object can't be copied, or not all of it.
    pub(super) fn leave_alone(&self, object: ObjectId, error: &dyn std::error::Error) {
        tracing::error!(object = %object.name(), %error, "an object that extents point to can't be copied; restore it");
        self.counted().unreadable += 1;
        self.skip(object);
    }

    /// Leaves an object alone for a while.
    pub(super) fn skip(&self, object: ObjectId) {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if unreadable.0.len() < LEFT_ALONE_MAX {
            unreadable.0.insert(object, Instant::now());
        }
    }

    /// Whether an object could not be copied a while ago.
    pub(super) fn is_left_alone(&self, object: ObjectId) -> bool {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match unreadable.0.get(&object).map(Instant::elapsed) {
            Some(elapsed) if elapsed < LEAVE_ALONE => true,
            Some(_) => unreadable.0.remove(&object).is_none(),
            None => false,
        }
    }
}

/// Checks that all of an object is there as it was put.
fn check(object: ObjectId, bytes: Bytes) -> Result<Source, ObjectError> {
    ObjectHeader::decode(&bytes)?;
    let footer = Footer::decode_suffix(&bytes, bytes.len() as u64)?;
    for row in &footer.extents {
        let start = row.offset as usize;
        let end = start.saturating_add(row.bytes as usize).min(bytes.len());
        check_extent(row, bytes.get(start..end).unwrap_or_default())?;
    }
    Ok(Source { object, bytes, footer })
}
