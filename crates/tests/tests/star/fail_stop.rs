//! Does a star that can't go on end as a whole, say why, and come back with all that it acked?

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use client::{Class, ConfigPatch};
use rustix::process::Signal;
use tests::history::{Acked, Tag, read_all};
use tests::{Novad, Scratch, Script, at, eventually, within};

use crate::load::impatient;

/// A shard that turns no more is given up after half a minute.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
const RECORDS: u64 = 20;

/// What becomes of a star when `line` holds of its script: its last words have `said`, and nothing acked is lost.
fn ends_by(line: &str, said: &str) {
    let scratch = Scratch::new();
    let script = Script::new(&scratch);
    let mut novad = Novad::start_failing(&scratch.join("data"), &["--shards", "2"], &script);
    let (kept, mut acked) = (at("kept"), Acked::default());
    within(300, async {
        let client = novad.client_with_bucket().await;
        let config = ConfigPatch { class: Some(Class::Express), ..ConfigPatch::default() };
        client.create_stream(&kept, config).await.expect("a stream");
        for index in 0..RECORDS {
            let ack = client.append(&kept, [Tag { writer: 1, index }.body(100)]).await.expect("an ack");
            acked.add(index, ack.start.seq_num.get());
        }
        script.tell(&novad, &[line]);
        let (until, mut index) = (Instant::now() + ENDS_WITHIN, RECORDS);
        while novad.is_alive() {
            assert!(Instant::now() < until, "the process goes on: {}", novad.log());
            let told = impatient(&novad).append(&kept, [Tag { writer: 1, index }.body(100)]).await;
            told.expect_err("nobody can ack it");
            index += 1;
        }
        eventually(ENDS_WITHIN, "it says why", async || novad.log().contains(said)).await;
    });
    assert_eq!(novad.wait().signal(), Some(Signal::ABORT.as_raw()), "{}", novad.log());
    script.write(&[]);
    novad.restart();
    within(60, async {
        let client = novad.client();
        acked.check(1, &read_all(&client, &kept).await);
        client.append(&kept, ["after"]).await.expect("an ack");
    });
}

#[test]
fn a_panic_in_a_shard_ends_the_process_and_loses_nothing() {
    ends_by("head-write: panic", "fail point head-write");
}

#[test]
fn a_shard_that_turns_no_more_ends_the_process_and_loses_nothing() {
    ends_by("head-write: sleep 600000", "is stuck; the process ends");
}
