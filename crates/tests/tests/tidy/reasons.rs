//! Is each reason given by some code, and is the table that users read the one in the code?

use std::fmt::Write;

use wire::reason::Reason;

use crate::tree::{self, Source};
use crate::{check_generated, report};

/// Reasons whose feature is still to come. One that is given somewhere leaves the list.
const AWAITED: &[Reason] = &[];

fn is_given(reason: Reason, sources: &[Source]) -> bool {
    let name = format!("{reason:?}");
    let written = format!("Reason::{name}");
    let gives = |source: &&Source| {
        !source.is_test()
            && source.path != "crates/wire/src/reason.rs"
            && source.production.match_indices(&written).any(|(at, found)| {
                let behind = source.production[at + found.len()..].chars().next();
                !behind.is_some_and(|c| c.is_alphanumeric())
            })
    };
    sources.iter().any(|source| gives(&source))
}

fn table() -> String {
    let mut out = String::from(
        "# Errors\n\nGenerated from `wire::reason` by the tidy test; do not edit. *No side effect* means \
         that nothing was\nappended or changed by the attempt that got this answer.\n\n\
         | error | wire code | HTTP status | exit code | retryable | no side effect |\n\
         |---|---|---|---|---|---|\n",
    );
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    for reason in Reason::ALL {
        let http = reason.http_status().map_or_else(|| "–".to_owned(), |status| status.to_string());
        let (retryable, no_effect) = (yes(reason.retryable()), yes(reason.no_side_effect()));
        let (code, exit) = (*reason as u16, reason.exit_code());
        writeln!(out, "| `{reason}` | {code} | {http} | {exit} | {retryable} | {no_effect} |")
            .expect("a string takes all");
    }
    out
}

#[test]
fn every_reason_is_given_by_some_code() {
    let sources = tree::sources();
    let mut faults = Vec::new();
    for reason in Reason::ALL {
        match (is_given(*reason, &sources), AWAITED.contains(reason)) {
            (false, false) => faults.push(format!("nothing answers `Reason::{reason:?}`")),
            (true, true) => faults.push(format!("`Reason::{reason:?}` is given: take it off AWAITED")),
            (true, false) | (false, true) => {}
        }
    }
    report(&faults, "remove the reason, or write the code that gives it");
}

#[test]
fn a_reason_in_a_test_or_in_a_longer_name_does_not_count() {
    let text = "fn f() { Reason::InvalidUtf8; }\n#[cfg(test)]\nmod tests { Reason::Invalid }\n";
    assert!(!is_given(Reason::Invalid, &[Source::new("crates/x/src/a.rs", text)]));
    let text = "fn f() -> Reason { Reason::Invalid }\n";
    assert!(is_given(Reason::Invalid, &[Source::new("crates/x/src/a.rs", text)]));
}

#[test]
fn the_table_of_errors_is_the_one_in_the_code() {
    check_generated("docs/errors.md", &table());
}
