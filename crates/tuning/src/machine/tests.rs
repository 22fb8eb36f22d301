pub(crate) mod fake;

use super::{CpuList, Sample, chosen, shown};
use fake::Fake;

fn list(text: &str) -> CpuList {
    CpuList::parse(text).unwrap()
}

#[test]
fn lists_of_cpus_are_read_and_written_as_the_kernel_does() {
    for (text, cpus, back) in [
        ("0-3,5", &[0, 1, 2, 3, 5][..], "0-3,5"),
        ("7", &[7], "7"),
        ("", &[], ""),
        ("3,1,2", &[1, 2, 3], "1-3"),
        ("0,0-1", &[0, 1], "0-1"),
    ] {
        assert_eq!((list(text).cpus(), list(text).to_string().as_str()), (cpus, back), "{text}");
    }
    for text in ["3-1", "x", "0-", "-3", "0-99999999999", "0-9999", "0x1", "1 2"] {
        assert_eq!(CpuList::parse(text), None, "{text}");
    }
}

#[test]
fn masks_of_cpus_are_read_and_written_as_the_kernel_does() {
    for (mask, cpus, back) in [
        ("00000003", "0-1", "3"),
        ("ff", "0-7", "ff"),
        ("00000001,00000000", "32", "1,00000000"),
        ("0", "", "0"),
        ("80000000", "31", "80000000"),
    ] {
        let read = CpuList::parse_mask(mask).unwrap();
        assert_eq!((read.to_string().as_str(), read.mask().as_str()), (cpus, back), "{mask}");
    }
    assert_eq!(CpuList::parse_mask("zz"), None);
    assert_eq!(CpuList::parse_mask("123456789"), None);
}

#[test]
fn the_word_in_brackets_is_the_chosen_one() {
    for (words, word) in [
        ("none [mq-deadline] kyber", Some("mq-deadline")),
        ("none", Some("none")),
        ("a b", None),
        ("", None),
        ("[", Some("[")),
    ] {
        assert_eq!(chosen(words), word, "{words}");
    }
}

#[test]
fn what_can_not_be_read_is_told_with_the_file_and_what_it_holds() {
    let fake = Fake::blank(2);
    fake.bytes("/garbage", b"\xff\xfe\0\x1b[2J");
    fake.file("/huge", "99999999999999999999999999\n");
    fake.file("/negative", "-1");
    fake.file("/empty", "");
    fake.file("/folder/file", "");
    let machine = fake.machine();
    for (path, says) in [
        ("/missing", "there is no /missing"),
        ("/garbage", "not a whole number"),
        ("/huge", "`99999999999999999999999999`"),
        ("/negative", "`-1`"),
        ("/empty", "/empty is empty"),
        ("/folder", "/folder can't be read"),
    ] {
        let why = machine.number(path).unwrap_err().to_string();
        assert!(why.contains(says) && !why.contains('\x1b'), "{why}");
    }
    assert_eq!(shown(&"x".repeat(100)).chars().count(), 61);
}

#[test]
fn a_quota_is_the_least_of_a_group_and_those_above_it_in_both_versions() {
    let quota = |fake: &Fake| fake.machine().cpu_quota_millis().unwrap();
    let fake = Fake::blank(2);
    assert!(fake.machine().cpu_quota_millis().is_err());
    fake.file("/proc/self/cgroup", "0::/a/b\n");
    fake.file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_eq!(quota(&fake), None);
    fake.file("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    fake.file("/sys/fs/cgroup/cpu.max", "800000 100000\n");
    assert_eq!(quota(&fake), Some(2_500));
    fake.file("/sys/fs/cgroup/a/b/cpu.max", "150000 0\n");
    assert_eq!(quota(&fake), Some(2_500), "a period of nothing is no quota");

    let fake = Fake::blank(2);
    fake.file("/proc/self/cgroup", "5:cpu,cpuacct:/x\n3:memory:/x\n1:name=systemd:/\n");
    fake.file("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
    assert_eq!(quota(&fake), None);
    fake.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
    fake.file("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_eq!(quota(&fake), Some(500));
    // What leads out of the tree is not followed.
    fake.file("/proc/self/cgroup", "5:cpu,cpuacct:/../..\n:::\nnonsense\n");
    assert_eq!(quota(&fake), Some(500));
}

#[test]
fn memory_is_what_the_groups_leave_of_the_hosts() {
    let fake = Fake::blank(2);
    assert!(fake.machine().memory_bytes().is_err());
    fake.file("/proc/meminfo", "MemTotal:  1048576 kB\n");
    assert_eq!(fake.machine().memory_bytes(), Ok(1 << 30));
    fake.file("/proc/self/cgroup", "3:memory:/x\n");
    fake.file("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
    assert_eq!(fake.machine().memory_bytes(), Ok(1 << 30));
    fake.file("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "536870912\n");
    assert_eq!(fake.machine().memory_bytes(), Ok(512 << 20));
    fake.file("/proc/meminfo", "MemTotal:  99999999999999999999 kB\n");
    assert_eq!(fake.machine().memory_bytes(), Ok(512 << 20));
}

#[test]
fn usable_cpus_are_those_of_the_affinity_within_the_cpuset() {
    let mut fake = Fake::blank(8);
    fake.file("/proc/self/cgroup", "0::/pod\n");
    fake.file("/sys/fs/cgroup/pod/cpuset.cpus.effective", "2-3\n");
    assert_eq!(fake.machine().cpus_usable(), list("2-3"));
    fake.file("/sys/fs/cgroup/pod/cpuset.cpus.effective", "many\n");
    assert_eq!(fake.machine().cpus_usable(), list("0-7"));
    fake.process.cpus = vec![5];
    fake.file("/sys/fs/cgroup/pod/cpuset.cpus.effective", "0-1\n");
    assert_eq!(fake.machine().cpus_usable(), list("5"), "a cpuset that can't be right does not count");
}

#[test]
fn cores_are_told_by_siblings_and_nodes() {
    let fake = Fake::server(4, 2, 2);
    let cores = fake.machine().cores(&list("0-7"));
    let shown: Vec<String> = cores.iter().map(|core| format!("{}@{:?}", core.cpus, core.numa)).collect();
    assert_eq!(shown, ["0,4@Some(0)", "1,5@Some(0)", "2,6@Some(1)", "3,7@Some(1)"]);
    let alone = Fake::blank(2).machine().cores(&list("0-1"));
    assert_eq!(alone.len(), 2, "without siblings each is a core");
}

#[test]
fn the_data_lie_on_the_disks_below_parts_volumes_and_file_systems() {
    let mut fake = Fake::server(2, 1, 1);
    assert_eq!(fake.machine().data_disks().unwrap(), ["nvme0n1"]);
    // A volume over two drives.
    fake.drive("nvme1n1");
    fake.link("/sys/dev/block/253:0", "/sys/devices/virtual/dm-0");
    fake.link("/sys/block/dm-0", "/sys/devices/virtual/dm-0");
    fake.file("/sys/devices/virtual/dm-0/slaves/nvme0n1p1/dev", "259:1");
    fake.file("/sys/devices/virtual/dm-0/slaves/nvme1n1p1/dev", "259:2");
    fake.disk.device = Ok((253, 0));
    assert_eq!(fake.machine().data_disks().unwrap(), ["nvme0n1", "nvme1n1"]);
    // A file system with a number of its own, which the mounts explain.
    fake.disk.device = Ok((0, 42));
    let why = fake.machine().data_disks().unwrap_err().to_string();
    assert!(why.contains("0:42") && why.contains("--device"), "{why}");
    fake.file("/proc/self/mountinfo", "30 1 0:42 / /data rw - btrfs /dev/nvme1n1p1 rw\n");
    assert_eq!(fake.machine().data_disks().unwrap(), ["nvme1n1"]);
    let mut machine = fake.machine();
    machine.device = Some("/dev/nvme0n1".to_owned());
    assert_eq!(machine.data_disks().unwrap(), ["nvme0n1"]);
    machine.device = Some("sdx".to_owned());
    assert!(machine.data_disks().unwrap_err().to_string().contains("sdx"));
}

#[test]
fn interrupts_are_found_by_folder_and_by_name() {
    let fake = Fake::server(2, 1, 1);
    let machine = fake.machine();
    assert_eq!(machine.nics().unwrap(), ["eth0"]);
    assert_eq!(machine.nic_irqs("eth0").unwrap(), [40, 41]);
    fake.file("/sys/class/net/eth1/device/x", "");
    fake.file("/proc/interrupts", "   CPU0\n 50:  1  PCI-MSI  eth1-TxRx-0\n 51:  1  PCI-MSI  eth10-rx\nNMI: 0\n");
    fake.file("/proc/irq/50/smp_affinity_list", "0\n");
    fake.file("/proc/irq/51/smp_affinity_list", "0\n");
    assert_eq!(machine.nic_irqs("eth1").unwrap(), [50], "eth10 is another device");
    assert!(machine.nic_irqs("eth2").is_err());
}

#[test]
fn what_is_counted_is_counted_between_two_looks() {
    let fake = Fake::server(2, 1, 1);
    let mut machine = fake.machine();
    assert_eq!(machine.steal_basis_points(), Ok(1_000));
    machine.before = Some(Sample::of(&machine));
    fake.file("/proc/stat", "cpu  100 0 100 1690 0 0 0 110 0 0\n");
    assert_eq!(machine.steal_basis_points(), Ok(100));
    // Counters may begin anew.
    fake.file("/proc/stat", "cpu  1 0 1 1 0 0 0 1 0 0\n");
    assert_eq!(machine.steal_basis_points(), Ok(0));
    fake.file("/proc/stat", "intr 5\n");
    assert!(machine.steal_basis_points().is_err());
}
