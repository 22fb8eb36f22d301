use proptest::prelude::*;
use tokio::sync::oneshot;
use wire::batch::VerifiedBatch;
use wire::config::Class;
use wire::entry::Stamping;
use wire::frame::Next;
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::names::FencingToken;
use wire::reason::Reason;
use wire::terms::Terms;

use super::super::ProducerOptions;
use super::super::stage::{Call, Due, Shared};
use super::*;
use crate::record::AppendRecord;

type Answered = oneshot::Receiver<crate::Result<Appended>>;

const SESSION: u32 = 3;

/// Stages calls and cuts them into a window that holds them all.
fn window(calls: Vec<Call>) -> (Window, Vec<Answered>, Vec<Bytes>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let shared = Shared::new(&ProducerOptions::default());
    let answers = calls.into_iter().map(|call| runtime.block_on(shared.put(call)).unwrap()).collect();
    let mut window = Window::new();
    window.on_opened(100);
    while let Due::Batch(staged) = shared.take() {
        window.push(SESSION, staged);
    }
    let frames = sent(&mut window);
    (window, answers, frames)
}

fn sent(window: &mut Window) -> Vec<Bytes> {
    let mut frames = Vec::new();
    while window.send_next(SESSION, |frame| {
        frames.push(frame);
        frames.len() as u64 - 1
    }) {}
    frames
}

fn call(bodies: &[&str]) -> Call {
    Call::new(None, bodies.iter().map(|body| AppendRecord::from(*body)).collect()).unwrap()
}

fn conditional(seq_num: u64, body: &str) -> Call {
    Call::new(Some(SeqNum::new(seq_num)), vec![body.into()]).unwrap()
}

fn head(frame: &Bytes) -> AppendHead {
    let Ok(Next::Frame(frame)) = frame::next(frame, FRAME_BODY_BYTES_MAX) else { panic!("a whole frame") };
    assert_eq!(frame.kind, Kind::Append);
    let head = AppendHead::decode(frame.head).unwrap();
    VerifiedBatch::verify(frame.payload, head.batch_crc).unwrap();
    head
}

fn group() -> AckGroup {
    AckGroup { session: SESSION, class: Class::Express, count: 1, tail: position(99) }
}

fn position(seq_num: u64) -> Position {
    Position::new(SeqNum::new(seq_num), 5)
}

fn ack(no: u64, first: u64, records: u32) -> Ack {
    Ack { no: BatchNo::new(no), start: position(first), records, last_ms: 5 }
}

fn answer(answered: &mut Answered) -> Option<crate::Result<Appended>> {
    answered.try_recv().ok()
}

#[test]
fn terms_are_sent_and_sent_again_and_only_equal_ones_share_a_batch() {
    let chained = Terms { chained: true, ..Terms::default() };
    let asking = Terms { installed: Some(FencingToken::new("t").unwrap()), ..chained.clone() };
    let calls = [&chained, &chained, &asking, &asking].map(|terms| call(&["x"]).on(terms.clone()));
    let (mut window, mut answers, frames) = window(calls.into_iter().chain([call(&["y"])]).collect());
    let of = |frame: &Bytes| {
        let Ok(Next::Frame(frame)) = frame::next(frame, FRAME_BODY_BYTES_MAX) else { panic!("a whole frame") };
        let (head, terms) = AppendHead::decode_on_terms(frame.head).unwrap();
        (VerifiedBatch::verify(frame.payload, head.batch_crc).unwrap().records(), terms)
    };
    let expected = vec![(2, chained), (1, asking.clone()), (1, asking), (1, Terms::default())];
    assert_eq!(frames.iter().map(of).collect::<Vec<_>>(), expected);
    window.on_broken(4);
    window.on_opened(100);
    assert_eq!(sent(&mut window).iter().map(of).collect::<Vec<_>>(), expected);
    let ended = window.on_refused(BatchNo::new(1), Refusal::invalid("x")).unwrap();
    assert!(ended.is_some(), "a chained one ends the session");
    assert!(answer(&mut answers[1]).unwrap().is_err() && answer(&mut answers[2]).is_none());
    assert!(window.on_refused(BatchNo::new(4), Refusal::invalid("x")).unwrap().is_none());
}

#[test]
fn each_caller_of_a_batch_gets_the_range_of_its_own_records() {
    let (mut window, mut answers, frames) = window(vec![call(&["a"]), call(&["b", "c"]), call(&["d"])]);
    assert_eq!(frames.len(), 1);
    window.on_ack(&group(), &ack(1, 40, 4)).unwrap();
    let ranges: Vec<_> = answers
        .iter_mut()
        .map(|it| answer(it).unwrap().unwrap())
        .map(|it| (it.start.seq_num.get(), it.end.seq_num.get(), it.tail, it.class))
        .collect();
    let (tail, class) = (position(99), Class::Express);
    assert_eq!(ranges, [(40, 41, tail, class), (41, 43, tail, class), (43, 44, tail, class)]);
    assert!(window.is_empty());
}

#[test]
fn conditional_calls_never_share_a_batch() {
    let calls = vec![call(&["a"]), conditional(1, "b"), conditional(2, "c"), call(&["d"]), call(&["e"])];
    let (_, _, frames) = window(calls);
    let heads: Vec<_> = frames.iter().map(head).collect();
    let numbers: Vec<_> = heads.iter().map(|head| (head.no.get(), head.match_seq_num.map(SeqNum::get))).collect();
    assert_eq!(numbers, [(1, None), (2, Some(1)), (3, Some(2)), (4, None)]);
}

#[test]
fn batches_are_cut_at_their_bounds() {
    let many = || Call::new(None, vec![AppendRecord::from("x"); 600]).unwrap();
    assert_eq!(window(vec![many(), many()]).2.len(), 2);
    let large = Call::new(None, vec![vec![0; (1 << 20) - 32].into()]).unwrap();
    assert_eq!(window(vec![call(&["a"]), large]).2.len(), 1);
}

#[test]
fn a_refusal_concerns_its_batch_alone_and_may_come_out_of_order() {
    let (mut window, mut answers, _) = window(vec![conditional(0, "a"), conditional(9, "b"), conditional(1, "c")]);
    window.on_refused(BatchNo::new(2), Refusal::invalid("no")).unwrap();
    let error = answer(&mut answers[1]).unwrap().unwrap_err();
    assert_eq!((error.message(), error.resent(), error.no_side_effect()), ("no", false, true));
    window.on_ack(&group(), &ack(1, 0, 1)).unwrap();
    window.on_ack(&group(), &ack(3, 1, 1)).unwrap();
    assert!(answer(&mut answers[0]).unwrap().is_ok() && answer(&mut answers[2]).unwrap().is_ok());
    assert!(window.is_empty());
}

#[test]
fn answers_that_answer_nothing_are_faults() {
    let (mut window, mut answers, _) = window(vec![conditional(0, "a"), conditional(1, "b")]);
    let unknown = |no| Fault::Unknown { no: BatchNo::new(no), start: 1, end: 3 };
    for no in [0, 3, u64::MAX] {
        assert_eq!(window.on_ack(&group(), &ack(no, 0, 1)), Err(unknown(no)));
        assert_eq!(window.on_refused(BatchNo::new(no), Refusal::invalid("x")).err(), Some(unknown(no)));
    }
    let records = Fault::Records { no: BatchNo::new(1), expected: 1, found: 2 };
    assert_eq!(window.on_ack(&group(), &ack(1, 0, 2)), Err(records));
    window.on_ack(&group(), &ack(2, 0, 1)).unwrap();
    assert_eq!(window.on_ack(&group(), &ack(2, 0, 1)), Err(unknown(2)));
    assert!(answer(&mut answers[0]).is_none());
}

#[test]
fn what_may_have_landed_is_sent_again_under_its_number_and_says_so() {
    let (mut window, _answers, _) = window(vec![conditional(0, "a"), conditional(1, "b"), conditional(2, "c")]);
    window.on_ack(&group(), &ack(1, 0, 1)).unwrap();
    // The socket had taken the first two of three frames.
    window.on_broken(2);
    window.on_opened(100);
    let heads: Vec<_> = sent(&mut window).iter().map(head).collect();
    let again: Vec<_> = heads.iter().map(|head| (head.no.get(), head.resent, head.match_seq_num)).collect();
    assert_eq!(again, [(2, true, Some(SeqNum::new(1))), (3, false, Some(SeqNum::new(2)))]);
    window.on_handed_off();
    window.on_opened(100);
    let resent: Vec<_> = sent(&mut window).iter().map(|frame| head(frame).resent).collect();
    assert_eq!(resent, [true, false]);
}

#[test]
fn a_smaller_window_after_a_reconnect_is_kept() {
    let (mut window, _answers, _) = window(vec![conditional(0, "a"), conditional(1, "b"), conditional(2, "c")]);
    window.on_broken(3);
    window.on_opened(2);
    assert_eq!(sent(&mut window).len(), 2);
    assert!(!window.has_room());
    window.on_ack(&group(), &ack(1, 0, 1)).unwrap();
    let heads: Vec<_> = sent(&mut window).iter().map(head).collect();
    assert_eq!((heads.len(), heads[0].no.get()), (1, 3));
}

#[test]
fn a_failure_tells_each_batch_whether_it_may_have_landed() {
    let (mut window, mut answers, _) = window(vec![conditional(0, "a"), conditional(1, "b")]);
    window.on_broken(1);
    window.fail(&Error::harmless(Reason::Unavailable, "spent"));
    let errors: Vec<_> = answers.iter_mut().map(|it| answer(it).unwrap().unwrap_err()).collect();
    assert_eq!((errors[0].resent(), errors[0].no_side_effect()), (true, false));
    assert_eq!((errors[1].resent(), errors[1].no_side_effect()), (false, true));
}

/// Of four batches three are sent, of which the third is not chained; the first is refused.
#[test]
fn a_refusal_that_ends_the_session_tells_those_behind_it_whether_they_may_have_landed() {
    let chained = Terms { chained: true, ..Terms::default() };
    for (reason, may_have_landed) in
        [(Reason::SequenceMismatch, [false, true, false]), (Reason::Unavailable, [true, true, false])]
    {
        let terms = [&chained, &chained, &Terms::default(), &chained];
        let calls = terms.into_iter().zip(0..).map(|(terms, at)| conditional(at, "x").on(terms.clone()));
        let (mut window, mut answers, _) = window(calls.collect());
        window.on_broken(0);
        window.on_opened(3);
        assert_eq!(sent(&mut window).len(), 3);
        let ends = window.on_refused(BatchNo::new(1), Refusal::new(reason, "no")).unwrap().unwrap();
        window.fail(&ends);
        let errors = answers[1..].iter_mut().map(|it| answer(it).unwrap().unwrap_err());
        assert_eq!(errors.map(|error| !error.no_side_effect()).collect::<Vec<_>>(), may_have_landed, "{reason}");
    }
}

fn stamps() -> impl Strategy<Value = Vec<Option<i64>>> {
    let stamped = prop::collection::vec((-60..60_i64).prop_map(Some), 1..4);
    let unstamped = prop::collection::vec(Just(None), 1..4);
    let mixed = prop::collection::vec(prop::option::of(-60..60_i64), 1..4);
    prop_oneof![3 => stamped, 2 => unstamped, 1 => mixed]
}

proptest! {
    #[test]
    fn every_caller_learns_the_exact_stamps_of_its_records(
        calls in prop::collection::vec(stamps(), 1..8), arrival_ms in -50..50_i64, previous_ms in -50..50_i64, capped: bool,
    ) {
        let staged = calls.iter().map(|stamps| {
            let records = stamps.iter().map(|stamp| AppendRecord { timestamp_ms: *stamp, ..AppendRecord::from("x") });
            Call::new(None, records.collect()).unwrap()
        });
        let (mut window, mut answers, frames) = window(staged.collect());
        let (mut seq_num, mut previous_ms) = (SeqNum::ZERO, previous_ms);
        let mut effective = Vec::new();
        for frame in &frames {
            let Ok(Next::Frame(whole)) = frame::next(frame, FRAME_BODY_BYTES_MAX) else { panic!("a whole frame") };
            let batch = VerifiedBatch::verify(whole.payload, head(frame).batch_crc).unwrap();
            let stamping = Stamping { arrival_ms, previous_ms, capped, client_stamps: true };
            for record in 0..batch.records() {
                previous_ms = stamping.effective(batch.stamp(record), previous_ms);
                effective.push(previous_ms);
            }
            let first_ms = effective[usize::try_from(seq_num.get()).unwrap()];
            let records = u32::from(batch.records());
            let ack = Ack { no: head(frame).no, start: Position::new(seq_num, first_ms), records, last_ms: previous_ms };
            window.on_ack(&group(), &ack).unwrap();
            seq_num = seq_num.after(u64::from(records));
        }
        let mut start = 0;
        for (stamps, answered) in calls.iter().zip(&mut answers) {
            let end = start + stamps.len();
            let appended = answer(answered).unwrap().unwrap();
            prop_assert_eq!(appended.start, Position::new(SeqNum::new(start as u64), effective[start]));
            prop_assert_eq!(appended.end, Position::new(SeqNum::new(end as u64), effective[end - 1]));
            start = end;
        }
    }
}
