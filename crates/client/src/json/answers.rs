//! How do buckets, streams, acks and pages look in JSON?

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use wire::bucket::{Bucket, BucketState};
use wire::config::{Class, ConfigError, StreamConfig};
use wire::ids::{BucketId, ParseIdError, Position, SeqNum, StreamId};
use wire::message::{Appended, StreamInfo};
use wire::names::{BucketName, Key, NameError};
use wire::refusal::Refusal;

use super::config::{config_object, take_config};
use super::record::{Coding, RecordError, RecordForm, WriteError, write_json};
use crate::page::Page;
use crate::record::Record;

/// Why an answer is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// A field of another kind.
    #[error("{0}")]
    Field(#[from] Refusal),
    /// A word that is none of the choices.
    #[error("{0}")]
    Word(#[from] ConfigError),
    /// A name that is none.
    #[error("{0}")]
    Name(#[from] NameError),
    /// An id that is none.
    #[error("{0}")]
    Id(#[from] ParseIdError),
    /// A record that is none.
    #[error("record {seq_num}: {error}")]
    Record {
        /// Which.
        seq_num: u64,
        /// Why.
        error: RecordError,
    },
}

/// A place in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The sequence number.
    pub seq_num: u64,
    /// The stamp, in milliseconds.
    pub timestamp_ms: i64,
}

impl From<Position> for Place {
    fn from(position: Position) -> Self {
        Self { seq_num: position.seq_num.get(), timestamp_ms: position.timestamp_ms }
    }
}

impl From<Place> for Position {
    fn from(place: Place) -> Self {
        Self::new(SeqNum::new(place.seq_num), place.timestamp_ms)
    }
}

/// The answer of an append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Where the first record is.
    pub start: Place,
    /// One past the last record.
    pub end: Place,
    /// The committed tail as of the ack.
    pub tail: Place,
    /// Which class made it durable.
    pub class: String,
}

impl From<&Appended> for Ack {
    fn from(appended: &Appended) -> Self {
        let Appended { start, end, tail, class } = *appended;
        Self { start: start.into(), end: end.into(), tail: tail.into(), class: class.word().to_owned() }
    }
}

impl TryFrom<Ack> for Appended {
    type Error = Misfit;

    fn try_from(ack: Ack) -> Result<Self, Misfit> {
        let class: Class = ack.class.parse()?;
        Ok(Self { start: ack.start.into(), end: ack.end.into(), tail: ack.tail.into(), class })
    }
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BucketForm {
    /// Minted when it was made.
    pub bucket_id: String,
    /// What users call it.
    pub name: String,
    /// Free text saying where its data should live.
    pub location: String,
    /// Whether the first append makes a stream.
    pub create_stream_on_append: bool,
    /// Whether a read or a subscription makes a stream.
    pub create_stream_on_read: bool,
    /// Who may create it once more and get this one.
    pub creation_token: String,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at: i64,
    /// When it was deleted; null while it is there.
    pub deleted_at: Option<i64>,
    /// What streams made in it start from, each field with `default_` in front.
    #[serde(flatten)]
    pub defaults: Map<String, Value>,
}

const DEFAULT: &str = "default_";

impl From<&Bucket> for BucketForm {
    fn from(bucket: &Bucket) -> Self {
        Self {
            bucket_id: bucket.id.to_string(),
            name: bucket.name.as_str().to_owned(),
            location: bucket.location.clone(),
            create_stream_on_append: bucket.create_stream_on_append,
            create_stream_on_read: bucket.create_stream_on_read,
            creation_token: bucket.creation_token.clone(),
            created_at: bucket.created_at_ms,
            deleted_at: None,
            defaults: config_object(&bucket.defaults, DEFAULT),
        }
    }
}

impl TryFrom<BucketForm> for Bucket {
    type Error = Misfit;

    fn try_from(mut form: BucketForm) -> Result<Self, Misfit> {
        Ok(Self {
            id: BucketId::parse(&form.bucket_id)?,
            name: BucketName::new(&form.name)?,
            location: form.location,
            create_stream_on_append: form.create_stream_on_append,
            create_stream_on_read: form.create_stream_on_read,
            defaults: take_config(&mut form.defaults, DEFAULT)?.apply(&StreamConfig::default()),
            creation_token: form.creation_token,
            created_at_ms: form.created_at,
            state: if form.deleted_at.is_none() { BucketState::Live } else { BucketState::Deleting },
        })
    }
}

/// A page of buckets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BucketsForm {
    /// In the order of their names.
    pub buckets: Vec<BucketForm>,
    /// Where the next page starts after; null at the end.
    pub next: Option<String>,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamForm {
    /// Minted when it was made.
    pub stream_id: String,
    /// In which bucket.
    pub bucket: String,
    /// Under which key.
    pub key: String,
    /// How it behaves.
    #[serde(flatten)]
    pub config: Map<String, Value>,
    /// The committed tail.
    pub tail: Place,
    /// Records below it are gone.
    pub trim_point: u64,
    /// The first record that is not yet settled.
    pub settled: u64,
    /// Content it keeps, in bytes.
    pub bytes: u64,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at: i64,
}

impl From<&StreamInfo> for StreamForm {
    fn from(stream: &StreamInfo) -> Self {
        Self {
            stream_id: stream.stream_id.to_string(),
            bucket: stream.bucket.as_str().to_owned(),
            key: stream.key.as_str().to_owned(),
            config: config_object(&stream.config, ""),
            tail: stream.tail.into(),
            trim_point: stream.trim_point.get(),
            settled: stream.settled.get(),
            bytes: stream.bytes,
            created_at: stream.created_at_ms,
        }
    }
}

impl TryFrom<StreamForm> for StreamInfo {
    type Error = Misfit;

    fn try_from(mut form: StreamForm) -> Result<Self, Misfit> {
        Ok(Self {
            stream_id: StreamId::parse(&form.stream_id)?,
            bucket: BucketName::new(&form.bucket)?,
            key: Key::new(&form.key)?,
            config: take_config(&mut form.config, "")?.apply(&StreamConfig::default()),
            tail: form.tail.into(),
            trim_point: SeqNum::new(form.trim_point),
            settled: SeqNum::new(form.settled),
            bytes: form.bytes,
            created_at_ms: form.created_at,
        })
    }
}

/// A page of streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamsForm {
    /// In the order of their keys.
    pub streams: Vec<StreamForm>,
    /// Where the next page starts after, as [`cursor`] writes it; null at the end.
    pub next: Option<String>,
}

/// A cursor is bytes that mean nothing to whoever keeps it: it is written as base64 that a shell and a URL take as it is.
pub mod cursor {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use wire::refusal::Refusal;

    /// The text of a cursor.
    #[must_use]
    pub fn show(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The cursor of a text.
    ///
    /// # Errors
    /// `invalid` for a text that is none.
    pub fn read(text: &str) -> Result<Vec<u8>, Refusal> {
        URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| Refusal::invalid(format!("'{text}' is no cursor: give one as a list printed it")))
    }
}

/// What stands beside the records of a page.
#[derive(Serialize)]
struct About {
    start: u64,
    end: u64,
    tail: Place,
    trim_point: u64,
    at_tail: bool,
    stream_id: Option<String>,
}

/// A page, as whoever asked for it reads it.
#[derive(Debug, Deserialize)]
pub struct PageForm<'a> {
    /// The records.
    #[serde(borrow)]
    pub records: Vec<RecordForm<'a>>,
    /// Where the page starts.
    pub start: u64,
    /// Where the next page starts.
    pub end: u64,
    /// The committed tail.
    pub tail: Place,
    /// Records below it are gone.
    pub trim_point: u64,
    /// Whether nothing was left up to the tail within what was asked for.
    pub at_tail: bool,
    /// The stream that the records are of; null where there are none.
    pub stream_id: Option<String>,
}

/// Writes a page as one JSON object.
///
/// # Errors
/// [`WriteError`] for a record that can't stand in it, or when the output fails.
pub fn write_page(page: &Page, coding: Coding, out: &mut impl Write) -> Result<(), WriteError> {
    out.write_all(b"{\"records\":[")?;
    for (at, record) in page.records.iter().enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        write_json(record, coding, out)?;
    }
    let about = About {
        start: page.start.get(),
        end: page.end.get(),
        tail: page.tail.into(),
        trim_point: page.trim_point.get(),
        at_tail: page.at_tail,
        stream_id: page.stream_id.map(|id| id.to_string()),
    };
    let about = serde_json::to_string(&about).map_err(io::Error::from)?;
    // The object goes on where its list of records ends.
    Ok(write!(out, "],{}", &about[1..])?)
}

impl PageForm<'_> {
    /// The page, its records coded as they were asked for.
    ///
    /// # Errors
    /// [`Misfit`] for what is no page.
    pub fn into_page(self, coding: Coding) -> Result<Page, Misfit> {
        let stream_id = self.stream_id.as_deref().map(StreamId::parse).transpose()?;
        let records = self.records.into_iter().map(|form| {
            let seq_num = form.seq_num.unwrap_or_default();
            let record = form.into_record(coding).map_err(|error| Misfit::Record { seq_num, error })?;
            Ok(Record {
                seq_num: SeqNum::new(seq_num),
                timestamp_ms: record.timestamp_ms.unwrap_or_default(),
                headers: record.headers,
                body: record.body,
            })
        });
        Ok(Page {
            records: records.collect::<Result<_, Misfit>>()?,
            start: SeqNum::new(self.start),
            end: SeqNum::new(self.end),
            tail: self.tail.into(),
            trim_point: SeqNum::new(self.trim_point),
            at_tail: self.at_tail,
            stream_id,
        })
    }
}
