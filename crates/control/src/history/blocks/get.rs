//! How is a block fetched, and when is the store asked twice?

use std::sync::PoisonError;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::{Block, Shared, lost};
use crate::core::get_times::GetTimes;
use crate::core::read_plan::{BlockKey, Part};
use crate::store::{ObjectName, Span, StoreError};

impl Shared {
    /// The block from the cache file, or else from the store.
    pub(super) async fn fetch(&self, key: BlockKey) -> Result<Block, StoreError> {
        let start = key.range(self.block_bytes).start;
        if let (Some(nvme), Part::Block(no)) = (&self.nvme, key.part) {
            if let Some(bytes) = nvme.get((key.object, no)).await {
                self.counters.nvme_hits.add(1);
                return Ok(Block { pinned: bytes.len(), bytes, start });
            }
            self.counters.nvme_misses.add(1);
        }
        let bytes = self.get(key).await.inspect_err(|_| self.counters.get_failures.add(1))?;
        self.counters.get_bytes.add(bytes.len() as u64);
        Ok(Block { pinned: bytes.len(), bytes, start })
    }

    async fn get(&self, key: BlockKey) -> Result<Bytes, StoreError> {
        let turn = self.gets.acquire().await.map_err(|_| lost(key.object, "gets are closed"))?;
        let range = key.range(self.block_bytes);
        let span = Span::Range { start: range.start, end: range.end };
        let name = key.object.name();
        let began = Instant::now();
        let got = if self.hedge { self.get_hedged(&name, span).await } else { self.get_once(&name, span).await };
        drop(turn);
        let object = got?;
        self.with_times(|times| times.add(began.elapsed()));
        let expected = range.end.min(object.meta.size_bytes).saturating_sub(range.start);
        if object.body.len() as u64 != expected {
            return Err(lost(key.object, "it answered another number of bytes than it should"));
        }
        Ok(object.body)
    }

    async fn get_once(&self, name: &ObjectName, span: Span) -> Result<crate::store::Object, StoreError> {
        self.counters.gets.add(1);
        self.store.get(name, span).await
    }

    /// Asks a second time when the first takes longer than nineteen in twenty do; what answers first is taken, and the other is
    /// dropped, which ends it. An error counts only when both failed.
    async fn get_hedged(&self, name: &ObjectName, span: Span) -> Result<crate::store::Object, StoreError> {
        let patience: Duration = self.with_times(|times| times.p95());
        let mut first = std::pin::pin!(self.get_once(name, span));
        tokio::select! {
            biased;
            got = &mut first => return got,
            () = sleep(patience) => {}
        }
        let Ok(_turn) = self.hedges.try_acquire() else {
            return first.await;
        };
        self.counters.hedges.add(1);
        let mut second = std::pin::pin!(self.get_once(name, span));
        tokio::select! {
            biased;
            got = &mut first => match got {
                Ok(object) => Ok(object),
                Err(_) => second.await,
            },
            got = &mut second => match got {
                Ok(object) => {
                    self.counters.hedge_wins.add(1);
                    Ok(object)
                }
                Err(_) => first.await,
            },
        }
    }

    fn with_times<T>(&self, use_them: impl FnOnce(&mut GetTimes) -> T) -> T {
        use_them(&mut self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
