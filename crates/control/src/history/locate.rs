//! What do reads ask of the index?

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use wire::ids::{SeqNum, StreamId};
use wire::slot::Slot;

use crate::index::{Enough, Index, IndexError, Located};

/// The future of a question to the index.
pub type LocateFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, IndexError>> + Send + 'a>>;

/// Says where the settled records of a stream lie.
pub trait Locate: fmt::Debug + Send + Sync + 'static {
    /// Extents in order, from the one on that holds the record, or else the first one after it: until there are enough.
    fn extents_from(
        &self,
        slot: Slot,
        stream_id: StreamId,
        from: SeqNum,
        enough: Enough,
    ) -> LocateFuture<'_, Vec<Located>>;

    /// The first extent whose last record is stamped at or after `ms`.
    fn extent_at_time(&self, slot: Slot, stream_id: StreamId, ms: i64) -> LocateFuture<'_, Option<Located>>;
}

impl Locate for Index {
    fn extents_from(
        &self,
        slot: Slot,
        stream_id: StreamId,
        from: SeqNum,
        enough: Enough,
    ) -> LocateFuture<'_, Vec<Located>> {
        Box::pin(self.extents_from(slot, stream_id, from, enough))
    }

    fn extent_at_time(&self, slot: Slot, stream_id: StreamId, ms: i64) -> LocateFuture<'_, Option<Located>> {
        Box::pin(self.extent_at_time(slot, stream_id, ms))
    }
}
