//! Do clients that mean harm, or do nothing at all, cost the others anything?

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use client::{Client, ProducerOptions, SubscribeOptions};
use futures_util::future::join_all;
use tests::{Novad, Scratch, Speaker, at, eventually, text, within};
use wire::frame::{self, Kind};
use wire::ids::{ProducerId, SeqNum};
use wire::message::{CheckTail, Message as _, Open, Opened, Read, Start, Subscribe, Subscribed};
use wire::names::FencingToken;

const MIB: u64 = 1 << 20;

/// An honest append within a time that nobody would call a stall, on two cores that other tests load.
async fn honest(client: &Client) {
    let began = Instant::now();
    client.append(&at("honest"), ["x"]).await.expect("an ack");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

pub(crate) async fn counted(client: &Client, name: &str) -> u64 {
    let star = client.star().await.expect("the star");
    star.counters.iter().filter(|counter| counter.name == name).map(|counter| counter.value).sum()
}

#[test]
fn a_thousand_idle_connections_cost_little_and_strangers_among_them_are_shown_out() {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &["--shards", "2"]);
    within(60, async {
        let client = novad.client_with_bucket().await;
        honest(&client).await;
        let before = novad.resident_bytes();
        let greeted: Vec<Speaker> = (0..500).map(|_| Speaker::new(novad.addr())).collect();
        let mut silent: Vec<TcpStream> =
            (0..500).map(|_| TcpStream::connect(novad.addr()).expect("a connection")).collect();
        for (number, stranger) in silent.iter_mut().enumerate() {
            // Half of a header, of a magic, or nothing.
            stranger.write_all(&b"NOVA\x01\x01\x00\x00"[..number % 9]).expect("it is sent");
        }
        honest(&client).await;
        eventually(Duration::from_secs(30), "all are accepted", async || {
            counted(&client, "connections").await >= 1_000
        })
        .await;
        let grown = novad.resident_bytes().saturating_sub(before);
        assert!(grown < 64 * MIB, "{} KiB for 1000 connections", grown >> 10);
        // Those that never said hello are closed in time, the others stay.
        eventually(Duration::from_secs(20), "strangers are shown out", async || {
            counted(&client, "connections").await <= 502
        })
        .await;
        honest(&client).await;
        for stranger in &mut silent {
            stranger.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
            assert_eq!(stranger.read(&mut [0; 64]).unwrap_or(0), 0, "it was told something");
        }
        assert!(counted(&client, "connections").await >= 500);
        drop(greeted);
        eventually(Duration::from_secs(30), "the gone are forgotten", async || {
            counted(&client, "connections").await <= 2
        })
        .await;
    });
}

#[test]
fn one_connection_more_than_there_may_be_is_turned_away_and_told_why() {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &["--connections-max", "16"]);
    within(30, async {
        let client = novad.client_with_bucket().await;
        let held: Vec<Speaker> = (0..15).map(|_| Speaker::new(novad.addr())).collect();
        let mut extra = Speaker::stranger(novad.addr());
        let refusal = extra.last_word();
        assert_eq!(refusal.reason, client::Reason::ResourceExhausted);
        assert!(refusal.message.contains("16"), "{refusal}");
        honest(&client).await;
        drop(held);
        eventually(Duration::from_secs(30), "places are free again", async || {
            counted(&client, "connections").await == 1
        })
        .await;
        let _place = Speaker::new(novad.addr());
    });
}

/// They ask for pages without end and take none of them: the star stops to read from them and holds no more than a
/// bound. The honest ones beside them notice nothing.
#[test]
fn readers_that_never_read_are_bounded_and_cost_the_others_nothing() {
    starve(1);
}

/// The same where half of the pages come from another shard than the connection's.
#[test]
fn readers_that_never_read_across_shards_are_bounded_and_cost_the_others_nothing() {
    starve(2);
}

fn starve(shards: u16) {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &["--shards", &shards.to_string()]);
    within(90, async {
        let client = novad.client_with_bucket().await;
        for key in BIG {
            let producer = client.open(&at(key), ProducerOptions::default()).await.expect("a session");
            for _ in 0..8 {
                producer.append([vec![b'x'; 1_000_000]]).await.expect("an ack");
            }
        }
        honest(&client).await;
        let before = novad.resident_bytes();
        let mut deaf: Vec<TcpStream> = (0..20).map(|number| deaf_reader(&novad, number)).collect();
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            honest(&client).await;
            let live = client.read(&at("honest"), client::ReadOptions::last(1)).await.expect("a page");
            assert_eq!(text(&live.records[0]), "x");
        }
        let grown = novad.resident_bytes().saturating_sub(before);
        // A few pages and a backlog each, as the allocator holds them, where they have asked for 4 GiB.
        assert!(grown < 400 * MIB, "{} MiB for 20 readers that never read", grown / MIB);
        deaf.truncate(1);
        eventually(Duration::from_secs(30), "the gone are forgotten", async || {
            counted(&client, "connections").await <= 3
        })
        .await;
        honest(&client).await;
    });
}

/// Streams of several shards, more than the ring holds together.
const BIG: [&str; 4] = ["big-0", "big-1", "big-2", "big-3"];

/// A connection that has asked for more than it will ever take: pages, or subscriptions with endless credit.
pub(crate) fn deaf_reader(novad: &Novad, number: usize) -> TcpStream {
    let mut socket = TcpStream::connect(novad.addr()).expect("a connection");
    let mut bytes = Vec::new();
    wire::message::Hello { client: "deaf".to_owned() }.frame(1, &mut bytes);
    // So that the connection is not handed over to the shard of what it opens.
    CheckTail { address: at("honest") }.frame(2, &mut bytes);
    let start = Start::SeqNum(SeqNum::ZERO);
    for (subscription, key) in (1..).zip(BIG).filter(|_| number.is_multiple_of(2)) {
        let address = at(key);
        let subscribe = Subscribe { address, start, clamp: false, subscription, credit_bytes: u32::MAX, resume: None };
        subscribe.frame(3, &mut bytes);
    }
    for (correlation, key) in (4..200).zip(BIG.into_iter().cycle()) {
        Read { address: at(key), start, clamp: false, limit: 0, max_bytes: 0, until_ms: None }
            .frame(correlation, &mut bytes);
    }
    socket.write_all(&bytes).expect("it is sent");
    socket
}

#[test]
fn a_slow_subscriber_costs_the_writer_and_the_other_subscribers_nothing() {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &[]);
    within(60, async {
        let client = novad.client_with_bucket().await;
        let producer = client.open(&at("live"), ProducerOptions::default()).await.expect("a session");
        producer.append(["first"]).await.expect("an ack");
        let options = SubscribeOptions::from(0).credit_bytes(64 << 10);
        let mut slow = client.subscribe(&at("live"), options).await.expect("one");
        let mut quick = client.subscribe(&at("live"), SubscribeOptions::from(0)).await.expect("one");
        let writes = async {
            for number in 0..400 {
                producer.append([format!("{number:0>20000}")]).await.expect("an ack");
            }
        };
        let reads = async {
            let mut seen = 0;
            while seen < 401 {
                seen += quick.next().await.expect("more").expect("records").records.len();
            }
        };
        tokio::join!(writes, reads);
        // It takes the rest of the ring's and the log's, without a gap, at its own pace.
        let mut next = 0;
        while next < 401 {
            let page = slow.next().await.expect("more").expect("records");
            assert_eq!(page.records[0].seq_num.get(), next);
            next = page.end.get();
        }
    });
}

#[test]
fn a_flood_of_requests_without_listening_for_answers_stops_at_a_bound() {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &["--shards", "2"]);
    within(60, async {
        let client = novad.client_with_bucket().await;
        honest(&client).await;
        let before = novad.resident_bytes();
        let mut floods: Vec<TcpStream> =
            (0..8).map(|_| TcpStream::connect(novad.addr()).expect("a connection")).collect();
        let mut bytes = Vec::new();
        wire::message::Hello { client: "flood".to_owned() }.frame(1, &mut bytes);
        for flood in &mut floods {
            flood.write_all(&bytes).expect("it is sent");
            flood.set_nonblocking(true).expect("it does not wait");
        }
        bytes.clear();
        for correlation in 0..2_000 {
            CheckTail { address: at(&format!("none-{}", correlation % 50)) }.frame(correlation, &mut bytes);
        }
        let mut sent = vec![0_usize; floods.len()];
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            for (flood, sent) in floods.iter_mut().zip(&mut sent) {
                // Where it left off in the endless repetition.
                let at = *sent % bytes.len();
                *sent += flood.write(&bytes[at..]).unwrap_or(0);
            }
            honest(&client).await;
        }
        let grown = novad.resident_bytes().saturating_sub(before);
        assert!(grown < 100 * MIB, "{} MiB", grown / MIB);
        drop(floods);
        honest(&client).await;
    });
}

#[test]
fn sessions_and_subscriptions_without_end_on_one_connection_are_bounded() {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &[]);
    within(60, async {
        let client = novad.client_with_bucket().await;
        honest(&client).await;
        let before = novad.resident_bytes();
        let mut greedy = Speaker::new(novad.addr());
        let mut refused = 0;
        for number in 1..6_000 {
            let producer = ProducerId::new(number);
            let open = Open { address: at("honest"), producer, fencing_token: FencingToken::default(), resume: None };
            let opened: Result<Opened, _> = greedy.ask(&open);
            let start = Start::Last(0);
            let subscription = u32::try_from(number).expect("few");
            let subscribe =
                Subscribe { address: at("honest"), start, clamp: true, subscription, credit_bytes: 1, resume: None };
            let subscribed: Result<Subscribed, _> = greedy.ask(&subscribe);
            refused += u32::from(opened.is_err()) + u32::from(subscribed.is_err());
        }
        let grown = novad.resident_bytes().saturating_sub(before);
        assert!(grown < 64 * MIB, "{} MiB, {refused} refused", grown / MIB);
        honest(&client).await;
        drop(greedy);
        eventually(Duration::from_secs(30), "all of it is forgotten", async || {
            counted(&client, "connections").await <= 1
        })
        .await;
        honest(&client).await;
    });
}

#[test]
fn an_append_that_ends_with_its_connection_leaves_a_whole_batch_or_nothing() {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &[]);
    within(60, async {
        let client = novad.client_with_bucket().await;
        let (batch, batch_crc) = Speaker::batch(&[&[b'a'; 30_000], &[b'b'; 30_000]]);
        let once = Speaker::once("cut", batch_crc);
        let mut bytes = Vec::new();
        once.frame_with(1, &batch, &mut bytes);
        assert!(
            matches!(frame::next(&bytes, bytes.len()), Ok(frame::Next::Frame(frame)) if frame.kind == Kind::AppendOnce)
        );
        let cuts: Vec<usize> = (0..40).map(|number| bytes.len() * number / 39).collect();
        join_all(cuts.iter().map(async |cut| Speaker::new(novad.addr()).send(&bytes[..*cut]))).await;
        // Only the last one was whole.
        eventually(Duration::from_secs(30), "the whole one is there", async || {
            client.check_tail(&at("cut")).await.is_ok_and(|tail| tail.seq_num.get() == 2)
        })
        .await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(client.check_tail(&at("cut")).await.expect("the tail").seq_num.get(), 2);
    });
}
