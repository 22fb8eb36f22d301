//! What does a network do to connections, in the weather that a test asks for?
//!
//! A [`Proxy`] listens on a free port of loopback and passes each connection on to its target. Each way of a connection has a
//! [`Weather`], which may change at any time and then holds for connections that are there too. What is random is drawn from a
//! seed, by the number of the connection and the way: after how many bytes something happens depends on nothing else.

use std::collections::VecDeque;
use std::future::pending;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::io::{self, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Bytes asked of a socket at a time.
const READ_BYTES: usize = 64 << 10;
/// Bytes of one way that may be under way; with more nothing is read.
const UNDER_WAY_BYTES_MAX: usize = 256 << 10;

/// What happens to the bytes of one way of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// They pass as they come.
    Clear,
    /// They arrive so much later.
    Delay {
        /// How much.
        by: Duration,
    },
    /// They arrive a few at a time.
    Drip {
        /// So many at once.
        bytes: usize,
        /// Between two drops.
        pause: Duration,
    },
    /// They arrive in pieces of any length, each written for itself.
    Split {
        /// The longest piece.
        bytes_max: usize,
    },
    /// The connection is reset somewhere within so many bytes; those before it are sent, and may be lost.
    Reset {
        /// How many pass at most.
        bytes_max: u64,
    },
    /// This way ends in order somewhere within so many bytes; the other goes on.
    HalfClose {
        /// How many pass at most.
        bytes_max: u64,
    },
    /// They are taken and never arrive, nor does the end of the connection. A way that has lost bytes stays silent also when it
    /// clears up: what came after a hole would be something else than what was sent.
    BlackHole,
    /// Of the first so many bytes and of as many after each such, one bit is another.
    Flip {
        /// How many pass until the next one at most.
        bytes_max: u64,
    },
}

/// What a proxy did so far, over both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Connections taken.
    pub connections: u64,
    /// Of these, those that ended at once because the target was not to be reached.
    pub unreached: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Pieces that arrived later than they could have: delayed, or as drops.
    pub late: u64,
    /// Pieces that were cut from others.
    pub split: u64,
    /// Connections that were reset.
    pub resets: u64,
    /// Ways that were ended while the other went on.
    pub half_closes: u64,
    /// Bytes that fell into a hole.
    pub lost_bytes: u64,
    /// Bits that were flipped.
    pub flips: u64,
}

impl Counted {
    /// What may have ended a connection or begun one.
    #[must_use]
    pub fn breaks(&self) -> u64 {
        self.connections + self.resets + self.half_closes + self.lost_bytes + self.flips
    }
}

/// Passes connections on, through weather. It ends with its connections when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    sky: watch::Sender<Sky>,
    counted: Shared,
}

/// Where connections go, and the weather on their ways.
#[derive(Debug, Clone)]
struct Sky {
    target: String,
    there: Weather,
    back: Weather,
}

#[derive(Debug, Clone, Default)]
struct Shared(Arc<Mutex<Counted>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// One whose connections go to this `host:port`, in clear weather.
    ///
    /// # Panics
    /// When there is no port for it.
    #[must_use]
    pub fn before(target: impl Into<String>, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let addr = listener.local_addr().expect("its address");
        let (sky, seen) = watch::channel(Sky { target: target.into(), there: Weather::Clear, back: Weather::Clear });
        let counted = Shared::default();
        let counts = counted.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener of the runtime");
                accept(listener, seen, seed, counts).await;
            });
        });
        Self { addr, sky, counted }
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the weather on both ways.
    pub fn set(&self, weather: Weather) {
        self.set_ways(weather, weather);
    }

    /// Changes the weather on the way to the target, and on the way back.
    pub fn set_ways(&self, there: Weather, back: Weather) {
        self.sky.send_modify(|sky| (sky.there, sky.back) = (there, back));
    }

    /// Sends the connections to come elsewhere.
    pub fn aim(&self, target: impl Into<String>) {
        self.sky.send_modify(|sky| sky.target = target.into());
    }

    /// What it did so far.
    #[must_use]
    pub fn counted(&self) -> Counted {
        *self.counted.lock()
    }
}

async fn accept(listener: tokio::net::TcpListener, sky: watch::Receiver<Sky>, seed: u64, counted: Shared) {
    let mut seen = sky.clone();
    let is_over = async { while seen.changed().await.is_ok() {} };
    tokio::pin!(is_over);
    for number in 0_u64.. {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut is_over => return,
        };
        let Ok((client, _)) = accepted else { continue };
        counted.lock().connections += 1;
        let seed = seed ^ number.wrapping_mul(2) << 20;
        tokio::spawn(connection(client, sky.clone(), seed, counted.clone()));
    }
}

/// Why a connection ends otherwise than by the end of both of its ways.
#[derive(Debug)]
enum Cut {
    /// It is reset.
    Reset,
    /// One of its sockets failed, as after a reset of the other side.
    Socket,
    /// The proxy is dropped.
    Over,
}

impl From<io::Error> for Cut {
    fn from(_: io::Error) -> Self {
        Self::Socket
    }
}

async fn connection(mut client: TcpStream, mut sky: watch::Receiver<Sky>, seed: u64, counted: Shared) {
    let target = sky.borrow_and_update().target.clone();
    let Ok(mut server) = TcpStream::connect(target).await else {
        counted.lock().unreached += 1;
        return;
    };
    // A piece that waits for another is slower, not wrong.
    let _slower = (client.set_nodelay(true), server.set_nodelay(true));
    let there = Course::new(|sky| sky.there, sky.clone(), Dice::new(seed), counted.clone());
    let back = Course::new(|sky| sky.back, sky, Dice::new(seed ^ 1 << 20), counted.clone());
    let cut = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::try_join!(there.carry(from_client, to_server), back.carry(from_server, to_client)).err()
    };
    if matches!(cut, Some(Cut::Reset)) {
        counted.lock().resets += 1;
    }
    if matches!(cut, Some(Cut::Reset | Cut::Socket)) {
        // What can't be told so is told by a close in order.
        let _closed = (client.set_zero_linger(), server.set_zero_linger());
    }
}

/// What comes at the end of what is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Reset,
    HalfClose,
    /// The sender's own.
    Own,
}

/// One way of a connection.
struct Course {
    of: fn(&Sky) -> Weather,
    sky: watch::Receiver<Sky>,
    weather: Weather,
    dice: Dice,
    /// Bytes until something happens, in weather where it does now and then; 0 before it is drawn.
    clear_bytes: u64,
    under_way: VecDeque<(Instant, Vec<u8>)>,
    under_way_bytes: usize,
    end: Option<End>,
    /// Nothing arrives any more; neither does the end if bytes were lost.
    is_silent: bool,
    counted: Shared,
}

impl Course {
    fn new(of: fn(&Sky) -> Weather, sky: watch::Receiver<Sky>, dice: Dice, counted: Shared) -> Self {
        let weather = of(&sky.borrow());
        Self {
            of,
            sky,
            weather,
            dice,
            clear_bytes: 0,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            end: None,
            is_silent: false,
            counted,
        }
    }

    /// Carries bytes until the way ends.
    async fn carry(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), Cut> {
        let mut bytes = vec![0; READ_BYTES];
        loop {
            let due = self.under_way.front().map(|(due, _)| *due);
            let end = self.end.filter(|_| due.is_none());
            if let Some(end) = end
                && self.finish(end, &mut to).await?
            {
                return Ok(());
            }
            let reads = self.end.is_none() && self.under_way_bytes < UNDER_WAY_BYTES_MAX;
            tokio::select! {
                biased;
                changed = self.sky.changed() => {
                    changed.map_err(|_| Cut::Over)?;
                    self.look_up();
                }
                () = arrival(due) => self.arrive(&mut to).await?,
                read = from.read(&mut bytes), if reads => match read? {
                    0 => self.end = Some(End::Own),
                    read => self.take(&bytes[..read]),
                },
            }
        }
    }

    /// Sees what the weather is now; what is under way arrives at once.
    fn look_up(&mut self) {
        let weather = (self.of)(&self.sky.borrow());
        if weather != self.weather {
            self.weather = weather;
            self.clear_bytes = 0;
            self.under_way.iter_mut().for_each(|(due, _)| *due = Instant::now());
        }
    }

    /// Takes what the sender sent.
    fn take(&mut self, bytes: &[u8]) {
        if self.is_silent {
            self.counted.lock().lost_bytes += bytes.len() as u64;
            return;
        }
        let now = Instant::now();
        match self.weather {
            Weather::Clear => self.send(now, bytes),
            Weather::Delay { by } => {
                self.counted.lock().late += 1;
                self.send(now + by, bytes);
            }
            Weather::Drip { bytes: drop_bytes, pause } => {
                for piece in bytes.chunks(drop_bytes.max(1)) {
                    let last = self.under_way.back().map_or(now, |(due, _)| *due);
                    self.counted.lock().late += 1;
                    self.send(last + pause, piece);
                }
            }
            Weather::Split { bytes_max } => self.split(bytes, bytes_max.max(1)),
            Weather::Reset { bytes_max } => self.end_within(bytes, bytes_max, End::Reset),
            Weather::HalfClose { bytes_max } => self.end_within(bytes, bytes_max, End::HalfClose),
            Weather::BlackHole => {
                self.counted.lock().lost_bytes += bytes.len() as u64;
                self.is_silent = true;
            }
            Weather::Flip { bytes_max } => self.flip(bytes.to_vec(), bytes_max),
        }
    }

    /// Lets bytes arrive then, or right after those before them.
    fn send(&mut self, due: Instant, bytes: &[u8]) {
        if !bytes.is_empty() {
            let last = self.under_way.back().map_or(due, |(due, _)| *due);
            self.under_way.push_back((due.max(last), bytes.to_vec()));
            self.under_way_bytes += bytes.len();
        }
    }

    fn split(&mut self, mut bytes: &[u8], bytes_max: usize) {
        while !bytes.is_empty() {
            let drawn = self.dice.below(bytes_max as u64) + 1;
            let (piece, rest) = bytes.split_at(usize::try_from(drawn).unwrap_or(bytes_max).min(bytes.len()));
            self.counted.lock().split += u64::from(!rest.is_empty());
            self.send(Instant::now(), piece);
            bytes = rest;
        }
    }

    /// Draws after how many bytes something happens, if it is not drawn yet.
    fn draw(&mut self, bytes_max: u64) {
        if self.clear_bytes == 0 {
            self.clear_bytes = self.dice.below(bytes_max.max(1)) + 1;
        }
    }

    fn end_within(&mut self, bytes: &[u8], bytes_max: u64, end: End) {
        self.draw(bytes_max);
        let passing = usize::try_from(self.clear_bytes).unwrap_or(usize::MAX).min(bytes.len());
        self.clear_bytes -= passing as u64;
        self.send(Instant::now(), &bytes[..passing]);
        if self.clear_bytes == 0 {
            self.end = Some(end);
        }
    }

    fn flip(&mut self, mut bytes: Vec<u8>, bytes_max: u64) {
        let mut at = 0;
        loop {
            self.draw(bytes_max);
            let left = (bytes.len() - at) as u64;
            if self.clear_bytes > left {
                self.clear_bytes -= left;
                return self.send(Instant::now(), &bytes);
            }
            at += usize::try_from(self.clear_bytes).unwrap_or(usize::MAX);
            self.clear_bytes = 0;
            bytes[at - 1] ^= 1 << self.dice.below(8);
            self.counted.lock().flips += 1;
        }
    }

    /// Lets the next piece arrive.
    async fn arrive(&mut self, to: &mut WriteHalf<'_>) -> io::Result<()> {
        if let Some((_, piece)) = self.under_way.pop_front() {
            self.under_way_bytes -= piece.len();
            to.write_all(&piece).await?;
            self.counted.lock().bytes += piece.len() as u64;
        }
        Ok(())
    }

    /// Does what comes at the end, and answers whether the way is over; after a half close what is sent goes nowhere.
    async fn finish(&mut self, end: End, to: &mut WriteHalf<'_>) -> Result<bool, Cut> {
        if end == End::Reset {
            return Err(Cut::Reset);
        }
        if !self.is_silent {
            to.shutdown().await?;
        }
        if end == End::HalfClose {
            self.counted.lock().half_closes += 1;
            (self.end, self.is_silent) = (None, true);
        }
        Ok(end == End::Own)
    }
}

async fn arrival(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

/// Numbers that a seed decides (splitmix64, Vigna 2015).
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Those of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one, below a bound that is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Yes in one of so many cases.
    pub fn is_one_of(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

#[cfg(test)]
mod tests;
