//! What do S2's records look like in JSON?
//!
//! Bodies and headers are texts (`raw`, where bytes that are no UTF-8 are replaced when they are read) or base64; empty ones
//! are left out.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use client::{Appended, Position, Record};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use wire::limits::RECORD_HEADERS_MAX;

use super::failure::{Code, Failure, Result};
use super::record::{BATCH_RECORDS_MAX, Input, Parts, headers, input, timestamp};

/// How bytes stand in JSON, as the header `s2-format` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// As text.
    Raw,
    /// In base64.
    Base64,
}

impl Format {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name.trim() {
            "raw" | "json" => Some(Self::Raw),
            "base64" | "json-binsafe" => Some(Self::Base64),
            _ => None,
        }
    }

    fn show(self, bytes: &[u8]) -> String {
        match self {
            Self::Raw => String::from_utf8_lossy(bytes).into_owned(),
            Self::Base64 => STANDARD.encode(bytes),
        }
    }

    fn bytes(self, text: String) -> Result<Bytes> {
        match self {
            Self::Raw => Ok(text.into()),
            Self::Base64 => match STANDARD.decode(&text) {
                Ok(bytes) => Ok(bytes.into()),
                Err(error) => Err(Failure::invalid(format!("'{}' is not base64: {error}", start(&text)))),
            },
        }
    }
}

fn start(text: &str) -> String {
    text.chars().take(20).flat_map(char::escape_debug).collect()
}

/// A list, up to the first item over the bound; those behind it are passed over, so that no input makes it grow beyond.
struct Bounded<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Bounded<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while list.len() <= MAX
            && let Some(item) = items.next_element()?
        {
            list.push(item);
        }
        if list.len() > MAX {
            while items.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(list)
    }
}

fn bounded<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Bounded::<T, MAX>(PhantomData))
}

#[derive(Debug, Deserialize)]
struct JsonInput {
    #[serde(deserialize_with = "bounded::<_, _, BATCH_RECORDS_MAX>")]
    records: Vec<JsonRecord>,
    match_seq_num: Option<u64>,
    fencing_token: Option<String>,
}

#[derive(Debug, Deserialize)]
struct JsonRecord {
    timestamp: Option<u64>,
    #[serde(default, deserialize_with = "bounded::<_, _, RECORD_HEADERS_MAX>")]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: String,
}

/// The batch of a JSON body.
///
/// # Errors
/// `bad_json` when it is none, `invalid` when it breaks a rule.
pub(super) fn append_input(body: &[u8], format: Format) -> Result<Input> {
    let read: JsonInput = parse(body)?;
    let mut records = Vec::with_capacity(read.records.len());
    for record in read.records {
        let header = |(name, value)| Ok((format.bytes(name)?, format.bytes(value)?));
        records.push(Parts {
            timestamp: record.timestamp,
            headers: record.headers.into_iter().map(header).collect::<Result<_>>()?,
            body: format.bytes(record.body)?,
        });
    }
    input(records, read.match_seq_num, read.fencing_token.as_deref())
}

/// A value from a JSON body.
///
/// # Errors
/// `bad_json`.
pub(super) fn parse<T: for<'de> Deserialize<'de>>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| Failure::new(Code::BadJson, error.to_string()))
}

pub(super) fn position(position: Position) -> Value {
    json!({ "seq_num": position.seq_num.get(), "timestamp": timestamp(position.timestamp_ms) })
}

pub(super) fn ack(appended: &Appended) -> Value {
    json!({
        "start": position(appended.start),
        "end": position(appended.end),
        "tail": position(appended.tail),
    })
}

/// A batch that was read.
pub(super) fn batch(records: &[Record], tail: Option<Position>, format: Format) -> Value {
    let records: Vec<Value> = records.iter().map(|record| sequenced(record, format)).collect();
    let mut batch = Map::new();
    batch.insert("records".to_owned(), records.into());
    if let Some(tail) = tail {
        batch.insert("tail".to_owned(), position(tail));
    }
    batch.into()
}

fn sequenced(record: &Record, format: Format) -> Value {
    let mut shown = Map::new();
    shown.insert("seq_num".to_owned(), record.seq_num.get().into());
    shown.insert("timestamp".to_owned(), timestamp(record.timestamp_ms).into());
    if !record.headers.is_empty() {
        let headers = headers(record).into_iter().map(|(name, value)| json!([format.show(&name), format.show(&value)]));
        shown.insert("headers".to_owned(), headers.collect());
    }
    if !record.body.is_empty() {
        shown.insert("body".to_owned(), format.show(&record.body).into());
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use client::SeqNum;

    use super::super::record::{too_many_headers, too_many_records};
    use super::*;

    #[test]
    fn a_batch_is_read_in_both_formats() {
        let raw = br#"{"records":[{"body":"hi","headers":[["a","b"]],"timestamp":5},{}],"match_seq_num":0,"fencing_token":""}"#;
        let read = append_input(raw, Format::Raw).unwrap();
        assert_eq!((read.records.len(), read.records[0].timestamp_ms), (2, Some(5)));
        assert_eq!(read.match_seq_num, Some(SeqNum::ZERO));
        assert!(read.fencing_token.is_some_and(|token| token.is_empty()), "the empty token is presented");
        let binary = append_input(br#"{"records":[{"body":"/w=="}]}"#, Format::Base64).unwrap();
        assert_eq!(binary.records[0].body, &[0xff][..]);
    }

    #[test]
    fn what_is_no_batch_is_told_from_what_breaks_a_rule() {
        let code = |body: &[u8], format| match append_input(body, format) {
            Err(Failure::Coded { code, .. }) => code,
            other => panic!("{other:?}"),
        };
        for body in [&b"{"[..], b"[]", br#"{"records":[{"body":3}]}"#, br#"{"records":[{"timestamp":-1}]}"#] {
            assert_eq!(code(body, Format::Raw), Code::BadJson);
        }
        let deep = [&b"{\"records\":"[..], &vec![b'['; 50_000]].concat();
        assert_eq!(code(&deep, Format::Raw), Code::BadJson);
        assert_eq!(code(br#"{"records":[]}"#, Format::Raw), Code::Invalid);
        assert_eq!(code(br#"{"records":[{"body":"!"}]}"#, Format::Base64), Code::Invalid);
    }

    #[test]
    fn what_is_over_a_bound_is_not_kept() {
        let many = |item: &str, count: usize| vec![item; count].join(",");
        let body = format!(r#"{{"records":[{}],"match_seq_num":7}}"#, many("{}", 3_000));
        let read: JsonInput = parse(body.as_bytes()).unwrap();
        assert_eq!((read.records.len(), read.match_seq_num), (BATCH_RECORDS_MAX + 1, Some(7)));
        assert_eq!(append_input(body.as_bytes(), Format::Raw).unwrap_err(), too_many_records());
        let body = format!(r#"{{"records":[{{"headers":[{}],"body":"x"}}]}}"#, many(r#"["",""]"#, 3_000));
        let read: JsonInput = parse(body.as_bytes()).unwrap();
        assert_eq!((read.records[0].headers.len(), &*read.records[0].body), (RECORD_HEADERS_MAX + 1, "x"));
        assert_eq!(append_input(body.as_bytes(), Format::Raw).unwrap_err(), too_many_headers(0));
    }

    #[test]
    fn empty_fields_are_left_out_of_what_is_read() {
        let record = |body: &'static [u8]| Record {
            seq_num: SeqNum::new(4),
            timestamp_ms: -1,
            headers: Vec::new(),
            body: Bytes::from_static(body),
        };
        let shown = batch(&[record(b""), record(&[0xff])], None, Format::Raw);
        let expected = r#"{"records":[{"seq_num":4,"timestamp":0},{"body":"�","seq_num":4,"timestamp":0}]}"#;
        assert_eq!(shown, serde_json::from_str::<Value>(expected).unwrap());
        let shown = batch(&[record(&[0xff])], Some(Position::new(SeqNum::new(5), 6)), Format::Base64);
        assert!(shown.to_string().contains(r#""body":"/w==""#), "{shown}");
        assert_eq!(shown["tail"]["seq_num"], 5);
    }
}
