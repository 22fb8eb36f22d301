//! The two lanes: what is acked by the standard store, and what waits for which of them.

use std::sync::Arc;

use express_log::NoRoom;
use wire::config::{Class, ConfigPatch};
use wire::handoff::ToShard;
use wire::ids::{Lsn, ProducerId, SeqNum};
use wire::message::{AppendOnce, CheckTail, Fence, Open, Read, Start, StreamCreate, StreamDelete, StreamGet};
use wire::reason::Reason;

use super::appends::{chained, reasons};
use super::world::*;
use crate::core::Flow;

fn stall(test: &mut Test, why: Option<&str>) {
    let why = why.map(Arc::from);
    test.shard.on_control(ToShard::Stall { why }, &mut test.world);
}

fn get(key: &str) -> StreamGet {
    StreamGet { address: address(key) }
}

fn of_class(key: &str, class: Class) -> StreamCreate {
    StreamCreate { address: address(key), config: ConfigPatch { class: Some(class), ..ConfigPatch::default() } }
}

/// A batch of one record of so many bytes.
fn long(bytes: usize) -> (Vec<u8>, u32) {
    batch(&[&"x".repeat(bytes)])
}

#[test]
fn a_standard_append_is_acked_once_the_store_has_it() {
    let mut test = Test::standard();
    let (bytes, crc) = batch(&["a", "b"]);
    let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
    test.commit();
    test.shard.hand_over(&mut test.world);
    assert_eq!(test.told(A), vec![], "handing over makes nothing durable");
    assert_eq!((test.world.entries.len(), test.world.parcels.len()), (0, 1), "the head log has no part in it");
    let (upto, parcel) = test.world.parcels[0].clone();
    assert_eq!((upto, parcel.items.len(), parcel.items[1].content_bytes), (Lsn::new(2), 2, 2));
    test.commit_standard();
    let told = test.told(A);
    let [Told::Appended(appended)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (appended.class, appended.start, appended.tail),
        (Class::Standard, position(0, 1000), position(2, 1000))
    );
    assert_eq!(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().bodies, vec!["a", "b"]);
}

#[test]
fn a_mismatch_judged_on_what_the_store_does_not_have_yet_waits_for_it() {
    let mut test = Test::standard();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append_if(A, (session, 1), Some(0), &batch(&["a"]));
    let _ = test.append_if(A, (session, 2), Some(0), &batch(&["b"]));
    test.commit();
    assert_eq!(test.told(A), vec![]);
    test.commit_standard();
    let told = test.told(A);
    let [Told::Acked(..), Told::AppendRefused(_, 2, refusal)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((refusal.reason, refusal.tail()), (Reason::SequenceMismatch, Some(position(1, 1000))));
}

#[test]
fn a_stalled_store_refuses_what_is_new_and_what_is_in_flight_waits() {
    let mut test = Test::standard();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    stall(&mut test, Some("503 for 30 s"));
    let _ = test.append(A, session, 2, &["b"]);
    test.ask(B, &Fence { address: address("s"), fencing_token: token("t") });
    test.ask(B, &of_class("new", Class::Standard));
    let refused = test.told(B);
    assert!(matches!(&refused[..], [Told::Refused(_, fence), Told::Refused(_, create)]
        if fence.reason == Reason::Unavailable && create.message.contains("503 for 30 s")));
    assert_eq!(test.told(A), vec![], "the refusal stands behind what is in flight");
    assert!(matches!(test.call(B, &of_class("express", Class::Express))[..], [Told::Stream(_)]));
    test.commit_standard();
    let told = test.told(A);
    let [Told::Acked(..), Told::AppendRefused(_, 2, refusal)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((refusal.reason, refusal.details.as_ref().unwrap().retry_after_ms), (Reason::Unavailable, Some(1_000)));
    stall(&mut test, None);
    let _ = test.append(A, session, 3, &["c"]);
    test.commit_standard();
    assert!(matches!(&test.told(A)[..], [Told::Acked(_, ack, _)] if ack.start.seq_num == SeqNum::new(1)));
}

#[test]
fn the_standard_lane_takes_so_much_and_no_more_until_the_index_has_it() {
    let mut test = Test::standard();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let batch = long(1_000_000);
    let fill = |test: &mut Test, from: u64| {
        (from..from + 100).find(|no| test.append_if(A, (session, *no), None, &batch) == Flow::Blocked).unwrap()
    };
    let first = fill(&mut test, 1);
    assert!((8..=9).contains(&first), "{first}");
    test.commit_standard();
    assert_eq!(fill(&mut test, first), first, "committed is not in the index");
    test.apply_standard();
    assert!(fill(&mut test, first) > first + 6);
}

#[test]
fn what_the_index_does_not_have_is_in_memory() {
    let mut test = Test::standard();
    let body = "x".repeat(30_000);
    for n in 0..1_000u64 {
        assert_eq!(test.put("s", &[&body]).unwrap().start.seq_num.get(), n);
        if n >= 60 {
            test.apply_one();
            let read = Read { limit: 1, ..Test::reading("s", Start::SeqNum(SeqNum::new(n - 50))) };
            test.ask(A, &read);
            assert!(matches!(&test.told(A)[..], [Told::Page(page)] if page.bodies.len() == 1), "{n}");
        }
    }
}

#[test]
fn what_control_has_no_room_for_is_kept_in_order() {
    let mut test = Test::standard();
    let session = test.open(A, "s", 7, "").unwrap().session;
    test.world.is_control_full = true;
    for no in 1..4 {
        let _ = test.append(A, session, no, &["x"]);
        test.shard.hand_over(&mut test.world);
    }
    assert_eq!(test.world.parcels.len(), 0);
    test.world.is_control_full = false;
    test.shard.hand_over(&mut test.world);
    assert_eq!(test.world.parcels[0].1.items.len(), 3);
    test.commit_standard();
    test.apply_standard();
    assert_eq!(test.told(A).len(), 3);
}

#[test]
fn the_lanes_do_not_wait_for_each_other() {
    let mut test = Test::new();
    test.call(A, &of_class("slow", Class::Standard));
    let slow = test.open(A, "slow", 7, "").unwrap().session;
    let fast = test.open(A, "fast", 8, "").unwrap().session;
    let _ = test.append(A, slow, 1, &["slow"]);
    let _ = test.append(A, fast, 1, &["fast"]);
    test.commit();
    assert!(matches!(test.told(A)[..], [Told::Acked(session, ..)] if session == fast));
    test.commit_standard();
    assert!(matches!(test.told(A)[..], [Told::Acked(session, ..)] if session == slow));
}

#[test]
fn an_answer_about_a_name_waits_for_the_lane_that_its_delete_is_in() {
    let mut test = Test::standard();
    test.put("s", &["x"]).unwrap();
    test.ask(A, &StreamDelete { address: address("s") });
    test.ask(A, &CheckTail { address: address("s") });
    test.ask(A, &StreamDelete { address: address("s") });
    test.commit();
    assert_eq!(test.told(A), vec![]);
    test.ask(B, &get("never-was"));
    assert!(matches!(test.told(B)[..], [Told::Refused(..)]), "another name waits for nothing");
    test.commit_standard();
    assert!(matches!(test.told(A)[..], [Told::Done(_), Told::Refused(..), Told::Done(_)]));
}

#[test]
fn a_stream_is_made_again_in_the_other_lane_only_once_the_index_will_learn_of_its_delete_first() {
    for (class, other) in [(Class::Standard, Class::Express), (Class::Express, Class::Standard)] {
        let mut test = Test::new();
        test.call(A, &of_class("s", class));
        test.ask(A, &StreamDelete { address: address("s") });
        test.ask(B, &of_class("s", other));
        let told = test.told(B);
        assert!(matches!(&told[..], [Told::Refused(_, it)] if it.reason == Reason::Unavailable), "{told:?}");
        test.commit_all();
        assert!(matches!(test.told(A)[..], [Told::Done(_)]));
        if other == Class::Standard {
            let told = test.call(B, &of_class("s", other));
            assert!(matches!(&told[..], [Told::Refused(_, it)] if it.reason == Reason::Unavailable), "{told:?}");
            test.settle_and_free();
        }
        assert!(matches!(test.call(B, &of_class("s", other))[..], [Told::Stream(_)]));
    }
}

#[test]
fn a_stream_is_made_again_in_its_own_lane_at_once() {
    let mut test = Test::standard();
    let old = stream_id(&test.call(A, &of_class("s", Class::Standard)));
    test.ask(A, &StreamDelete { address: address("s") });
    test.ask(B, &of_class("s", Class::Standard));
    test.commit_all();
    test.told(A);
    let new = stream_id(&test.told(B));
    assert_ne!(new, old);
    let mut test = test.crashed();
    assert_eq!(stream_id(&test.call(A, &get("s"))), new);
}

#[test]
fn a_resend_is_answered_when_the_store_has_the_first() {
    let mut test = Test::standard();
    test.put("s", &["first"]).unwrap();
    let (bytes, crc) = batch(&["x"]);
    let once = AppendOnce { idempotency: (1, 2), ..Test::once("s", crc) };
    for _ in 0..2 {
        let _ = test.ask_with(A, &once, &bytes);
    }
    test.commit();
    assert_eq!(test.told(A), vec![]);
    test.commit_standard();
    let told = test.told(A);
    let [Told::Appended(first), Told::Appended(again)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((first.start, first.class), (again.start, again.class));
}

/// The store has taken nothing for nearly so long that nobody is to wait on.
fn stall_for_long(test: &mut Test) {
    stall(test, Some("no answer"));
    test.wait(4_999);
}

fn unavailable(refusal: &wire::refusal::Refusal) -> bool {
    let waits_ms = refusal.details.as_ref().and_then(|details| details.retry_after_ms);
    refusal.reason == Reason::Unavailable && waits_ms == Some(1_000) && refusal.message.contains("no answer")
}

#[test]
fn what_is_in_flight_is_answered_as_unknown_once_the_store_has_taken_nothing_for_long() {
    let mut test = Test::standard();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    let _ = test.append_if(A, (session, 2), Some(0), &batch(&["mismatch"]));
    let (bytes, crc) = batch(&["once"]);
    let _ = test.ask_with(B, &Test::once("s", crc), &bytes);
    test.ask(B, &Fence { address: address("s"), fencing_token: token("t") });
    stall_for_long(&mut test);
    assert_eq!((test.told(A), test.told(B)), (vec![], vec![]), "not a moment too early");
    assert!(!test.shard.is_idle());
    test.wait(1);
    let told = test.told(A);
    let [Told::AppendRefused(_, 1, first), Told::AppendRefused(_, 2, second), ..] = &told[..] else {
        panic!("{told:?}")
    };
    assert!(unavailable(first) && unavailable(second), "{told:?}");
    let told = test.told(B);
    assert!(
        matches!(&told[..], [Told::Refused(_, append), Told::Refused(_, fence)] if unavailable(append) && unavailable(fence))
    );
    assert!(test.shard.is_idle(), "nobody waits for what is under way still");
    // It stood, and is where it was put: what comes later comes behind it.
    stall(&mut test, None);
    test.commit_standard();
    assert_eq!(test.told(B), vec![], "each request has had its answer");
    test.apply_standard();
    assert_eq!(test.put("s", &["later"]).unwrap().start.seq_num.get(), 2);
    assert_eq!(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().bodies, ["a", "once", "later"]);
}

#[test]
fn a_batch_that_is_sent_again_after_the_outage_is_the_one_that_was_under_way() {
    let mut test = Test::standard();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    stall_for_long(&mut test);
    test.wait(1);
    assert!(matches!(&test.told(A)[..], [Told::AppendRefused(_, 1, refusal)] if unavailable(refusal)));
    // While it goes on, each is told at once: the first is under way still, the second never was.
    let _ = test.append(A, session, 1, &["a"]);
    let _ = test.append(A, session, 2, &["b"]);
    let told = test.told(A);
    assert!(
        matches!(&told[..], [Told::AppendRefused(_, 1, first), Told::AppendRefused(_, 2, second)]
        if unavailable(first) && unavailable(second)),
        "{told:?}"
    );
    stall(&mut test, None);
    for (no, body) in [(1, "a"), (2, "b")] {
        let _ = test.append(A, session, no, &[body]);
    }
    test.commit_standard();
    let told = test.told(A);
    let [Told::Acked(_, first, _), Told::Acked(_, second, _)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((first.start.seq_num.get(), second.start.seq_num.get()), (0, 1), "each is stored once, in order");
    assert_eq!(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().bodies, ["a", "b"]);
}

#[test]
fn an_open_that_nobody_waits_for_any_more_leaves_no_session_and_reads_of_what_is_committed_go_on() {
    let mut test = Test::standard();
    test.put("s", &["before"]).unwrap();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    let (address, producer) = (address("s"), ProducerId::new(8));
    test.ask(B, &Open { address: address.clone(), producer, fencing_token: token(""), resume: None });
    let sessions = |test: &Test| {
        let mut counters = Vec::new();
        test.shard.counters(&mut counters);
        counters.iter().find(|(name, _)| *name == "sessions").map(|(_, count)| *count)
    };
    assert_eq!(sessions(&test), Some(2));
    stall_for_long(&mut test);
    test.wait(1);
    assert!(matches!(&test.told(B)[..], [Told::Refused(_, refusal)] if unavailable(refusal)));
    assert_eq!(sessions(&test), Some(1));
    test.told(A);
    test.ask(B, &CheckTail { address });
    assert!(matches!(&test.told(B)[..], [Told::Tail(tail)] if tail.seq_num.get() == 1));
    assert_eq!(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().bodies, ["before"]);
}

#[test]
fn a_batch_that_was_held_back_and_refused_in_an_outage_breaks_its_chain() {
    let config = ConfigPatch { class: Some(Class::Standard), batch_max_records: Some(1), ..ConfigPatch::default() };
    let mut test = Test::with(config);
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    let _ = test.append_on(A, (session, 2), &chained(), None);
    stall_for_long(&mut test);
    test.wait(1);
    let told = test.told(A);
    assert!(matches!(&told[..], [Told::AppendRefused(_, 1, _), Told::AppendRefused(_, 2, _)]), "{told:?}");
    stall(&mut test, None);
    let _ = test.append_on(A, (session, 3), &chained(), None);
    for _ in 0..2 {
        test.commit_standard();
    }
    let told = test.told(A);
    assert!(matches!(&told[..], [Told::AppendRefused(_, 3, refusal)] if unavailable(refusal)), "{told:?}");
    assert_eq!(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().bodies, ["a"]);
}

/// What enters the head log is settled in the store as well.
#[test]
fn while_the_disk_of_the_store_is_full_neither_lane_takes_records_and_both_take_everything_else() {
    for class in [Class::Standard, Class::Express] {
        let mut test = Test::with(ConfigPatch { class: Some(class), ..ConfigPatch::default() });
        test.put("s", &["a"]).unwrap();
        test.world.store_room = Some(NoRoom::Disk { free_bytes: 9, kept_bytes: 10 });
        let (bytes, crc) = batch(&["b"]);
        let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
        let told = test.told(A);
        assert_eq!(reasons(&told), vec![Reason::ResourceExhausted], "{class}: {told:?}");
        assert_eq!(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().bodies, vec!["a"]);
        let told = test.call(A, &StreamDelete { address: address("s") });
        assert!(!told.is_empty() && told.iter().all(is_taken), "{class}: a delete makes room: {told:?}");
        test.world.store_room = None;
        test.put("t", &["b"]).unwrap();
    }
}

fn is_taken(told: &Told) -> bool {
    !matches!(told, Told::Refused(..) | Told::AppendRefused(..))
}
