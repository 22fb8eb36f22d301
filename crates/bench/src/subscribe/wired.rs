//! How does a connection of the wire follow a stream?

use std::io::Write;
use std::net::TcpStream;

use wire::batch::VerifiedBatch;
use wire::entry::Entry;
use wire::frame::{self, Frame, FrameError, Kind, Next};
use wire::hot::RecordsHead;
use wire::ids::SeqNum;
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{Credit, Message, Ping, Pong, Start, Subscribe, Subscribed};
use wire::names::Address;

use super::Stamp;
use super::followers::Delivery;
use crate::dial::{Dialled, broken, decoded, refuse_ends};
use crate::error::BenchError;

const SUBSCRIPTION: u32 = 1;
const CREDIT_BYTES: u32 = 4 << 20;

/// A subscription over the wire.
#[derive(Debug)]
pub(super) struct Wired {
    addr: String,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    next: SeqNum,
}

impl Wired {
    /// Connects and subscribes from `from` on; the socket does not block.
    pub(super) fn open(addr: &str, address: &Address, from: SeqNum) -> Result<(TcpStream, Self), BenchError> {
        let mut dialled = Dialled::connect(addr)?;
        let subscribe = Subscribe {
            address: address.clone(),
            start: Start::SeqNum(from),
            clamp: false,
            subscription: SUBSCRIPTION,
            credit_bytes: CREDIT_BYTES,
            resume: None,
        };
        let subscribed: Subscribed = dialled.call("subscribing", &subscribe)?;
        if subscribed.start != from {
            return Err(seam(from, subscribed.start));
        }
        let (addr, stream, inbox) = dialled.into_parts()?;
        Ok((stream, Self { addr, inbox, outbox: Vec::new(), next: from }))
    }

    /// The record that is due next.
    pub(super) const fn next(&self) -> SeqNum {
        self.next
    }

    /// Looks at what has come, and gives credit for as much.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        delivery: &mut Delivery<'_>,
        mut answers: impl Write,
    ) -> Result<(), BenchError> {
        self.inbox.extend_from_slice(bytes);
        let mut at = 0;
        while let Next::Frame(frame) = frame::next(&self.inbox[at..], FRAME_BODY_BYTES_MAX)? {
            at += frame.frame_bytes;
            refuse_ends(&frame)?;
            if frame.kind == Kind::Ping {
                let Ping { echo } = decoded(&frame, "keep-alive")?;
                Pong { echo }.frame(0, &mut self.outbox);
                continue;
            }
            self.next = delivered(&frame, self.next, delivery)?;
            let bytes = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
            if bytes > 0 {
                Credit { subscription: SUBSCRIPTION, bytes }.frame(0, &mut self.outbox);
            }
        }
        self.inbox.drain(..at);
        // Some dozens of bytes now and then, which the socket has room for unless the server has stopped reading.
        answers.write_all(&self.outbox).map_err(|source| broken(&self.addr, 1, source))?;
        self.outbox.clear();
        Ok(())
    }
}

/// Looks at the records of a frame, which must begin at `next`; answers where the next frame must begin.
fn delivered(frame: &Frame<'_>, next: SeqNum, delivery: &mut Delivery<'_>) -> Result<SeqNum, BenchError> {
    let body_of = || BenchError::Frame(FrameError::Body { kind: frame.kind });
    if frame.kind != Kind::Records {
        return Err(BenchError::Unexpected { found: frame.kind, awaited: "records were due" });
    }
    let head = RecordsHead::decode(frame.head).map_err(|_| body_of())?;
    let (mut at, mut reached) = (0, next);
    while at < frame.payload.len() {
        let (entry, bytes) = Entry::decode(&frame.payload[at..])?;
        at += bytes;
        let Entry::Batch { head, batch, .. } = entry else {
            continue;
        };
        if head.first != reached {
            return Err(seam(reached, head.first));
        }
        for record in &VerifiedBatch::verify(batch, head.batch_crc)? {
            delivery.note(Stamp::get(record.body).ok_or_else(body_of)?);
        }
        reached = head.end().seq_num;
    }
    if head.end != reached {
        return Err(seam(reached, head.end));
    }
    Ok(reached)
}

/// A record out of its place.
pub(super) fn seam(expected: SeqNum, found: SeqNum) -> BenchError {
    BenchError::Seam { expected: expected.get(), found: found.get() }
}
