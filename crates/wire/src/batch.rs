//! The one batch layout: what a producer encodes and sums is what the log, a chunk and a reader's frame carry.
//!
//! A batch is one archive of flat columns: where each record's content ends in the payload, its stamp, how many headers
//! it has and how long each name and value is. A record's content is its header names and values in order, then its
//! body. Columns that would say nothing (no stamps, no headers) are empty.

use crate::archive;
use crate::crc::crc32c;
use crate::limits::{
    BATCH_BYTES_MAX, BATCH_CONTENT_BYTES_MAX, BATCH_RECORDS_MAX, RECORD_CONTENT_BYTES_MAX, RECORD_HEADERS_MAX,
};
use crate::reason::Reason;
use crate::refusal::Refusal;

/// In the stamp column: this record has none.
const NO_STAMP: i64 = i64::MIN;

#[derive(Debug, Default, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
#[rkyv(derive(Debug))]
struct Columns {
    content_ends: Vec<u32>,
    stamps: Vec<i64>,
    header_counts: Vec<u8>,
    header_lens: Vec<u32>,
    payload: Vec<u8>,
}

/// Why a batch is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// No record, or too many.
    #[error("the batch has {records} records: it must have 1 to {BATCH_RECORDS_MAX}")]
    Records {
        /// How many.
        records: usize,
    },
    /// Too much content in all.
    #[error("the batch has {bytes} bytes of content: at most {BATCH_CONTENT_BYTES_MAX} are allowed")]
    Content {
        /// How many.
        bytes: usize,
    },
    /// Too much content in one record.
    #[error("record {record} has {bytes} bytes of content: at most {RECORD_CONTENT_BYTES_MAX} are allowed")]
    RecordContent {
        /// Its place in the batch.
        record: usize,
        /// How many.
        bytes: usize,
    },
    /// Too many headers in one record.
    #[error("record {record} has {headers} headers: at most {RECORD_HEADERS_MAX} are allowed")]
    Headers {
        /// Its place in the batch.
        record: usize,
        /// How many.
        headers: usize,
    },
    /// A header without a name.
    #[error("record {record} has a header with an empty name")]
    EmptyHeaderName {
        /// Its place in the batch.
        record: usize,
    },
    /// A stamp that stands for "none" in the layout.
    #[error("record {record} has the timestamp {NO_STAMP}, which can't be stored")]
    Stamp {
        /// Its place in the batch.
        record: usize,
    },
    /// An encoded batch longer than any that is within the bounds.
    #[error("the encoded batch has {bytes} bytes: at most {BATCH_BYTES_MAX} are allowed")]
    Encoded {
        /// How many.
        bytes: usize,
    },
    /// The sum doesn't match.
    #[error("the batch is damaged: its checksum is {expected:08x}, its bytes sum to {computed:08x}")]
    Checksum {
        /// What was sent along.
        expected: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// The archive or its columns contradict themselves.
    #[error("the batch doesn't validate: {what}")]
    Malformed {
        /// What contradicts.
        what: &'static str,
    },
}

impl BatchError {
    /// The reason a client gets.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Content { .. } | Self::RecordContent { .. } | Self::Encoded { .. } => Reason::TooLarge,
            Self::Records { records } if *records > 0 => Reason::TooLarge,
            _ => Reason::Invalid,
        }
    }
}

impl From<BatchError> for Refusal {
    fn from(error: BatchError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

/// Gathers records into a batch.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    columns: Columns,
}

impl BatchBuilder {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records gathered.
    #[must_use]
    pub fn records(&self) -> usize {
        self.columns.content_ends.len()
    }

    /// Content gathered, in bytes.
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        self.columns.payload.len()
    }

    /// Adds a record; the builder is unchanged when it refuses.
    ///
    /// # Errors
    /// [`BatchError`] of the bound that the record, or the batch with it, breaks.
    pub fn push<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        timestamp_ms: Option<i64>,
        headers: &[(N, V)],
        body: &[u8],
    ) -> Result<(), BatchError> {
        let record = self.records();
        self.check(timestamp_ms, headers, body)?;
        let columns = &mut self.columns;
        if timestamp_ms.is_some() && columns.stamps.is_empty() {
            columns.stamps.resize(record, NO_STAMP);
        }
        if timestamp_ms.is_some() || !columns.stamps.is_empty() {
            columns.stamps.push(timestamp_ms.unwrap_or(NO_STAMP));
        }
        if !headers.is_empty() && columns.header_counts.is_empty() {
            columns.header_counts.resize(record, 0);
        }
        if !headers.is_empty() || !columns.header_counts.is_empty() {
            columns.header_counts.push(narrow(headers.len()));
        }
        for (name, value) in headers {
            columns.header_lens.push(narrow(name.as_ref().len()));
            columns.header_lens.push(narrow(value.as_ref().len()));
            columns.payload.extend_from_slice(name.as_ref());
            columns.payload.extend_from_slice(value.as_ref());
        }
        columns.payload.extend_from_slice(body);
        columns.content_ends.push(narrow(columns.payload.len()));
        Ok(())
    }

    fn check<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        timestamp_ms: Option<i64>,
        headers: &[(N, V)],
        body: &[u8],
    ) -> Result<(), BatchError> {
        let record = self.records();
        let bytes = check_record(record, timestamp_ms, headers, body)?;
        check_totals(record + 1, self.content_bytes() + bytes)
    }

    /// Appends the encoded batch to `out`, answers its CRC-32C, and starts anew.
    ///
    /// # Errors
    /// [`BatchError::Records`] when there is no record.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<u32, BatchError> {
        if self.records() == 0 {
            return Err(BatchError::Records { records: 0 });
        }
        let start = out.len();
        archive::put(&self.columns, out);
        self.columns.content_ends.clear();
        self.columns.stamps.clear();
        self.columns.header_counts.clear();
        self.columns.header_lens.clear();
        self.columns.payload.clear();
        Ok(crc32c(&out[start..]))
    }
}

/// The content of a record that is within every bound of its own; `record` is its place in the batch, for the message.
///
/// # Errors
/// [`BatchError`] of the first bound that it breaks by itself.
pub fn check_record<N: AsRef<[u8]>, V: AsRef<[u8]>>(
    record: usize,
    timestamp_ms: Option<i64>,
    headers: &[(N, V)],
    body: &[u8],
) -> Result<usize, BatchError> {
    let header_bytes: usize = headers.iter().map(|(n, v)| n.as_ref().len() + v.as_ref().len()).sum();
    let bytes = header_bytes + body.len();
    if bytes > RECORD_CONTENT_BYTES_MAX {
        return Err(BatchError::RecordContent { record, bytes });
    }
    if headers.len() > RECORD_HEADERS_MAX {
        return Err(BatchError::Headers { record, headers: headers.len() });
    }
    if headers.iter().any(|(name, _)| name.as_ref().is_empty()) {
        return Err(BatchError::EmptyHeaderName { record });
    }
    if timestamp_ms == Some(NO_STAMP) {
        return Err(BatchError::Stamp { record });
    }
    Ok(bytes)
}

/// Whether so many records with so much content make a batch.
///
/// # Errors
/// [`BatchError::Records`] or [`BatchError::Content`].
pub const fn check_totals(records: usize, bytes: usize) -> Result<(), BatchError> {
    if records == 0 || records > BATCH_RECORDS_MAX {
        return Err(BatchError::Records { records });
    }
    if bytes > BATCH_CONTENT_BYTES_MAX {
        return Err(BatchError::Content { bytes });
    }
    Ok(())
}

/// A length that a bound of the batch keeps small.
fn narrow<T: TryFrom<usize>>(len: usize) -> T {
    match T::try_from(len) {
        Ok(len) => len,
        Err(_) => unreachable!("{len} is past a bound that was checked"),
    }
}

/// A batch whose sum, columns and bounds have been checked.
#[derive(Debug, Clone, Copy)]
pub struct VerifiedBatch<'a> {
    bytes: &'a [u8],
    crc: u32,
    columns: &'a ArchivedColumns,
}

impl<'a> VerifiedBatch<'a> {
    /// Checks an encoded batch against its CRC-32C, its own columns and every bound.
    ///
    /// # Errors
    /// [`BatchError`] of the first thing that is wrong.
    pub fn verify(bytes: &'a [u8], crc: u32) -> Result<Self, BatchError> {
        if bytes.len() > BATCH_BYTES_MAX {
            return Err(BatchError::Encoded { bytes: bytes.len() });
        }
        let computed = crc32c(bytes);
        if computed != crc {
            return Err(BatchError::Checksum { expected: crc, computed });
        }
        Self::summed(bytes, crc)
    }

    /// Checks the columns and bounds of a batch whose CRC-32C was checked, or is covered by another sum that was.
    ///
    /// # Errors
    /// [`BatchError`] of the first thing that is wrong.
    pub fn summed(bytes: &'a [u8], crc: u32) -> Result<Self, BatchError> {
        let columns =
            archive::view::<ArchivedColumns>(bytes).map_err(|_| BatchError::Malformed { what: "its archive" })?;
        check_columns(columns)?;
        Ok(Self { bytes, crc, columns })
    }

    /// The encoded batch.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its CRC-32C.
    #[must_use]
    #[inline]
    pub const fn crc(&self) -> u32 {
        self.crc
    }

    /// How many records it has, 1 to 1 000.
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most BATCH_RECORDS_MAX")]
    pub fn records(&self) -> u16 {
        self.columns.content_ends.len() as u16
    }

    /// Its content, in bytes.
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most BATCH_CONTENT_BYTES_MAX")]
    pub fn content_bytes(&self) -> u32 {
        self.columns.payload.len() as u32
    }

    /// Whether no record has a stamp of its own.
    #[must_use]
    #[inline]
    pub fn has_no_stamps(&self) -> bool {
        self.columns.stamps.is_empty()
    }

    /// The producer's stamp of a record, if it sent one.
    #[must_use]
    #[inline]
    pub fn stamp(&self, record: u16) -> Option<i64> {
        let stamp = self.columns.stamps.get(usize::from(record))?.to_native();
        (stamp != NO_STAMP).then_some(stamp)
    }

    /// Its records in order.
    pub fn iter(&self) -> RecordViews<'a> {
        RecordViews { columns: self.columns, record: 0, lens_at: 0, content_at: 0 }
    }
}

impl<'a> IntoIterator for &VerifiedBatch<'a> {
    type Item = RecordView<'a>;
    type IntoIter = RecordViews<'a>;

    fn into_iter(self) -> RecordViews<'a> {
        self.iter()
    }
}

fn check_columns(columns: &ArchivedColumns) -> Result<(), BatchError> {
    let malformed = |what| Err(BatchError::Malformed { what });
    let records = columns.content_ends.len();
    if records == 0 || records > BATCH_RECORDS_MAX {
        return Err(BatchError::Records { records });
    }
    if columns.payload.len() > BATCH_CONTENT_BYTES_MAX {
        return Err(BatchError::Content { bytes: columns.payload.len() });
    }
    if !columns.stamps.is_empty() && columns.stamps.len() != records {
        return malformed("its stamps are not one a record");
    }
    let mut content_at = 0;
    for end in columns.content_ends.iter().map(|end| end.to_native() as usize) {
        if end < content_at {
            return malformed("a record ends before it starts");
        }
        content_at = end;
    }
    if content_at != columns.payload.len() {
        return malformed("its records don't fill its payload");
    }
    if columns.header_counts.is_empty() {
        return if columns.header_lens.is_empty() { Ok(()) } else { malformed("it has lengths of no header") };
    }
    check_headers(columns)
}

fn check_headers(columns: &ArchivedColumns) -> Result<(), BatchError> {
    let malformed = |what| Err(BatchError::Malformed { what });
    if columns.header_counts.len() != columns.content_ends.len() {
        return malformed("its header counts are not one a record");
    }
    let mut lens = columns.header_lens.iter().map(|len| len.to_native() as usize);
    let mut content_at = 0;
    for (record, headers) in columns.header_counts.iter().map(|count| usize::from(*count)).enumerate() {
        if headers > RECORD_HEADERS_MAX {
            return Err(BatchError::Headers { record, headers });
        }
        let mut header_bytes = 0usize;
        for _ in 0..headers {
            let (Some(name), Some(value)) = (lens.next(), lens.next()) else {
                return malformed("it has fewer header lengths than headers");
            };
            if name == 0 {
                return Err(BatchError::EmptyHeaderName { record });
            }
            header_bytes += name + value;
        }
        let end = columns.content_ends[record].to_native() as usize;
        if header_bytes > end - content_at {
            return malformed("a record's headers are longer than its content");
        }
        content_at = end;
    }
    if lens.next().is_some() { malformed("it has more header lengths than headers") } else { Ok(()) }
}

/// One record of a batch, in place.
#[derive(Debug, Clone, Copy)]
pub struct RecordView<'a> {
    /// The producer's stamp, if it sent one, in milliseconds.
    pub timestamp_ms: Option<i64>,
    /// Its body.
    pub body: &'a [u8],
    headers: &'a [u8],
    lens: &'a [rkyv::rend::unaligned::u32_ule],
}

impl<'a> RecordView<'a> {
    /// Its headers, name and value, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.headers;
        self.lens.chunks_exact(2).map(move |pair| {
            let (name, tail) = rest.split_at(pair[0].to_native() as usize);
            let (value, tail) = tail.split_at(pair[1].to_native() as usize);
            rest = tail;
            (name, value)
        })
    }

    /// Its content, in bytes.
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        self.headers.len() + self.body.len()
    }
}

/// The records of a batch in order.
#[derive(Debug, Clone)]
pub struct RecordViews<'a> {
    columns: &'a ArchivedColumns,
    record: usize,
    lens_at: usize,
    content_at: usize,
}

impl<'a> Iterator for RecordViews<'a> {
    type Item = RecordView<'a>;

    fn next(&mut self) -> Option<RecordView<'a>> {
        let columns = self.columns;
        let end = columns.content_ends.get(self.record)?.to_native() as usize;
        let headers = columns.header_counts.get(self.record).map_or(0, |count| usize::from(*count));
        let lens = &columns.header_lens[self.lens_at..self.lens_at + 2 * headers];
        let header_bytes: usize = lens.iter().map(|len| len.to_native() as usize).sum();
        let (headers, body) = columns.payload[self.content_at..end].split_at(header_bytes);
        let stamp = columns.stamps.get(self.record).map(|stamp| stamp.to_native());
        self.record += 1;
        self.lens_at += lens.len();
        self.content_at = end;
        Some(RecordView { timestamp_ms: stamp.filter(|stamp| *stamp != NO_STAMP), body, headers, lens })
    }
}

#[cfg(test)]
mod tests;
