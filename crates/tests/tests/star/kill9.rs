//! Does a star that is killed again and again under load lose, double or reorder anything?

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use client::{Address, Client, FencingToken, Producer, ProducerOptions, ProducerPolicy, Reason, SeqNum};
use tests::history::{Acked, Tag, check_dense, read_all};
use tests::{Novad, Scratch, at, load_of, s3_server, soaked, within};

/// How often it is killed; on S3, where a start takes longer, less often.
fn cycles() -> u32 {
    soaked(if s3_server().is_some() { 8 } else { 20 })
}

/// Load between a start and the kill.
const LOAD: Duration = Duration::from_millis(200);
/// A kill waits so many times that for the writers to be back.
const LOADS_MAX: usize = 10;
/// Batches that a writer keeps in flight.
const IN_FLIGHT: usize = 8;
const RECORD_BYTES: usize = 300;

/// What the kills and the writers know of each other.
#[derive(Debug, Default)]
struct Round {
    is_over: Cell<bool>,
}

/// What a writer has to say in the end.
#[derive(Debug, Default)]
struct Told {
    acked: RefCell<Acked>,
    /// Records that were sent in all.
    sent: Cell<u64>,
    /// Where each generation of a fenced writer began.
    boundaries: RefCell<Vec<u64>>,
}

async fn reopened(client: &Client, address: &Address, options: &ProducerOptions) -> Producer {
    loop {
        match client.open(address, options.clone()).await {
            Ok(producer) => return producer,
            Err(error) => assert!(error.retryable(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Appends to one session that outlives every kill, and resends by itself: nothing may fail.
async fn write_plainly(client: Client, address: Address, round: Rc<Round>, told: Rc<Told>) {
    let options = ProducerOptions::default().batch_bytes_max(4 * RECORD_BYTES);
    let producer = reopened(&client, &address, &options).await;
    let mut tickets = std::collections::VecDeque::new();
    for index in 0.. {
        if round.is_over.get() {
            break;
        }
        let body = Tag { writer: 1, index }.body(RECORD_BYTES);
        tickets.push_back((index, producer.submit([body]).await.expect("it is taken")));
        told.sent.set(index + 1);
        if tickets.len() >= 4 * IN_FLIGHT {
            let (index, ticket) = tickets.pop_front().expect("one is in flight");
            let ack = ticket.await.expect("it is durable in the end");
            told.acked.borrow_mut().add(index, ack.start.seq_num.get());
        }
    }
    for (index, ticket) in tickets {
        let ack = ticket.await.expect("it is durable in the end");
        told.acked.borrow_mut().add(index, ack.start.seq_num.get());
    }
    producer.close().await.expect("it closes");
}

/// Appends each record only at the number that it expects, and finds out after each failure what is there.
async fn write_matching(client: Client, address: Address, round: Rc<Round>, told: Rc<Told>) {
    let mut next = 0;
    while !round.is_over.get() {
        let producer = reopened(&client, &address, &ProducerOptions::default()).await;
        let mut tickets = std::collections::VecDeque::new();
        let mut sent = next;
        loop {
            while tickets.len() < IN_FLIGHT && !round.is_over.get() {
                let body = Tag { writer: 2, index: sent }.body(RECORD_BYTES);
                let ticket = producer.submit_match(SeqNum::new(sent), [body]).await;
                let Ok(ticket) = ticket else { break };
                tickets.push_back((sent, ticket));
                sent += 1;
                told.sent.set(told.sent.get().max(sent));
            }
            let Some((index, ticket)) = tickets.pop_front() else { break };
            match ticket.await {
                Ok(ack) => {
                    assert_eq!(ack.start.seq_num.get(), index, "where it was asked for");
                    told.acked.borrow_mut().add(index, index);
                }
                Err(error) => assert!(error.retryable() || error.reason() == Reason::SequenceMismatch, "{error}"),
            }
        }
        // What is not acked may be there all the same; the tail tells how far it goes.
        next = tail(&client, &address).await;
    }
}

async fn tail(client: &Client, address: &Address) -> u64 {
    loop {
        match client.check_tail(address).await {
            Ok(tail) => return tail.seq_num.get(),
            Err(error) => assert!(error.retryable(), "{error}"),
        }
    }
}

/// Takes the stream over with a token of its own at each kill; the session before must end as fenced out.
async fn write_fenced(client: Client, address: Address, round: Rc<Round>, told: Rc<Told>) {
    let mut index = 0;
    let mut old: Option<Producer> = None;
    for generation in 0.. {
        if round.is_over.get() {
            break;
        }
        let token = FencingToken::new(&format!("gen-{generation}")).expect("a token");
        let Ok(boundary) = client.fence(&address, &token).await else { continue };
        told.boundaries.borrow_mut().push(boundary.seq_num.get());
        if let Some(old) = old.take() {
            // Never sent under a higher index than those of the generation before, so that it would be seen.
            let error = old.append([Tag { writer: 9, index }.body(0)]).await.expect_err("it is deposed");
            assert!(matches!(error.reason(), Reason::FencedOut | Reason::Unavailable), "{error}");
        }
        let options = ProducerOptions::default().fencing_token(token).retry_budget(Duration::from_secs(2));
        let producer = reopened(&client, &address, &options).await;
        for _ in 0..150 {
            let ack = producer.append([Tag { writer: 3, index }.body(RECORD_BYTES)]).await;
            index += 1;
            told.sent.set(index);
            let Ok(ack) = ack else { break };
            told.acked.borrow_mut().add(index - 1, ack.start.seq_num.get());
            if round.is_over.get() {
                break;
            }
        }
        old = Some(producer);
    }
}

#[test]
fn kills_under_three_writers_lose_double_and_reorder_nothing() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--shards", "2"]);
    within(u64::from(soaked(150)), async {
        let client = novad.client_with_bucket().await;
        let fenced = client::ConfigPatch { producer_policy: Some(ProducerPolicy::Fenced), ..Default::default() };
        client.create_stream(&at("fenced"), fenced).await.expect("a stream");
        client.create_stream(&at("matched"), client::ConfigPatch::default()).await.expect("a stream");
        let round = Rc::new(Round::default());
        let told: [Rc<Told>; 3] = Default::default();
        let writers = tokio::task::LocalSet::new();
        let all = [
            writers.spawn_local(write_plainly(client.clone(), at("plain"), round.clone(), told[0].clone())),
            writers.spawn_local(write_matching(novad.client(), at("matched"), round.clone(), told[1].clone())),
            writers.spawn_local(write_fenced(novad.client(), at("fenced"), round.clone(), told[2].clone())),
        ];
        let plain = told[0].clone();
        let kills = async move {
            let mut killed_at = Vec::new();
            for _ in 0..cycles() {
                let before = plain.acked.borrow().len();
                for _ in 0..LOADS_MAX {
                    tokio::time::sleep(LOAD).await;
                    if plain.acked.borrow().len() > before {
                        break;
                    }
                }
                novad.kill9();
                killed_at.push(plain.acked.borrow().len());
                novad = novad.beside(Novad::restart).await;
            }
            tokio::time::sleep(LOAD).await;
            round.is_over.set(true);
            for writer in all {
                writer.await.expect("a writer ends well");
            }
            (novad, killed_at)
        };
        let (mut novad, mut killed_at) = writers.run_until(kills).await;
        killed_at.dedup();
        assert!(killed_at.len() > cycles() as usize / 2, "most kills came under load: {killed_at:?}");
        check(&client, &told).await;
        novad.kill9();
        novad.restart();
        check(&client, &told).await;
        eprintln!("check 12: {} kills under load", cycles());
    });
}

async fn check(client: &Client, told: &[Rc<Told>; 3]) {
    let plain = read_all(client, &at("plain")).await;
    told[0].acked.borrow().check(1, &plain);
    assert_eq!(plain.len() as u64, told[0].sent.get(), "each record once, for all were acked");
    let matched = read_all(client, &at("matched")).await;
    told[1].acked.borrow().check(2, &matched);
    for record in &matched {
        assert_eq!(Tag::of(record).index, record.seq_num.get(), "a match lands where it was asked for");
    }
    assert!(matched.len() as u64 <= told[1].sent.get());
    let fenced = read_all(client, &at("fenced")).await;
    told[2].acked.borrow().check(3, &fenced);
    assert!(fenced.iter().all(|record| Tag::of(record).writer == 3), "a deposed writer wrote");
    check_dense(&fenced);
    for told in told {
        assert!(told.acked.borrow().len() > load_of(100), "there was a load: {}", told.acked.borrow().len());
    }
}

/// History, the seam to what is live, and the resume after each kill: every record comes once, in order.
#[test]
fn a_subscription_through_kills_has_no_gap_and_no_repeat() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--shards", "2"]);
    within(90, async {
        let client = novad.client_with_bucket().await;
        let producer = reopened(&client, &at("live"), &ProducerOptions::default()).await;
        let mut subscriptions = Vec::new();
        for credit in [64 << 10, 1 << 20] {
            let options = client::SubscribeOptions::from(0).credit_bytes(credit);
            subscriptions.push(client.subscribe(&at("live"), options).await.expect("a subscription"));
        }
        let is_over = Cell::new(false);
        let writes = async {
            let mut index = 0;
            while !is_over.get() {
                let bodies = (0..10).map(|more| Tag { writer: 1, index: index + more }.body(RECORD_BYTES));
                producer.append(bodies).await.expect("it is durable in the end");
                index += 10;
            }
            producer.append(["the end"]).await.expect("it is durable in the end");
            index
        };
        let reads = futures_util::future::join_all(subscriptions.iter_mut().map(async |subscription| {
            let mut seen = 0;
            loop {
                let page = subscription.next().await.expect("more").expect("it resumes by itself");
                for record in &page.records {
                    assert_eq!(record.seq_num.get(), seen, "no gap and no repeat");
                    if &record.body[..] == b"the end" {
                        return seen;
                    }
                    assert_eq!(Tag::of(record).index, seen);
                    seen += 1;
                }
            }
        }));
        let kills = async {
            for _ in 0..6 {
                tokio::time::sleep(LOAD).await;
                novad.kill9();
                novad = novad.beside(Novad::restart).await;
            }
            is_over.set(true);
            novad
        };
        let (written, seen, _novad) = tokio::join!(writes, reads, kills);
        assert_eq!(seen, [written, written]);
        eprintln!("check 22: {written} records read and not lost by kills");
        assert!(written > load_of(200) as u64, "there was a load: {written}");
    });
}
