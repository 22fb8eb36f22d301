//! What does one connection of a load send, receive and check?

use std::io::{self, ErrorKind, Read, Write};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use wire::frame::{self, Frame, Kind, Next};
use wire::hot::{AppendHead, walk_acks};
use wire::ids::ProducerId;
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{AppendRefused, Appended, Message, Open, Opened, Ping, Pong, Refused};
use wire::names::FencingToken;

use super::flights::Sent;
use super::one_shots::OneShots;
use super::peers::{self, PeerWork};
use super::sessions::{Launched, OpenedSession, Sessions};
use super::{Clock, Load, Pace, Tally};
use crate::dial::{Dialled, broken, decoded, refuse_ends};
use crate::error::BenchError;
use crate::random::unique_number;
use crate::shape::Picker;

/// Opens of a connection in flight.
const OPENS_IN_FLIGHT_MAX: u32 = 256;

/// What a connection appends through.
#[derive(Debug)]
enum Work {
    Sessions(Sessions),
    OneShots(OneShots),
    Peer(PeerWork),
}

/// Which sessions of a connection are asked for and open.
#[derive(Debug)]
struct Opens {
    asked: u32,
    opened: u32,
    all: u32,
}

/// A connection of a load.
#[derive(Debug)]
pub(crate) struct Lane {
    addr: String,
    number: u32,
    stream: TcpStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    flushed: usize,
    opens: Opens,
    work: Work,
}

impl Lane {
    /// Connects connection `number` of a load and asks for its first sessions.
    pub(crate) fn connect(load: &Load, number: u32) -> Result<Self, BenchError> {
        let window = usize::try_from(load.window).unwrap_or(usize::MAX);
        let connections = u32::from(load.connections);
        let inbox_no = unique_number()?;
        let (addr, stream, inbox) = match load.peer {
            None => Dialled::connect(&load.addr)?.into_parts()?,
            Some(peer) => (load.addr.clone(), peers::connect(load, peer, inbox_no)?, Vec::new()),
        };
        let work = match (load.peer, load.pace) {
            (Some(peer), _) => Work::Peer(PeerWork::new(load, (peer, inbox_no), number, window)),
            (None, Pace::EachOnce) => Work::OneShots(OneShots::new(number, connections, window)),
            (None, Pace::Closed | Pace::Open { .. }) => {
                let picker = Picker::new(load.spread, load.seed ^ u64::from(number));
                Work::Sessions(Sessions::new(window, load.batches.records, picker, load.is_conditional))
            }
        };
        let mut lane = Self {
            addr,
            number,
            stream: TcpStream::from_std(stream),
            inbox,
            outbox: Vec::new(),
            flushed: 0,
            opens: Opens {
                asked: 0,
                opened: 0,
                // Session s of all goes to connection s modulo connections.
                all: load.sessions().saturating_sub(number).div_ceil(connections),
            },
            work,
        };
        lane.ask_for_sessions(load)?;
        lane.flush()?;
        Ok(lane)
    }

    /// Has the poll tell when there is something to read or room to write. The poll is edge-triggered, so this is once.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.opens.opened == self.opens.all
    }

    pub(crate) const fn opened(&self) -> u32 {
        self.opens.opened
    }

    pub(crate) fn in_flight(&self) -> usize {
        match &self.work {
            Work::Sessions(sessions) => sessions.in_flight(),
            Work::OneShots(one_shots) => one_shots.in_flight(),
            Work::Peer(peer) => peer.in_flight(),
        }
    }

    pub(crate) fn window_reached(&self) -> usize {
        match &self.work {
            Work::Sessions(sessions) => sessions.window_reached(),
            Work::OneShots(one_shots) => one_shots.window(),
            Work::Peer(peer) => peer.window(),
        }
    }

    /// Whether it has nothing left to do on its own.
    pub(crate) const fn is_done(&self, load: &Load) -> bool {
        match &self.work {
            Work::Sessions(_) | Work::Peer(_) => false,
            Work::OneShots(one_shots) => one_shots.is_done(load),
        }
    }

    fn ask_for_sessions(&mut self, load: &Load) -> Result<(), BenchError> {
        while self.opens.asked < self.opens.all && self.opens.asked - self.opens.opened < OPENS_IN_FLIGHT_MAX {
            let session = self.number + self.opens.asked * u32::from(load.connections);
            self.opens.asked += 1;
            let open = Open {
                address: load.places.address(load.places.active_at(session % load.places.active()))?,
                producer: ProducerId::new(unique_number()?),
                fencing_token: FencingToken::default(),
                resume: None,
            };
            open.frame(u64::from(self.opens.asked), &mut self.outbox);
        }
        Ok(())
    }

    /// Puts the next append into the outbox, if the window has room.
    #[inline]
    pub(crate) fn launch(&mut self, load: &Load, sent: Sent) -> Result<bool, BenchError> {
        match &mut self.work {
            Work::OneShots(one_shots) => one_shots.launch(load, sent, &mut self.outbox),
            Work::Peer(peer) => Ok(peer.launch(load, sent, &mut self.outbox)),
            Work::Sessions(sessions) => {
                let Some(launched) = sessions.launch(sent) else {
                    return Ok(false);
                };
                put_append(load, launched, &mut self.outbox);
                Ok(true)
            }
        }
    }

    /// Sends what the socket takes of the outbox.
    pub(crate) fn flush(&mut self) -> Result<(), BenchError> {
        while self.flushed < self.outbox.len() {
            match self.stream.write(&self.outbox[self.flushed..]) {
                Ok(bytes) => self.flushed += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.compact(),
                Err(error) => return Err(broken(&self.addr, self.in_flight(), error)),
            }
        }
        self.outbox.clear();
        self.flushed = 0;
        Ok(())
    }

    /// Drops what was sent once it is most of the outbox, which the window bounds otherwise.
    fn compact(&mut self) -> Result<(), BenchError> {
        if self.flushed > self.outbox.len() / 2 {
            self.outbox.drain(..self.flushed);
            self.flushed = 0;
        }
        Ok(())
    }

    /// Reads and judges what has come.
    pub(crate) fn receive(
        &mut self,
        load: &Load,
        clock: Clock,
        scratch: &mut [u8],
        tally: &mut Tally,
    ) -> Result<(), BenchError> {
        loop {
            let bytes = match self.stream.read(scratch) {
                Ok(0) => {
                    return Err(BenchError::Closed { addr: self.addr.clone(), in_flight: self.in_flight() });
                }
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(broken(&self.addr, self.in_flight(), error)),
            };
            let mut cx = Receiving { load, tally, now_ns: clock.now_ns() };
            self.take(&scratch[..bytes], &mut cx)?;
            // A short read has emptied the socket, and what comes later is an edge of its own.
            if bytes < scratch.len() {
                return Ok(());
            }
        }
    }

    fn take(&mut self, came: &[u8], cx: &mut Receiving<'_>) -> Result<(), BenchError> {
        if self.inbox.is_empty() {
            let taken = self.walk(came, cx)?;
            self.inbox.extend_from_slice(&came[taken..]);
            return Ok(());
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        inbox.extend_from_slice(came);
        let taken = self.walk(&inbox, cx)?;
        inbox.drain(..taken);
        self.inbox = inbox;
        Ok(())
    }

    /// Judges the whole frames of `bytes` and answers how many bytes they took.
    fn walk(&mut self, bytes: &[u8], cx: &mut Receiving<'_>) -> Result<usize, BenchError> {
        if let Work::Peer(peer) = &mut self.work {
            let taken = peer.walk(bytes, &mut self.outbox, (&mut *cx.tally, cx.now_ns))?;
            self.flush()?;
            return Ok(taken);
        }
        let mut at = 0;
        while let Next::Frame(frame) = frame::next(&bytes[at..], FRAME_BODY_BYTES_MAX)? {
            at += frame.frame_bytes;
            match (&mut self.work, frame.kind) {
                (Work::Sessions(sessions), Kind::Acks) => on_acks(sessions, &frame, cx)?,
                (Work::Sessions(sessions), Kind::AppendRefused) => {
                    on_append_refused(sessions, &frame, cx)?;
                }
                (Work::OneShots(one_shots), Kind::Appended) => on_appended(one_shots, &frame, cx)?,
                (Work::OneShots(one_shots), Kind::Refused) => on_refused(one_shots, &frame, cx)?,
                _ => self.on_rare(&frame, cx)?,
            }
        }
        Ok(at)
    }

    #[cold]
    fn on_rare(&mut self, frame: &Frame<'_>, cx: &Receiving<'_>) -> Result<(), BenchError> {
        refuse_ends(frame)?;
        match (&mut self.work, frame.kind) {
            (_, Kind::Ping) => {
                let Ping { echo } = decoded(frame, "keep-alive")?;
                Pong { echo }.frame(frame.correlation, &mut self.outbox);
                self.flush()
            }
            (Work::Sessions(sessions), Kind::Opened) => {
                let opened: Opened = decoded(frame, "opening a session")?;
                sessions.add(OpenedSession {
                    handle: opened.session,
                    window: usize::try_from(opened.window).unwrap_or(usize::MAX),
                    tail: opened.tail,
                    is_alone: cx.load.places.active() >= u32::from(cx.load.connections),
                });
                self.opens.opened += 1;
                self.ask_for_sessions(cx.load)?;
                self.flush()
            }
            (Work::Sessions(_), Kind::Refused) => {
                let Refused { refusal } = decoded(frame, "opening a session")?;
                Err(BenchError::Refused { request: "opening a session", refusal })
            }
            (_, found) => Err(BenchError::Unexpected { found, awaited: "appends were in flight" }),
        }
    }
}

/// What judging an answer needs.
#[derive(Debug)]
struct Receiving<'a> {
    load: &'a Load,
    tally: &'a mut Tally,
    now_ns: u64,
}

/// Of an append only the head, its sum and the frame's header are made anew: the batch is as it was encoded.
#[inline]
fn put_append(load: &Load, launched: Launched, out: &mut Vec<u8>) {
    let Launched { session, no, match_seq_num } = launched;
    let batch = load.batches.at(no.get());
    let head = AppendHead { session, no, match_seq_num, resent: false, batch_crc: batch.crc };
    let open = frame::begin(out);
    out.extend_from_slice(&head.encode());
    let open = open.head_ends(out);
    out.extend_from_slice(&batch.bytes);
    open.end(Kind::Append, no.get(), out);
}

fn on_acks(sessions: &mut Sessions, frame: &Frame<'_>, cx: &mut Receiving<'_>) -> Result<(), BenchError> {
    let (tally, now_ns) = (&mut *cx.tally, cx.now_ns);
    let walked = walk_acks(frame.head, |group, ack| {
        let (sent, violation) = sessions.on_ack(group, &ack);
        if let Some(sent) = sent {
            tally.on_ack(sent, now_ns, group.class);
        }
        if let Some(violation) = violation {
            tally.on_violation(&violation);
        }
    });
    walked.map_err(|_| BenchError::Frame(frame::FrameError::Body { kind: frame.kind }))
}

fn on_append_refused(sessions: &mut Sessions, frame: &Frame<'_>, cx: &mut Receiving<'_>) -> Result<(), BenchError> {
    let AppendRefused { session, no, refusal } = decoded(frame, "an append was in flight")?;
    if let Err(violation) = sessions.on_refused(session, no) {
        cx.tally.on_violation(&violation);
    }
    cx.tally.on_refusal(refusal.reason, cx.now_ns);
    Ok(())
}

fn on_appended(one_shots: &mut OneShots, frame: &Frame<'_>, cx: &mut Receiving<'_>) -> Result<(), BenchError> {
    let appended: Appended = decoded(frame, "a one-shot append was in flight")?;
    let (sent, bad) = one_shots.on_appended(frame.correlation, &appended, cx.load.batches.records);
    if let Some(sent) = sent {
        cx.tally.on_ack(sent, cx.now_ns, appended.class);
    }
    if let Some(bad) = bad {
        cx.tally.on_violation(&bad);
    }
    Ok(())
}

fn on_refused(one_shots: &mut OneShots, frame: &Frame<'_>, cx: &mut Receiving<'_>) -> Result<(), BenchError> {
    let Refused { refusal } = decoded(frame, "a one-shot append was in flight")?;
    if let Err(bad) = one_shots.on_refused(frame.correlation) {
        cx.tally.on_violation(&bad);
    }
    cx.tally.on_refusal(refusal.reason, cx.now_ns);
    Ok(())
}
