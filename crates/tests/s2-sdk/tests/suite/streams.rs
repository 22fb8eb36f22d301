//! Streams.

use std::time::Duration;

use futures_util::TryStreamExt;
use s2_sdk::types::*;
use s2_sdk_suite::{basin, client};

use crate::code;

#[tokio::test]
async fn a_stream_takes_what_is_left_out_from_its_basin_and_s2() {
    let s2 = client(Compression::None);
    let defaults = StreamConfig::new().with_storage_class("express");
    let (_, basin) = basin(&s2, BasinConfig::new().with_default_stream_config(defaults)).await;
    let name: StreamName = "orders/eu ☃".parse().unwrap();
    let info = basin.create_stream(CreateStreamInput::new(name.clone())).await.unwrap();
    assert_eq!((info.name.clone(), info.deleted_at), (name.clone(), None));
    let config = basin.get_stream_config(name.clone()).await.unwrap();
    assert_eq!(config.storage_class.as_deref(), Some("express"));
    assert!(matches!(config.retention_policy, Some(RetentionPolicy::Age(604_800))), "{config:?}");
    let forever = StreamConfig::new().with_retention_policy(RetentionPolicy::Infinite);
    basin.create_stream(CreateStreamInput::new("x".parse().unwrap()).with_config(forever)).await.unwrap();
    let config = basin.get_stream_config("x".parse().unwrap()).await.unwrap();
    assert!(matches!(config.retention_policy, Some(RetentionPolicy::Infinite)), "{config:?}");
}

#[tokio::test]
async fn every_field_of_a_stream_is_changed_alone_and_comes_back() {
    let s2 = client(Compression::None);
    let (_, basin) = basin(&s2, BasinConfig::new()).await;
    let name: StreamName = "s".parse().unwrap();
    basin.create_stream(CreateStreamInput::new(name.clone())).await.unwrap();
    let change =
        |change: StreamReconfiguration| basin.reconfigure_stream(ReconfigureStreamInput::new(name.clone(), change));
    let new = StreamReconfiguration::new;
    let config = change(new().with_storage_class("express")).await.unwrap();
    assert_eq!(config.storage_class.as_deref(), Some("express"));
    let config = change(new().with_retention_policy(RetentionPolicy::Age(5))).await.unwrap();
    assert!(matches!(config.retention_policy, Some(RetentionPolicy::Age(5))));
    let stamps = TimestampingReconfiguration::new().with_mode(TimestampingMode::Arrival).with_uncapped(true);
    let config = change(new().with_timestamping(stamps)).await.unwrap();
    assert_eq!(config.timestamping.unwrap().uncapped, Some(true), "with an age too");
    let empty = DeleteOnEmptyReconfiguration::new().with_min_age(Duration::from_secs(7));
    let config = change(new().with_delete_on_empty(empty)).await.unwrap();
    assert_eq!(config.delete_on_empty.unwrap().min_age_secs, 7);
    let config = change(new()).await.unwrap();
    assert_eq!(config.storage_class.as_deref(), Some("express"));
    assert!(matches!(config.timestamping.unwrap().mode, Some(TimestampingMode::Arrival)));
    assert_eq!(code(change(new().with_retention_policy(RetentionPolicy::Age(0))).await), "invalid");
    let gone = ReconfigureStreamInput::new("nothing".parse().unwrap(), new());
    assert_eq!(code(basin.reconfigure_stream(gone).await), "stream_not_found");
}

#[tokio::test]
async fn a_second_stream_of_a_name_is_refused_and_an_ensure_joins() {
    let s2 = client(Compression::None);
    let (_, basin) = basin(&s2, BasinConfig::new()).await;
    let name: StreamName = "s".parse().unwrap();
    let ensure = |config: StreamConfig| basin.ensure_stream(EnsureStreamInput::new(name.clone()).with_config(config));
    let age = StreamConfig::new().with_retention_policy(RetentionPolicy::Age(9));
    assert!(matches!(ensure(age.clone()).await.unwrap(), EnsureOutput::Created(_)));
    assert!(matches!(ensure(age).await.unwrap(), EnsureOutput::ConfigUnchanged(_)));
    assert!(matches!(ensure(StreamConfig::new()).await.unwrap(), EnsureOutput::ConfigUpdated(_)));
    let again = basin.create_stream(CreateStreamInput::new(name.clone())).await;
    assert_eq!(code(again), "resource_already_exists");
    let bad = StreamConfig::new().with_retention_policy(RetentionPolicy::Age(0));
    let refused = basin.create_stream(CreateStreamInput::new("t".parse().unwrap()).with_config(bad)).await;
    assert_eq!(code(refused), "invalid");
    let bad = StreamConfig::new().with_storage_class("native");
    let refused = basin.create_stream(CreateStreamInput::new("t".parse().unwrap()).with_config(bad)).await;
    assert_eq!(code(refused), "invalid");
    let nowhere = s2.basin("no-such-basin".parse().unwrap());
    assert_eq!(code(nowhere.create_stream(CreateStreamInput::new(name)).await), "basin_not_found");
    assert_eq!(code(nowhere.list_streams(ListStreamsInput::new()).await), "basin_not_found");
}

#[tokio::test]
async fn deletes_are_repeated_in_peace_and_a_stream_made_again_starts_anew() {
    let s2 = client(Compression::None);
    let (_, basin) = basin(&s2, BasinConfig::new()).await;
    let name: StreamName = "s".parse().unwrap();
    let delete = |name: &StreamName| basin.delete_stream(DeleteStreamInput::new(name.clone()));
    assert_eq!(code(delete(&name).await), "stream_not_found");
    basin.create_stream(CreateStreamInput::new(name.clone())).await.unwrap();
    basin.stream(name.clone()).append(crate::bodies(&["a"])).await.unwrap();
    delete(&name).await.unwrap();
    delete(&name).await.unwrap();
    assert_eq!(code(basin.get_stream_config(name.clone()).await), "stream_not_found");
    basin.create_stream(CreateStreamInput::new(name.clone())).await.unwrap();
    assert_eq!(basin.stream(name).check_tail().await.unwrap().seq_num, 0);
}

#[tokio::test]
async fn streams_are_listed_by_prefix_and_page_whatever_is_asked_for() {
    let s2 = client(Compression::None);
    let (_, basin) = basin(&s2, BasinConfig::new()).await;
    let names = ["a", "a/1", "a/2", "a/3", "b", "é"];
    for name in names.iter().rev() {
        basin.create_stream(CreateStreamInput::new(name.parse().unwrap())).await.unwrap();
    }
    let found = |page: &Page<StreamInfo>| page.values.iter().map(|info| info.name.to_string()).collect::<Vec<_>>();
    for limit in [0, 1_000, 5_000] {
        let page = basin.list_streams(ListStreamsInput::new().with_limit(limit)).await.unwrap();
        assert_eq!((found(&page), page.has_more), (names.map(String::from).to_vec(), false), "{limit}");
    }
    let prefixed = || ListStreamsInput::new().with_prefix("a/".parse().unwrap());
    let page = basin.list_streams(prefixed().with_limit(2)).await.unwrap();
    assert_eq!((found(&page), page.has_more), (vec!["a/1".into(), "a/2".into()], true));
    let page = basin.list_streams(prefixed().with_start_after("a/2".parse().unwrap())).await.unwrap();
    assert_eq!((found(&page), page.has_more), (vec!["a/3".to_owned()], false));
    let page = basin.list_streams(ListStreamsInput::new().with_start_after("zzz".parse().unwrap())).await.unwrap();
    assert_eq!(found(&page), ["é"]);
    let all = basin.list_all_streams(ListAllStreamsInput::new()).try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(all.len(), names.len());
}
