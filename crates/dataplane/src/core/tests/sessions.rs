//! Sessions and fencing: who may write.

use wire::config::{ConfigPatch, ProducerPolicy};
use wire::ids::ProducerId;
use wire::message::{AppendOnce, Close, Fence, Open};
use wire::reason::Reason;

use super::world::*;

fn fenced() -> Test {
    Test::with(ConfigPatch { producer_policy: Some(ProducerPolicy::Fenced), ..ConfigPatch::default() })
}

fn fence(test: &mut Test, key: &str, text: &str) -> u64 {
    match test.call(B, &Fence { address: address(key), fencing_token: token(text) }).pop() {
        Some(Told::Fenced(tail)) => tail.seq_num.get(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fenced_stream_has_one_writer_until_it_closes_or_goes() {
    let mut test = fenced();
    let first = test.open(A, "s", 7, "").unwrap();
    assert_eq!(test.open(B, "s", 8, "").unwrap_err().reason, Reason::WriterHeld);
    assert_eq!(test.put("s", &["x"]).unwrap_err().reason, Reason::WriterHeld);
    assert!(matches!(test.call(A, &Close { session: first.session })[..], [Told::Done(_)]));
    test.open(B, "s", 8, "").unwrap();
    test.shard.on_closed(B, &mut test.world);
    test.open(A, "s", 9, "").unwrap();
}

#[test]
fn a_session_resumes_by_its_own_id() {
    let mut test = fenced();
    let first = test.open(A, "s", 7, "").unwrap();
    let resume = Open {
        address: address("s"),
        producer: ProducerId::new(7),
        fencing_token: token(""),
        resume: Some(first.stream_id),
    };
    assert!(matches!(test.call(B, &resume)[..], [Told::Opened(_)]));
    assert_eq!(test.told(A), vec![Told::Ended(first.session, Reason::Superseded)]);
}

#[test]
fn a_fence_answers_the_boundary_and_ends_everyone_else() {
    let mut test = fenced();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    test.ask(B, &Fence { address: address("s"), fencing_token: token("gen-2") });
    let _ = test.append(A, session, 2, &["late"]);
    assert_eq!((test.told(A), test.told(B)), (vec![], vec![]), "the fence is not durable yet");
    test.commit();
    assert_eq!(test.told(B), vec![Told::Fenced(position(1, 1000))]);
    let told = test.told(A);
    assert!(matches!(&told[0], Told::Acked(_, ack, _) if ack.no.get() == 1), "admitted before the fence");
    assert_eq!(told[1], Told::Ended(session, Reason::FencedOut));
    let Told::AppendRefused(_, 2, refusal) = &told[2] else { panic!("{told:?}") };
    assert_eq!(refusal.details.as_ref().unwrap().fencing_token, Some(token("gen-2")));
}

#[test]
fn takeover_is_fence_then_open() {
    let mut test = fenced();
    test.open(A, "s", 7, "").unwrap();
    fence(&mut test, "s", "gen-2");
    assert_eq!(test.open(A, "s", 7, "").unwrap_err().reason, Reason::FencedOut);
    assert_eq!(test.open(A, "s", 7, "gen-1").unwrap_err().reason, Reason::FencedOut);
    let mine = test.open(B, "s", 8, "gen-2").unwrap();
    let theirs = test.open(A, "s", 9, "gen-2").unwrap();
    assert_eq!(test.told(B), vec![Told::Ended(mine.session, Reason::Superseded)]);
    let (bytes, crc) = batch(&["x"]);
    let once = AppendOnce { fencing_token: token("gen-2"), ..Test::once("s", crc) };
    let _ = test.ask_with(B, &once, &bytes);
    let _ = test.append(A, theirs.session, 1, &["y"]);
    test.commit();
    assert!(matches!(test.told(B)[..], [Told::Appended(_)]), "a one-shot with the token supersedes nobody");
    assert!(matches!(test.told(A)[..], [Told::Acked(..)]));
}

#[test]
fn on_an_open_stream_only_those_who_present_are_bound() {
    let mut test = Test::new();
    let plain = test.open(A, "s", 7, "").unwrap().session;
    assert_eq!(test.open(B, "s", 8, "t").unwrap_err().reason, Reason::FencedOut, "none is installed");
    fence(&mut test, "s", "t");
    let bound = test.open(B, "s", 8, "t").unwrap().session;
    test.ask(A, &Fence { address: address("s"), fencing_token: token("u") });
    test.commit();
    assert_eq!(test.told(B), vec![Told::Ended(bound, Reason::FencedOut)]);
    assert_eq!(test.told(A), vec![Told::Fenced(position(0, 0))]);
    let _ = test.append(A, plain, 1, &["x"]);
    test.commit();
    assert!(matches!(test.told(A)[..], [Told::Acked(..)]));
    test.put("s", &["y"]).unwrap();
}

#[test]
fn an_equal_token_is_no_op_and_an_empty_one_clears() {
    let mut test = fenced();
    test.put("s", &["a"]).unwrap();
    fence(&mut test, "s", "t");
    let entries = test.world.entries.len();
    assert_eq!(fence(&mut test, "s", "t"), 1);
    assert_eq!(test.world.entries.len(), entries);
    let session = test.open(A, "s", 7, "t").unwrap().session;
    fence(&mut test, "s", "");
    assert_eq!(test.told(A), vec![Told::Ended(session, Reason::FencedOut)]);
    test.open(A, "s", 9, "").unwrap();
}

#[test]
fn tokens_survive_a_crash() {
    let mut test = fenced();
    test.put("s", &["a"]).unwrap();
    fence(&mut test, "s", "t");
    let mut test = test.crashed();
    assert_eq!(test.open(A, "s", 7, "").unwrap_err().reason, Reason::FencedOut);
    test.open(A, "s", 7, "t").unwrap();
}

#[test]
fn a_close_is_answered_also_when_a_fence_comes_before_what_was_held_back() {
    let rate = ConfigPatch { throughput_max_bytes_per_second: Some(1), ..ConfigPatch::default() };
    let mut test = Test::with(ConfigPatch { producer_policy: Some(ProducerPolicy::Fenced), ..rate });
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["into debt"]);
    let _ = test.append(A, session, 2, &["held"]);
    test.commit();
    test.told(A);
    let close = test.ask(A, &Close { session });
    assert!(matches!(test.call(A, &Close { session })[..], [Told::Refused(..)]), "each close is answered");
    fence(&mut test, "s", "t");
    assert_eq!(test.told(A), vec![Told::Ended(session, Reason::FencedOut), Told::Done(close)]);
    assert_eq!((test.shard.sessions.len(), test.shard.held_bytes), (0, 0));
}

#[test]
fn a_close_forgets_nothing_that_may_be_sent_again() {
    let mut test = Test::new();
    let first = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, first, 1, &["once"]);
    test.ask(A, &Close { session: first });
    let resumed = test.open(B, "s", 7, "").unwrap().session;
    let _ = test.append(B, resumed, 1, &["once"]);
    test.commit();
    assert!(matches!(&test.told(B)[..], [Told::Acked(_, ack, _)] if ack.start.seq_num.get() == 0));
    test.call(A, &Close { session: first });
    let _ = test.append(B, resumed, 1, &["once"]);
    test.commit();
    assert!(matches!(&test.told(B)[..], [Told::Acked(_, ack, _)] if ack.start.seq_num.get() == 0));
}

#[test]
fn a_close_waits_for_what_is_in_flight() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    test.ask(A, &Close { session });
    assert_eq!(test.told(A), vec![]);
    test.commit();
    let told = test.told(A);
    assert!(matches!(told[..], [Told::Acked(..), Told::Done(_)]), "{told:?}");
    assert_eq!(test.shard.sessions.len(), 0);
    assert!(test.shard.live(0).is_none(), "an idle stream keeps nothing but its row");
}
