//! What does a shard keep of each connection that it reads from?

use std::cell::Cell;
use std::task::Waker;
use std::time::Duration;

use glommio::net::TcpStream;
use wire::ids::ShardId;

use crate::core::{BACKLOG_BYTES_MAX, ConnId, OutBuffer};
use crate::remote_subscriptions::RemoteSubscriptions;

/// Pages of one connection that may be under way on a shard; the next frame waits, for each is as large as a backlog may be.
pub(crate) const PAGES_MAX: u32 = 4;

/// How far a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its first frame is due.
    Greeting,
    /// It is served.
    Open,
    /// What is left is sent, then it is closed; what comes in is thrown away.
    Closing,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: TcpStream,
    pub(crate) phase: Phase,
    /// Frames that are not offered to the kernel yet.
    pub(crate) out: OutBuffer,
    pub(crate) is_dirty: bool,
    /// Frames that the kernel had no room for, from `backlog_at` on; the writer task sends them.
    pub(crate) backlog: Vec<u8>,
    pub(crate) backlog_at: usize,
    /// The writer task runs.
    pub(crate) is_writing: bool,
    /// When the peer last took something of the backlog.
    pub(crate) took_at: Duration,
    /// The core asked for the backlog, so it waits to hear that there is none.
    pub(crate) backlog_asked: Cell<bool>,
    /// The reading task, while it waits for [`Conn::may_read`].
    pub(crate) reader: Option<Waker>,
    /// When it was opened, or began to close.
    pub(crate) phase_at: Duration,
    pub(crate) heard_at: Duration,
    pub(crate) pings_unanswered: u32,
    /// No request has been served yet.
    pub(crate) is_fresh: bool,
    /// Other shards that have served it, a bit each.
    pub(crate) served_by: u64,
    pub(crate) hops_under_way: u32,
    /// Pages that this shard gathers for it.
    pub(crate) pages_under_way: u32,
    /// Frames of other shards that the kernel has not taken.
    pub(crate) owed: Vec<(ShardId, usize)>,
    /// Subscriptions on other shards.
    pub(crate) remote_subscriptions: RemoteSubscriptions,
}

impl Conn {
    /// A connection that was opened just now.
    pub(crate) fn new(stream: TcpStream, phase: Phase, now: Duration) -> Self {
        Self {
            stream,
            phase,
            out: OutBuffer::default(),
            is_dirty: false,
            backlog: Vec::new(),
            backlog_at: 0,
            is_writing: false,
            took_at: now,
            backlog_asked: Cell::new(false),
            reader: None,
            phase_at: now,
            heard_at: now,
            pings_unanswered: 0,
            is_fresh: true,
            served_by: 0,
            hops_under_way: 0,
            pages_under_way: 0,
            owed: Vec::new(),
            remote_subscriptions: RemoteSubscriptions::default(),
        }
    }

    /// Bytes for it that the kernel has not taken.
    #[inline]
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.out.len() + (self.backlog.len() - self.backlog_at)
    }

    /// Whether its next frame may be served.
    #[inline]
    pub(crate) fn may_read(&self) -> bool {
        self.backlog_bytes() < BACKLOG_BYTES_MAX
            && self.hops_under_way < crate::hop::HOPS_MAX
            && self.pages_under_way < PAGES_MAX
    }

    /// Lets the reading task look again.
    pub(crate) fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    conn: Option<Box<Conn>>,
}

/// The connections of a shard, by place.
#[derive(Debug, Default)]
pub(crate) struct Conns {
    shard: ShardId,
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Conns {
    /// None yet.
    pub(crate) fn new(shard: ShardId) -> Self {
        Self { shard, places: Vec::new(), free: Vec::new() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes one in.
    ///
    /// # Panics
    /// At the 2^32nd connection at once; descriptors end long before.
    pub(crate) fn insert(&mut self, conn: Conn) -> ConnId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).expect("connections are bounded by descriptors")
        });
        let place = &mut self.places[slot as usize];
        place.conn = Some(Box::new(conn));
        ConnId { shard: self.shard, slot, generation: place.generation }
    }

    /// Takes one out; its id is never given out again.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Box<Conn>> {
        let place = self.places.get_mut(id.slot as usize).filter(|place| place.generation == id.generation)?;
        let conn = place.conn.take()?;
        // After 2^32 connections at one place it is left empty rather than to repeat an id.
        if let Some(generation) = place.generation.checked_add(1) {
            place.generation = generation;
            self.free.push(id.slot);
        }
        Some(conn)
    }

    /// One that is still there.
    #[inline]
    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        let place = self.places.get(id.slot as usize).filter(|place| place.generation == id.generation)?;
        place.conn.as_deref()
    }

    /// One that is still there.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let place = self.places.get_mut(id.slot as usize).filter(|place| place.generation == id.generation)?;
        place.conn.as_deref_mut()
    }

    /// All, with their ids.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Conn)> {
        let shard = self.shard;
        (0..).zip(&mut self.places).filter_map(move |(slot, place)| {
            let id = ConnId { shard, slot, generation: place.generation };
            place.conn.as_deref_mut().map(|conn| (id, conn))
        })
    }
}
