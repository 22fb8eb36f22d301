//! How does a stream's configuration look in JSON, and a change to one?

use std::str::FromStr;

use serde_json::{Map, Value};
use wire::config::{Class, ConfigPatch, ProducerPolicy, StreamConfig, TimestampingMode};
use wire::refusal::Refusal;

type Slot<T> = fn(&mut ConfigPatch) -> &mut Option<T>;

/// Where a field stands in a patch, which says what it takes.
#[derive(Debug, Clone, Copy)]
pub enum ConfigKind {
    /// One of these words.
    Class(Slot<Class>),
    /// One of these words.
    Policy(Slot<ProducerPolicy>),
    /// One of these words.
    Mode(Slot<TimestampingMode>),
    /// True or false.
    Switch(Slot<bool>),
    /// A whole number of 64 bits.
    Wide(Slot<u64>),
    /// A whole number of 32 bits.
    Narrow(Slot<u32>),
}

/// A field of a configuration.
#[derive(Debug, Clone, Copy)]
pub struct ConfigField {
    /// Its name on a stream; on a bucket `default_` stands in front.
    pub name: &'static str,
    /// What its value counts, or which words it is one of.
    pub unit: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// What it takes.
    pub kind: ConfigKind,
}

const FIELDS: &[ConfigField] = &[
    ConfigField {
        name: "class",
        unit: "CLASS",
        doc: "Where an append is durable before it is acked: the star's head log (express) or the standard \
              store (standard).",
        kind: ConfigKind::Class(|patch| &mut patch.class),
    },
    ConfigField {
        name: "producer_policy",
        unit: "POLICY",
        doc: "Who may append: anyone (any), or one writer session at a time (fenced).",
        kind: ConfigKind::Policy(|patch| &mut patch.producer_policy),
    },
    ConfigField {
        name: "timestamping_mode",
        unit: "MODE",
        doc: "Whose clock stamps records: the producer's if it sends one (client-prefer), always the \
              producer's (client-require) or the star's (arrival).",
        kind: ConfigKind::Mode(|patch| &mut patch.timestamping_mode),
    },
    ConfigField {
        name: "timestamping_uncapped",
        unit: "BOOL",
        doc: "Let a producer's stamp lie after the arrival, for a time scale of its own.",
        kind: ConfigKind::Switch(|patch| &mut patch.timestamping_uncapped),
    },
    ConfigField {
        name: "retention_max_age_ms",
        unit: "MS",
        doc: "Trim batches whose records are all older than this, within seconds; 0 keeps them for ever.",
        kind: ConfigKind::Wide(|patch| &mut patch.retention_max_age_ms),
    },
    ConfigField {
        name: "retention_max_bytes",
        unit: "BYTES",
        doc: "Trim whole batches from the front while more than this is kept, about; 0 is unbounded.",
        kind: ConfigKind::Wide(|patch| &mut patch.retention_max_bytes),
    },
    ConfigField {
        name: "retention_by_arrival",
        unit: "BOOL",
        doc: "Judge age by when a batch arrived, whatever the stamps of its records say; the only age for a stream \
              that takes uncapped stamps, or ever took some.",
        kind: ConfigKind::Switch(|patch| &mut patch.retention_by_arrival),
    },
    ConfigField {
        name: "delete_on_empty_ms",
        unit: "MS",
        doc: "Delete the stream once it has held no record, and got none, for so long; 0 is never.",
        kind: ConfigKind::Wide(|patch| &mut patch.delete_on_empty_ms),
    },
    ConfigField {
        name: "batch_max_bytes",
        unit: "BYTES",
        doc: "Content gathered before it is made durable; 0 leaves it to the star.",
        kind: ConfigKind::Narrow(|patch| &mut patch.batch_max_bytes),
    },
    ConfigField {
        name: "batch_max_records",
        unit: "N",
        doc: "Records gathered before they are made durable; 0 leaves it to the star.",
        kind: ConfigKind::Narrow(|patch| &mut patch.batch_max_records),
    },
    ConfigField {
        name: "batch_max_delay_ms",
        unit: "MS",
        doc: "Longest that a record waits to be gathered; 0 leaves it to the star.",
        kind: ConfigKind::Narrow(|patch| &mut patch.batch_max_delay_ms),
    },
    ConfigField {
        name: "throughput_max_bytes_per_second",
        unit: "BYTES",
        doc: "Content that may be appended a second; 0 is unbounded.",
        kind: ConfigKind::Wide(|patch| &mut patch.throughput_max_bytes_per_second),
    },
];

/// Every field, in the order of the documentation.
#[must_use]
pub fn config_fields() -> &'static [ConfigField] {
    FIELDS
}

/// What someone wrote for a value, cut to what fits into a sentence.
#[must_use]
pub fn describe(value: &Value) -> String {
    const CHARS: usize = 60;
    let text = value.to_string();
    if text.chars().nth(CHARS).is_none() { text } else { text.chars().take(CHARS).chain(['…']).collect() }
}

fn wrong(field: &str, value: &Value, wanted: &str) -> Refusal {
    Refusal::invalid(format!("field '{field}' is {}: it takes {wanted}", describe(value)))
}

fn word<T: FromStr<Err: Into<Refusal>>>(field: &str, value: &Value) -> Result<T, Refusal> {
    let text = value.as_str().ok_or_else(|| wrong(field, value, "a string"))?;
    text.parse().map_err(Into::into)
}

fn number<T: TryFrom<u64>>(field: &str, value: &Value, highest: u64) -> Result<T, Refusal> {
    let found = value.as_u64().and_then(|number| T::try_from(number).ok());
    found.ok_or_else(|| wrong(field, value, &format!("a whole number from 0 to {highest}")))
}

/// Takes the fields of a configuration out of an object, each with `prefix` in front; null is absent.
///
/// # Errors
/// `invalid` with the field, its value and what it takes.
pub fn take_config(object: &mut Map<String, Value>, prefix: &str) -> Result<ConfigPatch, Refusal> {
    let mut patch = ConfigPatch::default();
    for field in FIELDS {
        let name = format!("{prefix}{}", field.name);
        let Some(value) = object.remove(&name).filter(|value| !value.is_null()) else { continue };
        let set = &mut patch;
        match field.kind {
            ConfigKind::Class(slot) => *slot(set) = Some(word(&name, &value)?),
            ConfigKind::Policy(slot) => *slot(set) = Some(word(&name, &value)?),
            ConfigKind::Mode(slot) => *slot(set) = Some(word(&name, &value)?),
            ConfigKind::Switch(slot) => {
                *slot(set) = Some(value.as_bool().ok_or_else(|| wrong(&name, &value, "true or false"))?);
            }
            ConfigKind::Wide(slot) => *slot(set) = Some(number(&name, &value, u64::MAX)?),
            ConfigKind::Narrow(slot) => *slot(set) = Some(number(&name, &value, u64::from(u32::MAX))?),
        }
    }
    Ok(patch)
}

/// Puts the fields that are set into an object, each with `prefix` in front.
pub fn put_config(mut patch: ConfigPatch, prefix: &str, object: &mut Map<String, Value>) {
    for field in FIELDS {
        let set = &mut patch;
        let value = match field.kind {
            ConfigKind::Class(slot) => slot(set).map(|class| Value::from(class.word())),
            ConfigKind::Policy(slot) => slot(set).map(|policy| Value::from(policy.word())),
            ConfigKind::Mode(slot) => slot(set).map(|mode| Value::from(mode.word())),
            ConfigKind::Switch(slot) => slot(set).map(Value::from),
            ConfigKind::Wide(slot) => slot(set).map(Value::from),
            ConfigKind::Narrow(slot) => slot(set).map(Value::from),
        };
        if let Some(value) = value {
            object.insert(format!("{prefix}{}", field.name), value);
        }
    }
}

/// Every field of a configuration in an object, each with `prefix` in front.
#[must_use]
pub fn config_object(config: &StreamConfig, prefix: &str) -> Map<String, Value> {
    let mut object = Map::new();
    put_config(whole(config), prefix, &mut object);
    object
}

/// A patch that sets every field to what `config` has.
fn whole(config: &StreamConfig) -> ConfigPatch {
    ConfigPatch {
        class: Some(config.class),
        producer_policy: Some(config.producer_policy),
        timestamping_mode: Some(config.timestamping.mode),
        timestamping_uncapped: Some(config.timestamping.uncapped),
        retention_max_age_ms: Some(config.retention.max_age_ms),
        retention_max_bytes: Some(config.retention.max_bytes),
        retention_by_arrival: Some(config.retention.by_arrival),
        delete_on_empty_ms: Some(config.delete_on_empty_ms),
        batch_max_bytes: Some(config.batch.max_bytes),
        batch_max_records: Some(config.batch.max_records),
        batch_max_delay_ms: Some(config.batch.max_delay_ms),
        throughput_max_bytes_per_second: Some(config.throughput_max_bytes_per_second),
    }
}
