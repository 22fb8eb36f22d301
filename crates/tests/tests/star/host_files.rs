//! Are the files of `tuning` those that `nova host` prints?
//!
//! `NOVA_BLESS=1 cargo test -p tests --test star host_files` writes them anew.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tests::{Nova, Scratch};

/// Settings of the kernel as Linux 6 sets them by itself: of a host with swap, where nobody has changed any. How much memory it
/// has is not told, so that what depends on it is left out.
const AS_LINUX_HAS_THEM: [(&str, &str); 16] = [
    ("proc/swaps", "Filename Type Size Used Priority\n/swapfile file 1 0 -2\n"),
    ("proc/sys/vm/swappiness", "60\n"),
    ("proc/sys/vm/dirty_background_bytes", "0\n"),
    ("proc/sys/vm/dirty_background_ratio", "10\n"),
    ("proc/sys/vm/dirty_bytes", "0\n"),
    ("proc/sys/vm/dirty_ratio", "20\n"),
    ("proc/sys/vm/max_map_count", "65530\n"),
    ("proc/sys/vm/zone_reclaim_mode", "0\n"),
    ("proc/sys/kernel/numa_balancing", "1\n"),
    ("proc/sys/kernel/nmi_watchdog", "1\n"),
    ("proc/sys/net/core/somaxconn", "128\n"),
    ("proc/sys/net/ipv4/tcp_max_syn_backlog", "1024\n"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
    ("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
    ("proc/sys/net/ipv4/tcp_slow_start_after_idle", "1\n"),
    ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
];

/// The file is what was printed, or is written anew.
fn is_file(path: &str, printed: &str) {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs this test");
    let file = Path::new(&root).join("../../tuning").join(path);
    if std::env::var_os("NOVA_BLESS").is_some() {
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(&file, printed).expect("the file");
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == printed,
        "tuning/{path} is not what is printed: write it anew with \
         `NOVA_BLESS=1 cargo test -p tests --test star host_files`\n{printed}"
    );
}

/// Runs `nova host …`, which must succeed, without anything of the environment.
fn host(args: &[&str]) {
    let mut command = Nova::of(SocketAddr::from(([127, 0, 0, 1], 1))).command(&["host"]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NOVA_")) {
        command.env_remove(name);
    }
    let output = command.args(args).output().expect("nova runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_units_are_those_for_any_host() {
    let scratch = Scratch::new();
    let dir = scratch.join("units");
    fs::create_dir(&dir).expect("a folder");
    host(&["systemd", "--any-host", "--bin-dir", "/usr/bin", "--dir", dir.to_str().expect("a path")]);
    let mut written: Vec<PathBuf> = fs::read_dir(&dir).expect("the units").map(|unit| unit.unwrap().path()).collect();
    written.sort();
    assert_eq!(written.len(), 3, "{written:?}");
    for unit in &written {
        let name = unit.file_name().and_then(|name| name.to_str()).expect("a name");
        is_file(&format!("systemd/{name}"), &fs::read_to_string(unit).expect("a unit"));
    }
}

#[test]
fn the_sysctls_are_those_for_a_host_that_nobody_has_tuned() {
    let scratch = Scratch::new();
    let (root, file) = (scratch.join("root"), scratch.join("90-nova.conf"));
    for (path, text) in AS_LINUX_HAS_THEM {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    let words = [&file, &root].map(|path| path.to_str().expect("a path"));
    host(&["script", "--sysctl", words[0], "--root", words[1]]);
    is_file("sysctl.d/90-nova.conf", &fs::read_to_string(&file).expect("the file"));
}
