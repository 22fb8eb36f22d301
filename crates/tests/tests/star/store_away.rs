//! What does a star do that is started, or stopped, while its store is away or does not answer?

use std::time::{Duration, Instant};

use client::{Address, Class, Client, ConfigPatch, Options, ProducerOptions, ReadOptions, Reason};
use rustix::process::Signal;
use tests::history::{Acked, Tag, read_all};
use tests::{Novad, Scratch, Store, at, eventually, is_on_a_directory, within};

const BACK_WITHIN: Duration = Duration::from_secs(60);
/// What a stop may take beside the time of a drain, on a machine that has much else to do.
const NOISE: Duration = Duration::from_secs(20);

async fn stream(client: &Client, class: Class) -> Address {
    let address = at(&class.to_string());
    let config = ConfigPatch { class: Some(class), ..ConfigPatch::default() };
    client.create_stream(&address, config).await.expect("a stream");
    address
}

async fn append(client: &Client, address: &Address, indices: std::ops::Range<u64>, acked: &mut Acked) {
    for index in indices {
        let ack = client.append(address, [Tag { writer: 1, index }.body(500)]).await.expect("an ack");
        acked.add(index, ack.start.seq_num.get());
    }
}

/// How often the log says this.
fn said(novad: &Novad, what: &str) -> usize {
    novad.log().lines().filter(|line| line.contains(what)).count()
}

/// Waits until the log says this so often, and sees that it says it no more often.
fn says(novad: &Novad, what: &str, times: usize) {
    let until = Instant::now() + Duration::from_secs(30);
    while said(novad, what) < times && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(said(novad, what), times, "'{what}': {}", novad.log());
}

/// A client that does not try for long.
fn impatient(novad: &Novad) -> Client {
    let options = Options::new([novad.addr().to_string()]).request_timeout(Duration::from_secs(2));
    Client::new(options).expect("a client")
}

/// Starts a star whose store is away in some way, and gives that back.
fn starts_without(take_away: impl Fn(&Store)) {
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let mut novad = Novad::start(&scratch.join("data"), &store.args(&[]));
    let mut acked = Acked::default();
    within(60, async {
        let client = novad.client_with_bucket().await;
        let express = stream(&client, Class::Express).await;
        append(&client, &express, 0..20, &mut acked).await;
    });
    novad.kill9();
    take_away(&store);
    // It listens, says once where the store should be and what is wrong, and ends in order when it is told to.
    novad.restart();
    within(30, async {
        let client = impatient(&novad);
        let told = client.append(&at("express"), ["too early"]).await.expect_err("the store is away");
        assert_eq!(told.reason(), Reason::Unavailable, "{told}");
        assert!(told.retry_after().is_some() && told.message().contains(&store.endpoint()), "{told}");
        let told = client.check_tail(&at("express")).await.expect_err("the store is away");
        assert!(matches!(told.reason(), Reason::Unavailable | Reason::DeadlineExceeded), "{told}");
    });
    says(&novad, "the store is away", 1);
    let away = novad.log().lines().find(|line| line.contains("the store is away")).map(str::to_owned);
    assert!(away.is_some_and(|line| line.contains("WARN") && line.contains(&store.endpoint())), "{}", novad.log());
    assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
    novad.restart();
    says(&novad, "the store is away", 2);
    store.give_back();
    within(100, async {
        let client = novad.client();
        let is_back = async || client.check_tail(&at("express")).await.is_ok();
        eventually(BACK_WITHIN, "it serves by itself", is_back).await;
        append(&client, &at("express"), 20..40, &mut acked).await;
        acked.check(1, &read_all(&client, &at("express")).await);
    });
    says(&novad, "the store is there after", 1);
    assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
}

#[test]
fn a_star_whose_store_refuses_connections_at_its_start_waits_for_it_and_tells_so() {
    if !is_on_a_directory() {
        starts_without(Store::take_away);
    }
}

#[test]
fn a_star_whose_store_does_not_answer_at_its_start_waits_for_it_and_tells_so() {
    if !is_on_a_directory() {
        starts_without(|store| assert!(store.hang()));
    }
}

/// Takes the store away in the harshest way that there is.
fn silence(store: &Store) {
    if !store.hang() {
        store.take_away();
    }
}

#[test]
fn what_is_in_flight_when_the_store_goes_is_answered_and_the_log_says_it_once() {
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let novad = Novad::start(&scratch.join("data"), &store.args(&["--settle-age-ms", "50"]));
    within(150, async {
        let client = novad.client_with_bucket().await;
        let (express, standard) = (stream(&client, Class::Express).await, stream(&client, Class::Standard).await);
        let (mut of_express, mut of_standard) = (Acked::default(), Acked::default());
        append(&client, &express, 0..20, &mut of_express).await;
        append(&client, &standard, 0..20, &mut of_standard).await;
        let producer = client.open(&standard, ProducerOptions::default()).await.expect("a producer");
        silence(&store);
        let ticket = producer.submit([Tag { writer: 1, index: 20 }.body(500)]).await.expect("it is taken");
        let told = client.append(&standard, [Tag { writer: 2, index: 0 }.body(500)]).await.expect_err("no store");
        assert_eq!(told.reason(), Reason::Unavailable, "{told}");
        assert!(!told.no_side_effect() && told.retry_after().is_some(), "it may take effect yet: {told}");
        let told = ticket.await.expect_err("no store");
        assert_eq!((told.reason(), told.no_side_effect()), (Reason::Unavailable, false), "{told}");
        let later = producer.append([Tag { writer: 1, index: 21 }.body(500)]).await.expect_err("no store");
        assert_eq!(later.reason(), Reason::Unavailable, "{later}");
        append(&client, &express, 20..120, &mut of_express).await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        says(&novad, "the store takes nothing since", 1);
        let warnings = novad.log().lines().filter(|line| line.contains(" WARN ")).count();
        assert!(warnings <= 6, "{warnings} warnings: {}", novad.log());
        store.give_back();
        let is_back = async || client.append(&standard, [Tag { writer: 3, index: 0 }.body(500)]).await.is_ok();
        eventually(BACK_WITHIN, "Standard appends are taken again", is_back).await;
        says(&novad, "the store takes commits again after", 1);
        // The producer goes on, and what was answered so lies in front of what comes later or nowhere.
        let ack = producer.append([Tag { writer: 1, index: 22 }.body(500)]).await.expect("an ack");
        let records = read_all(&client, &standard).await;
        let of_producer: Vec<u64> =
            records.iter().map(Tag::of).filter(|tag| tag.writer == 1).map(|tag| tag.index).collect();
        let expected: Vec<u64> = (0..21).chain([22]).collect();
        let without: Vec<u64> = (0..20).chain([22]).collect();
        assert!(of_producer == expected || of_producer == without, "{of_producer:?}");
        assert_eq!(Tag::of(&records[usize::try_from(ack.start.seq_num.get()).expect("few")]).index, 22);
        let is_settled = async || client.get_stream(&express).await.expect("the stream").settled.get() == 120;
        eventually(BACK_WITHIN, "all is settled", is_settled).await;
        of_express.check(1, &read_all(&client, &express).await);
    });
}

#[test]
fn a_stop_with_the_store_away_takes_no_longer_than_it_may_and_says_what_is_left() {
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let more = ["--settle-age-ms", "50", "--drain-timeout-ms", "3s"];
    let mut novad = Novad::start(&scratch.join("data"), &store.args(&more));
    let mut acked = Acked::default();
    within(60, async {
        let client = novad.client_with_bucket().await;
        let (express, standard) = (stream(&client, Class::Express).await, stream(&client, Class::Standard).await);
        append(&client, &express, 0..20, &mut acked).await;
        client.append(&standard, ["before"]).await.expect("an ack");
        silence(&store);
        append(&client, &express, 20..60, &mut acked).await;
        let impatient = impatient(&novad);
        let told = impatient.append(&standard, ["in flight"]).await.expect_err("no store");
        assert!(!told.no_side_effect(), "{told}");
    });
    let began = Instant::now();
    novad.signal(Signal::TERM);
    assert_eq!(novad.wait().code(), Some(0), "{}", novad.log());
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5) + NOISE, "it took {took:?}: {}", novad.log());
    says(&novad, "are not in the store yet", 1);
    store.give_back();
    novad.restart();
    within(60, async {
        let client = novad.client();
        acked.check(1, &read_all(&client, &at("express")).await);
        append(&client, &at("express"), 60..80, &mut acked).await;
        let standard = client.read(&at("standard"), ReadOptions::from(0)).await.expect("a page");
        assert_eq!(standard.records.first().map(tests::text).as_deref(), Some("before"));
        let is_settled = async || client.get_stream(&at("express")).await.expect("the stream").settled.get() == 80;
        eventually(BACK_WITHIN, "all is settled", is_settled).await;
        acked.check(1, &read_all(&client, &at("express")).await);
    });
}
