//! Do the disk and the store give the room back of records that were written, settled, trimmed and too old?

use std::time::Duration;

use client::{Address, Class, Client, ConfigPatch, ProducerOptions, SeqNum};
use futures_util::future::join_all;
use tests::{Novad, Scratch, Script, at, class, eventually, is_on_a_directory, kept_bytes, objects, within};

const STREAMS: u32 = 4;
const BATCHES: u64 = 250;
const BATCH_RECORDS: u64 = 1_000;
const RECORD_BYTES: usize = 200;
const RECORDS: u64 = BATCHES * BATCH_RECORDS;
const AGE_MS: u64 = 1_000;
const SOON: Duration = Duration::from_secs(60);
/// Of each of two shards four blank segments that are kept ready, the one in use and the one before it, with their superblocks.
const LOG_BYTES_MAX: u64 = (2 * 6 * 8 + 1) << 20;
/// A few rows of the index, and the snapshots of each slot, which are joined once there are 256.
const STORE_BYTES_MAX: u64 = 8 << 20;
const OBJECTS_MAX: usize = 2_000;

/// Half of the streams are of each class, half of all come to keep records for a second, and the others are trimmed.
async fn stream(client: &Client, number: u32) -> Address {
    let class = if number.is_multiple_of(2) { Class::Express } else { Class::Standard };
    let address = at(&format!("{class}-{number}"));
    let config = ConfigPatch { class: Some(class), ..ConfigPatch::default() };
    client.create_stream(&address, config).await.expect("a stream");
    address
}

async fn write(client: &Client, address: &Address) {
    let producer = client.open(address, ProducerOptions::default()).await.expect("a session");
    let mut tickets = Vec::new();
    for _ in 0..BATCHES {
        let bodies = (0..BATCH_RECORDS).map(|_| vec![b'x'; RECORD_BYTES]);
        tickets.push(producer.submit(bodies).await.expect("it is taken"));
    }
    for ticket in tickets {
        ticket.await.expect("an ack");
    }
}

#[test]
fn a_million_records_settled_trimmed_and_expired_leave_next_to_nothing() {
    // It writes both classes.
    if class() == Class::Standard || !is_on_a_directory() {
        return;
    }
    let scratch = Scratch::new();
    let script = Script::new(&scratch);
    let args = ["--shards", "2", "--settle-age-ms", "50", "--settle-grace-ms", "100"];
    let novad = Novad::start_failing(&scratch.join("data"), &args, &script);
    let (log, store) = (novad.data().join("log"), novad.data().join("store"));
    within(150, async {
        let client = novad.client_with_bucket().await;
        let streams = join_all((0..STREAMS).map(|number| stream(&client, number))).await;
        join_all(streams.iter().map(|address| write(&client, address))).await;
        for address in &streams {
            let is_settled = async || {
                let info = client.get_stream(address).await.expect("the stream");
                assert_eq!(info.tail.seq_num.get(), RECORDS);
                info.settled == info.tail.seq_num
            };
            eventually(SOON, "all of it is settled", is_settled).await;
        }
        // All of it is too old at the first look; the next one is a minute later.
        tokio::time::sleep(Duration::from_millis(AGE_MS)).await;
        let (aged, trimmed) = streams.split_at(streams.len() / 2);
        for address in aged {
            let config = ConfigPatch { retention_max_age_ms: Some(AGE_MS), ..ConfigPatch::default() };
            client.reconfigure_stream(address, config).await.expect("another age");
        }
        for address in trimmed {
            client.trim(address, SeqNum::new(RECORDS)).await.expect("a trim");
        }
        for address in &streams {
            let is_gone = async || client.get_stream(address).await.expect("the stream").trim_point.get() == RECORDS;
            eventually(SOON, "all of it is trimmed", is_gone).await;
        }
        // The last chunk of a channel stays: a few records more make another one of it.
        let has_shrunk = async || {
            client.append(&at("after"), ["after"]).await.expect("an ack");
            let (disk, kept, count) = (kept_bytes(&log), kept_bytes(&store), objects(&store).len());
            eprintln!("{disk} bytes on the disk, {kept} bytes in {count} objects");
            disk <= LOG_BYTES_MAX && kept <= STORE_BYTES_MAX && count <= OBJECTS_MAX
        };
        eventually(SOON, "the room is given back", has_shrunk).await;
    });
}
