//! Does a star that `nova bench` started ever outlive it?

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use tests::{Nova, Novad, Running, Scratch};

/// A star starts, and ends with clients in the middle of their work, within this.
const WITHIN: Duration = Duration::from_secs(40);

/// A process as its `stat` has it: its name, its state, its parent. None when there is none.
fn stat(pid: u32) -> Option<(String, char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    Some((name.to_owned(), words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// The star that a bench has started, once it has.
fn star_of(bench: &Running) -> u32 {
    let until = Instant::now() + WITHIN;
    while Instant::now() < until {
        let all = fs::read_dir("/proc").expect("the processes").flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_star = |pid: &u32| stat(*pid).is_some_and(|(name, _, of)| of == bench.pid() && name == "novad");
        if let Some(pid) = pids.find(is_star) {
            return pid;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the bench starts no star");
}

/// Whether a process has ended; what nobody waits for is left as a zombie.
fn has_ended(pid: u32) -> bool {
    stat(pid).is_none_or(|(_, state, _)| state == 'Z')
}

/// Starts a bench with a star of its own in `scratch`.
fn start(scratch: &Scratch, args: &[&str]) -> Running {
    let (data, journal) = (scratch.join("data"), scratch.join("journal"));
    let mut command = Nova::of(SocketAddr::from(([127, 0, 0, 1], 1))).command(&["bench"]);
    Novad::settle(&mut command);
    command.args(args).arg("--start").arg("--data").arg(&data);
    if args[0] == "verify" {
        command.arg("--journal").arg(&journal);
    }
    // Its clients are there to the end, so that the star waits for them as long as it may.
    command.args(["--", "--drain-timeout-ms", "500ms"]);
    Running::of(command)
}

const SOAK: [&str; 9] = ["soak", "--duration", "1h", "--window", "1s", "--streams", "16", "--rate", "200"];
const VERIFY: [&str; 3] = ["verify", "--duration", "1h"];
const RECOVER: [&str; 3] = ["recover", "--duration", "1h"];

#[test]
fn a_bench_that_is_told_to_stop_ends_its_star_first() {
    let check = |args: &[&str], begins: fn(&mut Running)| {
        let scratch = Scratch::new();
        let mut bench = start(&scratch, args);
        begins(&mut bench);
        let star = star_of(&bench);
        assert_ne!(bench.stop(), Some(0), "{args:?}");
        assert!(has_ended(star), "{args:?} left its star behind");
    };
    // In the middle of its work, and while the star only starts.
    check(&SOAK, |bench| drop(bench.line()));
    check(&SOAK, |_| ());
    check(&VERIFY, |_| ());
    check(&RECOVER, |_| ());
}

#[test]
fn a_bench_that_is_killed_takes_its_star_along() {
    for args in [&SOAK[..], &VERIFY[..]] {
        let scratch = Scratch::new();
        let bench = start(&scratch, args);
        let star = star_of(&bench);
        bench.kill9();
        let until = Instant::now() + WITHIN;
        while !has_ended(star) {
            assert!(Instant::now() < until, "{args:?}: the star lives on");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_star_that_is_to_end_with_a_process_which_did_not_start_it_does_not_begin() {
    let scratch = Scratch::new();
    let ended = Novad::refused(&scratch.join("data"), &["--end-with", "1"]);
    assert_eq!(ended.code, Some(4), "{}", ended.log);
    assert!(ended.line.contains("--end-with 1"), "{}", ended.line);
}
