//! Does a file come out as it went in, whatever happens in between?

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use tests::{Novad, Outcome, Scratch, bucket, within};

/// JSON lines like a service writes them, the same at each run.
fn json_lines(bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 512);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut number = 0_u64;
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let width = usize::try_from(state % 300).expect("a width");
        writeln!(out, "{{\"id\":{number},\"user\":\"u{}\",\"note\":\"{:é<width$}\"}}", state % 9973, "ß")
            .expect("a line");
        number += 1;
    }
    out
}

/// Text of this system, with what it has of long lines, empty lines and a missing end.
fn system_text() -> Vec<u8> {
    let places = ["/var/log/dpkg.log", "/var/log/syslog", "/etc/services", "/usr/share/common-licenses/GPL-3"];
    let mut text: Vec<u8> = places.iter().filter_map(|place| std::fs::read(place).ok()).flatten().collect();
    text.extend_from_slice(b"\n\n  tabs\tand spaces \r\n\xff\xfe no text\nthe last line");
    text
}

fn star(scratch: &Scratch) -> Novad {
    let novad = Novad::start(&scratch.join("data"), &[]);
    within(20, async { novad.client().create_bucket(bucket()).await.expect("the bucket") });
    novad
}

fn append(novad: &Novad, address: &str, file: &[u8]) {
    let outcome = novad.nova().run_with(&["append", address], file);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.is_empty(), "only an answer in JSON goes to stdout");
}

fn read(novad: &Novad, args: &[&str]) -> Outcome {
    let outcome = novad.nova().run(&[&["read"], args].concat());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    outcome
}

/// The first byte at which two files differ, rather than both of them.
fn same(found: &[u8], expected: &[u8]) {
    let differ = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!((differ, found.len()), (None, expected.len()));
}

#[test]
fn a_large_file_comes_out_byte_for_byte_also_after_a_crash() {
    let scratch = Scratch::new();
    let mut novad = star(&scratch);
    let file = json_lines(50 << 20);
    append(&novad, "nova://demo/lines", &file);
    same(&read(&novad, &["nova://demo/lines"]).stdout, &file);
    novad.kill9();
    novad.restart();
    same(&read(&novad, &["nova://demo/lines"]).stdout, &file);
}

#[test]
fn system_text_comes_out_byte_for_byte_with_its_last_line_ended() {
    let scratch = Scratch::new();
    let novad = star(&scratch);
    let mut file = system_text();
    append(&novad, "nova://demo/text", &file);
    file.push(b'\n');
    same(&read(&novad, &["nova://demo/text"]).stdout, &file);
    let subscribed = novad.nova().run(&["subscribe", "nova://demo/text", "--limit", "3"]);
    assert_eq!(subscribed.code, Some(0), "{}", subscribed.stderr);
    let three: usize = file.split_inclusive(|byte| *byte == b'\n').take(3).map(<[u8]>::len).sum();
    same(&subscribed.stdout, &file[..three]);
}

/// Feeds a file, slowly enough to be cut off within.
fn start_append(novad: &Novad, address: &str, file: Vec<u8>) -> Child {
    let args = ["append", address, "--output", "json"];
    let mut child = novad.nova().command(&args).spawn().expect("nova starts");
    let mut input = child.stdin.take().expect("its input");
    std::thread::spawn(move || {
        for piece in file.chunks(256 << 10) {
            if input.write_all(piece).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    child
}

fn wait_until_tail_moves(novad: &Novad, address: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let tail = novad.nova().run(&["tail", address, "--output", "json"]);
        if tail.code == Some(0) && tail.rows()[0]["seq_num"].as_u64() > Some(2_000) {
            return;
        }
    }
    panic!("nothing is appended");
}

fn ended(mut child: Child) -> (Option<i32>, String) {
    let mut said = String::new();
    child.stderr.take().expect("what it says").read_to_string(&mut said).expect("text");
    (child.wait().expect("its end").code(), said)
}

/// `nova append` comes back by itself when the star does, so that the whole file is there once.
#[test]
fn a_file_that_is_appended_through_a_crash_is_there_once_and_in_order() {
    let scratch = Scratch::new();
    let mut novad = star(&scratch);
    let file = json_lines(12 << 20);
    let child = start_append(&novad, "nova://demo/lines", file.clone());
    wait_until_tail_moves(&novad, "nova://demo/lines");
    for _ in 0..2 {
        novad.kill9();
        novad.restart();
        std::thread::sleep(Duration::from_millis(60));
    }
    let (code, said) = ended(child);
    assert_eq!(code, Some(0), "{said}");
    same(&read(&novad, &["nova://demo/lines"]).stdout, &file);
}

/// With the star gone for good, an interrupted `nova append` tells how many records are durable: these are there, and
/// what else is there is what comes next in the file.
#[test]
fn what_an_append_says_is_durable_is_there_after_a_crash() {
    let scratch = Scratch::new();
    let mut novad = star(&scratch);
    let file = json_lines(12 << 20);
    let child = start_append(&novad, "nova://demo/lines", file.clone());
    wait_until_tail_moves(&novad, "nova://demo/lines");
    novad.kill9();
    std::thread::sleep(Duration::from_millis(300));
    let interrupt = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(interrupt, rustix::process::Signal::TERM).expect("a process that runs");
    let (code, said) = ended(child);
    assert_ne!(code, Some(0), "{said}");
    novad.restart();
    let found = read(&novad, &["nova://demo/lines"]).stdout;
    same(&found, &file[..found.len()]);
    assert!(found.ends_with(b"\n"));
    let told = said.lines().last().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    if let Some(durable) = told.and_then(|told| told["durable_records"].as_u64()) {
        let records = BufReader::new(&found[..]).lines().count() as u64;
        assert!(durable <= records, "{durable} records were told durable, {records} are there");
    }
}

#[test]
fn the_input_of_an_append_may_be_empty_or_one_line_without_an_end() {
    let scratch = Scratch::new();
    let novad = star(&scratch);
    let nova = novad.nova();
    assert!(nova.rows(&["append", "nova://demo/none"]).is_empty());
    let rows = nova.rows_with(&["append", "nova://demo/one"], b"x");
    assert_eq!((&rows[0]["start"]["seq_num"], &rows[0]["end"]["seq_num"]), (&0.into(), &1.into()));
    assert_eq!(read(&novad, &["nova://demo/one"]).stdout, b"x\n");
    assert!(Path::new(&scratch.join("data")).is_dir());
}
