//! What does a star tell of itself besides what it counts: where the time goes of what it is asked, which streams weigh most, and in which
//! task a shard stood still last?
//!
//! It is the payload of a [`StarAnswer`](crate::message::StarAnswer): who knows of the head alone reads past it, and a star that tells
//! nothing sends no byte of it. Little-endian; behind the last list there may be more, which is left alone.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of all that follows |
//! | 4 | 1 | version, 1; of any other nothing is read |
//! | 5 | 2 | histograms, then each |
//! | | 2 | streams that weigh most, then each |
//! | | 2 | shards that have stood still, then each |
//!
//! | a histogram: bytes | field |
//! |---|---|
//! | 2 | shard |
//! | 1 | operation, its place in [`Operation::ALL`] |
//! | 1 | phase, its place in [`Phase::ALL`] |
//! | 16 | sum of all times, nanoseconds |
//! | 1 | buckets that hold any, then of each its place (1) and how many it holds (8) |
//!
//! | a stream: bytes | field |
//! |---|---|
//! | 2 | shard |
//! | 8 | bytes a second |
//! | 2 | length of its bucket's name, then that |
//! | 2 | length of its key, then that |
//!
//! | a shard that has stood still: bytes | field |
//! |---|---|
//! | 2 | shard |
//! | 2 | length of the task's name, then that |

use std::time::Duration;

use crate::crc::crc32c;
use crate::names::{BucketName, Key};

const VERSION: u8 = 1;

/// Buckets of a [`Histogram`]: the first ends at a microsecond, each at twice the one before, and the last has no end.
pub const BUCKETS: usize = 26;

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$word_doc])* $variant,)*
        }

        impl $name {
            /// All, in the order of their codes.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its word.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            fn of_code(code: u8) -> Option<Self> {
                Self::ALL.get(usize::from(code)).copied()
            }
        }
    )*};
}

words! {
    /// What a shard is asked, or does for who asked.
    Operation {
        /// A batch, of a session or outside of any.
        Append = "append",
        /// A page.
        Read = "read",
        /// The opening of a subscription.
        Subscribe = "subscribe",
        /// Records of a subscription.
        Deliver = "deliver",
        /// Where the tail is.
        CheckTail = "check_tail",
        /// Move the trim point.
        Trim = "trim",
        /// Install a token.
        Fence = "fence",
        /// Which token is installed.
        Token = "token",
        /// Make a stream.
        Create = "create",
        /// Look at a stream.
        Get = "get",
        /// Change a stream.
        Reconfigure = "reconfigure",
        /// Delete a stream.
        Delete = "delete",
        /// Open a writer session.
        Open = "open",
    }

    /// A part of the time from the receipt of a request to its answer.
    Phase {
        /// Until the shard takes it up, or until the commit starts that makes it durable.
        Queue = "queue",
        /// Until that commit's bytes are written.
        Write = "write",
        /// From there until it is durable, and all before it.
        Sync = "sync",
        /// From when it was given away until the standard store holds it.
        Put = "put",
        /// From when it was taken up until all that is read for it is there.
        Read = "read",
        /// From when it may be answered until the kernel has the answer, or the shard of its connection.
        Reply = "reply",
    }
}

/// How long things took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum_ns: u128,
}

impl Histogram {
    /// Notes that so many things took so many nanoseconds each.
    #[inline]
    pub fn note(&mut self, took_ns: u64, times: u64) {
        self.counts[bucket_of(took_ns)] += times;
        self.sum_ns += u128::from(took_ns) * u128::from(times);
    }

    /// How many things there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long all of them took together, in nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// How many things are in each bucket alone, with the end of the bucket, which is within it; the last has none.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        self.counts.iter().enumerate().map(|(bucket, count)| (bucket_end(bucket), *count))
    }

    /// The end of the bucket in which the given percentage of all things is reached; for the last bucket, where it begins. `None`
    /// when there is nothing.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<Duration> {
        let count = self.count();
        let wanted = (u128::from(count) * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut passed = 0;
        for (bucket, held) in self.counts.iter().enumerate() {
            passed += u128::from(*held);
            if passed >= wanted {
                return bucket_end(bucket.min(BUCKETS - 2));
            }
        }
        None
    }
}

#[inline]
fn bucket_of(ns: u64) -> usize {
    let us = ns.div_ceil(1_000).clamp(1, 1 << (BUCKETS - 1));
    // The first power of two that is not below it.
    (u64::BITS - (us - 1).leading_zeros()) as usize
}

fn bucket_end(bucket: usize) -> Option<Duration> {
    (bucket < BUCKETS - 1).then(|| Duration::from_micros(1 << bucket))
}

/// How long operations spent in a phase, since their shard started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// On which shard.
    pub shard: u16,
    /// Of which operations.
    pub operation: Operation,
    /// In which phase.
    pub phase: Phase,
    /// How long.
    pub times: Histogram,
}

/// A stream that weighs much, as it was over the last seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeavyStream {
    /// On which shard.
    pub shard: u16,
    /// In which bucket.
    pub bucket: BucketName,
    /// Under which key.
    pub key: Key,
    /// Content that is appended to it, in bytes a second: an estimate, by samples.
    pub bytes_per_s: u64,
}

/// Where a shard stood still last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoodStill {
    /// Which shard.
    pub shard: u16,
    /// The task that had the turn.
    pub task: String,
}

/// What a star tells of itself besides what it counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StarDetail {
    /// Where the time goes.
    pub timings: Vec<Timing>,
    /// What weighs most on each shard, the heaviest first.
    pub heaviest: Vec<HeavyStream>,
    /// The shards that ever stood still.
    pub stood_still: Vec<StoodStill>,
}

/// Bytes that are no detail of a star.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StarDetailError {
    /// They are damaged.
    #[error("what the star tells of itself is damaged: its checksum is {found:08x}, its bytes sum to {computed:08x}")]
    Checksum {
        /// What stands there.
        found: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// They end too early.
    #[error("what the star tells of itself ends too early: {left} bytes are left where {needed} are needed")]
    Short {
        /// What is left.
        left: usize,
        /// What is needed.
        needed: usize,
    },
    /// A bucket that there is not.
    #[error("a histogram has {BUCKETS} buckets, and the star tells of bucket {found}")]
    Bucket {
        /// The place found.
        found: u8,
    },
    /// A name that is none.
    #[error("the star tells of a stream or a task with a name that is none")]
    Name,
}

impl StarDetail {
    /// Takes in what another shard tells.
    pub fn add(&mut self, other: Self) {
        self.timings.extend(other.timings);
        self.heaviest.extend(other.heaviest);
        self.stood_still.extend(other.stood_still);
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.push(VERSION);
        put_list(&self.timings, &mut out, put_timing);
        put_list(&self.heaviest, &mut out, |heavy, out| {
            out.extend_from_slice(&heavy.shard.to_le_bytes());
            out.extend_from_slice(&heavy.bytes_per_s.to_le_bytes());
            put_text(heavy.bucket.as_str(), out);
            put_text(heavy.key.as_str(), out);
        });
        put_list(&self.stood_still, &mut out, |stood, out| {
            out.extend_from_slice(&stood.shard.to_le_bytes());
            put_text(&stood.task, out);
        });
        let sum = crc32c(&out[4..]);
        out[..4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The detail of these bytes; operations and phases that this build does not know are left out.
    ///
    /// # Errors
    /// [`StarDetailError`] of the first thing that is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StarDetailError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut rest = Rest(bytes);
        let (found, computed) = (u32::from_le_bytes(rest.array()?), crc32c(rest.0));
        if found != computed {
            return Err(StarDetailError::Checksum { found, computed });
        }
        let [version] = rest.array()?;
        if version != VERSION {
            return Ok(Self::default());
        }
        let timings = rest.list(Rest::timing)?.into_iter().flatten().collect();
        let heaviest = rest.list(Rest::heavy_stream)?;
        let stood_still = rest.list(|rest| Ok(StoodStill { shard: rest.shard()?, task: rest.text()?.to_owned() }))?;
        Ok(Self { timings, heaviest, stood_still })
    }
}

fn put_list<T>(items: &[T], out: &mut Vec<u8>, put: impl Fn(&T, &mut Vec<u8>)) {
    let count = u16::try_from(items.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&count.to_le_bytes());
    items.iter().take(count.into()).for_each(|item| put(item, out));
}

fn put_timing(timing: &Timing, out: &mut Vec<u8>) {
    let Timing { shard, operation, phase, times } = timing;
    out.extend_from_slice(&shard.to_le_bytes());
    out.extend_from_slice(&[*operation as u8, *phase as u8]);
    out.extend_from_slice(&times.sum_ns.to_le_bytes());
    let held = (0_u8..).zip(times.counts).filter(|(_, count)| *count > 0);
    out.push(u8::try_from(held.clone().count()).unwrap_or_else(|_| unreachable!("buckets are few")));
    for (bucket, count) in held {
        out.push(bucket);
        out.extend_from_slice(&count.to_le_bytes());
    }
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    let bytes = u16::try_from(text.len()).unwrap_or_else(|_| unreachable!("names and keys are short"));
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Bytes that are not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, needed: usize) -> Result<&'a [u8], StarDetailError> {
        let short = StarDetailError::Short { left: self.0.len(), needed };
        let (taken, rest) = self.0.split_at_checked(needed).ok_or(short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StarDetailError> {
        Ok(crate::bytes::array(self.take(N)?, 0))
    }

    fn shard(&mut self) -> Result<u16, StarDetailError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<&'a str, StarDetailError> {
        let bytes = u16::from_le_bytes(self.array()?);
        std::str::from_utf8(self.take(bytes.into())?).map_err(|_| StarDetailError::Name)
    }

    /// Items that take a byte each at least, so that a count is never believed further than the bytes go.
    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, StarDetailError>,
    ) -> Result<Vec<T>, StarDetailError> {
        let count = u16::from_le_bytes(self.array()?);
        (0..count).map(|_| item(self)).collect()
    }

    fn timing(&mut self) -> Result<Option<Timing>, StarDetailError> {
        let shard = self.shard()?;
        let [operation, phase] = self.array()?;
        let mut times = Histogram { sum_ns: u128::from_le_bytes(self.array()?), ..Histogram::default() };
        let [held] = self.array()?;
        for _ in 0..held {
            let [bucket] = self.array()?;
            let count = u64::from_le_bytes(self.array()?);
            *times.counts.get_mut(usize::from(bucket)).ok_or(StarDetailError::Bucket { found: bucket })? = count;
        }
        let known = Operation::of_code(operation).zip(Phase::of_code(phase));
        Ok(known.map(|(operation, phase)| Timing { shard, operation, phase, times }))
    }

    fn heavy_stream(&mut self) -> Result<HeavyStream, StarDetailError> {
        let shard = self.shard()?;
        let bytes_per_s = u64::from_le_bytes(self.array()?);
        let (bucket, key) = (self.text()?, self.text()?);
        let bucket = BucketName::new(bucket).map_err(|_| StarDetailError::Name)?;
        let key = Key::new(key).map_err(|_| StarDetailError::Name)?;
        Ok(HeavyStream { shard, bucket, key, bytes_per_s })
    }
}

#[cfg(test)]
mod tests;
