//! What does a star say of itself to those that might take over its channel?
//!
//! `stars/<star>/lease`, replaced only by compare-and-swap; integers little-endian:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | `NVls` |
//! | 4 | 2 | format, 1 |
//! | 6 | 2 | state: 0 held, 1 released, 2 fenced |
//! | 8 | 4 | CRC-32C of the state and of the bytes that follow |
//! | 12 | 4 | ttl in milliseconds: who sees it unchanged for longer may take it for dead |
//! | 16 | 8 | incarnation that holds or held it; 0 if none ever did |
//! | 24 | 8 | renewals of this incarnation |
//! | 32 | 8 | low: chunks before this position may have been deleted |
//! | 40 | 8 | hint: every chunk before this position was committed |
//! | 48 | 16 | by which star it was fenced; zero if it was not |
//! | 64 | 8 | with which incarnation |

use wire::crc::crc32c;
use wire::ids::{Epoch, StarId};

use super::cluster::Fields;
use crate::store::ObjectName;

const MAGIC: [u8; 4] = *b"NVls";
const FORMAT: u16 = 1;
const SUM_FROM: usize = 12;
const BYTES: usize = 72;

/// How long a lease that does not change is believed, in milliseconds.
pub(crate) const TTL_MS: u32 = 30_000;

/// Why bytes are no lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseDecodeError {
    /// Another length, or another magic.
    #[error("{bytes} bytes that are no lease")]
    NotALease {
        /// How many.
        bytes: usize,
    },
    /// A format that this build does not read.
    #[error("a lease of format {found}: this build reads format {FORMAT}")]
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
    /// A state that no nova writes.
    #[error("its state is {found}: this build knows 0, 1 and 2")]
    State {
        /// What stands there.
        found: u16,
    },
}

/// A tenure of a star, as others name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenure {
    pub(crate) star: StarId,
    pub(crate) incarnation: Epoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    Held,
    Released,
    /// Whoever held it publishes nothing more, so that no chunk at or above `low` is deleted any more.
    Fenced(Tenure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) state: LeaseState,
    pub(crate) ttl_ms: u32,
    pub(crate) incarnation: Epoch,
    pub(crate) renewals: u64,
    pub(crate) low: u64,
    pub(crate) hint: u64,
}

/// The object of a star's lease.
pub(crate) fn object_of(star: StarId) -> ObjectName {
    ObjectName::parse(&format!("stars/{star}/lease")).expect("the parts are short and plain")
}

impl Lease {
    /// What a star holds that has written nothing but position 0.
    pub(crate) fn held(incarnation: Epoch) -> Self {
        Self { state: LeaseState::Held, ttl_ms: TTL_MS, incarnation, renewals: 0, low: 0, hint: 1 }
    }

    /// What stands for a star that never had one.
    pub(crate) fn never_held() -> Self {
        Self { state: LeaseState::Released, ttl_ms: TTL_MS, incarnation: Epoch::ZERO, renewals: 0, low: 0, hint: 0 }
    }

    /// Where the search for the end of a channel starts: everything before was committed.
    pub(crate) fn known_of(&self, incarnation: Epoch) -> Known {
        // An incarnation that never held the lease has deleted nothing and published nothing.
        if self.incarnation == incarnation { Known { low: self.low, hint: self.hint } } else { Known::default() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let (state, by): (u16, _) = match self.state {
            LeaseState::Held => (0, None),
            LeaseState::Released => (1, None),
            LeaseState::Fenced(by) => (2, Some(by)),
        };
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&state.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.ttl_ms.to_le_bytes());
        for number in [self.incarnation.get(), self.renewals, self.low, self.hint] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&by.map_or([0; 16], |by| by.star.to_bytes()));
        out.extend_from_slice(&by.map_or(0, |by| by.incarnation.get()).to_le_bytes());
        let sum = Self::sum(&out);
        out[8..SUM_FROM].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The state decides who may write, so it lies under the sum too.
    fn sum(bytes: &[u8]) -> u32 {
        crc32c(&[&bytes[6..8], &bytes[SUM_FROM..]].concat())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, LeaseDecodeError> {
        let alien = LeaseDecodeError::NotALease { bytes: bytes.len() };
        if bytes.len() < 6 || bytes[..4] != MAGIC {
            return Err(alien);
        }
        let format = u16::from_le_bytes([bytes[4], bytes[5]]);
        if format != FORMAT {
            return Err(LeaseDecodeError::Format { found: format });
        }
        if bytes.len() != BYTES {
            return Err(alien);
        }
        let mut fields = Fields(&bytes[6..]);
        let state = u16::from_le_bytes(fields.take());
        let (found, computed) = (u32::from_le_bytes(fields.take()), Self::sum(bytes));
        if found != computed {
            return Err(LeaseDecodeError::Checksum { found, computed });
        }
        let ttl_ms = u32::from_le_bytes(fields.take());
        let (incarnation, renewals) = (Epoch::new(fields.u64()), fields.u64());
        let (low, hint) = (fields.u64(), fields.u64());
        let by = Tenure { star: StarId::from_bytes(fields.take()), incarnation: Epoch::new(fields.u64()) };
        let state = match state {
            0 => LeaseState::Held,
            1 => LeaseState::Released,
            2 => LeaseState::Fenced(by),
            found => return Err(LeaseDecodeError::State { found }),
        };
        Ok(Self { state, ttl_ms, incarnation, renewals, low, hint })
    }
}

/// What a lease says of the chunks of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Known {
    /// Chunks before this position may have been deleted.
    pub(crate) low: u64,
    /// Chunks before this position were committed.
    pub(crate) hint: u64,
}

#[cfg(test)]
mod tests;
