//! Which cluster does a store belong to?
//!
//! `meta/cluster`, made once and never overwritten; integers little-endian:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | `NVcl` |
//! | 4 | 2 | format, 1 |
//! | 6 | 2 | zero |
//! | 8 | 4 | CRC-32C of the bytes that follow |
//! | 12 | 16 | cluster id |

use wire::crc::crc32c;
use wire::ids::ClusterId;

const MAGIC: [u8; 4] = *b"NVcl";
const FORMAT: u16 = 1;
const BYTES: usize = 28;

/// Why bytes name no cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterDecodeError {
    /// Another length, or another magic.
    #[error("{bytes} bytes that don't start as a cluster's identity")]
    NotACluster {
        /// How many.
        bytes: usize,
    },
    /// A format that this build does not read.
    #[error("an identity of format {found}: this build reads format {FORMAT}")]
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
}

/// The bytes kept for a cluster.
pub(crate) fn encode(cluster: ClusterId) -> Vec<u8> {
    let id = cluster.to_bytes();
    let mut out = Vec::with_capacity(BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&crc32c(&id).to_le_bytes());
    out.extend_from_slice(&id);
    out
}

/// The cluster of these bytes.
pub(crate) fn decode(bytes: &[u8]) -> Result<ClusterId, ClusterDecodeError> {
    let alien = ClusterDecodeError::NotACluster { bytes: bytes.len() };
    let Some((head, rest)) = bytes.split_at_checked(6) else { return Err(alien) };
    if head[..4] != MAGIC {
        return Err(alien);
    }
    let found = u16::from_le_bytes([head[4], head[5]]);
    if found != FORMAT {
        return Err(ClusterDecodeError::Format { found });
    }
    let Ok(fields) = <[u8; BYTES - 6]>::try_from(rest) else { return Err(alien) };
    let [_, _, a, b, c, d, id @ ..] = fields;
    let (found, computed) = (u32::from_le_bytes([a, b, c, d]), crc32c(&id));
    if found != computed {
        return Err(ClusterDecodeError::Checksum { found, computed });
    }
    Ok(ClusterId::from_bytes(id))
}

#[cfg(test)]
mod tests;
