//! Does a slot lose anything, or give a sequence number twice, when it passes from one owner to the next?
//!
//! One slot with one stream, and three owners, each with a log of its own: stars with their channels, or the shards of a star with
//! their head logs. The slot is handed on in order, or taken from an owner that may be alive and goes on. Both kinds of logs are
//! sealed before they are read: a channel by its fence, a head log by the lock that no process but one can hold. How a channel is
//! written and sealed is the question of [`channel`](crate::channel); here an entry of a log stands or does not.

use std::fmt;

use stateright::{Model, Property};

use crate::Protocol;

const OWNERS: usize = 3;
const RECORDS: u8 = 3;

const KEPT: &str = "what was acked is there for the next owner";
const UNIQUE: &str = "a sequence number that was acked names one record for ever";
const WHOLE: &str = "no entry is missing before one that is folded";

/// What the protocol keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A log is sealed before it is read by who takes the slot.
    SealFirst,
    /// After the entry that releases the slot, its owner enters nothing more.
    ReleaseStops,
    /// The slot passes on once that entry stands.
    ReleaseStands,
    /// Express records are in the channel before the slot is released.
    SettleFirst,
    /// An Express record is acked only while the lease of its owner holds.
    ExpressByLease,
    /// No entry enters the channel before those in the head log stand in it, nor the head log before those in the channel stand.
    OneLane,
    /// The same change names the new owner and the log that it must read.
    OneChange,
    /// The new owner reads every log that is named.
    EveryLogRead,
    /// Logs are folded in the order of their epochs.
    OldestFirst,
    /// A log is named until the durable index has all of it.
    NamedUntilIndexed,
    /// Who opens the index keeps every earlier owner from sending its own.
    IndexFenced,
}

/// The protocol at its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    left_out: Option<Rule>,
}

impl Slots {
    fn keeps(self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }
}

/// An entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    /// A record, with its place in the stream.
    Record {
        seq: u8,
        record: u8,
    },
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Away,
    Serving,
    /// The slot is released, and not passed on yet.
    Releasing,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Owner {
    phase: Phase,
    log: Vec<Entry>,
    /// Entries of the log that stand, and those of them that the owner has heard of.
    standing: u8,
    heard: u8,
    /// Where the log is sealed.
    end: Option<u8>,
    /// Express records that are acked and not in the log.
    head: Vec<Entry>,
    view: Vec<u8>,
}

/// The durable index: what is in it, up to where of each log, and for which owner it is open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Index {
    view: Vec<u8>,
    applied: [u8; OWNERS],
    opened_by: u8,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    owner: u8,
    /// Logs that the owner must read, each up to where.
    named: [Option<u8>; OWNERS],
    /// One that is to be named by a change that has not come.
    unnamed: Option<(u8, u8)>,
    owners: [Owner; OWNERS],
    index: Index,
    acked: Vec<(u8, u8)>,
    records: u8,
    has_hole: bool,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A record enters an owner's log.
    Append(u8),
    /// A record enters its head log, and is acked.
    AppendExpress(u8),
    /// The oldest of these enters its channel.
    Settle(u8),
    /// The next entry of its log stands.
    Stand(u8),
    /// The owner hears of it, and acks it.
    Hear(u8),
    /// The owner sends what is in its log and before to the index.
    Checkpoint(u8),
    /// The owner enters that it releases the slot.
    Release(u8),
    /// The owner passes the slot on.
    PassOn(u8),
    /// The log of an owner is sealed.
    Seal(u8),
    /// The slot is taken from an owner.
    TakeFrom(u8),
    /// The log of the owner before is named.
    Name,
    /// The new owner opens the index, reads the logs that are named, and serves.
    Open(u8),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |owner: u8| char::from(b'A' + owner);
        match *self {
            Self::Append(owner) => write!(f, "a record enters the log of {}", name(owner)),
            Self::AppendExpress(owner) => {
                write!(f, "an Express record enters the head log of {}, and is acked", name(owner))
            }
            Self::Settle(owner) => write!(f, "the Express record enters the channel of {}", name(owner)),
            Self::Stand(owner) => write!(f, "the next entry of {} stands", name(owner)),
            Self::Hear(owner) => write!(f, "{} hears of it, and acks it", name(owner)),
            Self::Checkpoint(owner) => write!(f, "{} sends its index to the store", name(owner)),
            Self::Release(owner) => write!(f, "{} enters that it releases the slot", name(owner)),
            Self::PassOn(owner) => write!(f, "{} passes the slot on to {}", name(owner), name(owner + 1)),
            Self::Seal(owner) => write!(f, "{} seals the log of {}", name(owner + 1), name(owner)),
            Self::TakeFrom(owner) => write!(f, "{} takes the slot from {}", name(owner + 1), name(owner)),
            Self::Name => f.write_str("the log that the new owner must read is named"),
            Self::Open(owner) => {
                write!(f, "{} opens the index, reads the logs that are named, and serves", name(owner))
            }
        }
    }
}

fn index(of: u8) -> usize {
    usize::from(of)
}

fn small(of: usize) -> u8 {
    u8::try_from(of).expect("owners and records are few")
}

/// Folds an entry onto what is there; answers whether something before it is missing.
fn fold(view: &mut Vec<u8>, entry: Entry) -> bool {
    let Entry::Record { seq, record } = entry else { return false };
    if index(seq) == view.len() {
        view.push(record);
    }
    index(seq) >= view.len()
}

impl State {
    fn of(&mut self, owner: u8) -> &mut Owner {
        &mut self.owners[index(owner)]
    }

    fn next_record(&mut self, owner: u8) -> Entry {
        let record = self.records;
        self.records += 1;
        let view = &mut self.of(owner).view;
        let seq = small(view.len());
        view.push(record);
        Entry::Record { seq, record }
    }

    fn ack(&mut self, entry: Entry) {
        if let Entry::Record { seq, record } = entry
            && !self.acked.contains(&(seq, record))
        {
            self.acked.push((seq, record));
        }
    }

    /// One change of the map: the next owner, and what it must read of this one.
    fn pass(&mut self, protocol: Slots, owner: u8, end: u8) {
        self.owner = owner + 1;
        if protocol.keeps(Rule::OneChange) {
            self.named[index(owner)] = Some(end);
        } else {
            self.unnamed = Some((owner, end));
        }
    }

    fn checkpoint(&mut self, protocol: Slots, owner: u8) {
        if self.index.opened_by != owner && protocol.keeps(Rule::IndexFenced) {
            return;
        }
        let own = &self.owners[index(owner)];
        // What is ahead of its log's end is in memory alone.
        let pending = own.log[index(own.heard)..].iter().chain(&own.head);
        let pending = pending.filter(|entry| **entry != Entry::Release).count();
        let view = own.view[..own.view.len() - pending].to_vec();
        let mut applied = [0; OWNERS];
        for (at, end) in self.owners[..index(owner)].iter().map(|earlier| earlier.end).enumerate() {
            applied[at] = end.unwrap_or(0);
        }
        applied[index(owner)] = own.heard;
        self.index = Index { view, applied, opened_by: self.index.opened_by };
        if self.owner == owner {
            self.named = [None; OWNERS];
        }
    }

    fn open(&mut self, protocol: Slots, owner: u8) {
        self.index.opened_by = owner;
        let mut view = self.index.view.clone();
        let mut logs: Vec<usize> = (0..OWNERS).filter(|log| self.named[*log].is_some()).collect();
        if !protocol.keeps(Rule::OldestFirst) {
            logs.reverse();
        }
        if !protocol.keeps(Rule::EveryLogRead) {
            logs = logs.split_off(logs.len().saturating_sub(1));
        }
        for log in logs {
            let Owner { log: entries, standing, .. } = &self.owners[log];
            let end = self.named[log].unwrap_or(0).min(*standing);
            let from = self.index.applied[log].min(end);
            for entry in &entries[index(from)..index(end)] {
                self.has_hole |= fold(&mut view, *entry);
            }
        }
        if !protocol.keeps(Rule::NamedUntilIndexed) {
            self.named = [None; OWNERS];
        }
        let own = self.of(owner);
        (own.view, own.phase) = (view, Phase::Serving);
    }

    fn log_actions(&self, protocol: Slots, owner: u8, actions: &mut Vec<Action>) {
        let own = &self.owners[index(owner)];
        let is_released = own.log.contains(&Entry::Release);
        let goes_on = is_released && own.phase != Phase::Away && !protocol.keeps(Rule::ReleaseStops);
        let has_room = self.records < RECORDS;
        let mixes = !protocol.keeps(Rule::OneLane);
        let may_append = mixes || (own.head.is_empty() && self.express_stands(owner));
        if has_room && may_append && (own.phase == Phase::Serving || goes_on) {
            actions.push(Action::Append(owner));
        }
        // Whoever seals its log has its lease first.
        let has_lease = (self.owner == owner && own.end.is_none()) || !protocol.keeps(Rule::ExpressByLease);
        let may_express = own.head.is_empty() && (mixes || index(own.standing) == own.log.len());
        if has_room && may_express && own.phase == Phase::Serving && has_lease {
            actions.push(Action::AppendExpress(owner));
        }
        let is_open = own.end.is_none_or(|end| own.standing < end);
        if index(own.standing) < own.log.len() && is_open {
            actions.push(Action::Stand(owner));
        }
        if own.heard < own.standing {
            actions.push(Action::Hear(owner));
        }
        if own.phase == Phase::Serving && !own.head.is_empty() {
            actions.push(Action::Settle(owner));
        }
        if own.phase != Phase::Away {
            actions.push(Action::Checkpoint(owner));
        }
    }

    fn move_actions(&self, protocol: Slots, owner: u8, actions: &mut Vec<Action>) {
        let own = &self.owners[index(owner)];
        let is_owner = self.owner == owner;
        if own.phase == Phase::Away && is_owner {
            actions.push(Action::Open(owner));
        }
        if index(owner) + 1 == OWNERS || own.phase == Phase::Away {
            return;
        }
        let is_settled = own.head.is_empty() || !protocol.keeps(Rule::SettleFirst);
        if own.phase == Phase::Serving && is_owner && is_settled {
            actions.push(Action::Release(owner));
        }
        let release = own.log.iter().position(|entry| *entry == Entry::Release).map(small);
        let stands = release.is_some_and(|at| at < own.heard) || !protocol.keeps(Rule::ReleaseStands);
        if own.phase == Phase::Releasing && is_owner && stands {
            actions.push(Action::PassOn(owner));
        }
        // A slot with Express records that are in a head log alone waits for it.
        let may_take = is_owner && own.head.is_empty() && self.express_stands(owner);
        if may_take && own.end.is_none() && protocol.keeps(Rule::SealFirst) {
            actions.push(Action::Seal(owner));
        }
        if may_take && (own.end.is_some() || !protocol.keeps(Rule::SealFirst)) {
            actions.push(Action::TakeFrom(owner));
        }
    }

    /// Whether everything that an owner has acked stands in its log.
    fn express_stands(&self, owner: u8) -> bool {
        let own = &self.owners[index(owner)];
        let is_acked = |entry: &Entry| match entry {
            Entry::Record { seq, record } => self.acked.contains(&(*seq, *record)),
            Entry::Release => false,
        };
        !own.log[index(own.standing)..].iter().any(is_acked)
    }
}

impl Protocol for Slots {
    type Rule = Rule;

    const RULES: &'static [(Rule, &'static str)] = &[
        (Rule::SealFirst, KEPT),
        (Rule::ReleaseStops, KEPT),
        (Rule::ReleaseStands, KEPT),
        (Rule::SettleFirst, KEPT),
        (Rule::ExpressByLease, KEPT),
        (Rule::OneLane, WHOLE),
        (Rule::OneChange, KEPT),
        (Rule::EveryLogRead, KEPT),
        (Rule::OldestFirst, WHOLE),
        (Rule::NamedUntilIndexed, KEPT),
        (Rule::IndexFenced, KEPT),
    ];

    fn bounds(&self) -> String {
        format!("{OWNERS} owners, {RECORDS} records")
    }

    fn without(left_out: Option<Rule>) -> Vec<Self> {
        vec![Self { left_out }]
    }
}

impl Model for Slots {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let away = Owner {
            phase: Phase::Away,
            log: Vec::new(),
            standing: 0,
            heard: 0,
            end: None,
            head: Vec::new(),
            view: Vec::new(),
        };
        let mut owners = [away.clone(), away.clone(), away];
        owners[0].phase = Phase::Serving;
        let index = Index { view: Vec::new(), applied: [0; OWNERS], opened_by: 0 };
        let named = [None; OWNERS];
        let acked = Vec::new();
        vec![State { owner: 0, named, unnamed: None, owners, index, acked, records: 0, has_hole: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for owner in 0..small(OWNERS) {
            state.log_actions(*self, owner, actions);
            state.move_actions(*self, owner, actions);
        }
        if state.unnamed.is_some() {
            actions.push(Action::Name);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Append(owner) => {
                let entry = next.next_record(owner);
                next.of(owner).log.push(entry);
            }
            Action::AppendExpress(owner) => {
                let entry = next.next_record(owner);
                next.of(owner).head.push(entry);
                next.ack(entry);
            }
            Action::Settle(owner) => {
                let own = next.of(owner);
                let entry = own.head.remove(0);
                own.log.push(entry);
            }
            Action::Stand(owner) => next.of(owner).standing += 1,
            Action::Hear(owner) => {
                let own = next.of(owner);
                let entry = own.log[index(own.heard)];
                own.heard += 1;
                next.ack(entry);
            }
            Action::Checkpoint(owner) => next.checkpoint(*self, owner),
            Action::Release(owner) => {
                let own = next.of(owner);
                own.log.push(Entry::Release);
                own.phase = Phase::Releasing;
            }
            Action::PassOn(owner) => {
                let own = next.of(owner);
                own.phase = Phase::Gone;
                let release = own.log.iter().position(|entry| *entry == Entry::Release)?;
                next.pass(*self, owner, small(release) + 1);
            }
            Action::Seal(owner) => {
                let own = next.of(owner);
                own.end = Some(own.standing);
            }
            Action::TakeFrom(owner) => {
                let own = next.of(owner);
                let end = own.end.unwrap_or(own.standing);
                next.pass(*self, owner, end);
            }
            Action::Name => {
                let (owner, end) = next.unnamed.take()?;
                next.named[index(owner)] = Some(end);
            }
            Action::Open(owner) => next.open(*self, owner),
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, state: &State| {
                let owner = &state.owners[index(state.owner)];
                let is_there = |(seq, record): &(u8, u8)| owner.view.get(index(*seq)) == Some(record);
                owner.phase == Phase::Away || state.acked.iter().all(is_there)
            }),
            Property::always(UNIQUE, |_, state: &State| {
                let is_twice = |(at, one): &(u8, u8)| state.acked.iter().any(|(seq, other)| seq == at && other != one);
                !state.acked.iter().any(is_twice)
            }),
            Property::always(WHOLE, |_, state: &State| !state.has_hole),
            Property::sometimes("the last owner acks after two that were handed on", |_, state: &State| {
                let are_gone = state.owners[..2].iter().all(|owner| owner.phase == Phase::Gone);
                are_gone && state.acked.len() == index(RECORDS) && state.owners[2].heard > 0
            }),
            Property::sometimes("an owner goes on after the slot was taken from it", |_, state: &State| {
                let own = &state.owners[0];
                state.owner == 2 && own.phase == Phase::Serving && index(own.standing) < own.log.len()
            }),
        ]
    }
}
