//! What are disk, network and store of this host good for, in a minute and in words?

use std::io::{self, Write};
use std::time::Duration;

use bench::disk::DiskOptions;
use bench::net::NetOptions;
use bench::store::{Op, StoreOptions};
use clap::Args;
use serde::Serialize;
use tuning::host::nearest_directory;
use tuning::measured::Method;
use tuning::settings::StoreAddress;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::super::args::Output;
use super::super::bench::OfStore;
use super::super::failure::Failure;
use super::super::stdout;
use super::disk::judge;
use super::look::NovadFlags;
use crate::novad::{StoreFlags, open_store};

/// Size of a small commit, and of an object that is put.
const COMMIT_BYTES: usize = 4 << 10;
const OBJECT_BYTES: usize = 512 << 10;
/// Medians up to which something is quick, good, or usable, in microseconds.
const DISK_US: [f64; 3] = [200.0, 1_000.0, 5_000.0];
const NET_US: [f64; 3] = [60.0, 150.0, 500.0];
const STORE_US: [f64; 3] = [20_000.0, 100_000.0, 500_000.0];

#[derive(Debug, Args)]
pub(in crate::nova) struct SelftestArgs {
    #[command(flatten)]
    novad: NovadFlags,
}

/// How one part of the host did.
#[derive(Debug, Serialize)]
struct Part {
    part: &'static str,
    works: bool,
    /// In microseconds.
    p50_us: Option<f64>,
    /// In microseconds.
    p99_us: Option<f64>,
    verdict: String,
}

impl Part {
    fn failed(part: &'static str, why: impl ToString) -> Self {
        Self { part, works: false, p50_us: None, p99_us: None, verdict: why.to_string() }
    }
}

impl SelftestArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let settings = self.novad.settings()?;
        let mut parts = Vec::new();
        let mut show = |part: Part| {
            let shown = tell(&part, output);
            parts.push(part);
            shown
        };
        show(disk(&settings.data))?;
        show(net())?;
        if settings.store != StoreAddress::InData {
            show(self.store())?;
        }
        let median = |name: &str| parts.iter().find(|part| part.part == name).and_then(|part| part.p50_us);
        if let (Some(disk), Some(net), Output::Text) = (median("disk"), median("net"), output) {
            let mut out = stdout();
            writeln!(
                out,
                "\nan Express append alone takes about {:.0} µs here: {net:.0} to and fro, {disk:.0} on the disk",
                disk + net
            )?;
            match median("store") {
                Some(store) => {
                    writeln!(out, "a Standard append takes about {:.0} ms and the wait for others", store / 1_000.0)?
                }
                None => writeln!(out, "the store was not measured: it is in the data directory, or does not work")?,
            }
            out.flush()?;
        }
        let broken: Vec<&str> = parts.iter().filter(|part| !part.works).map(|part| part.part).collect();
        if broken.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(Reason::FailedPrecondition, format!("novad can't serve here: {}", broken.join(", "))).into())
    }

    /// Puts and gets of objects, where the settings say.
    fn store(&self) -> Part {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let outcome = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
            runtime.block_on(async {
                let StoreFlags { store, address } = open_store(self.novad.matches()).map_err(|(_, why)| why)?;
                let ladder = StoreOptions::ladder(address);
                let options = StoreOptions {
                    sizes: vec![OBJECT_BYTES],
                    depths: vec![1, 8],
                    rung: Duration::from_secs(3),
                    ..ladder
                };
                let objects = OfStore::new(store).map_err(|error| error.to_string())?;
                bench::store::run(&options, &objects, &mut |_| ()).await.map_err(|error| error.to_string())
            })
        });
        let report = match outcome {
            Ok(report) => report,
            Err(why) => return Part::failed("store", why),
        };
        let rung = report.nearest(Op::Put, OBJECT_BYTES).map(|rung| rung.latency_us);
        let (p50, p99) = rung.map_or((None, None), |rung| (rung.p50.or(rung.max), rung.p99));
        let most = report.bytes_per_s_max(Op::Put).unwrap_or(0.0) / 1e6;
        let words = worded(p50, STORE_US, "an object of 512 KiB is put");
        Part {
            part: "store",
            works: true,
            p50_us: p50,
            p99_us: p99,
            verdict: format!("{words}; {most:.0} MB/s with 8 at once"),
        }
    }
}

/// Durable writes where the data are.
fn disk(data: &std::path::Path) -> Part {
    let ladder = DiskOptions::ladder(nearest_directory(data));
    let options = DiskOptions {
        sizes: vec![COMMIT_BYTES, 16 << 10, 64 << 10, 1 << 20],
        methods: vec![Method::WriteFdatasync, Method::Dsync],
        ..ladder
    };
    let report = match bench::disk::run(&options, &mut |_| ()) {
        Ok(report) => report,
        Err(error) => return Part::failed("disk", error),
    };
    let rung = report.floor(COMMIT_BYTES).map(|rung| rung.latency_us);
    let (p50, p99) = rung.map_or((None, None), |rung| (rung.p50.or(rung.max), rung.p99));
    let most = report.floor(1 << 20).map_or(0.0, |rung| rung.bytes_per_s / 1e6);
    let mut verdict = worded(p50, DISK_US, "4 KiB are durable");
    verdict += &format!("; {most:.0} MB/s at 1 MiB");
    if let Some(method) = judge(&report) {
        verdict += &format!("; log.sync = {} suits it", method.sync);
    }
    for warning in &report.warnings {
        verdict += &format!("; {warning}");
    }
    Part { part: "disk", works: report.is_direct, p50_us: p50, p99_us: p99, verdict }
}

/// A shard's ring and the wire's framing, over loopback.
fn net() -> Part {
    let once = |connections, window| {
        let options = NetOptions { connections, window, duration: Duration::from_secs(2), ..NetOptions::default() };
        bench::net::run(&options, &mut |_| ())
    };
    match (once(1, 1), once(16, 16)) {
        (Ok(alone), Ok(many)) => {
            let p50 = alone.latency_us.p50.or(alone.latency_us.max);
            let words = worded(p50, NET_US, "a round trip is over");
            let verdict = format!("io_uring works; {words}; {:.0} frames a second through one shard", many.acks_per_s);
            Part { part: "net", works: true, p50_us: p50, p99_us: alone.latency_us.p99, verdict }
        }
        (Err(error), _) | (_, Err(error)) => Part::failed("net", error),
    }
}

/// A median in words.
fn worded(p50: Option<f64>, bounds: [f64; 3], what: &str) -> String {
    let Some(us) = p50 else { return "too few samples to tell".to_owned() };
    let word = match bounds.iter().position(|bound| us <= *bound) {
        Some(0) => "quick",
        Some(1) => "good",
        Some(2) => "usable",
        _ => "slow",
    };
    let time = if us < 10_000.0 { format!("{us:.0} µs") } else { format!("{:.0} ms", us / 1_000.0) };
    format!("{word}: {what} after {time}")
}

fn tell(part: &Part, output: Output) -> io::Result<()> {
    let mut out = stdout();
    match output {
        Output::Json => {
            serde_json::to_writer(&mut out, part).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Output::Text => {
            let works = if part.works { "" } else { "does not work: " };
            writeln!(out, "{:6} {works}{}", part.part, part.verdict)?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::{DISK_US, STORE_US, worded};

    #[test]
    fn medians_are_worded_by_their_bounds() {
        assert_eq!(worded(Some(90.0), DISK_US, "x"), "quick: x after 90 µs");
        assert_eq!(worded(Some(900.0), DISK_US, "x"), "good: x after 900 µs");
        assert_eq!(worded(Some(12_000.0), DISK_US, "x"), "slow: x after 12 ms");
        assert_eq!(worded(Some(50_000.0), STORE_US, "x"), "good: x after 50 ms");
        assert_eq!(worded(None, STORE_US, "x"), "too few samples to tell");
    }
}
