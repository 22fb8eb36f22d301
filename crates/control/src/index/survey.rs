//! Which objects do extents point to, and how much of each is live?

use std::collections::BTreeMap;

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
        let mut chunks = BTreeMap::new();
        for open in self.open_slots().await? {
            let mut rows = open.scan(object::chunks(), DurabilityLevel::Memory).await?;
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

    /// Whether a slot knows of an object.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database fails, or the slot has none: then it is not known what it would say.
    pub async fn knows(&self, slot: Slot, object: ObjectId) -> Result<bool, IndexError> {
        let open = self.open_slot(slot).await?.ok_or(IndexError::Missing { slot })?;
        Ok(open.get(&object::key(object)).await?.is_some())
    }

    /// The extents of a stream with records in `from..to`, in order, that lie in objects which `is_wanted` names.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database fails.
    pub async fn extents_within(
        &self,
        (slot, stream_id): (Slot, StreamId),
        (from, to): (SeqNum, SeqNum),
        is_wanted: impl Fn(ObjectId) -> bool + Send,
    ) -> Result<Vec<Located>, IndexError> {
        let Some(open) = self.open_slot(slot).await? else { return Ok(Vec::new()) };
        let mut rows = open.scan(extent::from(stream_id, from), DurabilityLevel::Memory).await?;
        let mut extents = Vec::new();
        while let Some((key, value)) = rows.next().await? {
            let located = open.row(Located::decode(&key, &value))?;
            if located.first >= to {
                break;
            }
            extents.extend(is_wanted(located.object).then_some(located));
        }
        Ok(extents)
    }
}
