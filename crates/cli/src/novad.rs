//! What does `novad` do from its command line to its last acked record?

mod args;
mod background;
mod cluster_id;
mod greeting;
mod join;
mod signals;
mod star_id;
mod store;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::ArgMatches;
use tracing_subscriber::EnvFilter;
use tuning::settings::{Loaded, Settings};
use wire::reason::Reason;

use crate::usage::{self, Told};
pub(crate) use args::command;
use join::Star;

/// Why `novad` ends otherwise than by being told to.
#[derive(Debug)]
struct Failure {
    reason: Reason,
    message: String,
}

impl Failure {
    fn new(reason: Reason, error: impl ToString) -> Self {
        Self { reason, message: error.to_string() }
    }
}

/// Serves until it is told to stop, to the exit code of this process.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match command().try_get_matches() {
        Ok(matches) => run(&matches),
        Err(error) => return tell(usage::told(&error, "novad")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => complain(&failure),
    }
}

fn tell(told: Told) -> ExitCode {
    match told {
        Told::Asked(text) => {
            // A reader that stops at the first screen of a help has what it wants.
            let _gone = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Told::Help(line) | Told::Wrong(line) => complain(&Failure::new(Reason::Invalid, line)),
    }
}

fn complain(failure: &Failure) -> ExitCode {
    let line = failure.message.replace('\n', " ");
    let _gone = writeln!(io::stderr(), "novad: {line}");
    ExitCode::from(failure.reason.exit_code())
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    if let Some(("store", matches)) = matches.subcommand() {
        return store::run(matches);
    }
    let loaded = args::settings(matches, std::env::vars_os()).map_err(|error| Failure::new(error.reason(), error))?;
    let settings = loaded.settings();
    log()?;
    let prepared = join::prepare(settings)?;
    for notice in &prepared.notices {
        tracing::warn!("{notice}");
    }
    if args::is_check(matches) {
        return show(&loaded).map_err(|error| Failure::new(Reason::Internal, error));
    }
    dataplane::abort_on_panic();
    let star = Star::start(settings, prepared, args::says(matches))?;
    let signals = signals::Signals::watch().map_err(|error| Failure::new(Reason::Internal, error))?;
    greeting::greet(star.address(), settings);
    signals.wait_for_first();
    tracing::info!(timeout = %settings.drain_timeout_ms, "draining: a second signal ends at once");
    signals.end_at_second();
    star.drain()?;
    tracing::info!("drained");
    Ok(())
}

/// Logs go to stderr, what is logged by `NOVA_LOG`.
fn log() -> Result<(), Failure> {
    let filter = match std::env::var("NOVA_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text).map_err(|error| {
            Failure::new(Reason::Invalid, format!("NOVA_LOG is set to `{text}`, which is no filter: {error}"))
        })?,
        _ => EnvFilter::new("info,aws_config=error"),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .init();
    Ok(())
}

/// Every setting, its value and where it came from.
fn show(loaded: &Loaded) -> io::Result<()> {
    let width = Settings::all().map(|setting| setting.name.len()).max().unwrap_or(0);
    let mut out = io::stdout().lock();
    for setting in Settings::all() {
        let value = loaded.settings().show(setting);
        let origin = loaded.origin(setting);
        writeln!(out, "{:width$}  {value}  ({origin})", setting.name)?;
    }
    writeln!(out, "the settings hold together and this host can serve them")
}
