//! Are shards laid over CPUs and disk as promised?

use super::{Plan, check_new_logs, log_bytes_max};
use crate::room::Marks;
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
fn a_log_takes_what_the_settings_say_in_whole_segments() {
    let log = |bytes_max| Log { bytes_max, ..Log::default() };
    assert_eq!(log_bytes_max(&log(Bytes::gib(2))), Bytes::gib(2));
    assert_eq!(log_bytes_max(&log(Bytes::new(Bytes::gib(2).get() - 1))), Bytes::mib(2048 - 64));
}

#[test]
fn too_little_room_for_new_logs_is_refused_with_what_would_be_needed() {
    let segments_bytes = 2 * Bytes::mib(64).get();
    let marks = Marks::of(Bytes::gib(100).get(), segments_bytes, true);
    let need = 4 * segments_bytes + marks.reserve_bytes + marks.low_bytes;
    assert_eq!(check_new_logs(&Log::default(), 2, Bytes::new(need), &marks), Ok(()));
    let error = check_new_logs(&Log::default(), 2, Bytes::new(need - 1), &marks).unwrap_err().to_string();
    assert!(error.contains("2 head logs of 4 segments of 64MiB, with 384MiB that are kept back"), "{error}");
    assert!(error.contains(&format!("need {}", Bytes::new(need))), "{error}");
}

#[test]
fn a_log_has_no_more_segments_than_a_superblock_lists() {
    let log = Log { bytes_max: Bytes::gib(16_384), ..Log::default() };
    let bytes = log_bytes_max(&log);
    let segments = bytes.get() / log.segment_bytes.get();
    assert_eq!(segments, wire::superblock::SEGMENTS_MAX as u64);
}
