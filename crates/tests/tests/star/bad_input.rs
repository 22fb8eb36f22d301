//! What does the command line answer to input that breaks a bound, and does the star go on as before?

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;
use tests::{Novad, Outcome, Scratch, class_name};

struct Star {
    novad: Novad,
    _scratch: Scratch,
}

impl Star {
    fn start() -> Self {
        let scratch = Scratch::new();
        let novad = Novad::start(&scratch.join("data"), &[]);
        novad.nova().row(&["bucket", "create", "demo", "--default-class", class_name(), "--create-on-append"]);
        let star = Self { novad, _scratch: scratch };
        star.append(b"kept\n", &[]);
        star
    }

    fn append(&self, input: &[u8], more: &[&str]) -> Outcome {
        let args = [&["append", "nova://demo/kept", "--output", "json"], more].concat();
        self.novad.nova().run_with(&args, input)
    }

    /// Refused with exit code 2, in one line that tells all of this; nothing was appended.
    fn refuses<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8], parts: &[&str]) {
        let outcome = self.novad.nova().run_with(args, input);
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        assert!(outcome.stdout.is_empty());
        let line = outcome.one_line();
        assert!(line.starts_with("nova: "), "{line}");
        for part in parts {
            assert!(line.contains(part), "'{part}' is not told: {line}");
        }
        assert!(line.len() < 1_000, "too long to read: {line}");
    }

    fn refuses_record(&self, reason: &str, input: &[u8], format: &[&str], parts: &[&str]) {
        let outcome = self.append(input, format);
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        let refusal: Value = serde_json::from_str(outcome.one_line()).expect("JSON");
        assert_eq!(
            (refusal["reason"].as_str(), refusal["durable_records"].as_u64()),
            (Some(reason), Some(0)),
            "{refusal}"
        );
        let message = refusal["message"].as_str().expect("a sentence");
        for part in parts {
            assert!(message.contains(part), "'{part}' is not told: {message}");
        }
    }

    /// What was there is there, nothing came to it, and more may.
    fn goes_on(mut self) {
        let read = self.novad.nova().run(&["read", "nova://demo/kept"]);
        assert_eq!(read.text(), "kept\n");
        assert_eq!(self.append(b"more\n", &[]).code, Some(0));
        assert!(self.novad.is_alive());
        let streams = self.novad.nova().rows(&["stream", "list", "demo"]);
        assert_eq!(streams.len(), 1, "{streams:?}");
        let log = self.novad.log();
        assert!(!log.contains("panicked") && !log.contains("ERROR"), "{log}");
    }
}

#[test]
fn names_that_can_not_be_are_refused_by_value_and_bound() {
    let star = Star::start();
    let key = |key: &str| format!("nova://demo/{key}");
    for verb in ["append", "read", "subscribe", "tail", "token"] {
        star.refuses(&[verb, &key(&"k".repeat(513))], b"x", &["513", "512"]);
        star.refuses(&[verb, "nova://demo/"], b"x", &["0 bytes", "512"]);
        star.refuses(&[verb, "nova://DEMO/x"], b"x", &["DEMO", "a-z"]);
        star.refuses(&[verb, "nova://de/x"], b"x", &["'de'", "3 to 63"]);
        star.refuses(&[verb, "demo/x"], b"x", &["demo/x", "nova://bucket/key"]);
        star.refuses(&[verb, "https://demo/x"], b"x", &["nova://bucket/key"]);
        star.refuses(&[OsStr::new(verb), OsStr::from_bytes(b"nova://demo/\xff\xfe")], b"x", &["UTF-8"]);
    }
    // In multi-byte letters the bound is one of bytes.
    star.refuses(&["tail", &key(&"é".repeat(257))], b"", &["514", "512"]);
    for name in ["ab", &"b".repeat(64), "-ab", "ab-", "a_b", "a.b", "Abc", "é12"] {
        star.refuses(&["bucket", "create", "--", name], b"", &["bucket name"]);
    }
    star.refuses(&["tail", &key(&"k".repeat(100_000))], b"", &["100000 bytes", "512"]);
    star.refuses(&["bucket", "create", "abc", "--location", &"l".repeat(65)], b"", &["location", "65", "64"]);
    star.refuses(
        &["bucket", "create", "abc", "--creation-token", &"l".repeat(65)],
        b"",
        &["creation_token", "65", "64"],
    );
    star.goes_on();
}

#[test]
fn the_longest_names_are_taken() {
    let star = Star::start();
    let nova = star.novad.nova();
    let bucket = "b".repeat(63);
    nova.row(&["bucket", "create", &bucket, "--default-class", class_name(), "--create-on-append"]);
    for key in
        ["k".repeat(512), "é".repeat(256), "a/b//c/".to_owned(), "..".to_owned(), " \t\n".to_owned(), "%00".to_owned()]
    {
        let address = format!("nova://{bucket}/{key}");
        nova.rows_with(&["append", &address], b"x");
        assert_eq!(nova.run(&["read", &address]).text(), "x\n");
        assert_eq!(nova.row(&["stream", "get", &address])["key"], *key);
    }
    let token = "é".repeat(18);
    nova.row(&["fence", &format!("nova://{bucket}/.."), &token]);
    assert_eq!(nova.row(&["token", &format!("nova://{bucket}/..")])["fencing_token"], *token);
    assert_eq!(nova.rows(&["stream", "list", &bucket]).len(), 6);
    star.goes_on();
}

#[test]
fn tokens_of_37_bytes_are_refused() {
    let star = Star::start();
    let long = "t".repeat(37);
    star.refuses(&["fence", "nova://demo/kept", &long], b"", &["37", "36"]);
    star.refuses(&["append", "nova://demo/kept", "--fencing-token", &long], b"x", &["37", "36"]);
    star.refuses(&["fence", "nova://demo/kept", &"é".repeat(19)], b"", &["38", "36"]);
    star.refuses(&[OsStr::new("fence"), OsStr::new("nova://demo/kept"), OsStr::from_bytes(b"\xff")], b"", &["UTF-8"]);
    star.goes_on();
}

#[test]
fn records_over_a_bound_are_refused_and_at_the_bound_are_taken() {
    let star = Star::start();
    let mebibyte = 1 << 20;
    star.refuses_record("too_large", &vec![b'x'; mebibyte + 1], &[], &["1048577", "1048576"]);
    // Far over the bound, without an end in sight.
    star.refuses_record("too_large", &vec![b'x'; 8 * mebibyte], &[], &["1048576"]);
    let json = ["--format", "json"];
    let line = |body: &str, headers: &str| format!("{{\"body\":\"{body}\",\"headers\":[{headers}]}}").into_bytes();
    let many = |count: usize| vec!["[\"a\",\"b\"]"; count].join(",");
    star.refuses_record("invalid", &line("x", &many(101)), &json, &["101", "100"]);
    star.refuses_record("invalid", &line("x", "[\"\",\"v\"]"), &json, &["empty name"]);
    star.refuses_record("too_large", &line(&"x".repeat(mebibyte), "[\"a\",\"\"]"), &json, &["1048577", "1048576"]);
    star.refuses_record("invalid", b"no json", &json, &["line 1"]);
    star.refuses_record("invalid", b"{\"body\":\"x\",\"key\":1}", &json, &["line 1", "key"]);
    star.refuses_record("invalid", b"{\"body\":\"\xff\"}", &json, &["line 1"]);
    star.refuses_record("invalid", b"{\"body\":\"x\",\"timestamp_ms\":\"soon\"}", &json, &["line 1"]);
    star.refuses_record("invalid", b"{\"body\":\"?\"}", &["--format", "json", "--base64"], &["base64"]);

    let nova = star.novad.nova();
    let largest = vec![b'x'; mebibyte];
    nova.rows_with(&["append", "nova://demo/kept2"], &largest);
    nova.rows_with(&["append", "nova://demo/kept2", "--format", "json"], &line("x", &many(100)));
    let read = nova.rows(&["read", "nova://demo/kept2"]);
    assert_eq!(read[0]["body"].as_str().map(str::len), Some(mebibyte));
    assert_eq!(read[1]["headers"].as_array().map(Vec::len), Some(100));
    nova.row(&["stream", "delete", "nova://demo/kept2"]);
    star.goes_on();
}

#[test]
fn a_bad_line_in_the_middle_is_told_by_number_after_what_was_durable_before_it() {
    let star = Star::start();
    let mut input = b"{\"body\":\"a\"}\n".repeat(1_500);
    input.extend_from_slice(b"{\"body\":1}\n{\"body\":\"z\"}\n");
    let args = ["append", "nova://demo/middle", "--format", "json"];
    let refusal = star.novad.nova().refusal(2, &args, &input);
    assert!(refusal["message"].as_str().expect("a sentence").contains("line 1501"), "{refusal}");
    let durable = refusal["durable_records"].as_u64().expect("how many are durable");
    let rows = star.novad.nova().rows(&["read", "nova://demo/middle"]);
    assert_eq!(rows.len() as u64, durable);
    assert!(durable >= 1_000 && rows.iter().all(|row| row["body"] == "a"));
}

#[test]
fn flags_that_can_not_be_are_usage_errors_of_one_line() {
    let star = Star::start();
    let address = "nova://demo/kept";
    let cases: [(&[&str], &[&str]); 14] = [
        (&["append", address, "--linger", "1001"], &["1001", "1000"]),
        (&["append", address, "--match-seq-num", "-1"], &["-1"]),
        (&["append", address, "--base64"], &["--format json"]),
        (&["append", address, "--format", "csv"], &["csv", "json"]),
        (&["read", address, "--from", "x"], &["'x'", "--from"]),
        (&["read", address, "--nonsense"], &["--nonsense"]),
        (&["stream", "create", address, "--class", "fast"], &["fast", "express", "standard"]),
        (&["stream", "create", address, "--producer-policy", "all"], &["all", "fenced"]),
        (&["stream", "create", address, "--timestamping-mode", "server"], &["server", "arrival"]),
        (&["stream", "create", address, "--batch-max-bytes", "4294967296"], &["4294967296"]),
        (&["bucket", "list", "--limit", "0"], &["'0'", "--limit"]),
        (&["--addr", "http://u@127.0.0.1:1", "tail", address], &["http://u@127.0.0.1:1"]),
        (&["--addr", "ftp://127.0.0.1:1", "tail", address], &["ftp"]),
        (&["--addr", "127.0.0.1:99999", "tail", address], &["127.0.0.1:99999", "host:port"]),
    ];
    for (args, parts) in cases {
        star.refuses(args, b"x", parts);
    }
    let mixed = ["--addr", "127.0.0.1:1,http://127.0.0.1:2", "tail", address];
    star.refuses(&mixed, b"", &["127.0.0.1:1", "http://127.0.0.1:2"]);
    let json = star.novad.nova().refusal(2, &["read", address, "--nonsense"], b"");
    assert_eq!(json["reason"], "invalid");
    star.goes_on();
}
