//! What do the control groups of this process allow it, in their first or second version?

use super::{CpuList, Machine, Told};

/// A limit that is larger says that there is none; version 1 writes about 2^63.
const NO_LIMIT: u64 = 1 << 60;

/// The file of a limit, in version 2 and in version 1 with its controller.
struct Limit {
    unified: &'static str,
    controller: &'static str,
    legacy: &'static str,
}

const CPUSET: Limit = Limit { unified: "cpuset.cpus.effective", controller: "cpuset", legacy: "cpuset.effective_cpus" };
const MEMORY: Limit = Limit { unified: "memory.max", controller: "memory", legacy: "memory.limit_in_bytes" };
const QUOTA: Limit = Limit { unified: "cpu.max", controller: "cpu", legacy: "cpu.cfs_quota_us" };
const STAT: Limit = Limit { unified: "cpu.stat", controller: "cpu", legacy: "cpu.stat" };

impl Machine {
    /// CPUs' worth of time that this process may take, in thousandths; none is no quota.
    ///
    /// # Errors
    /// [`Unknown`](super::Unknown) when the process's groups can't be read.
    pub fn cpu_quota_millis(&self) -> Told<Option<u64>> {
        let quotas = self.limits(&QUOTA)?.into_iter().filter_map(|path| {
            let text = self.words(&path).ok()?;
            let (quota, period) = match text.split_once(' ') {
                Some((quota, period)) => (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?),
                None => (text.parse::<u64>().ok()?, self.number(&path.replace("quota", "period")).ok()?),
            };
            quota.checked_mul(1_000)?.checked_div(period)
        });
        Ok(quotas.min())
    }

    /// Periods in which this process's group used up its quota.
    ///
    /// # Errors
    /// [`Unknown`](super::Unknown) when no group counts them.
    pub fn periods_throttled(&self) -> Told<u64> {
        let paths = self.limits(&STAT)?;
        let of = |path: &String| {
            let text = self.text(path).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("nr_throttled "))?;
            line.trim().parse().ok()
        };
        paths.iter().find_map(of).ok_or_else(|| super::Unknown::because("no group counts nr_throttled"))
    }

    /// Bytes that this process may use: what its groups allow, within the memory of the host.
    ///
    /// # Errors
    /// [`Unknown`](super::Unknown) when neither can be told.
    pub fn memory_bytes(&self) -> Told<u64> {
        let host = self.meminfo_bytes("MemTotal");
        let groups = self.limits(&MEMORY).unwrap_or_default();
        let limits = groups.iter().filter_map(|path| self.number(path).ok()).filter(|bytes| *bytes < NO_LIMIT);
        match (limits.min(), host) {
            (Some(limit), Ok(host)) => Ok(limit.min(host)),
            (Some(limit), Err(_)) => Ok(limit),
            (None, host) => host,
        }
    }

    /// A line of `/proc/meminfo`, in bytes.
    ///
    /// # Errors
    /// [`Unknown`](super::Unknown) when it is not there, or no number.
    pub fn meminfo_bytes(&self, name: &str) -> Told<u64> {
        let path = "/proc/meminfo";
        let text = self.text(path)?;
        let kib = text.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?.strip_prefix(':')?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        });
        let bytes = kib.and_then(|kib| kib.checked_mul(1_024));
        bytes.ok_or_else(|| super::Unknown::because(format!("{path} has no number for {name}")))
    }

    /// The CPUs of this process's group; none where there is no cpuset.
    pub(super) fn cpuset(&self) -> Option<CpuList> {
        let paths = self.limits(&CPUSET).ok()?;
        paths.iter().find_map(|path| self.cpu_list(path).ok()).filter(|list| !list.cpus().is_empty())
    }

    /// Files that hold a limit: that of the process's group, and of every group above it.
    fn limits(&self, limit: &Limit) -> Told<Vec<String>> {
        let groups = self.text("/proc/self/cgroup")?;
        let mut paths = Vec::new();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
            let (mounts, file) = if controllers.is_empty() {
                (vec!["/sys/fs/cgroup".to_owned(), "/sys/fs/cgroup/unified".to_owned()], limit.unified)
            } else if controllers.split(',').any(|name| name == limit.controller) {
                let alone = format!("/sys/fs/cgroup/{}", limit.controller);
                (vec![format!("/sys/fs/cgroup/{controllers}"), alone], limit.legacy)
            } else {
                continue;
            };
            let Some(mount) = mounts.into_iter().find(|mount| self.has(mount)) else { continue };
            paths.extend(above(group).map(|group| format!("{mount}{group}/{file}")).filter(|path| self.has(path)));
        }
        Ok(paths)
    }
}

/// A group and those above it, the root as an empty text. What leads out of the tree is left out.
fn above(group: &str) -> impl Iterator<Item = &str> {
    let group = if group.split('/').any(|part| part == "..") { "" } else { group.trim_end_matches('/') };
    std::iter::successors(Some(group), |group| group.rsplit_once('/').map(|(above, _)| above))
}
