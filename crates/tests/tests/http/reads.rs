//! Are pages what was asked for, waited for where there is nothing yet?

use std::time::{Duration, Instant};

use serde_json::json;

use crate::star::{Star, bodies, records_of, refused, stream};

fn stamped(star: &Star, key: &str) {
    let lines: String =
        (0..10).map(|at| format!("{{\"body\":\"{at}\",\"timestamp_ms\":{}}}\n", 1_000 + at * 10)).collect();
    let reply = star.http.ask("POST", &records_of(key), "application/x-ndjson", lines.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[test]
fn a_page_starts_and_ends_where_it_is_told() {
    let star = Star::start();
    stamped(&star, "a");
    let path = records_of("a");
    for (query, due) in [
        ("", 0..10),
        ("?from=7", 7..10),
        ("?from=0&limit=2", 0..2),
        ("?from_ms=1041", 5..10),
        ("?last=3", 7..10),
        ("?last=99", 0..10),
        ("?from=2&until_ms=1050", 2..5),
        ("?from=2&max_bytes=3", 2..5),
        ("?from=2&max_bytes=0&limit=18446744073709551615", 2..10),
        ("?from=10", 10..10),
        ("?from=99&clamp=true", 10..10),
    ] {
        let page = star.got(&format!("{path}{query}"));
        assert_eq!(bodies(&page), due.clone().map(|at: i32| at.to_string()).collect::<Vec<_>>(), "{query}");
        assert_eq!((&page["start"], &page["end"]), (&json!(due.start), &json!(due.end)), "{query}");
        assert_eq!(page["tail"], json!({"seq_num": 10, "timestamp_ms": 1_090}), "{query}");
    }
    let told = refused(&star.http.get(&format!("{path}?from=11")), 416, "out_of_range", &[]);
    assert_eq!(told["tail"]["seq_num"], 10);
    assert_eq!(
        star.http.json("POST", &format!("{}/trim", stream("a")), &json!({"seq_num": 4})).json(),
        json!({"trim_point": 4})
    );
    let told = refused(&star.http.get(&format!("{path}?from=3")), 416, "trimmed", &[]);
    assert_eq!((&told["trim_point"], &told["tail"]["seq_num"]), (&json!(4), &json!(10)));
    assert_eq!(star.got(&path)["start"], 4);
    assert_eq!(
        star.http.json("POST", &format!("{}/trim", stream("a")), &json!({"from_ms": 1_060})).json(),
        json!({"trim_point": 6})
    );
    assert_eq!(star.got(&format!("{}/tail", stream("a"))), json!({"seq_num": 10, "timestamp_ms": 1_090}));
    refused(&star.http.get(&records_of("none")), 404, "not_found", &["none"]);
}

#[test]
fn a_page_comes_as_lines_and_a_record_as_its_bytes() {
    let star = Star::start();
    stamped(&star, "a");
    let lines =
        star.http.ask_with("GET", &format!("{}?last=2", records_of("a")), "accept: application/x-ndjson\r\n", b"");
    assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
    let due = "{\"seq_num\":8,\"timestamp_ms\":1080,\"headers\":[],\"body\":\"8\"}\n{\"seq_num\":9,\"timestamp_ms\":1090,\"headers\":[],\"body\":\"9\"}\n";
    assert_eq!(lines.text(), due);
    assert_eq!((lines.header("nova-end"), lines.header("nova-tail")), (Some("10"), Some("10")));

    let raw = star.http.ask("POST", &records_of("b"), "application/octet-stream", &[0, 255, b'\n']);
    assert_eq!(raw.status, 200);
    let bytes = "accept: application/octet-stream\r\n";
    let one = star.http.ask_with("GET", &format!("{}?from=0", records_of("b")), bytes, b"");
    assert_eq!((one.status, &one.body[..]), (200, &[0, 255, b'\n'][..]));
    assert_eq!((one.header("nova-seq-num"), one.header("x-content-type-options")), (Some("0"), Some("nosniff")));
    let none = star.http.ask_with("GET", &format!("{}?from=1", records_of("b")), bytes, b"");
    assert_eq!((none.status, none.header("nova-end")), (204, Some("1")));
    refused(
        &star.http.ask_with("GET", &format!("{}?limit=2", records_of("b")), bytes, b""),
        400,
        "invalid",
        &["limit is 2"],
    );
    refused(&star.http.ask_with("GET", &records_of("b"), "accept: image/png\r\n", b""), 406, "invalid", &["image/png"]);
}

#[test]
fn a_read_at_the_tail_waits_for_what_comes() {
    let star = Star::start();
    star.append("a", &["x"]);
    let path = records_of("a");
    let began = Instant::now();
    let page = star.got(&format!("{path}?from=1&wait_ms=300"));
    assert!(bodies(&page).is_empty() && began.elapsed() >= Duration::from_millis(300));
    let http = star.http;
    let waiting = std::thread::spawn(move || http.get(&format!("{}?from=1&wait_ms=30000", records_of("a"))));
    std::thread::sleep(Duration::from_millis(300));
    star.append("a", &["y"]);
    let page = waiting.join().expect("the reader").json();
    assert_eq!(bodies(&page), ["y"]);
    assert!(bodies(&star.got(&format!("{path}?from=0&wait_ms=30000"))).len() == 2);
    refused(&star.http.get(&format!("{path}?wait_ms=60001")), 400, "invalid", &["wait_ms", "60000"]);
}
