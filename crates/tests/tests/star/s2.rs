//! Do the other surfaces see sane streams when S2's clients write, and the other way round, also after a kill?

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use client::{Address, FencingToken, ReadOptions, Reason, SeqNum};
use serde_json::{Value, json};
use tests::{Novad, Scratch, class_name, within};

/// All that the star answers to one request of an S2 client.
fn exchange(at: SocketAddr, head: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(at).expect("the façade listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let bytes = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: s2\r\ns2-basin: basin-of-tests\r\ncontent-type: {content_type}\r\n\
         content-length: {bytes}\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(&[request.as_bytes(), body].concat()).expect("it takes the request");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("it answers");
    answer
}

/// The star's answer to one request of an S2 client: its status and its body.
fn ask(at: SocketAddr, head: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = exchange(at, head, "application/json", body.as_bytes());
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn command(name: &str, body: &str) -> Value {
    json!({ "headers": [["", name]], "body": body })
}

#[test]
fn commands_of_s2_have_their_effect_on_every_surface_and_keep_it_after_a_kill() {
    let scratch = Scratch::new();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let mut novad = Novad::start(&scratch.join("data"), &["--s2", &port.to_string()]);
    let config = json!({ "basin": "basin-of-tests", "config": { "create_stream_on_append": true,
        "default_stream_config": { "storage_class": class_name() } } });
    assert_eq!(ask(port, "POST /v1/basins", &config).0, 201);
    let append = |records: Value| ask(port, "POST /v1/streams/a%2Fb/records", &records);
    let (status, ack) = append(json!({ "records": [{ "body": "one" }, { "body": "two" }], "match_seq_num": 0 }));
    assert_eq!((status, &ack["end"]["seq_num"]), (200, &json!(2)));
    assert_eq!(append(json!({ "records": [command("fence", "gen-1")] })).1["start"]["seq_num"], 2);
    assert_eq!(append(json!({ "records": [command("trim", "\0\0\0\0\0\0\0\u{1}")] })).1["start"]["seq_num"], 3);
    let refused = append(json!({ "records": [{ "body": "x" }], "fencing_token": "gen-0" }));
    assert_eq!(refused, (412, json!({ "fencing_token_mismatch": "gen-1" })));
    novad.kill9();
    novad.restart();

    within(60, async {
        let address: Address = "nova://basin-of-tests/a/b".parse().expect("an address");
        let client = novad.client();
        assert_eq!(client.fencing_token(&address).await.expect("a token").as_str(), "gen-1");
        let trimmed = client.read(&address, ReadOptions::from(0)).await.expect_err("it was trimmed");
        assert_eq!((trimmed.reason(), trimmed.trim_point()), (Reason::Trimmed, Some(SeqNum::new(1))));
        let page = client.read(&address, ReadOptions::from(1)).await.expect("a page");
        let bodies: Vec<&[u8]> = page.records.iter().map(|record| &record.body[..]).collect();
        assert_eq!(bodies, [&b"two"[..], b"gen-1", &1_u64.to_be_bytes()]);
        assert_eq!(page.records[1].headers, [("s2-command".into(), "fence".into())]);
        client.fence(&address, &FencingToken::new("gen-2").expect("a token")).await.expect("a fence");
        client.append(&address, ["native"]).await.expect("an append");
    });

    let refused = append(json!({ "records": [{ "body": "x" }], "fencing_token": "gen-1" }));
    assert_eq!(refused, (412, json!({ "fencing_token_mismatch": "gen-2" })));
    let (status, read) = ask(port, "GET /v1/streams/a%2Fb/records?seq_num=0", &Value::Null);
    assert_eq!(status, 200);
    assert_eq!(read["records"][0]["body"], "two");
    assert_eq!(read["records"][1]["headers"], json!([["", "fence"]]));
    assert_eq!(read["records"][3]["body"], "native");
    assert_eq!(ask(port, "GET /v1/streams/a%2Fb/records?seq_num=5", &Value::Null).1["tail"]["seq_num"], 5);
    assert_eq!(ask(port, "GET /v1/streams/none/records/tail", &Value::Null).1["code"], "stream_not_found");
}

#[test]
fn what_is_wrong_with_a_request_of_s2_is_told_by_its_codes() {
    let scratch = Scratch::new();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let _novad = Novad::start(&scratch.join("data"), &["--s2", &port.to_string()]);
    let basin = json!({ "basin": "basin-of-tests" });
    assert_eq!(ask(port, "POST /v1/basins", &basin).0, 201);
    assert_eq!(ask(port, "POST /v1/streams", &json!({ "stream": "s" })).0, 201);
    let records = "/v1/streams/s/records";
    let deep = Value::String("[".repeat(50_000));
    for (status, code, head, body) in [
        (409, "resource_already_exists", "POST /v1/basins".to_owned(), basin),
        (400, "bad_json", "POST /v1/basins".to_owned(), deep),
        (422, "invalid", format!("POST {records}"), json!({ "records": [] })),
        (422, "invalid", format!("POST {records}"), json!({ "records": [command("jump", "")] })),
        (400, "bad_query", format!("GET {records}?seq_num=-1"), Value::Null),
        (422, "invalid", format!("GET {records}?seq_num=1&timestamp=2"), Value::Null),
        (404, "stream_not_found", "GET /v1/streams/other".to_owned(), Value::Null),
        (400, "bad_path", "GET /v1/streams/%00".to_owned(), Value::Null),
        (404, "basin_not_found", "DELETE /v1/basins/no-such-basin".to_owned(), Value::Null),
        (501, "not_implemented", "GET /v1/access-tokens".to_owned(), Value::Null),
    ] {
        let (found, body) = ask(port, &head, &body);
        assert_eq!((found, &body["code"]), (status, &json!(code)), "{head}: {body}");
        assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
    }
    assert_eq!(ask(port, &format!("GET {records}?seq_num=0"), &Value::Null).0, 416);
    assert_eq!(ask(port, "GET /nothing", &Value::Null), (404, Value::Null));
    assert_eq!(ask(port, &format!("PUT {records}"), &Value::Null).0, 405);
}

#[test]
fn a_session_of_s2_acks_its_batches_and_ends_at_the_one_with_too_many_records() {
    let scratch = Scratch::new();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let _novad = Novad::start(&scratch.join("data"), &["--s2", &port.to_string()]);
    let config = json!({ "basin": "basin-of-tests", "config": { "create_stream_on_append": true,
        "default_stream_config": { "storage_class": class_name() } } });
    assert_eq!(ask(port, "POST /v1/basins", &config).0, 201);
    let records = "POST /v1/streams/s/records";
    let frame = |records: usize| {
        let length = u16::try_from(1 + 2 * records).expect("a length").to_be_bytes();
        [&[0], &length[..], &[0], &[0x0a, 0].repeat(records)].concat()
    };
    let session = [frame(2), frame(1_000), frame(1_001), frame(1)].concat();
    let answer = exchange(port, records, "s2s/proto", &session);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("over 1000 records"), "{answer}");
    assert_eq!(ask(port, "GET /v1/streams/s/records/tail", &Value::Null).1["tail"]["seq_num"], 1_002);

    let refused = exchange(port, records, "application/protobuf", &[0x0a, 0].repeat(4 << 20));
    let refused = String::from_utf8_lossy(&refused);
    assert!(refused.starts_with("HTTP/1.1 422") && refused.contains("over 1000 records"), "{refused}");
}
