//! Is every target of `fuzz` one that the tests of a crate replay, and is every program there built?

use std::fs;

use toml::{Table, Value};

use crate::report;
use crate::tree::{self, Source};

/// Names of the programs that a manifest builds.
fn programs(manifest: &str) -> Vec<String> {
    let table: Table = manifest.parse().expect("a manifest is TOML");
    let bins = table.get("bin").and_then(Value::as_array).cloned().unwrap_or_default();
    bins.iter().filter_map(|bin| Some(bin.get("name")?.as_str()?.to_owned())).collect()
}

/// What a file among the targets must say, and some crate of its target.
fn faults(file: &str, text: &str, programs: &[String], sources: &[Source]) -> Vec<String> {
    let name = file.trim_end_matches(".rs");
    let mut faults = Vec::new();
    if !programs.iter().any(|program| program == name) {
        faults.push(format!("{file} is not built: fuzz/Cargo.toml has no such program"));
    }
    if !text.contains(&format!("::fuzzing::{name}(bytes)")) {
        faults.push(format!("{file} runs another target than its own"));
    }
    let row = format!("Target {{ name: \"{name}\", check: {name} }}");
    if !sources.iter().any(|source| source.path.ends_with("/src/fuzzing.rs") && source.text.contains(&row)) {
        faults.push(format!("{file} is in no crate's list of targets: nothing replays its corpus"));
    }
    faults
}

#[test]
fn every_target_is_built_and_replayed() {
    let one = [Source::new("crates/wire/src/fuzzing.rs", "Target { name: \"one\", check: one },")];
    let check = |file: &str, text: &str, wanted: usize| {
        assert_eq!(faults(file, text, &["one".to_owned()], &one).len(), wanted, "{file}");
    };
    check("one.rs", "|bytes| wire::fuzzing::one(bytes)", 0);
    check("one.rs", "|bytes| wire::fuzzing::two(bytes)", 1);
    check("two.rs", "|bytes| wire::fuzzing::two(bytes)", 2);
    let folder = tree::root().join("fuzz");
    let read = |path: &str| fs::read_to_string(folder.join(path)).expect("the file is there");
    let (programs, sources) = (programs(&read("Cargo.toml")), tree::sources());
    let files = fs::read_dir(folder.join("fuzz_targets")).expect("the targets are there");
    let files: Vec<String> = files.map(|file| file.expect("it is read").file_name().display().to_string()).collect();
    assert!(files.len() > 20 && files.len() == programs.len(), "{} files, {} programs", files.len(), programs.len());
    let faults =
        files.iter().flat_map(|file| faults(file, &read(&format!("fuzz_targets/{file}")), &programs, &sources));
    report(&faults.collect::<Vec<_>>(), "see docs/guarantees.md, what is fuzzed");
}
