//! How does one thread follow a stream over many connections?

use std::io::{self, ErrorKind, Read};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use wire::ids::SeqNum;
use wire::names::Address;

use super::sse::Sse;
use super::wired::Wired;
use super::{Live, SubscribeOptions};
use crate::dial::{ANSWER_MAX, broken};
use crate::error::BenchError;
use crate::latency::Latencies;

const SCRATCH_BYTES: usize = 256 << 10;
const EVENTS_MAX: usize = 1024;
/// It is looked at least this often whether the other thread failed.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// All who follow.
#[derive(Debug)]
pub(super) struct Followers {
    addr: String,
    from: SeqNum,
    all: Vec<Follower>,
}

#[derive(Debug)]
struct Follower {
    stream: TcpStream,
    surface: Surface,
}

/// What a connection speaks.
#[derive(Debug)]
enum Surface {
    Wired(Wired),
    Sse(Sse),
}

/// What looking at delivered records needs.
#[derive(Debug)]
pub(super) struct Delivery<'a> {
    live: &'a Live,
    latencies: &'a mut Latencies,
    now_ns: u64,
}

impl<'a> Delivery<'a> {
    pub(super) const fn new(live: &'a Live, latencies: &'a mut Latencies, now_ns: u64) -> Self {
        Self { live, latencies, now_ns }
    }

    /// Notes a record that was due then.
    pub(super) fn note(&mut self, due_ns: u64) {
        self.live.note(self.latencies, due_ns, self.now_ns);
    }
}

impl Followers {
    /// Connects them, one after the other, each from `from` on.
    pub(super) fn open(options: &SubscribeOptions, address: &Address, from: SeqNum) -> Result<Self, BenchError> {
        let follower = |_| {
            let (stream, surface) = match &options.sse {
                None => {
                    let (stream, wired) = Wired::open(&options.addr, address, from)?;
                    (stream, Surface::Wired(wired))
                }
                Some(http) => {
                    let (stream, sse) = Sse::open(http, address, from)?;
                    (stream, Surface::Sse(sse))
                }
            };
            Ok::<_, BenchError>(Follower { stream: TcpStream::from_std(stream), surface })
        };
        let all = (0..options.subscribers).map(follower).collect::<Result<_, _>>()?;
        Ok(Self { addr: options.sse.as_ref().unwrap_or(&options.addr).clone(), from, all })
    }

    /// Follows until each has every record; answers how long they took.
    pub(super) fn run(mut self, options: &SubscribeOptions, live: &Live) -> Result<Latencies, BenchError> {
        let mut poll = Poll::new().map_err(system("making a poll"))?;
        for (number, follower) in self.all.iter_mut().enumerate() {
            let watched = poll.registry().register(&mut follower.stream, Token(number), Interest::READABLE);
            watched.map_err(system("watching a socket"))?;
        }
        let (mut latencies, mut scratch) = (Latencies::new(), vec![0; SCRATCH_BYTES]);
        let mut events = Events::with_capacity(EVENTS_MAX);
        // Records may be far apart: what is waited for at most is the time between two, and an answer's.
        let silence_max = Duration::from_secs_f64(1.0 / options.rate) + ANSWER_MAX;
        let mut heard = Instant::now();
        while !live.has_failed() {
            // It is less than was due when acks come too slowly for the rate.
            let end = self.from.after(live.records.load(Ordering::Relaxed));
            let left = self.all.iter().filter(|follower| follower.next() < end).count();
            if left == 0 {
                break;
            }
            match poll.poll(&mut events, Some(WAIT_MAX)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return Err(system("waiting for sockets")(error));
                }
                _ => {}
            }
            if !events.is_empty() {
                heard = Instant::now();
            } else if heard.elapsed() > silence_max {
                let late = io::Error::new(ErrorKind::TimedOut, "no record in time");
                return Err(broken(&self.addr, left, late));
            }
            for event in &events {
                self.all[event.token().0].receive(&self.addr, &mut scratch, live, &mut latencies)?;
            }
        }
        Ok(latencies)
    }
}

impl Follower {
    fn next(&self) -> SeqNum {
        match &self.surface {
            Surface::Wired(wired) => wired.next(),
            Surface::Sse(sse) => sse.next(),
        }
    }

    /// Takes all that has come.
    fn receive(
        &mut self,
        addr: &str,
        scratch: &mut [u8],
        live: &Live,
        latencies: &mut Latencies,
    ) -> Result<(), BenchError> {
        loop {
            let bytes = match self.stream.read(scratch) {
                Ok(0) => return Err(BenchError::Closed { addr: addr.to_owned(), in_flight: 1 }),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(broken(addr, 1, error)),
            };
            let mut delivery = Delivery::new(live, latencies, live.clock.now_ns());
            match &mut self.surface {
                Surface::Wired(wired) => wired.take(&scratch[..bytes], &mut delivery, &mut self.stream)?,
                Surface::Sse(sse) => sse.take(&scratch[..bytes], &mut delivery)?,
            }
            // A short read has emptied the socket, and what comes later is an edge of its own.
            if bytes < scratch.len() {
                return Ok(());
            }
        }
    }
}

fn system(action: &'static str) -> impl Fn(io::Error) -> BenchError {
    move |source| BenchError::System { action, source }
}
