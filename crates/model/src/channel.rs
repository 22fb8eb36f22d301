//! Is what a star was told to be committed ever lost to those that take over its channel, whatever its puts still do?
//!
//! Three stars write to one store, each with a channel: the first writes, the second takes over and writes too, the third takes
//! over from both. None knows whether the others are dead, and none ever is: each may go on at any time. A put may reach the
//! store late or not at all, twice, or without its answer coming back. The first star also deletes chunks that the index has.

use std::fmt;

use stateright::{Model, Property};

use crate::Protocol;

const STARS: usize = 3;
/// Positions of a channel: the first begins it, the others hold records.
const POSITIONS: usize = 5;

const KEPT: &str = "what was acked is found by whoever took over";
const ONE_END: &str = "a channel has one end";

/// What the protocol keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A put makes an object only where there is none.
    CreateIfAbsent,
    /// A put that finds an object is taken for done only when that is its own.
    ReadBack,
    /// A put that is sent again sends the same bytes.
    SameBytesAgain,
    /// A chunk is acked once it and every one before it stands.
    AckInOrder,
    /// The lease is taken before the fence is put, so that its low and hint stand still.
    LeaseFirst,
    /// The hint is a position before which all is committed.
    HintIsCommitted,
    /// The low is published before a chunk is deleted.
    LowFirst,
    /// The fence takes the first absent position.
    FirstAbsent,
    /// A fence that is there is the end, whoever put it.
    AnyFenceEnds,
    /// A fence is never deleted.
    FenceStays,
    /// What a channel holds is read once its fence stands.
    ReadBehindFence,
    /// A channel is noted, for those that come later, by the change that gives out its incarnation.
    NotedWhenTaken,
}

/// The protocol at its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    left_out: Option<Rule>,
    /// Records that each star appends, one a chunk.
    chunks: [u8; STARS],
    /// How often a put is sent.
    sends: u8,
    /// Stars that there are.
    stars: usize,
}

impl Channel {
    fn keeps(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }
}

/// What stands at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Object {
    Absent,
    /// The bytes of the first send, or of the second if they differ.
    Chunk(u8),
    Fence,
    Deleted,
}

/// A chunk as its star sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Put {
    sent: u8,
    /// Sends that have not reached the store, of the first bytes and of others.
    under_way: [u8; 2],
    /// The store found another object.
    is_refused: bool,
    is_done: bool,
    is_acked: bool,
}

/// How far a star is with taking over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Away,
    /// Of these channels, a bit each, it has no end yet.
    Sealing {
        left: u8,
        /// Where it looks for the end of the first of them; nothing before it has its lease.
        at: Option<u8>,
    },
    Writing,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Star {
    phase: Phase,
    puts: [Put; POSITIONS],
    /// What it found of each earlier channel, a bit a position; and the end that it found.
    found: [u8; STARS],
    ends: [Option<u8>; STARS],
}

/// What a star's lease says of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lease {
    low: u8,
    hint: u8,
    is_fenced: bool,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    objects: [[Object; POSITIONS]; STARS],
    leases: [Lease; STARS],
    stars: [Star; STARS],
    /// Who has the store, and the channels that are noted and have no end, a bit each.
    owner: u8,
    open: u8,
    /// Chunks of the first channel before this position are in the durable index.
    indexed_to: u8,
}

/// A step of a star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It sends the put of a position.
    Send(u8, u8),
    /// A send reaches the store.
    Arrive {
        /// Whose.
        star: u8,
        /// Which position.
        at: u8,
        /// Which bytes.
        version: u8,
        /// Whether the star hears of it.
        is_heard: bool,
    },
    /// It reads what stands where its put was refused.
    Look(u8, u8),
    /// It acks a chunk.
    Ack(u8, u8),
    /// The index has one more of its chunks durably.
    Index,
    /// It publishes a low and a hint.
    Publish,
    /// It deletes a chunk.
    Delete(u8),
    /// It takes the store.
    Take(u8),
    /// It takes the lease of a channel's star.
    TakeLease(u8, u8),
    /// It tries to put a fence.
    Fence(u8, u8),
    /// It notes the ends that it found, and begins its channel.
    Begin(u8),
    /// It deletes the fence of an earlier channel.
    DeleteFence(u8, u8),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |star: u8| char::from(b'A' + star);
        match *self {
            Self::Send(star, at) => write!(f, "{} sends the put of position {at}", name(star)),
            Self::Arrive { star, at, version, is_heard } => {
                let bytes = if version == 0 { "a" } else { "another" };
                let heard = if is_heard { "is answered" } else { "its answer is lost" };
                write!(f, "{bytes} put of {}'s position {at} reaches the store, and {heard}", name(star))
            }
            Self::Look(star, at) => write!(f, "{} looks at what stands at position {at}", name(star)),
            Self::Ack(star, at) => write!(f, "{} acks what is in position {at}", name(star)),
            Self::Index => f.write_str("the index has one more of A's chunks durably"),
            Self::Publish => f.write_str("A publishes its low and its hint"),
            Self::Delete(at) => write!(f, "A deletes position {at}"),
            Self::Take(star) => write!(f, "{} takes an incarnation", name(star)),
            Self::TakeLease(star, of) => write!(f, "{} takes the lease of {}", name(star), name(of)),
            Self::Fence(star, of) => {
                write!(f, "{} puts a fence at the next position of {}, or finds what is there", name(star), name(of))
            }
            Self::Begin(star) => write!(f, "{} notes the ends, reads what is before them, and begins", name(star)),
            Self::DeleteFence(star, of) => write!(f, "{} deletes the fence of {}", name(star), name(of)),
        }
    }
}

fn bits(of: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |bit| of & (1 << bit) != 0)
}

fn index(of: u8) -> usize {
    usize::from(of)
}

fn small(of: usize) -> u8 {
    u8::try_from(of).expect("stars and positions are few")
}

impl State {
    /// Position before which every chunk was acked.
    fn acked_to(&self, star: usize) -> u8 {
        small(self.stars[star].puts.iter().take_while(|put| put.is_acked).count())
    }

    fn arrive(&mut self, protocol: &Channel, (star, at, version): (usize, usize, u8), is_heard: bool) {
        let put = &mut self.stars[star].puts[at];
        put.under_way[index(version)] -= 1;
        let object = &mut self.objects[star][at];
        // A name that was deleted is free again.
        let is_free = matches!(object, Object::Absent | Object::Deleted);
        if is_free || !protocol.keeps(Rule::CreateIfAbsent) {
            *object = Object::Chunk(version);
            put.is_done |= is_heard;
        } else if is_heard {
            put.is_refused = !put.is_done;
        }
    }

    /// A put was refused: what stands there is its own chunk, or another's, and then its channel is over.
    fn look(&mut self, protocol: &Channel, star: usize, at: usize) {
        let is_own = matches!(self.objects[star][at], Object::Chunk(_)) || !protocol.keeps(Rule::ReadBack);
        let this = &mut self.stars[star];
        this.puts[at].is_refused = false;
        if is_own {
            this.puts[at].is_done = true;
        } else {
            this.phase = Phase::Over;
        }
    }

    fn publish(&mut self, protocol: &Channel) {
        let acked_to = self.acked_to(0);
        let sent_to = small(self.stars[0].puts.iter().take_while(|put| put.sent > 0).count());
        let lease = &mut self.leases[0];
        lease.low = self.indexed_to;
        lease.hint = if protocol.keeps(Rule::HintIsCommitted) { acked_to } else { sent_to };
    }

    fn take(&mut self, protocol: &Channel, star: usize) {
        self.owner = small(star);
        let left = self.open;
        if protocol.keeps(Rule::NotedWhenTaken) {
            self.open |= 1 << star;
        }
        self.stars[star].phase = Phase::Sealing { left, at: None };
    }

    fn take_lease(&mut self, protocol: &Channel, star: usize, of: usize) -> Option<()> {
        let Phase::Sealing { left, at: None } = self.stars[star].phase else { return None };
        self.leases[of].is_fenced |= protocol.keeps(Rule::LeaseFirst);
        let Lease { low, hint, .. } = self.leases[of];
        let from = low.max(hint);
        let standing = self.objects[of].iter().rposition(|object| matches!(object, Object::Chunk(_)));
        let behind_last = small(standing.map_or(0, |last| last + 1));
        let at = if protocol.keeps(Rule::FirstAbsent) { from } else { from.max(behind_last) };
        self.stars[star].phase = Phase::Sealing { left, at: Some(at) };
        if !protocol.keeps(Rule::ReadBehindFence) {
            self.stars[star].found[of] = self.standing(of, small(POSITIONS));
        }
        Some(())
    }

    /// Chunks of a channel before a position, a bit each.
    fn standing(&self, of: usize, end: u8) -> u8 {
        let objects = self.objects[of].iter().take(index(end)).enumerate();
        let standing = objects.filter(|(_, object)| matches!(object, Object::Chunk(0)));
        standing.fold(0, |all, (at, _)| all | 1 << at)
    }

    fn fence(&mut self, protocol: &Channel, star: usize, of: usize) -> Option<()> {
        let Phase::Sealing { left, at: Some(at) } = self.stars[star].phase else { return None };
        let object = self.objects[of].get_mut(index(at))?;
        let goes_on = match *object {
            Object::Absent | Object::Deleted => {
                *object = Object::Fence;
                false
            }
            Object::Chunk(_) => true,
            Object::Fence => !protocol.keeps(Rule::AnyFenceEnds),
        };
        let this = &mut self.stars[star];
        if goes_on {
            this.phase = Phase::Sealing { left, at: Some(at + 1) };
        } else {
            this.ends[of] = Some(at);
            this.phase = Phase::Sealing { left: left & !(1 << of), at: None };
        }
        Some(())
    }

    fn begin(&mut self, protocol: &Channel, star: usize) -> Option<()> {
        if self.owner != small(star) {
            self.stars[star].phase = Phase::Over;
            return Some(());
        }
        let ends = self.stars[star].ends;
        for (of, end) in ends.iter().enumerate() {
            let Some(end) = *end else { continue };
            self.open &= !(1 << of);
            if protocol.keeps(Rule::ReadBehindFence) {
                self.stars[star].found[of] = self.standing(of, end);
            }
        }
        // What the second star has read of the first, the third gets from the index.
        let earlier = self.stars[..star].iter().map(|other| other.found[0]).fold(0, |all, found| all | found);
        self.stars[star].found[0] |= earlier;
        self.stars[star].phase = Phase::Writing;
        Some(())
    }

    /// Whether what a star has acked was found by another that has taken over, or is in the index.
    fn is_found(&self, by: usize, of: usize) -> bool {
        let puts = self.stars[of].puts.iter().enumerate();
        let is_indexed = |at: usize| of == 0 && at < index(self.indexed_to);
        let mut acked = puts.skip(1).filter(|(_, put)| put.is_acked).map(|(at, _)| at);
        acked.all(|at| is_indexed(at) || self.stars[by].found[of] & (1 << at) != 0)
    }

    /// What a star does at once: it acks what it may, and looks at what stands in its way.
    fn prompt_actions(&self, protocol: &Channel, star: usize, actions: &mut Vec<Action>) {
        let Star { phase, puts, .. } = &self.stars[star];
        for (at, put) in puts.iter().enumerate().filter(|_| *phase == Phase::Writing) {
            let (name, position) = (small(star), small(at));
            if put.is_refused {
                actions.push(Action::Look(name, position));
            }
            let is_next = !protocol.keeps(Rule::AckInOrder) || position == self.acked_to(star);
            if put.is_done && !put.is_acked && is_next {
                actions.push(Action::Ack(name, position));
            }
        }
    }

    fn writer_actions(&self, protocol: &Channel, star: usize, actions: &mut Vec<Action>) {
        let Star { phase, puts, .. } = &self.stars[star];
        for (at, put) in puts.iter().enumerate().take(index(protocol.chunks[star]) + 1) {
            let (name, position) = (small(star), small(at));
            for version in [0, 1].into_iter().filter(|version| put.under_way[index(*version)] > 0) {
                let arrive = |is_heard| Action::Arrive { star: name, at: position, version, is_heard };
                actions.extend([true, false].map(arrive));
            }
            let may_send = *phase == Phase::Writing && !put.is_done && put.sent < protocol.sends;
            // The first position begins the channel; then those of a window are under way side by side.
            if may_send && (at == 0 || puts[0].is_acked) && (at < 2 || puts[at - 1].sent > 0) {
                actions.push(Action::Send(name, position));
            }
        }
    }

    fn keeper_actions(&self, protocol: &Channel, actions: &mut Vec<Action>) {
        let lease = self.leases[0];
        if self.indexed_to < self.acked_to(0) {
            actions.push(Action::Index);
        }
        let is_news = lease.low < self.indexed_to || lease.hint < self.acked_to(0);
        if is_news && !lease.is_fenced && self.stars[0].phase == Phase::Writing {
            actions.push(Action::Publish);
        }
        let low = if protocol.keeps(Rule::LowFirst) { lease.low } else { self.indexed_to };
        let first = self.objects[0].iter().position(|object| *object != Object::Deleted);
        actions.extend(first.map(small).filter(|first| *first < low).map(Action::Delete));
    }

    fn taker_actions(&self, protocol: &Channel, star: usize, actions: &mut Vec<Action>) {
        let name = small(star);
        match self.stars[star].phase {
            // Epochs are given out in order, and the stars are named by them.
            Phase::Away if self.owner + 1 == name || (star == 2 && self.owner == 0) => actions.push(Action::Take(name)),
            Phase::Sealing { left: 0, .. } => actions.push(Action::Begin(name)),
            Phase::Sealing { left, at } => {
                let of = small(bits(left).next().expect("one is left"));
                actions.push(if at.is_some() { Action::Fence(name, of) } else { Action::TakeLease(name, of) });
            }
            Phase::Writing if !protocol.keeps(Rule::FenceStays) => {
                let has_fence = |of: &usize| self.objects[*of].contains(&Object::Fence);
                actions.extend((0..star).filter(has_fence).map(|of| Action::DeleteFence(name, small(of))));
            }
            _ => {}
        }
    }
}

impl Protocol for Channel {
    type Rule = Rule;

    const RULES: &'static [(Rule, &'static str)] = &[
        (Rule::CreateIfAbsent, KEPT),
        (Rule::ReadBack, KEPT),
        (Rule::SameBytesAgain, KEPT),
        (Rule::AckInOrder, KEPT),
        (Rule::LeaseFirst, KEPT),
        (Rule::HintIsCommitted, KEPT),
        (Rule::LowFirst, KEPT),
        (Rule::FirstAbsent, KEPT),
        (Rule::AnyFenceEnds, ONE_END),
        (Rule::FenceStays, KEPT),
        (Rule::ReadBehindFence, KEPT),
        (Rule::NotedWhenTaken, KEPT),
    ];

    fn bounds(&self) -> String {
        let [first, second, _] = self.chunks;
        let Self { sends, stars, .. } = self;
        format!("{stars} stars; A puts {first} chunks side by side, B {second}; each put is sent {sends} times at most")
    }

    fn without(left_out: Option<Rule>) -> Vec<Self> {
        let long = Self { left_out, chunks: [3, 0, 0], sends: 2, stars: 2 };
        let many = Self { left_out, chunks: [1, 1, 0], sends: 2, stars: 3 };
        let once = Self { left_out, chunks: [2, 2, 0], sends: 1, stars: 3 };
        vec![long, many, once]
    }
}

impl Model for Channel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let away =
            Star { phase: Phase::Away, puts: [Put::default(); POSITIONS], found: [0; STARS], ends: [None; STARS] };
        let lease = Lease { low: 0, hint: 0, is_fenced: false };
        let mut state = State {
            objects: [[Object::Absent; POSITIONS]; STARS],
            leases: [lease; STARS],
            stars: [away; STARS],
            owner: 0,
            open: 1,
            indexed_to: 1,
        };
        // The first star has begun.
        state.stars[0].phase = Phase::Writing;
        state.stars[0].puts[0] = Put { sent: 1, is_done: true, is_acked: true, ..Put::default() };
        state.objects[0][0] = Object::Chunk(0);
        state.leases[0].hint = 1;
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        (0..STARS).for_each(|star| state.prompt_actions(self, star, actions));
        if !actions.is_empty() {
            return;
        }
        (0..STARS).for_each(|star| state.writer_actions(self, star, actions));
        state.keeper_actions(self, actions);
        (1..self.stars).for_each(|star| state.taker_actions(self, star, actions));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Send(star, at) => {
                let put = &mut next.stars[index(star)].puts[index(at)];
                let version = if self.keeps(Rule::SameBytesAgain) { 0 } else { put.sent };
                put.under_way[index(version)] += 1;
                put.sent += 1;
            }
            Action::Arrive { star, at, version, is_heard } => {
                next.arrive(self, (index(star), index(at), version), is_heard);
            }
            Action::Look(star, at) => next.look(self, index(star), index(at)),
            Action::Ack(star, at) => next.stars[index(star)].puts[index(at)].is_acked = true,
            Action::Index => next.indexed_to += 1,
            Action::Publish => next.publish(self),
            Action::Delete(at) => next.objects[0][index(at)] = Object::Deleted,
            Action::Take(star) => next.take(self, index(star)),
            Action::TakeLease(star, of) => next.take_lease(self, index(star), index(of))?,
            Action::Fence(star, of) => next.fence(self, index(star), index(of))?,
            Action::Begin(star) => next.begin(self, index(star))?,
            Action::DeleteFence(_, of) => {
                let fence = next.objects[index(of)].iter_mut().find(|object| **object == Object::Fence);
                *fence? = Object::Deleted;
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, state: &State| {
                let has_taken_over = |by: &usize| state.stars[*by].phase == Phase::Writing;
                (1..STARS).filter(has_taken_over).all(|by| (0..by).all(|of| state.is_found(by, of)))
            }),
            Property::always(ONE_END, |_, state: &State| {
                let ends = |of: usize| state.stars.iter().filter_map(move |star| star.ends[of]);
                (0..STARS).all(|of| ends(of).all(|end| ends(of).all(|other| end == other)))
            }),
            Property::sometimes("all is acked, and the last star has taken over", |protocol: &Self, state: &State| {
                let is_acked = |star: usize| state.acked_to(star) == protocol.chunks[star] + 1;
                (0..protocol.stars - 1).all(is_acked) && state.stars[protocol.stars - 1].phase == Phase::Writing
            }),
            Property::sometimes(
                "a chunk is deleted, and the first star finds out that it is over",
                |_, state: &State| state.objects[0][0] == Object::Deleted && state.stars[0].phase == Phase::Over,
            ),
        ]
    }
}
