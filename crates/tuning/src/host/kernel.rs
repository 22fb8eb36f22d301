//! Which kernel is this, and does it let us use `io_uring`?

use std::fmt;
use std::fs;
use std::path::Path;

use thiserror::Error;

const DISABLED_PATH: &str = "/proc/sys/kernel/io_uring_disabled";

/// Version of a Linux kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRelease {
    major: u32,
    minor: u32,
}

impl KernelRelease {
    /// The first one with `IORING_SETUP_COOP_TASKRUN`.
    pub const COOP_TASKRUN: Self = Self { major: 5, minor: 19 };
    /// The first long-lived one without the stalls of large direct reads that 5.15 shows.
    pub const RECOMMENDED: Self = Self { major: 6, minor: 1 };

    /// Reads the two leading numbers of what `uname -r` prints.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some(Self { major: numbers.next()?.ok()?, minor: numbers.next()?.ok()? })
    }

    /// The kernel that runs; none when its name starts with no version.
    #[must_use]
    pub fn running() -> Option<Self> {
        Self::parse(&rustix::system::uname().release().to_string_lossy())
    }
}

impl fmt::Display for KernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The administrator has switched `io_uring` off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "io_uring is switched off on this host (kernel.io_uring_disabled = {value}): \
     set it to 0 with `sysctl -w kernel.io_uring_disabled=0`"
)]
pub struct IoUringDisabled {
    /// Value of the sysctl.
    pub value: u32,
}

/// Whether the sysctl lets this process use `io_uring`.
///
/// A seccomp filter, as some container runtimes have one, can still refuse it: only setting a ring
/// up tells, which the owner of the rings does when it opens the first.
pub(crate) fn io_uring_allowed() -> Result<(), IoUringDisabled> {
    let text = fs::read_to_string(Path::new(DISABLED_PATH)).unwrap_or_default();
    judge_io_uring(&text, rustix::process::geteuid().is_root())
}

/// A kernel without the sysctl has no such switch. 1 leaves it to privileged processes, 2 to none.
pub(super) fn judge_io_uring(sysctl: &str, is_root: bool) -> Result<(), IoUringDisabled> {
    match sysctl.trim().parse().unwrap_or(0) {
        0 => Ok(()),
        1 if is_root => Ok(()),
        value => Err(IoUringDisabled { value }),
    }
}
