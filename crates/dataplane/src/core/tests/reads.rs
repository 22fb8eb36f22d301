//! Pages and subscriptions, from memory and from disk.

use wire::batch::BatchBuilder;
use wire::frame::HEADER_BYTES;
use wire::ids::SeqNum;
use wire::limits::{BATCH_RECORDS_MAX, FRAME_BODY_BYTES_MAX, RECORD_HEADERS_MAX};
use wire::message::{Credit, Read, Start, StreamDelete, Subscribe, Trim, TrimTo, Unsubscribe};
use wire::reason::Reason;

use super::world::*;

/// Ten batches of two records each, a second apart, and another stream's between them.
fn filled() -> Test {
    let mut test = Test::new();
    for n in 0..10i64 {
        test.world.wall_ms = 1_000 * (n + 1);
        test.put("s", &[&format!("{n}a"), &format!("{n}b")]).unwrap();
        test.put("other", &["noise"]).unwrap();
    }
    test
}

/// The same once from memory, once from disk.
fn both(check: impl Fn(&mut Test)) {
    check(&mut filled());
    check(&mut filled().crashed());
}

fn from(seq_num: u64) -> Read {
    Test::reading("s", Start::SeqNum(SeqNum::new(seq_num)))
}

#[test]
fn a_page_has_what_was_asked_for_and_says_whether_more_is_there() {
    both(|test| {
        let page = test.page(&from(0)).unwrap();
        assert_eq!((page.bodies.len(), page.start, page.end, page.tail, page.at_tail), (20, 0, 20, 20, true));
        assert_eq!(page.stamps[4], 3_000);
        let page = test.page(&Read { limit: 3, ..from(1) }).unwrap();
        assert_eq!((page.bodies, page.end, page.at_tail), (vec!["0b".into(), "1a".into(), "1b".into()], 4, false));
        let page = test.page(&Read { max_bytes: 3, ..from(6) }).unwrap();
        assert_eq!(page.bodies, vec!["3a"], "two bytes each");
        let page = test.page(&Read { max_bytes: 1, ..from(6) }).unwrap();
        assert_eq!(page.bodies, vec!["3a"], "one record in any case");
        assert_eq!(test.page(&from(20)).unwrap().bodies.len(), 0, "reading at the tail is no error");
    });
}

#[test]
fn a_start_out_of_range_is_refused_or_clamped() {
    both(|test| {
        let refusal = test.page(&from(21)).unwrap_err();
        assert_eq!((refusal.reason, refusal.tail().unwrap().seq_num.get()), (Reason::OutOfRange, 20));
        assert_eq!(test.page(&Read { clamp: true, ..from(99) }).unwrap().start, 20);
        test.call(A, &Trim { address: address("s"), to: TrimTo::SeqNum(SeqNum::new(5)) });
        assert_eq!(test.page(&from(4)).unwrap_err().reason, Reason::Trimmed);
        let page = test.page(&Read { clamp: true, ..from(0) }).unwrap();
        assert_eq!((page.start, page.bodies[0].as_str()), (5, "2b"));
    });
}

#[test]
fn a_time_starts_at_the_first_record_stamped_at_or_after_it() {
    both(|test| {
        let at = |ms| Test::reading("s", Start::Timestamp(ms));
        for (ms, start) in [(i64::MIN, 0), (1_000, 0), (1_001, 2), (2_000, 2), (9_500, 18), (10_000, 18), (10_001, 20)]
        {
            assert_eq!(test.page(&at(ms)).unwrap().start, start, "{ms}");
        }
        let page = test.page(&Read { until_ms: Some(4_000), ..at(2_500) }).unwrap();
        assert_eq!((page.start, page.end), (4, 6));
        assert_eq!(test.page(&Read { until_ms: Some(1), ..from(0) }).unwrap().bodies.len(), 0);
    });
}

#[test]
fn the_last_records_are_those_before_the_tail() {
    both(|test| {
        let last = |records| Test::reading("s", Start::Last(records));
        assert_eq!(test.page(&last(3)).unwrap().bodies, vec!["8b", "9a", "9b"]);
        assert_eq!(test.page(&last(0)).unwrap().bodies.len(), 0);
        assert_eq!(test.page(&last(u64::MAX)).unwrap().bodies.len(), 20);
    });
}

#[test]
fn a_read_makes_the_stream_and_does_not_wait() {
    let mut test = Test::new();
    test.ask(A, &Test::reading("new", Start::SeqNum(SeqNum::ZERO)));
    assert_eq!(test.told(A), vec![], "its creation is not durable");
    test.commit();
    assert!(matches!(&test.told(A)[..], [Told::Page(page)] if page.tail == 0));
}

#[test]
fn damage_on_disk_is_an_error_and_no_record() {
    let mut test = filled().crashed();
    let at = test.world.entries.iter().rev().find(|pos| pos.bytes > 150).unwrap().offset as usize + PREFIX + 110;
    test.world.log[at] ^= 1;
    let refusal = test.page(&Test::reading("other", Start::SeqNum(SeqNum::ZERO))).unwrap_err();
    assert_eq!(refusal.reason, Reason::Internal);
    assert_eq!(test.page(&from(0)).unwrap().bodies.len(), 20, "the other stream is whole");
}

#[test]
fn a_page_counts_against_its_connection_until_it_is_answered_also_with_no() {
    let mut test = filled().crashed();
    for read in
        [from(0), Test::reading("s", Start::Timestamp(4_500)), Test::reading("other", Start::SeqNum(SeqNum::ZERO))]
    {
        test.ask(A, &read);
    }
    assert_eq!(test.world.pages[&A], 3, "none is there yet");
    test.serve_fetches();
    assert_eq!((test.told(A).len(), test.world.pages[&A]), (3, 0));
    test.ask(A, &from(0));
    test.call(B, &StreamDelete { address: address("s") });
    test.serve_fetches();
    assert_eq!(test.world.pages[&A], 0, "the stream went meanwhile");
    let test = &mut filled();
    test.page(&from(0)).unwrap();
    assert_eq!(test.world.pages.values().sum::<u32>(), 0, "memory answers at once");
}

fn subscribe(start: Start, credit_bytes: u32) -> Subscribe {
    Subscribe { address: address("s"), start, clamp: false, subscription: 5, credit_bytes, resume: None }
}

fn records(told: &[Told]) -> Vec<String> {
    told.iter()
        .flat_map(|told| match told {
            Told::Records(5, page) => page.bodies.clone(),
            Told::Subscribed(_) => Vec::new(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_subscription_gets_history_then_every_commit_without_a_seam() {
    both(|test| {
        test.ask(B, &subscribe(Start::SeqNum(SeqNum::new(17)), 1 << 20));
        test.serve_fetches();
        assert_eq!(records(&test.told(B)), vec!["8b", "9a", "9b"]);
        let (bytes, crc) = batch(&["live"]);
        let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
        assert_eq!(test.told(B), vec![], "not durable yet");
        test.commit();
        assert_eq!(records(&test.told(B)), vec!["live"]);
    });
}

#[test]
fn a_subscription_is_open_before_anything_of_it_comes_whatever_is_not_durable() {
    let mut test = filled();
    let (bytes, crc) = batch(&["not durable"]);
    let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
    test.ask(B, &subscribe(Start::Last(1), 1 << 20));
    let told = test.told(B);
    assert!(matches!(&told[..], [Told::Subscribed(_), Told::Records(5, page)] if page.bodies == ["9b"]), "{told:?}");
}

#[test]
fn a_subscription_that_makes_its_stream_is_open_once_that_is_durable() {
    let mut test = Test::new();
    test.put("other", &["noise"]).unwrap();
    test.offer(B, &subscribe(Start::SeqNum(SeqNum::ZERO), 1 << 20), &[]);
    for key in ["s", "other", "s"] {
        let (bytes, crc) = batch(&[key]);
        test.offer(A, &Test::once(key, crc), &bytes);
    }
    let made = test.world.durable;
    assert_eq!(test.told(B), vec![], "nothing is durable");
    test.commit_to(made + 1);
    assert!(matches!(test.told(B)[..], [Told::Subscribed(_)]));
    test.commit_to(made + 2);
    assert_eq!(records(&test.told(B)), vec!["s"]);
    test.commit();
    assert_eq!(records(&test.told(B)), vec!["s"]);
}

#[test]
fn a_subscription_that_ends_before_its_stream_is_durable_is_answered_once() {
    let mut test = Test::new();
    test.put("other", &["noise"]).unwrap();
    let asked = test.offer(B, &subscribe(Start::SeqNum(SeqNum::ZERO), 1 << 20), &[]);
    let ended = test.ask(B, &Unsubscribe { subscription: 5 });
    let told = test.told(B);
    assert!(matches!(told[..], [Told::Refused(a, _), Told::Done(b)] if (a, b) == (asked, ended)), "{told:?}");
    test.commit();
    assert_eq!((test.told(B), test.shard.readers.subscriptions()), (vec![], 0));
    let again = Subscribe { address: address("gone"), ..subscribe(Start::SeqNum(SeqNum::ZERO), 1 << 20) };
    let asked = test.offer(B, &again, &[]);
    test.offer(A, &StreamDelete { address: address("gone") }, &[]);
    test.commit();
    let told = test.told(B);
    assert!(
        matches!(&told[..], [Told::Refused(call, no)] if *call == asked && no.reason == Reason::NotFound),
        "{told:?}"
    );
}

#[test]
fn a_subscription_stops_at_its_credit_and_goes_on_with_more() {
    both(|test| {
        test.ask(B, &subscribe(Start::SeqNum(SeqNum::ZERO), 1));
        test.serve_fetches();
        let first = records(&test.told(B));
        assert!(!first.is_empty());
        test.put("s", &["live"]).unwrap();
        assert_eq!(test.told(B), vec![]);
        test.ask(B, &Credit { subscription: 5, bytes: 1 << 20 });
        test.serve_fetches();
        assert_eq!(first.len() + records(&test.told(B)).len(), 21);
    });
}

#[test]
fn a_subscription_ends_when_its_stream_goes_or_is_trimmed_past_it() {
    both(|test| {
        test.ask(B, &subscribe(Start::SeqNum(SeqNum::ZERO), 0));
        test.told(B);
        test.call(A, &Trim { address: address("s"), to: TrimTo::SeqNum(SeqNum::new(5)) });
        test.ask(B, &Credit { subscription: 5, bytes: 1 });
        assert_eq!(test.told(B), vec![Told::SubscriptionEnded(5, Reason::Trimmed)]);
        test.ask(B, &subscribe(Start::Timestamp(1 << 50), 1 << 20));
        assert!(matches!(test.told(B)[..], [Told::Subscribed(_)]));
        test.call(A, &StreamDelete { address: address("s") });
        assert_eq!(test.told(B), vec![Told::SubscriptionEnded(5, Reason::NotFound)]);
        assert_eq!(test.shard.readers.subscriptions(), 0);
    });
}

#[test]
fn an_unsubscribed_handle_may_be_used_again() {
    let mut test = filled();
    for _ in 0..2 {
        test.ask(B, &subscribe(Start::Last(1), 1 << 20));
        assert_eq!(records(&test.told(B)), vec!["9b"]);
        assert!(matches!(test.call(B, &Unsubscribe { subscription: 5 })[..], [Told::Done(_)]));
    }
    test.put("s", &["x"]).unwrap();
    assert_eq!(test.told(B), vec![]);
    assert!(test.shard.live(0).is_none());
}

#[test]
fn a_subscription_that_looks_for_its_start_ends_with_its_handle_or_its_connection() {
    let mut test = filled().crashed();
    let asked = test.ask(B, &subscribe(Start::Timestamp(3_500), 1 << 20));
    let again = test.ask(B, &subscribe(Start::Timestamp(3_500), 1 << 20));
    assert!(matches!(test.told(B)[..], [Told::Refused(call, _)] if call == again), "the handle is taken");
    let ended = test.ask(B, &Unsubscribe { subscription: 5 });
    let told = test.told(B);
    assert!(matches!(told[..], [Told::Refused(a, _), Told::Done(b)] if (a, b) == (asked, ended)), "{told:?}");
    test.serve_fetches();
    assert_eq!((test.told(B), test.world.pages[&B]), (vec![], 0));
    test.ask(B, &subscribe(Start::Timestamp(3_500), 0));
    test.ask(B, &Credit { subscription: 5, bytes: 1 << 20 });
    test.serve_fetches();
    assert_eq!(records(&test.told(B)).len(), 14, "credit that comes early counts");
    test.ask(A, &subscribe(Start::Timestamp(3_500), 1 << 20));
    test.shard.on_closed(A, &mut test.world);
    test.serve_fetches();
    assert_eq!((test.told(A), test.shard.readers.jobs.len()), (vec![], 1));
}

#[test]
fn a_trim_that_comes_while_a_reader_waits_for_the_disk_is_told_as_such() {
    let mut test = filled().crashed();
    let trim = Trim { address: address("s"), to: TrimTo::SeqNum(SeqNum::new(13)) };
    let page = test.ask(A, &from(0));
    test.ask(B, &subscribe(Start::SeqNum(SeqNum::ZERO), 1 << 20));
    let by_time = test.ask(A, &Test::reading("s", Start::Timestamp(3_500)));
    let trimmed = test.ask(A, &Trim { to: TrimTo::Timestamp(3_500), ..trim.clone() });
    test.call(B, &trim);
    test.serve_fetches();
    test.commit();
    let told = test.told(A);
    let Told::Refused(call, refusal) = &told[0] else { panic!("{told:?}") };
    assert_eq!((*call, refusal.reason), (page, Reason::Trimmed));
    assert_eq!(told[1], Told::Trimmed(13), "backwards is no error ({trimmed})");
    assert!(matches!(&told[2], Told::Page(page) if page.start == 13), "{by_time}: {told:?}");
    assert_eq!(test.told(B), vec![Told::SubscriptionEnded(5, Reason::Trimmed)]);
}

#[test]
fn a_page_fits_a_frame_however_its_batches_are_cut() {
    let mut test = Test::new();
    let name_only = [("n", ""); RECORD_HEADERS_MAX];
    for (records, body_bytes) in [(BATCH_RECORDS_MAX, 948), (BATCH_RECORDS_MAX - 2, 0), (BATCH_RECORDS_MAX, 948)] {
        let mut builder = BatchBuilder::new();
        for _ in 0..records {
            builder.push(None, &name_only, &vec![b'x'; body_bytes]).unwrap();
        }
        let mut bytes = Vec::new();
        let crc = builder.finish(&mut bytes).unwrap();
        let _ = test.ask_with(A, &Test::once("s", crc), &bytes);
        test.commit();
    }
    test.told(A);
    let (mut next, mut pages) = (999, 0);
    while next < 2_998 {
        test.ask(A, &from(next));
        test.serve_fetches();
        assert!(test.world.outs[&A].len() <= HEADER_BYTES + FRAME_BODY_BYTES_MAX);
        let Some(Told::Page(page)) = test.told(A).pop() else { panic!("a page from {next}") };
        assert_eq!((page.start, page.bodies.len() as u64), (next, page.end - next));
        (next, pages) = (page.end, pages + 1);
    }
    assert!(pages <= 5, "{pages}");
}

#[test]
fn subscribers_that_get_too_much_for_one_turn_have_the_next_ones() {
    let mut test = Test::new();
    test.put("s", &["first"]).unwrap();
    let begin = |test: &mut Test, handle| {
        test.ask(B, &Subscribe { subscription: handle, ..subscribe(Start::Last(0), 1 << 20) });
        assert!(matches!(test.told(B)[..], [Told::Subscribed(_)]));
    };
    (0..70).for_each(|handle| begin(&mut test, handle));
    let served = |test: &mut Test| -> Vec<u32> {
        let of = |told| match told {
            Told::Records(handle, _) => handle,
            other => panic!("{other:?}"),
        };
        test.told(B).into_iter().map(of).collect()
    };
    test.put("s", &[&"x".repeat(1_000_000)]).unwrap();
    assert_eq!(served(&mut test), (0..68).collect::<Vec<_>>(), "a little more than 64 MiB");
    assert_eq!(test.shard.next_timer(), Some(test.shard.now.mono));
    // One of those that are left goes, and its number may be another's then.
    test.ask(B, &Unsubscribe { subscription: 69 });
    assert!(matches!(test.told(B)[..], [Told::Done(_)]));
    begin(&mut test, 100);
    test.wait(0);
    assert_eq!((served(&mut test), test.shard.next_timer()), (vec![68], None));
    test.put("s", &["last"]).unwrap();
    let mut all = served(&mut test);
    all.sort_unstable();
    assert_eq!(all, (0..69).chain([100]).collect::<Vec<_>>());
}

#[test]
fn many_subscribers_each_wait_once() {
    let mut test = filled();
    for handle in 0..100 {
        let at_tail = Subscribe { subscription: handle, ..subscribe(Start::Last(0), 1 << 20) };
        test.ask(B, &at_tail);
        test.ask(B, &Credit { subscription: handle, bytes: 1 });
    }
    assert_eq!(test.shard.live(0).unwrap().subscriptions.len(), 100);
    test.told(B);
    for text in ["x", "y"] {
        test.put("s", &[text]).unwrap();
        assert_eq!(test.told(B).len(), 100);
        assert_eq!(test.shard.live(0).unwrap().subscriptions.len(), 100);
    }
}
