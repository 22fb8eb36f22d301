//! Does the network carry many connections, and long ways to a store?

use super::disk::about;
use super::{Item, Look, Severity, Subject, at_least, exactly};
use crate::machine::{Told, Unknown};

const BACKLOG_MIN: u64 = 4_096;
/// What is in flight to a store at 10 Gbit/s and 13 ms.
const BUFFER_MIN: u64 = 16 << 20;
const PORTS_MIN: u64 = 20_000;
/// Memory of TCP that leaves shards theirs, in hundredths of all.
const TCP_PERCENT_MAX: u64 = 12;
const PAGE_BYTES: u64 = 4_096;

pub(super) const ITEMS: &[Item] = &[
    Item {
        name: "accept-backlog",
        severity: Severity::Warn,
        wanted: "4096 or more",
        why: "when many clients reconnect at once, those that find the queue full wait a second and more",
        more: "Read from /proc/sys/net/core/somaxconn. `nstat -az TcpExtListenDrops` counts those that were dropped.",
        look: |subject| at_least(subject, "/proc/sys/net/core/somaxconn", BACKLOG_MIN),
    },
    Item {
        name: "handshake-backlog",
        severity: Severity::Warn,
        wanted: "4096 or more",
        why: "handshakes beyond it are dropped, or answered with cookies that lose options",
        more: "Read from /proc/sys/net/ipv4/tcp_max_syn_backlog.",
        look: |subject| at_least(subject, "/proc/sys/net/ipv4/tcp_max_syn_backlog", BACKLOG_MIN),
    },
    Item {
        name: "receive-buffers",
        severity: Severity::Info,
        wanted: "16MiB or more at most",
        why: "over a long way, as to a store elsewhere, no more is in flight than the buffer holds",
        more: "The third number of /proc/sys/net/ipv4/tcp_rmem. Buffers grow as needed up to it.",
        look: |subject| buffers(subject, "/proc/sys/net/ipv4/tcp_rmem"),
    },
    Item {
        name: "send-buffers",
        severity: Severity::Info,
        wanted: "16MiB or more at most",
        why: "over a long way, as to a store elsewhere, no more is in flight than the buffer holds",
        more: "The third number of /proc/sys/net/ipv4/tcp_wmem. Buffers grow as needed up to it.",
        look: |subject| buffers(subject, "/proc/sys/net/ipv4/tcp_wmem"),
    },
    Item {
        name: "tcp-memory",
        severity: Severity::Info,
        wanted: "12 % of memory or less",
        why: "what TCP may take for all connections together is missing where shards were given the rest",
        more: "The third number of /proc/sys/net/ipv4/tcp_mem, in pages. The kernel's own choice is about 9 %.",
        look: tcp_memory,
    },
    Item {
        name: "slow-start-after-idle",
        severity: Severity::Warn,
        wanted: "0",
        why: "a connection to the store that was idle would start each put at the speed of a new one",
        more: "Read from /proc/sys/net/ipv4/tcp_slow_start_after_idle. It matters on long ways; see it as the latency of a put after 10 s \
               of silence.",
        look: |subject| exactly(subject, "/proc/sys/net/ipv4/tcp_slow_start_after_idle", 0),
    },
    Item {
        name: "congestion-control",
        severity: Severity::Info,
        wanted: "bbr or cubic",
        why: "older ways of finding the speed of a path fall far below it after a loss",
        more: "Read from /proc/sys/net/ipv4/tcp_congestion_control. bbr needs its module: `modprobe tcp_bbr`.",
        look: congestion,
    },
    Item {
        name: "ports",
        severity: Severity::Info,
        wanted: "20000 or more",
        why: "each connection that this host opens to one address takes a port, and frees it a minute after its end",
        more: "Read from /proc/sys/net/ipv4/ip_local_port_range.",
        look: ports,
    },
    Item {
        name: "busy-poll",
        severity: Severity::Info,
        wanted: "0, unless measured",
        why: "a socket that polls its device answers sooner, and takes its CPU from the shard",
        more: "Read from /proc/sys/net/core/busy_poll and busy_read, in microseconds. Try 50, and compare with `nova bench compare`.",
        look: busy_poll,
    },
];

/// The numbers of a file that holds several.
fn numbers(subject: &Subject<'_>, path: &str) -> Told<Vec<u64>> {
    let words = subject.machine.words(path)?;
    let numbers: Option<Vec<u64>> = words.split(' ').map(|word| word.parse().ok()).collect();
    numbers.ok_or_else(|| Unknown::because(format!("{path} says `{}`", crate::machine::shown(&words))))
}

fn buffers(subject: &Subject<'_>, path: &str) -> Told<Look> {
    let [least, usual, most] = numbers(subject, path)?[..] else {
        return Err(Unknown::because(format!("{path} does not hold three numbers")));
    };
    let look = Look::judged(most >= BUFFER_MIN, about(most));
    Ok(look.set(path, format!("{least} {usual} {BUFFER_MIN}")))
}

fn tcp_memory(subject: &Subject<'_>) -> Told<Look> {
    let path = "/proc/sys/net/ipv4/tcp_mem";
    let [_, _, pages] = numbers(subject, path)?[..] else {
        return Err(Unknown::because(format!("{path} does not hold three numbers")));
    };
    let total = subject.machine.meminfo_bytes("MemTotal")?.max(1);
    let percent = pages.saturating_mul(PAGE_BYTES).saturating_mul(100) / total;
    let look = Look::judged(percent <= TCP_PERCENT_MAX, format!("{percent} % of memory"));
    let part = |percent: u64| total / 100 * percent / PAGE_BYTES;
    Ok(look.set(path, format!("{} {} {}", part(4), part(6), part(9))))
}

fn congestion(subject: &Subject<'_>) -> Told<Look> {
    let name = subject.machine.words("/proc/sys/net/ipv4/tcp_congestion_control")?;
    let is_good = name == "bbr" || name == "cubic";
    Ok(Look::judged(is_good, name).set("/proc/sys/net/ipv4/tcp_congestion_control", "cubic"))
}

fn ports(subject: &Subject<'_>) -> Told<Look> {
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    let [first, last] = numbers(subject, path)?[..] else {
        return Err(Unknown::because(format!("{path} does not hold two numbers")));
    };
    let look = Look::judged(last.saturating_sub(first) >= PORTS_MIN, format!("{first} to {last}"));
    Ok(look.set(path, "32768 60999"))
}

fn busy_poll(subject: &Subject<'_>) -> Told<Look> {
    let poll = subject.machine.number("/proc/sys/net/core/busy_poll")?;
    let read = subject.machine.number("/proc/sys/net/core/busy_read")?;
    let look = Look::judged(poll == 0 && read == 0, format!("poll {poll}, read {read}"));
    Ok(look.fix("sysctl -w net.core.busy_poll=0 net.core.busy_read=0, unless it was measured to help"))
}
