//! How each type of a message's field stands in an archive.

use rkyv::{Archive, Deserialize, Serialize};

use crate::archive;
use crate::bucket::{Bucket, BucketPatch, BucketRow, BucketSpec};
use crate::config::{CONFIG_BYTES, Class, ConfigPatch, PATCH_BYTES, StreamConfig};
use crate::ids::{BatchNo, ClusterId, Epoch, Position, ProducerId, SeqNum, StarId, StreamId};
use crate::names::{Address, BucketName, FencingToken, Key};
use crate::reason::Reason;
use crate::refusal::{Details, Refusal};
use crate::terms::Terms;

/// A type that a message may hold.
pub(super) trait Field: Sized {
    /// What stands in the archive.
    type Raw;

    /// Its archived form.
    fn to_raw(&self) -> Self::Raw;

    /// The value of an archived form that may hold anything.
    fn from_raw(raw: Self::Raw) -> Result<Self, Refusal>;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Field for $type {
            type Raw = Self;

            fn to_raw(&self) -> Self {
                self.clone()
            }

            fn from_raw(raw: Self) -> Result<Self, Refusal> {
                Ok(raw)
            }
        }
    )*};
}

plain!(u16, u32, u64, i64, Vec<u8>, (u64, u64));

macro_rules! through {
    ($($type:ty as $raw:ty, $to:expr, $from:expr;)*) => {$(
        impl Field for $type {
            type Raw = $raw;

            fn to_raw(&self) -> $raw {
                let to: fn(&Self) -> $raw = $to;
                to(self)
            }

            fn from_raw(raw: $raw) -> Result<Self, Refusal> {
                let from: fn($raw) -> Result<Self, Refusal> = $from;
                from(raw)
            }
        }
    )*};
}

through! {
    bool as u8, |it| u8::from(*it), |raw| flag(raw);
    String as Vec<u8>, |it| it.clone().into_bytes(), |raw| {
        String::from_utf8(raw).map_err(|_| Refusal::invalid("a text that is not UTF-8"))
    };
    SeqNum as u64, |it| it.get(), |raw| Ok(Self::new(raw));
    BatchNo as u64, |it| it.get(), |raw| Ok(Self::new(raw));
    ProducerId as u64, |it| it.get(), |raw| Ok(Self::new(raw));
    Epoch as u64, |it| it.get(), |raw| Ok(Self::new(raw));
    StreamId as [u8; 16], |it| it.to_bytes(), |raw| Ok(Self::from_bytes(raw));
    ClusterId as [u8; 16], |it| it.to_bytes(), |raw| Ok(Self::from_bytes(raw));
    StarId as [u8; 16], |it| it.to_bytes(), |raw| Ok(Self::from_bytes(raw));
    Position as (u64, i64), |it| (it.seq_num.get(), it.timestamp_ms), |(seq_num, timestamp_ms)| {
        Ok(Self::new(SeqNum::new(seq_num), timestamp_ms))
    };
    Class as u8, |it| *it as u8, |raw| {
        Self::of_code(raw).ok_or_else(|| Refusal::invalid(format!("class {raw} is unknown")))
    };
    BucketName as Vec<u8>, |it| it.as_str().as_bytes().to_vec(), |raw| Ok(Self::from_bytes(&raw)?);
    Key as Vec<u8>, |it| it.as_str().as_bytes().to_vec(), |raw| Ok(Self::from_bytes(&raw)?);
    FencingToken as Vec<u8>, |it| it.as_str().as_bytes().to_vec(), |raw| Ok(Self::from_bytes(&raw)?);
    Address as (Vec<u8>, Vec<u8>), |it| (it.bucket.to_raw(), it.key.to_raw()), |(bucket, key)| {
        Ok(Self::from_bytes(&bucket, &key)?)
    };
    ConfigPatch as [u8; PATCH_BYTES], |it| it.to_bytes(), |raw| Ok(Self::from_bytes(&raw)?);
    StreamConfig as [u8; CONFIG_BYTES], |it| it.to_bytes(), |raw| Ok(Self::from_bytes(&raw)?);
    Bucket as BucketRow, |it| it.to_row(), |raw| Self::from_row(raw).map_err(|e| Refusal::invalid(e.to_string()));
    Option<SeqNum> as (u8, u64), |it| optional(it.map(SeqNum::get)), |raw| Ok(present(raw)?.map(SeqNum::new));
    Option<u64> as (u8, u64), |it| optional(*it), |raw| present(raw);
    Option<i64> as (u8, i64), |it| optional(*it), |raw| present(raw);
    Option<StreamId> as (u8, [u8; 16]), |it| optional(it.map(StreamId::to_bytes)), |raw| {
        Ok(present(raw)?.map(StreamId::from_bytes))
    };
    Terms as Vec<u8>, |it| it.to_bytes(), |raw| Self::from_bytes(&raw);
}

fn flag(raw: u8) -> Result<bool, Refusal> {
    match raw {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Refusal::invalid(format!("{raw} where 0 or 1 was due"))),
    }
}

fn optional<T: Default>(value: Option<T>) -> (u8, T) {
    (u8::from(value.is_some()), value.unwrap_or_default())
}

fn present<T>((set, value): (u8, T)) -> Result<Option<T>, Refusal> {
    Ok(flag(set)?.then_some(value))
}

/// Where a read or a subscription starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At this record.
    SeqNum(SeqNum),
    /// At the first record stamped at or after these milliseconds.
    Timestamp(i64),
    /// At the last so many records.
    Last(u64),
}

impl Field for Start {
    type Raw = (u8, u64);

    fn to_raw(&self) -> (u8, u64) {
        match self {
            Self::SeqNum(seq_num) => (1, seq_num.get()),
            Self::Timestamp(ms) => (2, ms.cast_unsigned()),
            Self::Last(records) => (3, *records),
        }
    }

    fn from_raw((kind, value): (u8, u64)) -> Result<Self, Refusal> {
        match kind {
            1 => Ok(Self::SeqNum(SeqNum::new(value))),
            2 => Ok(Self::Timestamp(value.cast_signed())),
            3 => Ok(Self::Last(value)),
            _ => Err(Refusal::invalid(format!("a start of kind {kind} is unknown"))),
        }
    }
}

/// Where a trim moves the trim point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimTo {
    /// To this sequence number.
    SeqNum(SeqNum),
    /// To the first record stamped at or after these milliseconds.
    Timestamp(i64),
}

impl Field for TrimTo {
    type Raw = (u8, u64);

    fn to_raw(&self) -> (u8, u64) {
        match self {
            Self::SeqNum(seq_num) => (1, seq_num.get()),
            Self::Timestamp(ms) => (2, ms.cast_unsigned()),
        }
    }

    fn from_raw((kind, value): (u8, u64)) -> Result<Self, Refusal> {
        match kind {
            1 => Ok(Self::SeqNum(SeqNum::new(value))),
            2 => Ok(Self::Timestamp(value.cast_signed())),
            _ => Err(Refusal::invalid(format!("a trim of kind {kind} is unknown"))),
        }
    }
}

/// What a star tells of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// Minted when it was made.
    pub stream_id: StreamId,
    /// In which bucket.
    pub bucket: BucketName,
    /// Under which key.
    pub key: Key,
    /// How it behaves.
    pub config: StreamConfig,
    /// The committed tail.
    pub tail: Position,
    /// Records below it are gone.
    pub trim_point: SeqNum,
    /// The first record that is not yet settled.
    pub settled: SeqNum,
    /// Content it keeps, in bytes.
    pub bytes: u64,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}

/// Something a star counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// On which shard; [`Counter::OF_STAR`] when it is no shard's.
    pub shard: u16,
    /// What, with its unit last.
    pub name: String,
    /// How many.
    pub value: u64,
}

impl Counter {
    /// Stands for the star as a whole where a shard is named.
    pub const OF_STAR: u16 = u16::MAX;
}

macro_rules! rows {
    ($($type:ident as $row:ident { $($field:ident: $ftype:ty,)* })*) => {$(
        #[derive(Archive, Serialize, Deserialize)]
        pub(super) struct $row {
            $($field: <$ftype as Field>::Raw,)*
        }

        impl Field for $type {
            type Raw = $row;

            fn to_raw(&self) -> $row {
                $row { $($field: self.$field.to_raw(),)* }
            }

            fn from_raw(raw: $row) -> Result<Self, Refusal> {
                Ok(Self { $($field: Field::from_raw(raw.$field)?,)* })
            }
        }
    )*};
}

rows! {
    StreamInfo as StreamInfoRow {
        stream_id: StreamId,
        bucket: BucketName,
        key: Key,
        config: StreamConfig,
        tail: Position,
        trim_point: SeqNum,
        settled: SeqNum,
        bytes: u64,
        created_at_ms: i64,
    }
    Counter as CounterRow {
        shard: u16,
        name: String,
        value: u64,
    }
    BucketSpec as BucketSpecRow {
        name: BucketName,
        location: String,
        create_stream_on_append: bool,
        create_stream_on_read: bool,
        defaults: ConfigPatch,
        creation_token: String,
    }
}

impl Field for BucketPatch {
    type Raw = ((u8, u8), (u8, u8), [u8; PATCH_BYTES]);

    fn to_raw(&self) -> Self::Raw {
        let switch = |set: Option<bool>| optional(set.map(u8::from));
        (switch(self.create_stream_on_append), switch(self.create_stream_on_read), self.defaults.to_bytes())
    }

    fn from_raw((append, read, defaults): Self::Raw) -> Result<Self, Refusal> {
        let switch = |raw| present(raw)?.map(flag).transpose();
        Ok(Self {
            create_stream_on_append: switch(append)?,
            create_stream_on_read: switch(read)?,
            defaults: ConfigPatch::from_bytes(&defaults)?,
        })
    }
}

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct RefusalRow {
    reason: u16,
    message: Vec<u8>,
    tail: (u8, (u64, i64)),
    trim_point: (u8, u64),
    fencing_token: (u8, Vec<u8>),
    leader: (u8, Vec<u8>),
    retry_after_ms: (u8, u64),
}

impl Field for Refusal {
    type Raw = RefusalRow;

    fn to_raw(&self) -> RefusalRow {
        let details = self.details.as_deref().cloned().unwrap_or_default();
        RefusalRow {
            reason: self.reason as u16,
            message: self.message.to_raw(),
            tail: optional(details.tail.map(|tail| tail.to_raw())),
            trim_point: optional(details.trim_point.map(SeqNum::get)),
            fencing_token: optional(details.fencing_token.map(|token| token.to_raw())),
            leader: optional(details.leader.map(|leader| leader.to_raw())),
            retry_after_ms: optional(details.retry_after_ms),
        }
    }

    fn from_raw(raw: RefusalRow) -> Result<Self, Refusal> {
        let reason =
            Reason::of_code(raw.reason).ok_or_else(|| Refusal::invalid(format!("reason {} is unknown", raw.reason)))?;
        let details = Details {
            tail: present(raw.tail)?.map(Position::from_raw).transpose()?,
            trim_point: present(raw.trim_point)?.map(SeqNum::new),
            fencing_token: present(raw.fencing_token)?.map(FencingToken::from_raw).transpose()?,
            leader: present(raw.leader)?.map(String::from_raw).transpose()?,
            retry_after_ms: present(raw.retry_after_ms)?,
        };
        let details = (details != Details::default()).then(|| Box::new(details));
        Ok(Self { reason, message: String::from_raw(raw.message)?, details })
    }
}

/// Rows one after the other: where each ends, and their archives.
type Pieces = (Vec<u32>, Vec<u8>);

macro_rules! lists {
    ($($item:ident as $row:ident;)*) => {$(
        impl Field for Vec<$item> {
            type Raw = Pieces;

            fn to_raw(&self) -> Pieces {
                let mut bytes = Vec::new();
                let ends = self
                    .iter()
                    .map(|item| {
                        archive::put(&item.to_raw(), &mut bytes);
                        u32::try_from(bytes.len()).unwrap_or(u32::MAX)
                    })
                    .collect();
                (ends, bytes)
            }

            fn from_raw((ends, bytes): Pieces) -> Result<Self, Refusal> {
                let bad = || Refusal::invalid(concat!("a list of ", stringify!($item), " doesn't validate"));
                let mut start = 0;
                ends.iter()
                    .map(|end| {
                        let piece = bytes.get(start..*end as usize).ok_or_else(bad)?;
                        start = *end as usize;
                        let row = archive::get::<$row>(piece).map_err(|_| bad())?;
                        <$item as Field>::from_raw(row)
                    })
                    .collect()
            }
        }
    )*};
}

lists! {
    Bucket as BucketRow;
    StreamInfo as StreamInfoRow;
    Counter as CounterRow;
}
