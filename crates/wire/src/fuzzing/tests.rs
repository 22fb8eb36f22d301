//! The corpora of this crate's targets.

use super::*;
use crate::batch::BatchBuilder;
use crate::bucket::{Bucket, BucketSpec};
use crate::chunk::tests::{built, given};
use crate::config::{Class, ConfigPatch, StreamConfig, TimestampingMode};
use crate::entry::Effect;
use crate::frame::{self, Kind};
use crate::hot::{Ack, AckWriter, AppendHead, RecordsHead};
use crate::ids::{BatchNo, BucketId, Position, SeqNum};
use crate::log_frame::{FrameHeader, HEADER_BYTES, put_entry_prefix};
use crate::names::{BucketName, FencingToken};
use crate::terms::Terms;

fn position(seq_num: u64) -> Position {
    Position::new(SeqNum::new(seq_num), 1_000)
}

/// Batches by what is in them.
fn batches() -> Vec<(&'static str, Vec<u8>)> {
    let batch = |stamps: &[Option<i64>], headers: &[(&str, &str)]| {
        let (mut builder, mut out) = (BatchBuilder::new(), Vec::new());
        for stamp in stamps {
            builder.push(*stamp, headers, b"a body").unwrap();
        }
        builder.finish(&mut out).unwrap();
        out
    };
    vec![
        ("plain", batch(&[None, None], &[])),
        ("stamped", batch(&[None, Some(-1), Some(i64::MAX)], &[])),
        ("with-headers", batch(&[Some(5), None], &[("name", "value"), ("name", "")])),
    ]
}

fn heads() -> Vec<(&'static str, Vec<u8>)> {
    let append =
        AppendHead { session: 1, no: BatchNo::new(2), match_seq_num: Some(SeqNum::new(3)), resent: true, batch_crc: 4 };
    let effect = Effect::Both(FencingToken::new("gen-42").unwrap(), SeqNum::new(5));
    let terms = Terms { chained: true, effect: Some(effect.clone()), ..Terms::default() };
    let (mut acks, mut writer) = (Vec::new(), AckWriter::new());
    for session in [7, 8] {
        writer.begin_group(session, Class::Express, &mut acks);
        for no in 1..3 {
            writer.push(&Ack { no: BatchNo::new(no), start: position(no * 10), records: 2, last_ms: 6 }, &mut acks);
        }
        writer.end_group(position(99), &mut acks);
    }
    let (start, end) = (SeqNum::new(10), SeqNum::new(12));
    let records =
        RecordsHead { subscription: 1, at_tail: true, start, end, tail: position(12), trim_point: SeqNum::new(3) };
    let behind = |which: u8, head: &[u8]| [&[which], head].concat();
    vec![
        ("append", behind(0, &append.encode())),
        ("append-on-terms", behind(0, &append.encode_on(&terms.to_bytes()))),
        ("acks", behind(1, &acks)),
        ("records", behind(2, &records.encode())),
        ("terms", behind(3, &terms.to_bytes())),
        ("effect", behind(4, &effect.to_bytes())),
    ]
}

/// Heads of every message, behind the code of its kind.
fn messages_of_each_kind() -> Vec<(Kind, Vec<u8>)> {
    let mut found = Vec::new();
    crate::message::tests::each(|kind, head, _| found.push((kind, head)));
    found
}

/// A frame of each kind, one behind the other, in pieces of 100 bytes.
fn stream() -> Vec<u8> {
    let mut out = vec![99];
    for (kind, head) in messages_of_each_kind() {
        let open = frame::begin(&mut out);
        out.extend_from_slice(&head);
        open.end(kind, 7, &mut out);
    }
    let open = frame::begin(&mut out);
    out.extend_from_slice(&heads()[0].1[1..]);
    let open = open.head_ends(&out);
    out.extend_from_slice(&batches()[0].1);
    open.end(Kind::Append, 8, &mut out);
    out
}

/// A frame of a head log with two entries, the golden header and what stands in its place.
fn log_frame_with_entries() -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    for entry in [&b"one"[..], b"three"] {
        let mut prefix = [0; 4];
        put_entry_prefix(&mut prefix, entry.len());
        frame.extend_from_slice(&prefix);
        frame.extend_from_slice(entry);
    }
    let body = &frame[HEADER_BYTES..];
    let golden = FrameHeader::decode(include_bytes!("../../golden/log_frame_header.bin")).unwrap();
    let header = FrameHeader { body_bytes: u32::try_from(body.len()).unwrap(), body_crc: crc32c(body), ..golden };
    header.encode(&mut frame);
    frame
}

fn configurations() -> [(&'static str, Vec<u8>); 2] {
    let patch = ConfigPatch {
        class: Some(Class::Express),
        timestamping_mode: Some(TimestampingMode::Arrival),
        retention_max_age_ms: Some(1),
        retention_by_arrival: Some(true),
        delete_on_empty_ms: Some(0),
        ..ConfigPatch::default()
    };
    let changed = patch.apply(&StreamConfig::default());
    let pair = |patch: &ConfigPatch, config: &StreamConfig| [&patch.to_bytes()[..], &config.to_bytes()].concat();
    [("default", pair(&ConfigPatch::default(), &StreamConfig::default())), ("changed", pair(&patch, &changed))]
}

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |target, name: &str, bytes: &[u8]| seeds.push(Seed::new(target, name, bytes));
    batches().iter().for_each(|(name, bytes)| add("batch", name, bytes));
    let spec = BucketSpec { location: "eu".into(), ..BucketSpec::named(BucketName::new("demo").unwrap()) };
    add("bucket", "made", &Bucket::made(&spec, BucketId::from_bytes([9; 16]), 77).encode());
    configurations().iter().for_each(|(name, bytes)| add("config", name, bytes));
    let kinds = ["batch", "token", "trim", "both", "create", "fence", "trimmed", "reconfigure", "delete", "gap"];
    let entries = crate::entry::tests::entries();
    assert_eq!(entries.len(), kinds.len());
    entries.iter().zip(kinds).for_each(|(entry, kind)| add("entry", kind, entry));
    add("frames", "of-each-kind", &stream());
    heads().iter().for_each(|(name, bytes)| add("hot_heads", name, bytes));
    add("log_frame", "golden", include_bytes!("../../golden/log_frame_header.bin"));
    add("log_frame", "with-entries", &log_frame_with_entries());
    for (kind, head) in messages_of_each_kind() {
        add("messages", &format!("{kind:?}"), &[&[kind as u8], &head[..]].concat());
    }
    for text in ["demo", "nova://demo/orders/eu", "client-prefer", "019a0000-0000-7000-8000-000000000000"] {
        let name: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
        add("names", &name, text.as_bytes());
    }
    add("object", "chunk", &built(&given()).bytes);
    add("object", "empty", &built(&[]).bytes);
    add("segment_header", "golden", include_bytes!("../../golden/segment_header.bin"));
    let snapshots = crate::snapshot::tests::samples();
    snapshots.iter().zip(["delta", "part", "base"]).for_each(|(it, name)| add("snapshot", name, &it.encode()));
    add("stream_row", "with-answers", &crate::stream_row::tests::sample().encode());
    add("superblock", "golden", include_bytes!("../../golden/superblock.bin"));
    seeds
}

#[test]
fn what_the_corpora_hold_is_judged_as_it_should_be() {
    replay(TARGETS, &seeds());
}

#[test]
fn a_sum_is_mended_where_all_of_it_is_there() {
    let check = |summed: Range<usize>, at: usize, wanted: &[u8]| {
        let mut bytes = *b"1234567890";
        mend_sum(&mut bytes, summed, at);
        assert_eq!(bytes, wanted);
    };
    let sum = crc32c(b"12345").to_le_bytes();
    check(0..5, 6, &[b"123456", &sum[..]].concat());
    check(0..5, 7, b"1234567890");
    check(0..11, 2, b"1234567890");
}
