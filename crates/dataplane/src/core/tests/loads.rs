//! Streams that are not in memory: how they come, how they go, and what retention asks of them.

use wire::config::{Class, ConfigPatch};
use wire::handoff::{ToControl, ToShard};
use wire::ids::{BucketId, Lsn, Rev, SeqNum, StreamId};
use wire::message::{
    AppendOnce, CheckTail, Close, Fence, GetToken, Read, Start, StreamCreate, StreamDelete, StreamGet, Subscribe,
};
use wire::names::Key;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::world::*;
use crate::core::Flow;

const BUCKET: BucketId = BucketId::from_bytes([1; 16]);

fn get(key: &str) -> StreamGet {
    StreamGet { address: address(key) }
}

fn loads(test: &Test) -> usize {
    test.world.told.iter().filter(|message| matches!(message, ToControl::Load { .. })).count()
}

/// A shard that may keep no row which it doesn't need.
fn forgetful(mut test: Test) -> Test {
    test.shard.config.rows_max = 0;
    test
}

fn rows(test: &Test) -> usize {
    test.shard.streams.len()
}

/// Time goes by until rows that may go are gone.
fn rest(test: &mut Test) {
    test.wait(10_000);
    test.wait(100);
}

#[test]
fn a_name_that_is_not_in_memory_is_looked_up_once() {
    let mut test = forgetful(Test::new());
    let id = stream_id(&test.call(A, &StreamCreate { address: address("s"), config: ConfigPatch::default() }));
    test.settle(usize::MAX);
    rest(&mut test);
    assert_eq!(rows(&test), 0);
    assert!(!test.shard.take_loads_done());
    for conn in [A, B, A] {
        assert_eq!(test.ask_with(conn, &get("s"), &[]).0, Flow::Blocked);
    }
    assert_eq!(loads(&test), 1);
    test.serve_control();
    assert!(test.shard.take_loads_done() && !test.shard.take_loads_done());
    for conn in [A, B] {
        assert_eq!(stream_id(&test.call(conn, &get("s"))), id);
    }
    assert_eq!(loads(&test), 0);
}

#[test]
fn a_bucket_of_this_run_needs_a_look_up_only_of_names_that_have_left() {
    let mut test = forgetful(Test::new());
    test.put("s", &["x"]).unwrap();
    test.settle(usize::MAX);
    rest(&mut test);
    assert_eq!(rows(&test), 0);
    test.ask(A, &get("none"));
    assert!(matches!(test.told(A)[..], [Told::Refused(..)]));
    test.put("new", &["x"]).unwrap();
    assert_eq!(loads(&test), 0);
    assert_eq!(test.ask_with(A, &get("s"), &[]).0, Flow::Blocked);
    assert_eq!(loads(&test), 1);
}

/// Makes as many streams as there may be and half as many more: no more are made then.
fn crowded(mut test: Test) -> (Test, usize) {
    test.shard.config.rows_max = 1_024;
    let made = (0..3_000).take_while(|number| !is_blocked(&mut test, &format!("s{number}"))).count();
    test.commit_all();
    test.told(A);
    (test, made)
}

fn is_blocked(test: &mut Test, key: &str) -> bool {
    let (bytes, crc) = batch(&["x"]);
    test.ask_with(A, &Test::once(key, crc), &bytes).0 == Flow::Blocked
}

#[test]
fn no_more_streams_are_made_than_there_is_room_for_until_others_have_left() {
    let (mut test, made) = crowded(Test::new());
    assert_eq!((made, rows(&test)), (1_537, 1_537));
    assert!(is_blocked(&mut test, "new"));
    test.put("s0", &["one that is there"]).unwrap();
    test.settle(usize::MAX);
    assert!(is_blocked(&mut test, "new"), "they have not rested");
    test.wait(1_000);
    assert!(test.shard.take_loads_done(), "who is blocked is offered again");
    assert!((1_024..1_290).contains(&rows(&test)), "{}: a second is enough only for some of them", rows(&test));
    test.put("new", &["x"]).unwrap();
    assert_eq!(loads(&test), 0);
}

#[test]
fn a_stream_for_which_there_is_no_room_is_refused_while_none_can_leave() {
    let (mut test, _) = crowded(Test::new());
    test.shard.on_control(ToShard::Stall { why: Some("it is away".into()) }, &mut test.world);
    let told = test.call(A, &StreamCreate { address: address("new"), config: ConfigPatch::default() });
    assert!(
        matches!(&told[..], [Told::Refused(_, refusal)] if refusal.reason == Reason::ResourceExhausted),
        "{told:?}"
    );
    test.shard.on_control(ToShard::Stall { why: None }, &mut test.world);
    assert!(is_blocked(&mut test, "new"));
}

#[test]
fn who_waits_for_room_is_told_when_none_leaves_for_long() {
    let (mut test, _) = crowded(Test::new());
    assert!(is_blocked(&mut test, "new"));
    test.wait(10_000);
    let told = test.call(A, &StreamCreate { address: address("new"), config: ConfigPatch::default() });
    assert!(
        matches!(&told[..], [Told::Refused(_, refusal)] if refusal.reason == Reason::ResourceExhausted),
        "{told:?}"
    );
}

#[test]
fn a_name_that_is_none_is_remembered_and_used_up_by_a_creation() {
    let mut test = Test::new();
    test.old_table(2, [bucket(ConfigPatch::default())]);
    for _ in 0..3 {
        let told = test.call(A, &get("s"));
        assert!(matches!(&told[..], [Told::Refused(_, refusal)] if refusal.reason == Reason::NotFound));
    }
    let mut test = forgetful(test);
    test.put("s", &["x"]).unwrap();
    test.settle(usize::MAX);
    rest(&mut test);
    assert_eq!(rows(&test), 0);
    assert!(matches!(test.call(A, &get("s"))[..], [Told::Stream(_)]));
}

#[test]
fn a_look_up_that_fails_is_told_once_and_tried_again() {
    let mut test = Test::new();
    test.old_table(2, [bucket(ConfigPatch::default())]);
    test.store.broken = Some(Refusal::new(Reason::Unavailable, "the index is not there"));
    let told = test.call(A, &get("s"));
    assert!(matches!(&told[..], [Told::Refused(_, refusal)] if refusal.reason == Reason::Unavailable), "{told:?}");
    test.store.broken = None;
    let told = test.call(A, &get("s"));
    assert!(matches!(&told[..], [Told::Refused(_, refusal)] if refusal.reason == Reason::NotFound), "{told:?}");
}

#[test]
fn a_look_up_that_control_has_no_room_for_is_made_later() {
    let mut test = Test::new();
    test.old_table(2, [bucket(ConfigPatch::default())]);
    test.world.is_control_full = true;
    assert_eq!(test.ask_with(A, &get("s"), &[]).0, Flow::Blocked);
    test.world.is_control_full = false;
    test.put("s", &["x"]).unwrap();
}

/// What a stream is must not depend on whether it was in memory all the time.
#[test]
fn a_stream_that_comes_back_has_its_tail_its_token_and_what_it_remembers() {
    for standard in [false, true] {
        let mut test = forgetful(if standard { Test::standard() } else { Test::new() });
        let id = test.open(A, "s", 7, "").unwrap();
        let _ = test.append(A, id.session, 1, &["a", "b"]);
        test.commit_all();
        test.told(A);
        let (bytes, crc) = batch(&["once"]);
        let once = AppendOnce { idempotency: (1, 2), ..Test::once("s", crc) };
        test.offer(A, &once, &bytes);
        test.call(A, &Fence { address: address("s"), fencing_token: token("") });
        test.call(A, &Close { session: id.session });
        test.call(A, &Fence { address: address("s"), fencing_token: token("t") });
        test.settle(usize::MAX);
        rest(&mut test);
        assert_eq!(rows(&test), 0, "{standard}");
        let told = test.call(A, &get("s"));
        let [Told::Stream(answer)] = &told[..] else { panic!("{told:?}") };
        let info = &answer.stream;
        assert_eq!((info.stream_id, info.tail, info.settled.get()), (id.stream_id, position(3, 1000), 3));
        assert_eq!((info.bytes, info.created_at_ms), (6, 1_000));
        assert_eq!(test.call(A, &GetToken { address: address("s") }), vec![Told::Token("t".to_owned())]);
        test.offer(A, &once, &bytes);
        test.commit_all();
        assert!(matches!(&test.told(A)[..], [Told::Appended(again)] if again.start.seq_num == SeqNum::new(2)));
        assert_eq!(test.put("s", &["next"]).unwrap().start.seq_num, SeqNum::new(3));
        let page = test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap();
        assert_eq!(page.bodies, vec!["a", "b", "once", "next"]);
    }
}

#[test]
fn a_stream_stays_while_it_is_used_or_not_in_the_index_or_not_idle_for_long() {
    let mut test = forgetful(Test::new());
    test.put("s", &["x"]).unwrap();
    rest(&mut test);
    assert_eq!(rows(&test), 1, "the index doesn't have it");
    test.settle(usize::MAX);
    test.wait(100);
    assert_eq!(rows(&test), 0);
    test.call(A, &get("s"));
    test.wait(9_000);
    assert_eq!(rows(&test), 1, "it has just come");
    let session = test.open(A, "s", 7, "").unwrap().session;
    rest(&mut test);
    assert_eq!(rows(&test), 1, "someone writes to it");
    let subscribe = Subscribe {
        address: address("s"),
        start: Start::SeqNum(SeqNum::ZERO),
        clamp: false,
        credit_bytes: 0,
        subscription: 5,
        resume: None,
    };
    test.call(A, &Close { session });
    test.ask(B, &subscribe);
    rest(&mut test);
    rest(&mut test);
    assert_eq!(rows(&test), 1, "someone reads from it, though not now");
    test.shard.on_closed(B, &mut test.world);
    rest(&mut test);
    assert_eq!(rows(&test), 0);
}

#[test]
fn rows_stay_as_long_as_there_are_not_too_many() {
    let mut test = Test::new();
    for key in ["a", "b", "c"] {
        test.put(key, &["x"]).unwrap();
    }
    test.settle(usize::MAX);
    rest(&mut test);
    assert_eq!(rows(&test), 3);
    test.shard.config.rows_max = 2;
    rest(&mut test);
    assert_eq!(rows(&test), 2);
    assert_eq!(test.shard.streams.find(BUCKET, "a"), None, "the one that was used first");
}

#[test]
fn rows_that_recovery_found_leave_once_they_are_settled() {
    let mut test = Test::new();
    test.put("s", &["x"]).unwrap();
    let mut test = forgetful(test.crashed());
    rest(&mut test);
    assert_eq!(rows(&test), 1);
    test.settle(usize::MAX);
    rest(&mut test);
    assert_eq!(rows(&test), 0);
}

#[test]
fn a_deleted_stream_is_not_looked_up_before_the_index_knows() {
    for crashes in [false, true] {
        let mut test = Test::new();
        test.put("s", &["x"]).unwrap();
        test.put("t", &["x"]).unwrap();
        test.settle(usize::MAX);
        let deleted = test.store.rows.keys().next().copied();
        test.call(A, &StreamDelete { address: address("s") });
        let mut test = if crashes { test.crashed() } else { test };
        test.old_table(2, [bucket(ConfigPatch::default())]);
        let told = test.call(A, &get("s"));
        assert!(matches!(&told[..], [Told::Refused(_, refusal)] if refusal.reason == Reason::NotFound), "{told:?}");
        let gone: Vec<_> = test.shard.deleted(BUCKET, "").map(|(key, id)| (key.to_owned(), Some(id))).collect();
        assert_eq!(gone, vec![("s".to_owned(), deleted)]);
        assert_eq!(test.shard.deleted(BUCKET, "s").count(), 0);
        test.settle(usize::MAX);
        assert_eq!(test.shard.deleted(BUCKET, "").count(), 0);
        assert!(matches!(test.call(A, &get("s"))[..], [Told::Refused(..)]));
    }
}

#[test]
fn a_recreated_stream_stays_until_the_index_knows_that_the_one_before_is_gone() {
    let mut test = forgetful(Test::new());
    test.put("s", &["old"]).unwrap();
    test.settle(usize::MAX);
    test.call(A, &StreamDelete { address: address("s") });
    test.put("s", &["new"]).unwrap();
    rest(&mut test);
    assert_eq!(rows(&test), 1);
    test.settle(usize::MAX);
    rest(&mut test);
    assert_eq!(rows(&test), 0);
    let page = test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap();
    assert_eq!(page.bodies, vec!["new"]);
}

#[test]
fn a_stream_made_again_in_the_other_lane_stays_too() {
    let mut test = forgetful(Test::new());
    test.put("s", &["old"]).unwrap();
    test.settle(usize::MAX);
    test.call(A, &StreamDelete { address: address("s") });
    let standard = ConfigPatch { class: Some(Class::Standard), ..ConfigPatch::default() };
    test.call(A, &StreamCreate { address: address("s"), config: standard });
    test.put("s", &["new"]).unwrap();
    test.apply_standard();
    rest(&mut test);
    assert_eq!(rows(&test), 1, "a tombstone would tell that it is gone");
    let page = test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap();
    assert_eq!(page.bodies, vec!["new"]);
}

#[test]
fn a_freeze_says_how_far_both_lanes_are() {
    let mut test = Test::standard();
    test.put("s", &["x"]).unwrap();
    test.call(A, &StreamDelete { address: address("s") });
    test.shard.on_control(ToShard::Freeze { bucket: BUCKET }, &mut test.world);
    let Some(ToControl::Frozen { standard, express, .. }) = test.world.told.last() else { panic!() };
    assert_eq!((*standard, express.1, express.0), (Lsn::new(3), Lsn::ZERO, test.shard.config.own_log_id));
}

fn trim(test: &mut Test, stream_id: StreamId, to: u64) {
    let (key, to) = (Key::new("s").unwrap(), SeqNum::new(to));
    test.shard.on_control(ToShard::TrimTo { bucket: BUCKET, key, stream_id, to }, &mut test.world);
    test.serve_control();
    test.commit_all();
}

#[test]
fn an_empty_stream_goes_if_nothing_happened_to_it_since_it_was_looked_at() {
    for standard in [false, true] {
        let mut test = if standard { Test::standard() } else { Test::new() };
        let id = test.open(A, "s", 7, "").unwrap();
        test.put("s", &["a"]).unwrap();
        let delete = |test: &mut Test, stream_id, rev| {
            let (key, rev) = (Key::new("s").unwrap(), Rev::new(rev));
            test.shard.on_control(ToShard::DeleteEmpty { bucket: BUCKET, key, stream_id, rev }, &mut test.world);
            test.commit_all();
        };
        // Made, and a batch.
        delete(&mut test, id.stream_id, 2);
        test.put("s", &["b"]).expect("it has a record");
        trim(&mut test, id.stream_id, 2);
        delete(&mut test, id.stream_id, 3);
        delete(&mut test, StreamId::from_bytes([9; 16]), 4);
        let told = test.call(B, &CheckTail { address: address("s") });
        assert!(matches!(told[..], [Told::Tail(tail)] if tail.seq_num.get() == 2), "{told:?}");
        test.told(A);
        delete(&mut test, id.stream_id, 4);
        assert_eq!(test.told(A), vec![Told::Ended(id.session, Reason::NotFound)]);
        let told = test.call(B, &StreamGet { address: address("s") });
        assert!(matches!(&told[..], [Told::Refused(_, refusal)] if refusal.reason == Reason::NotFound), "{told:?}");
    }
}

#[test]
fn retention_trims_what_is_in_memory_and_what_is_not() {
    for standard in [false, true] {
        let mut test = forgetful(if standard { Test::standard() } else { Test::new() });
        let id = test.open(A, "s", 7, "").unwrap();
        test.put("s", &["a", "b", "c", "d"]).unwrap();
        test.call(A, &Close { session: id.session });
        let first = |test: &mut Test| {
            let read = Read { clamp: true, ..Test::reading("s", Start::SeqNum(SeqNum::ZERO)) };
            test.page(&read).unwrap().start
        };
        trim(&mut test, id.stream_id, 1);
        assert_eq!(first(&mut test), 1);
        trim(&mut test, StreamId::from_bytes([9; 16]), 2);
        assert_eq!(first(&mut test), 1, "it is another stream");
        test.settle(usize::MAX);
        rest(&mut test);
        assert_eq!(rows(&test), 0);
        trim(&mut test, id.stream_id, 3);
        assert_eq!(first(&mut test), 3);
        trim(&mut test, id.stream_id, 2);
        trim(&mut test, id.stream_id, 99);
        assert_eq!(first(&mut test), 4);
    }
}
