//! What is true of this machine, read without changing it?

mod disk;
mod kernel;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use disk::{DiskFacts, FileSystem, Fitness, file_system};
pub(crate) use disk::{disk_bytes, disk_facts, file_system_number, free_bytes};
pub(crate) use kernel::io_uring_allowed;
pub use kernel::{IoUringDisabled, KernelRelease};

/// What a measurement must say about the machine it was made on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostFacts {
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Processor architecture, as `uname -m` prints it.
    pub machine: String,
    /// Processor model; none where the kernel does not tell.
    pub cpu_model: Option<String>,
    /// CPUs that this process may run on.
    pub cpus: Vec<usize>,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// File system and device below the directory that was asked about.
    pub disk: Option<DiskFacts>,
}

impl HostFacts {
    /// Reads the facts; `data` is the directory whose disk matters. What can't be read is left out.
    #[must_use]
    pub fn read(data: &Path) -> Self {
        let uname = rustix::system::uname();
        Self {
            kernel: uname.release().to_string_lossy().into_owned(),
            machine: uname.machine().to_string_lossy().into_owned(),
            cpu_model: fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| cpu_model(&text)),
            cpus: cpus_allowed(),
            memory_bytes: memory_bytes(),
            disk: disk_facts(data).ok(),
        }
    }
}

/// CPUs that this process may run on, ascending and never empty. Taken from its affinity, so that
/// a container's cpuset and `taskset` are honoured.
#[must_use]
pub fn cpus_allowed() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return vec![0];
    };
    let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// The directory at `path`, or the nearest above it that is there. A path that is not absolute is one of the working directory.
#[must_use]
pub fn nearest_directory(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().find(|path| path.is_dir()).unwrap_or_else(|| Path::new("/")).to_owned()
}

fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim().to_owned())
}

#[cfg(test)]
mod tests;
