//! How are records read: as one batch, as a session of frames, or as events?

use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use client::{Address, Record};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response, StatusCode, Version};
use serde_json::{Value, json};

use super::answer::Answer;
use super::facade::{Facade, Session};
use super::failure::{Code, Failure, Result};
use super::follow::{Event, Follow};
use super::frame::Coding;
use super::json::{self, Format};
use super::places::Place;
use super::proto::{ReadBatch, SequencedRecord};
use super::query::{From, Query, Reading};
use super::record::{METERED_BYTES_MAX, metered_record};
use super::request::{self, Form};
use super::session::{Outgoing, response};

/// Most records of one batch.
const COUNT_MAX: u64 = 1_000;
/// Longest wait for one batch.
const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(60);

impl Facade {
    /// `GET /v1/streams/{stream}/records/tail`.
    pub(super) async fn tail(&self, address: &Address, headers: &HeaderMap) -> Result<Answer> {
        let tail = self.tail_or_new(address, headers).await?;
        Ok(Answer::json(StatusCode::OK, &json!({ "tail": json::position(tail) })))
    }

    /// `GET /v1/streams/{stream}/records`.
    pub(super) async fn read(
        &self,
        address: &Address,
        query: &Query,
        headers: &HeaderMap,
        version: Version,
    ) -> Result<Answer> {
        let reading = Reading::of(query)?;
        if request::content(headers) == Some(Form::Session) {
            let place = self.place(Session::Read, version)?;
            return self.read_session(address, &reading, headers, place).await;
        }
        let format = request::format(headers)?;
        match request::accepted(headers) {
            Form::Events => {
                let place = self.place(Session::Read, version)?;
                self.events(address, reading, headers, (format, place)).await
            }
            form => self.read_at_once(address, reading, headers, (form, format)).await,
        }
    }

    async fn read_at_once(
        &self,
        address: &Address,
        mut reading: Reading,
        headers: &HeaderMap,
        (form, format): (Form, Format),
    ) -> Result<Answer> {
        reading.count = Some(reading.count.map_or(COUNT_MAX, |count| count.min(COUNT_MAX)));
        let bytes_max = METERED_BYTES_MAX as u64;
        reading.bytes = Some(reading.bytes.map_or(bytes_max, |bytes| bytes.min(bytes_max)));
        reading.wait = reading.wait.map(|wait| wait.min(WAIT_MAX));
        let (records, tail) = self.read_batch(address, &reading, headers).await?;
        Ok(match form {
            Form::Proto => Answer::proto(&batch(&records, tail)),
            _ => Answer::json(StatusCode::OK, &json::batch(&records, tail, format)),
        })
    }

    async fn read_session(
        &self,
        address: &Address,
        reading: &Reading,
        headers: &HeaderMap,
        place: Place,
    ) -> Result<Answer> {
        let follow = self.follow(address, reading, headers).await?;
        let (outgoing, body) = Outgoing::new(Coding::accepted(headers), self.draining());
        tokio::spawn(frames(follow, outgoing, place));
        Ok(Answer::Streamed(response(body)))
    }

    async fn events(
        &self,
        address: &Address,
        mut reading: Reading,
        headers: &HeaderMap,
        (format, place): (Format, Place),
    ) -> Result<Answer> {
        let last = request::last_event(headers)?;
        if let Some([seq_num, count, bytes]) = last {
            reading.from = From::SeqNum(seq_num.saturating_add(1));
            reading.count = reading.count.map(|all| all.saturating_sub(count));
            reading.bytes = reading.bytes.map(|all| all.saturating_sub(bytes));
        }
        let [_, count, bytes] = last.unwrap_or_default();
        let follow = self.follow(address, &reading, headers).await?;
        let (outgoing, body) = Outgoing::new(Coding::Plain, self.draining());
        let sent = Sent { count, bytes, format };
        tokio::spawn(send_events(follow, outgoing, sent, place));
        Ok(Answer::Streamed(event_stream(body)))
    }
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn batch(records: &[Record], tail: Option<client::Position>) -> ReadBatch {
    ReadBatch { records: records.iter().map(SequencedRecord::from).collect(), tail: tail.map(Into::into) }
}

/// Sends a read as frames until it ends, the client goes, or the server must.
async fn frames(mut follow: Follow, mut outgoing: Outgoing, place: Place) {
    let grace = outgoing.grace();
    let mut advised = false;
    loop {
        let event = tokio::select! {
            event = follow.next() => event,
            () = grace.ended() => Err(Failure::new(Code::ServerDraining, "the server is about to end: reconnect")),
            _ = grace.advised(), if !advised => {
                advised = true;
                Ok(Some(Event::Heartbeat(follow.tail())))
            }
            needed = place.asked_for() => Err(needed),
            () = outgoing.closed() => return,
        };
        match event {
            Ok(Some(Event::Heartbeat(tail))) => outgoing.put(&batch(&[], Some(tail))),
            Ok(Some(Event::Batch(records, tail))) => {
                place.heard();
                outgoing.put(&batch(&records, tail));
            }
            Ok(None) => return,
            Err(failure) => {
                outgoing.put_terminal(&failure);
                let _gone = outgoing.send().await;
                return;
            }
        }
        if !outgoing.send().await {
            return;
        }
    }
}

/// What a stream of events has sent, over all its connections.
#[derive(Debug)]
struct Sent {
    count: u64,
    bytes: u64,
    format: Format,
}

/// Sends a read as events until it ends, the client goes, or the server does.
async fn send_events(mut follow: Follow, mut outgoing: Outgoing, mut sent: Sent, place: Place) {
    let grace = outgoing.grace();
    loop {
        let event = tokio::select! {
            event = follow.next() => event,
            // The client comes back by itself, with the id of the last event.
            _ = grace.advised() => return,
            needed = place.asked_for() => Err(needed),
            () = outgoing.closed() => return,
        };
        let goes_on = matches!(event, Ok(Some(_)));
        match event {
            Ok(Some(Event::Heartbeat(tail))) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
                let now = u64::try_from(now).unwrap_or(u64::MAX);
                put_event(&mut outgoing, "ping", None, &json!({ "timestamp": now, "tail": json::position(tail) }));
            }
            Ok(Some(Event::Batch(records, tail))) => {
                place.heard();
                sent.count += records.len() as u64;
                sent.bytes += records.iter().map(|record| metered_record(record) as u64).sum::<u64>();
                let last = records.last().map_or(0, |record| record.seq_num.get());
                let id = format!("{last},{},{}", sent.count, sent.bytes);
                put_event(&mut outgoing, "batch", Some(&id), &json::batch(&records, tail, sent.format));
            }
            Ok(None) => outgoing.put_text("data: [DONE]\n\n"),
            Err(failure) => outgoing.put_text(&format!("event: error\ndata: {}\n\n", failure.body())),
        }
        if !outgoing.send().await || !goes_on {
            return;
        }
    }
}

fn put_event(outgoing: &mut Outgoing, event: &str, id: Option<&str>, data: &Value) {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    outgoing.put_text(&format!("event: {event}\n{id}data: {data}\n\n"));
}
