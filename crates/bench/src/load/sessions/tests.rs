use wire::config::Class;
use wire::hot::{Ack, AckGroup};
use wire::ids::{BatchNo, Position, SeqNum};

use crate::shape::{Picker, Spread};

use super::{OpenedSession, Sent, Sessions, Violation};

const RECORDS: u32 = 2;

fn sessions(handles: &[u32], window: usize, session_window: usize, is_alone: bool) -> Sessions {
    let mut sessions = Sessions::new(window, RECORDS, Picker::new(Spread::Uniform, 1), false);
    for handle in handles {
        sessions.add(OpenedSession {
            handle: *handle,
            window: session_window,
            tail: Position::new(SeqNum::new(10), 1_000),
            is_alone,
        });
    }
    sessions
}

fn answer(sessions: &mut Sessions, handle: u32, no: u64, start: u64) -> Option<Violation> {
    answer_with(sessions, handle, no, start, |_, _| ())
}

fn answer_with(
    sessions: &mut Sessions,
    handle: u32,
    no: u64,
    start: u64,
    change: impl FnOnce(&mut AckGroup, &mut Ack),
) -> Option<Violation> {
    let mut ack =
        Ack { no: BatchNo::new(no), start: Position::new(SeqNum::new(start), 1_000), records: RECORDS, last_ms: 1_000 };
    let mut group = AckGroup { session: handle, class: Class::Express, count: 1, tail: ack.end() };
    change(&mut group, &mut ack);
    sessions.on_ack(&group, &ack).1
}

fn launched(sessions: &mut Sessions) -> Vec<(u32, u64)> {
    let launches = std::iter::from_fn(|| sessions.launch(Sent::at(0)));
    launches.map(|launched| (launched.session, launched.no.get())).collect()
}

#[test]
fn sessions_take_turns_within_the_window_of_the_connection() {
    let mut sessions = sessions(&[7, 8, 9], 4, 16, true);
    assert_eq!(launched(&mut sessions), [(7, 1), (8, 1), (9, 1), (7, 2)]);
    assert_eq!(answer(&mut sessions, 8, 1, 10), None);
    assert_eq!(launched(&mut sessions), [(8, 2)]);
    assert_eq!(sessions.window_reached(), 4);
}

#[test]
fn no_session_goes_past_its_own_window() {
    let mut sessions = sessions(&[7, 8], 100, 2, true);
    assert_eq!(launched(&mut sessions), [(7, 1), (8, 1), (7, 2), (8, 2)]);
    assert_eq!((sessions.window_reached(), sessions.in_flight()), (4, 4));
}

#[test]
fn contiguous_acks_break_nothing_and_each_other_answer_does() {
    let mut run = sessions(&[7], 16, 16, true);
    assert_eq!(launched(&mut run).len(), 16);
    assert_eq!(answer(&mut run, 7, 1, 10), None);
    let gap = |no, expected, found| Some(Violation::Gap { handle: 7, no, expected, found });
    assert_eq!(answer(&mut run, 7, 2, 13), gap(2, 12, 13));
    assert_eq!(answer(&mut run, 7, 3, 15), None, "a fault is counted once");
    assert_eq!(answer(&mut run, 7, 4, 15), gap(4, 17, 15));
    let (handle, no) = (7, 6);
    assert_eq!(answer(&mut run, 7, no, 17), Some(Violation::OutOfOrder { handle, no }));
    assert_eq!(answer(&mut run, 7, no, 19), Some(Violation::NotInFlight { handle, no }));
    assert_eq!(answer(&mut run, 8, 1, 0), Some(Violation::UnknownSession { handle: 8 }));
}

#[test]
fn wrong_counts_falling_stamps_and_a_tail_below_the_end_are_seen() {
    let mut run = sessions(&[7], 16, 16, true);
    launched(&mut run);
    let records = answer_with(&mut run, 7, 1, 10, |_, ack| ack.records = 1);
    assert!(matches!(records, Some(Violation::Records { sent: 2, found: 1, .. })));
    let fell = answer_with(&mut run, 7, 2, 11, |_, ack| ack.start.timestamp_ms = 999);
    assert!(matches!(fell, Some(Violation::StampFell { previous: 1_000, found: 999, .. })));
    let fell = answer_with(&mut run, 7, 3, 13, |_, ack| ack.last_ms = 999);
    assert!(matches!(fell, Some(Violation::StampFell { previous: 1_000, found: 999, .. })));
    let past = answer_with(&mut run, 7, 4, 15, |group, _| group.tail.seq_num = SeqNum::new(16));
    assert!(matches!(past, Some(Violation::PastTail { end: 17, tail: 16, .. })));
}

#[test]
fn where_others_append_too_sequence_numbers_only_have_to_rise() {
    let mut run = sessions(&[7], 16, 16, false);
    launched(&mut run);
    assert_eq!(answer(&mut run, 7, 1, 40), None);
    assert!(matches!(answer(&mut run, 7, 2, 41), Some(Violation::Gap { expected: 42, found: 41, .. })));
}

#[test]
fn a_refused_batch_leaves_the_sequence_numbers_where_they_were() {
    let mut run = sessions(&[7], 16, 16, true);
    launched(&mut run);
    assert_eq!(run.on_refused(7, BatchNo::new(1)), Ok(Sent::at(0)));
    assert_eq!(answer(&mut run, 7, 2, 10), None);
    assert_eq!(run.on_refused(7, BatchNo::new(1)), Err(Violation::NotInFlight { handle: 7, no: 1 }));
    assert_eq!(launched(&mut run).len(), 2);
}

#[test]
fn a_conditional_session_says_where_its_batches_go_and_waits_once_one_is_refused() {
    let mut sessions = Sessions::new(16, RECORDS, Picker::new(Spread::Uniform, 1), true);
    let tail = Position::new(SeqNum::new(10), 1_000);
    sessions.add(OpenedSession { handle: 7, window: 3, tail, is_alone: true });
    let mut places = || {
        let launches = std::iter::from_fn(|| sessions.launch(Sent::at(0)));
        launches.map(|launched| launched.match_seq_num.unwrap().get()).collect::<Vec<_>>()
    };
    assert_eq!(places(), [10, 12, 14]);
    assert_eq!(answer(&mut sessions, 7, 1, 10), None);
    assert!(sessions.on_refused(7, BatchNo::new(2)).is_ok());
    assert_eq!(sessions.launch(Sent::at(0)), None, "the third is in flight");
    assert!(sessions.on_refused(7, BatchNo::new(3)).is_ok());
    let next = sessions.launch(Sent::at(0)).unwrap();
    assert_eq!((next.no.get(), next.match_seq_num), (4, Some(SeqNum::new(12))));
}
