//! How do S2's configurations become nova's, and back?
//!
//! S2 resolves every field when a stream is made: its own, else the basin's, else S2's default. So does nova, but for fields
//! that are zero, which a create can't set over a default that isn't; see [`Wanted`]. Ages are judged by when records arrived.

use client::{Bucket, Class, ConfigPatch, StreamConfig, TimestampingMode};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::failure::{Failure, Result};

/// How long S2 keeps records when nothing says otherwise, in milliseconds.
const AGE_DEFAULT_MS: u64 = 7 * 24 * 3600 * 1000;

/// A field of a change: left out, cleared by `null`, or set.
type Change<T> = Option<Option<T>>;

fn change<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> std::result::Result<Change<T>, D::Error> {
    Option::deserialize(from).map(Some)
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RetentionJson {
    Age(u64),
    Infinite(Infinite),
}

#[derive(Debug, Clone, Deserialize)]
struct Infinite {}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeJson {
    ClientPrefer,
    ClientRequire,
    Arrival,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct TimestampingJson {
    #[serde(default, deserialize_with = "change")]
    mode: Change<ModeJson>,
    #[serde(default, deserialize_with = "change")]
    uncapped: Change<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct DeleteOnEmptyJson {
    #[serde(default, deserialize_with = "change")]
    min_age_secs: Change<u64>,
}

/// A stream's configuration in a request: of a create, where `null` is as good as left out, or of a change, where it clears.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct StreamJson {
    #[serde(default, deserialize_with = "change")]
    storage_class: Change<String>,
    #[serde(default, deserialize_with = "change")]
    retention_policy: Change<RetentionJson>,
    #[serde(default, deserialize_with = "change")]
    timestamping: Change<TimestampingJson>,
    #[serde(default, deserialize_with = "change")]
    delete_on_empty: Change<DeleteOnEmptyJson>,
}

/// A basin's configuration in a request.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct BasinJson {
    #[serde(default, deserialize_with = "change")]
    default_stream_config: Change<StreamJson>,
    #[serde(default, deserialize_with = "change")]
    stream_cipher: Change<String>,
    #[serde(default, deserialize_with = "change")]
    create_stream_on_append: Change<bool>,
    #[serde(default, deserialize_with = "change")]
    create_stream_on_read: Change<bool>,
}

/// What streams are made with when neither they nor their basin say otherwise.
fn built_in() -> StreamConfig {
    let mut config = StreamConfig::default();
    config.retention.max_age_ms = AGE_DEFAULT_MS;
    config.retention.by_arrival = true;
    config
}

impl StreamJson {
    /// `config` with what is set; what is cleared is as in `defaults`.
    ///
    /// # Errors
    /// `invalid` for a value that can't be.
    fn over(&self, config: &StreamConfig, defaults: &StreamConfig) -> Result<StreamConfig> {
        let mut wanted = *config;
        match self.storage_class.as_ref() {
            Some(Some(word)) => wanted.class = class(word)?,
            Some(None) => wanted.class = defaults.class,
            None => {}
        }
        match self.retention_policy.as_ref() {
            Some(Some(policy)) => {
                wanted.retention.max_age_ms = age_ms(policy)?;
                wanted.retention.by_arrival = wanted.retention.max_age_ms > 0;
            }
            Some(None) => {
                wanted.retention.max_age_ms = defaults.retention.max_age_ms;
                wanted.retention.by_arrival = defaults.retention.by_arrival;
            }
            None => {}
        }
        match self.timestamping.as_ref() {
            Some(Some(timestamping)) => {
                if let Some(mode) = timestamping.mode {
                    wanted.timestamping.mode = mode.map_or(defaults.timestamping.mode, ModeJson::native);
                }
                if let Some(uncapped) = timestamping.uncapped {
                    wanted.timestamping.uncapped = uncapped.unwrap_or(defaults.timestamping.uncapped);
                }
            }
            Some(None) => wanted.timestamping = defaults.timestamping,
            None => {}
        }
        match self.delete_on_empty.as_ref() {
            Some(Some(DeleteOnEmptyJson { min_age_secs: Some(Some(secs)) })) => {
                wanted.delete_on_empty_ms = ms(*secs, "delete_on_empty.min_age_secs")?;
            }
            Some(Some(DeleteOnEmptyJson { min_age_secs: None })) | None => {}
            Some(_) => wanted.delete_on_empty_ms = defaults.delete_on_empty_ms,
        }
        // Stamps on a scale of their own say nothing of age.
        wanted.retention.by_arrival |= wanted.timestamping.uncapped && wanted.retention.max_age_ms > 0;
        Ok(wanted)
    }

    /// What a stream made in a bucket of these defaults should be.
    ///
    /// # Errors
    /// `invalid` for a value that can't be.
    pub(super) fn created(&self, defaults: &StreamConfig) -> Result<Wanted> {
        self.over(defaults, defaults).map(Wanted)
    }

    /// What a stream should be after a change.
    ///
    /// # Errors
    /// `invalid` for a value that can't be.
    pub(super) fn changed(&self, config: &StreamConfig, defaults: &StreamConfig) -> Result<Wanted> {
        self.over(config, defaults).map(Wanted)
    }

    /// The same words for the same configuration, for telling a create that is tried again from another one.
    pub(super) fn fingerprint(&self) -> String {
        format!("{self:?}")
    }
}

/// A configuration as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted(StreamConfig);

impl Wanted {
    /// Every field that S2 knows, set: for a create, after which zeroes may still have to be set, and for a change.
    pub(super) fn patch(&self) -> ConfigPatch {
        let Self(config) = self;
        ConfigPatch {
            class: Some(config.class),
            timestamping_mode: Some(config.timestamping.mode),
            timestamping_uncapped: Some(config.timestamping.uncapped),
            retention_max_age_ms: Some(config.retention.max_age_ms),
            retention_by_arrival: Some(config.retention.by_arrival),
            delete_on_empty_ms: Some(config.delete_on_empty_ms),
            ..ConfigPatch::default()
        }
    }

    /// Whether a configuration is as it should be, as far as S2 knows.
    pub(super) fn is(&self, config: &StreamConfig) -> bool {
        self.patch().apply(config) == *config
    }
}

impl BasinJson {
    /// Checks what the façade can't do.
    ///
    /// # Errors
    /// `invalid`.
    pub(super) fn check(&self) -> Result<()> {
        match &self.stream_cipher {
            Some(Some(cipher)) => {
                let cipher: String = cipher.chars().take(20).flat_map(char::escape_debug).collect();
                Err(Failure::invalid(format!("stream_cipher '{cipher}': streams are not encrypted here")))
            }
            _ => Ok(()),
        }
    }

    /// The two flags: append, read. What is cleared, or left out where nothing stands, is false.
    pub(super) fn flags(&self) -> (Option<bool>, Option<bool>) {
        let flag = |change: Change<bool>| change.map(Option::unwrap_or_default);
        (flag(self.create_stream_on_append), flag(self.create_stream_on_read))
    }

    /// The defaults of a bucket that is made, or set anew, with this.
    ///
    /// # Errors
    /// `invalid` for a value that can't be.
    pub(super) fn created(&self) -> Result<Wanted> {
        let config = self.default_stream_config.clone().flatten().unwrap_or_default();
        config.over(&built_in(), &built_in()).map(Wanted)
    }

    /// The defaults of a bucket after a change.
    ///
    /// # Errors
    /// `invalid` for a value that can't be.
    pub(super) fn changed(&self, defaults: &StreamConfig) -> Result<Wanted> {
        match &self.default_stream_config {
            None => Ok(Wanted(*defaults)),
            Some(None) => Ok(Wanted(built_in())),
            Some(Some(config)) => config.over(defaults, &built_in()).map(Wanted),
        }
    }

    /// See [`StreamJson::fingerprint`].
    pub(super) fn fingerprint(&self) -> String {
        format!("{self:?}")
    }
}

impl ModeJson {
    const fn native(self) -> TimestampingMode {
        match self {
            Self::ClientPrefer => TimestampingMode::ClientPrefer,
            Self::ClientRequire => TimestampingMode::ClientRequire,
            Self::Arrival => TimestampingMode::Arrival,
        }
    }
}

fn class(word: &str) -> Result<Class> {
    word.parse().map_err(|_| {
        let word: String = word.chars().take(20).flat_map(char::escape_debug).collect();
        Failure::invalid(format!("storage_class '{word}' is unknown: there are express and standard"))
    })
}

fn age_ms(policy: &RetentionJson) -> Result<u64> {
    match policy {
        RetentionJson::Age(0) => Err(Failure::invalid("retention_policy.age of 0 seconds: it must be more than 0")),
        RetentionJson::Age(secs) => ms(*secs, "retention_policy.age"),
        RetentionJson::Infinite(Infinite {}) => Ok(0),
    }
}

fn ms(secs: u64, what: &str) -> Result<u64> {
    secs.checked_mul(1000).ok_or_else(|| Failure::invalid(format!("{what} of {secs} seconds is out of range")))
}

/// A stream's configuration in an answer.
pub(super) fn show(config: &StreamConfig) -> Value {
    let retention = match config.retention.max_age_ms {
        0 => json!({ "infinite": {} }),
        ms => json!({ "age": ms.div_ceil(1000) }),
    };
    let delete_on_empty = match config.delete_on_empty_ms {
        0 => Value::Null,
        ms => json!({ "min_age_secs": ms.div_ceil(1000) }),
    };
    json!({
        "storage_class": config.class.word(),
        "retention_policy": retention,
        "timestamping": { "mode": config.timestamping.mode.word(), "uncapped": config.timestamping.uncapped },
        "delete_on_empty": delete_on_empty,
    })
}

/// A basin's configuration in an answer.
pub(super) fn show_basin(bucket: &Bucket) -> Value {
    json!({
        "default_stream_config": show(&bucket.defaults),
        "stream_cipher": null,
        "create_stream_on_append": bucket.create_stream_on_append,
        "create_stream_on_read": bucket.create_stream_on_read,
    })
}

#[cfg(test)]
mod tests;
