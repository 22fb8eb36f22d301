//! What does `novad` do from its command line to its last acked record?

mod args;
mod background;
mod cluster_id;
mod commits;
mod greeting;
mod join;
mod rebuild;
pub(crate) mod signals;
mod star_id;
mod store;
mod waiting;

use std::io::{self, Write};
use std::process::ExitCode;

use crate::surfaces::Bounds;
use clap::ArgMatches;
use rustix::process::Pid;
use tracing_subscriber::EnvFilter;
use tuning::settings::{Loaded, Settings};
use wire::reason::Reason;

use crate::usage::{self, Told};
pub(crate) use args::command;
use join::Star;
pub(crate) use store::{StoreFlags, flags as store_flags, open_said as open_store};

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
    failpoints::watch();
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
    if let Some(parent) = args::end_with(matches) {
        end_with(parent)?;
    }
    let mut loaded =
        args::settings(matches, std::env::vars_os()).map_err(|error| Failure::new(error.reason(), error))?;
    log()?;
    let prepared = join::prepare(loaded.settings())?;
    for notice in &prepared.notices {
        tracing::warn!("{notice}");
    }
    commits::choose(&mut loaded);
    let settings = loaded.settings();
    if args::is_check(matches) {
        join::check(settings, &prepared)?;
        return show(&loaded).map_err(|error| Failure::new(Reason::Internal, error));
    }
    dataplane::abort_on_panic();
    let bounds = Bounds::take(settings.http, settings.s2).map_err(|error| Failure::new(error.reason(), error))?;
    let signals = signals::Signals::watch().map_err(|error| Failure::new(Reason::Internal, error))?;
    let star = Star::start(settings, prepared, args::says(matches), bounds, || signals.serves())?;
    signals.wait_for_first();
    tracing::info!(timeout = %settings.drain_timeout_ms, "draining: a second signal ends at once");
    signals.end_at_second();
    star.drain(settings.drain_timeout_ms.duration())?;
    tracing::info!("drained");
    Ok(())
}

fn end_with(parent: Pid) -> Result<(), Failure> {
    match signals::end_with(parent) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let pid = parent.as_raw_nonzero();
            let why = format!("--end-with {pid}: that process has ended, or did not start this one itself");
            Err(Failure::new(Reason::FailedPrecondition, why))
        }
        Err(error) => Err(Failure::new(Reason::FailedPrecondition, format!("--end-with: {error}"))),
    }
}

/// Logs go to stderr, what is logged by `NOVA_LOG`.
fn log() -> Result<(), Failure> {
    let filter = match std::env::var("NOVA_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(quietened(&text)).map_err(|error| {
            Failure::new(Reason::Invalid, format!("NOVA_LOG is set to `{text}`, which is no filter: {error}"))
        })?,
        _ => EnvFilter::new(quietened("info")),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .init();
    Ok(())
}

/// A filter that leaves out what the SDK says of each place where it finds no credentials: the error says where it looked. And what it
/// traces: whole requests and answers, in which credentials may stand.
fn quietened(filter: &str) -> String {
    const QUIET: &str =
        "aws_config=error,aws_runtime=info,aws_sdk_s3=info,aws_smithy_http_client=info,aws_smithy_runtime=info";
    if filter.contains("aws_") { filter.to_owned() } else { format!("{filter},{QUIET}") }
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
    writeln!(out, "the settings hold together, this host can serve them, and the store is there")
}
