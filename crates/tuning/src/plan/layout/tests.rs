use super::{Goal, HostPlan};
use crate::machine::tests::fake::Fake;
use crate::machine::{CpuList, Unknown};
use crate::measured::CommitMethod;
use crate::plan::Plan;
use crate::settings::{Layers, LogSync, Settings};

/// What the plan lays out: CPUs of interrupts, of the background, of shards.
fn laid(fake: &Fake, goal: Goal) -> (String, String, String) {
    let plan = HostPlan::of(&fake.machine(), &fake.settings, goal);
    let shards = CpuList::new(plan.shards().iter().map(|shard| shard.cpu));
    // What novad does by itself on those CPUs is the plan.
    let count = u16::try_from(plan.shards().len()).unwrap();
    let own = Plan::new(count, plan.cpus().cpus());
    assert_eq!(own.shard_cpus(), plan.shards().iter().map(|shard| shard.cpu).collect::<Vec<_>>());
    assert_eq!(CpuList::new(own.control_cpus().iter().copied()), plan.control_cpus());
    (plan.irq_cpus().to_string(), plan.control_cpus().to_string(), shards.to_string())
}

fn check(fake: &Fake, goal: Goal, irq: &str, control: &str, shards: &str) {
    let found = laid(fake, goal);
    assert_eq!((found.0.as_str(), found.1.as_str(), found.2.as_str()), (irq, control, shards));
}

#[test]
fn few_cpus_are_shared_with_interrupts() {
    check(&Fake::server(1, 1, 1), Goal::Latency, "", "0", "0");
    check(&Fake::server(2, 1, 1), Goal::Latency, "", "0", "1");
    check(&Fake::server(1, 2, 1), Goal::Latency, "", "0", "1");
    check(&Fake::server(4, 1, 1), Goal::Latency, "", "0", "1-3");
    check(&Fake::server(2, 2, 1), Goal::Latency, "", "0", "1-3");
}

#[test]
fn interrupts_come_first_then_the_background_then_shards() {
    check(&Fake::server(8, 1, 1), Goal::Latency, "0", "1", "2-7");
    check(&Fake::server(32, 1, 1), Goal::Latency, "0-1", "2-4", "5-31");
}

#[test]
fn a_core_a_shard_or_a_thread_a_shard() {
    let fake = Fake::server(8, 2, 1);
    check(&fake, Goal::Latency, "0,8", "1,9", "10-15");
    check(&fake, Goal::Throughput, "0,8", "1", "2-7,9-15");
    let plan = HostPlan::of(&fake.machine(), &fake.settings, Goal::Latency);
    assert_eq!(plan.shards()[0].idle, CpuList::new([2]));
    assert!(!plan.cpus().has(2));
}

#[test]
fn threads_that_are_numbered_side_by_side_are_told_apart_as_well() {
    let fake = Fake::server(4, 2, 1);
    for cpu in 0..8 {
        let core = cpu / 2 * 2;
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        fake.file(&path, &format!("{core}-{}", core + 1));
    }
    check(&fake, Goal::Latency, "0-1", "2-3", "5,7");
}

#[test]
fn interrupts_are_near_the_network_device_and_spread_over_nodes() {
    let fake = Fake::server(32, 1, 2);
    fake.file("/sys/class/net/eth0/device/numa_node", "1\n");
    check(&fake, Goal::Latency, "0,16", "1-3", "4-15,17-31");
    let plan = fake.plan();
    assert_eq!(plan.shards()[0].numa, Some(0));
    assert_eq!(plan.shards().last().unwrap().numa, Some(1));
    fake.file("/sys/class/net/eth0/device/numa_node", "-1\n");
    assert_eq!(fake.plan().irq_cpus().to_string(), "0,16");
}

#[test]
fn a_part_of_a_host_has_no_interrupts_of_its_own() {
    let mut fake = Fake::server(16, 1, 1);
    fake.process.cpus = (4..12).collect();
    check(&fake, Goal::Latency, "", "4", "5-11");
}

#[test]
fn a_quota_bounds_the_shards() {
    let fake = Fake::server(16, 1, 1);
    fake.file("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    check(&fake, Goal::Latency, "", "0-12", "13-15");
    fake.file("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_eq!(fake.plan().shards().len(), 1);
}

#[test]
fn what_is_asked_for_is_laid_out_and_told_when_it_does_not_suit() {
    let mut fake = Fake::server(8, 1, 1);
    fake.settings.shards = 2;
    check(&fake, Goal::Latency, "0", "1-5", "6-7");
    fake.settings.shards = 20;
    let plan = fake.plan();
    assert_eq!((plan.shards().len(), plan.shares_cores()), (20, true));
    assert!(plan.notes().iter().any(|note| note.contains("20 shards are asked for, and 6 suit")), "{:?}", plan.notes());
}

/// What novad makes of a plan.
fn taken(fake: &Fake, text: &str) -> Settings {
    fake.file("/plan.toml", text);
    let layers =
        Layers::default().file(&fake.root().join("plan.toml")).unwrap_or_else(|error| panic!("{error}: {text}"));
    layers.finish().unwrap_or_else(|error| panic!("{error}: {text}")).settings().clone()
}

#[test]
fn novad_takes_the_plan_as_it_is() {
    let mut fake = Fake::server(16, 2, 2);
    fake.settings.data = "/var/lib/\"nova\"".into();
    let measured = CommitMethod {
        sync: LogSync::Fdatasync,
        inline_commit: false,
        commits_in_flight: 4,
        how: "64KiB: 120 µs\nagainst 250".to_owned(),
    };
    let text = fake.plan().file(&fake.machine(), &fake.settings, Some(&measured));
    let settings = taken(&fake, &text);
    assert_eq!(usize::from(settings.shards), fake.plan().shards().len());
    assert_eq!(settings.data, fake.settings.data);
    let log = &settings.log;
    assert_eq!((log.sync, log.inline_commit, log.commits_in_flight), (LogSync::Fdatasync, false, 4));
    let memory = &settings.memory;
    let total = memory.shard_bytes_max.get() * u64::from(settings.shards) + memory.control_bytes_max.get();
    assert!(total < 60 << 30 && total > 50 << 30, "{total}");
    let logs = settings.log.bytes_max.get() * u64::from(settings.shards);
    assert!(logs <= 200 << 30, "the store lies beside them: {logs}");
    for words in
        ["interrupts  CPU 0,16", "background  CPU 1,17", "shard 0", "NUMA node 0", "stays idle", "AllowedCPUs="]
    {
        assert!(text.contains(words), "{words} is not told: {text}");
    }
}

#[test]
fn every_host_has_a_plan_that_novad_takes() {
    for (cores, threads, memory_kib, free) in [
        (1, 1, 262_144_u64, 0_u64),
        (2, 1, 1 << 20, 1 << 30),
        (4, 2, 1 << 24, 100 << 30),
        (64, 2, 1 << 30, 30 << 40),
        (3, 1, 0, 7),
    ] {
        let mut fake = Fake::server(cores, threads, 1);
        fake.file("/proc/meminfo", &format!("MemTotal: {memory_kib} kB\n"));
        fake.disk.free_bytes = Ok(free);
        fake.process.files_max = Some(4_096);
        for goal in [Goal::Latency, Goal::Throughput] {
            let plan = HostPlan::of(&fake.machine(), &fake.settings, goal);
            let settings = taken(&fake, &plan.file(&fake.machine(), &fake.settings, None));
            assert_eq!(usize::from(settings.shards), plan.shards().len());
        }
    }
}

#[test]
fn what_can_not_be_told_is_left_to_the_defaults() {
    let mut fake = Fake::blank(4);
    fake.disk.free_bytes = Err(Unknown::because("nobody knows"));
    let text = fake.plan().file(&fake.machine(), &fake.settings, None);
    assert!(text.contains("# Sizes are left as they are: nobody knows"), "{text}");
    let settings = taken(&fake, &text);
    assert_eq!(
        (settings.shards, settings.log, settings.memory),
        (3, Settings::default().log, Settings::default().memory)
    );
}
