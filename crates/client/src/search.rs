//! Which star to try next, how long to wait before, and when to stop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use wire::frame::Kind;
use wire::message::{Message, Refused};
use wire::reason::Reason;

use crate::client::Inner;
use crate::error::{Error, Result};
use crate::link::{Broken, Link, framed};

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pointers to a leader that are followed in a row before it is time to pause.
const HOPS_MAX: u32 = 4;

/// A search for a star that takes a request: one a call, one a broken session until it makes progress again.
#[derive(Debug)]
pub(crate) struct Search {
    inner: Arc<Inner>,
    leader: Option<String>,
    hops: u32,
    missed: usize,
    pause: Duration,
    until: Instant,
}

impl Search {
    /// A search that gives up after `budget`, though not before it tried each address once.
    pub(crate) fn new(inner: &Arc<Inner>, budget: Duration) -> Self {
        Self {
            inner: Arc::clone(inner),
            leader: None,
            hops: 0,
            missed: 0,
            pause: PAUSE_MIN,
            until: Instant::now() + budget,
        }
    }

    /// The star to try.
    pub(crate) fn target(&self) -> String {
        let stars = &self.inner.stars;
        let at = self.inner.star_at.load(Ordering::Relaxed) % stars.len();
        self.leader.clone().unwrap_or_else(|| stars[at].clone())
    }

    /// When an attempt of a search that must end in time is given up.
    pub(crate) fn attempt_by(&self) -> Instant {
        let now = Instant::now();
        self.until.clamp(now + PAUSE_MAX, now + self.inner.options.request_timeout.max(PAUSE_MAX))
    }

    /// Notes that the target didn't take the request: answers when the next one may be tried.
    ///
    /// # Errors
    /// `error`, when the search is over.
    pub(crate) async fn missed(&mut self, error: Error) -> Result<()> {
        if let Some(leader) = error.leader() {
            tracing::debug!(leader, "following to the leader");
            self.leader = Some(leader.to_owned());
            self.hops += 1;
            if self.hops <= HOPS_MAX {
                return Ok(());
            }
            self.hops = 0;
        } else if self.leader.take().is_none() {
            self.inner.star_at.fetch_add(1, Ordering::Relaxed);
            self.missed += 1;
            if self.missed < self.inner.stars.len() {
                return Ok(());
            }
        }
        let pause = error.retry_after().unwrap_or_else(|| jittered(self.pause));
        if Instant::now() + pause >= self.until {
            return Err(error);
        }
        tracing::debug!(%error, pause_ms = pause.as_millis(), "trying again");
        sleep(pause).await;
        self.missed = 0;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}

/// Opens a connection for one session or subscription: the request is the first on it, so that the star may hand the
/// connection over to the shard that owns the stream.
pub(crate) async fn open<Q: Message, A: Message>(
    inner: &Inner,
    target: &str,
    request: &Q,
    by: Instant,
) -> Result<(Link, A)> {
    let mut link = Link::dial(target, &inner.options).await?;
    link.send(framed(inner.next_correlation(), request));
    let kind = Q::KIND;
    let broken = |broken: Broken| Error::harmless(Reason::Unavailable, format!("{target}: {broken}"));
    let late = |_| Error::harmless(Reason::DeadlineExceeded, format!("{target} doesn't answer: {kind:?}"));
    let answer = timeout_at(by, link.next()).await.map_err(late)?.map_err(broken)?;
    if answer.kind == Kind::Refused {
        let refused: Refused = answer.message().map_err(broken)?;
        return Err(Error::refused(refused.refusal, false));
    }
    let answer = answer.message().map_err(broken)?;
    Ok((link, answer))
}

/// As [`open`], on the first star that takes it within the connect budget.
pub(crate) async fn open_anywhere<Q: Message, A: Message>(inner: &Arc<Inner>, request: &Q) -> Result<(Link, A)> {
    let mut search = Search::new(inner, inner.options.connect_budget);
    loop {
        let by = Instant::now() + inner.options.request_timeout;
        match open(inner, &search.target(), request, by).await {
            Ok(opened) => return Ok(opened),
            Err(error) if error.leader().is_some() || error.reason() == Reason::Unavailable => {
                search.missed(error).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether what could not be taken up again now may be later. What is invalid was taken when it was opened, so that it was
/// damaged on its way.
pub(crate) fn may_pass(error: &Error) -> bool {
    error.retryable() || error.reason() == Reason::Invalid
}

/// The error of a session or subscription that ran out of its budget.
pub(crate) fn spent(last: Error) -> Error {
    let message = format!("the retry budget is spent; at last: {}", last.message());
    Error::harmless(Reason::Unavailable, message)
}

/// Between half of the pause and all of it, so that clients that broke together don't come back together.
fn jittered(pause: Duration) -> Duration {
    let share = getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX));
    pause.mul_f64(0.5 + share / 2.0)
}
