//! How is a host changed so that it can be put back as it was?
//!
//! Only files of `/proc` and `/sys` are written, and only those that can be read before. Each write is noted in the
//! [`journal`], durable, before it is made; so a crash at any point leaves either a note of a write that was not made, which
//! restores to what is there, or one of a write that was.

mod journal;
mod script;
mod sysctl;
mod units;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;
use wire::reason::Reason;

use crate::check::{Change, Finding};
use crate::machine::{CpuList, Machine, Told, chosen};

use journal::{Journal, Note};
pub use script::script;
pub use sysctl::{settings_lost, sysctl};
pub use units::{Fit, Service, Unit, units};

/// Why nothing could be changed or restored.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// The journal can't be read or written.
    #[error(
        "the journal {path} can't be used: {source}; what is not noted there was not changed. Name another file with --journal"
    )]
    Journal {
        /// The journal.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The journal holds something else.
    #[error("line {line} of the journal {path} is no note of a change: restore by hand what it tells, then remove it")]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// Another process changes or restores.
    #[error("the journal {path} is in use by another `nova host`: wait for its end")]
    Busy {
        /// The journal.
        path: PathBuf,
    },
}

impl ChangeError {
    /// What it is called to users and programs.
    #[must_use]
    pub fn reason(&self) -> Reason {
        Reason::FailedPrecondition
    }
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It holds what was wanted.
    Written,
    /// It held that before.
    Already,
    /// Somebody else has changed it since, so it is left alone.
    Foreign,
    /// The host does not let it be changed.
    Refused,
}

/// What was done with one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Done {
    /// The item that it belongs to.
    pub item: String,
    /// The file.
    pub path: String,
    /// What it held.
    pub before: String,
    /// What it was to hold.
    pub value: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Why, where it did not become what it was to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Writes what mends `findings`, each file noted in the journal first. What the host refuses stands in its [`Done`].
///
/// # Errors
/// [`ChangeError`] when the journal can't be kept; what was written until then stands in it.
pub fn apply(machine: &Machine, findings: &[Finding], journal: &Path) -> Result<Vec<Done>, ChangeError> {
    let changes: Vec<(&str, &Change)> =
        findings.iter().flat_map(|finding| finding.changes.iter().map(|change| (finding.item, change))).collect();
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let mut journal = Journal::open(journal, &boot(machine))?;
    changes.into_iter().map(|(item, change)| make(machine, item, change, &mut journal)).collect()
}

/// What `apply` would write, without writing.
#[must_use]
pub fn preview(machine: &Machine, findings: &[Finding]) -> Vec<Done> {
    let changes = findings.iter().flat_map(|finding| finding.changes.iter().map(|change| (finding.item, change)));
    changes
        .map(|(item, change)| match value_of(machine, &change.path) {
            Ok(before) => done(item, change, before, Outcome::Written, None),
            Err(unknown) => done(item, change, String::new(), Outcome::Refused, Some(unknown.to_string())),
        })
        .collect()
}

fn make(machine: &Machine, item: &str, change: &Change, journal: &mut Journal) -> Result<Done, ChangeError> {
    let undo_path = change.undo_path.as_ref().unwrap_or(&change.path);
    let (before, undo) = match (value_of(machine, &change.path), value_of(machine, undo_path)) {
        (Ok(before), Ok(undo)) => (before, undo),
        (Err(unknown), _) | (_, Err(unknown)) => {
            let why = format!("{unknown}, so it could not be restored");
            return Ok(done(item, change, String::new(), Outcome::Refused, Some(why)));
        }
    };
    if is_same(&before, &change.value) {
        return Ok(done(item, change, before, Outcome::Already, None));
    }
    journal.note(&Note {
        item: item.to_owned(),
        path: change.path.clone(),
        value: change.value.clone(),
        undo_path: undo_path.clone(),
        undo,
    })?;
    Ok(match put(machine, &change.path, &change.value) {
        Ok(()) => done(item, change, before, Outcome::Written, None),
        Err(why) => done(item, change, before, Outcome::Refused, Some(why)),
    })
}

fn done(item: &str, change: &Change, before: String, outcome: Outcome, why: Option<String>) -> Done {
    let (path, value) = (change.path.clone(), change.value.clone());
    Done { item: item.to_owned(), path, before, value, outcome, why }
}

/// Puts back what the journal tells, the last change first, and forgets what is back. What was changed by others since is left
/// as it is. A journal of before the host's last start is void: the host has forgotten the changes as well.
///
/// # Errors
/// [`ChangeError`] when the journal can't be used.
pub fn restore(machine: &Machine, journal: &Path) -> Result<Vec<Done>, ChangeError> {
    let Some(mut journal) = Journal::existing(journal, &boot(machine))? else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    let mut left = Vec::new();
    for (first, last) in journal.first_and_last() {
        let done = put_back(machine, &first, &last);
        if done.outcome == Outcome::Refused {
            // What was written last is what the file holds if nobody else changes it.
            left.push(Note { value: last.value, ..first });
        }
        all.push(done);
    }
    journal.keep(&left)?;
    Ok(all)
}

/// Puts one file back as it was before `first`, if it is as `last` left it.
fn put_back(machine: &Machine, first: &Note, last: &Note) -> Done {
    let back = |before: String, outcome, why| Done {
        item: first.item.clone(),
        path: first.undo_path.clone(),
        before,
        value: first.undo.clone(),
        outcome,
        why,
    };
    let now = match value_of(machine, &last.path) {
        Ok(now) => now,
        Err(unknown) => return back(String::new(), Outcome::Refused, Some(unknown.to_string())),
    };
    let is_ours = is_same(&now, &last.value);
    let has_back = value_of(machine, &first.undo_path).is_ok_and(|undo| is_same(&undo, &first.undo));
    if has_back && (!is_ours || first.undo_path == last.path) {
        return back(now, Outcome::Already, None);
    }
    if !is_ours {
        let why = format!("it holds `{now}`, and `{}` was written", last.value);
        return back(now, Outcome::Foreign, Some(why));
    }
    match put(machine, &first.undo_path, &first.undo) {
        Ok(()) => back(now, Outcome::Written, None),
        Err(why) => back(now, Outcome::Refused, Some(why)),
    }
}

/// What a file holds, so that writing it makes the file hold that.
fn value_of(machine: &Machine, path: &str) -> Told<String> {
    let words = machine.words(path)?;
    // The scheduler's file of preemption marks with parentheses what others mark with brackets.
    let marked = words.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(word, _)| word.to_owned());
    Ok(marked.or_else(|| chosen(&words).map(str::to_owned)).unwrap_or(words))
}

/// Writes a file that is there, and sees whether it holds that now.
fn put(machine: &Machine, path: &str, value: &str) -> Result<(), String> {
    let file = File::options().write(true).truncate(true).open(machine.at(path));
    let written = file.and_then(|mut file| file.write_all(value.as_bytes()));
    written.map_err(|error| refusal(path, &error))?;
    match value_of(machine, path) {
        Ok(now) if is_same(&now, value) => Ok(()),
        Ok(now) => Err(format!("it was written, and holds `{now}`")),
        Err(unknown) => Err(unknown.to_string()),
    }
}

/// Why a write was refused, with what stands behind it where that is known.
fn refusal(path: &str, error: &io::Error) -> String {
    let is_irq = path.starts_with("/proc/irq/");
    match error.raw_os_error() {
        Some(EPERM | EIO) if is_irq => "the kernel manages this interrupt itself, which is as good".to_owned(),
        Some(EROFS) => "it is mounted read-only, as in containers: run this on the host".to_owned(),
        Some(EACCES | EPERM) => "only root may write it, and in a container only the host's".to_owned(),
        _ => error.to_string(),
    }
}

const EPERM: i32 = rustix::io::Errno::PERM.raw_os_error();
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();
const EROFS: i32 = rustix::io::Errno::ROFS.raw_os_error();

/// Whether two texts say the same to the kernel: as words, as lists of CPUs, or as masks.
fn is_same(left: &str, right: &str) -> bool {
    let is_same_list = || Some(CpuList::parse(left)? == CpuList::parse(right)?);
    left == right || is_same_list().unwrap_or(false) || is_same_mask(left, right)
}

/// Whether two masks differ by leading zeroes alone.
fn is_same_mask(left: &str, right: &str) -> bool {
    let bare = |text: &str| text.replace(',', "").trim_start_matches('0').to_owned();
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b',');
    !left.is_empty() && !right.is_empty() && is_hex(left) && is_hex(right) && bare(left) == bare(right)
}

/// What tells one start of the host from another.
fn boot(machine: &Machine) -> String {
    machine.words("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| "unknown".to_owned())
}

#[cfg(test)]
mod tests;
