//! Is each of ten thousand connections served, and what do they cost?

use std::time::Duration;

use client::ProducerOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tests::{Novad, Scratch, Speaker, at, eventually, within};
use wire::message::{CheckTail, Hello, Tail, Welcome};

use crate::hostile::counted;

const CONNECTIONS: usize = 10_000;
/// Fewer than any listener lets wait to be accepted.
const AT_ONCE: usize = 100;
/// Connections that each of two shards may have: the kernel deals them out about evenly.
const SHARD_CONNECTIONS_MAX: &str = "6000";
/// Files that are open for all that, in the star as in this process.
const FILES: u64 = 14_000;
/// Memory of the star for each of them.
const BYTES_MAX: u64 = 16 << 10;
const SOON: Duration = Duration::from_secs(30);

/// Whether this process may have so many files open; raises its limit where it can.
fn may_open(files: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= files);
    is_enough(limit.current)
        || is_enough(limit.maximum) && setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).is_ok()
}

/// Connections that all say hello before the first is welcomed.
fn greeted(novad: &Novad) -> Vec<Speaker> {
    let mut speakers: Vec<Speaker> = (0..AT_ONCE).map(|_| Speaker::stranger(novad.addr())).collect();
    let hello = Hello { client: "crowd".to_owned() };
    let hellos: Vec<u64> = speakers.iter_mut().map(|one| one.tell(&hello)).collect();
    for (one, correlation) in speakers.iter_mut().zip(hellos) {
        let _welcome: Welcome = one.hear_of(correlation).message();
    }
    speakers
}

#[test]
fn ten_thousand_connections_are_served_and_cost_little_each() {
    if !may_open(FILES) {
        return eprintln!("skipped: a process may not have {FILES} files open here");
    }
    let scratch = Scratch::new();
    let more = ["--shards", "2", "--connections-max", SHARD_CONNECTIONS_MAX];
    let novad = Novad::start(&scratch.join("data"), &more);
    within(150, async {
        let client = novad.client_with_bucket().await;
        let producer = client.open(&at("beside"), ProducerOptions::default()).await.expect("a session");
        producer.append(["first"]).await.expect("an ack");
        let before = novad.resident_bytes();
        let mut crowd = Vec::new();
        while crowd.len() < CONNECTIONS {
            crowd.extend(greeted(&novad));
            producer.append(["beside"]).await.expect("an ack");
        }
        eventually(SOON, "all are accepted", async || counted(&client, "connections").await >= CONNECTIONS as u64)
            .await;
        let grown = novad.resident_bytes().saturating_sub(before);
        assert!(grown < CONNECTIONS as u64 * BYTES_MAX, "{} KiB", grown >> 10);
        eprintln!("{} bytes a connection", grown / CONNECTIONS as u64);
        // All of them ask before the first takes its answer.
        let asked: Vec<u64> = crowd.iter_mut().map(|one| one.tell(&CheckTail { address: at("beside") })).collect();
        producer.append(["beside"]).await.expect("an ack");
        for (one, correlation) in crowd.iter_mut().zip(asked) {
            let told: Tail = one.hear_of(correlation).message();
            assert!(told.tail.seq_num.get() > 0);
        }
        drop(crowd);
        eventually(SOON, "the gone are forgotten", async || counted(&client, "connections").await <= 2).await;
        producer.append(["last"]).await.expect("an ack");
    });
}
