//! Does a restart keep what was acked: clean, after a kill, with writes still under way, with other shards?

use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{Class, Client, FencingToken, OneShot, ProducerOptions, ReadOptions, Reason, SeqNum};
use futures_util::future::join_all;
use tests::history::{Acked, Tag, check_dense, read_all};
use tests::{LoopDisk, Novad, Scratch, Throttle, at, class, is_about, load_of, text, within};

/// How many streams there are; fewer where each append waits for a store on S3.
fn streams() -> u64 {
    load_of(40).max(12) as u64
}

fn token(stream: u64) -> FencingToken {
    FencingToken::new(&format!("token-{stream}")).expect("a token")
}

/// Each stream gets as many records as its number plus one, a trim in the middle, and every third a token.
async fn fill(client: &Client) {
    for stream in 0..streams() {
        let address = at(&format!("stream/{stream}"));
        for index in 0..=stream {
            client.append(&address, [Tag { writer: 1, index }.body(50)]).await.expect("an ack");
        }
        client.trim(&address, SeqNum::new(stream / 2)).await.expect("a trim");
        if stream % 3 == 0 {
            client.fence(&address, &token(stream)).await.expect("a fence");
        }
    }
}

async fn check_filled(client: &Client, more: u64) {
    for stream in 0..streams() {
        let address = at(&format!("stream/{stream}"));
        let info = client.get_stream(&address).await.expect("the stream");
        assert_eq!(info.tail.seq_num.get(), stream + 1 + more, "stream {stream}");
        assert_eq!(info.trim_point.get(), stream / 2);
        let records = read_all(client, &address).await;
        check_dense(&records);
        assert_eq!(records.len() as u64, stream + 1 + more - stream / 2);
        for record in records {
            assert_eq!(Tag::of(&record).index, record.seq_num.get());
        }
        let installed = client.fencing_token(&address).await.expect("the token");
        let expected = if stream % 3 == 0 { token(stream) } else { FencingToken::default() };
        assert_eq!(installed, expected);
        let with = OneShot { fencing_token: FencingToken::new("other").expect("a token"), ..OneShot::default() };
        let refused = client.append_with(&address, with, ["never"]).await.expect_err("another token");
        assert_eq!(refused.reason(), Reason::FencedOut);
    }
}

async fn append_to_all(client: &Client, before: u64) {
    let appends = (0..streams()).map(async |stream| {
        let address = at(&format!("stream/{stream}"));
        let index = stream + 1 + before;
        let ack = client.append_match(&address, SeqNum::new(index), [Tag { writer: 1, index }.body(50)]).await;
        assert_eq!(ack.expect("an ack").start.seq_num.get(), index);
    });
    join_all(appends).await;
}

#[test]
fn going_from_4_shards_to_2_and_back_keeps_every_record_fence_and_trim() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--shards", "4"]);
    within(90, async {
        let client = novad.client_with_bucket().await;
        fill(&client).await;
        let mut more = 0;
        for (shards, is_killed) in [("2", false), ("4", true), ("1", true), ("3", false), ("4", true)] {
            if is_killed {
                novad.kill9();
            } else {
                assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
            }
            novad.restart_with(&["--shards", shards]);
            check_filled(&client, more).await;
            append_to_all(&client, more).await;
            more += 1;
            check_filled(&client, more).await;
        }
        let keys = client.list_streams(&at("x").bucket, b"", 1_000).await.expect("a page").streams;
        assert_eq!(keys.len() as u64, streams(), "each stream is listed once");
    });
}

#[test]
fn a_clean_end_answers_what_is_in_flight_and_a_new_start_knows_it() {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &["--shards", "2"]);
    within(60, async {
        let client = novad.client_with_bucket().await;
        let producers = join_all((0..4_u32).map(async |writer| {
            client.open(&at(&format!("load-{writer}")), ProducerOptions::default()).await.expect("a session")
        }));
        let producers = producers.await;
        let (stop, _) = tokio::sync::broadcast::channel::<()>(1);
        let loads = producers.iter().zip(0..).map(|(producer, writer)| {
            let mut stopped = stop.subscribe();
            async move {
                let mut acked = Acked::default();
                for index in 0.. {
                    if stopped.try_recv().is_ok() {
                        return acked;
                    }
                    let ack = producer.append([Tag { writer, index }.body(500)]).await;
                    acked.add(index, ack.expect("a session comes back by itself").start.seq_num.get());
                }
                unreachable!("it is stopped in the end")
            }
        });
        let restarts = async {
            let mut novad = novad;
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(200)).await;
                novad = novad
                    .beside(|novad| {
                        assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
                        novad.restart();
                    })
                    .await;
            }
            stop.send(()).expect("the loads run");
            novad
        };
        let (acked, novad) = tokio::join!(join_all(loads), restarts);
        for (acked, writer) in acked.iter().zip(0..) {
            let records = read_all(&client, &at(&format!("load-{writer}"))).await;
            acked.check(writer, &records);
            assert_eq!(records.len(), acked.len(), "each once");
            assert!(!acked.is_empty(), "there was a load");
        }
        let log = novad.log();
        assert!(log.contains("drained"), "{log}");
    });
}

/// Large appends to many streams keep the disk busy with direct writes; the kill leaves them under way in the kernel,
/// and the next start follows at once. What is acked before the kill, and what is acked after the start, must be there
/// after the next. On a plain disk a write is over within a millisecond, so that few of them outlive their process; the
/// test with a slow disk below has many that do.
#[test]
fn a_start_right_after_a_kill_loses_nothing_to_writes_that_come_late() {
    let scratch = Scratch::new();
    hammer(&scratch.join("data"), None, 6);
}

/// The same on a disk that takes 4 MiB/s, by the throttle of a control group: several writes are always under way when
/// the process dies, and come to an end only after it. Without such a throttle it says so and shows nothing.
#[test]
fn a_start_over_slow_writes_waits_for_them_or_starts_elsewhere() {
    if !is_about(Class::Express) {
        return;
    }
    let disk = match LoopDisk::new(1_000) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("skipped: no disk of its own here: {why}"),
    };
    match disk.throttle(4 << 20) {
        Ok(slow) => hammer(&disk.path().join("data"), Some(slow), 4),
        Err(why) => eprintln!("skipped: no throttle here: {why}"),
    }
}

/// What was acked of one stream, and how many records were sent.
#[derive(Debug, Default)]
struct Load {
    acked: Acked,
    sent: u64,
    is_full: bool,
}

impl Load {
    async fn run(&mut self, client: &Client, writer: u32) {
        loop {
            let index = self.sent;
            self.sent += 1;
            let body = Tag { writer, index }.body(if index.is_multiple_of(2) { 60_000 } else { 3_000 });
            match client.append(&at(&format!("large-{writer}")), [body]).await {
                Ok(ack) => self.acked.add(index, ack.start.seq_num.get()),
                Err(error) => {
                    self.is_full = error.reason() == Reason::ResourceExhausted;
                    return;
                }
            }
        }
    }
}

/// Starts again at once; where writes of the process before are still under way, as soon as they are over.
fn restart_at_once(novad: &mut Novad) {
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while let Err(ended) = novad.try_restart() {
        assert!(ended.line.contains("in use"), "{}", ended.log);
        assert!(std::time::Instant::now() < until, "{}", ended.log);
    }
}

fn hammer(data: &Path, slow: Option<Throttle>, cycles: usize) {
    let mut novad = Novad::start(data, &["--shards", "2", "--log-bytes-max", "384MiB"]);
    within(120, async {
        novad.client_with_bucket().await;
        let mut loads: Vec<Load> = (0..8).map(|_| Load::default()).collect();
        let mut held = 0;
        for cycle in 0..5 * cycles {
            // With a slow disk on, until a write has come late.
            if cycle >= cycles && (held > 0 || slow.is_none()) {
                break;
            }
            if let Some(slow) = &slow {
                slow.hold(novad.pid());
            }
            let client = novad.client();
            let running = join_all(loads.iter_mut().zip(0..).map(|(load, writer)| load.run(&client, writer)));
            let kill = novad.beside(|novad| {
                std::thread::sleep(Duration::from_millis(250));
                novad.kill9();
            });
            let (_, killed) = tokio::join!(running, kill);
            novad = killed;
            held += held_segments(novad.data());
            restart_at_once(&mut novad);
            assert!(!loads.iter().any(|load| load.is_full), "the log is too small for this test");
        }
        eprintln!("{held} segments were still being written when their process was gone");
        assert!(held > 0 || slow.is_none(), "no write came late, so that nothing was tested");
        let client = novad.client();
        for (load, writer) in loads.iter().zip(0..) {
            let records = read_all(&client, &at(&format!("large-{writer}"))).await;
            load.acked.check(writer, &records);
        }
        assert!(loads.iter().map(|load| load.acked.len()).sum::<usize>() > cycles, "there was a load");
    });
}

/// How many segments a process that is gone still holds, by writes that are under way.
fn held_segments(data: &Path) -> usize {
    let files = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let segments = files(data.join("log")).flat_map(|log| files(log.path())).map(|file| file.path());
    let is_held = |path: &PathBuf| {
        let Ok(file) = std::fs::File::open(path) else { return false };
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
    };
    segments.filter(is_held).count()
}

#[test]
fn a_second_sigterm_is_fast_and_a_drain_refuses_nothing_that_was_acked() {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &["--drain-timeout-ms", "30s"]);
    within(60, async {
        let client = novad.client_with_bucket().await;
        client.append(&at("kept"), ["here"]).await.expect("an ack");
        let mut idle = client.subscribe(&at("kept"), client::SubscribeOptions::from(0)).await.expect("one");
        assert_eq!(text(&idle.next().await.expect("a page").expect("records").records[0]), "here");
        novad.signal(rustix::process::Signal::TERM);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let _novad = novad
            .beside(|novad| {
                if novad.is_alive() {
                    novad.signal(rustix::process::Signal::TERM);
                }
                let began = std::time::Instant::now();
                novad.wait();
                assert!(began.elapsed() < Duration::from_secs(20), "{}", novad.log());
                novad.restart();
            })
            .await;
        let page = client.read(&at("kept"), ReadOptions::from(0)).await.expect("a page");
        assert_eq!(text(&page.records[0]), "here");
    });
}

#[test]
fn a_star_that_is_paused_under_load_goes_on_where_it_was() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--shards", "2"]);
    within(60, async {
        let client = novad.client_with_bucket().await;
        let producer = client.open(&at("paused"), ProducerOptions::default()).await.expect("a session");
        let is_over = std::cell::Cell::new(false);
        let writes = async {
            let mut acked = Acked::default();
            let mut index = 0;
            while !is_over.get() {
                match producer.append([Tag { writer: 1, index }.body(100)]).await {
                    Ok(ack) => acked.add(index, ack.start.seq_num.get()),
                    // To a star that was asleep the store was silent for as long.
                    Err(error) => assert!(error.retryable() && class() == Class::Standard, "{error}"),
                }
                index += 1;
            }
            acked
        };
        let pauses = async {
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                novad.signal(rustix::process::Signal::STOP);
                tokio::time::sleep(Duration::from_millis(2_500)).await;
                novad.signal(rustix::process::Signal::CONT);
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            is_over.set(true);
        };
        let (acked, ()) = tokio::join!(writes, pauses);
        let records = read_all(&client, &at("paused")).await;
        acked.check(1, &records);
        if class() == Class::Express {
            assert_eq!(records.len(), acked.len());
        }
    });
    assert!(novad.is_alive());
}

/// What a bucket verb has answered is there after a kill that follows at once, and what it has deleted is not.
#[test]
fn buckets_and_streams_outlive_a_kill_right_after_their_answer() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &[]);
    within(60, async {
        for round in 0..5 {
            let name = client::BucketName::new(&format!("bucket-{round}")).expect("a name");
            let spec = client::BucketSpec { name: name.clone(), ..tests::bucket() };
            let made = novad.client().create_bucket(spec).await.expect("a bucket");
            let key = client::Key::new("stream").expect("a key");
            let address = client::Address { bucket: name.clone(), key };
            let stream = novad.client().create_stream(&address, client::ConfigPatch::default()).await.expect("one");
            novad.kill9();
            novad.restart();
            let client = novad.client();
            assert_eq!(client.get_bucket(&name).await.expect("it is there").id, made.id);
            assert_eq!(client.get_stream(&address).await.expect("it is there").stream_id, stream.stream_id);
            client.delete_stream(&address).await.expect("a delete");
            novad.kill9();
            novad.restart();
            let client = novad.client();
            let gone = client.get_stream(&address).await.expect_err("it is deleted");
            assert_eq!(gone.reason(), Reason::NotFound);
            client.delete_bucket(&name).await.expect("it is empty");
            novad.kill9();
            novad.restart();
            let gone = novad.client().get_bucket(&name).await.expect_err("it is deleted");
            assert_eq!(gone.reason(), Reason::NotFound);
        }
        let page = novad.client().list_buckets("", 0).await.expect("a page");
        assert!(page.buckets.is_empty(), "{page:?}");
    });
}

/// The same call with the same key gets its first answer, also from the star that comes after the one that stored it.
#[test]
fn a_one_shot_under_its_key_is_stored_once_over_a_restart() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &[]);
    within(60, async {
        novad.client_with_bucket().await;
        let with = |key| OneShot { idempotency_key: Some(key), ..OneShot::default() };
        let first = novad.client().append_with(&at("once"), with(7), ["a"]).await.expect("an ack");
        novad.client().append(&at("once"), ["between"]).await.expect("an ack");
        novad.kill9();
        novad.restart();
        let client = novad.client();
        let again = client.append_with(&at("once"), with(7), ["a"]).await.expect("its first answer");
        assert_eq!((again.start, again.end), (first.start, first.end));
        let other = client.append_with(&at("once"), with(7), ["b"]).await.expect_err("other bytes under the key");
        assert!(!other.retryable(), "{other}");
        client.append_with(&at("once"), with(8), ["c"]).await.expect("another key");
        let bodies: Vec<String> = read_all(&client, &at("once")).await.iter().map(text).collect();
        assert_eq!(bodies, ["a", "between", "c"]);
    });
}
