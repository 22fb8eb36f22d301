//! How is a record written as a line of JSON, and read from one?

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use wire::limits::{RECORD_CONTENT_BYTES_MAX, RECORD_HEADERS_MAX};
use wire::reason::Reason;
use wire::refusal::Refusal;

use crate::record::{AppendRecord, Record};

/// How bytes stand in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// As text, which they then must be.
    Utf8,
    /// As base64 with padding (RFC 4648 section 4).
    Base64,
}

/// Why a line is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not JSON, or JSON of another shape.
    #[error("it is no record: {0}")]
    Json(String),
    /// Base64 was said, and it is none.
    #[error("its {what} is not base64: {why}")]
    Base64 {
        /// Which part.
        what: &'static str,
        /// What the decoder says.
        why: String,
    },
    /// Too many headers.
    #[error("it has {headers} headers: at most {RECORD_HEADERS_MAX} are allowed")]
    Headers {
        /// How many.
        headers: usize,
    },
    /// A header without a name.
    #[error("header {header} has an empty name")]
    EmptyHeaderName {
        /// Which, from 1.
        header: usize,
    },
    /// Too much content.
    #[error("it has {bytes} bytes of content: at most {RECORD_CONTENT_BYTES_MAX} are allowed")]
    Content {
        /// How much.
        bytes: usize,
    },
}

impl RecordError {
    /// Why it is refused.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Content { .. } => Reason::TooLarge,
            _ => Reason::Invalid,
        }
    }

    /// What is told of the line with this number.
    #[must_use]
    pub fn at_line(&self, line: u64) -> Refusal {
        Refusal::new(self.reason(), format!("line {line}: {self}"))
    }
}

/// One more than are allowed, so that it is told how many there are.
const HEADERS_READ_MAX: usize = RECORD_HEADERS_MAX + 1;

struct AtMost<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for AtMost<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::custom(format!("a list of more than {MAX}, where at most {MAX} are allowed")));
            }
            list.push(item);
        }
        Ok(list)
    }
}

/// Reads a list and stops with an error at the item after `MAX`, so that no input makes it grow beyond.
///
/// # Errors
/// That, and those of its items.
pub fn at_most<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(AtMost::<T, MAX>(PhantomData))
}

/// A record as someone wrote it: an object, and no list of its fields.
#[derive(Debug)]
pub struct RecordForm<'a> {
    /// What a read prints; an append passes it over.
    pub seq_num: Option<u64>,
    /// Its stamp.
    pub timestamp_ms: Option<i64>,
    /// Its headers, name and value.
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Its body.
    pub body: Cow<'a, str>,
}

/// The fields of a [`RecordForm`].
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fields<'a> {
    seq_num: Option<u64>,
    timestamp_ms: Option<i64>,
    #[serde(borrow, deserialize_with = "at_most::<_, _, HEADERS_READ_MAX>")]
    headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    #[serde(borrow)]
    body: Option<Cow<'a, str>>,
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = RecordForm<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record, which is an object with a body")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RecordForm<'de>, A::Error> {
        let fields = Fields::deserialize(MapAccessDeserializer::new(map))?;
        let Fields { seq_num, timestamp_ms, headers, body } = fields;
        let body = body.ok_or_else(|| A::Error::missing_field("body"))?;
        Ok(RecordForm { seq_num, timestamp_ms, headers, body })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RecordForm<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

impl RecordForm<'_> {
    /// The record to append that it describes.
    ///
    /// # Errors
    /// [`RecordError`] when it is not coded so, or breaks a bound.
    pub fn into_record(self, coding: Coding) -> Result<AppendRecord, RecordError> {
        let headers = self.headers.into_iter().map(|(name, value)| {
            let name = decode(name, coding, "header name")?;
            Ok((name, decode(value, coding, "header value")?))
        });
        let record = AppendRecord {
            timestamp_ms: self.timestamp_ms,
            headers: headers.collect::<Result<_, RecordError>>()?,
            body: decode(self.body, coding, "body")?,
        };
        check(&record)?;
        Ok(record)
    }
}

/// The record that `line` describes as JSON; the sequence number that a read prints is passed over.
///
/// # Errors
/// [`RecordError`] when it is no record.
pub fn of_json(line: &[u8], coding: Coding) -> Result<AppendRecord, RecordError> {
    let parsed: RecordForm<'_> = serde_json::from_slice(line).map_err(|error| {
        // The parser counts the lines of what it is given, which here is one.
        let what = if error.is_data() { "" } else { "not JSON, " };
        RecordError::Json(format!("{what}{}", error.to_string().replace(" at line 1 column ", " at byte ")))
    })?;
    parsed.into_record(coding)
}

/// Body and every header name and value, in bytes.
#[must_use]
pub fn content_bytes(record: &AppendRecord) -> usize {
    let headers = record.headers.iter().map(|(name, value)| name.len() + value.len());
    headers.sum::<usize>() + record.body.len()
}

fn check(record: &AppendRecord) -> Result<(), RecordError> {
    let headers = record.headers.len();
    if headers > RECORD_HEADERS_MAX {
        return Err(RecordError::Headers { headers });
    }
    if let Some(at) = record.headers.iter().position(|(name, _)| name.is_empty()) {
        return Err(RecordError::EmptyHeaderName { header: at + 1 });
    }
    let bytes = content_bytes(record);
    if bytes > RECORD_CONTENT_BYTES_MAX {
        return Err(RecordError::Content { bytes });
    }
    Ok(())
}

fn decode(text: Cow<'_, str>, coding: Coding, what: &'static str) -> Result<Bytes, RecordError> {
    match coding {
        Coding::Utf8 => Ok(Bytes::from(text.into_owned())),
        Coding::Base64 => STANDARD
            .decode(text.as_bytes())
            .map(Bytes::from)
            .map_err(|error| RecordError::Base64 { what, why: error.to_string() }),
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    seq_num: u64,
    timestamp_ms: i64,
    headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    body: Cow<'a, str>,
}

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Bytes that are no text and were to be written as it.
    #[error("the {what} of record {seq_num} is not UTF-8, which JSON can't hold as it is: ask for base64")]
    NotUtf8 {
        /// Of which record.
        seq_num: u64,
        /// Which part.
        what: &'static str,
    },
    /// The output failed.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Writes one JSON object; nothing when a part can't stand in it.
///
/// # Errors
/// [`WriteError`] when a part can't, or the output fails.
pub fn write_json(record: &Record, coding: Coding, out: &mut impl Write) -> Result<(), WriteError> {
    let seq_num = record.seq_num.get();
    let headers = record.headers.iter().map(|(name, value)| {
        let name = encode(name, coding).ok_or(WriteError::NotUtf8 { seq_num, what: "header name" })?;
        let value = encode(value, coding).ok_or(WriteError::NotUtf8 { seq_num, what: "header value" })?;
        Ok((name, value))
    });
    let line = Shown {
        seq_num,
        timestamp_ms: record.timestamp_ms,
        headers: headers.collect::<Result<_, WriteError>>()?,
        body: encode(&record.body, coding).ok_or(WriteError::NotUtf8 { seq_num, what: "body" })?,
    };
    Ok(serde_json::to_writer(&mut *out, &line).map_err(io::Error::from)?)
}

/// Bytes as they stand in JSON; none when they are no text and have to be.
fn encode(bytes: &[u8], coding: Coding) -> Option<Cow<'_, str>> {
    match coding {
        Coding::Base64 => Some(Cow::Owned(STANDARD.encode(bytes))),
        Coding::Utf8 => std::str::from_utf8(bytes).map(Cow::Borrowed).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Coding, RecordError, of_json, write_json};
    use crate::{Header, Record};
    use bytes::Bytes;
    use wire::ids::SeqNum;
    use wire::reason::Reason;

    fn shown(headers: &[Header], body: &'static [u8], coding: Coding) -> Result<String, String> {
        let record = Record {
            seq_num: SeqNum::new(7),
            timestamp_ms: -1,
            headers: headers.to_vec(),
            body: Bytes::from_static(body),
        };
        let mut out = Vec::new();
        write_json(&record, coding, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn header(name: &'static [u8], value: &'static [u8]) -> Header {
        (Bytes::from_static(name), Bytes::from_static(value))
    }

    #[test]
    fn what_is_written_is_read_back_whatever_the_bytes() {
        let headers = [header(b"k", &[0, 255]), header(b"k", b"")];
        for coding in [Coding::Base64, Coding::Utf8] {
            let headers: &[Header] = if coding == Coding::Base64 { &headers } else { &headers[1..] };
            let body: &'static [u8] = if coding == Coding::Base64 { &[1, 200, 10] } else { b"\"\n\0\xc3\xa4" };
            let line = shown(headers, body, coding).unwrap();
            let record = of_json(line.trim_end().as_bytes(), coding).unwrap();
            assert_eq!(record.body, body);
            assert_eq!(record.timestamp_ms, Some(-1));
            assert_eq!(record.headers, headers);
        }
    }

    #[test]
    fn a_line_has_the_fields_of_the_specification() {
        let headers = [header(b"kind", b"order")];
        assert_eq!(
            shown(&headers, b"x", Coding::Utf8).unwrap(),
            "{\"seq_num\":7,\"timestamp_ms\":-1,\"headers\":[[\"kind\",\"order\"]],\"body\":\"x\"}"
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_rather_than_changed() {
        let error = shown(&[], &[0xff], Coding::Utf8).unwrap_err();
        assert!(error.contains("body of record 7") && error.contains("base64"), "{error}");
    }

    #[test]
    fn a_line_that_is_no_record_is_told_with_its_number() {
        let check = |line: &str, coding: Coding| of_json(line.as_bytes(), coding).unwrap_err();
        let error = check("{\"body\":1}", Coding::Utf8).at_line(3);
        assert_eq!(error.reason, Reason::Invalid);
        assert!(error.message.starts_with("line 3: it is no record"), "{error}");
        assert!(matches!(check("{}", Coding::Utf8), RecordError::Json(_)));
        assert!(matches!(check("{\"body\":\"\",\"key\":1}", Coding::Utf8), RecordError::Json(_)));
        assert!(matches!(check("{\"body\":\"?\"}", Coding::Base64), RecordError::Base64 { .. }));
        let empty_name = "{\"body\":\"\",\"headers\":[[\"a\",\"\"],[\"\",\"v\"]]}";
        assert_eq!(check(empty_name, Coding::Utf8), RecordError::EmptyHeaderName { header: 2 });
    }

    #[test]
    fn the_bounds_of_a_record_hold() {
        let many = vec!["[\"a\",\"b\"]"; 101].join(",");
        let line = format!("{{\"body\":\"\",\"headers\":[{many}]}}");
        assert_eq!(of_json(line.as_bytes(), Coding::Utf8), Err(RecordError::Headers { headers: 101 }));
        let line = format!("{{\"body\":\"{}\",\"headers\":[[\"a\",\"\"]]}}", "x".repeat(1 << 20));
        let error = of_json(line.as_bytes(), Coding::Utf8).unwrap_err();
        assert_eq!(error, RecordError::Content { bytes: (1 << 20) + 1 });
        assert_eq!(error.at_line(1).reason, Reason::TooLarge);
    }
}
