//! Which CPUs are there, which of them are threads of one core, and near which memory are they?

use std::fmt;

use super::{Machine, Told};

/// More CPUs than any kernel serves; a list that names more is none.
const CPUS_MAX: usize = 8_192;

/// CPUs as the kernel writes them: `0-3,5`. In ascending order, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// These CPUs.
    #[must_use]
    pub fn new(cpus: impl IntoIterator<Item = usize>) -> Self {
        let mut cpus: Vec<usize> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }

    /// Reads a list; an empty text is an empty one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut cpus = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= CPUS_MAX {
                return None;
            }
            cpus.extend(first..=last);
        }
        Some(Self::new(cpus))
    }

    /// Reads a mask as `rps_cpus` has it: words of 32 bits in hexadecimal, the highest first.
    #[must_use]
    pub fn parse_mask(text: &str) -> Option<Self> {
        let mut cpus = Vec::new();
        for (word, text) in text.trim().rsplit(',').enumerate() {
            let bits = u32::from_str_radix(text, 16).ok()?;
            cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 32 + bit));
        }
        Some(Self::new(cpus))
    }

    /// The same as a mask.
    #[must_use]
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let bits = |word: usize| {
            let of_word = self.0.iter().filter(|cpu| **cpu / 32 == word);
            of_word.fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32))
        };
        let rest = (0..words - 1).rev().map(|word| format!(",{:08x}", bits(word)));
        format!("{:x}{}", bits(words - 1), rest.collect::<String>())
    }

    /// Whether this CPU is one of them.
    #[must_use]
    pub fn has(&self, cpu: usize) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// Whether all of them are in `other`.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.iter().all(|cpu| other.has(*cpu))
    }

    /// The CPUs.
    #[must_use]
    pub fn cpus(&self) -> &[usize] {
        &self.0
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|left, right| left + 1 == *right);
        let texts: Vec<String> = runs
            .map(|run| match run {
                [one] => one.to_string(),
                run => format!("{}-{}", run[0], run[run.len() - 1]),
            })
            .collect();
        f.pad(&texts.join(","))
    }
}

/// The CPUs of one core: one, or several where it runs several threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threads {
    /// The CPUs.
    pub cpus: CpuList,
    /// Where its memory is, where the kernel tells.
    pub numa: Option<usize>,
}

/// CPUs that share their memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numa {
    /// Its number.
    pub number: usize,
    /// Its CPUs.
    pub cpus: CpuList,
}

impl Machine {
    /// The CPUs that run.
    ///
    /// # Errors
    /// [`Unknown`](super::Unknown) when the kernel does not tell.
    pub fn cpus_online(&self) -> Told<CpuList> {
        self.cpu_list("/sys/devices/system/cpu/online")
    }

    /// The CPUs that this process may use: its affinity, within the cpuset of its cgroup.
    #[must_use]
    pub fn cpus_usable(&self) -> CpuList {
        let by_affinity = CpuList::new(self.process.cpus.iter().copied());
        match self.cpuset() {
            Some(cpuset) if by_affinity.cpus().iter().any(|cpu| cpuset.has(*cpu)) => {
                CpuList::new(by_affinity.cpus().iter().copied().filter(|cpu| cpuset.has(*cpu)))
            }
            _ => by_affinity,
        }
    }

    /// The places of memory, in order; one that holds all where the kernel tells of none.
    #[must_use]
    pub fn numas(&self) -> Vec<Numa> {
        let folder = "/sys/devices/system/node";
        let names = self.names(folder).unwrap_or_default();
        let numbers = names.iter().filter_map(|name| name.strip_prefix("node")?.parse::<usize>().ok());
        let numa = |number| {
            let cpus = self.cpu_list(&format!("{folder}/node{number}/cpulist")).ok()?;
            (!cpus.cpus().is_empty()).then_some(Numa { number, cpus })
        };
        numbers.filter_map(numa).collect()
    }

    /// `cpus` as cores, in the order of their first CPU. A CPU of which the kernel does not tell its siblings is a core.
    #[must_use]
    pub fn cores(&self, cpus: &CpuList) -> Vec<Threads> {
        let numas = self.numas();
        let mut cores: Vec<Threads> = Vec::new();
        for cpu in cpus.cpus().iter().copied() {
            if cores.iter().any(|core| core.cpus.has(cpu)) {
                continue;
            }
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let siblings = self.cpu_list(&path).unwrap_or_default();
            let here = siblings.cpus().iter().copied().filter(|sibling| cpus.has(*sibling));
            let numa = numas.iter().find(|numa| numa.cpus.has(cpu)).map(|numa| numa.number);
            cores.push(Threads { cpus: CpuList::new(here.chain([cpu])), numa });
        }
        cores
    }
}
