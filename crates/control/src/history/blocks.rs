//! Where do the bytes of objects come from: memory, the cache file, or the store?
//!
//! Whoever asks for a block that is not in memory waits for the one fetch of it. A fetch is a task of its own, so that it goes on
//! when the first reader leaves, and ends when the last one does. What fails is not kept.

mod get;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::HistoryOptions;
use super::counters::Counters;
use super::nvme::{BlockId, Nvme, NvmeOpenError};
use crate::core::block_cache::BlockCache;
use crate::core::get_times::GetTimes;
use crate::core::read_plan::{BlockKey, Part, Piece, Run};
use crate::index::ObjectId;
use crate::store::{Effect, Store, StoreError, StoreOp};

/// Bytes of a block at least.
const BLOCK_BYTES_MIN: u32 = 4 << 10;
/// What a block costs in memory besides its bytes, about.
const BLOCK_ROW_BYTES: usize = 256;
/// Small extents of one block that are fetched one by one at first; then the block is, which costs about as much as they did. When it
/// has left memory and is wanted again, twice as many are: it was not worth its bytes.
const EXACT_GETS_A_BLOCK_MIN: u16 = 4;
/// Blocks of which is remembered how many small extents were fetched from them.
const SPARSE_BLOCKS_MAX: usize = 32 << 10;
/// The share of the gets that hedges, and as many again that prefetches may take, as a divisor.
const SPARE_DIVISOR: usize = 4;

/// Bytes of an object.
#[derive(Debug, Clone)]
pub(super) struct Block {
    bytes: Bytes,
    /// Where they start in the object.
    start: u64,
    /// Bytes of the memory that they keep from being freed.
    pinned: usize,
}

impl Block {
    /// The bytes that lie there in the object; `Err` with where the block ends when it ends before.
    pub(super) fn slice(&self, range: Range<u64>) -> Result<Bytes, u64> {
        let end = self.start + self.bytes.len() as u64;
        let within = |at: u64| usize::try_from(at.checked_sub(self.start)?).ok();
        match (within(range.start), within(range.end)) {
            (Some(from), Some(to)) if range.end <= end => Ok(self.bytes.slice(from..to)),
            _ => Err(end),
        }
    }

    /// Bytes of the memory that a slice of it keeps from being freed.
    pub(super) fn pinned(&self) -> usize {
        self.pinned
    }
}

/// How a fetch ended.
type Landed = Result<Block, Arc<StoreError>>;
type Flight = watch::Sender<Option<Landed>>;

/// A block that is asked for.
#[derive(Debug)]
pub(super) enum Asked {
    /// It was in memory.
    Here(Block),
    /// It is on its way.
    Coming(BlockKey, watch::Receiver<Option<Landed>>),
}

impl Asked {
    /// Waits until it is here.
    pub(super) async fn here(self) -> Landed {
        let (key, mut coming) = match self {
            Self::Here(block) => return Ok(block),
            Self::Coming(key, coming) => (key, coming),
        };
        let landed = coming.wait_for(Option::is_some).await.ok().and_then(|landed| (*landed).clone());
        landed.unwrap_or_else(|| Err(Arc::new(lost(key.object, "its fetch ended without an answer"))))
    }
}

/// The failure of a get that the store didn't report.
fn lost(object: ObjectId, what: &str) -> StoreError {
    let target = object.name().to_string();
    StoreError::Unavailable { op: StoreOp::Get, target, effect: Effect::None, source: what.into() }
}

/// The blocks of all objects.
#[derive(Debug, Clone)]
pub(super) struct Blocks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    block_bytes: u64,
    hedge: bool,
    state: Mutex<State>,
    nvme: Option<Nvme>,
    gets: Semaphore,
    hedges: Semaphore,
    prefetches: Arc<Semaphore>,
    times: Mutex<GetTimes>,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct State {
    memory: BlockCache<BlockKey, Block>,
    flights: HashMap<BlockKey, Arc<Flight>>,
    sparse: BlockCache<BlockId, Sparse>,
}

/// What is asked of a block that small extents lie in.
#[derive(Debug, Clone, Copy)]
struct Sparse {
    /// Extents that were fetched alone since the block was.
    fetched: u16,
    /// How many are, before the block is.
    fetched_max: u16,
}

impl Sparse {
    const NEW: Self = Self { fetched: 0, fetched_max: EXACT_GETS_A_BLOCK_MIN };

    /// Whether the next extent is fetched alone, too.
    fn take_exact(&mut self) -> bool {
        let is_exact = self.fetched < self.fetched_max;
        *self = match is_exact {
            true => Self { fetched: self.fetched + 1, ..*self },
            false => Self { fetched: 0, fetched_max: self.fetched_max.saturating_mul(2) },
        };
        is_exact
    }
}

impl Blocks {
    /// No blocks yet.
    pub(super) fn new(
        store: Arc<dyn Store>,
        options: &HistoryOptions,
        counters: Arc<Counters>,
    ) -> Result<Self, NvmeOpenError> {
        let block_bytes = u64::from(options.block_bytes.max(BLOCK_BYTES_MIN));
        let open = |nvme| Nvme::open(nvme, block_bytes, Arc::clone(&counters));
        let nvme = match options.nvme.as_ref().map(open).transpose() {
            // It can be had from the store.
            Err(error @ NvmeOpenError::Io { .. }) if error.is_full() => {
                tracing::warn!(%error, "there is no block cache in this run");
                None
            }
            opened => opened?,
        };
        let gets = options.reads_in_flight.max(1);
        let spare = gets.div_ceil(SPARE_DIVISOR);
        let state = State {
            memory: BlockCache::new(options.memory_bytes),
            flights: HashMap::new(),
            sparse: BlockCache::new(SPARSE_BLOCKS_MAX),
        };
        Ok(Self(Arc::new(Shared {
            store,
            block_bytes,
            hedge: options.hedge,
            state: Mutex::new(state),
            nvme,
            gets: Semaphore::new(gets),
            hedges: Semaphore::new(spare),
            prefetches: Arc::new(Semaphore::new(spare)),
            times: Mutex::new(GetTimes::new()),
            counters,
        })))
    }

    /// Bytes of the blocks in the cache file.
    pub(super) fn nvme_bytes(&self) -> u64 {
        self.0.nvme.as_ref().map_or(0, Nvme::used_bytes)
    }

    /// Bytes of the blocks in memory, and of what is kept of each besides.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.state().memory.weight()
    }

    /// The blocks that a run is best read from.
    pub(super) fn pieces(&self, run: &Run) -> Vec<Piece> {
        let pieces: Vec<_> = run.pieces(self.0.block_bytes).collect();
        if run.is_small_and_alone() && self.0.is_sparse(run, &pieces) { vec![run.exact()] } else { pieces }
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> u64 {
        self.0.block_bytes
    }

    /// Asks for a block.
    pub(super) fn ask(&self, key: BlockKey) -> Asked {
        let counters = &self.0.counters;
        let mut state = self.0.state();
        if let Some(block) = state.memory.get(&key) {
            counters.memory_hits.add(1);
            return Asked::Here(block.clone());
        }
        // One that was left alone is about to end.
        if let Some(flight) = state.flights.get(&key).filter(|flight| flight.receiver_count() > 0) {
            counters.joins.add(1);
            return Asked::Coming(key, flight.subscribe());
        }
        counters.memory_misses.add(1);
        Asked::Coming(key, self.start(state, key, None))
    }

    /// Fetches a block that nobody waits for yet, unless it is in memory or on its way, or too much is fetched ahead. Whether
    /// there may be room for another.
    pub(super) fn prefetch(&self, key: BlockKey) -> bool {
        let state = self.0.state();
        if state.memory.contains(&key) || state.flights.contains_key(&key) {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.0.prefetches).try_acquire_owned() else {
            return false;
        };
        self.0.counters.prefetches.add(1);
        drop(self.start(state, key, Some(permit)));
        true
    }

    /// Takes in the blocks of an object whose bytes are all at hand.
    pub(super) fn insert(&self, object: ObjectId, bytes: &Bytes) {
        let block_bytes = usize::try_from(self.0.block_bytes).unwrap_or(usize::MAX);
        for (no, at) in (0..).zip((0..bytes.len()).step_by(block_bytes)) {
            let part = bytes.slice(at..bytes.len().min(at.saturating_add(block_bytes)));
            let block = Block { bytes: part, start: at as u64, pinned: bytes.len() };
            self.0.counters.inserts.add(1);
            self.0.keep(BlockKey { object, part: Part::Block(no) }, block);
        }
    }

    /// An object from its start on, as far as its blocks are in memory one behind the other.
    pub(super) fn in_memory(&self, object: ObjectId) -> Vec<Bytes> {
        let mut state = self.0.state();
        let block = |no| state.memory.get(&BlockKey { object, part: Part::Block(no) }).map(|block| block.bytes.clone());
        (0..).map_while(block).collect()
    }

    /// Drops a block that is not what it should be.
    pub(super) fn forget(&self, key: BlockKey) {
        self.0.state().memory.remove(&key);
        if let (Some(nvme), Part::Block(no)) = (&self.0.nvme, key.part) {
            nvme.remove((key.object, no));
        }
    }

    /// Starts the one fetch of a block. It goes on while someone waits for it, or for as long as it takes when it is one ahead.
    fn start(
        &self,
        mut state: MutexGuard<'_, State>,
        key: BlockKey,
        ahead: Option<OwnedSemaphorePermit>,
    ) -> watch::Receiver<Option<Landed>> {
        let (flight, coming) = watch::channel(None);
        let flight = Arc::new(flight);
        state.flights.insert(key, Arc::clone(&flight));
        // A runtime that ends drops the task at once, which takes the flight off the list.
        drop(state);
        let keep = ahead.map(|permit| (permit, coming.clone()));
        let landing = Landing { shared: Arc::clone(&self.0), key, flight };
        tokio::spawn(async move {
            landing.fly().await;
            drop(keep);
        });
        coming
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so little is asked of the blocks that small extents lie in that these are rather fetched alone.
    fn is_sparse(&self, run: &Run, pieces: &[Piece]) -> bool {
        let mut state = self.state();
        let exact = run.exact().key;
        if state.memory.contains(&exact) || state.flights.contains_key(&exact) {
            return true;
        }
        let is_near = |piece: &Piece| {
            let Part::Block(no) = piece.key.part else {
                return false;
            };
            state.memory.contains(&piece.key)
                || state.flights.contains_key(&piece.key)
                || self.nvme.as_ref().is_some_and(|nvme| nvme.contains((piece.key.object, no)))
        };
        if pieces.iter().all(is_near) {
            return false;
        }
        let Some(BlockKey { object, part: Part::Block(no) }) = pieces.first().map(|piece| piece.key) else {
            return true;
        };
        let mut sparse = state.sparse.get(&(object, no)).copied().unwrap_or(Sparse::NEW);
        let is_exact = sparse.take_exact();
        state.sparse.insert((object, no), sparse, 1);
        is_exact
    }

    /// Keeps a block in memory; what has to leave for it goes to the cache file.
    fn keep(&self, key: BlockKey, block: Block) {
        let weight = block.bytes.len() + BLOCK_ROW_BYTES;
        let left = self.state().memory.insert(key, block, weight);
        self.counters.memory_evictions.add(left.len() as u64);
        for (key, block) in left {
            if let (Some(nvme), Part::Block(no)) = (&self.nvme, key.part) {
                nvme.offer((key.object, no), block.bytes);
            }
        }
    }
}

/// A fetch under way; it ends when its last reader leaves. However it ends, nobody joins it after that.
struct Landing {
    shared: Arc<Shared>,
    key: BlockKey,
    flight: Arc<Flight>,
}

impl Landing {
    async fn fly(self) {
        let landed = tokio::select! {
            biased;
            landed = self.shared.fetch(self.key) => landed,
            () = self.flight.closed() => return,
        };
        let landed = landed.map_err(Arc::new);
        if let Ok(block) = &landed {
            self.shared.keep(self.key, block.clone());
        }
        self.flight.send_replace(Some(landed));
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if state.flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            state.flights.remove(&self.key);
        }
    }
}
