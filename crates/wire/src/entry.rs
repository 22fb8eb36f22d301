//! What a log, a chunk and a reader's frame are made of: a stream's batches and verbs, each with its place.
//!
//! An entry starts with its kind, its own length, and the stream's (id, epoch, rev): state is the fold of entries by
//! (epoch, rev), and what is at or below the applied rev is ignored. A batch entry is the leader's head, the batch as its
//! producer encoded it, and an optional effect that applies with it; a verb entry sums all of itself.
//!
//! Batch entry, little-endian:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind, 1 |
//! | 1 | 1 | flags: 1 capped at arrival, 2 producer stamps count, 4 one-shot key |
//! | 2 | 2 | records |
//! | 4 | 4 | length of the entry |
//! | 8 | 16 | stream id |
//! | 24 | 8 | epoch |
//! | 32 | 8 | rev |
//! | 40 | 8 | first sequence number |
//! | 48 | 8 | arrival, milliseconds |
//! | 56 | 8 | stamp of the record before, milliseconds |
//! | 64 | 8 | stamp of the last record, milliseconds |
//! | 72 | 8 | producer id, 0 is none |
//! | 80 | 8 | producer's batch number |
//! | 88 | 4 | session epoch |
//! | 92 | 4 | length of the batch |
//! | 96 | 4 | CRC-32C of the batch |
//! | 100 | 2 | length of the effect |
//! | 102 | 2 | slot of the stream |
//! | 104 | 4 | CRC-32C of the effect |
//! | 108 | 4 | CRC-32C of the 108 bytes before |
//!
//! Verb entry: kind (1), zero (1), slot of the stream (2), length of the entry (4), stream id (16), epoch (8), rev (8), the verb's fields,
//! CRC-32C of all before (4).

mod effect;
mod verb;

pub use effect::Effect;
pub use verb::Verb;

use effect::EFFECT_BYTES_MAX;
use verb::decode_verb;

use crate::batch::{BatchError, VerifiedBatch};
use crate::bytes::{array, i64_at, put_i64, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::config::{ConfigError, StreamConfig, TimestampingMode};
use crate::crc::crc32c;
use crate::ids::{BatchNo, Epoch, Position, ProducerId, Rev, SeqNum, StreamId};
use crate::limits::BATCH_BYTES_MAX;
use crate::names::NameError;
use crate::slot::{SLOTS, Slot};

/// Bytes of a batch entry before its batch.
const BATCH_HEAD_BYTES: usize = 112;
/// Bytes of a verb entry before its fields.
const VERB_HEAD_BYTES: usize = 40;
const SUM_BYTES: usize = 4;
/// Where the slot stands in a batch entry, and in a verb entry.
const BATCH_SLOT_AT: usize = 102;
const VERB_SLOT_AT: usize = 2;

/// Longest entry, in bytes.
pub const ENTRY_BYTES_MAX: usize = BATCH_HEAD_BYTES + BATCH_BYTES_MAX + EFFECT_BYTES_MAX;

const KIND_BATCH: u8 = 1;

const FLAG_CAPPED: u8 = 1;
const FLAG_CLIENT_STAMPS: u8 = 2;
const FLAG_ONE_SHOT: u8 = 4;

/// Why bytes are no entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Fewer bytes than the entry says it has, or than any has.
    #[error("an entry of {bytes} bytes where {bytes_needed} are needed")]
    Short {
        /// Bytes there are.
        bytes: usize,
        /// Bytes there should be.
        bytes_needed: usize,
    },
    /// A kind this build doesn't know.
    #[error("entry kind {found} is unknown")]
    Kind {
        /// The kind found.
        found: u8,
    },
    /// A sum that doesn't match.
    #[error("the {what} of an entry is damaged: its checksum is {found:08x}, its bytes sum to {computed:08x}")]
    Checksum {
        /// Which part.
        what: &'static str,
        /// What stands there.
        found: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Flags that this build doesn't know.
    #[error("the flags of an entry are {found:#04x}, of which this build doesn't know all")]
    Flags {
        /// What stands there.
        found: u8,
    },
    /// Lengths that contradict each other.
    #[error("the lengths of an entry contradict each other: {what}")]
    Length {
        /// Which.
        what: &'static str,
    },
    /// A slot that no cluster has.
    #[error("an entry of slot {found}: there are {SLOTS}")]
    Slot {
        /// The slot found.
        found: u16,
    },
    /// A rev that none can follow.
    #[error("an entry of rev {found}, after which there is none")]
    Rev {
        /// The rev found.
        found: u64,
    },
    /// A gap that ends before it begins.
    #[error("an entry gives up the records from {from} to {to}, which go backwards")]
    Gap {
        /// Where it begins.
        from: u64,
        /// Where it ends.
        to: u64,
    },
    /// A name inside is none.
    #[error("an entry is wrong: {0}")]
    Name(#[from] NameError),
    /// A configuration inside is none.
    #[error("an entry is wrong: {0}")]
    Config(#[from] ConfigError),
    /// The batch inside is none.
    #[error("an entry is wrong: {0}")]
    Batch(#[from] BatchError),
}

/// Which stream an entry belongs to, and where it stands in that stream's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The stream.
    pub stream_id: StreamId,
    /// The slot that the stream lies in.
    pub slot: Slot,
    /// The tenure of the leader that wrote it.
    pub slot_epoch: Epoch,
    /// Its place among the stream's batches and verbs.
    pub rev: Rev,
}

/// How the records of a batch get their stamps: the same everywhere, from what its head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamping {
    /// When the batch arrived, in milliseconds.
    pub arrival_ms: i64,
    /// The stamp of the record before it, below which none may fall.
    pub previous_ms: i64,
    /// Whether a producer's stamp is capped at the arrival.
    pub capped: bool,
    /// Whether a producer's stamps count at all.
    pub client_stamps: bool,
}

impl Stamping {
    /// How a stream of this mode stamps a batch.
    #[must_use]
    #[inline]
    pub fn of(config: &StreamConfig, arrival_ms: i64, previous_ms: i64) -> Self {
        Self {
            arrival_ms,
            previous_ms,
            capped: !config.timestamping.uncapped,
            client_stamps: config.timestamping.mode != TimestampingMode::Arrival,
        }
    }

    /// The effective stamp of a record after one stamped `previous_ms`.
    #[must_use]
    #[inline]
    pub fn effective(&self, client: Option<i64>, previous_ms: i64) -> i64 {
        let stamp = match client.filter(|_| self.client_stamps) {
            Some(client) if self.capped => client.min(self.arrival_ms),
            Some(client) => client,
            None => self.arrival_ms,
        };
        stamp.max(previous_ms)
    }

    /// The effective stamp of a batch's last record.
    #[must_use]
    #[inline]
    pub fn last(&self, batch: &VerifiedBatch<'_>) -> i64 {
        if batch.has_no_stamps() {
            return self.effective(None, self.previous_ms);
        }
        (0..batch.records()).fold(self.previous_ms, |previous, record| self.effective(batch.stamp(record), previous))
    }
}

/// Who numbered a batch, for dedupe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Numbered {
    /// The producer; [`ProducerId::ZERO`] is nobody.
    pub producer: ProducerId,
    /// Its number for the batch.
    pub no: BatchNo,
    /// Whether the two together are the key of a one-shot rather than a session's count.
    pub one_shot: bool,
}

/// The leader's head of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHead {
    /// Stream, epoch, rev.
    pub place: Place,
    /// The sequence number of its first record.
    pub first: SeqNum,
    /// How many records it has.
    pub records: u16,
    /// How they are stamped.
    pub stamping: Stamping,
    /// The effective stamp of its last record.
    pub last_ms: i64,
    /// Who numbered it.
    pub numbered: Numbered,
    /// The writer session's epoch among those of its stream.
    pub session_epoch: u32,
    /// The CRC-32C of the batch.
    pub batch_crc: u32,
}

impl BatchHead {
    /// One past its last record, with that record's stamp.
    #[must_use]
    #[inline]
    pub fn end(&self) -> Position {
        Position::new(self.first.after(u64::from(self.records)), self.last_ms)
    }
}

/// Bytes of the entry of a batch of `batch_bytes` without an effect.
#[must_use]
#[inline]
pub const fn batch_entry_bytes(batch_bytes: usize) -> usize {
    BATCH_HEAD_BYTES + batch_bytes
}

/// Writes the entry of a batch without an effect into `out`, which is exactly [`batch_entry_bytes`] long.
///
/// # Panics
/// When `out` has another length.
#[inline]
pub fn encode_batch(head: &BatchHead, batch: &[u8], out: &mut [u8]) {
    assert_eq!(out.len(), batch_entry_bytes(batch.len()), "room for exactly this entry");
    encode_head(head, batch.len(), &[], out);
    out[BATCH_HEAD_BYTES..].copy_from_slice(batch);
}

/// The entry of a batch with an effect.
#[must_use]
pub fn encode_batch_with(head: &BatchHead, batch: &[u8], effect: &Effect) -> Vec<u8> {
    let bytes = effect.to_bytes();
    let mut out = vec![0; batch_entry_bytes(batch.len()) + bytes.len()];
    encode_head(head, batch.len(), &bytes, &mut out);
    out[BATCH_HEAD_BYTES..BATCH_HEAD_BYTES + batch.len()].copy_from_slice(batch);
    out[BATCH_HEAD_BYTES + batch.len()..].copy_from_slice(&bytes);
    out
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "callers hold batches of at most BATCH_BYTES_MAX")]
fn encode_head(head: &BatchHead, batch_bytes: usize, effect: &[u8], out: &mut [u8]) {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let entry_bytes = out.len() as u32;
    out[0] = KIND_BATCH;
    out[1] = flag(head.stamping.capped, FLAG_CAPPED)
        | flag(head.stamping.client_stamps, FLAG_CLIENT_STAMPS)
        | flag(head.numbered.one_shot, FLAG_ONE_SHOT);
    put_u16(out, 2, head.records);
    put_u32(out, 4, entry_bytes);
    put_place(out, BATCH_SLOT_AT, head.place);
    put_u64(out, 40, head.first.get());
    put_i64(out, 48, head.stamping.arrival_ms);
    put_i64(out, 56, head.stamping.previous_ms);
    put_i64(out, 64, head.last_ms);
    put_u64(out, 72, head.numbered.producer.get());
    put_u64(out, 80, head.numbered.no.get());
    put_u32(out, 88, head.session_epoch);
    put_u32(out, 92, batch_bytes as u32);
    put_u32(out, 96, head.batch_crc);
    put_u16(out, 100, effect.len() as u16);
    put_u32(out, 104, effect_sum(effect));
    let sum = crc32c(&out[..108]);
    put_u32(out, 108, sum);
}

#[inline]
fn put_place(out: &mut [u8], slot_at: usize, place: Place) {
    put_u16(out, slot_at, place.slot.get().into());
    out[8..24].copy_from_slice(&place.stream_id.to_bytes());
    put_u64(out, 24, place.slot_epoch.get());
    put_u64(out, 32, place.rev.get());
}

#[inline]
fn place_at(bytes: &[u8], slot_at: usize) -> Result<Place, EntryError> {
    let found = u16_at(bytes, slot_at);
    let slot = u8::try_from(found).ok().and_then(Slot::new).ok_or(EntryError::Slot { found })?;
    if u64_at(bytes, 32) == u64::MAX {
        return Err(EntryError::Rev { found: u64::MAX });
    }
    Ok(Place {
        slot,
        stream_id: StreamId::from_bytes(array(bytes, 8)),
        slot_epoch: Epoch::new(u64_at(bytes, 24)),
        rev: Rev::new(u64_at(bytes, 32)),
    })
}

/// An entry in place; its head, verb and effect are checked, its batch when asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<'a> {
    /// Records.
    Batch {
        /// The leader's head.
        head: BatchHead,
        /// The batch as its producer encoded it, not yet checked.
        batch: &'a [u8],
        /// What applies with it.
        effect: Option<Effect>,
    },
    /// A verb.
    Verb {
        /// Stream, epoch, rev.
        place: Place,
        /// What it did.
        verb: Verb,
    },
}

impl<'a> Entry<'a> {
    /// The entry at the start of `bytes`, and how many bytes it takes.
    ///
    /// # Errors
    /// [`EntryError`] of the first thing that is wrong.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, usize), EntryError> {
        let entry = whole(bytes)?;
        let decoded = if entry[0] == KIND_BATCH { decode_batch(entry)? } else { decode_verb(entry)? };
        Ok((decoded, entry.len()))
    }

    /// Stream, epoch, rev.
    #[must_use]
    pub const fn place(&self) -> Place {
        match self {
            Self::Batch { head, .. } => head.place,
            Self::Verb { place, .. } => *place,
        }
    }
}

/// What the head of an entry tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peek {
    /// Stream, epoch, rev.
    pub place: Place,
    /// Bytes of the entry.
    pub entry_bytes: usize,
    /// What a batch has; `None` for a verb.
    pub records: Option<PeekedRecords>,
}

/// The records of a batch, as far as its head tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeekedRecords {
    /// The sequence number of the first one.
    pub first: SeqNum,
    /// How many there are.
    pub records: u16,
    /// The effective stamp of the last one.
    pub last_ms: i64,
    /// When the batch arrived.
    pub arrival_ms: i64,
}

/// Looks at the head of the entry at the start of `bytes`, whose sum is checked; batch and effect are not touched.
///
/// # Errors
/// [`EntryError`] of the first thing that is wrong with it.
pub fn peek(bytes: &[u8]) -> Result<Peek, EntryError> {
    let entry = whole(bytes)?;
    if entry[0] != KIND_BATCH {
        let place = verb::checked_place(entry)?;
        return Ok(Peek { place, entry_bytes: entry.len(), records: None });
    }
    check_head(entry)?;
    let (first, records) = records_at(entry)?;
    let records = PeekedRecords { first, records, last_ms: i64_at(entry, 64), arrival_ms: i64_at(entry, 48) };
    Ok(Peek { place: place_at(entry, BATCH_SLOT_AT)?, entry_bytes: entry.len(), records: Some(records) })
}

/// The bytes of the entry at the start of `bytes`.
fn whole(bytes: &[u8]) -> Result<&[u8], EntryError> {
    let short = |bytes_needed| EntryError::Short { bytes: bytes.len(), bytes_needed };
    if bytes.len() < VERB_HEAD_BYTES + SUM_BYTES {
        return Err(short(VERB_HEAD_BYTES + SUM_BYTES));
    }
    let entry_bytes = u32_at(bytes, 4) as usize;
    let entry = bytes.get(..entry_bytes).ok_or_else(|| short(entry_bytes))?;
    if entry_bytes < VERB_HEAD_BYTES + SUM_BYTES {
        return Err(EntryError::Length { what: "its own" });
    }
    Ok(entry)
}

/// Checks the head of a batch entry, and answers how long the batch and the effect behind it are.
fn check_head(entry: &[u8]) -> Result<(usize, usize), EntryError> {
    if entry.len() < BATCH_HEAD_BYTES {
        return Err(EntryError::Short { bytes: entry.len(), bytes_needed: BATCH_HEAD_BYTES });
    }
    check("head", u32_at(entry, 108), crc32c(&entry[..108]))?;
    if entry[1] & !(FLAG_CAPPED | FLAG_CLIENT_STAMPS | FLAG_ONE_SHOT) != 0 {
        return Err(EntryError::Flags { found: entry[1] });
    }
    let (batch_bytes, effect_bytes) = (u32_at(entry, 92) as usize, usize::from(u16_at(entry, 100)));
    if entry.len() != BATCH_HEAD_BYTES + batch_bytes + effect_bytes {
        return Err(EntryError::Length { what: "batch and effect" });
    }
    Ok((batch_bytes, effect_bytes))
}

fn records_at(entry: &[u8]) -> Result<(SeqNum, u16), EntryError> {
    let (first, records) = (SeqNum::new(u64_at(entry, 40)), u16_at(entry, 2));
    if first.get().checked_add(records.into()).is_none() {
        return Err(EntryError::Length { what: "its sequence numbers" });
    }
    if records == 0 {
        return Err(EntryError::Length { what: "a batch of no record" });
    }
    Ok((first, records))
}

/// CRC-32C of the bytes of an effect; that of none is 0.
#[inline]
fn effect_sum(effect: &[u8]) -> u32 {
    if effect.is_empty() { 0 } else { crc32c(effect) }
}

fn check(what: &'static str, found: u32, computed: u32) -> Result<(), EntryError> {
    if found == computed { Ok(()) } else { Err(EntryError::Checksum { what, found, computed }) }
}

fn decode_batch(entry: &[u8]) -> Result<Entry<'_>, EntryError> {
    let (batch_bytes, _) = check_head(entry)?;
    let (batch, effect) = entry[BATCH_HEAD_BYTES..].split_at(batch_bytes);
    check("effect", u32_at(entry, 104), effect_sum(effect))?;
    let effect = if effect.is_empty() { None } else { Some(Effect::from_bytes(effect)?) };
    let flag = |bit| entry[1] & bit != 0;
    let (first, records) = records_at(entry)?;
    let head = BatchHead {
        place: place_at(entry, BATCH_SLOT_AT)?,
        first,
        records,
        stamping: Stamping {
            arrival_ms: i64_at(entry, 48),
            previous_ms: i64_at(entry, 56),
            capped: flag(FLAG_CAPPED),
            client_stamps: flag(FLAG_CLIENT_STAMPS),
        },
        last_ms: i64_at(entry, 64),
        numbered: Numbered {
            producer: ProducerId::new(u64_at(entry, 72)),
            no: BatchNo::new(u64_at(entry, 80)),
            one_shot: flag(FLAG_ONE_SHOT),
        },
        session_epoch: u32_at(entry, 88),
        batch_crc: u32_at(entry, 96),
    };
    Ok(Entry::Batch { head, batch, effect })
}

#[cfg(test)]
pub(crate) mod tests;
