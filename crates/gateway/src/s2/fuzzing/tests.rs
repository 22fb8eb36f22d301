//! Batches and frames to begin with.

use super::*;

/// A batch of so many records, each with these headers.
fn batch(records: usize, headers: &[(&'static str, &'static str)]) -> AppendInput {
    let header = |(name, value): &(&'static str, &'static str)| proto::Header {
        name: Bytes::from_static(name.as_bytes()),
        value: Bytes::from_static(value.as_bytes()),
    };
    let headers = headers.iter().map(header).collect();
    let record = proto::AppendRecord { timestamp: Some(7), headers, body: Bytes::from_static(b"12345678") };
    AppendInput { records: vec![record; records], match_seq_num: Some(3), fencing_token: Some("token".to_owned()) }
}

/// Batches by what is in them.
pub(crate) fn sample_messages() -> [(&'static str, Vec<u8>); 3] {
    let batches = [("plain", &[][..]), ("headers", &[("a", "b"), ("c", "")]), ("trim", &[("", "trim")])];
    batches.map(|(name, headers)| (name, batch(2, headers).encode_to_vec()))
}

/// Frames of a session, in pieces of a few bytes.
pub(crate) fn sample_frames() -> [(&'static str, Vec<u8>); 3] {
    let codings = [("plain", Coding::Plain), ("zstd", Coding::Zstd), ("gzip", Coding::Gzip)];
    codings.map(|(name, coding)| {
        let mut framed = BytesMut::new();
        for records in [1, 200] {
            frame::put(&batch(records, &[("a", "b")]), coding, false, &mut framed);
        }
        framed.truncate(if coding == Coding::Plain { 100 } else { framed.len() });
        (name, [&[6], &framed[..]].concat())
    })
}
