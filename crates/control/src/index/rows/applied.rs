//! `M` → one row a channel, incarnation (u64) and position (u64): up to which chunk each channel is applied to the slot.

use std::collections::BTreeMap;

use wire::ids::Epoch;

use super::RowError;
use super::fields::Fields;
use crate::channel::ChunkId;

/// The row's key.
pub(in crate::index) const KEY: &[u8] = b"M";
/// Channels that are remembered, the newest ones; what is older was replayed long before.
const CHANNELS_MAX: usize = 64;

/// The last chunk of each channel that was applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppliedChunks(BTreeMap<Epoch, u64>);

impl AppliedChunks {
    /// The last position of a channel that was applied; `None` before its first.
    #[must_use]
    pub fn of(&self, incarnation: Epoch) -> Option<u64> {
        self.0.get(&incarnation).copied()
    }

    /// Whether the chunk was applied.
    #[must_use]
    pub fn covers(&self, at: ChunkId) -> bool {
        match self.of(at.incarnation) {
            Some(position) => at.position <= position,
            None => self.is_forgotten(at.incarnation),
        }
    }

    /// Each channel, and the last position of it that was applied.
    pub(in crate::index) fn channels(&self) -> impl Iterator<Item = (Epoch, u64)> {
        self.0.iter().map(|(incarnation, position)| (*incarnation, *position))
    }

    fn is_forgotten(&self, incarnation: Epoch) -> bool {
        self.0.len() == CHANNELS_MAX && self.0.keys().next().is_some_and(|oldest| incarnation < *oldest)
    }

    /// Notes that a chunk, and all before it in its channel, is applied.
    pub(in crate::index) fn note(&mut self, at: ChunkId) {
        if self.is_forgotten(at.incarnation) {
            return;
        }
        let position = self.0.entry(at.incarnation).or_insert(at.position);
        *position = at.position.max(*position);
        while self.0.len() > CHANNELS_MAX {
            self.0.pop_first();
        }
    }

    /// Notes all that `other` has.
    pub(in crate::index) fn merge(&mut self, other: &Self) {
        for (incarnation, position) in &other.0 {
            self.note(ChunkId { incarnation: *incarnation, position: *position });
        }
    }

    pub(in crate::index) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len() * 16);
        for (incarnation, position) in &self.0 {
            out.extend_from_slice(&incarnation.get().to_be_bytes());
            out.extend_from_slice(&position.to_be_bytes());
        }
        out
    }

    pub(in crate::index) fn decode(value: &[u8]) -> Result<Self, RowError> {
        let what = "the row of applied chunks";
        let (rows, rest) = value.as_chunks::<16>();
        if !rest.is_empty() {
            return Err(RowError::Length { what, bytes: value.len() });
        }
        let mut applied = Self::default();
        for row in rows {
            let mut fields = Fields::of(what, row);
            applied.note(ChunkId { incarnation: Epoch::new(fields.u64()?), position: fields.u64()? });
        }
        Ok(applied)
    }
}
