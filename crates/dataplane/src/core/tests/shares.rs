//! Readers who have had their share of the shard's time wait, and appends keep theirs.

use tuning::settings;
use wire::ids::SeqNum;
use wire::message::{Read, Start, StreamDelete, Subscribe, Unsubscribe};

use super::world::*;
use crate::core::{Fetch, Shares, Work, World};

/// What a turn costs: of an append, and of a span for a reader who catches up, as measured roughly.
const APPEND_NS: u64 = 50_000;
const SPAN_NS: u64 = 400_000;
const RECORDS: usize = 60;

fn share_out(test: &mut Test, append: u16, catch_up: u16) {
    let of = settings::Shares { append, catch_up, ..settings::Shares::default() };
    test.world.shares = Some(Shares::new(&of));
}

fn use_up(test: &mut Test, work: Work, ns: u64) {
    test.world.shares.as_mut().expect("shares").use_up(work, ns);
}

/// A stream of 6 MB that is not in memory.
fn behind() -> Test {
    let mut test = Test::new();
    let body = "x".repeat(100_000);
    for _ in 0..RECORDS {
        test.put("s", &[&body]).unwrap();
    }
    test.crashed()
}

fn follow(test: &mut Test) {
    let start = Start::SeqNum(SeqNum::ZERO);
    let credit_bytes = 16 << 20;
    test.ask(B, &Subscribe { subscription: 1, address: address("s"), start, clamp: false, credit_bytes, resume: None });
}

/// Records that the subscriber has got since it was asked last.
fn got(test: &mut Test) -> usize {
    let told = test.told(B);
    told.iter().map(|told| if let Told::Records(_, page) = told { page.bodies.len() } else { 0 }).sum()
}

/// One turn of each task of a shard: an append that is acked, what the disk has brought, and readers whose turn it is.
fn turn(test: &mut Test) {
    test.put("other", &["a"]).unwrap();
    use_up(test, Work::Append, APPEND_NS);
    if let Some(Fetch { ticket, offset, bytes, .. }) = test.world.fetches.pop_front() {
        use_up(test, Work::CatchUp, SPAN_NS);
        let span = test.world.log[offset as usize..(offset + bytes) as usize].to_vec();
        test.shard.on_fetched(ticket, Ok(&span), &mut test.world);
    }
    if test.shard.has_put_off(Work::CatchUp) && test.world.may_go(Work::CatchUp) {
        test.shard.take_up(Work::CatchUp, &mut test.world);
    }
}

/// Turns until a greedy reader has all there was.
fn turns_to_catch_up(catch_up: u16) -> usize {
    let mut test = behind();
    share_out(&mut test, 100, catch_up);
    follow(&mut test);
    let (mut records, mut turns) = (0, 0);
    while records < RECORDS {
        assert!(turns < 10_000, "the reader stands still at {records}");
        turn(&mut test);
        records += got(&mut test);
        turns += 1;
    }
    turns
}

#[test]
fn a_greedy_reader_with_a_small_share_takes_longer_and_no_append_waits_for_it() {
    let [large, even, small] = [1_000, 100, 10].map(turns_to_catch_up);
    // A span costs as much as eight appends: by its share it is due each turn, each eighth, or each eightieth, but for the first ones.
    assert!(large < even && even * 5 < small, "{large} {even} {small}");
    let spans_there_are = (RECORDS * 100_000).div_ceil(512 << 10);
    assert!(small > 80 * (spans_there_are - 4), "{small} turns for {spans_there_are} spans");
}

#[test]
fn a_reader_that_is_put_off_goes_on_in_its_turn_or_is_gone() {
    let mut test = behind();
    share_out(&mut test, 100, 100);
    use_up(&mut test, Work::CatchUp, 5_000_000);
    follow(&mut test);
    let read = Read { limit: 1, ..Test::reading("s", Start::SeqNum(SeqNum::ZERO)) };
    test.ask(C, &read);
    assert!(test.world.fetches.is_empty() && test.shard.has_put_off(Work::CatchUp), "both wait for their turn");
    // Its turn is worth a step, whatever is owed; the next one waits on.
    test.shard.take_up(Work::CatchUp, &mut test.world);
    assert_eq!((test.world.fetches.len(), test.shard.has_put_off(Work::CatchUp)), (1, true));
    test.ask(B, &Unsubscribe { subscription: 1 });
    test.shard.take_up(Work::CatchUp, &mut test.world);
    assert_eq!((test.world.fetches.len(), test.shard.has_put_off(Work::CatchUp)), (2, false));
    test.serve_fetches();
    assert!(test.told(C).iter().any(|told| matches!(told, Told::Page(page) if page.bodies.len() == 1)));

    test.ask(C, &read);
    assert!(test.shard.has_put_off(Work::CatchUp));
    test.call(A, &StreamDelete { address: address("s") });
    test.shard.take_up(Work::CatchUp, &mut test.world);
    assert!(matches!(&test.told(C)[..], [Told::Refused(..)]), "the stream went meanwhile");
    assert_eq!(test.world.pages[&C], 0);
}
