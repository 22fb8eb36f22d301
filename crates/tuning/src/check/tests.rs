use std::collections::BTreeSet;

use super::{Severity, Verdict, item, items, worst};
use crate::host::FileSystem;
use crate::machine::tests::fake::Fake;
use crate::machine::{RingOps, Unknown};
use crate::settings::{Listener, StoreAddress};

#[test]
fn each_item_has_a_name_of_its_own_and_says_why() {
    let names: BTreeSet<&str> = items().map(|item| item.name).collect();
    assert_eq!(names.len(), items().count());
    for item in items() {
        let is_plain = item.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        assert!(is_plain && !item.why.is_empty() && !item.more.is_empty() && !item.wanted.is_empty(), "{item:?}");
        assert!(!item.why.ends_with('.') && !item.more.contains("  "), "{item:?}");
    }
    assert!(item("swap").is_some() && item("nothing").is_none());
}

#[test]
fn a_host_of_which_nothing_can_be_read_is_unknown_and_never_a_crash() {
    let mut fake = Fake::blank(2);
    fake.disk.device = Err(Unknown::because("no"));
    fake.disk.file_system = Err(Unknown::because("no"));
    fake.disk.free_bytes = Err(Unknown::because("no"));
    let findings = fake.findings();
    assert_eq!(findings.len(), items().count());
    let told = ["memlock", "open-files", "cpus", "core-threads", "interrupt-cpus"];
    for finding in findings.iter().filter(|finding| !told.contains(&finding.item)) {
        assert!(finding.verdict != Verdict::Off || finding.item == "store", "{finding:?}");
        assert!(!finding.now.is_empty() && finding.changes.is_empty(), "{finding:?}");
    }
    assert!(findings.iter().filter(|finding| finding.verdict == Verdict::Unknown).count() > 30);
}

#[test]
fn files_full_of_anything_are_unknown_and_never_a_crash() {
    let garbage: [&[u8]; 6] = [b"", b"\xff\xfe\x00\x01", b"-1\n", b"999999999999999999999999", b"a b c d", b"[\n"];
    for bytes in garbage {
        let fake = Fake::server(4, 2, 2);
        let mut paths = Vec::new();
        files(fake.root(), &mut paths);
        for path in &paths {
            std::fs::write(path, bytes).unwrap();
        }
        for finding in fake.findings() {
            assert!(!finding.now.contains(['\n', '\u{1b}']), "{finding:?}");
        }
        assert!(!fake.plan().shards().is_empty());
    }
}

fn files(folder: &std::path::Path, paths: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&entry.path(), paths);
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
}

#[test]
fn a_server_as_it_comes_is_told_what_to_change() {
    let fake = Fake::server(8, 2, 2);
    for (item, says) in [
        ("scheduler", "nvme0n1: mq-deadline"),
        ("write-back-throttle", "2000"),
        ("discard", "discard"),
        ("numa", "1, nodes 0: 0-3,8-11, 1: 4-7,12-15"),
        ("governor", "powersave"),
        ("interrupt-cpus", "eth0 40: 0-7"),
        ("swap", "swappiness 60"),
        ("huge-pages-transparent", "always"),
        ("dirty-limits", "10 %, 20 %"),
        ("accept-backlog", "128"),
        ("slow-start-after-idle", "1"),
        ("steal", "10.00 %"),
    ] {
        fake.expect(item, Verdict::Off, says);
        assert!(!fake.finding(item).fix.is_empty(), "{item}");
    }
    for item in
        ["io-uring", "kernel", "write-cache", "sectors", "rotational", "file-system", "clock-source", "clock-sync"]
    {
        assert_eq!(fake.finding(item).verdict, Verdict::Good, "{:?}", fake.finding(item));
    }
    assert_eq!(worst(&fake.findings()), Some(Severity::Warn));
}

#[test]
fn a_file_that_mends_an_item_is_named_with_its_value() {
    let fake = Fake::server(8, 1, 1);
    let fix = |item: &str| fake.finding(item).fix;
    assert_eq!(fix("swap"), "sysctl -w vm.swappiness=1");
    assert_eq!(fix("scheduler"), "echo none > /sys/block/nvme0n1/queue/scheduler");
    assert_eq!(fix("receive-buffers"), "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216'");
    assert_eq!(
        fix("interrupt-cpus"),
        "echo 0 > /proc/irq/40/smp_affinity_list; echo 0 > /proc/irq/41/smp_affinity_list"
    );
}

#[test]
fn io_uring_is_allowed_or_not_by_switch_user_and_filter() {
    let mut fake = Fake::server(2, 1, 1);
    fake.remove("/proc/sys/kernel/io_uring_disabled");
    fake.expect("io-uring", Verdict::Good, "0");
    fake.file("/proc/sys/kernel/io_uring_disabled", "1\n");
    fake.expect("io-uring", Verdict::Off, "1");
    assert_eq!(fake.finding("io-uring").severity, Severity::Fatal);
    fake.process.is_root = true;
    fake.expect("io-uring", Verdict::Good, "1");
    fake.file("/proc/self/status", "Name:\tnova\nSeccomp:\t2\n");
    fake.expect("io-uring", Verdict::Unknown, "seccomp");
    fake.file("/proc/sys/kernel/io_uring_disabled", "2\n");
    fake.expect("io-uring", Verdict::Off, "2");
}

#[test]
fn a_ring_tells_what_a_filter_lets_through_and_which_operations_are_there() {
    let mut fake = Fake::server(2, 1, 1);
    fake.expect("io-uring-operations", Verdict::Unknown, "no ring was opened");
    fake.ring = Some(Ok(RingOps::of(|_| true)));
    fake.expect("io-uring-operations", Verdict::Good, "all 24");
    fake.file("/proc/self/status", "Name:\tnova\nSeccomp:\t2\n");
    fake.expect("io-uring", Verdict::Good, "lets rings through");
    fake.ring = Some(Err(Unknown::because("no ring can be opened: not permitted")));
    fake.expect("io-uring-operations", Verdict::Unknown, "no ring can be opened");
    fake.expect("io-uring", Verdict::Off, "no ring can be opened");
    assert!(fake.finding("io-uring").fix.contains("seccomp=FILE"));
    fake.file("/proc/self/status", "Name:\tnova\nSeccomp:\t0\n");
    fake.expect("io-uring", Verdict::Off, "no ring can be opened");
    fake.ring = Some(Ok(RingOps::of(|code| code != 17)));
    fake.expect("io-uring-operations", Verdict::Off, "1 of 24 missing: FALLOCATE");
    assert_eq!(worst(&fake.findings()), Some(Severity::Fatal));
}

#[test]
fn limits_that_are_too_small_are_told_with_what_would_do() {
    let mut fake = Fake::server(4, 1, 1);
    fake.process.memlock_max = Some(64 << 10);
    fake.process.files_max = Some(1_024);
    fake.expect("memlock", Verdict::Off, "64KiB");
    assert!(fake.finding("memlock").fix.contains("ulimit -l 1536"), "{:?}", fake.finding("memlock"));
    fake.expect("open-files", Verdict::Off, "1024");
    assert_eq!(worst(&fake.findings()), Some(Severity::Fatal));
    fake.process.memlock_max = Some(8 << 20);
    fake.expect("memlock", Verdict::Good, "8MiB");
}

#[test]
fn connections_of_s2_s_clients_are_counted_as_novad_counts_them() {
    let mut fake = Fake::server(4, 1, 1);
    let needed = |fake: &Fake| fake.finding("open-files").wanted.split(',').next().unwrap().parse::<u64>().unwrap();
    let without = needed(&fake);
    fake.settings.s2 = Listener::At(([127, 0, 0, 1], 8081).into());
    assert_eq!(needed(&fake), without + u64::from(fake.settings.http_connections_max));
    fake.process.files_max = Some(without);
    assert_eq!(fake.finding("open-files").verdict, Verdict::Off);
}

#[test]
fn a_container_with_a_quota_is_judged_by_it() {
    let fake = Fake::server(4, 1, 1);
    fake.file("/proc/self/cgroup", "0::/\n");
    fake.file("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    fake.file("/sys/fs/cgroup/cpu.stat", "usage_usec 5\nnr_throttled 12\n");
    fake.file("/sys/fs/cgroup/memory.max", "1073741824\n");
    fake.file("/.dockerenv", "");
    assert_eq!(fake.machine().container(), Some("docker"));
    fake.expect("cpu-quota", Verdict::Off, "1.500 CPUs, used up in 12 periods");
    fake.expect("memory", Verdict::Off, "1GiB");
    fake.expect("memory-fits", Verdict::Off, "1GiB of 1GiB");
    assert_eq!(fake.plan().shards().len(), 1);
    fake.expect("interrupt-cpus", Verdict::Absent, "shared");
    fake.remove("/run/systemd/timesync/synchronized");
    fake.expect("clock-sync", Verdict::Unknown, "container");
}

#[test]
fn a_file_system_that_keeps_nothing_is_fatal_and_a_doubtful_one_a_warning() {
    let mut fake = Fake::server(2, 1, 1);
    fake.disk.file_system = Ok(FileSystem::Tmpfs);
    fake.expect("file-system", Verdict::Off, "tmpfs");
    assert_eq!(fake.finding("file-system").severity, Severity::Fatal);
    fake.disk.file_system = Ok(FileSystem::Overlay);
    assert_eq!(fake.finding("file-system").severity, Severity::Warn);
    fake.disk.file_system = Ok(FileSystem::Ext);
    fake.disk.direct = Ok(false);
    fake.expect("file-system", Verdict::Off, "refuses direct I/O");
    fake.disk.direct = Err(Unknown::because("no file can be made there"));
    fake.expect("file-system", Verdict::Good, "no file can be made");
}

#[test]
fn virtual_disks_may_keep_their_deadlines_and_unsafe_caches_are_never_written() {
    let mut fake = Fake::server(2, 1, 1);
    fake.drive("vda");
    fake.disk.device = Ok((252, 0));
    let set = |file: &str, value: &str| fake.file(&format!("/sys/devices/pci/vda/queue/{file}"), value);
    set("fua", "0\n");
    set("rotational", "1\n");
    fake.link("/sys/dev/block/252:0", "/sys/devices/pci/vda");
    fake.expect("scheduler", Verdict::Good, "vda: mq-deadline");
    fake.expect("write-cache", Verdict::Off, "vda: write back, fua 0");
    fake.expect("rotational", Verdict::Off, "vda: 1");
    assert_eq!(fake.finding("rotational").severity, Severity::Info);
    for item in ["write-cache", "rotational", "sectors"] {
        assert!(fake.finding(item).changes.is_empty(), "{item}");
    }
    set("scheduler", "[bfq] mq-deadline\n");
    assert!(fake.finding("scheduler").changes.is_empty(), "there is no none to be chosen");
}

#[test]
fn sleep_states_preemption_and_isolation_are_those_of_the_shards_cpus() {
    let fake = Fake::server(8, 1, 1);
    for cpu in 0..8 {
        for (state, latency) in [("state0", 0), ("state1", 2), ("state2", 133)] {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/{state}");
            fake.file(&format!("{folder}/latency"), &latency.to_string());
            fake.file(&format!("{folder}/disable"), "0\n");
        }
    }
    fake.expect("sleep-states", Verdict::Off, "133");
    let changes = fake.finding("sleep-states").changes;
    assert_eq!(changes.len(), fake.plan().shards().len());
    assert!(changes.iter().all(|change| change.path.ends_with("state2/disable") && change.value == "1"));
    fake.expect("preemption", Verdict::Good, "full");
    fake.file("/sys/kernel/debug/sched/preempt", "(none) voluntary full lazy\n");
    fake.expect("preemption", Verdict::Off, "none");
    fake.expect("isolation", Verdict::Off, "not isolated");
    fake.file("/proc/cmdline", "isolcpus=domain,managed_irq,1-7 quiet\n");
    fake.expect("isolation", Verdict::Good, "2-7");
    fake.file("/proc/self/stat", "7 (a) b) R 1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 10 1 0 5\n");
    fake.expect("priority", Verdict::Off, "10");
}

#[test]
fn what_balances_interrupts_is_seen_by_its_process() {
    let fake = Fake::server(8, 1, 1);
    fake.expect("irqbalance", Verdict::Good, "not running");
    fake.file("/proc/77/comm", "irqbalance\n");
    fake.bytes("/proc/77/cmdline", b"/usr/sbin/irqbalance\0--foreground\0");
    fake.expect("irqbalance", Verdict::Off, "irqbalance --foreground");
    fake.bytes("/proc/77/cmdline", b"/usr/sbin/irqbalance\0--banirq=40\0");
    assert_eq!(fake.finding("irqbalance").verdict, Verdict::Good);
}

#[test]
fn packets_are_steered_where_queues_are_fewer_than_shards() {
    let fake = Fake::server(8, 1, 1);
    let finding = fake.finding("packet-steering");
    let paths: Vec<&str> = finding.changes.iter().map(|change| change.path.as_str()).collect();
    assert!(paths.contains(&"/sys/class/net/eth0/queues/rx-0/rps_cpus"), "{paths:?}");
    assert!(paths.contains(&"/proc/sys/net/core/rps_sock_flow_entries"), "{paths:?}");
    assert_eq!(finding.changes[0].value, "fc", "the shards' CPUs");
    fake.file("/sys/class/net/eth0/queues/rx-0/rps_cpus", "fc\n");
    fake.file("/sys/class/net/eth0/queues/rx-1/rps_cpus", "fc\n");
    assert_eq!(fake.finding("packet-steering").verdict, Verdict::Good);
}

#[test]
fn a_store_is_judged_by_where_it_is() {
    let mut fake = Fake::server(2, 1, 1);
    fake.expect("store", Verdict::Off, "in the data directory");
    assert_eq!(fake.finding("store").severity, Severity::Info);
    fake.settings.store = StoreAddress::S3 { bucket: "b".to_owned(), prefix: String::new() };
    fake.expect("store", Verdict::Unknown, "selftest");
}

#[test]
fn segments_with_holes_are_seen() {
    let fake = Fake::server(2, 1, 1);
    fake.expect("log-files", Verdict::Absent, "no segments");
    for number in 0..3 {
        fake.bytes(&format!("/var/lib/nova/log/0/seg-{number}"), &vec![1; 1 << 16]);
    }
    fake.expect("log-files", Verdict::Good, "0 of 3");
    for number in 3..6 {
        let path = fake.root().join(format!("var/lib/nova/log/0/seg-{number}"));
        std::fs::File::create(path).unwrap().set_len(1 << 16).unwrap();
    }
    fake.expect("log-files", Verdict::Off, "3 of 6");
}
