//! What must hold of what S2's clients send?

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use client::StreamConfig;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use prost::Message as _;
use serde_json::{Value, json};

use super::config::{BasinJson, StreamJson, show};
use super::failure::{Code, Failure};
use super::frame::{self, Coding, FRAME_BYTES_MAX};
use super::json::{Format, append_input, parse};
use super::proto::{self, AppendInput};
use super::query::{Listing, Query, Reading};
use super::record::{BATCH_RECORDS_MAX, Input};
use super::{names, request, weight};

/// The frames of a session, cut into pieces: the first byte says how long those are.
///
/// Messages are the same however they arrive, are not longer than they may be, and come back from a frame of our own.
///
/// # Panics
/// When that is not so.
pub fn s2_frames(bytes: &[u8]) {
    let Some((piece_bytes, stream)) = bytes.split_first() else { return };
    let at_once = taken(stream, stream.len().max(1));
    assert_eq!(taken(stream, usize::from(*piece_bytes) + 1), at_once, "messages are the same however they arrive");
    for message in &at_once.0 {
        assert!(message.len() <= FRAME_BYTES_MAX);
        let Ok(input) = AppendInput::decode(message.clone()) else { continue };
        for coding in [Coding::Plain, Coding::Zstd, Coding::Gzip] {
            let mut framed = BytesMut::new();
            frame::put(&input, coding, false, &mut framed);
            let message = frame::take(&mut framed).ok().flatten().expect("our own frame is whole");
            assert_eq!(AppendInput::decode(message), Ok(input.clone()));
        }
    }
}

/// The messages of a stream, and how many bytes are left over, or what is wrong.
fn taken(stream: &[u8], piece_bytes: usize) -> (Vec<Bytes>, Result<usize, Failure>) {
    let (mut held, mut messages) = (BytesMut::new(), Vec::new());
    for piece in stream.chunks(piece_bytes) {
        held.extend_from_slice(piece);
        loop {
            match frame::take(&mut held) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(failure) => return (messages, Err(failure)),
            }
        }
    }
    (messages, Ok(held.len()))
}

/// A batch in protobuf.
///
/// It weighs what its records do, and is the same batch, or none, in JSON.
///
/// # Panics
/// When that is not so.
pub fn s2_append(message: &[u8]) {
    let weight = weight::of_message(message);
    let Ok(decoded) = AppendInput::decode(message) else { return };
    assert!(!is_no_message(&weight), "what can be decoded can be weighed: {weight:?}");
    let in_json = append_input(&json_of(&decoded).to_string().into_bytes(), Format::Base64);
    let checked = decoded.checked();
    assert_eq!(in_json.ok().as_ref().map(parts), checked.as_ref().ok().map(parts), "both forms are one batch");
    if let Ok(input) = checked {
        assert_eq!(Ok(weight::of_records(&input.records)), weight);
    }
}

fn is_no_message(weight: &Result<usize, Failure>) -> bool {
    matches!(weight, Err(Failure::Coded { code: Code::BadProto, .. }))
}

fn json_of(input: &AppendInput) -> Value {
    let records: Vec<Value> = input.records.iter().map(record_of).collect();
    json!({ "records": records, "match_seq_num": input.match_seq_num, "fencing_token": input.fencing_token })
}

fn record_of(record: &proto::AppendRecord) -> Value {
    let coded = |bytes: &Bytes| STANDARD.encode(bytes);
    let headers: Vec<_> = record.headers.iter().map(|it| (coded(&it.name), coded(&it.value))).collect();
    json!({ "timestamp": record.timestamp, "headers": headers, "body": coded(&record.body) })
}

fn parts(input: &Input) -> (&[client::AppendRecord], Option<client::SeqNum>, Option<&client::FencingToken>, String) {
    let commands = format!("{:?} {:?}", input.effect(), input.trim_within_tail());
    (&input.records, input.match_seq_num, input.fencing_token.as_ref(), commands)
}

/// A body of JSON: a batch in either format, the configuration of a stream, or that of a basin, as the first byte says.
///
/// A batch that is taken is within its bounds; a stream is configured as it is shown to be.
///
/// # Panics
/// When that is not so.
pub fn s2_json(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else { return };
    match which {
        0 | 1 => {
            let format = if *which == 0 { Format::Raw } else { Format::Base64 };
            let Ok(input) = append_input(body, format) else { return };
            assert!((1..=BATCH_RECORDS_MAX).contains(&input.records.len()));
        }
        2 => check_stream(body),
        _ => {
            let Ok(basin) = parse::<BasinJson>(body) else { return };
            let Ok(made) = basin.created() else { return };
            let config = made.patch().apply(&StreamConfig::default());
            assert!(made.is(&config));
            let _judged = (basin.check(), basin.flags(), basin.changed(&config));
        }
    }
}

fn check_stream(body: &[u8]) {
    let Ok(asked) = parse::<StreamJson>(body) else { return };
    let defaults = StreamConfig::default();
    let Ok(wanted) = asked.created(&defaults) else { return };
    let config = wanted.patch().apply(&defaults);
    assert!(wanted.is(&config), "what is wanted is made");
    let shown: StreamJson = parse(show(&config).to_string().as_bytes()).expect("what is shown can be asked for");
    assert_eq!(shown.created(&defaults), Ok(wanted), "{config:?}");
}

/// What a request asks for beside its body: a query, or a header, as the first byte says.
///
/// A page begins before every name that it takes.
///
/// # Panics
/// When that is not so.
pub fn s2_requests(bytes: &[u8]) {
    const HEADERS: [&str; 7] = [
        "accept",
        "accept-encoding",
        "content-type",
        "last-event-id",
        "s2-format",
        "s2-request-token",
        "s2-stream-config",
    ];
    let Some((which, text)) = bytes.split_first() else { return };
    if let Some(name) = HEADERS.get(usize::from(*which)) {
        let Ok(value) = HeaderValue::from_bytes(text) else { return };
        let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
        let _judged = (request::content(&headers), request::accepted(&headers), Coding::accepted(&headers));
        let _judged = (request::format(&headers).is_ok(), request::last_event(&headers), request::token(&headers));
        let _judged = request::stream_config(&headers).is_ok();
        return;
    }
    let Ok(text) = std::str::from_utf8(text) else { return };
    let _judged = (names::segment(text), names::basin(text), names::stream(text), names::location(text));
    let Ok(query) = Query::of(Some(text)) else { return };
    if let Ok(reading) = Reading::of(&query) {
        assert!(reading.may_follow() || reading.count.or(reading.bytes).or(reading.until).is_some());
    }
    if let Ok(listing) = Listing::of(&query) {
        check_listing(&listing);
    }
}

fn check_listing(listing: &Listing) {
    let cursor = listing.cursor();
    let names = [&listing.prefix, &listing.start_after, &cursor];
    for name in names.into_iter().flat_map(|name| [name.clone(), format!("{name}\0"), format!("{name}/\u{10ffff}")]) {
        assert!(!listing.takes(&name) || (name > cursor && !listing.is_past(&name)), "{name:?} of {listing:?}");
    }
}

#[cfg(test)]
pub(crate) mod tests;
