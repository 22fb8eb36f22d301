//! How is a host changed, restored, or somebody else told how to?

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tuning::change::{self, ChangeError, Done, Fit, Outcome, Service};
use tuning::check::{Finding, Severity, Verdict, check};
use tuning::settings::StoreAddress;
use wire::refusal::Refusal;

use super::super::args::Output;
use super::super::failure::Failure;
use super::super::stdout;
use super::JournalArgs;
use super::checked::named;
use super::look::{LookArgs, Looked};

#[derive(Debug, Args)]
pub(super) struct OnlyArgs {
    /// Items to change, as the check names them [default: all that are off]
    #[arg(long, value_name = "ITEM,…", value_delimiter = ',')]
    only: Vec<String>,
}

impl OnlyArgs {
    /// What was found of these items.
    fn of(&self, looked: &Looked) -> Result<Vec<Finding>, Failure> {
        if self.only.is_empty() {
            return Ok(check(&looked.subject()));
        }
        self.only.iter().map(|name| Ok(named(name)?.look(&looked.subject()))).collect()
    }
}

#[derive(Debug, Args)]
pub(in crate::nova) struct ApplyArgs {
    #[command(flatten)]
    only: OnlyArgs,
    /// Say what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    journal: JournalArgs,
    #[command(flatten)]
    look: LookArgs,
}

impl ApplyArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let looked = self.look.look(Duration::ZERO)?;
        let findings = self.only.of(&looked)?;
        let done = if self.dry_run {
            change::preview(&looked.machine, &findings)
        } else {
            change::apply(&looked.machine, &findings, &self.journal.journal)?
        };
        let word = if self.dry_run { "would write" } else { "wrote" };
        show(&done, word, output)?;
        if output == Output::Text {
            by_hand(&findings, !self.only.only.is_empty())?;
        }
        refused(&done)
    }
}

/// Says of what is off and in no file how it is mended.
fn by_hand(findings: &[Finding], has_named: bool) -> io::Result<()> {
    let mut out = stdout();
    let is_for_hands = |finding: &&Finding| finding.verdict == Verdict::Off && finding.changes.is_empty();
    for finding in findings.iter().filter(is_for_hands) {
        if has_named || finding.severity > Severity::Info {
            writeln!(out, "by hand      {}: {}", finding.item, finding.fix)?;
        }
    }
    for finding in findings.iter().filter(|finding| has_named && finding.verdict != Verdict::Off) {
        writeln!(out, "{:11}  {}: {}", finding.verdict, finding.item, finding.now)?;
    }
    out.flush()
}

fn show(done: &[Done], word: &str, output: Output) -> Result<(), Failure> {
    let mut out = stdout();
    for done in done {
        if output == Output::Json {
            serde_json::to_writer(&mut out, done).map_err(io::Error::from)?;
            writeln!(out)?;
            continue;
        }
        let Done { item, path, before, value, outcome, why } = done;
        let why = why.as_deref().unwrap_or_default();
        match outcome {
            Outcome::Written => writeln!(out, "{word:11}  {item}: {path} = {value}, was {before}")?,
            Outcome::Already => writeln!(out, "already      {item}: {path} = {value}")?,
            Outcome::Foreign => writeln!(out, "left alone   {item}: {path}: {why}")?,
            Outcome::Refused => writeln!(out, "refused      {item}: {path}: {why}")?,
        }
    }
    Ok(out.flush()?)
}

/// Fails when the host has refused something.
fn refused(done: &[Done]) -> Result<(), Failure> {
    let refused = done.iter().filter(|done| done.outcome == Outcome::Refused).count();
    match refused {
        0 => Ok(()),
        _ => Err(Failure::Local(format!("{refused} of {} files were refused by the host", done.len()))),
    }
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Self {
        Refusal::new(error.reason(), error.to_string()).into()
    }
}

#[derive(Debug, Args)]
pub(in crate::nova) struct RestoreArgs {
    #[command(flatten)]
    journal: JournalArgs,
    #[command(flatten)]
    look: LookArgs,
}

impl RestoreArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let looked = self.look.look(Duration::ZERO)?;
        let done = change::restore(&looked.machine, &self.journal.journal)?;
        show(&done, "restored", output)?;
        if done.is_empty() && output == Output::Text {
            writeln!(io::stderr(), "nothing is to be restored")?;
        }
        refused(&done)
    }
}

#[derive(Debug, Args)]
pub(in crate::nova) struct ScriptArgs {
    /// Where the script is written; - is standard output
    file: PathBuf,
    /// Write a file for /etc/sysctl.d in place of a script: the kernel's settings, for each start of the host
    #[arg(long)]
    sysctl: bool,
    #[command(flatten)]
    only: OnlyArgs,
    #[command(flatten)]
    look: LookArgs,
}

impl ScriptArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let looked = self.look.look(Duration::ZERO)?;
        let findings = self.only.of(&looked)?;
        let script = if self.sysctl { change::sysctl(&findings) } else { change::script(&looked.machine, &findings) };
        if self.file.as_os_str() == "-" {
            return Ok(io::stdout().lock().write_all(script.as_bytes())?);
        }
        if self.sysctl {
            self.refuse_to_lose(&script)?;
        }
        let file = self.file.display();
        write(&self.file, &script)?;
        if output == Output::Text && !self.sysctl {
            writeln!(io::stderr(), "written; run it with `sh {file}`, and undo it with `sh {file} undo`")?;
        }
        Ok(())
    }
}

impl ScriptArgs {
    /// What holds here is not written, so that a file which made it hold would be emptied by the next one over it.
    fn refuse_to_lose(&self, after: &str) -> Result<(), Failure> {
        let before = fs::read_to_string(&self.file).unwrap_or_default();
        let lost = change::settings_lost(&before, after);
        if lost.is_empty() {
            return Ok(());
        }
        Err(Failure::Local(format!(
            "{} sets {}, which is as it should be here and would not be set any more: name another file, or remove this one",
            self.file.display(),
            lost.join(", ")
        )))
    }
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| Failure::Local(format!("{} can't be written: {error}", file.display())))
}

/// systemd cuts words at spaces, and reads quotes, `%`, `$` and backslashes as its own.
fn refuse_what_units_change(what: &str, text: &str) -> Result<(), Failure> {
    match text.chars().find(|c| c.is_whitespace() || c.is_control() || "\"'\\%$;".contains(*c)) {
        None => Ok(()),
        Some(c) => Err(Failure::Local(format!(
            "{what} is '{text}': a unit of systemd reads {c:?} in it otherwise; name a path without spaces, quotes, backslashes, '%', '$' and ';'"
        ))),
    }
}

#[derive(Debug, Args)]
pub(in crate::nova) struct SystemdArgs {
    /// Directory of novad and nova [default: that of this program]
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Settings file that the units name
    #[arg(long, value_name = "FILE", default_value = "/etc/nova/novad.toml")]
    config_file: PathBuf,
    /// Who novad runs as
    #[arg(long, value_name = "USER", default_value = "nova")]
    user: String,
    /// Fit any host: name no CPUs and no number of shards, and leave both to novad
    #[arg(long)]
    any_host: bool,
    /// Write each unit to a file in this directory, and print nothing
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    look: LookArgs,
}

impl SystemdArgs {
    pub(super) fn run(self) -> Result<(), Failure> {
        let mut looked = self.look.look(Duration::ZERO)?;
        if let StoreAddress::Directory(store) = &mut looked.settings.store {
            // A service starts somewhere else than this command.
            *store = std::path::absolute(&*store)?;
        }
        let own = || std::env::current_exe().ok().and_then(|path| path.parent().map(PathBuf::from));
        let folder = self.bin_dir.or_else(own).unwrap_or_else(|| PathBuf::from("/usr/bin"));
        let service = Service {
            novad: folder.join("novad"),
            nova: folder.join("nova"),
            config: self.config_file,
            user: self.user,
            goal: looked.goal,
            device: looked.machine.device.clone(),
        };
        let (data, store) = (looked.settings.data.display().to_string(), looked.settings.store.to_string());
        let (novad, config) = (service.novad.display().to_string(), service.config.display().to_string());
        for (what, text) in [
            ("--data", &data),
            ("--store", &store),
            ("--bin-dir", &novad),
            ("--config-file", &config),
            ("--user", &service.user),
        ] {
            refuse_what_units_change(what, text)?;
        }
        let fit = if self.any_host { Fit::Any } else { Fit::Host(&looked.plan) };
        let units = change::units(&service, fit, &looked.settings);
        if let Some(dir) = self.dir {
            return units.iter().try_for_each(|unit| write(&dir.join(unit.name), &unit.text));
        }
        let texts: Vec<_> = units.into_iter().map(|unit| unit.text).collect();
        Ok(io::stdout().lock().write_all(texts.join("\n").as_bytes())?)
    }
}
