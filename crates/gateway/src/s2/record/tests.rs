//! Records and commands in both directions.

use super::super::failure::Code;
use super::*;

fn parts(headers: &[(&'static str, &'static str)], body: &'static [u8]) -> Parts {
    let headers = headers.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value)));
    Parts { timestamp: None, headers: headers.collect(), body: Bytes::from_static(body) }
}

fn trim(to: u64) -> Parts {
    Parts {
        timestamp: None,
        headers: vec![(Bytes::new(), Bytes::from_static(TRIM))],
        body: to.to_be_bytes().to_vec().into(),
    }
}

fn check(records: Vec<Parts>) -> Result<Input> {
    input(records, None, None)
}

fn token(text: &str) -> FencingToken {
    FencingToken::new(text).unwrap()
}

#[test]
fn commands_have_their_effect_and_come_back_as_they_were() {
    let taken = check(vec![parts(&[("", "fence")], b"gen-42"), parts(&[("", "fence")], b""), trim(7)]).unwrap();
    assert_eq!(taken.effect(), Some(Effect::Both(token(""), SeqNum::new(7))), "the last token counts");
    assert_eq!(taken.trim_within_tail(), None, "nothing stands behind it");
    let kept = &taken.records[0];
    assert_eq!(kept.headers, [(Bytes::from_static(COMMAND), Bytes::from_static(FENCE))]);
    let AppendRecord { headers, body, .. } = kept.clone();
    let record = Record { seq_num: SeqNum::new(1), timestamp_ms: 2, headers, body };
    let read = proto::SequencedRecord::from(&record);
    assert!(read.headers[0].name.is_empty() && read.headers[0].value == FENCE && read.body == b"gen-42"[..]);
    assert_eq!(metered_record(&record), 8 + 2 + FENCE.len() + 6);
}

#[test]
fn a_trim_that_others_stand_behind_must_lie_within_the_tail() {
    let taken = check(vec![trim(9), trim(3), parts(&[], b"x")]).unwrap();
    assert_eq!(taken.effect(), Some(Effect::Trim(SeqNum::new(9))));
    assert_eq!(taken.trim_within_tail(), Some(SeqNum::new(9)));
    assert_eq!(check(vec![parts(&[], b"x")]).unwrap().effect(), None);
}

#[test]
fn bad_records_are_refused_with_their_place() {
    let cases = [
        (vec![], "0 records"),
        ((0..1001).map(|_| parts(&[], b"")).collect(), "over 1000 records"),
        (vec![parts(&[], b""), parts(&[("", "jump")], b"")], "record 1 is the command 'jump'"),
        (vec![parts(&[], b""), parts(&[("a", "b"); 101], b"")], "record 1 has over 100 headers"),
        (vec![parts(&[("", "trim")], b"1234")], "a body of 4 bytes"),
        (vec![parts(&[("", "fence")], &[b'x'; 37])], "37 bytes"),
        (vec![parts(&[("", "fence")], &[0xff])], "UTF-8"),
        (vec![parts(&[("", "fence"), ("a", "b")], b"")], "beside others"),
        (vec![parts(&[("s2-command", "trim")], b"")], "another spelling"),
        (vec![Parts { timestamp: Some(1 << 63), ..parts(&[], b"") }], "2^63"),
    ];
    for (records, expected) in cases {
        let Err(Failure::Coded { code: Code::Invalid, message, .. }) = check(records) else { panic!("{expected}") };
        assert!(message.contains(expected), "{message}");
    }
    assert!(check(vec![parts(&[("s2-command", "other")], b"")]).is_ok());
    assert!(input(vec![parts(&[], b"")], None, Some(&"x".repeat(37))).is_err());
}

#[test]
fn a_batch_has_a_mebibyte_of_metered_bytes() {
    let most = METERED_BYTES_MAX - 8;
    let body = |bytes: usize| Parts { timestamp: None, headers: Vec::new(), body: vec![0; bytes].into() };
    assert!(check(vec![body(most)]).is_ok());
    assert!(check(vec![body(most + 1)]).is_err());
    assert!(check(vec![body(most - 8), body(1)]).is_err());
}
