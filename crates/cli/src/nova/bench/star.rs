//! How does a measurement start a star of its own?

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::exit;
use std::thread;

use bench::star::{Leash, Star};
use clap::Args;

use super::super::failure::Failure;
use crate::novad::signals::Signals;

/// The flags of a measurement that can start a star.
#[derive(Debug, Clone, Args)]
pub(in crate::nova) struct StarArgs {
    /// Start a star on --data and end it afterwards; what follows -- goes to it
    #[arg(long, requires = "data")]
    start: bool,
    /// The data directory of the star; with --start it is the new star's
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The novad to start [default: the one beside this nova]
    #[arg(long, value_name = "PROGRAM", requires = "start")]
    novad: Option<PathBuf>,
    /// Arguments of the star that is started
    #[arg(last = true, value_name = "NOVAD ARGUMENTS", requires = "start")]
    args: Vec<String>,
}

impl StarArgs {
    /// The data directory, if one is named.
    pub(super) fn data(&self) -> Option<PathBuf> {
        self.data.clone()
    }

    /// Where a star that is started logs: beside its data directory.
    pub(super) fn log(&self) -> Option<PathBuf> {
        self.data.as_ref().map(|data| data.with_extension("log"))
    }

    /// The star, if one is to be started.
    pub(super) fn start(&self) -> Result<Option<Star>, Failure> {
        let Some(data) = self.data.as_ref().filter(|_| self.start) else { return Ok(None) };
        let program = self.program()?;
        let mut args = vec!["--data".to_owned(), data.display().to_string()];
        if !self.args.iter().any(|arg| arg.starts_with("--listen")) {
            args.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
        }
        args.extend(self.args.iter().cloned());
        std::fs::create_dir_all(data)
            .map_err(|error| Failure::Local(format!("{} can't be made: {error}", data.display())))?;
        let leash = Leash::default();
        end_at_signals(leash.clone())
            .map_err(|error| Failure::Local(format!("signals can't be waited for: {error}")))?;
        Ok(Some(Star::start(&program, &args, self.log().as_deref(), leash)?))
    }

    /// The novad that was named, or the one beside this program.
    fn program(&self) -> Result<PathBuf, Failure> {
        if let Some(named) = &self.novad {
            return Ok(named.clone());
        }
        let own =
            std::env::current_exe().map_err(|error| Failure::Local(format!("this program is not found: {error}")))?;
        Ok(own.with_file_name("novad"))
    }
}

/// Ends the star, then this process, at the first SIGTERM or SIGINT; at a second one the star is not waited for.
fn end_at_signals(leash: Leash) -> io::Result<()> {
    let signals = Signals::watch()?;
    signals.serves();
    let end = move || {
        signals.wait_for_first();
        let ended = leash.end(|time| signals.comes_within(time));
        let how = match ended {
            Ok(()) => "ended by a signal, and the star that was started with it".to_owned(),
            Err(error) => format!("ended by a signal: {error}"),
        };
        let _gone = writeln!(io::stderr(), "nova: {how}");
        exit(1);
    };
    thread::Builder::new().name("end".to_owned()).spawn(end).map(drop)
}
