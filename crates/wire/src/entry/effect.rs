//! What applies together with a batch, in the same entry.

use super::EntryError;
use crate::bytes::u64_at;
use crate::ids::SeqNum;
use crate::limits::FENCING_TOKEN_BYTES_MAX;
use crate::names::FencingToken;

const TOKEN: u8 = 1;
const TRIM: u8 = 2;
const BOTH: u8 = 3;

/// Longest effect, in bytes.
pub(super) const EFFECT_BYTES_MAX: usize = 1 + 8 + FENCING_TOKEN_BYTES_MAX;

/// What applies together with a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Installs a fencing token; the empty one clears.
    InstallToken(FencingToken),
    /// Moves the trim point.
    Trim(SeqNum),
    /// Does the one and the other.
    Both(FencingToken, SeqNum),
}

impl Effect {
    /// The effect of installing this and trimming to there; `None` when it is neither.
    #[must_use]
    pub fn of(token: Option<FencingToken>, trim: Option<SeqNum>) -> Option<Self> {
        match (token, trim) {
            (None, None) => None,
            (Some(token), None) => Some(Self::InstallToken(token)),
            (None, Some(to)) => Some(Self::Trim(to)),
            (Some(token), Some(to)) => Some(Self::Both(token, to)),
        }
    }

    /// The token that it installs.
    #[must_use]
    pub const fn token(&self) -> Option<&FencingToken> {
        match self {
            Self::InstallToken(token) | Self::Both(token, _) => Some(token),
            Self::Trim(_) => None,
        }
    }

    /// Where it moves the trim point to.
    #[must_use]
    pub const fn trim(&self) -> Option<SeqNum> {
        match self {
            Self::Trim(to) | Self::Both(_, to) => Some(*to),
            Self::InstallToken(_) => None,
        }
    }

    /// Its bytes: 1 and the token, 2 and the sequence number (u64, little-endian), or 3, the sequence number and the token.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::InstallToken(token) => [&[TOKEN], token.as_str().as_bytes()].concat(),
            Self::Trim(to) => [&[TRIM][..], &to.get().to_le_bytes()].concat(),
            Self::Both(token, to) => [&[BOTH][..], &to.get().to_le_bytes(), token.as_str().as_bytes()].concat(),
        }
    }

    /// The effect of these bytes.
    ///
    /// # Errors
    /// [`EntryError`] when they are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EntryError> {
        match bytes.split_first() {
            Some((&TOKEN, token)) => Ok(Self::InstallToken(FencingToken::from_bytes(token)?)),
            Some((&TRIM, to)) if to.len() == 8 => Ok(Self::Trim(SeqNum::new(u64_at(to, 0)))),
            Some((&BOTH, rest)) if rest.len() >= 8 => {
                let (to, token) = rest.split_at(8);
                Ok(Self::Both(FencingToken::from_bytes(token)?, SeqNum::new(u64_at(to, 0))))
            }
            _ => Err(EntryError::Length { what: "its effect" }),
        }
    }
}
