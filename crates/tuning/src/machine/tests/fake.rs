//! What does a host look like that is only a directory of files?

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::check::{Finding, Subject, Verdict, check};
use crate::host::FileSystem;
use crate::machine::{DataDisk, Machine, Process, RingOps, Told};
use crate::plan::{Goal, HostPlan};
use crate::settings::Settings;

/// A host of files.
pub(crate) struct Fake {
    root: TempDir,
    pub(crate) process: Process,
    pub(crate) disk: DataDisk,
    pub(crate) settings: Settings,
    pub(crate) ring: Option<Told<RingOps>>,
}

impl Fake {
    /// A host of which nothing is to be seen, with so many CPUs for an ordinary user.
    pub(crate) fn blank(cpus: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        let disk = DataDisk {
            data: root.path().join("var/lib/nova"),
            file_system: Ok(FileSystem::Xfs),
            free_bytes: Ok(500 << 30),
            disk_bytes: Ok(1_000 << 30),
            device: Ok((259, 1)),
            direct: Ok(true),
        };
        let process =
            Process { is_root: false, memlock_max: None, files_max: Some(1 << 20), cpus: (0..cpus).collect() };
        Self { root, process, disk, settings: Settings::default(), ring: None }
    }

    /// A server with one NVMe drive, `cores` cores of `threads` threads on `numas` nodes, threads numbered core by core first.
    pub(crate) fn server(cores: usize, threads: usize, numas: usize) -> Self {
        let cpus = cores * threads;
        let fake = Self::blank(cpus);
        fake.file("/sys/devices/system/cpu/online", &format!("0-{}\n", cpus - 1));
        for cpu in 0..cpus {
            let siblings: Vec<String> = (0..threads).map(|thread| (cpu % cores + thread * cores).to_string()).collect();
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
            fake.file(&format!("{folder}/topology/thread_siblings_list"), &siblings.join(","));
            fake.file(&format!("{folder}/cpufreq/scaling_governor"), "powersave\n");
        }
        for numa in 0..numas {
            let of_numa: Vec<String> =
                (0..cpus).filter(|cpu| cpu % cores * numas / cores == numa).map(|cpu| cpu.to_string()).collect();
            fake.file(&format!("/sys/devices/system/node/node{numa}/cpulist"), &of_numa.join(","));
        }
        fake.file("/proc/self/cgroup", "0::/\n");
        fake.file("/proc/meminfo", "MemTotal:       67108864 kB\nHugepagesize:       2048 kB\n");
        fake.drive("nvme0n1");
        fake.nic("eth0", &[40, 41]);
        fake.sysctls();
        fake
    }

    fn sysctls(&self) {
        for (name, value) in [
            ("kernel/io_uring_disabled", "0"),
            ("kernel/osrelease", "6.8.0-45-generic"),
            ("kernel/numa_balancing", "1"),
            ("kernel/nmi_watchdog", "1"),
            ("kernel/core_pattern", "core"),
            ("kernel/random/boot_id", "3f1c\n"),
            ("vm/max_map_count", "65530"),
            ("vm/swappiness", "60\n"),
            ("vm/dirty_background_bytes", "0\n"),
            ("vm/dirty_background_ratio", "10\n"),
            ("vm/dirty_bytes", "0\n"),
            ("vm/dirty_ratio", "20\n"),
            ("vm/nr_hugepages", "0"),
            ("vm/zone_reclaim_mode", "0"),
            ("vm/min_free_kbytes", "67584"),
            ("fs/aio-max-nr", "65536"),
            ("net/core/somaxconn", "128\n"),
            ("net/core/busy_poll", "0"),
            ("net/core/busy_read", "0"),
            ("net/core/rps_sock_flow_entries", "0\n"),
            ("net/ipv4/tcp_max_syn_backlog", "4096"),
            ("net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("net/ipv4/tcp_wmem", "4096\t16384\t4194304\n"),
            ("net/ipv4/tcp_mem", "760000\t1010000\t1520000\n"),
            ("net/ipv4/tcp_slow_start_after_idle", "1\n"),
            ("net/ipv4/tcp_congestion_control", "cubic"),
            ("net/ipv4/ip_local_port_range", "32768\t60999"),
        ] {
            self.file(&format!("/proc/sys/{name}"), value);
        }
        self.file("/proc/swaps", "Filename Type Size Used Priority\n/swapfile file 1 0 -2\n");
        self.file("/proc/stat", "cpu  100 0 100 700 0 0 0 100 0 0\n");
        self.file("/proc/self/stat", "7 (no va) R 1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 5\n");
        self.file("/proc/self/timerslack_ns", "50000\n");
        self.file("/proc/cmdline", "root=/dev/nvme0n1p1\n");
        self.file("/proc/version", "Linux version 6.8.0 #1 SMP PREEMPT Mon\n");
        self.file("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
        self.file("/sys/kernel/mm/transparent_hugepage/defrag", "always defer [madvise] never\n");
        self.file("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
        self.file("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet\n");
        self.file("/run/systemd/timesync/synchronized", "");
    }

    /// A drive with one part that holds the data.
    pub(crate) fn drive(&self, name: &str) {
        let device = format!("/sys/devices/pci/{name}");
        for (file, value) in [
            ("scheduler", "[mq-deadline] kyber none\n"),
            ("nomerges", "0\n"),
            ("rq_affinity", "1\n"),
            ("wbt_lat_usec", "2000\n"),
            ("write_cache", "write back\n"),
            ("fua", "1\n"),
            ("logical_block_size", "512\n"),
            ("physical_block_size", "4096\n"),
            ("io_poll", "0\n"),
            ("rotational", "0\n"),
        ] {
            self.file(&format!("{device}/queue/{file}"), value);
        }
        self.file(&format!("{device}/{name}p1/partition"), "1\n");
        self.link(&format!("/sys/block/{name}"), &device);
        self.link(&format!("/sys/class/block/{name}"), &device);
        self.link(&format!("/sys/class/block/{name}p1"), &format!("{device}/{name}p1"));
        self.link("/sys/dev/block/259:1", &format!("{device}/{name}p1"));
        self.file("/proc/self/mountinfo", "29 1 259:1 / / rw,relatime - xfs /dev/nvme0n1p1 rw,discard\n");
    }

    /// A network device with these interrupts, a queue each.
    pub(crate) fn nic(&self, name: &str, irqs: &[u64]) {
        self.file(&format!("/sys/class/net/{name}/device/numa_node"), "0\n");
        for (queue, irq) in irqs.iter().enumerate() {
            self.file(&format!("/sys/class/net/{name}/device/msi_irqs/{irq}"), "msix\n");
            self.file(&format!("/proc/irq/{irq}/smp_affinity_list"), "0-7\n");
            self.file(&format!("/sys/class/net/{name}/queues/rx-{queue}/rps_cpus"), "00000000\n");
            self.file(&format!("/sys/class/net/{name}/queues/rx-{queue}/rps_flow_cnt"), "0\n");
            self.file(&format!("/sys/class/net/{name}/queues/tx-{queue}/xps_cpus"), "00000000\n");
        }
        self.file("/sys/class/net/lo/mtu", "65536\n");
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        self.bytes(path, text.as_bytes());
    }

    pub(crate) fn bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.path().join(path.trim_start_matches('/'))).unwrap()
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.root.path().join(path.trim_start_matches('/'))).unwrap();
    }

    pub(crate) fn link(&self, path: &str, to: &str) {
        let at = |path: &str| self.root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        fs::create_dir_all(at(to)).unwrap();
        // A later drive takes the number of an earlier one.
        let _gone = fs::remove_file(at(path));
        std::os::unix::fs::symlink(at(to), at(path)).unwrap();
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn machine(&self) -> Machine {
        let mut machine = Machine::new(self.root.path(), self.process.clone(), self.disk.clone());
        machine.ring.clone_from(&self.ring);
        machine
    }

    pub(crate) fn plan(&self) -> HostPlan {
        HostPlan::of(&self.machine(), &self.settings, Goal::Latency)
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        let (machine, plan) = (self.machine(), self.plan());
        check(&Subject { machine: &machine, settings: &self.settings, plan: &plan })
    }

    pub(crate) fn finding(&self, item: &str) -> Finding {
        self.findings().into_iter().find(|finding| finding.item == item).unwrap_or_else(|| panic!("no item {item}"))
    }

    /// The item stands like this, and says that.
    pub(crate) fn expect(&self, item: &str, verdict: Verdict, says: &str) {
        let finding = self.finding(item);
        assert_eq!(finding.verdict, verdict, "{finding:?}");
        assert!(finding.now.contains(says), "'{says}' is not told: {finding:?}");
    }
}
