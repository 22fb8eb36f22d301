//! How does a connection of HTTP follow a stream by server-sent events?
//!
//! The answer is one chunked body without an end (RFC 9112 section 7.1), an event a record, with its sequence number as its id.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use memchr::memmem;
use serde::Deserialize;
use wire::ids::SeqNum;
use wire::names::Address;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::Stamp;
use super::followers::Delivery;
use super::wired::seam;
use crate::dial::{ANSWER_MAX, broken};
use crate::error::BenchError;

/// Bytes of an answer's head, and headers in it, at most.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 32;
/// What an error shows of bytes that are not understood.
const SHOWN_BYTES_MAX: usize = 200;
const EVENT_ENDS: &[u8] = b"\n\n";
const CHUNK_ENDS: usize = 2;
const CHUNK_BYTES_MAX: usize = 64 << 20;

/// A subscription over HTTP.
#[derive(Debug)]
pub(super) struct Sse {
    /// What came and is not taken apart yet: the rest of a chunk and what follows it.
    chunks: Vec<u8>,
    /// The beginning of an event whose rest is to come.
    events: Vec<u8>,
    next: SeqNum,
}

impl Sse {
    /// Connects and subscribes from `from` on; the socket does not block.
    pub(super) fn open(http: &str, address: &Address, from: SeqNum) -> Result<(TcpStream, Self), BenchError> {
        let connect = |source| BenchError::Connect { addr: http.to_owned(), source };
        let broke = |source: io::Error| match source.kind() {
            ErrorKind::WouldBlock => broken(http, 1, io::Error::new(ErrorKind::TimedOut, "no answer in time")),
            _ => broken(http, 1, source),
        };
        let mut stream = TcpStream::connect(http).map_err(connect)?;
        stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(ANSWER_MAX))).map_err(connect)?;
        // Options with a key that a path can't hold as it is were refused.
        let request = format!(
            "GET /v1/buckets/{}/streams/{}/records?from={from} HTTP/1.1\r\nhost: {http}\r\naccept: text/event-stream\r\n\r\n",
            address.bucket, address.key
        );
        stream.write_all(request.as_bytes()).map_err(broke)?;
        let mut chunks = Vec::new();
        let head_bytes = loop {
            match head_of(&chunks).map_err(|what| no_surface(http, &what))? {
                Some(Head { status: 200, bytes }) => break bytes,
                Some(Head { status, bytes }) => return Err(refused(http, status, &chunks[bytes..], &mut stream)),
                None => {}
            }
            let mut more = [0; 4 << 10];
            match stream.read(&mut more).map_err(broke)? {
                0 => return Err(no_surface(http, "it ends the connection")),
                bytes => chunks.extend_from_slice(&more[..bytes]),
            }
        };
        chunks.drain(..head_bytes);
        stream.set_nonblocking(true).map_err(broke)?;
        Ok((stream, Self { chunks, events: Vec::new(), next: from }))
    }

    /// The record that is due next.
    pub(super) const fn next(&self) -> SeqNum {
        self.next
    }

    /// Looks at what has come.
    pub(super) fn take(&mut self, bytes: &[u8], delivery: &mut Delivery<'_>) -> Result<(), BenchError> {
        self.chunks.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((data, ends)) = chunk_of(&self.chunks[at..])? {
            self.events.extend_from_slice(&self.chunks[at..][data]);
            at += ends;
        }
        self.chunks.drain(..at);
        let mut from = 0;
        while let Some(bytes) = memmem::find(&self.events[from..], EVENT_ENDS) {
            let event = &self.events[from..from + bytes];
            if let Some(seq_num) = self.next_of(event, delivery)? {
                self.next = seq_num.next();
            }
            from += bytes + EVENT_ENDS.len();
        }
        self.events.drain(..from);
        Ok(())
    }

    /// The record of an event, which must be the one that is due; none for a comment and for what tells when to come back.
    fn next_of(&self, event: &[u8], delivery: &mut Delivery<'_>) -> Result<Option<SeqNum>, BenchError> {
        if event.starts_with(b":") || event.starts_with(b"retry:") {
            return Ok(None);
        }
        let strange = || not_understood("an event with a record", event);
        let id = event.strip_prefix(b"id: ").ok_or_else(strange)?;
        let digits = id.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let seq_num = std::str::from_utf8(&id[..digits]).ok().and_then(|id| id.parse().ok()).ok_or_else(strange)?;
        let found = SeqNum::new(seq_num);
        if found != self.next {
            return Err(seam(self.next, found));
        }
        const BODY: &[u8] = br#""body":""#;
        let body = memmem::find(event, BODY).ok_or_else(strange)?;
        delivery.note(Stamp::get(&event[body + BODY.len()..]).ok_or_else(strange)?);
        Ok(Some(found))
    }
}

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// How long it is.
    bytes: usize,
}

/// The head that `bytes` begin with; none while it is not all there, and what they are otherwise when it is none.
fn head_of(bytes: &[u8]) -> Result<Option<Head>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => {
            Ok(Some(Head { status: head.code.unwrap_or_default(), bytes: head_bytes }))
        }
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => Ok(None),
        _ => Err("what answers there speaks no HTTP".to_owned()),
    }
}

/// Why nova refuses a subscription, as its answer says.
fn refused(http: &str, status: u16, body: &[u8], stream: &mut TcpStream) -> BenchError {
    let mut body = body.to_vec();
    // It is one object, which may come in pieces; what does not come in time is no answer of nova's.
    let told = loop {
        let told = serde_json::from_slice::<Told>(&body);
        let mut more = [0; 4 << 10];
        match (&told, stream.read(&mut more)) {
            (Err(error), Ok(bytes)) if error.is_eof() && bytes > 0 && body.len() < HEAD_BYTES_MAX => {
                body.extend_from_slice(&more[..bytes]);
            }
            _ => break told,
        }
    };
    let Ok(Told { code, message }) = told else {
        return no_surface(http, &format!("it answers with status {status}"));
    };
    let reason = Reason::ALL.iter().copied().find(|reason| reason.word() == code).unwrap_or(Reason::Internal);
    BenchError::Refused { request: "following by server-sent events", refusal: Refusal::new(reason, message) }
}

/// What nova says of a request that it refuses, as far as it is needed.
#[derive(Debug, Deserialize)]
struct Told {
    code: String,
    message: String,
}

fn no_surface(http: &str, why: &str) -> BenchError {
    BenchError::option("sse", http, format!("the host and port where nova's HTTP listens: {why}"))
}

/// Where the data of the first chunk lies and where it ends; none while it is not all there.
fn chunk_of(bytes: &[u8]) -> Result<Option<(std::ops::Range<usize>, usize)>, BenchError> {
    match httparse::parse_chunk_size(bytes) {
        // The end of all: the star stops, and closes the connection.
        Ok(httparse::Status::Complete((_, 0))) => Ok(None),
        Ok(httparse::Status::Complete((from, data_bytes))) => {
            let data_bytes = usize::try_from(data_bytes).ok().filter(|bytes| *bytes <= CHUNK_BYTES_MAX);
            let end = from + data_bytes.ok_or_else(|| not_understood("a chunk of at most 64 MiB", bytes))?;
            Ok((bytes.len() >= end + CHUNK_ENDS).then(|| (from..end, end + CHUNK_ENDS)))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::InvalidChunkSize) => Err(not_understood("a chunk of events", bytes)),
    }
}

fn not_understood(what: &'static str, bytes: &[u8]) -> BenchError {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    BenchError::Peer { what, text: String::from_utf8_lossy(shown).escape_debug().to_string() }
}

#[cfg(test)]
mod tests;
