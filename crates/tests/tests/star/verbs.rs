//! Does every verb do what it says, asked from the command line, with its fields, its errors and its exit codes?

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tests::{Nova, Novad, Scratch, class_name, other_class_name};

struct Star {
    novad: Novad,
    nova: Nova,
    _scratch: Scratch,
}

impl Star {
    fn start() -> Self {
        let scratch = Scratch::new();
        let novad = Novad::start(&scratch.join("data"), &["--shards", "2"]);
        Self { nova: novad.nova(), novad, _scratch: scratch }
    }

    /// With a bucket of streams made on append.
    fn with_bucket() -> Self {
        let star = Self::start();
        star.bucket("demo --create-on-append");
        star
    }

    /// Makes a bucket of streams of the class under test.
    fn bucket(&self, words: &str) -> Value {
        self.row(&format!("bucket create {words} --default-class {}", class_name()))
    }

    fn row(&self, words: &str) -> Value {
        self.nova.row(&split(words))
    }

    fn rows(&self, words: &str) -> Vec<Value> {
        self.nova.rows(&split(words))
    }

    fn append(&self, words: &str, input: &str) -> Value {
        let rows = self.nova.rows_with(&split(&format!("append {words}")), input.as_bytes());
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0].clone()
    }

    /// It must be refused for this reason, with the exit code of the specification.
    fn refused(&self, reason: &str, words: &str) -> Value {
        self.refused_with(reason, words, "")
    }

    fn refused_with(&self, reason: &str, words: &str, input: &str) -> Value {
        let refusal = self.nova.refusal(exit_code(reason), &split(words), input.as_bytes());
        assert_eq!(refusal["reason"], reason, "{refusal}");
        let message = refusal["message"].as_str().expect("a sentence");
        assert!(message.len() > 10 && !message.contains('\n'), "{message}");
        assert!(refusal["retryable"].is_boolean() && refusal["no_side_effect"].is_boolean(), "{refusal}");
        refusal
    }

    fn bodies(&self, words: &str) -> Vec<String> {
        let rows = self.rows(&format!("read {words}"));
        rows.iter().map(|row| row["body"].as_str().expect("a body").to_owned()).collect()
    }
}

fn split(words: &str) -> Vec<&str> {
    words.split(' ').collect()
}

fn exit_code(reason: &str) -> i32 {
    match reason {
        "invalid" | "too_large" => 2,
        "not_found" => 3,
        "already_exists" | "bucket_not_empty" | "writer_held" | "superseded" | "failed_precondition" => 4,
        "sequence_mismatch" | "fenced_out" => 5,
        "trimmed" | "out_of_range" => 6,
        "unavailable" | "deadline_exceeded" | "resource_exhausted" | "not_owner" => 7,
        _ => 1,
    }
}

fn keys(row: &Value) -> Vec<&str> {
    row.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("a stamp")
}

/// A record of this stamp, as a line.
fn stamped(ms: i64) -> String {
    format!("{{\"body\":\"\",\"timestamp_ms\":{ms}}}\n")
}

#[test]
fn buckets_are_made_looked_at_changed_listed_and_deleted() {
    let star = Star::start();
    let made = star.bucket("demo --create-on-append --default-retention-max-bytes 5000 --location eu");
    assert_eq!((&made["name"], &made["location"]), (&json!("demo"), &json!("eu")));
    assert_eq!((&made["create_stream_on_append"], &made["create_stream_on_read"]), (&json!(true), &json!(false)));
    assert_eq!((&made["default_class"], &made["default_retention_max_bytes"]), (&json!(class_name()), &json!(5_000)));
    assert!((now_ms() - made["created_at"].as_i64().expect("a stamp")).abs() < 60_000);
    assert_eq!(star.row("bucket get demo"), made);
    star.refused("already_exists", "bucket create demo");
    assert_eq!(
        star.row(&format!("bucket ensure demo --default-class {}", other_class_name())),
        made,
        "ensure changes nothing that exists"
    );

    let changed = star.row("bucket update demo --create-on-append=false --default-retention-max-bytes 0");
    assert_eq!(
        (&changed["create_stream_on_append"], &changed["default_retention_max_bytes"]),
        (&json!(false), &json!(0))
    );
    assert_eq!(changed["default_class"], class_name(), "absent is untouched");
    assert_eq!(star.row("bucket get demo"), changed);
    star.refused("invalid", "bucket update demo");
    star.refused("not_found", "bucket update nowhere --create-on-append");
    star.refused("not_found", "bucket get nowhere");
    star.refused("not_found", "bucket delete nowhere");

    let token = star.row("bucket create again --creation-token mine");
    assert_eq!(star.row("bucket create again --creation-token mine"), token);
    star.refused("already_exists", "bucket create again --creation-token other");
    star.refused("already_exists", "bucket create again");

    for name in ["zoo", "abc", "abd"] {
        star.row(&format!("bucket create {name}"));
    }
    let names = |words: &str| -> Vec<String> {
        star.rows(words).iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names("bucket list"), ["abc", "abd", "again", "demo", "zoo"]);
    assert_eq!(names("bucket list --limit 2"), ["abc", "abd"]);
    assert_eq!(names("bucket list --after abd --limit 2"), ["again", "demo"]);

    star.row("stream create nova://demo/kept");
    let refusal = star.refused("bucket_not_empty", "bucket delete demo");
    assert!(refusal["message"].as_str().expect("a sentence").contains("demo"));
    star.row("stream delete nova://demo/kept");
    assert_eq!(star.row("bucket delete demo")["deleted"], true);
    star.refused("not_found", "bucket get demo");
    star.refused("not_found", "stream create nova://demo/kept");
    star.row("bucket create demo");
}

#[test]
fn uncapped_stamps_and_age_retention_exclude_each_other_wherever_they_meet() {
    let star = Star::with_bucket();
    star.refused("invalid", "bucket create both --default-timestamping-uncapped --default-retention-max-age-ms 5");
    star.bucket("aged --default-retention-max-age-ms 50000");
    star.refused("invalid", "bucket update aged --default-timestamping-uncapped");
    star.refused("invalid", "stream create nova://aged/x --timestamping-uncapped");
    star.row("stream create nova://aged/x");
    star.refused("invalid", "stream reconfigure nova://aged/x --timestamping-uncapped");
    star.row("stream reconfigure nova://aged/x --timestamping-uncapped --retention-max-age-ms 0");
    star.refused("invalid", "stream reconfigure nova://aged/x --retention-max-age-ms 9");
    star.row("stream reconfigure nova://aged/x --timestamping-uncapped=false --retention-max-age-ms 9");
    star.row("stream reconfigure nova://aged/x --timestamping-uncapped --retention-max-age-ms 0");
    star.append("nova://aged/x --format json", &stamped(now_ms() + 3_600_000));
    star.row("stream reconfigure nova://aged/x --timestamping-uncapped=false");
    star.row("stream reconfigure nova://aged/x --retention-by-arrival --retention-max-age-ms 90000");
    let refusal = star.refused("invalid", "stream reconfigure nova://aged/x --retention-by-arrival=false");
    assert!(refusal["message"].as_str().expect("a sentence").contains("retention_by_arrival"), "{refusal}");
}

#[test]
fn streams_are_made_looked_at_reconfigured_listed_and_deleted() {
    let star = Star::with_bucket();
    let made = star.row("stream create nova://demo/a/b --producer-policy fenced --retention-max-bytes 1000000");
    for field in ["stream_id", "class", "tail", "trim_point", "settled", "bytes"] {
        assert!(keys(&made).contains(&field), "{field}: {made}");
    }
    assert_eq!((&made["class"], &made["producer_policy"]), (&json!(class_name()), &json!("fenced")));
    assert_eq!(made["tail"], json!({"seq_num": 0, "timestamp_ms": 0}), "a virgin stream's tail");
    assert_eq!(star.row("stream get nova://demo/a/b"), made);
    star.refused("already_exists", "stream create nova://demo/a/b");
    star.refused("not_found", "stream get nova://demo/a");
    star.refused("not_found", "stream get nova://demo/a/b/");
    star.refused("not_found", "stream reconfigure nova://demo/none --class express");
    star.refused("invalid", "stream reconfigure nova://demo/a/b");

    let changed = star.row("stream reconfigure nova://demo/a/b --producer-policy any --retention-max-bytes 0");
    assert_eq!((&changed["producer_policy"], &changed["retention_max_bytes"]), (&json!("any"), &json!(0)));
    assert_eq!(changed["stream_id"], made["stream_id"]);

    let changed = star.row(&format!("stream reconfigure nova://demo/a/b --class {}", other_class_name()));
    assert_eq!((&changed["class"], &changed["stream_id"]), (&json!(other_class_name()), &made["stream_id"]));
    star.row(&format!("stream reconfigure nova://demo/a/b --class {}", class_name()));
    assert_eq!(star.row("stream get nova://demo/a/b")["class"], class_name());

    let other = star.row("stream create nova://demo/A");
    let keys: Vec<Value> = star.rows("stream list demo").iter().map(|row| row["key"].clone()).collect();
    assert_eq!(keys, ["A", "a/b"]);
    star.refused("not_found", "stream list nowhere");
    assert_eq!(star.row("stream delete nova://demo/A")["deleted"], true);
    assert_eq!(star.row("stream delete nova://demo/A")["deleted"], true, "deleting what is gone succeeds");
    assert_eq!(star.row("stream delete nova://demo/never")["deleted"], true);
    star.refused("not_found", "stream delete nova://nowhere/A");
    assert_ne!(star.row("stream create nova://demo/A")["stream_id"], other["stream_id"]);
}

#[test]
fn a_list_of_streams_goes_on_where_its_cursor_says() {
    let star = Star::with_bucket();
    for key in 0..25 {
        star.row(&format!("stream create nova://demo/k{key:02}"));
    }
    assert_eq!(star.rows("stream list demo").len(), 25);
    let (mut found, mut after) = (Vec::new(), String::new());
    for _ in 0..10 {
        let mut words = split("stream list demo --limit 7 --output json");
        if !after.is_empty() {
            words.extend(["--after", &after]);
        }
        let page = star.nova.run(&words);
        assert_eq!(page.code, Some(0), "{}", page.stderr);
        found.extend(page.rows().into_iter().map(|row| row["key"].as_str().expect("a key").to_owned()));
        let Some((_, cursor)) = page.stderr.trim().split_once("--after ") else { break };
        after = cursor.to_owned();
    }
    assert_eq!(found, (0..25).map(|key| format!("k{key:02}")).collect::<Vec<_>>());
    star.refused("invalid", "stream list demo --after !!");
}

#[test]
fn an_append_answers_where_its_records_are_and_read_gives_them_back() {
    let star = Star::with_bucket();
    let before = now_ms();
    let ack = star.append("nova://demo/events", "a\nb\nc\n");
    let seq_num = |field: &str| ack[field]["seq_num"].as_u64().expect("a number");
    assert_eq!((seq_num("start"), seq_num("end"), seq_num("tail")), (0, 3, 3));
    assert_eq!((&ack["class"], &ack["end"]), (&json!(class_name()), &ack["tail"]));
    let stamp = ack["end"]["timestamp_ms"].as_i64().expect("a stamp");
    assert!((before..before + 60_000).contains(&stamp), "{stamp}");
    assert_eq!(star.row("tail nova://demo/events"), ack["tail"]);

    let lines = "{\"body\":\"x\",\"headers\":[[\"kind\",\"order\"],[\"kind\",\"again\"]],\"timestamp_ms\":7}\n{\"body\":\"y\"}\n";
    star.append("nova://demo/full --format json", lines);
    let rows = star.rows("read nova://demo/full");
    assert_eq!(keys(&rows[0]), ["body", "headers", "seq_num", "timestamp_ms"]);
    assert_eq!(
        rows[0],
        json!({"seq_num": 0, "timestamp_ms": 7, "headers": [["kind", "order"], ["kind", "again"]], "body": "x"})
    );
    assert!(rows[1]["timestamp_ms"].as_i64() >= Some(before), "without a stamp it is the arrival: {}", rows[1]);

    star.append("nova://demo/bytes --format json --base64", "{\"body\":\"/w==\",\"headers\":[[\"AA==\",\"/w==\"]]}");
    star.refused("invalid", "read nova://demo/bytes");
    let rows = star.rows("read nova://demo/bytes --base64");
    assert_eq!((&rows[0]["body"], &rows[0]["headers"]), (&json!("/w=="), &json!([["AA==", "/w=="]])));

    let text = star.nova.run(&["read", "nova://demo/events"]);
    assert_eq!((text.stdout.as_slice(), text.stderr.as_str()), (b"a\nb\nc\n".as_slice(), ""));
    star.refused_with("not_found", "append nova://nowhere/x", "a\n");
    star.bucket("strict");
    star.refused_with("not_found", "append nova://strict/x", "a\n");
}

#[test]
fn a_read_starts_ends_and_clamps_as_it_is_told() {
    let star = Star::with_bucket();
    let lines: String = (0..10).map(|n| format!("{{\"body\":\"{n}\",\"timestamp_ms\":{}}}\n", 100 + n * 10)).collect();
    star.append("nova://demo/s --format json", &lines);
    let numbers = |range: std::ops::Range<u32>| range.map(|n| n.to_string()).collect::<Vec<_>>();
    for (words, expected) in [
        ("", numbers(0..10)),
        (" --from 4", numbers(4..10)),
        (" --from 4 --limit 3", numbers(4..7)),
        (" --from-ms 130", numbers(3..10)),
        (" --from-ms 131", numbers(4..10)),
        (" --from-ms -5", numbers(0..10)),
        (" --last 2", numbers(8..10)),
        (" --last 200", numbers(0..10)),
        (" --until-ms 120", numbers(0..2)),
        (" --from 3 --until-ms 121", vec![]),
        (" --from 10", vec![]),
        (" --from 11 --clamp", vec![]),
        (" --from-ms 9000", vec![]),
        (" --last 0", vec![]),
    ] {
        assert_eq!(star.bodies(&format!("nova://demo/s{words}")), expected, "{words}");
    }
    let refusal = star.refused("out_of_range", "read nova://demo/s --from 11");
    assert_eq!(refusal["tail"], json!({"seq_num": 10, "timestamp_ms": 190}));
    star.refused("not_found", "read nova://demo/none");
    star.refused("not_found", "read nova://nowhere/none");
    star.refused("not_found", "tail nova://demo/none");
    star.refused("invalid", "read nova://demo/s --from 1 --last 2");
}

#[test]
fn a_trim_moves_forward_only_and_what_is_below_is_told() {
    let star = Star::with_bucket();
    let lines: String = (0..10).map(|n| format!("{{\"body\":\"{n}\",\"timestamp_ms\":{}}}\n", 100 + n * 10)).collect();
    star.append("nova://demo/s --format json", &lines);
    let trim = |words: &str| star.row(&format!("trim nova://demo/s {words}"))["trim_point"].as_u64();
    assert_eq!(trim("3"), Some(3));
    assert_eq!(trim("1"), Some(3), "backwards is a no-op");
    assert_eq!(trim("--from-ms 145"), Some(5));
    assert_eq!(trim("--from-ms 0"), Some(5));
    let refusal = star.refused("trimmed", "read nova://demo/s --from 2");
    assert_eq!((&refusal["trim_point"], &refusal["tail"]["seq_num"]), (&json!(5), &json!(10)));
    star.refused("trimmed", "subscribe nova://demo/s --from 4 --limit 1");
    assert_eq!(star.bodies("nova://demo/s --from 2 --clamp --limit 1"), ["5"]);
    assert_eq!(star.bodies("nova://demo/s --limit 1"), ["5"], "without a start it is the first that is there");
    assert_eq!(star.bodies("nova://demo/s --last 100").len(), 5);
    assert_eq!(trim("99"), Some(10), "past the tail is the tail");
    assert!(star.bodies("nova://demo/s").is_empty());
    assert_eq!(star.row("tail nova://demo/s")["seq_num"], 10, "the tail stays");
    assert_eq!(star.append("nova://demo/s", "x")["start"]["seq_num"], 10);
    star.refused("not_found", "trim nova://demo/none 5");
    star.refused("invalid", "trim nova://demo/s");
    star.refused("invalid", "trim nova://demo/s 5 --from-ms 5");
}

#[test]
fn a_token_is_installed_shown_rotated_cleared_and_asked_for() {
    let star = Star::with_bucket();
    star.append("nova://demo/s", "a\nb\n");
    assert_eq!(star.row("token nova://demo/s"), json!({"fencing_token": ""}));
    assert_eq!(star.nova.run(&["token", "nova://demo/s"]).text(), "\n");
    let refusal = star.refused_with("fenced_out", "append nova://demo/s --fencing-token gen-1", "x");
    assert_eq!(refusal["fencing_token"], "", "presenting installs nothing");
    assert_eq!(star.row("fence nova://demo/s gen-1")["seq_num"], 2, "the boundary");
    assert_eq!(star.row("token nova://demo/s")["fencing_token"], "gen-1");
    star.append("nova://demo/s --fencing-token gen-1", "c");
    star.append("nova://demo/s", "an 'any' stream binds only those who present");
    assert_eq!(star.row("fence nova://demo/s gen-1")["seq_num"], 4, "an equal token is a no-op");
    star.row("fence nova://demo/s gen-2");
    let refusal = star.refused_with("fenced_out", "append nova://demo/s --fencing-token gen-1", "x");
    assert_eq!((&refusal["fencing_token"], &refusal["retryable"]), (&json!("gen-2"), &json!(false)));
    star.row("stream reconfigure nova://demo/s --producer-policy fenced");
    star.refused_with("fenced_out", "append nova://demo/s", "x");
    star.row("fence nova://demo/s");
    assert_eq!(star.row("token nova://demo/s")["fencing_token"], "");
    star.append("nova://demo/s", "cleared");
    star.refused("not_found", "fence nova://demo/none t");
    star.refused("not_found", "token nova://demo/none");
}

#[test]
fn a_match_chains_over_its_batches_or_changes_nothing() {
    let star = Star::with_bucket();
    let lines: String = (0..2_500).map(|n| format!("{n}\n")).collect();
    let ack = star.append("nova://demo/s --match-seq-num 0", &lines);
    assert_eq!((&ack["start"]["seq_num"], &ack["end"]["seq_num"]), (&json!(0), &json!(2_500)));
    let refusal = star.refused_with("sequence_mismatch", "append nova://demo/s --match-seq-num 7", "x");
    assert_eq!((&refusal["tail"]["seq_num"], &refusal["no_side_effect"]), (&json!(2_500), &json!(true)));
    assert_eq!(star.row("tail nova://demo/s")["seq_num"], 2_500);
    star.append("nova://demo/s --match-seq-num 2500", "x");
}

#[test]
fn stamps_are_taken_required_or_refused_as_the_stream_says_and_never_fall() {
    let star = Star::with_bucket();
    let stamps = |key: &str| -> Vec<i64> {
        let rows = star.rows(&format!("read nova://demo/{key}"));
        rows.iter().map(|row| row["timestamp_ms"].as_i64().expect("a stamp")).collect()
    };
    let ahead = now_ms() + 1_000_000;
    star.append("nova://demo/prefer --format json", &format!("{}{}{}", stamped(50), stamped(20), stamped(ahead)));
    let found = stamps("prefer");
    assert_eq!(&found[..2], [50, 50], "raised to the one before");
    assert!(found[2] < ahead && found[2] > now_ms() - 60_000, "capped at the arrival: {found:?}");

    star.row("stream create nova://demo/require --timestamping-mode client-require");
    star.refused_with("invalid", "append nova://demo/require", "no stamp");
    star.append("nova://demo/require --format json", &stamped(50));
    star.row("stream create nova://demo/arrival --timestamping-mode arrival");
    star.refused_with("invalid", "append nova://demo/arrival --format json", &stamped(50));
    star.append("nova://demo/arrival", "x");
    star.row("stream create nova://demo/uncapped --timestamping-uncapped");
    star.append("nova://demo/uncapped --format json", &format!("{}{}", stamped(ahead), stamped(5)));
    assert_eq!(stamps("uncapped"), [ahead, ahead]);
    assert_eq!((stamps("require").len(), stamps("arrival").len()), (1, 1), "what was refused left nothing");
}

#[test]
fn reads_make_streams_where_the_bucket_says_so_and_nothing_else_does() {
    let star = Star::start();
    star.bucket("demo --create-on-read");
    assert!(star.bodies("nova://demo/by-read").is_empty());
    assert_eq!(star.row("tail nova://demo/by-read")["seq_num"], 0);
    for words in [
        "tail nova://demo/x",
        "trim nova://demo/x 1",
        "fence nova://demo/x t",
        "token nova://demo/x",
        "stream get nova://demo/x",
    ] {
        star.refused("not_found", words);
    }
    star.refused_with("not_found", "append nova://demo/x", "a");
    assert_eq!(star.rows("stream list demo").len(), 1);
}

#[test]
fn throughput_slows_a_session_and_refuses_a_one_shot() {
    let star = Star::with_bucket();
    star.row("stream create nova://demo/slow --throughput-max-bytes-per-second 100000");
    // However many batches it takes, they are 300 kB with a burst of 100 kB at 100 kB/s: what follows waits for two seconds.
    let began = std::time::Instant::now();
    star.append("nova://demo/slow", &format!("{}\n", "x".repeat(50_000)).repeat(6));
    star.append("nova://demo/slow", "y");
    let waited = began.elapsed();
    assert!(waited > Duration::from_millis(1_500) && waited < Duration::from_secs(15), "{waited:?}");
    tests::within(20, async {
        let client = star.novad.client();
        let address = "nova://demo/slow".parse().expect("an address");
        client.append(&address, [vec![b'x'; 900_000]]).await.expect("into debt");
        let error = client.append(&address, ["x"]).await.expect_err("in debt for longer than a second");
        assert_eq!(error.reason(), client::Reason::ResourceExhausted);
        assert!(error.no_side_effect() && error.retryable());
    });
}

#[test]
fn a_subscription_prints_as_records_come_and_ends_at_its_limit_an_interrupt_or_a_closed_pipe() {
    let star = Star::with_bucket();
    star.append("nova://demo/live", "0\n1\n");
    let follow = |args: &[&str]| {
        let mut child = star.nova.command(args).spawn().expect("nova starts");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        (child, out.lines())
    };
    let (mut limited, mut out) = follow(&["subscribe", "nova://demo/live", "--limit", "3"]);
    assert_eq!(
        (out.next().expect("a line").expect("text"), out.next().expect("a line").expect("text")),
        ("0".into(), "1".into())
    );
    star.append("nova://demo/live", "2\n3\n");
    assert_eq!(out.next().expect("a line").expect("text"), "2");
    assert!(out.next().is_none());
    assert_eq!(limited.wait().expect("its end").code(), Some(0));

    let (mut interrupted, mut out) = follow(&["subscribe", "nova://demo/live", "--last", "1", "--output", "json"]);
    let row: Value = serde_json::from_str(&out.next().expect("a line").expect("text")).expect("JSON");
    assert_eq!((&row["seq_num"], &row["body"]), (&json!(3), &json!("3")));
    let pid = rustix::process::Pid::from_child(&interrupted);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a process that runs");
    assert_eq!(interrupted.wait().expect("its end").code(), Some(0));

    let (mut closed, out) = follow(&["subscribe", "nova://demo/live"]);
    drop(out);
    assert_eq!(closed.wait().expect("its end").code(), Some(0));
    let mut said = String::new();
    closed.stderr.take().expect("what it said").read_to_string(&mut said).expect("text");
    assert_eq!(said, "", "a closed pipe is how pipelines end");

    let mut ended =
        star.nova.command(&["subscribe", "nova://demo/live", "--output", "json"]).spawn().expect("nova starts");
    std::thread::sleep(Duration::from_millis(300));
    star.row("stream delete nova://demo/live");
    assert_eq!(ended.wait().expect("its end").code(), Some(3));
}

#[test]
fn a_bench_reports_its_rate_and_latencies_under_the_names_of_the_specification() {
    let star = Star::with_bucket();
    let report = star.row("bench append --duration 500ms --warm-up 100ms");
    assert!(report["acks_per_s"].as_f64() > Some(10.0), "{report}");
    assert!(report["bytes_per_s"].as_f64() > Some(1_000.0), "{report}");
    let latency = &report["latency_us"];
    for pair in ["p50", "p90", "p99", "max"].windows(2) {
        let (low, high) = (latency[pair[0]].as_f64(), latency[pair[1]].as_f64());
        assert!(low > Some(0.0) && low <= high, "{pair:?}: {report}");
    }
    assert!(keys(latency).contains(&"p99_9"), "null where there are too few to tell: {report}");
}

/// Two generators that begin together, and their reports; again and later when they were not ready in time.
fn begun_together(star: &Star, reports: &[PathBuf; 2]) {
    for ahead_s in [3, 10, 30] {
        let at = SystemTime::now() + Duration::from_secs(ahead_s);
        let at = at.duration_since(UNIX_EPOCH).expect("after 1970").as_secs().to_string();
        let begin = |report: &PathBuf| {
            let report = report.to_str().expect("a path");
            let key_prefix = report.rsplit('/').next().expect("a name");
            let load =
                ["bench", "append", "--rate", "200", "--duration", "1s", "--warm-up", "100ms", "--start-at", &at];
            let own = ["--key-prefix", key_prefix, "--json", report];
            star.nova.command(&[&load[..], &own[..]].concat()).stdout(Stdio::null()).spawn().expect("nova starts")
        };
        let both = reports.each_ref().map(begin);
        let ended = both.map(|mut child| child.wait().expect("its end").code());
        if ended == [Some(0); 2] {
            return;
        }
        assert!(ended.iter().all(|code| matches!(code, Some(0 | 2 | 4))), "{ended:?}");
    }
    panic!("no two generators were ready within 30 s");
}

#[test]
fn generators_that_begin_together_make_one_report() {
    let star = Star::with_bucket();
    let scratch = Scratch::new();
    let reports = ["one.json", "two.json"].map(|name| scratch.join(name));
    begun_together(&star, &reports);
    let page = scratch.join("all.html");
    let paths = reports.each_ref().map(|path| path.to_str().expect("a path"));
    let merge = format!("bench merge {} {} --html {}", paths[0], paths[1], page.display());
    let merged = star.row(&merge);
    let of = |path: &PathBuf| -> Value {
        serde_json::from_str(&std::fs::read_to_string(path).expect("a report")).expect("JSON")
    };
    let [one, two] = reports.each_ref().map(of);
    let number = |of: &Value, name: &str| of[name].as_f64().expect("a number");
    assert_eq!(number(&merged, "acks"), number(&one, "acks") + number(&two, "acks"));
    assert_eq!(merged["latency_us"]["samples"], 400, "every append of both, due within the second: {merged}");
    assert_eq!(merged["generators"].as_array().map(Vec::len), Some(2));
    assert!(std::fs::read_to_string(page).expect("a page").contains("two.json"));
    let refused = star.nova.refusal(2, &["bench", "merge", paths[0], paths[0]], b"");
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("given once")), "{refused}");
    let past = star.nova.refusal(2, &["bench", "append", "--start-at", "1000000000.5"], b"");
    assert!(past["message"].as_str().is_some_and(|text| text.contains("2001-09-09T01:46:40.500Z was ")), "{past}");
    let soon = star.nova.run(&["bench", "append", "--start-at", "soon"]);
    assert!(soon.code == Some(2) && soon.one_line().contains("2026-12-01T10:00:00Z"), "{soon:?}");
}

#[test]
fn without_a_star_a_command_says_so_and_ends_with_7() {
    let nova = Nova::of(([127, 0, 0, 1], 19_999).into());
    let refusal = nova.refusal(7, &["tail", "nova://demo/x"], b"");
    assert_eq!((&refusal["reason"], &refusal["retryable"]), (&json!("unavailable"), &json!(true)));
    assert!(refusal["message"].as_str().expect("a sentence").contains("127.0.0.1:19999"));
}
