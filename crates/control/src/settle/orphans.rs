//! Which objects does nothing know of?
//!
//! A bundle whose star died before the index heard of it, and chunks of a channel that was forgotten before they were deleted. They are
//! looked for rarely, and go only when all there is to know of them was read.

use failpoints::{Point, hit};
use wire::chunk::{ObjectHeader, ObjectKind};
use wire::ids::Epoch;
use wire::slot::Slot;

use super::source::Unfit;
use super::{SettleError, Settler, millis};
use crate::channel::{ChunkId, chunk_name};
use crate::index::ObjectId;
use crate::store::{ObjectName, ObjectPrefix, Span, StoreError};

/// Objects of one page of a listing.
const PAGE: usize = 1000;

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Orphans {
    /// Bundles that went.
    pub bundles: usize,
    /// Chunks that went.
    pub chunks: usize,
}

impl Settler {
    /// Deletes bundles of earlier tenures that the index does not know, and what is left of channels that were forgotten, once they are
    /// old enough. Nothing while the wall clock is not believed.
    ///
    /// # Errors
    /// [`SettleError`] at the first thing that can't be read; nothing is deleted after it.
    pub async fn orphan_step(&self, now_ms: i64) -> Result<Orphans, SettleError> {
        let is_believed = self.guard().as_ref().is_some_and(|guard| guard.fault().is_none());
        let mut found = Orphans::default();
        if !is_believed {
            return Ok(found);
        }
        for slot in Slot::all() {
            self.orphan_bundles(slot, now_ms, &mut found).await?;
        }
        self.orphan_chunks(now_ms, &mut found).await?;
        self.index.delete_old_generations().await?;
        if found != Orphans::default() {
            tracing::info!(bundles = found.bundles, chunks = found.chunks, "objects that nothing knew are deleted");
        }
        Ok(found)
    }

    async fn orphan_bundles(&self, slot: Slot, now_ms: i64, found: &mut Orphans) -> Result<(), SettleError> {
        let prefix = prefix(&format!("d/{:02x}/", slot.get()));
        let mut after: Option<ObjectName> = None;
        loop {
            let page = self.store.list(&prefix, after.as_ref(), PAGE).await?;
            for object in page.objects.iter().filter_map(|listed| ObjectId::bundle_of(slot, &listed.name)) {
                found.bundles += usize::from(self.delete_orphan_bundle(slot, object, now_ms).await?);
            }
            after = page.objects.last().map(|listed| listed.name.clone());
            if !page.more || after.is_none() {
                return Ok(());
            }
        }
    }

    async fn delete_orphan_bundle(&self, slot: Slot, object: ObjectId, now_ms: i64) -> Result<bool, SettleError> {
        let is_orphan = self.is_orphan(slot, object, now_ms).await?;
        if is_orphan {
            tracing::info!(object = %object.name(), "a bundle that nothing knows is deleted");
            hit(Point::OrphanDelete);
            self.store.delete(&object.name()).await?;
            self.counted().orphans_deleted += 1;
        }
        Ok(is_orphan)
    }

    async fn is_orphan(&self, slot: Slot, object: ObjectId, now_ms: i64) -> Result<bool, SettleError> {
        let ObjectId::Bundle { epoch, .. } = object else { return Ok(false) };
        if epoch >= self.channel.incarnation() || self.index.knows(slot, object).await? {
            return Ok(false);
        }
        let source = match self.source(object).await {
            Ok(source) => source,
            // What is not whole may be anything.
            Err(Unfit::Damaged(_) | Unfit::Store(StoreError::NotFound { .. } | StoreError::Corrupt { .. })) => {
                return Ok(false);
            }
            Err(Unfit::Store(error)) => return Err(error.into()),
        };
        let Some(header) = source.footer.header else { return Ok(false) };
        let is_it = (header.kind, header.slot, header.incarnation) == (ObjectKind::Bundle, slot, epoch);
        if !is_it || !self.is_old(&header, now_ms) {
            return Ok(false);
        }
        let rows = source.footer.extents.iter().filter(|row| row.has_records);
        let streams: Vec<_> = rows.map(|row| (row.stream_id, row.first..row.end)).collect();
        let found = self.index.extents_within(slot, &streams, |one| one == object).await?;
        if found.iter().any(|extents| !extents.is_empty()) {
            tracing::error!(object = %object.name(), "an object has extents and no row");
            return Ok(false);
        }
        Ok(true)
    }

    fn is_old(&self, header: &ObjectHeader, now_ms: i64) -> bool {
        now_ms.saturating_sub(header.created_ms) >= millis(self.options.orphan_age)
    }

    async fn orphan_chunks(&self, now_ms: i64, found: &mut Orphans) -> Result<(), SettleError> {
        let prefix = prefix("c/");
        let mut after: Option<ObjectName> = None;
        loop {
            let page = self.store.list(&prefix, after.as_ref(), PAGE).await?;
            let Some(first) = page.objects.first() else { return Ok(()) };
            let Some(ChunkId { incarnation, .. }) = chunk_of(&first.name) else {
                after = Some(first.name.clone());
                continue;
            };
            let low = self.forgotten_low(incarnation).await?;
            // Channel by channel: nobody looks at the chunks of those that are in use.
            let of_channel = page.objects.iter().map_while(|listed| chunk_of(&listed.name));
            let of_channel = of_channel.take_while(|chunk| chunk.incarnation == incarnation);
            let (below, beyond): (Vec<_>, Vec<_>) = of_channel.partition(|chunk| chunk.position < low);
            for chunk in &below {
                found.chunks += usize::from(self.delete_orphan_chunk(*chunk, now_ms).await?);
                after = Some(chunk_name(*chunk));
            }
            if low > 0 {
                found.chunks += self.delete_behind_fence(&beyond, now_ms).await?;
            }
            if below.len() < page.objects.len() || !page.more {
                after = Some(chunk_name(ChunkId { incarnation, position: u64::MAX }));
            }
        }
    }

    /// Deletes what a star put behind the fence of its channel: it was on its way when the star died, and was never committed.
    async fn delete_behind_fence(&self, chunks: &[ChunkId], now_ms: i64) -> Result<usize, SettleError> {
        // The fence alone is what is there mostly, and stays.
        if chunks.len() < 2 {
            return Ok(0);
        }
        let (mut is_behind, mut deleted) = (false, 0);
        for chunk in chunks {
            if is_behind {
                deleted += usize::from(self.delete_orphan_chunk(*chunk, now_ms).await?);
            } else {
                is_behind = self.header_of(*chunk).await?.is_some_and(|header| header.kind == ObjectKind::Fence);
            }
        }
        Ok(deleted)
    }

    /// Before which position a channel is needed by nobody; 0 unless it is one that was forgotten.
    async fn forgotten_low(&self, incarnation: Epoch) -> Result<u64, SettleError> {
        if incarnation >= self.channel.incarnation() || self.frees.lock().await.covers(incarnation) {
            return Ok(0);
        }
        let Some(last) = self.index.checkpointed(incarnation) else { return Ok(0) };
        let low = self.index.chunk_low(incarnation).await?;
        Ok(low.map_or(0, |low| low.min(last.saturating_add(1))))
    }

    /// What the object says of itself, if it is there and is what its name says.
    async fn header_of(&self, chunk: ChunkId) -> Result<Option<ObjectHeader>, SettleError> {
        let span = Span::Range { start: 0, end: ObjectHeader::BYTES as u64 };
        let head = match self.store.get(&chunk_name(chunk), span).await {
            Ok(head) => head.body,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let header = ObjectHeader::decode(&head).ok();
        Ok(header.filter(|header| (header.incarnation, header.position) == (chunk.incarnation, chunk.position)))
    }

    async fn delete_orphan_chunk(&self, chunk: ChunkId, now_ms: i64) -> Result<bool, SettleError> {
        let header = self.header_of(chunk).await?;
        if !header.is_some_and(|header| header.kind == ObjectKind::Chunk && self.is_old(&header, now_ms)) {
            return Ok(false);
        }
        let name = chunk_name(chunk);
        hit(Point::OrphanDelete);
        self.store.delete(&name).await?;
        self.counted().orphans_deleted += 1;
        Ok(true)
    }
}

pub(super) fn prefix(text: &str) -> ObjectPrefix {
    match ObjectPrefix::parse(text) {
        Ok(prefix) => prefix,
        Err(error) => unreachable!("digits and slashes are a prefix: {error}"),
    }
}

/// The chunk, or fence, that has this name.
pub(super) fn chunk_of(name: &ObjectName) -> Option<ChunkId> {
    let mut numbers = name.segments().skip(1).map(|segment| u64::from_str_radix(segment, 16).ok());
    let (incarnation, position) = (Epoch::new(numbers.next()??), numbers.next()??);
    let chunk = ChunkId { incarnation, position };
    (chunk_name(chunk) == *name).then_some(chunk)
}
