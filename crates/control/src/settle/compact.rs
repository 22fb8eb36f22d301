//! When are bundles rewritten?

use tokio::time::Instant;
use wire::slot::Slot;

use super::bundle::fill;
use super::{Bundled, SettleError, Settler};
use crate::core::settle_pack::{Fill, to_compact};
use crate::index::ObjectId;

/// Bundles that one look takes in.
const LOOK_MAX: usize = 4096;

/// Where the last look ended.
#[derive(Debug, Default)]
pub(super) struct Survey {
    slot: Slot,
    after: Option<ObjectId>,
}

impl Settler {
    /// Rewrites bundles that are live by less than half, and small ones of which there are many. One step looks at some of a slot's;
    /// the next goes on from there, so that all are looked at in turn.
    ///
    /// # Errors
    /// [`SettleError`]; what was not moved lies where it was.
    pub async fn compact_step(&self, now_ms: i64) -> Result<Bundled, SettleError> {
        let _copying = self.copying.lock().await;
        let began = Instant::now();
        let mut survey = self.survey.lock().await;
        // As many looks as there are slots at most: then all was looked at, or something found.
        for _ in Slot::all() {
            let Survey { slot, after } = *survey;
            let mut bundles = self.index.bundles(slot, after, LOOK_MAX).await?;
            let (is_last, end) = (bundles.len() < LOOK_MAX, bundles.last().map(|bundle| bundle.object));
            bundles.retain(|bundle| !self.is_left_alone(bundle.object));
            let fills: Vec<Fill> = bundles.iter().map(fill).collect();
            let picked = to_compact(&fills, self.options.compact_rules());
            if !picked.is_empty() {
                // The same look again: what was rewritten is gone from it.
                let objects = picked.iter().map(|at| bundles[*at].object).collect();
                let sources = self.sources(objects, self.options.object_bytes.saturating_mul(2)).await?;
                let bundles = sources.len();
                let copied = self.copy(sources, now_ms).await?;
                self.counted().bundles_rewritten += bundles as u64;
                return Ok(Bundled::of(bundles, copied, began));
            }
            *survey = if is_last { Survey { slot: following(slot), after: None } } else { Survey { slot, after: end } };
        }
        Ok(Bundled::default())
    }
}

fn following(slot: Slot) -> Slot {
    Slot::new(slot.get() + 1).unwrap_or_default()
}
