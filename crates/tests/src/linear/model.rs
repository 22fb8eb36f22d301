//! What does a stream answer, and how does it stand afterwards?

use super::ledger::Place;
use super::{Answer, Ask, Operation, Token};

/// How a stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The next sequence number.
    pub(super) tail: u64,
    /// Records below it are gone.
    pub(super) trim_point: u64,
    /// The installed token.
    pub(super) token: Token,
    /// Whether a batch without a token is refused once one is installed.
    pub(super) is_fenced: bool,
}

impl State {
    /// A new stream.
    pub(super) fn new(is_fenced: bool) -> Self {
        Self { tail: 0, trim_point: 0, token: Token::NONE, is_fenced }
    }

    /// Whether a batch under this token is taken.
    pub(super) fn takes(self, token: Token) -> bool {
        token == self.token || (token == Token::NONE && !self.is_fenced)
    }

    /// The state after an operation that happens now and is answered as it was; none when it would be answered otherwise.
    /// `place` is where its batch is known to stand.
    pub(super) fn after(self, operation: &Operation, place: Place) -> Option<Self> {
        let answer = operation.told();
        match &operation.ask {
            Ask::Append { records, match_seq_num, token } => {
                let batch =
                    Batch { records: records.end - records.start, match_seq_num: *match_seq_num, token: *token };
                self.after_append(batch, place, answer)
            }
            Ask::Fence(token) => {
                let is_so = answer.is_none_or(|answer| *answer == Answer::Fenced(self.tail));
                is_so.then_some(Self { token: *token, ..self })
            }
            Ask::Trim(to) => {
                let trim_point = self.trim_point.max(self.tail.min(*to));
                let is_so = answer.is_none_or(|answer| *answer == Answer::Trimmed(trim_point));
                is_so.then_some(Self { trim_point, ..self })
            }
            Ask::Read(from) => self.reads(*from, answer?).then_some(self),
            Ask::Tail => (*answer? == Answer::Tail(self.tail)).then_some(self),
            Ask::Token => (*answer? == Answer::Token(self.token)).then_some(self),
        }
    }

    fn after_append(self, batch: Batch, place: Place, answer: Option<&Answer>) -> Option<Self> {
        let Batch { records, match_seq_num, token } = batch;
        let is_taken = self.takes(token);
        let is_matched = match_seq_num.is_none_or(|seq_num| seq_num == self.tail);
        let is_here = match place {
            Place::At(start) => start == self.tail,
            Place::Open => true,
            Place::Nowhere => false,
        };
        let appended = (is_taken && is_matched && is_here).then_some(Self { tail: self.tail + records, ..self });
        match answer {
            None | Some(Answer::Appended(_)) => appended,
            Some(Answer::Mismatch(tail)) => (*tail == self.tail && is_taken && !is_matched).then_some(self),
            Some(Answer::FencedOut(token)) => (*token == self.token && !is_taken).then_some(self),
            Some(_) => None,
        }
    }

    fn reads(self, from: u64, answer: &Answer) -> bool {
        match answer {
            // A trim may take records from under a page: where it starts is judged before it is answered.
            Answer::Page { tail, trim_point, .. } => (*tail, *trim_point) == (self.tail, self.trim_point),
            Answer::BelowTrimPoint { tail, trim_point } => {
                (*tail, *trim_point) == (self.tail, self.trim_point) && from < self.trim_point
            }
            Answer::PastTail(tail) => *tail == self.tail && from > self.tail,
            _ => false,
        }
    }
}

/// What an append asks for.
#[derive(Debug, Clone, Copy)]
struct Batch {
    records: u64,
    match_seq_num: Option<u64>,
    token: Token,
}
