//! Are buckets and streams made, looked at, changed, deleted and listed over HTTP?

use serde_json::{Value, json};

use crate::star::{Star, refused, stream};

#[test]
fn a_bucket_lives_from_its_creation_to_its_deletion() {
    let star = Star::start();
    let made = star.http.json(
        "POST",
        "/v1/buckets/ledger",
        &json!({"location": "eu", "creation_token": "t-1", "default_class": "express", "default_retention_max_bytes": 7}),
    );
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    assert_eq!(
        (&made["name"], &made["default_class"], &made["deleted_at"]),
        (&json!("ledger"), &json!("express"), &Value::Null)
    );
    assert_eq!(made["default_retention_max_bytes"], 7);
    let again = star.http.json("POST", "/v1/buckets/ledger", &json!({"creation_token": "t-1"}));
    assert_eq!((again.status, again.json()), (201, made.clone()));
    refused(&star.http.json("POST", "/v1/buckets/ledger", &json!({})), 409, "already_exists", &["ledger"]);
    let ensured = star.http.ask("PUT", "/v1/buckets/ledger", "", b"");
    assert_eq!((ensured.status, ensured.json()), (200, made));

    let changed = star.http.json(
        "PATCH",
        "/v1/buckets/ledger",
        &json!({"default_retention_max_bytes": 0, "create_stream_on_read": true}),
    );
    let changed = changed.json();
    assert_eq!((&changed["default_retention_max_bytes"], &changed["create_stream_on_read"]), (&json!(0), &json!(true)));
    assert_eq!(changed["default_class"], "express");
    assert_eq!(star.got("/v1/buckets/ledger"), changed);

    assert_eq!(star.http.ask("POST", "/v1/buckets/ledger/streams/a", "", b"").status, 201);
    refused(&star.http.ask("DELETE", "/v1/buckets/ledger", "", b""), 409, "bucket_not_empty", &["ledger"]);
    assert_eq!(star.http.ask("DELETE", "/v1/buckets/ledger/streams/a", "", b"").status, 204);
    assert_eq!(star.http.ask("DELETE", "/v1/buckets/ledger", "", b"").status, 204);
    refused(&star.http.get("/v1/buckets/ledger"), 404, "not_found", &["ledger"]);
}

#[test]
fn a_stream_is_made_changed_and_deleted() {
    let star = Star::start();
    let path = stream("orders");
    let made = star.http.json("POST", &path, &json!({"retention_max_age_ms": 60_000, "batch_max_records": null}));
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    assert_eq!((&made["key"], &made["tail"]), (&json!("orders"), &json!({"seq_num": 0, "timestamp_ms": 0})));
    assert_eq!((&made["settled"], &made["bytes"], &made["trim_point"]), (&json!(0), &json!(0), &json!(0)));
    refused(&star.http.ask("POST", &path, "", b""), 409, "already_exists", &["orders"]);
    let changed =
        star.http.json("PATCH", &path, &json!({"retention_max_age_ms": 0, "producer_policy": "fenced"})).json();
    assert_eq!((&changed["retention_max_age_ms"], &changed["producer_policy"]), (&json!(0), &json!("fenced")));
    assert_eq!(changed["stream_id"], made["stream_id"]);
    let odd = json!({"timestamping_uncapped": true, "retention_max_age_ms": 5});
    refused(&star.http.json("PATCH", &path, &odd), 400, "invalid", &["uncapped", "5"]);
    for _ in 0..2 {
        assert_eq!(star.http.ask("DELETE", &path, "", b"").status, 204);
    }
    refused(&star.http.get(&path), 404, "not_found", &["orders"]);
}

#[test]
fn lists_go_on_where_their_page_ended() {
    let star = Star::start();
    for key in ["a", "a%2Fb", "b%20c", "%C3%A4"] {
        assert_eq!(star.http.ask("POST", &stream(key), "", b"").status, 201);
    }
    let (mut keys, mut after) = (Vec::new(), String::new());
    loop {
        let page = star.got(&format!("/v1/buckets/demo/streams?limit=3&after={after}"));
        let streams = page["streams"].as_array().unwrap();
        keys.extend(streams.iter().map(|stream| stream["key"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => break,
        }
    }
    assert_eq!(keys, ["a", "a/b", "b c", "ä"]);
    for name in ["bbb", "ccc"] {
        assert_eq!(star.http.ask("PUT", &format!("/v1/buckets/{name}"), "", b"").status, 200);
    }
    let page = star.got("/v1/buckets?limit=2");
    assert_eq!((page["buckets"].as_array().unwrap().len(), &page["next"]), (2, &json!("ccc")));
    let page = star.got("/v1/buckets?after=ccc");
    assert_eq!((&page["buckets"][0]["name"], &page["next"]), (&json!("demo"), &Value::Null));
    refused(&star.http.get("/v1/buckets/demo/streams?after=!"), 400, "invalid", &["'!' is no cursor"]);
}
