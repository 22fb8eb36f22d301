//! Producers: records that the SDK makes batches of by itself.

use s2_sdk::S2Basin;
use s2_sdk::error::*;
use s2_sdk::producer::ProducerConfig;
use s2_sdk::types::*;
use s2_sdk_suite::{basin, client};

use crate::bodies;

fn record(body: &str) -> AppendRecord {
    AppendRecord::new(body.to_owned()).unwrap()
}

async fn on_append() -> S2Basin {
    let s2 = client(Compression::None);
    basin(&s2, BasinConfig::new().with_create_stream_on_append(true)).await.1
}

#[tokio::test]
async fn a_producer_batches_by_itself() {
    let its = on_append().await;
    let stream = its.stream("s".parse().unwrap());
    let express = StreamConfig::new().with_storage_class("express");
    let producer = stream.producer(ProducerConfig::new().with_stream_config(express));
    let mut tickets = Vec::new();
    for no in 0..5_000 {
        tickets.push(producer.submit(record(&no.to_string())).await.unwrap());
    }
    producer.flush().await.unwrap();
    assert_eq!(stream.check_tail().await.unwrap().seq_num, 5_000);
    tickets.push(producer.submit(record("last")).await.unwrap());
    producer.close().await.unwrap();
    for (no, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.await.unwrap().seq_num, no as u64);
    }
    let made = its.get_stream_config("s".parse().unwrap()).await.unwrap();
    assert_eq!(made.storage_class.as_deref(), Some("express"), "as the producer asked for");
}

#[tokio::test]
async fn a_producer_that_is_refused_says_why_to_all_that_wait() {
    let its = on_append().await;
    let stream = its.stream("s".parse().unwrap());
    stream.append(bodies(&["a"])).await.unwrap();
    let token = |text: &str| text.parse::<FencingToken>().unwrap();
    let seq_num = ProducerConfig::new().with_match_seq_num(7);
    let fenced = ProducerConfig::new().with_fencing_token(token("other"));
    for (config, expected) in [
        (seq_num, AppendConditionFailed::SeqNumMismatch(1)),
        (fenced, AppendConditionFailed::FencingTokenMismatch(token(""))),
    ] {
        let producer = stream.producer(config);
        let first = producer.submit(record("b")).await.unwrap();
        let refused = first.await.unwrap_err();
        let ProducerError::Append(AppendSessionError::Append(AppendError::ConditionFailed(found))) = &refused else {
            panic!("{refused:?}")
        };
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        assert!(refused.has_no_side_effects() && !refused.is_retryable());
        assert!(producer.close().await.is_err());
    }
    assert_eq!(stream.check_tail().await.unwrap().seq_num, 1);
}

#[tokio::test]
async fn a_producer_of_a_stream_that_is_not_there_hears_it() {
    let s2 = client(Compression::None);
    let (_, its) = basin(&s2, BasinConfig::new()).await;
    let producer = its.stream("nothing".parse().unwrap()).producer(ProducerConfig::new());
    let refused = producer.submit(record("a")).await.unwrap().await.unwrap_err();
    let Some(RequestError::Server(error)) = refused.request_error() else { panic!("{refused:?}") };
    assert_eq!(error.code, "stream_not_found");
}
