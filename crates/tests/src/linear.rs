//! Can all that a stream answered be put in one order?
//!
//! A [`History`] is what the clients of one stream asked and were answered, with the times of each, and what was read back
//! in the end. [`check`] says whether there is one order of it, true to the times, in which every answer is right.
//!
//! - The `ledger` finds out which record stood where, from acks, pages and the read-back. That decides of nearly every
//!   append that nobody answered whether it happened, and finds what is lost, doubled, torn or nobody's.
//! - The `interval` check holds each answer against what had been answered before it was asked for. It takes the time of
//!   a sort, and knows nothing of what went on at once.
//! - The `search` tries orders until one fits (the algorithm of Wing and Gong, with Lowe's memory of what was tried), on
//!   the `model` of a stream. It is exact, and has a budget of steps: a history it does not get through is a fault too.
//!
//! Contents are left to the ledger: a record never changes, so that a page is right if its records are, and if the stream
//! stood at its tail and its trim point at one time.

mod interval;
mod ledger;
mod model;
mod search;
#[cfg(test)]
mod tests;
mod words;

use std::ops::Range;

use ledger::Ledger;

/// A fencing token, told from others by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Token(u32);

impl Token {
    /// None is installed, or none presented.
    pub const NONE: Self = Self(0);

    /// The token of this number, which is not 0.
    ///
    /// # Panics
    /// When it is 0.
    #[must_use]
    pub fn new(number: u32) -> Self {
        assert!(number != 0, "0 is no token");
        Self(number)
    }

    /// Its number; 0 for none.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// What is asked of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Appends a batch.
    Append {
        /// The records, each of which no other append has; one at least.
        records: Range<u64>,
        /// The sequence number that the first of them must get.
        match_seq_num: Option<u64>,
        /// The token presented.
        token: Token,
    },
    /// Installs a token, or clears it.
    Fence(Token),
    /// Moves the trim point.
    Trim(u64),
    /// Reads a page from here, not clamped.
    Read(u64),
    /// Asks for the tail.
    Tail,
    /// Asks for the installed token.
    Token,
}

/// What a stream answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The batch stands from here on.
    Appended(u64),
    /// The batch was refused, for the tail is this and not what it matches.
    Mismatch(u64),
    /// The batch was refused, for this is the token installed.
    FencedOut(Token),
    /// The token is installed since this tail.
    Fenced(u64),
    /// The trim point stands here.
    Trimmed(u64),
    /// A page.
    Page {
        /// Its records, from where it was asked for on.
        records: Vec<u64>,
        /// The tail.
        tail: u64,
        /// The trim point.
        trim_point: u64,
    },
    /// The read was refused: it starts below the trim point.
    BelowTrimPoint {
        /// The tail.
        tail: u64,
        /// The trim point.
        trim_point: u64,
    },
    /// The read was refused: it starts past this tail.
    PastTail(u64),
    /// The tail.
    Tail(u64),
    /// The installed token.
    Token(Token),
    /// It was refused for a reason that says nothing of the stream: nothing happened.
    Refused,
}

/// One thing that a client asked, and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Who asked.
    pub client: u32,
    /// When it was asked, in nanoseconds of one clock.
    pub call: u64,
    /// What.
    pub ask: Ask,
    /// When it was answered, and what. Without an answer it may have happened at any time after its call, or not at all.
    pub answer: Option<(u64, Answer)>,
}

impl Operation {
    /// When it was answered.
    fn returned(&self) -> Option<u64> {
        self.answer.as_ref().map(|(at, _)| *at)
    }

    /// What it was answered.
    fn told(&self) -> Option<&Answer> {
        self.answer.as_ref().map(|(_, answer)| answer)
    }
}

/// What is there when all is over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadBack {
    /// Records below it are gone.
    pub trim_point: u64,
    /// The others, all of them.
    pub records: Vec<u64>,
}

impl ReadBack {
    fn tail(&self) -> u64 {
        self.trim_point + self.records.len() as u64
    }
}

/// What happened to one stream that was made anew.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// Whether a batch without a token is refused once one is installed.
    pub is_fenced: bool,
    /// In any order.
    pub operations: Vec<Operation>,
    /// Read after the last of them.
    pub read_back: ReadBack,
}

/// What is wrong with a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A record that nobody appended.
    Foreign,
    /// A record that stands twice, or at another place than it was acked at.
    Doubled,
    /// A record that was acked or read, and is not there.
    Lost,
    /// A batch of which a part is there.
    Torn,
    /// A record of a batch that was refused.
    RefusedButThere,
    /// An answer that is not one to what was asked.
    WrongAnswer,
    /// An answer that is behind what had been answered before.
    Stale,
    /// An answer that is ahead of what had been asked for.
    Early,
    /// A match that was judged wrongly.
    Match,
    /// A batch under a token that was not the installed one.
    Deposed,
    /// No order fits.
    Unordered,
    /// The budget of steps is spent.
    Undecided,
}

/// Why a history is none of a stream, with the operations that can't be put in an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What it comes to.
    pub kind: Kind,
    /// In words.
    pub says: String,
    /// The smallest window that shows it, in the order of calls.
    pub window: Vec<Operation>,
}

impl Fault {
    fn new<'a>(kind: Kind, says: String, window: impl IntoIterator<Item = &'a Operation>) -> Self {
        let mut window: Vec<Operation> = window.into_iter().cloned().collect();
        window.sort_by_key(|operation| operation.call);
        window.dedup();
        Self { kind, says, window }
    }
}

/// What a check came to that found nothing wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checked {
    /// Operations there were.
    pub operations: usize,
    /// Of these, how many nobody answered.
    pub unanswered: usize,
    /// Of the appends among them, how many are there.
    pub found: usize,
    /// Of the appends among them, of how many it stays open whether they happened.
    pub open: usize,
    /// Steps of the search; 0 when there was none.
    pub steps: u64,
}

/// Holds a history against the model of a stream.
///
/// `steps_max` bounds the search; 0 leaves it out, for a history that is too long for one.
///
/// # Errors
/// The [`Fault`], [`Kind::Undecided`] too.
///
/// # Panics
/// When two appends have a record in common: then it is no history to be checked.
pub fn check(history: &History, steps_max: u64) -> Result<Checked, Fault> {
    let ledger = Ledger::of(history)?;
    interval::check(history, &ledger)?;
    let steps = if steps_max == 0 { 0 } else { search::find(history, &ledger, steps_max)? };
    let unanswered = history.operations.iter().filter(|operation| operation.answer.is_none()).count();
    let (found, open) = ledger.resolved();
    Ok(Checked { operations: history.operations.len(), unanswered, found, open, steps })
}
