//! Appends and reads, a request each.

use s2_sdk::S2Stream;
use s2_sdk::error::*;
use s2_sdk::types::*;
use s2_sdk_suite::{basin, client};

use crate::bodies;

async fn stream(config: StreamConfig) -> S2Stream {
    stream_with(Compression::None, config).await
}

async fn stream_with(compression: Compression, config: StreamConfig) -> S2Stream {
    let s2 = client(compression);
    let (_, basin) = basin(&s2, BasinConfig::new()).await;
    let name: StreamName = "s".parse().unwrap();
    let express = config.with_storage_class("express");
    basin.create_stream(CreateStreamInput::new(name.clone()).with_config(express)).await.unwrap();
    basin.stream(name)
}

fn one(record: impl Into<AppendRecord>) -> AppendInput {
    AppendInput::new(AppendRecordBatch::try_from_iter([record.into()]).unwrap())
}

fn from(start: ReadFrom) -> ReadInput {
    ReadInput::new().with_start(ReadStart::new().with_from(start))
}

fn texts(batch: &ReadBatch) -> Vec<String> {
    batch.records.iter().map(|record| String::from_utf8(record.body.to_vec()).unwrap()).collect()
}

fn mismatch(refused: Result<AppendAck, AppendError>) -> AppendConditionFailed {
    match refused {
        Err(AppendError::ConditionFailed(failed)) => failed,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_batch_is_acked_with_its_place_and_read_as_it_was() {
    for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
        let stream = stream_with(compression, StreamConfig::new()).await;
        assert_eq!(stream.check_tail().await.unwrap(), StreamPosition::new(0, 0));
        let large = "x".repeat(100_000);
        let header = Header::new("name", vec![0xff, 0]);
        let record = AppendRecord::new(large.clone()).unwrap().with_headers([header.clone(), header]).unwrap();
        let ack = stream.append(one(record.with_timestamp(7))).await.unwrap();
        assert_eq!((ack.start.seq_num, ack.end.seq_num, ack.tail.seq_num), (0, 1, 1));
        assert_eq!((ack.start.timestamp, ack.end.timestamp), (7, 7));
        let ack = stream.append(bodies(&["b", "c"])).await.unwrap();
        assert_eq!((ack.start.seq_num, ack.end.seq_num), (1, 3));
        assert_eq!(stream.check_tail().await.unwrap(), ack.tail);
        let batch = stream.read(from(ReadFrom::SeqNum(0))).await.unwrap();
        assert_eq!(texts(&batch), [&large[..], "b", "c"]);
        assert_eq!(batch.records[0].headers.len(), 2);
        assert_eq!(batch.records[0].headers[1].value.as_ref(), [0xff, 0]);
    }
}

#[tokio::test]
async fn a_key_for_a_stream_that_is_not_encrypted_is_not_looked_at() {
    let key: EncryptionKey = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".parse().unwrap();
    let stream = stream(StreamConfig::new()).await;
    stream.clone().with_encryption_key(key.clone()).append(bodies(&["a"])).await.unwrap();
    assert_eq!(texts(&stream.read(from(ReadFrom::SeqNum(0))).await.unwrap()), ["a"]);
    assert_eq!(texts(&stream.with_encryption_key(key).read(from(ReadFrom::SeqNum(0))).await.unwrap()), ["a"]);
}

#[tokio::test]
async fn a_batch_may_be_as_large_as_s2_lets_it() {
    let stream = stream(StreamConfig::new()).await;
    let record = AppendRecord::new(vec![7; (1 << 20) - 8]).unwrap();
    stream.append(one(record)).await.unwrap();
    let records = (0..1_000).map(|no| AppendRecord::new(no.to_string()).unwrap());
    stream.append(AppendInput::new(AppendRecordBatch::try_from_iter(records).unwrap())).await.unwrap();
    let read = stream.read(from(ReadFrom::SeqNum(0))).await.unwrap();
    assert_eq!((read.records.len(), read.records[0].body.len()), (1, (1 << 20) - 8), "a batch of it fills an answer");
    assert_eq!(stream.read(from(ReadFrom::SeqNum(1))).await.unwrap().records.len(), 1_000);
}

#[tokio::test]
async fn an_append_that_expects_another_number_is_refused_with_the_right_one() {
    let stream = stream(StreamConfig::new()).await;
    stream.append(bodies(&["a"]).with_match_seq_num(0)).await.unwrap();
    let failed = mismatch(stream.append(bodies(&["b"]).with_match_seq_num(0)).await);
    assert!(matches!(failed, AppendConditionFailed::SeqNumMismatch(1)), "{failed:?}");
    stream.append(bodies(&["b"]).with_match_seq_num(1)).await.unwrap();
}

#[tokio::test]
async fn fencing_is_cooperative_and_a_fence_takes_a_number() {
    let stream = stream(StreamConfig::new()).await;
    let token = |text: &str| text.parse::<FencingToken>().unwrap();
    stream.append(bodies(&["a"]).with_fencing_token(token(""))).await.unwrap();
    let ack = stream.append(one(CommandRecord::fence(token("gen-1"))).with_fencing_token(token(""))).await.unwrap();
    assert_eq!((ack.start.seq_num, ack.end.seq_num), (1, 2));
    for wrong in ["", "gen-0"] {
        let failed = mismatch(stream.append(bodies(&["x"]).with_fencing_token(token(wrong))).await);
        let AppendConditionFailed::FencingTokenMismatch(installed) = failed else { panic!("{failed:?}") };
        assert_eq!(installed, token("gen-1"));
    }
    stream.append(bodies(&["b"]).with_fencing_token(token("gen-1"))).await.unwrap();
    stream.append(bodies(&["c"])).await.expect("whoever presents nothing is let in");
    stream.append(one(CommandRecord::fence(token("")))).await.unwrap();
    stream.append(bodies(&["d"]).with_fencing_token(token(""))).await.unwrap();
    let batch = stream.read(from(ReadFrom::SeqNum(0))).await.unwrap();
    assert_eq!(batch.records.iter().filter(|record| record.is_command_record()).count(), 2);
    assert_eq!(batch.records[1].body.as_ref(), b"gen-1");
    let plain = stream.read(from(ReadFrom::SeqNum(0)).with_ignore_command_records(true)).await.unwrap();
    assert_eq!(texts(&plain), ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_trim_takes_a_number_and_what_is_below_it_goes_in_silence() {
    let stream = stream(StreamConfig::new()).await;
    stream.append(bodies(&["a", "b", "c"])).await.unwrap();
    let ack = stream.append(one(CommandRecord::trim(2))).await.unwrap();
    assert_eq!(ack.start.seq_num, 3);
    let batch = stream.read(from(ReadFrom::SeqNum(0))).await.unwrap();
    assert_eq!(batch.records.first().unwrap().seq_num, 2);
    stream.append(one(CommandRecord::trim(0))).await.expect("backwards does nothing");
    stream.append(one(CommandRecord::trim(u64::MAX))).await.unwrap();
    assert_eq!(stream.check_tail().await.unwrap().seq_num, 6);
    let refused = stream.read(from(ReadFrom::SeqNum(6))).await;
    assert!(matches!(refused, Err(ReadError::ReadUnwritten(tail)) if tail.seq_num == 6), "{refused:?}");
    let mixed = [AppendRecord::from(CommandRecord::trim(u64::MAX)), AppendRecord::new("kept").unwrap()];
    let mixed = AppendInput::new(AppendRecordBatch::try_from_iter(mixed).unwrap());
    assert!(
        matches!(stream.append(mixed).await, Err(AppendError::Request(RequestError::Server(error))) if error.code == "invalid")
    );
}

#[tokio::test]
async fn a_read_ends_where_its_bounds_say() {
    let stream = stream(StreamConfig::new()).await;
    let records = (0..10).map(|no| AppendRecord::new(no.to_string()).unwrap().with_timestamp(100 + no * 10));
    stream.append(AppendInput::new(AppendRecordBatch::try_from_iter(records).unwrap())).await.unwrap();
    let read = async |start, stop: ReadStop| texts(&stream.read(from(start).with_stop(stop)).await.unwrap());
    let limits = |limits: ReadLimits| ReadStop::new().with_limits(limits);
    assert_eq!(read(ReadFrom::SeqNum(3), limits(ReadLimits::new().with_count(2))).await, ["3", "4"]);
    assert_eq!(read(ReadFrom::SeqNum(0), limits(ReadLimits::new().with_bytes(29))).await.len(), 3, "9 bytes each");
    assert!(read(ReadFrom::SeqNum(0), limits(ReadLimits::new().with_bytes(5))).await.is_empty());
    assert!(read(ReadFrom::SeqNum(0), limits(ReadLimits::new().with_count(0))).await.is_empty());
    assert_eq!(read(ReadFrom::TailOffset(2), ReadStop::new()).await, ["8", "9"]);
    assert_eq!(read(ReadFrom::TailOffset(99), ReadStop::new()).await.len(), 10);
    assert_eq!(read(ReadFrom::Timestamp(145), ReadStop::new().with_until(..170)).await, ["5", "6"]);
    let bad = stream.read(from(ReadFrom::Timestamp(9)).with_stop(ReadStop::new().with_until(..9))).await;
    assert!(bad.is_err(), "{bad:?}");
}

#[tokio::test]
async fn what_is_not_written_is_not_read_unless_it_is_waited_for() {
    let stream = stream(StreamConfig::new()).await;
    let unwritten = |refused: Result<ReadBatch, ReadError>| match refused {
        Err(ReadError::ReadUnwritten(tail)) => tail.seq_num,
        other => panic!("{other:?}"),
    };
    assert_eq!(unwritten(stream.read(from(ReadFrom::SeqNum(0))).await), 0);
    stream.append(bodies(&["a"])).await.unwrap();
    assert_eq!(unwritten(stream.read(from(ReadFrom::SeqNum(1))).await), 1);
    assert_eq!(unwritten(stream.read(from(ReadFrom::SeqNum(9))).await), 1);
    assert_eq!(unwritten(stream.read(from(ReadFrom::Timestamp(u64::MAX))).await), 1);
    let clamped =
        || ReadInput::new().with_start(ReadStart::new().with_from(ReadFrom::SeqNum(9)).with_clamp_to_tail(true));
    assert_eq!(unwritten(stream.read(clamped()).await), 1);
    let waiting = stream.read(clamped().with_stop(ReadStop::new().with_wait(10)));
    let appending = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        stream.append(bodies(&["b"])).await.unwrap();
    };
    let (batch, ()) = tokio::join!(waiting, appending);
    assert_eq!(texts(&batch.unwrap()), ["b"]);
    let late = stream.read(clamped().with_stop(ReadStop::new().with_wait(1))).await.unwrap();
    assert!(late.records.is_empty());
}

#[tokio::test]
async fn stamps_follow_the_mode() {
    let stamped = |stamp: u64| one(AppendRecord::new("x").unwrap().with_timestamp(stamp));
    let of = |mode, uncapped| {
        StreamConfig::new().with_timestamping(TimestampingConfig::new().with_mode(mode).with_uncapped(uncapped))
    };
    let prefer = stream(of(TimestampingMode::ClientPrefer, false)).await;
    let now = prefer.append(bodies(&["now"])).await.unwrap().start.timestamp;
    assert_eq!(prefer.append(stamped(5)).await.unwrap().start.timestamp, now, "raised to the one before");
    let capped = prefer.append(stamped(now + 10_000_000)).await.unwrap().start.timestamp;
    assert!(capped >= now && capped < now + 1_000_000, "capped at the arrival");
    let require = stream(of(TimestampingMode::ClientRequire, true)).await;
    let refused = require.append(bodies(&["none"])).await;
    assert!(matches!(refused, Err(AppendError::Request(RequestError::Server(error))) if error.code == "invalid"));
    assert_eq!(require.append(stamped(3)).await.unwrap().start.timestamp, 3);
    assert_eq!(require.append(stamped(1 << 60)).await.unwrap().end.timestamp, 1 << 60);
    let arrival = stream(of(TimestampingMode::Arrival, false)).await;
    assert!(arrival.append(stamped(3)).await.unwrap().start.timestamp > 1_000_000, "a stamp is ignored");
}

#[tokio::test]
async fn streams_are_made_by_those_who_may() {
    let s2 = client(Compression::None);
    let on = BasinConfig::new().with_create_stream_on_append(true).with_create_stream_on_read(true);
    let (_, on) = basin(&s2, on).await;
    let express = StreamConfig::new().with_storage_class("express");
    let input = bodies(&["a"]).with_stream_config(express.clone());
    on.stream("by-append".parse().unwrap()).append(input).await.unwrap();
    let made = on.get_stream_config("by-append".parse().unwrap()).await.unwrap();
    assert_eq!(made.storage_class.as_deref(), Some("express"));
    assert_eq!(on.stream("by-tail".parse().unwrap()).check_tail().await.unwrap().seq_num, 0);
    on.get_stream_config("by-tail".parse().unwrap()).await.unwrap();
    let read = on.stream("by-read".parse().unwrap()).read(from(ReadFrom::SeqNum(0)).with_stream_config(express)).await;
    assert!(matches!(read, Err(ReadError::ReadUnwritten(tail)) if tail.seq_num == 0), "{read:?}");
    let made = on.get_stream_config("by-read".parse().unwrap()).await.unwrap();
    assert_eq!(made.storage_class.as_deref(), Some("express"));

    let (_, off) = basin(&s2, BasinConfig::new()).await;
    let missing = off.stream("nothing".parse().unwrap());
    let code = |error: Option<&RequestError>| match error {
        Some(RequestError::Server(error)) => error.code.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(code(missing.check_tail().await.unwrap_err().request_error()), "stream_not_found");
    assert_eq!(code(missing.append(bodies(&["x"])).await.unwrap_err().request_error()), "stream_not_found");
    assert_eq!(code(missing.read(from(ReadFrom::SeqNum(0))).await.unwrap_err().request_error()), "stream_not_found");
}
