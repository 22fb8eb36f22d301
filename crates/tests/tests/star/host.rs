//! Does `novad` say in one sentence why it can't start here, with the value and the remedy, and harm nothing?

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use client::{Class, ReadOptions, Reason};
use tests::{Ended, LoopDisk, Novad, Scratch, Store, at, eventually, is_about, text, within};

/// The refusal is one line that begins with the name of the program and holds all of this.
fn check(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.log);
    let complaints = ended.log.lines().filter(|line| line.starts_with("novad: ")).count();
    assert_eq!(complaints, 1, "{}", ended.log);
    let line = &ended.line;
    assert!(line.starts_with("novad: "), "{}", ended.log);
    for part in parts {
        assert!(line.contains(part), "'{part}' is not told: {line}");
    }
}

/// A directory that holds one record, and the star that wrote it, stopped.
fn with_one_record(data: &Path) -> Novad {
    let mut novad = Novad::start(data, &[]);
    within(20, async {
        let client = novad.client_with_bucket().await;
        client.append(&at("kept"), ["here"]).await.expect("an ack");
    });
    assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
    novad
}

fn is_kept(novad: &Novad) {
    within(20, async {
        let page = novad.client().read(&at("kept"), ReadOptions::from(0)).await.expect("a page");
        assert_eq!(text(&page.records[0]), "here");
    });
}

/// A start by another program that changes what the process may, then becomes `novad`.
fn through(program: &str, args: &[&str], data: &Path) -> Ended {
    let novad = Novad::command(data);
    let mut command = Command::new(program);
    Novad::settle(&mut command);
    command.args(args).arg(novad.get_program()).args(novad.get_args()).args(["--listen", "127.0.0.1:0"]);
    Novad::unstarted(data, &[]).launch_as(&mut command).expect_err("it must not serve")
}

fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

#[test]
fn a_second_star_on_a_directory_is_refused_and_the_first_goes_on() {
    let scratch = Scratch::new();
    let mut novad = with_one_record(&scratch.join("data"));
    novad.restart();
    let ended = Novad::refused(&scratch.join("data"), &[]);
    check(&ended, 4, &["in use by another novad", &format!("process {}", novad.pid()), "--data"]);
    is_kept(&novad);
    // By another way to the same place.
    std::os::unix::fs::symlink(scratch.join("data"), scratch.join("link")).expect("a link");
    check(&Novad::refused(&scratch.join("link"), &[]), 4, &["in use by another novad"]);
    is_kept(&novad);
}

#[test]
fn a_port_in_use_is_told_also_when_another_star_has_it() {
    let scratch = Scratch::new();
    let mut first = with_one_record(&scratch.join("data"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("its address").to_string();
    let mut command = Novad::command(&scratch.join("data"));
    command.args(["--listen", &addr]);
    let ended = Novad::unstarted(&scratch.join("data"), &[]).launch_as(&mut command).expect_err("a port in use");
    check(&ended, 4, &[&addr, "--listen"]);
    first.restart();
    let mut command = Novad::command(&scratch.join("other"));
    command.args(["--listen", &first.addr().to_string()]);
    let ended = Novad::unstarted(&scratch.join("other"), &[]).launch_as(&mut command).expect_err("a port in use");
    check(&ended, 4, &[&first.addr().to_string(), "--listen"]);
    is_kept(&first);
}

#[test]
fn a_directory_in_memory_is_refused() {
    let Some(memory) = ["/dev/shm", "/run"].into_iter().find(|place| is_tmpfs(place)) else {
        return eprintln!("skipped: no tmpfs that can be written");
    };
    let data = Path::new(memory).join(format!("nova-test-{}", std::process::id()));
    let ended = Novad::refused(&data, &[]);
    let left = fs::read_dir(&data).map(Iterator::count).unwrap_or(0);
    // It may have been made, but nothing was put there.
    let _gone = fs::remove_dir_all(&data);
    check(&ended, 4, &["tmpfs", "--data", &data.display().to_string()]);
    assert_eq!(left, 0);
}

fn is_tmpfs(place: &str) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(place) && line.split(' ').nth(2) == Some("tmpfs"))
}

#[test]
fn a_directory_of_another_version_or_of_something_else_is_refused_untouched() {
    let scratch = Scratch::new();
    let mut novad = with_one_record(&scratch.join("data"));
    let marker = scratch.join("data").join("FORMAT");
    let ours = fs::read_to_string(&marker).expect("the format");
    let other = ours.replace('2', "7");
    fs::write(&marker, &other).expect("it is changed");
    check(&novad.try_restart().expect_err("another version"), 4, &["format 7", "format 2", "novad that wrote it"]);
    fs::write(&marker, "garbage\u{0}").expect("it is changed");
    check(&novad.try_restart().expect_err("no version"), 4, &["FORMAT", "--data"]);
    fs::write(&marker, &ours).expect("it is put back");
    novad.restart();
    is_kept(&novad);

    let home = scratch.join("home");
    fs::create_dir(&home).expect("a directory");
    fs::write(home.join("letter.txt"), "dear").expect("a file");
    check(&Novad::refused(&home, &[]), 4, &["letter.txt", "not a nova data directory", "--data"]);
    check(&Novad::refused(&home.join("letter.txt"), &[]), 4, &["letter.txt", "is not a directory"]);
    assert_eq!(fs::read_dir(&home).expect("a directory").count(), 1, "nothing was put there");
}

#[test]
fn a_read_only_or_full_disk_is_told_and_what_was_there_is_kept() {
    let disk = match LoopDisk::new(160) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("skipped: no disk of its own here: {why}"),
    };
    let data = disk.path().join("data");
    let mut novad = with_one_record(&data);
    disk.set_read_only(true).expect("a disk that can't be written");
    check(&novad.try_restart().expect_err("it can't write"), 4, &["can't be written", "Read-only", "--data"]);
    check(&Novad::refused(&disk.path().join("new"), &[]), 4, &["can't be made"]);
    disk.set_read_only(false).expect("a disk that can be written");

    let ballast = disk.path().join("ballast");
    let written = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", "count=100000", &format!("of={}", ballast.display())])
        .stderr(Stdio::null())
        .status();
    assert!(!written.expect("dd runs").success(), "the disk is full");
    check(&Novad::refused(&disk.path().join("new"), &[]), 7, &["free some room"]);
    match novad.try_restart() {
        // What is there can be read, and what can't be written is refused.
        Ok(()) => {
            is_kept(&novad);
            novad.kill9();
        }
        Err(ended) => check(&ended, 7, &["free some room"]),
    }
    fs::remove_file(&ballast).expect("room is made");
    novad.restart();
    is_kept(&novad);
}

/// While it serves, too: with the store away appends are refused once the disk of the log is full, reads go on, and all
/// that was acked is there after the next start. With the store back there is room again.
#[test]
fn a_log_that_is_full_refuses_appends_and_serves_everything_else() {
    if !is_about(Class::Express) {
        return;
    }
    let scratch = Scratch::new();
    let store = Store::new(&scratch);
    let args = store.args(&["--log-bytes-max", "32MiB"]);
    let mut novad = Novad::start(&scratch.join("data"), &args);
    let acked = within(60, async {
        let client = novad.client_with_bucket().await;
        store.take_away();
        let mut acked = 0;
        let refused = loop {
            match client.append(&at("big"), [vec![b'x'; 900_000]]).await {
                Ok(_) => acked += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.reason(), Reason::ResourceExhausted, "{refused}");
        assert!(refused.retryable() && refused.no_side_effect() && refused.retry_after().is_some());
        assert!(acked > 10, "{acked}");
        let tail = client.check_tail(&at("big")).await.expect("the tail").seq_num.get();
        assert_eq!(tail, acked);
        client.read(&at("big"), ReadOptions::from(0)).await.expect("a page");
        // What makes room must not want for it.
        client.trim(&at("big"), client::SeqNum::new(acked / 2)).await.expect("a trim");
        client.fence(&at("big"), &client::FencingToken::new("t").expect("a token")).await.expect("a fence");
        let shot = novad.nova().refusal(7, &["append", "nova://demo/big"], &vec![b'y'; 900_000]);
        assert_eq!(shot["reason"], "resource_exhausted");
        acked
    });
    novad.kill9();
    store.give_back();
    novad.restart();
    within(60, async {
        let client = novad.client();
        let info = client.get_stream(&at("big")).await.expect("the stream");
        assert_eq!((info.tail.seq_num.get(), info.trim_point.get()), (acked, acked / 2));
        let has_room = async || client.append(&at("big"), [vec![b'z'; 900_000]]).await.is_ok();
        eventually(Duration::from_secs(30), "there is room once it is settled", has_room).await;
        client.delete_stream(&at("big")).await.expect("a delete");
    });
}

#[test]
fn limits_of_the_process_that_are_too_small_are_told() {
    if !is_there("prlimit") {
        return;
    }
    let scratch = Scratch::new();
    let data = scratch.join("data");
    let ended = through("prlimit", &["--memlock=65536:65536", "--"], &data);
    check(&ended, 4, &["64KiB", "RLIMIT_MEMLOCK", "ulimit -l 512"]);
    let ended = through("prlimit", &["--nofile=400:400", "--"], &data);
    check(&ended, 4, &["400 files", "RLIMIT_NOFILE", "ulimit -n", "connections_max"]);
    assert!(!data.exists(), "nothing was made");
    // A soft limit is raised without a word.
    let mut command = Command::new("prlimit");
    let novad = Novad::command(&data);
    Novad::settle(&mut command);
    command.args(["--nofile=200:20000", "--"]).arg(novad.get_program()).args(novad.get_args());
    command.args(["--listen", "127.0.0.1:0", "--connections-max", "64"]);
    Novad::unstarted(&data, &[]).launch_as(&mut command).unwrap_or_else(|ended| panic!("{}", ended.log));
}

/// `strace` stands in for a container whose filter forbids the system call.
#[test]
fn a_host_without_io_uring_is_told() {
    if !is_there("strace") {
        return;
    }
    let scratch = Scratch::new();
    for error in ["EPERM", "ENOSYS"] {
        let inject = format!("inject=io_uring_setup:error={error}");
        let args = ["-f", "-qq", "-o", "/dev/null", "-e", "trace=io_uring_setup", "-e", &inject];
        let ended = through("strace", &args, &scratch.join("data"));
        check(&ended, 4, &["io_uring can't be used", "seccomp"]);
    }
}

#[test]
fn settings_that_can_not_be_are_refused_by_name_value_and_remedy() {
    let scratch = Scratch::new();
    let data = scratch.join("data");
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--shard", "1"], &["--shard", "--shards"]),
        (&["--shards", "65"], &["65", "shards", "64"]),
        (&["--shards", "two"], &["two", "shards", "whole number"]),
        (&["--log-segment-bytes", "1MiB"], &["1MiB", "8MiB", "1GiB"]),
        (&["--log-sync", "never"], &["never", "dsync", "fdatasync"]),
        (&["--listen", "localhost"], &["localhost", "listen"]),
        (&["--listen", "0.0.0.0:0"], &["0.0.0.0:0", "--insecure"]),
        (&["--config", "/nowhere/nova.toml"], &["/nowhere/nova.toml"]),
        (&["positional"], &["positional"]),
    ];
    for (args, parts) in cases {
        let mut command = Novad::command(&data);
        if !args.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(args);
        let ended = Novad::unstarted(&data, &[]).launch_as(&mut command).expect_err("it must not serve");
        check(&ended, 2, parts);
    }
    for (name, value, parts) in
        [("NOVA_SHARD", "1", ["NOVA_SHARD", "NOVA_SHARDS"]), ("NOVA_SHARDS", "x", ["NOVA_SHARDS", "x"])]
    {
        let mut command = Novad::command(&data);
        command.env(name, value);
        let ended = Novad::unstarted(&data, &[]).launch_as(&mut command).expect_err("it must not serve");
        check(&ended, 2, &parts);
    }
    let file = scratch.join("nova.toml");
    for (line, parts) in [
        ("shard = 1", ["shard", "shards"]),
        ("[log]\nsegment_bytes = 5", ["segment_bytes", "8MiB"]),
        ("=", ["nova.toml", "line 1"]),
    ] {
        fs::write(&file, line).expect("a file");
        let ended = Novad::refused(&data, &["--config", file.to_str().expect("a path")]);
        check(&ended, 2, &parts);
    }
    assert!(!data.exists(), "nothing was made");
}

#[test]
fn a_store_on_s3_without_credentials_is_told() {
    let scratch = Scratch::new();
    let mut command = Novad::command(&scratch.join("data"));
    // Nothing of this host may lend the store credentials.
    command.env("AWS_EC2_METADATA_DISABLED", "true").env("HOME", scratch.path());
    for name in ["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONFIG_FILE"] {
        command.env_remove(name);
    }
    command.args(["--listen", "127.0.0.1:0", "--store", "s3://bucket/prefix"]);
    let ended = Novad::unstarted(&scratch.join("data"), &[]).launch_as(&mut command).expect_err("it must not serve");
    check(&ended, 4, &["s3://bucket/prefix", "credentials"]);
}
