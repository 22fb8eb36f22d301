//! Does an event stream carry every record once, in order, whatever else goes on?

use serde_json::{Value, json};
use tests::{Event, Events, Http};

use crate::star::{Star, bodies, records_of, refused, stream};

fn record(event: &Event) -> (u64, String) {
    let record: Value = serde_json::from_str(&event.data).expect("a record");
    assert_eq!(record["seq_num"].to_string(), event.id, "{event:?}");
    (record["seq_num"].as_u64().expect("a number"), record["body"].as_str().expect("a body").to_owned())
}

/// The next records, which must be dense from `from` on.
fn take(events: &mut Events, from: u64, records: u64) -> Vec<String> {
    let records = (from..from + records).map(|due| {
        let event = events.next_event().expect("a record");
        assert_eq!(event.kind, "", "{event:?}");
        let (seq_num, body) = record(&event);
        assert_eq!(seq_num, due);
        body
    });
    records.collect()
}

#[test]
fn history_comes_first_and_then_what_is_appended() {
    let star = Star::start();
    star.append("a", &["0", "1", "2"]);
    let mut events = star.http.events(&format!("{}?from=1", records_of("a")), "");
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    assert_eq!(events.header("cache-control"), Some("no-cache, no-transform"));
    assert_eq!(events.header("x-accel-buffering"), Some("no"));
    assert_eq!(take(&mut events, 1, 2), ["1", "2"]);
    star.append("a", &["3", "4"]);
    star.append("a", &["5"]);
    assert_eq!(take(&mut events, 3, 3), ["3", "4", "5"]);
    let mut coded = star.http.events(&format!("{}?last=1&encoding=base64", records_of("a")), "");
    assert_eq!(take(&mut coded, 5, 1), ["NQ=="]);
}

#[test]
fn a_subscriber_that_comes_back_goes_on_after_its_last_event() {
    let star = Star::start();
    star.append("a", &["0", "1", "2"]);
    let path = format!("{}?from=0", records_of("a"));
    let mut events = star.http.events(&path, "last-event-id: 1\r\n");
    assert_eq!(take(&mut events, 2, 1), ["2"]);
    drop(events);
    let mut at_tail = star.http.events(&path, "last-event-id: 2\r\n");
    star.append("a", &["3"]);
    assert_eq!(take(&mut at_tail, 3, 1), ["3"]);
    let accept = "accept: text/event-stream\r\n";
    let reply = star.http.ask_with("GET", &path, &format!("{accept}last-event-id: x\r\n"), b"");
    refused(&reply, 400, "invalid", &["Last-Event-ID is 'x'"]);
    let reply = star.http.ask_with("GET", &path, &format!("{accept}last-event-id: 9\r\n"), b"");
    refused(&reply, 416, "out_of_range", &[]);
    let reply = star.http.ask_with("GET", &format!("{path}&wait_ms=1"), accept, b"");
    refused(&reply, 400, "invalid", &["'wait_ms' goes with reads"]);
}

#[test]
fn a_limit_ends_a_subscription_in_so_many_words() {
    let star = Star::start();
    star.append("a", &["0", "1", "2"]);
    let mut events = star.http.events(&format!("{}?limit=2", records_of("a")), "");
    take(&mut events, 0, 2);
    assert_eq!(events.next_event().map(|event| event.kind), Some("end".to_owned()));
    assert_eq!(events.next_event(), None);
}

#[test]
fn many_subscribers_and_laggards_get_every_record_once() {
    let star = Star::start();
    star.append("a", &["0"]);
    let path = records_of("a");
    let mut early: Vec<Events> = (0..20).map(|_| star.http.events(&path, "")).collect();
    let large = "x".repeat(10_000);
    for round in 0..20 {
        let batch: Vec<String> = (0..10).map(|at| format!("{round}-{at}-{large}")).collect();
        star.append("a", &batch.iter().map(String::as_str).collect::<Vec<_>>());
    }
    // What is kept for all is a fraction of this, so that those who come now, and those who read only now, read for themselves.
    let mut late: Vec<Events> = (0..5).map(|_| star.http.events(&path, "")).collect();
    for events in early.iter_mut().chain(&mut late) {
        let bodies = take(events, 0, 201);
        assert!(bodies[200].starts_with("19-9-"));
    }
    star.append("a", &["last"]);
    for events in early.iter_mut().chain(&mut late) {
        assert_eq!(take(events, 201, 1), ["last"]);
    }
}

#[test]
fn a_subscription_ends_with_its_stream_and_a_new_one_is_not_taken_for_it() {
    let star = Star::start();
    star.append("a", &["0"]);
    let mut events = star.http.events(&records_of("a"), "");
    take(&mut events, 0, 1);
    assert_eq!(star.http.ask("DELETE", &stream("a"), "", b"").status, 204);
    star.append("a", &["another stream's"]);
    let end = events.next_event().expect("an end");
    assert_eq!(end.kind, "error", "{end:?}");
    let told: Value = serde_json::from_str(&end.data).expect("an error");
    assert_eq!(told["code"], "not_found", "{told}");
    assert_eq!(events.next_event(), None);
    let accept = "accept: text/event-stream\r\n";
    refused(&star.http.ask_with("GET", &records_of("none"), accept, b""), 404, "not_found", &["none"]);
    let _changed = star.http.json("PATCH", "/v1/buckets/demo", &json!({"create_stream_on_read": true}));
    let mut made = star.http.events(&records_of("made"), "");
    star.append("made", &["first"]);
    assert_eq!(take(&mut made, 0, 1), ["first"]);
}

#[test]
fn subscriptions_end_and_requests_finish_when_the_star_is_asked_to_stop() {
    let mut star = Star::start();
    star.append("a", &["0"]);
    let mut events = star.http.events(&records_of("a"), "");
    take(&mut events, 0, 1);
    let http: Http = star.http;
    let waiting = std::thread::spawn(move || http.get(&format!("{}?from=1&wait_ms=60000", records_of("a"))));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(star.novad.sigterm(), Some(0));
    assert_eq!(events.next_event(), None);
    let page = waiting.join().expect("the reader");
    assert_eq!((page.status, bodies(&page.json()).len()), (200, 0));
}
