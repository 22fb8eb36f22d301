//! Which streams keep records that are too old, or too many?

use slatedb::config::DurabilityLevel;
use wire::ids::{SeqNum, StreamId};
use wire::stream_row::StreamRow;

use super::apply::age_due;
use super::lookup::extent_at_time;
use super::rows::extent::{self, Located};
use super::rows::queue::Queue;
use super::rows::stream::Known;
use super::slot::OpenSlot;
use super::staged::Staged;
use super::{Index, IndexError};

/// A stream that is found with old records is looked at again after this, for its trim takes a while to come around.
const AGAIN_MS: i64 = 60_000;

/// A stream that has records which are too old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The stream.
    pub row: StreamRow,
    /// Records that are stamped before this are too old.
    pub cutoff_ms: i64,
    /// The first record of the first extent that has one which is not; the tail when none has.
    pub to: SeqNum,
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

    /// Streams that were found to keep more bytes than they may since this was asked last, and the first record that each may keep. An
    /// extent's bytes count as spread evenly over its records.
    ///
    /// # Errors
    /// [`IndexError`] when a slot's database fails.
    pub async fn take_over_bytes(&self) -> Result<Vec<(StreamRow, SeqNum)>, IndexError> {
        let mut over = Vec::new();
        for open in self.opened_slots().await? {
            let streams = std::mem::take(&mut open.writer.lock().await.over_bytes);
            for stream_id in streams {
                over.extend(over_bytes(&open, stream_id).await?);
            }
        }
        Ok(over)
    }
}

/// When to look at a stream again, and what it has that is too old.
async fn judge(open: &OpenSlot, row: &StreamRow, now_ms: i64) -> Result<(i64, Option<Due>), IndexError> {
    let max_age_ms = row.config.retention.max_age_ms;
    let oldest = open.extent_at(row.stream_id, row.trim_point).await?;
    let (Some(oldest), true) = (oldest, max_age_ms > 0) else { return Ok((0, None)) };
    let due_ms = age_due(oldest.last_ms, max_age_ms);
    if due_ms > now_ms {
        return Ok((due_ms, None));
    }
    let cutoff_ms = now_ms.saturating_sub_unsigned(max_age_ms).saturating_add(1);
    let first = extent_at_time(open, row, cutoff_ms).await?;
    let to = first.map_or(row.tail.seq_num, |first| first.first);
    Ok((now_ms.saturating_add(AGAIN_MS), Some(Due { row: row.clone(), cutoff_ms, to })))
}

/// The first record that a stream over its bytes may keep.
async fn over_bytes(open: &OpenSlot, stream_id: StreamId) -> Result<Option<(StreamRow, SeqNum)>, IndexError> {
    let Some(row) = open.known(stream_id).await?.and_then(Known::into_row) else { return Ok(None) };
    let max_bytes = row.config.retention.max_bytes;
    if max_bytes == 0 || row.bytes <= max_bytes {
        return Ok(None);
    }
    let mut spare_bytes = row.bytes - max_bytes;
    let mut rows = open.scan(extent::from(stream_id, row.trim_point), DurabilityLevel::Memory).await?;
    while let Some((key, value)) = rows.next().await? {
        let extent = open.row(Located::decode(&key, &value))?;
        let content_bytes = u64::from(extent.content_bytes);
        if content_bytes > spare_bytes {
            let records = u128::from(extent.end.since(extent.first));
            let share = (records * u128::from(spare_bytes)).div_ceil(u128::from(content_bytes));
            let to = extent.first.after(u64::try_from(share).unwrap_or(u64::MAX));
            return Ok((to > row.trim_point).then_some((row, to)));
        }
        spare_bytes -= content_bytes;
    }
    let to = row.tail.seq_num;
    Ok((to > row.trim_point).then_some((row, to)))
}
