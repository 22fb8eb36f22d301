//! A bucket, as it is kept in the store and known to every shard.

use crate::archive;
use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::config::{ConfigError, ConfigPatch, StreamConfig};
use crate::crc::crc32c;
use crate::ids::BucketId;
use crate::limits::{CREATION_TOKEN_BYTES_MAX, LOCATION_BYTES_MAX};
use crate::names::{BucketName, NameError};
use crate::refusal::Refusal;

/// Where a bucket is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BucketState {
    /// Serving.
    Live,
    /// Frozen while the shards are asked whether it is empty.
    Deleting,
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Minted at creation; never used again.
    pub id: BucketId,
    /// What users call it.
    pub name: BucketName,
    /// Free text saying where its data should live.
    pub location: String,
    /// Whether the first append makes a stream.
    pub create_stream_on_append: bool,
    /// Whether a read or a subscription makes a stream.
    pub create_stream_on_read: bool,
    /// What streams made in it start from.
    pub defaults: StreamConfig,
    /// Who may create it once more and get this one; empty is nobody.
    pub creation_token: String,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// Where it is in its life.
    pub state: BucketState,
}

/// What a create or an ensure asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSpec {
    /// Its name.
    pub name: BucketName,
    /// Its location.
    pub location: String,
    /// See [`Bucket::create_stream_on_append`].
    pub create_stream_on_append: bool,
    /// See [`Bucket::create_stream_on_read`].
    pub create_stream_on_read: bool,
    /// Over the built-in defaults.
    pub defaults: ConfigPatch,
    /// See [`Bucket::creation_token`].
    pub creation_token: String,
}

impl BucketSpec {
    /// A bucket of this name with built-in defaults and no flag set.
    #[must_use]
    pub fn named(name: BucketName) -> Self {
        Self {
            name,
            location: String::new(),
            create_stream_on_append: false,
            create_stream_on_read: false,
            defaults: ConfigPatch::default(),
            creation_token: String::new(),
        }
    }

    /// Checks lengths and the merged defaults.
    ///
    /// # Errors
    /// A refusal that names the field and its bound.
    pub fn check(&self) -> Result<(), Refusal> {
        let texts = [
            ("location", &self.location, LOCATION_BYTES_MAX),
            ("creation_token", &self.creation_token, CREATION_TOKEN_BYTES_MAX),
        ];
        for (what, text, bytes_max) in texts {
            if text.len() > bytes_max {
                let bytes = text.len();
                return Err(Refusal::invalid(format!("{what} has {bytes} bytes: at most {bytes_max} are allowed")));
            }
        }
        self.defaults.apply(&StreamConfig::default()).check().map_err(Refusal::from)
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// What an update sets; the absent fields are untouched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketPatch {
    /// Sets whether the first append makes a stream.
    pub create_stream_on_append: Option<bool>,
    /// Sets whether a read or subscription makes one.
    pub create_stream_on_read: Option<bool>,
    /// Sets defaults.
    pub defaults: ConfigPatch,
}

impl BucketPatch {
    /// `bucket` with the set fields.
    #[must_use]
    pub fn apply(&self, bucket: &Bucket) -> Bucket {
        Bucket {
            create_stream_on_append: self.create_stream_on_append.unwrap_or(bucket.create_stream_on_append),
            create_stream_on_read: self.create_stream_on_read.unwrap_or(bucket.create_stream_on_read),
            defaults: self.defaults.apply(&bucket.defaults),
            ..bucket.clone()
        }
    }
}

/// The archived form of a bucket: byte vectors and integers only.
#[derive(Debug, rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
pub(crate) struct BucketRow {
    id: [u8; 16],
    name: Vec<u8>,
    location: Vec<u8>,
    creation_token: Vec<u8>,
    flags: u8,
    defaults: [u8; crate::config::CONFIG_BYTES],
    created_at_ms: i64,
}

/// Why bytes are no bucket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketDecodeError {
    /// Too short, or another magic.
    #[error("{bytes} bytes that don't start as a bucket row")]
    NotABucket {
        /// How many.
        bytes: usize,
    },
    /// A format this build doesn't read.
    #[error("a bucket row of format {found}: this build reads format {FORMAT}")]
    Format {
        /// The format found.
        found: u16,
    },
    /// The sum doesn't match.
    #[error("the bucket row is damaged: its checksum is {found:08x}, its bytes sum to {computed:08x}")]
    Checksum {
        /// What stands in the row.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// An archive that doesn't validate.
    #[error("the bucket row doesn't validate")]
    Archive,
    /// A name that is none.
    #[error("the bucket row is wrong: {0}")]
    Name(#[from] NameError),
    /// A configuration that is none.
    #[error("the bucket row is wrong: {0}")]
    Config(#[from] ConfigError),
}

const MAGIC: &[u8; 4] = b"NVbk";
const FORMAT: u16 = 2;
const HEAD_BYTES: usize = 12;
const FLAG_CREATE_ON_APPEND: u8 = 1;
const FLAG_CREATE_ON_READ: u8 = 2;
const FLAG_DELETING: u8 = 4;

fn text(bytes: Vec<u8>) -> Result<String, BucketDecodeError> {
    String::from_utf8(bytes).map_err(|_| BucketDecodeError::Archive)
}

impl Bucket {
    /// The bucket that a create of `spec` makes.
    #[must_use]
    pub fn made(spec: &BucketSpec, id: BucketId, created_at_ms: i64) -> Self {
        Self {
            id,
            name: spec.name.clone(),
            location: spec.location.clone(),
            create_stream_on_append: spec.create_stream_on_append,
            create_stream_on_read: spec.create_stream_on_read,
            defaults: spec.defaults.apply(&StreamConfig::default()),
            creation_token: spec.creation_token.clone(),
            created_at_ms,
            state: BucketState::Live,
        }
    }

    pub(crate) fn to_row(&self) -> BucketRow {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        BucketRow {
            id: self.id.to_bytes(),
            name: self.name.as_str().as_bytes().to_vec(),
            location: self.location.clone().into_bytes(),
            creation_token: self.creation_token.clone().into_bytes(),
            flags: flag(self.create_stream_on_append, FLAG_CREATE_ON_APPEND)
                | flag(self.create_stream_on_read, FLAG_CREATE_ON_READ)
                | flag(self.state == BucketState::Deleting, FLAG_DELETING),
            defaults: self.defaults.to_bytes(),
            created_at_ms: self.created_at_ms,
        }
    }

    pub(crate) fn from_row(row: BucketRow) -> Result<Self, BucketDecodeError> {
        Ok(Self {
            id: BucketId::from_bytes(row.id),
            name: BucketName::from_bytes(&row.name)?,
            location: text(row.location)?,
            create_stream_on_append: row.flags & FLAG_CREATE_ON_APPEND != 0,
            create_stream_on_read: row.flags & FLAG_CREATE_ON_READ != 0,
            defaults: StreamConfig::from_bytes(&row.defaults)?,
            creation_token: text(row.creation_token)?,
            created_at_ms: row.created_at_ms,
            state: if row.flags & FLAG_DELETING == 0 { BucketState::Live } else { BucketState::Deleting },
        })
    }

    /// The bytes kept in the store: magic `NVbk`, format (u16), 2 zero bytes, CRC-32C of the rest (u32), then the
    /// archived row; integers little-endian.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEAD_BYTES];
        archive::put(&self.to_row(), &mut out);
        out[..4].copy_from_slice(MAGIC);
        put_u16(&mut out, 4, FORMAT);
        let sum = crc32c(&out[HEAD_BYTES..]);
        put_u32(&mut out, 8, sum);
        out
    }

    /// The bucket of these bytes.
    ///
    /// # Errors
    /// [`BucketDecodeError`] that says what is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, BucketDecodeError> {
        if bytes.len() < HEAD_BYTES || &bytes[..4] != MAGIC {
            return Err(BucketDecodeError::NotABucket { bytes: bytes.len() });
        }
        let found = u16_at(bytes, 4);
        if found != FORMAT {
            return Err(BucketDecodeError::Format { found });
        }
        let (found, computed) = (u32_at(bytes, 8), crc32c(&bytes[HEAD_BYTES..]));
        if found != computed {
            return Err(BucketDecodeError::Checksum { found, computed });
        }
        let row = archive::get::<BucketRow>(&bytes[HEAD_BYTES..]).map_err(|_| BucketDecodeError::Archive)?;
        Self::from_row(row)
    }
}

#[cfg(test)]
mod tests;
