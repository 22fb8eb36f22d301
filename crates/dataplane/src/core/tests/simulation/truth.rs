//! What clients were told of a stream, which must stay true whatever happens.

use std::collections::{BTreeMap, HashMap};

use wire::ids::StreamId;

/// A record that was sent, maybe more than once.
#[derive(Debug, Clone, Default)]
struct Sent {
    /// The highest token that it was sent under.
    rank: u32,
    /// It was refused for good.
    refused: bool,
}

/// One stream, from its creation to its deletion.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) stream_id: Option<StreamId>,
    /// It has one writer at a time, by tokens.
    pub(super) is_fenced: bool,
    sent: HashMap<String, Sent>,
    /// What is known to be there, by sequence number.
    records: BTreeMap<u64, String>,
    /// The tail was seen here.
    tail: u64,
    trim_point: u64,
    /// The highest trim that was asked for.
    trim_asked: u64,
    /// The highest token that was ever heard of.
    pub(super) hint: u32,
    /// Where a token was told to be installed, and its rank.
    fences: Vec<(u64, u32)>,
}

impl Known {
    /// A stream that was just made.
    pub(super) fn made(stream_id: StreamId, is_fenced: bool) -> Self {
        Self { stream_id: Some(stream_id), is_fenced, ..Self::default() }
    }

    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    pub(super) fn trim_point(&self) -> u64 {
        self.trim_point
    }

    /// The highest token that is known to be installed.
    pub(super) fn rank(&self) -> u32 {
        self.fences.iter().map(|(_, rank)| *rank).max().unwrap_or(0)
    }

    pub(super) fn on_sent(&mut self, body: &str, rank: u32) {
        let sent = self.sent.entry(body.to_owned()).or_default();
        sent.rank = sent.rank.max(rank);
    }

    /// It is never going to be there.
    pub(super) fn on_refused(&mut self, body: &str) {
        if let Some(sent) = self.sent.get_mut(body) {
            sent.refused = true;
        }
        assert!(self.records.values().all(|there| there != body), "{body} is refused, and is there");
    }

    /// A record was acked here, or read.
    pub(super) fn on_record(&mut self, seq_num: u64, body: &str) {
        let sent = self.sent.get(body).unwrap_or_else(|| panic!("{seq_num} holds {body}, which was never sent there"));
        assert!(!sent.refused, "{seq_num} holds {body}, which was refused");
        let fenced_by =
            self.fences.iter().filter(|(from, _)| *from <= seq_num).map(|(_, rank)| *rank).max().unwrap_or(0);
        assert!(
            !self.is_fenced || sent.rank >= fenced_by,
            "{seq_num} holds {body} of token {}, after {fenced_by}",
            sent.rank
        );
        if let Some(before) = self.records.insert(seq_num, body.to_owned()) {
            assert_eq!(before, body, "{seq_num} holds another record than before");
        } else {
            let twice = self.records.iter().find(|(other, there)| **other != seq_num && *there == body);
            assert_eq!(twice, None, "{body} is there twice, also at {seq_num}");
        }
        self.tail = self.tail.max(seq_num + 1);
    }

    /// The tail was told.
    pub(super) fn on_tail(&mut self, tail: u64) {
        assert!(tail >= self.tail, "the tail is {tail}, and was {}", self.tail);
        self.tail = tail;
    }

    pub(super) fn on_fenced(&mut self, from: u64, rank: u32) {
        let is_late = |(_, body): &(&u64, &String)| self.sent[body.as_str()].rank < rank;
        let late = self.records.range(from..).find(is_late).filter(|_| self.is_fenced);
        assert_eq!(late, None, "a record of an earlier token is behind fence {rank}, which stands at {from}");
        self.fences.push((from, rank));
        self.hint = self.hint.max(rank);
    }

    /// The token is told to be of this rank.
    pub(super) fn on_token(&self, rank: u32) {
        assert!(rank >= self.rank(), "token {rank} is installed, and {} was told to be", self.rank());
    }

    pub(super) fn on_trim_asked(&mut self, to: u64) {
        self.trim_asked = self.trim_asked.max(to);
    }

    /// The trim point is told to be here.
    pub(super) fn on_trim_point(&mut self, trim_point: u64) {
        assert!(trim_point >= self.trim_point, "the trim point is {trim_point}, and was {}", self.trim_point);
        assert!(trim_point <= self.trim_asked, "the trim point is {trim_point}, and nobody asked for it");
        self.trim_point = trim_point;
    }

    /// All records from `start` on, up to the tail, were read.
    pub(super) fn on_all(&mut self, start: u64, bodies: &[String]) {
        for (seq_num, body) in (start..).zip(bodies) {
            self.on_record(seq_num, body);
        }
        let end = start + bodies.len() as u64;
        assert!(end >= self.tail, "{end} is where the stream ends, and its tail was {}", self.tail);
        let gone =
            self.records.range(start.max(self.trim_point)..).map(|(seq_num, _)| *seq_num).filter(|at| *at >= end);
        assert_eq!(gone.count(), 0, "acked records are gone");
    }
}
