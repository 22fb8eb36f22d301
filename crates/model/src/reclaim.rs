//! Is anything deleted from the store that a record, a reader, a start or a rebuild still needs?
//!
//! A star commits three chunks: two with a record each, and one that trims the first record away. It applies them to its index,
//! sends the index to the store, copies records into bundles, and deletes what is behind. It may die, or be taken for dead and go
//! on as a ghost, and then the next tenure does the same with what it finds. A reader asks the index where a record lies, or reads
//! that from an index as the store has it, and fetches it later.

use std::fmt;

use stateright::{Model, Property};

use crate::Protocol;

const RECORDS: usize = 2;
const CHUNKS: u8 = 3;
const BUNDLES: usize = 2;
const TENURES: u8 = 3;

const FOUND: &str = "a record that is committed and not trimmed is found";
const TRIMMED: &str = "what was trimmed stays away";
const PLANNED: &str = "a reader finds what the index told it";
const STARTS: &str = "a start finds the chunks that it must read";
const REBUILT: &str = "the index can be made again";

/// What the protocol keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A tenure takes the index, and no earlier one can send its own any more.
    IndexTaken,
    /// A chunk is needed until all that is in it is in the index durably.
    LowOfDurable,
    /// A chunk is needed as long as a row points to it.
    PointedStays,
    /// The last chunk, which says how far head logs are settled, stays.
    LastStays,
    /// What only a chunk says of a stream is in a snapshot before the chunk may go.
    SnapshotFirst,
    /// What nothing points to goes once those are done that were told of it.
    Grace,
    /// A bundle is in the store before a row points to it.
    PutBeforeMove,
    /// A row moves to a bundle only if it is what was copied.
    MoveUnchanged,
    /// A bundle goes once nothing points to it durably.
    DeadOfDurable,
    /// Bundles that the index does not know go only if an earlier tenure made them.
    EarlierOrphans,
    /// An earlier channel is forgotten before its chunks are deleted.
    ForgetFirst,
    /// An earlier channel is forgotten once a chunk of the own says how far head logs are settled.
    SpeakFirst,
}

/// The protocol at its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Reclaim {
    left_out: Option<Rule>,
}

impl Reclaim {
    fn keeps(self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Object {
    Chunk(u8),
    Bundle(u8),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chunk(at) => write!(f, "chunk {at}"),
            Self::Bundle(number) => write!(f, "bundle {number}"),
        }
    }
}

/// The index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Rows {
    /// Where each record lies.
    at: [Option<Object>; RECORDS],
    /// The last chunk that is in it.
    applied: u8,
    /// Bundles that it knows, a bit each.
    known: u8,
}

impl Rows {
    fn apply(&mut self) {
        self.applied += 1;
        match self.applied {
            CHUNKS => self.at[0] = None,
            chunk => self.at[usize::from(chunk) - 1] = Some(Object::Chunk(chunk)),
        }
    }

    fn points_to(&self, object: Object) -> bool {
        self.at.contains(&Some(object))
    }

    fn knows(&self, bundle: u8) -> bool {
        self.known & (1 << bundle) != 0
    }

    /// The first chunk that is needed.
    fn low(&self, protocol: Reclaim) -> u8 {
        let pointed = (1..=CHUNKS).find(|chunk| self.points_to(Object::Chunk(*chunk)));
        let pointed = pointed.filter(|_| protocol.keeps(Rule::PointedStays));
        let last = if protocol.keeps(Rule::LastStays) { self.applied } else { self.applied + 1 };
        last.min(pointed.unwrap_or(last))
    }
}

/// A bundle that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Copying {
    bundle: u8,
    from: [Option<Object>; RECORDS],
    is_put: bool,
    has_moved: bool,
}

/// A star, alive or a ghost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Star {
    tenure: u8,
    rows: Rows,
    copying: Option<Copying>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bundle {
    Unmade,
    /// Made in this tenure.
    Stands(u8),
    Deleted,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    committed: u8,
    /// Chunks that stand, a bit each.
    chunks: u8,
    bundles: [Bundle; BUNDLES],
    bundles_begun: u8,
    durable: Rows,
    taken_by: u8,
    star: Option<Star>,
    ghost: Option<Star>,
    low: u8,
    snapshot_to: u8,
    is_forgotten: bool,
    has_spoken: bool,
    /// What a reader was told, and whether by the running star.
    reader: Option<(Object, bool)>,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A chunk is committed.
    Commit,
    /// The next chunk is applied to the index in memory.
    Apply,
    /// A star sends its index to the store; the ghost or not.
    Checkpoint(bool),
    /// A copy of all records is begun.
    Copy,
    /// A bundle is put.
    Put,
    /// Rows move to the bundle.
    Move,
    /// A snapshot is put.
    Snapshot,
    /// The low is published.
    Publish,
    /// The channel of the tenure before is forgotten.
    Forget,
    /// The tenure commits a chunk of its own, and the index has it.
    Speak,
    /// A chunk is deleted.
    DeleteChunk(u8),
    /// A bundle that nothing points to is deleted.
    DeleteBundle(u8),
    /// A bundle that the index does not know is deleted.
    DeleteOrphan(u8),
    /// A reader is told where a record lies.
    Plan(u8),
    /// A reader reads that from the store.
    PlanFromStore(u8),
    /// The reader is done.
    Read,
    /// The star dies.
    Crash,
    /// It is taken for dead, and goes on.
    Overtake,
    /// The next tenure begins.
    Start,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Commit => "the next chunk is committed",
            Self::Apply => "the next chunk is applied to the index in memory",
            Self::Checkpoint(false) => "the star sends its index to the store",
            Self::Checkpoint(true) => "the ghost sends its index to the store",
            Self::Copy => "the star copies the records",
            Self::Put => "it puts the bundle with the copies",
            Self::Move => "rows move to the bundle",
            Self::Snapshot => "the star puts a snapshot",
            Self::Publish => "the star publishes its low",
            Self::Forget => "the star forgets the earlier channel",
            Self::Speak => "the star commits a chunk of its own, which says how far head logs are settled",
            Self::DeleteChunk(at) => return write!(f, "chunk {at} is deleted"),
            Self::DeleteBundle(bundle) => return write!(f, "bundle {bundle} is deleted: nothing points to it"),
            Self::DeleteOrphan(bundle) => return write!(f, "bundle {bundle} is deleted: the index does not know it"),
            Self::Plan(record) => return write!(f, "a reader is told where record {record} lies"),
            Self::PlanFromStore(record) => {
                return write!(f, "a reader finds where record {record} lies in the store's index");
            }
            Self::Read => "the reader is done",
            Self::Crash => "the star dies",
            Self::Overtake => "the star is taken for dead, and goes on as a ghost",
            Self::Start => "the next tenure starts: it takes the index, and applies the chunks after it",
        };
        f.write_str(text)
    }
}

impl State {
    fn has_chunk(&self, at: u8) -> bool {
        self.chunks & (1 << at) != 0
    }

    fn stands(&self, object: Object) -> bool {
        match object {
            Object::Chunk(at) => self.has_chunk(at),
            Object::Bundle(bundle) => matches!(self.bundles[usize::from(bundle)], Bundle::Stands(_)),
        }
    }

    /// Whether an object may go that nothing points to.
    fn is_over(&self, protocol: Reclaim, object: Object) -> bool {
        !protocol.keeps(Rule::Grace) || self.reader.is_none_or(|(told, _)| told != object)
    }

    /// The chunks that a start reads: those after the index, and the last one in any case.
    fn start_reads(&self) -> impl Iterator<Item = u8> {
        let last = self.committed;
        let from = (self.durable.applied + 1).max(self.low).min(last.max(1));
        (from..=last).filter(|_| !self.is_forgotten)
    }

    fn is_found(&self, record: usize, rows: &Rows) -> bool {
        let chunk = u8::try_from(record).expect("records are few") + 1;
        let is_wanted = self.committed >= chunk && !(record == 0 && self.committed == CHUNKS);
        let is_ahead = rows.applied < chunk && self.has_chunk(chunk) && !self.is_forgotten;
        !is_wanted || is_ahead || rows.at[record].is_some_and(|at| self.stands(at))
    }

    fn start(&mut self) {
        let (mut rows, tenure) = (self.durable, self.taken_by + 1);
        for _ in rows.applied..self.committed {
            rows.apply();
        }
        self.taken_by = tenure;
        self.star = Some(Star { tenure, rows, copying: None });
    }

    fn end_tenure(&mut self) {
        self.star = None;
        // Who was told by the star that is gone hears no more of it.
        self.reader = self.reader.filter(|(_, is_told_by_star)| !is_told_by_star);
    }

    fn star_actions(&self, protocol: Reclaim, star: &Star, actions: &mut Vec<Action>) {
        if star.tenure == 1 && self.committed < CHUNKS {
            actions.push(Action::Commit);
        }
        if star.rows.applied < self.committed {
            actions.push(Action::Apply);
        }
        if star.rows != self.durable {
            actions.push(Action::Checkpoint(false));
        }
        match star.copying {
            None if usize::from(self.bundles_begun) < BUNDLES && star.rows.at != [None; RECORDS] => {
                actions.push(Action::Copy);
            }
            Some(copying) => {
                actions.extend((!copying.is_put).then_some(Action::Put));
                let may_move = copying.is_put || !protocol.keeps(Rule::PutBeforeMove);
                actions.extend((may_move && !copying.has_moved).then_some(Action::Move));
            }
            None => {}
        }
        for record in 0..RECORDS {
            let record_number = u8::try_from(record).expect("records are few");
            if self.reader.is_none() && star.rows.at[record].is_some() {
                actions.push(Action::Plan(record_number));
            }
        }
        self.delete_actions(protocol, star, actions);
    }

    fn delete_actions(&self, protocol: Reclaim, star: &Star, actions: &mut Vec<Action>) {
        let rows = if protocol.keeps(Rule::LowOfDurable) { &self.durable } else { &star.rows };
        let (low, is_own) = (rows.low(protocol), star.tenure == 1);
        let has_all = rows.applied == self.committed && (1..=CHUNKS).all(|at| !rows.points_to(Object::Chunk(at)));
        let may_forget = has_all && (self.has_spoken || !protocol.keeps(Rule::SpeakFirst));
        let wanted = if is_own { low } else { self.committed + 1 };
        let may_go = if is_own { low > self.low } else { may_forget && !self.is_forgotten };
        let has_snapshot = self.snapshot_to >= wanted || !protocol.keeps(Rule::SnapshotFirst);
        if may_go {
            let step = if is_own { Action::Publish } else { Action::Forget };
            actions.push(if has_snapshot { step } else { Action::Snapshot });
        }
        if !is_own && !self.has_spoken {
            actions.push(Action::Speak);
        }
        let may_delete = self.is_forgotten || (may_forget && !protocol.keeps(Rule::ForgetFirst));
        let end = if is_own || !may_delete { self.low } else { CHUNKS + 1 };
        let first = (1..end).find(|at| self.has_chunk(*at));
        let first = first.filter(|at| self.is_over(protocol, Object::Chunk(*at)));
        actions.extend(first.map(Action::DeleteChunk));
        self.dead_actions(protocol, star, actions);
    }

    /// Bundles that a star, or a ghost that has looked before, takes for dead or for unknown.
    fn dead_actions(&self, protocol: Reclaim, star: &Star, actions: &mut Vec<Action>) {
        let dead_in = if protocol.keeps(Rule::DeadOfDurable) { &self.durable } else { &star.rows };
        for (bundle, is) in (0..).zip(self.bundles) {
            let Bundle::Stands(made_in) = is else { continue };
            let object = Object::Bundle(bundle);
            let is_dead = dead_in.knows(bundle) && !dead_in.points_to(object) && !star.rows.points_to(object);
            if is_dead && self.is_over(protocol, object) {
                actions.push(Action::DeleteBundle(bundle));
            }
            let is_earlier = made_in < star.tenure || !protocol.keeps(Rule::EarlierOrphans);
            if is_earlier && !star.rows.knows(bundle) {
                actions.push(Action::DeleteOrphan(bundle));
            }
        }
    }

    /// A star, with what it does next taken as a step of its own.
    fn with_star(&mut self, step: impl FnOnce(&mut Star)) -> Option<()> {
        step(self.star.as_mut()?);
        Some(())
    }

    fn checkpoint(&mut self, protocol: Reclaim, is_ghost: bool) -> Option<()> {
        let Star { tenure, rows, .. } = if is_ghost { self.ghost.take()? } else { self.star? };
        if tenure == self.taken_by || !protocol.keeps(Rule::IndexTaken) {
            self.durable = rows;
        }
        Some(())
    }

    fn put(&mut self) -> Option<()> {
        let Star { tenure, copying, .. } = self.star.as_mut()?;
        let copying = copying.as_mut()?;
        copying.is_put = true;
        self.bundles[usize::from(copying.bundle)] = Bundle::Stands(*tenure);
        Some(())
    }

    fn move_rows(&mut self, protocol: Reclaim) -> Option<()> {
        let Star { rows, copying, .. } = self.star.as_mut()?;
        let Copying { bundle, from, .. } = (*copying)?;
        for (at, from) in rows.at.iter_mut().zip(from) {
            let is_unchanged = *at == from || !protocol.keeps(Rule::MoveUnchanged);
            if from.is_some() && is_unchanged {
                *at = Some(Object::Bundle(bundle));
            }
        }
        rows.known |= 1 << bundle;
        let copying_left = copying.map(|copying| Copying { has_moved: true, ..copying });
        *copying = copying_left.filter(|copying| !copying.is_put);
        Some(())
    }
}

impl Protocol for Reclaim {
    type Rule = Rule;

    const RULES: &'static [(Rule, &'static str)] = &[
        (Rule::IndexTaken, FOUND),
        (Rule::LowOfDurable, FOUND),
        (Rule::PointedStays, FOUND),
        (Rule::LastStays, STARTS),
        (Rule::SnapshotFirst, REBUILT),
        (Rule::Grace, PLANNED),
        (Rule::PutBeforeMove, FOUND),
        (Rule::MoveUnchanged, TRIMMED),
        (Rule::DeadOfDurable, FOUND),
        (Rule::EarlierOrphans, FOUND),
        (Rule::ForgetFirst, STARTS),
        (Rule::SpeakFirst, STARTS),
    ];

    fn bounds(&self) -> String {
        format!("{CHUNKS} chunks, {RECORDS} records, {BUNDLES} bundles, {TENURES} tenures, one ghost, one reader")
    }

    fn without(left_out: Option<Rule>) -> Vec<Self> {
        vec![Self { left_out }]
    }
}

impl Model for Reclaim {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            committed: 0,
            chunks: 0,
            bundles: [Bundle::Unmade; BUNDLES],
            bundles_begun: 0,
            durable: Rows::default(),
            taken_by: 1,
            star: Some(Star { tenure: 1, rows: Rows::default(), copying: None }),
            ghost: None,
            low: 1,
            snapshot_to: 1,
            is_forgotten: false,
            has_spoken: false,
            reader: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if let Some(star) = &state.star {
            state.star_actions(*self, star, actions);
            if star.tenure < TENURES {
                actions.extend([Action::Crash, Action::Overtake]);
            }
        } else {
            actions.push(Action::Start);
        }
        if let Some(ghost) = &state.ghost {
            actions.push(Action::Checkpoint(true));
            state.dead_actions(*self, ghost, actions);
        }
        if state.reader.is_some() {
            actions.push(Action::Read);
        } else {
            let is_there = |record: &u8| state.durable.at[usize::from(*record)].is_some();
            actions.extend([0, 1].into_iter().filter(is_there).map(Action::PlanFromStore));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Commit => {
                next.committed += 1;
                next.chunks |= 1 << next.committed;
            }
            Action::Apply => next.with_star(|star| star.rows.apply())?,
            Action::Checkpoint(is_ghost) => next.checkpoint(*self, is_ghost)?,
            Action::Copy => {
                let bundle = next.bundles_begun;
                next.bundles_begun += 1;
                next.with_star(|star| {
                    let from = star.rows.at;
                    star.copying = Some(Copying { bundle, from, is_put: false, has_moved: false });
                })?;
            }
            Action::Put => next.put()?,
            Action::Move => next.move_rows(*self)?,
            Action::Snapshot => {
                let applied = next.star.map_or(0, |star| star.rows.applied);
                next.snapshot_to = next.snapshot_to.max(applied + 1);
            }
            Action::Publish => {
                let star = next.star?;
                let rows = if self.keeps(Rule::LowOfDurable) { next.durable } else { star.rows };
                next.low = rows.low(*self);
            }
            Action::Forget => next.is_forgotten = true,
            Action::Speak => next.has_spoken = true,
            Action::DeleteChunk(at) => next.chunks &= !(1 << at),
            Action::DeleteBundle(bundle) | Action::DeleteOrphan(bundle) => {
                next.bundles[usize::from(bundle)] = Bundle::Deleted;
            }
            Action::Plan(record) => next.reader = Some((next.star?.rows.at[usize::from(record)]?, true)),
            Action::PlanFromStore(record) => next.reader = Some((next.durable.at[usize::from(record)]?, false)),
            Action::Read => next.reader = None,
            Action::Crash => next.end_tenure(),
            Action::Overtake => {
                next.ghost = next.star;
                next.end_tenure();
            }
            Action::Start => next.start(),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(FOUND, |_, state: &State| {
                let rows = [Some(state.durable), state.star.map(|star| star.rows)];
                rows.iter().flatten().all(|rows| (0..RECORDS).all(|record| state.is_found(record, rows)))
            }),
            Property::always(TRIMMED, |_, state: &State| {
                let rows = [Some(state.durable), state.star.map(|star| star.rows)];
                rows.iter().flatten().all(|rows| rows.applied < CHUNKS || rows.at[0].is_none())
            }),
            Property::always(PLANNED, |_, state: &State| state.reader.is_none_or(|(told, _)| state.stands(told))),
            Property::always(STARTS, |_, state: &State| {
                let has_last = !state.is_forgotten || state.has_spoken || state.committed == 0;
                has_last && state.start_reads().all(|at| state.has_chunk(at))
            }),
            Property::always(REBUILT, |_, state: &State| {
                (1..=state.committed).all(|at| state.has_chunk(at) || at < state.snapshot_to)
            }),
            Property::sometimes("all that is not needed is gone", |_, state: &State| {
                let standing = state.bundles.iter().filter(|bundle| matches!(bundle, Bundle::Stands(_))).count();
                state.committed == CHUNKS && state.chunks == 0 && standing == 1 && state.bundles_begun > 1
            }),
            Property::sometimes("a ghost is there while the next tenure forgets its channel", |_, state: &State| {
                state.ghost.is_some() && state.is_forgotten && state.chunks == 0
            }),
        ]
    }
}
