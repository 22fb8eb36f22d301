//! Which flags set a stream's configuration, on a stream and (with `default-`) on a bucket?

use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use client::json::{ConfigField, ConfigKind, config_fields, config_object};
use serde_json::Value;
use tuning::units::{Bytes, Millis};
use wire::config::{Class, ConfigPatch, ProducerPolicy, StreamConfig, TimestampingMode};

use super::row::{Cell, Row};

/// The flags of a configuration; `OF_BUCKET` puts `default-` in front of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ConfigFlags<const OF_BUCKET: bool>(pub(super) ConfigPatch);

impl<const OF_BUCKET: bool> ConfigFlags<OF_BUCKET> {
    const PREFIX: &str = if OF_BUCKET { "default_" } else { "" };

    fn arg(field: &ConfigField) -> Arg {
        let id = format!("{}{}", Self::PREFIX, field.name);
        let arg = Arg::new(id.clone())
            .long(id.replace('_', "-"))
            .value_name(field.unit)
            .help(field.doc.trim_end_matches('.'));
        let unit = field.unit;
        match field.kind {
            ConfigKind::Class(_) => arg.value_parser(words(&["express", "standard"], str::parse::<Class>)),
            ConfigKind::Policy(_) => arg.value_parser(words(&["any", "fenced"], str::parse::<ProducerPolicy>)),
            ConfigKind::Mode(_) => {
                let modes = ["client-prefer", "client-require", "arrival"];
                arg.value_parser(words(&modes, str::parse::<TimestampingMode>))
            }
            ConfigKind::Switch(_) => switch(arg),
            ConfigKind::Wide(_) => arg.value_parser(move |text: &str| amount(unit, text)),
            ConfigKind::Narrow(_) => arg.value_parser(move |text: &str| narrow_amount(unit, text)),
        }
    }

    fn read(&mut self, field: &ConfigField, matches: &ArgMatches) {
        let id = format!("{}{}", Self::PREFIX, field.name);
        let patch = &mut self.0;
        match field.kind {
            ConfigKind::Class(slot) => *slot(patch) = matches.get_one(&id).copied(),
            ConfigKind::Policy(slot) => *slot(patch) = matches.get_one(&id).copied(),
            ConfigKind::Mode(slot) => *slot(patch) = matches.get_one(&id).copied(),
            ConfigKind::Switch(slot) => *slot(patch) = matches.get_one(&id).copied(),
            ConfigKind::Wide(slot) => *slot(patch) = matches.get_one(&id).copied(),
            ConfigKind::Narrow(slot) => *slot(patch) = matches.get_one(&id).copied(),
        }
    }
}

/// A flag that may stand alone for true, or with `=true` or `=false`.
pub(super) fn switch(arg: Arg) -> Arg {
    arg.value_parser(BoolishValueParser::new())
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .hide_possible_values(true)
}

/// A whole number, with a unit if it is of bytes or of milliseconds: `64MiB`, `7d`.
fn amount(unit: &str, text: &str) -> Result<u64, String> {
    match unit {
        "BYTES" => text.parse::<Bytes>().map(Bytes::get).map_err(|error| error.to_string()),
        "MS" => text.parse::<Millis>().map(Millis::get).map_err(|error| error.to_string()),
        _ => text.parse::<u64>().map_err(|error| error.to_string()),
    }
}

fn narrow_amount(unit: &str, text: &str) -> Result<u32, String> {
    let number = amount(unit, text)?;
    u32::try_from(number).map_err(|_| format!("{number} is more than {}", u32::MAX))
}

fn words<T, E>(words: &[&'static str], parse: fn(&str) -> Result<T, E>) -> impl TypedValueParser<Value = T> + use<T, E>
where
    T: Clone + Send + Sync + 'static,
    E: std::error::Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(words.to_vec()).try_map(move |word| parse(&word))
}

impl<const OF_BUCKET: bool> Args for ConfigFlags<OF_BUCKET> {
    fn augment_args(command: Command) -> Command {
        let heading = if OF_BUCKET { "Defaults of the streams made in the bucket" } else { "Configuration" };
        let args = config_fields().iter().map(|field| Self::arg(field).help_heading(heading));
        command.args(args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const OF_BUCKET: bool> FromArgMatches for ConfigFlags<OF_BUCKET> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for field in config_fields() {
            self.read(field, matches);
        }
        Ok(())
    }
}

/// A configuration under its field names, each behind `prefix`.
pub(super) fn show_config(config: &StreamConfig, prefix: &str, row: Row) -> Row {
    let mut values = config_object(config, "");
    config_fields().iter().fold(row, |row, field| {
        row.with(
            format!("{prefix}{}", field.name),
            match values.remove(field.name) {
                Some(Value::String(word)) => Cell::Text(word),
                Some(Value::Bool(flag)) => Cell::Flag(flag),
                Some(value) => value.as_u64().map_or(Cell::Nothing, Cell::Count),
                None => Cell::Nothing,
            },
        )
    })
}
