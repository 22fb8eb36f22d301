//! How does a client behave that no client library would be?

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use wire::batch::BatchBuilder;
use wire::frame::{self, Kind, Next};
use wire::hot::AppendHead;
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{AppendOnce, Hello, Message, Refused, Welcome};
use wire::names::FencingToken;
use wire::refusal::Refusal;
use wire::terms::Terms;

use crate::at;

/// An answer takes at most so long.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A connection on which anything may be said.
#[derive(Debug)]
pub struct Speaker {
    socket: TcpStream,
    received: Vec<u8>,
    correlation: u64,
}

/// A frame that came.
#[derive(Debug, Clone)]
pub struct Heard {
    /// What it carries.
    pub kind: Kind,
    /// Which request it answers.
    pub correlation: u64,
    /// Its head.
    pub head: Vec<u8>,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Heard {
    /// The message that it must be.
    ///
    /// # Panics
    /// When it is another.
    #[must_use]
    pub fn message<M: Message>(&self) -> M {
        assert_eq!(self.kind, M::KIND, "{self:?}");
        M::get(&self.head).unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    /// The refusal that it must be.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        self.message::<Refused>().refusal
    }
}

impl Speaker {
    /// A connection on which nothing was said.
    ///
    /// # Panics
    /// When there is none to be had.
    #[must_use]
    pub fn stranger(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).expect("a connection");
        socket.set_read_timeout(Some(ANSWER_MAX)).expect("a timeout");
        socket.set_write_timeout(Some(ANSWER_MAX)).expect("a timeout");
        socket.set_nodelay(true).expect("no delay");
        Self { socket, received: Vec::new(), correlation: 0 }
    }

    /// A connection that was welcomed.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self::greeted(addr).0
    }

    /// A connection that was welcomed, and with what.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    pub fn greeted(addr: SocketAddr) -> (Self, Welcome) {
        let mut speaker = Self::stranger(addr);
        let welcome = speaker.ask(&Hello { client: "tests".to_owned() }).expect("a welcome");
        (speaker, welcome)
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// When they can't be sent.
    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("bytes are sent");
    }

    /// Sends bytes to a star that may close the connection meanwhile.
    pub fn offer(&mut self, bytes: &[u8]) {
        // What counts is what it answers.
        let _closed = self.socket.write_all(bytes);
    }

    /// The next frame; none when the connection was closed.
    ///
    /// # Panics
    /// When neither comes in time, or what comes is no frame.
    pub fn hear(&mut self) -> Option<Heard> {
        loop {
            match frame::next(&self.received, FRAME_BODY_BYTES_MAX).expect("a frame") {
                Next::Frame(frame) => {
                    let (kind, correlation) = (frame.kind, frame.correlation);
                    let heard = Heard { kind, correlation, head: frame.head.to_vec(), payload: frame.payload.to_vec() };
                    let frame_bytes = frame.frame_bytes;
                    self.received.drain(..frame_bytes);
                    return Some(heard);
                }
                Next::Short { .. } => {}
            }
            let mut more = [0; 64 << 10];
            match self.socket.read(&mut more) {
                Ok(0) => return None,
                Ok(bytes) => self.received.extend_from_slice(&more[..bytes]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing is heard: {error}"),
            }
        }
    }

    /// The refusal that is the last that comes before the connection is closed.
    ///
    /// # Panics
    /// When something else comes, or the connection stays open.
    pub fn last_word(&mut self) -> Refusal {
        let refusal = self.hear().expect("a refusal").refusal();
        assert!(self.hear().is_none(), "the connection goes on after {refusal}");
        refusal
    }

    /// Sends a message, and answers under which correlation id.
    pub fn tell<M: Message>(&mut self, message: &M) -> u64 {
        self.tell_with(message, &[])
    }

    /// The same, with a payload.
    pub fn tell_with<M: Message>(&mut self, message: &M, payload: &[u8]) -> u64 {
        self.correlation += 1;
        let mut bytes = Vec::new();
        message.frame_with(self.correlation, payload, &mut bytes);
        self.send(&bytes);
        self.correlation
    }

    /// Sends a message and waits for its answer.
    ///
    /// # Errors
    /// The refusal, when it is one.
    ///
    /// # Panics
    /// When it is something else, or nothing.
    pub fn ask<Q: Message, A: Message>(&mut self, message: &Q) -> Result<A, Refusal> {
        self.ask_with(message, &[])
    }

    /// The same, with a payload.
    ///
    /// # Errors
    /// The refusal, when it is one.
    ///
    /// # Panics
    /// When it is something else, or nothing.
    pub fn ask_with<Q: Message, A: Message>(&mut self, message: &Q, payload: &[u8]) -> Result<A, Refusal> {
        let correlation = self.tell_with(message, payload);
        let heard = self.hear_of(correlation);
        if heard.kind == Kind::Refused { Err(heard.refusal()) } else { Ok(heard.message()) }
    }

    /// The answer with this correlation id; pings are answered, and what else comes before is passed over.
    ///
    /// # Panics
    /// When it doesn't come.
    pub fn hear_of(&mut self, correlation: u64) -> Heard {
        loop {
            let heard = self.hear().expect("an answer before the connection is closed");
            if heard.correlation == correlation {
                return heard;
            }
        }
    }

    /// Sends a batch of a session.
    pub fn append(&mut self, head: AppendHead, batch: &[u8]) {
        let mut bytes = Vec::new();
        let open = frame::begin(&mut bytes);
        bytes.extend_from_slice(&head.encode());
        let open = open.head_ends(&bytes);
        bytes.extend_from_slice(batch);
        open.end(Kind::Append, 0, &mut bytes);
        self.send(&bytes);
    }

    /// A batch with this sum, outside of any session and with nothing else asked, to the stream of this key.
    #[must_use]
    pub fn once(key: &str, batch_crc: u32) -> AppendOnce {
        AppendOnce {
            address: at(key),
            fencing_token: FencingToken::default(),
            match_seq_num: None,
            idempotency: (0, 0),
            terms: Terms::default(),
            batch_crc,
        }
    }

    /// A batch of these bodies, and its sum.
    ///
    /// # Panics
    /// When they break a bound.
    #[must_use]
    pub fn batch(bodies: &[&[u8]]) -> (Vec<u8>, u32) {
        let mut builder = BatchBuilder::new();
        for body in bodies {
            builder.push::<&[u8], &[u8]>(None, &[], body).expect("a record");
        }
        let mut batch = Vec::new();
        let sum = builder.finish(&mut batch).expect("a batch");
        (batch, sum)
    }
}
