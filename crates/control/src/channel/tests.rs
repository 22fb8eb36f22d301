//! Stars that write, are fenced, and take over from each other.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use wire::chunk::{Settles, entries};
use wire::entry::{Entry, Place, Verb};
use wire::handoff::{Parcel, ParcelItem};
use wire::ids::{Epoch, LogId, Lsn, Rev, SeqNum, ShardId, StarId, StreamId};
use wire::slot::Slot;

use super::{
    Channel, ChunkId, CommittedChunk, JoinRequest, Joined, LogFacts, PriorChannel, UploadOptions, Uploader,
    UploaderHandle, chunk_name, join, read_chunk,
};
use crate::store::{Fault, Latency, MemoryStore, Rule, Store, StoreOp, When};

pub(super) const SHARD: ShardId = ShardId::new(0);
pub(super) const LOG: LogId = LogId::from_bytes([8; 16]);
/// The stream of the Standard lane, and that of the head log.
pub(super) const STANDARD: u8 = 1;
pub(super) const EXPRESS: u8 = 2;

pub(super) fn star(number: u8) -> StarId {
    StarId::from_bytes([number; 16])
}

pub(super) fn request(star: StarId) -> JoinRequest {
    JoinRequest { star, logs: Vec::new(), at_least: Epoch::new(1), accept_loss: false }
}

pub(super) fn facts(log: u8, epoch: u64, end: u64) -> LogFacts {
    LogFacts {
        log: LogId::from_bytes([log; 16]),
        number: u16::from(log),
        last_epoch: Epoch::new(epoch),
        end_lsn: Lsn::new(end),
        clean: false,
    }
}

/// Entries of a stream with these revs.
pub(super) fn parcel(stream: u8, revs: Range<u64>) -> Parcel {
    let mut parcel = Parcel::default();
    for rev in revs {
        let stream_id = StreamId::from_bytes([stream; 16]);
        let slot = Slot::new(stream).unwrap();
        let place = Place { stream_id, slot, slot_epoch: Epoch::new(1), rev: Rev::new(rev) };
        let entry = Verb::Trim { to: SeqNum::new(rev) }.encode(place);
        let bytes = u32::try_from(entry.len()).unwrap();
        parcel.items.push(ParcelItem { slot, stream_id, bytes, content_bytes: 0, first_ms: 0 });
        parcel.bytes.extend_from_slice(&entry);
    }
    parcel
}

/// The revs of a stream in one chunk, in order, and what it settles.
async fn read_revs(store: &dyn Store, chunk: ChunkId, stream: u8) -> (Vec<u64>, Vec<Settles>) {
    let (bytes, footer) = read_chunk(store, chunk).await.unwrap();
    let mut revs = Vec::new();
    for row in footer.extents.iter().filter(|row| row.stream_id == StreamId::from_bytes([stream; 16])) {
        let (start, len) = (usize::try_from(row.offset).unwrap(), usize::try_from(row.bytes).unwrap());
        revs.extend(entries(&bytes[start..start + len]).map(|entry| match entry.unwrap() {
            (Entry::Verb { place, .. }, _) => place.rev.get(),
            other => panic!("only verbs are written here, not {other:?}"),
        }));
    }
    (revs, footer.settles)
}

/// The revs of a stream in these channels, in order, and how far `LOG` is settled by the last of them.
pub(super) async fn recover(store: &dyn Store, prior: &[PriorChannel], stream: u8) -> (Vec<u64>, Lsn) {
    let (mut revs, mut settled_to) = (Vec::new(), Lsn::new(1));
    for channel in prior {
        for position in channel.low..channel.end {
            let chunk = ChunkId { incarnation: channel.incarnation, position };
            let (found, settles) = read_revs(store, chunk, stream).await;
            revs.extend(found);
            for settles in settles {
                assert_eq!(settles.from, settled_to, "{chunk}");
                settled_to = settles.to;
            }
        }
    }
    (revs, settled_to)
}

/// A star that has joined and writes.
pub(super) struct Writer {
    pub(super) joined: Joined,
    pub(super) handle: UploaderHandle,
    pub(super) committed: mpsc::Receiver<CommittedChunk>,
}

impl Writer {
    pub(super) async fn start(store: &Arc<dyn Store>, request: JoinRequest) -> Self {
        Self::with(join(store, request).await.unwrap(), UploadOptions::default())
    }

    pub(super) fn with(joined: Joined, options: UploadOptions) -> Self {
        let (handle, committed) = Uploader::start(&joined.channel, options);
        Self { joined, handle, committed }
    }

    pub(super) fn standard(&self, revs: Range<u64>) {
        self.handle.standard(SHARD, Lsn::new(revs.end - 1), parcel(STANDARD, revs));
    }

    pub(super) fn settle(&self, lsns: Range<u64>) {
        let span = (Lsn::new(lsns.start), Lsn::new(lsns.end));
        self.handle.settle(SHARD, LOG, span, parcel(EXPRESS, lsns));
    }

    /// Waits until the Standard lane is committed up to here.
    pub(super) async fn until(&mut self, upto: u64) {
        loop {
            let chunk = self.committed.recv().await.expect("the uploader goes on");
            if chunk.standard.iter().any(|(_, last)| last.get() >= upto) {
                return;
            }
        }
    }
}

/// Numbers that a seed decides.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What one tenure was told to be committed, or what of it is in a durable index: the last rev of the Standard lane, and the LSN
/// after the last one settled.
#[derive(Clone, Copy, Default)]
struct Reached {
    standard: u64,
    settled_to: u64,
}

impl Reached {
    fn note(&mut self, chunk: &CommittedChunk) {
        for (_, last) in &chunk.standard {
            assert!(last.get() > self.standard, "a commit was told twice");
            self.standard = last.get();
        }
        for (_, _, last) in &chunk.settled {
            self.settled_to = last.get() + 1;
        }
    }

    fn max(self, other: Self) -> Self {
        let (standard, settled_to) = (self.standard.max(other.standard), self.settled_to.max(other.settled_to));
        Self { standard, settled_to }
    }
}

/// The index that survives every tenure.
type Index = Arc<Mutex<Reached>>;

/// Deletes all chunks of a tenure up to one that was told to be committed, as the index has them by now.
async fn reclaim(store: Arc<dyn Store>, channel: Channel, (index, reached): (Index, Reached), end: ChunkId) {
    {
        let mut index = index.lock().unwrap();
        *index = index.max(reached);
    }
    if channel.publish_low(end.position).await.is_ok() {
        for position in 0..end.position {
            // What fails to be deleted stays.
            store.delete(&chunk_name(ChunkId { position, ..end })).await.ok();
        }
    }
}

/// Hands over entries at random until it is fenced, and gives back what it was told.
async fn live((store, index): (Arc<dyn Store>, Index), mut writer: Writer, mut draw: Draw) -> Reached {
    let mut told = *index.lock().unwrap();
    let (mut rev, mut lsn) = (told.standard + 1, told.settled_to);
    loop {
        for _ in 0..draw.below(3) {
            let revs = rev..rev + 1 + draw.below(5);
            rev = revs.end;
            writer.standard(revs);
        }
        for _ in 0..draw.below(3) {
            let lsns = lsn..lsn + 1 + draw.below(5);
            lsn = lsns.end;
            writer.settle(lsns);
        }
        if draw.below(10) == 0 {
            writer.handle.flush();
        }
        let pause = Duration::from_millis(draw.below(100));
        while let Ok(chunk) = timeout(pause, writer.committed.recv()).await {
            let Some(chunk) = chunk else { return told };
            let before = (Arc::clone(&index), told);
            told.note(&chunk);
            if draw.below(3) == 0 {
                tokio::spawn(reclaim(Arc::clone(&store), writer.joined.channel.clone(), before, chunk.at));
            }
        }
    }
}

fn make_trouble(store: &MemoryStore, draw: &mut Draw) {
    let late = Duration::from_millis(draw.below(20_000));
    for (fault, per_cent) in [
        (Fault::BeforeApply, 4.0),
        (Fault::AfterApply, 4.0),
        (Fault::Late(late), 4.0),
        (Fault::SlowDown, 2.0),
        (Fault::Conflict, 2.0),
    ] {
        store.add(Rule::new(fault).when(When::Chance(per_cent / 100.0)));
    }
    store.add(Rule::new(Fault::Hang).under("c/").of(StoreOp::PutIfAbsent).when(When::Chance(0.01)));
    store.set_latency(Latency { p50: Duration::from_millis(20), p99: Duration::from_millis(400) });
}

/// What a tenure that begins finds: what is in the index, and behind that what is in the channels, without a gap.
async fn find(store: &dyn Store, index: &Index, prior: &[PriorChannel]) -> Reached {
    let (mut standard, mut settled) = (Vec::new(), Vec::new());
    for channel in prior {
        for position in channel.low..channel.end {
            let chunk = ChunkId { incarnation: channel.incarnation, position };
            standard.extend(read_revs(store, chunk, STANDARD).await.0);
            settled.extend(read_revs(store, chunk, EXPRESS).await.0);
        }
    }
    let found = |revs: &[u64], indexed: u64| {
        let missing =
            revs.iter().skip_while(|rev| **rev <= indexed).zip(indexed + 1..).find(|(rev, next)| *rev != next);
        assert_eq!(missing, None, "what is found, and what should be, behind {indexed} in the index");
        revs.last().copied().unwrap_or(0).max(indexed)
    };
    let indexed = *index.lock().unwrap();
    let settled_to = found(&settled, indexed.settled_to - 1) + 1;
    Reached { standard: found(&standard, indexed.standard), settled_to }
}

fn options(draw: &mut Draw, found: Reached) -> UploadOptions {
    let settled = (found.settled_to > 1).then(|| (LOG, Lsn::new(found.settled_to - 1)));
    UploadOptions {
        settle_age: Duration::from_millis(200),
        chunk_bytes: 2_000,
        hedge: draw.below(2) == 0,
        puts_per_second_max: u32::try_from(draw.below(2) * 20).unwrap(),
        put_timeout: Duration::from_secs(3),
        settled: settled.into_iter().collect(),
        ..UploadOptions::default()
    }
}

async fn a_life_of_takeovers(seed: u64) {
    let memory = MemoryStore::seeded(seed);
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let index = Arc::new(Mutex::new(Reached { standard: 0, settled_to: 1 }));
    let mut draw = Draw(seed);
    make_trouble(&memory, &mut draw);
    let (mut lives, mut finds) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        // A join that hangs is given up where it is, as by a crash.
        let joined = loop {
            if let Ok(Ok(joined)) = timeout(Duration::from_secs(30), join(&store, request(star(1)))).await {
                break joined;
            }
        };
        memory.calm();
        let found = find(store.as_ref(), &index, &joined.prior).await;
        make_trouble(&memory, &mut draw);
        finds.push(found);
        // All that was found is in the index before the star serves, and the earlier channels are still kept.
        *index.lock().unwrap() = found;
        let writer = Writer::with(joined, options(&mut draw, found));
        let life = live((Arc::clone(&store), Arc::clone(&index)), writer, Draw(draw.below(u64::MAX >> 34)));
        lives.push(tokio::spawn(life));
        sleep(Duration::from_millis(draw.below(8_000))).await;
    }
    memory.calm();
    let last = join(&store, request(star(1))).await.unwrap();
    finds.push(find(store.as_ref(), &index, &last.prior).await);
    assert!(finds[5].standard > 0, "nothing was committed");
    // Whatever was told, early or after the takeover, is what the next tenure found.
    for (life, found) in lives.into_iter().zip(&finds[1..]) {
        let told = life.await.unwrap();
        assert!(told.standard <= found.standard, "{} was told, {} found", told.standard, found.standard);
        assert!(told.settled_to <= found.settled_to, "{} was told, {} found", told.settled_to, found.settled_to);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_told_to_be_committed_is_found_by_whoever_takes_over() {
    for seed in 1..=60 {
        println!("seed {seed}");
        a_life_of_takeovers(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_hangs_or_fails_is_known_until_it_is_renewed() {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let joined = join(&store, request(star(1))).await.unwrap();
    let mut unrenewed = joined.channel.unrenewed();
    for (fault, says) in [(Fault::Hang, "no answer within"), (Fault::BeforeApply, "lease")] {
        memory.add(Rule::new(fault).under("stars/"));
        let trouble = unrenewed.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        assert!(trouble.why.contains(says), "{}", trouble.why);
        memory.calm();
        timeout(Duration::from_secs(60), unrenewed.wait_for(Option::is_none)).await.unwrap().unwrap();
    }
    assert!(timeout(Duration::from_secs(60), joined.channel.fenced()).await.is_err(), "it is this star's still");
}
