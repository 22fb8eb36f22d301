//! Does the disk of the head logs suit durable writes, and do its queues leave them alone?

use std::os::unix::fs::MetadataExt;

use super::{Item, Look, Severity, Subject, each};
use crate::host::Fitness;
use crate::machine::{Machine, Told};
use crate::plan::LOG_SEGMENTS_MIN;
use crate::units::Bytes;

/// What a head log lays its blocks out by.
const BLOCK_BYTES: u64 = 4_096;
/// Segment files of which the blocks are counted.
const SEGMENTS_LOOKED_AT: usize = 64;

pub(super) const ITEMS: &[Item] = &[
    Item {
        name: "scheduler",
        severity: Severity::Warn,
        wanted: "none, or mq-deadline on a virtual disk",
        why: "a scheduler holds writes back to sort them, and a commit waits for one write at a time",
        more: "Read from queue/scheduler of each disk below the data directory. What lies above a disk, such as a volume or an \
               array, has none. See the effect with `nova bench disk` before and after.",
        look: scheduler,
    },
    Item {
        name: "merges",
        severity: Severity::Info,
        wanted: "2",
        why: "the log writes whole runs by itself, so looking for neighbours to merge with is time for nothing",
        more: "Read from queue/nomerges: 0 tries all merges, 1 only simple ones, 2 none.",
        look: |subject| of_disks(subject, "nomerges", |value| value == "2", Some("2")),
    },
    Item {
        name: "completions",
        severity: Severity::Info,
        wanted: "2",
        why: "a write that completes on the CPU that sent it finds its shard's data in that CPU's cache",
        more: "Read from queue/rq_affinity: 1 completes within the group of CPUs, 2 on the very CPU.",
        look: |subject| of_disks(subject, "rq_affinity", |value| value == "2", Some("2")),
    },
    Item {
        name: "write-back-throttle",
        severity: Severity::Warn,
        wanted: "0",
        why: "the kernel slows writers down to protect readers, and takes commits for such writers",
        more: "Read from queue/wbt_lat_usec, in microseconds; 0 switches it off. The head log writes past the page cache, so there is \
               no write-back of its own to be throttled. A kernel built without it has no such file.",
        look: |subject| of_disks(subject, "wbt_lat_usec", |value| value == "0" || value == "-1", Some("0")),
    },
    Item {
        name: "write-cache",
        severity: Severity::Info,
        wanted: "write through, or FUA",
        why: "with a volatile cache and no FUA each durable write is a write and a flush, which takes about twice as long",
        more: "Read from queue/write_cache and queue/fua. Drives whose cache survives a power cut say `write through` by themselves. \
               Never write that to the file to silence flushes: the kernel then believes it, and acked records are lost with the \
               power. nova never changes it.",
        look: write_cache,
    },
    Item {
        name: "sectors",
        severity: Severity::Fatal,
        wanted: "4096 or less",
        why: "the log is laid out in blocks of 4096 bytes, and a drive that writes larger ones tears them",
        more: "Read from queue/logical_block_size and queue/physical_block_size.",
        look: sectors,
    },
    Item {
        name: "polling",
        severity: Severity::Info,
        wanted: "0, unless rings poll",
        why: "nova waits for interrupts; polled queues would take a CPU for each shard",
        more: "Read from queue/io_poll. Drives that can be polled need nvme.poll_queues at boot.",
        look: |subject| of_disks(subject, "io_poll", |_| true, None),
    },
    Item {
        name: "rotational",
        severity: Severity::Warn,
        wanted: "0",
        why: "a commit on spinning platters waits for a turn of them, some 8 ms",
        more: "Read from queue/rotational. Virtual disks may say 1 whatever lies below them: measure with `nova bench disk`.",
        look: |subject| {
            let look = of_disks(subject, "rotational", |value| value == "0", None)?;
            // A virtual disk tells of its driver rather than of what lies below it.
            let is_hearsay = subject.machine.data_disks()?.iter().all(|disk| is_virtual(disk));
            let look = if is_hearsay { look.weighs(Severity::Info) } else { look };
            Ok(look.fix("put the data directory on a solid-state disk with --data"))
        },
    },
    Item {
        name: "discard",
        severity: Severity::Info,
        wanted: "not mounted with discard",
        why: "telling the drive at once of each block that is freed delays the writes beside it; once a week does",
        more: "Read from /proc/self/mountinfo. `systemctl enable --now fstrim.timer` tells the drive weekly.",
        look: discard,
    },
    Item {
        name: "file-system",
        severity: Severity::Fatal,
        wanted: "XFS or ext4 on a local disk, with direct I/O",
        why: "others lie about what is durable, keep it in memory, or copy what should be written once",
        more: "By statfs, and by opening a file without a name with O_DIRECT in the data directory, or in its nearest parent.",
        look: file_system,
    },
    Item {
        name: "log-files",
        severity: Severity::Warn,
        wanted: "every block written",
        why: "a durable write into a hole also changes the file system's own tables, and waits for their journal",
        more: "novad writes zeroes through a segment before it uses it. A data directory that was copied as a sparse file has holes. \
               Blocks of up to 64 segment files are counted.",
        look: log_files,
    },
    Item {
        name: "free-space",
        severity: Severity::Warn,
        wanted: "room for head logs",
        why: "without room for segments appends are answered resource_exhausted until something is settled or deleted",
        more: "By statvfs. A fresh data directory needs 4 segments a shard and what novad keeps back; with twice that it has room to \
               work. novad itself refuses to start a fresh one with less than it needs.",
        look: free_space,
    },
];

/// One file of each disk's queue.
fn of_disks(subject: &Subject<'_>, file: &str, is_good: fn(&str) -> bool, set: Option<&str>) -> Told<Look> {
    let path = |disk: &str| format!("/sys/block/{disk}/queue/{file}");
    each(
        &subject.machine.data_disks()?,
        |disk| subject.machine.words(&path(disk)),
        |_, value| is_good(value),
        |disk| set.map(|value| (path(disk), value.to_owned())),
    )
}

fn is_virtual(disk: &str) -> bool {
    disk.starts_with("vd") || disk.starts_with("xvd")
}

fn scheduler(subject: &Subject<'_>) -> Told<Look> {
    let path = |disk: &str| format!("/sys/block/{disk}/queue/scheduler");
    each(
        &subject.machine.data_disks()?,
        |disk| subject.machine.chosen(&path(disk)),
        |disk, value| value == "none" || (value == "mq-deadline" && is_virtual(disk)),
        |disk| {
            let words = subject.machine.words(&path(disk)).ok()?;
            let has_none = words.split(' ').any(|word| word.trim_matches(['[', ']']) == "none");
            has_none.then(|| (path(disk), "none".to_owned()))
        },
    )
}

fn write_cache(subject: &Subject<'_>) -> Told<Look> {
    let machine = subject.machine;
    let queue = |disk: &str, file: &str| machine.words(&format!("/sys/block/{disk}/queue/{file}"));
    let read = |disk: &str| {
        let fua = queue(disk, "fua").unwrap_or_else(|_| "unknown".to_owned());
        Ok(format!("{}, fua {fua}", queue(disk, "write_cache")?))
    };
    let is_good = |_: &str, value: &str| value.starts_with("write through") || value.ends_with("fua 1");
    let look = each(&machine.data_disks()?, read, is_good, |_| None)?;
    Ok(look.fix("use a drive with power-loss protection; nothing is to be set"))
}

fn sectors(subject: &Subject<'_>) -> Told<Look> {
    let machine = subject.machine;
    let size = |disk: &str, file: &str| machine.number(&format!("/sys/block/{disk}/queue/{file}_block_size"));
    let read = |disk: &str| Ok(format!("{} of {}", size(disk, "logical")?, size(disk, "physical")?));
    let is_good = |disk: &str, _: &str| {
        let sizes = [size(disk, "logical"), size(disk, "physical")];
        sizes.iter().flatten().all(|bytes| *bytes <= BLOCK_BYTES)
    };
    let look = each(&machine.data_disks()?, read, is_good, |_| None)?;
    Ok(look.fix("put the data directory on another disk with --data"))
}

fn discard(subject: &Subject<'_>) -> Told<Look> {
    let options = subject.machine.data_mount()?;
    let found = options.split(',').find(|option| *option == "discard" || option.starts_with("discard="));
    let look = match found {
        Some("discard=async") | None => Look::good(found.unwrap_or("not mounted with discard")),
        Some(option) => Look::off(option),
    };
    Ok(look.fix("mount without discard, and `systemctl enable --now fstrim.timer`"))
}

fn file_system(subject: &Subject<'_>) -> Told<Look> {
    let disk = &subject.machine.disk;
    let kind = disk.file_system.clone()?;
    let elsewhere = "name a directory on a local disk with --data";
    match (kind.fitness(), &disk.direct) {
        (Fitness::Unfit(why), _) => Ok(Look::off(format!("{kind}: {why}")).fix(elsewhere)),
        (_, Ok(false)) => Ok(Look::off(format!("{kind}, which refuses direct I/O")).fix(elsewhere)),
        (Fitness::Doubtful(why), _) => Ok(Look::off(format!("{kind}: {why}")).weighs(Severity::Warn).fix(elsewhere)),
        (Fitness::Fit, Ok(true)) => Ok(Look::good(format!("{kind}, takes direct I/O"))),
        (Fitness::Fit, Err(unknown)) => Ok(Look::good(format!("{kind}; {unknown}"))),
    }
}

/// Segment files of the data directory: bytes, and bytes of blocks.
fn segments(machine: &Machine) -> Vec<(u64, u64)> {
    let files = |path: &std::path::Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let logs = files(&machine.disk.data.join("log"));
    let segments = logs.flat_map(|log| files(&log.path()).collect::<Vec<_>>());
    let segments = segments.filter(|file| file.file_name().to_string_lossy().starts_with("seg-"));
    let sizes = segments.filter_map(|file| file.metadata().ok());
    sizes.take(SEGMENTS_LOOKED_AT).map(|meta| (meta.len(), meta.blocks().saturating_mul(512))).collect()
}

fn log_files(subject: &Subject<'_>) -> Told<Look> {
    let segments = segments(subject.machine);
    if segments.is_empty() {
        return Ok(Look::absent(format!("no segments below {}", subject.machine.disk.data.display())));
    }
    let sparse = segments.iter().filter(|(bytes, on_disk)| on_disk < bytes).count();
    let now = format!("{} of {} have holes", sparse, segments.len());
    // The one that is being zeroed ahead has holes for a moment in each log.
    let is_good = u64::try_from(sparse).unwrap_or(u64::MAX) <= subject.shards();
    Ok(Look::judged(is_good, now)
        .fix("copy data directories with --sparse=never; segments are replaced as they are reclaimed"))
}

fn free_space(subject: &Subject<'_>) -> Told<Look> {
    let free = subject.machine.disk.free_bytes.clone()?;
    let segment = subject.settings.log.segment_bytes.get();
    let needed = segment.saturating_mul(LOG_SEGMENTS_MIN).saturating_mul(subject.shards()).saturating_mul(2);
    let now = format!("{} free", about(free));
    let look = Look::judged(free >= needed, now).wants(format!("{} for {}", about(needed), subject.shards_counted()));
    Ok(look.fix("free some room, lower log.segment_bytes, or name another disk with --data"))
}

/// Bytes in the largest unit that leaves whole numbers readable, rounded down.
pub(crate) fn about(bytes: u64) -> String {
    let unit = if bytes >= 10 << 30 { 1 << 30 } else { 1 << 20 };
    Bytes::new(bytes / unit * unit).to_string()
}
