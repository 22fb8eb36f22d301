//! Sessions: many batches over one request, and records as they come.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use s2_sdk::S2Stream;
use s2_sdk::append_session::AppendSessionConfig;
use s2_sdk::error::*;
use s2_sdk::types::*;
use s2_sdk_suite::{Star, basin, client, client_that_tries};

use crate::bodies;

async fn stream(compression: Compression) -> S2Stream {
    let s2 = client(compression);
    let express = StreamConfig::new().with_storage_class("express");
    let (_, basin) = basin(&s2, BasinConfig::new().with_default_stream_config(express)).await;
    let name: StreamName = "s".parse().unwrap();
    basin.create_stream(CreateStreamInput::new(name.clone())).await.unwrap();
    basin.stream(name)
}

fn from(seq_num: u64) -> ReadInput {
    ReadInput::new().with_start(ReadStart::new().with_from(ReadFrom::SeqNum(seq_num)))
}

#[tokio::test]
async fn batches_are_acked_in_order_and_read_back_by_a_session() {
    for compression in [Compression::None, Compression::Zstd, Compression::Gzip] {
        let stream = stream(compression).await;
        let session = stream.append_session(AppendSessionConfig::new());
        let mut tickets = Vec::new();
        for no in 0..200 {
            let body = format!("{no}-{}", "x".repeat(2_000));
            tickets.push(session.submit(bodies(&[&body, "second"])).await.unwrap());
        }
        for (no, ticket) in tickets.into_iter().enumerate() {
            let ack = ticket.await.unwrap();
            assert_eq!((ack.start.seq_num, ack.end.seq_num), (no as u64 * 2, no as u64 * 2 + 2));
        }
        session.close().await.unwrap();
        let all = from(0).with_stop(ReadStop::new().with_wait(0));
        let session = stream.read_session(all, ReadSessionConfig::new()).await.unwrap();
        let batches: Vec<ReadBatch> = session.try_collect().await.unwrap();
        let numbers: Vec<u64> = batches.iter().flat_map(|batch| &batch.records).map(|record| record.seq_num).collect();
        assert_eq!(numbers, (0..400).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn nothing_lands_behind_a_batch_that_was_refused() {
    let stream = stream(Compression::None).await;
    let session = stream.append_session(AppendSessionConfig::new());
    let first = session.submit(bodies(&["a"]).with_match_seq_num(0)).await.unwrap();
    let wrong = session.submit(bodies(&["b"]).with_match_seq_num(7)).await.unwrap();
    let behind = session.submit(bodies(&["c"])).await;
    assert_eq!(first.await.unwrap().end.seq_num, 1);
    let refused = wrong.await.unwrap_err();
    let failed = AppendConditionFailed::SeqNumMismatch(1);
    let AppendSessionError::Append(AppendError::ConditionFailed(found)) = &refused else { panic!("{refused:?}") };
    assert_eq!(format!("{found:?}"), format!("{failed:?}"));
    if let Ok(behind) = behind {
        assert!(behind.await.is_err());
    }
    assert_eq!(stream.check_tail().await.unwrap().seq_num, 1);
}

#[tokio::test]
async fn a_fence_takes_effect_for_the_next_batch_of_the_same_session() {
    let stream = stream(Compression::None).await;
    let token = |text: &str| text.parse::<FencingToken>().unwrap();
    let session = stream.append_session(AppendSessionConfig::new());
    let fence = AppendRecordBatch::try_from_iter([AppendRecord::from(CommandRecord::fence(token("t")))]).unwrap();
    let fence = session.submit(AppendInput::new(fence)).await.unwrap();
    let inside = session.submit(bodies(&["in"]).with_fencing_token(token("t"))).await.unwrap();
    let outside = session.submit(bodies(&["out"]).with_fencing_token(token(""))).await.unwrap();
    assert_eq!(fence.await.unwrap().start.seq_num, 0);
    assert_eq!(inside.await.unwrap().start.seq_num, 1);
    let refused = outside.await.unwrap_err();
    let AppendSessionError::Append(AppendError::ConditionFailed(found)) = &refused else { panic!("{refused:?}") };
    assert!(matches!(found, AppendConditionFailed::FencingTokenMismatch(installed) if *installed == token("t")));
}

#[tokio::test]
async fn a_read_session_follows_and_knows_when_it_has_caught_up() {
    let stream = stream(Compression::None).await;
    stream.append(bodies(&["old"])).await.unwrap();
    let mut session = stream.read_session(from(0), ReadSessionConfig::new()).await.unwrap();
    let caught_up = session.caught_up();
    let first = session.next().await.unwrap().unwrap();
    assert_eq!(first.records[0].body.as_ref(), b"old");
    for no in 0..3 {
        let body = format!("new {no}");
        let (read, ack) = tokio::join!(session.next(), stream.append(bodies(&[&body])));
        let read = read.unwrap().unwrap();
        assert_eq!(read.records[0].body.as_ref(), body.as_bytes());
        assert_eq!(read.records[0].seq_num, ack.unwrap().start.seq_num);
    }
    let tail = tokio::time::timeout(Duration::from_secs(5), caught_up).await.expect("it has caught up").unwrap();
    assert!(tail.seq_num >= 1);
}

#[tokio::test]
async fn bounded_sessions_end_by_themselves() {
    let stream = stream(Compression::None).await;
    for _ in 0..5 {
        stream.append(bodies(&["a", "b"])).await.unwrap();
    }
    let read = async |stop: ReadStop| {
        let session = stream.read_session(from(0).with_stop(stop), ReadSessionConfig::new()).await.unwrap();
        session.map_ok(|batch| batch.records.len()).try_fold(0, async |sum, more| Ok(sum + more)).await.unwrap()
    };
    assert_eq!(read(ReadStop::new().with_limits(ReadLimits::new().with_count(7))).await, 7);
    assert_eq!(read(ReadStop::new().with_limits(ReadLimits::new().with_count(usize::MAX))).await, 10, "up to the tail");
    assert_eq!(read(ReadStop::new().with_limits(ReadLimits::new().with_bytes(30))).await, 3);
    assert_eq!(read(ReadStop::new().with_wait(1)).await, 10, "and a second of waiting");
}

#[tokio::test]
async fn sessions_of_what_is_not_there_are_refused_before_they_begin() {
    let s2 = client(Compression::None);
    let (_, basin) = basin(&s2, BasinConfig::new()).await;
    let missing = basin.stream("nothing".parse().unwrap());
    let refused = missing.read_session(from(0), ReadSessionConfig::new()).await.err().expect("a refusal");
    let Some(RequestError::Server(error)) = refused.request_error() else { panic!("{refused:?}") };
    assert_eq!(error.code, "stream_not_found");
    let session = missing.append_session(AppendSessionConfig::new());
    let refused = session.submit(bodies(&["x"])).await.expect("it is on its way").await.unwrap_err();
    let Some(RequestError::Server(error)) = refused.request_error() else { panic!("{refused:?}") };
    assert_eq!(error.code, "stream_not_found");
}

#[tokio::test]
async fn a_stream_that_is_deleted_ends_its_sessions() {
    let s2 = client(Compression::None);
    let (_, basin) = basin(&s2, BasinConfig::new()).await;
    let name: StreamName = "s".parse().unwrap();
    basin.create_stream(CreateStreamInput::new(name.clone())).await.unwrap();
    let stream = basin.stream(name.clone());
    stream.append(bodies(&["x"])).await.unwrap();
    let mut session = stream.read_session(from(0), ReadSessionConfig::new()).await.unwrap();
    session.next().await.unwrap().unwrap();
    basin.delete_stream(DeleteStreamInput::new(name)).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), session.next()).await.expect("it ends");
    assert!(matches!(ended, Some(Err(_))), "{ended:?}");
}

#[tokio::test]
async fn a_session_that_starts_past_the_tail_is_refused_with_the_tail_or_waits_there() {
    let stream = stream(Compression::None).await;
    stream.append(bodies(&["a", "b"])).await.unwrap();
    let refused = stream.read_session(from(9), ReadSessionConfig::new()).await.err().expect("a refusal");
    let ReadSessionError::Read(ReadError::ReadUnwritten(tail)) = refused else { panic!("{refused:?}") };
    assert_eq!(tail.seq_num, 2);
    let clamped = ReadStart::new().with_from(ReadFrom::SeqNum(9)).with_clamp_to_tail(true);
    let mut session =
        stream.read_session(ReadInput::new().with_start(clamped), ReadSessionConfig::new()).await.unwrap();
    let (read, _) = tokio::join!(session.next(), stream.append(bodies(&["c"])));
    assert_eq!(read.unwrap().unwrap().records[0].seq_num, 2);
    let ended = stream.read_session(
        from(0).with_stop(ReadStop::new().with_limits(ReadLimits::new().with_count(1))),
        ReadSessionConfig::new(),
    );
    let ended = ended.await.unwrap();
    let caught_up = ended.caught_up();
    assert_eq!(ended.try_collect::<Vec<_>>().await.unwrap().len(), 1);
    assert!(matches!(caught_up.await, Err(CaughtUpError::SessionClosed)));
}

#[tokio::test]
async fn a_session_shows_commands_unless_it_is_told_not_to() {
    let stream = stream(Compression::None).await;
    stream.append(bodies(&["a"])).await.unwrap();
    let fence = CommandRecord::fence("t".parse().unwrap());
    let fence = AppendRecordBatch::try_from_iter([AppendRecord::from(fence)]).unwrap();
    stream.append(AppendInput::new(fence)).await.unwrap();
    stream.append(bodies(&["b"])).await.unwrap();
    for (ignores, expected) in [(false, vec![0, 1, 2]), (true, vec![0, 2])] {
        let all = from(0).with_stop(ReadStop::new().with_wait(0)).with_ignore_command_records(ignores);
        let session = stream.read_session(all, ReadSessionConfig::new()).await.unwrap();
        let batches: Vec<ReadBatch> = session.try_collect().await.unwrap();
        let found: Vec<u64> = batches.iter().flat_map(|batch| &batch.records).map(|record| record.seq_num).collect();
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn sessions_go_on_once_the_server_is_started_again() {
    let mut star = Star::start();
    let s2 = client_that_tries(&star.endpoint(), 1_000);
    let (_, basin) = basin(&s2, BasinConfig::new().with_create_stream_on_append(true)).await;
    let stream = basin.stream("s".parse().unwrap());
    let session = stream.append_session(AppendSessionConfig::new());
    session.submit(bodies(&["before"])).await.unwrap().await.unwrap();
    let indefinite = ReadSessionConfig::new().with_retry_policy(ReadSessionRetryPolicy::Indefinite);
    let mut reader = stream.read_session(from(0), indefinite).await.unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().records[0].body.as_ref(), b"before");
    let _star = tokio::task::spawn_blocking(move || {
        star.stop();
        star.start_again();
        star
    })
    .await
    .unwrap();
    let ack = session.submit(bodies(&["after"])).await.unwrap().await.unwrap();
    assert_eq!(ack.start.seq_num, 1);
    let read = reader.next().await.unwrap().unwrap();
    assert_eq!((read.records[0].seq_num, read.records[0].body.as_ref()), (1, &b"after"[..]));
    session.close().await.unwrap();
}
