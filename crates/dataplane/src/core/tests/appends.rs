//! Appends: what is acked, when, and what is refused.

use express_log::NoRoom;
use wire::config::{ConfigPatch, TimestampingMode};
use wire::entry::Effect;
use wire::ids::SeqNum;
use wire::message::{AppendOnce, CheckTail, GetToken, Start};
use wire::reason::Reason;
use wire::terms::Terms;

use super::world::*;
use crate::core::Flow;

pub(super) fn reasons(told: &[Told]) -> Vec<Reason> {
    told.iter()
        .map(|told| match told {
            Told::AppendRefused(_, _, refusal) | Told::Refused(_, refusal) => refusal.reason,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn nothing_is_acked_or_seen_before_it_is_durable() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["one", "two"]);
    let _ = test.append(A, session, 2, &["three"]);
    assert_eq!(test.told(A), vec![]);
    test.ask(B, &CheckTail { address: address("s") });
    assert_eq!(test.told(B), vec![Told::Tail(position(0, 0))]);
    assert_eq!(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().bodies, Vec::<String>::new());
    test.commit_to(2);
    let told = test.told(A);
    let [Told::Acked(of, ack, tail)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (*of, ack.no.get(), ack.start, ack.end(), *tail),
        (session, 1, position(0, 1000), position(2, 1000), position(2, 1000))
    );
    test.commit();
    assert_eq!(test.told(A).len(), 1);
    test.ask(B, &CheckTail { address: address("s") });
    assert_eq!(test.told(B), vec![Told::Tail(position(3, 1000))]);
}

#[test]
fn racing_first_appends_make_one_stream() {
    let mut test = Test::new();
    for body in ["a", "b"] {
        let (bytes, crc) = batch(&[body]);
        let _ = test.ask_with(A, &Test::once("new", crc), &bytes);
    }
    test.commit();
    let told = test.told(A);
    let starts: Vec<u64> = told
        .iter()
        .map(|told| match told {
            Told::Appended(appended) => appended.start.seq_num.get(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(starts, vec![0, 1]);
    assert_eq!(test.shard.streams.len(), 1);
}

#[test]
fn a_match_is_judged_at_the_cursor_and_its_miss_waits_for_what_it_was_judged_on() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append_if(A, (session, 1), Some(0), &batch(&["a"]));
    let _ = test.append_if(A, (session, 2), Some(0), &batch(&["b"]));
    let _ = test.append_if(A, (session, 3), Some(1), &batch(&["c"]));
    assert_eq!(test.told(A), vec![], "the miss stands on a batch that is not durable");
    test.commit();
    let told = test.told(A);
    assert!(matches!(&told[0], Told::Acked(_, ack, _) if ack.no.get() == 1));
    let Told::AppendRefused(_, 2, refusal) = &told[1] else { panic!("{told:?}") };
    assert_eq!((refusal.reason, refusal.tail().unwrap().seq_num), (Reason::SequenceMismatch, SeqNum::new(1)));
    assert!(matches!(&told[2], Told::Acked(_, ack, _) if ack.no.get() == 3), "the session lives on");
}

#[test]
fn a_resend_is_stored_once_and_answered_as_first_also_after_a_crash() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a", "b"]);
    let _ = test.append(A, session, 1, &["a", "b"]);
    test.commit();
    let told = test.told(A);
    assert!(matches!(&told[..], [Told::Acked(_, first, _), Told::Acked(_, again, _)] if first == again), "{told:?}");
    let mut test = test.crashed();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a", "b"]);
    let _ = test.append(A, session, 1, &["a", "X"]);
    test.commit();
    let again = test.told(A);
    assert!(matches!((&told[0], &again[0]), (Told::Acked(_, first, _), Told::Acked(_, again, _)) if first == again));
    assert_eq!(reasons(&again[1..]), vec![Reason::Invalid]);
    let page = test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap();
    assert_eq!(page.bodies, vec!["a", "b"]);
}

#[test]
fn a_resent_match_gets_its_first_answer_rather_than_a_miss() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    for _ in 0..2 {
        let _ = test.append_if(A, (session, 1), Some(0), &batch(&["a"]));
    }
    test.commit();
    assert!(matches!(&test.told(A)[..], [Told::Acked(..), Told::Acked(..)]));
}

#[test]
fn a_match_whose_number_is_forgotten_is_judged_again() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    for no in 1..=20 {
        let _ = test.append_if(A, (session, no), Some(no - 1), &batch(&["x"]));
        test.commit();
    }
    test.told(A);
    let _ = test.append_if(A, (session, 1), Some(0), &batch(&["x"]));
    let _ = test.append(A, session, 2, &["x"]);
    test.commit();
    assert_eq!(reasons(&test.told(A)), vec![Reason::SequenceMismatch, Reason::Internal]);
}

#[test]
fn a_batch_that_was_refused_never_comes_behind_later_ones_unless_its_match_says_so() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    let _ = test.append_if(A, (session, 2), Some(0), &batch(&["b"]));
    let _ = test.append(A, session, 3, &["c"]);
    test.commit();
    test.told(A);
    let _ = test.append(A, session, 2, &["b"]);
    test.commit();
    assert_eq!(reasons(&test.told(A)), vec![Reason::FailedPrecondition]);
    let _ = test.append_if(A, (session, 2), Some(2), &batch(&["b"]));
    test.commit();
    assert!(matches!(&test.told(A)[..], [Told::Acked(..)]));
    let page = test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap();
    assert_eq!(page.bodies, vec!["a", "c", "b"]);
}

#[test]
fn answers_that_wait_for_the_log_are_bounded() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    let (bytes, crc) = batch(&["x"]);
    let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
    let asks = |test: &mut Test| test.ask_with(B, &GetToken { address: address("s") }, &[]).0;
    while asks(&mut test) == Flow::Done {}
    assert_eq!(test.shard.pending.len(), 128 << 10);
    assert_eq!(test.ask_with(A, &Test::once("s", crc), &bytes).0, Flow::Blocked);
    test.commit();
    assert_eq!(test.told(B).len(), (128 << 10) - 1);
    assert_eq!(asks(&mut test), Flow::Done);
}

#[test]
fn a_one_shot_key_is_stored_once() {
    let mut test = Test::new();
    for idempotency in [(3, 4), (0, 4), (3, 0)] {
        let (bytes, crc) = batch(&["a"]);
        let once = AppendOnce { idempotency, ..Test::once("s", crc) };
        for _ in 0..2 {
            let _ = test.ask_with(A, &once, &bytes);
        }
        test.commit();
        let told = test.told(A);
        let [Told::Appended(first), Told::Appended(again)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(first.start, again.start, "{idempotency:?}");
    }
}

#[test]
fn a_batch_over_the_window_is_refused_and_the_session_lives() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    for no in 1..=17 {
        let _ = test.append(A, session, no, &["x"]);
    }
    test.commit();
    let told = test.told(A);
    assert_eq!(told.iter().filter(|told| matches!(told, Told::Acked(..))).count(), 16);
    assert_eq!(reasons(&told[16..]), vec![Reason::ResourceExhausted]);
    let _ = test.append(A, session, 18, &["x"]);
    test.commit();
    assert!(matches!(&test.told(A)[..], [Told::Acked(..)]));
}

#[test]
fn stamps_follow_the_mode_and_never_fall() {
    let stamps = |mode, records: &[(Option<i64>, &str)]| {
        let mut test = Test::with(ConfigPatch { timestamping_mode: Some(mode), ..ConfigPatch::default() });
        let (bytes, crc) = stamped(records);
        let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
        test.commit();
        match test.told(A).pop() {
            Some(Told::Refused(_, refusal)) => Err(refusal.reason),
            _ => Ok(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().stamps),
        }
    };
    use TimestampingMode::{Arrival, ClientPrefer, ClientRequire};
    let mixed = [(Some(500), "a"), (None, "b"), (Some(2000), "c"), (Some(1), "d")];
    assert_eq!(stamps(ClientPrefer, &mixed), Ok(vec![500, 1000, 1000, 1000]));
    assert_eq!(stamps(ClientRequire, &mixed), Err(Reason::Invalid));
    assert_eq!(stamps(ClientRequire, &[(Some(5), "a"), (Some(3), "b")]), Ok(vec![5, 5]));
    assert_eq!(stamps(Arrival, &[(None, "a")]), Ok(vec![1000]));
    assert_eq!(stamps(Arrival, &mixed), Err(Reason::Invalid));
}

#[test]
fn uncapped_stamps_are_the_applications_own() {
    let mut test = Test::with(ConfigPatch { timestamping_uncapped: Some(true), ..ConfigPatch::default() });
    let (bytes, crc) = stamped(&[(Some(5), "a"), (Some(1 << 40), "b")]);
    let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
    test.commit();
    assert_eq!(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().stamps, vec![5, 1 << 40]);
}

#[test]
fn the_first_record_of_a_stream_has_no_predecessor_to_be_raised_to() {
    let mut test = Test::new();
    let (bytes, crc) = stamped(&[(Some(-7), "a"), (Some(-9), "b")]);
    let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
    test.commit();
    assert_eq!(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().stamps, vec![-7, -7]);
    let mut test = test.crashed();
    let (bytes, crc) = stamped(&[(Some(-8), "c")]);
    let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
    test.commit();
    assert_eq!(test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap().stamps, vec![-7, -7, -7]);
}

#[test]
fn what_a_stream_owes_is_remembered_once_however_often_it_is_used() {
    let rate = ConfigPatch { throughput_max_bytes_per_second: Some(10), ..ConfigPatch::default() };
    let mut test = Test::with(rate);
    test.put("s", &["0123456789ABCDEFGHIJ0123456789ABCDEFGHIJ"]).unwrap();
    for _ in 0..5 {
        test.open(A, "s", 7, "").unwrap();
        test.shard.on_closed(A, &mut test.world);
    }
    assert_eq!(test.shard.cooling.len(), 1);
    for _ in 0..6 {
        test.wait(1_000);
    }
    assert!(test.shard.live(0).is_none() && test.shard.cooling.is_empty(), "it owes nothing any more");
}

#[test]
fn a_busy_log_blocks_and_a_full_one_refuses() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    test.world.room = Some(NoRoom::Busy);
    assert_eq!(test.append(A, session, 1, &["x"]), Flow::Blocked);
    assert_eq!(test.told(A), vec![]);
    test.world.room = Some(NoRoom::Full { used_bytes: 9, log_bytes_max: 10 });
    assert_eq!(test.append(A, session, 1, &["x"]), Flow::Done);
    let told = test.told(A);
    assert_eq!(reasons(&told), vec![Reason::ResourceExhausted]);
    test.world.room = None;
    assert_eq!(test.append(A, session, 1, &["x"]), Flow::Done);
    test.commit();
    assert!(matches!(&test.told(A)[..], [Told::Acked(_, ack, _)] if ack.start.seq_num == SeqNum::ZERO));
}

#[test]
fn a_session_over_its_throughput_is_slowed_and_a_one_shot_refused_after_a_second() {
    let rate = ConfigPatch { throughput_max_bytes_per_second: Some(10), ..ConfigPatch::default() };
    let mut test = Test::with(rate);
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["0123456789ABCDEFGHIJ"]);
    let _ = test.append(A, session, 2, &["x"]);
    test.commit();
    assert_eq!(test.told(A).len(), 1, "the first took the stream into debt");
    test.wait(500);
    test.commit();
    assert_eq!(test.told(A), vec![]);
    test.wait(1000);
    test.commit();
    assert!(matches!(&test.told(A)[..], [Told::Acked(_, ack, _)] if ack.no.get() == 2));
    let _ = test.append(A, session, 3, &["0123456789ABCDEFGHIJ0123456789ABCDEFGHIJ"]);
    test.commit();
    test.told(A);
    let (bytes, crc) = batch(&["y"]);
    let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
    for _ in 0..20 {
        test.wait(100);
        test.commit();
    }
    let told = test.told(A);
    let [Told::Refused(_, refusal)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(refusal.reason, Reason::ResourceExhausted);
    assert!(refusal.details.as_ref().unwrap().retry_after_ms.unwrap() > 0);
}

#[test]
fn a_stream_gathers_no_more_than_its_batch_bound_before_it_is_durable() {
    let mut test = Test::with(ConfigPatch { batch_max_records: Some(2), ..ConfigPatch::default() });
    let session = test.open(A, "s", 7, "").unwrap().session;
    let before = test.world.entries.len();
    for no in 1..=5 {
        let _ = test.append(A, session, no, &["x"]);
    }
    assert_eq!(test.world.entries.len() - before, 2);
    let mut acked = 0;
    for _ in 0..3 {
        test.commit();
        acked += test.told(A).len();
    }
    assert_eq!(acked, 5);
}

#[test]
fn misses_that_were_held_back_are_refused_in_their_order() {
    let mut test = Test::with(ConfigPatch { batch_max_records: Some(1), ..ConfigPatch::default() });
    let session = test.open(A, "s", 7, "").unwrap().session;
    let _ = test.append(A, session, 1, &["a"]);
    for no in [2, 3] {
        let _ = test.append_if(A, (session, no), Some(2), &batch(&["never"]));
    }
    let _ = test.append(A, session, 4, &["b"]);
    test.commit();
    let told = test.told(A);
    assert!(
        matches!(told[..], [Told::Acked(..), Told::AppendRefused(_, 2, _), Told::AppendRefused(_, 3, _)]),
        "what was sent after a miss doesn't turn it into a hit: {told:?}"
    );
    test.commit();
    let told = test.told(A);
    assert!(matches!(&told[..], [Told::Acked(_, ack, _)] if ack.no.get() == 4 && ack.start.seq_num.get() == 1));
    assert_eq!(test.shard.held_bytes, 0);
}

#[test]
fn an_effect_applies_with_its_batch() {
    let mut test = Test::new();
    test.put("s", &["a", "b"]).unwrap();
    for effect in
        [Effect::Both(token("x"), SeqNum::new(1)), Effect::InstallToken(token("t")), Effect::Trim(SeqNum::new(2))]
    {
        let (bytes, crc) = batch(&["c"]);
        let terms = Terms { effect: Some(effect), ..Terms::default() };
        let once = AppendOnce { terms, ..Test::once("s", crc) };
        let _ = test.ask_with(A, &once, &bytes);
    }
    test.commit();
    test.told(A);
    let mut test = test.crashed();
    assert_eq!(test.call(A, &GetToken { address: address("s") }), vec![Told::Token("t".into())]);
    let refusal = test.page(&Test::reading("s", Start::SeqNum(SeqNum::ZERO))).unwrap_err();
    assert_eq!(refusal.reason, Reason::Trimmed);
}

pub(super) fn chained() -> Terms {
    Terms { chained: true, ..Terms::default() }
}

#[test]
fn a_chained_batch_is_refused_after_another_one_of_its_session_was_also_when_both_were_held_back() {
    for held in [false, true] {
        let bound = if held { 1 } else { 0 };
        let mut test = Test::with(ConfigPatch { batch_max_records: Some(bound), ..ConfigPatch::default() });
        let session = test.open(A, "s", 7, "").unwrap().session;
        let other = test.open(A, "s", 8, "").unwrap().session;
        let _ = test.append(A, session, 1, &["a"]);
        let _ = test.append_on(A, (session, 2), &chained(), Some(9));
        let _ = test.append_on(A, (session, 3), &chained(), None);
        let _ = test.append(A, session, 4, &["unchained"]);
        let _ = test.append_on(A, (other, 1), &chained(), None);
        let mut told = Vec::new();
        for _ in 0..3 {
            test.commit();
            told.extend(test.told(A));
        }
        let refused = told.iter().filter_map(|told| match told {
            Told::AppendRefused(_, no, refusal) => Some((*no, refusal.reason)),
            _ => None,
        });
        let expected = vec![(2, Reason::SequenceMismatch), (3, Reason::SequenceMismatch)];
        assert_eq!(refused.collect::<Vec<_>>(), expected, "held back: {held}");
        assert_eq!(told.iter().filter(|told| matches!(told, Told::Acked(..))).count(), 3, "{told:?}");
    }
}

#[test]
fn a_batch_may_ask_for_the_installed_token_also_for_none() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let asks = |text| Terms { installed: Some(token(text)), ..Terms::default() };
    let installs = Terms { effect: Some(Effect::InstallToken(token("t"))), ..asks("") };
    let _ = test.append_on(A, (session, 1), &installs, None);
    for (no, text) in [(2, ""), (3, "t"), (4, "u")] {
        let _ = test.append_on(A, (session, no), &asks(text), None);
    }
    test.commit();
    let told = test.told(A);
    let [Told::Acked(..), Told::AppendRefused(_, 2, none), Told::Acked(..), Told::AppendRefused(_, 4, other)] =
        &told[..]
    else {
        panic!("{told:?}")
    };
    for refusal in [none, other] {
        assert_eq!(refusal.reason, Reason::FencedOut);
        assert_eq!(refusal.details.as_ref().unwrap().fencing_token, Some(token("t")));
    }
}

#[test]
fn stamps_that_an_arrival_stream_ignores_are_not_refused() {
    let mut test =
        Test::with(ConfigPatch { timestamping_mode: Some(TimestampingMode::Arrival), ..ConfigPatch::default() });
    let (bytes, crc) = stamped(&[(Some(1), "a"), (Some(2), "b")]);
    for ignores_stamps in [false, true] {
        let terms = Terms { ignores_stamps, ..Terms::default() };
        test.offer(A, &AppendOnce { terms, ..Test::once("s", crc) }, &bytes);
        test.commit_all();
        match test.told(A).pop() {
            Some(Told::Refused(_, refusal)) => assert_eq!((ignores_stamps, refusal.reason), (false, Reason::Invalid)),
            Some(Told::Appended(appended)) => {
                assert!(ignores_stamps && appended.start.timestamp_ms > 2, "{appended:?}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_batch_with_a_flipped_bit_or_for_no_session_is_refused_alone() {
    let mut test = Test::new();
    let session = test.open(A, "s", 7, "").unwrap().session;
    let (mut bytes, crc) = batch(&["a"]);
    bytes[0] ^= 1;
    let _ = test.append_if(A, (session, 1), None, &(bytes, crc));
    let _ = test.append(A, session + 1, 1, &["x"]);
    let _ = test.append(B, session, 1, &["x"]);
    assert_eq!(reasons(&test.told(A)), vec![Reason::Invalid, Reason::NotFound]);
    assert_eq!(reasons(&test.told(B)), vec![Reason::NotFound], "another connection's session");
}
