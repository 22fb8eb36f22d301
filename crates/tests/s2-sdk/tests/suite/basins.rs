//! Basins.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use s2_sdk::S2;
use s2_sdk::types::*;
use s2_sdk_suite::{basin, client, unique};
use tokio::time::{sleep, timeout};

use crate::code;

fn config() -> BasinConfig {
    let stream = StreamConfig::new()
        .with_storage_class("express")
        .with_retention_policy(RetentionPolicy::Age(3_600))
        .with_timestamping(TimestampingConfig::new().with_mode(TimestampingMode::ClientRequire).with_uncapped(true))
        .with_delete_on_empty(DeleteOnEmptyConfig::new().with_min_age(Duration::from_secs(60)));
    BasinConfig::new().with_default_stream_config(stream).with_create_stream_on_append(true)
}

/// Waits until a basin that is being deleted is gone; it answers until its last stream is.
async fn gone(s2: &S2, name: &BasinName) {
    let is_there = async || match s2.get_basin_config(name.clone()).await {
        Ok(_) => true,
        refused => code(refused) != "basin_not_found",
    };
    let gone = async {
        while is_there().await {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(60), gone).await.expect("it is gone");
}

#[tokio::test]
async fn a_basin_is_made_looked_at_changed_and_deleted() {
    let s2 = client(Compression::None);
    let (name, _) = basin(&s2, config()).await;
    let found = s2.get_basin_config(name.clone()).await.unwrap();
    let stream = found.default_stream_config.unwrap();
    assert_eq!(stream.storage_class.as_deref(), Some("express"));
    assert!(matches!(stream.retention_policy, Some(RetentionPolicy::Age(3_600))));
    let stamps = stream.timestamping.unwrap();
    assert!(matches!(stamps.mode, Some(TimestampingMode::ClientRequire)) && stamps.uncapped == Some(true));
    assert_eq!(stream.delete_on_empty.unwrap().min_age_secs, 60);
    assert!(found.create_stream_on_append && !found.create_stream_on_read);

    let change = BasinReconfiguration::new()
        .with_create_stream_on_append(false)
        .with_default_stream_config(StreamReconfiguration::new().with_retention_policy(RetentionPolicy::Infinite));
    let changed = s2.reconfigure_basin(ReconfigureBasinInput::new(name.clone(), change)).await.unwrap();
    let stream = changed.default_stream_config.unwrap();
    assert!(matches!(stream.retention_policy, Some(RetentionPolicy::Infinite)));
    assert_eq!(stream.storage_class.as_deref(), Some("express"), "what is left out stays");
    assert!(!changed.create_stream_on_append);

    s2.delete_basin(DeleteBasinInput::new(name.clone())).await.unwrap();
    gone(&s2, &name).await;
    let again = s2.delete_basin(DeleteBasinInput::new(name.clone())).await;
    assert_eq!(code(again), "basin_not_found");
    s2.delete_basin(DeleteBasinInput::new(name.clone()).with_ignore_not_found(true)).await.unwrap();
    assert_eq!(code(s2.get_basin_config(name).await), "basin_not_found");
}

#[tokio::test]
async fn a_basin_goes_with_its_streams() {
    let s2 = client(Compression::None);
    let (name, its) = basin(&s2, BasinConfig::new()).await;
    for no in 0..20 {
        its.create_stream(CreateStreamInput::new(format!("s{no}").parse().unwrap())).await.unwrap();
    }
    s2.delete_basin(DeleteBasinInput::new(name.clone())).await.unwrap();
    gone(&s2, &name).await;
    s2.create_basin(CreateBasinInput::new(name.clone())).await.unwrap();
    assert!(s2.basin(name).list_streams(ListStreamsInput::new()).await.unwrap().values.is_empty());
}

#[tokio::test]
async fn a_second_basin_of_a_name_is_refused_and_an_ensure_joins() {
    let s2 = client(Compression::None);
    let (name, _) = basin(&s2, BasinConfig::new()).await;
    assert_eq!(code(s2.create_basin(CreateBasinInput::new(name.clone())).await), "resource_already_exists");
    let ensure = |config: Option<BasinConfig>| {
        let input = EnsureBasinInput::new(name.clone());
        s2.ensure_basin(config.map_or(input.clone(), |config| input.with_config(config)))
    };
    assert!(matches!(ensure(None).await.unwrap(), EnsureOutput::ConfigUnchanged(_)));
    assert!(matches!(ensure(Some(config())).await.unwrap(), EnsureOutput::ConfigUpdated(_)));
    assert!(matches!(ensure(Some(config())).await.unwrap(), EnsureOutput::ConfigUnchanged(_)));
    assert!(matches!(ensure(None).await.unwrap(), EnsureOutput::ConfigUpdated(_)), "what is left out is its default");
    let other: BasinName = unique("suite-ensured").parse().unwrap();
    let made = s2.ensure_basin(EnsureBasinInput::new(other.clone())).await.unwrap();
    assert!(matches!(made, EnsureOutput::Created(info) if info.name == other && info.deleted_at.is_none()));
}

#[tokio::test]
async fn basins_are_listed_by_prefix_and_page() {
    let s2 = client(Compression::None);
    let prefix = unique("suite-list");
    let names: Vec<String> = (0..4).map(|no| format!("{prefix}-{no}")).collect();
    for name in &names {
        s2.create_basin(CreateBasinInput::new(name.parse().unwrap())).await.unwrap();
    }
    let list = || ListBasinsInput::new().with_prefix(prefix.parse().unwrap());
    let page = s2.list_basins(list().with_limit(3)).await.unwrap();
    let found: Vec<String> = page.values.iter().map(|info| info.name.to_string()).collect();
    assert_eq!((&found[..], page.has_more), (&names[..3], true));
    let rest = s2.list_basins(list().with_start_after(names[2].parse().unwrap())).await.unwrap();
    assert_eq!((rest.values.len(), rest.has_more), (1, false));
    let all = s2.list_all_basins(ListAllBasinsInput::new().with_prefix(prefix.parse().unwrap()));
    assert_eq!(all.try_collect::<Vec<_>>().await.unwrap().len(), 4);
}

#[tokio::test]
async fn a_basin_that_is_being_deleted_takes_nothing_new() {
    let s2 = client(Compression::None);
    let (name, its) = basin(&s2, BasinConfig::new()).await;
    let create = |no: usize| its.create_stream(CreateStreamInput::new(format!("s{no}").parse().unwrap()));
    let made = stream::iter((0..200).map(create)).buffer_unordered(50);
    made.try_for_each(async |_| Ok(())).await.unwrap();
    let trying = async {
        for no in 200.. {
            if let refused @ Err(_) = create(no).await {
                return code(refused);
            }
        }
        unreachable!("it is refused in the end")
    };
    let (deleted, refused) = tokio::join!(s2.delete_basin(DeleteBasinInput::new(name.clone())), trying);
    deleted.unwrap();
    assert!(["basin_deletion_pending", "basin_not_found"].contains(&&refused[..]), "{refused}");
    gone(&s2, &name).await;
    assert_eq!(code(its.list_streams(ListStreamsInput::new()).await), "basin_not_found");
}

#[tokio::test]
async fn a_create_that_is_sent_again_is_done_once_and_another_is_refused() {
    let s2 = client(Compression::None);
    let name: BasinName = unique("suite-again").parse().unwrap();
    let create = CreateBasinInput::new(name.clone()).with_location("aws:us-east-1").unwrap();
    let first = s2.create_basin(create.clone()).await.unwrap();
    let second = s2.create_basin(create.clone()).await.unwrap();
    assert_eq!((first.name, first.created_at), (second.name, second.created_at));
    assert_eq!(second.location.unwrap().to_string(), "aws:us-east-1");
    let other = create.with_config(BasinConfig::new().with_create_stream_on_read(true));
    assert_eq!(code(s2.create_basin(other).await), "resource_already_exists");

    let basin = s2.basin(name);
    let create = CreateStreamInput::new("s".parse().unwrap());
    let first = basin.create_stream(create.clone()).await.unwrap();
    let second = basin.create_stream(create.clone()).await.unwrap();
    assert_eq!((first.name, first.created_at), (second.name, second.created_at));
    let other = create.with_config(StreamConfig::new().with_storage_class("express"));
    assert_eq!(code(basin.create_stream(other).await), "resource_already_exists");
}

#[tokio::test]
async fn what_is_not_served_says_so() {
    let s2 = client(Compression::None);
    let (name, its) = basin(&s2, BasinConfig::new()).await;
    let id: AccessTokenId = "a-token".parse().unwrap();
    let scope = AccessTokenScopeInput::from_ops([Operation::Read]);
    let range = TimeRange::new(0, 3_600);
    let account = GetAccountMetricsInput::new(AccountMetricSet::ActiveBasins(range));
    let of_basin = GetBasinMetricsInput::new(name.clone(), BasinMetricSet::Storage(range));
    let of_stream = GetStreamMetricsInput::new(name, "s".parse().unwrap(), StreamMetricSet::Storage(range));
    for code in [
        code(s2.list_access_tokens(ListAccessTokensInput::new()).await),
        code(s2.list_all_access_tokens(ListAllAccessTokensInput::new()).try_collect::<Vec<_>>().await),
        code(s2.issue_access_token(IssueAccessTokenInput::new(id.clone(), scope)).await),
        code(s2.revoke_access_token(id).await),
        code(s2.get_account_metrics(account).await),
        code(s2.get_basin_metrics(of_basin).await),
        code(s2.get_stream_metrics(of_stream).await),
        code(s2.list_locations().await),
        code(s2.get_default_location().await),
        code(s2.set_default_location("aws:us-east-1".parse().unwrap()).await),
    ] {
        assert_eq!(code, "not_implemented");
    }
    let sealed = BasinConfig::new().with_stream_cipher(EncryptionAlgorithm::Aegis256);
    let sealed = CreateBasinInput::new(unique("suite-sealed").parse().unwrap()).with_config(sealed);
    assert_eq!(code(s2.create_basin(sealed).await), "invalid");
    its.create_stream(CreateStreamInput::new("s".parse().unwrap())).await.unwrap();
}
