//! What does `nova` do with a command line: which client, which output, which exit code?

mod append;
mod args;
mod bench;
mod bucket;
mod failure;
mod fields;
mod gateway;
mod help;
mod host;
mod intake;
mod lines;
mod progress;
mod read;
mod row;
mod shell;
mod star;
mod stream;

use std::ffi::OsString;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::process::ExitCode;

use clap::Parser;
use client::{Client, Options};

use crate::usage::{self, Told};
use args::{Command, Global, Nova, Output};
use failure::Failure;
use row::Row;

/// Runs the command that this process was started with, to its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let nova = match Nova::try_parse_from(&words) {
        Ok(nova) => nova,
        Err(error) => return tell(&usage::told(&error, "nova"), output_of(&words)),
    };
    let output = nova.global.output;
    match run(nova) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure, output);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn tell(told: &Told, output: Output) -> ExitCode {
    match told {
        Told::Asked(text) => {
            // A reader that stops at the first screen of a help has what it wants.
            let _gone = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Told::Help(text) => {
            let _gone = io::stderr().write_all(text.as_bytes());
            ExitCode::from(2)
        }
        Told::Wrong(line) => {
            let failure = Failure::invalid(line.as_str());
            complain(&failure, output);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn complain(failure: &Failure, output: Output) {
    if let Some(line) = failure.line(output) {
        let _gone = writeln!(io::stderr(), "{line}");
    }
}

/// The output that was asked for on a command line that could not be understood.
fn output_of(words: &[OsString]) -> Output {
    let joined = words.iter().any(|word| word == "--output=json");
    let apart = words.windows(2).any(|pair| pair[0] == "--output" && pair[1] == "json");
    if joined || apart { Output::Json } else { Output::Text }
}

fn run(nova: Nova) -> Result<(), Failure> {
    let Nova { global, command } = nova;
    match command {
        Command::Completions(args) => shell::completions(&args, &mut io::stdout().lock()),
        Command::Man(args) => shell::man(&args),
        Command::Bench(command) => bench::run(*command, &global),
        Command::Gateway(args) => gateway::run(&args, &global),
        Command::Host(command) => host::run(command, &global),
        command => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| Failure::Local(format!("a runtime can't be started: {error}")))?;
            let outcome = runtime.block_on(talk(command, &global));
            // A thread may still wait for standard input, and nobody waits for it.
            runtime.shutdown_background();
            outcome
        }
    }
}

async fn talk(command: Command, global: &Global) -> Result<(), Failure> {
    let star = Star::of(global)?;
    match command {
        Command::Bucket(command) => bucket::run(command, &star).await,
        Command::Stream(command) => stream::run(command, &star).await,
        Command::Append(args) => append::run(args, &star).await,
        Command::Read(args) => read::read(args, &star).await,
        Command::Subscribe(args) => read::subscribe(args, &star).await,
        Command::Tail(args) => stream::tail(args, &star).await,
        Command::Trim(args) => stream::trim(args, &star).await,
        Command::Fence(args) => stream::fence(args, &star).await,
        Command::Token(args) => stream::token(args, &star).await,
        Command::Star => star::show(&star).await,
        Command::Bench(_) | Command::Gateway(_) | Command::Host(_) | Command::Completions(_) | Command::Man(_) => {
            Ok(())
        }
    }
}

/// The star that a command talks to, and how its answers are shown.
struct Star {
    client: Client,
    output: Output,
}

impl Star {
    fn of(global: &Global) -> Result<Self, Failure> {
        Ok(Self { client: Client::new(Options::new(global.addr.iter().cloned()))?, output: global.output })
    }

    /// Shows one answer.
    fn show(&self, row: &Row) -> Result<(), Failure> {
        let mut out = stdout();
        match self.output {
            Output::Json => row.write_json(&mut out)?,
            Output::Text => row.write_text(&mut out)?,
        }
        Ok(out.flush()?)
    }

    /// Shows that something was done: on stderr for people, as an answer for programs.
    fn done(&self, sentence: &str, row: &Row) -> Result<(), Failure> {
        match self.output {
            Output::Json => self.show(row),
            Output::Text => Ok(writeln!(io::stderr(), "{sentence}")?),
        }
    }
}

/// Standard output, locked and buffered; what is written to it must be flushed.
fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(256 << 10, io::stdout().lock())
}
