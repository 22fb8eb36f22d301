//! A star that writes, settles and dies, and what its streams should hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::mpsc;
use tuning::room::Room;
use wire::entry::Entry;
use wire::handoff::{HistoryFrom, Parcel, ToShard};
use wire::ids::{Epoch, Lsn, SeqNum, ShardId, StarId, StreamId};
use wire::slot::Slot;

use crate::channel::{
    ChunkId, CommittedChunk, JoinRequest, PriorChannel, UploadOptions, Uploader, UploaderHandle, chunk_name, join,
};
use crate::core::settle_clock::ClockLook;
use crate::history::{History, HistoryError, HistoryOptions, Locate};
use crate::index::tests::world::{Stream, Written};
use crate::index::{Index, IndexOptions, IndexOwner, ObjectId, SlotMade};
use crate::settle::{SettleOptions, SettleParts, Settler};
use crate::shell::unix_ms;
use crate::store::{ObjectPrefix, Store};

const SHARD: ShardId = ShardId::new(0);
/// Long enough for everything to be old.
pub(super) const LATER_MS: i64 = 3_600_000;

/// What a stream holds by what was acked.
#[derive(Debug, Clone, Default)]
struct Model {
    slot: Slot,
    /// Its batches: the first record, one past the last, and the bytes.
    batches: Vec<(u64, u64, Vec<u8>)>,
    trim_point: u64,
}

/// Streams, and what was acked to them.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) streams: Vec<Stream>,
    models: BTreeMap<usize, Model>,
}

pub(super) struct World {
    pub(super) store: Arc<dyn Store>,
    pub(super) index: Arc<Index>,
    pub(super) history: Arc<History>,
    pub(super) settler: Arc<Settler>,
    pub(super) incarnation: Epoch,
    pub(super) prior: Vec<PriorChannel>,
    handle: UploaderHandle,
    committed: mpsc::Receiver<CommittedChunk>,
    upto: u64,
    pub(super) data: Streams,
    options: (SettleOptions, IndexOptions),
    room: Option<Arc<Room>>,
}

pub(super) fn settle_options() -> SettleOptions {
    SettleOptions { grace: Duration::ZERO, orphan_age: Duration::from_secs(60), ..SettleOptions::default() }
}

pub(super) fn index_options() -> IndexOptions {
    IndexOptions { dead_grace_ms: 1000, ..IndexOptions::default() }
}

pub(super) fn star() -> StarId {
    StarId::from_bytes([1; 16])
}

impl World {
    pub(super) async fn new(store: Arc<dyn Store>) -> Self {
        Self::with(store, settle_options()).await
    }

    pub(super) async fn with(store: Arc<dyn Store>, options: SettleOptions) -> Self {
        Box::pin(Self::open(store, Streams::default(), (options, index_options()), None)).await
    }

    /// On a disk whose room is looked at.
    pub(super) async fn within(store: Arc<dyn Store>, options: SettleOptions, room: Arc<Room>) -> Self {
        Box::pin(Self::open(store, Streams::default(), (options, index_options()), Some(room))).await
    }

    async fn open(
        store: Arc<dyn Store>,
        data: Streams,
        options: (SettleOptions, IndexOptions),
        room: Option<Arc<Room>>,
    ) -> Self {
        let request = JoinRequest { star: star(), logs: Vec::new(), at_least: Epoch::new(1), accept_loss: false };
        let joined = join(&store, request).await.unwrap();
        let channel = joined.channel.clone();
        let made: SlotMade = Arc::new(move |slot: Slot| {
            let channel = channel.clone();
            Box::pin(async move { channel.add_slots_with_index(1 << slot.get()).await.map(drop) })
        });
        let owner = IndexOwner::of(&joined.channel);
        let index = Index::open(Arc::clone(&store), owner, joined.slots_with_index, options.1, made).await.unwrap();
        let index = Arc::new(index);
        index.replay(&joined.prior).await.unwrap();
        let (handle, committed) = Uploader::start(&joined.channel, UploadOptions::default());
        let history = history(&store, &index);
        let parts = SettleParts {
            room: room.clone(),
            confirms_clock: false,
            store: Arc::clone(&store),
            index: Arc::clone(&index),
            channel: joined.channel,
            history: Arc::clone(&history),
            prior: joined.prior.clone(),
            newest_ms: None,
        };
        let settler = Arc::new(Settler::new(parts, options.0.clone()));
        let (incarnation, prior) = (joined.incarnation, joined.prior);
        Self { store, index, history, settler, incarnation, prior, handle, committed, upto: 0, data, options, room }
    }

    /// The process is gone, and another one finds what it left in the store.
    pub(super) async fn crash(self) -> Self {
        let Self { store, data, options, room, .. } = self;
        Box::pin(Self::open(store, data, options, room)).await
    }

    /// Makes so many streams.
    pub(super) async fn create(&mut self, count: usize) {
        let mut entries = Vec::new();
        for _ in 0..count {
            let at = self.data.streams.len();
            let mut stream = Stream::numbered(u32::try_from(at).unwrap(), &format!("key-{}", at % 5));
            // Names come again: the newest holds them.
            stream.created_at_ms = 1000 + i64::try_from(at).unwrap();
            entries.push(stream.create());
            self.data.models.insert(at, Model { slot: stream.slot(), ..Model::default() });
            self.data.streams.push(stream);
        }
        self.commit(entries).await;
    }

    pub(super) fn append(&mut self, stream: usize, records: u16, bytes: usize) -> Written {
        let written = self.data.streams[stream].append(records, bytes);
        let Entry::Batch { head, .. } = Entry::decode(&written.bytes).unwrap().0 else { panic!("a batch") };
        let batch = (head.first.get(), head.end().seq_num.get(), written.bytes.clone());
        self.data.models.get_mut(&stream).unwrap().batches.push(batch);
        written
    }

    pub(super) fn trim(&mut self, stream: usize, to: u64) -> Written {
        self.data.models.get_mut(&stream).unwrap().trim_point = to;
        self.data.streams[stream].trim(to)
    }

    pub(super) fn delete(&mut self, stream: usize) -> Written {
        self.data.models.remove(&stream);
        self.data.streams[stream].delete()
    }

    /// The streams that are not deleted.
    pub(super) fn lives(&self) -> Vec<usize> {
        self.data.models.keys().copied().collect()
    }

    pub(super) fn trim_point(&self, stream: usize) -> u64 {
        self.data.models[&stream].trim_point
    }

    pub(super) fn tail(&self, stream: usize) -> u64 {
        self.data.models[&stream].batches.last().map_or(0, |(_, end, _)| *end)
    }

    /// Commits entries as a chunk or more, and applies them.
    pub(super) async fn commit(&mut self, entries: Vec<Written>) {
        let mut parcel = Parcel::default();
        for Written { item, bytes } in entries {
            parcel.items.push(item);
            parcel.bytes.extend_from_slice(&bytes);
        }
        self.upto += 1;
        self.handle.standard(SHARD, Lsn::new(self.upto), parcel);
        loop {
            let chunk = self.committed.recv().await.expect("the uploader goes on");
            self.history.insert_chunk(ObjectId::Chunk(chunk.at), &chunk.bytes);
            self.index.apply(std::slice::from_ref(&chunk)).await.unwrap();
            if chunk.standard.iter().any(|(_, upto)| upto.get() >= self.upto) {
                return;
            }
        }
    }

    /// So many rounds of appends to all streams, each a chunk.
    pub(super) async fn write(&mut self, rounds: usize, bytes: usize) {
        for _ in 0..rounds {
            let entries = self.lives().into_iter().map(|stream| self.append(stream, 3, bytes)).collect();
            self.commit(entries).await;
        }
    }

    /// Bundles everything there is.
    pub(super) async fn bundle(&self) {
        while self.settler.bundle_step(unix_ms() + LATER_MS).await.unwrap().extents > 0 {}
    }

    /// Deletes the chunks that may go.
    pub(super) async fn delete_chunks(&self) {
        self.index.checkpoint().await.unwrap();
        for _ in 0..3 {
            self.settler.delete_step().await.unwrap();
        }
    }

    /// Bundles everything and deletes what may go.
    pub(super) async fn settle(&self) {
        self.believe().await;
        self.bundle().await;
        self.delete_chunks().await;
        for _ in 0..2 {
            // What was bundled, or moved on, did so an hour ahead of its time.
            self.settler.reclaim_step(unix_ms() + 2 * LATER_MS).await.unwrap();
            self.index.checkpoint().await.unwrap();
        }
    }

    /// Takes a look at clocks that go right.
    pub(super) async fn believe(&self) {
        self.retain(right(unix_ms())).await;
    }

    /// What retention asks for.
    pub(super) async fn retain(&self, look: ClockLook) -> Vec<ToShard> {
        let asked = Mutex::new(Vec::new());
        let trims = |_: Slot, message: ToShard| asked.lock().unwrap().push(message);
        self.settler.retention_step(look, &trims).await.unwrap();
        asked.into_inner().unwrap()
    }

    /// Reads every stream, and finds all that was acked.
    pub(super) async fn check(&self) {
        check(&self.data, &self.history).await.unwrap();
    }

    /// The same by a reader that has nothing in memory.
    pub(super) async fn check_cold(&self) {
        check(&self.data, &history(&self.store, &self.index)).await.unwrap();
    }

    /// The same by a reader of another star.
    pub(super) async fn check_by(&self, other: &Self) {
        check(&self.data, &history(&other.store, &other.index)).await.unwrap();
    }

    /// The names of objects that begin so.
    pub(super) async fn names(&self, prefix: &str) -> Vec<String> {
        let listed = self.store.list(&ObjectPrefix::parse(prefix).unwrap(), None, 100_000).await.unwrap();
        listed.objects.iter().map(|listed| listed.name.to_string()).collect()
    }

    /// Bytes of bundles and chunks.
    pub(super) async fn stored_bytes(&self) -> u64 {
        let mut bytes = 0;
        for prefix in ["c/", "d/"] {
            let listed = self.store.list(&ObjectPrefix::parse(prefix).unwrap(), None, 100_000).await.unwrap();
            bytes += listed.objects.iter().map(|listed| listed.size_bytes).sum::<u64>();
        }
        bytes
    }

    /// The names of the chunks of a channel.
    pub(super) async fn chunks(&self, incarnation: Epoch) -> Vec<String> {
        self.names(&format!("c/{:016x}/", incarnation.get())).await
    }

    pub(super) fn own_chunk(&self, position: u64) -> String {
        chunk_name(ChunkId { incarnation: self.incarnation, position }).to_string()
    }
}

/// Clocks that go right, as all looks of a test see them.
pub(super) fn right(wall_ms: i64) -> ClockLook {
    ClockLook { boot_id: [1; 16], boot_ms: wall_ms - 1_000_000, wall_ms, store_skew_ms: None }
}

fn history(store: &Arc<dyn Store>, index: &Arc<Index>) -> Arc<History> {
    let locate: Arc<dyn Locate> = Arc::<Index>::clone(index);
    let options = HistoryOptions::of_memory(64 << 20);
    Arc::new(History::new(Arc::clone(store), locate, &options).unwrap())
}

/// The batches of a stream from there on: the first record of each, one past the last, and the bytes.
async fn batches(
    history: &History,
    (slot, stream_id): (Slot, StreamId),
    mut from: u64,
) -> Result<Vec<(u64, u64, Vec<u8>)>, HistoryError> {
    let mut found = Vec::new();
    loop {
        let span = history.read(slot, stream_id, HistoryFrom::SeqNum(SeqNum::new(from)), 1 << 20).await?;
        if span.bytes.is_empty() {
            return Ok(found);
        }
        let batches = wire::chunk::entries(&span.bytes).filter_map(|entry| match entry.unwrap() {
            (Entry::Batch { head, .. }, bytes) if head.end().seq_num.get() > from => {
                assert_eq!(head.place.stream_id, stream_id);
                Some((head.first.get(), head.end().seq_num.get(), bytes.to_vec()))
            }
            _ => None,
        });
        found.extend(batches);
        assert!(span.end.get() > from, "it goes on");
        from = span.end.get();
    }
}

/// Reads every stream from its trim point on, and finds what was acked.
pub(super) async fn check(data: &Streams, history: &History) -> Result<(), HistoryError> {
    for (at, model) in &data.models {
        let stream = (model.slot, data.streams[*at].id());
        let found = batches(history, stream, model.trim_point).await?;
        let wanted: Vec<_> = model.batches.iter().filter(|(_, end, _)| *end > model.trim_point).cloned().collect();
        let bounds = |batches: &[(u64, u64, Vec<u8>)]| batches.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>();
        assert_eq!(bounds(&found), bounds(&wanted), "stream {at}");
        assert!(found == wanted, "the bytes of stream {at}");
    }
    Ok(())
}
