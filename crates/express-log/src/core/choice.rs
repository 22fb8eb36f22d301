//! Which copy of the superblock counts.

use wire::superblock::{COPIES, Superblock, SuperblockError};

/// What the copies of a superblock say together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nothing was ever written; or the first superblock was being written, and nothing after it.
    Fresh,
    /// The newest one, and its sum.
    Found(Box<Superblock>, u32),
}

/// Why no copy can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// No copy holds.
    #[error("none of the {COPIES} copies of the superblock can be read; the first says: {first}")]
    NoneHolds {
        /// What is wrong with the first.
        first: SuperblockError,
    },
    /// Two copies have the same sequence and differ.
    #[error("two superblocks say that they are number {sequence} and differ")]
    Forked {
        /// Their sequence.
        sequence: u64,
    },
    /// A newer nova has written one of them.
    #[error(transparent)]
    Newer(SuperblockError),
    /// The newest does not follow the one before.
    #[error("superblock {sequence} does not follow the superblock before it that is also there")]
    Orphan {
        /// Its sequence.
        sequence: u64,
    },
}

/// Chooses the newest superblock that holds among `copies`, each the bytes of one.
///
/// # Errors
/// [`ChoiceError`] when it cannot be told what the log is; then nothing of it may be written or removed.
pub(crate) fn choose(copies: &[&[u8]]) -> Result<Choice, ChoiceError> {
    let mut best: Option<(Superblock, u32)> = None;
    let mut older: Vec<(u64, u32)> = Vec::new();
    let mut bad: Vec<SuperblockError> = Vec::new();
    for copy in copies {
        match Superblock::decode(copy) {
            Err(error @ (SuperblockError::Version { .. } | SuperblockError::Incompatible { .. })) => {
                return Err(ChoiceError::Newer(error));
            }
            Err(error) => bad.push(error),
            Ok((superblock, crc)) => {
                older.push((superblock.sequence, crc));
                if best.as_ref().is_none_or(|(chosen, _)| chosen.sequence < superblock.sequence) {
                    best = Some((superblock, crc));
                }
            }
        }
    }
    let Some((chosen, crc)) = best else {
        return none_holds(&bad);
    };
    let sequence = chosen.sequence;
    if older.iter().any(|&(other, sum)| other == sequence && sum != crc) {
        return Err(ChoiceError::Forked { sequence });
    }
    let before = sequence.checked_sub(1);
    if older.iter().any(|&(other, sum)| Some(other) == before && sum != chosen.parent_crc) {
        return Err(ChoiceError::Orphan { sequence });
    }
    Ok(Choice::Found(Box::new(chosen), crc))
}

/// The first superblock is written copy by copy: one torn copy and nothing else is still a log without a beginning.
fn none_holds(bad: &[SuperblockError]) -> Result<Choice, ChoiceError> {
    let written = bad.iter().filter(|&&error| error != SuperblockError::Absent).count();
    match bad.first() {
        Some(&first) if written > 1 || (written == 1 && first == SuperblockError::Absent) => {
            Err(ChoiceError::NoneHolds { first })
        }
        _ => Ok(Choice::Fresh),
    }
}
