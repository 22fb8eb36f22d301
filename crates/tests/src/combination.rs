//! Which class do the streams of tests have, and where do their stars keep what is settled?
//!
//! `NOVA_TEST_CLASS` is `express` (the default) or `standard`. `NOVA_TEST_STORE` is `directory` (the default) or `s3`, which
//! is the server at `NOVA_TEST_S3_ENDPOINT`, with the credentials of the tests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use client::Class;

/// The bucket of the S3 server that the tests use.
pub(crate) const S3_BUCKET: &str = "nova-test";
/// An answer of the S3 server takes at most so long.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);

/// What one run of the tests is about.
#[derive(Debug)]
struct Combination {
    class: Class,
    /// The S3 server, `http://` and all; none for a directory.
    endpoint: Option<String>,
}

fn chosen() -> &'static Combination {
    static CHOSEN: OnceLock<Combination> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let class = match variable("NOVA_TEST_CLASS").as_deref() {
            None | Some("express") => Class::Express,
            Some("standard") => Class::Standard,
            Some(other) => panic!("NOVA_TEST_CLASS is `{other}`: it must be express or standard"),
        };
        let endpoint = match variable("NOVA_TEST_STORE").as_deref() {
            None | Some("directory") => None,
            Some("s3") => {
                let endpoint = variable("NOVA_TEST_S3_ENDPOINT");
                Some(endpoint.expect("NOVA_TEST_S3_ENDPOINT, the URL of an S3 server for tests"))
            }
            Some(other) => panic!("NOVA_TEST_STORE is `{other}`: it must be directory or s3"),
        };
        eprintln!("stars of {class} streams over {}", endpoint.as_deref().unwrap_or("a directory"));
        endpoint.iter().for_each(|endpoint| make_bucket(endpoint));
        Combination { class, endpoint }
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The class of the streams that tests write.
#[must_use]
pub fn class() -> Class {
    chosen().class
}

/// The same, as the command line names it.
#[must_use]
pub fn class_name() -> &'static str {
    match class() {
        Class::Express => "express",
        Class::Standard => "standard",
    }
}

/// The class that tests do not write, as the command line names it.
#[must_use]
pub fn other_class_name() -> &'static str {
    match class() {
        Class::Express => "standard",
        Class::Standard => "express",
    }
}

/// Whether a test that is about streams of this class runs; says so where it does not.
#[must_use]
pub fn is_about(wanted: Class) -> bool {
    let is_so = class() == wanted;
    if !is_so {
        eprintln!("skipped: it is about {wanted} streams");
    }
    is_so
}

/// Whether a test that looks into a store directory runs; says so where it does not.
#[must_use]
pub fn is_on_a_directory() -> bool {
    let is_so = chosen().endpoint.is_none();
    if !is_so {
        eprintln!("skipped: it is about a store in a directory");
    }
    is_so
}

/// The S3 server under test, as host and port; none when the store is a directory.
///
/// # Panics
/// When what was said is no `http://host:port`.
#[must_use]
pub fn s3_server() -> Option<String> {
    let endpoint = chosen().endpoint.as_deref()?;
    let server = endpoint.strip_prefix("http://").expect("an S3 server for tests speaks plain HTTP");
    Some(server.trim_end_matches('/').to_owned())
}

/// How much a load comes to, at least, that comes to `full` where an ack is a write to the disk; less where each waits for a
/// store on S3.
#[must_use]
pub fn load_of(full: usize) -> usize {
    if class() == Class::Standard && s3_server().is_some() { full / 10 } else { full }
}

/// Where in the bucket the store of a data directory lies.
pub(crate) fn prefix_of(data: &Path) -> String {
    let parts = data.components().map(|part| part.as_os_str().to_string_lossy());
    let parts: Vec<_> = parts.map(|part| part.trim_matches('/').to_owned()).filter(|part| !part.is_empty()).collect();
    parts.join("/")
}

/// Gives a `novad` on `data` the store that was chosen: the same at each of its starts, and no other data directory's.
pub(crate) fn store_of(data: &Path, command: &mut Command) {
    let Some(endpoint) = chosen().endpoint.as_deref() else { return };
    command.env("NOVA_STORE", format!("s3://{S3_BUCKET}/{}", prefix_of(data)));
    command.env("NOVA_S3_ENDPOINT", endpoint).env("NOVA_S3_REGION", "us-east-1");
    command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
}

/// A bucket that is there already is as good; without one each start says so.
fn make_bucket(endpoint: &str) {
    let server = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let mut socket = TcpStream::connect(server).unwrap_or_else(|error| panic!("{endpoint}: {error}"));
    socket.set_read_timeout(Some(ANSWER_MAX)).expect("a timeout");
    let request =
        format!("PUT /{S3_BUCKET} HTTP/1.1\r\nHost: {server}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).expect("a request is sent");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("an answer");
}
