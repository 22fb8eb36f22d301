//! Does each crate use only the crates that the architecture lets it use?

use cargo_metadata::{CargoOpt, MetadataCommand, Package};

use crate::report;
use crate::tree::{self, Source};

/// Which crates of ours each may use: the table of `docs/ARCHITECTURE.md`.
const ARROWS: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("failpoints", &[]),
    ("model", &[]),
    ("tuning", &["wire"]),
    ("express-log", &["wire", "tuning", "failpoints"]),
    ("dataplane", &["wire", "tuning", "express-log", "failpoints"]),
    ("control", &["wire", "tuning", "failpoints"]),
    ("client", &["wire"]),
    ("gateway", &["wire", "client"]),
    ("cli", &["wire", "tuning", "express-log", "dataplane", "control", "client", "gateway", "bench", "failpoints"]),
    ("bench", &["wire", "tuning", "express-log", "client"]),
    (
        "tests",
        &["wire", "tuning", "express-log", "dataplane", "control", "client", "gateway", "cli", "bench", "failpoints"],
    ),
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
    ("hyper", &["gateway", "client"]),
    ("hyper-util", &["gateway", "client"]),
    ("hyper-rustls", &["client"]),
    ("rustls", &["client"]),
    ("prost", &["gateway"]),
    ("clap", &["cli"]),
    ("toml", &["tuning", "tests"]),
    ("anyhow", &[]),
];

/// The only files that may hold unsafe code, with how often each says `unsafe`. A number may only be
/// lowered, and a file that holds none leaves the list.
const UNSAFE: &[(&str, usize)] = &[
    ("crates/dataplane/src/os.rs", 3),
    ("crates/express-log/src/device/disk.rs", 1),
    ("crates/express-log/src/ring.rs", 7),
];

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

fn unsafe_faults(sources: &[Source], allowed: &[(&str, usize)]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut counts: Vec<_> = allowed.iter().map(|(path, count)| (*path, *count, 0)).collect();
    for source in sources {
        for (byte, _) in tree::names(&source.code).filter(|(_, name)| *name == "unsafe") {
            match counts.iter_mut().find(|(path, _, _)| *path == source.path) {
                Some((_, allowed, found)) if *found < *allowed => *found += 1,
                _ => faults.push(format!("{} is unsafe", source.at(byte))),
            }
        }
    }
    let slack = counts.iter().filter(|(_, allowed, found)| found < allowed);
    faults.extend(slack.map(|(path, allowed, found)| {
        format!("{path} is unsafe {found} times, not {allowed}: lower or remove its entry in UNSAFE")
    }));
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
fn unsafe_code_stands_in_few_files_and_grows_in_none() {
    let text = "fn f() { unsafe { g() } } // unsafe\nunsafe fn g() { \"unsafe\"; unsafe_code() }\n";
    let file = "crates/client/src/a.rs";
    let check = |allowed: &[(&str, usize)], wanted: usize| {
        let faults = unsafe_faults(&[Source::new(file, text)], allowed);
        assert_eq!(faults.len(), wanted, "{allowed:?}: {faults:?}");
    };
    check(&[], 2);
    check(&[(file, 1)], 1);
    check(&[(file, 2)], 0);
    check(&[(file, 3)], 1);
    check(&[(file, 2), ("crates/client/src/gone.rs", 1)], 1);
    report(&unsafe_faults(&tree::sources(), UNSAFE), "do it without, or in one of the files in UNSAFE");
}
