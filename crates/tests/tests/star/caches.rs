//! Are settled records read again from the local disk, and does the background stay within its memory meanwhile?

use std::time::Duration;

use client::{Address, Client, ProducerOptions};
use tests::history::{Tag, check_dense, read_all};
use tests::{Novad, Scratch, at, eventually, within};

const MIB: u64 = 1 << 20;
/// What the background may take.
const CONTROL_BYTES: u64 = 64 * MIB;
/// What a process takes besides what it counts: code, stacks, what the allocator has not given back.
const SLACK_BYTES: u64 = 160 * MIB;
const SHARD_BYTES: u64 = 64 * MIB;
const ARGS: [&str; 10] = [
    "--block-cache-bytes",
    "128MiB",
    "--memory-control-bytes-max",
    "64MiB",
    "--memory-shard-bytes-max",
    "64MiB",
    "--settle-age-ms",
    "50",
    "--connections-max",
    "64",
];

/// What is counted of the star under this name.
async fn counted(client: &Client, name: &str) -> u64 {
    let star = client.star().await.expect("the star");
    let is_wanted = |counter: &&client::Counter| counter.shard == client::Counter::OF_STAR && counter.name == name;
    star.counters.iter().find(is_wanted).map_or(0, |counter| counter.value)
}

/// What the background says that it takes.
async fn taken(client: &Client) -> u64 {
    let star = client.star().await.expect("the star");
    let parts = star.counters.iter().filter(|counter| counter.shard == client::Counter::OF_STAR);
    parts.filter(|counter| counter.name.starts_with("memory_")).map(|counter| counter.value).sum()
}

fn resident_bytes(novad: &Novad) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", novad.pid())).expect("the process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}

async fn write(client: &Client, address: &Address, records: u64, bytes: usize) {
    let producer = client.open(address, ProducerOptions::default()).await.expect("a session");
    let mut tickets = Vec::new();
    for index in 0..records {
        tickets.push(producer.submit([Tag { writer: 1, index }.body(bytes)]).await.expect("it is taken"));
    }
    for ticket in tickets {
        ticket.await.expect("an ack");
    }
}

async fn settle(client: &Client, address: &Address) {
    let is_settled = async || {
        let info = client.get_stream(address).await.expect("the stream");
        info.settled == info.tail.seq_num
    };
    eventually(Duration::from_secs(60), "all of the stream is settled", is_settled).await;
}

async fn check(client: &Client, address: &Address, records: u64) {
    let found = read_all(client, address).await;
    check_dense(&found);
    assert_eq!(found.len() as u64, records);
    assert!(found.iter().zip(0..).all(|(record, index)| Tag::of(record).index == index));
}

/// More is written and read than memory has room for; what left it is read from the local disk, and no more than that is taken.
#[test]
fn many_streams_are_written_and_read_within_the_memory_that_was_given() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &ARGS);
    within(300, async {
        let client = novad.client_with_bucket().await;
        let large: Vec<Address> = (0..4).map(|key| at(&format!("large-{key}"))).collect();
        for address in &large {
            write(&client, address, 30, 500_000).await;
            assert!(taken(&client).await <= CONTROL_BYTES);
        }
        for key in 0..400 {
            write(&client, &at(&format!("small-{key}")), 3, 300).await;
        }
        for address in &large {
            settle(&client, address).await;
        }
        for _ in 0..2 {
            for address in &large {
                check(&client, address, 30).await;
                assert!(taken(&client).await <= CONTROL_BYTES);
            }
        }
        for key in 0..400 {
            check(&client, &at(&format!("small-{key}")), 3).await;
        }
        assert!(counted(&client, "history_memory_evictions").await > 0, "it did not fit into memory");
        assert!(counted(&client, "history_nvme_writes").await > 0);
        let has_hits = async || {
            check(&client, &large[0], 30).await;
            counted(&client, "history_nvme_hits").await > 0
        };
        eventually(Duration::from_secs(60), "blocks come from the local disk", has_hits).await;
        let most = CONTROL_BYTES + SHARD_BYTES + SLACK_BYTES;
        assert!(resident_bytes(&novad) <= most, "{} of {most} bytes", resident_bytes(&novad));

        // What an earlier start kept there is not believed.
        let file = novad.data().join("blocks.cache");
        std::fs::write(&file, vec![0xA5; 1 << 20]).expect("a file");
        novad.kill9();
        novad.restart();
        let client = novad.client();
        assert!(std::fs::metadata(&file).expect("the file").len() > 100 * MIB);
        assert_eq!(counted(&client, "history_nvme_bytes").await, 0);
        check(&client, &large[0], 30).await;
    });
}
