//! What must hold of the bodies and queries that HTTP brings?

use bytes::Bytes;
use client::json::{Coding, content_bytes, put_config, take_config, write_json};
use client::{AppendRecord, BucketPatch, ConfigPatch, OneShot, Record, SeqNum};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use serde_json::{Map, Value};
use wire::limits::{BATCH_RECORDS_MAX, RECORD_CONTENT_BYTES_MAX, RECORD_HEADERS_MAX};

use super::append::{lines, object};
use super::buckets::patch;
use super::percent;
use super::query::{Param, Query, Takes};
use super::route::{JSON, liking};
use super::routes::ROUTES;

/// The body of an append; its first byte says whether that is one object or a record a line, and how bytes stand in it.
///
/// Records that are taken are within their bounds, and are the same as an object and as lines.
///
/// # Panics
/// When that is not so.
pub fn http_append(bytes: &[u8]) {
    let Some((how, body)) = bytes.split_first() else { return };
    let body = Bytes::copy_from_slice(body);
    let coding = if how & 1 == 0 { Coding::Utf8 } else { Coding::Base64 };
    let mut with = OneShot::default();
    let taken = if how & 2 == 0 { object(&body, coding, &mut with) } else { lines(&body, coding) };
    let Ok(records) = taken else { return };
    assert!(records.len() <= BATCH_RECORDS_MAX + 1, "{} records are kept", records.len());
    for record in &records {
        assert!(content_bytes(record) <= RECORD_CONTENT_BYTES_MAX && record.headers.len() <= RECORD_HEADERS_MAX);
        assert!(record.headers.iter().all(|(name, _)| !name.is_empty()));
    }
    let shown: Vec<Vec<u8>> = records.iter().map(shown).collect();
    let stamped = records
        .into_iter()
        .map(|record| AppendRecord { timestamp_ms: Some(record.timestamp_ms.unwrap_or_default()), ..record });
    let stamped: Vec<AppendRecord> = stamped.collect();
    let as_lines = lines(&shown.join(&b'\n').into(), Coding::Base64);
    assert_eq!(as_lines.expect("what is written can be read"), stamped);
    let whole = [b"{\"records\":[", &shown.join(&b',')[..], b"]}"].concat();
    let as_object = object(&whole.into(), Coding::Base64, &mut OneShot::default());
    assert_eq!(as_object.expect("what is written can be read"), stamped);
}

/// A record as a line of JSON.
fn shown(record: &AppendRecord) -> Vec<u8> {
    let AppendRecord { body, headers, timestamp_ms } = record.clone();
    let record = Record { seq_num: SeqNum::ZERO, timestamp_ms: timestamp_ms.unwrap_or_default(), headers, body };
    let mut out = Vec::new();
    write_json(&record, Coding::Base64, &mut out).expect("all bytes stand in base64");
    out
}

/// The object that a body is, where a change of a bucket or the configuration of a stream is due.
///
/// What is taken is the same once it is written and taken again.
///
/// # Panics
/// When that is not so.
pub fn http_bodies(body: &[u8]) {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(body) else { return };
    if let Ok(config) = take_config(&mut object.clone(), "") {
        let mut again = Map::new();
        put_config(config, "", &mut again);
        assert_eq!((take_config(&mut again, ""), again.len()), (Ok(config), 0));
    }
    let Ok(change) = patch(&mut object) else { return };
    let BucketPatch { create_stream_on_append, create_stream_on_read, defaults } = change;
    let mut again = Map::new();
    let flags =
        [("create_stream_on_append", create_stream_on_append), ("create_stream_on_read", create_stream_on_read)];
    again.extend(flags.into_iter().filter_map(|(name, set)| Some((name.to_owned(), Value::from(set?)))));
    put_config(defaults, "default_", &mut again);
    assert_eq!(patch(&mut again), Ok(change));
    assert_ne!(
        (flags.map(|(_, set)| set), defaults),
        ([None, None], ConfigPatch::default()),
        "a change changes something"
    );
}

/// The query of a request, of any route; also a part of a path, and what an answer may be.
///
/// A query that is taken is the same once it is written and taken again, and so is a part that is decoded.
///
/// # Panics
/// When that is not so.
pub fn http_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let liked = liking(text, JSON);
    assert!((0.0..=1.0).contains(&liked), "{liked}");
    if let Ok(decoded) = percent::decode("a part", text) {
        let again = percent_encode(&decoded, NON_ALPHANUMERIC).to_string();
        assert_eq!(percent::decode("a part", &again), Ok(decoded));
    }
    for route in ROUTES {
        let Ok(query) = Query::parse(Some(text), route.params) else { continue };
        let once = written(&query, route.params);
        let again = Query::parse(Some(&once), route.params).expect("what is written can be read");
        assert_eq!(written(&again, route.params), once);
    }
}

fn written(query: &Query, params: &[Param]) -> String {
    let given = params.iter().filter(|param| query.has(param.name));
    let pairs = given.map(|Param { name, takes, .. }| match takes {
        Takes::Count(_) => format!("{name}={}", query.count(name).expect("it is a count")),
        Takes::Stamp => format!("{name}={}", query.stamp(name).expect("it is a stamp")),
        Takes::Flag => format!("{name}={}", query.flag(name)),
        Takes::Text | Takes::Word(_) => {
            let text = query.text(name).expect("it is a text");
            format!("{name}={}", utf8_percent_encode(text, NON_ALPHANUMERIC))
        }
    });
    pairs.collect::<Vec<_>>().join("&")
}
