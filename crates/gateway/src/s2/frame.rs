//! How are the messages of a session framed, compressed and told apart?
//!
//! A frame: its length without these three bytes (u24, big-endian), flags (128 terminal, 32 zstd, 64 gzip, 16 reconnect
//! advised), then a message; or, in a terminal frame, a status (u16, big-endian) and the body of the failure.

use std::io::{self, Read, Write};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

use super::failure::{Code, Failure, Result};

/// Longest frame after its length, and longest message in it once it is unpacked, in bytes.
pub(super) const FRAME_BYTES_MAX: usize = 2 << 20;
/// Shorter messages are sent as they are.
pub(super) const COMPRESSED_BYTES_MIN: usize = 1 << 10;

const LENGTH_BYTES: usize = 3;
const TERMINAL: u8 = 0x80;
const CODING: u8 = 0x60;
const ZSTD: u8 = 0x20;
const GZIP: u8 = 0x40;
const RECONNECT: u8 = 0x10;

/// How bytes are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Plain,
    Zstd,
    Gzip,
}

impl Coding {
    /// The one that a client accepts and that packs best.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let offers = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let mut best = Self::Plain;
        for offer in offers.flat_map(|value| value.split(',')) {
            let mut parts = offer.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let refused = parts.filter_map(|part| part.strip_prefix("q=")).any(|q| q.parse::<f32>() == Ok(0.0));
            match name.to_ascii_lowercase().as_str() {
                _ if refused => {}
                "zstd" => return Self::Zstd,
                "gzip" => best = Self::Gzip,
                _ => {}
            }
        }
        best
    }

    /// The one that a header names, if it is known.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Plain),
            "zstd" => Some(Self::Zstd),
            "gzip" => Some(Self::Gzip),
            _ => None,
        }
    }

    /// What a header calls it; nothing when it is none.
    pub(super) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Zstd => Some("zstd"),
            Self::Gzip => Some("gzip"),
        }
    }

    /// Packs bytes.
    pub(super) fn pack(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain => Ok(bytes.to_vec()),
            Self::Zstd => zstd::bulk::compress(bytes, zstd::DEFAULT_COMPRESSION_LEVEL),
            Self::Gzip => {
                let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                packer.write_all(bytes)?;
                packer.finish()
            }
        }
    }

    /// Unpacks bytes, at most so many; `None` when there are more. No more than that is ever held.
    pub(super) fn unpack(self, packed: Bytes, bytes_max: usize) -> io::Result<Option<Bytes>> {
        let mut unpacked = Vec::new();
        let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
        match self {
            Self::Plain => return Ok(Some(packed).filter(|bytes| bytes.len() <= bytes_max)),
            Self::Zstd => zstd::Decoder::new(&packed[..])?.take(limit).read_to_end(&mut unpacked)?,
            Self::Gzip => flate2::read::MultiGzDecoder::new(&packed[..]).take(limit).read_to_end(&mut unpacked)?,
        };
        Ok((unpacked.len() <= bytes_max).then(|| unpacked.into()))
    }

    const fn flag(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Zstd => ZSTD,
            Self::Gzip => GZIP,
        }
    }
}

/// Appends a message as a frame, packed when it is worth it.
pub(super) fn put(message: &impl prost::Message, coding: Coding, reconnect: bool, out: &mut BytesMut) {
    let bytes = message.encoded_len();
    let advice = if reconnect { RECONNECT } else { 0 };
    if coding != Coding::Plain && bytes >= COMPRESSED_BYTES_MIN {
        // What can't be packed goes as it is.
        if let Ok(packed) = coding.pack(&message.encode_to_vec()) {
            put_head(packed.len(), coding.flag() | advice, out);
            out.extend_from_slice(&packed);
            return;
        }
    }
    put_head(bytes, advice, out);
    out.reserve(bytes);
    let encoded = message.encode(out);
    assert!(encoded.is_ok(), "a growing buffer has room");
}

/// Appends the frame that ends a session.
pub(super) fn put_terminal(failure: &Failure, out: &mut BytesMut) {
    let body = failure.body();
    put_head(2 + body.len(), TERMINAL, out);
    out.put_u16(failure.status().as_u16());
    out.extend_from_slice(body.as_bytes());
}

fn put_head(bytes: usize, flags: u8, out: &mut BytesMut) {
    out.put_uint(1 + bytes as u64, LENGTH_BYTES);
    out.put_u8(flags);
}

/// Takes the next message off the front of what came in, if it is whole.
///
/// # Errors
/// `bad_frame` for a frame that is too long or empty, that is terminal, or whose message can't be unpacked.
pub(super) fn take(input: &mut BytesMut) -> Result<Option<Bytes>> {
    let bad = |what: String| Failure::new(Code::BadFrame, what);
    let Some(length) = input.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let bytes = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    if bytes > FRAME_BYTES_MAX {
        return Err(bad(format!("a frame of {bytes} bytes: at most {FRAME_BYTES_MAX} are allowed")));
    }
    if bytes == 0 {
        return Err(bad("a frame of 0 bytes: it has at least its flags".to_owned()));
    }
    if input.len() < LENGTH_BYTES + bytes {
        input.reserve(LENGTH_BYTES + bytes - input.len());
        return Ok(None);
    }
    input.advance(LENGTH_BYTES);
    let mut frame = input.split_to(bytes).freeze();
    let flags = frame.get_u8();
    if flags & TERMINAL != 0 {
        return Err(bad("a terminal frame: only the server ends a session with one".to_owned()));
    }
    let coding = match flags & CODING {
        0 => Coding::Plain,
        ZSTD => Coding::Zstd,
        GZIP => Coding::Gzip,
        other => return Err(bad(format!("a frame of compression {}: 0 to 2 are known", other >> 5))),
    };
    match coding.unpack(frame, FRAME_BYTES_MAX) {
        Ok(Some(message)) => Ok(Some(message)),
        Ok(None) => Err(bad(format!("a message of more than {FRAME_BYTES_MAX} bytes once it is unpacked"))),
        Err(error) => Err(bad(format!("a message that can't be unpacked: {error}"))),
    }
}

#[cfg(test)]
mod tests;
