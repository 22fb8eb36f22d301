//! The state of one shard, and what becomes of each input.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use wire::batch::VerifiedBatch;
use wire::bucket::{Bucket, BucketState};
use wire::handoff::{BucketTable, ToControl, ToShard};
use wire::ids::{BucketId, Epoch, LogId, Lsn, ShardId, StreamId};
use wire::message::StreamInfo;
use wire::names::{Address, BucketName};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;

use super::commit::{Due, NO_ROW, PendingQueue, To};
use super::placement::Placement;
use super::read::Readers;
use super::request::Request;
use super::ring::Ring;
use super::session::{self, Sessions};
use super::streams::Streams;
use super::world::{ConnId, Flow, Now, World};

/// How long the state of a stream that owes throughput outlives its last use.
pub(crate) const COOLING: Duration = Duration::from_secs(1);
/// Answers that wait for the log; with so many, connections are not read from until it has got further.
pub(super) const PENDING_MAX: usize = 128 << 10;

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
    /// Batches a session may have in flight.
    pub(crate) append_window: u32,
    /// Bytes of the ring.
    pub(crate) ring_bytes_max: usize,
    /// Bytes of batches that may be held back.
    pub(crate) held_bytes_max: usize,
}

/// One shard.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) config: ShardConfig,
    pub(super) streams: Streams,
    pub(super) sessions: Sessions,
    pub(super) readers: Readers,
    pub(super) pending: PendingQueue,
    pub(super) ring: Ring,
    /// The clocks of this turn.
    pub(super) now: Now,
    /// Connections with an open ack frame.
    pub(super) acked: Vec<ConnId>,
    /// Subscriptions whose stream has got further.
    pub(super) woken: Due,
    /// Rows whose held batches may go on now that something is durable.
    pub(super) holding: Due,
    /// Rows whose held batches wait for time.
    pub(super) throttled: Vec<u32>,
    pub(super) throttled_until: Option<Duration>,
    pub(super) held_bytes: usize,
    /// Rows whose live state waits to be forgotten.
    pub(super) cooling: VecDeque<(Duration, u32, StreamId)>,
    /// The last entry that made or deleted a stream.
    pub(super) names_lsn: Lsn,
    table: Arc<BucketTable>,
    names: HashMap<BucketId, BucketName>,
    frozen: Vec<BucketId>,
    pub(super) counts: Counts,
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
        Self {
            config,
            streams,
            ring,
            sessions: Sessions::default(),
            readers: Readers::default(),
            pending: VecDeque::new(),
            now: Now { wall_ms: 0, mono: Duration::ZERO },
            acked: Vec::new(),
            woken: Due::new(),
            holding: Due::new(),
            throttled: Vec::new(),
            throttled_until: None,
            held_bytes: 0,
            cooling: VecDeque::new(),
            names_lsn: Lsn::ZERO,
            table: Arc::default(),
            names: HashMap::new(),
            frozen: Vec::new(),
            counts: Counts::default(),
        }
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
        self.names.get(&bucket).cloned()
    }

    /// Whether no stream may be made in a bucket now.
    pub(super) fn is_frozen(&self, bucket: &Bucket) -> bool {
        bucket.state == BucketState::Deleting || self.frozen.contains(&bucket.id)
    }

    /// Control has something for this shard; what is the shell's is ignored here.
    pub(crate) fn on_control(&mut self, message: ToShard, world: &mut impl World) {
        let shard = self.config.shard;
        let answer = match message {
            ToShard::Buckets(table) => {
                if table.version >= self.table.version {
                    self.frozen.clear();
                    self.names = table.buckets.iter().map(|(name, bucket)| (bucket.id, name.clone())).collect();
                    self.table = table;
                }
                ToControl::TableConfirmed { shard, version: self.table.version }
            }
            ToShard::Freeze { bucket } => {
                if !self.frozen.contains(&bucket) {
                    self.frozen.push(bucket);
                }
                ToControl::Frozen {
                    shard,
                    bucket,
                    streams: self.streams.count(bucket) as u64,
                    standard: Lsn::ZERO,
                    express: (LogId::default(), Lsn::ZERO),
                }
            }
            ToShard::Committed { .. }
            | ToShard::Applied { .. }
            | ToShard::Settled { .. }
            | ToShard::Stall { .. }
            | ToShard::Loaded { .. }
            | ToShard::History { .. }
            | ToShard::Listed { .. }
            | ToShard::TrimTo { .. }
            | ToShard::Counters(_) => return,
            ToShard::BucketReply { .. } | ToShard::Drain => return,
        };
        // Control's queue holds a message of each kind for each shard, so it has room.
        if world.to_control(answer).is_err() {
            tracing::error!(%shard, "control takes no more messages: a bucket verb will time out");
        }
    }

    /// This shard's part of a list: streams of a bucket after a key, in key order.
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
        if self.is_behind() {
            return Flow::Blocked;
        }
        self.now = world.now();
        let to = To::Call { conn, correlation };
        let result = match request {
            Request::StreamCreate(create) => self.create(to, &create, world),
            Request::StreamGet(get) => self.get(to, &get.address, world),
            Request::StreamReconfigure(change) => self.reconfigure(to, &change, world),
            Request::StreamDelete(delete) => self.delete(to, &delete.address, world),
            Request::Open(open) => self.open(conn, to, open, world),
            Request::Close(close) => self.close(conn, to, close.session, world),
            Request::AppendOnce(once) => self.append_once(to, once, payload, world),
            Request::Read(read) => self.read((conn, correlation), &read, world),
            Request::Subscribe(subscribe) => self.subscribe((conn, correlation), &subscribe, world),
            Request::Credit(credit) => Ok(self.credit(conn, &credit, world)),
            Request::Unsubscribe(end) => Ok(self.unsubscribe((conn, correlation), end.subscription, world)),
            Request::CheckTail(check) => self.check_tail(to, &check.address, world),
            Request::Trim(trim) => self.trim((conn, correlation), &trim, world),
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
        self.answer_at(self.names_lsn, NO_ROW, (to, answering), world);
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
        [self.throttled_until, cooling].into_iter().flatten().min()
    }

    /// Time has passed.
    pub(crate) fn on_timer(&mut self, world: &mut impl World) {
        self.now = world.now();
        while self.cooling.front().is_some_and(|(at, ..)| *at <= self.now.mono) {
            let Some((_, row, stream_id)) = self.cooling.pop_front() else { break };
            let Some(state) = self.streams.row_mut(row).filter(|state| state.stream_id == stream_id) else { continue };
            if let Some(live) = state.live.as_mut() {
                live.is_cooling = false;
            }
            self.retire(row);
        }
        if self.throttled_until.is_some_and(|until| until <= self.now.mono) {
            self.throttled_until = None;
            let rows = std::mem::take(&mut self.throttled);
            self.holding.extend(rows);
            self.release_held(world);
        }
        self.close_acks(world);
    }

    /// Has the held batches of a row looked at again after this long.
    pub(super) fn throttle(&mut self, row: u32, wait: Duration) {
        let until = self.now.mono + wait.max(Duration::from_millis(1));
        self.throttled_until = Some(self.throttled_until.map_or(until, |earlier| earlier.min(until)));
        if !self.throttled.contains(&row) {
            self.throttled.push(row);
        }
    }

    /// Whether nobody waits for anything that this shard will do by itself.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.held_bytes == 0 && self.readers.pages() == 0
    }

    /// What the shard counts, by name.
    pub(crate) fn counters(&self, out: &mut Vec<(&'static str, u64)>) {
        let counts = &self.counts;
        out.extend([
            ("streams", self.streams.len() as u64),
            ("sessions", self.sessions.len() as u64),
            ("subscriptions", self.readers.subscriptions() as u64),
            ("pending_answers", self.pending.len() as u64),
            ("held_bytes", self.held_bytes as u64),
            ("batches_total", counts.batches),
            ("records_total", counts.records),
            ("content_bytes_total", counts.content_bytes),
            ("batches_refused_total", counts.refused),
            ("batches_deduped_total", counts.deduped),
            ("reads_from_memory_total", counts.ring_hits),
            ("reads_from_disk_total", counts.fetches),
        ]);
    }
}
