//! `store rebuild-index`: how does an operator get out of an index that is lost or damaged?

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use control::store::Store;
use control::{RebuildError, RebuildOptions, Rebuilt, Step, rebuild_index};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use wire::reason::Reason;

use super::Failure;

const AFTER_HELP: &str = "\
Examples:
  novad store rebuild-index --store /var/lib/nova-store
  novad store rebuild-index --store s3://bucket/prefix
  novad store rebuild-index --store s3://bucket/prefix --verify --output json

Stop the star first. Its store is taken as a star takes it: one that lives is named and nothing is done; of
one that died without a word it is seen in half a minute. The new index is made beside the old one and takes
its place at once at the end; killed before, it has changed nothing. Objects that hold records are never
changed or deleted, nor are head logs: novad recovers them onto the new index.

When something is missing or damaged it is told line by line, and the old index stays. Bring the objects back
from a copy and try again, or go on without them with --accept-loss: reads of what they held then fail with
the name of an object, and whatever nothing points to is kept. Exit codes: 0 the new index is in place,
4 something is missing or a star lives, 7 the store can't be reached.";

const TEMPLATE: &str = "{msg}: {bar:30} {pos} of {len}";
const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// The command, without the flags that say which store.
pub(super) fn command() -> Command {
    Command::new("rebuild-index")
        .about("Make the index of the store again from its objects")
        .after_help(AFTER_HELP)
        .max_term_width(110)
        .arg(
            Arg::new("accept-loss")
                .long("accept-loss")
                .action(ArgAction::SetTrue)
                .help("Put the new index in place though objects are missing or damaged"),
        )
        .arg(
            Arg::new("verify")
                .long("verify")
                .action(ArgAction::SetTrue)
                .help("Read and check all of every bundle, not its ends alone: as many bytes as the store has"),
        )
}

/// A line on a terminal that goes on, or nothing.
struct Line(Option<Mutex<ProgressBar>>);

impl Line {
    fn start(is_json: bool) -> Self {
        let shows = !is_json && io::stderr().is_terminal();
        Self(shows.then(|| {
            let bar = ProgressBar::new(0);
            // The template is a constant that parses.
            if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
                bar.set_style(style);
            }
            bar.set_message("taking the store");
            bar.enable_steady_tick(REDRAW_EVERY);
            Mutex::new(bar)
        }))
    }

    fn tell(&self, step: Step) {
        let Some(bar) = &self.0 else { return };
        let bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.set_message(step.what);
        bar.set_length(step.total);
        bar.set_position(step.done);
    }

    fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.lock().unwrap_or_else(PoisonError::into_inner).finish_and_clear();
        }
    }
}

/// Makes the index again, and tells what came of it.
pub(super) async fn run(
    store: Arc<dyn Store>,
    address: &str,
    matches: &ArgMatches,
    is_json: bool,
) -> Result<(), Failure> {
    let options =
        RebuildOptions { reads_all: matches.get_flag("verify"), accept_loss: matches.get_flag("accept-loss") };
    let (began, line) = (Instant::now(), Line::start(is_json));
    let done = rebuild_index(store, options, &|step| line.tell(step)).await;
    line.end();
    let done = done.map_err(|error| Failure::new(reason(&error), error))?;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    for one in &done.missing {
        say(&if is_json { json!({"missing": one.to_string()}).to_string() } else { format!("missing: {one}") });
    }
    say(&if is_json { whole(&done, address, took_ms) } else { counts(&done, took_ms) });
    if done.is_in_place {
        return Ok(());
    }
    let message = format!(
        "the index of {address} stays as it was, for {} things are missing or damaged (see the lines above); bring them back from a \
         copy, or go on without them with --accept-loss",
        done.missing.len()
    );
    Err(Failure::new(Reason::FailedPrecondition, message))
}

fn counts(done: &Rebuilt, took_ms: u64) -> String {
    let Rebuilt { snapshots, chunks, bundles, streams, records, bytes, missing, is_in_place, .. } = done;
    let what = if *is_in_place { "the new index is in place" } else { "no index was put in place" };
    format!(
        "{what}: {streams} streams with {records} records, {bytes} bytes; {snapshots} snapshots, {chunks} chunks and {bundles} bundles \
         were read, {} things are missing; in {took_ms} ms",
        missing.len()
    )
}

fn whole(done: &Rebuilt, address: &str, took_ms: u64) -> String {
    let Rebuilt { snapshots, chunks, bundles, streams, records, bytes, missing, is_in_place, .. } = done;
    json!({"store": address, "ok": is_in_place, "streams": streams, "records": records, "bytes": bytes,
        "snapshots": snapshots, "chunks": chunks, "bundles": bundles, "missing": missing.len(), "took_ms": took_ms})
    .to_string()
}

fn reason(error: &RebuildError) -> Reason {
    match error {
        RebuildError::Index(error) => error.reason(),
        RebuildError::Join(_) | RebuildError::Fenced(_) => Reason::FailedPrecondition,
    }
}

/// A reader that stops early has what it wants; the exit code says the rest.
fn say(line: &str) {
    let _gone = writeln!(io::stdout().lock(), "{line}");
}
