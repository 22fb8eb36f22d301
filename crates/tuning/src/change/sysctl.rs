//! Which file has a host come up with the kernel's settings that nova wants?

use std::fmt::Write;

use crate::check::{Finding, Verdict};

const HEAD: &str = "\
# /etc/sysctl.d/90-nova.conf: kernel settings as nova wants them, from the next start of the host on; `sysctl --system` takes them now.
";

/// A file for `/etc/sysctl.d` with those changes of `findings` that are settings of the kernel; what lies elsewhere, as below
/// `/sys`, is for `apply` at each start.
#[must_use]
pub fn sysctl(findings: &[Finding]) -> String {
    let mut out = HEAD.to_owned();
    for finding in findings.iter().filter(|finding| finding.verdict == Verdict::Off) {
        let changes = finding.changes.iter().filter_map(|change| Some((change.path.strip_prefix(SYSCTLS)?, change)));
        let lines: Vec<_> =
            changes.map(|(name, change)| format!("{} = {}", name.replace('/', "."), change.value)).collect();
        if !lines.is_empty() {
            // A string takes all.
            let _written = writeln!(out, "\n# {}: {}\n{}", finding.item, finding.why, lines.join("\n"));
        }
    }
    out
}

/// The settings that a file of `/etc/sysctl.d` has and another one has not.
#[must_use]
pub fn settings_lost(before: &str, after: &str) -> Vec<String> {
    let names = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
        lines.filter_map(|line| Some(line.split_once('=')?.0.trim().to_owned())).collect()
    };
    let kept = names(after);
    names(before).into_iter().filter(|name| !kept.contains(name)).collect()
}

/// Where the kernel's settings lie as files.
const SYSCTLS: &str = "/proc/sys/";
