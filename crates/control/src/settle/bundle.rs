//! When do chunks become bundles?

use std::time::Duration;

use tokio::time::Instant;

use super::copy::Copying;
use super::{SettleError, Settler};
use crate::core::settle_pack::{Backlog, Fill, due};
use crate::index::{InUse, ObjectId};

/// What a step has copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bundled {
    /// Objects that were copied from.
    pub chunks: usize,
    /// Objects that were copied to.
    pub bundles: usize,
    /// Extents that were copied.
    pub extents: usize,
    /// How long that took, not counting the wait for another step.
    pub took: Duration,
}

impl Bundled {
    pub(super) fn of(chunks: usize, Copying { bundles, extents }: Copying, began: Instant) -> Self {
        Self { chunks, bundles, extents, took: began.elapsed() }
    }
}

impl Settler {
    /// Bundles the oldest chunks that extents point to, of this channel and those before, once they are large, many or old enough.
    ///
    /// # Errors
    /// [`SettleError`]; what was not moved lies where it was.
    pub async fn bundle_step(&self, now_ms: i64) -> Result<Bundled, SettleError> {
        let _copying = self.copying.lock().await;
        let began = Instant::now();
        let mut chunks = self.index.chunks_in_use().await?;
        self.count_backlog(&chunks);
        chunks.retain(|chunk| !self.is_left_alone(chunk.object));
        let oldest_ms = chunks.first().map_or(0, |chunk| chunk.created_ms);
        *self.backlog() = Backlog { chunks: chunks.len(), oldest_ms };
        let fills: Vec<Fill> = chunks.iter().map(fill).collect();
        let count = due(&fills, self.bundle_rules(), now_ms);
        let objects: Vec<ObjectId> = chunks[..count].iter().map(|chunk| chunk.object).collect();
        if objects.is_empty() {
            return Ok(Bundled::default());
        }
        let sources = self.sources(objects, self.options.bundle_bytes.saturating_mul(2)).await?;
        let chunks = sources.len();
        Ok(Bundled::of(chunks, self.copy(sources, now_ms).await?, began))
    }

    fn count_backlog(&self, chunks: &[InUse]) {
        let mut counts = self.counted();
        counts.backlog_chunks = chunks.len() as u64;
        counts.backlog_bytes = chunks.iter().map(|chunk| chunk.live_bytes).sum();
        counts.backlog_oldest_ms = chunks.first().map_or(0, |chunk| chunk.created_ms);
    }
}

pub(super) fn fill(object: &InUse) -> Fill {
    Fill { live_bytes: object.live_bytes, bytes: object.bytes, created_ms: object.created_ms }
}
