//! Does what is settled leave the head log, read the same, and go when it is deleted?

use std::path::Path;
use std::time::Duration;

use client::{
    Address, AppendRecord, BucketName, Client, ProducerOptions, ReadOptions, Reason, Record, SubscribeOptions,
};
use tests::history::{Tag, check_dense, read_all};
use tests::{Novad, Scratch, at, eventually, is_about, kept_bytes, within};

const SOON: Duration = Duration::from_secs(30);

async fn is_settled(client: &Client, address: &Address) -> bool {
    let info = client.get_stream(address).await.expect("the stream");
    info.settled == info.tail.seq_num
}

async fn settle(client: &Client, address: &Address) {
    eventually(SOON, "all of the stream is settled", async || is_settled(client, address).await).await;
}

/// Bytes that the segments of a head log hold on disk.
fn log_bytes(data: &Path) -> u64 {
    kept_bytes(&data.join("log").join("0"))
}

const RECORDS_OF_200_MIB: u64 = 3_500;

#[test]
fn settled_segments_are_freed_and_the_head_log_shrinks() {
    if !is_about(client::Class::Express) {
        return;
    }
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &["--settle-age-ms", "100", "--log-bytes-max", "1GiB"]);
    within(120, async {
        let client = novad.client_with_bucket().await;
        let idle = log_bytes(novad.data());
        let producer = client.open(&at("large"), ProducerOptions::default()).await.expect("a session");
        let mut tickets = Vec::new();
        // 200 MiB in segments of 8.
        for index in 0..RECORDS_OF_200_MIB {
            tickets.push(producer.submit([Tag { writer: 1, index }.body(60_000)]).await.expect("it is taken"));
        }
        for ticket in tickets {
            ticket.await.expect("an ack");
        }
        settle(&client, &at("large")).await;
        let has_shrunk = async || log_bytes(novad.data()) <= idle.max(64 << 20);
        eventually(SOON, "the head log gives its room back", has_shrunk).await;
        let records = read_all(&client, &at("large")).await;
        check_dense(&records);
        let found: Vec<u64> = records.iter().map(|record| Tag::of(record).index).collect();
        assert_eq!(found, (0..RECORDS_OF_200_MIB).collect::<Vec<u64>>());
    });
}

const RECORDS: u64 = 6_000;
const STAMP_STEP: i64 = 7;

fn stamp(index: u64) -> i64 {
    1_000 + i64::try_from(index / 3).expect("a stamp") * STAMP_STEP
}

/// Three records a stamp, in batches of changing size.
async fn write_history(client: &Client, address: &Address) {
    let producer = client.open(address, ProducerOptions::default()).await.expect("a session");
    let mut next = 0;
    let mut tickets = Vec::new();
    while next < RECORDS {
        let end = RECORDS.min(next + 1 + next % 17);
        let records = (next..end).map(|index| {
            AppendRecord::new(Tag { writer: 1, index }.body(20 + (index * 31 % 900) as usize))
                .timestamp_ms(stamp(index))
        });
        tickets.push(producer.submit(records).await.expect("it is taken"));
        next = end;
    }
    for ticket in tickets {
        ticket.await.expect("an ack");
    }
    producer.close().await.expect("it closes");
}

/// These are the records from this one on, each as it was written.
fn are_from(first: u64, records: &[Record]) {
    for (record, index) in records.iter().zip(first..) {
        assert_eq!((record.seq_num.get(), Tag::of(record).index), (index, index));
        assert_eq!(record.timestamp_ms, stamp(index));
        assert_eq!(record.body.len(), Tag { writer: 1, index }.body(20 + (index * 31 % 900) as usize).len());
    }
}

async fn check_history(client: &Client, address: &Address) {
    let all = read_all(client, address).await;
    assert_eq!(all.len() as u64, RECORDS);
    are_from(0, &all);
    for first in [0, 1, 2_047, 2_999, RECORDS - 1] {
        let page = client.read(address, ReadOptions::from(first).limit(5)).await.expect("a page");
        assert_eq!(page.records.len() as u64, 5.min(RECORDS - first));
        are_from(first, &page.records);
        let by_time = client.read(address, ReadOptions::from_ms(stamp(first)).limit(2)).await.expect("a page");
        are_from(first - first % 3, &by_time.records);
        let between = client.read(address, ReadOptions::from_ms(stamp(first) - 1).limit(1)).await.expect("a page");
        are_from(first - first % 3, &between.records);
        let last = client.read(address, ReadOptions::last(RECORDS - first).limit(3)).await.expect("a page");
        are_from(first, &last.records);
        let until = client.read(address, ReadOptions::from(first).until_ms(stamp(first) + 1)).await.expect("a page");
        assert_eq!(until.records.len() as u64, 3 - first % 3);
    }
    for options in [SubscribeOptions::from(0), SubscribeOptions::from(1_234), SubscribeOptions::from_ms(stamp(4_500))] {
        let mut subscription = client.subscribe(address, options).await.expect("a subscription");
        let mut next = subscription.start().get();
        while next < RECORDS {
            let page = subscription.next().await.expect("more").expect("a page");
            are_from(next, &page.records);
            next += page.records.len() as u64;
        }
    }
}

#[test]
fn settled_records_read_as_they_were_written_from_any_place_before_and_after_a_restart() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--shards", "2", "--settle-age-ms", "50"]);
    within(150, async {
        let client = novad.client_with_bucket().await;
        write_history(&client, &at("history")).await;
        check_history(&client, &at("history")).await;
        settle(&client, &at("history")).await;
        check_history(&client, &at("history")).await;
        novad.kill9();
        novad.restart();
        let client = novad.client();
        check_history(&client, &at("history")).await;
        // Onto what is settled.
        let ack = client.append(&at("history"), ["live"]).await.expect("an ack");
        assert_eq!(ack.start.seq_num.get(), RECORDS);
        let last = client.read(&at("history"), ReadOptions::last(2)).await.expect("a page");
        assert_eq!((last.records.len(), &last.records[1].body[..]), (2, b"live".as_slice()));
        are_from(RECORDS - 1, &last.records[..1]);
    });
}

#[test]
fn a_bucket_with_settled_streams_is_deleted_when_they_are() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--shards", "2", "--settle-age-ms", "20"]);
    within(90, async {
        let client = novad.client_with_bucket().await;
        let keys: Vec<Address> = (0..5).map(|key| at(&format!("key-{key}"))).collect();
        let first = client.get_bucket(&at("x").bucket).await.expect("the bucket").id;
        for address in &keys {
            client.append(address, ["x"]).await.expect("an ack");
            settle(&client, address).await;
        }
        novad.kill9();
        novad.restart();
        let client = novad.client();
        let bucket = at("x").bucket;
        // None of them is in memory.
        let refused = client.delete_bucket(&bucket).await.expect_err("it has streams");
        assert_eq!(refused.reason(), Reason::BucketNotEmpty, "{refused}");
        for address in &keys[1..] {
            client.delete_stream(address).await.expect("a delete");
        }
        let refused = client.delete_bucket(&bucket).await.expect_err("it has one");
        assert_eq!(refused.reason(), Reason::BucketNotEmpty, "{refused}");
        client.append(&keys[0], ["y"]).await.expect("it is thawed");
        client.delete_stream(&keys[0]).await.expect("a delete");
        client.delete_bucket(&bucket).await.expect("it is empty");
        let made = client.create_bucket(tests::bucket()).await.expect("its name is free");
        assert_ne!(made.id, first);
        assert!(client.list_streams(&bucket, b"", 0).await.expect("a page").streams.is_empty());
        novad.kill9();
        novad.restart();
        let client = novad.client();
        assert!(client.list_streams(&bucket, b"", 0).await.expect("a page").streams.is_empty());
        assert_eq!(client.append(&keys[0], ["new"]).await.expect("an ack").start.seq_num.get(), 0);
    });
}

#[test]
fn a_settled_stream_that_is_deleted_and_made_again_has_nothing_of_the_one_before() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--settle-age-ms", "20"]);
    within(90, async {
        let client = novad.client_with_bucket().await;
        let address = at("again");
        for generation in 0..4_u64 {
            let client = novad.client();
            let made = client.append(&address, [format!("first of {generation}")]).await.expect("an ack");
            assert_eq!(made.start.seq_num.get(), 0);
            client.append(&address, ["second"]).await.expect("an ack");
            if generation % 2 == 0 {
                settle(&client, &address).await;
            }
            novad.kill9();
            novad.restart();
            let client = novad.client();
            let records = read_all(&client, &address).await;
            assert_eq!(records.len(), 2);
            assert_eq!(tests::text(&records[0]), format!("first of {generation}"));
            client.delete_stream(&address).await.expect("a delete");
            let gone = client.read(&address, ReadOptions::from(0)).await.expect_err("it is deleted");
            assert_eq!(gone.reason(), Reason::NotFound);
        }
        novad.kill9();
        novad.restart();
        let gone = novad.client().read(&address, ReadOptions::from(0)).await.expect_err("it stays deleted");
        assert_eq!(gone.reason(), Reason::NotFound);
        drop(client);
    });
}

async fn listed(client: &Client, bucket: &BucketName, limit: u32) -> Vec<String> {
    let (mut keys, mut after) = (Vec::new(), Vec::new());
    loop {
        let page = client.list_streams(bucket, &after, limit).await.expect("a page");
        keys.extend(page.streams.iter().map(|info| info.key.as_str().to_owned()));
        if page.next.is_empty() {
            return keys;
        }
        after = page.next;
    }
}

#[test]
fn a_list_has_what_is_in_memory_and_what_only_the_index_has_once_each_in_order() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--shards", "2", "--settle-age-ms", "20"]);
    within(90, async {
        let client = novad.client_with_bucket().await;
        let bucket = at("x").bucket;
        let name = |key: u32| format!("key-{key:03}");
        for key in (0..90).step_by(3) {
            client.append(&at(&name(key)), ["x"]).await.expect("an ack");
        }
        settle(&client, &at(&name(87))).await;
        novad.kill9();
        novad.restart();
        let client = novad.client();
        // Some are in memory now, some new, and some are deleted though the index has them.
        for key in (0..90).step_by(9) {
            client.append(&at(&name(key)), ["y"]).await.expect("an ack");
        }
        for key in (1..90).step_by(3) {
            client.append(&at(&name(key)), ["z"]).await.expect("an ack");
        }
        for key in (0..90).step_by(15) {
            client.delete_stream(&at(&name(key))).await.expect("a delete");
        }
        let expected: Vec<String> = (0..90).filter(|key| key % 3 != 2 && key % 15 != 0).map(name).collect();
        for limit in [1, 7, 1_000] {
            assert_eq!(listed(&client, &bucket, limit).await, expected, "in pages of {limit}");
        }
        novad.kill9();
        novad.restart();
        assert_eq!(listed(&novad.client(), &bucket, 10).await, expected);
    });
}
