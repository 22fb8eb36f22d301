mod course;

use std::collections::BTreeMap;
use std::time::Duration;

use wire::chunk::Settles;
use wire::handoff::Parcel;
use wire::ids::{LogId, Lsn, ShardId};

use super::{Action, Committed, Cut, Put, Rules, Uploads};

const LOG: LogId = LogId::from_bytes([7; 16]);
const SHARD: ShardId = ShardId::new(2);
const RULES: Rules = Rules {
    chunk_bytes: 1_000,
    in_flight: 3,
    standard_age: Duration::from_millis(50),
    settle_age: Duration::from_secs(1),
    stall_after: Duration::from_secs(2),
    puts_per_second_max: 0,
};

/// The core and the time it is told.
struct World {
    core: Uploads,
    now: Duration,
    standard: u64,
    settled: u64,
}

impl World {
    fn new(rules: Rules) -> Self {
        Self::settled_to(rules, BTreeMap::new())
    }

    fn settled_to(rules: Rules, settled_to: BTreeMap<LogId, Lsn>) -> Self {
        let settled = settled_to.get(&LOG).map_or(1, |to| to.get());
        Self { core: Uploads::new(rules, 1, settled_to), now: Duration::from_secs(100), standard: 0, settled }
    }

    fn standard(&mut self, bytes: usize) {
        self.standard += 1;
        self.core.on_standard((SHARD, Lsn::new(self.standard)), parcel(bytes), self.now);
    }

    fn settle(&mut self, bytes: usize) {
        let from = self.settled;
        self.settled += 10;
        self.core.on_settle((SHARD, LOG), (Lsn::new(from), Lsn::new(self.settled)), parcel(bytes), self.now);
    }

    fn later(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    fn poll(&mut self) -> Option<Action> {
        self.core.poll(self.now)
    }

    fn cut(&mut self) -> Cut {
        match self.poll() {
            Some(Action::Put(cut)) => cut,
            other => panic!("a cut was due, not {other:?}"),
        }
    }

    fn done(&mut self, position: u64) {
        self.core.on_put(position, Put::Done, self.now);
    }

    fn fails(&mut self, position: u64) {
        self.core.on_put(position, Put::Failed("out of order".into()), self.now);
    }

    fn committed(&mut self) -> Committed {
        match self.poll() {
            Some(Action::Committed(means)) => means,
            other => panic!("a commit was due, not {other:?}"),
        }
    }

    /// When it wants to be asked again, in milliseconds from now.
    fn wakes_in(&self) -> Option<u64> {
        let at = self.core.wake_at(self.now)?;
        Some(u64::try_from((at - self.now).as_millis()).unwrap())
    }
}

fn parcel(bytes: usize) -> Parcel {
    Parcel { items: Vec::new(), bytes: vec![0; bytes] }
}

fn bytes(cut: &Cut) -> Vec<usize> {
    cut.parcels.iter().map(|parcel| parcel.bytes.len()).collect()
}

#[test]
fn standard_entries_go_at_once_while_nothing_is_in_flight() {
    let mut world = World::new(RULES);
    assert_eq!(world.poll(), None);
    assert_eq!(world.wakes_in(), None);
    world.standard(10);
    let cut = world.cut();
    assert_eq!((cut.position, bytes(&cut)), (1, vec![10]));
    assert_eq!(world.poll(), None);
}

#[test]
fn standard_entries_gather_while_a_chunk_is_in_flight_until_it_ends_they_are_old_or_they_fill_one() {
    let mut world = World::new(RULES);
    world.standard(10);
    world.cut();
    world.standard(20);
    world.standard(30);
    assert_eq!((world.poll(), world.wakes_in()), (None, Some(50)));
    world.done(1);
    assert_eq!(world.committed().standard, [(SHARD, Lsn::new(1))]);
    assert_eq!(bytes(&world.cut()), [20, 30]);
    world.standard(40);
    world.later(49);
    assert_eq!(world.poll(), None);
    world.later(1);
    assert_eq!(bytes(&world.cut()), [40]);
    world.standard(999);
    assert_eq!(world.poll(), None);
    world.standard(1);
    assert_eq!(bytes(&world.cut()), [999, 1]);
}

#[test]
fn entries_to_settle_wait_for_their_age_a_full_chunk_a_flush_or_a_chunk_with_room() {
    let mut world = World::new(RULES);
    world.settle(10);
    assert_eq!((world.poll(), world.wakes_in()), (None, Some(1_000)));
    world.later(1_000);
    assert_eq!(bytes(&world.cut()), [10]);

    world.settle(600);
    world.settle(400);
    assert_eq!(bytes(&world.cut()), [600, 400]);

    world.settle(20);
    world.core.on_flush();
    world.settle(30);
    assert_eq!(bytes(&world.cut()), [20, 30]);
    for position in 1..=3 {
        world.done(position);
        world.committed();
    }
    // Nobody waits for these.
    world.settle(40);
    assert_eq!(world.poll(), None);
    world.standard(1);
    assert_eq!(bytes(&world.cut()), [1, 40]);
}

#[test]
fn standard_goes_first_and_settling_fills_the_rest() {
    let mut world = World::new(RULES);
    world.settle(300);
    world.settle(500);
    world.settle(200);
    world.standard(600);
    assert_eq!(bytes(&world.cut()), [600, 300, 500]);
    world.standard(900);
    world.standard(900);
    assert_eq!(bytes(&world.cut()), [900, 900]);
}

#[test]
fn settling_that_waits_for_long_gets_its_share_of_a_store_that_is_full_of_standard() {
    let mut world = World::new(RULES);
    for _ in 0..4 {
        world.settle(100);
    }
    world.later(4_000);
    for _ in 0..30 {
        world.standard(100);
    }
    let cut = world.cut();
    assert_eq!(bytes(&cut).len(), 11, "750 bytes of standard and 250 to settle, in whole parcels");
    assert_eq!(cut.settles, [Settles { log: LOG, from: Lsn::new(1), to: Lsn::new(31) }]);
}

#[test]
fn no_parcel_is_parted_and_no_chunk_is_made_larger_than_its_bound() {
    let mut world = World::new(Rules { chunk_bytes: 14 << 20, ..RULES });
    world.standard(13 << 20);
    world.standard(3 << 20);
    assert_eq!(bytes(&world.cut()), [13 << 20]);
    world.done(1);
    world.committed();
    assert_eq!(bytes(&world.cut()), [3 << 20]);
    let mut world = World::new(RULES);
    world.standard(40 << 20);
    assert_eq!(bytes(&world.cut()), [40 << 20]);
}

#[test]
fn no_more_than_so_many_chunks_are_in_flight() {
    let mut world = World::new(RULES);
    for position in 1..=3 {
        world.standard(1_000);
        assert_eq!(world.cut().position, position);
    }
    world.standard(1_000);
    assert_eq!(world.poll(), None);
    // One that stands behind one that is under way is not committed, and still counts.
    world.done(2);
    assert_eq!(world.poll(), None);
    world.done(1);
    assert_eq!(world.committed().position, 1);
    assert_eq!(world.committed().position, 2);
    assert_eq!(world.cut().position, 4);
}

#[test]
fn commits_come_in_the_order_of_positions() {
    let mut world = World::new(RULES);
    for _ in 0..3 {
        world.standard(1_000);
        world.cut();
    }
    world.done(3);
    world.done(2);
    assert_eq!(world.poll(), None);
    world.done(1);
    for position in 1..=3 {
        let means = world.committed();
        assert_eq!((means.position, means.standard), (position, vec![(SHARD, Lsn::new(position))]));
    }
    assert!(world.core.is_idle());
}

#[test]
fn a_chunk_says_how_far_every_log_is_settled_without_a_gap() {
    let other = LogId::from_bytes([9; 16]);
    let mut world = World::settled_to(RULES, BTreeMap::from([(LOG, Lsn::new(5)), (other, Lsn::new(77))]));
    world.standard(1);
    let rows = |log, from, to| Settles { log, from: Lsn::new(from), to: Lsn::new(to) };
    assert_eq!(world.cut().settles, [rows(LOG, 5, 5), rows(other, 77, 77)]);
    world.settle(500);
    world.settle(500);
    assert_eq!(world.cut().settles, [rows(LOG, 5, 25), rows(other, 77, 77)]);
    world.settle(2);
    world.standard(1_000);
    assert_eq!(world.cut().settles, [rows(LOG, 25, 25), rows(other, 77, 77)], "there was no room");
    world.done(1);
    world.done(2);
    assert_eq!(world.committed().settled, []);
    assert_eq!(world.committed().settled, [(SHARD, LOG, Lsn::new(24))]);
}

#[test]
#[should_panic(expected = "settled to")]
fn a_gap_in_what_is_settled_is_a_defect() {
    let mut world = World::new(RULES);
    world.settle(1);
    world.settled += 1;
    world.settle(1);
}

#[test]
fn a_put_that_failed_is_made_again_at_its_own_position_ever_more_slowly() {
    let mut world = World::new(Rules { stall_after: Duration::from_secs(3_600), ..RULES });
    world.standard(1);
    world.cut();
    for pause in [50, 100, 200, 400, 800, 1_600, 2_000, 2_000, 2_000] {
        world.fails(1);
        assert_eq!((world.poll(), world.wakes_in()), (None, Some(pause)));
        world.later(pause);
        assert_eq!(world.poll(), Some(Action::Again(1)));
        assert_eq!(world.poll(), None);
    }
    world.done(1);
    assert_eq!(world.committed().position, 1);
}

#[test]
fn a_store_that_commits_nothing_counts_as_stalled_until_it_does() {
    let mut world = World::new(RULES);
    world.standard(1_000);
    world.standard(1_000);
    world.cut();
    world.cut();
    world.done(2);
    world.later(1_999);
    assert_eq!(world.poll(), None);
    world.later(1);
    assert_eq!(world.poll(), Some(Action::Stalled("the store does not answer".into())));
    assert_eq!(world.poll(), None, "it is said once");
    world.done(1);
    assert_eq!(world.poll(), Some(Action::Unstalled));
    assert_eq!(world.committed().position, 1);
    assert_eq!(world.committed().position, 2);
    assert_eq!(world.wakes_in(), None, "an idle store does not stall");

    world.standard(1);
    world.cut();
    world.fails(3);
    world.later(2_000);
    assert_eq!(world.poll(), Some(Action::Again(3)));
    assert_eq!(world.poll(), Some(Action::Stalled("out of order".into())));
}

#[test]
fn puts_a_second_are_bounded_but_for_full_chunks() {
    let mut world = World::new(Rules { puts_per_second_max: 4, in_flight: 100, ..RULES });
    let mut puts = Vec::new();
    let mut position = 0;
    for _ in 0..3_000 {
        world.later(1);
        world.standard(1);
        while let Some(action) = world.poll() {
            if matches!(action, Action::Put(_)) {
                puts.push(world.now);
                position += 1;
                world.done(position);
            }
        }
    }
    // A second's worth at once, then one each 250 ms.
    let within = |ms: u64| puts.iter().filter(|at| **at <= Duration::from_millis(100_000 + ms)).count();
    assert_eq!((within(4), within(249), within(1_001), within(3_000)), (4, 4, 8, 15));
    // Full chunks go at once.
    for _ in 0..5 {
        world.standard(1_000);
        world.cut();
    }
    world.standard(1);
    assert!(world.wakes_in().unwrap() <= 250, "and do not run up a debt: {:?}", world.wakes_in());
}
