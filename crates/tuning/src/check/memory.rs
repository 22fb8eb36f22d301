//! Does the shards' memory stay in memory, and is there enough of it?

use super::disk::about;
use super::{Change, Item, Look, Severity, Subject, exactly};
use crate::machine::{Told, Unknown};

/// Memory that a shard is at ease with: its records, its streams, and what the kernel does for it.
const SHARD_BYTES_EASE: u64 = 2 << 30;
const DIRTY_BACKGROUND: (&str, &str, u64) =
    ("/proc/sys/vm/dirty_background_bytes", "/proc/sys/vm/dirty_background_ratio", 256 << 20);
const DIRTY: (&str, &str, u64) = ("/proc/sys/vm/dirty_bytes", "/proc/sys/vm/dirty_ratio", 1 << 30);

pub(super) const ITEMS: &[Item] = &[
    Item {
        name: "swap",
        severity: Severity::Warn,
        wanted: "no swap, or vm.swappiness of 1 or less",
        why: "a shard whose memory was swapped out stands still until it is read back",
        more: "Read from /proc/swaps and /proc/sys/vm/swappiness. 1 keeps swap for the case that memory runs out. `grep VmSwap \
               /proc/$(pidof novad)/status` shows what of novad is swapped out.",
        look: swap,
    },
    Item {
        name: "huge-pages-transparent",
        severity: Severity::Warn,
        wanted: "madvise",
        why: "with always a process grows by what it never touches, and the kernel stops it to make large pages",
        more: "Read from /sys/kernel/mm/transparent_hugepage/enabled and defrag.",
        look: transparent,
    },
    Item {
        name: "huge-pages",
        severity: Severity::Info,
        wanted: "0, unless something else uses them",
        why: "memory that is set aside as huge pages is missing elsewhere, and novad does not take it",
        more: "Read from /proc/sys/vm/nr_hugepages and /proc/meminfo.",
        look: huge,
    },
    Item {
        name: "dirty-limits",
        severity: Severity::Info,
        wanted: "256MiB in the background, 1GiB at most",
        why: "what others write through the page cache goes out in one flood, and commits queue behind it",
        more: "Read from vm.dirty_background_bytes and vm.dirty_bytes; 0 means that the share in the matching _ratio counts, which on a \
               large machine is many gigabytes.",
        look: dirty,
    },
    Item {
        name: "memory",
        severity: Severity::Warn,
        wanted: "2GiB a shard",
        why: "records near the tail are served from memory, and what does not fit is refused or read from disk",
        more: "The least of what the host has (MemTotal) and what the process's cgroups allow (memory.max, memory.limit_in_bytes). \
               `nova host plan` says how it is divided.",
        look: memory,
    },
    Item {
        name: "memory-fits",
        severity: Severity::Fatal,
        wanted: "what the settings take, within what there is",
        why: "a process that takes more memory than it may have is killed",
        more: "memory.shard_bytes_max for each shard, and memory.control_bytes_max, against what the item memory finds.",
        look: memory_fits,
    },
    Item {
        name: "zone-reclaim",
        severity: Severity::Warn,
        wanted: "0",
        why: "the kernel would drop cached files and swap rather than take memory of another node",
        more: "Read from /proc/sys/vm/zone_reclaim_mode; a kernel for one node has no such file.",
        look: |subject| exactly(subject, "/proc/sys/vm/zone_reclaim_mode", 0),
    },
    Item {
        name: "memory-reserve",
        severity: Severity::Info,
        wanted: "1 % of memory, up to 1GiB",
        why: "packets and disk requests take memory that must be there at once; too small a reserve makes them wait",
        more: "Read from /proc/sys/vm/min_free_kbytes.",
        look: reserve,
    },
];

fn swap(subject: &Subject<'_>) -> Told<Look> {
    let swaps = subject.machine.text("/proc/swaps")?;
    if swaps.lines().skip(1).all(|line| line.trim().is_empty()) {
        return Ok(Look::good("no swap"));
    }
    let path = "/proc/sys/vm/swappiness";
    let swappiness = subject.machine.number(path)?;
    Ok(Look::judged(swappiness <= 1, format!("swap, swappiness {swappiness}")).set(path, "1"))
}

fn transparent(subject: &Subject<'_>) -> Told<Look> {
    let folder = "/sys/kernel/mm/transparent_hugepage";
    if !subject.machine.has(folder) {
        return Ok(Look::absent("the kernel is built without them"));
    }
    let enabled = subject.machine.chosen(&format!("{folder}/enabled"))?;
    let defrag = subject.machine.chosen(&format!("{folder}/defrag")).unwrap_or_else(|_| "unknown".to_owned());
    let mut look = Look::judged(enabled != "always" && defrag != "always", format!("{enabled}, defrag {defrag}"));
    if enabled == "always" {
        look = look.set(format!("{folder}/enabled"), "madvise");
    }
    if defrag == "always" {
        look = look.set(format!("{folder}/defrag"), "defer+madvise");
    }
    Ok(look)
}

fn huge(subject: &Subject<'_>) -> Told<Look> {
    let pages = subject.machine.number("/proc/sys/vm/nr_hugepages")?;
    let size = subject.machine.meminfo_bytes("Hugepagesize").unwrap_or(0);
    let now = if pages == 0 { "0".to_owned() } else { format!("{pages}, {}", about(pages.saturating_mul(size))) };
    Ok(Look::judged(pages == 0, now).fix("sysctl -w vm.nr_hugepages=0, if nothing else uses them"))
}

fn dirty(subject: &Subject<'_>) -> Told<Look> {
    let machine = subject.machine;
    let mut look = Look::good("");
    let mut found = Vec::new();
    for (path, ratio_path, most) in [DIRTY_BACKGROUND, DIRTY] {
        let bytes = machine.number(path)?;
        if bytes == 0 {
            let ratio = machine.number(ratio_path)?;
            found.push(format!("{ratio} %"));
        } else {
            found.push(about(bytes));
        }
        if bytes == 0 || bytes > most {
            look.verdict = super::Verdict::Off;
            // Nothing may be written to the file that means "by the ratio"; writing the ratio does that.
            let undo_path = (bytes == 0).then(|| ratio_path.to_owned());
            look.changes.push(Change { path: path.to_owned(), value: most.to_string(), undo_path });
        }
    }
    look.now = found.join(", ");
    Ok(look)
}

fn memory(subject: &Subject<'_>) -> Told<Look> {
    let bytes = subject.machine.memory_bytes()?;
    let wanted = SHARD_BYTES_EASE.saturating_mul(subject.shards());
    let look = Look::judged(bytes >= wanted, about(bytes)).wants(format!("{}, 2GiB a shard", about(wanted)));
    Ok(look.fix("serve with fewer shards, or give it more memory"))
}

fn memory_fits(subject: &Subject<'_>) -> Told<Look> {
    let bytes = subject.machine.memory_bytes()?;
    let memory = &subject.settings.memory;
    let shards = memory.shard_bytes_max.get().saturating_mul(subject.shards());
    let taken = shards.saturating_add(memory.control_bytes_max.get());
    let look = Look::judged(taken < bytes, format!("{} of {}", about(taken), about(bytes)));
    Ok(look.fix("lower memory.shard_bytes_max or memory.control_bytes_max, as `nova host plan` says"))
}

fn reserve(subject: &Subject<'_>) -> Told<Look> {
    let path = "/proc/sys/vm/min_free_kbytes";
    let kib = subject.machine.number(path)?;
    let total = subject.machine.meminfo_bytes("MemTotal")?;
    let wanted = (total / 100 / 1_024).min(1 << 20);
    if wanted == 0 {
        return Err(Unknown::because("/proc/meminfo tells of no memory"));
    }
    let now = about(kib.saturating_mul(1_024));
    let look = Look::judged(kib >= wanted, now).wants(about(wanted * 1_024));
    Ok(look.set(path, wanted.to_string()))
}
