//! The corpora of this crate's targets.

use wire::bucket::BucketSpec;
use wire::config::{Class, StreamConfig};
use wire::fuzzing::{Seed, replay};
use wire::ids::{BucketId, Position, StreamId};
use wire::names::{BucketName, FencingToken, Key};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::*;
use crate::peer::{STREAM, gap_entry, plain_entry, records_head};

fn position(seq_num: u64) -> Position {
    Position::new(SeqNum::new(seq_num), 5)
}

fn pages() -> Vec<(&'static str, u64, Vec<u8>)> {
    let whole = [plain_entry(4, &["a", "b"]), plain_entry(6, &["{\"json\":1}"])].concat();
    let with_gap = [plain_entry(0, &["a"]), gap_entry(1, 4), plain_entry(4, &["\u{fc}"])].concat();
    vec![("whole", 4, whole), ("with-gap", 0, with_gap)]
}

fn json(form: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(form).unwrap()
}

fn answers() -> Vec<(&'static str, u8, Vec<u8>)> {
    let bucket = Bucket::made(&BucketSpec::named(BucketName::new("demo").unwrap()), BucketId::from_bytes([9; 16]), 5);
    let stream = StreamInfo {
        stream_id: StreamId::from_bytes([1; 16]),
        bucket: bucket.name.clone(),
        key: Key::new("orders/eu").unwrap(),
        config: StreamConfig::default(),
        tail: position(9),
        trim_point: SeqNum::new(1),
        settled: SeqNum::new(2),
        bytes: 3,
        created_at_ms: 4,
    };
    let acked = Appended { start: position(1), end: position(3), tail: position(4), class: Class::Express };
    let mut refusal = Refusal::new(Reason::FencedOut, "no").with_tail(position(3));
    refusal.details.get_or_insert_default().fencing_token = Some(FencingToken::new("gen-42").unwrap());
    let failure = FailureForm::new(&refusal, true, true, "r-1".into());
    let buckets = BucketsForm { buckets: vec![BucketForm::from(&bucket)], next: Some("n".into()) };
    let streams = StreamsForm { streams: vec![StreamForm::from(&stream)], next: Some(cursor::show(b"\0k")) };
    let (_, first, payload) = &pages()[0];
    let head = records_head(0, *first, first + 3);
    let page = decode(&head, head.start, &Bytes::from(payload.clone()), Some(STREAM)).unwrap();
    let (mut text, mut base64) = (Vec::new(), Vec::new());
    write_page(&page, Coding::Utf8, &mut text).unwrap();
    write_page(&page, Coding::Base64, &mut base64).unwrap();
    vec![
        ("bucket", 0, json(&BucketForm::from(&bucket))),
        ("stream", 1, json(&StreamForm::from(&stream))),
        ("ack", 2, json(&Ack::from(&acked))),
        ("failure", 3, json(&failure)),
        ("buckets", 4, json(&buckets)),
        ("streams", 5, json(&streams)),
        ("page-text", 6, text),
        ("page-base64", 7, base64),
    ]
}

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |target, name: &str, bytes: &[u8]| seeds.push(Seed::new(target, name, bytes));
    for (name, start, payload) in pages() {
        let head = records_head(0, start, start + if name == "whole" { 3 } else { 5 }).encode();
        add("page", name, &[&[0], &head[..], &payload].concat());
    }
    for (name, which, json) in answers() {
        add("json_answers", name, &[&[which], &json[..]].concat());
    }
    let record = br#"{"body":"aGk=","headers":[["bmFtZQ==",""]],"timestamp_ms":5,"seq_num":7}"#;
    add("json_record", "base64", &[&[1], &record[..]].concat());
    add("json_record", "text", b"\0{\"body\":\"\\u00fc\\n\",\"headers\":[[\"name\",\"value\"]]}");
    seeds
}

#[test]
fn what_the_corpora_hold_is_judged_as_it_should_be() {
    replay(TARGETS, &seeds());
}
