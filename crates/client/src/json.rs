//! How does each value look in JSON: what the HTTP surface answers, and what it is asked with?
//!
//! Both ends use these forms: whoever serves writes what whoever asks reads.

mod answers;
mod config;
mod failure;
mod record;

pub use answers::{Ack, BucketForm, BucketsForm, Misfit, PageForm, Place, StreamForm, StreamsForm, cursor, write_page};
pub use config::{ConfigField, ConfigKind, config_fields, config_object, describe, put_config, take_config};
pub use failure::FailureForm;
pub use record::{Coding, RecordError, RecordForm, WriteError, at_most, content_bytes, of_json, write_json};

#[cfg(test)]
mod tests;
