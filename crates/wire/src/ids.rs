//! What names a thing or a position: newtypes, so that one is never taken for another.

use std::fmt;

use uuid::Uuid;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($int);

        impl $name {
            /// The first one.
            pub const ZERO: Self = Self(0);

            /// The one with this number.
            #[must_use]
            #[inline]
            pub const fn new(number: $int) -> Self {
                Self(number)
            }

            /// Its number.
            #[must_use]
            #[inline]
            pub const fn get(self) -> $int {
                self.0
            }

            /// The one right after it.
            ///
            /// # Panics
            /// At the end of the number range, which no run reaches.
            #[must_use]
            #[inline]
            #[track_caller]
            pub const fn next(self) -> Self {
                match self.0.checked_add(1) {
                    Some(next) => Self(next),
                    None => panic!("a counter ran out"),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

counters! {
    /// Where a record stands in its stream; the first is 0.
    SeqNum(u64);
    /// A dense count over the batches and verbs of one stream, whichever log they go to; the first is 1.
    Rev(u64);
    /// One tenure of a star: every start takes a higher one.
    Epoch(u64);
    /// The number of an entry in its head log; the first is 1, and 0 stands before it.
    Lsn(u64);
    /// A segment file of a head log; never used twice.
    SegmentId(u64);
    /// The number of a batch among those of its producer.
    BatchNo(u64);
    /// Who numbers batches for dedupe: a producer session's own random number; 0 is nobody.
    ProducerId(u64);
    /// One of the shards of a star.
    ShardId(u16);
}

impl SeqNum {
    /// The position `records` further.
    ///
    /// # Panics
    /// Past the end of the number range, which no stream reaches.
    #[must_use]
    #[track_caller]
    #[inline]
    pub const fn after(self, records: u64) -> Self {
        match self.0.checked_add(records) {
            Some(seq_num) => Self(seq_num),
            None => panic!("sequence numbers ran out"),
        }
    }

    /// How many records lie in `earlier..self`; 0 when `earlier` is not earlier.
    #[must_use]
    #[inline]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The position `records` before, at most back to 0.
    #[must_use]
    #[inline]
    pub const fn back(self, records: u64) -> Self {
        Self(self.0.saturating_sub(records))
    }
}

macro_rules! uuids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name([u8; 16]);

        impl $name {
            /// The id with these bytes, big-endian as RFC 9562 writes them.
            #[must_use]
            #[inline]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// Its bytes.
            #[must_use]
            #[inline]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0
            }

            /// A UUIDv7 (RFC 9562 section 5.7) of this millisecond and these random bytes.
            #[must_use]
            pub fn mint(unix_ms: u64, random: [u8; 10]) -> Self {
                Self(uuid::Builder::from_unix_timestamp_millis(unix_ms, &random).into_uuid().into_bytes())
            }

            /// The id written as `8-4-4-4-12` hexadecimal digits.
            ///
            /// # Errors
            /// [`ParseIdError`] with the text when it is no UUID.
            pub fn parse(text: &str) -> Result<Self, ParseIdError> {
                Uuid::try_parse(text)
                    .map(|id| Self(id.into_bytes()))
                    .map_err(|_| ParseIdError { text: text.to_owned() })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Uuid::from_bytes(self.0).hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    )*};
}

uuids! {
    /// A stream, minted when it is made; a stream made again at the same address has another.
    StreamId;
    /// A bucket, minted when it is made.
    BucketId;
    /// A head log, minted when its directory is made.
    LogId;
    /// A cluster: the stars over one standard store.
    ClusterId;
    /// One running `novad` process.
    StarId;
}

/// A text that should have been a UUID and is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a UUID of the form 8-4-4-4-12 hexadecimal digits")]
pub struct ParseIdError {
    text: String,
}

/// A place in a stream: a sequence number and the timestamp that goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The sequence number.
    pub seq_num: SeqNum,
    /// Milliseconds since the Unix epoch (or on the application's own scale when the stream is uncapped).
    pub timestamp_ms: i64,
}

impl Position {
    /// The position of `seq_num` and `timestamp_ms`.
    #[must_use]
    #[inline]
    pub const fn new(seq_num: SeqNum, timestamp_ms: i64) -> Self {
        Self { seq_num, timestamp_ms }
    }
}
