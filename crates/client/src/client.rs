//! The client itself, and how a call finds a star and its answer.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use wire::frame::Kind;
use wire::message::{Message, Refused};
use wire::reason::Reason;

use crate::calls::{Calls, Lost};
use crate::error::{Error, Result};
use crate::http::Plane;
use crate::http::verbs::Http;
use crate::link::{Inbound, Link, framed};
use crate::options::{Options, Spoken, stars};
use crate::search::Search;

/// Shared connections that are remembered before those that went away are forgotten.
const SLOTS_SWEEP: usize = 64;

/// A client of one cluster: cheap to clone, safe to share, one a process is enough.
///
/// All calls share one connection a star; each [`Producer`](crate::Producer) and each
/// [`Subscription`](crate::Subscription) has one of its own. Connections are made when they are first needed, on the tokio
/// runtime that the call runs on, of any flavour.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("stars", &self.inner.stars).finish_non_exhaustive()
    }
}

/// What all clones of a client share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) stars: Vec<String>,
    /// There when the stars are spoken to over HTTP.
    pub(crate) plane: Option<Arc<Plane>>,
    /// Which of the stars is tried first.
    pub(crate) star_at: AtomicUsize,
    correlation: AtomicU64,
    slots: std::sync::Mutex<HashMap<String, Arc<Slot>>>,
}

/// The shared connection to one star; its lock is held while it is made, so that it is made once.
#[derive(Debug, Default)]
struct Slot(tokio::sync::Mutex<SlotState>);

#[derive(Debug, Default)]
struct SlotState {
    calls: Option<Calls>,
    /// The last attempt to connect that failed, for all who waited for it.
    failed: Option<(Instant, Error)>,
}

/// What it means to send a request twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// Nothing: it only asks.
    Asks,
    /// The same as once.
    Idempotent,
    /// Something else, so it is sent at most once.
    Never,
}

impl Client {
    /// A client of the stars at these addresses. Connects to nothing yet.
    ///
    /// # Errors
    /// `invalid` for an address that is none, an unknown scheme, a list of both kinds, and for `https://` where this system
    /// has no roots to trust.
    pub fn new(options: Options) -> Result<Self> {
        let (spoken, stars) = stars(&options.addrs)?;
        let plane = match spoken {
            Spoken::Wire => None,
            Spoken::Http => Some(Arc::new(Plane::new(&stars, &options)?)),
        };
        let inner = Inner {
            options,
            stars,
            plane,
            star_at: AtomicUsize::new(0),
            correlation: AtomicU64::new(1),
            slots: std::sync::Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The calls over HTTP, when the stars are spoken to over it.
    pub(crate) fn http(&self) -> Option<Http<'_>> {
        self.inner.plane.as_deref().map(|plane| Http { client: self, plane })
    }

    /// Sends a request and decodes its one kind of answer.
    pub(crate) async fn ask<Q: Message, A: Message>(&self, request: &Q, again: Again) -> Result<A> {
        let answer = self.call(again, A::KIND, |correlation| framed(correlation, request)).await?;
        A::get(&answer.head).map_err(|refusal| {
            let message = format!("the star's answer doesn't validate: {}", refusal.message);
            outcome_unknown(again, Reason::Internal, message)
        })
    }

    /// Sends a frame and waits for an answer of kind `due`, within the request timeout.
    pub(crate) async fn call(&self, again: Again, due: Kind, frame: impl Fn(u64) -> Bytes) -> Result<Inbound> {
        let timeout = self.inner.options.request_timeout;
        let by = Instant::now() + timeout;
        let mut sent = false;
        let attempts = self.attempts(again, due, frame, &mut sent);
        match timeout_at(by, attempts).await {
            Ok(answer) => answer,
            Err(_) => {
                let message = format!("no answer within {} ms", timeout.as_millis());
                let again = if sent { again } else { Again::Asks };
                Err(outcome_unknown(again, Reason::DeadlineExceeded, message))
            }
        }
    }

    async fn attempts(
        &self,
        again: Again,
        due: Kind,
        frame: impl Fn(u64) -> Bytes,
        sent: &mut bool,
    ) -> Result<Inbound> {
        let options = &self.inner.options;
        let mut connecting = Search::new(&self.inner, options.connect_budget);
        let mut asking = Search::new(&self.inner, options.request_timeout);
        loop {
            let target = connecting.target();
            let calls = match self.inner.calls_to(&target).await {
                Ok(calls) => calls,
                Err(error) if error.retryable() => {
                    connecting.missed(error).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let correlation = self.inner.next_correlation();
            *sent = true;
            let error = match calls.call(correlation, frame(correlation)).await {
                Ok(answer) if answer.kind == due => return Ok(answer),
                Ok(answer) => refused(&answer, again)?,
                Err(Lost { maybe_sent: false, .. }) => {
                    *sent = false;
                    continue;
                }
                Err(Lost { why, .. }) => outcome_unknown(again, Reason::Unavailable, why),
            };
            if error.leader().is_some() {
                *sent = false;
                connecting.missed(error).await?;
            } else if again != Again::Never && error.reason() == Reason::Unavailable {
                asking.missed(error).await?;
            } else {
                return Err(error);
            }
        }
    }
}

/// A request that was sent and not answered as it should be.
pub(crate) fn outcome_unknown(again: Again, reason: Reason, message: String) -> Error {
    match again {
        Again::Asks => Error::harmless(reason, message),
        Again::Idempotent | Again::Never => Error::ambiguous(reason, message),
    }
}

/// The error of an answer that is not the one that was due: `Ok` when it is a refusal.
fn refused(answer: &Inbound, again: Again) -> Result<Error> {
    let refused: Refused =
        answer.message().map_err(|broken| outcome_unknown(again, Reason::Internal, broken.to_string()))?;
    Ok(Error::refused(refused.refusal, false))
}

impl Inner {
    pub(crate) fn next_correlation(&self) -> u64 {
        self.correlation.fetch_add(1, Ordering::Relaxed)
    }

    fn slot(&self, target: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if slots.len() >= SLOTS_SWEEP {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.is_live());
        }
        Arc::clone(slots.entry(target.to_owned()).or_default())
    }

    async fn calls_to(&self, target: &str) -> Result<Calls> {
        let waits_since = Instant::now();
        let slot = self.slot(target);
        let mut state = slot.0.lock().await;
        if let Some(calls) = state.calls.as_ref().filter(|calls| !calls.is_gone()) {
            return Ok(calls.clone());
        }
        if let Some((at, error)) = &state.failed
            && *at >= waits_since
        {
            return Err(error.clone());
        }
        match Link::dial(target, &self.options).await {
            Ok(link) => {
                let calls = Calls::over(link);
                *state = SlotState { calls: Some(calls.clone()), failed: None };
                Ok(calls)
            }
            Err(error) => {
                *state = SlotState { calls: None, failed: Some((Instant::now(), error.clone())) };
                Err(error)
            }
        }
    }
}

impl Slot {
    fn is_live(&self) -> bool {
        self.0.try_lock().is_ok_and(|state| state.calls.as_ref().is_some_and(|calls| !calls.is_gone()))
    }
}

#[cfg(test)]
mod tests;
