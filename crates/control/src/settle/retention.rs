//! Which records are too old, or too many, and which streams have been empty for too long?
//!
//! Streams are asked to trim them, as a client would: only what they commit takes effect.

use std::collections::HashMap;

use failpoints::{Point, hit};
use futures_util::stream::{self, StreamExt};
use wire::batch::VerifiedBatch;
use wire::chunk::entries;
use wire::entry::{BatchHead, Entry};
use wire::handoff::{HistoryFrom, ToShard};
use wire::ids::{SeqNum, StreamId};
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use super::{SettleError, Settler, put_off};
use crate::core::settle_clock::ClockLook;
use crate::index::{Due, Over};
use crate::rarely::Rarely;

/// Streams that one step asks to trim what is too old.
const DUE_MAX: usize = 256;
/// Of these, how many are looked at in the store at a time.
const READS_AT_A_TIME: usize = 16;
/// Bytes that are read to find the first record that stays.
const READ_BYTES: u32 = 64 << 10;
/// The same of a stream of which more is too much, at most.
const READ_BYTES_MAX: u32 = 1 << 20;
/// How often one look reads on in a stream to find it; the next look goes on from there.
const READS_MAX: usize = 8;
/// Streams of which it is remembered how far they were looked at.
const EDGES_MAX: usize = 4096;

/// How far batches were counted of a stream that is over its bytes. True for as long as there is the stream: records never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edge {
    /// From this record on.
    from: SeqNum,
    /// Up to the batch that starts with this one.
    at: SeqNum,
    /// The content between them, in bytes.
    bytes: u64,
    /// What was too much: each of the batches began within it.
    spare_bytes: u64,
}

/// Where looks at streams over their bytes ended, so that the next one does not read the same again.
#[derive(Debug, Default)]
pub(super) struct Edges(HashMap<StreamId, Edge>);

impl Edges {
    /// Where to go on with a stream.
    fn of(&self, over: &Over) -> Edge {
        let Over { to, spare_bytes, .. } = *over;
        let known = self.0.get(&over.row.stream_id);
        let known = known.copied().filter(|known| known.from == to && known.spare_bytes <= spare_bytes);
        Edge { spare_bytes, ..known.unwrap_or(Edge { from: to, at: to, bytes: 0, spare_bytes }) }
    }

    fn note(&mut self, stream_id: StreamId, edge: Edge) {
        if self.0.len() >= EDGES_MAX && !self.0.contains_key(&stream_id) {
            self.0.clear();
        }
        self.0.insert(stream_id, edge);
    }
}

impl Settler {
    /// Takes a look at the clocks, and asks streams to trim what is too old, if these can be believed, and what is too much. Answers how
    /// many were asked.
    ///
    /// # Errors
    /// [`SettleError`]; streams that were not asked are asked later.
    pub async fn retention_step(
        &self,
        look: ClockLook,
        trims: &(impl Fn(Slot, ToShard) + Send + Sync),
    ) -> Result<usize, SettleError> {
        let believed = self.watch_clock(look).await;
        let over = self.index.take_over_bytes().await?;
        let mut count = 0;
        let exact = |over: Over| async move {
            let (to, is_found) = self.first_within(&over).await;
            (over.row, to, is_found)
        };
        let mut firsts = Box::pin(stream::iter(over).map(exact).buffer_unordered(READS_AT_A_TIME));
        while let Some((row, to, is_found)) = firsts.next().await {
            count += usize::from(ask(&row, to, trims));
            if !is_found {
                self.index.keep_over_bytes(row.slot(), row.stream_id).await?;
            }
        }
        self.counted().trims_asked += count as u64;
        if !believed? {
            return Ok(count);
        }
        let due = self.index.due_by_age(look.wall_ms, DUE_MAX).await?;
        let (empty, due): (Vec<Due>, Vec<Due>) = due.into_iter().partition(|due| due.is_empty);
        count += empty.len();
        empty.into_iter().for_each(|due| delete(due.row, trims));
        let first = |due: Due| async move {
            let to = self.first_to_stay(&due).await;
            (due.row, to)
        };
        let mut firsts = Box::pin(stream::iter(due).map(first).buffer_unordered(READS_AT_A_TIME));
        while let Some((row, to)) = firsts.next().await {
            let is_asked = ask(&row, to, trims);
            count += usize::from(is_asked);
            self.counted().trims_asked += u64::from(is_asked);
        }
        Ok(count)
    }

    /// The first record of the first batch that a stream over its bytes keeps, and whether that is it; if not, it is that of one before,
    /// as far as this look gets and what is there can be read.
    async fn first_within(&self, over: &Over) -> (SeqNum, bool) {
        static SAID: Rarely = Rarely::new();
        let (slot, stream_id) = (over.row.slot(), over.row.stream_id);
        let mut edge = self.edges().of(over);
        for _ in 0..READS_MAX {
            let left = over.spare_bytes.saturating_sub(edge.bytes);
            if left == 0 {
                break;
            }
            let bytes = u32::try_from(left).unwrap_or(u32::MAX).clamp(READ_BYTES, READ_BYTES_MAX);
            let read = self.history.read(slot, stream_id, HistoryFrom::SeqNum(edge.at), bytes).await;
            let span = read.inspect_err(|error| put_off("a trim of what a stream has too much", error, &SAID));
            let dropped = span.ok().and_then(|span| drop_batches(&span.bytes, edge.at, left));
            let Some((at, bytes)) = dropped else { break };
            (edge.at, edge.bytes) = (at, edge.bytes + bytes);
        }
        if over.spare_bytes > 0 {
            self.edges().note(stream_id, edge);
        }
        (edge.at, edge.bytes >= over.spare_bytes)
    }

    /// The first record of the first batch that is not too old; as far as extents tell when it can't be read.
    async fn first_to_stay(&self, due: &Due) -> SeqNum {
        let (slot, stream_id) = (due.row.slot(), due.row.stream_id);
        let by_arrival = due.row.config.retention.by_arrival;
        let from = if by_arrival { HistoryFrom::SeqNum(due.to) } else { HistoryFrom::Timestamp(due.cutoff_ms) };
        if by_arrival && due.to >= due.row.tail.seq_num {
            return due.to;
        }
        match self.history.read(slot, stream_id, from, READ_BYTES).await {
            Ok(span) => first_since(&span.bytes, due.cutoff_ms, by_arrival).map_or(due.to, |first| first.max(due.to)),
            Err(error) => {
                tracing::warn!(%stream_id, %error, "the first record to keep is taken from the index");
                due.to
            }
        }
    }
}

/// Drops whole batches from `at` on, until `spare_bytes` are gone or there is none left: where the next one begins, and how many bytes
/// they had. `None` when there is none, or something is no batch.
fn drop_batches(span: &[u8], at: SeqNum, spare_bytes: u64) -> Option<(SeqNum, u64)> {
    let (mut next, mut bytes) = (at, 0);
    for entry in entries(span) {
        let Entry::Batch { head, batch, .. } = entry.ok()?.0 else { continue };
        if head.first < next {
            continue;
        }
        if bytes >= spare_bytes {
            break;
        }
        bytes += u64::from(VerifiedBatch::summed(batch, head.batch_crc).ok()?.content_bytes());
        next = head.end().seq_num;
    }
    (next > at).then_some((next, bytes))
}

/// The first record of the first batch whose last is stamped, or that arrived, at or after this.
fn first_since(span: &[u8], cutoff_ms: i64, by_arrival: bool) -> Option<SeqNum> {
    let judged_ms = |head: &BatchHead| if by_arrival { head.stamping.arrival_ms } else { head.last_ms };
    entries(span).map_while(Result::ok).find_map(|(entry, _)| match entry {
        Entry::Batch { head, .. } if judged_ms(&head) >= cutoff_ms => Some(head.first),
        _ => None,
    })
}

/// Asks an empty stream to go.
fn delete(row: StreamRow, trims: &impl Fn(Slot, ToShard)) {
    let slot = row.slot();
    let StreamRow { bucket, key, stream_id, rev, .. } = row;
    trims(slot, ToShard::DeleteEmpty { bucket, key, stream_id, rev });
}

/// Asks a stream to trim, unless it has.
fn ask(row: &StreamRow, to: SeqNum, trims: &impl Fn(Slot, ToShard)) -> bool {
    if to <= row.trim_point {
        return false;
    }
    let (bucket, key, stream_id) = (row.bucket, row.key.clone(), row.stream_id);
    hit(Point::RetentionTrim);
    trims(row.slot(), ToShard::TrimTo { bucket, key, stream_id, to });
    true
}
