//! How quick is a round trip when nothing has to be durable?

mod echo;

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tuning::host::cpus_allowed;

use crate::append::{self, AppendOptions};
use crate::error::BenchError;
use crate::load;
use crate::progress::OnProgress;
use crate::report::{LoadReport, Made, Settings, seconds};

use echo::Echo;

/// What to send to the echo and for how long.
///
/// The echo runs in this process as a shard does: one pinned thread, glommio, the wire's framing. It checks frames, not
/// batches, and answers what one read brought with one frame of acks, as a shard does for one commit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NetOptions {
    /// How many connections.
    pub connections: u16,
    /// Frames in flight on a connection.
    pub window: u32,
    /// Bytes of a record's body.
    pub record_bytes: usize,
    /// Records of a frame.
    pub records_per_batch: usize,
    /// How long to run before measuring.
    #[serde(rename = "warm_up_seconds", serialize_with = "seconds")]
    pub warm_up: Duration,
    /// How long to measure.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: Duration,
    /// Threads of the generator.
    pub threads: u16,
    /// CPUs that the generator's threads are pinned to in turn; empty takes the second one that the process may use.
    pub cpus: Vec<usize>,
    /// CPU of the echo; absent takes the first one that the process may use.
    pub server_cpu: Option<usize>,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self {
            connections: 1,
            window: 1,
            record_bytes: 256,
            records_per_batch: 1,
            warm_up: Duration::from_millis(500),
            duration: Duration::from_secs(3),
            threads: 1,
            cpus: Vec::new(),
            server_cpu: None,
        }
    }
}

impl fmt::Display for NetOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, window, record_bytes, records_per_batch, .. } = self;
        write!(
            f,
            "echo in this process, {connections} connections × window {window}, \
             {records_per_batch} × {record_bytes} B a frame, closed loop"
        )
    }
}

/// Measures the echo.
///
/// # Errors
/// [`BenchError`] of an option, or of what kept the run from its end.
pub fn run(options: &NetOptions, on_progress: OnProgress<'_>) -> Result<LoadReport, BenchError> {
    let allowed = cpus_allowed();
    let first = allowed.first().copied().unwrap_or(0);
    let server_cpu = options.server_cpu.unwrap_or(first);
    let records = u32::try_from(options.records_per_batch).unwrap_or(u32::MAX);
    let echo = Echo::start(server_cpu, records)?;
    let mut settings = options.clone();
    settings.server_cpu = Some(server_cpu);
    if settings.cpus.is_empty() {
        settings.cpus = vec![allowed.get(1).copied().unwrap_or(first)];
    }
    let load = AppendOptions {
        addr: echo.addr().to_string(),
        streams: options.connections.into(),
        connections: options.connections,
        window: options.window,
        record_bytes: options.record_bytes,
        records_per_batch: options.records_per_batch,
        warm_up: options.warm_up,
        duration: options.duration,
        threads: options.threads,
        cpus: settings.cpus.clone(),
        ..AppendOptions::default()
    }
    .load()?;
    let made = Made::here(None);
    let outcome = load::run(&load, on_progress, &mut |_| ());
    echo.stop()?;
    let outcome = outcome?;
    let report = LoadReport::new(made, Settings::Net(settings), append::shape(&load), &outcome);
    append::verdict(report, &outcome)
}

#[cfg(test)]
mod tests;
