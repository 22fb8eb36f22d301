//! How is a connection opened and a request answered, one at a time?

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use wire::frame::{self, Frame, Kind, Next};
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{GoAway, Hello, Message, Ping, Pong, Refused, SessionEnded, SubscriptionEnded, Welcome};

use crate::error::BenchError;

/// How long an answer may take.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 << 10;

/// A connection whose calls block.
#[derive(Debug)]
pub(crate) struct Dialled {
    addr: String,
    stream: TcpStream,
    inbox: Vec<u8>,
    at: usize,
    outbox: Vec<u8>,
}

impl Dialled {
    /// Connects and says hello.
    pub(crate) fn connect(addr: &str) -> Result<Self, BenchError> {
        let refuse = |source| BenchError::Connect { addr: addr.to_owned(), source };
        let stream = TcpStream::connect(addr).map_err(refuse)?;
        stream.set_nodelay(true).map_err(refuse)?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(refuse)?;
        let mut dialled = Self { addr: addr.to_owned(), stream, inbox: Vec::new(), at: 0, outbox: Vec::new() };
        let client = concat!("nova-bench/", env!("CARGO_PKG_VERSION")).to_owned();
        dialled.call::<Welcome>("the hello", &Hello { client })?;
        Ok(dialled)
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn call<A: Message>(&mut self, request: &'static str, message: &impl Message) -> Result<A, BenchError> {
        self.send(message)?;
        self.answer(request)
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &impl Message) -> Result<(), BenchError> {
        self.send_with(|out| message.frame(0, out))
    }

    /// Sends what `put` writes.
    pub(crate) fn send_with(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), BenchError> {
        self.outbox.clear();
        put(&mut self.outbox);
        self.stream.write_all(&self.outbox).map_err(|source| broken(&self.addr, 1, source))
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer<A: Message>(&mut self, request: &'static str) -> Result<A, BenchError> {
        self.next(|frame| answered(frame, request))
    }

    /// Sends so many requests at once, each of which `put` writes with its number, from 0 on, as its correlation, and hands over
    /// their answers with their numbers as they come.
    pub(crate) fn call_each<A: Message>(
        &mut self,
        request: &'static str,
        requests: usize,
        put: impl Fn(usize, &mut Vec<u8>),
        mut take: impl FnMut(usize, A),
    ) -> Result<(), BenchError> {
        self.send_with(|out| (0..requests).for_each(|number| put(number, out)))?;
        for _ in 0..requests {
            let (correlation, answer) = self.next(|frame| Ok((frame.correlation, answered(frame, request)?)))?;
            take(usize::try_from(correlation).unwrap_or(usize::MAX), answer);
        }
        Ok(())
    }

    /// Waits for the next frame; answers pings meanwhile.
    pub(crate) fn next<T>(&mut self, take: impl FnOnce(&Frame<'_>) -> Result<T, BenchError>) -> Result<T, BenchError> {
        match self.next_in_time(take)? {
            Some(taken) => Ok(taken),
            None => Err(broken(&self.addr, 1, io::Error::new(ErrorKind::TimedOut, "no answer in time"))),
        }
    }

    /// The same, or `None` when none comes within what [`Dialled::set_answer_max`] allows.
    pub(crate) fn next_in_time<T>(
        &mut self,
        take: impl FnOnce(&Frame<'_>) -> Result<T, BenchError>,
    ) -> Result<Option<T>, BenchError> {
        self.next_when(take, Self::read_more)
    }

    /// The same, or `None` when none comes until then, to the microsecond.
    pub(crate) fn next_until<T>(
        &mut self,
        until: Instant,
        take: impl FnOnce(&Frame<'_>) -> Result<T, BenchError>,
    ) -> Result<Option<T>, BenchError> {
        self.next_when(take, |dialled| {
            let left = until.saturating_duration_since(Instant::now());
            match dialled.has_more(left)? {
                true => dialled.read_more(),
                false => Ok(false),
            }
        })
    }

    /// The next frame, for which `more` reads; `None` once that reads nothing.
    fn next_when<T>(
        &mut self,
        take: impl FnOnce(&Frame<'_>) -> Result<T, BenchError>,
        mut more: impl FnMut(&mut Self) -> Result<bool, BenchError>,
    ) -> Result<Option<T>, BenchError> {
        loop {
            let Next::Frame(frame) = frame::next(&self.inbox[self.at..], FRAME_BODY_BYTES_MAX)? else {
                match more(self)? {
                    true => continue,
                    false => return Ok(None),
                }
            };
            self.at += frame.frame_bytes;
            refuse_ends(&frame)?;
            if frame.kind != Kind::Ping {
                return take(&frame).map(Some);
            }
            let Ping { echo } = decoded(&frame, "keep-alive")?;
            self.send(&Pong { echo })?;
        }
    }

    /// Whether something comes within so long. The time-out of a socket is too coarse for it: it counts in ticks of the system.
    fn has_more(&self, within: Duration) -> Result<bool, BenchError> {
        let within = Timespec::try_from(within).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&within)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(broken(&self.addr, 1, errno.into())),
        }
    }

    /// Reads what there is; false when nothing came in time.
    fn read_more(&mut self) -> Result<bool, BenchError> {
        self.inbox.drain(..self.at);
        self.at = 0;
        let len = self.inbox.len();
        self.inbox.resize(len + READ_BYTES, 0);
        let got = loop {
            match self.stream.read(&mut self.inbox[len..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                got => break got,
            }
        };
        self.inbox.truncate(len + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => Err(BenchError::Closed { addr: self.addr.clone(), in_flight: 1 }),
            Ok(_) => Ok(true),
            Err(source) if source.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(source) => Err(broken(&self.addr, 1, source)),
        }
    }

    /// Says how long an answer may take from now on.
    pub(crate) fn set_answer_max(&self, max: Duration) -> Result<(), BenchError> {
        self.stream.set_read_timeout(Some(max)).map_err(|source| broken(&self.addr, 0, source))
    }

    /// Its address, its socket, which does not block, and what was received and not yet looked at.
    pub(crate) fn into_parts(mut self) -> Result<(String, TcpStream, Vec<u8>), BenchError> {
        self.stream.set_nonblocking(true).map_err(|source| broken(&self.addr, 0, source))?;
        self.inbox.drain(..self.at);
        Ok((self.addr, self.stream, self.inbox))
    }
}

/// A connection that broke.
pub(crate) fn broken(addr: &str, in_flight: usize, source: io::Error) -> BenchError {
    BenchError::Broken { addr: addr.to_owned(), in_flight, source }
}

/// The answer to a request, unless it is refused.
fn answered<A: Message>(frame: &Frame<'_>, request: &'static str) -> Result<A, BenchError> {
    if frame.kind == Kind::Refused {
        let Refused { refusal } = decoded(frame, request)?;
        return Err(BenchError::Refused { request, refusal });
    }
    decoded(frame, request)
}

/// The message of a frame that must be of its kind.
pub(crate) fn decoded<M: Message>(frame: &Frame<'_>, awaited: &'static str) -> Result<M, BenchError> {
    if frame.kind != M::KIND {
        return Err(BenchError::Unexpected { found: frame.kind, awaited });
    }
    M::get(frame.head).map_err(|refusal| BenchError::Refused { request: awaited, refusal })
}

/// Fails on a frame by which the server ends what a run needs.
pub(crate) fn refuse_ends(frame: &Frame<'_>) -> Result<(), BenchError> {
    match frame.kind {
        Kind::GoAway => {
            let GoAway { why } = decoded(frame, "a request to go")?;
            Err(BenchError::GoAway { why })
        }
        Kind::SessionEnded => {
            let SessionEnded { session, refusal } = decoded(frame, "the end of a session")?;
            Err(BenchError::Ended { what: "session", handle: session, refusal })
        }
        Kind::SubscriptionEnded => {
            let SubscriptionEnded { subscription, refusal } = decoded(frame, "the end of a subscription")?;
            Err(BenchError::Ended { what: "subscription", handle: subscription, refusal })
        }
        _ => Ok(()),
    }
}
