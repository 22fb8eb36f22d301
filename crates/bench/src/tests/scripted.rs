//! A server that keeps streams in memory and breaks one promise on purpose.

use std::collections::BTreeMap;
use std::io::{Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use wire::batch::{BatchBuilder, VerifiedBatch};
use wire::bucket::{Bucket, BucketState};
use wire::config::{Class, ConfigPatch, StreamConfig};
use wire::entry::{BatchHead, Numbered, Place, Stamping, batch_entry_bytes, encode_batch};
use wire::frame::{self, Frame, Kind, Next};
use wire::hot::{Ack, AckWriter, AppendHead, RecordsHead};
use wire::ids::{BatchNo, BucketId, ClusterId, Epoch, Position, ProducerId, Rev, SeqNum, StarId, StreamId};
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{
    AppendOnce, AppendRefused, Appended, BucketAnswer, BucketEnsure, BucketUpdate, CheckTail, Credit, Done, Fence,
    Fenced, GoAway, Hello, Message, Open, Opened, Ping, Pong, Read, SessionEnded, Start, StreamAnswer, StreamDelete,
    StreamGet, StreamInfo, Subscribe, Subscribed, Tail, Trim, TrimTo, Trimmed, Welcome, refuse,
};
use wire::names::BucketName;
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;

/// What the server does other than it should.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    None,
    /// The append with this number, of all, gets sequence numbers one too high.
    Gap(u64),
    /// It is acked twice.
    Double(u64),
    /// It and all later ones get no answer.
    Silence(u64),
    /// The connection is closed at it.
    Close(u64),
    /// It is answered by a request to go.
    GoAway(u64),
    /// It ends its session.
    EndSession(u64),
    /// Every so many appends are refused.
    RefuseEvery(u64),
    /// The answer to it comes so late.
    Stall(u64, Duration),
    /// No session is opened.
    RefuseOpens,
    /// Subscribers don't get it.
    Undelivered(u64),
    /// Pages leave out the batch with this place in its stream.
    Unread(usize),
    /// The one-shot append with this number, of all, is acked and not stored.
    Lost(u64),
    /// It is stored twice and acked once.
    StoredTwice(u64),
    /// Pages have the batch with this place in its stream, and the next one, in each other's stead.
    Swapped(usize),
    /// Pages have other bytes in it, with the sum of those.
    OtherBody(usize),
    /// Pages have it stamped before the one before it.
    StampFalls(usize),
    /// Fencing tokens mean nothing.
    Unfenced,
    /// An append that expects the sequence number of the last batch is acked as that, once.
    TwoWinners,
    /// The one-shot append with this number is shown to readers, then taken back, and its connection closed.
    ReadThenLost(u64),
    /// From so many one-shot appends on tails are told so much off.
    Tail(u64, i64),
    /// No stream settles.
    Unsettled,
}

/// A batch as it was appended: its first record, its sum and its bytes.
type Batch = (u64, u32, Vec<u8>);

/// A subscription to what was there before it.
struct CatchUp {
    subscription: u32,
    key: String,
    next: usize,
    credit: i64,
}

#[derive(Debug, Default)]
struct State {
    /// Of each key, its batches.
    logs: BTreeMap<String, Vec<Batch>>,
    /// Of each key, one past its last record.
    ends: BTreeMap<String, u64>,
    /// Of each key, its fencing token.
    tokens: BTreeMap<String, String>,
    /// Pages that were served.
    reads: u64,
    appends: u64,
    pongs: u64,
    subscribers: Vec<TcpStream>,
}

/// The server; it runs until the test process ends.
#[derive(Debug, Clone)]
pub(crate) struct Scripted {
    pub(crate) addr: String,
    state: Arc<Mutex<State>>,
    fault: Fault,
    window: u32,
}

impl Scripted {
    pub(crate) fn start(fault: Fault, window: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { addr: listener.local_addr().unwrap().to_string(), state: Arc::default(), fault, window };
        let serving = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let server = serving.clone();
                thread::spawn(move || Connection { server, keys: Vec::new(), catch_up: None }.serve(stream.unwrap()));
            }
        });
        server
    }

    /// Of each stream, one past its last record.
    pub(crate) fn ends(&self) -> Vec<u64> {
        self.state.lock().unwrap().ends.values().copied().collect()
    }

    pub(crate) fn pongs(&self) -> u64 {
        self.state.lock().unwrap().pongs
    }
}

struct Connection {
    server: Scripted,
    keys: Vec<String>,
    catch_up: Option<CatchUp>,
}

impl Connection {
    fn serve(&mut self, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut inbox = Vec::new();
        let mut scratch = [0; 8 << 10];
        loop {
            let bytes = stream.read(&mut scratch).unwrap_or(0);
            inbox.extend_from_slice(&scratch[..bytes]);
            let mut out = Vec::new();
            let is_over = bytes == 0 || !self.answer_all(&mut inbox, &stream, &mut out);
            // A generator that has its verdict may be gone.
            if is_over || stream.write_all(&out).is_err() {
                return;
            }
        }
    }

    fn answer_all(&mut self, inbox: &mut Vec<u8>, stream: &TcpStream, out: &mut Vec<u8>) -> bool {
        let mut at = 0;
        while let Next::Frame(frame) = frame::next(&inbox[at..], FRAME_BODY_BYTES_MAX).unwrap() {
            at += frame.frame_bytes;
            if !self.answer(&frame, stream, out) {
                return false;
            }
        }
        inbox.drain(..at);
        true
    }

    /// Answers a frame; false ends the connection.
    fn answer(&mut self, frame: &Frame<'_>, stream: &TcpStream, out: &mut Vec<u8>) -> bool {
        match frame.kind {
            Kind::Hello => self.welcome(frame, out),
            Kind::Open => self.open(frame, out),
            Kind::Append => return self.append(frame, out),
            Kind::AppendOnce => return self.append_once(frame, out),
            Kind::Subscribe => self.subscribe(frame, stream, out),
            Kind::Credit => {
                let Credit { bytes, .. } = Credit::of(frame).unwrap();
                assert!(bytes > 0);
                if let Some(catch_up) = &mut self.catch_up {
                    catch_up.credit += i64::from(bytes);
                    self.pump(out);
                }
            }
            Kind::Unsubscribe => {
                self.catch_up = None;
                Done {}.frame(frame.correlation, out);
            }
            Kind::CheckTail => {
                let CheckTail { address } = CheckTail::of(frame).unwrap();
                let state = self.server.state.lock().unwrap();
                let end = state.ends.get(address.key.as_str()).copied().unwrap_or(0);
                let off = match self.server.fault {
                    Fault::Tail(from, off) if state.appends >= from => off,
                    _ => 0,
                };
                let end = end.saturating_add_signed(off);
                Tail { tail: Position::new(SeqNum::new(end), 5) }.frame(frame.correlation, out);
            }
            Kind::Read => self.read(frame, out),
            Kind::BucketEnsure => {
                let BucketEnsure { spec } = BucketEnsure::of(frame).unwrap();
                bucket(spec.name, spec.defaults).frame(frame.correlation, out);
            }
            Kind::BucketUpdate => {
                let BucketUpdate { name, patch } = BucketUpdate::of(frame).unwrap();
                bucket(name, patch.defaults).frame(frame.correlation, out);
            }
            Kind::Fence => self.fence(frame, out),
            Kind::StreamGet => self.stream(frame, out),
            Kind::StarGet => refuse(frame.correlation, Refusal::new(Reason::NotFound, "no counters"), out),
            Kind::Trim => {
                let Trim { to, .. } = Trim::of(frame).unwrap();
                let TrimTo::SeqNum(trim_point) = to else { panic!("a trim by number") };
                Trimmed { trim_point }.frame(frame.correlation, out);
            }
            Kind::StreamDelete => {
                let StreamDelete { address } = StreamDelete::of(frame).unwrap();
                let mut state = self.server.state.lock().unwrap();
                state.ends.remove(address.key.as_str());
                state.logs.remove(address.key.as_str());
                Done {}.frame(frame.correlation, out);
            }
            Kind::Pong => {
                assert_eq!(Pong::of(frame).unwrap().echo, 77);
                self.server.state.lock().unwrap().pongs += 1;
            }
            kind => panic!("a generator does not send {kind:?}"),
        }
        true
    }

    fn welcome(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        assert!(Hello::of(frame).unwrap().client.starts_with("nova-bench/"));
        let welcome = Welcome {
            cluster_id: ClusterId::default(),
            star_id: StarId::default(),
            version: "scripted".to_owned(),
            shard: 0,
            shards: 1,
            append_window: self.server.window,
            keepalive_ms: 10_000,
            frame_body_bytes_max: 1 << 20,
        };
        welcome.frame(frame.correlation, out);
    }

    fn open(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let open = Open::of(frame).unwrap();
        if self.server.fault == Fault::RefuseOpens {
            return refuse(frame.correlation, Refusal::new(Reason::NotFound, "no such bucket"), out);
        }
        Ping { echo: 77 }.frame(0, out);
        let key = open.address.key.as_str().to_owned();
        let end = *self.server.state.lock().unwrap().ends.entry(key.clone()).or_default();
        let opened = Opened {
            // Handles are the server's to choose.
            session: 1_000 + u32::try_from(self.keys.len()).unwrap(),
            stream_id: StreamId::default(),
            slot_epoch: Epoch::ZERO,
            tail: Position::new(SeqNum::new(end), 0),
            window: self.server.window,
        };
        self.keys.push(key);
        opened.frame(frame.correlation, out);
    }

    fn subscribe(&mut self, frame: &Frame<'_>, stream: &TcpStream, out: &mut Vec<u8>) {
        let subscribe = Subscribe::of(frame).unwrap();
        let Start::SeqNum(start) = subscribe.start else { panic!("a start by number") };
        let (subscription, key) = (subscribe.subscription, subscribe.address.key.as_str().to_owned());
        Subscribed { subscription, stream_id: StreamId::default(), start }.frame(frame.correlation, out);
        let mut state = self.server.state.lock().unwrap();
        if state.logs.contains_key(&key) {
            drop(state);
            let credit = i64::from(subscribe.credit_bytes);
            self.catch_up = Some(CatchUp { subscription, key, next: 0, credit });
            self.pump(out);
        } else {
            state.subscribers.push(stream.try_clone().unwrap());
        }
    }

    /// Sends what the credit of the subscription allows.
    fn pump(&mut self, out: &mut Vec<u8>) {
        let Some(catch_up) = &mut self.catch_up else { return };
        let state = self.server.state.lock().unwrap();
        for batch in &state.logs[&catch_up.key][catch_up.next..] {
            if catch_up.credit <= 0 {
                return;
            }
            catch_up.next += 1;
            let before = out.len();
            put_records(Kind::Records, 0, catch_up.subscription, &[batch], out);
            catch_up.credit -= i64::try_from(out.len() - before).unwrap();
        }
    }

    fn read(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let read = Read::of(frame).unwrap();
        let Start::SeqNum(start) = read.start else { panic!("a start by number") };
        let mut state = self.server.state.lock().unwrap();
        state.reads += 1;
        let log = state.logs.get(read.address.key.as_str()).cloned().unwrap_or_default();
        let from = log.partition_point(|(first, ..)| *first < start.get());
        let shown: Vec<_> = (from..log.len()).filter_map(|at| self.shown(&log, at)).take(7).collect();
        let fault = self.server.fault;
        let head = |first, batch: &VerifiedBatch<'_>| {
            let falls = matches!(fault, Fault::StampFalls(at) if log.get(at).is_some_and(|of| of.0 == first));
            let stamp = if falls { 3 } else { 5 };
            let stamping = Stamping::of(&StreamConfig::default(), stamp, stamp);
            BatchHead { stamping, last_ms: stamp, ..batch_head(first, batch) }
        };
        let shown: Vec<_> = shown.iter().collect();
        put_records_with((Kind::Page, frame.correlation, 0), &shown, head, out);
    }

    fn append(&self, frame: &Frame<'_>, out: &mut Vec<u8>) -> bool {
        let head = AppendHead::decode(frame.head).unwrap();
        let batch = VerifiedBatch::verify(frame.payload, head.batch_crc).unwrap();
        let (session, no) = (head.session, head.no);
        let mut state = self.server.state.lock().unwrap();
        state.appends += 1;
        let number = state.appends;
        let refusal = || Refusal::new(Reason::ResourceExhausted, "full");
        match self.server.fault {
            Fault::Silence(at) if number >= at => return true,
            Fault::Close(at) if number == at => return false,
            Fault::GoAway(at) if number == at => GoAway { why: "upgrade".to_owned() }.frame(0, out),
            Fault::EndSession(at) if number == at => SessionEnded { session, refusal: refusal() }.frame(0, out),
            Fault::RefuseEvery(every) if number.is_multiple_of(every) => {
                AppendRefused { session, no, refusal: refusal() }.frame(0, out);
                return true;
            }
            Fault::Stall(at, time) if number == at => thread::sleep(time),
            _ => {}
        }
        let key = &self.keys[usize::try_from(session - 1_000).unwrap()];
        let end = state.ends.get_mut(key).unwrap();
        let start = *end + u64::from(self.server.fault == Fault::Gap(number));
        *end = start + u64::from(batch.records());
        let stored = (start, batch.crc(), frame.payload.to_vec());
        state.logs.entry(key.clone()).or_default().push(stored);
        put_acks(session, no, start, &batch, out);
        if self.server.fault == Fault::Double(number) {
            put_acks(session, no, start, &batch, out);
        }
        let mut out = Vec::new();
        put_records(Kind::Records, 0, 1, &[&(start, batch.crc(), frame.payload.to_vec())], &mut out);
        let passed_over = usize::from(self.server.fault == Fault::Undelivered(number));
        for subscriber in state.subscribers.iter_mut().skip(passed_over) {
            // One that left after its last record needs no more.
            let _left = subscriber.write_all(&out);
        }
        true
    }

    fn fence(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let Fence { address, fencing_token } = Fence::of(frame).unwrap();
        let mut state = self.server.state.lock().unwrap();
        let key = address.key.as_str();
        let Some(end) = state.ends.get(key).copied() else {
            return refuse(frame.correlation, Refusal::new(Reason::NotFound, "no such stream"), out);
        };
        state.tokens.insert(key.to_owned(), fencing_token.as_str().to_owned());
        Fenced { tail: Position::new(SeqNum::new(end), 5) }.frame(frame.correlation, out);
    }

    /// Answers what a stream is like, settled to its tail at once.
    fn stream(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let StreamGet { address } = StreamGet::of(frame).unwrap();
        let end = self.server.state.lock().unwrap().ends[address.key.as_str()];
        let stream = StreamInfo {
            stream_id: StreamId::default(),
            bucket: address.bucket,
            key: address.key,
            config: StreamConfig::default(),
            tail: Position::new(SeqNum::new(end), 5),
            trim_point: SeqNum::ZERO,
            settled: SeqNum::new(if self.server.fault == Fault::Unsettled { 0 } else { end }),
            bytes: 0,
            created_at_ms: 5,
        };
        StreamAnswer { stream }.frame(frame.correlation, out);
    }

    /// Answers an append outside of sessions; false ends the connection.
    fn append_once(&self, frame: &Frame<'_>, out: &mut Vec<u8>) -> bool {
        let append = AppendOnce::of(frame).unwrap();
        let batch = VerifiedBatch::verify(frame.payload, append.batch_crc).unwrap();
        let (key, records) = (append.address.key.as_str().to_owned(), u64::from(batch.records()));
        let mut state = self.server.state.lock().unwrap();
        let end = state.ends.get(&key).copied().unwrap_or(0);
        let (token, fault) = (append.fencing_token.as_str(), self.server.fault);
        let is_fenced = !token.is_empty() && state.tokens.get(&key).is_some_and(|installed| installed != token);
        if is_fenced && fault != Fault::Unfenced {
            refuse(frame.correlation, Refusal::new(Reason::FencedOut, "another token"), out);
            return true;
        }
        let start = append.match_seq_num.map_or(end, SeqNum::get);
        let is_second = fault == Fault::TwoWinners && start + records == end;
        if start != end && !is_second {
            refuse(frame.correlation, Refusal::new(Reason::SequenceMismatch, "another tail"), out);
            return true;
        }
        state.appends += 1;
        let number = state.appends;
        if fault == Fault::Close(number) {
            return false;
        }
        let start = start + u64::from(fault == Fault::Gap(number));
        let copies = match fault {
            Fault::Lost(at) if at == number => 0,
            Fault::StoredTwice(at) if at == number => 2,
            _ => u64::from(!is_second),
        };
        for copy in 0..copies {
            let stored = (start + copy * records, batch.crc(), frame.payload.to_vec());
            state.logs.entry(key.clone()).or_default().push(stored);
            state.ends.insert(key.clone(), start + (copy + 1) * records);
        }
        if fault == Fault::ReadThenLost(number) {
            drop(state);
            self.take_back(&key, start);
            return false;
        }
        let at = |seq_num| Position::new(SeqNum::new(seq_num), 5);
        let (start, end) = (at(start), at(start + records));
        Appended { start, end, tail: end, class: Class::Express }.frame(frame.correlation, out);
        true
    }

    /// Lets readers see the last batch of a stream, then forgets it.
    fn take_back(&self, key: &str, start: u64) {
        let reads = self.server.state.lock().unwrap().reads;
        let until = Instant::now() + Duration::from_secs(5);
        // A reader goes through all streams before it comes back to one, some pages each.
        while self.server.state.lock().unwrap().reads < reads + 30 && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
        let mut state = self.server.state.lock().unwrap();
        state.logs.get_mut(key).unwrap().pop();
        state.ends.insert(key.to_owned(), start);
    }

    /// The batch that a page has at a place of a stream's log.
    fn shown(&self, log: &[Batch], at: usize) -> Option<Batch> {
        let (first, crc, bytes) = log[at].clone();
        match self.server.fault {
            Fault::Unread(unread) if unread == at => None,
            Fault::Swapped(swapped) if swapped + 1 < log.len() && (swapped..swapped + 2).contains(&at) => {
                let other = &log[2 * swapped + 1 - at];
                Some((first, other.1, other.2.clone()))
            }
            Fault::OtherBody(other) if other == at => {
                let mut builder = BatchBuilder::new();
                for record in &VerifiedBatch::verify(&bytes, crc).unwrap() {
                    let mut body = record.body.to_vec();
                    *body.last_mut().unwrap() ^= 1;
                    builder.push::<&[u8], &[u8]>(None, &[], &body).unwrap();
                }
                let mut bytes = Vec::new();
                let crc = builder.finish(&mut bytes).unwrap();
                Some((first, crc, bytes))
            }
            _ => Some((first, crc, bytes)),
        }
    }
}

fn put_acks(session: u32, no: BatchNo, start: u64, batch: &VerifiedBatch<'_>, out: &mut Vec<u8>) {
    let ack = Ack { no, start: Position::new(SeqNum::new(start), 5), records: batch.records().into(), last_ms: 5 };
    let (frame, mut writer) = (frame::begin(out), AckWriter::new());
    writer.begin_group(session, Class::Express, out);
    writer.push(&ack, out);
    writer.end_group(ack.end(), out);
    frame.end(Kind::Acks, 0, out);
}

/// A bucket whose streams start from a patch.
fn bucket(name: BucketName, defaults: ConfigPatch) -> BucketAnswer {
    let bucket = Bucket {
        id: BucketId::default(),
        name,
        location: String::new(),
        create_stream_on_append: true,
        create_stream_on_read: false,
        defaults: defaults.apply(&StreamConfig { class: Class::Express, ..StreamConfig::default() }),
        creation_token: String::new(),
        created_at_ms: 5,
        state: BucketState::Live,
    };
    BucketAnswer { bucket }
}

/// A frame of whole batches.
fn put_records(kind: Kind, correlation: u64, subscription: u32, batches: &[&Batch], out: &mut Vec<u8>) {
    put_records_with((kind, correlation, subscription), batches, batch_head, out);
}

/// The same, with the heads that `head_of` makes.
fn put_records_with(
    (kind, correlation, subscription): (Kind, u64, u32),
    batches: &[&Batch],
    head_of: impl Fn(u64, &VerifiedBatch<'_>) -> BatchHead,
    out: &mut Vec<u8>,
) {
    let mut entries = Vec::new();
    let (mut start, mut end) = (None, SeqNum::ZERO);
    for (first, crc, bytes) in batches {
        let batch = VerifiedBatch::verify(bytes, *crc).unwrap();
        let head = head_of(*first, &batch);
        let at = entries.len();
        entries.resize(at + batch_entry_bytes(bytes.len()), 0);
        encode_batch(&head, bytes, &mut entries[at..]);
        start.get_or_insert(head.first);
        end = head.end().seq_num;
    }
    let open = frame::begin(out);
    let records = RecordsHead {
        subscription,
        at_tail: true,
        start: start.unwrap_or_default(),
        end,
        tail: Position::new(end, 5),
        trim_point: SeqNum::ZERO,
    };
    out.extend_from_slice(&records.encode());
    let open = open.head_ends(out);
    out.extend_from_slice(&entries);
    open.end(kind, correlation, out);
}

fn batch_head(start: u64, batch: &VerifiedBatch<'_>) -> BatchHead {
    BatchHead {
        place: Place {
            stream_id: StreamId::default(),
            slot: Slot::default(),
            slot_epoch: Epoch::new(1),
            rev: Rev::new(1),
        },
        first: SeqNum::new(start),
        records: batch.records(),
        stamping: Stamping::of(&StreamConfig::default(), 5, 5),
        last_ms: 5,
        numbered: Numbered { producer: ProducerId::new(1), no: BatchNo::new(1), one_shot: false },
        session_epoch: 0,
        batch_crc: batch.crc(),
    }
}
