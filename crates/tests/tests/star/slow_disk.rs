//! Does a star whose disk is slow slow its writers down, within its memory, and stay the one that writes its store?

use std::time::{Duration, Instant};

use client::{Class, Client, ConfigPatch, Options, ProducerOptions};
use futures_util::future::join_all;
use rustix::process::Signal;
use tests::history::{Acked, Tag, read_all};
use tests::{LoopDisk, Novad, Scratch, at, is_on_a_directory, soaked, within};

const MIB: u64 = 1 << 20;
/// What the disk of the head logs takes.
const DISK_BYTES_PER_SECOND: u64 = MIB;
/// Longer than a lease lives unless it is renewed.
const SLOW_FOR: Duration = Duration::from_secs(35);
const RECORD_BYTES: usize = 30_000;
/// One of these writers alone sends more than the disk takes.
const WRITERS: u32 = 6;
const IN_FLIGHT: usize = 64;
/// Room that the writers' windows and the parcels of their records may take.
const GROWN_MAX: u64 = 400 * MIB;

async fn stream(client: &Client, key: &str, class: Class) {
    let config = ConfigPatch { class: Some(class), ..ConfigPatch::default() };
    client.create_stream(&at(key), config).await.expect("a stream");
}

/// Sends as much as its session takes; every record is acked in the end.
async fn hurry(client: &Client, writer: u32, until: Instant) -> Acked {
    let address = at(&format!("express-{writer}"));
    let producer = client.open(&address, ProducerOptions::default()).await.expect("a session");
    let (mut acked, mut tickets) = (Acked::default(), std::collections::VecDeque::new());
    let mut index = 0;
    while Instant::now() < until || !tickets.is_empty() {
        while Instant::now() < until && tickets.len() < IN_FLIGHT {
            let body = Tag { writer, index }.body(RECORD_BYTES);
            tickets.push_back((index, producer.submit([body]).await.expect("the session goes on")));
            index += 1;
        }
        if let Some((index, ticket)) = tickets.pop_front() {
            acked.add(index, ticket.await.expect("it is durable in the end").start.seq_num.get());
        }
    }
    acked
}

/// Appends one record after the other to what the store alone makes durable; the disk of the head logs has no part in it.
async fn stroll(client: &Client, until: Instant) -> Acked {
    let mut acked = Acked::default();
    for index in 0.. {
        if Instant::now() > until {
            break;
        }
        let ack = client.append(&at("standard"), [Tag { writer: 100, index }.body(100)]).await.expect("an ack");
        acked.add(index, ack.start.seq_num.get());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    acked
}

/// Without a disk of its own, or a throttle, it says so and shows nothing.
#[test]
fn a_disk_that_takes_a_mebibyte_a_second_slows_writers_down_and_costs_neither_memory_nor_the_lease() {
    if !is_on_a_directory() {
        return;
    }
    let disk = match LoopDisk::new(1_000) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("skipped: no disk of its own here: {why}"),
    };
    let slow = match disk.throttle(DISK_BYTES_PER_SECOND) {
        Ok(slow) => slow,
        Err(why) => return eprintln!("skipped: no throttle here: {why}"),
    };
    let scratch = Scratch::new();
    let store = scratch.join("store").display().to_string();
    let args = ["--shards", "2", "--store", &store, "--settle-age-ms", "100"];
    let mut novad = Novad::start(&disk.path().join("data"), &args);
    let slow_for = SLOW_FOR * soaked(1);
    let patient = Options::new([novad.addr().to_string()]).request_timeout(Duration::from_secs(60));
    within(slow_for.as_secs() + 300, async {
        let client = novad.client_with_bucket().await;
        for writer in 0..WRITERS {
            stream(&client, &format!("express-{writer}"), Class::Express).await;
        }
        stream(&client, "standard", Class::Standard).await;
        let before = novad.resident_bytes();
        slow.hold(novad.pid());
        let (began, until) = (Instant::now(), Instant::now() + slow_for);
        let patient = Client::new(patient).expect("a client");
        let watch = async {
            let mut grown = 0;
            while Instant::now() < until {
                grown = novad.resident_bytes().saturating_sub(before).max(grown);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            grown
        };
        let writers = join_all((0..WRITERS).map(|writer| hurry(&patient, writer, until)));
        let (express, standard, grown) = tokio::join!(writers, stroll(&patient, until), watch);
        let records: usize = express.iter().map(Acked::len).sum();
        let bytes = (records * RECORD_BYTES) as u64;
        let (took, strolled) = (began.elapsed().as_secs() + 1, standard.len());
        eprintln!("{} KiB and {strolled} of Standard acked in {took} s, {} MiB grown", bytes >> 10, grown / MIB);
        // What lies in the cache of the device, or was made ahead, goes faster.
        assert!(bytes < 3 * took * DISK_BYTES_PER_SECOND + 64 * MIB, "the disk was not slow: {bytes} in {took} s");
        assert!(records > 100 && strolled > 100, "it went on: {records} and {strolled}");
        assert!(grown < GROWN_MAX, "{} MiB", grown / MIB);
        assert!(novad.is_alive(), "{}", novad.log());
        assert!(!novad.log().contains("was fenced"), "{}", novad.log());
        novad.signal(Signal::KILL);
        novad.wait();
        novad.restart();
        let client = novad.client();
        for (acked, writer) in express.iter().zip(0..) {
            acked.check(writer, &read_all(&client, &at(&format!("express-{writer}"))).await);
        }
        standard.check(100, &read_all(&client, &at("standard")).await);
        eprintln!("check 16: {records} records over a slow disk");
    });
    // Its processes leave the group first.
    drop((novad, slow, disk));
}
