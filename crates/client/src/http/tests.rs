use http::StatusCode;
use wire::names::Address;
use wire::reason::Reason;

use super::{refused, segment, stream_path, wire_only};
use crate::client::Again;

#[test]
fn a_key_is_one_segment_whatever_is_in_it() {
    assert_eq!(segment("a-Z_0~"), "a-Z_0~");
    let address = Address::new("demo", "../a b%2F?#ä").unwrap();
    assert_eq!(stream_path(&address), "/v1/buckets/demo/streams/%2E%2E%2Fa%20b%252F%3F%23%C3%A4");
}

#[test]
fn an_answer_that_no_gateway_wrote_is_told_by_its_status() {
    let check = |status: u16, again: Again| {
        let error = refused(StatusCode::from_u16(status).unwrap(), b"<html>\n", again);
        (error.reason(), error.no_side_effect())
    };
    assert_eq!(check(502, Again::Asks), (Reason::Unavailable, true));
    assert_eq!(check(502, Again::Never), (Reason::Unavailable, false));
    assert_eq!(check(504, Again::Never), (Reason::DeadlineExceeded, false));
    assert_eq!(check(429, Again::Never), (Reason::ResourceExhausted, true));
    assert_eq!(check(418, Again::Never), (Reason::Internal, false));
    assert_eq!(check(301, Again::Asks), (Reason::Internal, true));
}

#[test]
fn what_a_gateway_says_of_the_effect_is_believed() {
    let body = br#"{"code":"sequence_mismatch","message":"no","retryable":false,"no_side_effect":true,"tail":{"seq_num":7,"timestamp_ms":1}}"#;
    let error = refused(StatusCode::PRECONDITION_FAILED, body, Again::Never);
    assert_eq!((error.reason(), error.no_side_effect()), (Reason::SequenceMismatch, true));
    assert_eq!(error.tail().unwrap().seq_num.get(), 7);
    assert_eq!(wire_only("this").reason(), Reason::WireOnly);
}
