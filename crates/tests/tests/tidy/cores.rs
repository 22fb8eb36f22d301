//! Do cores only decide: no `async`, no clock, no I/O, no locks?

use crate::report;
use crate::tree::{self, Source};

/// Names that no core may use, with what stands in their place.
const BANNED: &[(&str, &str)] = &[
    ("async", "an event that comes in and an action that goes out"),
    ("await", "an event that comes in and an action that goes out"),
    ("Instant", "the time as an argument"),
    ("SystemTime", "the time as an argument"),
    ("Mutex", "one owner"),
    ("RwLock", "one owner"),
    ("glommio", "the shell around the core"),
    ("tokio", "the shell around the core"),
    ("rustix", "the shell around the core"),
    ("getrandom", "the value as an argument"),
];

const BANNED_PATHS: &[&str] = &["std::fs", "std::net", "std::thread", "std::process", "std::env"];

fn faults(sources: &[Source]) -> Vec<String> {
    let is_core =
        |source: &&Source| !source.is_test() && (source.path.contains("/core/") || source.path.ends_with("/core.rs"));
    let mut faults = Vec::new();
    for source in sources.iter().filter(is_core) {
        for (byte, name) in tree::names(&source.production) {
            if let Some((_, instead)) = BANNED.iter().find(|(banned, _)| *banned == name) {
                faults.push(format!("{} uses `{name}`; take {instead}", source.at(byte)));
            }
        }
        for path in BANNED_PATHS {
            let found = source.production.match_indices(path);
            faults.extend(found.map(|(byte, _)| format!("{} uses `{path}`", source.at(byte))));
        }
    }
    faults
}

#[test]
fn cores_decide_and_shells_act() {
    let text = "//! Asks the clock.\nuse std::time::Instant;\nuse std::fs::File;\n";
    let bad = [Source::new("crates/control/src/core/a.rs", text), Source::new("crates/control/src/shell.rs", text)];
    assert_eq!(faults(&bad).len(), 2, "{:?}", faults(&bad));
    report(&faults(&tree::sources()), "hand it in as an argument or out as a value");
}
