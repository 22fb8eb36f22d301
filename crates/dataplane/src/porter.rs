//! Who answers those that come while no shard serves yet?
//!
//! A thread that greets them and refuses whatever they ask. It keeps nothing of what they send: bodies are passed over.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::frame::{self, HEADER_BYTES, Header, Kind, Next};
use wire::ids::{ClusterId, StarId};
use wire::limits::{APPEND_WINDOW_DEFAULT, FRAME_BODY_BYTES_BEFORE_HELLO_MAX, FRAME_BODY_BYTES_MAX};
use wire::message::{self, GoAway, Hello, Message, Ping, Pong, Welcome};
use wire::reason::Reason;
use wire::refusal::Refusal;

/// Callers at once; more wait to be accepted.
const CALLERS_MAX: usize = 1_024;
/// How soon the porter sees that it is to leave.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// A caller says hello within this, and takes answers within it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes received at once: with a caller's answers to them is waited until it has taken those before.
const RECEIVE_BYTES: usize = 8 << 10;
/// A ping is longer than this in no version.
const PING_BYTES_MAX: u32 = 64;
/// What a refusal tells a client to wait, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;
/// What a client is told at the handshake; nothing is pinged here.
const KEEPALIVE_MS: u32 = 15_000;

/// Who answers at the doors of a star that does not serve yet.
#[derive(Debug)]
pub struct Porter {
    says: Arc<Mutex<Arc<str>>>,
    leaves: Arc<AtomicBool>,
    thread: JoinHandle<Vec<TcpListener>>,
}

impl Porter {
    pub(crate) fn start(listeners: Vec<TcpListener>, ids: (Option<ClusterId>, StarId), why: &str) -> io::Result<Self> {
        listeners.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        let (says, leaves) = (Arc::new(Mutex::new(Arc::from(why))), Arc::new(AtomicBool::new(false)));
        let lodge = Lodge {
            listeners,
            callers: Vec::new(),
            ids,
            says: Arc::clone(&says),
            leaves: Arc::clone(&leaves),
            scratch: vec![0; RECEIVE_BYTES],
        };
        let thread = thread::Builder::new().name("nova-porter".to_owned()).spawn(move || lodge.run())?;
        Ok(Self { says, leaves, thread })
    }

    /// What callers are told from now on.
    pub fn says(&self, why: &str) {
        *self.says.lock().unwrap_or_else(PoisonError::into_inner) = Arc::from(why);
    }

    /// Asks callers to connect again, and leaves the doors to the shards.
    ///
    /// # Errors
    /// What the system said when the doors can't be left as they were found.
    pub fn leave(self) -> io::Result<()> {
        self.leaves.store(true, Ordering::Release);
        let listeners = self.thread.join().map_err(|_| io::Error::other("the thread at the doors panicked"))?;
        listeners.iter().try_for_each(|listener| listener.set_nonblocking(false))
    }
}

/// What the porter's thread has.
struct Lodge {
    listeners: Vec<TcpListener>,
    callers: Vec<Caller>,
    ids: (Option<ClusterId>, StarId),
    says: Arc<Mutex<Arc<str>>>,
    leaves: Arc<AtomicBool>,
    scratch: Vec<u8>,
}

/// A connection.
#[derive(Debug)]
struct Caller {
    socket: TcpStream,
    /// When it came, or took something last.
    since: Instant,
    has_greeted: bool,
    /// What came and is no whole header or hello yet.
    input: Vec<u8>,
    /// Bytes of a body that are still to be passed over.
    passes: usize,
    output: Vec<u8>,
    /// It is closed once it has taken what is left for it.
    ends: bool,
}

impl Lodge {
    fn run(mut self) -> Vec<TcpListener> {
        while !self.leaves.load(Ordering::Acquire) {
            if let Err(error) = self.turn() {
                tracing::warn!(%error, "the doors can't be watched");
                thread::sleep(PATIENCE);
            }
        }
        for caller in self.callers.iter_mut().filter(|caller| caller.has_greeted) {
            let why = "the star serves now: connect again".to_owned();
            GoAway { why }.frame(0, &mut caller.output);
            // One that takes nothing finds its connection closed.
            let _gone = caller.send();
        }
        self.listeners
    }

    /// Waits for something to do, and does it.
    fn turn(&mut self) -> io::Result<()> {
        let listeners = if self.callers.len() < CALLERS_MAX { &self.listeners[..] } else { &[] };
        let doors = listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN));
        let wanted = |caller: &Caller| if caller.output.is_empty() { PollFlags::IN } else { PollFlags::OUT };
        let callers = self.callers.iter().map(|caller| PollFd::new(&caller.socket, wanted(caller)));
        let mut watched: Vec<PollFd<'_>> = doors.chain(callers).collect();
        match poll(&mut watched, Some(&LOOK_EVERY)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (doors, callers) = ready.split_at(listeners.len());
        let opened: Vec<usize> = (0..doors.len()).filter(|at| doors[*at]).collect();
        let why = Arc::clone(&self.says.lock().unwrap_or_else(PoisonError::into_inner));
        let mut is_ready = callers.iter().copied();
        let (ids, scratch) = (self.ids, &mut self.scratch);
        self.callers.retain_mut(|caller| {
            let is_ready = is_ready.next().unwrap_or(false);
            !is_ready || caller.serve(ids, &why, scratch)
        });
        let now = Instant::now();
        self.callers.retain(|caller| !caller.is_overdue(now));
        opened.into_iter().for_each(|at| self.accept(at));
        Ok(())
    }

    fn accept(&mut self, at: usize) {
        // A caller that is gone already, or a want of descriptors, is met again at the next turn.
        let Ok((socket, _)) = self.listeners[at].accept() else { return };
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        // Answers are small; a socket that can't be told is slower, not wrong.
        let _slower = socket.set_nodelay(true);
        self.callers.push(Caller {
            socket,
            since: Instant::now(),
            has_greeted: false,
            input: Vec::new(),
            passes: 0,
            output: Vec::new(),
            ends: false,
        });
    }
}

impl Caller {
    fn is_overdue(&self, now: Instant) -> bool {
        let owes = !self.has_greeted || !self.output.is_empty();
        owes && now.duration_since(self.since) > PATIENCE
    }

    /// Takes what there is and answers it; false once the connection is over.
    fn serve(&mut self, ids: (Option<ClusterId>, StarId), why: &str, scratch: &mut [u8]) -> bool {
        if self.output.is_empty() {
            match self.socket.read(scratch) {
                Ok(0) => return false,
                Ok(read) => self.take(ids, why, scratch.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        let is_sent = self.send();
        is_sent.is_ok() && !(self.ends && self.output.is_empty())
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.socket.write(&self.output) {
                Ok(sent) => {
                    self.output.drain(..sent);
                    self.since = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, ids: (Option<ClusterId>, StarId), why: &str, received: &[u8]) {
        self.input.extend_from_slice(received);
        let mut at = 0;
        while !self.ends {
            let passed = self.passes.min(self.input.len() - at);
            self.passes -= passed;
            at += passed;
            let rest = self.input.get(at..).unwrap_or_default();
            let taken = if self.has_greeted { refuse_next(rest, why, &mut self.output) } else { greet(rest, ids) };
            match taken {
                Ok(Taken::Nothing) => break,
                Ok(Taken::Hello { bytes, welcome }) => {
                    self.has_greeted = true;
                    self.output.extend_from_slice(&welcome);
                    at += bytes;
                }
                Ok(Taken::Request { bytes, passes }) => {
                    at += bytes;
                    self.passes = passes;
                }
                Err(refusal) => {
                    message::refuse(0, refusal, &mut self.output);
                    self.ends = true;
                }
            }
        }
        self.input.drain(..at);
    }
}

/// What was made of the front of the input.
enum Taken {
    /// More has to come.
    Nothing,
    /// So many bytes said hello, which is answered by this.
    Hello { bytes: usize, welcome: Vec<u8> },
    /// So many bytes asked for something, and so many belong to them that are of no interest.
    Request { bytes: usize, passes: usize },
}

fn greet(input: &[u8], (cluster, star): (Option<ClusterId>, StarId)) -> Result<Taken, Refusal> {
    let frame = match frame::next(input, FRAME_BODY_BYTES_BEFORE_HELLO_MAX) {
        Ok(Next::Frame(frame)) => frame,
        Ok(Next::Short { .. }) => return Ok(Taken::Nothing),
        Err(error) => return Err(Refusal::invalid(error.to_string())),
    };
    Hello::of(&frame)?;
    let welcome = Welcome {
        cluster_id: cluster.unwrap_or(ClusterId::from_bytes([0; 16])),
        star_id: star,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        shard: 0,
        shards: 1,
        append_window: APPEND_WINDOW_DEFAULT,
        keepalive_ms: KEEPALIVE_MS,
        frame_body_bytes_max: u32::try_from(FRAME_BODY_BYTES_MAX).unwrap_or(u32::MAX),
    };
    let mut answer = Vec::new();
    welcome.frame(frame.correlation, &mut answer);
    Ok(Taken::Hello { bytes: frame.frame_bytes, welcome: answer })
}

fn refuse_next(input: &[u8], why: &str, output: &mut Vec<u8>) -> Result<Taken, Refusal> {
    let invalid = |error: frame::FrameError| Refusal::invalid(error.to_string());
    let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Ok(Taken::Nothing) };
    let header = Header::decode(header, FRAME_BODY_BYTES_MAX).map_err(invalid)?;
    let body_bytes = header.body_bytes as usize;
    match header.kind {
        Kind::Ping if header.body_bytes <= PING_BYTES_MAX => {
            let Some(body) = input.get(HEADER_BYTES..HEADER_BYTES + body_bytes) else { return Ok(Taken::Nothing) };
            let echo = header.split(body).map_err(invalid).and_then(|(head, _)| Ping::get(head))?.echo;
            Pong { echo }.frame(header.correlation, output);
            return Ok(Taken::Request { bytes: HEADER_BYTES + body_bytes, passes: 0 });
        }
        Kind::Ping | Kind::Pong => {}
        _ => {
            let refusal = Refusal::new(Reason::Unavailable, why).with_retry_after_ms(RETRY_AFTER_MS);
            message::refuse(header.correlation, refusal, output);
        }
    }
    Ok(Taken::Request { bytes: HEADER_BYTES, passes: body_bytes })
}

#[cfg(test)]
mod tests;
