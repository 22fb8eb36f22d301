//! A log on a real disk: written under glommio, read back with blocking I/O.

mod backfills;
mod releases;

use std::cell::Cell;
use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use glommio::{LocalExecutorBuilder, Placement};

use super::*;
use crate::{EntryPos, HistoryReader, Log, LogOptions, OpenError, RoomClass, SyncMode};

fn options() -> LogOptions {
    LogOptions { segment_bytes: 8 << 20, log_bytes_max: 256 << 20, ..LogOptions::default() }
}

/// Entries as recovery gives them: number, place, bytes.
type Entries = Vec<(u64, EntryPos, Vec<u8>)>;

fn recover(dir: &Path) -> (Entries, Recovered) {
    let mut recovery = Recovery::open(dir).unwrap();
    let mut entries = Vec::new();
    for epoch in recovery.epochs() {
        recovery
            .replay_epoch(epoch, &mut |entry| entries.push((entry.lsn.get(), entry.pos, entry.bytes.to_vec())))
            .unwrap();
    }
    (entries, recovery.finish().unwrap())
}

fn on_shard<R: Send + 'static, F: Future<Output = R> + 'static>(work: impl FnOnce() -> F + Send + 'static) -> R {
    LocalExecutorBuilder::new(Placement::Unbound)
        .io_memory(4 << 20)
        .preempt_timer(Duration::from_secs(3600))
        .spawn(work)
        .unwrap()
        .join()
        .unwrap()
}

async fn open(options: LogOptions, recovered: Recovered, epoch: u64) -> (Log, Rc<Cell<Lsn>>) {
    let durable = Rc::new(Cell::new(Lsn::ZERO));
    let told = Rc::clone(&durable);
    let log = Log::open(options, recovered, Epoch::new(epoch), move |lsn| told.set(lsn), |error| panic!("{error}"))
        .await
        .unwrap();
    (log, durable)
}

async fn append(log: &Log, bytes: &[u8]) -> EntryPos {
    while log.room(bytes.len(), RoomClass::Data).is_err() {
        log.kick();
        log.wait_for_room().await.unwrap();
    }
    log.append(bytes.len(), |out| out.copy_from_slice(bytes)).1
}

async fn all_durable(log: &Log) {
    log.kick();
    while log.durable_lsn() < log.assigned_lsn() {
        glommio::timer::sleep(Duration::from_micros(200)).await;
    }
}

fn entry(number: usize) -> Vec<u8> {
    vec![u8::try_from(number % 251).unwrap(); number * 37 % 9_000]
}

/// Reads some of the entries at `places`, appends 3,000 more, and seals.
async fn one_life(options: LogOptions, recovered: Recovered, epoch: u64, places: Vec<EntryPos>) {
    let reader = HistoryReader::new(vec![recovered.dir().to_owned()], 2);
    let (log, durable) = open(options, recovered, epoch).await;
    for (number, pos) in places.iter().enumerate().step_by(97) {
        let bytes = reader.read(0, pos.segment, pos.offset, pos.bytes).await.unwrap();
        assert_eq!(&bytes[..], &entry(number)[..]);
    }
    let end = places.len() + 3_000;
    let mut last = None;
    for number in places.len()..end {
        last = Some(append(&log, &entry(number)).await);
        if number % 50 == 0 {
            log.kick();
            glommio::timer::sleep(Duration::from_micros(50)).await;
        }
    }
    all_durable(&log).await;
    assert_eq!(durable.get(), log.assigned_lsn());
    let pos = last.unwrap();
    let bytes = reader.read(0, pos.segment, pos.offset, pos.bytes).await.unwrap();
    assert_eq!(&bytes[..], &entry(end - 1)[..], "a log that is being written is read too");
    log.seal().await;
}

#[test]
fn what_was_written_is_replayed_and_read_in_place_after_each_restart() {
    for (sync, inline_commit) in [(SyncMode::Dsync, false), (SyncMode::Fdatasync, false), (SyncMode::Dsync, true)] {
        let dir = tempfile::tempdir().unwrap();
        let options = LogOptions { sync, inline_commit, ..options() };
        let mut all = 0;
        for epoch in 1..4 {
            let (entries, recovered) = recover(dir.path());
            assert_eq!(entries.len(), all);
            let expected = if epoch == 1 { Verdict::Fresh } else { Verdict::Clean };
            assert_eq!(recovered.verdict(), &expected);
            for (number, (lsn, _, bytes)) in entries.iter().enumerate() {
                assert_eq!((*lsn, bytes), (number as u64 + 1, &entry(number)));
            }
            let places: Vec<EntryPos> = entries.iter().map(|(_, pos, _)| *pos).collect();
            on_shard(move || one_life(options, recovered, epoch, places));
            all += 3_000;
        }
        let (entries, _) = recover(dir.path());
        assert_eq!(entries.len(), all);
    }
}

fn copy(from: &Path, to: &Path) {
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        match fs::copy(file.path(), to.join(file.file_name())) {
            // A segment that has got its name meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => assert!(copied.is_ok(), "{copied:?}"),
        }
    }
}

/// A log as a killed process leaves it, with 300 durable entries.
fn killed() -> (tempfile::TempDir, Entries) {
    let (dir, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, recovered) = recover(dir.path());
    let (from, to) = (dir.path().to_owned(), left.path().to_owned());
    on_shard(move || async move {
        let (log, _) = open(options(), recovered, 1).await;
        for number in 0..300 {
            append(&log, &entry(number)).await;
            if number % 10 == 0 {
                all_durable(&log).await;
            }
        }
        all_durable(&log).await;
        glommio::timer::sleep(Duration::from_millis(60)).await;
        copy(&from, &to);
        log.seal().await;
    });
    let (entries, recovered) = recover(left.path());
    assert!(matches!(recovered.verdict(), Verdict::Ended { torn: false, .. }), "{:?}", recovered.verdict());
    assert_eq!(entries.len(), 300);
    (left, entries)
}

fn flip(dir: &Path, pos: EntryPos) {
    let path = dir.join(format!("seg-{:016x}", pos.segment.get()));
    let mut bytes = fs::read(&path).unwrap();
    bytes[pos.offset as usize] ^= 0x10;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_refuses_the_log_and_leaves_it_readable() {
    let (dir, entries) = killed();
    let victim = entries.iter().find(|(lsn, pos, _)| *lsn > 100 && pos.bytes > 0).unwrap();
    flip(dir.path(), victim.1);
    let (left, recovered) = recover(dir.path());
    let Verdict::Corrupt(damages) = recovered.verdict().clone() else {
        panic!("{:?}", recovered.verdict());
    };
    assert!(damages[0].lsns.contains(&Lsn::new(victim.0)), "{damages:?}");
    assert!(left.len() >= 280, "the other commits are there: {}", left.len());
    on_shard(move || async move {
        let refused = Log::open(options(), recovered, Epoch::new(2), |_| {}, |_| {}).await;
        assert!(matches!(refused, Err(OpenError::Corrupt { .. })));
    });
    let (_, recovered) = recover(dir.path());
    on_shard(move || async move {
        let (log, _) = open(options(), recovered.accept_loss(), 2).await;
        append(&log, b"after").await;
        log.seal().await;
    });
    let (again, recovered) = recover(dir.path());
    assert_eq!(recovered.verdict(), &Verdict::Clean);
    assert_eq!((again.len(), again.last().unwrap().0), (left.len() + 1, 301));
}

#[test]
fn a_torn_tail_opens_and_the_old_segment_is_cut_and_not_written_again() {
    let (dir, entries) = killed();
    let last = entries.last().unwrap().1;
    let path = dir.path().join(format!("seg-{:016x}", last.segment.get()));
    let mut bytes = fs::read(&path).unwrap();
    let end = (last.offset + last.bytes).next_multiple_of(4096) as usize + 4096;
    bytes[end..end + 700].fill(0xAB);
    fs::write(&path, &bytes).unwrap();
    let (again, recovered) = recover(dir.path());
    assert_eq!(again, entries);
    assert!(matches!(recovered.verdict(), Verdict::Ended { torn: true, .. }), "{:?}", recovered.verdict());
    let new = on_shard(move || async move {
        let (log, _) = open(options(), recovered, 2).await;
        let pos = append(&log, b"after").await;
        log.seal().await;
        pos
    });
    assert!(new.segment > last.segment);
    assert!(fs::metadata(&path).unwrap().len() <= end as u64, "what was torn is cut off");
}

#[test]
fn a_log_in_use_is_refused_after_about_a_second() {
    let dir = tempfile::tempdir().unwrap();
    let (_, held) = recover(dir.path());
    let began = Instant::now();
    let refused = Recovery::open(dir.path());
    assert!(matches!(refused, Err(RecoveryError::InUse { .. })), "{refused:?}");
    assert!(began.elapsed() >= Duration::from_millis(900));
    drop(held);
    Recovery::open(dir.path()).unwrap();
}

#[test]
fn a_file_that_has_the_last_number_there_is_is_no_segment() {
    let (dir, entries) = killed();
    fs::write(dir.path().join("seg-ffffffffffffffff"), [0; 8192]).unwrap();
    let (found, recovered) = recover(dir.path());
    assert!(matches!(recovered.verdict(), Verdict::Ended { torn: false, .. }), "{:?}", recovered.verdict());
    assert_eq!(found, entries);
}

#[test]
fn segments_without_a_superblock_or_of_another_log_are_refused() {
    let ((dir, _), (other, entries)) = (killed(), killed());
    let name = format!("seg-{:016x}", entries[0].1.segment.get());
    fs::copy(other.path().join(&name), dir.path().join(&name)).unwrap();
    assert!(matches!(Recovery::open(dir.path()), Err(RecoveryError::Foreign { .. })));
    fs::remove_file(dir.path().join("super")).unwrap();
    assert!(matches!(Recovery::open(dir.path()), Err(RecoveryError::NoSuperblock { .. })));
}
