//! How do records become server-sent events, and how long does a reader get them?
//!
//! An event a record, its id the sequence number, so that `Last-Event-ID` names the last record that arrived. An event
//! `error` tells why no more comes, an event `end` that all that was asked for is there.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use client::json::{Coding, write_json};
use client::{Address, ReadOptions, Record, SeqNum};
use futures_util::stream;
use http::header::{CACHE_CONTROL, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use tokio::time::timeout;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::answer::fresh;
use super::bounds::{CATCH_UP_BYTES, HEARTBEAT};
use super::budget::{Hold, held};
use super::failure::HttpRefusal;
use super::feed::{Found, Reader, Round};
use super::gateway::Gateway;
use super::read::{refuse, unreadable};
use super::route::{Ask, EVENTS, Outcome};
use crate::surface::Draining;

/// Told to the client first: when to come back after its connection broke, in milliseconds.
const OPENING: &str = "retry: 1000\n\n";
const BEAT: &str = ": heartbeat\n\n";
const END: &str = "event: end\ndata: {}\n\n";

/// The events of these records.
///
/// # Errors
/// `invalid` for a record that is not UTF-8 and was to be.
pub(super) fn encode(records: &[Record], coding: Coding) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    for record in records {
        out.extend_from_slice(format!("id: {}\ndata: ", record.seq_num).as_bytes());
        write_json(record, coding, &mut out).map_err(|error| unreadable(&error))?;
        out.extend_from_slice(b"\n\n");
    }
    Ok(out)
}

/// A subscription of one client.
#[derive(Debug)]
struct Follower {
    gateway: Arc<Gateway>,
    address: Address,
    reader: Reader,
    draining: Draining,
    coding: Coding,
    request_id: String,
    next: SeqNum,
    /// Records still to come.
    left: u64,
    /// What was read for it alone.
    own: Option<(Vec<Record>, Hold)>,
    is_over: bool,
}

/// Answers with events from the start that is asked for on.
pub(super) async fn subscribe(ask: Ask) -> Outcome {
    refuse(&ask, &["until_ms", "max_bytes", "wait_ms"], "reads, not with subscriptions")?;
    let address = ask.address()?;
    let mut options = super::read::options(&ask)?;
    if let Some(id) = ask.header("last-event-id").filter(|id| !id.is_empty()) {
        let last: u64 = id.parse().map_err(|_| {
            HttpRefusal::invalid(format!(
                "Last-Event-ID is '{id}': it is the sequence number of the last record that arrived"
            ))
        })?;
        // Whoever comes back must hear of what is gone meanwhile, unless it said that it doesn't care.
        let clamp = ask.query.flag("clamp");
        options = ReadOptions { start: client::Start::SeqNum(SeqNum::new(last.saturating_add(1))), clamp, ..options };
    }
    let left = ask.query.count("limit").filter(|limit| *limit > 0).unwrap_or(u64::MAX);
    let reader = ask.gateway.feeds.join(&address).await?;
    let first = ReadOptions { max_bytes: CATCH_UP_BYTES, limit: 0, until_ms: None, ..options };
    let hold = ask.gateway.budget.hold(CATCH_UP_BYTES as usize, HEARTBEAT).await?;
    let page = ask.client().read(&address, first).await?;
    if page.stream_id.is_some_and(|id| id != reader.stream_id()) {
        return Err(HttpRefusal::from(made_again(&address)));
    }
    let follower = Follower {
        address,
        draining: ask.gateway.draining(),
        coding: ask.coding(),
        request_id: ask.gateway.request_id(&ask.parts.headers),
        next: page.start,
        left,
        own: Some((page.records, hold)),
        is_over: false,
        gateway: ask.gateway,
        reader,
    };
    Ok(response(follower))
}

fn response(follower: Follower) -> Response<Body> {
    let opening = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from_static(OPENING.as_bytes()))]);
    let events = stream::unfold(follower, |mut follower| async move {
        let chunk = follower.chunk().await?;
        Some((Ok(chunk), follower))
    });
    let body = Body::from_stream(futures_util::StreamExt::chain(opening, events));
    let mut response = fresh(StatusCode::OK, EVENTS, body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

fn made_again(address: &Address) -> Refusal {
    Refusal::new(Reason::NotFound, format!("{address} was deleted and made again meanwhile"))
}

/// What comes of a look at the feed.
enum Step {
    /// These bytes go out.
    Out(Bytes),
    /// It is worth another look.
    Look,
    /// The server stops.
    Stop,
}

impl Follower {
    /// What goes out next; none at the end.
    async fn chunk(&mut self) -> Option<Bytes> {
        if self.is_over || self.draining.has_begun() {
            return None;
        }
        if self.left == 0 {
            self.is_over = true;
            return Some(Bytes::from_static(END.as_bytes()));
        }
        match self.events().await {
            Ok(bytes) => bytes,
            Err(failure) => {
                self.is_over = true;
                let body = failure.body(&self.request_id);
                Some(Bytes::from(format!("event: error\ndata: {body}\n\n")))
            }
        }
    }

    /// Waits for records; none when the server stops, which a client takes for a broken connection and comes back.
    async fn events(&mut self) -> Result<Option<Bytes>, HttpRefusal> {
        loop {
            if let Some((records, hold)) = self.own.take().filter(|(records, _)| !records.is_empty()) {
                return self.take(&records, hold).map(Some);
            }
            let step = match self.reader.find(self.next) {
                Found::Round(round) => self.of_round(&round)?,
                Found::Behind => self.catch_up().await?,
                Found::Ended(error) => return Err(error.into()),
                Found::Nothing => self.wait().await,
            };
            match step {
                Step::Out(bytes) => return Ok(Some(bytes)),
                Step::Look => {}
                Step::Stop => return Ok(None),
            }
        }
    }

    fn of_round(&mut self, round: &Round) -> Result<Step, HttpRefusal> {
        let records = round.records_from(self.next);
        if records.is_empty() {
            // A gap ends the round.
            self.next = round.end;
            return Ok(Step::Look);
        }
        if self.next > round.start || (records.len() as u64) > self.left {
            return self.take(records, Hold::default()).map(Step::Out);
        }
        self.left -= records.len() as u64;
        self.next = round.end;
        Ok(Step::Out(round.events(self.coding)?))
    }

    async fn catch_up(&mut self) -> Result<Step, HttpRefusal> {
        let room = self.gateway.budget.hold(CATCH_UP_BYTES as usize, HEARTBEAT).await;
        match room {
            Ok(hold) => self.read(hold).await.map(|()| Step::Look),
            Err(_full) => Ok(Step::Out(Bytes::from_static(BEAT.as_bytes()))),
        }
    }

    async fn wait(&mut self) -> Step {
        tokio::select! {
            woken = timeout(HEARTBEAT, self.reader.more()) => match woken {
                Ok(()) => Step::Look,
                Err(_) => Step::Out(Bytes::from_static(BEAT.as_bytes())),
            },
            _ = self.draining.begun() => Step::Stop,
        }
    }

    /// The events of those of `records` that are still asked for.
    fn take(&mut self, records: &[Record], hold: Hold) -> Result<Bytes, HttpRefusal> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(records.len());
        let records = &records[..wanted];
        self.left -= wanted as u64;
        if let Some(last) = records.last() {
            self.next = last.seq_num.next();
        }
        Ok(held(encode(records, self.coding)?, hold))
    }

    /// Reads what the feed has let go of.
    async fn read(&mut self, hold: Hold) -> Result<(), HttpRefusal> {
        let options = ReadOptions::from(self.next.get()).max_bytes(CATCH_UP_BYTES);
        let page = self.gateway.client.read(&self.address, options).await?;
        if let Some(error) = self.reader.ended().filter(|error| error.reason() == Reason::NotFound) {
            return Err(error.into());
        }
        if page.stream_id.is_some_and(|id| id != self.reader.stream_id()) {
            return Err(HttpRefusal::from(made_again(&self.address)));
        }
        // Where there is a gap, the next record lies behind it.
        self.next = page.records.first().map_or(page.end, |record| record.seq_num);
        self.own = Some((page.records, hold));
        Ok(())
    }
}
