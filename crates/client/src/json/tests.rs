use bytes::Bytes;
use serde_json::{Map, Value, json};
use wire::bucket::{Bucket, BucketSpec};
use wire::config::{Class, ConfigPatch, StreamConfig};
use wire::ids::{BucketId, Position, SeqNum, StreamId};
use wire::message::{Appended, StreamInfo};
use wire::names::{BucketName, FencingToken, Key};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::*;
use crate::page::Page;
use crate::record::Record;

/// What comes back of a value that is written and read.
fn back<T: serde::Serialize, U: serde::de::DeserializeOwned>(form: &T) -> U {
    serde_json::from_str(&serde_json::to_string(form).unwrap()).unwrap()
}

fn position(seq_num: u64) -> Position {
    Position::new(SeqNum::new(seq_num), -3)
}

#[test]
fn an_ack_has_the_fields_of_the_specification_and_comes_back() {
    let acked = Appended {
        start: position(u64::MAX - 1),
        end: position(u64::MAX),
        tail: position(u64::MAX),
        class: Class::Express,
    };
    let form = Ack::from(&acked);
    let due = json!({"start": {"seq_num": u64::MAX - 1, "timestamp_ms": -3}, "end": {"seq_num": u64::MAX, "timestamp_ms": -3},
        "tail": {"seq_num": u64::MAX, "timestamp_ms": -3}, "class": "express"});
    assert_eq!(serde_json::to_value(&form).unwrap(), due);
    assert_eq!(Appended::try_from(back::<_, Ack>(&form)).unwrap(), acked);
}

#[test]
fn a_bucket_and_a_stream_come_back_whole() {
    let spec = BucketSpec {
        create_stream_on_append: true,
        location: "ä".into(),
        defaults: ConfigPatch {
            class: Some(Class::Express),
            retention_max_bytes: Some(u64::MAX),
            ..ConfigPatch::default()
        },
        ..BucketSpec::named(BucketName::new("demo").unwrap())
    };
    let bucket = Bucket::made(&spec, BucketId::from_bytes([9; 16]), 5);
    let form: BucketForm = back(&BucketForm::from(&bucket));
    assert_eq!(form.defaults["default_class"], "express");
    assert_eq!(Bucket::try_from(form).unwrap(), bucket);

    let stream = StreamInfo {
        stream_id: StreamId::from_bytes([1; 16]),
        bucket: BucketName::new("demo").unwrap(),
        key: Key::new("a/../b\n").unwrap(),
        config: StreamConfig::default(),
        tail: position(9),
        trim_point: SeqNum::new(2),
        settled: SeqNum::new(4),
        bytes: 7,
        created_at_ms: 5,
    };
    let form: StreamForm = back(&StreamForm::from(&stream));
    assert_eq!(StreamInfo::try_from(form).unwrap(), stream);
}

#[test]
fn a_page_comes_back_whatever_its_bytes() {
    let record = Record {
        seq_num: SeqNum::new(4),
        timestamp_ms: -1,
        headers: vec![(Bytes::from_static(b"k"), Bytes::from_static(&[0, 255]))],
        body: Bytes::from_static(&[1, 200, 10]),
    };
    let page = Page {
        records: vec![record.clone(), Record { seq_num: SeqNum::new(5), ..record }],
        start: SeqNum::new(4),
        end: SeqNum::new(6),
        tail: position(9),
        trim_point: SeqNum::new(1),
        at_tail: false,
        stream_id: Some(StreamId::from_bytes([3; 16])),
    };
    let mut out = Vec::new();
    write_page(&page, Coding::Base64, &mut out).unwrap();
    let form: PageForm<'_> = serde_json::from_slice(&out).unwrap();
    assert_eq!(form.into_page(Coding::Base64).unwrap(), page);
    assert!(write_page(&page, Coding::Utf8, &mut Vec::new()).is_err());
}

#[test]
fn a_refusal_comes_back_with_its_details() {
    let refusal = Refusal::new(Reason::FencedOut, "no")
        .with_fencing_token(FencingToken::new("gen-42").unwrap())
        .with_tail(position(9))
        .with_trim_point(SeqNum::new(2))
        .with_retry_after_ms(70);
    let form = FailureForm::new(&refusal, true, false, "r-1".into());
    assert_eq!(serde_json::to_value(&form).unwrap()["code"], "fenced_out");
    assert_eq!(back::<_, FailureForm>(&form).refusal(), refusal);
}

fn taken(value: Value) -> Result<(ConfigPatch, Map<String, Value>), Refusal> {
    let Value::Object(mut object) = value else { panic!("an object") };
    let patch = take_config(&mut object, "default_")?;
    Ok((patch, object))
}

#[test]
fn a_field_of_a_wrong_kind_is_told_with_its_name_and_value() {
    let (patch, rest) = taken(json!({"default_class": null, "default_batch_max_bytes": 0, "x": 1})).unwrap();
    assert_eq!(patch, ConfigPatch { batch_max_bytes: Some(0), ..ConfigPatch::default() });
    assert_eq!(rest.len(), 1);
    for (value, says) in [
        (json!({"default_class": "fast"}), "fast"),
        (json!({"default_class": 3}), "field 'default_class' is 3"),
        (json!({"default_batch_max_bytes": -1}), "from 0 to 4294967295"),
        (json!({"default_retention_max_bytes": 1.5}), "is 1.5"),
        (json!({"default_timestamping_uncapped": "yes"}), "true or false"),
    ] {
        let refusal = taken(value).unwrap_err();
        assert!(refusal.reason == Reason::Invalid && refusal.message.contains(says), "{refusal}");
    }
}

#[test]
fn a_record_is_an_object_and_no_list_of_its_fields() {
    assert_eq!(of_json(b"{\"body\":\"x\",\"headers\":[[\"k\",\"v\"]]}", Coding::Utf8).unwrap().headers.len(), 1);
    for line in ["[1,2,[],\"x\"]", "{\"headers\":[]}", "{\"body\":\"\",\"body\":\"\"}", "\"x\"", "{\"body\":null}"] {
        assert!(matches!(of_json(line.as_bytes(), Coding::Utf8), Err(RecordError::Json(_))), "{line}");
    }
}
