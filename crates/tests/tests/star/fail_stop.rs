//! Does a star that can't go on end as a whole, say why, and come back with all that it acked?

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use client::{Class, ConfigPatch};
use rustix::process::Signal;
use tests::history::{Acked, Tag, read_all};
use tests::{Http, Novad, Scratch, Script, at, eventually, within};

use crate::load::impatient;

/// A shard that waits without an end is given up after half a minute.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
/// One that panics or loops is given up within seconds of its time on a CPU, which it may have to share with other tests.
const ENDS_AT_ONCE: Duration = Duration::from_secs(20);
const RECORDS: u64 = 20;

/// What a star is brought to at its next write, and what it says then.
struct End {
    line: &'static str,
    said: &'static str,
    within: Duration,
    /// It is long enough in coming for somebody to look whether the star is ready.
    is_seen: bool,
}

/// What becomes of a star: its last words have said why, and nothing acked is lost.
fn ends_by(end: &End) {
    let scratch = Scratch::new();
    let script = Script::new(&scratch);
    let args = ["--shards", "2", "--http", "127.0.0.1:0"];
    let mut novad = Novad::start_failing(&scratch.join("data"), &args, &script);
    let (kept, mut acked) = (at("kept"), Acked::default());
    within(300, async {
        let client = novad.client_with_bucket().await;
        let config = ConfigPatch { class: Some(Class::Express), ..ConfigPatch::default() };
        client.create_stream(&kept, config).await.expect("a stream");
        for index in 0..RECORDS {
            let ack = client.append(&kept, [Tag { writer: 1, index }.body(100)]).await.expect("an ack");
            acked.add(index, ack.start.seq_num.get());
        }
        script.tell(&novad, &[end.line]);
        let began = Instant::now();
        let asker = impatient(&novad);
        let ask = async {
            let told = asker.append(&kept, [Tag { writer: 1, index: RECORDS }.body(100)]).await;
            told.expect_err("nobody can ack it");
        };
        let look = async {
            let http = Http::of(novad.http());
            // While the process is there, one look comes before its end.
            if end.is_seen {
                eventually(ENDS_WITHIN, "the star is not ready", async || http.get("/readyz").status == 503).await;
                assert!(novad.is_alive(), "it was not ready before it ended");
            }
            while novad.is_alive() {
                assert!(began.elapsed() < end.within, "the process goes on: {}", novad.log());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            eprintln!("{}: {} ms", end.line, began.elapsed().as_millis());
        };
        tokio::join!(ask, look);
        eventually(ENDS_WITHIN, "it says why", async || novad.log().contains(end.said)).await;
    });
    assert_eq!(novad.wait().signal(), Some(Signal::ABORT.as_raw()), "{}", novad.log());
    script.write(&[]);
    novad.restart();
    within(60, async {
        let client = novad.client();
        acked.check(1, &read_all(&client, &kept).await);
        client.append(&kept, ["after"]).await.expect("an ack");
    });
    eprintln!("check 18: 1 ends by {}", end.line);
}

#[test]
fn a_panic_in_a_shard_ends_the_process_at_once_and_loses_nothing() {
    let line = "head-write: panic";
    ends_by(&End { line, said: "fail point head-write", within: ENDS_AT_ONCE, is_seen: false });
}

#[test]
fn a_shard_that_loops_ends_the_process_within_seconds_and_loses_nothing() {
    let line = "head-write: spin";
    ends_by(&End { line, said: "on one turn", within: ENDS_AT_ONCE, is_seen: false });
}

#[test]
fn a_shard_that_waits_without_an_end_is_not_ready_ends_the_process_and_loses_nothing() {
    let line = "head-write: sleep 600000";
    ends_by(&End { line, said: "is stuck; the process ends", within: ENDS_WITHIN, is_seen: true });
}
