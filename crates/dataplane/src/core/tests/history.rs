//! Records that are settled: read as if they had never left, whatever lies where.

use wire::config::{Class, ConfigPatch};
use wire::handoff::{HistorySpan, ToControl, ToShard};
use wire::ids::SeqNum;
use wire::message::{Read, Start, StreamGet, Subscribe, Trim, TrimTo};
use wire::reason::Reason;

use super::moves::reclass;
use super::store::EXTENT_ENTRIES;
use super::world::*;

fn from(seq_num: u64) -> Read {
    Test::reading("s", Start::SeqNum(SeqNum::new(seq_num)))
}

fn subscribe(start: u64) -> Subscribe {
    Subscribe {
        address: address("s"),
        start: Start::SeqNum(SeqNum::new(start)),
        clamp: false,
        credit_bytes: u32::MAX,
        subscription: 5,
        resume: None,
    }
}

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A page that was asked for.
#[derive(Debug)]
struct Asked {
    start: Start,
    /// Its first record.
    first: usize,
}

/// A stream whose records are known, and a subscription to it that began with it.
struct Known {
    test: Test,
    random: Random,
    /// Body and stamp of each record.
    records: Vec<(String, i64)>,
    trim_point: usize,
    delivered: usize,
}

impl Known {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let standard = random.below(2) == 0;
        let mut test = if standard { Test::standard() } else { Test::new() };
        test.shard.config.rows_max = 0;
        test.call(B, &subscribe(0));
        Self { test, random, records: Vec::new(), trim_point: 0, delivered: 0 }
    }

    fn append(&mut self) {
        self.test.world.wall_ms += i64::try_from(self.random.below(3)).unwrap();
        let bodies: Vec<String> = (0..=self.random.below(3)).map(|at| format!("{}-{at}", self.records.len())).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        let appended = self.test.put("s", &bodies).unwrap();
        assert_eq!(appended.start.seq_num.get(), self.records.len() as u64);
        let stamp = self.test.world.wall_ms;
        self.records.extend(bodies.iter().map(|body| ((*body).to_owned(), stamp)));
    }

    /// Something happens that no reader may notice, also none that waits for its records meanwhile.
    fn happen(&mut self) {
        let asked = self.ask_early();
        let what = self.random.below(13);
        let test = &mut self.test;
        match what {
            0..4 => self.append(),
            4 => drop(test.put("other", &["noise"]).unwrap()),
            5 => {
                let entries = usize::try_from(self.random.below(6)).unwrap();
                test.settle(entries);
            }
            6 => test.world.rolled += 1,
            7 => test.free(),
            8 => test.apply_standard(),
            9 => test.wait(10_100),
            10 => {
                let class = if self.random.below(2) == 0 { Class::Standard } else { Class::Express };
                reclass(test, "s", class);
            }
            11 => self.trim(),
            _ => self.crash(),
        }
        self.follow();
        if what < 12 {
            self.check_early(&asked);
        }
    }

    /// Asks for a page, by number or by time, and doesn't wait for it.
    fn ask_early(&mut self) -> Asked {
        let count = self.records.len();
        let at = self.trim_point + usize::try_from(self.random.below(1 + (count - self.trim_point) as u64)).unwrap();
        let (start, first) = match self.records.get(at) {
            Some((_, ms)) if self.random.below(2) == 0 => {
                (Start::Timestamp(*ms), self.records.iter().position(|(_, stamp)| stamp >= ms).unwrap())
            }
            _ => (Start::SeqNum(SeqNum::new(at as u64)), at),
        };
        let read = Test::reading("s", start);
        self.test.offer(C, &read, &[]);
        Asked { start, first: first.max(self.trim_point) }
    }

    fn check_early(&mut self, asked: &Asked) {
        let told = self.test.told(C);
        match &told[..] {
            [Told::Page(page)] => {
                let (start, end) = (usize::try_from(page.start).unwrap(), usize::try_from(page.end).unwrap());
                let is_later = matches!(asked.start, Start::Timestamp(_)) && start == self.trim_point;
                assert!(start == asked.first || is_later, "{asked:?} {page:?}");
                let known = self.records[start..end].iter().map(|(body, _)| body);
                assert!(known.eq(&page.bodies), "{asked:?} {page:?}");
            }
            [Told::Refused(_, refusal)] => {
                assert!(refusal.reason == Reason::Trimmed && self.trim_point > asked.first, "{asked:?} {refusal}");
            }
            other => panic!("{other:?}"),
        }
    }

    fn trim(&mut self) {
        let to = self.random.below(1 + self.records.len() as u64);
        let trim = Trim { address: address("s"), to: TrimTo::SeqNum(SeqNum::new(to)) };
        let told = self.test.call(A, &trim);
        if matches!(told[..], [Told::Trimmed(_)]) {
            self.trim_point = self.trim_point.max(usize::try_from(to).unwrap());
            assert_eq!(told, vec![Told::Trimmed(self.trim_point as u64)]);
        }
    }

    fn crash(&mut self) {
        let test = std::mem::replace(&mut self.test, Test::new());
        self.test = test.crashed();
        self.test.shard.config.rows_max = 0;
        self.test.offer(B, &subscribe(self.delivered as u64), &[]);
        self.test.serve_readers();
    }

    /// The subscription gets each record once and in order.
    fn follow(&mut self) {
        self.test.serve_readers();
        for told in self.test.told(B) {
            match told {
                Told::Records(_, page) => {
                    assert_eq!(
                        (page.start, page.end),
                        (self.delivered as u64, self.delivered as u64 + page.bodies.len() as u64)
                    );
                    let known = self.records.iter().skip(self.delivered).map(|(body, _)| body);
                    assert!(known.take(page.bodies.len()).eq(&page.bodies));
                    self.delivered += page.bodies.len();
                }
                Told::Subscribed(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(self.delivered, self.records.len());
    }

    /// Every start gives the same as if all records were in memory.
    fn check_reads(&mut self) {
        let count = self.records.len();
        for start in 0..self.trim_point {
            assert_eq!(self.test.page(&from(start as u64)).unwrap_err().reason, Reason::Trimmed);
        }
        for start in self.trim_point..=count {
            let limit = u32::try_from(1 + self.random.below(9)).unwrap();
            let page = self.test.page(&Read { limit, ..from(start as u64) }).unwrap();
            let end = count.min(start + limit as usize);
            let expected: Vec<String> = self.records[start..end].iter().map(|(body, _)| body.clone()).collect();
            assert_eq!((page.start, page.end, page.bodies), (start as u64, end as u64, expected));
        }
        for at in 0..count {
            for ms in [self.records[at].1, self.records[at].1 + 1] {
                let start = self.records.iter().position(|(_, stamp)| *stamp >= ms).unwrap_or(count);
                let start = start.max(self.trim_point);
                let page = self.test.page(&Test::reading("s", Start::Timestamp(ms))).unwrap();
                assert_eq!((page.start, page.bodies.len()), (start as u64, count - start), "{ms}");
            }
        }
    }
}

#[test]
fn wherever_the_seams_are_readers_get_each_record_once() {
    for seed in 0..100 {
        let mut known = Known::new(seed);
        for _ in 0..50 {
            known.happen();
        }
        known.check_reads();
    }
}

/// Ten batches of two records each, a second apart, all settled and gone from the log.
fn settled() -> Test {
    let mut test = Test::new();
    for n in 0..10i64 {
        test.world.wall_ms = 1_000 * (n + 1);
        test.put("s", &[&format!("{n}a"), &format!("{n}b")]).unwrap();
    }
    test.settle_and_free();
    test
}

#[test]
fn what_is_settled_is_told_and_leaves_the_row_when_its_segment_goes() {
    let mut test = Test::new();
    let settled = |test: &mut Test| match &test.call(A, &StreamGet { address: address("s") })[..] {
        [Told::Stream(answer)] => answer.stream.settled.get(),
        other => panic!("{other:?}"),
    };
    let extents = |test: &Test| test.shard.streams.row(0).unwrap().extents.len();
    for n in 0..3 {
        test.put("s", &["a", "b"]).unwrap();
        test.put("other", &["noise"]).unwrap();
        test.world.rolled = n + 1;
    }
    assert_eq!((settled(&mut test), extents(&test)), (0, 3));
    test.settle(4);
    assert_eq!((settled(&mut test), extents(&test)), (2, 3), "settled, and still in its segment");
    test.free();
    assert_eq!((settled(&mut test), extents(&test)), (2, 2));
    test.settle_and_free();
    assert_eq!((settled(&mut test), extents(&test)), (6, 0));
    assert_eq!(test.page(&from(0)).unwrap().bodies.len(), 6);
}

#[test]
fn a_segment_that_goes_while_it_is_read_is_read_from_the_store() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    let mut test = test.crashed();
    test.ask(A, &from(0));
    assert_eq!(test.world.fetches.len(), 1);
    test.settle_and_free();
    test.serve_readers();
    assert!(matches!(&test.told(A)[..], [Told::Page(page)] if page.bodies == ["a"]));
}

#[test]
fn a_span_that_comes_after_its_row_forgot_it_is_read_from_the_store() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    let mut test = test.crashed();
    test.ask(A, &from(0));
    test.settle_and_free();
    test.world.freed = 0;
    test.serve_readers();
    assert!(matches!(&test.told(A)[..], [Told::Page(page)] if page.bodies == ["a"]));
}

#[test]
fn a_segment_that_goes_without_being_settled_is_an_error() {
    let mut test = Test::new();
    test.put("s", &["a"]).unwrap();
    let mut test = test.crashed();
    test.world.freed = 1;
    assert_eq!(test.page(&from(0)).unwrap_err().reason, Reason::Internal);
}

#[test]
fn history_that_is_not_there_is_an_error_that_names_the_record() {
    let mut test = settled();
    test.ask(A, &from(4));
    let Some(ToControl::ReadHistory { reply_to, .. }) = test.world.told.pop() else { panic!() };
    let nothing = HistorySpan { bytes: Vec::new().into(), first: SeqNum::ZERO, end: SeqNum::ZERO };
    test.shard.on_control(ToShard::History { ticket: reply_to.ticket, result: Ok(nothing) }, &mut test.world);
    let told = test.told(A);
    let [Told::Refused(_, refusal)] = &told[..] else { panic!("{told:?}") };
    assert!(refusal.reason == Reason::Internal && refusal.message.contains("record 4"), "{refusal}");
    assert_eq!(test.world.pages[&A], 0);
}

#[test]
fn damage_in_history_is_an_error_and_no_record() {
    let mut test = settled();
    for cut in [1, 40] {
        test.ask(A, &from(0));
        let Some(ToControl::ReadHistory { reply_to, .. }) = test.world.told.pop() else { panic!() };
        let pos = test.world.entries[1];
        let bytes = test.world.log[pos.offset as usize - PREFIX..(pos.offset + pos.bytes - cut) as usize].to_vec();
        let span = HistorySpan { bytes: bytes.into(), first: SeqNum::ZERO, end: SeqNum::new(2) };
        test.shard.on_control(ToShard::History { ticket: reply_to.ticket, result: Ok(span) }, &mut test.world);
        assert!(matches!(&test.told(A)[..], [Told::Refused(_, it)] if it.reason == Reason::Internal));
    }
}

#[test]
fn readers_that_control_has_no_room_for_ask_again() {
    let mut test = settled();
    test.world.is_control_full = true;
    test.ask(A, &from(4));
    test.shard.hand_over(&mut test.world);
    assert!(test.shard.next_timer().is_some());
    test.world.is_control_full = false;
    test.shard.hand_over(&mut test.world);
    test.serve_readers();
    assert!(matches!(&test.told(A)[..], [Told::Page(page)] if page.bodies.len() == 16));
}

#[test]
fn a_trim_by_time_finds_its_record_in_history() {
    let mut test = settled();
    test.offer(A, &Trim { address: address("s"), to: TrimTo::Timestamp(3_500) }, &[]);
    test.serve_readers();
    test.commit_all();
    assert_eq!(test.told(A), vec![Told::Trimmed(6)]);
    assert_eq!(test.page(&from(6)).unwrap().bodies.len(), 14);
    assert_eq!(test.page(&from(5)).unwrap_err().reason, Reason::Trimmed);
    let told = test.call(A, &StreamGet { address: address("s") });
    assert!(matches!(&told[..], [Told::Stream(answer)] if answer.stream.bytes == 28), "{told:?}");
}

#[test]
fn a_trim_while_history_is_fetched_is_told() {
    let mut test = settled();
    test.ask(A, &from(0));
    test.call(B, &Trim { address: address("s"), to: TrimTo::SeqNum(SeqNum::new(7)) });
    test.serve_readers();
    assert!(matches!(&test.told(A)[..], [Told::Refused(_, it)] if it.reason == Reason::Trimmed));
}

#[test]
fn what_came_from_history_fills_as_many_frames_as_it_can() {
    let mut test = Test::new();
    let body = "x".repeat(200_000);
    for _ in 0..20 {
        test.put("s", &[&body]).unwrap();
    }
    test.settle_and_free();
    let bodies = |told: Told| if let Told::Records(_, page) = told { Some(page.bodies.len()) } else { None };
    let frames = |test: &mut Test, conn| -> Vec<usize> {
        test.serve_readers();
        test.told(conn).into_iter().filter_map(bodies).collect()
    };
    test.call(B, &subscribe(0));
    let told = frames(&mut test, B);
    let before = test.shard.counts.history_reads;
    assert_eq!(told, [1; 20]);
    assert_eq!(before, 20_u64.div_ceil(EXTENT_ENTRIES as u64));

    // With little credit, what is left of it is asked for again.
    let little = Subscribe { credit_bytes: 1, subscription: 6, ..subscribe(0) };
    test.call(C, &little);
    assert_eq!(frames(&mut test, C), [1]);
    assert_eq!(test.shard.counts.history_reads - before, 1);
    let more = wire::message::Credit { subscription: 6, bytes: u32::MAX };
    test.call(C, &more);
    assert_eq!(frames(&mut test, C), [1; 19]);
}

#[test]
fn standard_records_are_read_from_memory_until_the_ring_forgets_them() {
    let mut test = Test::with(ConfigPatch { class: Some(Class::Standard), ..ConfigPatch::default() });
    let body = "x".repeat(1_000_000);
    for n in 0..30u64 {
        assert_eq!(test.put("s", &[&body]).unwrap().start.seq_num.get(), n);
        test.apply_standard();
    }
    let asks_control = |test: &mut Test, start: u64| {
        test.ask(A, &Read { limit: 1, ..from(start) });
        let asks = test.world.told.iter().any(|message| matches!(message, ToControl::ReadHistory { .. }));
        test.serve_readers();
        assert!(matches!(&test.told(A)[..], [Told::Page(page)] if page.start == start && page.bodies.len() == 1));
        asks
    };
    assert!(!asks_control(&mut test, 29) && !asks_control(&mut test, 22));
    assert!(asks_control(&mut test, 0));
    assert!(test.shard.streams.row(0).unwrap().extents.len() < 30, "what left the ring is forgotten");
    for start in 0..30 {
        asks_control(&mut test, start);
    }
}
