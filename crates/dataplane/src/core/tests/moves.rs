//! A stream goes from one lane to the other, and goes on behind a loss.

use std::sync::Arc;

use wire::config::{Class, ConfigPatch};
use wire::handoff::{ToControl, ToShard};
use wire::ids::{Epoch, SeqNum};
use wire::message::{CheckTail, Fence, Read, Start, StreamGet, StreamReconfigure, Subscribe};
use wire::reason::Reason;

use super::world::*;
use crate::core::{Flow, ShardConfig};

fn change(key: &str, class: Class) -> StreamReconfigure {
    StreamReconfigure { address: address(key), config: ConfigPatch { class: Some(class), ..ConfigPatch::default() } }
}

/// Changes a stream's class, with all that takes.
pub(super) fn reclass(test: &mut Test, key: &str, class: Class) {
    while test.ask_with(A, &change(key, class), &[]).0 == Flow::Blocked {
        test.serve_control();
        test.commit_all();
        test.settle(usize::MAX);
    }
    test.commit_all();
    let told = test.told(A);
    match told.last() {
        Some(Told::Stream(answer)) => assert_eq!(answer.stream.config.class, class),
        // It was never made.
        Some(Told::Refused(_, refusal)) => assert_eq!(refusal.reason, Reason::NotFound),
        other => panic!("{other:?}"),
    }
}

fn class(test: &mut Test, key: &str) -> Class {
    match &test.call(B, &StreamGet { address: address(key) })[..] {
        [Told::Stream(answer)] => answer.stream.config.class,
        other => panic!("{other:?}"),
    }
}

fn from(seq_num: u64) -> Read {
    Test::reading("s", Start::SeqNum(SeqNum::new(seq_num)))
}

#[test]
fn a_stream_becomes_standard_once_all_of_it_is_settled() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["express"]);
    assert_eq!(test.ask_with(B, &change("s", Class::Standard), &[]).0, Flow::Blocked);
    let _ = test.append(A, session, 2, &["held"]);
    test.commit();
    assert!(matches!(test.told(A)[..], [Told::Acked(..)]), "what came before is acked, what came after waits");
    for _ in 0..2 {
        assert_eq!(test.ask_with(B, &change("s", Class::Standard), &[]).0, Flow::Blocked);
    }
    let flushes = test.world.told.iter().filter(|message| matches!(message, ToControl::Flush)).count();
    assert_eq!(flushes, 1);
    test.settle(usize::MAX);
    assert_eq!(test.ask_with(B, &change("s", Class::Standard), &[]).0, Flow::Done);
    let (bytes, crc) = batch(&["standard"]);
    let _ = test.ask_with(B, &Test::once("s", crc), &bytes);
    assert_eq!(test.world.entries.len(), 2, "nothing more goes to the head log");
    test.commit();
    assert_eq!(test.told(B), vec![]);
    test.commit_standard();
    assert!(matches!(&test.told(B)[..], [Told::Stream(answer)] if answer.stream.config.class == Class::Standard));
    assert!(matches!(test.told(A)[..], [Told::Ended(_, Reason::Unavailable)]), "its client opens it again");
    test.commit_standard();
    let told = test.told(B);
    let [Told::Appended(appended)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((appended.start.seq_num.get(), appended.class), (1, Class::Standard));
    let mut test = test.crashed();
    assert_eq!(test.page(&from(0)).unwrap().bodies, vec!["express", "standard"]);
    assert_eq!(class(&mut test, "s"), Class::Standard);
}

#[test]
fn a_stream_becomes_express_once_the_store_has_the_change() {
    let mut test = Test::standard();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["standard"]);
    assert_eq!(test.ask_with(B, &change("s", Class::Express), &[]).0, Flow::Blocked);
    test.commit_standard();
    assert!(matches!(test.told(A)[..], [Told::Acked(..)]));
    assert_eq!(test.ask_with(B, &change("s", Class::Express), &[]).0, Flow::Done);
    let (bytes, crc) = batch(&["express"]);
    let _ = test.ask_with(B, &Test::once("s", crc), &bytes);
    assert_eq!(test.ask_with(A, &Fence { address: address("s"), fencing_token: token("t") }, &[]).0, Flow::Blocked);
    assert_eq!(test.world.entries.len(), 0, "the change is not durable yet");
    test.commit_standard();
    assert_eq!(test.world.entries.len(), 1);
    assert!(matches!(&test.told(B)[..], [Told::Stream(_)]));
    test.commit();
    let told = test.told(B);
    let [Told::Appended(appended)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((appended.start.seq_num.get(), appended.class), (1, Class::Express));
    assert_eq!(test.page(&from(0)).unwrap().bodies, vec!["standard", "express"]);
    let mut test = test.crashed();
    assert_eq!(test.page(&from(0)).unwrap().bodies, vec!["standard", "express"]);
}

#[test]
fn while_the_store_is_stalled_a_move_is_unavailable_and_nothing_has_changed() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    assert_eq!(test.ask_with(B, &change("s", Class::Standard), &[]).0, Flow::Blocked);
    let _ = test.append(A, session, 2, &["b"]);
    test.shard.on_control(ToShard::Stall { why: Some(Arc::from("down")) }, &mut test.world);
    test.ask(B, &change("s", Class::Standard));
    assert!(matches!(&test.told(B)[..], [Told::Refused(_, it)] if it.reason == Reason::Unavailable));
    test.wait(1);
    test.commit();
    assert_eq!(test.told(A).len(), 2, "what was held back has gone on");
    assert_eq!(class(&mut test, "s"), Class::Express);
    let _ = test.append(A, session, 3, &["c"]);
    test.commit();
    assert!(matches!(test.told(A)[..], [Told::Acked(..)]), "and its session is still open");
}

#[test]
fn a_move_that_nobody_asks_for_any_more_lapses() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    test.commit();
    test.told(A);
    assert_eq!(test.ask_with(B, &change("s", Class::Standard), &[]).0, Flow::Blocked);
    let _ = test.append(A, session, 2, &["b"]);
    test.wait(900);
    test.commit();
    assert_eq!(test.told(A), vec![]);
    test.wait(101);
    test.commit();
    assert!(matches!(test.told(A)[..], [Told::Acked(..)]));
    assert_eq!(class(&mut test, "s"), Class::Express);
}

#[test]
fn a_move_that_lapsed_leaves_nothing_behind() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    assert_eq!(test.ask_with(B, &change("s", Class::Standard), &[]).0, Flow::Blocked);
    for _ in 0..4 {
        test.wait(1_000);
    }
    assert!(test.shard.streams.row(0).unwrap().live.is_none());
}

#[test]
fn a_move_that_takes_too_long_is_unavailable() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    let mut tries = 0;
    while test.ask_with(B, &change("s", Class::Standard), &[]).0 == Flow::Blocked {
        test.wait(500);
        tries += 1;
    }
    assert_eq!(tries, 20, "ten seconds");
    assert!(matches!(&test.told(B)[..], [Told::Refused(_, it)] if it.reason == Reason::Unavailable));
    assert_eq!(class(&mut test, "s"), Class::Express);
    test.put("s", &["b"]).unwrap();
}

#[test]
fn a_one_shot_that_a_move_holds_for_too_long_is_refused() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    assert_eq!(test.ask_with(B, &change("s", Class::Standard), &[]).0, Flow::Blocked);
    let (bytes, crc) = batch(&["b"]);
    let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
    test.wait(600);
    assert_eq!(test.ask_with(B, &change("s", Class::Standard), &[]).0, Flow::Blocked);
    test.wait(500);
    assert!(matches!(&test.told(A)[..], [Told::Refused(_, it)] if it.reason == Reason::Unavailable));
}

#[test]
fn two_who_ask_for_the_same_move_both_get_it() {
    let mut test = Test::standard();
    test.put("s", &["a"]).unwrap();
    assert_eq!(test.ask_with(A, &change("s", Class::Express), &[]).0, Flow::Done);
    test.ask(B, &change("s", Class::Express));
    assert_eq!(test.told(B), vec![]);
    test.commit_standard();
    assert!(matches!(test.told(A)[..], [Told::Stream(_)]) && matches!(test.told(B)[..], [Told::Stream(_)]));
}

#[test]
fn a_change_without_another_class_stays_in_its_lane() {
    let mut test = Test::standard();
    test.put("s", &["a"]).unwrap();
    let retention = ConfigPatch { retention_max_bytes: Some(5), ..ConfigPatch::default() };
    test.call(A, &StreamReconfigure { address: address("s"), config: retention });
    assert_eq!(test.world.entries.len(), 0);
}

#[test]
fn resends_across_a_move_get_their_first_answer() {
    let mut test = Test::new();
    let (bytes, crc) = batch(&["x"]);
    let once = wire::message::AppendOnce { idempotency: (1, 2), ..Test::once("s", crc) };
    for _ in 0..5 {
        test.put("other", &["noise"]).unwrap();
    }
    test.offer(A, &once, &bytes);
    test.commit_all();
    test.told(A);
    reclass(&mut test, "s", Class::Standard);
    test.put("s", &["y"]).unwrap();
    test.offer(A, &once, &bytes);
    assert!(matches!(&test.told(A)[..], [Told::Appended(it)] if it.start.seq_num == SeqNum::ZERO), "at once");
    let (late, late_crc) = batch(&["z"]);
    test.offer(B, &Test::once("s", late_crc), &late);
    test.offer(A, &once, &bytes);
    test.commit_standard();
    assert!(matches!(test.told(A)[..], [Told::Appended(_)]), "it waits for its stream's lane at most");
}

fn lossy() -> ShardConfig {
    ShardConfig { epoch: Epoch::new(2), loss_epoch: Epoch::new(2), ..super::world::config() }
}

const GAP: u64 = 1 << 32;

#[test]
fn after_an_accepted_loss_an_express_stream_goes_on_behind_a_gap_that_readers_cross() {
    let mut test = Test::new();
    test.put("s", &["a", "b"]).unwrap();
    test.settle_and_free();
    let mut test = test.restarted(lossy());
    assert_eq!(test.put("s", &["c"]).unwrap().start.seq_num.get(), 2 + GAP);
    let page = test.page(&from(0)).unwrap();
    assert_eq!((page.bodies, page.end), (vec!["a".into(), "b".into(), "c".into()], 3 + GAP));
    assert_eq!(page.gaps, vec![(2, 2 + GAP)], "a reader is told what is lost");
    let page = test.page(&from(GAP / 2)).unwrap();
    assert_eq!(page.bodies, vec!["c"]);
    test.settle_and_free();
    assert_eq!(test.page(&from(1)).unwrap().bodies, vec!["b", "c"]);
    assert_eq!(test.page(&from(2)).unwrap().bodies, vec!["c"]);
    let config = ShardConfig { epoch: Epoch::new(3), ..lossy() };
    let mut test = test.restarted(config);
    assert_eq!(test.put("s", &["d"]).unwrap().start.seq_num.get(), 3 + GAP, "one gap is enough");
    assert_eq!(test.page(&from(1)).unwrap().bodies, vec!["b", "c", "d"]);
}

#[test]
fn a_gap_that_is_lost_with_what_was_acked_behind_it_is_followed_by_a_longer_one() {
    let mut test = Test::new();
    test.put("s", &["a", "b"]).unwrap();
    test.settle_and_free();
    let mut once = test.restarted(lossy());
    assert_eq!(once.put("s", &["c"]).unwrap().start.seq_num.get(), 2 + GAP);
    (once.world.rolled, once.world.freed) = (once.world.rolled + 1, once.world.rolled + 1);
    let mut twice = once.restarted(ShardConfig { epoch: Epoch::new(3), loss_epoch: Epoch::new(3), ..lossy() });
    assert_eq!(twice.put("s", &["d"]).unwrap().start.seq_num.get(), 2 + 2 * GAP, "c's number names nothing else");
    assert_eq!(twice.page(&from(0)).unwrap().bodies, vec!["a", "b", "d"]);
}

#[test]
fn a_gap_is_entered_before_anything_else_and_its_tail_waits_for_it() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    test.settle_and_free();
    let mut test = test.restarted(lossy());
    let entries = test.world.entries.len();
    test.call(A, &CheckTail { address: address("s") });
    assert_eq!(test.world.entries.len(), entries + 1);
    assert_eq!(test.call(A, &CheckTail { address: address("s") }), vec![Told::Tail(position(1 + GAP, 1_000))]);
    let page = test.page(&from(0)).unwrap();
    assert_eq!((page.bodies, page.end, page.at_tail), (vec!["a".to_owned()], 1 + GAP, true));
    let page = test.page(&from(GAP / 2)).unwrap();
    assert_eq!((page.bodies.len(), page.end), (0, 1 + GAP), "into it, with nothing behind it");
    let page = test.page(&Test::reading("s", Start::Timestamp(1_000))).unwrap();
    assert_eq!(page.start, 0);
}

#[test]
fn a_subscription_crosses_a_gap() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    let mut test = test.restarted(lossy());
    let subscribe = Subscribe {
        address: address("s"),
        start: Start::SeqNum(SeqNum::ZERO),
        clamp: false,
        credit_bytes: 1 << 20,
        subscription: 5,
        resume: None,
    };
    test.offer(B, &subscribe, &[]);
    test.serve_readers();
    test.commit_all();
    test.put("s", &["b"]).unwrap();
    test.serve_readers();
    let told = test.told(B);
    let bodies: Vec<String> = told
        .into_iter()
        .flat_map(|told| match told {
            Told::Records(_, page) => page.bodies,
            Told::Subscribed(_) => Vec::new(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(bodies, vec!["a", "b"]);
}

#[test]
fn a_standard_stream_has_lost_nothing() {
    let mut test = Test::standard();
    test.put("s", &["a"]).unwrap();
    test.apply_standard();
    let mut test = test.restarted(lossy());
    assert_eq!(test.put("s", &["b"]).unwrap().start.seq_num.get(), 1);
}
