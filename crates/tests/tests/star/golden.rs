//! Does this build open what a build of each format left on disk, and serve all of it?
//!
//! `golden/format-N.tar.gz` is a data directory of format N, store and all, as the first build that wrote it left it when it was killed. A format
//! that changes gets an archive beside those there are: `cargo test --workspace --test star -- --ignored the_archive_of_this_format`
//! makes the one of this build.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{
    AppendRecord, BucketName, BucketSpec, Class, Client, ConfigPatch, Effect, FencingToken, OneShot, ProducerOptions,
    ProducerPolicy, ReadOptions, Reason, SeqNum, Terms,
};
use tests::history::read_all;
use tests::{Novad, Scratch, at, eventually, is_on_a_directory, run_tool, within};

/// The formats that are kept; the last is that of this build.
const FORMATS: std::ops::RangeInclusive<u32> = 2..=2;
const SOON: Duration = Duration::from_secs(30);
const SHARDS: &str = "2";
/// Nothing is settled before a test is over.
const LATE: [&str; 4] = ["--shards", SHARDS, "--settle-age-ms", "60s"];
const SOON_SETTLED: [&str; 4] = ["--shards", SHARDS, "--settle-age-ms", "50"];
const ARCHIVE_BYTES_MAX: u64 = 300_000;

/// Streams of each class: enough of them that every shard has some.
const STREAMS: u64 = 4;
/// Records of a stream that are settled, and those that an Express stream has besides in its head log alone.
const SETTLED: u64 = 40;
const UNSETTLED: u64 = 24;
/// Records below are trimmed: while they were settled, and by what is in a head log alone.
const TRIMMED: u64 = 10;
const TRIMMED_LATE: u64 = 21;
const RECORDS_A_BATCH: usize = 4;
const STAMP_STEP: u64 = 250;
const RETENTION_BYTES: u64 = 1 << 40;

fn archive(format: u32) -> PathBuf {
    let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&crate_dir).join("golden").join(format!("format-{format}.tar.gz"))
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("a path of plain text")
}

/// The key of a stream of a class.
fn key(class: Class, number: u64) -> String {
    format!("{class}-{number}")
}

fn stamp(number: u64) -> i64 {
    i64::try_from(1_000_000 + number / 3 * STAMP_STEP).expect("a stamp")
}

/// A record of a stream: with headers or without, from a few bytes to about a block, stamped by its producer.
fn record(key: &str, number: u64) -> AppendRecord {
    let letter = |at: u64| char::from(b'a' + u8::try_from(at * at % 26).expect("a letter"));
    let filler: String = (0..number * number).map(letter).collect();
    let record = AppendRecord::new(format!("{key}:{number}:{filler}")).timestamp_ms(stamp(number));
    if !number.is_multiple_of(3) {
        return record;
    }
    record.header("number", number.to_string()).header("number", &b"\x00\xff"[..])
}

fn class_of(class: Class) -> ConfigPatch {
    ConfigPatch { class: Some(class), ..ConfigPatch::default() }
}

fn token(generation: u32) -> FencingToken {
    FencingToken::new(&format!("gen-{generation}")).expect("a token")
}

/// A bucket whose every field is its own.
fn configured() -> BucketSpec {
    let defaults = ConfigPatch {
        class: Some(Class::Express),
        producer_policy: Some(ProducerPolicy::Fenced),
        retention_max_bytes: Some(RETENTION_BYTES),
        batch_max_records: Some(7),
        ..ConfigPatch::default()
    };
    BucketSpec {
        location: "here".to_owned(),
        create_stream_on_read: true,
        creation_token: "made-once".to_owned(),
        defaults,
        ..BucketSpec::named(BucketName::new("configured").expect("a bucket name"))
    }
}

async fn append(client: &Client, key: &str, numbers: std::ops::Range<u64>) {
    let numbers: Vec<u64> = numbers.collect();
    for batch in numbers.chunks(RECORDS_A_BATCH) {
        client.append(&at(key), batch.iter().map(|number| record(key, *number))).await.expect("an ack");
    }
}

/// A one-shot under its key and the token of a generation.
async fn one_shot(client: &Client, generation: u32) -> std::ops::Range<u64> {
    let (fencing_token, idempotency_key) = (token(generation), Some((u128::from(generation) << 70) | 11));
    let with = OneShot { fencing_token, idempotency_key, ..OneShot::default() };
    let ack = client.append_with(&at("fenced"), with, [record("fenced", generation.into())]).await.expect("an ack");
    ack.start.seq_num.get()..ack.end.seq_num.get()
}

/// Leaves some of everything, and waits until it is settled.
async fn leave_settled(client: &Client) {
    client.create_bucket(configured()).await.expect("a bucket");
    for class in [Class::Express, Class::Standard] {
        for key in (0..STREAMS).map(|number| key(class, number)) {
            client.create_stream(&at(&key), class_of(class)).await.expect("a stream");
            append(client, &key, 0..SETTLED).await;
            client.trim(&at(&key), SeqNum::new(TRIMMED)).await.expect("a trim");
        }
    }
    let fenced = ConfigPatch { producer_policy: Some(ProducerPolicy::Fenced), ..class_of(Class::Express) };
    client.create_stream(&at("fenced"), fenced).await.expect("a stream");
    client.fence(&at("fenced"), &token(0)).await.expect("a fence");
    assert_eq!(one_shot(client, 0).await, 0..1);
    let kept = ConfigPatch { retention_max_bytes: Some(RETENTION_BYTES), ..ConfigPatch::default() };
    client.reconfigure_stream(&at(&key(Class::Standard, 1)), kept).await.expect("a configuration");
    append(client, "gone", 0..4).await;
    client.delete_stream(&at("gone")).await.expect("a delete");
    eventually(SOON, "it is settled", async || unsettled(client).await == 0).await;
}

/// Leaves more of it in head logs alone.
async fn leave_unsettled(client: &Client) {
    for key in (0..STREAMS).map(|number| key(Class::Express, number)) {
        append(client, &key, SETTLED..SETTLED + UNSETTLED - 1).await;
        let last = SETTLED + UNSETTLED - 1;
        let terms = Terms { effect: Some(Effect::Trim(SeqNum::new(TRIMMED_LATE))), ..Terms::default() };
        let with = OneShot { terms, ..OneShot::default() };
        client.append_with(&at(&key), with, [record(&key, last)]).await.expect("an ack");
    }
    client.fence(&at("fenced"), &token(1)).await.expect("a fence");
    assert_eq!(one_shot(client, 1).await, 1..2);
    let producer = client.open(&at("session"), ProducerOptions::default()).await.expect("a session");
    for number in 0..SETTLED {
        producer.submit([record("session", number)]).await.expect("it is taken").await.expect("an ack");
    }
    append(client, "gone-late", 0..4).await;
    client.delete_stream(&at("gone-late")).await.expect("a delete");
    assert_eq!(unsettled(client).await, STREAMS * UNSETTLED);
}

/// Records of Express streams that are in a head log alone.
async fn unsettled(client: &Client) -> u64 {
    let mut records = 0;
    for key in (0..STREAMS).map(|number| key(Class::Express, number)) {
        let info = client.get_stream(&at(&key)).await.expect("the stream");
        records += info.tail.seq_num.since(info.settled);
    }
    records
}

/// All that was left is served, byte for byte.
async fn is_all_there(client: &Client) {
    for number in 0..STREAMS {
        is_there(client, &key(Class::Express, number), TRIMMED_LATE..SETTLED + UNSETTLED).await;
        is_there(client, &key(Class::Standard, number), TRIMMED..SETTLED).await;
    }
    is_there(client, "session", 0..SETTLED).await;
    is_there(client, "fenced", 0..2).await;
    is_fenced(client).await;
    for key in ["gone", "gone-late"] {
        let gone = client.read(&at(key), ReadOptions::from(0)).await.expect_err("it is deleted");
        assert_eq!(gone.reason(), Reason::NotFound, "{key}");
    }
    is_configured(client).await;
}

async fn is_there(client: &Client, key: &str, numbers: std::ops::Range<u64>) {
    let found = read_all(client, &at(key)).await;
    assert_eq!(found.len() as u64, numbers.end - numbers.start, "{key}");
    for (found, number) in found.iter().zip(numbers.clone()) {
        let wanted = record(key, number);
        assert_eq!((found.seq_num.get(), Some(found.timestamp_ms)), (number, wanted.timestamp_ms), "{key}");
        assert_eq!((&found.body, &found.headers), (&wanted.body, &wanted.headers), "{key} {number}");
    }
    let stamped = client.read(&at(key), ReadOptions::from_ms(stamp(numbers.end - 1)).limit(1)).await;
    let first = (numbers.start..numbers.end).find(|number| stamp(*number) >= stamp(numbers.end - 1));
    assert_eq!(stamped.expect("a page").records.first().map(|record| record.seq_num.get()), first, "{key}");
}

/// The token, whom it shuts out, and what was sent under it, which gets its first answer.
async fn is_fenced(client: &Client) {
    assert_eq!(client.fencing_token(&at("fenced")).await.expect("the token"), token(1));
    let before = OneShot { fencing_token: token(0), ..OneShot::default() };
    let shut_out = client.append_with(&at("fenced"), before, ["late"]).await.expect_err("it is shut out");
    assert_eq!(shut_out.reason(), Reason::FencedOut);
    assert_eq!(one_shot(client, 1).await, 1..2);
}

async fn is_configured(client: &Client) {
    let spec = configured();
    let found = client.get_bucket(&spec.name).await.expect("the bucket");
    let flags = (found.create_stream_on_append, found.create_stream_on_read);
    assert_eq!(flags, (spec.create_stream_on_append, spec.create_stream_on_read));
    assert_eq!((&found.location, &found.creation_token), (&spec.location, &spec.creation_token));
    assert_eq!(found.defaults, spec.defaults.apply(&client::StreamConfig::default()));
    let stream = client.get_stream(&at(&key(Class::Standard, 1))).await.expect("the stream");
    assert_eq!((stream.config.class, stream.config.retention.max_bytes), (Class::Standard, RETENTION_BYTES));
}

/// Zeroes of a segment are holes in the archive, and where it is unpacked.
#[test]
#[ignore = "it makes what the other test opens, once a format"]
fn the_archive_of_this_format_is_made() {
    assert!(is_on_a_directory(), "an archive has its store in it");
    let (scratch, archive) = (Scratch::new(), archive(*FORMATS.end()));
    assert!(!archive.exists(), "{} is there, and what a format left does not change", archive.display());
    let mut novad = Novad::start(&scratch.join("data"), &SOON_SETTLED);
    within(120, async { leave_settled(&novad.client_with_bucket().await).await });
    assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
    novad.restart_with(&LATE);
    within(50, async { leave_unsettled(&novad.client()).await });
    novad.kill9();
    // What each start makes anew, and zeroes, need no room.
    fs::remove_file(scratch.join("data/RESERVE")).expect("room that is kept back");
    let (data, thin) = (scratch.join("data"), scratch.join("thin"));
    fs::create_dir(&thin).expect("a directory");
    run_tool("cp", &["-a", "--sparse=always", shown(&data), shown(&thin)]).expect("a copy");
    fs::create_dir_all(archive.parent().expect("a directory")).expect("it is made");
    let plain = ["--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"];
    let what = ["-C", shown(&thin), "-czf", shown(&archive), "data"];
    run_tool("tar", &[&plain[..], &what].concat()).expect("an archive");
    let bytes = fs::metadata(&archive).expect("it is there").len();
    assert!(bytes < ARCHIVE_BYTES_MAX, "{bytes} bytes are too many");
}

#[test]
fn what_a_build_of_each_format_left_is_opened_and_served() {
    if !is_on_a_directory() {
        return;
    }
    let scratch = Scratch::new();
    let fresh = Novad::start(&scratch.join("data"), &[]);
    let mark = fs::read_to_string(fresh.data().join("FORMAT")).expect("it says its format");
    assert_eq!(mark.trim(), format!("nova data {}", FORMATS.end()), "another format wants an archive of its own");
    drop(fresh);
    for format in FORMATS {
        let (scratch, archive) = (Scratch::new(), archive(format));
        let unpack = ["--no-same-owner", "-C", shown(scratch.path()), "-xzf", shown(&archive)];
        run_tool("tar", &unpack).expect("an archive is unpacked");
        opens(&scratch.join("data"));
    }
    eprintln!("check 21: {} formats opened", FORMATS.count());
}

/// Opens as it was left, goes on, is killed, and opens again with other shards, where all of it is settled.
fn opens(data: &Path) {
    let mut novad = Novad::start(data, &LATE);
    within(60, async {
        let client = novad.client();
        is_all_there(&client).await;
        append(&client, "later", 0..4).await;
    });
    novad.kill9();
    novad.restart_with(&["--shards", "1", "--settle-age-ms", "50"]);
    within(60, async {
        let client = novad.client();
        is_all_there(&client).await;
        is_there(&client, "later", 0..4).await;
        eventually(SOON, "it is settled", async || unsettled(&client).await == 0).await;
    });
    assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
    novad.restart();
    within(60, async { is_all_there(&novad.client()).await });
}
