//! One connection: how it is made, how frames come and go, and when it is given up.
//!
//! [`Link::next`] does all of it: it writes what is queued, reads, answers pings, pings a silent star and gives a dead one
//! up. It may be dropped at any await without losing a byte, so that a task may wait for it among other things.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use wire::frame::{self, FrameError, HEADER_BYTES, Kind, Next};
use wire::limits::{FRAME_BODY_BYTES_BEFORE_HELLO_MAX, FRAME_BODY_BYTES_MAX};
use wire::message::{Hello, Message, Ping, Pong, Refused, Welcome};
use wire::reason::Reason;
use wire::refusal::Refusal;

use crate::error::{Error, Result};
use crate::options::Options;

mod output;

use output::{Output, SLICES_MAX};

/// Bytes asked of the socket at a time when no larger frame is known to come.
const READ_BYTES: usize = 64 << 10;
/// Less room than this in the input and it grows before the next read.
const READ_BYTES_MIN: usize = 8 << 10;
/// Frames in the output at which a star that goes on pinging is not reading.
const OUTPUT_FRAMES_MAX: usize = 16 << 10;

/// Why a connection can't go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The star closed it.
    #[error("the star closed the connection")]
    Closed,
    /// What came is no frame.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// Nothing came, not even the answer to a ping.
    #[error("nothing was heard for {silent_ms} ms")]
    Silent {
        /// For how long.
        silent_ms: u128,
    },
    /// The star refuses what it got, and says no more: answers to what it got before may be lost.
    #[error("the star refuses what it got: {}", .0.message)]
    Refused(Refusal),
    /// What came makes no sense here.
    #[error("the star broke the protocol: {what}")]
    Protocol {
        /// What it did.
        what: String,
    },
}

impl Broken {
    pub(crate) fn protocol(what: impl ToString) -> Self {
        Self::Protocol { what: what.to_string() }
    }
}

/// A frame that came in; head and payload share its memory.
#[derive(Debug, Clone)]
pub(crate) struct Inbound {
    pub(crate) kind: Kind,
    pub(crate) correlation: u64,
    pub(crate) head: Bytes,
    pub(crate) payload: Bytes,
}

impl Inbound {
    /// The message in it, which the caller knows to be of this kind.
    pub(crate) fn message<M: Message>(&self) -> Result<M, Broken> {
        if self.kind != M::KIND {
            return Err(Broken::protocol(format!("{:?} where {:?} was due", self.kind, M::KIND)));
        }
        M::get(&self.head).map_err(|refusal| Broken::protocol(refusal.message))
    }
}

/// A message as the bytes of its frame.
pub(crate) fn framed<M: Message>(correlation: u64, message: &M) -> Bytes {
    let mut out = Vec::new();
    message.frame(correlation, &mut out);
    out.into()
}

/// A connection past its handshake.
#[derive(Debug)]
pub(crate) struct Link {
    addr: String,
    socket: TcpStream,
    input: BytesMut,
    /// Bytes that the next frame takes, as far as is known.
    bytes_needed: usize,
    body_bytes_max: usize,
    output: Output,
    keepalive: Option<Duration>,
    heard_at: Instant,
    /// When it was pinged, if nothing was heard since.
    pinged_at: Option<Instant>,
    alarm: Pin<Box<Sleep>>,
}

impl Link {
    /// Connects to a star and shakes hands.
    ///
    /// # Errors
    /// `unavailable` when nobody answers in time; `invalid` when what answers doesn't speak this wire; the star's own
    /// refusal.
    pub(crate) async fn dial(addr: &str, options: &Options) -> Result<Self> {
        let by = Instant::now() + options.connect_timeout;
        let unreached = |why: &dyn std::fmt::Display| {
            Error::harmless(Reason::Unavailable, format!("no star answers at {addr}: {why}"))
        };
        let late = format!("not within {} ms", options.connect_timeout.as_millis());
        let socket = timeout_at(by, TcpStream::connect(addr))
            .await
            .map_err(|_| unreached(&late))?
            .map_err(|error| unreached(&error))?;
        socket.set_nodelay(true).map_err(|error| unreached(&error))?;
        let mut link = Self {
            addr: addr.to_owned(),
            socket,
            input: BytesMut::new(),
            bytes_needed: HEADER_BYTES,
            body_bytes_max: FRAME_BODY_BYTES_BEFORE_HELLO_MAX,
            output: Output::default(),
            keepalive: None,
            heard_at: Instant::now(),
            pinged_at: None,
            alarm: Box::pin(sleep_until(by)),
        };
        link.send(framed(0, &Hello { client: options.name.clone() }));
        match timeout_at(by, link.next()).await.map_err(|_| unreached(&late))? {
            Ok(answer) if answer.kind == Kind::Refused => {
                let refused: Refused = answer.message().map_err(|broken| unreached(&broken))?;
                Err(Error::refused(refused.refusal, false))
            }
            Ok(answer) => {
                let welcome: Welcome = answer.message().map_err(|broken| unreached(&broken))?;
                link.welcomed(&welcome);
                Ok(link)
            }
            Err(Broken::Frame(error @ (FrameError::Magic { .. } | FrameError::Version { .. }))) => {
                let message = format!("{addr} doesn't speak this client's wire: {error}");
                Err(Error::harmless(Reason::Invalid, message))
            }
            Err(broken) => Err(unreached(&broken)),
        }
    }

    fn welcomed(&mut self, welcome: &Welcome) {
        self.body_bytes_max = (welcome.frame_body_bytes_max as usize).min(FRAME_BODY_BYTES_MAX);
        let keepalive = Duration::from_millis(u64::from(welcome.keepalive_ms));
        self.keepalive = (!keepalive.is_zero()).then_some(keepalive);
        self.set_alarm();
        tracing::debug!(
            addr = self.addr,
            star = %welcome.star_id,
            version = welcome.version,
            shard = welcome.shard,
            "connected"
        );
    }

    /// The star's address.
    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    /// Queues a whole frame; answers its place in the order of all that were queued, see [`Link::begun`].
    pub(crate) fn send(&mut self, frame: Bytes) -> u64 {
        self.output.push(frame)
    }

    /// How many queued frames the socket has taken at least a byte of.
    pub(crate) fn begun(&self) -> u64 {
        self.output.begun()
    }

    /// The next frame; meanwhile writes what is queued and keeps the connection alive. Nothing is lost when it is dropped.
    pub(crate) async fn next(&mut self) -> Result<Inbound, Broken> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(frame);
            }
            self.turn().await?;
        }
    }

    /// A frame that is already here.
    pub(crate) fn buffered(&mut self) -> Result<Option<Inbound>, Broken> {
        loop {
            let Some(frame) = self.cut()? else {
                return Ok(None);
            };
            match frame.kind {
                Kind::Ping if self.output.frames() >= OUTPUT_FRAMES_MAX => {
                    return Err(Broken::protocol("it pings and doesn't read"));
                }
                Kind::Ping => {
                    let Ping { echo } = frame.message()?;
                    self.send(framed(frame.correlation, &Pong { echo }));
                }
                Kind::Pong => {}
                _ => return Ok(Some(frame)),
            }
        }
    }

    fn cut(&mut self) -> Result<Option<Inbound>, Broken> {
        if self.input.len() < self.bytes_needed {
            return Ok(None);
        }
        let (kind, correlation, head_bytes, frame_bytes) = match frame::next(&self.input, self.body_bytes_max)? {
            Next::Short { bytes_needed } => {
                self.bytes_needed = bytes_needed;
                return Ok(None);
            }
            Next::Frame(frame) => (frame.kind, frame.correlation, frame.head.len(), frame.frame_bytes),
        };
        self.bytes_needed = HEADER_BYTES;
        let frame = self.input.split_to(frame_bytes).freeze();
        Ok(Some(Inbound {
            kind,
            correlation,
            head: frame.slice(HEADER_BYTES..HEADER_BYTES + head_bytes),
            payload: frame.slice(HEADER_BYTES + head_bytes..),
        }))
    }

    /// Waits until bytes went out, came in, or it is time to ping.
    async fn turn(&mut self) -> Result<(), Broken> {
        let missing = self.bytes_needed.saturating_sub(self.input.len());
        if self.input.capacity() - self.input.len() < missing.max(READ_BYTES_MIN) {
            self.input.reserve(missing.max(READ_BYTES));
        }
        let (mut reader, mut writer) = self.socket.split();
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = self.output.slices(&mut slices);
        tokio::select! {
            biased;
            written = writer.write_vectored(&slices[..count]), if count > 0 => {
                match written? {
                    0 => return Err(Broken::Closed),
                    bytes => self.output.advance(bytes),
                }
            }
            read = reader.read_buf(&mut self.input) => {
                if read? == 0 {
                    return Err(Broken::Closed);
                }
                self.heard_at = Instant::now();
                self.pinged_at = None;
            }
            () = self.alarm.as_mut(), if self.keepalive.is_some() => self.on_alarm()?,
        }
        Ok(())
    }

    /// Pings, or gives the star up that did not answer a ping: a silence alone may have been this process's own, stopped.
    fn on_alarm(&mut self) -> Result<(), Broken> {
        let keepalive = self.keepalive.unwrap_or(Duration::MAX);
        match self.pinged_at {
            Some(pinged_at) if pinged_at.elapsed() >= keepalive => {
                return Err(Broken::Silent { silent_ms: self.heard_at.elapsed().as_millis() });
            }
            None if self.heard_at.elapsed() >= keepalive => {
                self.pinged_at = Some(Instant::now());
                self.send(framed(0, &Ping { echo: 0 }));
            }
            _ => {}
        }
        self.set_alarm();
        Ok(())
    }

    fn set_alarm(&mut self) {
        if let Some(keepalive) = self.keepalive {
            self.alarm.as_mut().reset(self.pinged_at.unwrap_or(self.heard_at) + keepalive);
        }
    }
}

#[cfg(test)]
mod tests;
