//! A server that keeps streams in memory and breaks one promise on purpose.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use wire::batch::VerifiedBatch;
use wire::config::{Class, StreamConfig};
use wire::entry::{BatchHead, Numbered, Place, Stamping, batch_entry_bytes, encode_batch};
use wire::frame::{self, Frame, Kind, Next};
use wire::hot::{Ack, AckWriter, AppendHead, RecordsHead};
use wire::ids::{BatchNo, ClusterId, Epoch, Position, ProducerId, Rev, SeqNum, StarId, StreamId};
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{
    AppendOnce, AppendRefused, Appended, Credit, GoAway, Hello, Message, Open, Opened, Ping, Pong, SessionEnded,
    Subscribe, Subscribed, Welcome, refuse,
};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;

/// What the server does other than it should.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
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
}

#[derive(Debug, Default)]
struct State {
    /// Of each key, one past its last record.
    ends: BTreeMap<String, u64>,
    appends: u64,
    pongs: u64,
    subscriber: Option<TcpStream>,
}

/// The server; it runs until the test process ends.
#[derive(Debug, Clone)]
pub(super) struct Scripted {
    pub(super) addr: String,
    state: Arc<Mutex<State>>,
    fault: Fault,
    window: u32,
}

impl Scripted {
    pub(super) fn start(fault: Fault, window: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { addr: listener.local_addr().unwrap().to_string(), state: Arc::default(), fault, window };
        let serving = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let server = serving.clone();
                thread::spawn(move || Connection { server, keys: Vec::new() }.serve(stream.unwrap()));
            }
        });
        server
    }

    /// Of each stream, one past its last record.
    pub(super) fn ends(&self) -> Vec<u64> {
        self.state.lock().unwrap().ends.values().copied().collect()
    }

    pub(super) fn pongs(&self) -> u64 {
        self.state.lock().unwrap().pongs
    }
}

struct Connection {
    server: Scripted,
    keys: Vec<String>,
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
            Kind::AppendOnce => self.append_once(frame, out),
            Kind::Subscribe => {
                let subscribe = Subscribe::of(frame).unwrap();
                let wire::message::Start::SeqNum(start) = subscribe.start else { panic!("a start by number") };
                let stream_id = StreamId::default();
                let subscribed = Subscribed { subscription: subscribe.subscription, stream_id, start };
                subscribed.frame(frame.correlation, out);
                self.server.state.lock().unwrap().subscriber = Some(stream.try_clone().unwrap());
            }
            Kind::Credit => assert!(Credit::of(frame).unwrap().bytes > 0),
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
        put_acks(session, no, start, &batch, out);
        if self.server.fault == Fault::Double(number) {
            put_acks(session, no, start, &batch, out);
        }
        if let Some(subscriber) = &mut state.subscriber
            && self.server.fault != Fault::Undelivered(number)
        {
            subscriber.write_all(&records_frame(start, &batch)).unwrap();
        }
        true
    }

    fn append_once(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let append = AppendOnce::of(frame).unwrap();
        let batch = VerifiedBatch::verify(frame.payload, append.batch_crc).unwrap();
        let mut state = self.server.state.lock().unwrap();
        let end = state.ends.entry(append.address.key.as_str().to_owned()).or_default();
        let start = *end;
        *end += u64::from(batch.records());
        let at = |seq_num| Position::new(SeqNum::new(seq_num), 5);
        let (start, end, tail) = (at(start), at(*end), at(*end));
        Appended { start, end, tail, class: Class::Express }.frame(frame.correlation, out);
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

fn records_frame(start: u64, batch: &VerifiedBatch<'_>) -> Vec<u8> {
    let head = BatchHead {
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
    };
    let mut entry = vec![0; batch_entry_bytes(batch.bytes().len())];
    encode_batch(&head, batch.bytes(), &mut entry);
    let mut out = Vec::new();
    let open = frame::begin(&mut out);
    let records = RecordsHead {
        subscription: 1,
        at_tail: true,
        start: head.first,
        end: head.end().seq_num,
        tail: head.end(),
        trim_point: SeqNum::ZERO,
    };
    out.extend_from_slice(&records.encode());
    let open = open.head_ends(&out);
    out.extend_from_slice(&entry);
    open.end(Kind::Records, 0, &mut out);
    out
}
