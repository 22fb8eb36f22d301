//! How is a record written as a line of JSON, and read from one?

use std::borrow::Cow;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use client::{AppendRecord, Record};
use serde::{Deserialize, Serialize};
use wire::limits::{RECORD_CONTENT_BYTES_MAX, RECORD_HEADERS_MAX};
use wire::reason::Reason;
use wire::refusal::Refusal;

/// How bytes stand in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// As text, which they then must be.
    Utf8,
    /// As base64 with padding (RFC 4648 section 4).
    Base64,
}

/// Why a line is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    #[error("it is no record: {0}")]
    Json(String),
    #[error("its {what} is not base64: {why}")]
    Base64 { what: &'static str, why: String },
    #[error("it has {headers} headers: at most {RECORD_HEADERS_MAX} are allowed")]
    Headers { headers: usize },
    #[error("header {header} has an empty name")]
    EmptyHeaderName { header: usize },
    #[error("it has {bytes} bytes of content: at most {RECORD_CONTENT_BYTES_MAX} are allowed")]
    Content { bytes: usize },
}

impl RecordError {
    /// What is told of the line with this number.
    pub(super) fn at_line(&self, line: u64) -> Refusal {
        let reason = match self {
            Self::Content { .. } => Reason::TooLarge,
            _ => Reason::Invalid,
        };
        Refusal::new(reason, format!("line {line}: {self}"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(rename = "seq_num")]
    _seq_num: Option<u64>,
    timestamp_ms: Option<i64>,
    #[serde(borrow, default)]
    headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    #[serde(borrow)]
    body: Cow<'a, str>,
}

/// The record that `line` describes as JSON; the sequence number that a read prints is passed over.
pub(super) fn of_json(line: &[u8], coding: Coding) -> Result<AppendRecord, RecordError> {
    let parsed: Line<'_> = serde_json::from_slice(line).map_err(|error| {
        // The parser counts the lines of what it is given, which here is one.
        let what = if error.is_data() { "" } else { "not JSON, " };
        RecordError::Json(format!("{what}{}", error.to_string().replace(" at line 1 column ", " at byte ")))
    })?;
    let headers = parsed.headers.into_iter().map(|(name, value)| {
        let name = decode(name, coding, "header name")?;
        Ok((name, decode(value, coding, "header value")?))
    });
    let record = AppendRecord {
        timestamp_ms: parsed.timestamp_ms,
        headers: headers.collect::<Result<_, RecordError>>()?,
        body: decode(parsed.body, coding, "body")?,
    };
    check(&record)?;
    Ok(record)
}

/// Body and every header name and value, in bytes.
pub(super) fn content_bytes(record: &AppendRecord) -> usize {
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
pub(super) enum WriteError {
    #[error("the {what} of record {seq_num} is not UTF-8, which JSON can't hold as it is: print base64 with --base64")]
    NotUtf8 { seq_num: u64, what: &'static str },
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Writes the body and a newline.
pub(super) fn write_text(record: &Record, out: &mut impl Write) -> Result<(), WriteError> {
    out.write_all(&record.body)?;
    Ok(out.write_all(b"\n")?)
}

/// Writes one JSON object and a newline; nothing when a part can't stand in it.
pub(super) fn write_json(record: &Record, coding: Coding, out: &mut impl Write) -> Result<(), WriteError> {
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
    serde_json::to_writer(&mut *out, &line).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
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
    use bytes::Bytes;
    use client::{Header, Record};
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
            "{\"seq_num\":7,\"timestamp_ms\":-1,\"headers\":[[\"kind\",\"order\"]],\"body\":\"x\"}\n"
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_rather_than_changed() {
        let error = shown(&[], &[0xff], Coding::Utf8).unwrap_err();
        assert!(error.contains("body of record 7") && error.contains("--base64"), "{error}");
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
