//! What carries entries from shards into the channel, and committed chunks out of it in order?

use std::collections::{BTreeMap, VecDeque};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use failpoints::{Point, hit};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use wire::chunk::{Footer, ObjectHeader, ObjectKind};
use wire::handoff::{Parcel, SettledLogs};
use wire::ids::{LogId, Lsn, ShardId};
use wire::slot::Slot;

use super::keeper::{Channel, ChannelError};
use super::put::{Attempt, Built, PutError, PutTimes};
use super::read::ChunkId;
use super::unix_ms;
use crate::core::uploader::{Action, Committed, Cut, Put, Rules, Uploads};

/// Committed chunks that wait to be taken; past it no more are put.
const UNTAKEN_MAX: usize = 4;

/// How chunks are cut and put.
#[derive(Clone, Debug)]
pub struct UploadOptions {
    /// A chunk of so many bytes of entries is full, and goes at once; at most 8 MiB.
    pub chunk_bytes: usize,
    /// Chunks under way side by side.
    pub in_flight: usize,
    /// How long Standard entries wait for more while a chunk is under way.
    pub standard_age: Duration,
    /// How long entries to settle wait for more.
    pub settle_age: Duration,
    /// How long nothing is committed until the store counts as stalled.
    pub stall_after: Duration,
    /// Chunks that are not full, a second; 0: as many as come.
    pub puts_per_second_max: u32,
    /// When a put counts as failed and is tried again.
    pub put_timeout: Duration,
    /// Whether a put that is late is sent a second time: for stores with a long tail of latency.
    pub hedge: bool,
    /// How far head logs are settled.
    pub settled: SettledLogs,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self {
            chunk_bytes: 8 << 20,
            in_flight: 8,
            standard_age: Duration::from_millis(50),
            settle_age: Duration::from_secs(1),
            stall_after: Duration::from_secs(2),
            puts_per_second_max: 0,
            put_timeout: Duration::from_secs(20),
            hedge: false,
            settled: SettledLogs::new(),
        }
    }
}

/// A chunk that is committed, and every one before it.
#[derive(Clone, Debug)]
pub struct CommittedChunk {
    /// Which.
    pub at: ChunkId,
    /// The whole object.
    pub bytes: Bytes,
    /// What is in it.
    pub footer: Footer,
    /// The last entry of each Standard lane in it.
    pub standard: Vec<(ShardId, Lsn)>,
    /// The last entry of each head log in it.
    pub settled: Vec<(ShardId, LogId, Lsn)>,
}

enum Ask {
    Standard(ShardId, Lsn, Parcel),
    Settle((ShardId, LogId), (Lsn, Lsn), Parcel),
    Flush,
    Finish(oneshot::Sender<()>),
}

/// The way into the channel. Nothing here waits, but [`UploaderHandle::finish`]; shards bound what they hand over.
#[derive(Clone, Debug)]
pub struct UploaderHandle {
    channel: Channel,
    asks: mpsc::UnboundedSender<Ask>,
    stall: watch::Receiver<Option<Arc<str>>>,
}

impl UploaderHandle {
    /// Hands over the next entries of a Standard lane, `upto` the last of them.
    pub fn standard(&self, shard: ShardId, upto: Lsn, parcel: Parcel) {
        self.ask(Ask::Standard(shard, upto, parcel));
    }

    /// Hands over the next entries of a head log: those from `span.0` to before `span.1`, where the span before ended.
    pub fn settle(&self, shard: ShardId, log: LogId, span: (Lsn, Lsn), parcel: Parcel) {
        self.ask(Ask::Settle((shard, log), span, parcel));
    }

    /// Commits what was handed over so far without waiting for more.
    pub fn flush(&self) {
        self.ask(Ask::Flush);
    }

    /// Waits until all that was handed over is committed, and its chunks were taken.
    ///
    /// # Errors
    /// [`ChannelError`] when it never will be: another has taken over, or nobody takes the chunks.
    pub async fn finish(&self) -> Result<(), ChannelError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Finish(answer));
        answered.await.map_err(|_| self.channel.why_ended())
    }

    /// Why the store commits nothing now; `None` while it does.
    #[must_use]
    pub fn stall(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.stall.clone()
    }

    fn ask(&self, ask: Ask) {
        // Refused only by an uploader that has ended: what is handed over then is never committed, and nobody is told that it is.
        self.asks.send(ask).ok();
    }
}

/// Puts chunks and says what is committed, on tasks of the runtime that it is started in.
#[derive(Debug)]
pub struct Uploader {
    channel: Channel,
    options: UploadOptions,
    uploads: Uploads,
    asked: mpsc::UnboundedReceiver<Ask>,
    out: mpsc::Sender<CommittedChunk>,
    /// Committed chunks for which `out` has no room.
    untaken: VecDeque<CommittedChunk>,
    puts: JoinSet<Ended>,
    /// Chunks whose put has ended at least once, by position.
    built: BTreeMap<u64, Arc<Built>>,
    stall: watch::Sender<Option<Arc<str>>>,
    finishing: Vec<oneshot::Sender<()>>,
    began: Instant,
    times: PutTimes,
}

/// How an attempt ended.
#[derive(Debug)]
struct Ended {
    built: Arc<Built>,
    answer: Result<Duration, PutError>,
}

/// What a turn begins with.
enum Event {
    Put(Ended),
    Ask(Option<Ask>),
    Wake,
    End,
}

impl Uploader {
    /// Starts to write the channel of an incarnation that has just joined. It ends when every handle is gone and all is
    /// committed, when nobody takes chunks, or when another has taken over ([`Channel::fenced`]): from then on nothing is
    /// told to be committed.
    #[must_use]
    pub fn start(channel: &Channel, options: UploadOptions) -> (UploaderHandle, mpsc::Receiver<CommittedChunk>) {
        let (asks, asked) = mpsc::unbounded_channel();
        let (out, committed) = mpsc::channel(UNTAKEN_MAX);
        let (stall, stalled) = watch::channel(None);
        let rules = Rules {
            chunk_bytes: options.chunk_bytes,
            in_flight: options.in_flight,
            standard_age: options.standard_age,
            settle_age: options.settle_age,
            stall_after: options.stall_after,
            puts_per_second_max: options.puts_per_second_max,
        };
        let settled_to = options.settled.iter().map(|(log, last)| (*log, last.next())).collect();
        let uploader = Self {
            channel: channel.clone(),
            options,
            uploads: Uploads::new(rules, 1, settled_to),
            asked,
            out,
            untaken: VecDeque::new(),
            puts: JoinSet::new(),
            built: BTreeMap::new(),
            stall,
            finishing: Vec::new(),
            began: Instant::now(),
            times: PutTimes::default(),
        };
        tokio::spawn(uploader.run());
        (UploaderHandle { channel: channel.clone(), asks, stall: stalled }, committed)
    }

    async fn run(mut self) {
        let channel = self.channel.clone();
        let mut fenced = Box::pin(channel.fenced());
        let mut takes_more = true;
        loop {
            self.act();
            if !takes_more && self.is_idle() {
                return;
            }
            let wake_at = self.uploads.wake_at(self.began.elapsed()).filter(|_| self.untaken.is_empty());
            let wake = sleep_until(self.began + wake_at.unwrap_or_default());
            let event = tokio::select! {
                biased;
                _ = &mut fenced => return,
                Some(ended) = self.puts.join_next() => Event::Put(ended.unwrap_or_else(|e| resume_unwind(e.into_panic()))),
                room = self.out.reserve(), if !self.untaken.is_empty() => match (room, self.untaken.pop_front()) {
                    (Ok(room), Some(chunk)) => {
                        room.send(chunk);
                        Event::Wake
                    }
                    _ => Event::End,
                },
                ask = self.asked.recv(), if takes_more => Event::Ask(ask),
                () = wake, if wake_at.is_some() => Event::Wake,
                () = self.out.closed() => Event::End,
            };
            match event {
                Event::Put(ended) => self.on_put(ended),
                Event::Ask(Some(ask)) => self.on_ask(ask),
                Event::Ask(None) => takes_more = false,
                Event::Wake => {}
                Event::End => return,
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.uploads.is_idle() && self.untaken.is_empty()
    }

    fn on_ask(&mut self, ask: Ask) {
        let now = self.began.elapsed();
        match ask {
            Ask::Standard(shard, upto, parcel) => self.uploads.on_standard((shard, upto), parcel, now),
            Ask::Settle(log, span, parcel) => self.uploads.on_settle(log, span, parcel, now),
            Ask::Flush => self.uploads.on_flush(),
            Ask::Finish(answer) => {
                self.uploads.on_flush();
                self.finishing.push(answer);
            }
        }
    }

    fn on_put(&mut self, Ended { built, answer }: Ended) {
        let chunk = built.chunk();
        self.built.insert(chunk.position, built);
        let put = match answer {
            Ok(time) => {
                self.times.note(time);
                Put::Done
            }
            Err(PutError::Failed(error)) => {
                tracing::debug!(%chunk, %error, "a chunk was not put");
                Put::Failed(error.to_string().into())
            }
            Err(PutError::Lost(how)) => return self.channel.end(how),
        };
        self.uploads.on_put(chunk.position, put, self.began.elapsed());
    }

    fn act(&mut self) {
        while self.untaken.is_empty() && !self.channel.is_fenced() {
            match self.uploads.poll(self.began.elapsed()) {
                Some(Action::Put(cut)) => self.put_first(cut),
                Some(Action::Again(position)) => self.put_again(position),
                Some(Action::Committed(means)) => self.tell(means),
                Some(Action::Stalled(why)) => drop(self.stall.send_replace(Some(why))),
                Some(Action::Unstalled) => drop(self.stall.send_replace(None)),
                None => break,
            }
        }
        if self.is_idle() {
            // Whoever waited and is gone does not need the answer.
            for answer in self.finishing.drain(..) {
                answer.send(()).ok();
            }
        }
    }

    fn tell(&mut self, Committed { position, standard, settled }: Committed) {
        let built = self.built.remove(&position).expect("a chunk that stands was built");
        hit(Point::ChunkTell);
        self.channel.on_committed(position + 1);
        let (at, bytes, footer) = (built.chunk(), built.bytes.clone(), built.footer.clone());
        // Without a receiver, the next turn ends it.
        let sent = self.out.try_send(CommittedChunk { at, bytes, footer, standard, settled });
        if let Err(mpsc::error::TrySendError::Full(chunk)) = sent {
            self.untaken.push_back(chunk);
        }
    }

    fn put_first(&mut self, cut: Cut) {
        let header = ObjectHeader {
            kind: ObjectKind::Chunk,
            cluster: self.channel.cluster(),
            star: self.channel.star(),
            incarnation: self.channel.incarnation(),
            position: cut.position,
            slot: Slot::new(0).expect("slot 0 is one"),
            created_ms: unix_ms(),
        };
        let (store, attempt) = (Arc::clone(self.channel.store()), self.attempt());
        self.puts.spawn(async move {
            let built = Arc::new(Built::of(cut, header).await);
            let answer = built.put(&store, attempt).await;
            Ended { built, answer }
        });
    }

    fn put_again(&mut self, position: u64) {
        let built = Arc::clone(self.built.get(&position).expect("a chunk is put again once its first put has ended"));
        let (store, attempt) = (Arc::clone(self.channel.store()), self.attempt());
        self.puts.spawn(async move {
            let answer = built.put(&store, attempt).await;
            Ended { built, answer }
        });
    }

    fn attempt(&self) -> Attempt {
        let hedge_after = self.options.hedge.then(|| self.times.late_after()).flatten();
        Attempt { timeout: self.options.put_timeout, hedge_after }
    }
}

#[cfg(test)]
mod tests;
