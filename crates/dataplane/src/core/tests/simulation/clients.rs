//! Clients of a star: writers with sessions, one-shots, and who fences, trims, moves and deletes; all send again what they have
//! no answer for.

use std::collections::BTreeMap;

use wire::config::{Class, ConfigPatch, ProducerPolicy};
use wire::frame::{self, Next};
use wire::hot::AppendHead;
use wire::ids::{BatchNo, ProducerId, SeqNum, ShardId};
use wire::message::{
    AppendOnce, CheckTail, Fence, GetToken, Message, Open, Read, Start, StreamCreate, StreamDelete, StreamGet,
    StreamReconfigure, Trim, TrimTo,
};
use wire::names::FencingToken;
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::terms::Terms;

use super::super::history::Random;
use super::super::world::{Told, address, batch, decode, token};
use super::star::Star;
use super::truth::Known;
use crate::core::{ConnId, Flow, OutBuffer, Request};

pub(super) const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const WRITERS_A_KEY: usize = 2;
/// Batches of a writer that have no answer, at most: fewer than a stream remembers.
const PENDING_MAX: usize = 10;
const SHOTS_MAX: usize = 4;

/// A batch that has no answer yet.
#[derive(Debug, Clone)]
struct Batch {
    body: String,
    expected: Option<u64>,
    /// It was sent in the present session.
    is_sent: bool,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    handle: u32,
    rank: u32,
    /// The number of the last batch that it acked as a new one, and where.
    last: Option<u64>,
}

#[derive(Debug)]
struct Writer {
    key: usize,
    session: Option<Session>,
    is_opening: bool,
    pending: BTreeMap<u64, Batch>,
    /// The last batch that was acked: to be sent again.
    acked: Option<(u64, String, u64)>,
}

/// A call that has no answer yet.
#[derive(Debug, Clone, Copy)]
enum Call {
    Open {
        writer: usize,
        rank: u32,
    },
    Shot {
        no: u64,
    },
    /// The tail was known to be here when it was asked for.
    Fence {
        key: usize,
        rank: u32,
        tail: u64,
    },
    Trim {
        key: usize,
    },
    Delete {
        key: usize,
        /// One that was asked for before may still happen.
        again: bool,
    },
    Create {
        key: usize,
    },
    Get {
        key: usize,
    },
    Reconfigure,
    Tail {
        key: usize,
    },
    Token {
        key: usize,
    },
    Read {
        key: usize,
    },
}

/// All clients, and what they know.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) known: [Known; KEYS.len()],
    writers: Vec<Writer>,
    shots: BTreeMap<u64, (usize, Batch)>,
    calls: BTreeMap<u64, Call>,
    /// A change of class that was not taken yet.
    wanted: Option<(usize, Class)>,
    /// The stream may be gone: a delete has no answer, or one that leaves open whether it happens.
    is_deleting: [bool; KEYS.len()],
    last_call: u64,
    last_no: u64,
    last_rank: u32,
    pub(super) acked: u64,
    pub(super) resent: u64,
    /// The last answers to gets, by key: whether the stream is there.
    got: [Option<bool>; KEYS.len()],
    /// The last page that was read.
    page: Option<Result<(Vec<String>, bool), Refusal>>,
}

fn token_of(rank: u32) -> FencingToken {
    if rank == 0 { token("") } else { token(&format!("t{rank}")) }
}

/// A refusal after which what was asked for may still happen.
fn is_open_ended(refusal: &Refusal) -> bool {
    !refusal.reason.no_side_effect()
}

impl Clients {
    pub(super) fn new() -> Self {
        let writer = |at: usize| Writer {
            key: at / WRITERS_A_KEY,
            session: None,
            is_opening: false,
            pending: BTreeMap::new(),
            acked: None,
        };
        Self {
            known: std::array::from_fn(|_| Known::default()),
            writers: (0..KEYS.len() * WRITERS_A_KEY).map(writer).collect(),
            shots: BTreeMap::new(),
            calls: BTreeMap::new(),
            wanted: None,
            is_deleting: [false; KEYS.len()],
            last_call: 0,
            last_no: 0,
            last_rank: 0,
            acked: 0,
            resent: 0,
            got: [None; KEYS.len()],
            page: None,
        }
    }

    fn conn(star: &Star, shard: usize, client: usize) -> ConnId {
        let generation = u32::try_from(star.epoch()).unwrap();
        ConnId { shard: ShardId::new(u16::try_from(shard).unwrap()), slot: u32::try_from(client).unwrap(), generation }
    }

    /// The star is another one: nothing is open, and nothing more is answered.
    pub(super) fn connect(&mut self, star: &mut Star) {
        for shard in 0..star.sites.len() {
            for client in 0..=self.writers.len() {
                let conn = Self::conn(star, shard, client);
                star.sites[shard].outs.insert(conn, OutBuffer::default());
            }
        }
        for writer in &mut self.writers {
            (writer.session, writer.is_opening) = (None, false);
            writer.pending.values_mut().for_each(|batch| batch.is_sent = false);
        }
        self.shots.values_mut().for_each(|(_, batch)| batch.is_sent = false);
        self.calls.clear();
        self.wanted = None;
        self.is_deleting = [false; KEYS.len()];
    }

    /// Sends a request to the shard of a key; nothing comes of it when it is not taken.
    fn call<M: Message>(&mut self, star: &mut Star, (key, call): (usize, Call), message: &M, payload: &[u8]) -> Flow {
        let shard = star.owner(KEYS[key]);
        let client = if let Call::Open { writer, .. } = call { writer } else { self.writers.len() };
        let conn = Self::conn(star, shard, client);
        self.last_call += 1;
        let mut out = Vec::new();
        message.frame_with(self.last_call, payload, &mut out);
        let Ok(Next::Frame(frame)) = frame::next(&out, usize::MAX) else { panic!("a whole frame") };
        let request = Request::decode(&frame).unwrap();
        self.calls.insert(self.last_call, call);
        let flow =
            star.shards[shard].on_request((conn, self.last_call), request, frame.payload, &mut star.sites[shard]);
        if flow == Flow::Blocked {
            self.calls.remove(&self.last_call);
        }
        star.end_turn(shard);
        flow
    }

    /// One client does something.
    pub(super) fn act(&mut self, star: &mut Star, random: &mut Random) {
        let key = usize::try_from(random.below(KEYS.len() as u64)).unwrap();
        if self.known[key].stream_id.is_none() {
            self.create(star, key, random);
        } else if self.is_deleting[key] {
            self.delete(star, key);
        } else {
            match random.below(100) {
                0..60 => self.write(star, random),
                60..75 => self.shoot(star, key, random),
                75..80 => self.fence(star, key, random),
                80..85 => self.trim(star, key, random),
                85..87 => self.delete(star, key),
                87..90 => {
                    let class = [Class::Standard, Class::Express][usize::try_from(random.below(2)).unwrap()];
                    self.wanted.get_or_insert((key, class));
                }
                90..92 => {
                    let _ = self.call(star, (key, Call::Tail { key }), &CheckTail { address: address(KEYS[key]) }, &[]);
                }
                92..94 => {
                    let _ = self.call(star, (key, Call::Token { key }), &GetToken { address: address(KEYS[key]) }, &[]);
                }
                94..96 => {
                    let at = usize::try_from(random.below(self.writers.len() as u64)).unwrap();
                    self.leave(star, at);
                }
                _ => {
                    let start = random.below(1 + self.known[key].tail());
                    self.read(star, key, start);
                }
            }
        }
        self.want(star);
        self.hear(star);
    }

    fn want(&mut self, star: &mut Star) {
        let Some((key, class)) = self.wanted.take() else { return };
        if self.known[key].stream_id.is_none() || self.is_deleting[key] {
            return;
        }
        let config = ConfigPatch { class: Some(class), ..ConfigPatch::default() };
        let change = StreamReconfigure { address: address(KEYS[key]), config };
        if self.call(star, (key, Call::Reconfigure), &change, &[]) == Flow::Blocked {
            self.wanted = Some((key, class));
        }
    }

    fn create(&mut self, star: &mut Star, key: usize, random: &mut Random) {
        if self.calls.values().any(|call| matches!(call, Call::Create { key: other } if *other == key)) {
            return;
        }
        let class = if random.below(3) == 0 { Class::Standard } else { Class::Express };
        let policy = if random.below(2) == 0 { ProducerPolicy::Fenced } else { ProducerPolicy::Any };
        self.create_as(star, key, class, policy);
    }

    pub(super) fn create_as(&mut self, star: &mut Star, key: usize, class: Class, policy: ProducerPolicy) {
        let config = ConfigPatch { class: Some(class), producer_policy: Some(policy), ..ConfigPatch::default() };
        let create = StreamCreate { address: address(KEYS[key]), config };
        let _ = self.call(star, (key, Call::Create { key }), &create, &[]);
    }

    /// A writer opens its session, sends again what has no answer, or sends something new.
    fn write(&mut self, star: &mut Star, random: &mut Random) {
        let at = usize::try_from(random.below(self.writers.len() as u64)).unwrap();
        let key = self.writers[at].key;
        if self.known[key].stream_id.is_none() || self.is_deleting[key] || self.writers[at].is_opening {
            return;
        }
        if self.writers[at].session.is_none() {
            self.open(star, at, random);
            return;
        }
        if random.below(20) == 0 {
            self.resend_acked(star, at);
            return;
        }
        let unsent = self.writers[at].pending.iter().find(|(_, batch)| !batch.is_sent).map(|(no, _)| *no);
        let no = match unsent {
            Some(no) => no,
            None if self.writers[at].pending.len() >= PENDING_MAX => return,
            None => {
                let expects = random.below(4) == 0;
                let expected = expects.then(|| self.known[key].tail() + random.below(4));
                let no = self.next_no();
                let body = format!("{}-{at}-{no}", KEYS[key]);
                self.writers[at].pending.insert(no, Batch { body, expected, is_sent: false });
                no
            }
        };
        self.send(star, at, no);
    }

    fn next_no(&mut self) -> u64 {
        self.last_no += 1;
        self.last_no
    }

    fn open(&mut self, star: &mut Star, at: usize, random: &mut Random) {
        let key = self.writers[at].key;
        // Sometimes a writer has not heard of the newest token.
        let newest = self.known[key].hint;
        let rank =
            if random.below(4) == 0 { u32::try_from(random.below(1 + u64::from(newest))).unwrap() } else { newest };
        let rank = if self.known[key].is_fenced { rank } else { 0 };
        let producer = ProducerId::new(1 + at as u64);
        let open = Open { address: address(KEYS[key]), producer, fencing_token: token_of(rank), resume: None };
        if self.call(star, (key, Call::Open { writer: at, rank }), &open, &[]) == Flow::Done {
            self.writers[at].is_opening = self.calls.contains_key(&self.last_call);
        }
    }

    fn send(&mut self, star: &mut Star, at: usize, no: u64) {
        let Writer { key, session: Some(session), pending, .. } = &mut self.writers[at] else { return };
        let Some(batch) = pending.get_mut(&no) else { return };
        let (key, session) = (*key, *session);
        let (body, expected) = (batch.body.clone(), batch.expected);
        self.known[key].on_sent(&body, session.rank);
        if self.put(star, at, (session.handle, no, expected), &body) == Flow::Done
            && let Some(batch) = self.writers[at].pending.get_mut(&no)
        {
            batch.is_sent = true;
        }
        star.end_turn(star.owner(KEYS[key]));
    }

    fn put(&self, star: &mut Star, at: usize, (session, no, expected): (u32, u64, Option<u64>), body: &str) -> Flow {
        let (bytes, batch_crc) = batch(&[body]);
        let match_seq_num = expected.map(SeqNum::new);
        let head = AppendHead { session, no: BatchNo::new(no), match_seq_num, resent: false, batch_crc };
        let shard = star.owner(KEYS[self.writers[at].key]);
        let conn = Self::conn(star, shard, at);
        star.shards[shard].on_append(conn, &head.encode(), &bytes, &mut star.sites[shard])
    }

    /// The batch that was acked last is sent again.
    fn resend_acked(&mut self, star: &mut Star, at: usize) {
        let Writer { session: Some(session), acked: Some((no, body, _)), .. } = &self.writers[at] else { return };
        let _ = self.put(star, at, (session.handle, *no, None), body);
        self.resent += 1;
        star.end_turn(star.owner(KEYS[self.writers[at].key]));
    }

    /// A writer's connection goes away.
    fn leave(&mut self, star: &mut Star, at: usize) {
        self.hear(star);
        let writer = &mut self.writers[at];
        if writer.is_opening {
            return;
        }
        writer.session = None;
        writer.pending.values_mut().for_each(|batch| batch.is_sent = false);
        let shard = star.owner(KEYS[writer.key]);
        let conn = Self::conn(star, shard, at);
        star.shards[shard].on_closed(conn, &mut star.sites[shard]);
        star.end_turn(shard);
    }

    fn shoot(&mut self, star: &mut Star, key: usize, random: &mut Random) {
        let unsent = self.shots.iter().find(|(_, (of, batch))| *of == key && !batch.is_sent).map(|(no, _)| *no);
        let no = match unsent {
            Some(no) => no,
            None if self.shots.values().filter(|(of, _)| *of == key).count() >= SHOTS_MAX => return,
            None => {
                let expected = (random.below(4) == 0).then(|| self.known[key].tail() + random.below(3));
                let no = self.next_no();
                let body = format!("{}-shot-{no}", KEYS[key]);
                self.shots.insert(no, (key, Batch { body, expected, is_sent: false }));
                no
            }
        };
        let rank = if self.known[key].is_fenced { self.known[key].hint } else { 0 };
        let Some((_, shot)) = self.shots.get(&no) else { return };
        let (body, expected) = (shot.body.clone(), shot.expected);
        let (bytes, batch_crc) = batch(&[&body]);
        let once = AppendOnce {
            address: address(KEYS[key]),
            fencing_token: token_of(rank),
            match_seq_num: expected.map(SeqNum::new),
            idempotency: (77, no),
            terms: Terms::default(),
            batch_crc,
        };
        self.known[key].on_sent(&body, rank);
        if self.call(star, (key, Call::Shot { no }), &once, &bytes) == Flow::Done
            && let Some((_, shot)) = self.shots.get_mut(&no)
        {
            shot.is_sent = true;
        }
    }

    fn fence(&mut self, star: &mut Star, key: usize, random: &mut Random) {
        self.last_rank += 1;
        let rank = self.last_rank;
        let fence = Fence { address: address(KEYS[key]), fencing_token: token_of(rank) };
        let tail = self.known[key].tail();
        let _ = self.call(star, (key, Call::Fence { key, rank, tail }), &fence, &[]);
        if random.below(2) == 0 {
            // What is asked at once is judged on what is not durable.
            self.write(star, random);
        }
    }

    fn trim(&mut self, star: &mut Star, key: usize, random: &mut Random) {
        let to = random.below(1 + self.known[key].tail());
        self.known[key].on_trim_asked(to);
        let trim = Trim { address: address(KEYS[key]), to: TrimTo::SeqNum(SeqNum::new(to)) };
        let _ = self.call(star, (key, Call::Trim { key }), &trim, &[]);
    }

    pub(super) fn delete(&mut self, star: &mut Star, key: usize) {
        let has_batches = self.writers.iter().any(|writer| writer.key == key && !writer.pending.is_empty());
        let has_shots = self.shots.values().any(|(of, _)| *of == key);
        if has_batches || has_shots || !self.calls.is_empty() {
            return;
        }
        let delete = StreamDelete { address: address(KEYS[key]) };
        let again = self.is_deleting[key];
        let flow = self.call(star, (key, Call::Delete { key, again }), &delete, &[]);
        self.is_deleting[key] = again || flow == Flow::Done;
    }

    fn read(&mut self, star: &mut Star, key: usize, start: u64) {
        let start = Start::SeqNum(SeqNum::new(start));
        let read = Read { address: address(KEYS[key]), start, clamp: false, limit: 0, max_bytes: 0, until_ms: None };
        let _ = self.call(star, (key, Call::Read { key }), &read, &[]);
    }

    /// Takes in all that the shards have answered.
    pub(super) fn hear(&mut self, star: &mut Star) {
        for shard in 0..star.sites.len() {
            for client in 0..=self.writers.len() {
                let conn = Self::conn(star, shard, client);
                let out = star.sites[shard].outs.get_mut(&conn);
                let bytes = out.map(OutBuffer::take).unwrap_or_default();
                self.hear_all(client, &bytes);
            }
        }
    }

    fn hear_all(&mut self, client: usize, mut rest: &[u8]) {
        while !rest.is_empty() {
            let Ok(Next::Frame(frame)) = frame::next(rest, usize::MAX) else { panic!("a whole frame") };
            let mut told = Vec::new();
            decode(&frame, &mut told);
            told.into_iter().for_each(|told| self.take(client, frame.correlation, told));
            rest = &rest[frame.frame_bytes..];
        }
    }

    fn take(&mut self, client: usize, correlation: u64, told: Told) {
        match told {
            Told::Acked(session, ack, tail) => {
                let is_new = self.take_ack(client, session, ack.no.get(), ack.start.seq_num.get());
                let key = self.writers[client].key;
                assert!(tail.seq_num >= ack.end().seq_num, "the tail that is told with an ack is past it");
                if is_new {
                    self.known[key].on_tail(tail.seq_num.get().max(self.known[key].tail()));
                }
            }
            Told::AppendRefused(session, no, refusal) => {
                let is_now = self.writers[client].session.is_some_and(|held| held.handle == session);
                if is_now {
                    self.take_refused(client, no, &refusal);
                }
            }
            Told::Ended(session, _) => {
                let writer = &mut self.writers[client];
                if writer.session.is_some_and(|held| held.handle == session) {
                    writer.session = None;
                    writer.pending.values_mut().for_each(|batch| batch.is_sent = false);
                }
            }
            other => {
                if let Some(call) = self.calls.remove(&correlation) {
                    self.take_answer(call, other);
                }
            }
        }
    }

    /// Answers whether it is the first ack of the batch.
    fn take_ack(&mut self, client: usize, session: u32, no: u64, start: u64) -> bool {
        let writer = &mut self.writers[client];
        let Some(batch) = writer.pending.remove(&no) else {
            if let Some((last, body, at)) = &writer.acked
                && *last == no
            {
                assert_eq!(*at, start, "{body} is acked at another place when it is sent again");
            }
            return false;
        };
        if let Some(expected) = batch.expected {
            assert_eq!(expected, start, "{} is where it was not expected", batch.body);
        }
        if let Some(held) = writer.session.as_mut().filter(|held| held.handle == session) {
            let is_after = held.last.is_none_or(|last| last < start);
            let is_known = self.known[writer.key].tail() > start;
            assert!(is_after || is_known, "{} is acked out of order", batch.body);
            held.last = Some(held.last.map_or(start, |last| last.max(start)));
        }
        self.known[writer.key].on_record(start, &batch.body);
        writer.acked = Some((no, batch.body, start));
        self.acked += 1;
        true
    }

    fn take_refused(&mut self, client: usize, no: u64, refusal: &Refusal) {
        let writer = &mut self.writers[client];
        if refusal.reason == Reason::Internal && writer.acked.as_ref().is_some_and(|(acked, ..)| *acked > no) {
            // A later one is remembered and this one is not: nobody can tell what became of it any more.
            writer.pending.remove(&no);
            return;
        }
        if is_open_ended(refusal) || refusal.reason == Reason::ResourceExhausted {
            if let Some(batch) = writer.pending.get_mut(&no) {
                batch.is_sent = false;
            }
            return;
        }
        if matches!(refusal.reason, Reason::FencedOut | Reason::Superseded | Reason::NotFound) {
            // The session has ended: it goes on in the next one.
            writer.session = None;
            writer.pending.values_mut().for_each(|batch| batch.is_sent = false);
            return;
        }
        let Some(batch) = writer.pending.remove(&no) else { return };
        check_mismatch(&batch, refusal);
        self.known[writer.key].on_refused(&batch.body);
    }

    fn take_answer(&mut self, call: Call, told: Told) {
        match (call, told) {
            (Call::Open { writer, rank }, Told::Opened(opened)) => {
                let known = &mut self.known[self.writers[writer].key];
                known.on_tail(opened.tail.seq_num.get().max(known.tail()));
                let session = Session { handle: opened.session, rank, last: None };
                (self.writers[writer].session, self.writers[writer].is_opening) = (Some(session), false);
            }
            (Call::Open { writer, .. }, Told::Refused(_, refusal)) => {
                self.writers[writer].is_opening = false;
                self.learn(self.writers[writer].key, &refusal);
            }
            (Call::Shot { no }, Told::Appended(appended)) => {
                let Some((key, shot)) = self.shots.remove(&no) else { return };
                if let Some(expected) = shot.expected {
                    assert_eq!(expected, appended.start.seq_num.get(), "{} is where it was not expected", shot.body);
                }
                self.known[key].on_record(appended.start.seq_num.get(), &shot.body);
                self.acked += 1;
            }
            (Call::Shot { no }, Told::Refused(_, refusal)) => self.take_shot_refused(no, &refusal),
            (Call::Fence { key, rank, tail }, Told::Fenced(from)) => {
                let from = from.seq_num.get();
                assert!(from >= tail, "a new fence begins at {from}, before {tail}");
                self.known[key].on_fenced(from, rank);
            }
            (Call::Trim { key }, Told::Trimmed(trim_point)) => self.known[key].on_trim_point(trim_point),
            (Call::Delete { key, .. }, Told::Done(_)) => self.on_deleted(key),
            (Call::Delete { key, again }, Told::Refused(_, refusal)) => {
                self.is_deleting[key] = again || is_open_ended(&refusal);
            }
            (Call::Tail { key }, Told::Tail(tail)) => self.known[key].on_tail(tail.seq_num.get()),
            (Call::Token { key }, Told::Token(text)) => {
                let rank = text.trim_start_matches('t').parse().unwrap_or(0);
                self.known[key].on_token(rank);
            }
            (Call::Create { key } | Call::Get { key }, Told::Stream(answer)) => {
                let stream = &answer.stream;
                if self.known[key].stream_id != Some(stream.stream_id) {
                    // The one before was deleted though nobody was told, or this one was made so.
                    self.on_deleted(key);
                    let is_fenced = stream.config.producer_policy == ProducerPolicy::Fenced;
                    self.known[key] = Known::made(stream.stream_id, is_fenced);
                }
                self.known[key].on_tail(stream.tail.seq_num.get());
                self.known[key].on_trim_point(stream.trim_point.get());
                self.got[key] = Some(true);
            }
            (Call::Get { key }, Told::Refused(_, refusal)) if refusal.reason == Reason::NotFound => {
                self.got[key] = Some(false);
            }
            (Call::Read { key }, Told::Page(page)) => {
                for (seq_num, body) in (page.start..).zip(&page.bodies) {
                    self.known[key].on_record(seq_num, body);
                }
                self.page = Some(Ok((page.bodies, page.at_tail)));
            }
            (Call::Read { .. }, Told::Refused(_, refusal)) => self.page = Some(Err(refusal)),
            (_, Told::Refused(..)) | (Call::Reconfigure, Told::Stream(_)) => {}
            (call, told) => panic!("{call:?} is answered by {told:?}"),
        }
    }

    /// Hears of the token that stands.
    fn learn(&mut self, key: usize, refusal: &Refusal) {
        let token = refusal.details.as_ref().and_then(|details| details.fencing_token.as_ref());
        if let Some(token) = token {
            let rank = token.to_string().trim_start_matches('t').parse().unwrap_or(0);
            self.known[key].hint = self.known[key].hint.max(rank);
        }
    }

    fn take_shot_refused(&mut self, no: u64, refusal: &Refusal) {
        if let Some((key, _)) = self.shots.get(&no) {
            self.learn(*key, refusal);
        }
        let is_fence = refusal.reason == Reason::FencedOut || refusal.reason == Reason::WriterHeld;
        if is_open_ended(refusal) || is_fence || refusal.reason == Reason::ResourceExhausted {
            if let Some((_, shot)) = self.shots.get_mut(&no) {
                shot.is_sent = false;
            }
            return;
        }
        let Some((key, shot)) = self.shots.remove(&no) else { return };
        check_mismatch(&shot, refusal);
        self.known[key].on_refused(&shot.body);
    }

    /// The stream of a key is gone, with all that was in it.
    fn on_deleted(&mut self, key: usize) {
        self.known[key] = Known::default();
        self.is_deleting[key] = false;
        for writer in self.writers.iter_mut().filter(|writer| writer.key == key) {
            (writer.session, writer.acked) = (None, None);
            writer.pending.clear();
        }
        self.shots.retain(|_, (of, _)| *of != key);
    }

    /// Whether nothing has no answer.
    pub(super) fn is_content(&self) -> bool {
        let writers = self.writers.iter().all(|writer| writer.pending.is_empty() && !writer.is_opening);
        let deletes = !self.is_deleting.contains(&true);
        writers && deletes && self.shots.is_empty() && self.calls.is_empty() && self.wanted.is_none()
    }

    /// Everyone sends what has no answer, and nothing new.
    pub(super) fn finish(&mut self, star: &mut Star, random: &mut Random) {
        for at in 0..self.writers.len() {
            if self.writers[at].pending.is_empty() && self.writers[at].session.is_some() {
                // A one-shot of another waits for that.
                self.leave(star, at);
            }
            if self.writers[at].pending.is_empty() || self.writers[at].is_opening {
                continue;
            }
            if self.writers[at].session.is_none() {
                self.open(star, at, random);
            }
            let unsent: Vec<u64> =
                self.writers[at].pending.iter().filter(|(_, batch)| !batch.is_sent).map(|(no, _)| *no).collect();
            unsent.into_iter().for_each(|no| self.send(star, at, no));
        }
        for key in 0..KEYS.len() {
            if self.shots.values().any(|(of, batch)| *of == key && !batch.is_sent) {
                self.shoot(star, key, random);
            }
            if self.is_deleting[key] {
                self.delete(star, key);
            }
        }
        self.want(star);
        self.hear(star);
    }

    /// Reads every stream from its trim point to its tail.
    pub(super) fn read_back(&mut self, star: &mut Star, random: &mut Random) {
        for (key, name) in KEYS.iter().enumerate() {
            let was_there = self.known[key].stream_id.is_some();
            let may_be_gone = self.is_deleting[key];
            let is_there = self.ask_whether_there(star, key, random);
            if is_there {
                self.read_stream(star, key, random);
            } else if was_there {
                assert!(may_be_gone, "the stream of {name} is gone");
                self.on_deleted(key);
            }
        }
    }

    fn ask_whether_there(&mut self, star: &mut Star, key: usize, random: &mut Random) -> bool {
        self.got[key] = None;
        for _ in 0..DEADLINE_TURNS {
            if let Some(is_there) = self.got[key] {
                return is_there;
            }
            let is_asked = self.calls.values().any(|call| matches!(call, Call::Get { .. }));
            let get = StreamGet { address: address(KEYS[key]) };
            let _ = if is_asked { Flow::Done } else { self.call(star, (key, Call::Get { key }), &get, &[]) };
            star.work(random);
            self.hear(star);
        }
        panic!("nobody says what is at {}", KEYS[key]);
    }

    fn read_stream(&mut self, star: &mut Star, key: usize, random: &mut Random) {
        let start = self.known[key].trim_point();
        let mut all = Vec::new();
        for _ in 0..DEADLINE_TURNS {
            let page = self.read_page(star, key, start + all.len() as u64, random);
            let at_tail = page.is_some_and(|(bodies, at_tail)| {
                all.extend(bodies);
                at_tail
            });
            if at_tail {
                self.known[key].on_all(start, &all);
                return;
            }
        }
        panic!("{} can't be read to its end", KEYS[key]);
    }

    /// The page from here on, and whether it ends at the tail; none when it was not taken.
    fn read_page(
        &mut self,
        star: &mut Star,
        key: usize,
        from: u64,
        random: &mut Random,
    ) -> Option<(Vec<String>, bool)> {
        self.page = None;
        self.read(star, key, from);
        for _ in 0..DEADLINE_TURNS {
            star.work(random);
            self.hear(star);
            if self.page.is_some() || !self.calls.values().any(|call| matches!(call, Call::Read { .. })) {
                break;
            }
        }
        let page = self.page.take()?;
        Some(page.unwrap_or_else(|refusal| panic!("{} can't be read from {from}: {refusal:?}", KEYS[key])))
    }

    /// What was being deleted may be gone.
    pub(super) fn deleting(&self) -> [bool; KEYS.len()] {
        self.is_deleting
    }

    pub(super) fn set_deleting(&mut self, deleting: [bool; KEYS.len()]) {
        self.is_deleting = deleting;
    }
}

/// Turns in which a star at rest answers anything.
pub(super) const DEADLINE_TURNS: usize = 300;

fn check_mismatch(batch: &Batch, refusal: &Refusal) {
    if refusal.reason == Reason::SequenceMismatch {
        let tail = refusal.tail().map(|tail| tail.seq_num.get());
        assert!(batch.expected.is_some() && tail != batch.expected, "{} is refused for {tail:?}", batch.body);
    }
}
