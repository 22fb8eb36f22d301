//! Which star do the tests of HTTP ask?

use serde_json::{Value, json};
use tests::{Http, Novad, Reply, Scratch, class_name};

/// A star that serves HTTP, with a bucket of streams made on append.
pub(crate) struct Star {
    pub(crate) novad: Novad,
    pub(crate) http: Http,
    /// Removed last.
    pub(crate) scratch: Scratch,
}

impl Star {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(args: &[&str]) -> Self {
        let scratch = Scratch::new();
        let args = [&["--http", "127.0.0.1:0", "--shards", "2"], args].concat();
        let novad = Novad::start(&scratch.join("data"), &args);
        let star = Self { http: Http::of(novad.http()), novad, scratch };
        let body = json!({"create_stream_on_append": true, "default_class": class_name()});
        assert_eq!(star.http.json("PUT", "/v1/buckets/demo", &body).status, 200);
        star
    }

    /// Appends bodies to a stream of the bucket.
    pub(crate) fn append(&self, key: &str, bodies: &[&str]) -> Value {
        let records: Vec<Value> = bodies.iter().map(|body| json!({"body": body})).collect();
        let reply = self.http.json("POST", &records_of(key), &json!({"records": records}));
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// The answer, which must be yes.
    pub(crate) fn got(&self, path: &str) -> Value {
        let reply = self.http.get(path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    }
}

pub(crate) fn stream(key: &str) -> String {
    format!("/v1/buckets/demo/streams/{key}")
}

pub(crate) fn records_of(key: &str) -> String {
    format!("{}/records", stream(key))
}

/// The answer must be no, with this status and code, and say these words.
#[track_caller]
pub(crate) fn refused(reply: &Reply, status: u16, code: &str, says: &[&str]) -> Value {
    let told = reply.json();
    assert_eq!((reply.status, &told["code"]), (status, &json!(code)), "{told}");
    let message = told["message"].as_str().expect("a sentence");
    for words in says {
        assert!(message.contains(words), "no '{words}' in: {message}");
    }
    assert!(told["retryable"].is_boolean() && told["no_side_effect"].is_boolean(), "{told}");
    assert_eq!(told["request_id"].as_str(), reply.header("x-request-id"), "{told}");
    told
}

/// The bodies of a page.
pub(crate) fn bodies(page: &Value) -> Vec<String> {
    let records = page["records"].as_array().expect("records");
    records.iter().map(|record| record["body"].as_str().expect("a body").to_owned()).collect()
}
