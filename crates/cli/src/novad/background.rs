//! What do the settings mean for the background?

use std::sync::Arc;
use std::time::Duration;

use control::Options;
use control::channel::UploadOptions;
use control::history::{HistoryOptions, NvmeOptions};
use control::index::{CheckpointPolicy, IndexOptions};
use control::settle::SettleOptions;
use control::store::StoreMeter;
use tuning::plan::ControlMemory;
use tuning::room::Rooms;
use tuning::settings::{BlockCache, Settings, StoreAddress};
use tuning::start::Prepared;

use super::args::Says;

/// Chunks that are not full, a second, on a store where each costs money.
const S3_PUTS_PER_SECOND: u32 = 20;
/// Blocks of settled records on the local disk, where the store is S3 and no other number is set; a part of the disk at most.
const CACHE_BYTES: u64 = 4 << 30;
const CACHE_SHARE_DIVISOR: u64 = 16;
/// Below this a cache is not worth its file.
const CACHE_BYTES_MIN: u64 = 16 << 20;
/// What is under way or copied must fit into what is kept back of a small disk: chunks side by side take half of it, a bundle a
/// quarter, and what a bundle is made of an eighth.
const CHUNK_DIVISOR: u64 = 16;
const OBJECT_DIVISOR: u64 = 4;
const BUNDLE_DIVISOR: u64 = 8;
const CHUNK_BYTES_MIN: u64 = 1 << 20;

/// The options of the background.
pub(super) fn options(settings: &Settings, prepared: &Prepared, says: Says, meter: Arc<StoreMeter>) -> Options {
    let is_s3 = matches!(settings.store, StoreAddress::S3 { .. });
    let settle = &settings.settle;
    let default_puts = if is_s3 { S3_PUTS_PER_SECOND } else { 0 };
    let puts_per_second_max = if settle.puts_per_second_max == 0 { default_puts } else { settle.puts_per_second_max };
    let memory = ControlMemory::of(settings.memory.control_bytes_max);
    let grace = settle.grace_ms.duration();
    let (index, settling) = if failpoints::is_hurried() { hurried() } else { Default::default() };
    let (upload, settling) = within(prepared, settings, &memory, settling);
    Options {
        upload: UploadOptions {
            puts_per_second_max,
            settle_age: settle.age_ms.duration(),
            standard_age: Duration::from_millis(if is_s3 { 50 } else { 2 }),
            hedge: is_s3,
            ..upload
        },
        index: IndexOptions {
            cache_bytes: memory.index_blocks,
            checkpoint: CheckpointPolicy { row_bytes_max: memory.rows, ..index.checkpoint },
            dead_grace_ms: i64::try_from(grace.as_millis()).unwrap_or(i64::MAX),
            ..index
        },
        history: HistoryOptions {
            hedge: is_s3,
            nvme: block_cache(settings, prepared),
            reads_bytes: as_usize(memory.reads),
            ..HistoryOptions::of_memory(as_usize(memory.blocks))
        },
        settle: SettleOptions { grace, ..settling },
        confirms_clock: says.confirms_clock,
        meter: Some(meter),
        is_billed: is_s3,
        rooms: Some(prepared.rooms.clone()),
        unapplied_bytes: as_usize(memory.unapplied()),
    }
}

/// What builds for tests of crashes go by: what takes minutes or days is there within a test.
fn hurried() -> (IndexOptions, SettleOptions) {
    let moment = Duration::from_millis(50);
    let index = IndexOptions {
        checkpoint: CheckpointPolicy { every: Duration::from_secs(1), chunks_max: 64, ..CheckpointPolicy::default() },
        forget_after_ms: 1_000,
        garbage_age: Duration::from_secs(1),
        garbage_every: Duration::from_secs(1),
        ..IndexOptions::default()
    };
    let settle = SettleOptions {
        bundle_chunks: 16,
        bundle_age: moment * 6,
        look_every: moment,
        compact_every: moment * 4,
        upkeep_every: moment * 4,
        retention_every: moment,
        checkpoint_every: moment * 8,
        clock_every: moment * 4,
        orphans_after: moment * 20,
        orphans_every: moment * 20,
        orphan_age: moment * 20,
        ..SettleOptions::default()
    };
    (index, settle)
}

/// How large chunks and bundles are: so that they fit into memory, and on a disk that is full into what is kept back of it.
fn within(
    prepared: &Prepared,
    settings: &Settings,
    memory: &ControlMemory,
    settle: SettleOptions,
) -> (UploadOptions, SettleOptions) {
    let upload = UploadOptions::default();
    let mut chunk_bytes = memory.chunk();
    let (mut bundle_bytes, mut object_bytes) = (memory.bundle(), 2 * memory.bundle());
    if let Some(store) = &prepared.rooms.store {
        let shards = prepared.plan.shard_cpus().len() as u64;
        let has_logs = Arc::ptr_eq(store, &prepared.rooms.data);
        let segments_bytes = if has_logs { settings.log.segment_bytes.get().saturating_mul(shards) } else { 0 };
        let work_bytes = store.marks().work_bytes(segments_bytes);
        chunk_bytes = chunk_bytes.min(work_bytes / CHUNK_DIVISOR);
        bundle_bytes = bundle_bytes.min(work_bytes / BUNDLE_DIVISOR);
        object_bytes = object_bytes.min(work_bytes / OBJECT_DIVISOR);
    }
    let upload =
        UploadOptions { chunk_bytes: upload.chunk_bytes.min(as_usize(chunk_bytes.max(CHUNK_BYTES_MIN))), ..upload };
    let settle = SettleOptions {
        bundle_bytes: settle.bundle_bytes.min(bundle_bytes),
        object_bytes: settle.object_bytes.min(object_bytes),
        ..settle
    };
    (upload, settle)
}

fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The file for blocks of settled records. What an earlier start left of one is removed first: it is empty at each start.
fn block_cache(settings: &Settings, prepared: &Prepared) -> Option<NvmeOptions> {
    let directory = prepared.data.path().to_owned();
    control::history::remove_block_cache(&directory);
    let Rooms { data: room, store } = &prepared.rooms;
    let bytes = match settings.block_cache_bytes {
        BlockCache::Bytes(bytes) => bytes.get(),
        BlockCache::Auto if store.is_some() => 0,
        BlockCache::Auto => CACHE_BYTES.min(room.free_bytes() / CACHE_SHARE_DIVISOR),
    };
    if bytes < CACHE_BYTES_MIN {
        return None;
    }
    if !room.fits(bytes) {
        tracing::warn!(bytes, %room, "there is no block cache in this run: the disk has no room for it");
        return None;
    }
    Some(NvmeOptions { directory, bytes })
}
