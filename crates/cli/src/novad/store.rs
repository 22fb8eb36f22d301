//! Which store do the settings name, and does it keep the promises that nova stands on?

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use clap::{Arg, ArgMatches, Command};
use control::store::conformance::{self, Case};
use control::store::{LocalDirectory, ObjectName, S3Store, Store, StoreError};
use serde_json::json;
use tuning::settings::{Settings, StoreAddress};
use wire::reason::Reason;

use super::{Failure, args};

const AFTER_HELP: &str = "\
Examples:
  novad store check --store /var/lib/nova-store
  novad store check --store s3://bucket/prefix
  novad store check --store s3://bucket/prefix --s3-endpoint http://127.0.0.1:9000 --output json

It works below check/ of the store and removes what it made; it takes some hundred requests and 50 MiB.
The credentials are those of the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile,
a web identity or the instance's role. Exit codes: 0 the store keeps its promises, 4 it does not or
can't be used, 7 it can't be reached.";

/// `store check`, whose flags are the settings that say which store.
pub(super) fn command() -> Command {
    let is_wanted = |name: &str| matches!(name, "data" | "store") || name.starts_with("s3.");
    let check = Command::new("check")
        .about("Try every promise that nova needs of its store, and say which it breaks")
        .after_help(AFTER_HELP)
        .max_term_width(110)
        .args(Settings::all().filter(|setting| is_wanted(setting.name)).map(args::flag))
        .arg(args::config())
        .arg(
            Arg::new("output")
                .long("output")
                .value_name("FORMAT")
                .value_parser(["text", "json"])
                .default_value("text")
                .help("text: a line a promise; json: an object a promise, and one of the whole"),
        );
    Command::new("store").about("Work on the store itself").subcommand_required(true).subcommand(check)
}

/// Opens the store of the settings; one on S3 is connected to when it is first asked.
pub(super) fn open(settings: &Settings, data: &Path) -> Result<Arc<dyn Store>, Failure> {
    if let StoreAddress::S3 { bucket, prefix } = &settings.store {
        return Ok(Arc::new(S3Store::new(bucket, prefix, &settings.s3)));
    }
    let root = settings.store.directory(data).unwrap_or_default();
    let store = LocalDirectory::open(&root)
        .map_err(|error| Failure::new(Reason::FailedPrecondition, format!("the store can't be used: {error}")))?;
    Ok(Arc::new(store))
}

/// Carries out `store …`.
pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some(("check", matches)) = matches.subcommand() else {
        return Err(Failure::new(Reason::Invalid, "say what to do with the store: check"));
    };
    let loaded = args::settings(matches, std::env::vars_os()).map_err(|error| Failure::new(error.reason(), error))?;
    let settings = loaded.settings();
    let is_json = matches.get_one::<String>("output").is_some_and(|format| format == "json");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Reason::Internal, error))?;
    let store = open(settings, &settings.data)?;
    runtime.block_on(async {
        reach(&*store).await.map_err(|error| Failure::new(error.reason(), error))?;
        check(store, &address(settings), is_json).await
    })
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
