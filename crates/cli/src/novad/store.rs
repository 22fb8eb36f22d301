//! Which store do the settings name, and does it keep the promises that nova stands on? [`rebuild`] makes its index again.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use clap::{Arg, ArgMatches, Command};
use control::store::conformance::{self, Case};
use control::store::{LocalDirectory, ObjectName, S3Store, Store, StoreError};
use serde_json::json;
use tuning::host::{FileSystem, file_system, nearest_directory};
use tuning::settings::{S3Endpoint, Settings, StoreAddress};
use wire::reason::Reason;

use super::{Failure, args, rebuild};

const AFTER_HELP: &str = "\
Examples:
  novad store check --store /var/lib/nova-store
  novad store check --store s3://bucket/prefix
  novad store check --store s3://bucket/prefix --s3-endpoint http://127.0.0.1:9000 --output json

It works below check/ of the store and removes what it made; it takes some hundred requests and 50 MiB.
The credentials are those of the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile,
a web identity or the instance's role. Exit codes: 0 the store keeps its promises, 4 it does not or
can't be used, 7 it can't be reached.";

/// The flags of the settings that say which store.
pub(crate) fn flags() -> impl Iterator<Item = Arg> {
    let is_wanted = |name: &str| matches!(name, "data" | "store") || name.starts_with("s3.");
    let settings = Settings::all().filter(move |setting| is_wanted(setting.name)).map(args::flag);
    settings.chain([args::config()])
}

/// A store and what it is called.
#[derive(Debug)]
pub(crate) struct StoreFlags {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) address: String,
}

/// Opens the store that a command line with [`flags`] names; of an error its reason, and what to say.
pub(crate) fn open_said(matches: &ArgMatches) -> Result<StoreFlags, (Reason, String)> {
    let loaded = args::settings(matches, std::env::vars_os()).map_err(|error| (error.reason(), error.to_string()))?;
    let settings = loaded.settings();
    let store = open(settings, &settings.data).map_err(|failure| (failure.reason, failure.message))?;
    Ok(StoreFlags { store, address: address(settings) })
}

/// The flags that say which store, and how its answers are told.
fn of_store(command: Command) -> Command {
    command.args(flags()).arg(
        Arg::new("output")
            .long("output")
            .value_name("FORMAT")
            .value_parser(["text", "json"])
            .default_value("text")
            .help("text: a line each; json: an object each, and one of the whole"),
    )
}

/// `store …`, whose flags are the settings that say which store.
pub(super) fn command() -> Command {
    let check = Command::new("check")
        .about("Try every promise that nova needs of its store, and say which it breaks")
        .after_help(AFTER_HELP)
        .max_term_width(110);
    Command::new("store")
        .about("Work on the store itself")
        .subcommand_required(true)
        .subcommand(of_store(check))
        .subcommand(of_store(rebuild::command()))
}

/// Opens the store of the settings; one on S3 is connected to when it is first asked.
pub(super) fn open(settings: &Settings, data: &Path) -> Result<Arc<dyn Store>, Failure> {
    if let StoreAddress::S3 { bucket, prefix } = &settings.store {
        return Ok(Arc::new(S3Store::new(bucket, prefix, &settings.s3)));
    }
    let root = settings.store.directory(data).unwrap_or_default();
    if let Some(doubt) = doubt(&root) {
        tracing::warn!("{doubt}");
    }
    let store = LocalDirectory::open(&root)
        .map_err(|error| Failure::new(Reason::FailedPrecondition, format!("the store can't be used: {error}")))?;
    Ok(Arc::new(store))
}

/// What is to be known of a directory before it is used as a store.
fn doubt(root: &Path) -> Option<String> {
    match file_system(&nearest_directory(root)) {
        Ok(kind @ (FileSystem::Tmpfs | FileSystem::Ramfs)) => {
            let place = root.display();
            Some(format!("the store {place} lies on {kind}, in memory: all of it is lost with the machine"))
        }
        _ => None,
    }
}

/// Carries out `store …`.
pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((verb @ ("check" | "rebuild-index"), matches)) = matches.subcommand() else {
        return Err(Failure::new(Reason::Invalid, "say what to do with the store: check or rebuild-index"));
    };
    let loaded = args::settings(matches, std::env::vars_os()).map_err(|error| Failure::new(error.reason(), error))?;
    let settings = loaded.settings();
    let is_json = matches.get_one::<String>("output").is_some_and(|format| format == "json");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Reason::Internal, error))?;
    let root = settings.store.directory(&settings.data);
    let is_new = root.as_ref().is_some_and(|root| !root.exists());
    let mut notes: Vec<String> = root.as_deref().and_then(doubt).into_iter().collect();
    if is_new {
        notes.push(format!(
            "the store {} was not there: it is made now, so see that no mount is missing",
            address(settings)
        ));
    }
    for note in &notes {
        complain_of(note);
    }
    let store = open(settings, &settings.data)?;
    runtime.block_on(async {
        reach(&*store).await.map_err(|error| Failure::new(error.reason(), error))?;
        match verb {
            "check" => check(store, &address(settings), is_json).await,
            _ => rebuild::run(store, &address(settings), matches, is_json).await,
        }
    })
}

/// Where the store is, as an operator knows it.
pub(super) fn place(settings: &Settings) -> String {
    match (&settings.store, &settings.s3.endpoint) {
        (StoreAddress::S3 { .. }, S3Endpoint::Url(url)) => format!("{} at {url}", address(settings)),
        _ => address(settings),
    }
}

fn address(settings: &Settings) -> String {
    let directory = settings.store.directory(&settings.data);
    directory.map_or_else(|| settings.store.to_string(), |path| path.display().to_string())
}

/// Whether the store answers at all, so that one that does not is told once rather than by every promise.
async fn reach(store: &dyn Store) -> Result<(), StoreError> {
    let Ok(name) = ObjectName::parse("check/reach") else { return Ok(()) };
    match store.head(&name).await {
        Err(error) if !error.is_answer() => Err(error),
        _ => Ok(()),
    }
}

async fn check(store: Arc<dyn Store>, address: &str, is_json: bool) -> Result<(), Failure> {
    let began = Instant::now();
    let cases = conformance::check(Arc::clone(&store), |case| say(&line(case, is_json))).await;
    let broken = cases.iter().filter(|case| case.outcome.is_err()).count();
    let lies = conformance::lies(&cases);
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    if is_json {
        let skew_ms = store.clock_skew_ms();
        let whole = json!({"store": address, "ok": broken == 0, "promises": cases.len(), "broken": broken, "lies": lies,
            "took_ms": took_ms, "clock_skew_ms": skew_ms});
        say(&whole.to_string());
    }
    if broken == 0 {
        if !is_json {
            say(&format!("the store {address} keeps all {} promises, in {took_ms} ms", cases.len()));
        }
        return Ok(());
    }
    let why = if lies.is_empty() { "see the lines above".to_owned() } else { lies.join("; ") };
    let message = format!("the store {address} breaks {broken} of {} promises, nova can't use it: {why}", cases.len());
    Err(Failure::new(Reason::FailedPrecondition, message))
}

fn line(case: &Case, is_json: bool) -> String {
    if !is_json {
        return case.to_string();
    }
    let reason = case.outcome.as_ref().err().map(ToString::to_string);
    json!({"promise": case.name, "ok": reason.is_none(), "reason": reason}).to_string()
}

/// What is no error and is to be known all the same.
fn complain_of(note: &str) {
    let _gone = writeln!(io::stderr().lock(), "novad: note: {note}");
}

/// A reader that stops early has what it wants; the exit code says the rest.
fn say(line: &str) {
    let _gone = writeln!(io::stdout().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{check, reach};
    use control::store::{MemoryStore, Store, StoreOp};

    fn verdict(store: MemoryStore) -> Option<(u8, String)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let outcome = runtime.block_on(async {
            reach(&store).await.unwrap();
            check(Arc::new(store) as Arc<dyn Store>, "memory", true).await
        });
        outcome.err().map(|failure| (failure.reason.exit_code(), failure.message))
    }

    #[test]
    fn a_store_that_keeps_its_promises_passes() {
        assert_eq!(verdict(MemoryStore::new()), None);
    }

    #[test]
    fn a_store_that_ignores_a_condition_is_named_for_it() {
        for (op, header) in [(StoreOp::PutIfAbsent, "If-None-Match"), (StoreOp::PutIfMatch, "If-Match")] {
            let store = MemoryStore::new();
            store.ignore_conditions_of(op);
            let (code, message) = verdict(store).unwrap();
            assert_eq!(code, 4);
            assert!(message.contains("memory") && message.contains(&format!("ignores {header}")), "{message}");
        }
    }
}
