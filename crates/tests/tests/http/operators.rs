//! Is an operator told what is so, and what can't be?

use serde_json::json;
use tests::{Http, Novad, Scratch};

use crate::star::{Star, refused};

#[test]
fn health_readiness_and_metrics_tell_of_every_shard() {
    let star = Star::start();
    star.append("a", &["x"]);
    star.append("heavy%20%22one%22", &["x".repeat(100_000).as_str()]);
    assert_eq!(star.got("/healthz"), json!({"healthy": true}));
    let ready = star.got("/readyz");
    assert_eq!((&ready["ready"], &ready["store"]["stalled"]), (&json!(true), &json!(false)), "{ready}");
    assert_eq!(ready["shards"].as_array().map(Vec::len), Some(2), "{ready}");
    assert!(ready["shards"][1]["recovered"] == true && ready["shards"][1]["log_used_bytes"].is_u64(), "{ready}");
    let metrics = star.http.get("/metrics");
    assert!(metrics.header("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text")));
    let text = metrics.text();
    for start in [
        "nova_records_total{shard=\"0\"} ",
        "nova_records_total{shard=\"1\"} ",
        "nova_http_answers_total{route=\"append\",status=\"2xx\"} 2",
        "nova_http_seconds_bucket{le=\"0.0001\",route=\"append\"} ",
        "nova_operation_seconds_bucket{le=\"0.000001\",shard=\"0\",verb=\"append\",phase=\"queue\"} ",
        "nova_operation_seconds_bucket{le=\"+Inf\",shard=\"1\",verb=\"append\",phase=\"write\"} ",
        "nova_operation_seconds_sum{shard=\"1\",verb=\"append\",phase=\"sync\"} ",
        "nova_cpu_busy_us_total{shard=\"1\"} ",
        "nova_log_unsettled_entries{shard=\"0\"} ",
        "# EOF",
    ] {
        assert!(text.lines().any(|line| line.starts_with(start)), "no {start} in\n{text}");
    }
    for phase in ["queue", "reply"] {
        assert_eq!(appends_counted(&text, phase), 2, "in {phase} of\n{text}");
    }
    assert!(!text.contains("nova_stream_bytes_per_second"), "no stream is named unasked:\n{text}");
    let text = star.http.get("/metrics?streams=true").text();
    let is_heavy = |line: &str| line.contains(r#",bucket="demo",key="heavy \"one\""} "#);
    assert!(text.lines().any(is_heavy), "the heavy one is not told in\n{text}");
    let document = star.got("/v1/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
}

/// Appends that were counted in a phase, over all shards.
fn appends_counted(text: &str, phase: &str) -> u64 {
    let of_phase = format!("verb=\"append\",phase=\"{phase}\"}} ");
    let counts =
        text.lines().filter_map(|line| line.strip_prefix("nova_operation_seconds_count{")?.split_once(&of_phase));
    counts.map(|(_, count)| count.parse::<u64>().expect("a number")).sum()
}

#[test]
fn an_address_that_is_taken_is_told_and_nothing_is_begun() {
    let star = Star::start();
    let scratch = Scratch::new();
    let taken = star.novad.http().to_string();
    let ended = Novad::refused(&scratch.join("data"), &["--http", &taken]);
    assert_eq!(ended.code, Some(4), "{}", ended.log);
    assert!(ended.line.contains(&taken) && ended.line.contains("--http off"), "{}", ended.line);
    let ended = Novad::refused(&scratch.join("data"), &["--http", "8080"]);
    assert!(ended.code == Some(2) && ended.line.contains("or off"), "{}", ended.line);
}

#[test]
fn a_gateway_serves_a_star_from_elsewhere() {
    let star = Star::start();
    star.append("a", &["x"]);
    let mut gateway = star.novad.nova().start(&["gateway", "--http", "127.0.0.1:0"]);
    let line = gateway.line();
    let http = Http::of(line.strip_prefix("serving http on ").expect("its address").parse().expect("an address"));
    let page = http.get("/v1/buckets/demo/streams/a/records");
    let ended = gateway.stop();
    assert_eq!((page.status, page.json()["records"][0]["body"].clone()), (200, json!("x")));
    assert_eq!(ended, Some(0));
    let outcome = star.novad.nova().run(&["gateway", "--http", "0.0.0.0:0"]);
    assert!(outcome.code == Some(2) && outcome.stderr.contains("--insecure"), "{outcome:?}");
}

#[test]
fn paths_and_methods_that_are_not_there_are_told() {
    let star = Star::start();
    refused(&star.http.get("/v2/buckets"), 404, "not_found", &["/v2/buckets", "/v1/openapi.json"]);
    let reply = star.http.ask("DELETE", "/v1/buckets", "", b"");
    refused(&reply, 405, "invalid", &["DELETE"]);
    assert!(reply.header("allow").is_some_and(|allow| allow.contains("GET")), "{:?}", reply.headers);
    let reply = star.http.ask_with("GET", "/v1/buckets/none", "x-request-id: mine-7\r\n", b"");
    assert_eq!(refused(&reply, 404, "not_found", &[])["request_id"], "mine-7");
    let reply = star.http.ask_with("PUT", "/v1/buckets/other", "origin: http://evil.example\r\n", b"");
    refused(&reply, 403, "permission_denied", &["evil.example"]);
}
