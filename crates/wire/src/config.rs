//! The configuration of a stream, and a change to one.

use std::fmt;
use std::str::FromStr;

use crate::bytes::{put_u32, put_u64, u32_at, u64_at};

macro_rules! choices {
    ($(#[$doc:meta])* $name:ident, $what:literal, { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$vdoc])* $variant = $code,)*
        }

        impl $name {
            /// The choice with this code; `None` for one of a later version.
            #[must_use]
            pub const fn of_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The word users write.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl FromStr for $name {
            type Err = ConfigError;

            fn from_str(text: &str) -> Result<Self, ConfigError> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(ConfigError::Choice {
                        what: $what,
                        text: text.chars().take(40).collect(),
                        choices: [$($word),*].join(", "),
                    }),
                }
            }
        }
    };
}

choices! {
    /// Where a stream's appends are made durable before they are acked.
    Class, "class", {
        /// In the shard's head log.
        Express = 1, "express";
        /// In the standard store.
        Standard = 2, "standard";
    }
}

choices! {
    /// How many writers a stream has.
    ProducerPolicy, "producer_policy", {
        /// Anyone may append.
        Any = 1, "any";
        /// One writer session at a time.
        Fenced = 2, "fenced";
    }
}

choices! {
    /// Whose clock stamps the records.
    TimestampingMode, "timestamping mode", {
        /// The producer's stamp if it sends one, else the arrival.
        ClientPrefer = 1, "client-prefer";
        /// The producer's stamp, which it must send.
        ClientRequire = 2, "client-require";
        /// The arrival; a producer's stamp is refused.
        Arrival = 3, "arrival";
    }
}

/// How records are stamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timestamping {
    /// Whose clock.
    pub mode: TimestampingMode,
    /// Whether a producer's stamp may lie after the arrival.
    pub uncapped: bool,
}

/// How long records are kept; 0 is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Retention {
    /// Longest age by the record's stamp, in milliseconds.
    pub max_age_ms: u64,
    /// Age is judged by when a batch arrived instead, whatever its stamps say.
    pub by_arrival: bool,
    /// Most bytes of content a stream keeps.
    pub max_bytes: u64,
}

/// How much the leader may gather from a stream before it makes it durable; 0 is the star's own policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BatchPolicy {
    /// Content, in bytes.
    pub max_bytes: u32,
    /// Records.
    pub max_records: u32,
    /// Time since the oldest, in milliseconds.
    pub max_delay_ms: u32,
}

/// How a stream behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamConfig {
    /// Where appends are made durable.
    pub class: Class,
    /// Who may write.
    pub producer_policy: ProducerPolicy,
    /// Whose clock.
    pub timestamping: Timestamping,
    /// How long records stay.
    pub retention: Retention,
    /// How much is gathered.
    pub batch: BatchPolicy,
    /// Content a second, in bytes; 0 is unbounded.
    pub throughput_max_bytes_per_second: u64,
    /// The stream is deleted once it has held no record, and got none, for so long, in milliseconds; 0 is never.
    pub delete_on_empty_ms: u64,
}

impl Default for StreamConfig {
    /// The built-in defaults: standard, any writer, client-prefer, everything unbounded.
    fn default() -> Self {
        Self {
            class: Class::Standard,
            producer_policy: ProducerPolicy::Any,
            timestamping: Timestamping { mode: TimestampingMode::ClientPrefer, uncapped: false },
            retention: Retention::default(),
            batch: BatchPolicy::default(),
            throughput_max_bytes_per_second: 0,
            delete_on_empty_ms: 0,
        }
    }
}

/// Why a configuration can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A word that is none of the choices.
    #[error("{what} '{text}' is unknown: it is one of {choices}")]
    Choice {
        /// Which field.
        what: &'static str,
        /// What was written, cut.
        text: String,
        /// What may be written.
        choices: String,
    },
    /// Age retention over an application's own time scale.
    #[error(
        "uncapped timestamps and retention max_age_ms {max_age_ms} exclude each other: age is judged on stamps that follow the wall clock"
    )]
    UncappedWithAge {
        /// The age that was asked for.
        max_age_ms: u64,
    },
    /// Age retention over records that were stamped while the stream's stamps were uncapped.
    #[error(
        "retention max_age_ms {max_age_ms} can't go by the stamps of a stream that took records while they were uncapped, for no later stamp is lower: set retention_by_arrival with it, or make the stream anew"
    )]
    AgeAfterUncapped {
        /// The age that was asked for.
        max_age_ms: u64,
    },
    /// Bytes that are no configuration.
    #[error("byte {at} of the configuration is {value}, which this version doesn't know")]
    Bytes {
        /// Where.
        at: usize,
        /// What stands there.
        value: u8,
    },
}

/// Bytes of an encoded [`StreamConfig`].
pub const CONFIG_BYTES: usize = 48;

const FLAG_UNCAPPED: u8 = 1;
const FLAG_AGE_BY_ARRIVAL: u8 = 2;

impl StreamConfig {
    /// Checks what must hold between the fields.
    ///
    /// # Errors
    /// [`ConfigError::UncappedWithAge`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.timestamping.uncapped && self.ages_by_stamps() {
            return Err(ConfigError::UncappedWithAge { max_age_ms: self.retention.max_age_ms });
        }
        Ok(())
    }

    /// Checks what must hold for a stream that is there, which `has_uncapped` when it ever took records whose stamps were not capped at
    /// their arrival. These stay in force when they are gone: the stamp of each later record is raised to theirs.
    ///
    /// # Errors
    /// As [`StreamConfig::check`], and [`ConfigError::AgeAfterUncapped`].
    pub fn check_over(&self, has_uncapped: bool) -> Result<(), ConfigError> {
        self.check()?;
        if has_uncapped && self.ages_by_stamps() {
            return Err(ConfigError::AgeAfterUncapped { max_age_ms: self.retention.max_age_ms });
        }
        Ok(())
    }

    fn ages_by_stamps(&self) -> bool {
        self.retention.max_age_ms > 0 && !self.retention.by_arrival
    }

    /// Whether a change from `self` to `to` concerns what the leader holds for its tenure, so that the stream is handed off.
    #[must_use]
    pub fn needs_hand_off(&self, to: &Self) -> bool {
        let of_leader = |config: &Self| Self { retention: Retention::default(), delete_on_empty_ms: 0, ..*config };
        of_leader(self) != of_leader(to)
    }

    /// Its bytes: class, policy, mode, flags (1 uncapped, 2 age by arrival), then little-endian batch bytes, records and delay
    /// (u32), age, bytes, throughput and the time after which it is deleted when empty (u64).
    #[must_use]
    pub fn to_bytes(&self) -> [u8; CONFIG_BYTES] {
        let mut out = [0; CONFIG_BYTES];
        out[0] = self.class as u8;
        out[1] = self.producer_policy as u8;
        out[2] = self.timestamping.mode as u8;
        out[3] = if self.timestamping.uncapped { FLAG_UNCAPPED } else { 0 }
            | if self.retention.by_arrival { FLAG_AGE_BY_ARRIVAL } else { 0 };
        put_u32(&mut out, 4, self.batch.max_bytes);
        put_u32(&mut out, 8, self.batch.max_records);
        put_u32(&mut out, 12, self.batch.max_delay_ms);
        put_u64(&mut out, 16, self.retention.max_age_ms);
        put_u64(&mut out, 24, self.retention.max_bytes);
        put_u64(&mut out, 32, self.throughput_max_bytes_per_second);
        put_u64(&mut out, 40, self.delete_on_empty_ms);
        out
    }

    /// The configuration of these bytes.
    ///
    /// # Errors
    /// [`ConfigError::Bytes`] at the first byte that is none of a known choice.
    pub fn from_bytes(bytes: &[u8; CONFIG_BYTES]) -> Result<Self, ConfigError> {
        let bad = |at: usize| ConfigError::Bytes { at, value: bytes[at] };
        if bytes[3] & !(FLAG_UNCAPPED | FLAG_AGE_BY_ARRIVAL) != 0 {
            return Err(bad(3));
        }
        Ok(Self {
            class: Class::of_code(bytes[0]).ok_or_else(|| bad(0))?,
            producer_policy: ProducerPolicy::of_code(bytes[1]).ok_or_else(|| bad(1))?,
            timestamping: Timestamping {
                mode: TimestampingMode::of_code(bytes[2]).ok_or_else(|| bad(2))?,
                uncapped: bytes[3] & FLAG_UNCAPPED != 0,
            },
            batch: BatchPolicy {
                max_bytes: u32_at(bytes, 4),
                max_records: u32_at(bytes, 8),
                max_delay_ms: u32_at(bytes, 12),
            },
            retention: Retention {
                max_age_ms: u64_at(bytes, 16),
                by_arrival: bytes[3] & FLAG_AGE_BY_ARRIVAL != 0,
                max_bytes: u64_at(bytes, 24),
            },
            throughput_max_bytes_per_second: u64_at(bytes, 32),
            delete_on_empty_ms: u64_at(bytes, 40),
        })
    }
}

/// Fields of a configuration that someone set; the absent ones are untouched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConfigPatch {
    /// Sets the class.
    pub class: Option<Class>,
    /// Sets who may write.
    pub producer_policy: Option<ProducerPolicy>,
    /// Sets whose clock.
    pub timestamping_mode: Option<TimestampingMode>,
    /// Lifts or sets the cap.
    pub timestamping_uncapped: Option<bool>,
    /// Sets the longest age, in milliseconds.
    pub retention_max_age_ms: Option<u64>,
    /// Sets the most bytes.
    pub retention_max_bytes: Option<u64>,
    /// Sets the bytes gathered.
    pub batch_max_bytes: Option<u32>,
    /// Sets the records gathered.
    pub batch_max_records: Option<u32>,
    /// Sets the time gathered, in milliseconds.
    pub batch_max_delay_ms: Option<u32>,
    /// Sets the bytes a second.
    pub throughput_max_bytes_per_second: Option<u64>,
    /// Sets by what age is judged.
    pub retention_by_arrival: Option<bool>,
    /// Sets after how long an empty stream is deleted, in milliseconds.
    pub delete_on_empty_ms: Option<u64>,
}

/// Bytes of an encoded [`ConfigPatch`].
pub const PATCH_BYTES: usize = 4 + CONFIG_BYTES;

impl ConfigPatch {
    /// `config` with the set fields: absent is untouched, zero is zero.
    #[must_use]
    pub fn apply(&self, config: &StreamConfig) -> StreamConfig {
        StreamConfig {
            class: self.class.unwrap_or(config.class),
            producer_policy: self.producer_policy.unwrap_or(config.producer_policy),
            timestamping: Timestamping {
                mode: self.timestamping_mode.unwrap_or(config.timestamping.mode),
                uncapped: self.timestamping_uncapped.unwrap_or(config.timestamping.uncapped),
            },
            retention: Retention {
                max_age_ms: self.retention_max_age_ms.unwrap_or(config.retention.max_age_ms),
                by_arrival: self.retention_by_arrival.unwrap_or(config.retention.by_arrival),
                max_bytes: self.retention_max_bytes.unwrap_or(config.retention.max_bytes),
            },
            batch: BatchPolicy {
                max_bytes: self.batch_max_bytes.unwrap_or(config.batch.max_bytes),
                max_records: self.batch_max_records.unwrap_or(config.batch.max_records),
                max_delay_ms: self.batch_max_delay_ms.unwrap_or(config.batch.max_delay_ms),
            },
            throughput_max_bytes_per_second: self
                .throughput_max_bytes_per_second
                .unwrap_or(config.throughput_max_bytes_per_second),
            delete_on_empty_ms: self.delete_on_empty_ms.unwrap_or(config.delete_on_empty_ms),
        }
    }

    /// The configuration of a create: absent and zero fields alike come from the bucket's `defaults`.
    #[must_use]
    pub fn fill(&self, defaults: &StreamConfig) -> StreamConfig {
        let without_zeroes = Self {
            timestamping_uncapped: self.timestamping_uncapped.filter(|uncapped| *uncapped),
            retention_max_age_ms: self.retention_max_age_ms.filter(|v| *v > 0),
            retention_max_bytes: self.retention_max_bytes.filter(|v| *v > 0),
            batch_max_bytes: self.batch_max_bytes.filter(|v| *v > 0),
            batch_max_records: self.batch_max_records.filter(|v| *v > 0),
            batch_max_delay_ms: self.batch_max_delay_ms.filter(|v| *v > 0),
            throughput_max_bytes_per_second: self.throughput_max_bytes_per_second.filter(|v| *v > 0),
            retention_by_arrival: self.retention_by_arrival.filter(|by_arrival| *by_arrival),
            delete_on_empty_ms: self.delete_on_empty_ms.filter(|v| *v > 0),
            ..*self
        };
        without_zeroes.apply(defaults)
    }

    /// Its bytes: a little-endian u32 with a bit a set field, in the order of the struct, then the fields laid as a
    /// configuration.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PATCH_BYTES] {
        let set = [
            self.class.is_some(),
            self.producer_policy.is_some(),
            self.timestamping_mode.is_some(),
            self.timestamping_uncapped.is_some(),
            self.retention_max_age_ms.is_some(),
            self.retention_max_bytes.is_some(),
            self.batch_max_bytes.is_some(),
            self.batch_max_records.is_some(),
            self.batch_max_delay_ms.is_some(),
            self.throughput_max_bytes_per_second.is_some(),
            self.retention_by_arrival.is_some(),
            self.delete_on_empty_ms.is_some(),
        ];
        let mask = set.iter().enumerate().map(|(bit, set)| u32::from(*set) << bit).sum();
        let mut out = [0; PATCH_BYTES];
        put_u32(&mut out, 0, mask);
        out[4..].copy_from_slice(&self.apply(&StreamConfig::default()).to_bytes());
        out
    }

    /// The patch of these bytes.
    ///
    /// # Errors
    /// [`ConfigError::Bytes`] at a byte of no known choice, or at a bit of no known field.
    pub fn from_bytes(bytes: &[u8; PATCH_BYTES]) -> Result<Self, ConfigError> {
        let mask = u32_at(bytes, 0);
        if mask >> 12 != 0 {
            return Err(ConfigError::Bytes { at: 1, value: bytes[1] });
        }
        let config = StreamConfig::from_bytes(&crate::bytes::array(bytes, 4))?;
        let set = |bit: u32| mask >> bit & 1 == 1;
        Ok(Self {
            class: set(0).then_some(config.class),
            producer_policy: set(1).then_some(config.producer_policy),
            timestamping_mode: set(2).then_some(config.timestamping.mode),
            timestamping_uncapped: set(3).then_some(config.timestamping.uncapped),
            retention_max_age_ms: set(4).then_some(config.retention.max_age_ms),
            retention_max_bytes: set(5).then_some(config.retention.max_bytes),
            batch_max_bytes: set(6).then_some(config.batch.max_bytes),
            batch_max_records: set(7).then_some(config.batch.max_records),
            batch_max_delay_ms: set(8).then_some(config.batch.max_delay_ms),
            throughput_max_bytes_per_second: set(9).then_some(config.throughput_max_bytes_per_second),
            retention_by_arrival: set(10).then_some(config.retention.by_arrival),
            delete_on_empty_ms: set(11).then_some(config.delete_on_empty_ms),
        })
    }
}

#[cfg(test)]
mod tests;
