//! What is done to a stream besides adding records, as an entry.

use super::{Entry, EntryError, Place, SUM_BYTES, VERB_HEAD_BYTES, VERB_SLOT_AT, check, place_at, put_place};
use crate::bytes::{array, i64_at, put_u32, u32_at, u64_at};
use crate::config::{CONFIG_BYTES, StreamConfig};
use crate::crc::crc32c;
use crate::ids::{BucketId, SeqNum};
use crate::limits::KEY_BYTES_MAX;
use crate::names::{FencingToken, Key};

const CREATE_FIXED_BYTES: usize = 16 + 8 + CONFIG_BYTES;
const KIND_CREATE: u8 = 2;
const KIND_FENCE: u8 = 3;
const KIND_TRIM: u8 = 4;
const KIND_RECONFIGURE: u8 = 5;
const KIND_DELETE: u8 = 6;
const KIND_GAP: u8 = 7;

/// What a verb did to its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Made it.
    Create {
        /// In which bucket.
        bucket: BucketId,
        /// Under which key.
        key: Key,
        /// With which configuration.
        config: StreamConfig,
        /// When, in milliseconds since the Unix epoch.
        created_at_ms: i64,
    },
    /// Installed a token; the empty one clears.
    Fence {
        /// The token.
        token: FencingToken,
    },
    /// Moved the trim point.
    Trim {
        /// To here.
        to: SeqNum,
    },
    /// Changed the configuration.
    Reconfigure {
        /// To this.
        config: StreamConfig,
    },
    /// Deleted it.
    Delete,
    /// Gave up the records of `from..to`, which are lost.
    Gap {
        /// First lost.
        from: SeqNum,
        /// One past the last lost.
        to: SeqNum,
    },
}

impl Verb {
    fn code(&self) -> u8 {
        match self {
            Self::Create { .. } => KIND_CREATE,
            Self::Fence { .. } => KIND_FENCE,
            Self::Trim { .. } => KIND_TRIM,
            Self::Reconfigure { .. } => KIND_RECONFIGURE,
            Self::Delete => KIND_DELETE,
            Self::Gap { .. } => KIND_GAP,
        }
    }

    /// The verb's entry.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a verb's fields are at most a key and a configuration")]
    pub fn encode(&self, place: Place) -> Vec<u8> {
        let mut out = vec![0; VERB_HEAD_BYTES];
        out[0] = self.code();
        put_place(&mut out, VERB_SLOT_AT, place);
        match self {
            Self::Create { bucket, key, config, created_at_ms } => {
                out.extend_from_slice(&bucket.to_bytes());
                out.extend_from_slice(&created_at_ms.to_le_bytes());
                out.extend_from_slice(&config.to_bytes());
                out.extend_from_slice(key.as_str().as_bytes());
            }
            Self::Fence { token } => out.extend_from_slice(token.as_str().as_bytes()),
            Self::Trim { to } => out.extend_from_slice(&to.get().to_le_bytes()),
            Self::Reconfigure { config } => out.extend_from_slice(&config.to_bytes()),
            Self::Delete => {}
            Self::Gap { from, to } => {
                out.extend_from_slice(&from.get().to_le_bytes());
                out.extend_from_slice(&to.get().to_le_bytes());
            }
        }
        let entry_bytes = (out.len() + SUM_BYTES) as u32;
        put_u32(&mut out, 4, entry_bytes);
        let sum = crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(kind: u8, fields: &[u8]) -> Result<Self, EntryError> {
        let exactly = |bytes: usize, what| {
            if fields.len() == bytes { Ok(()) } else { Err(EntryError::Length { what }) }
        };
        match kind {
            KIND_CREATE if fields.len() > CREATE_FIXED_BYTES && fields.len() <= CREATE_FIXED_BYTES + KEY_BYTES_MAX => {
                Ok(Self::Create {
                    bucket: BucketId::from_bytes(array(fields, 0)),
                    created_at_ms: i64_at(fields, 16),
                    config: StreamConfig::from_bytes(&array(fields, 24))?,
                    key: Key::from_bytes(&fields[CREATE_FIXED_BYTES..])?,
                })
            }
            KIND_CREATE => Err(EntryError::Length { what: "a create" }),
            KIND_FENCE => Ok(Self::Fence { token: FencingToken::from_bytes(fields)? }),
            KIND_TRIM => exactly(8, "a trim").map(|()| Self::Trim { to: SeqNum::new(u64_at(fields, 0)) }),
            KIND_RECONFIGURE => {
                exactly(CONFIG_BYTES, "a reconfigure")?;
                Ok(Self::Reconfigure { config: StreamConfig::from_bytes(&array(fields, 0))? })
            }
            KIND_DELETE => exactly(0, "a delete").map(|()| Self::Delete),
            KIND_GAP => {
                exactly(16, "a gap")?;
                let (from, to) = (u64_at(fields, 0), u64_at(fields, 8));
                if from > to {
                    return Err(EntryError::Gap { from, to });
                }
                Ok(Self::Gap { from: SeqNum::new(from), to: SeqNum::new(to) })
            }
            found => Err(EntryError::Kind { found }),
        }
    }
}

/// The place of a verb whose sum holds.
pub(super) fn checked_place(entry: &[u8]) -> Result<Place, EntryError> {
    let (summed, sum) = entry.split_at(entry.len() - SUM_BYTES);
    check("verb", u32_at(sum, 0), crc32c(summed))?;
    if entry[1] != 0 {
        return Err(EntryError::Flags { found: entry[1] });
    }
    place_at(entry, VERB_SLOT_AT)
}

pub(super) fn decode_verb(entry: &[u8]) -> Result<Entry<'_>, EntryError> {
    let place = checked_place(entry)?;
    let verb = Verb::decode(entry[0], &entry[VERB_HEAD_BYTES..entry.len() - SUM_BYTES])?;
    Ok(Entry::Verb { place, verb })
}
