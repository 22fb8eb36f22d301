//! What goes on when the store is away, and does all of it settle once it is back?

use std::time::{Duration, Instant};

use client::{Address, Class, Client, ConfigPatch, Options, ReadOptions, Reason};
use tests::history::{Acked, Tag, read_all};
use tests::{Novad, Scratch, Store, at, eventually, is_about, within};

/// Standard appends are refused from so long on.
const TOLD_WITHIN: Duration = Duration::from_secs(30);
const BACK_WITHIN: Duration = Duration::from_secs(60);

/// What one head log may take while the store is away, how much is sent in all, and in records of which size.
const BACKLOG: (&str, usize) = ("32MiB", 32 << 20);
const SENT_BYTES: usize = 10 * BACKLOG.1;
const LARGE_BYTES: usize = 900_000;

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

#[test]
fn with_the_store_away_express_goes_on_standard_is_told_soon_and_all_settles_afterwards() {
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let novad = Novad::start(&scratch.join("data"), &store.args(&["--shards", "2", "--settle-age-ms", "50"]));
    within(150, async {
        let client = novad.client_with_bucket().await;
        let (express, standard) = (stream(&client, Class::Express).await, stream(&client, Class::Standard).await);
        let (mut of_express, mut of_standard) = (Acked::default(), Acked::default());
        append(&client, &express, 0..20, &mut of_express).await;
        append(&client, &standard, 0..20, &mut of_standard).await;
        store.take_away();
        let began = Instant::now();
        let mut tried = 100;
        // What is under way when the store goes may be answered by nobody.
        let impatient = Client::new(Options::new([novad.addr().to_string()]).request_timeout(Duration::from_secs(3)));
        let impatient = impatient.expect("a client");
        loop {
            let body = Tag { writer: 1, index: tried }.body(500);
            let told = impatient.append(&standard, [body]).await.expect_err("the store is away");
            assert!(told.retryable(), "{told}");
            if told.reason() == Reason::Unavailable {
                break;
            }
            assert!(began.elapsed() < TOLD_WITHIN, "after {:?}: {told}", began.elapsed());
            tried += 1;
        }
        append(&client, &express, 20..420, &mut of_express).await;
        let live = client.read(&express, ReadOptions::from(0)).await.expect("what is in memory is read");
        assert!(!live.records.is_empty());
        store.give_back();
        let is_back = async || client.append(&standard, [Tag { writer: 1, index: 200 }.body(500)]).await.is_ok();
        eventually(BACK_WITHIN, "Standard appends are taken again", is_back).await;
        for address in [&express, &standard] {
            let is_settled = async || {
                let info = client.get_stream(address).await.expect("the stream");
                info.settled == info.tail.seq_num
            };
            eventually(BACK_WITHIN, "all is settled", is_settled).await;
        }
        of_express.check(1, &read_all(&client, &express).await);
        of_standard.check(1, &read_all(&client, &standard).await);
        assert_eq!(of_express.len(), 420);
    });
}

/// A kill while the store is away: what Express has acked is on the disk, and settles after the next start.
#[test]
fn a_kill_with_the_store_away_loses_nothing_that_express_acked() {
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let mut novad = Novad::start(&scratch.join("data"), &store.args(&["--settle-age-ms", "50"]));
    within(120, async {
        let client = novad.client_with_bucket().await;
        let express = stream(&client, Class::Express).await;
        let mut acked = Acked::default();
        append(&client, &express, 0..50, &mut acked).await;
        store.take_away();
        append(&client, &express, 50..150, &mut acked).await;
        novad.kill9();
        store.give_back();
        novad.restart();
        let client = novad.client();
        acked.check(1, &read_all(&client, &express).await);
        append(&client, &express, 150..200, &mut acked).await;
        let is_settled = async || client.get_stream(&express).await.expect("the stream").settled.get() == 200;
        eventually(BACK_WITHIN, "all is settled", is_settled).await;
        acked.check(1, &read_all(&client, &express).await);
    });
}

/// Ten times as much is sent as may wait for the store: what fits is acked, the rest is refused, and goes on once the store is back.
#[test]
fn an_outage_of_ten_times_the_backlog_refuses_what_does_not_fit_and_settles_all_that_does() {
    if !is_about(Class::Express) {
        return;
    }
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let args = store.args(&["--log-bytes-max", BACKLOG.0, "--settle-age-ms", "50"]);
    let novad = Novad::start(&scratch.join("data"), &args);
    within(240, async {
        let client = novad.client_with_bucket().await;
        let express = stream(&client, Class::Express).await;
        let mut acked = Acked::default();
        append(&client, &express, 0..10, &mut acked).await;
        store.take_away();
        let (mut index, mut refused) = (10, 0);
        for _ in 0..SENT_BYTES / LARGE_BYTES {
            match client.append(&express, [Tag { writer: 1, index }.body(LARGE_BYTES)]).await {
                Ok(ack) => acked.add(index, ack.start.seq_num.get()),
                Err(error) => {
                    assert_eq!(error.reason(), Reason::ResourceExhausted, "{error}");
                    assert!(error.retryable() && error.no_side_effect() && error.retry_after().is_some(), "{error}");
                    refused += 1;
                }
            }
            index += 1;
        }
        let fitted = (acked.len() - 10) * LARGE_BYTES;
        assert!(fitted > BACKLOG.1 / 4 && fitted <= BACKLOG.1, "{fitted} bytes were acked");
        assert_eq!(client.check_tail(&express).await.expect("the tail").seq_num.get(), acked.len() as u64);
        client.read(&express, ReadOptions::from(10)).await.expect("what is there is read");
        store.give_back();
        let is_taken = async || client.append(&express, [Tag { writer: 2, index: 0 }.body(LARGE_BYTES)]).await.is_ok();
        eventually(BACK_WITHIN, "there is room again", is_taken).await;
        let is_settled = async || {
            let info = client.get_stream(&express).await.expect("the stream");
            info.settled == info.tail.seq_num
        };
        eventually(BACK_WITHIN, "all is settled", is_settled).await;
        let records = read_all(&client, &express).await;
        acked.check(1, &records);
        assert_eq!(records.len(), acked.len() + 1, "what was refused is not there");
        eprintln!("check 20: {refused} appends over the backlog");
    });
}
