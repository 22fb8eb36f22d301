//! How does a committed chunk get into the rows of a slot?

use bytes::Bytes;
use wire::chunk::ExtentRow;
use wire::ids::{Rev, SeqNum, StreamId};

use super::age::{due, is_empty};
use super::error::IndexError;
use super::fold::{ExtentError, Folded, Folding};
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

impl Part {
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.extents.iter().map(|extent| Piece { part: self, extent })
    }
}

/// Streams that are looked up together: their rows are in memory until they are applied.
const STREAMS_AT_A_TIME: usize = 1024;

/// An extent and where it comes from.
#[derive(Clone, Copy)]
struct Piece<'a> {
    part: &'a Part,
    extent: &'a ExtentRow,
}

/// Applies parts, in the order of their chunks, in one write; those that were applied are left out.
pub(super) async fn apply(open: &OpenSlot, parts: &[Part], options: &IndexOptions) -> Result<(), IndexError> {
    let mut writer = open.writer.lock().await;
    for part in parts {
        part.extents.iter().for_each(|extent| writer.touched.note(extent.stream_id));
    }
    let parts: Vec<&Part> = parts.iter().filter(|part| !writer.applied.covers(part.at)).collect();
    let Some(last) = parts.last() else { return Ok(()) };
    let mut pieces: Vec<Piece<'_>> = parts.iter().flat_map(|part| part.pieces()).collect();
    // Those of a stream stay in the order in which they were committed.
    pieces.sort_by_key(|piece| piece.extent.stream_id);
    let mut staged = Staged::new(open, &mut writer, options, last.created_ms);
    for of_streams in by_stream(&pieces).chunks(STREAMS_AT_A_TIME) {
        look_up(&mut staged, of_streams).await?;
        for of_stream in of_streams {
            apply_stream(&mut staged, of_stream).await?;
        }
    }
    staged.commit(Some(last.at)).await
}

/// The pieces of each stream; those of a stream stand together.
fn by_stream<'a, 'b>(pieces: &'b [Piece<'a>]) -> Vec<&'b [Piece<'a>]> {
    pieces.chunk_by(|one, next| one.extent.stream_id == next.extent.stream_id).collect()
}

/// Looks up the streams that are applied next.
async fn look_up(staged: &mut Staged<'_>, of_streams: &[&[Piece<'_>]]) -> Result<(), IndexError> {
    let streams = of_streams.iter().filter_map(|pieces| pieces.first()).map(|Piece { extent, .. }| {
        let is_creation = extent.first_rev == Rev::ZERO.next();
        (extent.stream_id, is_creation)
    });
    let streams: Vec<_> = streams.collect();
    staged.look_up(&streams).await
}

/// Applies the part to the rows of streams alone: where their records lie is told by other means. Answers which streams' entries
/// don't follow from what is known of them; these are left as they were.
pub(super) async fn apply_rows(
    open: &OpenSlot,
    part: &Part,
    options: &IndexOptions,
) -> Result<Vec<(StreamId, ExtentError)>, IndexError> {
    let mut writer = open.writer.lock().await;
    let mut staged = Staged::new(open, &mut writer, options, part.created_ms);
    staged.places = false;
    let mut unfit = Vec::new();
    let pieces: Vec<Piece<'_>> = part.pieces().collect();
    for of_streams in by_stream(&pieces).chunks(STREAMS_AT_A_TIME) {
        look_up(&mut staged, of_streams).await?;
        for of_stream in of_streams {
            match apply_stream(&mut staged, of_stream).await {
                Err(IndexError::Extent { source, .. }) => {
                    unfit.extend(of_stream.first().map(|one| (one.extent.stream_id, source)));
                }
                applied => applied?,
            }
        }
    }
    staged.commit(Some(part.at)).await?;
    Ok(unfit)
}

async fn apply_stream(staged: &mut Staged<'_>, pieces: &[Piece<'_>]) -> Result<(), IndexError> {
    let Some(ExtentRow { stream_id, first_rev, .. }) = pieces.first().map(|piece| *piece.extent) else { return Ok(()) };
    let is_creation = first_rev == Rev::ZERO.next();
    let known = if is_creation { staged.take_created(stream_id).await? } else { staged.take_known(stream_id).await? };
    let (row, due_ms) = match known {
        Some(Known::Deleted) => {
            staged.keep(stream_id, Known::Deleted);
            return Ok(());
        }
        Some(Known::Lives { row, due_ms }) => (Some(row), due_ms),
        None => (None, 0),
    };
    let mut folding = Folding::over(row);
    for Piece { part, extent } in pieces {
        folding.set_time(part.created_ms);
        let taken = folding.take(extent, ObjectId::Chunk(part.at), &part.body);
        taken.map_err(|source| IndexError::Extent { at: part.at, slot: staged.open.slot, source })?;
    }
    let Some(folded) = folding.end() else { return Ok(()) };
    if !folded.is_changed {
        staged.keep(stream_id, Known::Lives { row: folded.row, due_ms });
        return Ok(());
    }
    if folded.is_deleted {
        return delete_stream(staged, &folded, due_ms).await;
    }
    if folded.is_created {
        staged.count(folded.row.bucket, 1);
        // Streams come by their ids: the one that had the name before may be deleted after this in the same write.
        staged.name(name::key(folded.row.bucket, folded.row.key.as_str()), stream_id);
    }
    keep_stream(staged, pieces, folded, due_ms).await
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

async fn keep_stream(
    staged: &mut Staged<'_>,
    pieces: &[Piece<'_>],
    folded: Folded,
    due_ms: i64,
) -> Result<(), IndexError> {
    let Folded { mut row, is_created, extents, trimmed_from, was_empty, is_set, empty_ms, .. } = folded;
    let (stream_id, trim_point) = (row.stream_id, row.trim_point);
    let is_trimmed = trim_point > trimmed_from;
    if is_trimmed && !is_created {
        let content_bytes = staged.drop_below(stream_id, trim_point).await?;
        row.bytes = row.bytes.saturating_sub(content_bytes);
    }
    let mut first: Option<&Located> = None;
    let places = staged.places;
    for extent in extents.iter().filter(|_| places) {
        if extent.end <= trim_point {
            row.bytes = row.bytes.saturating_sub(extent.content_bytes.into());
            continue;
        }
        let chunk = pieces.iter().find(|piece| ObjectId::Chunk(piece.part.at) == extent.object);
        staged.make(extent.object, chunk.map_or(staged.now_ms, |piece| piece.part.created_ms));
        staged.put_extent(stream_id, extent);
        first = first.or(Some(extent));
    }
    let (retention, is_empty) = (row.config.retention, is_empty(&row));
    // A trim is mostly what retention asked for, and the stream waits to be looked at again.
    let has_moved = is_trimmed && (is_empty || retention.max_age_ms > 0) || was_empty && !is_empty;
    let due_ms = if is_set || due_ms == 0 || has_moved {
        // Extents of before are older, those below the trim point set aside.
        let before = if retention.max_age_ms == 0 { None } else { oldest(staged, &row, is_created).await? };
        // What was put into a chunk happened before that was made, and a replay finds the same time in it.
        let wanted_ms = due(&row, before.as_ref().or(first), empty_ms.unwrap_or(staged.now_ms));
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
