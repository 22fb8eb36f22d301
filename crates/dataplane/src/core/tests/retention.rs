//! Uncapped stamps and an age: which streams may be trimmed by what their stamps say?

use wire::config::{Class, ConfigPatch};
use wire::ids::SeqNum;
use wire::message::{StreamCreate, StreamDelete, StreamReconfigure, Trim, TrimTo};
use wire::reason::Reason;

use super::moves::reclass;
use super::world::*;

const FAR_MS: i64 = 1 << 50;

fn uncapped(uncapped: bool) -> ConfigPatch {
    ConfigPatch { timestamping_uncapped: Some(uncapped), ..ConfigPatch::default() }
}

fn aged(max_age_ms: u64) -> ConfigPatch {
    ConfigPatch { retention_max_age_ms: Some(max_age_ms), ..ConfigPatch::default() }
}

/// Asks for a change; the reason if it is refused.
fn change(test: &mut Test, config: ConfigPatch) -> Option<Reason> {
    match &test.call(B, &StreamReconfigure { address: address("s"), config })[..] {
        [Told::Stream(_)] => None,
        [Told::Refused(_, refusal)] => Some(refusal.reason),
        other => panic!("{other:?}"),
    }
}

/// A stream that took a record while it was uncapped, and is not any more.
fn capped_again(class: Class) -> Test {
    let mut test = Test::with(ConfigPatch { class: Some(class), ..uncapped(true) });
    let (bytes, crc) = stamped(&[(Some(FAR_MS), "far")]);
    test.offer(A, &Test::once("s", crc), &bytes);
    test.commit_all();
    assert!(matches!(test.told(A)[..], [Told::Appended(_)]));
    assert_eq!(change(&mut test, uncapped(false)), None);
    test
}

/// An age by stamps is refused, also as the second half of a change, and one by arrival is not.
fn refuses_age(test: &mut Test, when: &str) {
    assert_eq!(change(test, aged(1)), Some(Reason::Invalid), "{when}");
    let by_arrival = ConfigPatch { retention_by_arrival: Some(true), ..aged(1) };
    assert_eq!(change(test, by_arrival), None, "{when}");
    let by_stamps = ConfigPatch { retention_by_arrival: Some(false), ..ConfigPatch::default() };
    assert_eq!(change(test, by_stamps), Some(Reason::Invalid), "{when}");
    assert_eq!(change(test, ConfigPatch { retention_max_age_ms: Some(0), ..by_stamps }), None, "{when}");
}

#[test]
fn a_stream_that_took_uncapped_stamps_refuses_an_age_by_stamps_wherever_it_has_been_since() {
    for class in [Class::Express, Class::Standard] {
        let mut test = capped_again(class);
        refuses_age(&mut test, "in memory");
        test = test.crashed();
        refuses_age(&mut test, "after a crash");
        test.settle_and_free();
        test = test.crashed();
        refuses_age(&mut test, "by the row of the index");
        test.settle_and_free();
        test.shard.config.rows_max = 0;
        test.wait(10_000);
        test.wait(100);
        assert_eq!(test.shard.streams.len(), 0);
        refuses_age(&mut test, "after it had left memory");
        for class in [Class::Standard, Class::Express] {
            reclass(&mut test, "s", class);
            refuses_age(&mut test, class.word());
        }
    }
}

#[test]
fn it_does_so_when_the_records_are_gone_for_no_later_stamp_is_lower() {
    let mut test = capped_again(Class::Express);
    let trim = Trim { address: address("s"), to: TrimTo::SeqNum(SeqNum::new(9)) };
    assert_eq!(test.call(A, &trim), vec![Told::Trimmed(1)]);
    assert_eq!(test.put("s", &["capped"]).unwrap().start, position(1, FAR_MS));
    refuses_age(&mut test, "trimmed");
    test.call(A, &StreamDelete { address: address("s") });
    test.call(A, &StreamCreate { address: address("s"), config: ConfigPatch::default() });
    let both = ConfigPatch { timestamping_uncapped: Some(false), ..aged(1) };
    assert_eq!(change(&mut test, both), None, "the one that is made again is another stream");
}

#[test]
fn a_stream_that_took_nothing_while_it_was_uncapped_takes_an_age() {
    let mut test = Test::new();
    test.put("s", &["capped"]).unwrap();
    assert_eq!(change(&mut test, uncapped(true)), None);
    assert_eq!(change(&mut test, aged(1)), Some(Reason::Invalid), "while it is");
    assert_eq!(change(&mut test, ConfigPatch { timestamping_uncapped: Some(false), ..aged(1) }), None);
}

#[test]
fn a_refusal_of_an_age_waits_until_what_it_was_judged_on_is_durable() {
    let mut test = Test::with(uncapped(true));
    let (bytes, crc) = stamped(&[(Some(FAR_MS), "far")]);
    test.offer(A, &Test::once("s", crc), &bytes);
    for config in [aged(1), ConfigPatch { timestamping_uncapped: Some(false), ..aged(1) }] {
        test.ask(B, &StreamReconfigure { address: address("s"), config });
    }
    assert_eq!(test.told(B), vec![], "the record is not durable yet");
    test.commit();
    let told = test.told(B);
    let refused = |told: &Told| matches!(told, Told::Refused(_, refusal) if refusal.reason == Reason::Invalid);
    assert!(told.len() == 2 && told.iter().all(refused), "{told:?}");
}
