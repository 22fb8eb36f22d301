//! A shard, a log in memory that becomes durable when told to, and connections that are read back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use express_log::{CommitTimes, EntryPos, NoRoom, RoomClass};
use wire::batch::BatchBuilder;
use wire::bucket::{Bucket, BucketSpec};
use wire::config::{Class, ConfigPatch};
use wire::entry::{Entry, Verb};
use wire::frame::{self, Kind, Next};
use wire::handoff::{BucketTable, Full, Parcel, ToControl, ToShard};
use wire::hot::{self, Ack, AppendHead, RecordsHead};
use wire::ids::{BatchNo, BucketId, Epoch, LogId, Lsn, Position, ProducerId, SegmentId, SeqNum, ShardId, StreamId};
use wire::log_frame::ENTRY_PREFIX_BYTES;
use wire::message::{
    AppendOnce, AppendRefused, Appended, Fenced, Message, Open, Opened, Read, Refused, SessionEnded, Start,
    StreamAnswer, Subscribed, SubscriptionEnded, Tail, Token, Trimmed,
};
use wire::names::{Address, BucketName, FencingToken};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::terms::Terms;

use super::store::Store;
use crate::core::outbox::OutBuffer;
use crate::core::{
    ConnId, Fetch, FetchError, Flow, Now, Placement, Request, Shard, ShardConfig, Shares, Streams, Work, World,
};

/// The log, the clocks and the connections of a test.
#[derive(Debug, Default)]
pub(super) struct Fake {
    pub(super) log: Vec<u8>,
    pub(super) entries: Vec<EntryPos>,
    pub(super) durable: u64,
    pub(super) wall_ms: i64,
    pub(super) mono_ms: u64,
    pub(super) room: Option<NoRoom>,
    pub(super) store_room: Option<NoRoom>,
    pub(super) outs: HashMap<ConnId, OutBuffer>,
    pub(super) fetches: VecDeque<Fetch>,
    /// Pages under way of each connection.
    pub(super) pages: HashMap<ConnId, u32>,
    pub(super) told: Vec<ToControl>,
    /// Parcels of the Standard lane, up to these entries.
    pub(super) parcels: VecDeque<(Lsn, Parcel)>,
    /// Control's queue has no room.
    pub(super) is_control_full: bool,
    /// Segments of the log that were begun after the first.
    pub(super) rolled: u64,
    /// Segments of the log that are gone.
    pub(super) freed: u64,
    /// What was said last of a batch for the log: content in bytes, and its first stamp.
    pub(super) noted: Option<(u32, i64)>,
    /// When what is served was received, if it was not just now.
    pub(super) received_ms: Option<u64>,
    /// How long the last commit took.
    pub(super) took: CommitTimes,
    /// How the shard's time is shared out; without it there is always time.
    pub(super) shares: Option<Shares>,
    minted: u64,
}

impl World for Fake {
    fn now(&self) -> Now {
        Now { wall_ms: self.wall_ms, mono: Duration::from_millis(self.mono_ms) }
    }

    fn received_at(&self) -> Duration {
        Duration::from_millis(self.received_ms.unwrap_or(self.mono_ms))
    }

    fn commit_times(&self) -> CommitTimes {
        self.took
    }

    fn store_room(&self) -> Result<(), NoRoom> {
        self.store_room.map_or(Ok(()), Err)
    }

    fn room(&self, _: usize, class: RoomClass) -> Result<(), NoRoom> {
        match self.room {
            Some(full @ NoRoom::Full { .. }) if class == RoomClass::Data => Err(full),
            Some(NoRoom::Busy) => Err(NoRoom::Busy),
            _ => Ok(()),
        }
    }

    fn note_batch(&mut self, content_bytes: u32, first_ms: i64) {
        self.noted = Some((content_bytes, first_ms));
    }

    fn append(&mut self, entry_bytes: usize, fill: impl FnOnce(&mut [u8])) -> (Lsn, EntryPos) {
        self.log.extend_from_slice(&u32::try_from(entry_bytes).unwrap().to_le_bytes());
        let at = self.log.len();
        self.log.resize(at + entry_bytes, 0);
        fill(&mut self.log[at..]);
        let pos = EntryPos {
            segment: SegmentId::new(1 + self.rolled),
            offset: u32::try_from(at).unwrap(),
            bytes: u32::try_from(entry_bytes).unwrap(),
        };
        self.entries.push(pos);
        (Lsn::new(self.entries.len() as u64), pos)
    }

    fn durable_lsn(&self) -> Lsn {
        Lsn::new(self.durable)
    }

    fn assigned_lsn(&self) -> Lsn {
        Lsn::new(self.entries.len() as u64)
    }

    fn out(&mut self, conn: ConnId) -> Option<&mut OutBuffer> {
        self.outs.get_mut(&conn)
    }

    fn backlog_bytes(&self, _: ConnId) -> usize {
        0
    }

    fn page_begins(&mut self, conn: ConnId) {
        *self.pages.entry(conn).or_default() += 1;
    }

    fn page_ends(&mut self, conn: ConnId) {
        let pages = self.pages.get_mut(&conn).expect("one that began");
        *pages -= 1;
    }

    fn fetch(&mut self, fetch: Fetch) {
        self.fetches.push_back(fetch);
    }

    fn to_control(&mut self, message: ToControl) -> Result<(), Full> {
        if self.is_control_full {
            return Err(Full);
        }
        self.told.push(message);
        Ok(())
    }

    fn hand_over(&mut self, _: ShardId, upto: Lsn, parcel: Parcel) -> Result<(), Parcel> {
        if self.is_control_full {
            return Err(parcel);
        }
        self.parcels.push_back((upto, parcel));
        Ok(())
    }

    fn may_go(&mut self, work: Work) -> bool {
        self.shares.as_mut().is_none_or(|shares| shares.may_go(work))
    }

    fn random(&mut self) -> [u8; 10] {
        self.minted += 1;
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.minted.to_be_bytes());
        random
    }
}

/// What a connection was told.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Told {
    Acked(u32, Ack, Position),
    Refused(u64, Refusal),
    AppendRefused(u32, u64, Refusal),
    Opened(Opened),
    Ended(u32, Reason),
    Appended(Appended),
    Done(u64),
    Tail(Position),
    Fenced(Position),
    Trimmed(u64),
    Token(String),
    Stream(Box<StreamAnswer>),
    Page(Page),
    Subscribed(Subscribed),
    Records(u32, Page),
    SubscriptionEnded(u32, Reason),
}

/// The records of a page, as a client cuts them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Page {
    pub(super) bodies: Vec<String>,
    pub(super) stamps: Vec<i64>,
    /// What it says is lost.
    pub(super) gaps: Vec<(u64, u64)>,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) tail: u64,
    pub(super) at_tail: bool,
}

pub(super) struct Test {
    pub(super) shard: Shard,
    pub(super) world: Fake,
    pub(super) store: Store,
    calls: u64,
}

pub(super) const A: ConnId = conn(1);
pub(super) const B: ConnId = conn(2);
pub(super) const C: ConnId = conn(3);

const fn conn(slot: u32) -> ConnId {
    ConnId { shard: ShardId::ZERO, slot, generation: 0 }
}

pub(super) fn address(key: &str) -> Address {
    Address::new("demo", key).unwrap()
}

pub(super) fn token(text: &str) -> FencingToken {
    FencingToken::new(text).unwrap()
}

/// A batch of these bodies, encoded, and its CRC.
pub(super) fn batch(bodies: &[&str]) -> (Vec<u8>, u32) {
    stamped(&bodies.iter().map(|body| (None, *body)).collect::<Vec<_>>())
}

pub(super) fn stamped(records: &[(Option<i64>, &str)]) -> (Vec<u8>, u32) {
    let mut builder = BatchBuilder::new();
    for (stamp, body) in records {
        builder.push::<&str, &str>(*stamp, &[], body.as_bytes()).unwrap();
    }
    let mut out = Vec::new();
    let crc = builder.finish(&mut out).unwrap();
    (out, crc)
}

pub(super) fn config() -> ShardConfig {
    ShardConfig {
        shard: ShardId::ZERO,
        placement: Placement::even(1),
        epoch: Epoch::new(1),
        own_log: 0,
        own_log_id: LogId::from_bytes([3; 16]),
        loss_epoch: Epoch::ZERO,
        append_window: 16,
        ring_bytes_max: 0,
        held_bytes_max: 1 << 20,
        standard_patience: Duration::from_secs(5),
        rows_max: 1_000,
    }
}

/// The bucket `demo` of these defaults, which makes streams on append and on read.
pub(super) fn bucket(defaults: ConfigPatch) -> Bucket {
    let spec = BucketSpec {
        create_stream_on_append: true,
        create_stream_on_read: true,
        defaults: ConfigPatch { class: defaults.class.or(Some(Class::Express)), ..defaults },
        ..BucketSpec::named(BucketName::new("demo").unwrap())
    };
    Bucket::made(&spec, BucketId::from_bytes([1; 16]), 0)
}

impl Test {
    pub(super) fn new() -> Self {
        Self::with(ConfigPatch::default())
    }

    /// A shard whose bucket `demo` has these defaults.
    pub(super) fn with(defaults: ConfigPatch) -> Self {
        let mut test = Self::of(config(), Streams::new(), Fake { wall_ms: 1_000, ..Fake::default() }, Store::default());
        test.table(1, [bucket(defaults)]);
        test
    }

    /// A shard whose bucket makes Standard streams.
    pub(super) fn standard() -> Self {
        Self::with(ConfigPatch { class: Some(Class::Standard), ..ConfigPatch::default() })
    }

    fn of(config: ShardConfig, streams: Streams, mut world: Fake, store: Store) -> Self {
        for conn in [A, B, C] {
            world.outs.insert(conn, OutBuffer::default());
        }
        Self { shard: Shard::new(config, streams), world, store, calls: 0 }
    }

    /// Serves by a table of these buckets, which were all made in this run.
    pub(super) fn table(&mut self, version: u64, buckets: impl IntoIterator<Item = Bucket>) {
        let buckets: Vec<Bucket> = buckets.into_iter().collect();
        let fresh = buckets.iter().map(|bucket| bucket.id).collect();
        self.serve_table(BucketTable { version, fresh, ..table_of(buckets) });
    }

    /// Serves by a table of these buckets, whose streams the index may know.
    pub(super) fn old_table(&mut self, version: u64, buckets: impl IntoIterator<Item = Bucket>) {
        self.serve_table(BucketTable { version, ..table_of(buckets) });
    }

    fn serve_table(&mut self, table: BucketTable) {
        self.shard.on_control(ToShard::Buckets(Arc::new(table)), &mut self.world);
    }

    /// The same shard after a crash: what was durable and is not settled is left.
    pub(super) fn crashed(self) -> Self {
        self.restarted(config())
    }

    /// The same shard after a crash, told this.
    pub(super) fn restarted(mut self, config: ShardConfig) -> Self {
        self.store.recover(&mut self.world);
        let mut streams = Streams::new();
        for row in self.store.rows.values() {
            streams.replay_row(row);
        }
        let durable = usize::try_from(self.world.durable).unwrap();
        for pos in self.world.entries[..durable].iter().filter(|pos| pos.segment.get() > self.world.freed) {
            let bytes = &self.world.log[pos.offset as usize..(pos.offset + pos.bytes) as usize];
            streams.replay(0, *pos, bytes).unwrap();
            streams.replay(0, *pos, bytes).unwrap();
        }
        let parts = streams.split(&Placement::even(1));
        let world = Fake {
            entries: self.world.entries[..durable].to_vec(),
            log: self.world.log,
            durable: self.world.durable,
            wall_ms: self.world.wall_ms,
            rolled: self.world.rolled,
            freed: self.world.freed,
            minted: self.world.minted,
            ..Fake::default()
        };
        let mut test = Self::of(config, parts.into_iter().next().unwrap(), world, self.store);
        test.old_table(1, [bucket(ConfigPatch::default())]);
        test
    }

    /// Everything appended becomes durable.
    pub(super) fn commit(&mut self) {
        self.commit_to(self.world.entries.len() as u64);
    }

    pub(super) fn commit_to(&mut self, lsn: u64) {
        self.world.durable = lsn;
        self.shard.on_durable(Lsn::new(lsn), &mut self.world);
    }

    pub(super) fn wait(&mut self, ms: u64) {
        self.world.mono_ms += ms;
        self.world.wall_ms += i64::try_from(ms).unwrap();
        self.shard.on_timer(&mut self.world);
    }

    /// Sends a request; its correlation id is answered.
    pub(super) fn ask<M: Message>(&mut self, conn: ConnId, message: &M) -> u64 {
        self.ask_with(conn, message, &[]).1
    }

    pub(super) fn ask_with<M: Message>(&mut self, conn: ConnId, message: &M, payload: &[u8]) -> (Flow, u64) {
        self.calls += 1;
        let mut out = Vec::new();
        message.frame_with(self.calls, payload, &mut out);
        let Ok(Next::Frame(frame)) = frame::next(&out, usize::MAX) else { panic!("a whole frame") };
        let request = Request::decode(&frame).unwrap();
        let flow = self.shard.on_request((conn, self.calls), request, frame.payload, &mut self.world);
        (flow, self.calls)
    }

    /// Sends a request again and again, with an obliging control, until it is taken; its correlation id is answered.
    pub(super) fn offer<M: Message>(&mut self, conn: ConnId, message: &M, payload: &[u8]) -> u64 {
        for _ in 0..20 {
            if let (Flow::Done, call) = self.ask_with(conn, message, payload) {
                return call;
            }
            self.serve_control();
        }
        panic!("it is blocked");
    }

    /// Sends a request, commits, and answers what the connection was told.
    pub(super) fn call<M: Message>(&mut self, conn: ConnId, message: &M) -> Vec<Told> {
        self.offer(conn, message, &[]);
        self.commit_all();
        self.told(conn)
    }

    pub(super) fn open(&mut self, conn: ConnId, key: &str, producer: u64, presented: &str) -> Result<Opened, Refusal> {
        let open = Open {
            address: address(key),
            producer: ProducerId::new(producer),
            fencing_token: token(presented),
            resume: None,
        };
        match self.call(conn, &open).pop() {
            Some(Told::Opened(opened)) => Ok(opened),
            Some(Told::Refused(_, refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn append(&mut self, conn: ConnId, session: u32, no: u64, bodies: &[&str]) -> Flow {
        self.append_if(conn, (session, no), None, &batch(bodies))
    }

    pub(super) fn append_if(
        &mut self,
        conn: ConnId,
        (session, no): (u32, u64),
        expected: Option<u64>,
        (bytes, batch_crc): &(Vec<u8>, u32),
    ) -> Flow {
        let head = AppendHead {
            session,
            no: BatchNo::new(no),
            match_seq_num: expected.map(SeqNum::new),
            resent: false,
            batch_crc: *batch_crc,
        };
        self.shard.on_append(conn, &head.encode(), bytes, &mut self.world)
    }

    /// A batch of one record on terms.
    pub(super) fn append_on(
        &mut self,
        conn: ConnId,
        (session, no): (u32, u64),
        terms: &Terms,
        expected: Option<u64>,
    ) -> Flow {
        let (bytes, batch_crc) = batch(&["on terms"]);
        let match_seq_num = expected.map(SeqNum::new);
        let head = AppendHead { session, no: BatchNo::new(no), match_seq_num, resent: false, batch_crc };
        self.shard.on_append(conn, &head.encode_on(&terms.to_bytes()), &bytes, &mut self.world)
    }

    pub(super) fn once(key: &str, batch_crc: u32) -> AppendOnce {
        AppendOnce {
            address: address(key),
            fencing_token: FencingToken::default(),
            match_seq_num: None,
            idempotency: (0, 0),
            terms: Terms::default(),
            batch_crc,
        }
    }

    /// A one-shot of these bodies, committed.
    pub(super) fn put(&mut self, key: &str, bodies: &[&str]) -> Result<Appended, Refusal> {
        let (bytes, crc) = batch(bodies);
        self.offer(A, &Self::once(key, crc), &bytes);
        self.commit_all();
        match self.told(A).pop() {
            Some(Told::Appended(appended)) => Ok(appended),
            Some(Told::Refused(_, refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn reading(key: &str, start: Start) -> Read {
        Read { address: address(key), start, clamp: false, limit: 0, max_bytes: 0, until_ms: None }
    }

    pub(super) fn page(&mut self, read: &Read) -> Result<Page, Refusal> {
        self.offer(A, read, &[]);
        self.serve_readers();
        match self.told(A).pop() {
            Some(Told::Page(page)) => Ok(page),
            Some(Told::Refused(_, refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn serve_fetches(&mut self) {
        while let Some(fetch) = self.world.fetches.pop_front() {
            if fetch.segment.get() <= self.world.freed {
                let Fetch { segment, offset, bytes, .. } = fetch;
                let gone = FetchError { segment, offset, bytes, message: "no such file".to_owned(), is_gone: true };
                self.shard.on_fetched(fetch.ticket, Err(gone), &mut self.world);
                continue;
            }
            let bytes = self.world.log[fetch.offset as usize..(fetch.offset + fetch.bytes) as usize].to_vec();
            self.shard.on_fetched(fetch.ticket, Ok(&bytes), &mut self.world);
        }
    }

    /// Disk and control bring what readers wait for.
    pub(super) fn serve_readers(&mut self) {
        while !self.world.fetches.is_empty() || self.serve_control() {
            self.serve_fetches();
        }
    }

    pub(super) fn told(&mut self, conn: ConnId) -> Vec<Told> {
        let bytes = self.world.outs.get_mut(&conn).unwrap().take();
        let mut told = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let Ok(Next::Frame(frame)) = frame::next(rest, usize::MAX) else { panic!("a whole frame") };
            decode(&frame, &mut told);
            rest = &rest[frame.frame_bytes..];
        }
        told
    }
}

pub(super) fn table_of(buckets: impl IntoIterator<Item = Bucket>) -> BucketTable {
    let buckets = buckets.into_iter().map(|bucket| (bucket.name.clone(), Arc::new(bucket))).collect();
    BucketTable { buckets, ..BucketTable::default() }
}

pub(super) fn decode(frame: &frame::Frame<'_>, told: &mut Vec<Told>) {
    let correlation = frame.correlation;
    told.push(match frame.kind {
        Kind::Acks => {
            hot::walk_acks(frame.head, |group, ack| told.push(Told::Acked(group.session, ack, group.tail))).unwrap();
            return;
        }
        Kind::Refused => Told::Refused(correlation, Refused::of(frame).unwrap().refusal),
        Kind::AppendRefused => {
            let AppendRefused { session, no, refusal } = AppendRefused::of(frame).unwrap();
            Told::AppendRefused(session, no.get(), refusal)
        }
        Kind::Opened => Told::Opened(Opened::of(frame).unwrap()),
        Kind::SessionEnded => {
            let SessionEnded { session, refusal } = SessionEnded::of(frame).unwrap();
            Told::Ended(session, refusal.reason)
        }
        Kind::Appended => Told::Appended(Appended::of(frame).unwrap()),
        Kind::Done => Told::Done(correlation),
        Kind::Tail => Told::Tail(Tail::of(frame).unwrap().tail),
        Kind::Fenced => Told::Fenced(Fenced::of(frame).unwrap().tail),
        Kind::Trimmed => Told::Trimmed(Trimmed::of(frame).unwrap().trim_point.get()),
        Kind::Token => Told::Token(Token::of(frame).unwrap().fencing_token.to_string()),
        Kind::StreamAnswer => Told::Stream(Box::new(StreamAnswer::of(frame).unwrap())),
        Kind::Page => Told::Page(page(frame)),
        Kind::Subscribed => Told::Subscribed(Subscribed::of(frame).unwrap()),
        Kind::Records => Told::Records(RecordsHead::decode(frame.head).unwrap().subscription, page(frame)),
        Kind::SubscriptionEnded => {
            let SubscriptionEnded { subscription, refusal } = SubscriptionEnded::of(frame).unwrap();
            Told::SubscriptionEnded(subscription, refusal.reason)
        }
        kind => panic!("{kind:?}"),
    });
}

fn page(frame: &frame::Frame<'_>) -> Page {
    let head = RecordsHead::decode(frame.head).unwrap();
    let mut page = Page {
        bodies: Vec::new(),
        stamps: Vec::new(),
        gaps: Vec::new(),
        start: head.start.get(),
        end: head.end.get(),
        tail: head.tail.seq_num.get(),
        at_tail: head.at_tail,
    };
    let mut rest = frame.payload;
    while !rest.is_empty() {
        let (entry, entry_bytes) = Entry::decode(rest).unwrap();
        rest = &rest[entry_bytes..];
        let (batch_head, batch) = match entry {
            Entry::Batch { head, batch, .. } => (head, batch),
            Entry::Verb { verb: Verb::Gap { from, to }, .. } => {
                page.gaps.push((from.get(), to.get()));
                continue;
            }
            Entry::Verb { .. } => panic!("a verb among records"),
        };
        let batch = wire::batch::VerifiedBatch::verify(batch, batch_head.batch_crc).unwrap();
        let mut stamp = batch_head.stamping.previous_ms;
        for (at, record) in batch.iter().enumerate() {
            stamp = batch_head.stamping.effective(record.timestamp_ms, stamp);
            let seq_num = batch_head.first.after(at as u64);
            if (head.start..head.end).contains(&seq_num) {
                page.bodies.push(String::from_utf8(record.body.to_vec()).unwrap());
                page.stamps.push(stamp);
            }
        }
    }
    page
}

pub(super) fn position(seq_num: u64, timestamp_ms: i64) -> Position {
    Position::new(SeqNum::new(seq_num), timestamp_ms)
}

pub(super) fn stream_id(told: &[Told]) -> StreamId {
    match told {
        [Told::Stream(answer)] => answer.stream.stream_id,
        other => panic!("{other:?}"),
    }
}

/// How many bytes stand before an entry in the log.
pub(super) const PREFIX: usize = ENTRY_PREFIX_BYTES;
