//! The newest bytes of the shard's own log, kept in memory for readers near the tail.
//!
//! Entries lie as they lie in the log, each behind its length, so that an extent found in here is walked like one from
//! disk. What wraps around or is overwritten is read from disk instead.

use std::collections::VecDeque;

use express_log::EntryPos;
use wire::entry::ENTRY_BYTES_MAX;
use wire::ids::SegmentId;
use wire::log_frame::ENTRY_PREFIX_BYTES;

/// Neighbouring entries of one segment.
#[derive(Debug, Clone, Copy)]
struct Span {
    segment: SegmentId,
    offset: u32,
    bytes: u32,
    at: usize,
}

/// A ring of log bytes.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: Vec<u8>,
    write_at: usize,
    spans: VecDeque<Span>,
}

impl Ring {
    /// A ring of this many bytes, and at least of one longest entry; their memory is taken as it is first written.
    pub(crate) fn new(ring_bytes: usize) -> Self {
        let ring_bytes = ring_bytes.max(ENTRY_PREFIX_BYTES + ENTRY_BYTES_MAX);
        Self { bytes: vec![0; ring_bytes], write_at: 0, spans: VecDeque::new() }
    }

    /// Whether the next entry goes to the beginning rather than behind the last one.
    pub(crate) fn wraps(&self, entry_bytes: usize) -> bool {
        self.write_at + ENTRY_PREFIX_BYTES + entry_bytes > self.bytes.len()
    }

    /// The first segment of which something is here.
    pub(crate) fn first_segment(&self) -> Option<SegmentId> {
        self.spans.front().map(|span| span.segment)
    }

    /// Keeps an entry: `encode` writes it in here, `append` takes it from here to the log and tells where it lies.
    #[inline]
    pub(crate) fn push_with<R>(
        &mut self,
        entry_bytes: usize,
        encode: impl FnOnce(&mut [u8]),
        append: impl FnOnce(&[u8]) -> (R, EntryPos),
    ) -> (R, EntryPos) {
        let need = ENTRY_PREFIX_BYTES + entry_bytes;
        if self.wraps(entry_bytes) {
            self.evict(self.write_at, self.bytes.len());
            self.write_at = 0;
        }
        self.evict(self.write_at, self.write_at + need);
        let at = self.write_at;
        let (prefix, entry) = self.bytes[at..at + need].split_at_mut(ENTRY_PREFIX_BYTES);
        prefix.copy_from_slice(&narrow(entry_bytes).to_le_bytes());
        encode(entry);
        let (answer, pos) = append(entry);
        self.write_at += need;
        let (offset, need) = (pos.offset - narrow(ENTRY_PREFIX_BYTES), narrow(need));
        match self.spans.back_mut() {
            Some(last)
                if last.segment == pos.segment
                    && last.offset + last.bytes == offset
                    && last.at + last.bytes as usize == at =>
            {
                last.bytes += need;
            }
            _ => self.spans.push_back(Span { segment: pos.segment, offset, bytes: need, at }),
        }
        (answer, pos)
    }

    /// Forgets the oldest spans that reach into `from..to`.
    fn evict(&mut self, from: usize, to: usize) {
        while let Some(oldest) = self.spans.front_mut() {
            let end = oldest.at + oldest.bytes as usize;
            if oldest.at >= to || end <= from {
                break;
            }
            self.spans.pop_front();
        }
    }

    /// `bytes` bytes of a segment from `offset` on, if they are all here.
    pub(crate) fn get(&self, segment: SegmentId, offset: u32, bytes: u32) -> Option<&[u8]> {
        let after = self.spans.partition_point(|span| (span.segment, span.offset) <= (segment, offset));
        let span = self.spans.get(after.checked_sub(1)?)?;
        let skip = offset.checked_sub(span.offset)?;
        if span.segment != segment || skip.checked_add(bytes)? > span.bytes {
            return None;
        }
        let at = span.at + skip as usize;
        self.bytes.get(at..at + bytes as usize)
    }
}

/// A length that is far below 4 GiB, since an entry is.
fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or_else(|_| unreachable!("an entry of {bytes} bytes"))
}

#[cfg(test)]
mod tests;
