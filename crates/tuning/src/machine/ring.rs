//! Which operations of `io_uring` does the kernel let this process use?

use std::io;

use io_uring::opcode::{
    Accept, AsyncCancel, Close, Connect, Fallocate, Fsync, LinkTimeout, Nop, OpenAt, PollAdd, PollRemove, Read,
    ReadFixed, Readv, Recv, RecvMsg, Send, SendMsg, Statx, Timeout, TimeoutRemove, Write, WriteFixed, Writev,
};
use io_uring::{IoUring, Probe};
use rustix::io::Errno;

use super::{Told, Unknown};

/// Entries of the ring that is opened to ask, and closed.
const ENTRIES: u32 = 2;

/// Operations that the runtime of a shard uses or asks for as it starts: without one of them it ends the process.
const NEEDED: [(&str, u8); 24] = [
    ("NOP", Nop::CODE),
    ("READV", Readv::CODE),
    ("WRITEV", Writev::CODE),
    ("FSYNC", Fsync::CODE),
    ("READ_FIXED", ReadFixed::CODE),
    ("WRITE_FIXED", WriteFixed::CODE),
    ("POLL_ADD", PollAdd::CODE),
    ("POLL_REMOVE", PollRemove::CODE),
    ("SENDMSG", SendMsg::CODE),
    ("RECVMSG", RecvMsg::CODE),
    ("TIMEOUT", Timeout::CODE),
    ("TIMEOUT_REMOVE", TimeoutRemove::CODE),
    ("ACCEPT", Accept::CODE),
    ("ASYNC_CANCEL", AsyncCancel::CODE),
    ("LINK_TIMEOUT", LinkTimeout::CODE),
    ("CONNECT", Connect::CODE),
    ("FALLOCATE", Fallocate::CODE),
    ("OPENAT", OpenAt::CODE),
    ("CLOSE", Close::CODE),
    ("STATX", Statx::CODE),
    ("READ", Read::CODE),
    ("WRITE", Write::CODE),
    ("SEND", Send::CODE),
    ("RECV", Recv::CODE),
];

/// Operations of rings, as the kernel tells of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingOps {
    missing: Vec<&'static str>,
}

impl RingOps {
    /// How many shards need.
    pub const NEEDED: usize = NEEDED.len();

    /// Opens a ring, asks, and closes it.
    ///
    /// # Errors
    /// [`Unknown`] when no ring can be opened or asked, as where a container's filter forbids it.
    pub fn here() -> Told<Self> {
        let ring = IoUring::new(ENTRIES).map_err(|error| refused(&error))?;
        let mut probe = Probe::new();
        ring.submitter()
            .register_probe(&mut probe)
            .map_err(|error| Unknown::because(format!("a ring can't be asked for its operations: {error}")))?;
        Ok(Self::of(|code| probe.is_supported(code)))
    }

    pub(crate) fn of(is_supported: impl Fn(u8) -> bool) -> Self {
        let missing = NEEDED.iter().filter(|(_, code)| !is_supported(*code));
        Self { missing: missing.map(|(name, _)| *name).collect() }
    }

    /// Names of those that shards need and that are not there.
    #[must_use]
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }
}

/// Why no ring can be opened, with what mostly stands behind it.
fn refused(error: &io::Error) -> Unknown {
    let by = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => "; a sysctl, a filter of system calls or a security module forbids it",
        Some(Errno::NOSYS) => "; the kernel has no io_uring, or a filter of system calls hides it",
        Some(Errno::NOMEM) => "; this process may lock too little memory",
        _ => "",
    };
    Unknown::because(format!("no ring can be opened: {error}{by}"))
}

#[cfg(test)]
mod tests {
    use super::{NEEDED, RingOps, refused};
    use std::collections::BTreeSet;
    use std::io;

    #[test]
    fn what_a_kernel_lacks_is_named() {
        assert_eq!(RingOps::of(|_| true).missing(), [""; 0]);
        assert_eq!(RingOps::of(|_| false).missing().len(), RingOps::NEEDED);
        // IORING_OP_FALLOCATE and IORING_OP_RECV of linux/io_uring.h.
        assert_eq!(RingOps::of(|code| code != 17 && code != 27).missing(), ["FALLOCATE", "RECV"]);
        let codes: BTreeSet<u8> = NEEDED.iter().map(|(_, code)| *code).collect();
        assert_eq!(codes.len(), NEEDED.len());
    }

    #[test]
    fn a_ring_that_is_refused_says_by_what() {
        for (errno, says) in
            [(1, "a filter of system calls"), (38, "the kernel has no io_uring"), (12, "lock too little")]
        {
            let why = refused(&io::Error::from_raw_os_error(errno)).to_string();
            assert!(why.starts_with("no ring can be opened: ") && why.contains(says), "{why}");
        }
    }

    #[test]
    fn this_kernel_answers_or_says_why_not() {
        match RingOps::here() {
            Ok(ops) => assert!(ops.missing().len() < RingOps::NEEDED),
            Err(why) => assert!(why.to_string().contains("ring can"), "{why}"),
        }
    }
}
