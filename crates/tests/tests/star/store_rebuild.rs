//! Is a store whose index is lost served as before once `novad store rebuild-index` has made it again?

use std::process::{Command, Output};
use std::time::Duration;

use client::{Address, Client, ReadOptions, Reason, SeqNum};
use tests::history::{Tag, check_dense, read_all};
use tests::{Novad, Scratch, Stored, at, eventually, within};

const ARGS: [&str; 8] =
    ["--settle-age-ms", "20", "--settle-grace-ms", "100ms", "--settle-puts-per-second-max", "2000", "--shards", "1"];
/// Chunks after which they are bundled, and the index goes to the store.
const CHUNKS: u64 = 1_100;
const PATIENCE: Duration = Duration::from_secs(120);

/// `novad store rebuild-index`, with the store of a star.
fn rebuild(novad: &Novad, more: &[&str]) -> Output {
    let with_data: Command = Novad::command(novad.data());
    let mut command = Command::new(with_data.get_program());
    Novad::settle(&mut command);
    for (name, value) in with_data.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.args(["store", "rebuild-index", "--data"]).arg(novad.data()).args(more);
    command.output().expect("novad runs")
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

async fn settle(client: &Client, address: &Address) {
    let is_settled = async || {
        let info = client.get_stream(address).await.expect("the stream");
        info.settled == info.tail.seq_num
    };
    eventually(PATIENCE, "all of the stream is settled", is_settled).await;
}

/// So many chunks, each with a record or more.
async fn write_chunks(client: &Client, address: &Address, stored: &Stored, count: u64) {
    let newest = || stored.names("c/").into_iter().filter_map(|name| position(&name)).max().unwrap_or(0);
    let (before, mut index) = (newest(), client.get_stream(address).await.map_or(0, |info| info.tail.seq_num.get()));
    let mut looked = 0;
    while looked < before + count {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            client.append(address, [Tag { writer: 1, index }.body(100)]).await.expect("an ack");
            index += 1;
        }
        looked = newest();
    }
    settle(client, address).await;
}

/// The position of a chunk of the first tenure.
fn position(name: &str) -> Option<u64> {
    let (incarnation, position) = name.strip_prefix("c/")?.split_once('/')?;
    (u64::from_str_radix(incarnation, 16) == Ok(1)).then(|| u64::from_str_radix(position, 16).ok())?
}

/// A bundle of a slot that has no other, if there is one: it is of streams that rest. Of each bundle something lives here.
fn at_rest(stored: &Stored) -> String {
    let bundles = stored.names("d/");
    let slot = |name: &str| name.rsplit_once('/').map(|(slot, _)| slot.to_owned());
    let is_alone = |name: &&String| bundles.iter().filter(|other| slot(other) == slot(name)).count() == 1;
    bundles.iter().find(is_alone).unwrap_or(&bundles[0]).clone()
}

/// Takes all of the index out of the store.
fn destroy(stored: &Stored) {
    loop {
        let names = [stored.names("m/"), stored.names("meta/index")].concat();
        if names.is_empty() {
            return;
        }
        names.iter().for_each(|name| stored.remove(name));
    }
}

async fn check(client: &Client, written: u64) {
    let records = read_all(client, &at("large")).await;
    check_dense(&records);
    assert_eq!(records.len() as u64, written);
    assert!(records.iter().zip(0..).all(|(record, index)| Tag::of(record).index == index));
    let trimmed = client.get_stream(&at("trimmed")).await.expect("the stream");
    assert_eq!((trimmed.trim_point.get(), trimmed.tail.seq_num.get()), (3, 5));
    assert_eq!(client.read(&at("trimmed"), ReadOptions::from(3)).await.expect("a page").records.len(), 2);
    let again = read_all(client, &at("again")).await;
    assert_eq!(again.iter().map(tests::text).collect::<Vec<_>>(), ["second life"]);
    let gone = client.read(&at("deleted"), ReadOptions::from(0)).await.expect_err("it stays deleted");
    assert_eq!(gone.reason(), Reason::NotFound);
}

#[test]
fn a_store_whose_index_is_lost_serves_all_of_it_once_it_is_made_again() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &ARGS);
    let stored = Stored::of(novad.data());
    let written = within(300, async {
        let client = novad.client_with_bucket().await;
        for key in ["trimmed", "deleted", "again", "empty"] {
            client.append(&at(key), ["a", "b", "c", "d", "e"]).await.expect("an ack");
        }
        client.trim(&at("trimmed"), SeqNum::new(3)).await.expect("a trim");
        client.trim(&at("empty"), SeqNum::new(5)).await.expect("a trim");
        client.delete_stream(&at("deleted")).await.expect("a delete");
        client.delete_stream(&at("again")).await.expect("a delete");
        client.append(&at("again"), ["second life"]).await.expect("an ack");
        write_chunks(&client, &at("large"), &stored, CHUNKS).await;
        eventually(PATIENCE, "chunks are bundled", async || !stored.names("d/").is_empty()).await;
        write_chunks(&client, &at("large"), &stored, CHUNKS).await;
        let oldest = || stored.names("c/").iter().filter_map(|name| position(name)).min().unwrap_or(u64::MAX);
        eventually(PATIENCE, "the first chunks are gone", async || oldest() > 10).await;
        let living = rebuild(&novad, &[]);
        assert_eq!(living.status.code(), Some(4), "{}", said(&living));
        assert!(said(&living).contains("is alive; stop it first"), "{}", said(&living));
        client.get_stream(&at("large")).await.expect("it is left alone").tail.seq_num.get()
    });
    assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
    destroy(&stored);
    let ended = novad.try_restart().expect_err("without its index it does not start");
    assert!(ended.line.contains("novad store rebuild-index"), "{}", ended.line);
    // It has the lease, and died.
    let made = rebuild(&novad, &["--output", "json"]);
    assert!(made.status.success(), "{}", said(&made));
    let whole: serde_json::Value = serde_json::from_slice(&made.stdout).expect("one object");
    assert_eq!((&whole["ok"], &whole["streams"], &whole["missing"]), (&true.into(), &4.into(), &0.into()), "{whole}");
    novad.restart();
    within(120, async {
        let client = novad.client();
        check(&client, written).await;
        let ack = client.append(&at("large"), [Tag { writer: 1, index: written }.body(10)]).await.expect("an ack");
        assert_eq!(ack.start.seq_num.get(), written);
        let ack = client.append(&at("empty"), ["f"]).await.expect("an ack");
        assert_eq!(ack.start.seq_num.get(), 5);
        check(&client, written + 1).await;
        settle(&client, &at("large")).await;
    });
    novad.kill9();
    novad.restart();
    within(120, check(&novad.client(), written + 1));
    // A bundle is gone, and nobody is told that all is well.
    assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
    let lost = at_rest(&stored);
    stored.remove(&lost);
    let refused = rebuild(&novad, &[]);
    assert_eq!(refused.status.code(), Some(4), "{}", said(&refused));
    assert!(said(&refused).contains(&lost), "{}", said(&refused));
    let accepted = rebuild(&novad, &["--accept-loss"]);
    assert!(accepted.status.success(), "{}", said(&accepted));
    novad.restart();
    within(120, async {
        let client = novad.client();
        let mut told = Vec::new();
        for key in ["large", "trimmed", "again"] {
            for from in [0, 3] {
                told.extend(client.read(&at(key), ReadOptions::from(from)).await.err().map(|error| error.to_string()));
            }
        }
        assert!(told.iter().any(|error| error.contains(&lost)), "{told:?}");
    });
}
