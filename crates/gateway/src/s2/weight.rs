//! How many bytes do the records of a batch take once they are decoded, beside what is in them?
//!
//! An empty record, or an empty header, has two bytes in a message and dozens in memory, so a message is looked through before
//! it is decoded.

use client::{AppendRecord, Header};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use wire::limits::RECORD_HEADERS_MAX;

use super::failure::{Code, Failure, Result};
use super::record::{BATCH_RECORDS_MAX, too_many_headers, too_many_records};

/// Fields of the messages.
const RECORDS: u32 = 1;
const HEADERS: u32 = 2;

/// Those of a batch in protobuf that is not decoded yet.
///
/// # Errors
/// `invalid` when there are too many records or headers; `bad_proto`.
pub(super) fn of_message(message: &[u8]) -> Result<usize> {
    let (mut batch, mut records, mut headers) = (message, 0, 0);
    while let Some(mut record) = next(&mut batch, RECORDS)? {
        let before = headers;
        while next(&mut record, HEADERS)?.is_some() {
            headers += 1;
        }
        if headers - before > RECORD_HEADERS_MAX {
            return Err(too_many_headers(records));
        }
        records += 1;
        if records > BATCH_RECORDS_MAX {
            return Err(too_many_records());
        }
    }
    Ok(bytes(records, headers))
}

/// Those of decoded records.
pub(super) fn of_records(records: &[AppendRecord]) -> usize {
    bytes(records.len(), records.iter().map(|record| record.headers.len()).sum())
}

const fn bytes(records: usize, headers: usize) -> usize {
    records * size_of::<AppendRecord>() + headers * size_of::<Header>()
}

/// The next field of this number that has a length, taken off the front of a message.
fn next<'a>(rest: &mut &'a [u8], wanted: u32) -> Result<Option<&'a [u8]>> {
    while !rest.is_empty() {
        let (tag, kind) = decode_key(rest).map_err(|error| bad(&error))?;
        if tag != wanted || kind != WireType::LengthDelimited {
            skip_field(kind, tag, rest, DecodeContext::default()).map_err(|error| bad(&error))?;
            continue;
        }
        let length = decode_varint(rest).map_err(|error| bad(&error))?;
        let Some((field, behind)) = rest.split_at_checked(usize::try_from(length).unwrap_or(usize::MAX)) else {
            let there = rest.len();
            return Err(Failure::new(Code::BadProto, format!("a field of {length} bytes, of which {there} are there")));
        };
        *rest = behind;
        return Ok(Some(field));
    }
    Ok(None)
}

fn bad(error: &DecodeError) -> Failure {
    Failure::new(Code::BadProto, error.to_string())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message;

    use super::super::proto;
    use super::*;

    /// A batch of so many records of so many headers.
    fn message(records: usize, headers: usize) -> Vec<u8> {
        let header = proto::Header { name: Bytes::from_static(b"a"), value: Bytes::new() };
        let headers = vec![header; headers];
        let record = proto::AppendRecord { timestamp: Some(7), headers, body: Bytes::from_static(b"b") };
        let token = Some("token".to_owned());
        proto::AppendInput { records: vec![record; records], match_seq_num: Some(3), fencing_token: token }
            .encode_to_vec()
    }

    #[test]
    fn a_message_weighs_what_its_records_do() {
        for (records, headers) in [(0, 0), (1, 0), (3, 2), (BATCH_RECORDS_MAX, 1), (2, RECORD_HEADERS_MAX)] {
            let message = message(records, headers);
            let weight = of_message(&message).unwrap();
            assert_eq!(weight, bytes(records, records * headers));
            if records > 0 {
                let decoded = proto::AppendInput::decode(&message[..]).unwrap().checked().unwrap();
                assert_eq!(of_records(&decoded.records), weight);
            }
        }
    }

    #[test]
    fn too_many_are_refused_before_they_are_decoded() {
        let empty_records = [10, 0].repeat(4 << 20);
        assert_eq!(of_message(&empty_records), Err(too_many_records()));
        let record = [18, 0].repeat(101);
        let headers = [&[10, 1, 0][..], &[10, 202, 1], &record].concat();
        assert!(matches!(of_message(&headers), Err(Failure::Coded { code: Code::BadProto, .. })), "its first is cut");
        let headers = [&[10, 0][..], &[10, 202, 1], &record].concat();
        assert_eq!(of_message(&headers), Err(too_many_headers(1)));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&[10][..], &[10, 5, 0], &[0, 0], &[12], &[10, 2, 18, 1], &[26, 200, 200]] {
            let weight = of_message(bytes);
            assert!(matches!(weight, Err(Failure::Coded { code: Code::BadProto, .. })), "{bytes:?}: {weight:?}");
        }
    }
}
