//! Do the shards' CPUs belong to them, at full speed and without delay?

use super::{Item, Look, Severity, Subject, exactly};
use crate::machine::{CpuList, Told, Unknown};
use crate::plan::HostPlan;

/// Share of stolen time from which it is felt, in hundredths of a percent.
const STEAL_MAX: u64 = 100;
/// Slowest exit from a sleep state that a commit does not feel, in microseconds.
const EXIT_US_MAX: u64 = 10;

pub(super) const ITEMS: &[Item] = &[
    Item {
        name: "cpus",
        severity: Severity::Warn,
        wanted: "a CPU for each shard, and one for the rest",
        why: "shards that share a CPU wait for each other, and for the background",
        more: "The CPUs of this process's affinity, within the cpuset of its cgroup. `taskset`, AllowedCPUs= and --cpuset-cpus narrow \
               them.",
        look: cpus,
    },
    Item {
        name: "cpu-quota",
        severity: Severity::Warn,
        wanted: "none, or as many CPUs as shards and one",
        why: "a shard that has used up its quota stands still until the next period, some 100 ms",
        more: "Read from cpu.max (cgroup version 2) or cpu.cfs_quota_us (1) of this process's group and of those above it; nr_throttled of \
               cpu.stat counts the periods in which it was used up.",
        look: quota,
    },
    Item {
        name: "steal",
        severity: Severity::Warn,
        wanted: "less than 1 %",
        why: "while the hypervisor runs others on a shard's CPU, everything that it serves waits",
        more: "Read from /proc/stat, while the check waits for it. Ask for dedicated CPUs, or for a machine that is not shared.",
        look: steal,
    },
    Item {
        name: "core-threads",
        severity: Severity::Info,
        wanted: "known",
        why: "two shards on the threads of one core give more together, and each of them less and less evenly",
        more: "Read from topology/thread_siblings_list of each CPU. `nova host plan` takes a core a shard, which keeps the tail short; \
               with --goal throughput it takes every thread.",
        look: core_threads,
    },
    Item {
        name: "numa",
        severity: Severity::Warn,
        wanted: "kernel.numa_balancing = 0 where there are several nodes",
        why: "shards are pinned and keep their memory near; balancing unmaps it again and again to see who uses it",
        more: "Read from /sys/devices/system/node and /proc/sys/kernel/numa_balancing. `nova host plan` says on which node each shard, \
               the disk and the network device are.",
        look: numa,
    },
    Item {
        name: "governor",
        severity: Severity::Warn,
        wanted: "performance",
        why: "a CPU that slows down between commits takes its time to speed up again",
        more: "Read from cpufreq/scaling_governor of the shards' CPUs. Most virtual machines have none.",
        look: governor,
    },
    Item {
        name: "sleep-states",
        severity: Severity::Info,
        wanted: "exit within 10 µs",
        why: "a CPU that sleeps deeply wakes late, and a lone append waits for it",
        more: "Read from cpuidle/state*/latency of the shards' CPUs. `apply` disables the deeper states of those CPUs, which costs power. \
               At boot: intel_idle.max_cstate=1 processor.max_cstate=1.",
        look: sleep_states,
    },
    Item {
        name: "preemption",
        severity: Severity::Warn,
        wanted: "anything but none",
        why: "without preemption a shard that wakes waits for whatever runs there, up to a tick of 1 to 10 ms",
        more: "Read from /sys/kernel/debug/sched/preempt, which only root can, else from /proc/version. It matters when something else \
               runs on the shards' CPUs.",
        look: preemption,
    },
    Item {
        name: "priority",
        severity: Severity::Info,
        wanted: "0 or less",
        why: "a process that is nice yields its CPU to everything that is not",
        more: "The nice value of this process, from /proc/self/stat; novad inherits that of whatever starts it. Nice=-10 in a unit puts it \
               ahead. A real-time class only with CPUs to spare: a shard never sleeps under load.",
        look: priority,
    },
    Item {
        name: "isolation",
        severity: Severity::Info,
        wanted: "the shards' CPUs free of others",
        why: "a timer tick or a stray task on a shard's CPU delays everything that it serves",
        more: "Read from /proc/cmdline: isolcpus, nohz_full, rcu_nocbs. The check prints what would be put there and changes nothing at \
               boot. Without it, AllowedCPUs= of the other units keeps them away as well.",
        look: isolation,
    },
    Item {
        name: "watchdog",
        severity: Severity::Info,
        wanted: "0",
        why: "the watchdog interrupts each CPU every few seconds",
        more: "Read from /proc/sys/kernel/nmi_watchdog. Some hosts without the counter for it refuse to have it set.",
        look: |subject| exactly(subject, "/proc/sys/kernel/nmi_watchdog", 0),
    },
    Item {
        name: "timer-slack",
        severity: Severity::Info,
        wanted: "50000 ns or less",
        why: "the kernel may fire a timer late by so much, to wake up less often",
        more: "Read from /proc/self/timerslack_ns; novad inherits that of whatever starts it. TimerSlackNSec= in a unit.",
        look: timer_slack,
    },
];

/// The CPUs of the shards.
fn shard_cpus(plan: &HostPlan) -> CpuList {
    CpuList::new(plan.shards().iter().map(|shard| shard.cpu))
}

fn cpus(subject: &Subject<'_>) -> Told<Look> {
    let usable = subject.machine.cpus_usable();
    let shards = subject.plan.shards().len();
    let now = format!("{} ({usable})", usable.cpus().len());
    let wanted = format!("{}, for {} and the background", shards + 1, subject.shards_counted());
    let look = Look::judged(usable.cpus().len() > shards, now).wants(wanted);
    Ok(look.fix("give it more CPUs, or serve with fewer shards"))
}

fn quota(subject: &Subject<'_>) -> Told<Look> {
    let Some(millis) = subject.machine.cpu_quota_millis()? else {
        return Ok(Look::good("none"));
    };
    let throttled = subject.machine.periods_throttled_since();
    let throttled = throttled.map_or_else(|_| String::new(), |periods| format!(", used up in {periods} periods"));
    let needed = subject.shards().saturating_add(1);
    let now = format!("{}.{:03} CPUs{throttled}", millis / 1_000, millis % 1_000);
    let fix = format!("give the group {needed} CPUs or no quota, or serve with fewer shards");
    Ok(Look::judged(millis >= needed.saturating_mul(1_000), now).fix(fix))
}

fn steal(subject: &Subject<'_>) -> Told<Look> {
    let points = subject.machine.steal_basis_points()?;
    let when = if subject.machine.before.is_some() { "just now" } else { "since the start" };
    let now = format!("{}.{:02} % {when}", points / 100, points % 100);
    Ok(Look::judged(points < STEAL_MAX, now).fix("ask for dedicated CPUs"))
}

fn core_threads(subject: &Subject<'_>) -> Told<Look> {
    let usable = subject.machine.cpus_usable();
    let cores = subject.machine.cores(&usable).len();
    let control = subject.machine.words("/sys/devices/system/cpu/smt/control");
    let control = control.map_or_else(|_| String::new(), |control| format!(", SMT {control}"));
    Ok(Look::good(format!("{} CPUs on {cores} cores{control}", usable.cpus().len())))
}

fn numa(subject: &Subject<'_>) -> Told<Look> {
    let machine = subject.machine;
    let numas = machine.numas();
    if numas.len() < 2 {
        return Ok(Look::good("one node"));
    }
    let path = "/proc/sys/kernel/numa_balancing";
    let balancing = machine.number(path)?;
    let nodes: Vec<String> = numas.iter().map(|numa| format!("{}: {}", numa.number, numa.cpus)).collect();
    let now = format!("{balancing}, nodes {}", nodes.join(", "));
    Ok(Look::judged(balancing == 0, now).set(path, "0"))
}

fn governor(subject: &Subject<'_>) -> Told<Look> {
    let path = |cpu: usize| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    let shards = shard_cpus(subject.plan);
    let with: Vec<usize> = shards.cpus().iter().copied().filter(|cpu| subject.machine.has(&path(*cpu))).collect();
    if with.is_empty() {
        return Ok(Look::absent("the kernel sets no speed here"));
    }
    let mut look = Look::good("");
    let mut found = Vec::new();
    for cpu in with {
        let governor = subject.machine.words(&path(cpu))?;
        if governor != "performance" {
            look.verdict = super::Verdict::Off;
            look = look.set(path(cpu), "performance");
        }
        found.push(governor);
    }
    found.sort();
    found.dedup();
    look.now = found.join(", ");
    Ok(look)
}

fn sleep_states(subject: &Subject<'_>) -> Told<Look> {
    let machine = subject.machine;
    let mut deepest = None;
    let mut deep = Vec::new();
    for cpu in shard_cpus(subject.plan).cpus() {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
        for state in machine.names(&folder).unwrap_or_default() {
            let file = |name: &str| format!("{folder}/{state}/{name}");
            let (Ok(latency), Ok(disabled)) = (machine.number(&file("latency")), machine.number(&file("disable")))
            else {
                continue;
            };
            if disabled == 0 {
                deepest = deepest.max(Some(latency));
                deep.extend((latency > EXIT_US_MAX).then(|| file("disable")));
            }
        }
    }
    let Some(deepest) = deepest else {
        return Ok(Look::absent("the kernel knows of no sleep states here"));
    };
    let look = Look::judged(deep.is_empty(), format!("{deepest} µs"));
    Ok(deep.into_iter().fold(look, |look, path| look.set(path, "1")))
}

fn preemption(subject: &Subject<'_>) -> Told<Look> {
    let path = "/sys/kernel/debug/sched/preempt";
    if let Ok(words) = subject.machine.words(path) {
        let marked = words.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(word, _)| word.to_owned());
        let word = marked.ok_or_else(|| Unknown::because(format!("{path} marks no word")))?;
        return Ok(Look::judged(word != "none", word).set(path, "full"));
    }
    let version = subject.machine.words("/proc/version")?;
    let has = |word: &str| version.split(' ').any(|found| found == word);
    let at_boot = subject.machine.words("/proc/cmdline").unwrap_or_default();
    let chosen = at_boot.split(' ').find_map(|word| word.strip_prefix("preempt="));
    match chosen {
        Some(word) => {
            Ok(Look::judged(word != "none", format!("{word}, by the boot line")).fix("boot with preempt=full"))
        }
        None if has("PREEMPT_RT") || has("PREEMPT") => Ok(Look::good("full")),
        None if has("PREEMPT_DYNAMIC") => Err(Unknown::because(format!(
            "the kernel decides at boot, and {path} is told to root alone, once debugfs is mounted"
        ))),
        None => Ok(Look::off("none or voluntary").fix("boot a kernel with preemption")),
    }
}

fn priority(subject: &Subject<'_>) -> Told<Look> {
    let path = "/proc/self/stat";
    let stat = subject.machine.text(path)?;
    // The name in parentheses may hold anything; the nice value is the 19th word of all, the 17th behind it.
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let nice = behind.split_whitespace().nth(16).and_then(|word| word.parse::<i64>().ok());
    let nice = nice.ok_or_else(|| Unknown::because(format!("{path} has no nice value")))?;
    Ok(Look::judged(nice <= 0, nice.to_string()).fix("start novad without nice, or with Nice=0 in its unit"))
}

fn isolation(subject: &Subject<'_>) -> Told<Look> {
    let cmdline = subject.machine.words("/proc/cmdline")?;
    let shards = shard_cpus(subject.plan);
    let isolated = cmdline.split(' ').filter_map(|word| {
        let list = word.strip_prefix("isolcpus=").or_else(|| word.strip_prefix("nohz_full="))?;
        // Flags such as `domain` may stand in front of the list.
        let numbers = list.split(',').filter(|part| part.starts_with(|c: char| c.is_ascii_digit()));
        CpuList::parse(&numbers.collect::<Vec<_>>().join(","))
    });
    let isolated: Vec<CpuList> = isolated.collect();
    let is_isolated = isolated.iter().any(|list| shards.is_within(list));
    if is_isolated {
        return Ok(Look::good(format!("CPUs {shards} are isolated")));
    }
    let shares = subject.plan.shares_cores();
    if shares {
        return Ok(Look::absent("shards share their CPUs with the background"));
    }
    let line = format!("isolcpus=managed_irq,{shards} nohz_full={shards} rcu_nocbs={shards}");
    Ok(Look::off("not isolated").fix(format!("add to the boot line, if the host is nova's alone: {line}")))
}

fn timer_slack(subject: &Subject<'_>) -> Told<Look> {
    let nanos = subject.machine.number("/proc/self/timerslack_ns")?;
    Ok(Look::judged(nanos <= 50_000, format!("{nanos} ns")).fix("TimerSlackNSec=50us in the unit"))
}
