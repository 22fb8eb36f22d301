//! What runs on a shard beside its connections: accepting, timers, the heartbeat, keep-alive, history reads.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use express_log::HistoryReader;
use glommio::net::TcpListener;
use rustix::io::Errno;
use wire::ids::SegmentId;
use wire::message::Ping;

use crate::bell::Bell;
use crate::conns::{Conn, Phase};
use crate::core::{Fetch, FetchError};
use crate::cpu::Thread;
use crate::hops::turn_away;
use crate::outgoing::kill;
use crate::shell::Shell;
use crate::watchdog::{BEAT_EVERY, Task};

/// A connection says hello within this.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// A connection that is being closed has this long to take what is left for it.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// A peer that takes nothing for this long is closed.
const STUCK_MAX: Duration = Duration::from_secs(30);
/// Pings without an answer after which a connection is closed.
const PINGS_MAX: u32 = 3;
/// Reads of head logs under way at once on a shard.
const FETCHES_MAX: usize = 64;
/// How long a read of a segment that is not there waits to hear that it was given up.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// How often it looks.
const HEAR_AGAIN: Duration = Duration::from_millis(5);
/// Beats after which a second has passed, about.
const BEATS_A_SECOND: u64 = 10;
/// Shortest time between two timers of the core.
const TIMER_PAUSE: Duration = Duration::from_millis(1);

impl Shell {
    /// Accepts connections until the listener is shut down.
    pub(crate) async fn accept(self: Rc<Self>, listener: TcpListener) {
        // Without a table of buckets there is nothing to serve.
        self.bells.open.wait().await;
        let mut said_at: Option<Instant> = None;
        while !self.is_draining.get() {
            let error = match listener.accept().await {
                Ok(stream) => {
                    self.welcome(stream);
                    continue;
                }
                Err(error) => io::Error::from(error),
            };
            if self.is_draining.get() {
                return;
            }
            if said_at.is_none_or(|said| said.elapsed() > Duration::from_secs(1)) {
                said_at = Some(Instant::now());
                tracing::warn!(shard = %self.me, %error, "a connection was not accepted");
            }
            let number = error.raw_os_error().map(Errno::from_raw_os_error);
            let pause = match number {
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Duration::from_millis(100),
                _ => Duration::from_millis(1),
            };
            glommio::timer::sleep(pause).await;
        }
    }

    fn welcome(self: &Rc<Self>, stream: glommio::net::TcpStream) {
        self.enter(Task::Accept);
        let held = {
            let world = &mut self.state.borrow_mut().world;
            world.counts.accepted += 1;
            world.conns.len()
        };
        if held >= self.star.connections_max {
            self.state.borrow_mut().world.counts.turned_away += 1;
            turn_away(&stream, self.star.connections_max);
            return;
        }
        // Small answers wait for more to send otherwise; a socket that can't be told is slower, not wrong.
        let _ = stream.set_nodelay(true);
        self.take_in(Conn::new(stream, Phase::Greeting, self.mono()), Vec::new());
    }

    /// Calls the core when its timer is due.
    pub(crate) async fn keep_time(self: Rc<Self>) {
        while !self.is_over.get() {
            let next = self.state.borrow().core.next_timer();
            self.timer_at.set(next);
            let Some(at) = next else {
                self.bells.timer.wait().await;
                continue;
            };
            let wait = at.saturating_sub(self.mono());
            if wait > Duration::ZERO {
                futures_lite::future::or(self.bells.timer.wait(), sleep(wait)).await;
                continue;
            }
            self.turn(Task::Timer, |state| state.core.on_timer(&mut state.world));
            sleep(TIMER_PAUSE).await;
        }
    }

    /// Shows the watchdog that the shard turns.
    pub(crate) async fn beat(self: Rc<Self>) {
        let pulse = &self.own_mailbox().pulse;
        pulse.runs(Thread::of_caller());
        // The watchdog looks at who has beaten once: what comes before anybody is served may take its time.
        pulse.beat(Duration::ZERO);
        for beat in 1_u64.. {
            if self.is_over.get() {
                return;
            }
            let due = Instant::now() + BEAT_EVERY;
            sleep(BEAT_EVERY).await;
            self.enter(Task::Beat);
            pulse.beat(due.elapsed());
            let state = &mut *self.state.borrow_mut();
            state.world.tell_untold();
            if beat.is_multiple_of(BEATS_A_SECOND) {
                state.core.fade();
            }
        }
    }

    /// Does nothing when woken: its waker is what the watchdog wakes a shard by that sleeps and should not.
    pub(crate) async fn be_poked(self: Rc<Self>) {
        poll_fn(|context| {
            self.own_mailbox().pulse.arm(context.waker());
            if self.is_over.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Closes connections that don't greet, don't take what they asked for, or are gone; asks those that are silent.
    pub(crate) async fn look_after_connections(self: Rc<Self>) {
        let every = (self.star.keepalive / 8).clamp(Duration::from_millis(50), Duration::from_secs(1));
        while !self.is_over.get() {
            sleep(every).await;
            self.turn(Task::Connections, |state| {
                let now = state.world.mono();
                let conns = state.world.conns.iter_mut();
                let looked_at = conns.filter_map(|(id, conn)| look_after(conn, now, self.star.keepalive).then_some(id));
                let pinged: Vec<_> = looked_at.collect();
                pinged.into_iter().for_each(|id| state.world.mark_dirty(id));
            });
        }
    }

    /// Reads what the core wants from head logs, a bounded number at once.
    pub(crate) async fn read_history(self: Rc<Self>, reader: HistoryReader) {
        let (reader, under_way) = (Rc::new(reader), Rc::new(Cell::new(0_usize)));
        let bell: Rc<Bell> = Rc::clone(&self.state.borrow().world.fetch_bell);
        while !self.is_over.get() {
            bell.wait().await;
            // A file that is freed takes its room as long as it is open.
            reader.close_freed(usize::from(self.me.get()), self.log.first_segment()).await;
            while let Some(fetch) = self.next_fetch(under_way.get()) {
                under_way.set(under_way.get() + 1);
                let place = FetchPlace { under_way: Rc::clone(&under_way), bell: Rc::clone(&bell) };
                glommio::spawn_local(Rc::clone(&self).fetch(Rc::clone(&reader), fetch, place)).detach();
            }
        }
    }

    fn next_fetch(&self, under_way: usize) -> Option<Fetch> {
        if under_way < FETCHES_MAX { self.state.borrow_mut().world.fetches.pop_front() } else { None }
    }

    async fn fetch(self: Rc<Self>, reader: Rc<HistoryReader>, fetch: Fetch, place: FetchPlace) {
        let Fetch { ticket, log, segment, offset, bytes } = fetch;
        let read = reader.read(usize::from(log), segment, offset, bytes).await;
        if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            self.hear_of_giving_up(log, segment).await;
        }
        if let Err(error) = read.as_ref()
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(shard = %self.me, log, %segment, offset, bytes, %error, "a history read failed");
        }
        let failed = |error: &io::Error| {
            let is_gone = error.kind() == io::ErrorKind::NotFound;
            FetchError { segment, offset, bytes, message: error.to_string(), is_gone }
        };
        let result = read.as_ref().map(|read| &read[..]).map_err(failed);
        self.turn(Task::Fetch, |state| state.core.on_fetched(ticket, result, &mut state.world));
        place.give_back();
    }
}

impl Shell {
    /// Waits to be told that a segment that is not there was given up, by the shard that did.
    async fn hear_of_giving_up(self: &Rc<Self>, log: u16, segment: SegmentId) {
        let until = self.mono() + HEARD_WITHIN;
        while !self.turn(Task::Fetch, |state| self.is_given_up(state, log, segment)) && self.mono() < until {
            sleep(HEAR_AGAIN).await;
        }
    }
}

/// One of the places for reads that are under way.
struct FetchPlace {
    under_way: Rc<Cell<usize>>,
    bell: Rc<Bell>,
}

impl FetchPlace {
    fn give_back(self) {
        self.under_way.set(self.under_way.get() - 1);
        self.bell.ring();
    }
}

async fn sleep(time: Duration) {
    glommio::timer::sleep(time).await;
}

/// Closes a connection that is over, asks one that is silent; true when there is something to send.
fn look_after(conn: &mut Conn, now: Duration, keepalive: Duration) -> bool {
    match verdict(conn, now, keepalive) {
        Verdict::Fine => false,
        Verdict::Ping => {
            conn.pings_unanswered += 1;
            conn.out.message(&Ping { echo: u64::from(conn.pings_unanswered) }, 0);
            true
        }
        Verdict::Over(why) => {
            tracing::debug!(why, "connection closed");
            kill(conn);
            false
        }
    }
}

enum Verdict {
    Fine,
    Ping,
    Over(&'static str),
}

fn verdict(conn: &Conn, now: Duration, keepalive: Duration) -> Verdict {
    let since = |then: Duration| now.saturating_sub(then);
    match conn.phase {
        Phase::Greeting if since(conn.phase_at) > HELLO_WITHIN => return Verdict::Over("no hello within 5 s"),
        Phase::Closing if since(conn.phase_at) > CLOSE_WITHIN => return Verdict::Over("closing took 2 s"),
        Phase::Greeting | Phase::Closing => return Verdict::Fine,
        Phase::Open => {}
    }
    if conn.is_writing && since(conn.took_at) > STUCK_MAX {
        return Verdict::Over("the peer took nothing for 30 s");
    }
    if !conn.may_read() || since(conn.heard_at) < keepalive * (conn.pings_unanswered + 1) {
        // What a connection says while it is not read is not heard, and says nothing against it.
        return Verdict::Fine;
    }
    if conn.pings_unanswered < PINGS_MAX { Verdict::Ping } else { Verdict::Over("three pings unanswered") }
}
