//! Logs on a real disk whose entries are read again, after and while they are written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::{Backfill, BackfillError};

/// Reads from `from` to `durable` in calls of `bytes_max`.
fn read_all(backfill: &mut Backfill, from: u64, durable: u64, bytes_max: usize) -> Entries {
    let (mut next, durable) = (Lsn::new(from), Lsn::new(durable));
    let mut entries = Vec::new();
    while next <= durable {
        let (mut bytes, mut longest) = (0, 0);
        let after = backfill
            .read(next, durable, bytes_max, &mut |entry| {
                bytes += entry.bytes.len();
                longest = longest.max(entry.bytes.len());
                entries.push((entry.lsn.get(), entry.pos, entry.bytes.to_vec()));
            })
            .unwrap();
        assert!(after > next, "each call comes further");
        assert!(bytes <= bytes_max.max(longest), "{bytes} of at most {bytes_max}");
        next = after;
    }
    entries
}

fn backfill_of(dir: &Path) -> Backfill {
    recover(dir).1.backfill().unwrap()
}

#[test]
fn any_part_of_a_log_is_read_again_with_the_same_places() {
    let (dir, entries) = killed();
    let mut backfill = backfill_of(dir.path());
    for (from, durable, bytes_max) in [
        (1, 300, 1),
        (1, 300, 10_000),
        (1, 300, usize::MAX),
        (137, 300, 50_000),
        (299, 300, 1 << 20),
        (12, 13, 1 << 20),
    ] {
        let read = read_all(&mut backfill, from, durable, bytes_max);
        let expected = &entries[usize::try_from(from).unwrap() - 1..usize::try_from(durable).unwrap()];
        assert!(read == expected, "{from} to {durable} by {bytes_max}");
    }
    let nothing = backfill.read(Lsn::new(301), Lsn::new(300), 1 << 20, &mut |_| panic!("nothing is there"));
    assert_eq!(nothing.unwrap(), Lsn::new(301));
}

#[test]
fn entries_are_read_over_all_epochs_and_what_was_torn_between_them_is_not() {
    let (dir, entries) = killed();
    let last = entries.last().unwrap().1;
    let path = dir.path().join(format!("seg-{:016x}", last.segment.get()));
    let mut bytes = fs::read(&path).unwrap();
    let end = (last.offset + last.bytes).next_multiple_of(4096) as usize + 4096;
    bytes[end..end + 9_000].fill(0xAB);
    fs::write(&path, &bytes).unwrap();
    let (again, recovered) = recover(dir.path());
    assert!(read_all(&mut recovered.backfill().unwrap(), 1, 300, 1 << 20) == again);
    on_shard(move || one_life(options(), recovered, 2, Vec::new()));
    let (all, recovered) = recover(dir.path());
    assert_eq!(all.len(), 3_300);
    let id = recovered.log_id().unwrap();
    assert!(read_all(&mut recovered.backfill().unwrap(), 1, 3_300, 70_000) == all);
    assert!(read_all(&mut Backfill::open(dir.path(), id).unwrap(), 290, 3_300, 1 << 20) == all[289..]);
    let other = Backfill::open(dir.path(), LogId::from_bytes([7; 16]));
    assert!(matches!(other, Err(RecoveryError::Foreign { .. })));
}

#[test]
fn a_flipped_bit_is_damage_that_names_its_place_and_what_was_read_before_it_was_given() {
    let (dir, entries) = killed();
    for victim in entries.iter().filter(|(lsn, pos, _)| *lsn % 23 == 0 && pos.bytes > 0) {
        flip(dir.path(), victim.1);
        let mut backfill = Backfill::open(dir.path(), recover(dir.path()).1.log_id().unwrap()).unwrap();
        let mut read = Vec::new();
        let damaged = backfill.read(Lsn::new(1), Lsn::new(300), usize::MAX, &mut |entry| read.push(entry.lsn.get()));
        let Err(BackfillError::Damaged { segment, offset, lsn }) = damaged else {
            panic!("{damaged:?}");
        };
        assert_eq!(segment, victim.1.segment);
        assert!(offset < victim.1.offset && lsn.get() <= victim.0 && lsn.get() + 11 > victim.0, "{offset} {lsn}");
        assert!(read.into_iter().eq(1..lsn.get()));
        flip(dir.path(), victim.1);
    }
    assert_eq!(read_all(&mut backfill_of(dir.path()), 1, 300, 1 << 20).len(), 300);
}

#[test]
fn a_frame_that_was_wiped_is_damage_and_what_was_given_up_is_skipped() {
    let (dir, entries) = killed();
    let (lsn, pos, _) = entries.iter().find(|(lsn, pos, _)| *lsn > 100 && pos.bytes > 5_000).unwrap();
    let path = dir.path().join(format!("seg-{:016x}", pos.segment.get()));
    let mut bytes = fs::read(&path).unwrap();
    let at = pos.offset as usize / 4096 * 4096;
    bytes[at..at + 4096].fill(0);
    fs::write(&path, bytes).unwrap();
    let (left, recovered) = recover(dir.path());
    let damaged = recovered.backfill().unwrap().read(Lsn::new(1), Lsn::new(300), usize::MAX, &mut |_| {});
    assert!(matches!(damaged, Err(BackfillError::Damaged { lsn: first, .. }) if first.get() <= *lsn), "{damaged:?}");
    let accepted = recovered.accept_loss();
    assert!(read_all(&mut accepted.backfill().unwrap(), 1, 300, 90_000) == left);
    assert!(
        read_all(&mut accepted.backfill().unwrap(), *lsn, 300, 90_000)
            == left[left.partition_point(|it| it.0 < *lsn)..]
    );
}

/// Reads what `durable` says is durable until `end`, and says in `read` how far it is.
fn follow(dir: &Path, log: LogId, durable: &AtomicU64, read: &AtomicU64, end: u64) {
    let mut backfill = Backfill::open(dir, log).unwrap();
    let mut next = Lsn::new(1);
    while next.get() <= end {
        let upto = Lsn::new(durable.load(Ordering::Acquire));
        let after = backfill
            .read(next, upto, 300_000, &mut |found| {
                let number = usize::try_from(found.lsn.get()).unwrap() - 1;
                assert_eq!((found.lsn, found.bytes), (next, &entry(number)[..]));
                next = next.next();
            })
            .unwrap();
        assert_eq!(after, next);
        read.store(next.get() - 1, Ordering::Release);
        thread::sleep(Duration::from_micros(300));
    }
}

#[test]
fn a_log_is_followed_while_it_is_written_rolled_and_freed_behind_the_reader() {
    const END: usize = 9_000;
    let dir = tempfile::Builder::new().prefix("nova-backfill").tempdir_in("/var/tmp").unwrap();
    let (_, recovered) = recover(dir.path());
    let path = dir.path().to_owned();
    let (log_id, first) = on_shard(move || async move {
        let options = LogOptions { log_bytes_max: 32 << 20, ..options() };
        let (log, _) = open(options, recovered, 1).await;
        let id = log.id();
        let (durable, read) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let reader = thread::spawn({
            let (durable, read, path) = (Arc::clone(&durable), Arc::clone(&read), path.clone());
            move || follow(&path, id, &durable, &read, END as u64)
        });
        for number in 0..END {
            while log.room(9_000, RoomClass::Data).is_err() {
                log.kick();
                durable.store(log.durable_lsn().get(), Ordering::Release);
                log.release(Lsn::new(read.load(Ordering::Acquire)));
                glommio::timer::sleep(Duration::from_micros(200)).await;
                assert!(!reader.is_finished(), "the reader goes on");
            }
            append(&log, &entry(number)).await;
            if number % 16 == 0 {
                log.kick();
                glommio::timer::sleep(Duration::from_micros(20)).await;
            }
            durable.store(log.durable_lsn().get(), Ordering::Release);
        }
        all_durable(&log).await;
        durable.store(log.durable_lsn().get(), Ordering::Release);
        while !reader.is_finished() {
            glommio::timer::sleep(Duration::from_millis(1)).await;
        }
        reader.join().unwrap();
        let first = log.first_lsn();
        log.seal().await;
        (id, first)
    });
    assert!(first > Lsn::new(100), "segments were freed: {first}");
    let mut backfill = Backfill::open(dir.path(), log_id).unwrap();
    let freed = backfill.read(Lsn::new(5), Lsn::new(100), 1 << 20, &mut |_| {});
    assert!(matches!(freed, Err(BackfillError::Freed { first_lsn, .. }) if first_lsn == first), "{freed:?}");
    let left = read_all(&mut backfill, first.get(), END as u64, 1 << 20);
    assert_eq!(left, recover(dir.path()).0);
}
