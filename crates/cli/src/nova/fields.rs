//! Which flags set a stream's configuration, on a stream and (with `default-`) on a bucket?

use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use tuning::units::{Bytes, Millis};
use wire::config::{Class, ConfigPatch, ProducerPolicy, StreamConfig, TimestampingMode};

use super::row::Row;

type Slot<T> = fn(&mut ConfigPatch) -> &mut Option<T>;

/// Where a field stands in a patch, which says what its flag takes.
enum Kind {
    Class(Slot<Class>),
    Policy(Slot<ProducerPolicy>),
    Mode(Slot<TimestampingMode>),
    Switch(Slot<bool>),
    Wide(Slot<u64>),
    Narrow(Slot<u32>),
}

struct Field {
    name: &'static str,
    value: &'static str,
    help: &'static str,
    kind: Kind,
}

const FIELDS: &[Field] = &[
    Field {
        name: "class",
        value: "CLASS",
        help: "Where an append is durable before it is acked: the star's head log (express) or the standard store (standard)",
        kind: Kind::Class(|patch| &mut patch.class),
    },
    Field {
        name: "producer_policy",
        value: "POLICY",
        help: "Who may append: anyone (any), or one writer session at a time (fenced)",
        kind: Kind::Policy(|patch| &mut patch.producer_policy),
    },
    Field {
        name: "timestamping_mode",
        value: "MODE",
        help: "Whose clock stamps records: the producer's if it sends one (client-prefer), always the producer's (client-require) or the star's (arrival)",
        kind: Kind::Mode(|patch| &mut patch.timestamping_mode),
    },
    Field {
        name: "timestamping_uncapped",
        value: "BOOL",
        help: "Let a producer's stamp lie after the arrival, for a time scale of its own",
        kind: Kind::Switch(|patch| &mut patch.timestamping_uncapped),
    },
    Field {
        name: "retention_max_age_ms",
        value: "MS",
        help: "Trim batches whose records are all older than this, within seconds; 0 keeps them for ever",
        kind: Kind::Wide(|patch| &mut patch.retention_max_age_ms),
    },
    Field {
        name: "retention_max_bytes",
        value: "BYTES",
        help: "Trim whole batches from the front while more than this is kept, about; 0 is unbounded",
        kind: Kind::Wide(|patch| &mut patch.retention_max_bytes),
    },
    Field {
        name: "batch_max_bytes",
        value: "BYTES",
        help: "Content gathered before it is made durable; 0 leaves it to the star",
        kind: Kind::Narrow(|patch| &mut patch.batch_max_bytes),
    },
    Field {
        name: "batch_max_records",
        value: "N",
        help: "Records gathered before they are made durable; 0 leaves it to the star",
        kind: Kind::Narrow(|patch| &mut patch.batch_max_records),
    },
    Field {
        name: "batch_max_delay_ms",
        value: "MS",
        help: "Longest that a record waits to be gathered; 0 leaves it to the star",
        kind: Kind::Narrow(|patch| &mut patch.batch_max_delay_ms),
    },
    Field {
        name: "throughput_max_bytes_per_second",
        value: "BYTES",
        help: "Content that may be appended a second; 0 is unbounded",
        kind: Kind::Wide(|patch| &mut patch.throughput_max_bytes_per_second),
    },
];

/// The flags of a configuration; `OF_BUCKET` puts `default-` in front of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ConfigFlags<const OF_BUCKET: bool>(pub(super) ConfigPatch);

impl<const OF_BUCKET: bool> ConfigFlags<OF_BUCKET> {
    const PREFIX: &str = if OF_BUCKET { "default_" } else { "" };

    fn arg(field: &Field) -> Arg {
        let id = format!("{}{}", Self::PREFIX, field.name);
        let arg = Arg::new(id.clone()).long(id.replace('_', "-")).value_name(field.value).help(field.help);
        let unit = field.value;
        match field.kind {
            Kind::Class(_) => arg.value_parser(words(&["express", "standard"], str::parse::<Class>)),
            Kind::Policy(_) => arg.value_parser(words(&["any", "fenced"], str::parse::<ProducerPolicy>)),
            Kind::Mode(_) => {
                let modes = ["client-prefer", "client-require", "arrival"];
                arg.value_parser(words(&modes, str::parse::<TimestampingMode>))
            }
            Kind::Switch(_) => switch(arg),
            Kind::Wide(_) => arg.value_parser(move |text: &str| amount(unit, text)),
            Kind::Narrow(_) => arg.value_parser(move |text: &str| narrow_amount(unit, text)),
        }
    }

    fn read(&mut self, field: &Field, matches: &ArgMatches) {
        let id = format!("{}{}", Self::PREFIX, field.name);
        let patch = &mut self.0;
        match field.kind {
            Kind::Class(slot) => *slot(patch) = matches.get_one(&id).copied(),
            Kind::Policy(slot) => *slot(patch) = matches.get_one(&id).copied(),
            Kind::Mode(slot) => *slot(patch) = matches.get_one(&id).copied(),
            Kind::Switch(slot) => *slot(patch) = matches.get_one(&id).copied(),
            Kind::Wide(slot) => *slot(patch) = matches.get_one(&id).copied(),
            Kind::Narrow(slot) => *slot(patch) = matches.get_one(&id).copied(),
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
        let args = FIELDS.iter().map(|field| Self::arg(field).help_heading(heading));
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
        for field in FIELDS {
            self.read(field, matches);
        }
        Ok(())
    }
}

/// A configuration under its field names, each behind `prefix`.
pub(super) fn show_config(config: &StreamConfig, prefix: &str, row: Row) -> Row {
    let name = |field: &str| format!("{prefix}{field}");
    row.with(name("class"), config.class.word())
        .with(name("producer_policy"), config.producer_policy.word())
        .with(name("timestamping_mode"), config.timestamping.mode.word())
        .with(name("timestamping_uncapped"), config.timestamping.uncapped)
        .with(name("retention_max_age_ms"), config.retention.max_age_ms)
        .with(name("retention_max_bytes"), config.retention.max_bytes)
        .with(name("batch_max_bytes"), u64::from(config.batch.max_bytes))
        .with(name("batch_max_records"), u64::from(config.batch.max_records))
        .with(name("batch_max_delay_ms"), u64::from(config.batch.max_delay_ms))
        .with(name("throughput_max_bytes_per_second"), config.throughput_max_bytes_per_second)
}
