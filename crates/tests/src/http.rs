//! How do tests speak HTTP, byte by byte where it must be?

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer takes at most so long.
const ANSWER_MAX: Duration = Duration::from_secs(40);

/// Where HTTP is served.
#[derive(Debug, Clone, Copy)]
pub struct Http {
    addr: SocketAddr,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its headers, the names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body, whole.
    pub body: Vec<u8>,
}

impl Reply {
    /// A header, if it is there.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// An event of an event stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Its kind; empty for a record.
    pub kind: String,
    /// Its id.
    pub id: String,
    /// What it carries.
    pub data: String,
    /// What stands in comments.
    pub comment: String,
}

impl Http {
    /// Of this address.
    #[must_use]
    pub fn of(addr: SocketAddr) -> Self {
        Self { addr }
    }

    /// A connection.
    ///
    /// # Panics
    /// When there is none to be had.
    #[must_use]
    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.addr).expect("a connection");
        socket.set_read_timeout(Some(ANSWER_MAX)).expect("a socket");
        socket.set_write_timeout(Some(ANSWER_MAX)).expect("a socket");
        socket
    }

    /// Asks with a body of a kind, none when both are empty.
    ///
    /// # Panics
    /// When no answer comes.
    #[must_use]
    pub fn ask(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Reply {
        let kind = if kind.is_empty() { String::new() } else { format!("content-type: {kind}\r\n") };
        self.ask_with(method, path, &kind, body)
    }

    /// Asks with these lines of headers.
    ///
    /// # Panics
    /// When no answer comes.
    #[must_use]
    pub fn ask_with(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}", self.addr).into_bytes();
        if !body.is_empty() || !matches!(method, "GET" | "DELETE") {
            request.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        self.raw(&request)
    }

    /// Gets a path.
    #[must_use]
    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "", b"")
    }

    /// Posts, puts or patches JSON.
    #[must_use]
    pub fn json(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.ask(method, path, "application/json", body.to_string().as_bytes())
    }

    /// Sends these bytes and reads one answer.
    ///
    /// # Panics
    /// When no answer comes.
    #[must_use]
    pub fn raw(&self, request: &[u8]) -> Reply {
        let mut socket = self.connect();
        // An answer may come before all is written, and end the writing.
        let _written = socket.write_all(request);
        reply(&mut BufReader::new(socket)).expect("an answer")
    }

    /// Follows a stream of events.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn events(&self, path: &str, headers: &str) -> Events {
        let mut socket = self.connect();
        let request = format!("GET {path} HTTP/1.1\r\nhost: nova\r\naccept: text/event-stream\r\n{headers}\r\n");
        socket.write_all(request.as_bytes()).expect("a request");
        let mut input = BufReader::new(socket);
        let (status, headers) = head(&mut input).expect("an answer");
        assert_eq!(status, 200, "{headers:?}");
        Events { headers, input, chunk: Vec::new() }
    }
}

/// A stream of events.
#[derive(Debug)]
pub struct Events {
    headers: Vec<(String, String)>,
    input: BufReader<TcpStream>,
    chunk: Vec<u8>,
}

impl Events {
    /// A header of the answer.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The next event that carries something; none at the end.
    ///
    /// # Panics
    /// When nothing comes in time.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            let event = self.next_block()?;
            if !event.data.is_empty() {
                return Some(event);
            }
        }
    }

    /// What stands up to the next empty line, comments too; none at the end.
    ///
    /// # Panics
    /// When nothing comes in time.
    pub fn next_block(&mut self) -> Option<Event> {
        let end = loop {
            if let Some(at) = self.chunk.windows(2).position(|pair| pair == b"\n\n") {
                break at;
            }
            let more = chunk(&mut self.input).expect("a piece of the stream");
            if more.is_empty() {
                return None;
            }
            self.chunk.extend_from_slice(&more);
        };
        let block: Vec<u8> = self.chunk.drain(..end + 2).collect();
        let mut event = Event::default();
        for line in String::from_utf8(block).expect("text").lines() {
            match line.split_once(": ") {
                Some(("event", kind)) => kind.clone_into(&mut event.kind),
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("data", data)) => data.clone_into(&mut event.data),
                Some(("", comment)) => comment.clone_into(&mut event.comment),
                _ => {}
            }
        }
        Some(event)
    }
}

/// Reads one answer off a connection.
///
/// # Errors
/// When it breaks off.
pub fn reply(input: &mut BufReader<TcpStream>) -> io::Result<Reply> {
    let (status, headers) = head(input)?;
    let header = |name: &str| headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
    let mut body = Vec::new();
    if header("transfer-encoding") == Some("chunked") {
        loop {
            let piece = chunk(input)?;
            if piece.is_empty() {
                break;
            }
            body.extend_from_slice(&piece);
        }
    } else if let Some(bytes) = header("content-length").and_then(|text| text.parse().ok()) {
        body = vec![0; bytes];
        input.read_exact(&mut body)?;
    }
    Ok(Reply { status, headers, body })
}

type Head = (u16, Vec<(String, String)>);

fn head(input: &mut impl BufRead) -> io::Result<Head> {
    let status_line = line(input)?;
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no status in '{status_line}'")))?;
    let mut headers = Vec::new();
    loop {
        let line = line(input)?;
        match line.split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => return Ok((status, headers)),
        }
    }
}

fn line(input: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

/// A piece of a body; empty at its end.
fn chunk(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let size = line(input)?;
    let bytes = usize::from_str_radix(&size, 16).map_err(|_| io::Error::other(format!("no size in '{size}'")))?;
    let mut piece = vec![0; bytes];
    input.read_exact(&mut piece)?;
    line(input)?;
    Ok(piece)
}
