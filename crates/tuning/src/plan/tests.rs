//! Are shards laid over CPUs and disk as promised?

use super::{Plan, log_bytes_max};
use crate::settings::Log;
use crate::units::Bytes;

fn check(asked: u16, cpus: &[usize], shards: &[usize], control: &[usize]) {
    let plan = Plan::new(asked, cpus);
    assert_eq!((plan.shard_cpus(), plan.control_cpus()), (shards, control), "{asked} on {cpus:?}");
}

#[test]
fn by_default_one_cpu_is_left_to_the_background() {
    check(0, &[0, 1], &[1], &[0]);
    check(0, &[0, 1, 2, 3], &[1, 2, 3], &[0]);
    check(0, &[4, 6, 9], &[6, 9], &[4]);
}

#[test]
fn a_single_cpu_serves_both() {
    check(0, &[3], &[3], &[3]);
    assert!(Plan::new(0, &[3]).shares_cores());
}

#[test]
fn fewer_shards_leave_more_to_the_background() {
    check(1, &[0, 1, 2, 3], &[3], &[0, 1, 2]);
    assert!(!Plan::new(1, &[0, 1]).shares_cores());
}

#[test]
fn more_shards_than_cpus_take_turns() {
    check(2, &[0, 1], &[0, 1], &[0, 1]);
    check(5, &[0, 1], &[0, 1, 0, 1, 0], &[0, 1]);
    assert!(Plan::new(2, &[0, 1]).shares_cores());
}

#[test]
fn a_log_takes_what_the_settings_say_while_the_disk_has_it() {
    let log = Log { bytes_max: Bytes::gib(2), ..Log::default() };
    assert_eq!(log_bytes_max(&log, 3, Bytes::gib(100)), Ok(Bytes::gib(2)));
}

#[test]
fn on_a_smaller_disk_it_takes_its_share_in_whole_segments() {
    let bytes = log_bytes_max(&Log::default(), 3, Bytes::gib(10)).unwrap();
    assert_eq!(bytes.get() % Bytes::mib(64).get(), 0);
    assert!(bytes.get() * 3 <= Bytes::gib(8).get());
    assert!((bytes.get() + Bytes::mib(64).get()) * 3 > Bytes::gib(8).get() - 300);
}

#[test]
fn too_little_room_is_refused_with_what_would_be_needed() {
    let error = log_bytes_max(&Log::default(), 2, Bytes::mib(500)).unwrap_err();
    assert_eq!(error.need, Bytes::mib(512));
    assert!(error.to_string().contains("2 head logs of 4 segments of 64MiB need 512MiB"), "{error}");
}

#[test]
fn a_log_has_no_more_segments_than_a_superblock_lists() {
    let log = Log { bytes_max: Bytes::gib(16_384), ..Log::default() };
    let bytes = log_bytes_max(&log, 1, Bytes::gib(1 << 20)).unwrap();
    let segments = bytes.get() / log.segment_bytes.get();
    assert_eq!(segments, wire::superblock::SEGMENTS_MAX as u64);
}
