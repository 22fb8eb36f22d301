//! How is a plan written down, so that novad takes it as its settings file?

use std::fmt::Write;

use crate::machine::Machine;
use crate::measured::CommitMethod;
use crate::plan::{HostPlan, LOG_SEGMENTS_MIN, ShardPlace};
use crate::settings::{Settings, StoreAddress};
use crate::start::connections_fitting;
use crate::units::Bytes;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// What the kernel and others keep of the memory: a part, and its bounds.
const KEPT_DIVISOR: u64 = 8;
const KEPT_BYTES: std::ops::RangeInclusive<u64> = 256 * MIB..=8 * GIB;
/// The part of the rest that is the background's, as a divisor, and its bounds.
const CONTROL_DIVISOR: u64 = 8;
const CONTROL_BYTES: std::ops::RangeInclusive<u64> = 64 * MIB..=8 * GIB;
const SHARD_BYTES: std::ops::RangeInclusive<u64> = 64 * MIB..=256 * GIB;
/// The part of a shard's memory that its ring takes, as a divisor.
const RING_DIVISOR: u64 = 4;
/// What a head log takes at most: more is longer to recover than it is good for.
const LOG_BYTES_MAX: u64 = 64 * GIB;
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 8 * MIB..=64 * MIB;
/// Hundredths of the free room that head logs take: with the store elsewhere, and with it on the same disk.
const LOGS_PERCENT: u64 = 80;
const LOGS_PERCENT_BESIDE_STORE: u64 = 40;

/// How the memory is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemoryParts {
    shard_bytes: u64,
    ring_bytes: u64,
    control_bytes: u64,
}

impl MemoryParts {
    fn of(total: u64, shards: u64) -> Self {
        let kept = (total / KEPT_DIVISOR).clamp(*KEPT_BYTES.start(), *KEPT_BYTES.end());
        let rest = total.saturating_sub(kept);
        let control = (rest / CONTROL_DIVISOR).clamp(*CONTROL_BYTES.start(), *CONTROL_BYTES.end());
        let shard = rest.saturating_sub(control) / shards.max(1);
        let shard = round(shard).clamp(*SHARD_BYTES.start(), *SHARD_BYTES.end());
        Self { shard_bytes: shard, ring_bytes: round(shard / RING_DIVISOR), control_bytes: round(control) }
    }

    fn total(&self, shards: u64) -> u64 {
        self.shard_bytes.saturating_mul(shards).saturating_add(self.control_bytes)
    }
}

/// How large a head log and its segments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogParts {
    log_bytes: u64,
    segment_bytes: u64,
}

impl LogParts {
    fn of(free: u64, shards: u64, has_store: bool) -> Self {
        let percent = if has_store { LOGS_PERCENT_BESIDE_STORE } else { LOGS_PERCENT };
        let log = (free / 100).saturating_mul(percent) / shards.max(1);
        let log = round(log.min(LOG_BYTES_MAX));
        let segment = (log / LOG_SEGMENTS_MIN).max(1);
        let segment = (1 << segment.ilog2()).clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end());
        Self { log_bytes: whole(log, segment).max(segment * LOG_SEGMENTS_MIN), segment_bytes: segment }
    }
}

/// Rounded down to what people like to read.
fn round(bytes: u64) -> u64 {
    let unit = match bytes {
        0..GIB => MIB,
        GIB.. => bytes.ilog2().checked_sub(4).map_or(MIB, |power| 1 << power),
    };
    whole(bytes, unit)
}

fn whole(bytes: u64, unit: u64) -> u64 {
    bytes / unit * unit
}

impl HostPlan {
    /// The settings that suit the host, as a file that novad takes; what can't be told is left to novad's defaults, with the reason.
    #[must_use]
    pub fn file(&self, machine: &Machine, settings: &Settings, measured: Option<&CommitMethod>) -> String {
        let mut out = self.head(machine);
        let shards = u64::try_from(self.shards().len()).unwrap_or(u64::MAX);
        let defaults = Settings::default();
        if settings.data != defaults.data {
            line(&mut out, "data", &text(&settings.data.display().to_string()));
        }
        if settings.store != defaults.store {
            line(&mut out, "store", &text(&settings.store.to_string()));
        }
        line(&mut out, "shards", &shards.to_string());
        let http = settings.surface_connections_max();
        let fitting = machine.process.files_max.map(|files| connections_fitting(files, self.shards().len(), http));
        if let Some(fitting) = fitting.filter(|fitting| *fitting < settings.connections_max.into() && *fitting >= 16) {
            out += "# As many as the limit of open files allows.\n";
            line(&mut out, "connections_max", &fitting.to_string());
        }
        out += "\n[log]\n";
        match &machine.disk.free_bytes {
            Ok(free) => {
                let parts = LogParts::of(*free, shards, settings.store == StoreAddress::InData);
                line(&mut out, "bytes_max", &size(parts.log_bytes));
                line(&mut out, "segment_bytes", &size(parts.segment_bytes));
            }
            Err(unknown) => remark(&mut out, &format!("Sizes are left as they are: {unknown}")),
        }
        match measured {
            Some(CommitMethod { sync, inline_commit, commits_in_flight, how }) => {
                remark(&mut out, how);
                line(&mut out, "sync", &text(&sync.to_string()));
                line(&mut out, "inline_commit", &inline_commit.to_string());
                line(&mut out, "commits_in_flight", &commits_in_flight.to_string());
            }
            None => {
                remark(&mut out, "Commits are made by default: `nova host disk` measures which way is quicker here.")
            }
        }
        out += "\n[memory]\n";
        match machine.memory_bytes() {
            Ok(total) => {
                let parts = MemoryParts::of(total, shards);
                if parts.total(shards) >= total {
                    remark(
                        &mut out,
                        "This is more than there is: the least that novad works with. Serve with fewer shards.",
                    );
                }
                line(&mut out, "shard_bytes_max", &size(parts.shard_bytes));
                line(&mut out, "ring_bytes_max", &size(parts.ring_bytes));
                line(&mut out, "control_bytes_max", &size(parts.control_bytes));
            }
            Err(unknown) => remark(&mut out, &format!("Sizes are left as they are: {unknown}")),
        }
        out
    }

    /// What a settings file can't say, as comments.
    fn head(&self, machine: &Machine) -> String {
        let mut out = String::new();
        remark(&mut out, "How nova suits this host, by `nova host plan`. For novad --config.");
        let irq = self.irq_cpus();
        let interrupts = match irq.cpus() {
            [] => "shared, on any CPU".to_owned(),
            _ => format!("CPU {irq}; `nova host apply --only interrupt-cpus` puts them there"),
        };
        remark(&mut out, &format!("interrupts  {interrupts}"));
        remark(&mut out, &format!("background  CPU {}", self.control_cpus()));
        for (number, shard) in self.shards().iter().enumerate() {
            remark(&mut out, &format!("shard {number:<5} {}", described(shard)));
        }
        self.devices(machine, &mut out);
        for note in self.notes() {
            remark(&mut out, note);
        }
        let is_narrow = machine.cpus_usable() != *self.cpus();
        if is_narrow {
            let cpus = self.cpus();
            remark(
                &mut out,
                &format!("Run it on these CPUs alone: AllowedCPUs={cpus} in its unit, or `taskset -c {cpus} novad`."),
            );
        }
        out
    }

    fn devices(&self, machine: &Machine, out: &mut String) {
        if machine.numas().len() < 2 {
            return;
        }
        let disks = machine.data_disks().unwrap_or_default();
        let disks = disks.iter().filter_map(|disk| Some((disk.as_str(), machine.disk_numa(disk)?)));
        let nics = machine.nics().unwrap_or_default();
        let nics = nics.iter().filter_map(|nic| Some((nic.as_str(), machine.nic_numa(nic)?)));
        for (name, numa) in disks.chain(nics) {
            remark(out, &format!("{name:<11} NUMA node {numa}"));
        }
    }
}

fn described(shard: &ShardPlace) -> String {
    let mut text = format!("CPU {}", shard.cpu);
    if let Some(numa) = shard.numa {
        text += &format!(", NUMA node {numa}");
    }
    match (shard.idle.cpus(), shard.busy.cpus()) {
        ([], []) => {}
        ([], _) => text += &format!(", on one core with CPU {}", shard.busy),
        _ => text += &format!(", a core of its own: CPU {} stays idle", shard.idle),
    }
    text
}

fn remark(out: &mut String, words: &str) {
    // A comment ends with its line, whatever stands in it.
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    *out += &format!("# {words}\n");
}

fn line(out: &mut String, name: &str, value: &str) {
    // A string takes all.
    let _written = writeln!(out, "{name} = {value}");
}

fn text(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

fn size(bytes: u64) -> String {
    text(&Bytes::new(bytes).to_string())
}
