//! Is what clients do wrong, or mean badly, answered with the right status, at a bounded price, while others are served?

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tests::Http;

use crate::star::{Star, records_of, refused, stream};

#[test]
fn every_wrong_value_is_named_with_what_would_be_right() {
    let star = Star::start();
    star.append("a", &["x"]);
    let records = records_of("a");
    for (query, says) in [
        ("form=1", vec!["'form' is unknown", "from, from_ms"]),
        ("from=1&last=2", vec!["from and last exclude each other"]),
        ("from=1&from=1", vec!["given twice"]),
        ("from=-1", vec!["'from' is '-1'", "from 0 to 18446744073709551615"]),
        ("from=18446744073709551616", vec!["18446744073709551616"]),
        ("from_ms=9223372036854775808", vec!["9223372036854775808"]),
        ("last=1.5", vec!["'last' is '1.5'"]),
        ("clamp=maybe", vec!["true or false"]),
        ("encoding=hex", vec!["one of utf8, base64"]),
        ("from=%zz", vec!["'%zz'"]),
        ("%ff=1", vec!["UTF-8"]),
    ] {
        refused(&star.http.get(&format!("{records}?{query}")), 400, "invalid", &says);
    }
    for (key, says) in [
        ("%00", vec!["NUL"]),
        ("a%", vec!["'%'", "hexadecimal"]),
        ("%ff", vec!["UTF-8"]),
        (&*"k".repeat(513), vec!["513 bytes", "1 to 512"]),
    ] {
        refused(&star.http.get(&stream(key)), 400, "invalid", &says);
    }
    refused(&star.http.get("/v1/buckets/../streams"), 400, "invalid", &["'..'", "3 to 63"]);
    refused(&star.http.get("/v1/buckets/Demo"), 400, "invalid", &["'Demo'"]);
}

#[test]
fn every_wrong_body_is_named_with_what_would_be_right() {
    let star = Star::start();
    let records = records_of("a");
    let json = "application/json";
    for (body, says) in [
        ("", vec!["not JSON"]),
        ("{", vec!["not JSON", "line 1"]),
        ("[]", vec!["no append"]),
        ("{\"records\":[{\"body\":1}]}", vec!["no append", "integer `1`"]),
        ("{\"records\":[{\"body\":\"\",\"key\":1}]}", vec!["unknown field `key`"]),
        ("{\"records\":[],\"match_seq\":1}", vec!["unknown field `match_seq`", "match_seq_num"]),
        ("{\"records\":[{\"body\":\"\"}],\"match_seq_num\":-1}", vec!["-1"]),
        (
            "{\"records\":[{\"body\":\"\"}],\"match_seq_num\":18446744073709551616}",
            vec!["1.8446744073709552e+19", "expected u64"],
        ),
        ("{\"records\":[{\"body\":\"\",\"headers\":[[\"\",\"v\"]]}]}", vec!["record 1", "empty name"]),
        ("{\"records\":[]}", vec!["record"]),
    ] {
        refused(&star.http.ask("POST", &records, json, body.as_bytes()), 400, "invalid", &says);
    }
    let line = star.http.ask("POST", &records, "application/x-ndjson", b"{\"body\":\"\"}\n{\"body\":}\n");
    refused(&line, 400, "invalid", &["line 2", "not JSON"]);
    let coded = star.http.json("POST", &format!("{records}?encoding=base64"), &json!({"records": [{"body": "?"}]}));
    refused(&coded, 400, "invalid", &["record 1", "base64"]);
    for kind in ["application/x-www-form-urlencoded", "text/plain", "application/xml"] {
        refused(&star.http.ask("POST", &records, kind, b"{}"), 415, "invalid", &[kind, json]);
    }
    let packed = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
    refused(&star.http.ask_with("POST", &records, packed, b"{}"), 415, "invalid", &["gzip"]);
    let stamped = star.http.ask("POST", &format!("{records}?timestamp_ms=1"), json, b"{\"records\":[{\"body\":\"\"}]}");
    refused(&stamped, 400, "invalid", &["timestamp_ms", "octet-stream"]);

    for (method, path, body, says) in [
        ("POST", "/v1/buckets/other", "{\"name\":\"x\"}", "field 'name' is unknown"),
        ("POST", "/v1/buckets/other", "[1]", "must be a JSON object"),
        (
            "POST",
            "/v1/buckets/other",
            "{\"default_class\":\"fast\"}",
            "'fast' is unknown: it is one of express, standard",
        ),
        ("POST", "/v1/buckets/other", "{\"create_stream_on_append\":1}", "is 1: it takes true or false"),
        ("PATCH", "/v1/buckets/demo", "{\"location\":\"x\"}", "field 'location' is unknown here"),
        ("PATCH", "/v1/buckets/demo", "{}", "nothing to change"),
        ("POST", &stream("a"), "{\"batch_max_bytes\":4294967296}", "from 0 to 4294967295"),
        ("POST", &format!("{}/trim", stream("a")), "{\"seq_num\":1,\"from_ms\":1}", "exclude each other"),
        ("POST", &format!("{}/trim", stream("a")), "{}", "give seq_num or from_ms"),
        ("POST", &format!("{}/fence", stream("a")), "{}", "fencing_token was not said"),
        (
            "POST",
            &format!("{}/fence", stream("a")),
            "{\"fencing_token\":\"0123456789012345678901234567890123456\"}",
            "37 bytes",
        ),
    ] {
        refused(&star.http.ask(method, path, json, body.as_bytes()), 400, "invalid", &[says]);
    }
    // Nothing of all this made a stream.
    refused(&star.http.get(&stream("a")), 404, "not_found", &[]);
}

#[test]
fn bodies_over_their_bounds_are_refused_with_and_without_a_length() {
    let star = Star::start();
    let path = records_of("a");
    let head = |more: &str| {
        format!("POST {path} HTTP/1.1\r\nhost: nova\r\ncontent-type: application/octet-stream\r\n{more}\r\n")
    };
    let told = star.http.raw(head("content-length: 99999999999\r\n").as_bytes());
    refused(&told, 413, "too_large", &["99999999999"]);
    let mut request = head("transfer-encoding: chunked\r\n").into_bytes();
    for _ in 0..12 {
        request.extend_from_slice(b"100000\r\n");
        request.resize(request.len() + (1 << 20), b'x');
        request.extend_from_slice(b"\r\n");
    }
    let mut socket = star.http.connect();
    let _refused_midway = socket.write_all(&request);
    refused(&tests::reply(&mut BufReader::new(socket)).expect("an answer"), 413, "too_large", &[]);
    let bulky = star.http.ask("POST", &path, "application/octet-stream", &vec![b'x'; (1 << 20) + 1]);
    refused(&bulky, 413, "too_large", &["1048577"]);
    let many = json!({"records": vec![json!({"body": ""}); 1_001]});
    let reply = star.http.json("POST", &path, &many);
    assert!(matches!(reply.status, 400 | 413) && reply.text().contains("1000"), "{}", reply.text());
    let full = json!({"records": vec![json!({"body": "\u{1}".repeat(1_000)}); 1_000]});
    assert_eq!(star.http.json("POST", &path, &full).json()["end"]["seq_num"], 1_000);

    for (body, says) in [
        ("[".repeat(100_000), "must be a JSON object"),
        (format!("{{\"records\":[{}", "{\"body\":\"\"},".repeat(500_000)), "1001"),
    ] {
        refused(&star.http.ask("POST", &path, "application/json", body.as_bytes()), 400, "invalid", &[says]);
    }
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    refused(
        &star.http.ask("POST", "/v1/buckets/deep", "application/json", deep.as_bytes()),
        400,
        "invalid",
        &["recursion"],
    );
}

#[test]
fn floods_of_headers_and_broken_heads_are_refused() {
    let star = Star::start();
    let many: String = (0..500).map(|at| format!("h{at}: v\r\n")).collect();
    assert_eq!(star.http.ask_with("GET", "/healthz", &many, b"").status, 431);
    let long = format!("h: {}\r\n", "v".repeat(200_000));
    assert_eq!(star.http.ask_with("GET", "/healthz", &long, b"").status, 431);
    assert_eq!(star.http.raw(b"GET /healthz HTTP/9.9\r\n\r\n").status, 400);
    assert_eq!(star.http.raw(b"\0\0\0\0\r\n\r\n").status, 400);
    let path = format!("/{}", "a".repeat(100_000));
    assert!(matches!(star.http.get(&path).status, 414 | 431));
    assert_eq!(star.http.get("/healthz").status, 200);
}

#[test]
fn who_sends_slowly_or_reads_nothing_costs_others_nothing() {
    let star = Star::start_with(&["--http-connections-max", "600"]);
    star.append("big", &[&"x".repeat(1 << 20)]);
    let before = star.novad.resident_bytes();
    // Heads and bodies that never end, and answers that nobody takes.
    let mut held: Vec<TcpStream> = Vec::new();
    for at in 0..400 {
        let mut socket = star.http.connect();
        let request = match at % 3 {
            0 => "GET /healthz HTTP/1.1\r\nx-slow: ".to_owned(),
            1 => format!(
                "POST {} HTTP/1.1\r\ncontent-type: application/octet-stream\r\ncontent-length: 1000000\r\n\r\nx",
                records_of("a")
            ),
            _ => format!("GET {} HTTP/1.1\r\n\r\n", records_of("big")).repeat(20),
        };
        socket.write_all(request.as_bytes()).expect("a request");
        held.push(socket);
    }
    for at in 0..100 {
        assert_eq!(star.append("honest", &["x"])["end"]["seq_num"], at + 1);
    }
    let grown = star.novad.resident_bytes().saturating_sub(before);
    assert!(grown < 700 << 20, "{} MiB more", grown >> 20);
    // More than are allowed are told so; these alone are more, for the slow ones may be gone by now.
    let mut turned_away = 0;
    for _ in 0..700 {
        let mut socket = star.http.connect();
        let _gone = socket.write_all(b"GET /healthz HTTP/1.1\r\nx-slow: ");
        held.push(socket);
    }
    for socket in held.iter_mut().skip(650) {
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let mut answer = [0; 12];
        turned_away += u32::from(socket.read_exact(&mut answer).is_ok() && &answer[9..] == b"503");
    }
    assert!(turned_away > 0);
    drop(held);
    let http: Http = star.http;
    tests::within(
        60,
        tests::eventually(Duration::from_secs(50), "places come back", move || async move {
            std::panic::catch_unwind(|| http.get("/healthz").status == 200).unwrap_or(false)
        }),
    );
}

#[test]
fn idle_subscribers_cost_little_and_miss_nothing() {
    let star = Star::start();
    star.append("a", &["0"]);
    let before = star.novad.resident_bytes();
    let mut idle: Vec<_> = (0..1_000).map(|_| star.http.events(&format!("{}?from=1", records_of("a")), "")).collect();
    let each = star.novad.resident_bytes().saturating_sub(before) / 1_000;
    assert!(each < 100 << 10, "{each} bytes a subscriber");
    star.append("a", &["1"]);
    for events in &mut idle {
        assert_eq!(events.next_event().expect("a record").id, "1");
    }
}
