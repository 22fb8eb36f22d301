//! Is a sequence number of an Express stream ever given to two records, when the head log with the first of them is lost?
//!
//! One stream on one star. The store knows of the stream what is settled, and of the head log that it is in use. A log that is
//! missed keeps the star from starting until an operator accepts the loss; then the stream goes on behind a gap that is longer
//! than what may be lost. The first log may come back, and the second may be lost too.

use std::fmt;

use stateright::{Model, Property};

use crate::Protocol;

/// The epoch before the first start, in which the stream is made.
const CREATED_IN: u8 = 1;
/// Sequence numbers that a gap gives up.
const JUMP: u8 = 3;
/// Records that are not settled at most; with the rule left out, more than a gap gives up.
const UNSETTLED_MAX: usize = 2;
const UNSETTLED_UNBOUND: usize = 4;

const UNIQUE: &str = "a sequence number that was acked names one record for ever";
const KEPT: &str = "what was acked is there, or its loss was accepted";
const TOLD: &str = "readers are told of what was given up";

/// What the protocol keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A log that is in use and missing keeps the star from starting until its loss is accepted.
    MissingRefuses,
    /// A log is noted in the store as in use before it takes a record.
    NotedBeforeUse,
    /// A log is noted as clean only when all of it is settled.
    CleanWhenSettled,
    /// After an accepted loss a stream goes on behind a gap.
    Jump,
    /// Fewer records are unsettled than a gap gives up.
    UnsettledBelowJump,
    /// The gap is an entry of the stream, before any other.
    GapIsAnEntry,
    /// A gap is as long as for a loss in each epoch since the stream's last entry, so that no two losses end one at the same number.
    GapGrows,
    /// The store remembers in which epoch a loss was last accepted.
    LossRemembered,
    /// A log whose loss was accepted is not read when it comes back.
    ForgottenStaysOut,
}

/// The protocol at its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    left_out: Option<Rule>,
    records: u8,
    starts: u8,
    losses: u8,
}

impl Reserve {
    fn keeps(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Created,
    /// Which record.
    Record(u8),
    Gap,
}

/// An entry of the stream: `from..to` are its sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    epoch: u8,
    rev: u8,
    from: u8,
    to: u8,
    what: What,
}

/// A head log; entries before `settled` are in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Head {
    id: u8,
    entries: Vec<Entry>,
    settled: usize,
}

impl Head {
    fn unsettled(&self) -> &[Entry] {
        &self.entries[self.settled..]
    }
}

/// The star while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Running {
    epoch: u8,
    /// The loss that it knows of.
    loss_epoch: u8,
    has_noted: bool,
    has_mended: bool,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    settled: Vec<Entry>,
    epoch: u8,
    loss_epoch: u8,
    /// The log that the store knows to be in use.
    in_use: Option<u8>,
    head: Option<Head>,
    /// The log that was lost last.
    lost: Option<Head>,
    is_back: bool,
    star: Option<Running>,
    acked: Vec<(u8, u8)>,
    given_up: Vec<(u8, u8)>,
    losses: u8,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The star starts, and accepts losses or not.
    Start(bool),
    /// It notes its log in the store.
    Note,
    /// It enters the gap.
    Mend,
    /// A record becomes durable in the head log and is acked.
    Append,
    /// The oldest unsettled entry comes into the store.
    Settle,
    /// The star dies.
    Crash,
    /// The star stops in order.
    Stop,
    /// The disk with the head log is lost.
    Lose,
    /// It comes back.
    ComeBack,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start(false) => "the star starts",
            Self::Start(true) => "the star starts, and what is lost is accepted",
            Self::Note => "the store notes that its head log is in use",
            Self::Mend => "the stream goes on behind the loss",
            Self::Append => "a record is durable in the head log, and acked",
            Self::Settle => "the oldest unsettled entry comes into the store",
            Self::Crash => "the star dies",
            Self::Stop => "the star stops in order",
            Self::Lose => "the head log is lost",
            Self::ComeBack => "the head log that was lost comes back",
        })
    }
}

fn tail(entries: &[Entry]) -> u8 {
    entries.last().map_or(0, |last| last.to)
}

impl State {
    /// What the star reads: the fold of what is settled and of its logs, by rev.
    fn view(&self, protocol: &Reserve) -> Vec<Entry> {
        let mut view = self.settled.clone();
        let mut rest: Vec<Entry> = Vec::new();
        rest.extend(self.head.iter().flat_map(|head| &head.entries));
        if self.is_back && !protocol.keeps(Rule::ForgottenStaysOut) {
            rest.extend(self.lost.iter().flat_map(|lost| &lost.entries));
        }
        rest.sort_by_key(|entry| (entry.epoch, entry.rev));
        for entry in rest {
            if view.last().map_or(0, |last| last.rev) < entry.rev {
                view.push(entry);
            }
        }
        view
    }

    fn push(&mut self, view: &[Entry], epoch: u8, (from, to): (u8, u8), what: What) {
        let rev = view.last().map_or(0, |last| last.rev) + 1;
        let head = self.head.as_mut().expect("a star that runs has a head log");
        head.entries.push(Entry { epoch, rev, from, to, what });
    }

    fn start(&mut self, protocol: &Reserve, accepts: bool) -> Option<()> {
        let is_missed = self.in_use.is_some() && self.in_use != self.head.as_ref().map(|head| head.id);
        let is_foreign = self.is_back && protocol.keeps(Rule::ForgottenStaysOut);
        let refuses = (is_missed && protocol.keeps(Rule::MissingRefuses)) || is_foreign;
        if accepts != refuses {
            return None;
        }
        self.epoch += 1;
        let mut loss_epoch = self.loss_epoch;
        if accepts {
            if let Some(lost) = self.lost.as_ref().filter(|_| is_missed) {
                let given_up = lost.unsettled().iter();
                self.given_up.extend(given_up.filter_map(|entry| match entry.what {
                    What::Record(record) => Some((entry.from, record)),
                    What::Created | What::Gap => None,
                }));
                loss_epoch = self.epoch;
            }
            if std::mem::take(&mut self.is_back) {
                // Set aside.
                self.lost = None;
            }
        }
        if protocol.keeps(Rule::LossRemembered) {
            self.loss_epoch = loss_epoch;
        }
        if is_missed {
            self.in_use = None;
        }
        if self.head.is_none() {
            self.head = Some(Head { id: self.epoch, entries: Vec::new(), settled: 0 });
        }
        let id = self.head.as_ref().map(|head| head.id);
        let has_noted = self.in_use.is_some() && self.in_use == id;
        let row_epoch = self.view(protocol).last().map_or(0, |last| last.epoch);
        let has_mended = row_epoch >= loss_epoch;
        self.star = Some(Running { epoch: self.epoch, loss_epoch, has_noted, has_mended });
        Some(())
    }

    fn mend(&mut self, protocol: &Reserve) {
        let (view, mut star) = (self.view(protocol), self.star.expect("it runs"));
        if protocol.keeps(Rule::Jump) && protocol.keeps(Rule::GapIsAnEntry) {
            let from = tail(&view);
            let row_epoch = view.last().map_or(0, |last| last.epoch);
            let times = if protocol.keeps(Rule::GapGrows) { star.loss_epoch - row_epoch } else { 1 };
            self.push(&view, star.epoch, (from, from + JUMP * times), What::Gap);
        }
        star.has_mended = true;
        self.star = Some(star);
    }

    fn append(&mut self, protocol: &Reserve) {
        let (view, star) = (self.view(protocol), self.star.expect("it runs"));
        let is_first = star.loss_epoch == star.epoch && view.last().is_some_and(|last| last.epoch < star.epoch);
        let leaps = is_first && !protocol.keeps(Rule::GapIsAnEntry);
        let from = tail(&view) + if leaps { JUMP } else { 0 };
        let record = u8::try_from(self.acked.len()).expect("few are acked");
        self.push(&view, star.epoch, (from, from + 1), What::Record(record));
        self.acked.push((from, record));
    }

    fn settle(&mut self) {
        let head = self.head.as_mut().expect("there is one that is not settled");
        let entry = head.entries[head.settled];
        head.settled += 1;
        if self.settled.last().map_or(0, |last| last.rev) < entry.rev {
            self.settled.push(entry);
        }
    }

    fn stop(&mut self, protocol: &Reserve) {
        let is_settled = self.head.as_ref().is_none_or(|head| head.unsettled().is_empty());
        if is_settled || !protocol.keeps(Rule::CleanWhenSettled) {
            self.in_use = None;
        }
        self.star = None;
    }

    /// Whether a record may be acked now.
    fn takes_records(&self, protocol: &Reserve, star: Running) -> bool {
        let unsettled = self.head.as_ref().map_or(&[][..], Head::unsettled);
        let records = unsettled.iter().filter(|entry| entry.what != What::Gap).count();
        let max = if protocol.keeps(Rule::UnsettledBelowJump) { UNSETTLED_MAX } else { UNSETTLED_UNBOUND };
        star.has_mended && (star.has_noted || !protocol.keeps(Rule::NotedBeforeUse)) && records < max
    }
}

impl Protocol for Reserve {
    type Rule = Rule;

    const RULES: &'static [(Rule, &'static str)] = &[
        (Rule::MissingRefuses, KEPT),
        (Rule::NotedBeforeUse, KEPT),
        (Rule::CleanWhenSettled, KEPT),
        (Rule::Jump, UNIQUE),
        (Rule::UnsettledBelowJump, UNIQUE),
        (Rule::GapIsAnEntry, TOLD),
        (Rule::GapGrows, UNIQUE),
        (Rule::LossRemembered, UNIQUE),
        (Rule::ForgottenStaysOut, TOLD),
    ];

    fn bounds(&self) -> String {
        let Self { records, starts, losses, .. } = self;
        format!(
            "{records} records, {starts} starts, {losses} losses; gaps of {JUMP} and more, {UNSETTLED_MAX} records unsettled"
        )
    }

    fn without(left_out: Option<Rule>) -> Vec<Self> {
        vec![Self { left_out, records: 5, starts: 4, losses: 2 }]
    }
}

impl Model for Reserve {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // A stream of which the store has nothing is gone with its log, name and all.
        let created = Entry { epoch: CREATED_IN, rev: 1, from: 0, to: 0, what: What::Created };
        vec![State {
            settled: vec![created],
            epoch: CREATED_IN,
            loss_epoch: 0,
            in_use: None,
            head: None,
            lost: None,
            is_back: false,
            star: None,
            acked: Vec::new(),
            given_up: Vec::new(),
            losses: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Some(star) = state.star else {
            if state.epoch < CREATED_IN + self.starts {
                actions.extend([Action::Start(false), Action::Start(true)]);
            }
            if state.head.is_some() && state.losses < self.losses {
                actions.push(Action::Lose);
            }
            if state.lost.is_some() && !state.is_back {
                actions.push(Action::ComeBack);
            }
            return;
        };
        actions.extend([Action::Crash, Action::Stop]);
        if !star.has_noted {
            actions.push(Action::Note);
        }
        if !star.has_mended && (star.has_noted || !self.keeps(Rule::NotedBeforeUse)) {
            actions.push(Action::Mend);
        }
        if state.acked.len() < usize::from(self.records) && state.takes_records(self, star) {
            actions.push(Action::Append);
        }
        if state.head.as_ref().is_some_and(|head| !head.unsettled().is_empty()) {
            actions.push(Action::Settle);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Start(accepts) => next.start(self, accepts)?,
            Action::Note => {
                next.in_use = next.head.as_ref().map(|head| head.id);
                next.star = next.star.map(|star| Running { has_noted: true, ..star });
            }
            Action::Mend => next.mend(self),
            Action::Append => next.append(self),
            Action::Settle => next.settle(),
            Action::Crash => next.star = None,
            Action::Stop => next.stop(self),
            Action::Lose => {
                (next.lost, next.is_back) = (next.head.take(), false);
                next.losses += 1;
            }
            Action::ComeBack => {
                let is_missed = next.in_use == next.lost.as_ref().map(|lost| lost.id) && next.in_use.is_some();
                if is_missed && next.head.is_none() {
                    // In time: nobody has given it up.
                    next.head = next.lost.take();
                } else {
                    next.is_back = true;
                }
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(UNIQUE, |_, state: &State| {
                let is_twice = |(at, one): &(u8, u8)| state.acked.iter().any(|(seq, other)| seq == at && other != one);
                !state.acked.iter().any(is_twice)
            }),
            Property::always(KEPT, |protocol: &Self, state: &State| {
                let view = state.view(protocol);
                let is_there = |(seq, record): &(u8, u8)| {
                    view.iter().any(|entry| entry.from == *seq && entry.what == What::Record(*record))
                };
                let is_kept = |one: &(u8, u8)| is_there(one) || state.given_up.contains(one);
                state.star.is_none() || state.acked.iter().all(is_kept)
            }),
            Property::always(TOLD, |protocol: &Self, state: &State| {
                let view = state.view(protocol);
                state.star.is_none() || view.windows(2).all(|pair| pair[0].to == pair[1].from)
            }),
            Property::sometimes("two losses are accepted, and records are acked after each", |_, state: &State| {
                let last = state.acked.last().map_or(0, |(seq, _)| *seq);
                state.losses == 2 && state.given_up.len() > 1 && last >= 2 * JUMP
            }),
            Property::sometimes("a log that was lost comes back in time", |_, state: &State| {
                let has_first = state.head.as_ref().is_some_and(|head| head.id == CREATED_IN + 1);
                state.losses > 0 && has_first && state.star.is_some()
            }),
        ]
    }
}
