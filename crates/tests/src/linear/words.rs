//! What do operations and faults look like to who reads them?

use std::fmt;

use super::{Answer, Ask, Fault, Kind, Operation, Token};

/// Operations of a window that are shown; of a longer one the last ones are.
const SHOWN_MAX: usize = 24;

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE { f.write_str("no token") } else { write!(f, "token {}", self.0) }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "a record of nobody",
            Self::Doubled => "a record that stands twice",
            Self::Lost => "a record that is lost",
            Self::Torn => "a batch that is torn",
            Self::RefusedButThere => "a batch that was refused and is there",
            Self::WrongAnswer => "an answer to something else",
            Self::Stale => "an answer of the past",
            Self::Early => "an answer of the future",
            Self::Match => "a match judged wrongly",
            Self::Deposed => "a batch of a deposed writer",
            Self::Unordered => "no order",
            Self::Undecided => "undecided",
        })
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append { records, match_seq_num, token } => {
                write!(f, "append records {}..{} under {token}", records.start, records.end)?;
                match match_seq_num {
                    Some(seq_num) => write!(f, " at {seq_num}"),
                    None => Ok(()),
                }
            }
            Self::Fence(token) => write!(f, "fence with {token}"),
            Self::Trim(to) => write!(f, "trim to {to}"),
            Self::Read(from) => write!(f, "read from {from}"),
            Self::Tail => f.write_str("the tail?"),
            Self::Token => f.write_str("the token?"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Appended(start) => write!(f, "appended at {start}"),
            Self::Mismatch(tail) => write!(f, "refused, the tail is {tail}"),
            Self::FencedOut(token) => write!(f, "refused, installed is {token}"),
            Self::Fenced(boundary) => write!(f, "fenced at {boundary}"),
            Self::Trimmed(trim_point) => write!(f, "trimmed to {trim_point}"),
            Self::Page { records, tail, trim_point } => {
                write!(f, "{} records {records:?}, trim point {trim_point}, tail {tail}", records.len())
            }
            Self::BelowTrimPoint { tail, trim_point } => {
                write!(f, "refused, the trim point is {trim_point} and the tail {tail}")
            }
            Self::PastTail(tail) => write!(f, "refused, the tail is {tail}"),
            Self::Tail(tail) => write!(f, "{tail}"),
            Self::Token(token) => write!(f, "{token}"),
            Self::Refused => f.write_str("refused"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| format!("{}.{:03}", ns / 1000, ns % 1000);
        match self.client {
            u32::MAX => f.write_str("the read-back")?,
            client => write!(f, "client {client}")?,
        }
        match &self.answer {
            Some((at, answer)) => write!(f, " {}..{} us: {} -> {answer}", us(self.call), us(*at), self.ask),
            None => write!(f, " {}.. us: {} -> no answer", us(self.call), self.ask),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.says)?;
        let hidden = self.window.len().saturating_sub(SHOWN_MAX);
        if hidden > 0 {
            write!(f, "\n  ({hidden} more)")?;
        }
        for operation in &self.window[hidden..] {
            write!(f, "\n  {operation}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
