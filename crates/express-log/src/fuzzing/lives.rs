//! Which logs are damaged, and what is in them?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use wire::ids::{Epoch, Lsn};

use crate::device::memory::{Draw, Remains};
use crate::log::simulated::{SimulatedDisk, SimulatedLog};
use crate::options::{LogOptions, SyncMode};
use crate::room::RoomClass;

/// How many logs there are; each follows from its number.
const LOGS: u64 = 8;
/// Entries have one byte up to so many: several a block, and several blocks.
const ENTRY_BYTES_MAX: usize = 9_000;

/// A log as its last life left it.
pub(super) struct Lived {
    pub(super) remains: Remains,
    /// What is in it.
    pub(super) kept: BTreeMap<Lsn, Vec<u8>>,
    /// All that was ever appended under each LSN: what a crash took gave its number back.
    pub(super) appended: BTreeMap<Lsn, BTreeSet<Vec<u8>>>,
}

static ALL: LazyLock<Vec<Lived>> = LazyLock::new(|| (0..LOGS).map(live).collect());

/// The log of this number, of those there are.
pub(super) fn log(number: u8) -> &'static Lived {
    &ALL[usize::from(number) % ALL.len()]
}

/// A log of small segments through some lives, in every second of which something is settled.
fn live(number: u64) -> Lived {
    let mut draw = Draw::new(number);
    let (mut disk, mut durable, mut appended) = (SimulatedDisk::default(), Lsn::ZERO, BTreeMap::new());
    let sync = if number.is_multiple_of(3) { SyncMode::Fdatasync } else { SyncMode::Dsync };
    for epoch in 1..2 + number % 4 {
        let log = SimulatedLog::open(disk, options(sync), Epoch::new(epoch), draw.next_number());
        append_some(&log, &mut draw, &mut appended);
        durable = durable.max(log.durable_lsn());
        if epoch % 2 == 0 {
            log.release(Lsn::new(durable.get() / 2));
            for _ in 0..draw.below(200) {
                log.step();
            }
        }
        disk = log.crash();
    }
    let mut kept = BTreeMap::new();
    disk.replay(&mut |entry| {
        kept.insert(entry.lsn, entry.bytes.to_vec());
    });
    let last = kept.keys().next_back().copied().unwrap_or_default();
    assert!(last >= durable, "what was acked is there before anything is damaged");
    Lived { remains: disk.0, kept, appended }
}

fn append_some(log: &SimulatedLog, draw: &mut Draw, appended: &mut BTreeMap<Lsn, BTreeSet<Vec<u8>>>) {
    for turn in 0..8 + draw.below(8) {
        for number in 0..draw.below(4) {
            let bytes_max = if draw.happens(200) { ENTRY_BYTES_MAX } else { 300 };
            let bytes = 1 + draw.below(bytes_max);
            let mut entry = format!("{}/{turn}/{number}/", log.assigned_lsn()).into_bytes();
            entry.resize(bytes.max(entry.len()), 0xA0);
            if log.room(entry.len(), RoomClass::Data).is_ok() {
                let (lsn, _) = log.append(&entry);
                appended.entry(lsn).or_default().insert(entry);
            }
        }
        log.kick();
        for _ in 0..draw.below(12) {
            log.step();
        }
    }
}

fn options(sync: SyncMode) -> LogOptions {
    LogOptions {
        segment_bytes: 32 << 10,
        log_bytes_max: 64 << 20,
        commit_start_bytes: 4 << 10,
        commit_bytes_max: 8 << 10,
        pending_bytes_max: 48 << 10,
        sync,
        idle_segments: 1,
        ..LogOptions::default()
    }
}
