//! Logs on a real disk that give up what is settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::NoRoom;
use crate::names::segment_name;

fn on_disk() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("nova-release").tempdir_in("/var/tmp").unwrap()
}

/// Three segments, the least a log may have.
fn bounded() -> LogOptions {
    LogOptions { log_bytes_max: 24 << 20, ..options() }
}

/// Entries of 64 KiB that tell their number.
fn long(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(8 << 10)
}

/// Appends until the log is full; answers the last LSN, durable.
async fn fill(log: &Log) -> Lsn {
    loop {
        match log.room(64 << 10, RoomClass::Data) {
            Ok(()) => {
                let bytes = long(log.assigned_lsn().get() + 1);
                log.append(bytes.len(), |out| out.copy_from_slice(&bytes));
                log.kick();
            }
            Err(NoRoom::Busy) => log.wait_for_room().await.unwrap(),
            Err(NoRoom::Full { .. }) => break,
            Err(NoRoom::Disk { .. } | NoRoom::Closed) => panic!("the log is open, on a disk of its own"),
        }
    }
    all_durable(log).await;
    log.assigned_lsn()
}

async fn wait_until(is_so: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        glommio::timer::sleep(Duration::from_millis(1)).await;
    }
    panic!("it never comes to it");
}

async fn room_again(log: &Log) {
    while log.room(64 << 10, RoomClass::Data).is_err() {
        log.wait_for_room().await.unwrap();
    }
}

fn segments(dir: &Path) -> usize {
    files::list(dir).unwrap().len()
}

fn check(entries: &Entries, first: u64) {
    assert!(entries.iter().map(|(lsn, ..)| *lsn).eq(first..first + entries.len() as u64));
    assert!(entries.iter().all(|(lsn, _, bytes)| *bytes == long(*lsn)));
}

/// Fills the log, releases and fills again some times, and leaves in `left` what a crash does; answers the last LSN and the
/// first that is kept.
async fn one_full_life(recovered: Recovered, epoch: u64, left: std::path::PathBuf) -> (Lsn, Lsn) {
    let dir = recovered.dir().to_owned();
    let (log, _) = open(bounded(), recovered, epoch).await;
    for _ in 0..3 {
        let last = fill(&log).await;
        let kept_back = Lsn::new(last.get() - 5);
        log.release(kept_back);
        room_again(&log).await;
        assert!(log.first_lsn() <= kept_back.next() && log.first_lsn() > Lsn::new(1));
        assert!(log.metrics().used_bytes <= 24 << 20 && segments(&dir) <= 3);
    }
    let last = fill(&log).await;
    copy(&dir, &left);
    let first = log.first_lsn();
    log.seal().await;
    (last, first)
}

#[test]
fn a_bounded_log_takes_data_again_after_each_release_and_after_a_crash() {
    let mut dir = on_disk();
    for epoch in 1..4 {
        let (_, recovered) = recover(dir.path());
        let left = on_disk();
        let to = left.path().to_owned();
        let (last, first) = on_shard(move || one_full_life(recovered, epoch, to));
        let (entries, recovered) = recover(left.path());
        check(&entries, first.get());
        assert_eq!((recovered.first_lsn(), recovered.end_lsn()), (first, last.next()));
        assert!(!recovered.is_clean() && recovered.last_epoch() == Epoch::new(epoch));
        drop(recovered);
        dir = left;
    }
}

#[test]
fn a_log_that_nobody_writes_is_emptied_and_goes_on_with_the_next_lsn_when_somebody_does() {
    let dir = on_disk();
    let (_, recovered) = recover(dir.path());
    let last = on_shard(move || async move {
        let (log, _) = open(bounded(), recovered, 1).await;
        let last = fill(&log).await;
        log.seal().await;
        last
    });
    let (_, recovered) = recover(dir.path());
    let id = recovered.log_id();
    recovered.release_all().unwrap();
    assert_eq!(segments(dir.path()), 0);
    let block = fs::read(dir.path().join("super")).unwrap();
    for _ in 0..2 {
        let (entries, recovered) = recover(dir.path());
        assert_eq!((entries.len(), recovered.log_id(), recovered.is_clean()), (0, id, true));
        assert_eq!((recovered.first_lsn(), recovered.end_lsn()), (last.next(), last.next()));
        recovered.release_all().unwrap();
    }
    assert_eq!(fs::read(dir.path().join("super")).unwrap(), block, "what is empty is not emptied again");
    let (_, recovered) = recover(dir.path());
    on_shard(move || async move {
        let (log, _) = open(bounded(), recovered, 2).await;
        let bytes = long(last.next().get());
        append(&log, &bytes).await;
        log.seal().await;
    });
    check(&recover(dir.path()).0, last.next().get());
}

#[test]
fn a_damaged_log_is_not_emptied_until_its_loss_is_accepted() {
    let (dir, entries) = killed();
    flip(dir.path(), entries.iter().find(|(lsn, pos, _)| *lsn > 100 && pos.bytes > 0).unwrap().1);
    let before = segments(dir.path());
    let (_, recovered) = recover(dir.path());
    assert!(matches!(recovered.release_all(), Err(OpenError::Corrupt { .. })));
    assert_eq!(segments(dir.path()), before);
    recover(dir.path()).1.accept_loss().release_all().unwrap();
    assert!(recover(dir.path()).1.is_clean());
}

#[test]
fn a_freed_segment_that_a_reader_holds_open_is_closed_when_it_is_told() {
    let dir = on_disk();
    let (_, recovered) = recover(dir.path());
    on_shard(move || async move {
        let reader = HistoryReader::new(vec![recovered.dir().to_owned()], 4);
        let (log, _) = open(bounded(), recovered, 1).await;
        let pos = append(&log, &long(1)).await;
        all_durable(&log).await;
        let last = fill(&log).await;
        assert_eq!(&reader.read(0, pos.segment, pos.offset, pos.bytes).await.unwrap()[..], &long(1)[..]);
        log.release(last);
        wait_until(|| log.metrics().freed_segments > 0).await;
        assert!(pos.segment < log.first_segment());
        let held = reader.read(0, pos.segment, pos.offset, pos.bytes).await.unwrap();
        assert_eq!(&held[..], &long(1)[..], "it reads what it has open");
        reader.close_freed(0, log.first_segment()).await;
        let gone = reader.read(0, pos.segment, pos.offset, pos.bytes).await;
        assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound);
        log.seal().await;
    });
}

/// Whenever the file goes, a read has what was in it or is told that it is gone.
#[test]
fn a_segment_that_is_freed_while_it_is_opened_is_read_or_gone() {
    let dir = on_disk();
    let (_, recovered) = recover(dir.path());
    on_shard(move || async move {
        let logs = recovered.dir().to_owned();
        let (log, _) = open(bounded(), recovered, 1).await;
        let pos = append(&log, &long(1)).await;
        all_durable(&log).await;
        let (path, aside) = (logs.join(segment_name(pos.segment)), logs.join("aside"));
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let mover = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                fs::rename(&path, &aside).unwrap();
                fs::rename(&aside, &path).unwrap();
            }
        });
        let (mut read, mut gone) = (0, 0);
        while read < 200 || gone < 200 {
            let reader = HistoryReader::new(vec![logs.clone()], 4);
            match reader.read(0, pos.segment, pos.offset, pos.bytes).await {
                Ok(bytes) => {
                    assert_eq!(&bytes[..], &long(1)[..]);
                    read += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::NotFound);
                    gone += 1;
                }
            }
            reader.close_freed(0, pos.segment.next()).await;
        }
        is_over.store(true, Ordering::Relaxed);
        mover.join().unwrap();
        log.seal().await;
    });
}
