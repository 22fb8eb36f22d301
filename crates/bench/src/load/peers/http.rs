//! s2-lite: a `POST` of records as JSON, over HTTP/1.1.

use std::fmt::Write as _;

use super::super::Load;
use super::{Answer, Heard, asked, line, unheard};
use crate::error::BenchError;

/// The basin of the streams.
const BASIN: &str = "nova-bench";

fn request(method: &str, addr: &str, path: &str, body: &str) -> String {
    format!(
        "{method} /v1{path} HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer bench\r\ns2-basin: {BASIN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Writes one request with all records; one answer is due.
pub(super) fn put(addr: &str, key: &str, bodies: &[Vec<u8>], out: &mut Vec<u8>) -> u32 {
    let mut body = "{\"records\":[".to_owned();
    for (at, record) in bodies.iter().enumerate() {
        // Bodies are letters and digits, which JSON takes as they are.
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(body, "{comma}{{\"body\":\"{}\"}}", String::from_utf8_lossy(record));
    }
    body.push_str("]}");
    out.extend_from_slice(request("POST", addr, &format!("/streams/{key}/records"), &body).as_bytes());
    1
}

/// A whole response: a status line, headers, and a body of the length that they say or in chunks.
pub(super) fn hear(bytes: &[u8]) -> Result<Heard, BenchError> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(Heard::Part) };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let status = text.split_ascii_whitespace().nth(1).unwrap_or_default().to_owned();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let body = head + 4;
    let whole = match length {
        Some(length) => (bytes.len() >= body + length).then_some(body + length),
        None if text.contains("transfer-encoding: chunked") => chunks_end(bytes, body),
        None => Some(body),
    };
    let Some(whole) = whole else { return Ok(Heard::Part) };
    if !text.starts_with("http/1.1 ") {
        return Err(unheard("an answer of s2-lite", bytes));
    }
    let of = if status.starts_with('2') {
        Answer::Stored
    } else {
        Answer::Refused(format!("{status}: {}", String::from_utf8_lossy(&bytes[body..whole])))
    };
    Ok(Heard::Answer { bytes: whole, no: None, of })
}

/// Where a body in chunks ends; `None` when not all of it is there.
fn chunks_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let (head, said) = line(&bytes[at..])?;
        let said = std::str::from_utf8(said).ok()?;
        let length = usize::from_str_radix(said.split(';').next()?.trim(), 16).ok()?;
        at += head + length + 2;
        if bytes.len() < at {
            return None;
        }
        if length == 0 {
            return Some(at);
        }
    }
}

/// Makes the basin and the streams.
pub(super) fn prepare(load: &Load) -> Result<String, BenchError> {
    let ask = |path: &str, body: &str| {
        let request = request("POST", &load.addr, path, body);
        let answer = asked(&load.addr, request.as_bytes(), |answer| !matches!(hear(answer), Ok(Heard::Part)))?;
        match hear(&answer)? {
            // What is there already is as good.
            Heard::Answer { of: Answer::Refused(why), .. } if !why.starts_with("409") => {
                Err(unheard("making a stream of s2-lite", why.as_bytes()))
            }
            _ => Ok(()),
        }
    };
    ask("/basins", &format!("{{\"basin\":\"{BASIN}\"}}"))?;
    for place in 0..load.places.active() {
        let key = load.places.key(load.places.active_at(place));
        ask("/streams", &format!("{{\"stream\":\"{key}\"}}"))?;
    }
    // There is nothing that it could be asked.
    Ok("nothing; what an ack is worth depends on how it was started: with --local-root or a bucket it comes after the store's put, \
        without them it stands for memory alone"
        .to_owned())
}
