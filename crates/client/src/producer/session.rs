//! The task that holds a producer's connection: it sends, takes answers, and comes back when the connection breaks.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use wire::frame::Kind;
use wire::hot::walk_acks;
use wire::ids::ProducerId;
use wire::message::{AppendRefused, Close, GoAway, Open, Opened, Refused, SessionEnded};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::ProducerOptions;
use super::stage::{Due, Shared};
use super::window::Window;
use crate::client::Inner;
use crate::error::{Error, Result};
use crate::link::{Broken, Inbound, Link, framed};
use crate::search::{Search, may_pass, open, open_anywhere, spent};

/// A connection that held for so long is taken for a good one, though nothing was answered over it.
const GOOD_AFTER: Duration = Duration::from_secs(1);

/// Why a connection's part of a session is over.
enum Halt {
    /// The producer is closed and all is answered.
    Closed,
    /// For good.
    Ended(Error),
    /// The connection broke: what is unacked may have landed.
    Broken(Broken),
    /// The star gave the session up in order, or nothing was in flight: what is unacked was not appended.
    HandedOff(Error),
}

impl From<Broken> for Halt {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

struct Session {
    inner: Arc<Inner>,
    shared: Arc<Shared>,
    /// What it opens with; the stream that it is bound to stands in `resume`.
    open: Open,
    link: Link,
    linked_at: Instant,
    /// The session's handle on this connection.
    handle: u32,
    window: Window,
    /// Whether anything was answered on this connection.
    progressed: bool,
    /// The star asked to go: nothing more is sent here.
    leaving: bool,
    /// The correlation of the close that was sent.
    closing: Option<u64>,
    retry_budget: Duration,
}

/// Opens a session and leaves it to a task of its own.
pub(super) async fn start(
    inner: &Arc<Inner>,
    address: &wire::names::Address,
    options: ProducerOptions,
) -> Result<(Arc<Shared>, Opened)> {
    let mut request = Open {
        address: address.clone(),
        producer: random_id()?,
        fencing_token: options.fencing_token.clone(),
        resume: None,
    };
    let (link, opened): (_, Opened) = open_anywhere(inner, &request).await?;
    request.resume = Some(opened.stream_id);
    let shared = Shared::new(&options);
    let mut window = Window::new();
    window.on_opened(opened.window);
    let session = Session {
        inner: Arc::clone(inner),
        shared: Arc::clone(&shared),
        open: request,
        link,
        linked_at: Instant::now(),
        handle: opened.session,
        window,
        progressed: false,
        leaving: false,
        closing: None,
        retry_budget: options.retry_budget.unwrap_or(inner.options.retry_budget),
    };
    tokio::spawn(session.run());
    Ok((shared, opened))
}

/// A producer's own random number.
fn random_id() -> Result<ProducerId> {
    let failed = |error| {
        let message = format!("the system gives no random numbers: {error}");
        Error::harmless(Reason::Internal, message)
    };
    Ok(ProducerId::new(getrandom::u64().map_err(failed)?.max(1)))
}

impl Drop for Session {
    /// A runtime that is shut down drops its tasks where they stand; nobody may wait for one that is gone.
    fn drop(&mut self) {
        let message = "the runtime that the producer ran on is gone";
        self.shared.end(Some(Error::harmless(Reason::Unavailable, message)));
    }
}

impl Session {
    async fn run(mut self) {
        let mut search = None;
        loop {
            let halt = self.serve().await;
            if self.progressed || self.linked_at.elapsed() >= GOOD_AFTER {
                search = None;
            }
            let error = match halt {
                Halt::Closed => return self.shared.end(None),
                Halt::Ended(error) => return self.end(&error),
                Halt::Broken(broken) => {
                    self.window.on_broken(self.link.begun());
                    let message = format!("the connection to {} broke: {broken}", self.link.addr());
                    Error::harmless(Reason::Unavailable, message)
                }
                Halt::HandedOff(error) => {
                    self.window.on_handed_off();
                    error
                }
            };
            tracing::debug!(address = %self.open.address, %error, "a producer reconnects");
            let fresh = search.is_none();
            let search = search.get_or_insert_with(|| Search::new(&self.inner, self.retry_budget));
            if let Err(error) = self.resume(search, error, fresh).await {
                return self.end(&error);
            }
        }
    }

    fn end(&mut self, error: &Error) {
        self.window.fail(error);
        // A close that finds the role gone has nothing to give up.
        let inert = self.closing.is_some();
        self.shared.end((!inert).then(|| error.clone()));
    }

    /// Opens again under the same id, as long as the search goes on.
    async fn resume(&mut self, search: &mut Search, error: Error, fresh: bool) -> Result<()> {
        let mut error = Some(error).filter(|error| !fresh || error.leader().is_some());
        loop {
            if let Some(error) = error.take() {
                search.missed(error).await.map_err(spent)?;
            }
            match open(&self.inner, &search.target(), &self.open, search.attempt_by()).await {
                Ok((_, Opened { stream_id, .. })) if Some(stream_id) != self.open.resume => {
                    let message = format!("the stream at {} was deleted and made again", self.open.address);
                    return Err(Error::harmless(Reason::NotFound, message));
                }
                Ok((link, opened)) => {
                    self.link = link;
                    self.linked_at = Instant::now();
                    self.handle = opened.session;
                    self.window.on_opened(opened.window);
                    self.progressed = false;
                    self.leaving = false;
                    self.closing = None;
                    return Ok(());
                }
                Err(failed) if may_pass(&failed) => error = Some(failed),
                Err(failed) => return Err(failed),
            }
        }
    }

    /// Sends and takes answers until the connection is of no more use.
    async fn serve(&mut self) -> Halt {
        loop {
            let lingers_until = self.pump();
            if let Err(halt) = self.finish() {
                return halt;
            }
            let heard = tokio::select! {
                biased;
                frame = self.link.next() => frame.map_err(Halt::from).and_then(|frame| self.on_frames(frame)),
                () = self.shared.wake.notified() => Ok(()),
                () = sleep_until(lingers_until.unwrap_or_else(Instant::now)), if lingers_until.is_some() => Ok(()),
            };
            if let Err(halt) = heard {
                return halt;
            }
        }
    }

    /// Fills the window; answers when a batch that lingers is due.
    fn pump(&mut self) -> Option<Instant> {
        if self.leaving || self.closing.is_some() {
            return None;
        }
        let Self { link, window, shared, handle, .. } = self;
        loop {
            while window.send_next(*handle, |frame| link.send(frame)) {}
            if !window.has_room() {
                return None;
            }
            match shared.take() {
                Due::Batch(staged) => shared.give_back(window.push(*handle, staged)),
                Due::At(until) => return Some(until),
                Due::Nothing => return None,
            }
        }
    }

    /// Leaves when it is asked to and nothing is in flight; closes when all is answered.
    fn finish(&mut self) -> Result<(), Halt> {
        if self.leaving && self.window.is_quiet() {
            let message = "the star asked to reconnect";
            return Err(Halt::HandedOff(Error::harmless(Reason::Unavailable, message)));
        }
        let (closing, nothing_staged) = self.shared.is_closing();
        if closing && nothing_staged && self.window.is_empty() && self.closing.is_none() {
            let correlation = self.inner.next_correlation();
            self.link.send(framed(correlation, &Close { session: self.handle }));
            self.closing = Some(correlation);
        }
        Ok(())
    }

    /// Takes a frame, and those that came with it.
    fn on_frames(&mut self, frame: Inbound) -> Result<(), Halt> {
        self.on_frame(&frame)?;
        while let Some(frame) = self.link.buffered()? {
            self.on_frame(&frame)?;
        }
        Ok(())
    }

    fn on_frame(&mut self, frame: &Inbound) -> Result<(), Halt> {
        match frame.kind {
            Kind::Acks => self.on_acks(frame)?,
            Kind::AppendRefused => {
                let AppendRefused { session, no, refusal } = frame.message()?;
                self.expect(session)?;
                let ends = self.window.on_refused(no, refusal).map_err(Broken::protocol)?;
                self.progressed = true;
                if let Some(error) = ends {
                    return Err(Halt::Ended(error));
                }
            }
            Kind::SessionEnded => {
                let SessionEnded { session, refusal } = frame.message()?;
                self.expect(session)?;
                return Err(ended(refusal));
            }
            Kind::GoAway => {
                let GoAway { why } = frame.message()?;
                tracing::debug!(why, "asked to go away");
                self.leaving = true;
            }
            Kind::Done if self.closing == Some(frame.correlation) => return Err(Halt::Closed),
            Kind::Refused if self.closing == Some(frame.correlation) => return Err(Halt::Closed),
            Kind::Refused => {
                let Refused { refusal } = frame.message()?;
                return Err(Broken::Refused(refusal).into());
            }
            kind => tracing::debug!(?kind, "a frame that a session doesn't expect"),
        }
        Ok(())
    }

    fn on_acks(&mut self, frame: &Inbound) -> Result<(), Broken> {
        let mut fault = Ok(());
        let (window, handle) = (&mut self.window, self.handle);
        walk_acks(&frame.head, |group, ack| {
            if fault.is_ok() {
                fault =
                    expected(group.session, handle).and_then(|()| window.on_ack(group, &ack).map_err(Broken::protocol));
            }
        })
        .map_err(Broken::protocol)?;
        self.progressed = true;
        fault
    }

    fn expect(&self, session: u32) -> Result<(), Broken> {
        expected(session, self.handle)
    }
}

fn expected(session: u32, handle: u32) -> Result<(), Broken> {
    if session == handle {
        return Ok(());
    }
    Err(Broken::protocol(format!("it answers session {session} on the connection of session {handle}")))
}

/// A session that the star ended.
fn ended(refusal: Refusal) -> Halt {
    let again = refusal.reason.retryable();
    let error = Error::refused(refusal, false);
    if again { Halt::HandedOff(error) } else { Halt::Ended(error) }
}
