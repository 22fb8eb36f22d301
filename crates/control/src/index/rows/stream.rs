//! `S`, stream id (16) → state (u8: 1 lives, 2 deleted), due (i64 ms of its row in the queue of ages; 0 is none), then the stream's own row;
//! of a deleted one nothing.

use wire::ids::StreamId;
use wire::stream_row::StreamRow;

use super::RowError;
use super::fields::Fields;

const TAG: u8 = b'S';
const LIVES: u8 = 1;
const DELETED: u8 = 2;

/// What is known of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::index) enum Known {
    /// It lives.
    Lives {
        /// Its row.
        row: Box<StreamRow>,
        /// When its oldest records may be too old, as it stands in the queue; 0 is never.
        due_ms: i64,
    },
    /// It was deleted; what comes of it is ignored.
    Deleted,
}

impl Known {
    /// The row of a stream that lives.
    pub(in crate::index) fn into_row(self) -> Option<StreamRow> {
        match self {
            Self::Lives { row, .. } => Some(*row),
            Self::Deleted => None,
        }
    }

    pub(in crate::index) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Lives { row, due_ms } => {
                let row = row.encode();
                let mut out = Vec::with_capacity(9 + row.len());
                out.push(LIVES);
                out.extend_from_slice(&due_ms.to_be_bytes());
                out.extend_from_slice(&row);
                out
            }
            Self::Deleted => [&[DELETED][..], &[0; 8]].concat(),
        }
    }

    /// The stream that a row is about, and what it says.
    pub(in crate::index) fn of(key: &[u8], value: &[u8]) -> Result<(StreamId, Self), RowError> {
        let mut fields = Fields::of("a stream's key", key);
        fields.tag(TAG)?;
        let stream_id = fields.stream_id()?;
        fields.end()?;
        Ok((stream_id, Self::decode(value)?))
    }

    pub(in crate::index) fn decode(value: &[u8]) -> Result<Self, RowError> {
        let mut fields = Fields::of("a stream's row", value);
        let (state, due_ms) = (fields.u8()?, fields.i64()?);
        match state {
            LIVES => Ok(Self::Lives { row: Box::new(StreamRow::decode(fields.rest())?), due_ms }),
            DELETED => fields.end().map(|()| Self::Deleted),
            found => Err(fields.value(found.into())),
        }
    }
}

/// The bounds of all streams.
pub(in crate::index) fn all() -> std::ops::Range<Vec<u8>> {
    vec![TAG]..vec![TAG + 1]
}

pub(in crate::index) fn key(stream_id: StreamId) -> Vec<u8> {
    [&[TAG][..], &stream_id.to_bytes()].concat()
}
