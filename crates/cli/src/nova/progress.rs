//! What does someone at a terminal see while an append runs?

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{FileType, fstat};

use super::args::{Format, Output};

const OF_FILE: &str = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {msg}";
const OF_PIPE: &str = "{spinner} {bytes}, {bytes_per_sec}, {msg}";
const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// A line on a terminal, or nothing.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    records: u64,
}

impl Progress {
    /// Shows on stderr if that is a terminal; not to someone who types the records, nor beside JSON.
    pub(super) fn start(format: Format, output: Output) -> Self {
        let shows = io::stderr().is_terminal() && !io::stdin().is_terminal();
        let bar = (shows && output == Output::Text).then(|| {
            let (bar, template) = match input_bytes().filter(|_| format == Format::Lines) {
                Some(bytes) => (ProgressBar::new(bytes), OF_FILE),
                None => (ProgressBar::new_spinner(), OF_PIPE),
            };
            // The templates are constants that parse.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(REDRAW_EVERY);
            bar
        });
        Self { bar, records: 0 }
    }

    pub(super) fn add(&mut self, records: u64, bytes: u64) {
        self.records += records;
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
            bar.set_message(format!("{} records durable", self.records));
        }
    }

    /// Takes the line away.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The size of standard input, if it is a file.
fn input_bytes() -> Option<u64> {
    let stat = fstat(io::stdin()).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file.then(|| u64::try_from(stat.st_size).unwrap_or(0))
}
