//! Does a wall clock that is wrong by a year trim nothing, until an operator says that it is right?

use std::time::Duration;

use client::{Address, Class, Client, ConfigPatch};
use tests::history::{Tag, check_dense, read_all};
use tests::{Novad, Scratch, Script, at, class, eventually, within};

const YEAR_MS: i64 = 365 * 86_400_000;
const HOUR_MS: u64 = 3_600_000;
const SHORT_MS: u64 = 1_000;
const RECORDS: u64 = 20;
const ARGS: [&str; 4] = ["--settle-age-ms", "20", "--settle-grace-ms", "100"];
const SOON: Duration = Duration::from_secs(30);
/// In which retention has looked some twenty times.
const LOOKS: Duration = Duration::from_millis(1_500);
const DISBELIEVED: &str = "records are not dropped by their age any more";

async fn aged(client: &Client, key: &str, max_age_ms: u64) -> Address {
    let address = at(key);
    let config = ConfigPatch { retention_max_age_ms: Some(max_age_ms), class: Some(class()), ..ConfigPatch::default() };
    client.create_stream(&address, config).await.expect("a stream");
    address
}

/// Appends the next records, in two batches, and waits until they are settled.
async fn fill(client: &Client, address: &Address) {
    let from = client.check_tail(address).await.expect("the tail").seq_num.get();
    for index in [from, from + RECORDS / 2] {
        let bodies = (index..index + RECORDS / 2).map(|index| Tag { writer: 1, index }.body(100));
        client.append(address, bodies).await.expect("an ack");
    }
    let is_settled = async || client.get_stream(address).await.expect("the stream").settled.get() == from + RECORDS;
    eventually(SOON, "it is settled", is_settled).await;
}

async fn is_whole(client: &Client, address: &Address, records: u64) {
    assert_eq!(client.get_stream(address).await.expect("the stream").trim_point.get(), 0, "{address} was trimmed");
    let found = read_all(client, address).await;
    check_dense(&found);
    assert_eq!(found.len() as u64, records, "{address}");
}

async fn goes(client: &Client, address: &Address, records: u64) {
    let is_gone = async || client.get_stream(address).await.expect("the stream").trim_point.get() == records;
    eventually(SOON, "what is too old goes", is_gone).await;
}

/// A clock that is wrong from a moment on, while the star runs or from a start.
fn a_clock_is_wrong_by(shift_ms: i64, while_running: bool) {
    let scratch = Scratch::new();
    let script = Script::new(&scratch);
    let mut novad = Novad::start_failing(&scratch.join("data"), &ARGS, &script);
    let shifted = format!("clock: {shift_ms}");
    within(120, async {
        let client = novad.client_with_bucket().await;
        let long = aged(&client, "long", HOUR_MS).await;
        fill(&client, &long).await;
        // It is trimmed by its age as long as the clock is right.
        let before = aged(&client, "before", SHORT_MS).await;
        fill(&client, &before).await;
        goes(&client, &before, RECORDS).await;
        if while_running {
            script.tell(&novad, &[&shifted]);
        } else {
            novad.kill9();
            script.write(&[&shifted]);
            novad.restart();
        }
        let is_told = async || novad.log().contains(DISBELIEVED);
        eventually(SOON, "the clock is found to be wrong", is_told).await;
        let client = novad.client();
        fill(&client, &long).await;
        let short = aged(&client, "short", SHORT_MS).await;
        fill(&client, &short).await;
        tokio::time::sleep(LOOKS).await;
        for (address, records) in [(&long, 2 * RECORDS), (&short, RECORDS)] {
            is_whole(&client, address, records).await;
        }
        // Not by a restart either, with the clock as it is or right again.
        for lines in [&[&shifted[..]][..], &[]] {
            novad.kill9();
            script.write(lines);
            novad.restart();
            tokio::time::sleep(LOOKS).await;
            let client = novad.client();
            is_whole(&client, &long, 2 * RECORDS).await;
            is_whole(&client, &short, RECORDS).await;
        }
        novad.kill9();
        let is_ahead = shift_ms > 0;
        let lines: &[&str] = if is_ahead { &[&shifted] } else { &[] };
        script.write(lines);
        novad.restart_with(&[&ARGS[..], &["--confirm-clock"]].concat());
        let client = novad.client();
        goes(&client, &short, RECORDS).await;
        if is_ahead {
            // What was written before is a year old by the clock that was confirmed.
            let is_trimmed = async || client.get_stream(&long).await.expect("the stream").trim_point.get() >= RECORDS;
            eventually(SOON, "what is a year old goes", is_trimmed).await;
        } else {
            is_whole(&client, &long, 2 * RECORDS).await;
        }
    });
}

/// What is told here is the same of both classes.
fn is_here() -> bool {
    class() == Class::Express
}

#[test]
fn a_clock_that_jumps_a_year_either_way_trims_nothing_until_it_is_confirmed() {
    if is_here() {
        a_clock_is_wrong_by(YEAR_MS, true);
        a_clock_is_wrong_by(-YEAR_MS, true);
    }
}

#[test]
fn a_clock_that_is_wrong_by_a_year_at_a_start_trims_nothing_until_it_is_confirmed() {
    if is_here() {
        a_clock_is_wrong_by(YEAR_MS, false);
        a_clock_is_wrong_by(-YEAR_MS, false);
    }
}
