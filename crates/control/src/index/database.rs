//! How is the database of a slot opened, and how much memory and how many store operations may it take?
//!
//! Its write-ahead log is off: the channel is the log. A memtable goes to the store when it is full or at a checkpoint; nothing runs on a
//! timer but a look at the manifest every half minute, which finds out a writer that took over. Compaction and the removal of
//! what compaction leaves are runs of [`Databases::compact`] and [`Databases::collect`], so that an idle slot costs next to nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slatedb::admin::AdminBuilder;
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, GarbageCollectorDirectoryOptions, GarbageCollectorOptions, Settings,
    SizeTieredCompactionSchedulerOptions, SstBlockSize,
};
use slatedb::db_cache::foyer::{FoyerCache, FoyerCacheOptions};
use slatedb::db_cache::{DbCache, SplitCache};
use slatedb::{BlockCachePolicy, CacheTarget, CompactorBuilder, Db, DbCacheManagerOps, Error};
use wire::slot::Slot;

use super::no_log::NoLog;
use super::objects::Objects;
use super::options::IndexOptions;
use crate::store::{ObjectPrefix, Store, StoreError};

/// Where the databases lie in the store.
pub(super) const PREFIX: &str = "m/";
const MIB: usize = 1 << 20;
/// A memtable of this size goes to the store; 64 full ones are 256 MiB.
const TABLE_BYTES: usize = 4 * MIB;
/// A writer waits while this much of one slot is on its way to the store.
const UNFLUSHED_BYTES_MAX: usize = 4 * TABLE_BYTES;
/// Sorted files that wait for compaction, at most; then writers wait.
const WAITING_TABLES_MAX: usize = 32;
/// Tables with fewer keys have no filter.
const FILTER_KEYS_MIN: u32 = 100;
/// Rows that are read at once: a get at the store takes as long for fewer, and what finds blocks takes a quarter of the memory that it
/// would for those of 4 KiB.
const BLOCK_SIZE: SstBlockSize = SstBlockSize::Block16Kib;
/// What finds the blocks of a table, and says what it doesn't hold.
const FINDERS: [CacheTarget; 2] = [CacheTarget::Index, CacheTarget::Filters];
/// Finders have all of the cache but this part of it: without them, each look-up takes two reads more.
const CACHED_BLOCKS_DIVISOR: u64 = 4;
/// Tries of one store operation after the first; with pauses of up to a second between them.
const RETRIES_MAX: u32 = 8;
/// Tables, or sorted runs of like size, that compaction joins: from and to.
const SOURCES: (usize, usize) = (4, 8);
/// How often a compaction looks for its next step while it runs.
const COMPACTION_POLL: Duration = Duration::from_millis(200);
/// One run of compaction ends after this; the next one goes on where it stopped.
const COMPACTION_MAX: Duration = Duration::from_secs(300);
/// A run ends when nothing has changed for this long.
const COMPACTION_QUIET: Duration = Duration::from_secs(1);

/// Opens and tends the databases of slots.
#[derive(Clone)]
pub(super) struct Databases {
    store: Arc<dyn Store>,
    objects: Arc<Objects>,
    prefix: String,
    cache: Arc<dyn DbCache>,
    garbage_age: Duration,
}

impl Databases {
    /// The databases of a generation; the first is 0.
    pub(super) fn new(store: Arc<dyn Store>, options: &IndexOptions, generation: u64) -> Self {
        let prefix = prefix_of(generation);
        let blocks_bytes = options.cache_bytes / CACHED_BLOCKS_DIVISOR;
        let part = |max_capacity: u64| -> Option<Arc<dyn DbCache>> {
            Some(Arc::new(FoyerCache::new_with_opts(FoyerCacheOptions { max_capacity, shards: 4 })))
        };
        let cache = SplitCache::new()
            .with_block_cache(part(blocks_bytes))
            .with_meta_cache(part(options.cache_bytes - blocks_bytes))
            .build();
        Self {
            objects: Arc::new(Objects::new(Arc::clone(&store), &prefix)),
            store,
            prefix,
            cache: Arc::new(cache),
            garbage_age: options.garbage_age,
        }
    }

    /// Whether the store holds anything of the slot's database.
    pub(super) async fn exists(&self, slot: Slot) -> Result<bool, StoreError> {
        let Ok(prefix) = ObjectPrefix::parse(&format!("{}{}/manifest/", self.prefix, path(slot))) else {
            unreachable!("digits and slashes are a prefix")
        };
        Ok(!self.store.list(&prefix, None, 1).await?.objects.is_empty())
    }

    /// Opens the slot's database, or makes one; from then on, whoever had it open can't write.
    pub(super) async fn open(&self, slot: Slot) -> Result<Db, Error> {
        let settings = Settings {
            flush_interval: None,
            wal_enabled: false,
            manifest_poll_interval: Duration::from_secs(30),
            manifest_update_timeout: Duration::from_secs(60),
            min_filter_keys: FILTER_KEYS_MIN,
            l0_sst_size_bytes: TABLE_BYTES,
            l0_max_ssts: WAITING_TABLES_MAX,
            l0_max_ssts_per_key: WAITING_TABLES_MAX,
            l0_flush_parallelism: 1,
            max_unflushed_bytes: UNFLUSHED_BYTES_MAX,
            compactor_options: None,
            garbage_collector_options: None,
            object_store_max_retries: Some(RETRIES_MAX),
            ..Settings::default()
        };
        Db::builder(path(slot), Arc::clone(&self.objects) as _)
            .with_settings(settings)
            .with_wal_writer(Box::new(NoLog))
            .with_db_cache(Arc::clone(&self.cache), slot.get().into())
            .with_block_cache_policy(BlockCachePolicy::default().with_flush_targets(&FINDERS))
            .with_sst_block_size(BLOCK_SIZE)
            .build()
            .await
    }

    /// Joins the slot's tables until they are few, or for five minutes.
    pub(super) async fn compact(&self, slot: Slot, db: &Db) -> Result<(), Error> {
        let compactor = CompactorBuilder::new(path(slot), Arc::clone(&self.objects) as _)
            .with_options(self.compactor_options())
            .with_sst_block_size(BLOCK_SIZE)
            .build();
        let mut run = Box::pin(compactor.run());
        let (start, mut changed, mut seen) = (Instant::now(), Instant::now(), db.manifest().id());
        let looked = loop {
            tokio::select! {
                ended = &mut run => return ended,
                () = tokio::time::sleep(COMPACTION_POLL) => {}
            }
            if let Err(error) = db.refresh_manifest().await {
                break Err(error);
            }
            let manifest = db.manifest();
            if manifest.id() != seen {
                (seen, changed) = (manifest.id(), Instant::now());
            }
            let is_quiet = manifest.l0().len() < SOURCES.0 && changed.elapsed() > COMPACTION_QUIET;
            if is_quiet || start.elapsed() > COMPACTION_MAX {
                break Ok(());
            }
        };
        // Stopping waits for the tasks that `run` waits for, too.
        let (stopped, ended) = tokio::join!(compactor.stop(), run);
        looked.and(stopped).and(ended)?;
        Self::take_finders(db).await
    }

    /// Brings the finders of all tables into the cache: those that compaction made, or an earlier process.
    pub(super) async fn take_finders(db: &Db) -> Result<(), Error> {
        db.refresh_manifest().await?;
        for table in db.manifest().all_sst_views() {
            db.warm_sst(table.sst.id, &FINDERS).await?;
        }
        Ok(())
    }

    fn compactor_options(&self) -> CompactorOptions {
        let scheduler = SizeTieredCompactionSchedulerOptions {
            min_compaction_sources: SOURCES.0,
            max_compaction_sources: SOURCES.1,
            include_size_threshold: 4.0,
            sorted_run_consolidation_threshold: SOURCES.1,
        };
        CompactorOptions {
            poll_interval: COMPACTION_POLL,
            manifest_update_timeout: Duration::from_secs(60),
            max_concurrent_compactions: 1,
            enable_trivial_move: false,
            scheduler_options: HashMap::from(scheduler),
            worker: Some(CompactionWorkerOptions {
                max_concurrent_compactions: 1,
                compactions_poll_interval: COMPACTION_POLL,
                heartbeat_interval: Duration::from_secs(5),
                max_sst_size: 32 * MIB,
                max_fetch_tasks: 2,
                bytes_to_fetch: MIB,
                max_subcompactions: 1,
                min_filter_keys: FILTER_KEYS_MIN,
                compression_codec: None,
                metric_level: None,
                object_store_max_retries: Some(RETRIES_MAX),
            }),
            commit_compacted_interval: COMPACTION_POLL,
            // For reads that began before tables were joined.
            checkpoint_lifetime: self.garbage_age,
            object_store_max_retries: Some(RETRIES_MAX),
            ..CompactorOptions::default()
        }
    }

    /// How many tables wait for compaction, if they are enough for one.
    pub(super) fn wants_compaction(db: &Db) -> Option<usize> {
        Some(db.manifest().l0().len()).filter(|tables| *tables >= SOURCES.0)
    }

    /// Removes tables and manifests that nothing refers to and that are older than the garbage age.
    pub(super) async fn collect(&self, slot: Slot) -> Result<(), Error> {
        let old = GarbageCollectorDirectoryOptions { interval: None, min_age: self.garbage_age, dry_run: false };
        let options = GarbageCollectorOptions {
            manifest_options: Some(old),
            wal_options: None,
            wal_fence_options: None,
            compacted_options: Some(old),
            compactions_options: Some(old),
            detach_options: None,
            metric_level: None,
            boundary_files_enabled: true,
            object_store_max_retries: Some(RETRIES_MAX),
        };
        AdminBuilder::new(path(slot), Arc::clone(&self.objects) as _).build().run_gc_once(options).await
    }
}

impl fmt::Debug for Databases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Databases").field("objects", &self.objects).finish_non_exhaustive()
    }
}

/// Where the databases of a generation lie: those of the first one at once below the prefix.
pub(super) fn prefix_of(generation: u64) -> String {
    if generation == 0 { PREFIX.to_owned() } else { format!("{PREFIX}g{generation:016x}/") }
}

/// Where the slot's database lies below the prefix.
fn path(slot: Slot) -> String {
    format!("{:02x}", slot.get())
}
