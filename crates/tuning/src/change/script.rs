//! How does an administrator make the same changes without nova?

use std::fmt::Write;

use super::value_of;
use crate::check::{Finding, Verdict};
use crate::machine::Machine;

const HEAD: &str = "\
#!/bin/sh
# Makes this host as nova wants it, and with `undo` as it was when this was written.
# It changes files of /proc and /sys alone: a restart of the host undoes all of it.
set -u
mode=\"${1:-do}\"
failed=0

# put FILE WANTED FILE-THAT-UNDOES EARLIER
put() {
    if [ \"$mode\" = undo ]; then file=$3 value=$4; else file=$1 value=$2; fi
    if printf '%s' \"$value\" 2>/dev/null >\"$file\"; then
        echo \"$file = $value\"
    else
        echo \"$file refuses $value\" >&2
        failed=1
    fi
}
";

/// A shell script that makes the changes of `findings`, and takes them back with `undo`; what no file mends stands in it as a
/// remark.
#[must_use]
pub fn script(machine: &Machine, findings: &[Finding]) -> String {
    let mut out = HEAD.to_owned();
    for finding in findings.iter().filter(|finding| finding.verdict == Verdict::Off) {
        remark(&mut out, &format!("\n{}: {}", finding.item, finding.why));
        if finding.changes.is_empty() {
            remark(&mut out, &format!("by hand: {}", finding.fix));
        }
        for change in &finding.changes {
            let undo_path = change.undo_path.as_ref().unwrap_or(&change.path);
            match value_of(machine, undo_path) {
                Ok(undo) => {
                    let words = [&change.path, &change.value, undo_path, &undo].map(|word| quoted(word));
                    // A string takes all.
                    let _written = writeln!(out, "put {}", words.join(" "));
                }
                Err(unknown) => remark(&mut out, &format!("left out, for it could not be undone: {unknown}")),
            }
        }
    }
    out += "\nexit $failed\n";
    out
}

/// A comment of one line; a line break in front of it stays.
fn remark(out: &mut String, words: &str) {
    let is_apart = words.starts_with('\n');
    let words: String = words.trim_start().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    *out += &format!("{}# {words}\n", if is_apart { "\n" } else { "" });
}

/// One word of the shell, whatever stands in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
