//! What goes to one connection: frames one after the other, and the one ack frame of a commit.

use wire::config::Class;
use wire::frame::{self, Kind};
use wire::hot::{Ack, AckWriter};
use wire::ids::Position;
use wire::message::{self, Message};
use wire::refusal::Refusal;

/// Bytes for one connection, in order.
#[derive(Debug, Default)]
pub(crate) struct OutBuffer {
    bytes: Vec<u8>,
    acks: Option<OpenAcks>,
}

/// An ack frame that is being written at the end of the buffer.
#[derive(Debug)]
struct OpenAcks {
    frame: frame::Open,
    writer: AckWriter,
    session: u32,
    class: Class,
    tail: Position,
    count: u16,
}

impl OutBuffer {
    /// Adds a message.
    pub(crate) fn message(&mut self, message: &impl Message, correlation: u64) {
        self.close_acks();
        message.frame(correlation, &mut self.bytes);
    }

    /// Adds a message with a payload.
    pub(crate) fn message_with(&mut self, message: &impl Message, correlation: u64, payload: &[u8]) {
        self.close_acks();
        message.frame_with(correlation, payload, &mut self.bytes);
    }

    /// Adds a refusal.
    pub(crate) fn refuse(&mut self, correlation: u64, refusal: Refusal) {
        self.close_acks();
        message::refuse(correlation, refusal, &mut self.bytes);
    }

    /// Adds whole frames that were written elsewhere.
    pub(crate) fn frames(&mut self, frames: &[u8]) {
        self.close_acks();
        self.bytes.extend_from_slice(frames);
    }

    /// Adds a frame of a hand-laid head and a payload.
    pub(crate) fn hot(&mut self, kind: Kind, correlation: u64, head: &[u8], payload: &[u8]) {
        self.close_acks();
        let open = frame::begin(&mut self.bytes);
        self.bytes.extend_from_slice(head);
        let open = open.head_ends(&self.bytes);
        self.bytes.extend_from_slice(payload);
        open.end(kind, correlation, &mut self.bytes);
    }

    /// Adds an ack to the open ack frame; true when this opened one, which someone must close.
    #[inline]
    pub(crate) fn ack(&mut self, session: u32, class: Class, tail: Position, ack: &Ack) -> bool {
        let opens = self.acks.is_none();
        let bytes = &mut self.bytes;
        let acks = self.acks.get_or_insert_with(|| {
            let frame = frame::begin(bytes);
            let mut writer = AckWriter::new();
            writer.begin_group(session, class, bytes);
            OpenAcks { frame, writer, session, class, tail, count: 0 }
        });
        if acks.session != session || acks.class != class || acks.count == u16::MAX {
            acks.writer.end_group(acks.tail, bytes);
            acks.writer.begin_group(session, class, bytes);
            (acks.session, acks.class, acks.count) = (session, class, 0);
        }
        acks.tail = tail;
        acks.count += 1;
        acks.writer.push(ack, bytes);
        opens
    }

    /// Ends the open ack frame, if there is one.
    #[inline]
    pub(crate) fn close_acks(&mut self) {
        if let Some(mut acks) = self.acks.take() {
            acks.writer.end_group(acks.tail, &mut self.bytes);
            acks.frame.end(Kind::Acks, 0, &mut self.bytes);
        }
    }

    /// The bytes to send; only whole frames.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        self.close_acks();
        &self.bytes
    }

    /// Forgets the first bytes, which are sent.
    pub(crate) fn consume(&mut self, sent_bytes: usize) {
        if sent_bytes == self.bytes.len() {
            self.bytes.clear();
        } else {
            self.bytes.drain(..sent_bytes);
        }
        const KEPT_BYTES: usize = 64 << 10;
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Takes all bytes.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.close_acks();
        std::mem::take(&mut self.bytes)
    }

    /// Bytes waiting.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}
