//! Redis Streams: `XADD`, over RESP.

use super::{Answer, Heard, asked, line, unheard};
use crate::error::BenchError;

/// Writes an `XADD` a record, and answers how many answers are due.
pub(super) fn put(key: &str, bodies: &[Vec<u8>], out: &mut Vec<u8>) -> u32 {
    for body in bodies {
        out.extend_from_slice(b"*5\r\n");
        for word in [b"XADD".as_slice(), key.as_bytes(), b"*", b"f", body] {
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
    }
    u32::try_from(bodies.len()).unwrap_or(u32::MAX)
}

/// A bulk string is the id of a record; a line that begins with `-` an error.
pub(super) fn hear(bytes: &[u8]) -> Result<Heard, BenchError> {
    let Some((end, said)) = line(bytes) else { return Ok(Heard::Part) };
    match said.split_first() {
        Some((b'-', why)) => {
            Ok(Heard::Answer { bytes: end, no: None, of: Answer::Refused(String::from_utf8_lossy(why).into_owned()) })
        }
        Some((b'$', length)) => {
            let length: Option<usize> = std::str::from_utf8(length).ok().and_then(|text| text.parse().ok());
            let whole = end + length.ok_or_else(|| unheard("an answer of Redis", bytes))? + 2;
            Ok(if bytes.len() < whole {
                Heard::Part
            } else {
                Heard::Answer { bytes: whole, no: None, of: Answer::Stored }
            })
        }
        _ => Err(unheard("an answer of Redis", bytes)),
    }
}

/// What Redis says of its own durability.
pub(super) fn prepare(addr: &str) -> Result<String, BenchError> {
    let request = b"*4\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$10\r\nappendonly\r\n$11\r\nappendfsync\r\n";
    let lines = |answer: &[u8]| answer.windows(2).filter(|pair| *pair == b"\r\n").count();
    let answer = asked(addr, request, |answer| lines(answer) >= 9 || answer.starts_with(b"-"))?;
    let text = String::from_utf8_lossy(&answer);
    let words: Vec<_> = text.split("\r\n").filter(|word| !word.is_empty() && !word.starts_with(['*', '$'])).collect();
    Ok(words.join(" "))
}
