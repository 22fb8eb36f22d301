//! Does each crate use only the crates that the architecture lets it use?

use cargo_metadata::{CargoOpt, MetadataCommand, Package};

use crate::report;
use crate::tree::{self, Source};

/// Which crates of ours each may use: the table of `docs/ARCHITECTURE.md`.
const ARROWS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("tuning", &["wire"]),
    ("express-log", &["wire", "tuning"]),
    ("dataplane", &["wire", "tuning", "express-log"]),
    ("control", &["wire", "tuning"]),
    ("client", &["wire"]),
    ("gateway", &["wire", "client"]),
    ("cli", &["wire", "tuning", "express-log", "dataplane", "control", "client", "gateway", "bench"]),
    ("bench", &["wire", "tuning", "express-log", "client"]),
    ("tests", &["wire", "tuning", "express-log", "dataplane", "control", "client", "gateway", "cli", "bench"]),
];

/// Which crates alone may use some crates from outside.
const OUTSIDE: &[(&str, &[&str])] = &[
    ("glommio", &["express-log", "dataplane", "bench"]),
    ("rkyv", &["wire"]),
    ("slatedb", &["control"]),
    ("aws-config", &["control"]),
    ("aws-sdk-s3", &["control"]),
    ("aws-smithy-http-client", &["control"]),
    ("aws-smithy-runtime-api", &["control"]),
    ("aws-smithy-types", &["control"]),
    ("tokio", &["control", "client", "gateway", "cli", "bench", "tests"]),
    ("axum", &["gateway"]),
    ("clap", &["cli"]),
    ("toml", &["tuning", "tests"]),
    ("anyhow", &[]),
];

/// The only files that may hold unsafe code; one that holds none leaves the list.
const UNSAFE: &[&str] =
    &["crates/dataplane/src/os.rs", "crates/express-log/src/device/disk.rs", "crates/express-log/src/ring.rs"];

fn may_use(user: &str, used: &str, is_ours: bool) -> bool {
    let row = |table: &[(&str, &'static [&'static str])], name: &str| {
        table.iter().find(|(first, _)| *first == name).map(|(_, allowed)| *allowed)
    };
    if is_ours {
        row(ARROWS, user).is_some_and(|allowed| allowed.contains(&used))
    } else {
        row(OUTSIDE, used).is_none_or(|allowed| allowed.contains(&user))
    }
}

fn unsafe_faults(sources: &[Source], allowed: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut idle = allowed.to_vec();
    for source in sources {
        let mut found = tree::names(&source.code).filter(|(_, name)| *name == "unsafe");
        if let Some((byte, _)) = found.next() {
            let is_allowed = allowed.contains(&source.path.as_str());
            faults.extend((!is_allowed).then(|| format!("{} is unsafe", source.at(byte))));
            idle.retain(|path| *path != source.path);
        }
    }
    faults.extend(idle.iter().map(|path| format!("{path} holds no unsafe code")));
    faults
}

fn packages() -> Vec<Package> {
    let mut command = MetadataCommand::new();
    command.manifest_path(tree::root().join("Cargo.toml")).features(CargoOpt::AllFeatures);
    let metadata = command.no_deps().exec().expect("cargo metadata answers");
    metadata.packages
}

/// Every use of one crate by another: the user, the used, and whether that is ours.
fn uses(packages: &[Package]) -> Vec<(&str, &str, bool)> {
    let is_ours = |name: &str| packages.iter().any(|package| package.name.as_str() == name);
    let mut uses = Vec::new();
    for package in packages {
        for used in &package.dependencies {
            let (user, used) = (package.name.as_str(), used.name.as_str());
            uses.push((user, used, is_ours(used)));
        }
    }
    uses
}

#[test]
fn every_arrow_is_in_the_table() {
    assert!(may_use("cli", "dataplane", true) && !may_use("dataplane", "control", true));
    assert!(may_use("wire", "rkyv", false) && !may_use("client", "rkyv", false));
    let packages = packages();
    let mut uses = uses(&packages);
    uses.retain(|(user, used, is_ours)| !may_use(user, used, *is_ours));
    let faults: Vec<_> = uses.iter().map(|(user, used, _)| format!("{user} -> {used}")).collect();
    report(&faults, "move the code, or change the table with an ADR");
}

#[test]
fn every_crate_from_outside_has_its_reason_in_the_decision() {
    let decision = "docs/adr/0003-dependencies.md";
    let text = std::fs::read_to_string(tree::root().join(decision)).expect("the ADR is there");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let named: Vec<&str> = rows.flat_map(|cell| cell.split(", ")).collect();
    let packages = packages();
    let mut uses = uses(&packages);
    uses.retain(|(_, used, is_ours)| !is_ours && !named.contains(used));
    let unnamed = uses.iter().map(|(user, used, _)| format!("{user} -> {used}"));
    report(&unnamed.collect::<Vec<_>>(), "say in docs/adr/0003 what it replaces");
}

#[test]
fn unsafe_code_stands_in_few_files() {
    let text = "fn f() { unsafe { g() } } // unsafe\n";
    let bad = [Source::new("crates/client/src/a.rs", text)];
    assert_eq!(unsafe_faults(&bad, &[]).len(), 1);
    assert_eq!(unsafe_faults(&bad, &["crates/client/src/a.rs"]).len(), 0);
    assert_eq!(unsafe_faults(&[], &["crates/client/src/a.rs"]).len(), 1);
    let remedy = "do it without, or move it into one of the files in UNSAFE";
    report(&unsafe_faults(&tree::sources(), UNSAFE), remedy);
}
