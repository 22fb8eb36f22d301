//! What is copied now, and which objects does it go to?

use std::ops::Range;

/// When chunks are bundled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BundleRules {
    /// Once they hold so many live bytes.
    pub(crate) bytes: u64,
    /// Once there are so many.
    pub(crate) chunks: usize,
    /// Once the oldest is so old.
    pub(crate) age_ms: i64,
}

/// What waits to be bundled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Backlog {
    /// Chunks that extents point to and that can be copied.
    pub(crate) chunks: usize,
    /// When the oldest of them was made, in milliseconds; 0 when there is none.
    pub(crate) oldest_ms: i64,
}

/// Copying rests while fewer chunks wait than so many times as many as are bundled at the latest.
const RESTS_BELOW_CHUNKS: usize = 4;
/// And while the oldest of them is younger than so many times the age at which chunks are bundled at the latest.
const RESTS_BELOW_AGE: i64 = 2;

/// Whether copying may make way for other work: not when so much waits for it that the work would have to end for it to catch up.
pub(crate) fn may_rest(backlog: Backlog, rules: BundleRules, now_ms: i64) -> bool {
    let age_ms = now_ms.saturating_sub(backlog.oldest_ms);
    let (chunks_max, age_max_ms) =
        (rules.chunks.saturating_mul(RESTS_BELOW_CHUNKS), rules.age_ms.saturating_mul(RESTS_BELOW_AGE));
    backlog.chunks == 0 || backlog.chunks < chunks_max && age_ms < age_max_ms
}

/// How much of an object is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) live_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) created_ms: i64,
}

/// How many chunks are bundled now, of these, the oldest first.
pub(crate) fn due(chunks: &[Fill], rules: BundleRules, now_ms: i64) -> usize {
    let Some(oldest) = chunks.first() else { return 0 };
    let (mut bytes, mut count) = (0, 0);
    for chunk in chunks.iter().take(rules.chunks) {
        if bytes >= rules.bytes {
            break;
        }
        (bytes, count) = (bytes + chunk.live_bytes, count + 1);
    }
    let is_due =
        bytes >= rules.bytes || count >= rules.chunks || now_ms.saturating_sub(oldest.created_ms) >= rules.age_ms;
    if is_due { count } else { 0 }
}

/// When bundles are rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompactRules {
    /// A bundle with less is small.
    pub(crate) small_bytes: u64,
    /// So many small ones become one.
    pub(crate) small_count: usize,
    /// Bytes that are read for one rewrite, about.
    pub(crate) bytes: u64,
}

/// Which bundles of a slot are rewritten together: those that are live by less than half, and small ones when there are many.
pub(crate) fn to_compact(bundles: &[Fill], rules: CompactRules) -> Vec<usize> {
    let is_live = |fill: &&Fill| fill.live_bytes > 0;
    let is_small = |fill: &Fill| fill.bytes < rules.small_bytes;
    let is_half_dead = |fill: &Fill| fill.live_bytes < fill.bytes / 2;
    let has_many_small = bundles.iter().filter(is_live).filter(|fill| is_small(fill)).count() >= rules.small_count;
    let is_wanted = |fill: &Fill| fill.live_bytes > 0 && (is_half_dead(fill) || has_many_small && is_small(fill));
    let (mut bytes, mut picked) = (0, Vec::new());
    for (at, fill) in bundles.iter().enumerate().filter(|(_, fill)| is_wanted(fill)) {
        if !picked.is_empty() && bytes + fill.bytes > rules.bytes {
            break;
        }
        bytes += fill.bytes;
        picked.push(at);
    }
    picked
}

/// How objects are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackRules {
    /// A stream with so many bytes has objects of its own.
    pub(crate) own_bytes: u64,
    /// Bytes of an object at most, unless one piece has more.
    pub(crate) object_bytes: u64,
    /// Streams of an object at most.
    pub(crate) streams: usize,
}

/// Pieces of one stream, which lie in one object.
pub(crate) type Packed = (usize, Range<usize>);

/// Which pieces go together in an object; `streams` is the bytes of each stream's pieces, in order.
pub(crate) fn pack(streams: &[Vec<u32>], rules: PackRules) -> Vec<Vec<Packed>> {
    let (mut objects, mut shared, mut shared_bytes) = (Vec::new(), Vec::new(), 0);
    for (stream, pieces) in streams.iter().enumerate() {
        let bytes: u64 = pieces.iter().map(|bytes| u64::from(*bytes)).sum();
        if bytes >= rules.own_bytes {
            objects.extend(cut(pieces, rules.object_bytes).into_iter().map(|range| vec![(stream, range)]));
            continue;
        }
        let is_full = shared_bytes + bytes > rules.object_bytes || shared.len() >= rules.streams;
        if is_full && !shared.is_empty() {
            objects.push(std::mem::take(&mut shared));
            shared_bytes = 0;
        }
        shared.push((stream, 0..pieces.len()));
        shared_bytes += bytes;
    }
    if !shared.is_empty() {
        objects.push(shared);
    }
    objects
}

/// Runs of pieces with at most so many bytes each, one piece at least.
fn cut(pieces: &[u32], bytes_max: u64) -> Vec<Range<usize>> {
    let (mut runs, mut start, mut run_bytes) = (Vec::new(), 0, 0);
    for (at, bytes) in pieces.iter().enumerate() {
        if at > start && run_bytes + u64::from(*bytes) > bytes_max {
            runs.push(start..at);
            (start, run_bytes) = (at, 0);
        }
        run_bytes += u64::from(*bytes);
    }
    if start < pieces.len() {
        runs.push(start..pieces.len());
    }
    runs
}

#[cfg(test)]
mod tests;
