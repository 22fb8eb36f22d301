//! What is remembered, and for how long.

mod machine;

use proptest::prelude::*;

use super::*;
use crate::crc::crc32c;

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
fn a_number_that_was_refused_is_told_and_may_be_used_again() {
    let mut dedupe = Dedupe::default();
    dedupe.note(of(1, 1), answer(1));
    dedupe.note(of(1, 3), answer(3));
    assert_eq!(dedupe.look(of(1, 2), 7), Seen::Refused);
    dedupe.note(of(1, 2), answer(2));
    assert_eq!(dedupe.look(of(1, 3), 7), Seen::Stored(answer(3)));
}

#[test]
fn a_number_older_than_what_is_remembered_takes_no_other_ones_place() {
    let mut dedupe = Dedupe::default();
    (3..19).for_each(|no| dedupe.note(of(1, no), answer(no)));
    dedupe.note(of(1, 2), answer(2));
    assert_eq!(dedupe.look(of(1, 2), 7), Seen::Forgotten);
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

fn noted(batches: &[(bool, u64, u64)]) -> Dedupe {
    let mut dedupe = Dedupe::default();
    for &(one_shot, producer, no) in batches {
        let numbered = Numbered { one_shot, ..of(producer, no) };
        if dedupe.look(numbered, 7) == Seen::New {
            dedupe.note(numbered, answer(no));
        }
    }
    dedupe
}

fn encoded(dedupe: &Dedupe) -> Vec<u8> {
    let mut out = Vec::new();
    dedupe.encode(&mut out);
    out
}

#[test]
fn the_bytes_of_what_is_remembered_are_golden() {
    let bytes = encoded(&noted(&[(false, 1, 1), (false, 1, 2), (true, 3, 4), (false, 2, 9)]));
    assert_eq!((bytes.len(), crc32c(&bytes)), (4 + 2 * 10 + 8 + 4 * ANSWER_BYTES, GOLDEN), "a layout changed");
    assert_eq!(encoded(&Dedupe::default()), b"");
}

const GOLDEN: u32 = 3285053165;

#[test]
fn an_answer_read_back_counts_as_durable() {
    let mut dedupe = Dedupe::default();
    dedupe.note(of(1, 1), Answer { lsn: Lsn::new(9), ..answer(1) });
    let read = Dedupe::decode(&encoded(&dedupe)).unwrap();
    assert_eq!(read.look(of(1, 1), 7), Seen::Stored(answer(1)));
}

#[test]
fn bytes_with_more_than_is_ever_remembered_or_less_than_they_say_are_refused() {
    let bytes = encoded(&noted(&[(false, 1, 1), (false, 1, 2), (true, 3, 4)]));
    for len in 1..bytes.len() {
        assert!(Dedupe::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        Dedupe::decode(&bytes).unwrap_err()
    };
    assert_eq!(with(0, 9), DedupeError::TooMany { what: "producers", found: 9, max: PRODUCERS_MAX });
    assert_eq!(with(2, 33), DedupeError::TooMany { what: "one-shot keys", found: 33, max: ONE_SHOTS_MAX });
    assert_eq!(with(12, 17), DedupeError::TooMany { what: "answers of a producer", found: 17, max: ANSWERS_MAX });
    assert_eq!(with(14, 3), DedupeError::Order);
    assert_eq!(Dedupe::decode(&[0; 4]), Err(DedupeError::Length { bytes: 4 }));
    assert!(Dedupe::decode(&[&bytes[..], &[0]].concat()).is_err());
}

proptest! {
    #[test]
    fn what_is_remembered_comes_back(batches in prop::collection::vec((any::<bool>(), 0..12u64, 0..40u64), 0..200)) {
        let dedupe = noted(&batches);
        prop_assert_eq!(Dedupe::decode(&encoded(&dedupe)), Ok(dedupe));
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Dedupe::decode(&bytes);
    }
}
