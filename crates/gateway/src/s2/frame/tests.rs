//! Frames, whole, cut and hostile.

use prost::Message;

use super::super::proto::{AppendAck, ReadBatch, SequencedRecord, StreamPosition};
use super::*;

fn batch(body_bytes: usize) -> ReadBatch {
    let body = vec![b'x'; body_bytes].into();
    let record = SequencedRecord { seq_num: 3, timestamp: 5, headers: Vec::new(), body };
    ReadBatch { records: vec![record], tail: None }
}

#[test]
fn the_bytes_of_a_frame_are_those_of_the_protocol() {
    let end = Some(StreamPosition { seq_num: 2, timestamp: 9 });
    let mut out = BytesMut::new();
    put(&AppendAck { start: None, end, tail: None }, Coding::Zstd, true, &mut out);
    assert_eq!(out[..], [0, 0, 7, 0x10, 0x12, 4, 8, 2, 16, 9]);
    let mut out = BytesMut::new();
    put_terminal(&Failure::SeqNum(7), &mut out);
    assert_eq!(out[..6], [0, 0, 25, 0x80, 412_u16.to_be_bytes()[0], 412_u16.to_be_bytes()[1]]);
    assert_eq!(out[6..], *br#"{"seq_num_mismatch":7}"#);
}

#[test]
fn messages_come_back_as_they_were_in_every_coding_and_however_they_are_cut() {
    for coding in [Coding::Plain, Coding::Zstd, Coding::Gzip] {
        let mut out = BytesMut::new();
        let batches = [batch(10), batch(5000), batch(0)];
        for batch in &batches {
            put(batch, coding, false, &mut out);
        }
        let packed = out.iter().filter(|byte| **byte == b'x').count() < 4000;
        assert_eq!(packed, coding != Coding::Plain);
        let (mut input, mut found) = (BytesMut::new(), Vec::new());
        for byte in out {
            input.put_u8(byte);
            while let Some(message) = take(&mut input).unwrap() {
                found.push(ReadBatch::decode(message).unwrap());
            }
        }
        assert_eq!(found[..], batches);
    }
}

#[test]
fn a_bomb_is_found_before_it_is_held() {
    for coding in [Coding::Zstd, Coding::Gzip] {
        let packed = coding.pack(&vec![0; 64 << 20]).unwrap();
        assert!(packed.len() < FRAME_BYTES_MAX);
        assert_eq!(coding.unpack(packed.clone().into(), FRAME_BYTES_MAX).unwrap(), None);
        let mut input = BytesMut::new();
        put_head(packed.len(), coding.flag(), &mut input);
        input.extend_from_slice(&packed);
        let Err(Failure::Coded { code: Code::BadFrame, .. }) = take(&mut input) else { panic!("it is no bomb") };
    }
}

#[test]
fn frames_that_are_none_are_refused() {
    let too_long = [&[0xff, 0xff, 0xff][..]].concat();
    for bytes in [&too_long[..], &[0, 0, 0], &[0, 0, 3, 0x80, 1, 2], &[0, 0, 1, 0x60], &[0, 0, 2, 0x20, 9]] {
        let taken = take(&mut BytesMut::from(bytes));
        assert!(matches!(taken, Err(Failure::Coded { code: Code::BadFrame, .. })), "{bytes:?}: {taken:?}");
    }
    assert_eq!(take(&mut BytesMut::from(&[0, 0][..])), Ok(None));
}

#[test]
fn a_client_gets_the_best_coding_that_it_accepts() {
    let accepted = |value: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, http::HeaderValue::from_static(value));
        Coding::accepted(&headers)
    };
    assert_eq!(accepted("gzip, zstd"), Coding::Zstd);
    assert_eq!(accepted("gzip, zstd;q=0"), Coding::Gzip);
    assert_eq!(accepted("br"), Coding::Plain);
    assert_eq!(Coding::accepted(&HeaderMap::new()), Coding::Plain);
}
