//! May the process use `io_uring`, lock memory and open files as it needs?

use super::{Item, Look, Severity, Subject, at_least};
use crate::host::KernelRelease;
use crate::machine::{RingOps, Told, Unknown};
use crate::start::{memlock_needed, open_files_needed};
use crate::units::Bytes;

/// Memory maps that a process has by default, and that many segments and arenas may need.
const MAPS_MIN: u64 = 262_144;

pub(super) const ITEMS: &[Item] = &[
    Item {
        name: "io-uring",
        severity: Severity::Fatal,
        wanted: "0, and no filter in the way",
        why: "shards do all of their input and output through io_uring",
        more: "Read from /proc/sys/kernel/io_uring_disabled: 0 lets everybody use it, 1 only root and the group of \
               io_uring_group, 2 nobody. A kernel without the file has no such switch. A seccomp filter, as container runtimes \
               have one, is told by /proc/self/status; whether it lets rings through is seen by opening one, here for a moment. \
               For Docker: --security-opt seccomp=FILE with the io_uring calls allowed.",
        look: io_uring,
    },
    Item {
        name: "io-uring-operations",
        severity: Severity::Fatal,
        wanted: "every one that shards need",
        why: "the runtime of a shard asks the kernel for them as it starts, and ends novad when one is missing",
        more: "Asked of a ring that this process opens and closes (IORING_REGISTER_PROBE), so it holds for the kernel and the \
               container that it runs in. All of them are there from 5.8 on; a kernel in user space may lack some.",
        look: operations,
    },
    Item {
        name: "kernel",
        severity: Severity::Warn,
        wanted: "6.1 or newer",
        why: "older kernels lack operations that a ring is quicker with, and 5.15 stalls on large direct reads",
        more: "Rings need 5.8; COOP_TASKRUN, with which a shard serves about twice the load, 5.19; single-issuer rings 6.1. The \
               release is that of /proc/sys/kernel/osrelease.",
        look: kernel,
    },
    Item {
        name: "memlock",
        severity: Severity::Fatal,
        wanted: "unlimited, or enough for every shard",
        why: "a ring and its buffers stay in memory, and the kernel counts them against RLIMIT_MEMLOCK",
        more: "The hard limit of this process; novad raises its soft one by itself. `LimitMEMLOCK=infinity` in a unit, \
               `--ulimit memlock=-1` for Docker, /etc/security/limits.conf for a login.",
        look: memlock,
    },
    Item {
        name: "open-files",
        severity: Severity::Warn,
        wanted: "enough for every connection",
        why: "each connection, segment and ring is an open file, and novad does not start with fewer than its settings ask for",
        more: "The hard limit of this process (RLIMIT_NOFILE), which the kernel bounds by /proc/sys/fs/nr_open. `LimitNOFILE=` in a \
               unit, `--ulimit nofile=` for Docker; or lower connections_max and http_connections_max.",
        look: open_files,
    },
    Item {
        name: "aio",
        severity: Severity::Info,
        wanted: "anything",
        why: "nova does not use it; other programs that measure disks may",
        more: "Read from /proc/sys/fs/aio-max-nr. fio with libaio needs as many as it has requests in flight.",
        look: |subject| Ok(Look::good(subject.machine.number("/proc/sys/fs/aio-max-nr")?.to_string())),
    },
    Item {
        name: "memory-maps",
        severity: Severity::Info,
        wanted: "262144 or more",
        why: "allocators map memory in many pieces, and a process that may map no more is refused memory",
        more: "Read from /proc/sys/vm/max_map_count. Each map costs the kernel some 200 bytes, and only when it is made.",
        look: |subject| at_least(subject, "/proc/sys/vm/max_map_count", MAPS_MIN),
    },
];

fn io_uring(subject: &Subject<'_>) -> Told<Look> {
    let path = "/proc/sys/kernel/io_uring_disabled";
    let machine = subject.machine;
    // A kernel without the switch has the folder all the same.
    let is_without = !machine.has(path) && machine.has("/proc/sys/kernel");
    let switch = if is_without { 0 } else { machine.number(path)? };
    let status = machine.text("/proc/self/status").unwrap_or_default();
    let filter = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
    let is_allowed = switch == 0 || (switch == 1 && machine.process.is_root);
    if !is_allowed {
        return Ok(Look::off(switch.to_string()).set(path, "0"));
    }
    let is_filtered = filter == Some("2");
    match &machine.ring {
        Some(Err(why)) if is_filtered => {
            let now = format!("{switch}, but a seccomp filter is in place, and {why}");
            Ok(Look::off(now).fix("let the io_uring calls through the filter: --security-opt seccomp=FILE for Docker"))
        }
        Some(Err(why)) => Ok(Look::off(format!("{switch}, but {why}")).fix("let this process use io_uring")),
        Some(Ok(_)) if is_filtered => Ok(Look::good(format!("{switch}, and a seccomp filter lets rings through"))),
        None if is_filtered => {
            let why = "0, but a seccomp filter is in place; `nova host selftest` opens a ring and tells";
            Err(Unknown::because(why))
        }
        Some(Ok(_)) | None => Ok(Look::good(switch.to_string())),
    }
}

fn operations(subject: &Subject<'_>) -> Told<Look> {
    let ring = subject.machine.ring.clone();
    let ops = ring.unwrap_or_else(|| Err(Unknown::because("no ring was opened to be asked")))?;
    let (missing, needed) = (ops.missing(), RingOps::NEEDED);
    if missing.is_empty() {
        return Ok(Look::good(format!("all {needed}")));
    }
    let now = format!("{} of {needed} missing: {}", missing.len(), missing.join(", "));
    Ok(Look::off(now).fix("boot a newer kernel, or run novad where nothing stands between it and the kernel"))
}

fn kernel(subject: &Subject<'_>) -> Told<Look> {
    let text = subject.machine.words("/proc/sys/kernel/osrelease")?;
    let release = KernelRelease::parse(&text)
        .ok_or_else(|| Unknown::because(format!("`{}` starts with no version", crate::machine::shown(&text))))?;
    let is_good = release >= KernelRelease::RECOMMENDED;
    Ok(Look::judged(is_good, release.to_string()).fix("boot a newer kernel"))
}

fn memlock(subject: &Subject<'_>) -> Told<Look> {
    let needed = memlock_needed(subject.shards());
    let (now, is_good) = match subject.machine.process.memlock_max {
        None => ("unlimited".to_owned(), true),
        Some(bytes) => (Bytes::new(bytes).to_string(), bytes >= needed),
    };
    let kib = needed / 1_024;
    let fix = format!("LimitMEMLOCK=infinity in the unit, --ulimit memlock=-1 of a container, or `ulimit -l {kib}`");
    Ok(Look::judged(is_good, now).wants(format!("unlimited, or {} at least", Bytes::new(needed))).fix(fix))
}

fn open_files(subject: &Subject<'_>) -> Told<Look> {
    let settings = subject.settings;
    let shards = subject.plan.shards().len();
    let needed = open_files_needed(shards, settings.connections_max, settings.surface_connections_max());
    let (now, is_good) = match subject.machine.process.files_max {
        None => ("unlimited".to_owned(), true),
        Some(files) => (files.to_string(), files >= needed),
    };
    let fix =
        format!("LimitNOFILE={needed} in the unit, --ulimit nofile={needed} of a container, or `ulimit -n {needed}`");
    let wanted = format!("{needed}, with connections_max = {}", settings.connections_max);
    Ok(Look::judged(is_good, now).wants(wanted).fix(fix))
}
