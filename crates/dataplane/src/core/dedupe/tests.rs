//! What is remembered, and for how long.

use wire::ids::SeqNum;

use super::*;

fn of(producer: u64, no: u64) -> Numbered {
    Numbered { producer: ProducerId::new(producer), no: BatchNo::new(no), one_shot: false }
}

fn answer(no: u64) -> Answer {
    let start = Position::new(SeqNum::new(no * 10), 5);
    Answer { no: BatchNo::new(no), batch_crc: 7, records: 2, start, last_ms: 6, lsn: Lsn::ZERO }
}

#[test]
fn a_resend_gets_its_first_answer_and_other_bytes_are_told_apart() {
    let mut dedupe = Dedupe::default();
    assert_eq!(dedupe.look(of(1, 1), 7), Seen::New);
    dedupe.note(of(1, 1), answer(1));
    assert_eq!(dedupe.look(of(1, 1), 7), Seen::Stored(answer(1)));
    assert_eq!(dedupe.look(of(1, 1), 8), Seen::OtherBytes);
    assert_eq!(dedupe.look(of(2, 1), 7), Seen::New);
}

#[test]
fn only_the_last_sixteen_numbers_and_eight_producers_are_remembered() {
    let mut dedupe = Dedupe::default();
    for no in 1..=20 {
        dedupe.note(of(1, no), answer(no));
    }
    assert_eq!(dedupe.look(of(1, 4), 7), Seen::Forgotten);
    assert_eq!(dedupe.look(of(1, 5), 7), Seen::Stored(answer(5)));
    for producer in 2..=8 {
        dedupe.note(of(producer, 1), answer(1));
    }
    dedupe.note(of(1, 21), answer(21));
    dedupe.note(of(9, 1), answer(1));
    assert_eq!(dedupe.look(of(2, 1), 7), Seen::New, "the least recently heard went");
    assert_eq!(dedupe.look(of(1, 21), 7), Seen::Stored(answer(21)));
}

#[test]
fn a_number_that_was_refused_may_be_used_again() {
    let mut dedupe = Dedupe::default();
    dedupe.note(of(1, 1), answer(1));
    dedupe.note(of(1, 3), answer(3));
    assert_eq!(dedupe.look(of(1, 2), 7), Seen::New);
    dedupe.note(of(1, 2), answer(2));
    assert_eq!(dedupe.look(of(1, 3), 7), Seen::Stored(answer(3)));
}

#[test]
fn one_shot_keys_have_a_table_of_their_own() {
    let mut dedupe = Dedupe::default();
    let key = |high, low| Numbered { one_shot: true, ..of(high, low) };
    dedupe.note(key(1, 1), answer(1));
    assert_eq!(dedupe.look(of(1, 1), 7), Seen::New);
    assert_eq!(dedupe.look(key(1, 1), 7), Seen::Stored(answer(1)));
    for low in 2..=33 {
        dedupe.note(key(1, low), answer(low));
    }
    assert_eq!(dedupe.look(key(1, 1), 7), Seen::New);
}
