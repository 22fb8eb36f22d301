//! What goes into a stream and what comes out of it.

use bytes::Bytes;
use wire::ids::SeqNum;

/// A header: name and value, both bytes.
pub type Header = (Bytes, Bytes);

/// A record to append: a body, up to 100 headers, and a timestamp if the producer sets one.
///
/// ```
/// use client::AppendRecord;
///
/// let plain = AppendRecord::from("hello");
/// let full = AppendRecord::new(vec![1, 2, 3]).header("content-type", "application/x-three").timestamp_ms(1_700_000_000_000);
/// assert_eq!(plain.body.as_ref(), b"hello");
/// assert_eq!(full.headers.len(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppendRecord {
    /// The body.
    pub body: Bytes,
    /// The headers in order; names are not empty, duplicates stay.
    pub headers: Vec<Header>,
    /// The producer's stamp, in milliseconds; honoured as the stream's timestamping mode says.
    pub timestamp_ms: Option<i64>,
}

impl AppendRecord {
    /// A record of this body, without headers and stamp.
    #[must_use]
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with a stamp.
    #[must_use]
    pub fn timestamp_ms(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }
}

macro_rules! bodies {
    ($($type:ty, $body:ident => $bytes:expr;)*) => {$(
        impl From<$type> for AppendRecord {
            fn from($body: $type) -> Self {
                Self::new($bytes)
            }
        }
    )*};
}

bodies! {
    Bytes, body => body;
    Vec<u8>, body => body;
    String, body => body;
    &str, body => Bytes::copy_from_slice(body.as_bytes());
    &[u8], body => Bytes::copy_from_slice(body);
}

impl<const N: usize> From<&[u8; N]> for AppendRecord {
    fn from(body: &[u8; N]) -> Self {
        Self::from(&body[..])
    }
}

/// A record of a stream.
///
/// Body and headers are slices of the frame that they came in, so a record that is kept keeps the frame's memory (at most
/// a read page or a batch); copy the bytes of the few that outlive many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place in the stream.
    pub seq_num: SeqNum,
    /// Its stamp, in milliseconds; stamps never fall along a stream.
    pub timestamp_ms: i64,
    /// Its headers in order.
    pub headers: Vec<Header>,
    /// Its body.
    pub body: Bytes,
}

impl Record {
    /// Body and every header name and value, in bytes.
    pub(crate) fn content_bytes(&self) -> u64 {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        (headers.sum::<usize>() + self.body.len()) as u64
    }
}
