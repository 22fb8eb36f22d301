//! How does the check of a host look, and what is said about one item?

use std::io::{self, Write};

use clap::Args;
use tuning::check::{Finding, Item, Severity, Verdict, check, item, items, worst};
use tuning::units::Millis;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::super::args::Output;
use super::super::failure::Failure;
use super::super::row::Row;
use super::super::stdout;
use super::look::{LookArgs, Looked};

/// Widest cell of what is found and of what is wanted.
const CELL_MAX: usize = 44;

#[derive(Debug, Args)]
pub(in crate::nova) struct CheckArgs {
    #[command(flatten)]
    look: LookArgs,
    /// How long steal and throttling are watched
    #[arg(long, value_name = "TIME", default_value = "1s")]
    sample: Millis,
}

impl CheckArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let looked = self.look.look(self.sample.duration())?;
        let findings = check(&looked.subject());
        let mut out = stdout();
        match output {
            Output::Json => {
                for finding in &findings {
                    serde_json::to_writer(&mut out, finding).map_err(io::Error::from)?;
                    writeln!(out)?;
                }
            }
            Output::Text => table(&mut out, &findings, &looked)?,
        }
        out.flush()?;
        verdict(&findings)
    }
}

/// Fails when something is worse than it may be.
fn verdict(findings: &[Finding]) -> Result<(), Failure> {
    let off = |severity| {
        let items = findings.iter().filter(|finding| finding.verdict == Verdict::Off && finding.severity == severity);
        items.map(|finding| finding.item).collect::<Vec<_>>().join(", ")
    };
    match worst(findings) {
        None | Some(Severity::Info) => Ok(()),
        Some(Severity::Warn) => Err(Failure::Local(format!("this host could serve better: {}", off(Severity::Warn)))),
        Some(Severity::Fatal) => {
            let message = format!("this host can't serve as it is: {}", off(Severity::Fatal));
            Err(Refusal::new(Reason::FailedPrecondition, message).into())
        }
    }
}

/// What is off first, the worst of it at the top, each with why and what mends it; then what is unknown, and what is good.
fn table(out: &mut dyn Write, findings: &[Finding], looked: &Looked) -> io::Result<()> {
    let kind = looked.machine.container();
    if let Some(kind) = kind {
        writeln!(
            out,
            "in a container ({kind}): kernel, disks and network are the host's, and what mends them is done there\n"
        )?;
    }
    let of = |verdict: Verdict| findings.iter().filter(move |finding| finding.verdict == verdict);
    let mut off: Vec<&Finding> = of(Verdict::Off).collect();
    off.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let shown: Vec<&Finding> =
        off.iter().copied().chain(of(Verdict::Unknown)).chain(of(Verdict::Good)).chain(of(Verdict::Absent)).collect();
    let width = |cell: fn(&Finding) -> &str, head: &str| {
        let widest = shown.iter().map(|finding| cell(finding).chars().count().min(CELL_MAX)).max();
        widest.unwrap_or(0).max(head.len())
    };
    let (items, nows) = (width(|finding| finding.item, "ITEM"), width(|finding| &finding.now, "NOW"));
    writeln!(out, "{:items$}  {:8}  {:6}  {:nows$}  WANTED", "ITEM", "IS", "WEIGHT", "NOW")?;
    for finding in shown {
        let Finding { item, verdict, severity, .. } = finding;
        let (now, wanted) = (cell(&finding.now), cell(&finding.wanted));
        let line = format!("{item:items$}  {verdict:8}  {severity:6}  {now:nows$}  {wanted}");
        writeln!(out, "{}", line.trim_end())?;
        match verdict {
            Verdict::Off if now != finding.now => writeln!(out, "    now: {}", finding.now)?,
            Verdict::Unknown if now != finding.now => writeln!(out, "    for: {}", finding.now)?,
            _ => {}
        }
        if *verdict == Verdict::Off {
            writeln!(out, "    why: {}\n    fix: {}", finding.why, short(&finding.fix))?;
        }
    }
    let (off, unknown) = (off.len(), of(Verdict::Unknown).count());
    writeln!(
        out,
        "\n{} items: {off} off, {unknown} unknown. `nova host explain ITEM` says more of one.",
        findings.len()
    )
}

/// The first of what mends an item; `explain` says the rest.
fn short(fix: &str) -> String {
    let parts: Vec<&str> = fix.split("; ").collect();
    match parts[..] {
        [first, _, _, ..] => format!("{first}; and {} more", parts.len() - 1),
        _ => fix.to_owned(),
    }
}

fn cell(text: &str) -> String {
    if text.chars().count() <= CELL_MAX {
        return text.to_owned();
    }
    format!("{}…", text.chars().take(CELL_MAX - 1).collect::<String>())
}

#[derive(Debug, Args)]
pub(in crate::nova) struct ExplainArgs {
    /// The item, as the check names it
    item: String,
    #[command(flatten)]
    look: LookArgs,
}

impl ExplainArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let item = named(&self.item)?;
        let looked = self.look.look(std::time::Duration::ZERO)?;
        let finding = item.look(&looked.subject());
        let row = Row::new()
            .with("item", finding.item)
            .with("is", finding.verdict.to_string())
            .with("now", finding.now)
            .with("wanted", finding.wanted)
            .with("weight", finding.severity.to_string())
            .with("why", finding.why)
            .with("fix", finding.fix)
            .with("more", item.more);
        let mut out = stdout();
        match output {
            Output::Json => row.write_json(&mut out)?,
            Output::Text => row.write_text(&mut out)?,
        }
        Ok(out.flush()?)
    }
}

/// The item of this name, or a refusal that names those there are.
pub(super) fn named(name: &str) -> Result<&'static Item, Failure> {
    item(name).ok_or_else(|| {
        let names = items().map(|item| item.name).collect::<Vec<_>>().join(", ");
        Failure::invalid(format!("there is no item '{name}': the items are {names}"))
    })
}

#[cfg(test)]
mod tests {
    use super::{cell, named, short};

    #[test]
    fn long_cells_and_long_fixes_are_cut() {
        assert_eq!(cell("µ").as_str(), "µ");
        assert_eq!(cell(&"µ".repeat(80)).chars().count(), super::CELL_MAX);
        assert_eq!(short("a; b"), "a; b");
        assert_eq!(short("a; b; c"), "a; and 2 more");
    }

    #[test]
    fn an_unknown_item_is_refused_with_those_there_are() {
        assert_eq!(named("swap").unwrap().name, "swap");
        let error = named("swop").unwrap_err().to_string();
        assert!(error.contains("'swop'") && error.contains("swap, "), "{error}");
    }
}
