//! Is a disk low when it should be, and is what is kept back given up and taken again?

use std::fs;

use super::{FILE, MIB, Marks, Room, Rooms, Turn, judge};
use crate::host;

const GIB: u64 = 1 << 30;

#[test]
fn a_large_disk_keeps_back_what_the_work_takes_and_a_small_one_a_part_of_itself() {
    let marks = Marks::of(1000 * GIB, 64 * MIB, true);
    assert_eq!((marks.reserve_bytes, marks.low_bytes), (320 * MIB, 64 * MIB));
    assert_eq!(marks.work_bytes(64 * MIB), 256 * MIB);
    let small = Marks::of(160 * MIB, 8 * MIB, true);
    assert_eq!((small.reserve_bytes, small.low_bytes), (24 * MIB, 6 * MIB));
    assert_eq!(small.work_bytes(8 * MIB), 16 * MIB);
    let without_store = Marks::of(1000 * GIB, 64 * MIB, false);
    assert_eq!(without_store.reserve_bytes, 80 * MIB);
    for marks in [marks, small, without_store] {
        assert!(marks.ample_bytes >= 2 * marks.low_bytes, "it does not go to and fro: {marks:?}");
    }
}

#[test]
fn between_the_marks_a_disk_stays_what_it_was() {
    let marks = Marks { reserve_bytes: 100, low_bytes: 10, ample_bytes: 30 };
    for free in [10, 29, 30, 1_000] {
        assert_eq!(judge(false, Some(free), &marks), Turn::Keep, "{free}");
    }
    for free in [None, Some(0), Some(9)] {
        assert_eq!(judge(false, free, &marks), Turn::Low, "{free:?}");
    }
    for free in [None, Some(0), Some(10), Some(29)] {
        assert_eq!(judge(true, free, &marks), Turn::Keep, "{free:?}");
    }
    assert_eq!(judge(true, Some(30), &marks), Turn::Ample);
}

/// Marks of which this disk has so much less free that it counts as low.
fn too_much(directory: &std::path::Path) -> Marks {
    let free = host::free_bytes(directory).unwrap();
    Marks { reserve_bytes: free, low_bytes: GIB, ample_bytes: 2 * GIB }
}

fn taken_bytes(path: &std::path::Path) -> u64 {
    super::taken_bytes(Some(path))
}

#[test]
fn the_file_takes_up_what_is_kept_back_and_gives_it_up_when_the_disk_is_low() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = folder.path().join(FILE);
    let marks = Marks { reserve_bytes: 8 * MIB, low_bytes: MIB, ample_bytes: 2 * MIB };
    let mut room = Room::open(folder.path(), marks, true).unwrap();
    assert!(!room.is_low() && taken_bytes(&file) >= 8 * MIB, "{room}");
    assert!(room.takes(MIB));
    // A file larger than the disk: records are not taken any more, and the next look gives up what was kept back.
    assert!(!room.takes(host::free_bytes(folder.path()).unwrap() + GIB));
    assert!(room.is_low() && !room.takes(MIB));
    room.marks.ample_bytes = u64::MAX;
    room.look().unwrap();
    assert!(room.is_low() && taken_bytes(&file) == 0);
    room.marks.ample_bytes = 2 * MIB;
    room.look().unwrap();
    assert!(!room.is_low() && taken_bytes(&file) >= 8 * MIB, "by itself");
    assert!(room.takes(MIB));
}

#[test]
fn a_disk_that_is_full_at_the_start_is_low_and_gives_up_what_an_earlier_start_kept_back() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let marks = Marks { reserve_bytes: 4 * MIB, low_bytes: MIB, ample_bytes: 2 * MIB };
    drop(Room::open(folder.path(), marks, true).unwrap());
    assert!(taken_bytes(&folder.path().join(FILE)) >= 4 * MIB);
    let free = host::free_bytes(folder.path()).unwrap();
    let full = Marks { low_bytes: free + GIB, ample_bytes: free + 2 * GIB, ..marks };
    let room = Room::open(folder.path(), full, true).unwrap();
    assert!(room.is_low() && taken_bytes(&folder.path().join(FILE)) == 0);
    let none = Room::open(folder.path(), too_much(folder.path()), true).unwrap();
    assert!(none.is_low(), "nothing is taken up that is not there: {none}");
}

/// As after a start with more shards, and after a crash while it was taken.
#[test]
fn a_disk_that_is_low_gives_up_also_less_than_is_kept_back() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = folder.path().join(FILE);
    let less = Marks { reserve_bytes: 4 * MIB, low_bytes: MIB, ample_bytes: 2 * MIB };
    drop(Room::open(folder.path(), less, true).unwrap());
    assert!(taken_bytes(&file) >= 4 * MIB);
    let room = Room::open(folder.path(), too_much(folder.path()), true).unwrap();
    assert!(room.is_low() && taken_bytes(&file) == 0, "{room}");
}

#[test]
fn without_a_file_what_is_kept_back_is_left_free() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let marks = Marks { reserve_bytes: 8 * MIB, low_bytes: MIB, ample_bytes: 2 * MIB };
    let room = Room::open(folder.path(), marks, false).unwrap();
    assert!(!room.is_low() && room.takes(MIB));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(Room::open(folder.path(), too_much(folder.path()), false).unwrap().is_low());
}

#[test]
fn a_store_on_the_same_disk_shares_its_room_and_one_elsewhere_has_none() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let inside = Rooms::open(folder.path(), Some(&folder.path().join("store")), MIB).unwrap();
    assert_eq!(inside.each().count(), 1);
    assert!(inside.store.is_some());
    let elsewhere = Rooms::open(folder.path(), None, MIB).unwrap();
    assert!(elsewhere.store.is_none());
    let memory = Rooms::open(folder.path(), Some(std::path::Path::new("/dev/shm/nova-none/store")), MIB).unwrap();
    assert_eq!(memory.each().count(), 2);
}
