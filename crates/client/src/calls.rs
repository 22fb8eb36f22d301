//! The connection that all calls to one star share: many in flight, each answered by its correlation id.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use wire::frame::Kind;
use wire::message::GoAway;

use crate::link::{Broken, Inbound, Link};

/// Calls in flight on one connection; the next ones wait.
const IN_FLIGHT_MAX: usize = 4096;
/// Calls that wait for the connection's task; the next ones wait to be let in.
const QUEUE_MAX: usize = 256;

/// A call that the connection couldn't finish.
#[derive(Debug, Clone)]
pub(crate) struct Lost {
    /// Whether the star may have got it.
    pub(crate) maybe_sent: bool,
    pub(crate) why: String,
}

impl Lost {
    fn unsent() -> Self {
        let why = "the connection is going away".to_owned();
        Self { maybe_sent: false, why }
    }
}

#[derive(Debug)]
struct Call {
    correlation: u64,
    frame: Bytes,
    answer: oneshot::Sender<Result<Inbound, Lost>>,
}

/// The way to a shared connection; it ends when the last one is dropped and all calls are answered.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    queue: mpsc::Sender<Call>,
}

impl Calls {
    /// Runs a connection on the current runtime.
    pub(crate) fn over(link: Link) -> Self {
        let (queue, calls) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(serve(link, calls));
        Self { queue }
    }

    /// Whether it takes no more calls.
    pub(crate) fn is_gone(&self) -> bool {
        self.queue.is_closed()
    }

    /// Sends a request and waits for its answer, for as long as the connection lives.
    pub(crate) async fn call(&self, correlation: u64, frame: Bytes) -> Result<Inbound, Lost> {
        let (answer, answered) = oneshot::channel();
        let call = Call { correlation, frame, answer };
        self.queue.send(call).await.map_err(|_| Lost::unsent())?;
        answered.await.unwrap_or_else(|_| {
            let why = "the runtime that the connection ran on is gone".to_owned();
            Err(Lost { maybe_sent: true, why })
        })
    }
}

#[derive(Debug, Default)]
struct Pending {
    calls: HashMap<u64, oneshot::Sender<Result<Inbound, Lost>>>,
    /// Where callers that gave up are looked for next.
    sweep_at: usize,
}

impl Pending {
    fn add(&mut self, call: Call, link: &mut Link) {
        link.send(call.frame);
        if self.calls.len() >= self.sweep_at {
            self.sweep();
        }
        self.calls.insert(call.correlation, call.answer);
    }

    fn sweep(&mut self) {
        self.calls.retain(|_, answer| !answer.is_closed());
        self.sweep_at = (self.calls.len() * 2).max(64);
    }
}

async fn serve(mut link: Link, mut queue: mpsc::Receiver<Call>) {
    let mut pending = Pending::default();
    let mut open = true;
    let broken = loop {
        if !open {
            pending.sweep();
            if pending.calls.is_empty() {
                return;
            }
        }
        tokio::select! {
            biased;
            frame = link.next() => match frame.and_then(|frame| on_frame(frame, &mut pending)) {
                Ok(Heard::Answer) => {}
                Ok(Heard::GoAway) => {
                    turn_away(&mut queue).await;
                    open = false;
                }
                Err(broken) => break broken,
            },
            call = queue.recv(), if open && pending.calls.len() < IN_FLIGHT_MAX => match call {
                Some(call) => {
                    pending.add(call, &mut link);
                    while pending.calls.len() < IN_FLIGHT_MAX && let Ok(call) = queue.try_recv() {
                        pending.add(call, &mut link);
                    }
                }
                None => open = false,
            },
        }
    };
    tracing::debug!(addr = link.addr(), %broken, "a connection for calls broke");
    let why = format!("the connection to {} broke: {broken}", link.addr());
    for (_, answer) in pending.calls {
        let _ = answer.send(Err(Lost { maybe_sent: true, why: why.clone() }));
    }
    turn_away(&mut queue).await;
}

/// Takes no more calls, and gives those that wait back to their callers, who take them elsewhere.
async fn turn_away(queue: &mut mpsc::Receiver<Call>) {
    queue.close();
    while let Some(call) = queue.recv().await {
        let _ = call.answer.send(Err(Lost::unsent()));
    }
}

enum Heard {
    Answer,
    GoAway,
}

fn on_frame(frame: Inbound, pending: &mut Pending) -> Result<Heard, Broken> {
    if frame.kind == Kind::GoAway {
        let GoAway { why } = frame.message()?;
        tracing::debug!(why, "asked to go away");
        return Ok(Heard::GoAway);
    }
    match pending.calls.remove(&frame.correlation) {
        // A caller that gave up is not there to take its answer.
        Some(answer) => drop(answer.send(Ok(frame))),
        None => tracing::debug!(kind = ?frame.kind, "an answer that nobody waits for"),
    }
    Ok(Heard::Answer)
}
