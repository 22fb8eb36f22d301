//! How does what is applied become durable?
//!
//! Every slot that changed sends its rows to the store; then `meta/index` says that every slot has all chunks up to some. The object, replaced
//! by compare-and-swap, integers big-endian: `NVix`, format (u16, 2), zero (u16), CRC-32C of what follows (u32), the generation of the
//! databases (u64), the last incarnation that took it (u64), then the [row of applied chunks](super::rows::applied). Format 1 has neither
//! of the numbers, which are 0.
//!
//! Each start takes the record for its incarnation, so that whoever read it before can't replace it any more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use failpoints::{Point, hit};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use slatedb::config::{FlushOptions, FlushType};
use wire::crc::crc32c;
use wire::ids::Epoch;
use wire::slot::Slot;

use super::database::PREFIX;
use super::rows::RowError;
use super::rows::applied::AppliedChunks;
use super::rows::fields::Fields;
use super::slot::OpenSlot;
use super::{Index, IndexError, SinceCheckpoint};
use crate::store::{ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError, Version};

const MAGIC: &[u8; 4] = b"NVix";
const FORMAT: u16 = 2;
const HEAD_BYTES: usize = 12;
const WHAT: &str = "the record of the last checkpoint";
/// Slots that send their rows at a time.
const FLUSHES_AT_A_TIME: usize = 8;
/// Times that the record is put again after another one was there first.
const TRIES_MAX: usize = 8;

fn record_name() -> ObjectName {
    match ObjectName::parse("meta/index") {
        Ok(name) => name,
        Err(error) => unreachable!("a plain name: {error}"),
    }
}

/// What `meta/index` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Which databases are the index.
    pub(super) generation: u64,
    /// The last incarnation that took it.
    pub(super) taken_by: Epoch,
    /// Up to where every slot is durable.
    pub(super) applied: AppliedChunks,
}

impl Record {
    pub(super) fn encode(&self) -> Bytes {
        let mut rows = Vec::new();
        rows.extend_from_slice(&self.generation.to_be_bytes());
        rows.extend_from_slice(&self.taken_by.get().to_be_bytes());
        rows.extend_from_slice(&self.applied.encode());
        let mut out = Vec::with_capacity(HEAD_BYTES + rows.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&crc32c(&rows).to_be_bytes());
        out.extend_from_slice(&rows);
        out.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, RowError> {
        let length = || RowError::Length { what: WHAT, bytes: bytes.len() };
        let (head, rows) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or_else(length)?;
        let [m0, m1, m2, m3, f0, f1, _, _, c0, c1, c2, c3] = *head;
        let value = |value: u32| RowError::Value { what: WHAT, value: value.into() };
        if [m0, m1, m2, m3] != *MAGIC {
            return Err(value(u32::from_be_bytes([m0, m1, m2, m3])));
        }
        let (format, sum) = (u16::from_be_bytes([f0, f1]), u32::from_be_bytes([c0, c1, c2, c3]));
        if format != FORMAT {
            return Err(value(format.into()));
        }
        if sum != crc32c(rows) {
            return Err(value(sum));
        }
        let mut fields = Fields::of(WHAT, rows);
        let (generation, taken_by) = (fields.u64()?, Epoch::new(fields.u64()?));
        Ok(Self { generation, taken_by, applied: AppliedChunks::decode(fields.rest())? })
    }
}

/// Reads the record of the last checkpoint; nothing is checkpointed when there is none.
async fn load(store: &dyn Store) -> Result<(Record, Option<Version>), IndexError> {
    match store.get(&record_name(), Span::Whole).await {
        Ok(object) => {
            let record = Record::decode(&object.body).map_err(|source| IndexError::Checkpoint { source })?;
            Ok((record, Some(object.meta.version)))
        }
        Err(StoreError::NotFound { .. }) => Ok((Record::default(), None)),
        Err(error) => Err(error.into()),
    }
}

/// Puts the record in place of the version that was read, or where none was; `None` when another was first.
pub(super) async fn replace(
    store: &dyn Store,
    at: Option<&Version>,
    record: &Record,
) -> Result<Option<Version>, StoreError> {
    let (name, body, nonce) = (record_name(), record.encode(), PutNonce::fresh());
    let put = match at {
        Some(version) => store.put_if_match(&name, version, body, nonce).await,
        None => store.put_if_absent(&name, body, nonce).await,
    };
    match put {
        Ok(version) => Ok(Some(version)),
        Err(StoreError::AlreadyExists { .. } | StoreError::VersionMismatch { .. } | StoreError::NotFound { .. }) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What of a record can be read, whatever state it is in.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// The last incarnation that took it.
    pub(super) taken_by: Option<Epoch>,
    /// Up to where every slot was durable.
    pub(super) applied: AppliedChunks,
}

/// Reads the record to put another in its place.
pub(super) async fn find(store: &dyn Store) -> Result<(Found, Option<Version>), IndexError> {
    let object = match store.get(&record_name(), Span::Whole).await {
        Ok(object) => object,
        Err(StoreError::NotFound { .. }) => return Ok((Found::default(), None)),
        // Not even its body is what was put: it is there all the same.
        Err(StoreError::Corrupt { .. }) => {
            return Ok((Found::default(), Some(store.head(&record_name()).await?.version)));
        }
        Err(error) => return Err(error.into()),
    };
    let found = Record::decode(&object.body).map_or_else(
        |error| {
            tracing::warn!(%error, "meta/index can't be read and is made anew");
            Found::default()
        },
        |record| Found { taken_by: Some(record.taken_by), applied: record.applied },
    );
    Ok((found, Some(object.meta.version)))
}

/// Takes the record for an incarnation. Without one, there is an index only if no other than the first was ever made.
pub(super) async fn take(store: &dyn Store, by: Epoch) -> Result<(Record, Version), IndexError> {
    for _ in 0..TRIES_MAX {
        let (mut record, at) = load(store).await?;
        if record.taken_by > by {
            return Err(IndexError::Taken { by: record.taken_by });
        }
        if at.is_none() && has_later_generation(store).await? {
            return Err(IndexError::RecordLost);
        }
        record.taken_by = by;
        if let Some(version) = replace(store, at.as_ref(), &record).await? {
            return Ok((record, version));
        }
    }
    Err(IndexError::Contended { tries: TRIES_MAX })
}

/// Whether databases are there that a record names and not the first ones.
async fn has_later_generation(store: &dyn Store) -> Result<bool, IndexError> {
    let (Ok(prefix), Ok(after)) = (ObjectPrefix::parse(PREFIX), ObjectName::parse(&format!("{PREFIX}g"))) else {
        unreachable!("letters are a name")
    };
    Ok(!store.list(&prefix, Some(&after), 1).await?.objects.is_empty())
}

impl Index {
    /// Makes durable what is applied, and says so. Waits while the store takes nothing; given up, it has said nothing.
    ///
    /// # Errors
    /// [`IndexError`]; what is applied stays so, and the next checkpoint tries again.
    pub async fn checkpoint(&self) -> Result<(), IndexError> {
        let mut version = self.checkpointing.lock().await;
        let (applied, since) = {
            let progress = self.progress();
            (progress.applied.clone(), progress.since)
        };
        let slots = self.opened_slots().await?;
        let flushes = stream::iter(slots).map(|open| async move { flush(&open).await });
        flushes.buffer_unordered(FLUSHES_AT_A_TIME).try_collect::<()>().await?;
        let mut checkpointed = self.progress().checkpointed.clone();
        checkpointed.merge(&applied);
        if checkpointed != self.progress().checkpointed {
            hit(Point::CheckpointRecord);
            *version = self.put_record(&mut checkpointed, version.clone()).await?;
            hit(Point::CheckpointRecorded);
        }
        let mut progress = self.progress();
        progress.checkpointed = checkpointed;
        progress.since.chunks -= since.chunks;
        progress.since.chunk_bytes -= since.chunk_bytes;
        Ok(())
    }

    async fn put_record(&self, applied: &mut AppliedChunks, at: Version) -> Result<Version, IndexError> {
        let mut at = Some(at);
        for _ in 0..TRIES_MAX {
            let (generation, taken_by) = (self.generation, self.owner.incarnation);
            let record = Record { generation, taken_by, applied: applied.clone() };
            if let Some(version) = replace(&*self.store, at.as_ref(), &record).await? {
                return Ok(version);
            }
            let (other, version) = load(&*self.store).await?;
            if version.is_some() && (other.taken_by, other.generation) != (taken_by, generation) {
                return Err(IndexError::Taken { by: other.taken_by });
            }
            applied.merge(&other.applied);
            at = version;
        }
        Err(IndexError::Contended { tries: TRIES_MAX })
    }

    /// A checkpoint if it is time for one, `elapsed` after the last; whether it was.
    ///
    /// # Errors
    /// As [`Index::checkpoint`].
    pub async fn checkpoint_if_due(&self, elapsed: Duration) -> Result<bool, IndexError> {
        let since = self.since_checkpoint().await?;
        let is_due = self.options.checkpoint.is_due(&since, elapsed);
        if is_due {
            self.checkpoint().await?;
        }
        Ok(is_due)
    }

    /// What was applied since the last checkpoint.
    ///
    /// # Errors
    /// [`IndexError`] when a database that closed itself can't be opened.
    pub async fn since_checkpoint(&self) -> Result<SinceCheckpoint, IndexError> {
        let mut row_bytes = 0;
        for open in self.opened_slots().await? {
            row_bytes += open.writer.lock().await.row_bytes;
        }
        Ok(SinceCheckpoint { row_bytes, ..self.progress().since })
    }

    /// Up to which chunk of a channel every slot is applied; `None` before the first.
    #[must_use]
    pub fn applied(&self, incarnation: Epoch) -> Option<u64> {
        self.progress().applied.of(incarnation)
    }

    /// Up to which chunk of a channel every slot is applied durably; `None` before the first checkpoint.
    #[must_use]
    pub fn checkpointed(&self, incarnation: Epoch) -> Option<u64> {
        self.progress().checkpointed.of(incarnation)
    }

    /// Up to which chunks one slot is applied durably, as far as it knows itself: chunks without anything for it don't show.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database fails.
    pub async fn applied_checkpointed(&self, slot: Slot) -> Result<AppliedChunks, IndexError> {
        let Some(open) = self.open_slot(slot).await? else { return Ok(AppliedChunks::default()) };
        open.durably_applied().await
    }

    /// Closes every database after a last checkpoint.
    ///
    /// # Errors
    /// [`IndexError`] of the first that fails; what a checkpoint made durable stays so.
    pub async fn close(&self) -> Result<(), IndexError> {
        self.checkpoint().await?;
        for cell in &self.slots {
            let Some(open) = cell.lock().await.open.take() else { continue };
            open.db.close().await.map_err(|source| open.database(source))?;
        }
        Ok(())
    }
}

/// Sends the rows of a slot to the store, if any changed.
async fn flush(open: &Arc<OpenSlot>) -> Result<(), IndexError> {
    let (writes, row_bytes) = {
        let writer = open.writer.lock().await;
        if writer.writes == writer.durable_writes {
            return Ok(());
        }
        (writer.writes, writer.row_bytes)
    };
    let flushed = open.db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await;
    flushed.map_err(|source| open.database(source))?;
    let mut writer = open.writer.lock().await;
    writer.durable_writes = writes.max(writer.durable_writes);
    writer.row_bytes = writer.row_bytes.saturating_sub(row_bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ChunkId;

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_changed_bit_is_found() {
        let mut applied = AppliedChunks::default();
        applied.note(ChunkId { incarnation: Epoch::new(3), position: 70 });
        applied.note(ChunkId { incarnation: Epoch::new(5), position: 9 });
        let record = Record { generation: 7, taken_by: Epoch::new(9), applied: applied.clone() };
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Ok(record));
        for at in (0..bytes.len()).filter(|at| !(6..8).contains(at)) {
            let mut wrong = bytes.to_vec();
            wrong[at] ^= 1;
            assert!(Record::decode(&wrong).is_err(), "byte {at}");
        }
    }
}
