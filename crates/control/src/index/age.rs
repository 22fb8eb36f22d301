//! Which streams keep records that are too old, or too many, or have been empty for too long?

use slatedb::config::DurabilityLevel;
use wire::ids::{SeqNum, StreamId};
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use super::lookup::extent_at_time;
use super::rows::extent::{self, Located};
use super::rows::queue::Queue;
use super::rows::stream::Known;
use super::slot::OpenSlot;
use super::staged::Staged;
use super::{Index, IndexError};

/// A stream that is found with old records is looked at again after this, for its trim takes a while to come around.
const AGAIN_MS: i64 = 60_000;

/// A stream that has records which are too old, or that has been empty for long enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The stream.
    pub row: StreamRow,
    /// Records that are stamped before this, or by the stream's configuration arrived before it, are too old.
    pub cutoff_ms: i64,
    /// It holds nothing, and is to be deleted.
    pub is_empty: bool,
    /// The first record of the first extent that has one which is not; the tail when none has.
    pub to: SeqNum,
}

/// A stream that keeps more bytes than it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Over {
    /// The stream.
    pub row: StreamRow,
    /// All records before this are too many.
    pub to: SeqNum,
    /// How many bytes of the batches from there on are too many as well; batches go as a whole.
    pub spare_bytes: u64,
}

impl Index {
    /// At most `limit` streams with records that are too old at `now_ms`, as far as whole extents are. Each is given again after a minute
    /// unless it was trimmed.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails.
    pub async fn due_by_age(&self, now_ms: i64, limit: usize) -> Result<Vec<Due>, IndexError> {
        let mut due = Vec::new();
        for open in self.open_slots().await? {
            if due.len() >= limit {
                break;
            }
            self.due_of(&open, now_ms, (limit, &mut due)).await?;
        }
        Ok(due)
    }

    async fn due_of(
        &self,
        open: &OpenSlot,
        now_ms: i64,
        (limit, due): (usize, &mut Vec<Due>),
    ) -> Result<(), IndexError> {
        let mut writer = open.writer.lock().await;
        let mut staged = Staged::new(open, &mut writer, &self.options, now_ms);
        let mut rows = open.scan(Queue::Age.due(now_ms), DurabilityLevel::Memory).await?;
        while due.len() < limit {
            let Some((key, _)) = rows.next().await? else { break };
            let (due_ms, stream_id) = open.row(Queue::Age.decode_stream(&key))?;
            let Some(Known::Lives { row, due_ms: known_ms }) = staged.take_known(stream_id).await? else {
                staged.delete(&key);
                continue;
            };
            if known_ms != due_ms {
                // Its place in the queue is another one by now.
                staged.delete(&key);
                staged.keep(stream_id, Known::Lives { row, due_ms: known_ms });
                continue;
            }
            let (wanted_ms, found) = judge(open, &row, now_ms).await?;
            due.extend(found);
            let due_ms = staged.schedule(stream_id, due_ms, wanted_ms);
            staged.know(stream_id, Known::Lives { row, due_ms });
        }
        staged.commit(None).await
    }

    /// Streams that were found to keep more bytes than they may since this was asked last.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails.
    pub async fn take_over_bytes(&self) -> Result<Vec<Over>, IndexError> {
        let mut over = Vec::new();
        for open in self.opened_slots().await? {
            let streams = std::mem::take(&mut open.writer.lock().await.over_bytes);
            for stream_id in streams {
                // Its bytes and its extents are to be of one moment.
                let _writer = open.writer.lock().await;
                over.extend(over_bytes(&open, stream_id).await?);
            }
        }
        Ok(over)
    }

    /// A stream is not trimmed yet to what it may keep: it is given again when that is asked next.
    ///
    /// # Errors
    /// [`IndexError`] when the slot's database can't be opened.
    pub async fn keep_over_bytes(&self, slot: Slot, stream_id: StreamId) -> Result<(), IndexError> {
        let Some(open) = self.open_slot(slot).await? else { return Ok(()) };
        open.writer.lock().await.note_over_bytes(stream_id);
        Ok(())
    }
}

/// When to look at a stream again, and what it has that is too old.
async fn judge(open: &OpenSlot, row: &StreamRow, now_ms: i64) -> Result<(i64, Option<Due>), IndexError> {
    let max_age_ms = row.config.retention.max_age_ms;
    let oldest = open.extent_at(row.stream_id, row.trim_point).await?;
    // Since when it is empty, the queue knows: the stream was put there when it became so.
    let due_ms = due(row, oldest.as_ref(), i64::MIN);
    if due_ms == 0 || due_ms > now_ms {
        return Ok((due_ms, None));
    }
    let (cutoff_ms, is_empty) = (now_ms.saturating_sub_unsigned(max_age_ms).saturating_add(1), is_empty(row));
    let first = match row.config.retention.by_arrival {
        true => extent_arrived(open, row, cutoff_ms).await?,
        false => extent_at_time(open, row, cutoff_ms).await?,
    };
    let to = first.map_or(row.tail.seq_num, |first| first.first);
    Ok((now_ms.saturating_add(AGAIN_MS), Some(Due { row: row.clone(), cutoff_ms, is_empty, to })))
}

/// When a stream with this oldest extent is to be looked at; 0 is never. One that holds nothing does so since `empty_ms` at the earliest.
pub(super) fn due(row: &StreamRow, oldest: Option<&Located>, empty_ms: i64) -> i64 {
    let retention = row.config.retention;
    match oldest {
        Some(oldest) if retention.max_age_ms > 0 => {
            let judged_ms = if retention.by_arrival { oldest.arrival_ms } else { oldest.last_ms };
            later(judged_ms, retention.max_age_ms)
        }
        _ if row.config.delete_on_empty_ms > 0 && is_empty(row) => {
            let since_ms = empty_ms.max(row.arrival_ms).max(row.created_at_ms);
            later(since_ms, row.config.delete_on_empty_ms)
        }
        _ => 0,
    }
}

/// Whether a stream holds no record.
pub(super) fn is_empty(row: &StreamRow) -> bool {
    row.trim_point >= row.tail.seq_num
}

/// So much after a moment; never 0, which is never.
fn later(ms: i64, age_ms: u64) -> i64 {
    ms.saturating_add_unsigned(age_ms).max(1)
}

/// The first extent with a batch that arrived at or after a moment.
async fn extent_arrived(open: &OpenSlot, row: &StreamRow, from_ms: i64) -> Result<Option<Located>, IndexError> {
    let mut rows = open.scan(extent::from(row.stream_id, row.trim_point), DurabilityLevel::Memory).await?;
    while let Some((key, value)) = rows.next().await? {
        let extent = open.row(Located::decode(&key, &value))?;
        if extent.arrival_ms >= from_ms {
            return Ok(Some(extent));
        }
    }
    Ok(None)
}

/// What a stream over its bytes may keep.
async fn over_bytes(open: &OpenSlot, stream_id: StreamId) -> Result<Option<Over>, IndexError> {
    let Some(row) = open.known(stream_id).await?.and_then(Known::into_row) else { return Ok(None) };
    let max_bytes = row.config.retention.max_bytes;
    if max_bytes == 0 || row.bytes <= max_bytes {
        return Ok(None);
    }
    let mut spare_bytes = row.bytes - max_bytes;
    let mut to = SeqNum::ZERO;
    // Extents that are trimmed and not dropped yet count as well.
    let mut rows = open.scan(extent::from(stream_id, SeqNum::ZERO), DurabilityLevel::Memory).await?;
    while spare_bytes > 0 {
        // With so much in none of its extents, what it counts is wrong: then it keeps them.
        let Some((key, value)) = rows.next().await? else { return Ok(None) };
        let extent = open.row(Located::decode(&key, &value))?;
        let content_bytes = u64::from(extent.content_bytes);
        let goes_whole = extent.entries == 1 || extent.end <= row.trim_point;
        if content_bytes > spare_bytes && !goes_whole {
            return Ok(Some(Over { row, to: extent.first, spare_bytes }));
        }
        to = extent.end;
        spare_bytes = spare_bytes.saturating_sub(content_bytes);
    }
    Ok((to > row.trim_point).then_some(Over { row, to, spare_bytes }))
}
