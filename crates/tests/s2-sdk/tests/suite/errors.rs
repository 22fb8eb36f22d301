//! What may a program conclude from an error of the SDK?

use s2_sdk::error::*;
use s2_sdk::types::*;
use s2_sdk_suite::{Star, basin, client, client_that_tries};

use crate::bodies;

#[tokio::test]
async fn a_refusal_has_a_code_that_the_sdk_knows_with_its_status_and_promises() {
    let s2 = client(Compression::None);
    let (name, its) = basin(&s2, BasinConfig::new()).await;
    let stream: StreamName = "s".parse().unwrap();
    its.create_stream(CreateStreamInput::new(stream.clone())).await.unwrap();
    let nowhere: BasinName = "no-such-basin".parse().unwrap();
    let bad = StreamConfig::new().with_retention_policy(RetentionPolicy::Age(0));
    for (refused, status, code) in [
        (s2.get_basin_config(nowhere.clone()).await.unwrap_err(), 404, ErrorCode::BasinNotFound),
        (s2.delete_basin(DeleteBasinInput::new(nowhere)).await.unwrap_err(), 404, ErrorCode::BasinNotFound),
        (its.get_stream_config("t".parse().unwrap()).await.unwrap_err(), 404, ErrorCode::StreamNotFound),
        (s2.create_basin(CreateBasinInput::new(name)).await.unwrap_err(), 409, ErrorCode::ResourceAlreadyExists),
        (
            its.create_stream(CreateStreamInput::new(stream.clone())).await.unwrap_err(),
            409,
            ErrorCode::ResourceAlreadyExists,
        ),
        (
            its.ensure_stream(EnsureStreamInput::new(stream).with_config(bad)).await.unwrap_err(),
            422,
            ErrorCode::Invalid,
        ),
        (s2.list_locations().await.unwrap_err(), 501, ErrorCode::NotImplemented),
    ] {
        let told = refused.server_error().unwrap_or_else(|| panic!("{refused:?}"));
        assert_eq!((told.status.as_u16(), told.known_code()), (status, Some(code)));
        assert!(refused.has_no_side_effects() && !refused.is_retryable(), "{refused:?}");
        assert!(!told.message.is_empty());
    }
}

#[tokio::test]
async fn a_condition_that_failed_did_nothing_and_is_not_tried_again() {
    let s2 = client(Compression::None);
    let (_, its) = basin(&s2, BasinConfig::new().with_create_stream_on_append(true)).await;
    let stream = its.stream("s".parse().unwrap());
    stream.append(bodies(&["a"])).await.unwrap();
    let failed = stream.append(bodies(&["b"]).with_match_seq_num(0)).await.unwrap_err();
    assert!(matches!(failed, AppendError::ConditionFailed(AppendConditionFailed::SeqNumMismatch(1))), "{failed:?}");
    assert!(failed.has_no_side_effects() && !failed.is_retryable());
    let unwritten = stream.read(ReadInput::new().with_start(ReadStart::new().with_from(ReadFrom::SeqNum(1)))).await;
    assert!(unwritten.is_err_and(|error| !error.is_retryable()));
    assert_eq!(stream.check_tail().await.unwrap().seq_num, 1);
}

#[tokio::test]
async fn a_server_that_is_gone_is_tried_again_in_peace() {
    let mut star = Star::start();
    let endpoint = star.endpoint();
    client_that_tries(&endpoint, 1).list_basins(ListBasinsInput::new()).await.unwrap();
    tokio::task::spawn_blocking(move || star.stop()).await.unwrap();
    let gone = client_that_tries(&endpoint, 1).list_basins(ListBasinsInput::new()).await.unwrap_err();
    assert!(matches!(gone, RequestError::Client(ClientError::ConnectionRefused(_))), "{gone:?}");
    assert!(gone.is_retryable() && gone.has_no_side_effects());
}
