//! What does the background count, and what does its store cost?

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use wire::handoff::ToShard;

use crate::plane::Plane;
use crate::settle::{SettleCounts, Settler};
use crate::shell::unix_ms;
use crate::store::{StoreCounts, StoreMeter};

/// How often shards are told.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Money is told in millionths of a dollar.
const MICRO_DOLLARS: f64 = 1_000_000.0;

/// Tells the first shard every second, which answers for the star.
pub(crate) async fn tell(plane: Arc<Plane>, settler: Arc<Settler>, meter: Option<Arc<StoreMeter>>) {
    let began = Instant::now();
    loop {
        sleep(TELL_EVERY).await;
        let mut counters = Vec::with_capacity(64);
        if let Some(meter) = &meter {
            store(&meter.snapshot(), began.elapsed(), &mut counters);
        }
        let history = plane.history.counts();
        counters.extend(history.named().map(|(name, value)| (format!("history_{name}"), value)));
        counters.push(("history_memory_bytes".to_owned(), plane.history.memory_bytes() as u64));
        counters.extend([
            ("index_unapplied_chunks".to_owned(), plane.unapplied.load(Ordering::Relaxed) as u64),
            ("store_is_stalled".to_owned(), u64::from(plane.uploader.stall().borrow().is_some())),
        ]);
        settling(&settler.counts(), &mut counters);
        plane.outboxes.send(wire::ids::ShardId::ZERO, ToShard::Counters(Arc::new(counters)));
    }
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

/// Calls, failures and bytes by operation and purpose, the median and the 99th percentile of each, and what all of it comes to.
fn store(counts: &StoreCounts, elapsed: Duration, out: &mut Vec<(String, u64)>) {
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
    let dollars = counts.dollars_a_month(elapsed, 0);
    out.extend([
        ("store_micro_dollars_a_month_writes".to_owned(), micro_dollars(dollars.writes)),
        ("store_micro_dollars_a_month_reads".to_owned(), micro_dollars(dollars.reads)),
    ]);
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate of money, never negative")]
fn micro_dollars(dollars: f64) -> u64 {
    (dollars.max(0.0) * MICRO_DOLLARS) as u64
}
