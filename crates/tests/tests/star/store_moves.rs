//! Does a stream that is moved between the classes keep its records, its token and its trims, whatever happens meanwhile?

use std::cell::{Cell, RefCell};
use std::time::Duration;

use client::{Address, Class, Client, ConfigPatch, FencingToken, Reason, SeqNum};
use tests::history::{Acked, Tag, check_dense, read_all};
use tests::{Novad, Scratch, Script, Store, at, load_of, s3_server, within};

use crate::load::impatient;

const KILLS: u32 = 6;

pub(crate) fn token(generation: u64) -> FencingToken {
    FencingToken::new(&format!("gen-{generation}")).expect("a token")
}

/// What is known to have been done.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) acked: Acked,
    sent: u64,
    trimmed: u64,
    /// The token that was installed last, and one that may have been.
    token: u64,
    tried_token: u64,
    pub(crate) moves: u32,
}

async fn move_to(client: &Client, address: &Address, class: Class) -> bool {
    let config = ConfigPatch { class: Some(class), ..ConfigPatch::default() };
    match client.reconfigure_stream(address, config).await {
        Ok(info) => {
            assert_eq!(info.config.class, class);
            true
        }
        Err(error) => {
            assert!(error.retryable(), "{error}");
            false
        }
    }
}

/// Appends, trims, fences and moves until the star is gone.
pub(crate) async fn work(client: &Client, address: &Address, known: &RefCell<Known>, is_over: &Cell<bool>) {
    let writes = async {
        while !is_over.get() {
            let (index, generation) = {
                let mut known = known.borrow_mut();
                known.sent += 1;
                (known.sent - 1, known.token)
            };
            let body = Tag { writer: 1, index }.body(300);
            match client.presenting(token(generation)).append(address, [body]).await {
                Ok(ack) => known.borrow_mut().acked.add(index, ack.start.seq_num.get()),
                // A fence went between.
                Err(error) if error.reason() == Reason::FencedOut => {}
                Err(error) => assert!(error.retryable(), "{error}"),
            }
        }
    };
    let verbs = async {
        for step in 0_u64.. {
            if is_over.get() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
            match step % 4 {
                0 => _ = move_to(client, address, Class::Standard).await.then(|| known.borrow_mut().moves += 1),
                2 => _ = move_to(client, address, Class::Express).await.then(|| known.borrow_mut().moves += 1),
                1 => {
                    let wanted = {
                        let known = known.borrow();
                        known.trimmed.max(known.acked.len() as u64 / 3)
                    };
                    if client.trim(address, SeqNum::new(wanted)).await.is_ok() {
                        known.borrow_mut().trimmed = wanted;
                    }
                }
                _ => {
                    let next = known.borrow().tried_token + 1;
                    known.borrow_mut().tried_token = next;
                    if client.fence(address, &token(next)).await.is_ok() {
                        known.borrow_mut().token = next;
                    }
                }
            }
        }
    };
    tokio::join!(writes, verbs);
}

pub(crate) async fn check(client: &Client, address: &Address, known: &mut Known) {
    let info = client.get_stream(address).await.expect("the stream");
    let trim_point = info.trim_point.get();
    assert!(trim_point >= known.trimmed, "trimmed to {} and is to {trim_point}", known.trimmed);
    let installed = client.fencing_token(address).await.expect("the token");
    let may_be: Vec<FencingToken> = (known.token..=known.tried_token).map(token).collect();
    assert!(may_be.contains(&installed), "{installed:?} is none of {may_be:?}");
    let records = read_all(client, address).await;
    check_dense(&records);
    assert_eq!(records.len() as u64, info.tail.seq_num.get() - trim_point);
    known.acked.since(trim_point).check(1, &records);
    // Onto what is certain.
    known.tried_token += 1;
    known.token = known.tried_token;
    client.fence(address, &token(known.token)).await.expect("a fence");
    known.trimmed = trim_point;
}

fn back_and_forth(slow_by: Option<Duration>) {
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let args = store.args(&["--shards", "2", "--settle-age-ms", "20"]);
    let mut novad = Novad::start(&scratch.join("data"), &args);
    if let Some(by) = slow_by {
        assert!(store.slow_down(by), "a store behind a proxy");
    }
    within(150, async {
        let client = novad.client_with_bucket().await;
        let address = at("moved");
        client.create_stream(&address, ConfigPatch::default()).await.expect("a stream");
        client.fence(&address, &token(0)).await.expect("a fence");
        let mut told = Known::default();
        for round in 0..KILLS {
            let client = novad.client();
            let known = RefCell::new(told);
            let is_over = Cell::new(false);
            let load = Duration::from_millis(300 + u64::from(round) * 130);
            let kill = async {
                tokio::time::sleep(load).await;
                is_over.set(true);
                novad.beside(Novad::kill9).await
            };
            let ((), killed) = tokio::join!(work(&client, &address, &known, &is_over), kill);
            novad = killed;
            novad.restart();
            told = known.into_inner();
            check(&novad.client(), &address, &mut told).await;
        }
        let (moves, acked) = (told.moves, told.acked.len());
        assert!(moves > 0 && acked > load_of(50), "{moves} moves, {acked} acked");
    });
}

#[test]
fn moves_between_the_classes_under_load_and_kills_lose_no_record_fence_or_trim() {
    back_and_forth(None);
}

#[test]
fn moves_between_the_classes_over_a_slow_store_lose_no_record_fence_or_trim() {
    if s3_server().is_none() {
        return eprintln!("skipped: a store behind a proxy can be slow, a directory can't");
    }
    back_and_forth(Some(Duration::from_millis(150)));
}

/// With the store away a move to Standard can't be finished; the stream goes on, and is one or the other.
#[test]
fn a_move_with_the_store_away_is_told_and_the_stream_keeps_what_it_has() {
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let mut novad = Novad::start(&scratch.join("data"), &store.args(&["--settle-age-ms", "20"]));
    within(120, async {
        let client = novad.client_with_bucket().await;
        let address = at("moved");
        let config = ConfigPatch { class: Some(Class::Express), ..ConfigPatch::default() };
        client.create_stream(&address, config).await.expect("a stream");
        let mut acked = Acked::default();
        for index in 0..20 {
            let ack = client.append(&address, [Tag { writer: 1, index }.body(300)]).await.expect("an ack");
            acked.add(index, ack.start.seq_num.get());
        }
        store.take_away();
        let config = ConfigPatch { class: Some(Class::Standard), ..ConfigPatch::default() };
        let moved = client.reconfigure_stream(&address, config).await;
        if let Err(told) = moved {
            assert!(told.retryable(), "{told}");
        }
        novad.kill9();
        store.give_back();
        novad.restart();
        let client = novad.client();
        acked.check(1, &read_all(&client, &address).await);
        assert!(move_to(&client, &address, Class::Standard).await);
        let ack = client.append(&address, [Tag { writer: 1, index: 20 }.body(300)]).await.expect("an ack");
        acked.add(20, ack.start.seq_num.get());
        assert!(move_to(&client, &address, Class::Express).await);
        novad.kill9();
        novad.restart();
        acked.check(1, &read_all(&novad.client(), &address).await);
    });
}

/// Each trouble in its turn, in the midst of a load; a kill comes in each of them.
#[test]
fn moves_between_the_classes_with_the_store_slow_down_and_killed_lose_no_record_fence_or_trim() {
    const TROUBLES: [&[&str]; 3] =
        [&["store-write: sleep 100", "store-read: sleep 30"], &["store-write: fail", "store-read: fail"], &[]];
    let scratch = Scratch::new();
    let script = Script::new(&scratch);
    let mut novad = Novad::start_failing(&scratch.join("data"), &["--shards", "2", "--settle-age-ms", "20"], &script);
    within(150, async {
        let client = novad.client_with_bucket().await;
        let address = at("moved");
        client.create_stream(&address, ConfigPatch::default()).await.expect("a stream");
        client.fence(&address, &token(0)).await.expect("a fence");
        let known = RefCell::new(Known::default());
        for round in 0..6 {
            let client = impatient(&novad);
            let is_over = Cell::new(false);
            let kill = async {
                for step in 0..TROUBLES.len() {
                    script.tell(&novad, TROUBLES[(round + step) % TROUBLES.len()]);
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                is_over.set(true);
                novad.beside(Novad::kill9).await
            };
            let ((), killed) = tokio::join!(work(&client, &address, &known, &is_over), kill);
            novad = killed;
            script.write(&[]);
            novad.restart();
            let mut told = known.take();
            check(&novad.client(), &address, &mut told).await;
            known.replace(told);
        }
        let known = known.into_inner();
        assert!(known.moves > 0 && known.acked.len() > load_of(50), "{} moves, {}", known.moves, known.acked.len());
    });
}
