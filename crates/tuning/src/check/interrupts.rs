//! Do interrupts come to CPUs that have time for them?

use super::{Item, Look, Severity, Subject, Verdict};
use crate::machine::{CpuList, Told, Unknown};

/// Flows that the kernel remembers the CPU of.
const FLOWS: u64 = 32_768;
const FLOWS_PATH: &str = "/proc/sys/net/core/rps_sock_flow_entries";

pub(super) const ITEMS: &[Item] = &[
    Item {
        name: "interrupt-cpus",
        severity: Severity::Warn,
        wanted: "the network's interrupts on CPUs without shards",
        why: "an interrupt stops the shard that runs there, hundreds of thousands of times a second under load",
        more: "Read from /proc/irq/N/smp_affinity_list of the network devices' interrupts. With 4 CPUs or fewer they are shared; up to 16 \
               cores one is set apart, then one for each 16. Drives with a queue for each CPU have interrupts that the kernel manages: \
               those refuse to be moved, which is as it should be.",
        look: interrupt_cpus,
    },
    Item {
        name: "irqbalance",
        severity: Severity::Info,
        wanted: "not running, or kept away from those interrupts",
        why: "it moves interrupts every 10 s, also those that were put where they belong",
        more: "By the processes that run, with their arguments: some systems ignore what stands in /etc/default/irqbalance. It takes \
               --banirq=N for each interrupt that it must leave alone.",
        look: irqbalance,
    },
    Item {
        name: "network-queues",
        severity: Severity::Info,
        wanted: "as many as interrupt CPUs",
        why: "one queue is one interrupt, and all that arrives comes to one CPU",
        more: "Read from /sys/class/net/N/queues. `ethtool -l` shows how many a device could have, `ethtool -L` sets them.",
        look: queues,
    },
    Item {
        name: "packet-steering",
        severity: Severity::Info,
        wanted: "spread, where queues are fewer than shards",
        why: "with one queue the CPU of its interrupt does the network's work of all shards",
        more: "Read from queues/rx-*/rps_cpus and net.core.rps_sock_flow_entries. With RPS the interrupt's CPU hands packets on to others, \
               with RFS to the one where they are read. It pays from about a million packets a second on.",
        look: steering,
    },
];

fn interrupt_cpus(subject: &Subject<'_>) -> Told<Look> {
    let machine = subject.machine;
    let wanted = subject.plan.irq_cpus();
    if wanted.cpus().is_empty() {
        let now = "shared with the background and the shards";
        return Ok(Look::absent(now).wants("set apart only where CPUs can be spared"));
    }
    let mut look = Look::good("").wants(format!("on CPUs {wanted}"));
    let mut found = Vec::new();
    let mut reason = None;
    for nic in machine.nics()? {
        let irqs = match machine.nic_irqs(&nic) {
            Ok(irqs) => irqs,
            Err(unknown) => {
                reason = Some(unknown);
                continue;
            }
        };
        for irq in irqs {
            let cpus = machine.irq_cpus(irq)?;
            if !cpus.is_within(wanted) {
                look.verdict = Verdict::Off;
                look = look.set(format!("/proc/irq/{irq}/smp_affinity_list"), wanted.to_string());
            }
            found.push(format!("{nic} {irq}: {cpus}"));
        }
    }
    match (found.is_empty(), reason) {
        (true, reason) => Err(reason.unwrap_or_else(|| Unknown::because("no interrupt is to be seen"))),
        (false, _) => {
            look.now = found.join(", ");
            Ok(look)
        }
    }
}

fn irqbalance(subject: &Subject<'_>) -> Told<Look> {
    let Some(line) = subject.machine.process_named(&["irqbalance"])? else {
        return Ok(Look::good("not running"));
    };
    if subject.plan.irq_cpus().cpus().is_empty() || line.contains("--banirq") {
        return Ok(Look::good(crate::machine::shown(&line)));
    }
    let look = Look::off(crate::machine::shown(&line));
    Ok(look.fix("`systemctl disable --now irqbalance`, or give it --banirq for each interrupt that `apply` moves"))
}

fn queues(subject: &Subject<'_>) -> Told<Look> {
    let machine = subject.machine;
    let wanted = subject.plan.irq_cpus().cpus().len().max(1);
    let mut found = Vec::new();
    let mut is_good = true;
    let nics = machine.nics()?;
    for nic in &nics {
        let (rx, tx) = (machine.nic_queues(nic, "rx")?, machine.nic_queues(nic, "tx")?);
        is_good &= rx.len() >= wanted;
        found.push(format!("{nic}: {} in, {} out", rx.len(), tx.len()));
    }
    let fix = format!("ethtool -L {} combined {wanted}", nics.first().map_or("DEVICE", String::as_str));
    Ok(Look::judged(is_good, found.join(", ")).wants(format!("{wanted} or more")).fix(fix))
}

fn steering(subject: &Subject<'_>) -> Told<Look> {
    let machine = subject.machine;
    let shards = CpuList::new(subject.plan.shards().iter().map(|shard| shard.cpu));
    let mut look = Look::good("");
    let mut found = Vec::new();
    for nic in machine.nics()? {
        let queues = machine.nic_queues(&nic, "rx")?;
        if queues.len() >= shards.cpus().len() {
            found.push(format!("{nic}: a queue for each shard"));
            continue;
        }
        for queue in &queues {
            let path = format!("/sys/class/net/{nic}/queues/{queue}/rps_cpus");
            let words = machine.words(&path)?;
            let cpus = CpuList::parse_mask(&words)
                .ok_or_else(|| Unknown::because(format!("{path} says `{}`", crate::machine::shown(&words))))?;
            if cpus.cpus().is_empty() {
                let flows = FLOWS / u64::try_from(queues.len()).unwrap_or(1);
                look.verdict = Verdict::Off;
                look = look.set(path, shards.mask());
                look = look.set(format!("/sys/class/net/{nic}/queues/{queue}/rps_flow_cnt"), flows.to_string());
            }
            found.push(format!(
                "{nic} {queue}: {}",
                if cpus.cpus().is_empty() { "off".to_owned() } else { cpus.to_string() }
            ));
        }
    }
    if look.verdict == Verdict::Off && machine.number(FLOWS_PATH).is_ok_and(|flows| flows < FLOWS) {
        look = look.set(FLOWS_PATH, FLOWS.to_string());
    }
    look.now = found.join(", ");
    Ok(look)
}
