//! Is this host as nova wants it: which item is how, how should it be, why, and what mends it?
//!
//! Each item is looked at on its own. One that can't be read is unknown, with the reason; none stops another.

mod clock;
mod cpu;
mod disk;
mod interrupts;
mod memory;
mod network;
mod rings;

use std::fmt;

use serde::Serialize;

use crate::machine::{Machine, Told, Unknown};
use crate::plan::HostPlan;
use crate::settings::Settings;

/// How much it matters that an item is not as wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Info,
    /// novad works, but is slower, or runs a risk.
    Warn,
    /// novad does not start, or can't keep its promises.
    Fatal,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Fatal => "fatal",
        })
    }
}

/// How an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As wanted.
    Good,
    /// Not as wanted.
    Off,
    /// It can't be told.
    Unknown,
    /// This host has no such thing.
    Absent,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "good",
            Self::Off => "off",
            Self::Unknown => "unknown",
            Self::Absent => "absent",
        })
    }
}

/// A value for a file of `/proc` or `/sys`, and how it is taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The file.
    pub path: String,
    /// What is written.
    pub value: String,
    /// The file that takes it back, where writing the earlier value to the same file does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_path: Option<String>,
}

/// What is looked at besides the machine.
#[derive(Debug)]
pub struct Subject<'a> {
    /// The host.
    pub machine: &'a Machine,
    /// What novad is set to.
    pub settings: &'a Settings,
    /// How shards would be laid over the host.
    pub plan: &'a HostPlan,
}

impl Subject<'_> {
    fn shards(&self) -> u64 {
        u64::try_from(self.plan.shards().len()).unwrap_or(u64::MAX)
    }

    fn shards_counted(&self) -> String {
        match self.shards() {
            1 => "1 shard".to_owned(),
            shards => format!("{shards} shards"),
        }
    }
}

/// One item that is looked at.
pub struct Item {
    /// What it is called, as `explain` and `--only` take it.
    pub name: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// How it should be.
    pub wanted: &'static str,
    /// Why, in one sentence.
    pub why: &'static str,
    /// More for who wants to know: where it is read, what it costs, how to see that it helped.
    pub more: &'static str,
    look: fn(&Subject<'_>) -> Told<Look>,
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a look at an item found.
#[derive(Debug, Clone)]
struct Look {
    now: String,
    verdict: Verdict,
    wanted: Option<String>,
    severity: Option<Severity>,
    changes: Vec<Change>,
    fix: Option<String>,
}

impl Look {
    fn new(verdict: Verdict, now: impl Into<String>) -> Self {
        Self { now: now.into(), verdict, wanted: None, severity: None, changes: Vec::new(), fix: None }
    }

    fn good(now: impl Into<String>) -> Self {
        Self::new(Verdict::Good, now)
    }

    fn off(now: impl Into<String>) -> Self {
        Self::new(Verdict::Off, now)
    }

    fn absent(why: impl Into<String>) -> Self {
        Self::new(Verdict::Absent, why)
    }

    /// Good when `is_good`, else off.
    fn judged(is_good: bool, now: impl Into<String>) -> Self {
        if is_good { Self::good(now) } else { Self::off(now) }
    }

    /// How it should be on this very host.
    fn wants(mut self, wanted: impl Into<String>) -> Self {
        self.wanted = Some(wanted.into());
        self
    }

    /// How much it matters on this very host.
    fn weighs(mut self, severity: Severity) -> Self {
        self.severity = Some(severity);
        self
    }

    /// A file that mends it.
    fn set(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.changes.push(Change { path: path.into(), value: value.into(), undo_path: None });
        self
    }

    /// What mends it besides files of `/proc` and `/sys`.
    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// How one item stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The item.
    pub item: &'static str,
    /// How it stands.
    pub verdict: Verdict,
    /// What was found, or why nothing was.
    pub now: String,
    /// How it should be.
    pub wanted: String,
    /// How much it matters.
    pub severity: Severity,
    /// Why.
    pub why: &'static str,
    /// What mends it, in words or commands; empty when nothing is to be mended.
    pub fix: String,
    /// What `apply` would write.
    pub changes: Vec<Change>,
}

impl Item {
    /// Looks at the item.
    #[must_use]
    pub fn look(&self, subject: &Subject<'_>) -> Finding {
        let look = (self.look)(subject).unwrap_or_else(|unknown| Look::new(Verdict::Unknown, unknown.to_string()));
        let is_off = look.verdict == Verdict::Off;
        let commands = look.changes.iter().map(Change::command);
        let fix: Vec<String> = look.fix.into_iter().chain(commands).collect();
        Finding {
            item: self.name,
            verdict: look.verdict,
            now: look.now,
            wanted: look.wanted.unwrap_or_else(|| self.wanted.to_owned()),
            severity: look.severity.unwrap_or(self.severity),
            why: self.why,
            fix: if is_off { fix.join("; ") } else { String::new() },
            changes: if is_off { look.changes } else { Vec::new() },
        }
    }
}

impl Change {
    /// The command that makes the change.
    #[must_use]
    pub fn command(&self) -> String {
        match self.path.strip_prefix("/proc/sys/") {
            Some(name) if !self.value.contains(' ') => format!("sysctl -w {}={}", name.replace('/', "."), self.value),
            Some(name) => format!("sysctl -w {}='{}'", name.replace('/', "."), self.value),
            None => format!("echo {} > {}", self.value, self.path),
        }
    }
}

/// Every item there is, in the order in which they are shown.
pub fn items() -> impl Iterator<Item = &'static Item> {
    let tables =
        [rings::ITEMS, disk::ITEMS, cpu::ITEMS, interrupts::ITEMS, memory::ITEMS, network::ITEMS, clock::ITEMS];
    tables.into_iter().flatten()
}

/// The item of this name.
#[must_use]
pub fn item(name: &str) -> Option<&'static Item> {
    items().find(|item| item.name == name)
}

/// Looks at every item.
#[must_use]
pub fn check(subject: &Subject<'_>) -> Vec<Finding> {
    items().map(|item| item.look(subject)).collect()
}

/// The worst of what is not as wanted.
#[must_use]
pub fn worst(findings: &[Finding]) -> Option<Severity> {
    let off = findings.iter().filter(|finding| finding.verdict == Verdict::Off);
    off.map(|finding| finding.severity).max()
}

/// A number of a file that must be at least so large; `apply` writes that.
fn at_least(subject: &Subject<'_>, path: &str, least: u64) -> Told<Look> {
    let number = subject.machine.number(path)?;
    Ok(Look::judged(number >= least, number.to_string()).set(path, least.to_string()))
}

/// A number of a file that must be just this.
fn exactly(subject: &Subject<'_>, path: &str, wanted: u64) -> Told<Look> {
    let number = subject.machine.number(path)?;
    Ok(Look::judged(number == wanted, number.to_string()).set(path, wanted.to_string()))
}

/// Things of one kind, each of which is as wanted or not: the look at all of them, with a change for each that is not.
fn each(
    names: &[String],
    read: impl Fn(&str) -> Told<String>,
    is_good: impl Fn(&str, &str) -> bool,
    change: impl Fn(&str) -> Option<(String, String)>,
) -> Told<Look> {
    let mut look = Look::good("");
    let mut shown: Vec<String> = Vec::new();
    let mut reason = None;
    for name in names {
        match read(name) {
            Err(unknown) => reason = Some(unknown),
            Ok(value) => {
                if !is_good(name, &value) {
                    look.verdict = Verdict::Off;
                    look.changes.extend(change(name).map(|(path, value)| Change { path, value, undo_path: None }));
                }
                shown.push(format!("{name}: {value}"));
            }
        }
    }
    match (shown.is_empty(), reason) {
        (true, Some(unknown)) => Err(unknown),
        (true, None) => Err(Unknown::because("there is none to be seen")),
        (false, _) => {
            look.now = shown.join(", ");
            Ok(look)
        }
    }
}

#[cfg(test)]
mod tests;
