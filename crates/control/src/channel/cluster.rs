//! Which cluster does a store belong to, and who may write to it?
//!
//! `meta/cluster`, replaced only by compare-and-swap; integers little-endian:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | `NVcl` |
//! | 4 | 2 | format, 2 |
//! | 6 | 2 | zero |
//! | 8 | 4 | CRC-32C of the bytes that follow |
//! | 12 | 16 | cluster id |
//! | 28 | 8 | next epoch: no incarnation at or above it was given out |
//! | 36 | 8 | slots with an index, a bit each |
//! | 44 | 8 | loss epoch: the last incarnation that began with losses that an operator accepted; 0 when none did |
//! | 52 | 4 | owner: 0 none, 1 held, 2 released |
//! | 56 | 16 | the owner's star |
//! | 72 | 8 | the owner's incarnation |
//! | 80 | 4 | channels that follow |
//! | 84 | 4 | head logs that follow |
//! | 88 | 40 each | channels, by incarnation |
//! | | 56 each | head logs |
//!
//! | at | bytes | field of a channel |
//! |---|---|---|
//! | 0 | 16 | star |
//! | 16 | 8 | incarnation |
//! | 24 | 8 | low: the first position that is kept |
//! | 32 | 8 | end: where its fence stands; all ones while it has none |
//!
//! | at | bytes | field of a head log |
//! |---|---|---|
//! | 0 | 16 | log |
//! | 16 | 16 | star |
//! | 32 | 8 | epoch: it was written in this one at least |
//! | 40 | 8 | end LSN: it reached this at least |
//! | 48 | 2 | number |
//! | 50 | 2 | 1: all of it is settled |
//! | 52 | 4 | zero |

use wire::crc::crc32c;
use wire::ids::{ClusterId, Epoch, LogId, Lsn, StarId};

const MAGIC: [u8; 4] = *b"NVcl";
const FORMAT: u16 = 3;
const SUM_FROM: usize = 12;
const HEAD_BYTES: usize = 88;
const CHANNEL_BYTES: usize = 40;
const LOG_BYTES: usize = 56;
const NOT_SEALED: u64 = u64::MAX;
const FLAG_CLEAN: u16 = 1;

/// Why bytes name no cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterDecodeError {
    /// Another length, or another magic.
    #[error("{bytes} bytes that are no cluster's")]
    NotACluster {
        /// How many.
        bytes: usize,
    },
    /// A format that this build does not read.
    #[error("a cluster of format {found}: this build reads format {FORMAT} alone")]
    Format {
        /// The format found.
        found: u16,
    },
    /// The sum does not match.
    #[error("its checksum is {found:08x}, its bytes sum to {computed:08x}")]
    Checksum {
        /// What stands there.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// A field holds what no nova writes.
    #[error("its owner's state is {found}: this build knows 0, 1 and 2")]
    Owner {
        /// What stands there.
        found: u32,
    },
}

/// The star that writes the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) star: StarId,
    pub(crate) incarnation: Epoch,
    /// It ended in order and writes no more.
    pub(crate) released: bool,
}

/// The channel of an incarnation, from when that is given out until all of it is in the index for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelRecord {
    pub(crate) star: StarId,
    pub(crate) incarnation: Epoch,
    pub(crate) low: u64,
    /// Where its fence stands; `None` while it has none.
    pub(crate) end: Option<u64>,
}

/// A head log that was opened over this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadLog {
    pub(crate) log: LogId,
    pub(crate) star: StarId,
    pub(crate) number: u16,
    pub(crate) epoch: Epoch,
    pub(crate) end_lsn: Lsn,
    pub(crate) clean: bool,
}

/// What all stars over one store agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) id: ClusterId,
    pub(crate) next_epoch: Epoch,
    pub(crate) slots_with_index: u64,
    pub(crate) loss_epoch: Epoch,
    pub(crate) owner: Option<Owner>,
    pub(crate) channels: Vec<ChannelRecord>,
    pub(crate) logs: Vec<HeadLog>,
}

impl Cluster {
    /// A cluster that no star has joined.
    pub(crate) fn new(id: ClusterId) -> Self {
        Self {
            id,
            next_epoch: Epoch::ZERO.next(),
            slots_with_index: 0,
            loss_epoch: Epoch::ZERO,
            owner: None,
            channels: Vec::new(),
            logs: Vec::new(),
        }
    }

    /// Gives out the next incarnation, at least this one.
    pub(crate) fn take_epoch(&mut self, at_least: Epoch) -> Epoch {
        let taken = self.next_epoch.max(at_least);
        self.next_epoch = taken.next();
        taken
    }

    /// Whether this incarnation writes the store.
    pub(crate) fn is_owned_by(&self, incarnation: Epoch) -> bool {
        self.owner.is_some_and(|owner| owner.incarnation == incarnation)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(HEAD_BYTES + self.channels.len() * CHANNEL_BYTES + self.logs.len() * LOG_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.id.to_bytes());
        for number in [self.next_epoch.get(), self.slots_with_index, self.loss_epoch.get()] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let state: u32 = self.owner.map_or(0, |owner| if owner.released { 2 } else { 1 });
        out.extend_from_slice(&state.to_le_bytes());
        out.extend_from_slice(&self.owner.map_or([0; 16], |owner| owner.star.to_bytes()));
        out.extend_from_slice(&self.owner.map_or(0, |owner| owner.incarnation.get()).to_le_bytes());
        for count in [self.channels.len(), self.logs.len()] {
            out.extend_from_slice(&u32::try_from(count).expect("rows that memory holds are few").to_le_bytes());
        }
        for channel in &self.channels {
            out.extend_from_slice(&channel.star.to_bytes());
            for number in [channel.incarnation.get(), channel.low, channel.end.unwrap_or(NOT_SEALED)] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        for log in &self.logs {
            out.extend_from_slice(&log.log.to_bytes());
            out.extend_from_slice(&log.star.to_bytes());
            out.extend_from_slice(&log.epoch.get().to_le_bytes());
            out.extend_from_slice(&log.end_lsn.get().to_le_bytes());
            out.extend_from_slice(&log.number.to_le_bytes());
            out.extend_from_slice(&(if log.clean { FLAG_CLEAN } else { 0 }).to_le_bytes());
            out.extend_from_slice(&[0; 4]);
        }
        let sum = crc32c(&out[SUM_FROM..]);
        out[8..SUM_FROM].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, ClusterDecodeError> {
        let alien = ClusterDecodeError::NotACluster { bytes: bytes.len() };
        if bytes.len() < 6 || bytes[..4] != MAGIC {
            return Err(alien);
        }
        let format = u16::from_le_bytes([bytes[4], bytes[5]]);
        if format != FORMAT {
            return Err(ClusterDecodeError::Format { found: format });
        }
        if bytes.len() < HEAD_BYTES {
            return Err(alien);
        }
        let mut fields = Fields(&bytes[8..]);
        let found = u32::from_le_bytes(fields.take());
        let computed = crc32c(&bytes[SUM_FROM..]);
        if found != computed {
            return Err(ClusterDecodeError::Checksum { found, computed });
        }
        let id = ClusterId::from_bytes(fields.take());
        Self::decode_rest(id, fields)?.ok_or(alien)
    }

    /// `None` when there are more or fewer rows than it says.
    fn decode_rest(id: ClusterId, mut fields: Fields<'_>) -> Result<Option<Self>, ClusterDecodeError> {
        let next_epoch = Epoch::new(fields.u64());
        let slots_with_index = fields.u64();
        let loss_epoch = Epoch::new(fields.u64());
        let state = u32::from_le_bytes(fields.take());
        let (star, incarnation) = (StarId::from_bytes(fields.take()), Epoch::new(fields.u64()));
        let owner = match state {
            0 => None,
            1 | 2 => Some(Owner { star, incarnation, released: state == 2 }),
            found => return Err(ClusterDecodeError::Owner { found }),
        };
        let channels = u32::from_le_bytes(fields.take()) as usize;
        let logs = u32::from_le_bytes(fields.take()) as usize;
        if fields.0.len() != channels * CHANNEL_BYTES + logs * LOG_BYTES {
            return Ok(None);
        }
        let channels = (0..channels).map(|_| ChannelRecord::decode(&mut fields)).collect();
        let logs = (0..logs).map(|_| HeadLog::decode(&mut fields)).collect();
        Ok(Some(Self { id, next_epoch, slots_with_index, loss_epoch, owner, channels, logs }))
    }
}

impl ChannelRecord {
    fn decode(fields: &mut Fields<'_>) -> Self {
        let star = StarId::from_bytes(fields.take());
        let (incarnation, low, end) = (Epoch::new(fields.u64()), fields.u64(), fields.u64());
        Self { star, incarnation, low, end: (end != NOT_SEALED).then_some(end) }
    }
}

impl HeadLog {
    fn decode(fields: &mut Fields<'_>) -> Self {
        let (log, star) = (LogId::from_bytes(fields.take()), StarId::from_bytes(fields.take()));
        let (epoch, end_lsn) = (Epoch::new(fields.u64()), Lsn::new(fields.u64()));
        let (number, flags) = (u16::from_le_bytes(fields.take()), u16::from_le_bytes(fields.take()));
        let _zero: [u8; 4] = fields.take();
        Self { log, star, number, epoch, end_lsn, clean: flags & FLAG_CLEAN != 0 }
    }
}

/// Reads one field after another; whoever makes it has checked that they are all there.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the length was checked");
        self.0 = rest;
        *field
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

#[cfg(test)]
mod tests;
