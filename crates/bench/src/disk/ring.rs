//! How long do the same writes take through a ring, as shards write, one or several at once?

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use glommio::io::{DmaBuffer, DmaFile, OpenOptions};
use glommio::{GlommioError, LocalExecutorBuilder, Placement, PoolPlacement, allocate_dma_buffer, spawn_local};
use rustix::fs::OFlags;
use tuning::machine::RingOps;
use tuning::measured::Method;

use super::target::Target;
use super::{DiskOptions, Rung, WRITE_BYTES_MAX};
use crate::error::BenchError;
use crate::latency::Latencies;
use crate::load::nanoseconds;
use crate::random::Random;

/// An hour: with a shorter timer glommio 0.9.0 can park while tasks are ready to run.
const PREEMPT_TIMER: Duration = Duration::from_secs(3_600);
const RING_DEPTH: usize = 64;
/// One buffer that all writes take, and what the executor wants for itself.
const IO_MEMORY_BYTES: usize = 4 * WRITE_BYTES_MAX;

const OPENING: &str = "opening a ring as shards do";

/// Looks whether a ring can be opened here and has what it must: without that glommio panics, or ends the process.
pub(super) fn check() -> Result<(), BenchError> {
    let refused = |why: String| BenchError::System { action: OPENING, source: io::Error::other(why) };
    let ops = RingOps::here().map_err(|why| refused(why.to_string()))?;
    match ops.missing() {
        [] => Ok(()),
        missing => Err(refused(format!("the kernel lacks {}", missing.join(", ")))),
    }
}

/// Measures one step through a ring of its own, on the options' CPU if they name one.
pub(super) fn climb(target: &Target, step: (usize, Method, usize), options: &DiskOptions) -> Result<Rung, BenchError> {
    let (path, file_bytes, rung) = (target.path().to_owned(), target.file_bytes(), options.rung);
    let failed =
        |source: io::Error| BenchError::File { action: "writing through a ring to", path: path.clone(), source };
    let no_ring = |error: GlommioError<()>| BenchError::System { action: OPENING, source: error.into() };
    let file = path.clone();
    let executor = LocalExecutorBuilder::new(options.cpu.map_or(Placement::Unbound, Placement::Fixed))
        .name("ring")
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(RING_DEPTH)
        .preempt_timer(PREEMPT_TIMER)
        .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
        .spawn(move || write_all(file, file_bytes, step, rung))
        .map_err(no_ring)?;
    let (latencies, took) = executor.join().map_err(no_ring)?.map_err(failed)?;
    Ok(Rung::of(step, &latencies, took))
}

/// What the writers of a step share.
struct Shared {
    file: DmaFile,
    buffer: Rc<DmaBuffer>,
    /// Where the next write goes.
    next: Cell<u64>,
    file_bytes: u64,
    /// Whether a sync of its own makes a write durable.
    syncs: bool,
    latencies: RefCell<Latencies>,
}

impl Shared {
    /// Writes behind the last ones, round the file, until the time is over.
    async fn write(&self, began: Instant, rung: Duration) -> io::Result<()> {
        loop {
            let bytes = self.buffer.len();
            let at = self.next.get();
            let (at, end) = (at, at + bytes as u64);
            let (at, end) = if end > self.file_bytes { (0, bytes as u64) } else { (at, end) };
            self.next.set(end);
            let sent = Instant::now();
            if self.file.write_rc_at(Rc::clone(&self.buffer), at).await? != bytes {
                return Err(io::ErrorKind::WriteZero.into());
            }
            if self.syncs {
                self.file.fdatasync().await?;
            }
            self.latencies.borrow_mut().record(nanoseconds(sent.elapsed()));
            if began.elapsed() >= rung {
                return Ok(());
            }
        }
    }
}

async fn write_all(
    path: PathBuf,
    file_bytes: u64,
    (write_bytes, method, depth): (usize, Method, usize),
    rung: Duration,
) -> io::Result<(Latencies, Duration)> {
    let syncs = method == Method::RingFdatasync;
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if !syncs {
        options.custom_flags(OFlags::DSYNC.bits().cast_signed());
    }
    let file = options.dma_open(&path).await?;
    let mut buffer = allocate_dma_buffer(write_bytes);
    Random::new(0).fill_printable(buffer.as_bytes_mut());
    let (buffer, latencies) = (Rc::new(buffer), RefCell::new(Latencies::new()));
    let shared = Rc::new(Shared { file, buffer, next: Cell::new(0), file_bytes, syncs, latencies });
    let began = Instant::now();
    let writers: Vec<_> = (0..depth)
        .map(|_| {
            let shared = Rc::clone(&shared);
            spawn_local(async move { shared.write(began, rung).await })
        })
        .collect();
    let mut outcome = Ok(());
    // Each is driven to its end, also when another has failed.
    for writer in writers {
        outcome = outcome.and(writer.await);
    }
    let took = began.elapsed();
    let shared = Rc::into_inner(shared).expect("every writer has ended");
    shared.file.close().await?;
    outcome.map(|()| (shared.latencies.into_inner(), took))
}
