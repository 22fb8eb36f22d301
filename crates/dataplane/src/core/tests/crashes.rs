//! Whatever lane a batch took and whenever the star crashes: what was acked is there, once, where the ack said.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::config::{Class, ConfigPatch};
use wire::handoff::ToShard;
use wire::ids::{ProducerId, SeqNum};
use wire::message::{Open, Start, StreamReconfigure};

use super::history::Random;
use super::world::*;
use crate::core::Flow;

const KEYS: [&str; 3] = ["a", "b", "c"];

struct Run {
    test: Test,
    random: Random,
    /// The open session of each stream.
    sessions: BTreeMap<&'static str, u32>,
    sent: u64,
    /// One-shots by their stamp: to which stream, and what.
    shots: BTreeMap<i64, (&'static str, String)>,
    /// By stream and sequence number, what was acked.
    acked: BTreeMap<(&'static str, u64), String>,
    is_stalled: bool,
    /// A change of class that is not taken yet.
    wanted: Option<StreamReconfigure>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let test = Test::new();
        let (sessions, acked) = (BTreeMap::new(), BTreeMap::new());
        Self {
            test,
            random: Random(seed),
            sessions,
            sent: 0,
            shots: BTreeMap::new(),
            acked,
            is_stalled: false,
            wanted: None,
        }
    }

    fn key(&mut self) -> &'static str {
        KEYS[usize::try_from(self.random.below(3)).unwrap()]
    }

    fn happen(&mut self) {
        match self.random.below(16) {
            0..6 => self.append(),
            6..8 => {
                let assigned = self.test.world.entries.len() as u64;
                let lsn = self.test.world.durable + self.random.below(1 + assigned - self.test.world.durable);
                self.test.commit_to(lsn);
            }
            8..10 => self.test.shard.hand_over(&mut self.test.world),
            10 => {
                let parcels = usize::try_from(self.random.below(3)).unwrap();
                self.test.commit_parcels(parcels);
            }
            11 => self.test.apply_standard(),
            12 => {
                let entries = usize::try_from(self.random.below(9)).unwrap();
                self.test.settle(entries);
            }
            13 => {
                let class = if self.random.below(2) == 0 { Class::Standard } else { Class::Express };
                let config = ConfigPatch { class: Some(class), ..ConfigPatch::default() };
                let address = address(self.key());
                self.wanted.get_or_insert(StreamReconfigure { address, config });
            }
            14 => {
                self.is_stalled = !self.is_stalled && self.random.below(3) == 0;
                let why = self.is_stalled.then(|| Arc::from("down"));
                self.test.shard.on_control(ToShard::Stall { why }, &mut self.test.world);
            }
            _ => self.test.wait(300),
        }
        if let Some(wanted) = self.wanted.take()
            && self.test.ask_with(B, &wanted, &[]).0 == Flow::Blocked
        {
            self.wanted = Some(wanted);
        }
        self.hear();
    }

    fn append(&mut self) {
        let key = self.key();
        self.sent += 1;
        let body = format!("{key}-{}", self.sent);
        let stamp = i64::try_from(self.sent).unwrap();
        match self.sessions.get(key).copied() {
            Some(session) if self.random.below(2) == 0 => {
                let _ = self.test.append_if(A, (session, self.sent), None, &stamped(&[(Some(stamp), &body)]));
            }
            None if self.random.below(4) == 0 => self.open(key),
            Some(_) | None => {
                let (bytes, crc) = stamped(&[(Some(stamp), &body)]);
                self.shots.insert(stamp, (key, body));
                let _ = self.test.ask_with(C, &Test::once(key, crc), &bytes);
            }
        }
    }

    fn open(&mut self, key: &'static str) {
        let open = Open { address: address(key), producer: ProducerId::new(7), fencing_token: token(""), resume: None };
        if self.test.ask_with(A, &open, &[]).0 == Flow::Blocked {
            self.test.serve_control();
            return;
        }
        self.test.commit_all();
        for told in self.test.told(A) {
            match told {
                Told::Opened(opened) => drop(self.sessions.insert(key, opened.session)),
                other => self.take(other),
            }
        }
    }

    fn hear(&mut self) {
        for told in self.test.told(A) {
            self.take(told);
        }
        for told in self.test.told(C) {
            if let Told::Appended(appended) = told {
                let (key, body) = self.shots[&appended.start.timestamp_ms].clone();
                self.note(key, appended.start.seq_num, body);
            }
        }
        let _ = self.test.told(B);
    }

    fn note(&mut self, key: &'static str, seq_num: SeqNum, body: String) {
        let before = self.acked.insert((key, seq_num.get()), body);
        assert_eq!(before, None, "{key} {seq_num} is acked twice");
    }

    fn take(&mut self, told: Told) {
        match told {
            Told::Acked(session, ack, _) => {
                let of = |(key, held): (&&'static str, &u32)| (*held == session).then_some(*key);
                let Some(key) = self.sessions.iter().find_map(of) else { return };
                self.note(key, ack.start.seq_num, format!("{key}-{}", ack.no.get()));
            }
            Told::Ended(session, _) => self.sessions.retain(|_, held| *held != session),
            Told::AppendRefused(..) | Told::Refused(..) => {}
            other => panic!("{other:?}"),
        }
    }

    fn crash(&mut self) {
        let test = std::mem::replace(&mut self.test, Test::new());
        self.test = test.crashed();
        self.sessions.clear();
        self.wanted = None;
        self.is_stalled = false;
        for key in KEYS {
            let Ok(page) = self.test.page(&Test::reading(key, Start::SeqNum(SeqNum::ZERO))) else { continue };
            for ((_, seq_num), body) in self.acked.range((key, 0)..(key, u64::MAX)) {
                assert_eq!(page.bodies.get(usize::try_from(*seq_num).unwrap()), Some(body), "{key} {seq_num}");
            }
        }
    }
}

#[test]
fn what_was_acked_survives_a_crash_wherever_it_went() {
    for seed in 0..60 {
        let mut run = Run::new(seed);
        for _ in 0..4 {
            for _ in 0..60 {
                run.happen();
            }
            run.crash();
        }
        assert!(!run.acked.is_empty(), "{seed}");
    }
}
