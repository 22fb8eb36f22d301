//! How is a page of records read over HTTP, and waited for?

use std::time::Duration;

use client::json::{Coding, WriteError, write_json, write_page};
use client::{Address, Page, ReadOptions, SeqNum, Start};
use http::header::HeaderName;
use http::{HeaderValue, StatusCode};
use tokio::time::{Instant, timeout_at};
use wire::limits::{READ_PAGE_BYTES_MAX, READ_PAGE_RECORDS_MAX};
use wire::refusal::Refusal;

use super::answer::{self, fresh};
use super::budget::{Hold, held};
use super::events;
use super::failure::HttpRefusal;
use super::feed::Found;
use super::route::{Ask, EVENTS, JSON, NDJSON, OCTETS, Outcome};

/// Longest wait for room to hold an answer.
const HOLD_WAIT_MAX: Duration = Duration::from_secs(2);

pub(super) async fn read(ask: Ask) -> Outcome {
    match ask.accepted(&[JSON, NDJSON, OCTETS, EVENTS])? {
        EVENTS => events::subscribe(ask).await,
        OCTETS => one(ask).await,
        kind => page(ask, kind).await,
    }
}

/// Refuses parameters that go with something else.
pub(super) fn refuse(ask: &Ask, names: &[&str], with: &str) -> Result<(), HttpRefusal> {
    match names.iter().find(|name| ask.query.has(name)) {
        Some(name) => Err(HttpRefusal::invalid(format!("query parameter '{name}' goes with {with}"))),
        None => Ok(()),
    }
}

/// Why a record can't be answered as it was asked for.
pub(super) fn unreadable(error: &WriteError) -> Refusal {
    Refusal::invalid(format!("{error} with encoding=base64"))
}

/// From where, and how much. What nobody said is from the first record that is there.
pub(super) fn options(ask: &Ask) -> Result<ReadOptions, HttpRefusal> {
    let query = &ask.query;
    let given: Vec<_> = ["from", "from_ms", "last"].into_iter().filter(|name| query.has(name)).collect();
    if let [first, second, ..] = given[..] {
        return Err(HttpRefusal::invalid(format!("{first} and {second} exclude each other: give one start")));
    }
    let start = match (query.count("from"), query.stamp("from_ms"), query.count("last")) {
        (_, Some(ms), _) => Start::Timestamp(ms),
        (_, _, Some(records)) => Start::Last(records),
        (from, ..) => Start::SeqNum(SeqNum::new(from.unwrap_or(0))),
    };
    Ok(ReadOptions {
        start,
        limit: query.page_bound("limit"),
        max_bytes: query.page_bound("max_bytes"),
        until_ms: query.stamp("until_ms"),
        clamp: query.flag("clamp") || given.is_empty(),
    })
}

/// A page, with what is held of the budget for it.
struct Looked {
    page: Page,
    hold: Hold,
}

async fn read_page(ask: &Ask, address: &Address, options: ReadOptions) -> Result<Looked, HttpRefusal> {
    let hold = ask.gateway.budget.hold(room_for(&options), HOLD_WAIT_MAX).await?;
    Ok(Looked { page: ask.client().read(address, options).await?, hold })
}

/// Reads, and waits for as long as it was asked to where there is nothing yet; nothing is held meanwhile.
async fn look(ask: &Ask, address: &Address, options: ReadOptions) -> Result<Looked, HttpRefusal> {
    let looked = read_page(ask, address, options).await?;
    let wait_ms = ask.query.count("wait_ms").unwrap_or(0);
    if wait_ms == 0 || !looked.page.records.is_empty() || !looked.page.at_tail {
        return Ok(looked);
    }
    let page = looked.page;
    drop(looked.hold);
    let by = Instant::now() + Duration::from_millis(wait_ms);
    let mut reader = ask.gateway.feeds.join(address).await?;
    let mut draining = ask.gateway.draining();
    loop {
        match reader.find(page.end) {
            // The feed may have begun behind the page; what is between is there to read.
            Found::Nothing if reader.end() <= page.end => {}
            Found::Ended(error) => return Err(error.into()),
            Found::Nothing | Found::Round(_) | Found::Behind => {
                return read_page(ask, address, ReadOptions { start: Start::SeqNum(page.end), ..options }).await;
            }
        }
        let woken = tokio::select! {
            woken = timeout_at(by, reader.more()) => woken.is_ok(),
            _ = draining.begun() => false,
        };
        if !woken {
            return Ok(Looked { page, hold: Hold::default() });
        }
    }
}

/// What an answer may take, in bytes, before it is known.
fn room_for(options: &ReadOptions) -> usize {
    let asked = |asked: u32, most: u32| if asked == 0 { most } else { asked.min(most) } as usize;
    asked(options.max_bytes, READ_PAGE_BYTES_MAX).min(asked(options.limit, READ_PAGE_RECORDS_MAX) << 10)
}

async fn page(ask: Ask, kind: &'static str) -> Outcome {
    let address = ask.address()?;
    let Looked { page, mut hold } = look(&ask, &address, options(&ask)?).await?;
    let out = written(&page, kind, ask.coding()).map_err(|error| HttpRefusal::from(unreadable(&error)))?;
    ask.gateway.budget.cover(&mut hold, out.len())?;
    let mut response = fresh(StatusCode::OK, kind, held(out, hold));
    if kind == NDJSON {
        tell(&page, &mut response);
    }
    Ok(response)
}

fn written(page: &Page, kind: &str, coding: Coding) -> Result<Vec<u8>, WriteError> {
    let mut out = Vec::new();
    if kind == JSON {
        write_page(page, coding, &mut out)?;
        out.push(b'\n');
        return Ok(out);
    }
    for record in &page.records {
        write_json(record, coding, &mut out)?;
        out.push(b'\n');
    }
    Ok(out)
}

/// Puts what a JSON page says beside its records into headers.
fn tell(page: &Page, response: &mut http::Response<axum::body::Body>) {
    let headers = response.headers_mut();
    let mut put = |name: &'static str, value: HeaderValue| headers.insert(HeaderName::from_static(name), value);
    put("nova-start", page.start.get().into());
    put("nova-end", page.end.get().into());
    put("nova-tail", page.tail.seq_num.get().into());
    put("nova-tail-timestamp-ms", page.tail.timestamp_ms.into());
    put("nova-trim-point", page.trim_point.get().into());
    put("nova-at-tail", HeaderValue::from_static(if page.at_tail { "true" } else { "false" }));
}

/// The body of one record as it is.
async fn one(ask: Ask) -> Outcome {
    refuse(&ask, &["encoding"], "JSON: bytes are bytes already")?;
    if let Some(limit) = ask.query.count("limit").filter(|limit| *limit != 1) {
        return Err(HttpRefusal::invalid(format!("limit is {limit}: an answer of type {OCTETS} is one record")));
    }
    let address = ask.address()?;
    let options = ReadOptions { limit: 1, ..options(&ask)? };
    let Looked { page, mut hold } = look(&ask, &address, options).await?;
    let Some(record) = page.records.first() else {
        let mut response = answer::nothing();
        tell(&page, &mut response);
        return Ok(response);
    };
    ask.gateway.budget.cover(&mut hold, record.body.len())?;
    // A copy, so that one record doesn't keep the page that it came in.
    let body = held(record.body.to_vec(), hold);
    let mut response = fresh(StatusCode::OK, OCTETS, body);
    tell(&page, &mut response);
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("nova-seq-num"), record.seq_num.get().into());
    headers.insert(HeaderName::from_static("nova-timestamp-ms"), record.timestamp_ms.into());
    Ok(response)
}
