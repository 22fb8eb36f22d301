//! Does a star keep what it must not tell to itself, however much it is asked to say?

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use client::Reason;
use serde_json::json;
use tests::{Http, Novad, Scratch, at, eventually, s3_server, within};

/// None of these may be found in what a star says.
const KEY: &str = "planted-secret-key-of-the-store";
const SESSION: &str = "planted-session-token-of-the-store";
const BEARER: &str = "planted-bearer-of-a-client";
const BODY: &str = "planted-body-of-a-record";
const HEADER: &str = "planted-header-of-a-record";
const SECRETS: [&str; 5] = [KEY, SESSION, BEARER, BODY, HEADER];
/// What may be told, and is where a request is told of at all.
const KEY_ID: &str = "PLANTEDKEYID";
const SOON: Duration = Duration::from_secs(30);

/// A store that answers each request as one that knows no such key, with all of the request in its answer.
fn forbidding() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || refuse_all(&socket));
        }
    });
    endpoint
}

fn refuse_all(socket: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(socket.try_clone().ok()?).lines();
    loop {
        let mut head = String::new();
        loop {
            let line = lines.next()?.ok()?;
            if line.is_empty() {
                break;
            }
            head.push_str(&line);
        }
        let echo = head.replace(['<', '&'], "");
        let body = format!("<Error><Code>InvalidAccessKeyId</Code><Message>{echo}</Message></Error>");
        let answer = format!("HTTP/1.1 403 Forbidden\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let mut socket = socket;
        socket.write_all(answer.as_bytes()).ok()?;
    }
}

/// What was said holds none of the secrets.
fn check(said: &str, who: &str) {
    for secret in SECRETS {
        let line = said.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{who} tells '{secret}': {line:?}");
    }
}

#[test]
fn a_store_that_refuses_a_key_is_told_of_without_it() {
    let scratch = Scratch::new();
    let data = scratch.join("data");
    let mut command = Novad::command(&data);
    command.args(["--listen", "127.0.0.1:0", "--store", "s3://bucket/prefix", "--s3-endpoint", &forbidding()]);
    command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", KEY).env("AWS_SESSION_TOKEN", SESSION);
    command.env("NOVA_LOG", "trace");
    let mut novad = Novad::unstarted(&data, &[]);
    let said = match novad.launch_as(&mut command) {
        Ok(()) => {
            within(60, async {
                let is_told = async || novad.log().contains("InvalidAccessKeyId");
                eventually(SOON, "the refusal is told", is_told).await;
            });
            novad.log()
        }
        Err(ended) => ended.log,
    };
    assert!(said.contains("403") || said.contains("InvalidAccessKeyId"), "it says what is wrong: {said}");
    check(&said, "novad");
}

#[test]
fn what_clients_send_is_in_no_log_no_metric_and_no_refusal_of_others() {
    let scratch = Scratch::new();
    let data = scratch.join("data");
    let mut command = Novad::command(&data);
    command.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--s2", "127.0.0.1:0"]);
    command.env("NOVA_LOG", "trace");
    if s3_server().is_none() {
        command.env("AWS_SECRET_ACCESS_KEY", KEY).env("AWS_SESSION_TOKEN", SESSION);
    }
    let mut novad = Novad::unstarted(&data, &[]);
    novad.launch_as(&mut command).unwrap_or_else(|ended| panic!("{}", ended.log));
    let mut told = String::new();
    within(60, async {
        let client = novad.client_with_bucket().await;
        let record = || client::AppendRecord::from(BODY).header("name", HEADER);
        client.append(&at("kept"), [record()]).await.expect("an ack");
        let with = client::OneShot { match_seq_num: Some(client::SeqNum::new(9)), ..client::OneShot::default() };
        let missed = client.append_with(&at("kept"), with, [record()]).await.expect_err("the tail is 1");
        assert_eq!(missed.reason(), Reason::SequenceMismatch);
        told.push_str(missed.message());
    });
    let http = Http::of(novad.http());
    let bearer = format!("authorization: Bearer {BEARER}\r\ncontent-type: application/json\r\n");
    let body = json!({"records": [{"body": BODY}], "unknown": 1}).to_string();
    let records = "/v1/buckets/demo/streams/kept/records";
    for reply in [
        http.ask_with("POST", records, &bearer, body.as_bytes()),
        http.ask_with("GET", "/v1/nowhere", &bearer, b""),
        http.ask_with("GET", "/metrics?streams=true", &bearer, b""),
        http.ask_with("GET", "/readyz", &bearer, b""),
    ] {
        told.push_str(&reply.text());
    }
    check(&told, "an answer");
    check(&novad.log(), "novad");
    assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
    check(&novad.log(), "novad at its end");
    eprintln!("check 25: {} planted secrets looked for", SECRETS.len());
}
