//! What does recovery find of a log whose files lie in a directory?

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use wire::ids::Lsn;

use super::{Damaged, Entries, Found, is_corrupt};
use crate::device::memory::Remains;
use crate::names::{SUPER, segment_name};
use crate::recovery::{Recovered, Recovery, RecoveryError};

/// Bytes that are read again at once.
const READ_BYTES: usize = 5_000;

/// A directory that goes with this value.
struct Scratch(PathBuf);

impl Scratch {
    /// In memory where there is such a place: each input is synced many times.
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let above = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(above.join(format!("nova-fuzz-{}-{number}", process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is not there when it could not be made.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Recovers the log from files, and reads it again as whoever settles it does.
pub(super) fn recover(damaged: &Damaged) -> Result<Found, RecoveryError> {
    let directory = Scratch::new();
    write(&damaged.remains, &directory.0).expect("there is room for a small log");
    let mut recovery = Recovery::open(&directory.0)?;
    let mut entries = Vec::new();
    for epoch in recovery.epochs() {
        recovery.replay_epoch(epoch, &mut |entry| entries.push((entry.lsn, entry.bytes.to_vec())))?;
    }
    let recovered = recovery.finish()?;
    let found = Found { entries, end_lsn: recovered.end_lsn(), verdict: recovered.verdict().clone() };
    if !damaged.is_forged {
        check_backfill(damaged, &recovered, &found);
    }
    Ok(found)
}

fn write(remains: &Remains, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join(SUPER), &remains.superblock)?;
    remains.segments.iter().try_for_each(|(segment, bytes)| fs::write(directory.join(segment_name(*segment)), bytes))
}

/// What is read again is what was recovered; of a log that lacks something, nothing else than was appended.
fn check_backfill(damaged: &Damaged, recovered: &Recovered, found: &Found) {
    let Some(mut backfill) = recovered.backfill() else { return };
    let durable = Lsn::new(recovered.end_lsn().get().saturating_sub(1));
    let (mut next, mut entries) = (recovered.first_lsn(), Entries::new());
    while next <= durable {
        let read =
            backfill.read(next, durable, READ_BYTES, &mut |entry| entries.push((entry.lsn, entry.bytes.to_vec())));
        match read {
            Ok(behind) if behind > next => next = behind,
            Ok(_) => panic!("nothing is read at {next}, before {durable}"),
            Err(error) => {
                assert!(is_corrupt(&found.verdict), "what was recovered can't be read again: {error}");
                break;
            }
        }
    }
    if is_corrupt(&found.verdict) {
        damaged.check_entries(&entries);
    } else {
        assert!(entries == found.entries, "what is read again is what was recovered");
    }
}
