//! What is counted of reads of settled records?

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        /// What is counted since the start.
        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Counter,)*
        }

        /// What was counted since the start, at one moment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct HistoryCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(super) fn counts(&self) -> HistoryCounts {
                HistoryCounts { $($name: self.$name.get(),)* }
            }
        }

        impl HistoryCounts {
            /// Each with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Reads.
    reads;
    /// Bytes of entries that reads answered.
    bytes;
    /// Reads that went on where an earlier one ended.
    sequential_reads;
    /// Questions to the index where records lie.
    look_ups;
    /// Reads that met missing or damaged records and asked afresh.
    damaged_reads;
    /// Blocks that were in memory.
    memory_hits;
    /// Blocks that were not in memory, nor on their way there.
    memory_misses;
    /// Blocks that were on their way already: several readers, one fetch.
    joins;
    /// Blocks that left memory for others.
    memory_evictions;
    /// Blocks that the cache file had.
    nvme_hits;
    /// Blocks that were neither in memory nor in the cache file.
    nvme_misses;
    /// Blocks of the cache file that were not what they should be, and were dropped.
    nvme_stale;
    /// Blocks written to the cache file.
    nvme_writes;
    /// Blocks that left the cache file for others.
    nvme_evictions;
    /// Blocks that left memory faster than the cache file takes them.
    nvme_skips;
    /// Gets from the store, hedges among them.
    gets;
    /// Bytes that gets answered.
    get_bytes;
    /// Gets that failed.
    get_failures;
    /// Gets that were asked a second time because the first took long.
    hedges;
    /// Hedges that answered first.
    hedge_wins;
    /// Blocks that were fetched before a reader asked.
    prefetches;
    /// Blocks that came from the uploader, without a get.
    inserts;
}
