//! How does an HTTP request become a batch?

use std::borrow::Cow;

use bytes::Bytes;
use client::json::{Ack, Coding, RecordForm, at_most, of_json};
use client::{AppendRecord, FencingToken, OneShot, SeqNum};
use http::StatusCode;
use serde::Deserialize;
use wire::limits::BATCH_RECORDS_MAX;
use wire::refusal::Refusal;
use xxhash_rust::xxh3::xxh3_128;

use super::answer;
use super::bounds::{APPEND_BODY_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX};
use super::failure::HttpRefusal;
use super::route::{Ask, JSON, NDJSON, OCTETS, Outcome};

/// One more than a batch has, so that the batch itself tells how many are allowed.
const RECORDS_READ_MAX: usize = BATCH_RECORDS_MAX + 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AppendForm<'a> {
    #[serde(borrow, deserialize_with = "at_most::<_, _, RECORDS_READ_MAX>")]
    records: Vec<RecordForm<'a>>,
    match_seq_num: Option<u64>,
    #[serde(borrow)]
    fencing_token: Option<Cow<'a, str>>,
}

pub(super) async fn append(mut ask: Ask) -> Outcome {
    let address = ask.address()?;
    let content = ask.content(&[JSON, NDJSON, OCTETS])?;
    let coding = ask.coding();
    if content != OCTETS && ask.query.has("timestamp_ms") {
        let message =
            format!("timestamp_ms in the query goes with a body of type {OCTETS}: records in JSON have their own");
        return Err(HttpRefusal::invalid(message));
    }
    let mut with = OneShot {
        fencing_token: FencingToken::new(ask.query.text("fencing_token").unwrap_or_default())?,
        match_seq_num: ask.query.count("match_seq_num").map(SeqNum::new),
        idempotency_key: idempotency_key(&ask)?,
        ..OneShot::default()
    };
    let body = ask.whole(APPEND_BODY_BYTES_MAX).await?;
    let records = match content {
        OCTETS => vec![AppendRecord {
            timestamp_ms: ask.query.stamp("timestamp_ms"),
            ..AppendRecord::new(body.bytes.clone())
        }],
        NDJSON => lines(&body.bytes, coding)?,
        _ => object(&body.bytes, coding, &mut with)?,
    };
    let appended = ask.client().append_with(&address, with, records).await?;
    answer::json(StatusCode::OK, &Ack::from(&appended))
}

pub(super) fn object(body: &Bytes, coding: Coding, with: &mut OneShot) -> Result<Vec<AppendRecord>, HttpRefusal> {
    // The parser would take a list for the fields in their order.
    if body.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        return Err(HttpRefusal::invalid("the body is no append: it must be a JSON object with a list of records"));
    }
    let form: AppendForm<'_> = serde_json::from_slice(body).map_err(|error| {
        let what = if error.is_data() { "no append" } else { "not JSON" };
        HttpRefusal::invalid(format!("the body is {what}: {error}"))
    })?;
    if let Some(seq_num) = form.match_seq_num
        && with.match_seq_num.replace(SeqNum::new(seq_num)).is_some()
    {
        return Err(HttpRefusal::invalid("match_seq_num stands in the query and in the body: give it once"));
    }
    if let Some(token) = form.fencing_token {
        if !with.fencing_token.is_empty() {
            return Err(HttpRefusal::invalid("fencing_token stands in the query and in the body: give it once"));
        }
        with.fencing_token = FencingToken::new(&token)?;
    }
    let records = form.records.into_iter().enumerate().map(|(at, record)| {
        let refused = |error: client::json::RecordError| {
            HttpRefusal::from(Refusal::new(error.reason(), format!("record {}: {error}", at + 1)))
        };
        record.into_record(coding).map_err(refused)
    });
    records.collect()
}

/// A record a line; lines of nothing but white space are passed over.
pub(super) fn lines(body: &Bytes, coding: Coding) -> Result<Vec<AppendRecord>, HttpRefusal> {
    let mut records = Vec::new();
    for (line, number) in body.split(|byte| *byte == b'\n').zip(1..) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        if records.len() == RECORDS_READ_MAX {
            break;
        }
        records.push(of_json(line, coding).map_err(|error| HttpRefusal::from(error.at_line(number)))?);
    }
    Ok(records)
}

/// The key under which the batch is stored once: a UUID as it is, and of any other text what it hashes to.
fn idempotency_key(ask: &Ask) -> Result<Option<u128>, HttpRefusal> {
    let Some(given) = ask.parts.headers.get("idempotency-key") else { return Ok(None) };
    let bytes = given.len();
    if bytes == 0 || bytes > IDEMPOTENCY_KEY_BYTES_MAX {
        let message = format!("Idempotency-Key has {bytes} bytes: it must have 1 to {IDEMPOTENCY_KEY_BYTES_MAX}");
        return Err(HttpRefusal::invalid(message));
    }
    if ask.parts.headers.get_all("idempotency-key").iter().nth(1).is_some() {
        return Err(HttpRefusal::invalid("Idempotency-Key is given twice: give it once"));
    }
    let uuid = given.to_str().ok().and_then(|text| client::StreamId::parse(text).ok());
    let key = uuid.map_or_else(|| xxh3_128(given.as_bytes()), |id| u128::from_be_bytes(id.to_bytes()));
    // 0 stands for no key on the wire.
    Ok(Some(key.max(1)))
}
