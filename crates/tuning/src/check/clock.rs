//! Does the clock go right and cheaply, and what lies outside of the host?

use std::time::Instant;

use super::{Item, Look, Severity, Subject};
use crate::host::{FileSystem, file_system, nearest_directory};
use crate::machine::{Told, Unknown};
use crate::settings::StoreAddress;

/// Readings of the clock that are timed, about a millisecond of them.
const READINGS: u32 = 20_000;
/// What a reading takes when it is no system call.
const READING_NS_MAX: u64 = 100;
const SOURCES: &str = "/sys/devices/system/clocksource/clocksource0";
/// Services that keep the clock, as the kernel cuts their names.
const KEEPERS: [&str; 6] = ["chronyd", "ntpd", "systemd-timesyn", "ptp4l", "phc2sys", "openntpd"];

pub(super) const ITEMS: &[Item] = &[
    Item {
        name: "clock-source",
        severity: Severity::Warn,
        wanted: "tsc; kvm-clock or arch_sys_counter will do",
        why: "every append reads the clock a few times, and other sources take a system call for it",
        more: "Read from clocksource0/current_clocksource, and by timing 20000 readings. `apply` chooses tsc where the kernel offers it: it \
               leaves it out where it found the counter to be unsteady.",
        look: source,
    },
    Item {
        name: "clock-sync",
        severity: Severity::Warn,
        wanted: "kept by a service",
        why: "records are stamped and expire by the clock, and S3 refuses requests that are 15 minutes off",
        more: "By what systemd-timesyncd leaves in /run/systemd/timesync, else by whether chronyd, ntpd or another of that kind runs; \
               `timedatectl` or `chronyc tracking` say how far it is off.",
        look: sync,
    },
    Item {
        name: "store",
        severity: Severity::Warn,
        wanted: "on another disk than the head logs, and not in memory",
        why: "what is settled shares the fate of the store; on the same disk both are lost together",
        more: "By the settings. A check sends nothing to a store on S3: `novad store check` tries each promise that nova needs of it, \
               `nova host selftest` and `nova bench store` measure it.",
        look: store,
    },
    Item {
        name: "core-dumps",
        severity: Severity::Info,
        wanted: "known",
        why: "a core dump of novad holds records, and is as large as its memory",
        more: "Read from /proc/sys/kernel/core_pattern. LimitCORE=0 in a unit makes none.",
        look: |subject| Ok(Look::good(crate::machine::shown(&subject.machine.words("/proc/sys/kernel/core_pattern")?))),
    },
];

fn source(subject: &Subject<'_>) -> Told<Look> {
    let path = format!("{SOURCES}/current_clocksource");
    let current = subject.machine.words(&path)?;
    let others = subject.machine.words(&format!("{SOURCES}/available_clocksource")).unwrap_or_default();
    let began = Instant::now();
    for _ in 0..READINGS {
        std::hint::black_box(Instant::now());
    }
    let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX) / u64::from(READINGS);
    let is_quick = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"].contains(&current.as_str());
    let slow = if is_quick && nanos > READING_NS_MAX { ", which is slow: a sandbox may stand between" } else { "" };
    let look = Look::judged(is_quick, format!("{current}, {nanos} ns a reading{slow}"));
    if others.split(' ').any(|name| name == "tsc") {
        return Ok(look.set(path, "tsc"));
    }
    Ok(look.fix("the kernel offers no better one; a machine of another kind has one"))
}

fn sync(subject: &Subject<'_>) -> Told<Look> {
    if subject.machine.has("/run/systemd/timesync/synchronized") {
        return Ok(Look::good("synchronized by systemd-timesyncd"));
    }
    match subject.machine.process_named(&KEEPERS)? {
        Some(line) => Ok(Look::good(format!("kept by {}", crate::machine::shown(&line)))),
        None if subject.machine.container().is_some() => {
            Err(Unknown::because("the clock is the host's, and its services are not to be seen from a container"))
        }
        None => Ok(Look::off("no service keeps it").fix("install and start chrony, or `timedatectl set-ntp true`")),
    }
}

fn store(subject: &Subject<'_>) -> Told<Look> {
    let fix = "name a directory on another disk, or s3://bucket/prefix, with --store";
    match &subject.settings.store {
        StoreAddress::S3 { bucket, .. } => {
            Err(Unknown::because(format!("bucket {bucket} is asked by `nova host selftest`, not by a check")))
        }
        StoreAddress::InData => Ok(Look::off("in the data directory").weighs(Severity::Info).fix(fix)),
        StoreAddress::Directory(path) => {
            let kind = file_system(&nearest_directory(path))
                .map_err(|error| Unknown::because(format!("{} can't be looked at: {error}", path.display())))?;
            let now = format!("{} on {kind}", path.display());
            Ok(Look::judged(!matches!(kind, FileSystem::Tmpfs | FileSystem::Ramfs), now).fix(fix))
        }
    }
}
