//! A star in one thread: shards on head logs that crash, and a store that commits, applies and settles when it is told to.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use express_log::{EntryPos, LogOptions, NoRoom, RoomClass, SimulatedDisk, SimulatedLog, SyncMode};
use wire::config::ConfigPatch;
use wire::entry::{Entry, Verb};
use wire::handoff::{Full, Parcel, ToControl, ToShard};
use wire::ids::{Epoch, Lsn, SegmentId, ShardId};

use super::super::history::Random;
use super::super::store::Store;
use super::super::world::{bucket, config, table_of};
use crate::core::outbox::OutBuffer;
use crate::core::{ConnId, Fetch, FetchError, Now, Placement, SettledTo, Shard, ShardConfig, Streams, World};

/// What surrounds a shard.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) log: SimulatedLog,
    pub(super) outs: HashMap<ConnId, OutBuffer>,
    fetches: VecDeque<Fetch>,
    told: Vec<ToControl>,
    parcels: VecDeque<(Lsn, Parcel)>,
    /// What was appended in this tenure and is not durable, or not settled.
    appended: VecDeque<Kept>,
    now: Now,
    epoch: Epoch,
    shard: ShardId,
    minted: u32,
}

/// An entry of a head log.
#[derive(Debug, Clone)]
struct Kept {
    epoch: Epoch,
    lsn: Lsn,
    pos: EntryPos,
    bytes: Vec<u8>,
}

impl World for Site {
    fn now(&self) -> Now {
        self.now
    }

    fn room(&self, entry_bytes: usize, class: RoomClass) -> Result<(), NoRoom> {
        self.log.room(entry_bytes, class)
    }

    fn store_room(&self) -> Result<(), NoRoom> {
        Ok(())
    }

    fn note_batch(&mut self, _: u32, _: i64) {}

    fn append(&mut self, entry_bytes: usize, fill: impl FnOnce(&mut [u8])) -> (Lsn, EntryPos) {
        let mut bytes = vec![0; entry_bytes];
        fill(&mut bytes);
        let (lsn, pos) = self.log.append(&bytes);
        self.appended.push_back(Kept { epoch: self.epoch, lsn, pos, bytes });
        (lsn, pos)
    }

    fn durable_lsn(&self) -> Lsn {
        self.log.durable_lsn()
    }

    fn assigned_lsn(&self) -> Lsn {
        self.log.assigned_lsn()
    }

    fn out(&mut self, conn: ConnId) -> Option<&mut OutBuffer> {
        self.outs.get_mut(&conn)
    }

    fn backlog_bytes(&self, _: ConnId) -> usize {
        0
    }

    fn page_begins(&mut self, _: ConnId) {}

    fn page_ends(&mut self, _: ConnId) {}

    fn fetch(&mut self, fetch: Fetch) {
        self.fetches.push_back(fetch);
    }

    fn to_control(&mut self, message: ToControl) -> Result<(), Full> {
        self.told.push(message);
        Ok(())
    }

    fn hand_over(&mut self, _: ShardId, upto: Lsn, parcel: Parcel) -> Result<(), Parcel> {
        self.parcels.push_back((upto, parcel));
        Ok(())
    }

    fn random(&mut self) -> [u8; 10] {
        self.minted += 1;
        let mut random = [0; 10];
        random[..4].copy_from_slice(&self.minted.to_le_bytes());
        random[4..6].copy_from_slice(&self.shard.get().to_le_bytes());
        random[6..].copy_from_slice(&self.epoch.get().to_le_bytes()[..4]);
        random
    }
}

/// Parcels that one put makes durable.
type Chunk = Vec<(ShardId, Lsn, Parcel)>;

/// What is left of a star between two tenures.
#[derive(Debug, Default)]
pub(super) struct Left {
    disks: BTreeMap<u16, SimulatedDisk>,
    settled: BTreeMap<u16, Lsn>,
    store: Store,
    epoch: u64,
    mono_ms: u64,
}

/// How a tenure is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tenure {
    pub(super) shards: u16,
    pub(super) rows_max: usize,
    pub(super) ring_bytes_max: usize,
    pub(super) options: LogOptions,
}

pub(super) fn log_options(random: &mut Random) -> LogOptions {
    LogOptions {
        segment_bytes: 32 << 10,
        log_bytes_max: (4 + random.below(20)) * (32 << 10),
        commits_in_flight: 1 + usize::try_from(random.below(3)).unwrap(),
        commit_start_bytes: 2 << 10,
        commit_bytes_max: 8 << 10,
        pending_bytes_max: 24 << 10,
        sync: if random.below(2) == 0 { SyncMode::Dsync } else { SyncMode::Fdatasync },
        ready_segments: 1,
        idle_segments: 1,
        inline_commit: random.below(4) == 0,
    }
}

/// The shards of one tenure.
#[derive(Debug)]
pub(super) struct Star {
    pub(super) shards: Vec<Shard>,
    pub(super) sites: Vec<Site>,
    /// Logs that nobody writes.
    disks: BTreeMap<u16, SimulatedDisk>,
    /// Entries of earlier tenures that are not settled, by log.
    before: BTreeMap<u16, VecDeque<Kept>>,
    settled: BTreeMap<u16, Lsn>,
    /// The first segment of each own log, as the shards were told.
    firsts: Vec<SegmentId>,
    store: Store,
    under_way: VecDeque<Chunk>,
    committed: VecDeque<Chunk>,
    epoch: u64,
    mono_ms: u64,
    is_stalled: bool,
}

impl Star {
    /// Starts on what is left: folds what is not settled onto the rows of the index, as recovery does.
    pub(super) fn start(left: Left, tenure: Tenure, random: &mut Random) -> Self {
        let Left { mut disks, settled, store, epoch, mono_ms } = left;
        let (epoch, shards) = (epoch + 1, tenure.shards);
        for number in 0..shards {
            disks.entry(number).or_default();
        }
        let before = read_logs(&disks, &settled);
        let twice = random.below(2) == 0;
        let streams = fold(&before, &store, twice);
        let placement = Placement::even(shards);
        let parts = streams.split(&placement);
        let now = Now { wall_ms: i64::try_from(1_000 + mono_ms).unwrap(), mono: Duration::from_millis(mono_ms) };
        let (mut sites, mut cores) = (Vec::new(), Vec::new());
        for (number, part) in (0..shards).zip(parts) {
            let disk = disks.remove(&number).unwrap_or_default();
            let log = SimulatedLog::open(disk, tenure.options, Epoch::new(epoch), random.below(1 << 31));
            let shard = ShardId::new(number);
            let config = ShardConfig {
                shard,
                placement: placement.clone(),
                epoch: Epoch::new(epoch),
                own_log: number,
                own_log_id: log.id(),
                rows_max: tenure.rows_max,
                ring_bytes_max: tenure.ring_bytes_max,
                ..config()
            };
            cores.push(Shard::new(config, part));
            sites.push(Site {
                log,
                outs: HashMap::new(),
                fetches: VecDeque::new(),
                told: Vec::new(),
                parcels: VecDeque::new(),
                appended: VecDeque::new(),
                now,
                epoch: Epoch::new(epoch),
                shard,
                minted: 0,
            });
        }
        let firsts = vec![SegmentId::ZERO; usize::from(shards)];
        let (under_way, committed) = (VecDeque::new(), VecDeque::new());
        let (shards, is_stalled) = (cores, false);
        let mut star = Self {
            shards,
            sites,
            disks,
            before,
            settled,
            firsts,
            store,
            under_way,
            committed,
            epoch,
            mono_ms,
            is_stalled,
        };
        star.tell_buckets();
        star
    }

    fn tell_buckets(&mut self) {
        let bucket = wire::bucket::Bucket { create_stream_on_append: false, ..bucket(ConfigPatch::default()) };
        let fresh: BTreeSet<_> = if self.epoch == 1 { BTreeSet::from([bucket.id]) } else { BTreeSet::new() };
        let table = Arc::new(wire::handoff::BucketTable { version: 1, fresh, ..table_of([bucket]) });
        self.tell_all(|| ToShard::Buckets(Arc::clone(&table)));
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The place of the shard of a key.
    pub(super) fn owner(&self, key: &str) -> usize {
        usize::from(self.shards[0].owner(&super::super::world::address(key)).unwrap().get())
    }

    fn tell_all(&mut self, message: impl Fn() -> ToShard) {
        for (shard, site) in self.shards.iter_mut().zip(&mut self.sites) {
            shard.on_control(message(), site);
        }
    }

    /// Ends the turn of a shard.
    pub(super) fn end_turn(&mut self, at: usize) {
        let (shard, site) = (&mut self.shards[at], &mut self.sites[at]);
        site.log.kick();
        while let Some(lsn) = site.log.take_durable() {
            shard.on_durable(lsn, site);
        }
        shard.hand_over(site);
    }

    /// The log of a shard does so many things.
    pub(super) fn run_log(&mut self, at: usize, steps: u64) {
        for _ in 0..steps {
            if !self.sites[at].log.step() {
                break;
            }
            self.end_turn(at);
        }
        self.tell_freed();
    }

    /// The shards forget what lies in segments that are gone.
    fn tell_freed(&mut self) {
        for at in 0..self.sites.len() {
            let first = self.sites[at].log.first_segment();
            if self.firsts[at] < first {
                self.firsts[at] = first;
                let log = u16::try_from(at).unwrap();
                self.shards.iter_mut().for_each(|shard| forget(shard, log, first));
            }
        }
    }

    pub(super) fn wait(&mut self, ms: u64) {
        self.mono_ms += ms;
        for (shard, site) in self.shards.iter_mut().zip(&mut self.sites) {
            site.now = Now {
                wall_ms: i64::try_from(1_000 + self.mono_ms).unwrap(),
                mono: Duration::from_millis(self.mono_ms),
            };
            shard.on_timer(site);
        }
        (0..self.shards.len()).for_each(|at| self.end_turn(at));
    }

    /// The store stops to take anything, or goes on.
    pub(super) fn stall(&mut self, is_stalled: bool) {
        self.is_stalled = is_stalled;
        self.tell_all(|| ToShard::Stall { why: is_stalled.then(|| Arc::from("down")) });
    }

    /// A put starts with what some of the shards have handed over.
    pub(super) fn lay_chunk(&mut self, random: &mut Random) {
        let mut chunk = Chunk::new();
        for site in &mut self.sites {
            let parcels = usize::try_from(random.below(1 + site.parcels.len() as u64)).unwrap();
            chunk.extend(site.parcels.drain(..parcels).map(|(lsn, parcel)| (site.shard, lsn, parcel)));
        }
        if !chunk.is_empty() {
            self.under_way.push_back(chunk);
        }
    }

    /// The oldest put is done, and the shards are told; false when there is none.
    pub(super) fn commit_chunk(&mut self) -> bool {
        if self.is_stalled {
            return false;
        }
        let Some(chunk) = self.under_way.pop_front() else { return false };
        for (shard, standard, _) in &chunk {
            let at = usize::from(shard.get());
            self.shards[at].on_control(ToShard::Committed { standard: *standard }, &mut self.sites[at]);
        }
        self.committed.push_back(chunk);
        true
    }

    /// The index applies the oldest chunk that is committed; false when there is none.
    pub(super) fn apply_chunk(&mut self) -> bool {
        let Some(chunk) = self.committed.pop_front() else { return false };
        for (shard, standard, parcel) in &chunk {
            self.store.take_parcel(parcel);
            let at = usize::from(shard.get());
            self.shards[at].on_control(ToShard::Applied { standard: *standard }, &mut self.sites[at]);
        }
        true
    }

    /// So many entries of head logs go to the store and into the index, those of earlier tenures first; the logs may free what
    /// is settled then.
    pub(super) fn settle(&mut self, entries: u64, random: &mut Random) {
        while self.apply_chunk() {}
        for _ in 0..entries {
            let Some(number) = self.next_to_settle(random) else { break };
            let kept = self.take_unsettled(number);
            self.store.take(&kept.bytes);
            self.settled.insert(number, kept.lsn);
            let place = (kept.pos.segment, kept.pos.offset + kept.pos.bytes);
            let to = SettledTo { log: self.position(number), upto: kept.lsn, place };
            self.shards.iter_mut().for_each(|shard| shard.on_log_settled(&to));
        }
        for (number, settled) in &self.settled {
            if let Some(site) = self.sites.get(usize::from(*number)) {
                site.log.release(*settled);
            }
        }
    }

    /// The log whose next entry is settled next.
    fn next_to_settle(&self, random: &mut Random) -> Option<u16> {
        let front = |entries: &VecDeque<Kept>| entries.front().map(|kept| kept.epoch);
        let oldest = self.before.values().filter_map(front).min();
        let logs: Vec<u16> = match oldest {
            Some(oldest) => {
                let has = |(_, entries): &(&u16, &VecDeque<Kept>)| front(entries) == Some(oldest);
                self.before.iter().filter(has).map(|(number, _)| *number).collect()
            }
            None => (0..).zip(&self.sites).filter(|(_, site)| site.has_durable()).map(|(number, _)| number).collect(),
        };
        let at = usize::try_from(random.below(logs.len().max(1) as u64)).unwrap();
        logs.get(at).copied()
    }

    fn take_unsettled(&mut self, number: u16) -> Kept {
        let before = self.before.get_mut(&number).and_then(VecDeque::pop_front);
        before.unwrap_or_else(|| self.sites[usize::from(number)].appended.pop_front().unwrap())
    }

    /// Where a log stands among those of this run.
    fn position(&self, number: u16) -> u16 {
        let own = u16::try_from(self.sites.len()).unwrap();
        if number < own {
            return number;
        }
        own + u16::try_from(self.disks.keys().filter(|other| **other < number).count()).unwrap()
    }

    /// The bytes of a log by its position.
    fn read(&self, fetch: &Fetch) -> Option<Vec<u8>> {
        let Fetch { log, segment, offset, bytes, .. } = *fetch;
        match self.sites.get(usize::from(log)) {
            Some(site) => site.log.read(segment, offset, bytes),
            None => self.disks.values().nth(usize::from(log) - self.sites.len())?.read(segment, offset, bytes),
        }
    }

    /// The disk brings what readers wait for.
    pub(super) fn serve_fetches(&mut self) {
        self.tell_freed();
        for at in 0..self.sites.len() {
            while let Some(fetch) = self.sites[at].fetches.pop_front() {
                let bytes = self.read(&fetch).ok_or_else(|| gone(&fetch));
                let result = bytes.as_deref().map_err(Clone::clone);
                self.shards[at].on_fetched(fetch.ticket, result, &mut self.sites[at]);
            }
            self.end_turn(at);
        }
    }

    /// Control answers what it was asked.
    pub(super) fn serve_control(&mut self) {
        for at in 0..self.sites.len() {
            let told = std::mem::take(&mut self.sites[at].told);
            let answers: Vec<ToShard> = told.into_iter().filter_map(|message| self.answer(message)).collect();
            for answer in answers {
                self.shards[at].on_control(answer, &mut self.sites[at]);
            }
            self.end_turn(at);
        }
    }

    fn answer(&self, message: ToControl) -> Option<ToShard> {
        match message {
            ToControl::Load { reply_to, key } => {
                Some(ToShard::Loaded { ticket: reply_to.ticket, result: self.store.load(&key) })
            }
            ToControl::ReadHistory { reply_to, stream_id, from, .. } => {
                let result = Ok(self.store.history(stream_id, from));
                Some(ToShard::History { ticket: reply_to.ticket, result })
            }
            _ => None,
        }
    }

    /// Everything goes on by as much as it can.
    pub(super) fn work(&mut self, random: &mut Random) {
        for at in 0..self.sites.len() {
            self.end_turn(at);
            self.run_log(at, 20);
        }
        self.serve_fetches();
        self.serve_control();
        self.lay_chunk(random);
        while self.commit_chunk() {}
        self.settle(100, random);
    }

    /// The sum of what the logs did.
    pub(super) fn trace(&self) -> u64 {
        self.sites.iter().fold(0, |sum, site| sum.rotate_left(7) ^ site.log.trace())
    }

    /// The power goes. Of the puts under way the first ones may have been done.
    pub(super) fn crash(self, random: &mut Random) -> Left {
        let Self { mut disks, sites, settled, mut store, mut under_way, mut committed, epoch, mono_ms, .. } = self;
        while random.below(2) == 0
            && let Some(chunk) = under_way.pop_front()
        {
            committed.push_back(chunk);
        }
        for (.., parcel) in committed.iter().flatten() {
            store.take_parcel(parcel);
        }
        disks.extend((0..).zip(sites).map(|(number, site)| (number, site.log.crash())));
        Left { disks, settled, store, epoch, mono_ms }
    }
}

fn forget(shard: &mut Shard, log: u16, first: SegmentId) {
    while shard.on_settled(log, first) {}
}

fn gone(fetch: &Fetch) -> FetchError {
    let Fetch { segment, offset, bytes, .. } = *fetch;
    FetchError { segment, offset, bytes, message: "no such file".to_owned(), is_gone: true }
}

impl Site {
    fn has_durable(&self) -> bool {
        self.appended.front().is_some_and(|kept| kept.lsn <= self.log.durable_lsn())
    }
}

/// The entries of every log that are not settled.
fn read_logs(disks: &BTreeMap<u16, SimulatedDisk>, settled: &BTreeMap<u16, Lsn>) -> BTreeMap<u16, VecDeque<Kept>> {
    let read = |(number, disk): (&u16, &SimulatedDisk)| {
        let settled = settled.get(number).copied().unwrap_or_default();
        let mut entries = VecDeque::new();
        let end = disk.replay(&mut |entry| {
            if entry.lsn > settled {
                let epoch = Entry::decode(entry.bytes).unwrap().0.place().slot_epoch;
                entries.push_back(Kept { epoch, lsn: entry.lsn, pos: entry.pos, bytes: entry.bytes.to_vec() });
            }
        });
        assert!(settled < end, "log {number} ends at {end}, and {settled} is settled");
        (*number, entries)
    };
    disks.iter().map(read).collect()
}

/// What recovery makes of the entries, epoch by epoch over all logs.
fn fold(before: &BTreeMap<u16, VecDeque<Kept>>, store: &Store, twice: bool) -> Streams {
    let positions = (0..).zip(before.values());
    let mut entries: Vec<(u16, &Kept)> =
        positions.flat_map(|(log, entries)| entries.iter().map(move |kept| (log, kept))).collect();
    entries.sort_by_key(|(_, kept)| kept.epoch);
    let mut streams = Streams::new();
    let copies = if twice { entries.clone() } else { Vec::new() };
    for (log, kept) in entries.into_iter().chain(copies) {
        let (entry, _) = Entry::decode(&kept.bytes).unwrap();
        let stream_id = entry.place().stream_id;
        let is_made = matches!(entry, Entry::Verb { verb: Verb::Create { .. }, .. });
        let row = store.rows.get(&stream_id).filter(|_| !is_made && !streams.knows(stream_id));
        if let Some(row) = row {
            streams.replay_row(row);
        }
        streams.replay(log, kept.pos, &kept.bytes).unwrap();
    }
    streams
}
