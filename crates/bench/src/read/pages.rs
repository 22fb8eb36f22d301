//! How is a page asked for, and are the records of a frame whole?

use wire::batch::VerifiedBatch;
use wire::entry::{Entry, Verb};
use wire::frame::{Frame, FrameError, Kind};
use wire::hot::RecordsHead;
use wire::ids::SeqNum;
use wire::message::{Read, Refused, Start};
use wire::names::Address;

use crate::dial::{Dialled, decoded};
use crate::error::BenchError;

/// What a frame of records held of what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// Records.
    pub(crate) records: u64,
    /// Their content; of a batch that was cut, its share.
    pub(crate) content_bytes: u64,
    /// Where the next frame begins.
    pub(crate) end: SeqNum,
    /// Bytes of the payload, which is what credit is spent on.
    pub(crate) payload_bytes: u32,
}

/// Looks at the records of a page or of a subscription, which must begin at `next` and have no hole but where the stream has a gap.
pub(crate) fn held(frame: &Frame<'_>, next: SeqNum) -> Result<Held, BenchError> {
    let bad = || BenchError::Frame(FrameError::Body { kind: frame.kind });
    let head = RecordsHead::decode(frame.head).map_err(|_| bad())?;
    let seam = |found: SeqNum| BenchError::Seam { expected: next.get(), found: found.get() };
    // A reader that begins below the trim point is moved to it.
    let next = next.max(head.trim_point.min(head.start));
    if head.start > next {
        return Err(seam(head.start));
    }
    let (mut at, mut due) = (0, head.start);
    let mut held = Held {
        records: 0,
        content_bytes: 0,
        end: head.end,
        payload_bytes: u32::try_from(frame.payload.len()).unwrap_or(u32::MAX),
    };
    while at < frame.payload.len() {
        let (entry, bytes) = Entry::decode(&frame.payload[at..])?;
        at += bytes;
        match entry {
            Entry::Batch { head: of, batch, .. } => {
                let (first, last) = (of.first, of.end().seq_num);
                if first > due {
                    return Err(BenchError::Seam { expected: due.get(), found: first.get() });
                }
                let batch = VerifiedBatch::verify(batch, of.batch_crc)?;
                let end = last.min(head.end);
                if end > due {
                    let records = end.since(due);
                    held.records += records;
                    held.content_bytes += u64::from(batch.content_bytes()) * records / u64::from(of.records.max(1));
                    due = end;
                }
            }
            Entry::Verb { verb: Verb::Gap { from, to }, .. } if from <= due => due = due.max(to.min(head.end)),
            Entry::Verb { .. } => {}
        }
    }
    if due < head.end { Err(BenchError::Seam { expected: due.get(), found: head.end.get() }) } else { Ok(held) }
}

/// Asks for one page and looks at it.
pub(crate) fn page<T>(
    dialled: &mut Dialled,
    address: &Address,
    from: SeqNum,
    take: impl FnOnce(&Frame<'_>) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let start = Start::SeqNum(from);
    let read = Read { address: address.clone(), start, clamp: true, limit: 0, max_bytes: 0, until_ms: None };
    dialled.send(&read)?;
    dialled.next(|frame| match frame.kind {
        Kind::Page => take(frame),
        Kind::Refused => {
            let Refused { refusal } = decoded(frame, "reading")?;
            Err(BenchError::Refused { request: "reading", refusal })
        }
        found => Err(BenchError::Unexpected { found, awaited: "a page was due" }),
    })
}

/// Hands out the body of every record of a frame's batches, those before what was asked for too.
pub(crate) fn bodies(frame: &Frame<'_>, mut on_body: impl FnMut(u64, &[u8])) -> Result<(), BenchError> {
    let mut at = 0;
    while at < frame.payload.len() {
        let (entry, bytes) = Entry::decode(&frame.payload[at..])?;
        at += bytes;
        if let Entry::Batch { head, batch, .. } = entry {
            let batch = VerifiedBatch::verify(batch, head.batch_crc)?;
            (head.first.get()..).zip(&batch).for_each(|(seq_num, record)| on_body(seq_num, record.body));
        }
    }
    Ok(())
}
