//! Where are the binaries that belong to the test that runs?

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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
    let built = Command::new(env!("CARGO"))
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
