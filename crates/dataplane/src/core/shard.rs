//! The state of one shard, and what becomes of each input.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use wire::batch::VerifiedBatch;
use wire::bucket::{Bucket, BucketState};
use wire::handoff::{BucketTable, ToControl, ToShard};
use wire::ids::{BucketId, Epoch, LogId, ShardId, StreamId};
use wire::message::StreamInfo;
use wire::names::{Address, BucketName};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;
use wire::star_detail::StarDetail;

use super::commit::{Call, Due, NO_ROW, PendingQueue, To};
use super::heaviest::Heaviest;
use super::idle::Idle;
use super::lane::{Entered, StandardLane};
use super::names::Names;
use super::placement::Placement;
use super::read::Readers;
use super::request::Request;
use super::retention::{Expired, Expiry, Retention};
use super::ring::Ring;
use super::session::{self, Sessions};
use super::settled::Settled;
use super::streams::Streams;
use super::timings::{self, Asked, Timings};
use super::world::{ConnId, Flow, Now, World};

/// How long the state of a stream that owes throughput outlives its last use.
pub(crate) const COOLING: Duration = Duration::from_secs(1);
/// Rows whose live state is forgotten in one turn.
const COOLED_TURN_MAX: usize = 4_096;
/// Answers that wait for the log; with so many, connections are not read from until it has got further.
pub(super) const PENDING_MAX: usize = 128 << 10;

/// Names that have left memory and can be told from others, for each row that there may be: a twentieth of what rows take.
const LEFT_NAMES_A_ROW: usize = 16;
/// How soon control is asked again when its queue had no room.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// What a shard is told once.
#[derive(Debug)]
pub(crate) struct ShardConfig {
    /// Which one it is.
    pub(crate) shard: ShardId,
    /// Who owns which slot.
    pub(crate) placement: Placement,
    /// The star's tenure.
    pub(crate) epoch: Epoch,
    /// Which of the head logs of this run is its own.
    pub(crate) own_log: u16,
    /// The same, as every run calls it.
    pub(crate) own_log_id: LogId,
    /// A head log was lost before this tenure began: what an Express stream holds of an earlier one ends in a gap.
    pub(crate) loss_epoch: Epoch,
    /// Batches a session may have in flight.
    pub(crate) append_window: u32,
    /// Bytes of the ring.
    pub(crate) ring_bytes_max: usize,
    /// Bytes of batches that may be held back.
    pub(crate) held_bytes_max: usize,
    /// How long who waits for the Standard lane waits on once the store takes nothing.
    pub(crate) standard_patience: Duration,
    /// Streams in memory: with more, those leave that nobody uses and that the index has, and with half as many more none is made.
    pub(crate) rows_max: usize,
}

/// One shard.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) config: ShardConfig,
    pub(super) streams: Streams,
    pub(super) sessions: Sessions,
    pub(super) readers: Readers,
    /// What waits for the head log.
    pub(super) pending: PendingQueue,
    /// The newest of the head log.
    pub(super) ring: Ring,
    pub(super) standard: StandardLane,
    pub(super) settled: Settled,
    /// Why the head log takes no more records for now.
    pub(super) backlog: Option<String>,
    pub(super) names: Names,
    pub(super) retention: Retention,
    pub(super) idle: Idle,
    /// What the answer stands on that is judged on a name at which there is nothing.
    pub(super) named: Entered,
    /// Readers that control's queue had no room for.
    pub(super) unasked: Vec<u64>,
    /// The clocks of this turn.
    pub(super) now: Now,
    /// Connections with an open ack frame.
    pub(super) acked: Vec<ConnId>,
    /// Subscriptions whose stream has got further, as far as they are not pumped yet.
    pub(super) woken: VecDeque<u32>,
    /// Rows whose held batches may go on now that something is durable.
    pub(super) holding: Due,
    /// Rows whose held batches wait for time.
    pub(super) throttled: BTreeSet<u32>,
    pub(super) throttled_until: Option<Duration>,
    pub(super) held_bytes: usize,
    /// Rows whose live state waits to be forgotten.
    pub(super) cooling: VecDeque<(Duration, u32, StreamId)>,
    /// Tombstones are left that the index has.
    pub(super) buries: bool,
    table: Arc<BucketTable>,
    bucket_names: HashMap<BucketId, BucketName>,
    frozen: Vec<BucketId>,
    pub(super) counts: Counts,
    pub(super) timings: Timings,
    pub(super) heaviest: Heaviest,
}

/// What a shard counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Batches acked.
    pub(crate) batches: u64,
    /// Records acked.
    pub(crate) records: u64,
    /// Content acked, in bytes.
    pub(crate) content_bytes: u64,
    /// Batches refused.
    pub(crate) refused: u64,
    /// Resends answered from memory.
    pub(crate) deduped: u64,
    /// Reads served from the ring.
    pub(crate) ring_hits: u64,
    /// Reads that went to the disk.
    pub(crate) fetches: u64,
    /// Reads that control was asked for.
    pub(crate) history_reads: u64,
    /// Streams that the index was asked for.
    pub(crate) loads: u64,
}

impl Counts {
    #[inline]
    pub(super) fn on_admitted(&mut self, batch: &VerifiedBatch<'_>) {
        self.batches += 1;
        self.records += u64::from(batch.records());
        self.content_bytes += u64::from(batch.content_bytes());
    }
}

impl Shard {
    /// A shard with the streams that recovery found for it.
    pub(crate) fn new(config: ShardConfig, streams: Streams) -> Self {
        let ring = Ring::new(config.ring_bytes_max);
        let standard = StandardLane::new(config.ring_bytes_max + config.held_bytes_max);
        let settled = Settled::new(streams.ends());
        let left_max = config.rows_max.saturating_mul(LEFT_NAMES_A_ROW);
        let mut shard = Self {
            config,
            streams,
            ring,
            standard,
            settled,
            backlog: None,
            names: Names::new(left_max),
            retention: Retention::default(),
            idle: Idle::default(),
            named: Entered::Nothing,
            unasked: Vec::new(),
            sessions: Sessions::default(),
            readers: Readers::default(),
            pending: VecDeque::new(),
            now: Now { wall_ms: 0, mono: Duration::ZERO },
            acked: Vec::new(),
            woken: VecDeque::new(),
            holding: Due::new(),
            throttled: BTreeSet::new(),
            throttled_until: None,
            held_bytes: 0,
            cooling: VecDeque::new(),
            buries: false,
            table: Arc::default(),
            bucket_names: HashMap::new(),
            frozen: Vec::new(),
            counts: Counts::default(),
            timings: Timings::new(),
            heaviest: Heaviest::new(),
        };
        shard.rest_all();
        shard
    }

    /// The shard that owns a stream.
    ///
    /// # Errors
    /// `not_found` when there is no such bucket.
    pub(crate) fn owner(&self, address: &Address) -> Result<ShardId, Refusal> {
        let bucket = self.bucket_of(&address.bucket)?;
        Ok(self.config.placement.shard(Slot::of(bucket.id, &address.key)))
    }

    /// The shard that a session handle belongs to.
    pub(crate) fn session_shard(handle: u32) -> ShardId {
        session::shard_of(handle)
    }

    /// A bucket by name.
    ///
    /// # Errors
    /// `not_found`.
    pub(crate) fn bucket_of(&self, name: &BucketName) -> Result<Arc<Bucket>, Refusal> {
        let bucket = self.table.buckets.get(name).map(Arc::clone);
        bucket.ok_or_else(|| Refusal::new(Reason::NotFound, format!("there is no bucket '{name}'")))
    }

    pub(super) fn bucket_name(&self, bucket: BucketId) -> Option<BucketName> {
        self.bucket_names.get(&bucket).cloned()
    }

    /// Whether control has told which buckets there are.
    pub(crate) fn has_table(&self) -> bool {
        self.table.version > 0
    }

    /// Whether the index knew no stream of a bucket when this run began.
    pub(super) fn is_fresh(&self, bucket: BucketId) -> bool {
        self.table.fresh.contains(&bucket)
    }

    /// Whether no stream may be made in a bucket now.
    pub(super) fn is_frozen(&self, bucket: &Bucket) -> bool {
        bucket.state == BucketState::Deleting || self.frozen.contains(&bucket.id)
    }

    /// Control has something for this shard; what is the shell's is ignored here.
    pub(crate) fn on_control(&mut self, message: ToShard, world: &mut impl World) {
        self.now = world.now();
        match message {
            ToShard::Buckets(table) => self.on_table(table, world),
            ToShard::Freeze { bucket } => self.freeze(bucket, world),
            ToShard::Committed { standard } => self.on_committed(standard, world),
            ToShard::Applied { standard } => self.on_applied(standard),
            ToShard::Stall { why } => self.on_stall(why),
            ToShard::Loaded { ticket, result } => self.on_loaded(ticket, result, world),
            ToShard::History { ticket, result } => self.on_history(ticket, result, world),
            ToShard::TrimTo { bucket, key, stream_id, to } => {
                self.on_expired(Expired { bucket, key, stream_id, what: Expiry::Trim(to) }, world);
            }
            ToShard::DeleteEmpty { bucket, key, stream_id, rev } => {
                self.on_expired(Expired { bucket, key, stream_id, what: Expiry::DeleteEmpty(rev) }, world);
            }
            // The shell knows where in the log that is, and calls `on_log_settled`.
            ToShard::Settled { .. } => {}
            ToShard::BucketReply { .. } | ToShard::Listed { .. } | ToShard::Counters(_) | ToShard::Drain => {}
        }
    }

    fn on_table(&mut self, table: Arc<BucketTable>, world: &mut impl World) {
        if table.version >= self.table.version {
            self.frozen.clear();
            self.bucket_names = table.buckets.iter().map(|(name, bucket)| (bucket.id, name.clone())).collect();
            self.table = table;
        }
        self.tell(ToControl::TableConfirmed { shard: self.config.shard, version: self.table.version }, world);
    }

    fn freeze(&mut self, bucket: BucketId, world: &mut impl World) {
        if !self.frozen.contains(&bucket) {
            self.frozen.push(bucket);
        }
        let frozen = ToControl::Frozen {
            shard: self.config.shard,
            bucket,
            standard: self.standard.assigned(),
            express: (self.config.own_log_id, world.assigned_lsn()),
        };
        self.tell(frozen, world);
    }

    fn tell(&self, message: ToControl, world: &mut impl World) {
        // Control's queue holds a message of each kind for each shard, so it has room.
        if world.to_control(message).is_err() {
            tracing::error!(shard = %self.config.shard, "control takes no more messages: a bucket verb will time out");
        }
    }

    /// The streams of a bucket at keys after `after` that are deleted, though the index may still list them; in key order.
    pub(crate) fn deleted(&self, bucket: BucketId, after: &str) -> impl Iterator<Item = (&str, StreamId)> {
        self.streams.buried_after(bucket, after)
    }

    /// This shard's part of a list: streams of a bucket after a key, in key order, as far as they are in memory.
    pub(crate) fn list(&self, bucket: BucketId, after: &str, limit: usize) -> Vec<StreamInfo> {
        self.streams
            .after(bucket, after)
            .filter(|row| row.is_committed())
            .take(limit)
            .map(|row| self.info(row))
            .collect()
    }

    /// A request that is not hot.
    pub(crate) fn on_request(
        &mut self,
        (conn, correlation): (ConnId, u64),
        request: Request,
        payload: &[u8],
        world: &mut impl World,
    ) -> Flow {
        if self.is_behind() || self.standard.is_behind() {
            return Flow::Blocked;
        }
        self.now = world.now();
        self.named = Entered::Nothing;
        let asked = timings::operation(&request).map(|operation| Asked::new(operation, world.received_at()));
        let call = Call { conn, correlation, asked };
        let to = To::Call(call);
        let result = match request {
            Request::StreamCreate(create) => self.create(to, &create, world),
            Request::StreamGet(get) => self.get(to, &get.address, world),
            Request::StreamReconfigure(change) => self.reconfigure(to, &change, world),
            Request::StreamDelete(delete) => self.delete(to, &delete.address, world),
            Request::Open(open) => self.open(conn, to, open, world),
            Request::Close(close) => self.close(conn, to, close.session, world),
            Request::AppendOnce(once) => self.append_once(to, once, payload, world),
            Request::Read(read) => self.read(call, &read, world),
            Request::Subscribe(subscribe) => self.subscribe(call, &subscribe, world),
            Request::Credit(credit) => Ok(self.credit(conn, &credit, world)),
            Request::Unsubscribe(end) => Ok(self.unsubscribe((conn, correlation), end.subscription, world)),
            Request::CheckTail(check) => self.check_tail(to, &check.address, world),
            Request::Trim(trim) => self.trim(call, &trim, world),
            Request::Fence(fence) => self.fence(to, fence, world),
            Request::GetToken(get) => self.get_token(to, &get.address, world),
            Request::Bucket(_) | Request::StreamList(_) | Request::StarGet(_) => {
                Err(Refusal::new(Reason::Internal, "a request came to a shard that doesn't answer it"))
            }
        };
        self.close_acks(world);
        match result {
            Ok(flow) => flow,
            Err(refusal) => {
                self.refuse_named(to, refusal, world);
                Flow::Done
            }
        }
    }

    /// Whether as many answers wait for the log as may.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.pending.len() >= PENDING_MAX
    }

    /// Refuses a call that was judged on which names there are.
    fn refuse_named(&mut self, to: To, refusal: Refusal, world: &mut impl World) {
        let answering = super::commit::Answering::Refuse(refusal, super::commit::Tail::Without);
        let after = self.take_named();
        self.answer_at(after, NO_ROW, (to, answering), world);
    }

    /// A connection is gone: its sessions give their roles up, its subscriptions end.
    pub(crate) fn on_closed(&mut self, conn: ConnId, world: &mut impl World) {
        self.now = world.now();
        let holdings = self.sessions.close(conn);
        for session in holdings.sessions {
            self.end_session(session);
            self.sessions.let_go(session);
        }
        for (_, subscription) in holdings.subscriptions {
            self.drop_subscription(subscription);
        }
    }

    /// When [`Shard::on_timer`] is due next, if it is.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        let cooling = self.cooling.front().map(|(at, ..)| *at);
        let unasked = (!self.unasked.is_empty()).then(|| self.now.mono + ASK_AGAIN_AFTER);
        let goes_on = (!self.woken.is_empty() || self.buries).then_some(self.now.mono);
        let due = [
            self.throttled_until,
            cooling,
            self.eviction_due(),
            self.trims_due(),
            unasked,
            self.gives_up_at(),
            goes_on,
        ];
        due.into_iter().flatten().min()
    }

    /// Time has passed.
    pub(crate) fn on_timer(&mut self, world: &mut impl World) {
        self.now = world.now();
        self.cool();
        if self.throttled_until.is_some_and(|until| until <= self.now.mono) {
            self.throttled_until = None;
            let rows = std::mem::take(&mut self.throttled);
            self.holding.extend(rows);
            self.release_held(world);
        }
        if self.trims_due().is_some_and(|due| due <= self.now.mono) {
            self.trim_wanted(world);
        }
        if self.gives_up_at().is_some_and(|due| due <= self.now.mono) {
            self.give_up_waiting(world);
        }
        if self.buries {
            self.forget_tombstones();
        }
        self.pump_woken(world);
        self.evict();
        self.close_acks(world);
    }

    /// Forgets the live state of rows that owe nothing any more, some of them in each turn.
    fn cool(&mut self) {
        for _ in 0..COOLED_TURN_MAX {
            let Some((_, row, stream_id)) = self.cooling.front().copied().filter(|(at, ..)| *at <= self.now.mono)
            else {
                return;
            };
            self.cooling.pop_front();
            let Some(state) = self.streams.row_mut(row).filter(|state| state.stream_id == stream_id) else { continue };
            if let Some(live) = state.live.as_mut() {
                live.is_cooling = false;
            }
            self.retire(row);
        }
    }

    /// Has the held batches of a row looked at again after this long.
    pub(super) fn throttle(&mut self, row: u32, wait: Duration) {
        let until = self.now.mono + wait.max(Duration::from_millis(1));
        self.throttled_until = Some(self.throttled_until.map_or(until, |earlier| earlier.min(until)));
        self.throttled.insert(row);
    }

    /// Whether nobody waits for anything that this shard will do by itself.
    pub(crate) fn is_idle(&self) -> bool {
        let is_owed = self.standard.pending.iter().any(|pending| pending.answer.is_some());
        let nothing_waits = self.pending.is_empty() && !is_owed;
        nothing_waits && self.held_bytes == 0 && self.readers.pages() == 0
    }

    /// What the shard tells of itself besides what it counts.
    pub(crate) fn detail(&self) -> StarDetail {
        let timings = self.timings.told(self.config.shard.get());
        StarDetail { timings, heaviest: self.heavy_streams(), stood_still: Vec::new() }
    }

    /// What the shard counts, by name.
    pub(crate) fn counters(&self, out: &mut Vec<(&'static str, u64)>) {
        let counts = &self.counts;
        out.extend([
            ("streams", self.streams.len() as u64),
            ("sessions", self.sessions.len() as u64),
            ("subscriptions", self.readers.subscriptions() as u64),
            ("pending_answers", self.pending.len() as u64),
            ("pending_standard_answers", self.standard.pending.len() as u64),
            ("standard_unapplied_bytes", self.standard.unapplied_bytes() as u64),
            ("held_bytes", self.held_bytes as u64),
            ("batches_total", counts.batches),
            ("records_total", counts.records),
            ("content_bytes_total", counts.content_bytes),
            ("batches_refused_total", counts.refused),
            ("batches_deduped_total", counts.deduped),
            ("reads_from_memory_total", counts.ring_hits),
            ("reads_from_disk_total", counts.fetches),
            ("reads_from_store_total", counts.history_reads),
            ("streams_loaded_total", counts.loads),
        ]);
    }
}
