//! Does a log on a disk that is low take control entries alone, make no segments there, and go on by itself?

use std::sync::Arc;

use tuning::room::{Marks, Room};

use super::*;

#[test]
fn on_a_low_disk_there_is_room_for_control_entries_alone() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let marks = Marks { reserve_bytes: 0, low_bytes: 0, ample_bytes: 0 };
    let room = Arc::new(Room::open(folder.path(), marks, false).unwrap());
    let world = World::new(Remains::default(), 7, Faults::default(), false);
    let (told, log) = open(&world, recover(&Remains::default()).2, 1, options());
    log.keep_within(Arc::clone(&room));
    append(&log, &told, vec![1; 100], RoomClass::Data).unwrap();
    log.kick();
    while world.step() {}
    let used_bytes = log.metrics().used_bytes;

    assert!(!room.takes(u64::MAX) && room.is_low());
    let refused = append(&log, &told, vec![2; 100], RoomClass::Data).unwrap_err();
    assert!(matches!(refused, NoRoom::Disk { .. }), "{refused}");
    append(&log, &told, vec![3; 100], RoomClass::Control).unwrap();
    log.kick();
    for _ in 0..200 {
        world.step();
    }
    assert!(log.metrics().used_bytes <= used_bytes, "no segment is made ahead");

    room.look().unwrap();
    assert!(!room.is_low());
    append(&log, &told, vec![4; 100], RoomClass::Data).unwrap();
    log.kick();
    for _ in 0..200 {
        world.step();
    }
    assert_eq!(log.durable_lsn(), Lsn::new(3));
}
