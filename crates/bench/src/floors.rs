//! What does the host allow, and how far above it is a run?

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::append::AppendOptions;
use crate::disk::{self, DiskOptions, Rung, WRITE_BYTES_MAX, WRITE_BYTES_MIN};
use crate::error::BenchError;
use crate::latency::Quantiles;
use crate::net::{self, NetOptions};
use crate::progress::{OnProgress, as_f64};
use crate::report::{LoadReport, Size};
use crate::store::{Op, StoreReport, StoreRung};

/// Largest chunk that is worth a measurement of its own.
const CHUNK_BYTES_MAX: usize = 8 << 20;
/// How long each rung of the disk is measured.
const RUNG: Duration = Duration::from_secs(1);

/// What the host allows, and how far from it a run was.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Floors {
    /// The quickest durable write of 4 KiB.
    pub disk_4k: Rung,
    /// The quickest durable write of half of what the run has in flight, since two commits are in flight at once: an
    /// estimate of a commit's size.
    pub disk_commit: Rung,
    /// The round trip to the echo at the run's connections, window and record size, in microseconds.
    pub net_us: Quantiles,
    /// Acks a second of the echo.
    pub net_acks_per_s: f64,
    /// The put of the store whose size is nearest to half of what the run has in flight; absent when the store was not measured.
    pub store_put: Option<StoreRung>,
    /// The run's ack p50 over that put's.
    pub p50_over_put: Option<f64>,
    /// The run's bytes a second over that of the store's quickest puts.
    pub bytes_over_puts: Option<f64>,
    /// Bytes a second of the store's quickest puts.
    pub puts_bytes_per_s: Option<f64>,
    /// The run's ack p50 over the sum of disk p50 at 4 KiB and net p50.
    pub p50_over_floor: Option<f64>,
    /// The run's bytes a second over the disk's at the commit size.
    pub bytes_over_disk: Option<f64>,
    /// The run's acks a second over the echo's.
    pub acks_over_net: Option<f64>,
}

/// Measures the floors under a run, the disk's in `directory`.
pub(crate) fn measure(
    options: &AppendOptions,
    directory: &Path,
    store: Option<&StoreReport>,
    on_progress: OnProgress<'_>,
) -> Result<Floors, BenchError> {
    let commit_bytes = commit_bytes(options);
    let mut sizes = vec![WRITE_BYTES_MIN, commit_bytes];
    sizes.dedup();
    let disk_options = DiskOptions {
        sizes,
        rung: RUNG,
        cpu: options.cpus.first().copied(),
        ..DiskOptions::ladder(directory.to_owned())
    };
    let report = disk::run(&disk_options, on_progress)?;
    let floor = |bytes| match report.floor(bytes) {
        Some(rung) => rung.clone(),
        None => unreachable!("the ladder has a rung of {bytes} bytes"),
    };
    let net_options = NetOptions {
        connections: options.connections,
        window: options.window,
        record_bytes: options.record_bytes,
        records_per_batch: options.records_per_batch,
        threads: options.threads,
        cpus: options.cpus.clone(),
        ..NetOptions::default()
    };
    let net = net::run(&net_options, on_progress)?;
    Ok(Floors {
        disk_4k: floor(WRITE_BYTES_MIN),
        disk_commit: floor(commit_bytes),
        net_us: net.latency_us,
        net_acks_per_s: net.acks_per_s,
        store_put: store.and_then(|store| store.nearest(Op::Put, in_flight_bytes(options) / 2)).cloned(),
        p50_over_put: None,
        bytes_over_puts: None,
        puts_bytes_per_s: store.and_then(|store| store.bytes_per_s_max(Op::Put)),
        p50_over_floor: None,
        bytes_over_disk: None,
        acks_over_net: None,
    })
}

/// Half of what is in flight, in whole blocks, within the ladder.
fn commit_bytes(options: &AppendOptions) -> usize {
    (in_flight_bytes(options) / 2).clamp(WRITE_BYTES_MIN, WRITE_BYTES_MAX).next_multiple_of(WRITE_BYTES_MIN)
}

/// Sizes of objects to measure the store at for a run: the smallest, and half of what is in flight, at most 8 MiB.
#[must_use]
pub fn chunk_sizes(options: &AppendOptions) -> Vec<usize> {
    let chunk = (in_flight_bytes(options) / 2).clamp(WRITE_BYTES_MIN, CHUNK_BYTES_MAX);
    let mut sizes = vec![WRITE_BYTES_MIN, chunk];
    sizes.dedup();
    sizes
}

/// Content that a run has in flight at most.
fn in_flight_bytes(options: &AppendOptions) -> usize {
    let batch = options.record_bytes.saturating_mul(options.records_per_batch);
    let window = usize::try_from(options.window).unwrap_or(usize::MAX);
    batch.saturating_mul(window).saturating_mul(options.connections.into())
}

impl Floors {
    /// The floors with the ratios of a run to them.
    pub(crate) fn compared_to(self, report: &LoadReport) -> Self {
        let over = |value: f64, floor: f64| (floor > 0.0).then_some(value / floor);
        let floor_us = self.disk_4k.latency_us.p50.zip(self.net_us.p50);
        let p50 = report.latency_us.p50.zip(floor_us);
        let put_us = self.store_put.as_ref().and_then(|put| put.latency_us.p50);
        let over_put = report.latency_us.p50.zip(put_us);
        Self {
            p50_over_put: over_put.and_then(|(p50, put)| over(p50, put)),
            bytes_over_puts: self.puts_bytes_per_s.and_then(|puts| over(report.bytes_per_s, puts)),
            p50_over_floor: p50.and_then(|(p50, (disk, net))| over(p50, disk + net)),
            bytes_over_disk: over(report.bytes_per_s, self.disk_commit.bytes_per_s),
            acks_over_net: over(report.acks_per_s, self.net_acks_per_s),
            ..self
        }
    }
}

impl fmt::Display for Floors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nfloors, µs  {}", Quantiles::HEADS)?;
        let disk = |f: &mut fmt::Formatter<'_>, rung: &Rung| {
            let kib = as_f64(rung.write_bytes as u64) / 1024.0;
            let rate = Size(rung.bytes_per_s);
            let (quantiles, method) = (rung.latency_us, rung.method);
            writeln!(f, "disk {kib:4.0} K {quantiles}   {rate}/s by {method}")
        };
        disk(f, &self.disk_4k)?;
        if self.disk_commit != self.disk_4k {
            disk(f, &self.disk_commit)?;
        }
        writeln!(f, "net         {}   {:.0} acks/s", self.net_us, self.net_acks_per_s)?;
        if let Some(put) = &self.store_put {
            writeln!(
                f,
                "store put   {}   {}/s of {} KiB",
                put.latency_us,
                Size(put.bytes_per_s),
                put.object_bytes >> 10
            )?;
        }
        let ratios = [
            ("ack p50 over one put", self.p50_over_put),
            ("bytes/s over puts", self.bytes_over_puts),
            ("ack p50 over disk 4 K + net", self.p50_over_floor),
            ("bytes/s over disk", self.bytes_over_disk),
            ("acks/s over net", self.acks_over_net),
        ];
        let ratios = ratios.into_iter().filter_map(|(what, ratio)| Some((what, ratio?)));
        let ratios: Vec<_> = ratios.map(|(what, ratio)| format!("{what} {ratio:.2} ×")).collect();
        writeln!(f, "distance   {}", ratios.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::{AppendOptions, commit_bytes};

    #[test]
    fn a_commit_is_taken_for_half_of_what_is_in_flight() {
        let of = |connections, window, record_bytes| {
            commit_bytes(&AppendOptions { connections, window, record_bytes, ..AppendOptions::default() })
        };
        assert_eq!(of(1, 1, 256), 4 << 10);
        assert_eq!(of(64, 16, 256), 128 << 10);
        assert_eq!(of(3, 16, 256), 8 << 10);
        assert_eq!(of(64, 16, 64 << 10), 1 << 20);
    }
}
