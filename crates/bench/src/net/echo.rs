//! What does a server do that only answers?

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use futures_lite::{AsyncRead, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, Placement, PoolPlacement};
use wire::config::Class;
use wire::frame::{self, Frame, Kind, Next};
use wire::hot::{Ack, AckWriter, AppendHead};
use wire::ids::{ClusterId, Epoch, Position, SeqNum, StarId, StreamId};
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{Message, Opened, Welcome};

use crate::error::BenchError;

/// An hour: with a shorter timer glommio 0.9.0 can park while tasks are ready to run.
const PREEMPT_TIMER: Duration = Duration::from_secs(3_600);
const RING_DEPTH: usize = 512;
/// The echo touches no file, so that the executor's own buffers need little.
const IO_MEMORY_BYTES: usize = 1 << 20;
const SCRATCH_BYTES: usize = 256 << 10;
/// More than any window of a generator.
const WINDOW: u32 = 1 << 20;
const KEEPALIVE_MS: u32 = 3_600_000;

/// An echo server that runs until it is stopped.
#[derive(Debug)]
pub(super) struct Echo {
    addr: SocketAddr,
    cpu: usize,
    is_stopping: Arc<AtomicBool>,
    executor: ExecutorJoinHandle<()>,
}

impl Echo {
    /// Starts it on a CPU; it acks every batch as having so many records.
    pub(super) fn start(cpu: usize, records: u32) -> Result<Self, BenchError> {
        let refuse = |why: String| BenchError::Echo { cpu, why };
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = channel();
        let stopping = Arc::clone(&is_stopping);
        let executor = LocalExecutorBuilder::new(Placement::Fixed(cpu))
            .name("echo")
            .io_memory(IO_MEMORY_BYTES)
            .ring_depth(RING_DEPTH)
            .preempt_timer(PREEMPT_TIMER)
            .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
            .spawn(move || serve(records, stopping, sender))
            .map_err(|error| refuse(error.to_string()))?;
        match receiver.recv() {
            Ok(Ok(addr)) => Ok(Self { addr, cpu, is_stopping, executor }),
            Ok(Err(why)) => Err(refuse(why)),
            Err(_) => Err(refuse("its thread ended".to_owned())),
        }
    }

    /// Where it listens.
    pub(super) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops it; its clients have gone.
    pub(super) fn stop(self) -> Result<(), BenchError> {
        let cpu = self.cpu;
        let refuse = |why: String| BenchError::Echo { cpu, why };
        self.is_stopping.store(true, Ordering::Release);
        // An accept is never cancelled, for glommio can lose a connection that way: it gets one more instead.
        StdTcpStream::connect(self.addr).map_err(|error| refuse(error.to_string()))?;
        self.executor.join().map_err(|error| refuse(error.to_string()))
    }
}

async fn serve(records: u32, is_stopping: Arc<AtomicBool>, started: Sender<Result<SocketAddr, String>>) {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| {
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    });
    let listener = match bound {
        Ok((listener, addr)) => {
            drop(started.send(Ok(addr)));
            listener
        }
        Err(error) => {
            drop(started.send(Err(error.to_string())));
            return;
        }
    };
    let scratch = Rc::new(RefCell::new(vec![0; SCRATCH_BYTES]));
    while let Ok(stream) = listener.accept().await {
        if is_stopping.load(Ordering::Acquire) {
            return;
        }
        let scratch = Rc::clone(&scratch);
        let connection = async move {
            // A connection that breaks is the generator's to report.
            drop(talk(stream, &scratch, records).await);
        };
        glommio::spawn_local(connection).detach();
    }
}

async fn talk(mut stream: TcpStream, scratch: &RefCell<Vec<u8>>, records: u32) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut answerer = Answerer::new(records);
    let (mut inbox, mut out) = (Vec::new(), Vec::new());
    loop {
        let came = poll_fn(|context| {
            let mut scratch = scratch.borrow_mut();
            Pin::new(&mut stream)
                .poll_read(context, &mut scratch)
                .map(|read| read.map(|bytes| answerer.take(&mut inbox, &scratch[..bytes], &mut out)))
        })
        .await?;
        if !came? {
            return Ok(());
        }
        stream.write_all(&out).await?;
        out.clear();
    }
}

/// Answers the frames of one connection.
#[derive(Debug)]
struct Answerer {
    records: u32,
    /// Of each session, one past its last record.
    ends: Vec<SeqNum>,
}

impl Answerer {
    const fn new(records: u32) -> Self {
        Self { records, ends: Vec::new() }
    }

    /// Answers the whole frames among what has come; false at the end of the connection.
    fn take(&mut self, inbox: &mut Vec<u8>, came: &[u8], out: &mut Vec<u8>) -> io::Result<bool> {
        if came.is_empty() {
            return Ok(false);
        }
        if inbox.is_empty() {
            let taken = self.answer(came, out)?;
            inbox.extend_from_slice(&came[taken..]);
        } else {
            inbox.extend_from_slice(came);
            let taken = self.answer(inbox, out)?;
            inbox.drain(..taken);
        }
        Ok(true)
    }

    fn answer(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<usize> {
        let bad = |error: String| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut at = 0;
        let mut acks = Acks::default();
        loop {
            let next = frame::next(&bytes[at..], FRAME_BODY_BYTES_MAX);
            let Next::Frame(frame) = next.map_err(|error| bad(error.to_string()))? else {
                acks.end(out);
                return Ok(at);
            };
            at += frame.frame_bytes;
            if frame.kind == Kind::Append {
                let head = AppendHead::decode(frame.head).map_err(|error| bad(error.to_string()))?;
                let ack = self.ack(head).ok_or_else(|| bad(format!("session {}", head.session)))?;
                acks.put(head.session, &ack, out);
            } else {
                acks.end(out);
                self.answer_rare(&frame, out).map_err(bad)?;
            }
        }
    }

    fn ack(&mut self, head: AppendHead) -> Option<Ack> {
        let end = self.ends.get_mut(usize::try_from(head.session).ok()?)?;
        let ack = Ack { no: head.no, start: Position::new(*end, 0), records: self.records, last_ms: 0 };
        *end = ack.end().seq_num;
        Some(ack)
    }

    fn answer_rare(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        match frame.kind {
            Kind::Hello => {
                let welcome = Welcome {
                    cluster_id: ClusterId::default(),
                    star_id: StarId::default(),
                    version: "echo".to_owned(),
                    shard: 0,
                    shards: 1,
                    append_window: WINDOW,
                    keepalive_ms: KEEPALIVE_MS,
                    frame_body_bytes_max: u32::try_from(FRAME_BODY_BYTES_MAX).unwrap_or(u32::MAX),
                };
                welcome.frame(frame.correlation, out);
            }
            Kind::Open => {
                let session = u32::try_from(self.ends.len()).map_err(|error| error.to_string())?;
                self.ends.push(SeqNum::ZERO);
                let opened = Opened {
                    session,
                    stream_id: StreamId::default(),
                    slot_epoch: Epoch::ZERO,
                    tail: Position::default(),
                    window: WINDOW,
                };
                opened.frame(frame.correlation, out);
            }
            found => return Err(format!("the echo does not answer frames of kind {found:?}")),
        }
        Ok(())
    }
}

/// One frame of acks for what one read brought.
#[derive(Debug, Default)]
struct Acks {
    open: Option<(frame::Open, AckWriter, u32, Position)>,
}

impl Acks {
    fn put(&mut self, session: u32, ack: &Ack, out: &mut Vec<u8>) {
        let (frame, mut writer, before, tail) = self.open.take().unwrap_or_else(|| {
            let frame = frame::begin(out);
            let mut writer = AckWriter::new();
            writer.begin_group(session, Class::Express, out);
            (frame, writer, session, Position::default())
        });
        if before != session {
            writer.end_group(tail, out);
            writer.begin_group(session, Class::Express, out);
        }
        writer.push(ack, out);
        self.open = Some((frame, writer, session, ack.end()));
    }

    fn end(&mut self, out: &mut [u8]) {
        if let Some((frame, mut writer, _, tail)) = self.open.take() {
            writer.end_group(tail, out);
            frame.end(Kind::Acks, 0, out);
        }
    }
}
