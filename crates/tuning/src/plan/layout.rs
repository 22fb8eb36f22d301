//! Which CPUs are for interrupts, which for shards, which for the background, on this very host?

use crate::machine::{CpuList, Machine, Threads};
use crate::plan::Plan;
use crate::settings::Settings;

/// Hosts with so many CPUs or fewer share them with interrupts.
const SHARED_CPUS_MAX: usize = 4;
/// Cores that one core takes the interrupts of.
const CORES_PER_IRQ_CORE: usize = 16;
/// CPUs of shards that one CPU of the background carries.
const SHARDS_PER_CONTROL_CPU: usize = 8;
/// Cores from which on the other thread of a shard's core is left idle.
const APART_CORES_MIN: usize = 3;
/// Most shards that a star has.
const SHARDS_MAX: usize = 64;

/// What the shards are laid out for, where cores run several threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// A core a shard: the shortest tail.
    Latency,
    /// A thread a shard: the most work.
    Throughput,
}

impl Goal {
    /// The word that users write.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
        }
    }
}

/// Where one shard runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardPlace {
    /// Its CPU.
    pub cpu: usize,
    /// Where its memory is, where the kernel tells.
    pub numa: Option<usize>,
    /// The other threads of its core, which stay idle.
    pub idle: CpuList,
    /// The other threads of its core that do something else.
    pub busy: CpuList,
}

/// How one star is laid over a host. It is what novad does by itself when it may run on [`HostPlan::cpus`] alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlan {
    irq_cpus: CpuList,
    cpus: CpuList,
    plan: Plan,
    shards: Vec<ShardPlace>,
    notes: Vec<String>,
}

impl HostPlan {
    /// Lays the shards that the settings ask for over the host; 0 asks for as many as suit it.
    #[must_use]
    pub fn of(machine: &Machine, settings: &Settings, goal: Goal) -> Self {
        let usable = machine.cpus_usable();
        let usable = if usable.cpus().is_empty() { CpuList::new([0]) } else { usable };
        let quota =
            machine.cpu_quota_millis().ok().flatten().map(|millis| usize::try_from(millis / 1_000).unwrap_or(1));
        let is_whole = quota.is_none() && machine.cpus_online().is_ok_and(|online| online == usable);
        let cores = machine.cores(&usable);
        let irq_cores = if is_whole { irq_cores(machine, &usable, &cores) } else { Vec::new() };
        let irq_cpus = CpuList::new(irq_cores.iter().flat_map(|core| core.cpus.cpus().iter().copied()));
        let rest: Vec<&Threads> = cores.iter().filter(|core| !irq_cores.contains(core)).collect();
        let mut notes = Vec::new();
        let has_threads = rest.iter().any(|core| core.cpus.cpus().len() > 1);
        let is_apart = has_threads && goal == Goal::Latency && rest.len() >= APART_CORES_MIN;
        let (control, for_shards) = if is_apart { apart(&rest) } else { together(&rest) };
        let fitting = for_shards.len().min(SHARDS_MAX);
        let fitting = quota.map_or(fitting, |quota| fitting.min(quota.saturating_sub(1).max(1)));
        let shards = if settings.shards == 0 { fitting } else { usize::from(settings.shards) };
        if quota.is_some() {
            notes.push("a CPU quota is set: shards and the background fit into it".to_owned());
        }
        if shards > fitting {
            notes.push(format!("{shards} shards are asked for, and {fitting} suit this host"));
        }
        // More shards than suit the host take every thread before they share one.
        let cpus = if shards > for_shards.len() {
            CpuList::new(rest.iter().flat_map(|core| core.cpus.cpus().iter().copied()))
        } else {
            CpuList::new(control.into_iter().chain(for_shards))
        };
        let plan = Plan::new(u16::try_from(shards).unwrap_or(u16::MAX), cpus.cpus());
        let shards = plan.shard_cpus().iter().map(|cpu| place(*cpu, &cores, &cpus)).collect();
        Self { irq_cpus, cpus, plan, shards, notes }
    }

    /// CPUs that are left to interrupts; empty where they are shared.
    #[must_use]
    pub fn irq_cpus(&self) -> &CpuList {
        &self.irq_cpus
    }

    /// CPUs that novad is to run on.
    #[must_use]
    pub fn cpus(&self) -> &CpuList {
        &self.cpus
    }

    /// CPUs of the background.
    #[must_use]
    pub fn control_cpus(&self) -> CpuList {
        CpuList::new(self.plan.control_cpus().iter().copied())
    }

    /// Where each shard runs, by its number.
    #[must_use]
    pub fn shards(&self) -> &[ShardPlace] {
        &self.shards
    }

    /// Whether shards share CPUs with each other or with the background.
    #[must_use]
    pub fn shares_cores(&self) -> bool {
        self.plan.shares_cores()
    }

    /// What is to be known about it.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// Cores for interrupts: those of the network device's memory first, then in turn.
fn irq_cores(machine: &Machine, usable: &CpuList, cores: &[Threads]) -> Vec<Threads> {
    if usable.cpus().len() <= SHARED_CPUS_MAX || cores.len() < APART_CORES_MIN {
        return Vec::new();
    }
    let nics = machine.nics().unwrap_or_default();
    let near = nics.iter().find_map(|nic| machine.nic_numa(nic));
    let mut numas: Vec<Option<usize>> = cores.iter().map(|core| core.numa).collect();
    numas.sort_by_key(|numa| (*numa != near, *numa));
    numas.dedup();
    let mut taken: Vec<Threads> = Vec::new();
    for number in 0..cores.len().div_ceil(CORES_PER_IRQ_CORE) {
        let numa = numas[number % numas.len()];
        let free = cores.iter().filter(|core| !taken.contains(core)).collect::<Vec<_>>();
        let core = free.iter().find(|core| core.numa == numa).or_else(|| free.first());
        taken.extend(core.map(|core| (*core).clone()));
    }
    taken
}

/// A core a shard, of which it gets the last thread; the first cores are the background's. CPUs of the background and of shards.
fn apart(cores: &[&Threads]) -> (Vec<usize>, Vec<usize>) {
    let control = (cores.len() / SHARDS_PER_CONTROL_CPU).max(1);
    let (control, shards) = cores.split_at(control);
    let control = control.iter().flat_map(|core| core.cpus.cpus().iter().copied());
    (control.collect(), shards.iter().filter_map(|core| core.cpus.cpus().last().copied()).collect())
}

/// A thread a shard; the first ones are the background's.
fn together(cores: &[&Threads]) -> (Vec<usize>, Vec<usize>) {
    let cpus = CpuList::new(cores.iter().flat_map(|core| core.cpus.cpus().iter().copied()));
    let control = match cpus.cpus().len() {
        1 => return (Vec::new(), cpus.cpus().to_vec()),
        cpus => (cpus / SHARDS_PER_CONTROL_CPU).max(1),
    };
    let (control, shards) = cpus.cpus().split_at(control);
    (control.to_vec(), shards.to_vec())
}

fn place(cpu: usize, cores: &[Threads], used: &CpuList) -> ShardPlace {
    let core = cores.iter().find(|core| core.cpus.has(cpu));
    let others = core.map(|core| core.cpus.cpus()).unwrap_or_default().iter().copied().filter(|other| *other != cpu);
    let (busy, idle): (Vec<usize>, Vec<usize>) = others.partition(|other| used.has(*other));
    ShardPlace { cpu, numa: core.and_then(|core| core.numa), idle: CpuList::new(idle), busy: CpuList::new(busy) }
}

#[cfg(test)]
mod tests;
