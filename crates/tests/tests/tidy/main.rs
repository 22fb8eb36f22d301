//! Do the habits of `docs/STYLE.md` hold in the tree as it stands?
//!
//! One file a check. Each check is a function from the tree to its faults, tried on a bad example
//! before it is run on the tree. `NOVA_BLESS=1` writes the generated parts of the documentation anew.

mod advisories;
mod copies;
mod cores;
mod dashboard;
mod docs;
mod files;
mod fuzzing;
mod layers;
mod reasons;
mod settings;
mod tree;
mod words;

use std::fs;
use std::path::Path;

/// Fails with every fault on a line of its own.
fn report(faults: &[String], remedy: &str) {
    let count = faults.len();
    assert!(faults.is_empty(), "{count} faults; {remedy}\n  {}", faults.join("\n  "));
}

/// Compares a generated file of the documentation with what it should be, or writes it anew.
fn check_generated(path: &str, wanted: &str) {
    let file = tree::root().join(path);
    if std::env::var_os("NOVA_BLESS").is_some() {
        fs::create_dir_all(file.parent().unwrap_or_else(|| Path::new("."))).expect("make the folder");
        fs::write(&file, wanted).expect("write the generated file");
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    let line = found.lines().zip(wanted.lines()).take_while(|(found, wanted)| found == wanted);
    assert!(
        found == wanted,
        "{path} differs from the code at line {}: write it anew with \
         `NOVA_BLESS=1 cargo test -p tests --test tidy`",
        line.count() + 1
    );
}
