//! How are appends said to other servers, and their answers understood, by the same generator?
//!
//! Each protocol is spoken as its own clients do, without them: what is measured is the server, and the generator is the one that
//! nova is measured with. A batch of several records is that many commands, sent at once, and acked by the last answer, where the
//! protocol has no batch of its own.

mod http;
mod nats;
mod redis;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;

use wire::config::Class;
use wire::reason::Reason;

use super::flights::{Flights, Sent};
use super::{Load, Tally};
use crate::dial::{ANSWER_MAX, broken};
use crate::error::BenchError;
use crate::peer::Peer;
use crate::shape::Picker;

/// What of a connection's input was understood.
enum Heard {
    /// Not all of an answer is there yet.
    Part,
    /// Something that asks for these bytes back, or for nothing, of so many bytes.
    Aside { bytes: usize, back: &'static [u8] },
    /// An answer of so many bytes, to the append it names, else to the oldest.
    Answer { bytes: usize, no: Option<u64>, of: Answer },
}

/// An answer to one command.
enum Answer {
    Stored,
    Refused(String),
}

/// An append whose commands are not all answered.
#[derive(Debug)]
struct Due {
    no: u64,
    /// Answers that are still to come.
    answers: u32,
    /// Whether one of its commands was refused: then it is no ack, however the others end.
    is_refused: bool,
}

/// The appends of one connection to a peer.
#[derive(Debug)]
pub(super) struct PeerWork {
    peer: Peer,
    window: usize,
    flights: Flights,
    /// Where acks come back to, of a peer that sends them to an address.
    inbox: u64,
    /// The appends in flight, in order.
    due: VecDeque<Due>,
    /// The streams of this connection: each so many from the first on, in turn.
    first: u32,
    step: u32,
    turn: u32,
    picker: Picker,
}

impl PeerWork {
    pub(super) fn new(load: &Load, (peer, inbox): (Peer, u64), number: u32, window: usize) -> Self {
        let connections = u32::from(load.connections);
        let first = number % load.places.active();
        Self {
            peer,
            inbox,
            flights: Flights::new(),
            due: VecDeque::new(),
            // HTTP/1.1 answers in order, and servers take one request of a connection at a time.
            window: if peer == Peer::S2Lite { 1 } else { window },
            first,
            step: connections,
            turn: first,
            picker: Picker::new(load.spread, load.seed ^ u64::from(number)),
        }
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.flights.in_flight()
    }

    pub(super) const fn window(&self) -> usize {
        self.window
    }

    /// Writes the next append, if the window has room.
    pub(super) fn launch(&mut self, load: &Load, sent: Sent, out: &mut Vec<u8>) -> bool {
        if self.flights.in_flight() >= self.window {
            return false;
        }
        let streams = load.places.active().saturating_sub(self.first).div_ceil(self.step);
        let picked = self.picker.pick(streams as usize).and_then(|at| u32::try_from(at).ok());
        let place = picked.map_or(self.turn, |at| self.first + at * self.step);
        let key = load.places.key(load.places.active_at(place));
        self.turn = match self.turn.checked_add(self.step) {
            Some(next) if next < load.places.active() => next,
            _ => self.first,
        };
        let no = self.flights.launch(sent);
        let bodies = &load.batches.at(no).bodies;
        let answers = match self.peer {
            Peer::Redis => redis::put(&key, bodies, out),
            Peer::Nats => nats::put(&key, (self.inbox, no), bodies, out),
            Peer::S2Lite => http::put(&load.addr, &key, bodies, out),
        };
        self.due.push_back(Due { no, answers, is_refused: false });
        true
    }

    /// Takes the whole answers of some input, and answers how many bytes they took.
    pub(super) fn walk(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        (tally, now_ns): (&mut Tally, u64),
    ) -> Result<usize, BenchError> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let heard = match self.peer {
                Peer::Redis => redis::hear(rest),
                Peer::Nats => nats::hear(rest),
                Peer::S2Lite => http::hear(rest),
            };
            match heard? {
                Heard::Part => return Ok(at),
                Heard::Aside { bytes, back } => {
                    at += bytes;
                    out.extend_from_slice(back);
                }
                Heard::Answer { bytes, no, of } => {
                    at += bytes;
                    self.answered(no, &of, tally, now_ns);
                }
            }
        }
    }

    fn answered(&mut self, no: Option<u64>, answer: &Answer, tally: &mut Tally, now_ns: u64) {
        let at = no.map_or(Some(0), |no| self.due.iter().position(|due| due.no == no));
        let Some((at, due)) = at.and_then(|at| Some((at, self.due.get_mut(at)?))) else {
            return tally.on_violation(&"an answer to nothing");
        };
        if let Answer::Refused(why) = answer {
            if !due.is_refused {
                tally.on_refusal(Reason::Internal, now_ns);
            }
            tally.note_why(why);
            due.is_refused = true;
        }
        due.answers -= 1;
        if due.answers == 0 {
            let (no, is_refused) = (due.no, due.is_refused);
            self.due.remove(at);
            if let (Some(landed), false) = (self.flights.land(no), is_refused) {
                // Peers have no classes; what they were told to be durable by stands in the report.
                tally.on_ack(landed.sent, now_ns, Class::Express);
            }
        }
    }
}

/// Connects to a peer and says what every connection says first.
pub(super) fn connect(load: &Load, peer: Peer, inbox: u64) -> Result<TcpStream, BenchError> {
    let refuse = |source| BenchError::Connect { addr: load.addr.clone(), source };
    let mut stream = TcpStream::connect(&load.addr).map_err(refuse)?;
    stream.set_nodelay(true).map_err(refuse)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(refuse)?;
    if peer == Peer::Nats {
        nats::greet(&mut stream, inbox).map_err(|source| broken(&load.addr, 0, source))?;
    }
    stream.set_nonblocking(true).map_err(refuse)?;
    Ok(stream)
}

/// Makes what the appends of a load need and the peer does not make by itself, and answers what it says of its durability.
pub(crate) fn prepare(load: &Load, peer: Peer) -> Result<String, BenchError> {
    match peer {
        Peer::Redis => redis::prepare(&load.addr),
        Peer::Nats => nats::prepare(load),
        Peer::S2Lite => http::prepare(load),
    }
}

/// One request over a stream that blocks, answered by what `is_whole` finds whole.
fn asked(addr: &str, request: &[u8], is_whole: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>, BenchError> {
    let refuse = |source| BenchError::Connect { addr: addr.to_owned(), source };
    let mut stream = TcpStream::connect(addr).map_err(refuse)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(refuse)?;
    let mut answer = Vec::new();
    stream.write_all(request).map_err(|source| broken(addr, 1, source))?;
    let mut scratch = [0; 16 << 10];
    while !is_whole(&answer) {
        match stream.read(&mut scratch).map_err(|source| broken(addr, 1, source))? {
            0 => return Err(BenchError::Closed { addr: addr.to_owned(), in_flight: 1 }),
            bytes => answer.extend_from_slice(&scratch[..bytes]),
        }
    }
    Ok(answer)
}

/// Answers that are no such thing.
fn unheard(what: &'static str, bytes: &[u8]) -> BenchError {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
    BenchError::Peer { what, text }
}

/// Where the line that begins the bytes ends, and what it says without its end.
fn line(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((end + 2, &bytes[..end]))
}

#[cfg(test)]
mod tests;
