//! Does `nova host` tell of any host, change only what it can restore, and plan what novad takes?

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tests::{Nova, Novad, Outcome, Scratch};

const SWAPPINESS: &str = "proc/sys/vm/swappiness";

/// The command line, of which no star is asked.
fn nova() -> Nova {
    Nova::of(SocketAddr::from(([127, 0, 0, 1], 1)))
}

/// Runs `nova host …` about `data`, without anything of the environment that says otherwise.
fn host(data: &Path, args: &[&str]) -> Outcome {
    let data = data.to_str().expect("a path");
    let words: Vec<&str> = ["host"].into_iter().chain(args.iter().copied()).chain(["--data", data]).collect();
    nova().run(&words)
}

/// A directory that looks like a host with two things to mend.
fn fake_root(scratch: &Scratch) -> PathBuf {
    let root = scratch.join("root");
    for (path, text) in [
        (SWAPPINESS, "60\n"),
        ("proc/swaps", "Filename\n/swapfile file 1 0 -2\n"),
        ("proc/sys/net/core/somaxconn", "128\n"),
        ("proc/sys/kernel/random/boot_id", "this-start\n"),
    ] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    root
}

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).expect("a file").trim().to_owned()
}

/// Every row names an item once, and says how it stands; the exit code is that of the worst.
fn is_a_check(outcome: &Outcome) {
    let rows = outcome.rows();
    let items: BTreeSet<&str> = rows.iter().filter_map(|row| row["item"].as_str()).collect();
    assert!(items.len() == rows.len() && rows.len() > 45, "{}", rows.len());
    for row in &rows {
        for name in ["verdict", "now", "wanted", "severity", "why"] {
            assert!(row[name].as_str().is_some_and(|text| !text.is_empty()), "{name} of {row}");
        }
    }
    let is_off = |severity: &str| rows.iter().any(|row| row["verdict"] == "off" && row["severity"] == severity);
    let code = if is_off("fatal") { 4 } else { i32::from(is_off("warn")) };
    assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), usize::from(code != 0), "{}", outcome.stderr);
}

#[test]
fn this_host_is_checked_by_whoever_asks() {
    let scratch = Scratch::new();
    let data = scratch.join("data");
    is_a_check(&host(&data, &["check", "--sample", "100ms", "--output", "json"]));
    let text = host(&data, &["check", "--sample", "0"]).text();
    assert!(text.starts_with("ITEM") || text.starts_with("in a container"), "{text}");
    assert!(!data.exists(), "nothing was made");
    // As an ordinary user, who may see less; the folder of a build can't be entered by everybody.
    let copy = scratch.join("nova");
    fs::copy(nova().command(&["x"]).get_program(), &copy).expect("a copy");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("a folder for all");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
    command.args(["host", "check", "--sample", "0", "--output", "json", "--data", "/var/tmp/nova-nobody"]);
    match command.stdin(Stdio::null()).output() {
        Ok(output) if !output.stdout.is_empty() => is_a_check(&Outcome {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
        _ => eprintln!("skipped: no other user can be had here"),
    }
}

#[test]
fn a_host_of_which_nothing_is_to_be_seen_is_unknown() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("empty")).expect("a folder");
    let root = scratch.join("empty");
    let root = root.to_str().expect("a path");
    let outcome = host(&scratch.join("data"), &["check", "--root", root, "--sample", "0", "--output", "json"]);
    is_a_check(&outcome);
    let unknown = outcome.rows().iter().filter(|row| row["verdict"] == "unknown").count();
    assert!(unknown > 25, "{unknown}");
    let plan = host(&scratch.join("data"), &["plan", "--root", root]);
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    assert!(plan.text().contains("shards = "), "{}", plan.text());
}

#[test]
fn what_is_applied_is_restored_and_a_dry_run_writes_nothing() {
    let scratch = Scratch::new();
    let (root, data, journal) = (fake_root(&scratch), scratch.join("data"), scratch.join("journal"));
    let flags = ["--root", root.to_str().expect("a path"), "--journal", journal.to_str().expect("a path")];
    let run = |args: &[&str]| host(&data, &[args, &flags].concat());
    let dry = run(&["apply", "--dry-run", "--only", "swap"]);
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    assert!(dry.text().contains("swap: /proc/sys/vm/swappiness = 1, was 60"), "{}", dry.text());
    assert_eq!(read(&root, SWAPPINESS), "60");
    assert!(!journal.exists());

    let done = run(&["apply", "--only", "swap,accept-backlog"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!((read(&root, SWAPPINESS), read(&root, "proc/sys/net/core/somaxconn")), ("1".into(), "4096".into()));
    let rows = run(&["apply", "--only", "swap", "--output", "json"]);
    assert_eq!((rows.code, rows.rows().len()), (Some(0), 0), "it is good now: {}", rows.text());

    let back = run(&["restore", "--output", "json"]).rows();
    assert_eq!(back.len(), 2, "{back:?}");
    assert!(back.iter().all(|row| row["outcome"] == "written"), "{back:?}");
    assert_eq!((read(&root, SWAPPINESS), read(&root, "proc/sys/net/core/somaxconn")), ("60".into(), "128".into()));
    let again = run(&["restore"]);
    assert_eq!((again.code, again.stderr.as_str()), (Some(0), "nothing is to be restored\n"));
}

#[test]
fn a_script_does_the_same_by_hand() {
    let scratch = Scratch::new();
    let (root, data) = (fake_root(&scratch), scratch.join("data"));
    let script = scratch.join("tune.sh");
    let flags = ["--only", "swap", "--root", root.to_str().expect("a path")];
    let outcome = host(&data, &[&["script", script.to_str().expect("a path")], &flags[..]].concat());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let text = fs::read_to_string(&script).expect("the script");
    let at_root = text.replace("'/proc/", &format!("'{}/proc/", root.display()));
    fs::write(&script, at_root).expect("the script");
    for (word, value) in [("do", "1"), ("undo", "60")] {
        let ran = Command::new("sh").arg(&script).arg(word).output().expect("a shell");
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(read(&root, SWAPPINESS), value);
    }
}

#[test]
fn what_is_no_item_no_root_and_no_journal_is_refused_by_name() {
    let scratch = Scratch::new();
    let (root, data) = (fake_root(&scratch), scratch.join("data"));
    let root = root.to_str().expect("a path");
    let garbage = scratch.join("garbage");
    fs::write(&garbage, "dear diary\n").expect("a file");
    let garbage = garbage.to_str().expect("a path");
    let cases: [(&[&str], i32, &[&str]); 7] = [
        (&["explain", "swop"], 2, &["'swop'", "swap"]),
        (&["apply", "--only", "swop", "--root", root], 2, &["'swop'", "swap"]),
        (&["check", "--root", "/nowhere"], 2, &["/nowhere", "--root"]),
        (&["check", "--shards", "two"], 2, &["two", "shards"]),
        (&["check", "--config", "/nowhere/nova.toml"], 2, &["/nowhere/nova.toml"]),
        (&["apply", "--only", "swap", "--root", root, "--journal", garbage], 4, &[garbage, "line 1"]),
        (&["restore", "--root", root, "--journal", garbage], 4, &[garbage, "line 1"]),
    ];
    for (args, code, parts) in cases {
        let outcome = host(&data, args);
        assert_eq!(outcome.code, Some(code), "{args:?}: {}", outcome.stderr);
        let line = outcome.one_line();
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?} are not told: {line}");
    }
    assert_eq!(read(Path::new(root), SWAPPINESS), "60");
}

#[test]
fn every_item_is_explained() {
    let scratch = Scratch::new();
    let data = scratch.join("data");
    let rows = host(&data, &["check", "--sample", "0", "--output", "json"]).rows();
    for item in rows.iter().filter_map(|row| row["item"].as_str()).take(5) {
        let text = host(&data, &["explain", item]).text();
        assert!(text.contains(item) && text.lines().any(|line| line.starts_with("more")), "{text}");
    }
}

#[test]
fn novad_takes_the_plan_and_the_units_name_it() {
    let scratch = Scratch::new();
    let (data, file) = (scratch.join("data"), scratch.join("plan.toml"));
    let plan = host(&data, &["plan"]);
    assert_eq!(plan.code, Some(0), "{}", plan.stderr);
    fs::write(&file, &plan.stdout).expect("a file");
    let shards = plan.text().lines().find_map(|line| line.strip_prefix("shards = ").map(str::to_owned));
    let mut command = Command::new(Novad::command(&data).get_program());
    command.arg("--config").arg(&file).arg("--check");
    let checked = command.stdin(Stdio::null()).output().expect("novad runs");
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{}\n{}", String::from_utf8_lossy(&checked.stderr), plan.text());
    let line = said.lines().find(|line| line.starts_with("shards ")).expect("the shards");
    assert!(line.contains(&format!("  {}  (in ", shards.expect("shards"))), "{line}");

    let rows = host(&data, &["plan", "--output", "json"]).rows();
    assert!(rows[0]["shards"].as_array().is_some_and(|shards| !shards.is_empty()), "{rows:?}");
    let units = host(&data, &["systemd", "--bin-dir", "/opt/nova"]).text();
    // What makes the host ready looks at the disk and the shards that novad gets.
    let data = data.to_str().expect("a path");
    let start = |of: &str| units.lines().find_map(|line| line.strip_prefix(of)).expect("a start").to_owned();
    let flags = start("ExecStart=/opt/nova/novad ");
    assert!(flags.starts_with(&format!("--config /etc/nova/novad.toml --data {data} --shards ")), "{flags}");
    assert_eq!(start("ExecStart=/opt/nova/nova host apply "), format!("{flags} --goal latency"));
    assert!(!flags.contains("--store"), "{flags}");
    let store = scratch.join("store");
    let store = store.to_str().expect("a path");
    let units = host(Path::new(data), &["systemd", "--bin-dir", "/opt/nova", "--store", store]).text();
    let told = units.lines().filter(|line| line.contains(&format!(" --data {data} --store {store} --shards ")));
    assert_eq!(told.count(), 2, "both are told of the store:\n{units}");
    assert!(units.lines().any(|line| line == format!("ReadWritePaths={data} {store}")), "{units}");
    assert!(units.lines().any(|line| line == "LimitMEMLOCK=infinity"), "{units}");
    for path in ["/var/lib/my nova", "/var/lib/a%b"] {
        let refused = host(Path::new(path), &["systemd"]);
        assert!(
            refused.code == Some(1) && refused.stderr.contains(&format!("--data is '{path}'")),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_file_of_sysctls_is_not_written_over_one_that_sets_more() {
    let scratch = Scratch::new();
    let file = scratch.join("90-nova.conf");
    fs::write(&file, "nova.of_another = 1\n").expect("a file");
    let at = file.to_str().expect("a path");
    let refused = host(&scratch.join("data"), &["script", "--sysctl", at]);
    assert!(refused.code == Some(1) && refused.stderr.contains("sets nova.of_another"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(&file).expect("a file"), "nova.of_another = 1\n");
}

#[test]
fn what_the_disk_does_is_measured_kept_and_planned_with() {
    let scratch = Scratch::new();
    let data = scratch.join("data");
    let rows = host(&data, &["disk", "--duration", "20ms", "--output", "json"]).rows();
    let sync = rows[0]["sync"].as_str().expect("a method").to_owned();
    assert!(["dsync", "fdatasync"].contains(&sync.as_str()), "{sync}");
    assert!(scratch.join("data.disk.json").exists() && !data.exists());
    let plan = host(&data, &["plan"]).text();
    assert!(plan.contains(&format!("sync = \"{sync}\"")), "{plan}");
    // What was spoilt counts for nothing.
    fs::write(scratch.join("data.disk.json"), "{").expect("a file");
    let spoilt = host(&data, &["plan"]);
    assert!(!spoilt.text().contains("sync = ") && spoilt.stderr.contains("damaged"), "{plan}");
}

#[test]
fn novad_goes_by_what_was_measured_of_its_disk_where_nobody_chose() {
    let scratch = Scratch::new();
    let (data, kept) = (scratch.join("data"), scratch.join("data.disk.json"));
    let rows = host(&data, &["disk", "--duration", "10ms", "--output", "json"]).rows();
    let check = |flags: &[&str]| {
        let mut command = Command::new(Novad::command(&data).get_program());
        command.arg("--data").arg(&data).args(["--http", "off", "--check"]).args(flags);
        let output = command.stdin(Stdio::null()).output().expect("novad runs");
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{err}");
        let line = |name: &str| out.lines().find(|line| line.starts_with(name)).expect("a setting").to_owned();
        (["log.sync ", "log.inline_commit ", "log.commits_in_flight "].map(line), err)
    };
    let ([sync, in_place, in_flight], err) = check(&[]);
    let measured = format!("(as measured in {})", kept.display());
    assert!(sync.contains(rows[0]["sync"].as_str().expect("a word")) && sync.ends_with(&measured), "{sync}");
    assert!(in_place.contains(&rows[0]["inline_commit"].to_string()) && in_place.ends_with(&measured), "{in_place}");
    assert!(in_flight.contains(&rows[0]["commits_in_flight"].to_string()), "{in_flight}");
    assert!(err.contains("measured within a day") && err.lines().all(|line| !line.contains("left out")), "{err}");

    let ([sync, in_place, _], err) = check(&["--log-sync", "fdatasync"]);
    assert!(sync.contains("fdatasync") && sync.ends_with("(by --log-sync)"), "{sync}");
    assert!(in_place.ends_with(&measured) && err.contains("by --log-sync"), "{in_place} {err}");

    let text = fs::read_to_string(&kept).expect("the file");
    let elsewhere = text.replace("\"file_system\": \"", "\"file_system\": \"no ");
    for (text, says) in [("{", "damaged"), (&elsewhere, "and the data are on"), ("{\"format\": 99}", "format 99")] {
        fs::write(&kept, text).expect("a file");
        let ([sync, ..], err) = check(&[]);
        assert!(sync.contains("dsync") && sync.ends_with("(by default)"), "{sync}");
        let told = err.lines().filter(|line| line.contains("left out") && line.contains(says)).count();
        assert_eq!(told, 1, "{err}");
    }
}

#[test]
fn a_star_is_watched_shard_by_shard() {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &["--http", "127.0.0.1:0"]);
    let http = novad.http().to_string();
    let run = |args: &[&str]| nova().run(&[&["host", "top", "--once", "--interval", "100ms"], args].concat());
    let outcome = run(&["--http", &http, "--output", "json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let rows = outcome.rows();
    assert!(!rows.is_empty() && rows[0]["shard"] == 0, "{rows:?}");
    for name in ["batches_per_s", "stalls", "cpu_busy", "pending_answers", "log_unsettled_entries"] {
        assert!(rows.iter().all(|row| row[name].is_number()), "no {name} in {rows:?}");
    }
    assert!(rows[0]["heaviest"].is_array() && rows[0].get("append_sync_us").is_some(), "{rows:?}");
    assert!(run(&["--http", &http]).text().starts_with("shard"));
    let wire = novad.addr().to_string();
    for wrong in [&wire, "127.0.0.1:1", "nonsense"] {
        let outcome = run(&["--http", wrong]);
        assert_eq!(outcome.code, Some(7), "{}", outcome.stderr);
        assert!(outcome.one_line().contains(wrong) && outcome.one_line().contains("--http"), "{}", outcome.stderr);
    }
}

#[test]
fn disk_network_and_store_are_tried_and_judged_in_words() {
    let scratch = Scratch::new();
    let store = scratch.join("store");
    let args = ["selftest", "--store", store.to_str().expect("a path"), "--output", "json"];
    let outcome = host(&scratch.join("data"), &args);
    assert_eq!(outcome.code, Some(0), "{} {}", outcome.text(), outcome.stderr);
    let rows = outcome.rows();
    let parts: Vec<&Value> = rows.iter().map(|row| &row["part"]).collect();
    assert_eq!(parts, ["disk", "net", "store"]);
    assert!(rows.iter().all(|row| row["works"] == true && row["p50_us"].is_number()), "{rows:?}");
    let left = fs::read_dir(scratch.path()).expect("the folder").flatten().count();
    assert_eq!(left, 1, "nothing but the store is left");
}
