mod play;

use super::ledger::Ledger;
use super::{Answer, Ask, Checked, Fault, History, Kind, Operation, ReadBack, Token, check, search};

const STEPS_MAX: u64 = 1_000_000;

fn token(number: u32) -> Token {
    if number == 0 { Token::NONE } else { Token::new(number) }
}

fn append(records: std::ops::Range<u64>) -> Ask {
    Ask::Append { records, match_seq_num: None, token: Token::NONE }
}

fn append_at(records: std::ops::Range<u64>, seq_num: u64) -> Ask {
    Ask::Append { records, match_seq_num: Some(seq_num), token: Token::NONE }
}

fn append_under(records: std::ops::Range<u64>, number: u32) -> Ask {
    Ask::Append { records, match_seq_num: None, token: token(number) }
}

fn page(records: &[u64], trim_point: u64, tail: u64) -> Answer {
    Answer::Page { records: records.to_vec(), tail, trim_point }
}

fn at(call: u64, returned: u64, ask: Ask, answer: Answer) -> Operation {
    Operation { client: 1, call, ask, answer: Some((returned, answer)) }
}

fn lost(call: u64, ask: Ask) -> Operation {
    Operation { client: 9, call, ask, answer: None }
}

/// One after the other, and what is left.
fn in_turn(steps: Vec<(Ask, Answer)>, trim_point: u64, left: &[u64]) -> History {
    let times = (0..).step_by(10);
    let operations =
        steps.into_iter().zip(times).map(|((ask, answer), call)| at(call, call + 5, ask, answer)).collect();
    of(operations, trim_point, left)
}

fn of(operations: Vec<Operation>, trim_point: u64, left: &[u64]) -> History {
    let read_back = ReadBack { trim_point, records: left.to_vec() };
    History { is_fenced: false, operations, read_back }
}

fn right(history: &History) -> Checked {
    check(history, STEPS_MAX).unwrap_or_else(|fault| panic!("{fault}"))
}

#[track_caller]
fn wrong(history: &History, kind: Kind) -> Fault {
    let fault = check(history, STEPS_MAX).expect_err("it is wrong");
    assert_eq!(fault.kind, kind, "{fault}");
    fault
}

/// Wrong for the quick check, and for the search too that does without it.
#[track_caller]
fn wrong_twice(history: &History, kind: Kind) -> Fault {
    let fault = wrong(history, kind);
    let ledger = Ledger::of(history).unwrap_or_else(|fault| panic!("{fault}"));
    let unordered = search::find(history, &ledger, STEPS_MAX).expect_err("it has no order");
    assert_eq!(unordered.kind, Kind::Unordered, "{unordered}");
    fault
}

#[test]
fn what_a_stream_answers_has_an_order() {
    let steps = vec![
        (Ask::Tail, Answer::Tail(0)),
        (append(0..2), Answer::Appended(0)),
        (append_at(2..3, 2), Answer::Appended(2)),
        (append_at(3..4, 2), Answer::Mismatch(3)),
        (Ask::Read(1), page(&[1, 2], 0, 3)),
        (Ask::Fence(token(7)), Answer::Fenced(3)),
        (append_under(4..5, 7), Answer::Appended(3)),
        (append_under(5..6, 6), Answer::FencedOut(token(7))),
        (append(6..7), Answer::Appended(4)),
        (Ask::Trim(2), Answer::Trimmed(2)),
        (Ask::Trim(1), Answer::Trimmed(2)),
        (Ask::Read(1), Answer::BelowTrimPoint { tail: 5, trim_point: 2 }),
        (Ask::Read(6), Answer::PastTail(5)),
        (Ask::Read(5), page(&[], 2, 5)),
        (Ask::Token, Answer::Token(token(7))),
        (append(7..8), Answer::Refused),
        (Ask::Trim(9), Answer::Trimmed(5)),
        (append(8..9), Answer::Appended(5)),
    ];
    let checked = right(&in_turn(steps, 5, &[8]));
    assert_eq!((checked.operations, checked.unanswered, checked.open), (18, 0, 0));
}

#[test]
fn a_page_may_start_below_a_trim_that_came_in_between() {
    let operations = vec![
        at(0, 5, append(0..4), Answer::Appended(0)),
        at(10, 30, Ask::Read(1), page(&[1, 2], 3, 4)),
        at(11, 20, Ask::Trim(3), Answer::Trimmed(3)),
    ];
    right(&of(operations, 3, &[3]));
}

#[test]
fn what_nobody_answered_is_there_if_it_was_seen_and_else_is_not() {
    let mut operations = vec![
        at(0, 5, append(0..1), Answer::Appended(0)),
        lost(6, append(1..3)),
        lost(7, append(3..4)),
        lost(8, Ask::Fence(token(5))),
        lost(8, Ask::Tail),
        at(10, 15, Ask::Tail, Answer::Tail(1)),
        at(30, 35, append_under(4..5, 5), Answer::Appended(3)),
    ];
    let checked = right(&of(operations.clone(), 0, &[0, 1, 2, 4]));
    assert_eq!((checked.unanswered, checked.found, checked.open), (4, 1, 0));
    let torn = of(operations.clone(), 0, &[0, 1, 3, 4]);
    wrong(&torn, Kind::Torn);
    // Below the trim point it stays open which of the two took the room; that one of them did is certain.
    operations.extend([lost(16, append(10..12)), at(40, 45, Ask::Trim(3), Answer::Trimmed(3))]);
    let checked = right(&of(operations.clone(), 3, &[4]));
    assert_eq!((checked.found, checked.open), (0, 3));
    operations.retain(|operation| operation.ask != append(1..3) && operation.ask != append(10..12));
    wrong(&of(operations, 3, &[4]), Kind::Unordered);
}

#[test]
fn a_stale_read_is_found() {
    let steps = vec![
        (append(0..1), Answer::Appended(0)),
        (append(1..2), Answer::Appended(1)),
        (Ask::Read(0), page(&[0], 0, 1)),
    ];
    let fault = wrong_twice(&in_turn(steps, 0, &[0, 1]), Kind::Stale);
    assert_eq!(fault.window.len(), 2, "{fault}");
}

#[test]
fn a_lost_append_is_found() {
    let steps = vec![(append(0..1), Answer::Appended(0)), (append(1..2), Answer::Appended(1))];
    let fault = wrong(&in_turn(steps.clone(), 0, &[0]), Kind::Lost);
    assert_eq!(fault.window.len(), 1, "{fault}");
    // Its place was given to another.
    let mut taken = steps;
    taken.push((append(2..3), Answer::Appended(1)));
    wrong(&in_turn(taken, 0, &[0, 2]), Kind::Lost);
    // Nobody was told that it is there, and it was read.
    let read = vec![lost(0, append(0..1)), at(1, 5, Ask::Read(0), page(&[0], 0, 1))];
    wrong(&of(read, 0, &[]), Kind::Lost);
}

#[test]
fn a_double_append_is_found() {
    let steps = vec![(append(0..2), Answer::Appended(0))];
    wrong(&in_turn(steps, 0, &[0, 1, 0, 1]), Kind::Doubled);
    let resent = vec![lost(0, append(0..1)), at(10, 15, Ask::Tail, Answer::Tail(2))];
    wrong(&of(resent, 0, &[0, 0]), Kind::Doubled);
    // Acked twice for one place.
    let steps = vec![(append(0..1), Answer::Appended(0)), (append(1..2), Answer::Appended(0))];
    wrong(&in_turn(steps, 1, &[]), Kind::Doubled);
}

#[test]
fn reordered_acks_are_found() {
    let steps = vec![(append(0..1), Answer::Appended(1)), (append(1..2), Answer::Appended(0))];
    let fault = wrong_twice(&in_turn(steps, 0, &[1, 0]), Kind::Stale);
    assert_eq!(fault.window.len(), 2, "{fault}");
}

#[test]
fn a_match_that_was_taken_on_a_wrong_tail_is_found() {
    let steps = vec![(append(0..1), Answer::Appended(0)), (append_at(1..2, 0), Answer::Appended(1))];
    wrong_twice(&in_turn(steps, 0, &[0, 1]), Kind::Match);
    let refused = vec![(append(0..1), Answer::Appended(0)), (append_at(1..2, 1), Answer::Mismatch(1))];
    wrong_twice(&in_turn(refused, 0, &[0]), Kind::Match);
    // Two that match the same number can't both be taken, whatever they are told.
    let both = vec![
        at(0, 9, append_at(0..1, 0), Answer::Appended(0)),
        at(1, 8, append_at(1..2, 0), Answer::Mismatch(0)),
        at(10, 11, Ask::Tail, Answer::Tail(1)),
    ];
    wrong_twice(&of(both, 0, &[0]), Kind::Match);
}

#[test]
fn an_append_under_an_old_token_after_a_fence_was_acked_is_found() {
    let steps = |number| {
        vec![
            (Ask::Fence(token(1)), Answer::Fenced(0)),
            (append_under(0..1, 1), Answer::Appended(0)),
            (Ask::Fence(token(2)), Answer::Fenced(1)),
            (append_under(1..2, number), Answer::Appended(1)),
        ]
    };
    right(&in_turn(steps(2), 0, &[0, 1]));
    let fault = wrong_twice(&in_turn(steps(1), 0, &[0, 1]), Kind::Deposed);
    assert_eq!(fault.window.len(), 2, "{fault}");
    wrong_twice(&in_turn(steps(3), 0, &[0, 1]), Kind::Deposed);
    right(&in_turn(steps(0), 0, &[0, 1]));
    let fenced = History { is_fenced: true, ..in_turn(steps(0), 0, &[0, 1]) };
    wrong_twice(&fenced, Kind::Deposed);
}

#[test]
fn a_fence_that_let_a_batch_past_is_found_while_both_went_on() {
    // The boundary says that the batch came after it.
    let mut operations = vec![
        at(0, 5, Ask::Fence(token(1)), Answer::Fenced(0)),
        at(10, 30, Ask::Fence(token(2)), Answer::Fenced(0)),
        at(11, 29, append_under(0..1, 1), Answer::Appended(0)),
    ];
    wrong(&of(operations.clone(), 0, &[0]), Kind::Unordered);
    operations[1].answer = Some((30, Answer::Fenced(1)));
    right(&of(operations.clone(), 0, &[0]));
    operations.push(at(12, 28, append_under(1..2, 1), Answer::Appended(1)));
    wrong_twice(&of(operations, 0, &[0, 1]), Kind::Deposed);
}

#[test]
fn a_trim_that_is_undone_is_found() {
    let trimmed =
        |answer| vec![(append(0..3), Answer::Appended(0)), (Ask::Trim(2), Answer::Trimmed(2)), (Ask::Read(0), answer)];
    right(&in_turn(trimmed(Answer::BelowTrimPoint { tail: 3, trim_point: 2 }), 2, &[2]));
    wrong_twice(&in_turn(trimmed(page(&[0, 1, 2], 0, 3)), 2, &[2]), Kind::Stale);
    // It says that they are gone, and gives them all the same.
    wrong(&in_turn(trimmed(page(&[0, 1, 2], 2, 3)), 2, &[2]), Kind::Stale);
    // It is undone by a restart.
    let answer = Answer::BelowTrimPoint { tail: 3, trim_point: 2 };
    wrong_twice(&in_turn(trimmed(answer), 0, &[0, 1, 2]), Kind::Stale);
}

#[test]
fn a_tail_that_goes_back_is_found() {
    let steps = vec![(append(0..2), Answer::Appended(0)), (Ask::Tail, Answer::Tail(2)), (Ask::Tail, Answer::Tail(1))];
    wrong_twice(&in_turn(steps, 0, &[0, 1]), Kind::Stale);
    // Nobody was answered for what was seen first.
    let operations =
        vec![lost(0, append(0..2)), at(1, 5, Ask::Tail, Answer::Tail(2)), at(6, 9, Ask::Tail, Answer::Tail(0))];
    wrong_twice(&of(operations, 0, &[0, 1]), Kind::Stale);
}

#[test]
fn answers_of_the_future_and_of_nobody_are_found() {
    let operations = vec![at(0, 5, Ask::Tail, Answer::Tail(1)), lost(10, append(0..1))];
    wrong_twice(&of(operations, 0, &[0]), Kind::Early);
    let steps = vec![(append(0..2), Answer::Appended(0)), (Ask::Trim(1), Answer::Trimmed(2))];
    wrong_twice(&in_turn(steps, 2, &[]), Kind::Early);
    let steps = vec![(append(0..1), Answer::Appended(0)), (Ask::Read(1), Answer::Tail(1))];
    wrong(&in_turn(steps, 0, &[0]), Kind::WrongAnswer);
    let steps = vec![(append(0..1), Answer::Refused), (Ask::Read(0), page(&[0], 0, 1))];
    wrong(&in_turn(steps, 0, &[0]), Kind::RefusedButThere);
    wrong(&in_turn(vec![(append(0..1), Answer::Appended(0))], 0, &[0, 8]), Kind::Foreign);
}

/// Each answer may be right, and no two of them at one time: that takes the search.
#[test]
fn what_went_on_at_once_is_found_by_the_search_alone() {
    let operations = vec![
        at(0, 5, append(0..2), Answer::Appended(0)),
        at(10, 90, append(2..4), Answer::Appended(2)),
        at(10, 90, Ask::Trim(1), Answer::Trimmed(1)),
        at(20, 30, Ask::Read(1), page(&[1], 1, 2)),
        at(20, 30, Ask::Read(1), page(&[1, 2, 3], 0, 4)),
    ];
    let fault = wrong(&of(operations, 1, &[1, 2, 3]), Kind::Unordered);
    assert!(fault.to_string().contains("stands at tail"), "{fault}");
    assert_eq!(fault.window.len(), 5, "{fault}");
}

#[test]
fn a_window_holds_what_can_not_be_ordered_and_not_what_came_long_before() {
    let mut steps: Vec<(Ask, Answer)> =
        (0..200).map(|record| (append(record..record + 1), Answer::Appended(record))).collect();
    steps.push((Ask::Token, Answer::Token(token(4))));
    steps.extend((200..300).map(|record| (append(record..record + 1), Answer::Appended(record))));
    let left: Vec<u64> = (0..300).collect();
    let fault = wrong(&in_turn(steps, 0, &left), Kind::Unordered);
    assert_eq!(fault.window.len(), 2, "{fault}");
    assert!(fault.to_string().contains("200 operations have an order"), "{fault}");
    assert!(fault.to_string().contains("the token? -> token 4"), "{fault}");
}

#[test]
fn a_search_that_is_not_through_is_a_fault() {
    let history = in_turn(vec![(append(0..1), Answer::Appended(0)), (Ask::Tail, Answer::Tail(1))], 0, &[0]);
    right(&history);
    assert_eq!(check(&history, 1).expect_err("it is not through").kind, Kind::Undecided);
    assert_eq!(check(&history, 0).map(|checked| checked.steps), Ok(0));
}
