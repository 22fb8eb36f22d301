//! How does a committed chunk get into the rows of a slot?

use bytes::Bytes;
use wire::chunk::ExtentRow;
use wire::ids::SeqNum;

use super::error::IndexError;
use super::fold::{Folded, fold};
use super::object_id::ObjectId;
use super::options::IndexOptions;
use super::rows::extent::Located;
use super::rows::name;
use super::rows::queue::Queue;
use super::rows::stream::Known;
use super::slot::OpenSlot;
use super::staged::Staged;
use crate::channel::ChunkId;

/// What a chunk holds of one slot.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) at: ChunkId,
    /// When the chunk was made.
    pub(super) created_ms: i64,
    /// The whole chunk.
    pub(super) body: Bytes,
    /// The slot's extents, by stream and rev.
    pub(super) extents: Vec<ExtentRow>,
}

/// Applies the part, unless it was applied.
pub(super) async fn apply(open: &OpenSlot, part: &Part, options: &IndexOptions) -> Result<(), IndexError> {
    let mut writer = open.writer.lock().await;
    if writer.applied.covers(part.at) {
        return Ok(());
    }
    let mut staged = Staged::new(open, &mut writer, options, part.created_ms);
    for extents in part.extents.chunk_by(|one, next| one.stream_id == next.stream_id) {
        apply_stream(&mut staged, part, extents).await?;
    }
    staged.commit(Some(part.at)).await
}

async fn apply_stream(staged: &mut Staged<'_>, part: &Part, extents: &[ExtentRow]) -> Result<(), IndexError> {
    let Some(stream_id) = extents.first().map(|extent| extent.stream_id) else { return Ok(()) };
    let (row, due_ms) = match staged.take_known(stream_id).await? {
        Some(Known::Deleted) => {
            staged.keep(stream_id, Known::Deleted);
            return Ok(());
        }
        Some(Known::Lives { row, due_ms }) => (Some(row), due_ms),
        None => (None, 0),
    };
    let folded = fold(row, extents, (ObjectId::Chunk(part.at), &part.body));
    let folded = folded.map_err(|source| IndexError::Extent { at: part.at, slot: staged.open.slot, source })?;
    if !folded.is_changed {
        staged.keep(stream_id, Known::Lives { row: folded.row, due_ms });
        return Ok(());
    }
    if folded.is_deleted {
        return delete_stream(staged, &folded, due_ms).await;
    }
    if folded.is_created {
        staged.count(folded.row.bucket, 1);
        // A chunk's streams come by their ids: the one that had the name before may be deleted after this in the same chunk.
        staged.name(name::key(folded.row.bucket, folded.row.key.as_str()), stream_id);
    }
    keep_stream(staged, part, folded, due_ms).await
}

/// A stream that is deleted keeps a mark, so that what comes of it once more is known for what it is. Its name goes unless
/// another stream has it by now.
async fn delete_stream(staged: &mut Staged<'_>, folded: &Folded, due_ms: i64) -> Result<(), IndexError> {
    let row = &folded.row;
    let stream_id = row.stream_id;
    staged.know(stream_id, Known::Deleted);
    let forget_ms = staged.now_ms.saturating_add(staged.options.forget_after_ms);
    staged.put(&Queue::Forget.stream_key(forget_ms, stream_id), &[]);
    if folded.is_created {
        return Ok(());
    }
    staged.count(row.bucket, -1);
    staged.schedule(stream_id, due_ms, 0);
    let name = name::key(row.bucket, row.key.as_str());
    if staged.holder(&name).await? == Some(stream_id) {
        staged.unname(name);
    }
    staged.drop_below(stream_id, SeqNum::new(u64::MAX)).await.map(drop)
}

async fn keep_stream(staged: &mut Staged<'_>, part: &Part, folded: Folded, due_ms: i64) -> Result<(), IndexError> {
    let Folded { mut row, is_created, extents, trimmed_from, max_age_before_ms, .. } = folded;
    let (stream_id, trim_point) = (row.stream_id, row.trim_point);
    if trim_point > trimmed_from && !is_created {
        let content_bytes = staged.drop_below(stream_id, trim_point).await?;
        row.bytes = row.bytes.saturating_sub(content_bytes);
    }
    let mut first: Option<&Located> = None;
    for extent in &extents {
        if extent.end <= trim_point {
            row.bytes = row.bytes.saturating_sub(extent.content_bytes.into());
            continue;
        }
        staged.make(ObjectId::Chunk(part.at), part.created_ms);
        staged.put_extent(stream_id, extent);
        first = first.or(Some(extent));
    }
    let max_age_ms = row.config.retention.max_age_ms;
    let due_ms = if max_age_ms != max_age_before_ms || due_ms == 0 {
        // Extents of before are older, those below the trim point set aside.
        let before = if max_age_ms == 0 { None } else { oldest(staged, &row, is_created).await? };
        let oldest = before.as_ref().or(first).filter(|_| max_age_ms > 0);
        let wanted_ms = oldest.map_or(0, |oldest| age_due(oldest.last_ms, max_age_ms));
        staged.schedule(stream_id, due_ms, wanted_ms)
    } else {
        due_ms
    };
    let max_bytes = row.config.retention.max_bytes;
    if max_bytes > 0 && row.bytes > max_bytes {
        staged.note_over_bytes(stream_id);
    }
    staged.know(stream_id, Known::Lives { row, due_ms });
    Ok(())
}

/// The oldest extent of a stream that the database has.
async fn oldest(
    staged: &Staged<'_>,
    row: &wire::stream_row::StreamRow,
    is_created: bool,
) -> Result<Option<Located>, IndexError> {
    if is_created { Ok(None) } else { staged.open.extent_at(row.stream_id, row.trim_point).await }
}

/// When records that end with this stamp are too old; never 0, which is never.
pub(super) fn age_due(last_ms: i64, max_age_ms: u64) -> i64 {
    last_ms.saturating_add_unsigned(max_age_ms).max(1)
}
