//! The frame that carries everything on the wire: a fixed header, decoded by hand, then a body.
//!
//! Little-endian. A body is a head, which `head_crc` sums, and a payload that sums itself (batches), so that no byte is
//! summed twice on its way in.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `NOVA` |
//! | 4 | 1 | version |
//! | 5 | 1 | kind |
//! | 6 | 2 | flags, 0 in this version |
//! | 8 | 8 | correlation id: an answer carries its request's |
//! | 16 | 4 | body length |
//! | 20 | 4 | head length, at most the body's |
//! | 24 | 4 | CRC-32C of the head |
//! | 28 | 4 | CRC-32C of the 28 bytes before |

use crate::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::crc::crc32c;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;
/// What a frame starts with.
pub const MAGIC: [u8; 4] = *b"NOVA";
/// The version this build speaks.
pub const VERSION: u8 = 2;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        /// What a frame carries.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name = $code,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The kind with this code; `None` for one of a later version.
            #[must_use]
            #[inline]
            pub const fn of_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// A client says who it is; the first frame of a connection.
    Hello = 1;
    /// The star's answer to a hello.
    Welcome = 2;
    /// Keep-alive, either way.
    Ping = 3;
    /// The answer to a ping.
    Pong = 4;
    /// The star asks the client to finish and reconnect.
    GoAway = 5;
    /// The answer of no to any request.
    Refused = 6;
    /// The answer of yes where there is nothing more to say.
    Done = 7;
    /// Create a bucket.
    BucketCreate = 16;
    /// Create a bucket or join it.
    BucketEnsure = 17;
    /// Change a bucket.
    BucketUpdate = 18;
    /// Look at a bucket.
    BucketGet = 19;
    /// Delete an empty bucket.
    BucketDelete = 20;
    /// List buckets.
    BucketList = 21;
    /// A bucket.
    BucketAnswer = 22;
    /// A page of buckets.
    BucketPage = 23;
    /// Create a stream.
    StreamCreate = 32;
    /// Look at a stream.
    StreamGet = 33;
    /// Change a stream.
    StreamReconfigure = 34;
    /// Delete a stream.
    StreamDelete = 35;
    /// List a bucket's streams.
    StreamList = 36;
    /// A stream.
    StreamAnswer = 37;
    /// A page of streams.
    StreamPage = 38;
    /// Open a writer session.
    Open = 48;
    /// A session is open.
    Opened = 49;
    /// A batch of a session.
    Append = 50;
    /// Batches of sessions that are durable.
    Acks = 51;
    /// One batch of a session is refused.
    AppendRefused = 52;
    /// Close a session.
    Close = 53;
    /// A session ended by the star's doing.
    SessionEnded = 54;
    /// A batch outside of any session.
    AppendOnce = 55;
    /// The answer to it.
    Appended = 56;
    /// Read a page.
    Read = 64;
    /// A page of records.
    Page = 65;
    /// Follow a stream.
    Subscribe = 66;
    /// A subscription is open.
    Subscribed = 67;
    /// Records of a subscription.
    Records = 68;
    /// More bytes that a subscription may send.
    Credit = 69;
    /// End a subscription.
    Unsubscribe = 70;
    /// A subscription ended by the star's doing.
    SubscriptionEnded = 71;
    /// Ask for the tail.
    CheckTail = 80;
    /// The tail.
    Tail = 81;
    /// Move the trim point.
    Trim = 82;
    /// Where the trim point stands.
    Trimmed = 83;
    /// Install, rotate or clear the fencing token.
    Fence = 84;
    /// The fence holds.
    Fenced = 85;
    /// Ask for the installed token.
    GetToken = 86;
    /// The installed token.
    Token = 87;
    /// Ask what the star is and how it does.
    StarGet = 96;
    /// The star.
    StarAnswer = 97;
}

/// A checked header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame carries.
    pub kind: Kind,
    /// Which request it belongs to.
    pub correlation: u64,
    /// Bytes of the body.
    pub body_bytes: u32,
    /// Bytes of the body that are its head.
    pub head_bytes: u32,
    /// The CRC-32C of the head.
    pub head_crc: u32,
}

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Another protocol.
    #[error("the bytes {found:02x?} don't start a frame: is the other side speaking nova's wire?")]
    Magic {
        /// What stands where the magic should.
        found: [u8; 4],
    },
    /// A version this build doesn't speak.
    #[error("wire version {found}: this build speaks version {VERSION}")]
    Version {
        /// The version found.
        found: u8,
    },
    /// The header is damaged.
    #[error("the frame header is damaged: its checksum is {found:08x}, its bytes sum to {computed:08x}")]
    HeaderChecksum {
        /// What stands there.
        found: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A kind this build doesn't know.
    #[error("frame kind {found} is unknown to version {VERSION}")]
    Kind {
        /// The kind found.
        found: u8,
    },
    /// Flags this build doesn't know.
    #[error("frame flags {found:#06x} are unknown to version {VERSION}")]
    Flags {
        /// The flags found.
        found: u16,
    },
    /// A body longer than allowed.
    #[error("a frame body of {bytes} bytes: at most {bytes_max} are allowed")]
    BodyLength {
        /// The length claimed.
        bytes: u32,
        /// The bound that holds now.
        bytes_max: usize,
    },
    /// A head longer than its body.
    #[error("a frame head of {head_bytes} bytes in a body of {body_bytes}")]
    HeadLength {
        /// The length of the head.
        head_bytes: u32,
        /// The length of the body.
        body_bytes: u32,
    },
    /// The head is damaged.
    #[error(
        "the head of a frame of kind {kind:?} is damaged: its checksum is {found:08x}, its bytes sum to {computed:08x}"
    )]
    HeadChecksum {
        /// What the frame carries.
        kind: Kind,
        /// What stands in the header.
        found: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// The body doesn't hold what its kind promises.
    #[error("the body of a frame of kind {kind:?} doesn't validate")]
    Body {
        /// What the frame carries.
        kind: Kind,
    },
}

impl Header {
    /// The header of these bytes, whose body is at most `body_bytes_max` long.
    ///
    /// # Errors
    /// [`FrameError`] of the first thing that is wrong; no length is believed before the header's own sum.
    #[inline]
    pub fn decode(bytes: &[u8; HEADER_BYTES], body_bytes_max: usize) -> Result<Self, FrameError> {
        let magic = crate::bytes::array(bytes, 0);
        if magic != MAGIC {
            return Err(FrameError::Magic { found: magic });
        }
        if bytes[4] != VERSION {
            return Err(FrameError::Version { found: bytes[4] });
        }
        let (found, computed) = (u32_at(bytes, 28), crc32c(&bytes[..28]));
        if found != computed {
            return Err(FrameError::HeaderChecksum { found, computed });
        }
        let kind = Kind::of_code(bytes[5]).ok_or(FrameError::Kind { found: bytes[5] })?;
        let flags = u16_at(bytes, 6);
        if flags != 0 {
            return Err(FrameError::Flags { found: flags });
        }
        let (body_bytes, head_bytes) = (u32_at(bytes, 16), u32_at(bytes, 20));
        if body_bytes as usize > body_bytes_max {
            return Err(FrameError::BodyLength { bytes: body_bytes, bytes_max: body_bytes_max });
        }
        if head_bytes > body_bytes {
            return Err(FrameError::HeadLength { head_bytes, body_bytes });
        }
        Ok(Self { kind, correlation: u64_at(bytes, 8), body_bytes, head_bytes, head_crc: u32_at(bytes, 24) })
    }

    /// Splits a whole body into head and payload, the head checked.
    ///
    /// # Errors
    /// [`FrameError::HeadChecksum`].
    ///
    /// # Panics
    /// When `body` is not `body_bytes` long.
    #[inline]
    pub fn split<'a>(&self, body: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), FrameError> {
        assert_eq!(body.len(), self.body_bytes as usize, "a whole body");
        let (head, payload) = body.split_at(self.head_bytes as usize);
        let computed = crc32c(head);
        if computed != self.head_crc {
            return Err(FrameError::HeadChecksum { kind: self.kind, found: self.head_crc, computed });
        }
        Ok((head, payload))
    }

    fn encode(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = self.kind as u8;
        put_u16(out, 6, 0);
        put_u64(out, 8, self.correlation);
        put_u32(out, 16, self.body_bytes);
        put_u32(out, 20, self.head_bytes);
        put_u32(out, 24, self.head_crc);
        let sum = crc32c(&out[..28]);
        put_u32(out, 28, sum);
    }
}

/// A frame that is being written at the end of a buffer: [`begin`], the head, [`Open::head_ends`], the payload, [`Open::end`].
#[derive(Debug)]
#[must_use = "a frame that is begun must be ended"]
pub struct Open {
    start: usize,
    head_end: Option<usize>,
}

/// Starts a frame at the end of `out`.
#[inline]
pub fn begin(out: &mut Vec<u8>) -> Open {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    Open { start, head_end: None }
}

impl Open {
    /// Says that the head is written and the payload comes.
    #[inline]
    pub fn head_ends(mut self, out: &[u8]) -> Self {
        self.head_end = Some(out.len());
        self
    }

    /// Ends the frame: fills in its header.
    ///
    /// # Panics
    /// When the body is 4 GiB or longer.
    #[inline]
    pub fn end(self, kind: Kind, correlation: u64, out: &mut [u8]) {
        let body_start = self.start + HEADER_BYTES;
        let head_end = self.head_end.unwrap_or(out.len());
        let len = |bytes: usize| u32::try_from(bytes).unwrap_or_else(|_| panic!("a frame body of {bytes} bytes"));
        let header = Header {
            kind,
            correlation,
            body_bytes: len(out.len() - body_start),
            head_bytes: len(head_end - body_start),
            head_crc: crc32c(&out[body_start..head_end]),
        };
        header.encode(&mut out[self.start..body_start]);
    }
}

/// What [`next`] finds at the start of received bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// More bytes are needed: this many in all.
    Short {
        /// Bytes from the start of the frame, as far as is known.
        bytes_needed: usize,
    },
    /// A whole frame.
    Frame(Frame<'a>),
}

/// A whole frame whose header and head have been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it carries.
    pub kind: Kind,
    /// Which request it belongs to.
    pub correlation: u64,
    /// The head.
    pub head: &'a [u8],
    /// The payload, which sums itself.
    pub payload: &'a [u8],
    /// Bytes it takes, header and body.
    pub frame_bytes: usize,
}

/// The frame at the start of `bytes`, if it is all there.
///
/// # Errors
/// [`FrameError`]; the connection can't be read any further.
#[inline]
pub fn next(bytes: &[u8], body_bytes_max: usize) -> Result<Next<'_>, FrameError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(Next::Short { bytes_needed: HEADER_BYTES });
    };
    let header = Header::decode(header, body_bytes_max)?;
    let frame_bytes = HEADER_BYTES + header.body_bytes as usize;
    let Some(body) = bytes.get(HEADER_BYTES..frame_bytes) else {
        return Ok(Next::Short { bytes_needed: frame_bytes });
    };
    let (head, payload) = header.split(body)?;
    Ok(Next::Frame(Frame { kind: header.kind, correlation: header.correlation, head, payload, frame_bytes }))
}

#[cfg(test)]
mod tests;
