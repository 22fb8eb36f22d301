//! What does the background count, and what does its store cost?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tuning::room::Rooms;
use wire::handoff::ToShard;
use wire::slot::Slot;

use crate::index::IndexError;
use crate::plane::Plane;
use crate::settle::{SettleCounts, Settler};
use crate::shell::unix_ms;
use crate::store::{CostWindow, StoreCounts, StoreMeter};

/// How often shards are told.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How often it is added up how much the store keeps.
const WEIGH_EVERY: Duration = Duration::from_secs(60);
/// Bundles that are looked at at a time.
const BUNDLES: usize = 1024;
/// Money is told in millionths of a dollar.
const MICRO_DOLLARS: f64 = 1_000_000.0;

/// What is told of besides what the plane and the settler count.
#[derive(Debug)]
pub(crate) struct Told {
    /// Counts what is asked of the store.
    pub(crate) meter: Option<Arc<StoreMeter>>,
    /// Whether the store takes money for it.
    pub(crate) is_billed: bool,
    /// The disks of this host that are written.
    pub(crate) rooms: Option<Rooms>,
}

/// What is looked up beside the telling, which waits for nothing.
#[derive(Debug, Default)]
struct Weighed {
    kept_bytes: AtomicU64,
    row_bytes: AtomicU64,
}

/// Tells the first shard every second, which answers for the star.
pub(crate) async fn tell(plane: Arc<Plane>, settler: Arc<Settler>, told: Told) {
    let weighed = Weighed::default();
    tokio::join!(
        tell_each_second(&plane, &settler, &told, &weighed),
        weigh_objects(&plane, &weighed),
        weigh_rows(&plane, &weighed)
    );
}

async fn tell_each_second(plane: &Plane, settler: &Settler, told: &Told, weighed: &Weighed) {
    let (began, mut window) = (Instant::now(), CostWindow::default());
    loop {
        sleep(TELL_EVERY).await;
        let mut counters = Vec::with_capacity(128);
        let kept_bytes = weighed.kept_bytes.load(Ordering::Relaxed);
        if let Some(meter) = &told.meter {
            let counts = meter.snapshot();
            store(&counts, &mut counters);
            cost(&mut window, told.is_billed, (began.elapsed(), &counts, kept_bytes), &mut counters);
        }
        let history = plane.history.counts();
        counters.extend(history.named().map(|(name, value)| (format!("history_{name}"), value)));
        counters.push(("history_nvme_bytes".to_owned(), plane.history.nvme_bytes()));
        memory(plane, weighed, &mut counters);
        counters.extend([
            ("index_unapplied_chunks".to_owned(), plane.unapplied.load(Ordering::Relaxed) as u64),
            ("store_is_stalled".to_owned(), u64::from(plane.is_stalled.load(Ordering::Relaxed))),
            ("store_kept_bytes".to_owned(), kept_bytes),
        ]);
        if let Some(rooms) = &told.rooms {
            disks(rooms, &mut counters);
        }
        settling(&settler.counts(), &mut counters);
        plane.outboxes.send(wire::ids::ShardId::ZERO, ToShard::Counters(Arc::new(counters)));
    }
}

/// Adds up what the store keeps of records now and then; a store that does not answer keeps what it kept.
async fn weigh_objects(plane: &Plane, weighed: &Weighed) {
    loop {
        match kept_bytes(plane).await {
            Ok(bytes) => weighed.kept_bytes.store(bytes, Ordering::Relaxed),
            Err(error) => tracing::debug!(%error, "what the store keeps is not added up"),
        }
        sleep(WEIGH_EVERY).await;
    }
}

/// Bytes of the chunks and bundles that the index knows, dead ones among them.
async fn kept_bytes(plane: &Plane) -> Result<u64, IndexError> {
    let mut bytes: u64 = plane.index.chunks_in_use().await?.iter().map(|chunk| chunk.bytes).sum();
    for slot in Slot::all() {
        let mut after = None;
        loop {
            let bundles = plane.index.bundles(slot, after, BUNDLES).await?;
            bytes += bundles.iter().map(|bundle| bundle.bytes).sum::<u64>();
            match bundles.last() {
                Some(last) if bundles.len() == BUNDLES => after = Some(last.object),
                _ => break,
            }
        }
    }
    Ok(bytes)
}

/// Looks how much of the index is in memory and not in the store yet.
async fn weigh_rows(plane: &Plane, weighed: &Weighed) {
    loop {
        sleep(TELL_EVERY).await;
        if let Ok(since) = plane.index.since_checkpoint().await {
            weighed.row_bytes.store(since.row_bytes, Ordering::Relaxed);
        }
    }
}

/// What the background keeps in memory.
fn memory(plane: &Plane, weighed: &Weighed, out: &mut Vec<(String, u64)>) {
    let rows = [
        ("memory_blocks_bytes", plane.history.memory_bytes() as u64),
        ("memory_reads_bytes", plane.history.reads_bytes() as u64),
        ("memory_chunks_bytes", plane.applied.unapplied_bytes() as u64),
        ("memory_rows_bytes", weighed.row_bytes.load(Ordering::Relaxed)),
    ];
    out.extend(rows.map(|(name, value)| (name.to_owned(), value)));
}

/// How full the disks are.
fn disks(rooms: &Rooms, out: &mut Vec<(String, u64)>) {
    for (name, room) in [("data", Some(&rooms.data)), ("store", rooms.store.as_ref())] {
        let Some(room) = room else { continue };
        out.extend([
            (format!("disk_{name}_free_bytes"), room.free_bytes()),
            (format!("disk_{name}_kept_back_bytes"), room.marks().reserve_bytes),
            (format!("disk_{name}_is_low"), u64::from(room.is_low())),
        ]);
    }
}

/// What a month costs, as the last minutes were.
fn cost(
    window: &mut CostWindow,
    is_billed: bool,
    (now, counts, kept_bytes): (Duration, &StoreCounts, u64),
    out: &mut Vec<(String, u64)>,
) {
    let (mut dollars, over) = window.note(now, counts, kept_bytes);
    if !is_billed {
        dollars = crate::store::Dollars::default();
    }
    let rows = [
        ("cost_writes_micro_dollars_a_month", micro_dollars(dollars.writes)),
        ("cost_reads_micro_dollars_a_month", micro_dollars(dollars.reads)),
        ("cost_kept_micro_dollars_a_month", micro_dollars(dollars.storage)),
        ("cost_micro_dollars_a_month", micro_dollars(dollars.total())),
        ("cost_window_s", over.as_secs()),
    ];
    out.extend(rows.map(|(name, value)| (name.to_owned(), value)));
}

/// What is done behind the channel, and what is still to do.
fn settling(counts: &SettleCounts, out: &mut Vec<(String, u64)>) {
    let age_ms = if counts.backlog_oldest_ms == 0 { 0 } else { unix_ms().saturating_sub(counts.backlog_oldest_ms) };
    let rows = [
        ("bundles_total", counts.bundles),
        ("bundle_bytes_total", counts.bundle_bytes),
        ("bundled_extents_total", counts.extents_moved),
        ("bundles_rewritten_total", counts.bundles_rewritten),
        ("chunks_deleted_total", counts.chunks_deleted),
        ("objects_deleted_total", counts.objects_deleted),
        ("orphans_deleted_total", counts.orphans_deleted),
        ("retention_trims_total", counts.trims_asked),
        ("objects_unreadable", counts.unreadable),
        ("unbundled_chunks", counts.backlog_chunks),
        ("unbundled_bytes", counts.backlog_bytes),
        ("unbundled_age_ms", u64::try_from(age_ms).unwrap_or(0)),
        ("retention_is_stopped", u64::from(counts.retention_stopped)),
    ];
    out.extend(rows.map(|(name, value)| (name.to_owned(), value)));
}

/// Calls, failures and bytes by operation and purpose, the median and the 99th percentile of each.
fn store(counts: &StoreCounts, out: &mut Vec<(String, u64)>) {
    for row in &counts.rows {
        let name = format!("store_{}_{}", row.op.to_string().replace('-', "_"), row.purpose.word());
        let micros = |part| u64::try_from(row.quantile(part).as_micros()).unwrap_or(u64::MAX);
        out.extend([
            (format!("{name}_total"), row.calls),
            (format!("{name}_failures_total"), row.failures),
            (format!("{name}_bytes_total"), row.bytes),
            (format!("{name}_p50_us"), micros(0.5)),
            (format!("{name}_p99_us"), micros(0.99)),
        ]);
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate of money, never negative")]
fn micro_dollars(dollars: f64) -> u64 {
    (dollars.max(0.0) * MICRO_DOLLARS) as u64
}
