//! A scripted star for the tests: it speaks the wire, frame by frame, exactly as a test tells it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use wire::batch::{BatchBuilder, VerifiedBatch};
use wire::config::Class;
use wire::entry::{BatchHead, Numbered, Place, Stamping, Verb, batch_entry_bytes, encode_batch};
use wire::frame::{self, HEADER_BYTES, Kind, Next};
use wire::hot::{Ack, AckWriter, AppendHead, RecordsHead};
use wire::ids::{BatchNo, ClusterId, Epoch, Position, Rev, SeqNum, StarId, StreamId};
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{Close, Done, Hello, Message, Open, Opened, Subscribe, Subscribed, Welcome};
use wire::names::Address;
use wire::slot::Slot;

use crate::{Client, Options};

/// Longer than any step of a test takes on a busy host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const STREAM: StreamId = StreamId::from_bytes([7; 16]);
pub(crate) const SESSION: u32 = 5;
pub(crate) const WINDOW: u32 = 2;

pub(crate) fn address() -> Address {
    Address::new("demo", "orders").unwrap()
}

pub(crate) fn position(seq_num: u64, timestamp_ms: i64) -> Position {
    Position::new(SeqNum::new(seq_num), timestamp_ms)
}

/// A star that a client can connect to.
pub(crate) struct Peer {
    listener: TcpListener,
    pub(crate) keepalive_ms: u32,
}

impl Peer {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener, keepalive_ms: 60_000 }
    }

    pub(crate) fn addr(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// A client of this star that gives up soon.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.options()).unwrap()
    }

    pub(crate) fn options(&self) -> Options {
        Options::new([self.addr()])
            .connect_budget(Duration::ZERO)
            .retry_budget(PATIENCE)
            .request_timeout(PATIENCE)
            .connect_timeout(PATIENCE)
    }

    /// The next connection, before its handshake.
    pub(crate) async fn accept_raw(&self) -> Wire {
        let (socket, _) = timeout(PATIENCE, self.listener.accept()).await.expect("a connection").unwrap();
        Wire { socket, input: BytesMut::new() }
    }

    /// The next connection, welcomed.
    pub(crate) async fn accept(&self) -> Wire {
        let mut wire = self.accept_raw().await;
        let (correlation, Hello { client }) = wire.expect().await;
        assert!(client.starts_with("nova-rust/"), "{client}");
        wire.send(correlation, &self.welcome()).await;
        wire
    }

    pub(crate) fn welcome(&self) -> Welcome {
        Welcome {
            cluster_id: ClusterId::from_bytes([1; 16]),
            star_id: StarId::from_bytes([2; 16]),
            version: "scripted".into(),
            shard: 0,
            shards: 1,
            append_window: WINDOW,
            keepalive_ms: self.keepalive_ms,
            frame_body_bytes_max: u32::try_from(FRAME_BODY_BYTES_MAX).unwrap(),
        }
    }

    /// The next connection, with a session opened on it as its first request.
    pub(crate) async fn accept_session(&self) -> (Wire, Open) {
        let mut wire = self.accept().await;
        let (correlation, open): (_, Open) = wire.expect().await;
        wire.send(correlation, &opened()).await;
        (wire, open)
    }

    /// The next connection, with a subscription on it as its first request.
    pub(crate) async fn accept_subscription(&self, start: u64) -> (Wire, Subscribe) {
        let mut wire = self.accept().await;
        let (correlation, subscribe): (_, Subscribe) = wire.expect().await;
        let subscription = subscribe.subscription;
        wire.send(correlation, &Subscribed { subscription, stream_id: STREAM, start: SeqNum::new(start) }).await;
        (wire, subscribe)
    }
}

pub(crate) fn opened() -> Opened {
    Opened { session: SESSION, stream_id: STREAM, slot_epoch: Epoch::new(1), tail: position(0, 0), window: WINDOW }
}

/// A frame that a client sent.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) kind: Kind,
    pub(crate) correlation: u64,
    pub(crate) head: Bytes,
    pub(crate) payload: Bytes,
}

/// A batch that a client sent.
#[derive(Debug, Clone)]
pub(crate) struct GotBatch {
    pub(crate) head: AppendHead,
    pub(crate) bodies: Vec<String>,
}

/// One connection of the scripted star.
pub(crate) struct Wire {
    pub(crate) socket: TcpStream,
    input: BytesMut,
}

impl Wire {
    /// The next frame; `None` when the client closed.
    pub(crate) async fn frame(&mut self) -> Option<Got> {
        loop {
            if let Next::Frame(frame) = frame::next(&self.input, FRAME_BODY_BYTES_MAX).unwrap() {
                let (kind, correlation) = (frame.kind, frame.correlation);
                let (head_bytes, frame_bytes) = (frame.head.len(), frame.frame_bytes);
                let bytes = self.input.split_to(frame_bytes).freeze();
                let head = bytes.slice(HEADER_BYTES..HEADER_BYTES + head_bytes);
                let payload = bytes.slice(HEADER_BYTES + head_bytes..);
                return Some(Got { kind, correlation, head, payload });
            }
            match timeout(PATIENCE, self.socket.read_buf(&mut self.input)).await.expect("a frame in time") {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next frame, which is one of this kind.
    pub(crate) async fn expect<M: Message>(&mut self) -> (u64, M) {
        let got = self.frame().await.unwrap_or_else(|| panic!("{:?}, not the end", M::KIND));
        assert_eq!(got.kind, M::KIND);
        (got.correlation, M::get(&got.head).unwrap())
    }

    /// The next frame, which is a batch of the session.
    pub(crate) async fn expect_batch(&mut self) -> GotBatch {
        let got = self.frame().await.expect("a batch");
        assert_eq!(got.kind, Kind::Append);
        let head = AppendHead::decode(&got.head).unwrap();
        let batch = VerifiedBatch::verify(&got.payload, head.batch_crc).unwrap();
        let bodies = batch.iter().map(|record| String::from_utf8(record.body.to_vec()).unwrap()).collect();
        GotBatch { head, bodies }
    }

    /// Nothing comes for a while.
    pub(crate) async fn expect_silence(&mut self) {
        let waited = timeout(Duration::from_millis(60), self.socket.read_buf(&mut self.input)).await;
        assert!(waited.is_err() && self.input.is_empty(), "{waited:?}");
    }

    pub(crate) async fn send<M: Message>(&mut self, correlation: u64, message: &M) {
        let mut out = Vec::new();
        message.frame(correlation, &mut out);
        self.bytes(&out).await;
    }

    pub(crate) async fn bytes(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.socket.write_all(bytes)).await.expect("the client reads").unwrap();
    }

    /// Acks batches in one frame: each its number, first sequence number and records.
    pub(crate) async fn ack(&mut self, acks: &[(u64, u64, u32)]) {
        let mut writer = AckWriter::new();
        let mut out = Vec::new();
        let open = frame::begin(&mut out);
        writer.begin_group(SESSION, Class::Express, &mut out);
        let mut tail = position(0, 0);
        for (no, first, records) in acks {
            let ack = Ack { no: BatchNo::new(*no), start: position(*first, 10), records: *records, last_ms: 10 };
            tail = ack.end();
            writer.push(&ack, &mut out);
        }
        writer.end_group(tail, &mut out);
        open.end(Kind::Acks, 0, &mut out);
        self.bytes(&out).await;
    }

    /// Takes the close of the session.
    pub(crate) async fn closes(&mut self) {
        let (correlation, Close { session }) = self.expect().await;
        assert_eq!(session, SESSION);
        self.send(correlation, &Done {}).await;
    }

    /// A page or the records of a subscription.
    pub(crate) async fn records(&mut self, kind: Kind, correlation: u64, head: &RecordsHead, entries: &[Vec<u8>]) {
        let mut out = Vec::new();
        let open = frame::begin(&mut out);
        out.extend_from_slice(&head.encode());
        let open = open.head_ends(&out);
        out.extend_from_slice(&entries.concat());
        open.end(kind, correlation, &mut out);
        self.bytes(&out).await;
    }
}

pub(crate) fn records_head(subscription: u32, start: u64, end: u64) -> RecordsHead {
    RecordsHead {
        subscription,
        at_tail: true,
        start: SeqNum::new(start),
        end: SeqNum::new(end),
        tail: position(end, 10),
        trim_point: SeqNum::ZERO,
    }
}

fn place(rev: u64) -> Place {
    Place { stream_id: STREAM, slot: Slot::default(), slot_epoch: Epoch::new(1), rev: Rev::new(rev) }
}

/// The log entry of a batch that starts at `first`: each record its stamp and body, all with one header.
pub(crate) fn entry(first: u64, stamping: Stamping, records: &[(Option<i64>, &str)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (stamp, body) in records {
        builder.push(*stamp, &[("name", "value")], body.as_bytes()).unwrap();
    }
    let mut batch = Vec::new();
    let batch_crc = builder.finish(&mut batch).unwrap();
    let last_ms = stamping.last(&VerifiedBatch::verify(&batch, batch_crc).unwrap());
    let head = BatchHead {
        place: place(first + 1),
        first: SeqNum::new(first),
        records: u16::try_from(records.len()).unwrap(),
        stamping,
        last_ms,
        numbered: Numbered::default(),
        session_epoch: 0,
        batch_crc,
    };
    let mut out = vec![0; batch_entry_bytes(batch.len())];
    encode_batch(&head, &batch, &mut out);
    out
}

/// The log entry of a batch of these bodies, all stamped 10.
pub(crate) fn plain_entry(first: u64, bodies: &[&str]) -> Vec<u8> {
    let stamping = Stamping { arrival_ms: 10, previous_ms: 0, capped: true, client_stamps: true };
    let records: Vec<_> = bodies.iter().map(|body| (None, *body)).collect();
    entry(first, stamping, &records)
}

/// The log entry that gives records up.
pub(crate) fn gap_entry(from: u64, to: u64) -> Vec<u8> {
    Verb::Gap { from: SeqNum::new(from), to: SeqNum::new(to) }.encode(place(1))
}
