//! Which stream is at a name: one in memory, one that the index knows, or none?
//!
//! A name that is not in memory is looked up in the index once, however many ask; until the answer is there, whoever asks
//! is blocked. A bucket of which the index knew no stream when the run began needs look-ups only of names that have left memory since.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use express_log::RoomClass;
use wire::bucket::Bucket;
use wire::config::ConfigPatch;
use wire::entry::Verb;
use wire::handoff::{LoadKey, ReplyTo, ToControl};
use wire::ids::{BucketId, StreamId};
use wire::names::{Address, Key};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::stream_row::StreamRow;

use super::commit::Applying;
use super::lane::{Entered, Lane};
use super::left::LeftNames;
use super::shard::Shard;
use super::verbs::Entering;
use super::world::{Flow, World};

/// Look-ups under way at once; whoever asks for one more is blocked.
const LOADS_MAX: usize = 1_024;
/// Names that are remembered to be none; with as many all are forgotten.
const ABSENT_MAX: usize = 1 << 14;
/// How long the refusal of a look-up waits for who asked.
const FAILED_KEPT: Duration = Duration::from_secs(1);
/// Records of a stream that one lost head log may hold beyond what the store has of it.
pub(super) const LOST_RECORDS_MAX: u64 = 1 << 32;

type Name = (BucketId, Key);

/// What became of a look-up.
#[derive(Debug)]
enum Load {
    UnderWay,
    /// It failed then.
    Failed(Refusal, Duration),
}

/// What is known of names that are not in memory.
#[derive(Debug)]
pub(crate) struct Names {
    absent: HashSet<Name>,
    loads: HashMap<Name, Load>,
    tickets: HashMap<u64, Name>,
    last_ticket: u64,
    /// Those that have left memory.
    left: LeftNames,
    /// A look-up was answered since somebody asked, or there is room for rows again.
    has_loaded: bool,
}

impl Names {
    /// Nothing yet; so many names that have left memory can be told from others.
    pub(super) fn new(left_max: usize) -> Self {
        Self {
            absent: HashSet::new(),
            loads: HashMap::new(),
            tickets: HashMap::new(),
            last_ticket: 0,
            left: LeftNames::new(left_max),
            has_loaded: false,
        }
    }

    /// A stream leaves memory.
    pub(super) fn note_left(&mut self, bucket: BucketId, key: &str) {
        self.left.note(bucket, key);
    }

    /// There is room for rows again.
    pub(super) fn note_room(&mut self) {
        self.has_loaded = true;
    }

    fn note_absent(&mut self, name: Name) {
        if self.absent.len() >= ABSENT_MAX {
            self.absent.clear();
        }
        self.absent.insert(name);
    }
}

/// What is at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// The stream of this row.
    Row(u32),
    /// Nothing.
    Nothing,
    /// That is not known yet.
    Unknown,
}

fn no_stream(address: &Address) -> Refusal {
    Refusal::new(Reason::NotFound, format!("there is no stream '{address}'"))
}

impl Shard {
    /// Whether look-ups were answered since this was last asked, or there is room for rows again: who was blocked may be offered again at
    /// once.
    pub(crate) fn take_loads_done(&mut self) -> bool {
        std::mem::take(&mut self.names.has_loaded)
    }

    /// The row of a stream that must be there; `None` when that is not known yet.
    pub(super) fn find(&mut self, address: &Address, world: &mut impl World) -> Result<Option<u32>, Refusal> {
        let bucket = self.bucket_of(&address.bucket)?;
        match self.look_up(bucket.id, &address.key, world)? {
            Named::Row(row) => Ok(Some(row)),
            Named::Unknown => Ok(None),
            Named::Nothing => Err(no_stream(address)),
        }
    }

    /// The row of a stream, made if its bucket says that this use makes one; `None` when a lane or a look-up is in the way.
    pub(super) fn find_or_create(
        &mut self,
        address: &Address,
        makes: fn(&Bucket) -> bool,
        world: &mut impl World,
    ) -> Result<Option<u32>, Refusal> {
        let bucket = self.bucket_of(&address.bucket)?;
        match self.look_up(bucket.id, &address.key, world)? {
            Named::Row(row) => Ok(Some(row)),
            Named::Unknown => Ok(None),
            Named::Nothing if makes(&bucket) => self.make(&bucket, address, &ConfigPatch::default(), world),
            Named::Nothing => Err(no_stream(address)),
        }
    }

    /// What is at a name. When it is nothing, [`Shard::named`] says what that stands on.
    pub(super) fn look_up(&mut self, bucket: BucketId, key: &Key, world: &mut impl World) -> Result<Named, Refusal> {
        if let Some(row) = self.streams.find(bucket, key.as_str()) {
            let flow = self.mend(row, world)?;
            return Ok(if flow == Flow::Done { Named::Row(row) } else { Named::Unknown });
        }
        if let Some(tombstone) = self.streams.tombstone(bucket, key.as_str()) {
            self.named = tombstone.entered;
            return Ok(Named::Nothing);
        }
        let is_new = self.is_fresh(bucket) && !self.names.left.may_have(bucket, key.as_str());
        if is_new || self.names.absent.contains(&(bucket, key.clone())) {
            return Ok(Named::Nothing);
        }
        self.load((bucket, key.clone()), world)
    }

    /// Asks the index for a name, unless that is under way.
    fn load(&mut self, name: Name, world: &mut impl World) -> Result<Named, Refusal> {
        let now = self.now.mono;
        match self.names.loads.remove(&name) {
            Some(Load::UnderWay) => {
                self.names.loads.insert(name, Load::UnderWay);
                return Ok(Named::Unknown);
            }
            Some(Load::Failed(refusal, at)) if now < at + FAILED_KEPT => return Err(refusal),
            Some(Load::Failed(..)) | None => {}
        }
        if self.names.loads.len() >= LOADS_MAX {
            self.names.loads.retain(|_, load| matches!(load, Load::UnderWay));
        }
        if self.names.loads.len() < LOADS_MAX {
            self.names.last_ticket += 1;
            let ticket = self.names.last_ticket;
            let reply_to = ReplyTo { shard: self.config.shard, ticket };
            let key = LoadKey::Name { bucket: name.0, key: name.1.clone() };
            if world.to_control(ToControl::Load { reply_to, key }).is_ok() {
                self.counts.loads += 1;
                self.names.tickets.insert(ticket, name.clone());
                self.names.loads.insert(name, Load::UnderWay);
            }
        }
        Ok(Named::Unknown)
    }

    /// The index has answered a look-up.
    pub(super) fn on_loaded(
        &mut self,
        ticket: u64,
        result: Result<Option<Box<StreamRow>>, Refusal>,
        world: &mut impl World,
    ) {
        let Some(name) = self.names.tickets.remove(&ticket) else { return };
        self.names.loads.remove(&name);
        match result {
            Ok(Some(row)) if (row.bucket, &row.key) == (name.0, &name.1) => {
                let at = self.streams.insert_row(&row);
                self.rest(at);
            }
            Ok(Some(row)) => {
                let message =
                    format!("the index has stream {} of '{}' at the name '{}'", row.stream_id, row.key, name.1);
                let failed = Load::Failed(Refusal::new(Reason::Internal, message), self.now.mono);
                self.names.loads.insert(name, failed);
            }
            Ok(None) => self.names.note_absent(name),
            Err(refusal) => drop(self.names.loads.insert(name, Load::Failed(refusal, self.now.mono))),
        }
        self.names.has_loaded = true;
        self.trim_wanted(world);
    }

    /// Makes a stream; its creation is on its way, but not durable yet.
    pub(super) fn make(
        &mut self,
        bucket: &Bucket,
        address: &Address,
        patch: &ConfigPatch,
        world: &mut impl World,
    ) -> Result<Option<u32>, Refusal> {
        if self.is_frozen(bucket) {
            let message = format!("bucket '{}' is being deleted", bucket.name);
            return Err(Refusal::new(Reason::FailedPrecondition, message));
        }
        let config = patch.fill(&bucket.defaults);
        config.check()?;
        self.judge_buried(bucket.id, address, Lane::from(config.class), world)?;
        if !self.has_room_for_rows()? {
            return Ok(None);
        }
        let wall_ms = self.now.wall_ms;
        let stream_id = StreamId::mint(u64::try_from(wall_ms).unwrap_or(0), world.random());
        let key = address.key.clone();
        let verb = Verb::Create { bucket: bucket.id, key, config, created_at_ms: wall_ms };
        let row = self.streams.insert(bucket.id, &address.key, stream_id, &config);
        if let Some(state) = self.streams.row_mut(row) {
            state.created_at_ms = wall_ms;
        }
        let entered = self.enter(Entering::new(row, verb, Applying::Create), RoomClass::Data, world);
        match entered {
            Ok(Flow::Done) => {
                self.names.absent.remove(&(bucket.id, address.key.clone()));
                Ok(Some(row))
            }
            Ok(Flow::Blocked) | Err(_) => {
                self.streams.unname(row);
                self.streams.remove(row);
                entered.map(|_| None)
            }
        }
    }

    /// Refuses to make a stream in one lane while the delete of the one before it is in flight in the other.
    fn judge_buried(
        &mut self,
        bucket: BucketId,
        address: &Address,
        lane: Lane,
        world: &mut impl World,
    ) -> Result<(), Refusal> {
        let Some(tombstone) = self.streams.tombstone(bucket, address.key.as_str()) else { return Ok(()) };
        let (buried_in, lsn) = tombstone.entered.lane();
        // The index learns of what the head log holds after what enters the channel now: it must have the delete first.
        let is_over = match lane {
            Lane::Standard => self.settled.has(tombstone.entered, self.standard.applied()),
            Lane::Express => lsn <= self.durable(buried_in, world),
        };
        if buried_in == lane || is_over {
            return Ok(());
        }
        if lane == Lane::Standard && world.to_control(ToControl::Flush).is_err() {
            tracing::debug!(shard = %self.config.shard, "control has stopped");
        }
        // To try again is right whether it becomes durable or not.
        self.named = Entered::Nothing;
        let message =
            format!("the delete of the stream that was at '{address}' before is not in the index yet: try again");
        Err(Refusal::new(Reason::Unavailable, message).with_retry_after_ms(RETRY_AFTER_MS))
    }

    /// Gives up the sequence numbers that records of lost head logs may have had, before anything else enters the stream. The gap
    /// of a loss before may be lost itself, with what was acked behind it: so it is as long as for a loss in each tenure since.
    fn mend(&mut self, row: u32, world: &mut impl World) -> Result<Flow, Refusal> {
        let Some(state) = self.streams.row(row) else { return Ok(Flow::Done) };
        let is_whole = state.epoch >= self.config.loss_epoch || !state.is_committed();
        if is_whole || Lane::from(state.config.class) == Lane::Standard {
            return Ok(Flow::Done);
        }
        if state.live.as_ref().is_some_and(|live| live.rev > state.rev) {
            // What is in flight came after the gap, or is it.
            return Ok(Flow::Done);
        }
        let from = state.tail.seq_num;
        let tenures = self.config.loss_epoch.get() - state.epoch.get();
        let to = from.after(tenures.saturating_mul(LOST_RECORDS_MAX));
        let entering = Entering::new(row, Verb::Gap { from, to }, Applying::Gap(from, to));
        let flow = self.enter(entering, RoomClass::Control, world)?;
        if flow == Flow::Done
            && let Some(state) = self.streams.row_mut(row)
        {
            super::append::live_of(state).next = to;
        }
        Ok(flow)
    }

    /// Forgets tombstones of what the index has; what is left of them goes in a later turn.
    pub(super) fn forget_tombstones(&mut self) {
        let (settled, standard) = (&self.settled, &self.standard);
        let is_in_index = |entered| settled.has(entered, standard.applied());
        let left = [Lane::Express, Lane::Standard].map(|lane| self.streams.tombstones.forget(lane, is_in_index));
        self.buries = left.contains(&true);
    }

    /// What an answer stands on that was judged on a name at which there is nothing.
    pub(super) fn take_named(&mut self) -> (Lane, wire::ids::Lsn) {
        std::mem::replace(&mut self.named, Entered::Nothing).lane()
    }
}

/// What a refusal that passes by itself tells a client to wait, in milliseconds.
const RETRY_AFTER_MS: u64 = 100;
