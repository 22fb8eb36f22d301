//! What lies in the store of a star, be that a directory or a bucket, and how is it taken out behind nova's back?

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use crate::combination::{ANSWER_MAX, S3_BUCKET, prefix_of, s3_server};
use crate::store::objects;

/// The server of the tests deletes for whoever has a name, and looks at no signature.
const NOBODY: &str =
    "AWS4-HMAC-SHA256 Credential=test/20000101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

/// The store of a star that was told of none.
#[derive(Debug)]
pub enum Stored {
    /// A directory.
    Directory(PathBuf),
    /// A prefix of the bucket of an S3 server.
    S3 {
        /// Its host and port.
        server: String,
        /// What names begin with, a slash at its end.
        prefix: String,
    },
}

impl Stored {
    /// That of the star on a data directory.
    #[must_use]
    pub fn of(data: &Path) -> Self {
        match s3_server() {
            Some(server) => Self::S3 { server, prefix: format!("{}/", prefix_of(data)) },
            None => Self::Directory(data.join("store")),
        }
    }

    /// The names of the objects that begin so, in order.
    ///
    /// # Panics
    /// When the store can't be read.
    #[must_use]
    pub fn names(&self, below: &str) -> Vec<String> {
        let mut names: Vec<String> = match self {
            Self::Directory(root) => {
                let name = |path: PathBuf| path.with_extension("").display().to_string();
                objects(root).into_iter().map(name).collect()
            }
            Self::S3 { server, prefix } => listed(server, prefix, below),
        };
        names.retain(|name| name.starts_with(below));
        names
    }

    /// Removes an object.
    ///
    /// # Panics
    /// When it can't be.
    pub fn remove(&self, name: &str) {
        match self {
            Self::Directory(root) => std::fs::remove_file(root.join(format!("{name}.obj"))).expect("an object"),
            Self::S3 { server, prefix } => drop(ask(server, "DELETE", &format!("/{S3_BUCKET}/{prefix}{name}"))),
        }
    }
}

/// By pages of what the server likes.
fn listed(server: &str, prefix: &str, below: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    loop {
        let after = names.last().map_or_else(String::new, |name| format!("&start-after={prefix}{name}"));
        let answer = ask(server, "GET", &format!("/{S3_BUCKET}?list-type=2&prefix={prefix}{below}{after}"));
        let keys = answer.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
        names.extend(keys.filter_map(|key| key.strip_prefix(prefix)).map(str::to_owned));
        if !answer.contains("<IsTruncated>true") {
            return names;
        }
    }
}

fn ask(server: &str, method: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(server).expect("the S3 server");
    socket.set_read_timeout(Some(ANSWER_MAX)).expect("a timeout");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nAuthorization: {NOBODY}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).expect("a request is sent");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 2") || answer.starts_with("HTTP/1.0 2"), "{answer}");
    answer
}
