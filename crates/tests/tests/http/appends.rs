//! Do appends over HTTP store what was sent, once, or say why not?

use serde_json::json;
use tests::{class_name, text};

use crate::star::{Star, bodies, records_of, refused, stream};

#[test]
fn records_come_as_json_as_lines_and_as_bytes() {
    let star = Star::start();
    let path = records_of("a");
    let acked = star.http.json(
        "POST",
        &path,
        &json!({"records": [{"body": "one", "headers": [["k", "v"], ["k", ""]]}, {"body": ""}]}),
    );
    assert_eq!(acked.status, 200, "{}", acked.text());
    let acked = acked.json();
    assert_eq!((&acked["start"]["seq_num"], &acked["end"]["seq_num"]), (&json!(0), &json!(2)));
    assert_eq!((&acked["tail"], &acked["class"]), (&acked["end"], &json!(class_name())));
    let lines = b"{\"body\":\"three\"}\n\n  \r\n{\"body\":\"four\",\"seq_num\":9}";
    assert_eq!(star.http.ask("POST", &path, "application/x-ndjson", lines).json()["end"]["seq_num"], 4);
    assert_eq!(star.http.ask("POST", &path, "application/octet-stream", &[0, 255, 10]).json()["end"]["seq_num"], 5);
    let coded = json!({"records": [{"body": "/w==", "headers": [["AA==", "/w=="]]}]});
    assert_eq!(star.http.json("POST", &format!("{path}?encoding=base64"), &coded).status, 200);

    let page = star.got(&format!("{path}?encoding=base64"));
    assert_eq!(bodies(&page), ["b25l", "", "dGhyZWU=", "Zm91cg==", "AP8K", "/w=="]);
    assert_eq!(page["records"][0]["headers"], json!([["aw==", "dg=="], ["aw==", ""]]));
    assert_eq!(page["records"][5]["headers"], json!([["AA==", "/w=="]]));
    let refusal = star.http.get(&path);
    refused(&refusal, 400, "invalid", &["body of record 4 is not UTF-8", "encoding=base64"]);
}

#[test]
fn a_match_and_a_token_hold_and_their_misses_carry_what_is_so() {
    let star = Star::start();
    let path = records_of("a");
    star.append("a", &["x", "y"]);
    let missed = star.http.json("POST", &path, &json!({"records": [{"body": "z"}], "match_seq_num": 1}));
    let told = refused(&missed, 412, "sequence_mismatch", &[]);
    assert_eq!((&told["tail"]["seq_num"], &told["no_side_effect"]), (&json!(2), &json!(true)));
    assert_eq!(star.http.ask("POST", &format!("{path}?match_seq_num=2"), "application/octet-stream", b"z").status, 200);

    let boundary = star.http.json("POST", &format!("{}/fence", stream("a")), &json!({"fencing_token": "gen-42"}));
    assert_eq!((boundary.status, &boundary.json()["seq_num"]), (200, &json!(3)), "{}", boundary.text());
    assert_eq!(star.got(&format!("{}/fence", stream("a"))), json!({"fencing_token": "gen-42"}));
    let out = star.http.json("POST", &path, &json!({"records": [{"body": "z"}], "fencing_token": "gen-41"}));
    assert_eq!(refused(&out, 412, "fenced_out", &[])["fencing_token"], "gen-42");
    let within = star.http.json("POST", &format!("{path}?fencing_token=gen-42"), &json!({"records": [{"body": "z"}]}));
    assert_eq!(within.status, 200, "{}", within.text());
    let cleared = star.http.json("POST", &format!("{}/fence", stream("a")), &json!({"fencing_token": ""}));
    assert_eq!(cleared.status, 200);
    assert_eq!(star.got(&format!("{}/fence", stream("a"))), json!({"fencing_token": ""}));
}

#[test]
fn a_batch_that_is_sent_again_under_its_key_is_stored_once() {
    let star = Star::start();
    let path = records_of("a");
    let send = |key: &str, body: &[u8]| {
        let headers = format!("content-type: application/octet-stream\r\nidempotency-key: {key}\r\n");
        star.http.ask_with("POST", &path, &headers, body)
    };
    let first = send("order-17", b"x");
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(send("order-17", b"x").json(), first.json());
    let uuid = "0198c3b4-7d4e-7a7e-8000-000000000001";
    assert_eq!(send(uuid, b"y").json()["end"]["seq_num"], 2);
    assert_eq!(send(&uuid.to_uppercase(), b"y").json()["end"]["seq_num"], 2);
    let other = send("order-17", b"other");
    assert!(other.status >= 400, "{}", other.text());
    refused(&send(&"k".repeat(256), b"x"), 400, "invalid", &["256 bytes", "1 to 255"]);
    assert_eq!(bodies(&star.got(&path)), ["x", "y"]);
}

#[test]
fn keys_are_decoded_exactly_once_and_never_parsed() {
    let star = Star::start();
    let keys = [
        ("a%2Fb", "a/b"),
        ("a%252Fb", "a%2Fb"),
        ("%2E%2E", ".."),
        ("a%20+b", "a +b"),
        ("%C3%A4", "ä"),
        ("x%3Fy%23", "x?y#"),
    ];
    for (written, key) in keys {
        star.append(written, &[key]);
        assert_eq!(star.got(&stream(written))["key"], key);
    }
    tests::within(60, async {
        let client = star.novad.client();
        for (_, key) in keys {
            let page = client.read(&tests::at(key), client::ReadOptions::default()).await.unwrap();
            assert_eq!(text(&page.records[0]), key);
        }
    });
}
