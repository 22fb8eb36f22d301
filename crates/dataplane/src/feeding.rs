//! How do the entries of head logs get to control, to be settled, and what of a log is then given up?
//!
//! The decisions are in `core::feed`. A task carries them out: it sends copies, has what was dropped read again by a thread
//! of its own, and lets the log free the segments that are settled.

use std::collections::btree_map::Entry as Tenure;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use express_log::{Backfill, EntryPos, Recovered, ReplayedEntry};
use wire::batch::VerifiedBatch;
use wire::entry::{Entry, Peek, peek};
use wire::handoff::{ParcelItem, ToControl, ToShard};
use wire::ids::{Epoch, LogId, Lsn, SegmentId};

use crate::bell::Bell;
use crate::core::{Feed, LogPlace, PARCEL_BYTES, Piece, SettledTo, Work, World};
use crate::hop::{Hop, Mailbox};
use crate::recover::HeadLog;
use crate::shell::{Shell, State};
use crate::star::LogLeft;
use crate::watchdog::Task;

/// How long copies gather before they are sent.
const GATHER: Duration = Duration::from_millis(20);
/// How long to wait before a log that could not be read is tried again.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// How long a reading thread waits for its shard to take a piece.
const OFFER_AGAIN: Duration = Duration::from_millis(2);
/// Parts of the longest time that records may be on this disk alone: its age is known to one of them.
const BACKLOG_MARKS: u32 = 64;
/// How long a draining shard waits for its logs to be settled, as long as the store takes chunks; and past the time that a drain
/// has, so that control has at least been given what there is.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);
const SETTLE_LATE: Duration = Duration::from_millis(200);

/// What a reading thread tells its shard.
#[derive(Debug)]
pub(crate) struct Read {
    log: LogId,
    brought: Brought,
}

#[derive(Debug)]
enum Brought {
    /// Entries.
    Piece(Piece),
    /// The reading has ended, with what went wrong.
    End(Option<String>),
}

/// In how many logs, over the whole star, entries of each earlier tenure are not settled yet: a stream may have written to several
/// logs, one a tenure, so tenures are settled one after the other, and what is new after all of them.
#[derive(Debug, Default)]
pub(crate) struct OldLogs(Mutex<BTreeMap<Epoch, u64>>);

impl OldLogs {
    /// The tenures of each log, one after the other.
    pub(crate) fn new(tenures: impl Iterator<Item = Epoch>) -> Self {
        let mut logs = BTreeMap::new();
        tenures.for_each(|epoch| *logs.entry(epoch).or_insert(0) += 1);
        Self(Mutex::new(logs))
    }

    fn logs(&self) -> MutexGuard<'_, BTreeMap<Epoch, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn one_less(&self, epoch: Epoch) {
        let mut logs = self.logs();
        if let Tenure::Occupied(mut entry) = logs.entry(epoch) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    /// The oldest tenure of which any log holds unsettled entries.
    fn oldest(&self) -> Option<Epoch> {
        self.logs().keys().next().copied()
    }

    /// Whether all that earlier tenures wrote is settled.
    pub(crate) fn are_settled(&self) -> bool {
        self.logs().is_empty()
    }
}

/// A log that is fed to control.
#[derive(Debug)]
pub(crate) struct Fed {
    pub(crate) feed: Feed,
    /// Its position among the head logs of this run.
    index: u16,
    dir: PathBuf,
    /// The log itself, when no shard writes it any more.
    rest: Option<Rest>,
    /// Where its last settled entry ends.
    place: LogPlace,
    is_old_told: bool,
    retry_at: Option<Duration>,
}

/// A log that no shard writes any more.
#[derive(Debug)]
struct Rest {
    number: u16,
    recovered: Recovered,
    end: Lsn,
}

impl Fed {
    /// The log that a shard writes.
    pub(crate) fn own(feed: Feed, index: u16, dir: PathBuf) -> Self {
        Self { feed, index, dir, rest: None, place: LogPlace::default(), is_old_told: false, retry_at: None }
    }

    /// A log that no shard writes any more; `None` for one that never held anything.
    pub(crate) fn other(log: HeadLog, index: u16) -> Option<Self> {
        let HeadLog { number, recovered, settled, tenures } = log;
        let (log, end) = (recovered.log_id()?, recovered.end_lsn());
        let dir = recovered.dir().to_owned();
        let rest = Some(Rest { number, recovered, end });
        Some(Self { rest, ..Self::own(Feed::new(log, settled, end, tenures), index, dir) })
    }

    /// One past the last entry that may be settled, when its shard has made everything up to `durable` durable.
    fn end(&self, durable: Lsn) -> Lsn {
        self.rest.as_ref().map_or_else(|| durable.next(), |rest| rest.end)
    }

    fn end_reading(&mut self, failed: Option<String>, now: Duration) {
        self.feed.on_read_end();
        self.retry_at = failed.is_some().then_some(now + READ_AGAIN);
        if let Some(error) = failed {
            tracing::error!(log = %self.dir.display(), error, "the head log can't be read to be settled");
        }
    }

    fn is_settled_to(&self, end: Lsn) -> bool {
        self.feed.settled().next() >= end
    }
}

/// The logs that one shard feeds: its own first, and on the first shard those that no shard writes any more.
#[derive(Debug)]
pub(crate) struct Feeds {
    pub(crate) logs: Vec<Fed>,
    pub(crate) bell: Rc<Bell>,
    pub(crate) old: Arc<OldLogs>,
    /// The first segment of the shard's own log that the core knows to be kept.
    kept_from: SegmentId,
    backlog: Backlog,
    /// The head log takes no records now.
    is_shut: bool,
}

/// When the oldest entries that are not settled were there, about.
#[derive(Debug, Default)]
struct Backlog(VecDeque<(Lsn, Duration)>);

impl Backlog {
    /// How long the oldest unsettled entry has been there; zero when all are settled.
    fn age(&mut self, settled: Lsn, end: Lsn, (now, age_max): (Duration, Duration)) -> Duration {
        while self.0.front().is_some_and(|(end, _)| *end <= settled.next()) {
            self.0.pop_front();
        }
        if settled.next() >= end {
            return Duration::ZERO;
        }
        let is_due = self.0.back().is_none_or(|(_, at)| now.saturating_sub(*at) >= age_max / BACKLOG_MARKS);
        if is_due {
            self.0.push_back((end, now));
        }
        self.0.front().map_or(Duration::ZERO, |(_, at)| now.saturating_sub(*at))
    }
}

impl Feeds {
    pub(crate) fn new(logs: Vec<Fed>, old: &Arc<OldLogs>) -> Self {
        Self {
            logs,
            bell: Rc::default(),
            old: Arc::clone(old),
            kept_from: SegmentId::ZERO,
            backlog: Backlog::default(),
            is_shut: false,
        }
    }

    /// Copies an entry that is just being appended to the shard's own log, with its content in bytes and its first stamp.
    #[inline]
    pub(crate) fn copy(&mut self, (content_bytes, first_ms): (u32, i64), entry: &[u8]) {
        let Some(own) = self.logs.first_mut() else { return };
        let Ok(Peek { place, .. }) = peek(entry) else { unreachable!("it was encoded just now") };
        let bytes = u32::try_from(entry.len()).unwrap_or_else(|_| unreachable!("an entry is far below 4 GiB"));
        let item = ParcelItem { slot: place.slot, stream_id: place.stream_id, bytes, content_bytes, first_ms };
        own.feed.copy(item, entry);
    }

    /// Notes where the entry lies that was copied last.
    #[inline]
    pub(crate) fn note_copied(&mut self, pos: EntryPos) {
        if let Some(own) = self.logs.first_mut() {
            own.feed.note_copied(pos);
        }
        self.bell.ring();
    }

    fn by_log(&mut self, log: LogId) -> Option<&mut Fed> {
        self.logs.iter_mut().find(|fed| fed.feed.log() == log)
    }
}

impl Shell {
    /// Sends control what is to be settled, as long as the shard lives.
    pub(crate) async fn feed_control(self: Rc<Self>) {
        let bell = Rc::clone(&self.state.borrow().world.feeds.bell);
        while !self.is_over.get() {
            self.await_turn(Work::Settle).await;
            let is_idle = self.turn(Task::Feed, |state| self.feed(state));
            if is_idle {
                bell.wait().await;
            }
            glommio::timer::sleep(GATHER).await;
        }
    }

    /// Sends what may be sent; true when nothing is left that time alone would make ready.
    fn feed(&self, state: &mut State) -> bool {
        self.take_reads(state);
        let (durable, now) = (self.log.durable_lsn(), state.world.mono());
        (0..state.world.feeds.logs.len()).for_each(|at| self.tell_old(state, at));
        let oldest = state.world.feeds.old.oldest();
        if oldest.is_none() {
            self.freeze_what_waits(state);
        }
        let mut is_idle = oldest.is_none();
        for at in 0..state.world.feeds.logs.len() {
            let fed = &mut state.world.feeds.logs[at];
            fed.feed.let_through(oldest);
            let durable = Lsn::new(fed.end(durable).get() - 1);
            fed.feed.seal();
            let mut pieces = Vec::new();
            while let Some(piece) = fed.feed.next_piece(durable) {
                pieces.push(piece);
            }
            let log = fed.feed.log();
            if fed.retry_at.is_none_or(|at| at <= now)
                && let Some(range) = fed.feed.next_read(durable)
            {
                self.start_reading(fed, range);
            }
            is_idle &= fed.feed.is_quiet() && fed.feed.settled().next() >= durable.next();
            self.send_pieces(state, log, pieces);
        }
        self.give_up_settled(state);
        self.bound_the_backlog(state, now);
        is_idle
    }

    /// Tells every shard once all that earlier tenures wrote into a log is settled.
    fn tell_old(&self, state: &mut State, at: usize) {
        let feeds = &mut state.world.feeds;
        let fed = &mut feeds.logs[at];
        while let Some(epoch) = fed.feed.next_old_settled() {
            feeds.old.one_less(epoch);
        }
        if fed.is_old_told || !fed.feed.is_old_settled() {
            return;
        }
        fed.is_old_told = true;
        let to = SettledTo { log: fed.index, upto: fed.feed.settled(), place: fed.place };
        self.tell_others(state, || Hop::OldSettled(to));
    }

    /// A bucket is to be frozen: at once, unless some of its streams may lie in logs that no shard answers for.
    pub(crate) fn freeze(&self, state: &mut State, freeze: ToShard) {
        state.freezes.push(freeze);
        if state.world.feeds.old.are_settled() {
            self.freeze_what_waits(state);
        }
    }

    fn freeze_what_waits(&self, state: &mut State) {
        for freeze in std::mem::take(&mut state.freezes) {
            state.core.on_control(freeze, &mut state.world);
        }
    }

    /// Shuts the head log while the oldest record that it alone holds is older than it may be.
    fn bound_the_backlog(&self, state: &mut State, now: Duration) {
        let (end, age_max) = (self.log.durable_lsn().next(), self.star.backlog_age_max);
        let feeds = &mut state.world.feeds;
        let Some(own) = feeds.logs.first() else { return };
        let age = feeds.backlog.age(own.feed.settled(), end, (now, age_max));
        let is_shut = age > age_max;
        if is_shut != feeds.is_shut {
            feeds.is_shut = is_shut;
            let (age, age_max) = (age.as_secs(), age_max.as_secs());
            let why = format!(
                "the store has taken nothing for {age} s, and records may be on this star's disk alone for {age_max} s"
            );
            state.core.shut_express(is_shut.then_some(why));
        }
    }

    fn send_pieces(&self, state: &mut State, log: LogId, pieces: Vec<Piece>) {
        for Piece { from, to, parcel, .. } in pieces {
            let settle = ToControl::Settle { shard: self.me, log, from, to, parcel };
            if state.world.to_control(settle).is_err() {
                // Control has stopped: what it has not settled is read from the log at the next start.
                tracing::debug!(shard = %self.me, "control takes nothing more to settle");
            }
        }
    }

    /// Takes what the reading threads have brought, as far as control takes it.
    fn take_reads(&self, state: &mut State) {
        let lane = &self.own_mailbox().reads;
        while state.world.feeds.logs.iter().all(|fed| fed.feed.takes_read()) {
            let now = state.world.mono();
            let Some(Read { log, brought }) = lane.pop() else { break };
            let Some(fed) = state.world.feeds.by_log(log) else { continue };
            match brought {
                Brought::Piece(piece) => {
                    fed.feed.on_read(&piece);
                    self.send_pieces(state, log, vec![piece]);
                }
                Brought::End(failed) => fed.end_reading(failed, now),
            }
        }
    }

    fn start_reading(&self, fed: &Fed, (from, to): (Lsn, Lsn)) {
        let (dir, log) = (fed.dir.clone(), fed.feed.log());
        let (mailboxes, me) = (Arc::clone(&self.mailboxes), usize::from(self.me.get()));
        let spawned = thread::Builder::new().name("settle".to_owned()).spawn(move || {
            let bring = |brought| offer(&mailboxes[me], Read { log, brought });
            let read = read_range(&dir, log, (from, to), |piece| bring(Brought::Piece(piece)));
            bring(Brought::End(read.err()));
        });
        if let Err(error) = spawned {
            offer(self.own_mailbox(), Read { log, brought: Brought::End(Some(error.to_string())) });
        }
    }

    /// Control has settled a log up to here.
    pub(crate) fn on_settled(&self, state: &mut State, log: LogId, upto: Lsn) {
        let feeds = &mut state.world.feeds;
        feeds.bell.ring();
        let Some(fed) = feeds.by_log(log) else { return };
        let (index, is_own) = (fed.index, fed.rest.is_none());
        if let Some(end) = fed.feed.on_settled(upto) {
            fed.place = (end.segment, end.offset + end.bytes);
            state.core.on_log_settled(&SettledTo { log: index, upto, place: fed.place });
        }
        if is_own {
            self.log.release(upto);
        }
    }

    /// Has the core forget what lies in segments that are given up, and gives up logs that nobody writes any more.
    fn give_up_settled(&self, state: &mut State) {
        let (log, first) = (self.me.get(), self.log.first_segment());
        if first > state.world.feeds.kept_from && !state.core.on_settled(log, first) {
            state.world.feeds.kept_from = first;
            // The reader closes what it has open of them.
            state.world.fetch_bell.ring();
            let is_old = state.world.feeds.logs.first().is_some_and(|own| !own.is_old_told);
            if is_old {
                self.tell_others(state, || Hop::OldFreed { log, first });
            }
        }
        let is_done = |fed: &mut Fed| fed.is_old_told && fed.rest.is_some();
        let done: Vec<_> = state.world.feeds.logs.extract_if(.., is_done).collect();
        for fed in done {
            while state.core.on_settled(fed.index, SegmentId::new(u64::MAX)) {}
            let Some(Rest { number, recovered, end }) = fed.rest else { continue };
            let (log, epoch) = (fed.feed.log(), recovered.last_epoch());
            self.leave(LogLeft { number, log, epoch, end_lsn: end, is_settled: true });
            give_up(recovered);
        }
    }

    /// Whether a segment of a head log is given up, as far as this shard has been told.
    pub(crate) fn is_given_up(&self, state: &mut State, log: u16, segment: SegmentId) -> bool {
        if log == self.me.get() {
            while state.core.on_settled(log, self.log.first_segment()) {}
        }
        state.core.is_freed(log, segment)
    }

    fn leave(&self, left: LogLeft) {
        self.star.left.lock().unwrap_or_else(PoisonError::into_inner).push(left);
    }

    /// Notes how the shard's logs are left.
    pub(crate) fn tell_how_the_log_is_left(&self) {
        let state = self.state.borrow();
        let end_lsn = self.log.durable_lsn().next();
        let is_settled = state.world.feeds.logs.first().is_some_and(|own| own.is_settled_to(end_lsn));
        self.leave(LogLeft { number: self.me.get(), log: self.log.id(), epoch: self.epoch, end_lsn, is_settled });
    }

    /// Waits until everything is settled, as long as the store takes it.
    pub(crate) async fn settle_all(&self, deadline: Duration) {
        let until = (self.mono() + SETTLE_WITHIN).min(deadline.max(self.mono() + SETTLE_LATE));
        while self.mono() < until && self.is_settling() {
            glommio::timer::sleep(GATHER).await;
        }
    }

    /// Asks control to settle what is left; false when nothing is, or control takes nothing.
    fn is_settling(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        let end = self.log.durable_lsn().next();
        let is_settled = state.world.feeds.logs.iter().all(|fed| fed.rest.is_none() && fed.is_settled_to(end));
        // Asked again each time: it is for what was sent before it.
        !is_settled && !state.core.is_stalled() && state.world.to_control(ToControl::Flush).is_ok()
    }
}

/// Removes the segments of a log whose entries are all settled, on a thread of its own.
fn give_up(recovered: Recovered) {
    let dir = recovered.dir().to_owned();
    let spawned = thread::Builder::new().name("give-up".to_owned()).spawn(move || {
        if let Err(error) = recovered.release_all() {
            tracing::warn!(log = %dir.display(), %error, "a settled head log was not removed; the next start tries again");
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "a settled head log was not removed; the next start tries again");
    }
}

/// Puts a value into the lane of a shard, waiting for room; the shard outlives its reading threads or the process ends.
fn offer(mailbox: &Mailbox, read: Read) {
    let mut read = read;
    while let Err(back) = mailbox.reads.push(read) {
        if mailbox.pulse.has_ended() {
            return;
        }
        read = back;
        thread::sleep(OFFER_AGAIN);
    }
}

/// Reads `from..to` of a log and hands it on in pieces.
fn read_range(dir: &Path, log: LogId, (from, to): (Lsn, Lsn), mut hand_on: impl FnMut(Piece)) -> Result<(), String> {
    let mut backfill = Backfill::open(dir, log).map_err(|error| error.to_string())?;
    let durable = Lsn::new(to.get() - 1);
    let mut at = from;
    while at < to {
        let mut piece = Piece::starting(at);
        let mut failed = None;
        let next = backfill.read(at, durable, PARCEL_BYTES, &mut |entry| {
            if let Err(error) = add(&mut piece, &entry) {
                failed.get_or_insert(error);
            }
        });
        let next = next.map_err(|error| error.to_string())?;
        if let Some(error) = failed {
            return Err(error);
        }
        if next <= at {
            return Err(format!("nothing is found at lsn {at}, and {to} was written after it"));
        }
        piece.to = next;
        hand_on(piece);
        at = next;
    }
    Ok(())
}

fn add(piece: &mut Piece, entry: &ReplayedEntry<'_>) -> Result<(), String> {
    let at = |error: &dyn std::fmt::Display| format!("the entry at lsn {}: {error}", entry.lsn);
    let (decoded, _) = Entry::decode(entry.bytes).map_err(|error| at(&error))?;
    let place = decoded.place();
    let (content_bytes, first_ms) = match &decoded {
        Entry::Verb { .. } => (0, 0),
        Entry::Batch { head, batch, .. } => {
            let batch = VerifiedBatch::summed(batch, head.batch_crc).map_err(|error| at(&error))?;
            let first_ms = head.stamping.effective(batch.stamp(0), head.stamping.previous_ms);
            (batch.content_bytes(), first_ms)
        }
    };
    let (slot, stream_id, bytes) = (place.slot, place.stream_id, entry.pos.bytes);
    piece.parcel.items.push(ParcelItem { slot, stream_id, bytes, content_bytes, first_ms });
    piece.parcel.bytes.extend_from_slice(entry.bytes);
    piece.end = Some(entry.pos);
    Ok(())
}

#[cfg(test)]
mod tests;
