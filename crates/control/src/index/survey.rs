//! Which objects do extents point to, and how much of each is live?

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use slatedb::config::DurabilityLevel;
use wire::ids::{SeqNum, StreamId};
use wire::slot::Slot;

use super::object_id::ObjectId;
use super::rows::extent::{self, Located};
use super::rows::object::{self, ObjectRow};
use super::{Index, IndexError};

/// An object that the index knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse {
    /// The object.
    pub object: ObjectId,
    /// Bytes of extents that a row points to.
    pub live_bytes: u64,
    /// Bytes of the extents it was made with.
    pub bytes: u64,
    /// When it was made, in milliseconds.
    pub created_ms: i64,
}

impl InUse {
    fn of(object: ObjectId, row: ObjectRow) -> Self {
        let ObjectRow { live_bytes, bytes, created_ms } = row;
        Self { object, live_bytes, bytes, created_ms }
    }
}

impl Index {
    /// The chunks that extents of any slot point to, by channel and position; their bytes are those of all slots together.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails.
    pub async fn chunks_in_use(&self) -> Result<Vec<InUse>, IndexError> {
        self.chunks_within(object::chunks()).await
    }

    /// Those of these chunks that extents of any slot point to.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails.
    pub async fn chunks_still_in_use(&self, chunks: &BTreeSet<ObjectId>) -> Result<Vec<InUse>, IndexError> {
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else { return Ok(Vec::new()) };
        let mut found = self.chunks_within(object::from_to(*first, *last)).await?;
        found.retain(|chunk| chunks.contains(&chunk.object));
        Ok(found)
    }

    async fn chunks_within(&self, range: Range<Vec<u8>>) -> Result<Vec<InUse>, IndexError> {
        let mut chunks = BTreeMap::new();
        for open in self.open_slots().await? {
            let mut rows = open.scan(range.clone(), DurabilityLevel::Memory).await?;
            while let Some((key, value)) = rows.next().await? {
                let object = open.row(object::decode_key(&key))?;
                let row = InUse::of(object, open.row(ObjectRow::decode(&value))?);
                let chunk = chunks.entry(object).or_insert(InUse { live_bytes: 0, bytes: 0, ..row });
                chunk.live_bytes += row.live_bytes;
                chunk.bytes += row.bytes;
            }
        }
        Ok(chunks.into_values().collect())
    }

    /// At most `limit` bundles of a slot, in the order of their ids, that come after `after`.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database fails.
    pub async fn bundles(&self, slot: Slot, after: Option<ObjectId>, limit: usize) -> Result<Vec<InUse>, IndexError> {
        let Some(open) = self.open_slot(slot).await? else { return Ok(Vec::new()) };
        let mut range = object::bundles();
        if let Some(after) = after {
            range.start = [&object::key(after)[..], &[0]].concat();
        }
        let mut rows = open.scan(range, DurabilityLevel::Memory).await?;
        let mut bundles = Vec::new();
        while bundles.len() < limit {
            let Some((key, value)) = rows.next().await? else { break };
            let object = open.row(object::decode_key(&key))?;
            bundles.push(InUse::of(object, open.row(ObjectRow::decode(&value))?));
        }
        Ok(bundles)
    }

    /// Whether extents of a slot point to any of these objects.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database fails.
    pub async fn points_to(&self, slot: Slot, objects: &BTreeSet<ObjectId>) -> Result<bool, IndexError> {
        let (Some(first), Some(last)) = (objects.first(), objects.last()) else { return Ok(false) };
        let Some(open) = self.open_slot(slot).await? else { return Ok(false) };
        let mut rows = open.scan(object::from_to(*first, *last), DurabilityLevel::Memory).await?;
        while let Some((key, value)) = rows.next().await? {
            let object = open.row(object::decode_key(&key))?;
            if objects.contains(&object) && open.row(ObjectRow::decode(&value))?.live_bytes > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a slot knows of an object.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database fails, or the slot has none: then it is not known what it would say.
    pub async fn knows(&self, slot: Slot, object: ObjectId) -> Result<bool, IndexError> {
        let open = self.open_slot(slot).await?.ok_or(IndexError::Missing { slot })?;
        Ok(open.get(&object::key(object)).await?.is_some())
    }

    /// The extents of streams with records within the range of each, in order, that lie in objects which `is_wanted` names. The streams
    /// are of one slot and in the order of their ids.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database fails.
    pub async fn extents_within(
        &self,
        slot: Slot,
        streams: &[(StreamId, Range<SeqNum>)],
        is_wanted: impl Fn(ObjectId) -> bool + Send,
    ) -> Result<Vec<Vec<Located>>, IndexError> {
        let mut found = vec![Vec::new(); streams.len()];
        let (Some((first, of_first)), Some((last, _))) = (streams.first(), streams.last()) else { return Ok(found) };
        let Some(open) = self.open_slot(slot).await? else { return Ok(found) };
        let range = extent::from(*first, of_first.start).start..extent::from(*last, SeqNum::ZERO).end;
        let mut rows = open.pass(range).await?;
        for ((stream_id, records), extents) in streams.iter().zip(&mut found) {
            let of_stream = extent::from(*stream_id, records.start);
            let mut row = rows.at(&of_stream.start).await?;
            while let Some(located) = open.located(row, &of_stream.end, records.end)? {
                extents.extend(is_wanted(located.object).then_some(located));
                row = rows.next().await?;
            }
        }
        Ok(found)
    }
}
