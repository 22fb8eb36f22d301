//! Where are the binaries that belong to the test that runs?

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What cargo tells a test about its package. Build scripts of dependencies look at it too (ring's does) and would run again, and all
/// that is built on them be built again, here and at the next build after.
const OF_THE_TEST: [&str; 5] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];

/// A binary of the package `cli`, built once a process, with the profile and in the target directory of the running test, and with
/// the fail points that builds for users have not.
pub(crate) fn binary(name: &str) -> PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let test = std::env::current_exe().expect("the path of this test");
        // <target>/<profile>/deps/<test>-<hash>
        let dir = test.ancestors().nth(2).expect("a test lies in the directory of its profile");
        build(dir);
        dir.to_owned()
    });
    dir.join(name)
}

fn build(dir: &Path) {
    let profile = match dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = dir.parent().expect("the target directory");
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OF_THE_TEST.iter().any(|start| name.starts_with(start))) {
            cargo.env_remove(name);
        }
    }
    let built = cargo
        .args(["build", "--quiet", "--package", "cli", "--bins", "--features", "failpoints", "--profile", profile])
        .arg("--manifest-path")
        .arg(manifest_dir().join("../../Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "the binaries don't build: {}", String::from_utf8_lossy(&built.stderr));
}

/// Where this crate lies now: a target directory that several checkouts share may hold it built from another one.
fn manifest_dir() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}
