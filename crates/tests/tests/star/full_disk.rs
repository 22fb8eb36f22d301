//! Does a star on a full disk refuse records alone, start there too, and go on by itself once there is room?
//!
//! The store lies beside the head logs, as it does by default, or on a disk of its own.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use client::{Address, Class, Client, ConfigPatch, Error, FencingToken, ReadOptions, Reason, SeqNum};
use tests::history::{Acked, Tag, read_all};
use tests::{LoopDisk, Novad, at, eventually, is_on_a_directory, within};

const MIB: u64 = 1 << 20;
const DISK_MIB: u32 = 512;
/// A disk of head logs alone, so small that what is not settled yet fits in what a store's disk of the other size leaves free.
const DATA_DISK_MIB: u32 = 96;
const RECORD_BYTES: usize = 700_000;
/// How long it may take until what was deleted is free, and records are taken.
const BACK_WITHIN: Duration = Duration::from_secs(90);
/// Refused for so long, the disk is full of what stays.
const FULL_AFTER: Duration = Duration::from_secs(12);
const ALL: Duration = Duration::from_secs(800);
const ARGS: [&str; 4] = ["--store", "in-data", "--settle-age-ms", "100"];

/// A small disk, which is to outlive the star on it.
fn disk(mib: u32) -> Option<LoopDisk> {
    if !is_on_a_directory() {
        return None;
    }
    LoopDisk::new(mib).inspect_err(|why| eprintln!("skipped: no disk of its own here: {why}")).ok()
}

fn start() -> Option<(LoopDisk, Novad)> {
    let disk = disk(DISK_MIB)?;
    let novad = Novad::start(&disk.path().join("data"), &ARGS);
    Some((disk, novad))
}

/// With the store on another disk.
fn start_apart() -> Option<(LoopDisk, LoopDisk, Novad)> {
    let (data, store) = (disk(DATA_DISK_MIB)?, disk(DISK_MIB)?);
    let place = store.path().join("store").display().to_string();
    let [name, _, rest @ ..] = ARGS;
    let args: Vec<&str> = [name, place.as_str()].into_iter().chain(rest).collect();
    let novad = Novad::start(&data.path().join("data"), &args);
    Some((data, store, novad))
}

fn free_bytes(disk: &LoopDisk) -> u64 {
    let stat = rustix::fs::statvfs(disk.path()).expect("the disk");
    stat.f_bavail * stat.f_frsize
}

async fn stream(client: &Client, key: &str, class: Class) -> Address {
    let address = at(key);
    let config = ConfigPatch { class: Some(class), ..ConfigPatch::default() };
    client.create_stream(&address, config).await.expect("a stream");
    address
}

/// A stream, and what of it was acked.
struct Written {
    address: Address,
    acked: Acked,
    next: u64,
}

impl Written {
    async fn new(client: &Client, key: &str, class: Class) -> Self {
        Self { address: stream(client, key, class).await, acked: Acked::default(), next: 0 }
    }

    async fn append(&mut self, client: &Client) -> Result<(), Error> {
        let body = Tag { writer: 1, index: self.next }.body(RECORD_BYTES);
        let ack = client.append(&self.address, [body]).await?;
        self.acked.add(self.next, ack.start.seq_num.get());
        self.next += 1;
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.acked.len() as u64 * RECORD_BYTES as u64
    }

    /// All that was acked at `from` or after it is there.
    async fn check(&self, client: &Client, from: u64) {
        self.acked.since(from).check(1, &read_all(client, &self.address).await);
    }
}

/// The refusal for want of room says that trying again may help, and that nothing was stored.
fn check_refusal(refused: &Error) {
    assert_eq!(refused.reason(), Reason::ResourceExhausted, "{refused}");
    assert!(refused.retryable() && refused.no_side_effect() && refused.retry_after().is_some(), "{refused}");
    // Of a head log it may also say, for a moment after there is room again, that the disk allows no more.
    let told = refused.to_string();
    assert!(told.contains("kept back") || told.contains("the disk allow"), "{told}");
}

/// Appends to the streams in turn until there is no room, and none comes of what is there twice.
async fn fill(client: &Client, streams: &mut [Written]) {
    let mut refused_since: Option<Instant> = None;
    for turn in 0.. {
        let at = turn % streams.len();
        match streams[at].append(client).await {
            Ok(()) => refused_since = None,
            Err(refused) => {
                check_refusal(&refused);
                if refused_since.get_or_insert_with(Instant::now).elapsed() > FULL_AFTER {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        assert!(turn < 5_000, "the disk is never full");
    }
}

/// What needs no room for records is done.
async fn serves_the_rest(client: &Client, written: &Written) {
    let tail = client.check_tail(&written.address).await.expect("the tail").seq_num.get();
    assert_eq!(tail, written.acked.len() as u64);
    client.read(&written.address, ReadOptions::from(0).clamp()).await.expect("a page");
    client.fence(&written.address, &FencingToken::new("t").expect("a token")).await.expect("a fence");
    client.fence(&written.address, &FencingToken::new("").expect("a token")).await.expect("no fence");
}

async fn comes_back(client: &Client, written: &mut Written) {
    let began = Instant::now();
    loop {
        match written.append(client).await {
            Ok(()) => return,
            Err(refused) => check_refusal(&refused),
        }
        assert!(began.elapsed() < BACK_WITHIN, "there is no room after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn fills_and_trims(novad: &mut Novad, class: Class) {
    let client = novad.client_with_bucket().await;
    let mut streams = [Written::new(&client, "full", class).await];
    fill(&client, &mut streams).await;
    assert!(streams[0].bytes() > 200 * MIB, "{} bytes were acked", streams[0].bytes());
    serves_the_rest(&client, &streams[0]).await;
    streams[0].check(&client, 0).await;
    // A start there serves. It gives up segments that nothing was written to, which are filled as well.
    for _ in 0..2 {
        novad.kill9();
        novad.restart();
        let client = novad.client();
        serves_the_rest(&client, &streams[0]).await;
        fill(&client, &mut streams).await;
    }
    let [mut written] = streams;
    let client = novad.client();
    written.check(&client, 0).await;
    let half = written.acked.len() as u64 / 2;
    client.trim(&written.address, SeqNum::new(half)).await.expect("a trim");
    comes_back(&client, &mut written).await;
    written.check(&client, half).await;
    novad.kill9();
    novad.restart();
    written.check(&novad.client(), half).await;
}

#[test]
fn express_streams_fill_the_disk_and_a_trim_makes_room() {
    let Some((_disk, mut novad)) = start() else { return };
    within(ALL.as_secs(), fills_and_trims(&mut novad, Class::Express));
}

/// What Express streams take is settled in the store: it must not get into what is left free there.
#[test]
fn express_streams_fill_the_disk_of_a_store_elsewhere_and_a_trim_makes_room() {
    let Some((_data, store, mut novad)) = start_apart() else { return };
    within(ALL.as_secs(), fills_and_trims(&mut novad, Class::Express));
    assert!(free_bytes(&store) > 16 * MIB);
}

#[test]
fn standard_streams_fill_the_disk_and_a_trim_makes_room() {
    let Some((_disk, mut novad)) = start() else { return };
    within(ALL.as_secs(), fills_and_trims(&mut novad, Class::Standard));
}

/// The records of a stream that goes lie between those of one that stays: these are copied first, in what was kept back.
#[test]
fn a_delete_makes_room_among_records_that_stay() {
    let Some((_disk, mut novad)) = start() else { return };
    within(ALL.as_secs(), async {
        let client = novad.client_with_bucket().await;
        let (goes, stays) = (
            Written::new(&client, "goes", Class::Express).await,
            Written::new(&client, "stays", Class::Standard).await,
        );
        let mut streams = [goes, stays];
        fill(&client, &mut streams).await;
        let [goes, mut stays] = streams;
        client.delete_stream(&goes.address).await.expect("a delete");
        comes_back(&client, &mut stays).await;
        stays.check(&client, 0).await;
        novad.kill9();
        novad.restart();
        stays.check(&novad.client(), 0).await;
        let gone = novad.client().read(&goes.address, ReadOptions::from(0)).await.expect_err("it is deleted");
        assert_eq!(gone.reason(), Reason::NotFound);
    });
}

/// Files of others take all that is free: what was kept back is given up, and is there for a start, a trim and a delete.
#[test]
fn a_disk_that_others_fill_is_served_from_and_goes_on_once_they_go() {
    let Some((disk, mut novad)) = start() else { return };
    within(ALL.as_secs(), async {
        let client = novad.client_with_bucket().await;
        let mut written = Written::new(&client, "kept", Class::Express).await;
        let mut standard = Written::new(&client, "standard", Class::Standard).await;
        for _ in 0..20 {
            written.append(&client).await.expect("an ack");
            standard.append(&client).await.expect("an ack");
        }
        let ballast = disk.path().join("ballast");
        let file = File::create(&ballast).expect("a file");
        let bytes = free_bytes(&disk) - MIB;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).expect("room for it");
        let given_up = async || free_bytes(&disk) > 16 * MIB;
        eventually(Duration::from_secs(30), "what was kept back is given up", given_up).await;
        for written in [&mut written, &mut standard] {
            check_refusal(&written.append(&client).await.expect_err("the disk is full"));
        }
        serves_the_rest(&client, &written).await;
        client.trim(&written.address, SeqNum::new(10)).await.expect("a trim");
        novad.kill9();
        novad.restart();
        let client = novad.client();
        for (written, from) in [(&mut written, 10), (&mut standard, 0)] {
            // What was settled is freed by the start, and may be room enough.
            if let Err(refused) = written.append(&client).await {
                check_refusal(&refused);
            }
            written.check(&client, from).await;
        }
        fs::remove_file(&ballast).expect("it goes");
        for (written, from) in [(&mut written, 10), (&mut standard, 0)] {
            comes_back(&client, written).await;
            written.check(&client, from).await;
        }
    });
}
