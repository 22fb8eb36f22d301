//! What the index keeps of a stream: the fold of its entries that are in the store.
//!
//! All numbers are little-endian.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 1 | format, 2 |
//! | 1 | 1 | flags: 1 has records whose stamps are not capped at their arrival |
//! | 2 | 2 | length of the key |
//! | 4 | 2 | length of the fencing token |
//! | 6 | 2 | zero |
//! | 8 | 16 | stream id |
//! | 24 | 16 | bucket id |
//! | 40 | 8 | when it was made, milliseconds |
//! | 48 | 8 | epoch of the last entry applied |
//! | 56 | 8 | rev of the last entry applied |
//! | 64 | 8 | sequence number of the tail |
//! | 72 | 8 | stamp of the last record, milliseconds |
//! | 80 | 8 | trim point |
//! | 88 | 8 | content kept, in bytes |
//! | 96 | 8 | highest arrival, milliseconds |
//! | 104 | 48 | configuration |
//! | 152 | | the key, the token, what is [remembered of producers](crate::dedupe) |
//! | end | 4 | CRC-32C of all before |

use crate::batch::{BatchError, VerifiedBatch};
use crate::bytes::{array, i64_at, put_i64, put_u16, put_u64, u16_at, u32_at, u64_at};
use crate::config::{ConfigError, StreamConfig};
use crate::crc::crc32c;
use crate::dedupe::{Answer, Dedupe, DedupeError, is_remembered};
use crate::entry::{BatchHead, Effect, Entry, Place, Verb};
use crate::ids::{BucketId, Epoch, Lsn, Position, Rev, SeqNum, StreamId};
use crate::names::{FencingToken, Key, NameError};
use crate::slot::Slot;

const FORMAT: u8 = 2;
const FLAG_UNCAPPED: u8 = 1;
const HEAD_BYTES: usize = 152;
const SUM_BYTES: usize = 4;

/// A stream, as far as its entries are in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRow {
    /// Minted when it was made.
    pub stream_id: StreamId,
    /// Its bucket.
    pub bucket: BucketId,
    /// Its key.
    pub key: Key,
    /// How it behaves.
    pub config: StreamConfig,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// The epoch of the last entry applied.
    pub epoch: Epoch,
    /// The rev of the last entry applied.
    pub rev: Rev,
    /// One past its last record, with that record's stamp.
    pub tail: Position,
    /// Records below it are gone.
    pub trim_point: SeqNum,
    /// Content kept in the store, in bytes.
    pub bytes: u64,
    /// The installed token; empty when none is.
    pub token: FencingToken,
    /// What it remembers of its producers.
    pub dedupe: Dedupe,
    /// When the batch that arrived last by its leader's clock arrived, in milliseconds; 0 before the first.
    pub arrival_ms: i64,
    /// Whether it ever took records whose stamps were not capped at their arrival. Trims don't change that: no later stamp is lower.
    pub has_uncapped: bool,
}

/// What an entry did to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// Nothing: it is at or below the applied rev.
    Ignored,
    /// The row has changed.
    Changed,
    /// The stream is deleted: the row goes.
    Deleted,
}

/// An entry that can't be folded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// Entries before it are missing, or it is of an older tenure than what is applied.
    #[error(
        "stream {stream_id} goes from rev {applied} to rev {rev} of epoch {epoch}: entries between them are missing"
    )]
    Hole {
        /// The stream.
        stream_id: StreamId,
        /// The last rev that was applied.
        applied: Rev,
        /// The entry's rev.
        rev: Rev,
        /// The entry's epoch.
        epoch: Epoch,
    },
    /// Its records don't begin where those before it end.
    #[error("rev {rev} of stream {stream_id} begins at record {first}, where the stream has come to {tail}")]
    Records {
        /// The stream.
        stream_id: StreamId,
        /// The entry's rev.
        rev: Rev,
        /// Its first record.
        first: SeqNum,
        /// One past the last record before it.
        tail: SeqNum,
    },
    /// Its batch doesn't decode.
    #[error("the batch of rev {rev} of stream {stream_id} can't be read: {source}")]
    Batch {
        /// The stream.
        stream_id: StreamId,
        /// The entry's rev.
        rev: Rev,
        /// What is wrong with it.
        source: BatchError,
    },
}

/// Why bytes are no row of a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamRowError {
    /// Fewer bytes than any row has, or than the lengths inside need.
    #[error("a stream row of {bytes} bytes where {bytes_needed} are needed")]
    Short {
        /// Bytes there are.
        bytes: usize,
        /// Bytes there should be, at least.
        bytes_needed: usize,
    },
    /// A format this build doesn't read.
    #[error("a stream row of format {found}: this build reads format {FORMAT}")]
    Format {
        /// The format found.
        found: u8,
    },
    /// Flags that this build doesn't know.
    #[error("a stream row with the flags {found:#04x}, of which this build doesn't know all")]
    Flags {
        /// The flags found.
        found: u8,
    },
    /// The sum doesn't match.
    #[error("the stream row is damaged: its checksum is {found:08x}, its bytes sum to {computed:08x}")]
    Checksum {
        /// What stands in the row.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// A name that is none.
    #[error("the stream row is wrong: {0}")]
    Name(#[from] NameError),
    /// A configuration that is none.
    #[error("the stream row is wrong: {0}")]
    Config(#[from] ConfigError),
    /// Its trim point lies past its tail.
    #[error("the stream row is wrong: it is trimmed to {trim_point}, and ends at {tail}")]
    Trim {
        /// The trim point.
        trim_point: SeqNum,
        /// One past the last record.
        tail: SeqNum,
    },
    /// A memory of producers that is none.
    #[error("the stream row is wrong: {0}")]
    Dedupe(#[from] DedupeError),
}

impl StreamRow {
    /// The row of a stream that this verb makes; `None` when it is not a create.
    #[must_use]
    pub fn created(place: Place, verb: &Verb) -> Option<Self> {
        let Verb::Create { bucket, key, config, created_at_ms } = verb else { return None };
        Some(Self {
            stream_id: place.stream_id,
            bucket: *bucket,
            key: key.clone(),
            config: *config,
            created_at_ms: *created_at_ms,
            epoch: place.slot_epoch,
            rev: place.rev,
            tail: Position::default(),
            trim_point: SeqNum::ZERO,
            bytes: 0,
            token: FencingToken::default(),
            dedupe: Dedupe::default(),
            arrival_ms: 0,
            has_uncapped: false,
        })
    }

    /// The slot that its name lies in.
    #[must_use]
    pub fn slot(&self) -> Slot {
        Slot::of(self.bucket, &self.key)
    }

    /// Folds the next entry of the stream, whose batch is covered by a sum that was checked and has `content_bytes` of
    /// content; what is at or below the applied rev is ignored. A trim leaves [`bytes`](Self::bytes) as they are:
    /// they fall when extents are dropped.
    ///
    /// # Errors
    /// [`FoldError`]; the row is as it was.
    ///
    /// # Panics
    /// When the entry is another stream's.
    pub fn apply(&mut self, entry: &Entry<'_>, content_bytes: u32) -> Result<Applied, FoldError> {
        let Place { stream_id, slot_epoch: epoch, rev, .. } = entry.place();
        assert_eq!(stream_id, self.stream_id, "a row takes the entries of its own stream");
        if rev <= self.rev {
            return Ok(Applied::Ignored);
        }
        if rev != self.rev.next() || epoch < self.epoch {
            return Err(FoldError::Hole { stream_id, applied: self.rev, rev, epoch });
        }
        let applied = match entry {
            Entry::Batch { head, .. } if head.first != self.tail.seq_num => {
                let (first, tail) = (head.first, self.tail.seq_num);
                return Err(FoldError::Records { stream_id, rev, first, tail });
            }
            Entry::Batch { head, batch, effect } => {
                self.apply_batch(head, batch).map_err(|source| FoldError::Batch { stream_id, rev, source })?;
                self.bytes += u64::from(content_bytes);
                if let Some(token) = effect.as_ref().and_then(Effect::token) {
                    self.token = token.clone();
                }
                if let Some(to) = effect.as_ref().and_then(Effect::trim) {
                    self.apply_trim(to);
                }
                Applied::Changed
            }
            Entry::Verb { verb, .. } => self.apply_verb(verb),
        };
        (self.rev, self.epoch) = (rev, epoch);
        Ok(applied)
    }

    fn apply_batch(&mut self, head: &BatchHead, batch: &[u8]) -> Result<(), BatchError> {
        if is_remembered(head.numbered) {
            let first_ms = first_ms(head, batch)?;
            let answer = Answer {
                no: head.numbered.no,
                batch_crc: head.batch_crc,
                records: head.records,
                start: Position::new(head.first, first_ms),
                last_ms: head.last_ms,
                lsn: Lsn::ZERO,
            };
            self.dedupe.note(head.numbered, answer);
        }
        self.tail = head.end();
        self.arrival_ms = self.arrival_ms.max(head.stamping.arrival_ms);
        self.has_uncapped |= !head.stamping.capped;
        Ok(())
    }

    fn apply_verb(&mut self, verb: &Verb) -> Applied {
        match verb {
            Verb::Delete => return Applied::Deleted,
            Verb::Reconfigure { config } => self.config = *config,
            Verb::Fence { token } => self.token = token.clone(),
            Verb::Trim { to } => self.apply_trim(*to),
            Verb::Gap { to, .. } => self.tail.seq_num = self.tail.seq_num.max(*to),
            Verb::Create { .. } => {}
        }
        Applied::Changed
    }

    fn apply_trim(&mut self, to: SeqNum) {
        self.trim_point = self.trim_point.max(to.min(self.tail.seq_num));
    }

    /// The bytes kept in the index.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "names are bounded far below")]
    pub fn encode(&self) -> Vec<u8> {
        let (key, token) = (self.key.as_str().as_bytes(), self.token.as_str().as_bytes());
        let mut out = vec![0; HEAD_BYTES];
        out[0] = FORMAT;
        out[1] = if self.has_uncapped { FLAG_UNCAPPED } else { 0 };
        put_u16(&mut out, 2, key.len() as u16);
        put_u16(&mut out, 4, token.len() as u16);
        out[8..24].copy_from_slice(&self.stream_id.to_bytes());
        out[24..40].copy_from_slice(&self.bucket.to_bytes());
        put_i64(&mut out, 40, self.created_at_ms);
        put_u64(&mut out, 48, self.epoch.get());
        put_u64(&mut out, 56, self.rev.get());
        put_u64(&mut out, 64, self.tail.seq_num.get());
        put_i64(&mut out, 72, self.tail.timestamp_ms);
        put_u64(&mut out, 80, self.trim_point.get());
        put_u64(&mut out, 88, self.bytes);
        put_i64(&mut out, 96, self.arrival_ms);
        out[104..HEAD_BYTES].copy_from_slice(&self.config.to_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(token);
        self.dedupe.encode(&mut out);
        let sum = crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// The row of these bytes.
    ///
    /// # Errors
    /// [`StreamRowError`] that says what is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, StreamRowError> {
        let short = |bytes_needed| StreamRowError::Short { bytes: bytes.len(), bytes_needed };
        if bytes.len() < HEAD_BYTES + SUM_BYTES {
            return Err(short(HEAD_BYTES + SUM_BYTES));
        }
        if bytes[0] != FORMAT {
            return Err(StreamRowError::Format { found: bytes[0] });
        }
        let (row, sum) = bytes.split_at(bytes.len() - SUM_BYTES);
        let (found, computed) = (u32_at(sum, 0), crc32c(row));
        if found != computed {
            return Err(StreamRowError::Checksum { found, computed });
        }
        if row[1] & !FLAG_UNCAPPED != 0 || u16_at(row, 6) != 0 {
            return Err(StreamRowError::Flags { found: row[1] });
        }
        let (key_bytes, token_bytes) = (usize::from(u16_at(row, 2)), usize::from(u16_at(row, 4)));
        let names = &row[HEAD_BYTES..];
        if names.len() < key_bytes + token_bytes {
            return Err(short(HEAD_BYTES + key_bytes + token_bytes + SUM_BYTES));
        }
        let (key, rest) = names.split_at(key_bytes);
        let (token, dedupe) = rest.split_at(token_bytes);
        let (tail, trim_point) = (SeqNum::new(u64_at(row, 64)), SeqNum::new(u64_at(row, 80)));
        if trim_point > tail {
            return Err(StreamRowError::Trim { trim_point, tail });
        }
        Ok(Self {
            stream_id: StreamId::from_bytes(array(row, 8)),
            bucket: BucketId::from_bytes(array(row, 24)),
            key: Key::from_bytes(key)?,
            config: StreamConfig::from_bytes(&array(row, 104))?,
            created_at_ms: i64_at(row, 40),
            epoch: Epoch::new(u64_at(row, 48)),
            rev: Rev::new(u64_at(row, 56)),
            tail: Position::new(tail, i64_at(row, 72)),
            trim_point,
            bytes: u64_at(row, 88),
            token: FencingToken::from_bytes(token)?,
            dedupe: Dedupe::decode(dedupe)?,
            arrival_ms: i64_at(row, 96),
            has_uncapped: row[1] & FLAG_UNCAPPED != 0,
        })
    }
}

/// The stamp of a batch's first record; its columns are looked at only when the head doesn't tell.
fn first_ms(head: &BatchHead, batch: &[u8]) -> Result<i64, BatchError> {
    let previous_ms = head.stamping.previous_ms;
    if head.records == 1 || head.last_ms == previous_ms {
        return Ok(head.last_ms);
    }
    if !head.stamping.client_stamps {
        return Ok(head.stamping.effective(None, previous_ms));
    }
    let batch = VerifiedBatch::summed(batch, head.batch_crc)?;
    Ok(head.stamping.effective(batch.stamp(0), previous_ms))
}

#[cfg(test)]
pub(crate) mod tests;
