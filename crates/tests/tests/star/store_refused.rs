//! Does a star say in one sentence why it can't have this store, and harm neither the store nor its own data?

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::{Class, Client, ReadOptions, Reason};
use tests::history::{Tag, read_all};
use tests::{
    Ended, LoopDisk, Novad, Scratch, Store, at, class, eventually, is_about, is_on_a_directory, objects, text, within,
};

/// Sequence numbers that are given up, or a multiple of them, when the head log of a stream is lost.
const GAP: u64 = 1 << 32;

/// The refusal is one line that begins with the name of the program and holds all of this.
fn check(ended: &Ended, parts: &[&str]) {
    assert_eq!(ended.code, Some(4), "{}", ended.log);
    let line = &ended.line;
    assert!(line.starts_with("novad: "), "{}", ended.log);
    for part in parts {
        assert!(line.contains(part), "'{part}' is not told: {line}");
    }
}

async fn append(client: &Client, indices: std::ops::Range<u64>) {
    for index in indices {
        client.append(&at("kept"), [Tag { writer: 1, index }.body(100)]).await.expect("an ack");
    }
}

async fn settle(client: &Client) {
    let is_settled = async || {
        let info = client.get_stream(&at("kept")).await.expect("the stream");
        info.settled == info.tail.seq_num
    };
    eventually(Duration::from_secs(20), "all is settled", is_settled).await;
}

/// A star with ten settled records, killed.
fn with_ten(data: &Path, args: &[&str]) -> Novad {
    let mut novad = Novad::start(data, args);
    within(40, async {
        let client = novad.client_with_bucket().await;
        append(&client, 0..10).await;
        settle(&client).await;
    });
    novad.kill9();
    novad
}

fn has_ten(novad: &Novad) {
    within(20, async {
        let records = read_all(&novad.client(), &at("kept")).await;
        assert_eq!(records.iter().map(|record| Tag::of(record).index).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    });
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp runs");
    assert!(copied.success());
}

#[test]
fn a_store_directory_that_is_read_only_is_told() {
    if !is_on_a_directory() {
        return;
    }
    let disk = match LoopDisk::new(64) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("skipped: no disk of its own here: {why}"),
    };
    let scratch = Scratch::new();
    let store = disk.path().join("store").display().to_string();
    let mut novad = with_ten(&scratch.join("data"), &["--store", &store]);
    disk.set_read_only(true).expect("a disk that can't be written");
    check(&novad.try_restart().expect_err("it can't write"), &["store", &store, "can't be written", "read-write"]);
    disk.set_read_only(false).expect("a disk that can be written");
    novad.restart();
    has_ten(&novad);
}

#[test]
fn a_store_directory_that_is_a_file_or_something_elses_is_told() {
    if !is_on_a_directory() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.join("file");
    fs::write(&file, "dear").expect("a file");
    let name = file.display().to_string();
    check(&Novad::refused(&scratch.join("data"), &["--store", &name]), &[&name, "is not a directory"]);
    let home = scratch.join("home");
    fs::create_dir(&home).expect("a directory");
    fs::write(home.join("letter.txt"), "dear").expect("a file");
    let name = home.display().to_string();
    check(&Novad::refused(&scratch.join("data"), &["--store", &name]), &[&name, "letter.txt", "not a nova store"]);
    assert_eq!(fs::read_dir(&home).expect("a directory").count(), 1, "nothing was put there");
}

#[test]
fn a_store_directory_of_a_newer_layout_is_told_and_left_alone() {
    if !is_on_a_directory() {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.join("store");
    let mut novad = with_ten(&scratch.join("data"), &["--store", &store.display().to_string()]);
    let marker = store.join(".nova-store");
    let ours = fs::read_to_string(&marker).expect("the marker");
    fs::write(&marker, ours.replace('1', "9")).expect("it is changed");
    let before = objects(&store);
    check(&novad.try_restart().expect_err("a newer layout"), &[".nova-store", "layout 9", "layout 1"]);
    assert_eq!(objects(&store), before);
    fs::write(&marker, ours).expect("it is put back");
    novad.restart();
    has_ten(&novad);
}

/// The store has what the head log gave up: a new one in its place would serve without it.
#[test]
fn a_store_that_is_gone_is_never_replaced_by_a_new_one() {
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let mut novad = with_ten(&scratch.join("data"), &store.args(&[]));
    store.take_away();
    match novad.try_restart() {
        // It waits for one that does not answer.
        Ok(()) => within(20, async {
            let refused = novad.client().append(&at("kept"), ["too early"]).await.expect_err("there is no store");
            assert_eq!(refused.reason(), Reason::Unavailable, "{refused}");
            assert!(!is_on_a_directory(), "it serves without its store: {}", novad.log());
        }),
        Err(ended) => {
            assert!(ended.line.starts_with("novad: ") && ended.line.contains("store"), "{}", ended.line);
        }
    }
    // What was made in its place is nobody's.
    if scratch.join("store").exists() {
        fs::remove_dir_all(scratch.join("store")).expect("it is removed");
    }
    store.give_back();
    novad.restart();
    has_ten(&novad);
}

#[test]
fn another_stars_store_is_refused_while_that_lives_and_afterwards_too() {
    if !is_on_a_directory() {
        return;
    }
    let scratch = Scratch::new();
    let store = scratch.join("store").display().to_string();
    let mut first = with_ten(&scratch.join("first"), &["--store", &store]);
    first.restart();
    check(&Novad::refused(&scratch.join("second"), &["--store", &store]), &["in use by star", "alive", "stop it"]);
    has_ten(&first);
    within(20, async { append(&first.client(), 10..11).await });
    first.kill9();
    // It has records that nobody else has.
    let ended = Novad::refused(&scratch.join("second"), &["--store", &store]);
    check(&ended, &["head log", "is not here", "--accept-loss"]);
    first.restart();
    within(20, async {
        assert_eq!(read_all(&first.client(), &at("kept")).await.len(), 11);
    });
}

#[test]
fn a_store_of_another_cluster_is_refused() {
    if !is_on_a_directory() {
        return;
    }
    let scratch = Scratch::new();
    let (ours, theirs) = (scratch.join("ours").display().to_string(), scratch.join("theirs").display().to_string());
    let mut novad = with_ten(&scratch.join("data"), &["--store", &ours]);
    let mut other = with_ten(&scratch.join("other"), &["--store", &theirs]);
    other.restart();
    assert_eq!(other.sigterm(), Some(0), "{}", other.log());
    let before = objects(Path::new(&theirs));
    novad.take_args(&["--store", &theirs]);
    let ended = match novad.try_restart() {
        Ok(()) => panic!("it serves another cluster's store: {}", novad.log()),
        Err(ended) => ended,
    };
    check(&ended, &["belong to cluster", "is that of cluster"]);
    assert_eq!(objects(Path::new(&theirs)), before);
    novad.restart_with(&["--store", &ours]);
    has_ten(&novad);
    other.restart();
    has_ten(&other);
}

fn log_of(novad: &Novad) -> PathBuf {
    novad.data().join("log")
}

/// Readers come across the gap from either side, by every way of reading.
fn crosses_the_gap(novad: &Novad, kept: u64) {
    within(60, async {
        let client = novad.client();
        let ack = client.append(&at("kept"), ["after"]).await.expect("an ack");
        let after = ack.start.seq_num.get();
        // What Standard has acked was in the store.
        let is_lossy = class() == Class::Express;
        assert!(if is_lossy { after >= GAP } else { after == kept }, "{after}");
        let mut found = Vec::new();
        let mut options = ReadOptions::from(0);
        loop {
            let page = client.read(&at("kept"), options).await.expect("a page");
            found.extend(page.records.iter().map(|record| (record.seq_num.get(), text(record))));
            if page.end.get() > after {
                break;
            }
            assert!(page.end > page.start, "it goes on: {page:?}");
            options = ReadOptions::from(page.end.get());
        }
        let numbers: Vec<u64> = found.iter().map(|(seq_num, _)| *seq_num).collect();
        assert_eq!(numbers, (0..kept).chain([after]).collect::<Vec<u64>>());
        let last = client.read(&at("kept"), ReadOptions::last(1)).await.expect("a page");
        assert_eq!(last.records.last().map(text).as_deref(), Some("after"));
        if is_lossy {
            let inside = client.read(&at("kept"), ReadOptions::from(kept + 5)).await.expect("a page");
            assert!(inside.records.first().is_none_or(|record| record.seq_num.get() == after), "{inside:?}");
        }
        let mut subscription =
            client.subscribe(&at("kept"), client::SubscribeOptions::from(0)).await.expect("a subscription");
        let mut seen = Vec::new();
        while seen.last() != Some(&after) {
            let page = subscription.next().await.expect("more").expect("a page");
            seen.extend(page.records.iter().map(|record| record.seq_num.get()));
        }
        assert_eq!(seen, numbers);
    });
}

#[test]
fn a_head_log_that_is_lost_is_missed_and_a_loss_that_is_accepted_leaves_a_gap() {
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let mut novad = with_ten(&scratch.join("data"), &store.args(&[]));
    let log = log_of(&novad);
    fs::rename(&log, scratch.join("lost")).expect("the log is moved away");
    check(&novad.try_restart().expect_err("it is lost"), &["head log", "is not here", "--accept-loss"]);
    // It takes nothing but its return to go on.
    if log.exists() {
        fs::remove_dir_all(&log).expect("it holds nothing");
    }
    fs::rename(scratch.join("lost"), &log).expect("the log is moved back");
    novad.restart();
    has_ten(&novad);
    novad.kill9();
    fs::remove_dir_all(&log).expect("the log is removed");
    novad.restart_with(&store.args(&["--accept-loss"]));
    crosses_the_gap(&novad, 10);
    novad.kill9();
    // It is asked for once.
    novad.restart_with(&store.args(&[]));
    within(20, async {
        assert_eq!(novad.client().read(&at("kept"), ReadOptions::last(1)).await.expect("a page").records.len(), 1);
    });
}

/// What was acked between the copy and its return is gone from it, and some of that was nowhere else.
#[test]
fn an_old_copy_of_a_data_directory_is_found_out() {
    if !is_about(Class::Express) {
        return;
    }
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let mut novad = with_ten(&scratch.join("data"), &store.args(&[]));
    copy(novad.data(), &scratch.join("copy"));
    novad.restart();
    within(40, async {
        append(&novad.client(), 10..20).await;
        settle(&novad.client()).await;
    });
    novad.kill9();
    fs::rename(novad.data(), scratch.join("newest")).expect("it is moved away");
    copy(&scratch.join("copy"), novad.data());
    check(&novad.try_restart().expect_err("it is old"), &["head log", "is an old copy", "--accept-loss"]);
    fs::remove_dir_all(novad.data()).expect("the copy is removed");
    fs::rename(scratch.join("newest"), novad.data()).expect("it is moved back");
    novad.restart();
    within(20, async { assert_eq!(read_all(&novad.client(), &at("kept")).await.len(), 20) });
    novad.kill9();
    fs::remove_dir_all(novad.data()).expect("it is removed");
    fs::rename(scratch.join("copy"), novad.data()).expect("the copy takes its place");
    novad.restart_with(&store.args(&["--accept-loss"]));
    crosses_the_gap(&novad, 20);
}

/// A log under a number that no shard has is read all the same, and would be served.
#[test]
fn a_head_log_of_another_star_is_found_out_before_anything_is_served_from_it() {
    if !is_about(Class::Express) {
        return;
    }
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    let (ours, theirs) = (Store::new(&scratch), Store::new(&elsewhere));
    let mut novad = with_ten(&scratch.join("data"), &ours.args(&[]));
    let other = with_ten(&elsewhere.join("data"), &theirs.args(&[]));
    copy(&log_of(&other).join("0"), &log_of(&novad).join("7"));
    let ended = novad.try_restart().expect_err("it is another's");
    check(&ended, &["head log", "number 7", "belongs to another store", "at LSN", "--accept-loss"]);
    // Nothing but its going is asked for.
    fs::remove_dir_all(log_of(&novad).join("7")).expect("it is removed");
    novad.restart();
    has_ten(&novad);
    novad.kill9();
    copy(&log_of(&other).join("0"), &log_of(&novad).join("7"));
    novad.restart_with(&ours.args(&["--accept-loss"]));
    assert!(log_of(&novad).join("7.lost-0").is_dir(), "it is kept beside");
    assert!(novad.log().contains("a loss is accepted"), "{}", novad.log());
    // Nothing of this star was lost by it.
    has_ten(&novad);
    within(20, async { append(&novad.client(), 10..11).await });
}

/// An operator hears what an acceptance costs, and that there was nothing to accept.
#[test]
fn an_acceptance_tells_which_streams_it_concerns_and_that_there_was_none() {
    if !is_about(Class::Express) {
        return;
    }
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let mut novad = with_ten(&scratch.join("data"), &store.args(&[]));
    novad.restart_with(&store.args(&["--accept-loss"]));
    assert!(novad.log().contains("there is nothing to accept"), "{}", novad.log());
    has_ten(&novad);
    novad.kill9();
    let before = novad.log().len();
    fs::remove_dir_all(log_of(&novad)).expect("the log is removed");
    novad.restart_with(&store.args(&["--accept-loss"]));
    let log = novad.log().split_off(before);
    for part in ["a loss is accepted", "number 0", "kept", "from=10", "streams=1"] {
        assert!(log.contains(part), "'{part}' is not told: {log}");
    }
    assert!(!log.contains("LSN 0") && !log.contains("nothing to accept"), "{log}");
    within(20, async {
        let stream = novad.client().get_stream(&at("kept")).await.expect("the stream");
        let gap = stream.tail.seq_num.get() - 10;
        assert!(gap > 0 && gap.is_multiple_of(GAP), "{gap}");
        assert_eq!(stream.settled, stream.tail.seq_num, "what there is of it is in the store");
    });
    crosses_the_gap(&novad, 10);
}

/// The same without a start in between: the epochs are equal, and only how far it reaches gives it away.
#[test]
fn an_old_copy_that_was_made_while_the_star_ran_is_found_out() {
    if !is_about(Class::Express) {
        return;
    }
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let mut novad = Novad::start(&scratch.join("data"), &store.args(&[]));
    within(60, async {
        let client = novad.client_with_bucket().await;
        append(&client, 0..10).await;
        settle(&client).await;
        copy(novad.data(), &scratch.join("copy"));
        append(&client, 10..20).await;
        settle(&client).await;
    });
    novad.kill9();
    fs::remove_dir_all(novad.data()).expect("it is removed");
    fs::rename(scratch.join("copy"), novad.data()).expect("the copy takes its place");
    match novad.try_restart() {
        Ok(()) => panic!("it serves an old copy: {}", novad.log()),
        Err(ended) => check(&ended, &["head log", "older copy", "--accept-loss"]),
    }
}
