//! Is a star that slept while another took its store told of nothing that the store does not have?

use std::time::Duration;

use client::{Address, Class, Client, ConfigPatch, ReadOptions};
use rustix::process::Signal;
use tests::history::{Acked, Tag, read_all};
use tests::{Novad, Scratch, at, eventually, is_on_a_directory, within};

use crate::load::impatient;

/// A lease lives half a minute, and whoever takes over waits a little longer.
const TAKEN_WITHIN: Duration = Duration::from_secs(90);
/// Longer than it takes until the lease is to be renewed.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
const RECORDS: u64 = 20;

async fn append(client: &Client, address: &Address, writer: u32) -> Acked {
    let mut acked = Acked::default();
    for index in 0..RECORDS {
        let ack = client.append(address, [Tag { writer, index }.body(200)]).await.expect("an ack");
        acked.add(index, ack.start.seq_num.get());
    }
    acked
}

async fn settle(client: &Client, address: &Address) {
    let is_settled = async || {
        let info = client.get_stream(address).await.expect("the stream");
        info.settled == info.tail.seq_num
    };
    eventually(TAKEN_WITHIN, "all is settled", is_settled).await;
}

#[test]
fn a_star_that_wakes_up_deposed_acks_nothing_that_the_store_does_not_have_and_ends() {
    if !is_on_a_directory() {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.join("store").display().to_string();
    let mut first = Novad::start(&scratch.join("first"), &["--store", &store, "--settle-age-ms", "50"]);
    within(240, async {
        let client = first.client_with_bucket().await;
        let (standard, express) = (at("standard"), at("express"));
        for (address, class) in [(&standard, Class::Standard), (&express, Class::Express)] {
            let config = ConfigPatch { class: Some(class), ..ConfigPatch::default() };
            client.create_stream(address, config).await.expect("a stream");
        }
        let before = append(&client, &standard, 1).await;
        append(&client, &express, 1).await;
        settle(&client, &express).await;
        first.signal(Signal::STOP);
        // What it is asked while it sleeps waits for it.
        let asked = impatient(&first);
        asked.append(&standard, ["asleep"]).await.expect_err("it sleeps");
        let second = Novad::start(&scratch.join("second"), &["--store", &store, "--accept-loss"]);
        let client = second.client();
        let serves = async || client.check_tail(&standard).await.is_ok();
        eventually(TAKEN_WITHIN, "the second one serves", serves).await;
        let after = append(&client, &standard, 2).await;

        first.signal(Signal::CONT);
        let mut refused = 0;
        let until = std::time::Instant::now() + ENDS_WITHIN;
        while first.is_alive() {
            assert!(std::time::Instant::now() < until, "the deposed one goes on: {}", first.log());
            let told = asked.append(&standard, ["deposed"]).await;
            told.expect_err("what it can't put into the store it never acks");
            refused += 1;
        }
        assert!(first.log().contains("was fenced"), "{}", first.log());
        assert_ne!(first.wait().code(), Some(0), "{}", first.log());

        let records = read_all(&client, &standard).await;
        before.check(1, &records);
        after.check(2, &records);
        assert_eq!(records.len() as u64, 2 * RECORDS, "nothing of the deposed one is there");
        let page = client.read(&express, ReadOptions::from(0)).await.expect("a page");
        assert_eq!(page.records.len() as u64, RECORDS, "what was settled is there");
        eprintln!("check 8: {refused} asked of a deposed star");
    });
}
