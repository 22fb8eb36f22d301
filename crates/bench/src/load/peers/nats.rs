//! NATS JetStream: `PUB` with a reply address, over its line protocol.

use std::io::{self, Read, Write};

use super::super::Load;
use super::{Answer, Heard, asked, line, unheard};
use crate::error::BenchError;

/// Where acks come back to; each connection has its own, for each subscribes by itself.
const INBOX: &str = "_INBOX.novabench";
const CONNECT: &[u8] = b"CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"nova-bench\",\"headers\":true}\r\n";

/// Says who it is, and subscribes to the acks of this connection alone.
pub(super) fn greet(stream: &mut (impl Read + Write), inbox: u64) -> io::Result<()> {
    let mut byte = [0];
    // The server speaks first, one line.
    while byte[0] != b'\n' {
        stream.read_exact(&mut byte)?;
    }
    stream.write_all(CONNECT)?;
    stream.write_all(format!("SUB {INBOX}.{inbox:016x}.* 1\r\n").as_bytes())
}

/// Writes a `PUB` a record, and answers how many answers are due.
pub(super) fn put(key: &str, (inbox, no): (u64, u64), bodies: &[Vec<u8>], out: &mut Vec<u8>) -> u32 {
    for body in bodies {
        out.extend_from_slice(format!("PUB {key} {INBOX}.{inbox:016x}.{no} {}\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
        out.extend_from_slice(b"\r\n");
    }
    u32::try_from(bodies.len()).unwrap_or(u32::MAX)
}

/// A `MSG` to the inbox is an ack, or says what is wrong in its JSON; its address ends in the number of the append.
pub(super) fn hear(bytes: &[u8]) -> Result<Heard, BenchError> {
    let Some((end, said)) = line(bytes) else { return Ok(Heard::Part) };
    let said = String::from_utf8_lossy(said);
    let mut words = said.split_ascii_whitespace();
    match words.next() {
        Some("PING") => Ok(Heard::Aside { bytes: end, back: b"PONG\r\n" }),
        Some("PONG" | "+OK" | "INFO") => Ok(Heard::Aside { bytes: end, back: b"" }),
        Some(kind @ ("MSG" | "HMSG")) => {
            let address = words.next().unwrap_or_default();
            let length: Option<usize> = words.next_back().and_then(|length| length.parse().ok());
            let whole = end + length.ok_or_else(|| unheard("an answer of NATS", bytes))? + 2;
            if bytes.len() < whole {
                return Ok(Heard::Part);
            }
            let body = String::from_utf8_lossy(&bytes[end..whole - 2]).into_owned();
            // A message with headers is a status, such as that nobody listens.
            let is_stored = kind == "MSG" && body.contains("\"seq\"") && !body.contains("\"error\"");
            let of = if is_stored { Answer::Stored } else { Answer::Refused(body) };
            let no = address.rsplit('.').next().and_then(|no| no.parse().ok());
            Ok(Heard::Answer { bytes: whole, no, of })
        }
        _ => Err(unheard("an answer of NATS", bytes)),
    }
}

/// Makes a JetStream stream, kept in files, for each stream of the load.
pub(super) fn prepare(load: &Load) -> Result<String, BenchError> {
    let mut said = String::new();
    for place in 0..load.places.active() {
        let key = load.places.key(load.places.active_at(place));
        let body = format!("{{\"name\":\"{key}\",\"subjects\":[\"{key}\"],\"storage\":\"file\",\"num_replicas\":1}}");
        let mut request = CONNECT.to_vec();
        let (subject, length) = (format!("$JS.API.STREAM.CREATE.{key}"), body.len());
        request.extend_from_slice(
            format!("SUB {INBOX}.made 1\r\nPUB {subject} {INBOX}.made {length}\r\n{body}\r\n").as_bytes(),
        );
        let answer = asked(&load.addr, &request, |answer| {
            let text = String::from_utf8_lossy(answer);
            text.contains("MSG ") && text.trim_end().ends_with('}') && text.ends_with("\r\n")
        })?;
        let text = String::from_utf8_lossy(&answer);
        if text.contains("\"error\"") && !text.contains("already in use") {
            return Err(unheard("making a stream of JetStream", text.as_bytes()));
        }
        said = "file storage; how often it syncs is in the server's own file (sync_interval)".to_owned();
    }
    Ok(said)
}
