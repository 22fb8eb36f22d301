//! Whatever comes in, and however its puts end, everything is committed once and in order.

use std::collections::VecDeque;

use proptest::prelude::*;
use wire::chunk::Settles;
use wire::ids::Lsn;

use super::super::{Action, Committed, Rules};
use super::{RULES, World};

#[derive(Debug, Clone)]
enum Step {
    Standard {
        bytes: usize,
    },
    Settle {
        bytes: usize,
    },
    Later {
        ms: u64,
    },
    Flush,
    /// A put that is under way ends.
    Ends {
        which: usize,
        stands: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..1_200_usize).prop_map(|bytes| Step::Standard { bytes }),
        (0..1_200_usize).prop_map(|bytes| Step::Settle { bytes }),
        (0..900_u64).prop_map(|ms| Step::Later { ms }),
        Just(Step::Flush),
        (0..3_usize, prop::bool::weighted(0.6)).prop_map(|(which, stands)| Step::Ends { which, stands }),
    ]
}

/// A store that answers as it is told, and what was said to be committed.
struct Course {
    world: World,
    flying: VecDeque<u64>,
    spans: Vec<Settles>,
    /// Parcels that were handed over, and those that were cut.
    parcels: (usize, usize),
    standard: u64,
    settled_to: u64,
    next_position: u64,
}

impl Course {
    fn new(puts_per_second_max: u32) -> Self {
        Self {
            world: World::new(Rules { puts_per_second_max, ..RULES }),
            flying: VecDeque::new(),
            spans: Vec::new(),
            parcels: (0, 0),
            standard: 0,
            settled_to: 1,
            next_position: 1,
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Standard { bytes } => {
                self.parcels.0 += 1;
                self.world.standard(bytes);
            }
            Step::Settle { bytes } => {
                self.parcels.0 += 1;
                self.world.settle(bytes);
            }
            Step::Later { ms } => self.world.later(ms),
            Step::Flush => self.world.core.on_flush(),
            Step::Ends { which, stands } => self.answer(which, stands),
        }
        self.act();
    }

    fn answer(&mut self, which: usize, stands: bool) {
        let under_way = self.flying.len().max(1);
        let Some(position) = self.flying.remove(which % under_way) else { return };
        if stands {
            self.world.done(position);
        } else {
            self.world.fails(position);
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.world.poll() {
            match action {
                Action::Put(cut) => {
                    self.parcels.1 += cut.parcels.len();
                    self.spans.extend(cut.settles);
                    self.flying.push_back(cut.position);
                    assert!(self.flying.len() <= RULES.in_flight);
                }
                Action::Again(position) => self.flying.push_back(position),
                Action::Committed(means) => self.check(&means),
                Action::Stalled(_) | Action::Unstalled => {}
            }
        }
    }

    fn check(&mut self, means: &Committed) {
        assert_eq!(means.position, self.next_position);
        self.next_position += 1;
        for (_, upto) in &means.standard {
            assert!(upto.get() > self.standard);
            self.standard = upto.get();
        }
        for (_, _, last) in &means.settled {
            assert!(last.get() >= self.settled_to);
            self.settled_to = last.get() + 1;
        }
    }

    /// Until nothing is left to do; time passes only where the core wants to be woken.
    fn end(&mut self) {
        for _ in 0..5_000 {
            if self.world.core.is_idle() {
                return self.is_whole();
            }
            self.answer(0, true);
            self.act();
            if self.flying.is_empty() && !self.world.core.is_idle() {
                self.world.now = self.world.core.wake_at(self.world.now).expect("something is still to be done");
                self.act();
            }
        }
        panic!("it does not end");
    }

    fn is_whole(&self) {
        assert_eq!((self.standard, self.settled_to), (self.world.standard, self.world.settled));
        assert_eq!(self.parcels.0, self.parcels.1, "each parcel is in one chunk");
        assert!(self.spans.windows(2).all(|pair| pair[0].to == pair[1].from), "{:?}", self.spans);
        assert!(self.spans.last().is_none_or(|last| last.to == Lsn::new(self.world.settled)));
    }
}

proptest! {
    #[test]
    fn any_course_of_events_commits_everything_once_and_in_order(
        puts_per_second_max in prop_oneof![Just(0), Just(2), Just(40)],
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut course = Course::new(puts_per_second_max);
        steps.iter().for_each(|step| course.take(step));
        course.end();
    }
}
