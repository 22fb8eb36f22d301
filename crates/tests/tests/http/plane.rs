//! Does the Rust client do over HTTP what it does over the wire?

use std::time::Duration;

use client::{
    AppendRecord, BucketName, BucketPatch, BucketSpec, Class, Client, ConfigPatch, FencingToken, OneShot, Options,
    ProducerOptions, ReadOptions, Reason, SeqNum, SubscribeOptions,
};
use tests::{at, text, within};

use crate::star::Star;

fn over_http(star: &Star) -> Client {
    Client::new(Options::new([format!("http://{}", star.novad.http())])).expect("a client")
}

#[test]
fn every_call_answers_as_over_the_wire() {
    let star = Star::start();
    within(120, async {
        let (http, wire) = (over_http(&star), star.novad.client());
        let name = BucketName::new("ledger").unwrap();
        let spec = BucketSpec {
            location: "eu/1".to_owned(),
            creation_token: "t".to_owned(),
            defaults: ConfigPatch {
                class: Some(Class::Express),
                retention_max_bytes: Some(u64::MAX),
                ..ConfigPatch::default()
            },
            ..BucketSpec::named(name.clone())
        };
        let made = http.create_bucket(spec.clone()).await.unwrap();
        assert_eq!(made, wire.get_bucket(&name).await.unwrap());
        assert_eq!(http.ensure_bucket(spec).await.unwrap(), made);
        assert_eq!(
            http.create_bucket(BucketSpec::named(name.clone())).await.unwrap_err().reason(),
            Reason::AlreadyExists
        );
        let patch = BucketPatch { create_stream_on_read: Some(true), ..BucketPatch::default() };
        assert_eq!(http.update_bucket(&name, patch).await.unwrap(), wire.get_bucket(&name).await.unwrap());
        assert_eq!(http.list_buckets("", 1).await.unwrap(), wire.list_buckets("", 1).await.unwrap());
        http.delete_bucket(&name).await.unwrap();

        let key = at("../a b%2F?ä");
        let config = ConfigPatch { retention_max_age_ms: Some(3_600_000), ..ConfigPatch::default() };
        assert_eq!(http.create_stream(&key, config).await.unwrap(), wire.get_stream(&key).await.unwrap());
        let config = ConfigPatch { retention_max_age_ms: Some(0), ..ConfigPatch::default() };
        http.reconfigure_stream(&key, config).await.unwrap();
        assert_eq!(http.get_stream(&key).await.unwrap(), wire.get_stream(&key).await.unwrap());
        assert_eq!(
            http.list_streams(&key.bucket, b"", 9).await.unwrap(),
            wire.list_streams(&key.bucket, b"", 9).await.unwrap()
        );

        let record = AppendRecord::new(vec![0, 255]).header("k", vec![254]).header("k", "").timestamp_ms(-7);
        let acked = http.append(&key, [record.clone()]).await.unwrap();
        assert_eq!((acked.end.seq_num.get(), acked.class), (1, tests::class()));
        let page = http.read(&key, ReadOptions::default()).await.unwrap();
        assert_eq!(page, wire.read(&key, ReadOptions::default()).await.unwrap());
        assert_eq!((&page.records[0].body[..], page.records[0].timestamp_ms), (&[0, 255][..], -7));
        let keyed = OneShot { idempotency_key: Some(u128::MAX - 5), ..OneShot::default() };
        let first = http.append_with(&key, keyed.clone(), ["x"]).await.unwrap();
        assert_eq!(wire.append_with(&key, keyed, ["x"]).await.unwrap(), first);

        let missed = http.append_match(&key, SeqNum::new(0), ["y"]).await.unwrap_err();
        assert_eq!((missed.reason(), missed.no_side_effect()), (Reason::SequenceMismatch, true));
        assert_eq!(missed.tail().unwrap().seq_num.get(), 2);
        let token = FencingToken::new("gen-1").unwrap();
        assert_eq!(http.fence(&key, &token).await.unwrap(), wire.check_tail(&key).await.unwrap());
        assert_eq!(http.fencing_token(&key).await.unwrap(), token);
        let out = http.presenting(FencingToken::new("gen-0").unwrap()).append(&key, ["y"]).await.unwrap_err();
        assert_eq!((out.reason(), out.fencing_token()), (Reason::FencedOut, Some(&token)));
        assert_eq!(http.trim(&key, SeqNum::new(1)).await.unwrap().get(), 1);
        let trimmed = http.read(&key, ReadOptions::from(0)).await.unwrap_err();
        assert_eq!((trimmed.reason(), trimmed.trim_point()), (Reason::Trimmed, Some(SeqNum::new(1))));
        http.delete_stream(&key).await.unwrap();
        assert_eq!(http.check_tail(&key).await.unwrap_err().reason(), Reason::NotFound);
    });
}

#[test]
fn what_needs_the_wire_is_refused_at_once() {
    within(20, async {
        // Nobody listens there, and nobody is asked.
        let http = Client::new(Options::new(["http://127.0.0.1:1"])).unwrap();
        let error = http.open(&at("a"), ProducerOptions::default()).await.unwrap_err();
        assert_eq!((error.reason(), error.no_side_effect()), (Reason::WireOnly, true));
        assert_eq!(http.star().await.unwrap_err().reason(), Reason::WireOnly);
        let http = Client::new(Options::new(["http://127.0.0.1:1"]).connect_budget(Duration::ZERO)).unwrap();
        let error = http.append(&at("a"), ["x"]).await.unwrap_err();
        assert_eq!((error.reason(), error.no_side_effect()), (Reason::Unavailable, true), "{error}");
    });
}

#[test]
fn a_subscription_goes_on_through_a_restart_and_ends_with_its_stream() {
    let mut star = Star::start();
    let addr = star.novad.http().to_string();
    star.novad.take_args(&["--http", &addr, "--shards", "2"]);
    let Star { novad, scratch, .. } = star;
    within(120, async {
        let http = Client::new(Options::new([format!("http://{addr}")])).unwrap();
        http.append(&at("a"), ["0", "1"]).await.unwrap();
        let mut subscription = http.subscribe(&at("a"), SubscribeOptions::from(1)).await.unwrap();
        assert_eq!(
            (subscription.start().get(), subscription.stream_id()),
            (1, http.get_stream(&at("a")).await.unwrap().stream_id)
        );
        let page = subscription.next().await.unwrap().unwrap();
        assert_eq!(page.records.iter().map(text).collect::<Vec<_>>(), ["1"]);
        let novad = novad.beside(|novad| {
            novad.kill9();
            novad.restart();
        });
        let novad = novad.await;
        novad.client().append(&at("a"), ["2"]).await.unwrap();
        assert_eq!(text(&subscription.next().await.unwrap().unwrap().records[0]), "2");
        http.delete_stream(&at("a")).await.unwrap();
        http.append(&at("a"), ["another's"]).await.unwrap();
        assert_eq!(subscription.next().await.unwrap().unwrap_err().reason(), Reason::NotFound);
        assert!(subscription.next().await.is_none());
        drop(novad);
    });
    drop(scratch);
}
