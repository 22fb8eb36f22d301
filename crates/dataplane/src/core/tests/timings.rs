//! Where the time goes of what a shard is asked, and what weighs most on it.

use std::time::Duration;

use express_log::CommitTimes;
use wire::ids::SeqNum;
use wire::message::{CheckTail, Fence, Read, Start, StreamGet, Subscribe};
use wire::reason::Reason;
use wire::star_detail::{Histogram, Operation, Phase};

use super::world::*;

const MS: Duration = Duration::from_millis(1);

/// A shard with a stream that has a session open, of which nothing is counted yet but that; at 1 s.
fn opened() -> (Test, u32) {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    test.world.mono_ms = 1_000;
    (test, session)
}

fn times(test: &Test, operation: Operation, phase: Phase) -> Histogram {
    let mut timings = test.shard.detail().timings.into_iter();
    timings
        .find(|timing| (timing.operation, timing.phase) == (operation, phase))
        .map_or_else(Histogram::default, |timing| timing.times)
}

/// How many answers were counted in each phase, and their milliseconds together: queue, write, sync, put, read, reply.
fn phases(test: &Test, operation: Operation) -> [(u64, u128); 6] {
    let all: Vec<_> = Phase::ALL.iter().map(|phase| times(test, operation, *phase)).collect();
    let all: Vec<_> = all.into_iter().map(|times| (times.count(), times.sum_ns() / 1_000_000)).collect();
    all.try_into().unwrap()
}

/// Everything becomes durable at a time, after so many milliseconds of writing and of syncing, and is taken after one more.
fn commit(test: &mut Test, at_ms: u64, (write_ms, sync_ms): (u32, u32)) {
    test.world.mono_ms = at_ms;
    test.world.took = CommitTimes { write: write_ms * MS, sync: sync_ms * MS };
    test.commit();
    reply(test);
}

/// A turn ends a millisecond after it began.
fn reply(test: &mut Test) {
    if test.shard.is_replying() {
        test.shard.replied(MS);
    }
    assert!(!test.shard.is_replying());
}

const NONE: (u64, u128) = (0, 0);

#[test]
fn an_append_waits_is_written_synced_and_answered() {
    let (mut test, session) = opened();
    let _ = test.append(A, session, 1, &["a"]);
    let _ = test.append(A, session, 2, &["b"]);
    test.world.mono_ms = 1_005;
    let _ = test.append(A, session, 3, &["c"]);
    assert_eq!(phases(&test, Operation::Append), [NONE; 6], "nothing is answered");
    commit(&mut test, 1_030, (3, 2));
    // The commit began at 1025.
    assert_eq!(phases(&test, Operation::Append), [(3, 70), (3, 9), (3, 6), NONE, NONE, (3, 3)]);
    let queue = times(&test, Operation::Append, Phase::Queue);
    let held: Vec<_> = queue.buckets().filter(|(_, count)| *count > 0).collect();
    assert_eq!(held, [(Some(Duration::from_micros(32_768)), 3)]);
}

#[test]
fn what_was_kept_before_it_was_served_has_waited_since_it_came() {
    let (mut test, session) = opened();
    test.world.received_ms = Some(900);
    let _ = test.append(A, session, 1, &["a"]);
    test.world.received_ms = None;
    commit(&mut test, 1_010, (10, 0));
    assert_eq!(phases(&test, Operation::Append)[0], (1, 100));
    test.world.received_ms = Some(1_000);
    test.ask(A, &StreamGet { address: address("s") });
    assert_eq!(phases(&test, Operation::Get)[0], (1, 10));
}

#[test]
fn an_answer_that_stands_on_a_commit_that_was_under_way_has_only_waited() {
    let (mut test, session) = opened();
    let _ = test.append(A, session, 1, &["a"]);
    // The commit begins at 1010; this comes later, and is judged on what it writes.
    test.world.mono_ms = 1_020;
    let _ = test.append_if(A, (session, 2), Some(9), &batch(&["b"]));
    commit(&mut test, 1_030, (20, 0));
    assert_eq!(phases(&test, Operation::Append), [(2, 20), (1, 20), (1, 0), NONE, NONE, (2, 2)]);
    // One that waits for nothing is answered at once.
    let _ = test.append_if(A, (session, 3), Some(9), &batch(&["c"]));
    reply(&mut test);
    assert_eq!(phases(&test, Operation::Append), [(3, 20), (1, 20), (1, 0), NONE, NONE, (3, 3)]);
}

#[test]
fn a_fence_is_counted_once_and_what_it_ends_is_not() {
    let (mut test, _) = opened();
    test.world.took = CommitTimes::default();
    test.ask(B, &Fence { address: address("s"), fencing_token: token("t") });
    test.told(A);
    commit(&mut test, 1_004, (1, 1));
    assert_eq!(phases(&test, Operation::Fence), [(1, 2), (1, 1), (1, 1), NONE, NONE, (1, 1)]);
    test.open(C, "s", 8, "t").unwrap();
    test.ask(B, &Fence { address: address("s"), fencing_token: token("u") });
    commit(&mut test, 1_010, (1, 1));
    assert!(matches!(test.told(C)[..], [Told::Ended(_, Reason::FencedOut)]), "its session is told");
    assert_eq!(phases(&test, Operation::Fence)[1], (2, 2));
    assert_eq!(phases(&test, Operation::Append), [NONE; 6]);
}

#[test]
fn what_only_asks_has_no_write() {
    let (mut test, session) = opened();
    test.ask(B, &CheckTail { address: address("s") });
    reply(&mut test);
    assert_eq!(phases(&test, Operation::CheckTail), [(1, 0), NONE, NONE, NONE, NONE, (1, 1)]);
    // Opening one more waits for what is in flight.
    let _ = test.append(A, session, 1, &["a"]);
    test.ask(B, &StreamGet { address: address("s") });
    commit(&mut test, 1_009, (4, 4));
    assert_eq!(phases(&test, Operation::Get), [(1, 9), NONE, NONE, NONE, NONE, (1, 1)]);
}

#[test]
fn a_page_is_read_between_its_wait_and_its_answer() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    let mut test = test.crashed();
    let read: Read = Test::reading("s", Start::SeqNum(SeqNum::ZERO));
    test.world.mono_ms = 100;
    test.world.received_ms = Some(93);
    test.ask(A, &read);
    assert_eq!(test.world.fetches.len(), 1, "it lies on the disk");
    test.world.mono_ms = 130;
    test.serve_readers();
    reply(&mut test);
    assert_eq!(phases(&test, Operation::Read), [(1, 7), NONE, NONE, NONE, (1, 30), (1, 1)]);
    assert!(matches!(&test.told(A)[..], [Told::Page(page)] if page.bodies == ["a"]));
}

#[test]
fn a_standard_append_waits_until_it_is_given_away_and_is_put_from_there_on() {
    let mut test = Test::standard();
    test.world.mono_ms = 1_000;
    test.world.received_ms = Some(998);
    let (bytes, crc) = batch(&["a"]);
    let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
    test.shard.hand_over(&mut test.world);
    test.world.mono_ms = 1_080;
    test.commit_standard();
    reply(&mut test);
    assert!(matches!(test.told(A)[..], [Told::Appended(_)]));
    assert_eq!(phases(&test, Operation::Append), [(1, 2), NONE, NONE, (1, 80), NONE, (1, 1)]);
}

#[test]
fn every_frame_of_records_is_a_delivery() {
    let (mut test, session) = opened();
    let start = Start::SeqNum(SeqNum::ZERO);
    let subscribe =
        Subscribe { address: address("s"), start, clamp: false, subscription: 1, credit_bytes: 1 << 20, resume: None };
    test.ask(B, &subscribe);
    reply(&mut test);
    assert_eq!(phases(&test, Operation::Subscribe), [(1, 0), NONE, NONE, NONE, NONE, (1, 1)]);
    let _ = test.append(A, session, 1, &["a"]);
    commit(&mut test, 1_010, (5, 5));
    assert_eq!(phases(&test, Operation::Deliver), [NONE, NONE, NONE, NONE, NONE, (1, 1)]);
}

#[test]
fn the_phases_of_an_append_are_told_before_there_is_one() {
    let test = Test::new();
    let told = test.shard.detail().timings.into_iter().map(|timing| (timing.operation.word(), timing.phase.word()));
    let expected = ["queue", "write", "sync", "reply"].map(|phase| ("append", phase));
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn the_streams_that_weigh_most_are_told_by_name_while_they_are_there() {
    let mut test = Test::new();
    test.put("light", &["x"; 10]).unwrap();
    test.put("heavy", &[&"x".repeat(1_000)]).unwrap();
    test.put("gone", &[&"x".repeat(2_000)]).unwrap();
    let heaviest = |test: &Test| -> Vec<String> {
        let told = test.shard.detail().heaviest.into_iter();
        told.map(|heavy| format!("{}/{} {}", heavy.bucket, heavy.key, heavy.bytes_per_s)).collect()
    };
    assert_eq!(heaviest(&test), ["demo/gone 500", "demo/heavy 250", "demo/light 2"]);
    test.call(A, &wire::message::StreamDelete { address: address("gone") });
    assert_eq!(heaviest(&test), ["demo/heavy 250", "demo/light 2"]);
    test.shard.fade();
    assert_eq!(heaviest(&test), ["demo/heavy 187", "demo/light 1"]);
}
