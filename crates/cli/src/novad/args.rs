//! What can be said on the command line of `novad`, and which settings come of it?

use std::ffi::OsString;
use std::path::PathBuf;

use super::store;
use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use rustix::process::Pid;
use tuning::settings::{Layers, Loaded, Setting, Settings, SettingsError};

const AFTER_HELP: &str = "\
Examples:
  novad
  novad --data /var/lib/nova --shards 3
  novad --config /etc/nova.toml --check
  NOVA_LISTEN=127.0.0.1:7000 novad
  novad --store s3://bucket/prefix
  novad store check --store s3://bucket/prefix
  novad store rebuild-index --store s3://bucket/prefix

A setting is taken from its flag, else from its variable, else from the file, else it has its default.
The file is TOML with the same names, sections in brackets: segment_bytes under [log] is
--log-segment-bytes and NOVA_LOG_SEGMENT_BYTES. NOVA_LOG sets what is logged: warn, info, debug, or
such as dataplane=debug,info. SIGTERM finishes what is in flight and ends; a second one ends at once.";

/// Variables of nova that are no settings.
const OTHER_VARIABLES: [&str; 3] = ["NOVA_ADDR", "NOVA_LOG", "NOVA_CONFIG"];

/// The command line: a flag a setting, and what is said about the settings as a whole.
pub(crate) fn command() -> Command {
    let settings = Settings::all().map(flag);
    Command::new("novad")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Serve durable streams from this machine: one star")
        .after_help(AFTER_HELP)
        .max_term_width(110)
        .args(settings)
        .arg(config())
        .args_conflicts_with_subcommands(true)
        .subcommand(store::command())
        .arg(
            Arg::new("accept-loss")
                .long("accept-loss")
                .action(ArgAction::SetTrue)
                .help("For this start: go on without head logs that are lost, damaged or older than the store. What only they hold is given up: a stream of which the store has a part goes on 2^32 sequence numbers later or a multiple of it, one of which it has nothing is gone"),
        )
        .arg(
            Arg::new("confirm-clock")
                .long("confirm-clock")
                .action(ArgAction::SetTrue)
                .help("For this start: say that the wall clock is right, after it was found to have jumped: records are dropped by their age again"),
        )
        .arg(
            Arg::new("end-with")
                .long("end-with")
                .value_name("PID")
                .value_parser(value_parser!(i32).range(1..))
                .help("End, as by SIGTERM, when this process ends, which must be the one that starts novad: for a star that must not be left behind"),
        )
        .arg(
            Arg::new("check")
                .long("check")
                .action(ArgAction::SetTrue)
                .help("Check the settings, the host and the store, print every setting and its origin, and end; the data directory, and a store in a directory, are made if need be"),
        )
}

/// Where more settings stand.
pub(super) fn config() -> Arg {
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .env("NOVA_CONFIG")
        .value_parser(value_parser!(PathBuf))
        .help("Take settings from this TOML file")
}

/// The flag of a setting.
pub(super) fn flag(setting: &'static Setting) -> Arg {
    let doc = setting.doc.trim();
    let first = doc.split_once(". ").map_or(doc, |(first, _)| first);
    let value = setting.name.rsplit('.').next().unwrap_or(setting.name);
    let range = (setting.range)().map_or_else(String::new, |(low, high)| format!(", within {low} and {high}"));
    let default = (setting.default)();
    let wanted = setting.wanted;
    let variable = setting.variable();
    let arg = Arg::new(setting.name)
        .long(setting.flag())
        .value_name(value.to_ascii_uppercase())
        .value_parser(OsStringValueParser::new())
        .help(format!("{} [default: {default}]", first.trim_end_matches('.')))
        .long_help(format!("{doc}\n\nIt is {wanted}{range}. [default: {default}] [env: {variable}]"));
    if setting.is_switch { arg.num_args(0..=1).require_equals(true).default_missing_value("true") } else { arg }
}

/// The settings: defaults, over them the file, the environment, then those flags that the command has.
pub(crate) fn settings(
    matches: &ArgMatches,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Loaded, SettingsError> {
    let mut layers = Layers::default();
    if let Some(path) = matches.get_one::<PathBuf>("config") {
        layers = layers.file(path)?;
    }
    let ours = environment.into_iter().filter(|(name, _)| !OTHER_VARIABLES.iter().any(|other| name == other));
    layers = layers.environment(ours)?;
    for setting in Settings::all() {
        if let Ok(Some(value)) = matches.try_get_one::<OsString>(setting.name) {
            layers = layers.flag(setting, &value.to_string_lossy())?;
        }
    }
    layers.finish()
}

/// What an operator says at this start alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Says {
    /// Go on without head logs that are lost.
    pub(crate) accepts_loss: bool,
    /// The wall clock is right.
    pub(crate) confirms_clock: bool,
}

/// What is said at this start alone.
pub(crate) fn says(matches: &ArgMatches) -> Says {
    Says { accepts_loss: matches.get_flag("accept-loss"), confirms_clock: matches.get_flag("confirm-clock") }
}

/// The process that this one is to end with, if one is named.
pub(crate) fn end_with(matches: &ArgMatches) -> Option<Pid> {
    matches.get_one::<i32>("end-with").copied().and_then(Pid::from_raw)
}

/// Whether only a check is wanted.
pub(crate) fn is_check(matches: &ArgMatches) -> bool {
    matches.get_flag("check")
}

#[cfg(test)]
mod tests {
    use super::{command, settings};
    use std::ffi::OsString;
    use std::io::Write;
    use tuning::settings::{Loaded, SettingsError};

    fn check(file: &str, environment: &[(&str, &str)], flags: &[&str]) -> Result<Loaded, SettingsError> {
        let path = std::env::temp_dir().join(format!(
            "nova-cli-settings-{}-{:?}.toml",
            std::process::id(),
            std::thread::current().id()
        ));
        write!(std::fs::File::create(&path).unwrap(), "{file}").unwrap();
        let mut args = vec!["novad", "--config", path.to_str().unwrap()];
        args.extend(flags);
        let matches = command().try_get_matches_from(args).unwrap();
        let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let outcome = settings(&matches, environment);
        std::fs::remove_file(&path).unwrap();
        outcome
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_flag_goes_over_the_environment_which_goes_over_the_file() {
        let file = "shards = 1\nlisten = \"127.0.0.1:1\"\ndata = \"/of/file\"\n[log]\nsegment_bytes = \"16MiB\"";
        let environment = [("NOVA_LISTEN", "127.0.0.1:2"), ("NOVA_DATA", "/of/environment")];
        let loaded = check(file, &environment, &["--data", "/of/flag"]).unwrap();
        let settings = loaded.settings();
        assert_eq!(settings.shards, 1);
        assert_eq!(settings.listen.port(), 2);
        assert_eq!(settings.data.to_str(), Some("/of/flag"));
        assert_eq!(settings.log.segment_bytes.get(), 16 << 20);
    }

    #[test]
    fn a_switch_may_stand_alone_or_be_set() {
        let exposed = ["--listen", "0.0.0.0:1"];
        assert!(matches!(check("", &[], &exposed), Err(SettingsError::Exposed { .. })));
        assert!(check("", &[], &[&exposed[..], &["--insecure"]].concat()).is_ok());
        let error = check("insecure = true", &[], &[&exposed[..], &["--insecure=false"]].concat());
        assert!(matches!(error, Err(SettingsError::Exposed { .. })));
    }

    #[test]
    fn an_unknown_key_is_refused_but_the_variables_of_the_commands_are_not() {
        let error = check("shard = 1", &[], &[]).unwrap_err();
        assert!(matches!(error, SettingsError::Unknown { .. }), "{error}");
        let environment = [("NOVA_ADDR", "x:1"), ("NOVA_LOG", "debug"), ("NOVA_CONFIG", "y")];
        assert!(check("", &environment, &[]).is_ok());
        let error = check("", &[("NOVA_SHARD", "1")], &[]).unwrap_err();
        assert!(matches!(error, SettingsError::Unknown { .. }), "{error}");
    }
}
