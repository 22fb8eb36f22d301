//! An index over a store, streams that write, and the chunks that carry it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use slatedb::config::DurabilityLevel;
use wire::batch::BatchBuilder;
use wire::chunk::{Built, Footer, ObjectBuilder, ObjectHeader, ObjectKind, Settles};
use wire::config::StreamConfig;
use wire::entry::{BatchHead, Numbered, Place, Stamping, Verb, batch_entry_bytes, encode_batch};
use wire::handoff::ParcelItem;
use wire::ids::{BucketId, ClusterId, Epoch, LogId, Lsn, Rev, SeqNum, StarId, StreamId};
use wire::names::Key;
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use crate::channel::{ChunkId, CommittedChunk, PriorChannel, chunk_name};
use crate::index::{Enough, Index, IndexError, IndexOptions, IndexOwner, Located, SlotMade};
use crate::store::{ObjectPrefix, PutNonce, Store};

pub(crate) const BUCKET: BucketId = BucketId::from_bytes([9; 16]);

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let answer = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), future).await.unwrap() });
    runtime.shutdown_background();
    answer
}

/// An entry, and what its shard knows of it.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) item: ParcelItem,
    pub(crate) bytes: Vec<u8>,
}

/// A stream that writes its entries in order.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    number: u32,
    pub(crate) key: Key,
    pub(crate) config: StreamConfig,
    pub(crate) created_at_ms: i64,
    rev: Rev,
    tail: u64,
    /// The stamp of the last record; the next batch is stamped a second later.
    pub(crate) last_ms: i64,
    /// How long after their stamps batches arrive; with 0 the stamps are the arrivals.
    pub(crate) arrives_after_ms: i64,
}

impl Stream {
    pub(crate) fn new(number: u8, key: &str) -> Self {
        Self::numbered(number.into(), key)
    }

    pub(crate) fn numbered(number: u32, key: &str) -> Self {
        let (key, config) = (Key::new(key).unwrap(), StreamConfig::default());
        Self {
            number,
            key,
            config,
            created_at_ms: 1000 + i64::from(number),
            rev: Rev::ZERO,
            tail: 0,
            last_ms: 0,
            arrives_after_ms: 0,
        }
    }

    pub(crate) fn id(&self) -> StreamId {
        StreamId::from_bytes([self.number.to_be_bytes(); 4].concat().try_into().unwrap())
    }

    pub(crate) fn slot(&self) -> Slot {
        Slot::of(BUCKET, &self.key)
    }

    fn place(&mut self) -> Place {
        self.rev = self.rev.next();
        Place { stream_id: self.id(), slot: self.slot(), slot_epoch: Epoch::new(7), rev: self.rev }
    }

    fn written(&self, bytes: Vec<u8>, content_bytes: u32, first_ms: i64) -> Written {
        let length = u32::try_from(bytes.len()).unwrap();
        let (slot, stream_id) = (self.slot(), self.id());
        Written { item: ParcelItem { slot, stream_id, bytes: length, content_bytes, first_ms }, bytes }
    }

    pub(crate) fn verb(&mut self, verb: &Verb) -> Written {
        let place = self.place();
        self.written(verb.encode(place), 0, 0)
    }

    pub(crate) fn create(&mut self) -> Written {
        let (key, config) = (self.key.clone(), self.config);
        self.verb(&Verb::Create { bucket: BUCKET, key, config, created_at_ms: self.created_at_ms })
    }

    pub(crate) fn trim(&mut self, to: u64) -> Written {
        self.verb(&Verb::Trim { to: SeqNum::new(to) })
    }

    pub(crate) fn reconfigure(&mut self) -> Written {
        self.verb(&Verb::Reconfigure { config: self.config })
    }

    pub(crate) fn delete(&mut self) -> Written {
        self.verb(&Verb::Delete)
    }

    /// A batch of records of `bytes` each.
    pub(crate) fn append(&mut self, records: u16, bytes: usize) -> Written {
        let (previous_ms, last_ms) = (self.last_ms, self.last_ms + 1000);
        let stamp = (self.arrives_after_ms != 0).then_some(last_ms);
        let arrival_ms = last_ms + self.arrives_after_ms;
        let mut builder = BatchBuilder::new();
        for _ in 0..records {
            builder.push::<&[u8], &[u8]>(stamp, &[], &vec![7; bytes]).unwrap();
        }
        let mut batch = Vec::new();
        let (content_bytes, batch_crc) = (builder.content_bytes(), builder.finish(&mut batch).unwrap());
        let head = BatchHead {
            place: self.place(),
            first: SeqNum::new(self.tail),
            records,
            stamping: Stamping::of(&self.config, arrival_ms, previous_ms),
            last_ms,
            numbered: Numbered::default(),
            session_epoch: 0,
            batch_crc,
        };
        let mut entry = vec![0; batch_entry_bytes(batch.len())];
        encode_batch(&head, &batch, &mut entry);
        (self.tail, self.last_ms) = (self.tail + u64::from(records), last_ms);
        self.written(entry, u32::try_from(content_bytes).unwrap(), last_ms)
    }
}

/// A chunk that was committed.
#[derive(Debug)]
pub(crate) struct Chunk(pub(crate) CommittedChunk);

impl Chunk {
    pub(crate) fn slice(&self, extent: &Located) -> &[u8] {
        &self.0.bytes[extent.offset as usize..][..extent.bytes as usize]
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) index: Index,
    pub(crate) incarnation: Epoch,
    pub(crate) position: u64,
    options: IndexOptions,
    made: Arc<AtomicU64>,
    streams: BTreeMap<u32, Stream>,
    settles: Vec<Settles>,
}

impl World {
    pub(crate) async fn new(store: Arc<dyn Store>) -> Self {
        Self::open(store, 0, IndexOptions::default()).await
    }

    pub(crate) async fn open(store: Arc<dyn Store>, slots: u64, options: IndexOptions) -> Self {
        let made = Arc::new(AtomicU64::new(slots));
        let noted = Arc::clone(&made);
        let note: SlotMade = Arc::new(move |slot| {
            noted.fetch_or(1 << slot.get(), Ordering::SeqCst);
            Box::pin(async { Ok(()) })
        });
        let (cluster, star) = (ClusterId::default(), StarId::default());
        let owner = IndexOwner { cluster, star, incarnation: Epoch::new(1) };
        let index = Index::open(Arc::clone(&store), owner, slots, options, note).await.unwrap();
        let (incarnation, streams) = (Epoch::new(1), BTreeMap::new());
        Self { store, index, incarnation, position: 0, options, made, streams, settles: Vec::new() }
    }

    /// The slots that have an index.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    /// Another process, that finds in the store what this one left.
    pub(crate) async fn crash(self) -> Self {
        let made = self.made();
        Self { streams: self.streams, ..Self::open(self.store, made, self.options).await }
    }

    /// Removes everything from the store.
    pub(crate) async fn wipe(&self) {
        while let page = self.store.list(&ObjectPrefix::all(), None, 1000).await.unwrap().objects
            && !page.is_empty()
        {
            for object in page {
                self.store.delete(&object.name).await.unwrap();
            }
        }
    }

    pub(crate) async fn files(&self) -> usize {
        self.store.list(&ObjectPrefix::parse("m/").unwrap(), None, 10_000).await.unwrap().objects.len()
    }

    pub(crate) fn keep(&mut self, stream: Stream) {
        self.streams.insert(stream.number, stream);
    }

    pub(crate) fn kept(&mut self, number: u8) -> &mut Stream {
        self.streams.get_mut(&number.into()).unwrap()
    }

    pub(crate) fn next_incarnation(&mut self) {
        (self.incarnation, self.position) = (self.incarnation.next(), 0);
    }

    /// The channel, if it ends here.
    pub(crate) fn ended(&self) -> PriorChannel {
        PriorChannel { incarnation: self.incarnation, low: 0, end: self.position }
    }

    /// Says in the next chunk what of a log it settles.
    pub(crate) fn settle(&mut self, log: LogId, from: u64, to: u64) {
        self.settles.push(Settles { log, from: Lsn::new(from), to: Lsn::new(to) });
    }

    pub(crate) fn build(&mut self, entries: &[Written], created_ms: i64) -> Chunk {
        let header = ObjectHeader {
            kind: ObjectKind::Chunk,
            cluster: ClusterId::default(),
            star: StarId::default(),
            incarnation: self.incarnation,
            position: self.position,
            slot: Slot::new(0).unwrap(),
            created_ms,
        };
        let mut builder = ObjectBuilder::new(header);
        for entry in entries {
            builder.push(&entry.item, &entry.bytes);
        }
        self.settles.drain(..).for_each(|settles| builder.settles(settles));
        let Built { bytes, .. } = builder.finish();
        let footer = Footer::decode_suffix(&bytes, bytes.len() as u64).unwrap();
        let at = ChunkId { incarnation: self.incarnation, position: self.position };
        Chunk(CommittedChunk { at, bytes: bytes.into(), footer, standard: Vec::new(), settled: Vec::new() })
    }

    /// Puts a chunk into the store, and applies it.
    pub(crate) async fn commit(&mut self, entries: Vec<Written>) -> Result<Chunk, IndexError> {
        self.commit_at(entries, 1_000_000).await
    }

    /// The same, of a chunk that was made then.
    pub(crate) async fn commit_at(&mut self, entries: Vec<Written>, created_ms: i64) -> Result<Chunk, IndexError> {
        let chunk = self.build(&entries, created_ms);
        let body: Bytes = chunk.0.bytes.clone();
        // A test that commits another chunk at a place where one failed doesn't read it again.
        drop(self.store.put_if_absent(&chunk_name(chunk.0.at), body, PutNonce::fresh()).await);
        self.position += 1;
        self.index.apply(std::slice::from_ref(&chunk.0)).await?;
        Ok(chunk)
    }

    /// The keys of the bucket, by pages.
    pub(crate) async fn listed(&self, limit: usize) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().map_or("", String::as_str);
            let page = self.index.list(BUCKET, after, limit).await.unwrap();
            if page.is_empty() {
                return found;
            }
            found.extend(page.iter().map(|row| row.key.as_str().to_owned()));
        }
    }

    pub(crate) async fn row(&self, stream: &Stream) -> Option<StreamRow> {
        let rows = self.index.rows_by_id(&[(stream.slot(), stream.id())]).await.unwrap();
        rows.into_iter().next()
    }

    pub(crate) async fn extents(&self, stream: &Stream, from: u64) -> Vec<Located> {
        self.index
            .extents_from(stream.slot(), stream.id(), SeqNum::new(from), Enough::extents(usize::MAX))
            .await
            .unwrap()
    }

    /// Every row of every slot.
    pub(crate) async fn dump(&self) -> Vec<(u8, Bytes, Bytes)> {
        let mut found = Vec::new();
        for open in self.index.open_slots().await.unwrap() {
            let mut rows = open.scan(vec![0]..vec![0xff], DurabilityLevel::Memory).await.unwrap();
            while let Some((key, value)) = rows.next().await.unwrap() {
                found.push((open.slot.get(), key, value));
            }
        }
        found
    }
}
