//! When do chunks become bundles?

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::copy::Copying;
use super::{SettleError, Settler};
use crate::core::settle_pack::{Backlog, Fill, due};
use crate::index::{InUse, ObjectId};

/// A survey that is older is made again, whatever is left of it.
const SURVEY_AGE_MAX: Duration = Duration::from_secs(60);

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
    pub(super) fn of(chunks: usize, Copying { bundles, extents, .. }: Copying, began: Instant) -> Self {
        Self { chunks, bundles, extents, took: began.elapsed() }
    }
}

/// Chunks that a survey of all slots found and that are not bundled yet, the oldest first. A survey reads a row for each chunk in each
/// slot that has extents in it, so that one is to last for many steps.
#[derive(Debug, Default)]
pub(super) struct Surveyed {
    chunks: Vec<InUse>,
    at: Option<Instant>,
}

impl Surveyed {
    fn is_fresh(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < SURVEY_AGE_MAX)
    }
}

impl Settler {
    /// Bundles the oldest chunks that extents point to, of this channel and those before, once they are large, many or old enough.
    ///
    /// # Errors
    /// [`SettleError`]; what was not moved lies where it was.
    pub async fn bundle_step(&self, now_ms: i64) -> Result<Bundled, SettleError> {
        let mut surveyed = self.copying.lock().await;
        let began = Instant::now();
        let mut due = if surveyed.is_fresh() { self.due(&mut surveyed, now_ms) } else { BTreeSet::new() };
        if due.is_empty() {
            *surveyed = Surveyed { at: Some(began), chunks: self.index.chunks_in_use().await? };
            self.count_backlog(&surveyed.chunks);
            due = self.due(&mut surveyed, now_ms);
        }
        if due.is_empty() {
            return Ok(Bundled::default());
        }
        let still = self.index.chunks_still_in_use(&due).await?;
        if still.is_empty() {
            // What was trimmed since goes on behind them, too.
            *surveyed = Surveyed::default();
            return Ok(Bundled::default());
        }
        surveyed.chunks.retain(|chunk| !due.contains(&chunk.object) || still.iter().any(|s| s.object == chunk.object));
        let objects = still.into_iter().map(|chunk| chunk.object).collect();
        let sources = self.sources(objects, self.options.bundle_bytes.saturating_mul(2)).await?;
        let copied: BTreeSet<ObjectId> = sources.iter().map(|source| source.object).collect();
        let copying = self.copy(sources, now_ms).await?;
        if copying.is_whole {
            surveyed.chunks.retain(|chunk| !copied.contains(&chunk.object));
        }
        self.count_backlog(&surveyed.chunks);
        Ok(Bundled::of(copied.len(), copying, began))
    }

    /// Which of the surveyed chunks are to be bundled now.
    fn due(&self, surveyed: &mut Surveyed, now_ms: i64) -> BTreeSet<ObjectId> {
        let chunks = &mut surveyed.chunks;
        chunks.retain(|chunk| !self.is_left_alone(chunk.object));
        let oldest_ms = chunks.first().map_or(0, |chunk| chunk.created_ms);
        *self.backlog() = Backlog { chunks: chunks.len(), oldest_ms };
        let fills: Vec<Fill> = chunks.iter().map(fill).collect();
        chunks[..due(&fills, self.bundle_rules(), now_ms)].iter().map(|chunk| chunk.object).collect()
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
