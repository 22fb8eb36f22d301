//! What does the core of a shard get of its surroundings: log, clocks, connections, control?

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use express_log::{CommitTimes, EntryPos, Log, NoRoom, RoomClass};
use failpoints::Point;
use tuning::room::Room;
use wire::handoff::{Full, Parcel, ToControl};
use wire::ids::{Lsn, ShardId};

use crate::bell::Bell;
use crate::conns::Conns;
use crate::core::{ConnId, Fetch, Now, OutBuffer, Shares, Work, World};
use crate::feeding::Feeds;
use crate::remotes::Remotes;

/// Random bytes that are asked for at once.
const RANDOM_BYTES: usize = 2_560;

/// A turn for which others wait long: an append that comes at its beginning is acked later by as much.
const LONG_TURN: Duration = Duration::from_millis(25);

/// Tells control something, from the thread of a shard.
pub(crate) type TellControl = Box<dyn Fn(ToControl) -> Result<(), Full>>;

/// What the shell counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    pub(crate) turned_away: u64,
    pub(crate) frames: u64,
    pub(crate) hops: u64,
    pub(crate) hand_overs: u64,
    pub(crate) spills: u64,
    /// Turns that were longer than [`LONG_TURN`].
    pub(crate) turns_long: u64,
    /// The longest turn.
    pub(crate) turn_longest: Duration,
}

impl Counts {
    /// Notes how long a turn was, and whether that is long.
    #[inline]
    pub(crate) fn note_turn(&mut self, took: Duration) -> bool {
        self.turn_longest = self.turn_longest.max(took);
        let is_long = took >= LONG_TURN;
        self.turns_long += u64::from(is_long);
        is_long
    }
}

/// The surroundings of one shard's core.
pub(crate) struct Surroundings {
    pub(crate) shard: ShardId,
    pub(crate) conns: Conns,
    pub(crate) remotes: Remotes,
    /// Connections with frames that were not offered to the kernel, or to their shard.
    pub(crate) dirty: Vec<ConnId>,
    /// Connections with a backlog, whose writer task is to be started.
    pub(crate) spilled: Vec<ConnId>,
    /// Reads that wait for the reading task.
    pub(crate) fetches: VecDeque<Fetch>,
    pub(crate) fetch_bell: Rc<Bell>,
    /// What control's queue had no room for.
    pub(crate) untold: VecDeque<ToControl>,
    pub(crate) counts: Counts,
    /// Something was appended since the log was kicked.
    pub(crate) has_appended: bool,
    /// The head logs that this shard has settled.
    pub(crate) feeds: Feeds,
    /// The disk of the store, when it is one of this host.
    pub(crate) store_room: Option<Arc<Room>>,
    /// How this shard's time is shared out.
    pub(crate) shares: Shares,
    /// What is done now.
    working: Option<Work>,
    /// When it was looked at the time last, and whether a commit was on its way then.
    looked: (Duration, bool),
    /// Content and first stamp of the batch that is appended next.
    batch: (u32, i64),
    log: Log,
    started: Instant,
    now: Now,
    received_at: Duration,
    tell_control: TellControl,
    random: Vec<u8>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("shard", &self.shard).field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Surroundings {
    /// The surroundings of `shard`, one of `shards`.
    pub(crate) fn new(
        (shard, shards): (ShardId, usize),
        (log, feeds): (Log, Feeds),
        (started, shares): (Instant, Shares),
        tell_control: TellControl,
    ) -> Self {
        let mut surroundings = Self {
            shard,
            conns: Conns::new(shard),
            remotes: Remotes::new(shards),
            dirty: Vec::new(),
            spilled: Vec::new(),
            fetches: VecDeque::new(),
            fetch_bell: Rc::default(),
            untold: VecDeque::new(),
            counts: Counts::default(),
            has_appended: false,
            feeds,
            store_room: None,
            shares,
            working: None,
            looked: (Duration::ZERO, false),
            batch: (0, 0),
            log,
            started,
            now: Now { wall_ms: 0, mono: Duration::ZERO },
            received_at: Duration::ZERO,
            tell_control,
            random: Vec::new(),
        };
        surroundings.read_clocks();
        surroundings
    }

    /// Reads the clocks; once at the start of each turn.
    #[inline]
    pub(crate) fn read_clocks(&mut self) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = i64::try_from(wall.as_millis()).unwrap_or(i64::MAX);
        let wall_ms = wall_ms.saturating_add(failpoints::wall_shift_ms());
        self.now = Now { wall_ms, mono: self.started.elapsed() };
    }

    /// A turn of this kind of work begins, as of a time.
    #[inline]
    pub(crate) fn begins(&mut self, work: Work, now: Duration) {
        self.charge(now);
        self.working = Some(work);
    }

    /// The turn ends.
    #[inline]
    pub(crate) fn ends(&mut self, now: Duration) {
        self.charge(now);
        self.working = None;
    }

    /// Counts what was done until now, or waited for.
    #[inline]
    fn charge(&mut self, now: Duration) {
        let (since, has_commit) = self.looked;
        let ns = u64::try_from(now.saturating_sub(since).as_nanos()).unwrap_or(u64::MAX);
        match self.working {
            Some(work) => self.shares.use_up(work, ns),
            None if has_commit => self.shares.claim(Work::Append, ns),
            None => {}
        }
        self.looked = (now, self.log.durable_lsn() < self.log.assigned_lsn());
    }

    /// Notes when what is served next was received; this turn when it has not waited.
    #[inline]
    pub(crate) fn serve_received(&mut self, at: Option<Duration>) {
        self.received_at = at.unwrap_or(self.now.mono);
    }

    /// Time since the star started, as of this turn.
    #[inline]
    pub(crate) fn mono(&self) -> Duration {
        self.now.mono
    }

    /// Has the next flush look at a connection.
    pub(crate) fn mark_dirty(&mut self, id: ConnId) {
        // Marking is all that is wanted.
        let _ = self.out(id);
    }

    fn pages_under_way(&mut self, id: ConnId) -> Option<&mut u32> {
        if id.shard == self.shard {
            self.conns.get_mut(id).map(|conn| &mut conn.pages_under_way)
        } else {
            self.remotes.get_mut(id).map(|remote| &mut remote.pages_under_way)
        }
    }

    /// Tells control what it had no room for.
    pub(crate) fn tell_untold(&mut self) {
        while let Some(message) = self.untold.pop_front() {
            if let Some(back) = again(&message)
                && (self.tell_control)(message).is_err()
            {
                self.untold.push_front(back);
                return;
            }
        }
    }
}

/// A second copy of what must reach control; bucket verbs are answered instead when they can't.
fn again(message: &ToControl) -> Option<ToControl> {
    match message {
        ToControl::Bucket { .. }
        | ToControl::Standard { .. }
        | ToControl::Settle { .. }
        | ToControl::Flush
        | ToControl::Load { .. }
        | ToControl::ReadHistory { .. }
        | ToControl::ListIndex { .. } => None,
        ToControl::TableConfirmed { shard, version } => {
            Some(ToControl::TableConfirmed { shard: *shard, version: *version })
        }
        ToControl::Frozen { shard, bucket, standard, express } => {
            Some(ToControl::Frozen { shard: *shard, bucket: *bucket, standard: *standard, express: *express })
        }
    }
}

impl World for Surroundings {
    #[inline]
    fn now(&self) -> Now {
        self.now
    }

    #[inline]
    fn received_at(&self) -> Duration {
        self.received_at
    }

    #[inline]
    fn commit_times(&self) -> CommitTimes {
        self.log.commit_times()
    }

    #[inline]
    fn room(&self, entry_bytes: usize, class: RoomClass) -> Result<(), NoRoom> {
        self.log.room(entry_bytes, class)
    }

    #[inline]
    fn store_room(&self) -> Result<(), NoRoom> {
        match &self.store_room {
            Some(room) if room.is_low() => {
                Err(NoRoom::Disk { free_bytes: room.free_bytes(), kept_bytes: room.marks().reserve_bytes })
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn note_batch(&mut self, content_bytes: u32, first_ms: i64) {
        self.batch = (content_bytes, first_ms);
    }

    #[inline]
    fn append(&mut self, entry_bytes: usize, fill: impl FnOnce(&mut [u8])) -> (Lsn, EntryPos) {
        self.has_appended = true;
        let batch = std::mem::take(&mut self.batch);
        let feeds = &mut self.feeds;
        let (lsn, pos, ()) = self.log.append(entry_bytes, |entry| {
            fill(entry);
            feeds.copy(batch, entry);
        });
        feeds.note_copied(pos);
        (lsn, pos)
    }

    fn hand_over(&mut self, shard: ShardId, upto: Lsn, parcel: Parcel) -> Result<(), Parcel> {
        // Control has room for entries always, and takes none only once it has stopped: nothing is acked then.
        let _stopped = (self.tell_control)(ToControl::Standard { shard, upto, parcel });
        Ok(())
    }

    #[inline]
    fn durable_lsn(&self) -> Lsn {
        self.log.durable_lsn()
    }

    #[inline]
    fn assigned_lsn(&self) -> Lsn {
        self.log.assigned_lsn()
    }

    #[inline]
    fn out(&mut self, id: ConnId) -> Option<&mut OutBuffer> {
        let (out, is_dirty) = if id.shard == self.shard {
            let conn = self.conns.get_mut(id)?;
            (&mut conn.out, &mut conn.is_dirty)
        } else {
            let remote = self.remotes.get_mut(id)?;
            (&mut remote.out, &mut remote.is_dirty)
        };
        if !std::mem::replace(is_dirty, true) {
            self.dirty.push(id);
        }
        Some(out)
    }

    fn backlog_bytes(&self, id: ConnId) -> usize {
        if id.shard == self.shard {
            let Some(conn) = self.conns.get(id) else { return 0 };
            conn.backlog_asked.set(true);
            conn.backlog_bytes()
        } else {
            let Some(remote) = self.remotes.get(id) else { return 0 };
            remote.backlog_asked.set(true);
            remote.backlog_bytes()
        }
    }

    fn page_begins(&mut self, id: ConnId) {
        if let Some(pages) = self.pages_under_way(id) {
            *pages += 1;
        }
    }

    fn page_ends(&mut self, id: ConnId) {
        if let Some(pages) = self.pages_under_way(id) {
            *pages = pages.saturating_sub(1);
            // The flush wakes who waits for it.
            self.mark_dirty(id);
        }
    }

    fn fetch(&mut self, fetch: Fetch) {
        self.fetches.push_back(fetch);
        self.fetch_bell.ring();
    }

    #[inline]
    fn works(&mut self, work: Work) -> Work {
        match self.working {
            Some(before) if before != work => {
                self.begins(work, self.started.elapsed());
                before
            }
            _ => work,
        }
    }

    fn may_go(&mut self, work: Work) -> bool {
        self.charge(self.started.elapsed());
        self.shares.may_go(work)
    }

    #[inline]
    fn reach(&mut self, point: Point) {
        failpoints::hit(point);
    }

    fn to_control(&mut self, message: ToControl) -> Result<(), Full> {
        let later = again(&message);
        match ((self.tell_control)(message), later) {
            (Err(Full), Some(later)) => {
                self.untold.push_back(later);
                Ok(())
            }
            (told, _) => told,
        }
    }

    fn random(&mut self) -> [u8; 10] {
        if self.random.is_empty() {
            self.random.resize(RANDOM_BYTES, 0);
            getrandom::fill(&mut self.random).expect("the kernel has random bytes once it runs");
        }
        let at = self.random.len().saturating_sub(10);
        let taken = self.random.split_off(at);
        taken.try_into().expect("whole draws of 10 bytes")
    }
}
