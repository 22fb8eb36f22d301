use std::path::{Path, PathBuf};

use super::{
    ChangeError, Done, Fit, Outcome, Service, Unit, apply, is_same, preview, restore, script, settings_lost, sysctl,
    units,
};
use crate::machine::tests::fake::Fake;
use crate::plan::{Goal, HostPlan};
use crate::settings::{Listener, SHARDS_MAX, Settings, StoreAddress};
use crate::start::open_files_needed;

const SWAPPINESS: &str = "/proc/sys/vm/swappiness";

fn journal(fake: &Fake) -> PathBuf {
    fake.root().join("var/journal")
}

fn snapshot(fake: &Fake) -> Vec<(String, String)> {
    let paths: Vec<String> =
        fake.findings().into_iter().flat_map(|finding| finding.changes).map(|change| change.path).collect();
    paths.into_iter().map(|path| (path.clone(), fake.text(&path))).collect()
}

fn apply_all(fake: &Fake) -> Vec<Done> {
    apply(&fake.machine(), &fake.findings(), &journal(fake)).unwrap()
}

fn outcome<'a>(all: &'a [Done], path: &str) -> &'a Outcome {
    &all.iter().find(|done| done.path == path).unwrap_or_else(|| panic!("{path} is not told of: {all:?}")).outcome
}

#[test]
fn what_is_applied_is_good_afterwards_and_restored_as_it_was() {
    let fake = Fake::server(8, 2, 2);
    let before = snapshot(&fake);
    assert!(before.len() > 25, "{before:?}");
    let all = apply_all(&fake);
    assert!(all.iter().all(|done| done.outcome == Outcome::Written), "{all:?}");
    assert_eq!(fake.text(SWAPPINESS), "1");
    let left: Vec<_> = fake.findings().into_iter().filter(|finding| !finding.changes.is_empty()).collect();
    assert!(left.is_empty(), "{left:?}");
    let all = restore(&fake.machine(), &journal(&fake)).unwrap();
    assert!(all.iter().all(|done| done.outcome == Outcome::Written), "{all:?}");
    for (path, text) in before {
        let now = fake.text(&path);
        // The files of a real host take the ratio for the bytes; these keep both.
        let is_by_ratio = path.contains("dirty_") && path.ends_with("bytes");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_back = words(&text).contains(&words(&now)) || is_same(&words(&now), &words(&text));
        assert!(is_by_ratio || is_back, "{path}: {text} is {now}");
    }
    assert_eq!(fake.text("/proc/sys/vm/dirty_ratio"), "20");
    assert!(!journal(&fake).exists());
    assert_eq!(restore(&fake.machine(), &journal(&fake)).unwrap(), []);
}

#[test]
fn applying_again_changes_nothing_and_keeps_the_first_values() {
    let fake = Fake::server(4, 1, 1);
    apply_all(&fake);
    fake.file(SWAPPINESS, "30\n");
    let all = apply_all(&fake);
    assert_eq!(outcome(&all, SWAPPINESS), &Outcome::Written);
    restore(&fake.machine(), &journal(&fake)).unwrap();
    assert_eq!(fake.text(SWAPPINESS), "60");
}

#[test]
fn a_crash_between_note_and_write_and_one_halfway_through_restoring_are_made_good() {
    let fake = Fake::server(4, 1, 1);
    apply_all(&fake);
    // As if the write behind the note had not been made, and the note behind it not been ended.
    fake.file(SWAPPINESS, "60\n");
    let path = journal(&fake);
    let mut text = std::fs::read_to_string(&path).unwrap();
    text += "swap\t/proc/sys/vm/swappi";
    std::fs::write(&path, &text).unwrap();
    // As if restoring had ended after its first file.
    fake.file("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "1\n");
    let all = restore(&fake.machine(), &path).unwrap();
    assert_eq!(outcome(&all, SWAPPINESS), &Outcome::Already);
    assert_eq!(outcome(&all, "/proc/sys/net/ipv4/tcp_slow_start_after_idle"), &Outcome::Already);
    assert_eq!(outcome(&all, "/proc/sys/net/core/somaxconn"), &Outcome::Written);
    assert_eq!(fake.text("/proc/sys/net/core/somaxconn"), "128");
}

#[test]
fn notes_go_on_behind_one_that_was_cut_off() {
    let fake = Fake::server(4, 1, 1);
    let path = journal(&fake);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "nova host journal 1 3f1c\nswap\t/proc/sys/vm/swa").unwrap();
    apply_all(&fake);
    restore(&fake.machine(), &path).unwrap();
    assert_eq!(fake.text(SWAPPINESS), "60");
    // Nor is one whose head was cut off in the way.
    for head in ["", "nova ho", "nova host journal 1", "nova host journal 1 3f"] {
        std::fs::write(&path, head).unwrap();
        apply_all(&fake);
        assert_eq!(fake.text(SWAPPINESS), "1");
        restore(&fake.machine(), &path).unwrap();
        assert_eq!(fake.text(SWAPPINESS), "60");
    }
}

#[test]
fn what_others_changed_since_is_left_alone() {
    let fake = Fake::server(4, 1, 1);
    apply_all(&fake);
    fake.file(SWAPPINESS, "10\n");
    let all = restore(&fake.machine(), &journal(&fake)).unwrap();
    assert_eq!(outcome(&all, SWAPPINESS), &Outcome::Foreign);
    assert_eq!(fake.text(SWAPPINESS), "10\n");
}

#[test]
fn a_journal_of_before_the_last_start_of_the_host_is_void() {
    let fake = Fake::server(4, 1, 1);
    apply_all(&fake);
    fake.file("/proc/sys/kernel/random/boot_id", "another\n");
    fake.file(SWAPPINESS, "45\n");
    assert_eq!(restore(&fake.machine(), &journal(&fake)).unwrap(), []);
    assert_eq!(fake.text(SWAPPINESS), "45\n");
    apply_all(&fake);
    fake.file("/proc/sys/kernel/random/boot_id", "a third\n");
    fake.file(SWAPPINESS, "33\n");
    apply_all(&fake);
    restore(&fake.machine(), &journal(&fake)).unwrap();
    assert_eq!(fake.text(SWAPPINESS), "33");
}

#[test]
fn a_journal_that_is_something_else_is_refused_and_nothing_is_written() {
    let fake = Fake::server(4, 1, 1);
    for text in ["dear diary\n", "dear diary", "nova horse", "\0\0", "nova host journal 1 3f1c\nswap\t/proc\n"] {
        fake.file("/var/journal", text);
        let error = apply(&fake.machine(), &fake.findings(), &journal(&fake)).unwrap_err();
        assert!(matches!(error, ChangeError::Damaged { .. }), "{error}");
        assert!(restore(&fake.machine(), &journal(&fake)).is_err());
        assert_eq!(fake.text(SWAPPINESS), "60\n");
        assert_eq!(fake.text("/var/journal"), text);
    }
    let nowhere = Path::new("/proc/nova/journal");
    let error = apply(&fake.machine(), &fake.findings(), nowhere).unwrap_err().to_string();
    assert!(error.contains("/proc/nova/journal") && error.contains("--journal"), "{error}");
}

#[test]
fn what_the_host_refuses_is_told_and_the_rest_is_done() {
    let fake = Fake::server(4, 1, 1);
    let findings = fake.findings();
    // A directory takes no writes, whoever asks.
    fake.remove("/proc/sys/net/core/somaxconn");
    fake.file("/proc/sys/net/core/somaxconn/x", "");
    let all = apply(&fake.machine(), &findings, &journal(&fake)).unwrap();
    assert_eq!(outcome(&all, "/proc/sys/net/core/somaxconn"), &Outcome::Refused);
    let refused = all.iter().find(|done| done.outcome == Outcome::Refused).unwrap();
    assert!(refused.why.as_ref().unwrap().contains("could not be restored"), "{refused:?}");
    assert_eq!(fake.text(SWAPPINESS), "1");
    // One that is refused when restoring stays in the journal.
    fake.remove(SWAPPINESS);
    let all = restore(&fake.machine(), &journal(&fake)).unwrap();
    assert_eq!(outcome(&all, SWAPPINESS), &Outcome::Refused);
    fake.file(SWAPPINESS, "1");
    let all = restore(&fake.machine(), &journal(&fake)).unwrap();
    assert_eq!((all.len(), outcome(&all, SWAPPINESS)), (1, &Outcome::Written));
    assert_eq!(fake.text(SWAPPINESS), "60");
}

#[test]
fn a_file_that_was_written_twice_and_refused_once_is_restored_all_the_same() {
    let fake = Fake::server(4, 1, 1);
    let mut finding = fake.finding("swap");
    for value in ["1", "5"] {
        finding.changes[0].value = value.to_owned();
        apply(&fake.machine(), std::slice::from_ref(&finding), &journal(&fake)).unwrap();
    }
    fake.remove(SWAPPINESS);
    let all = restore(&fake.machine(), &journal(&fake)).unwrap();
    assert_eq!(outcome(&all, SWAPPINESS), &Outcome::Refused);
    fake.file(SWAPPINESS, "5");
    let all = restore(&fake.machine(), &journal(&fake)).unwrap();
    assert_eq!(outcome(&all, SWAPPINESS), &Outcome::Written, "{all:?}");
    assert_eq!(fake.text(SWAPPINESS), "60");
}

#[test]
fn a_preview_writes_nothing() {
    let fake = Fake::server(4, 1, 1);
    let before = snapshot(&fake);
    let all = preview(&fake.machine(), &fake.findings());
    assert_eq!(all.len(), before.len());
    assert_eq!(snapshot(&fake), before);
    assert!(!journal(&fake).exists());
}

#[test]
fn values_that_mean_the_same_are_the_same() {
    for (left, right) in
        [("1", "1"), ("0-3", "0,1,2,3"), ("fc", "000000fc"), ("1,00000000", "00000001,00000000"), ("0", "00")]
    {
        assert!(is_same(left, right), "{left} {right}");
    }
    for (left, right) in [("1", "2"), ("", "0"), ("none", "mq-deadline"), ("60", "6"), ("4096 1 2", "4096 1 3")] {
        assert!(!is_same(left, right), "{left} {right}");
    }
}

/// The shell itself runs it, on the files of the fake host.
#[test]
fn the_script_does_and_undoes_the_same() {
    let fake = Fake::server(4, 1, 1);
    let text = script(&fake.machine(), &fake.findings());
    assert!(text.starts_with("#!/bin/sh\n") && text.contains("by hand: "), "{text}");
    let root = fake.root().display().to_string();
    let text = text.replace("'/proc/", &format!("'{root}/proc/")).replace("'/sys/", &format!("'{root}/sys/"));
    fake.file("/tune.sh", &text);
    let run = |word: &str| {
        let mut command = std::process::Command::new("sh");
        command.arg(fake.root().join("tune.sh")).arg(word).output().unwrap()
    };
    let done = run("do");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fake.text(SWAPPINESS), "1");
    assert_eq!(fake.text("/proc/sys/net/ipv4/tcp_rmem"), "4096 131072 16777216");
    assert!(run("undo").status.success());
    assert_eq!(fake.text(SWAPPINESS), "60");
    assert_eq!(fake.text("/proc/sys/vm/dirty_ratio"), "20");
    fake.remove(SWAPPINESS);
    fake.file("/proc/sys/vm/swappiness/x", "");
    let done = run("do");
    assert!(
        !done.status.success() && String::from_utf8_lossy(&done.stderr).contains("swappiness refuses 1"),
        "{done:?}"
    );
}

fn service(device: Option<&str>) -> Service {
    Service {
        novad: "/usr/bin/novad".into(),
        nova: "/usr/bin/nova".into(),
        config: "/etc/nova/novad.toml".into(),
        user: "nova".to_owned(),
        goal: Goal::Throughput,
        device: device.map(str::to_owned),
    }
}

fn texts(units: &[Unit]) -> String {
    units.iter().map(|unit| unit.text.as_str()).collect()
}

/// The lines of the units of a host with two threads a core, of which shards get 13.
fn unit_lines(settings: &Settings, device: Option<&str>) -> Vec<String> {
    let fake = Fake::server(8, 2, 1);
    let service = service(device);
    let plan = HostPlan::of(&fake.machine(), settings, Goal::Throughput);
    assert_eq!(plan.shards().len(), 13);
    let text = texts(&units(&service, Fit::Host(&plan), settings));
    let cpus = format!("AllowedCPUs={}", plan.cpus());
    assert!(text.lines().any(|line| line == cpus), "{cpus} is missing: {text}");
    text.lines().map(str::to_owned).collect()
}

fn has(lines: &[String], line: &str) {
    assert!(lines.iter().any(|found| found == line), "{line} is missing: {lines:#?}");
}

#[test]
fn the_units_name_limits_and_the_tuner_before_the_server() {
    let lines = unit_lines(&Settings::default(), None);
    for line in ["LimitMEMLOCK=infinity", "ExecStop=/usr/bin/nova host restore", "Before=novad.service"] {
        has(&lines, line);
    }
}

#[test]
fn the_host_is_made_ready_for_the_disk_and_the_layout_that_novad_gets() {
    let flags = "--config /etc/nova/novad.toml --data /var/lib/nova --shards 13";
    let lines = unit_lines(&Settings::default(), None);
    has(&lines, &format!("ExecStart=/usr/bin/novad {flags}"));
    has(&lines, &format!("ExecStart=/usr/bin/nova host apply {flags} --goal throughput"));
    let settings = Settings { data: "/mnt/fast/nova".into(), ..Settings::default() };
    let lines = unit_lines(&settings, Some("nvme1n1"));
    let flags = "--config /etc/nova/novad.toml --data /mnt/fast/nova --shards 13";
    has(&lines, &format!("ExecStart=/usr/bin/novad {flags}"));
    has(&lines, &format!("ExecStart=/usr/bin/nova host apply {flags} --goal throughput --device nvme1n1"));
    has(&lines, "ReadWritePaths=/mnt/fast/nova");
}

#[test]
fn the_store_is_told_to_both_and_may_be_written_to() {
    let store = |address: StoreAddress| unit_lines(&Settings { store: address, ..Settings::default() }, None);
    let lines = store(StoreAddress::Directory("/mnt/store".into()));
    let flags = "--config /etc/nova/novad.toml --data /var/lib/nova --store /mnt/store --shards 13";
    has(&lines, &format!("ExecStart=/usr/bin/novad {flags}"));
    has(&lines, &format!("ExecStart=/usr/bin/nova host apply {flags} --goal throughput"));
    has(&lines, "ReadWritePaths=/var/lib/nova /mnt/store");
    let lines = store(StoreAddress::S3 { bucket: "b".to_owned(), prefix: "p/q".to_owned() });
    let flags = "--config /etc/nova/novad.toml --data /var/lib/nova --store s3://b/p/q --shards 13";
    has(&lines, &format!("ExecStart=/usr/bin/novad {flags}"));
    has(&lines, "ReadWritePaths=/var/lib/nova");
}

#[test]
fn units_for_any_host_name_no_cpus_and_carry_the_most_shards() {
    let all = units(&service(None), Fit::Any, &Settings::default());
    let names: Vec<_> = all.iter().map(|unit| unit.name).collect();
    assert_eq!(names, ["novad.service", "nova-host.service", "nova-gateway.service"]);
    let text = texts(&all);
    assert!(!text.contains("CPU") && !text.contains("--shards"), "{text}");
    let (settings, shards) = (Settings::default(), usize::from(SHARDS_MAX));
    let files = open_files_needed(shards, settings.connections_max, settings.surface_connections_max());
    assert!(text.contains(&format!("\nLimitNOFILE={files}\n")), "{text}");
}

#[test]
fn a_file_of_sysctls_has_what_is_off_and_nothing_else() {
    let fake = Fake::server(4, 1, 1);
    let text = sysctl(&fake.findings());
    let settings: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    for line in ["vm.swappiness = 1", "net.ipv4.tcp_rmem = 4096 131072 16777216", "net.core.somaxconn = 4096"] {
        assert!(settings.contains(&line), "{line} is missing: {text}");
    }
    assert!(settings.iter().all(|line| line.split_once(" = ").is_some_and(|(name, _)| !name.contains('/'))), "{text}");
    assert!(!text.contains("tcp_max_syn_backlog"), "it is good: {text}");
    fake.file(SWAPPINESS, "1\n");
    assert!(!sysctl(&fake.findings()).contains("swappiness"));
}

#[test]
fn what_a_file_of_sysctls_would_lose_is_named() {
    let before = "# a word\nvm.swappiness = 1\n ; another\nnet.core.somaxconn=4096\n\n";
    assert_eq!(settings_lost(before, "net.core.somaxconn = 9000\n"), ["vm.swappiness"]);
    assert_eq!(settings_lost(before, before), Vec::<String>::new());
}

#[test]
fn a_unit_that_serves_s2_s_clients_may_open_files_for_them_too() {
    let files = |settings: &Settings| {
        let lines = unit_lines(settings, None);
        let limit = lines.iter().find_map(|line| line.strip_prefix("LimitNOFILE=")).unwrap().parse::<u64>();
        limit.unwrap()
    };
    let without = Settings::default();
    let with = Settings { s2: Listener::At(([127, 0, 0, 1], 8081).into()), ..Settings::default() };
    assert_eq!(files(&with), files(&without) + u64::from(with.http_connections_max));
}
