//! Which flags the rings of this process get: COOP_TASKRUN, which glommio does not know.
//!
//! With the flag, an event of a socket or a disk does not interrupt the shard that waits for it: about twice the acks a
//! second on the same core. glommio's C part sets its rings up through `__sys_io_uring_setup`. A binary that links with
//! `-Wl,--wrap=__sys_io_uring_setup` goes through the function below instead; one that does not works as well, slower.

#![expect(unsafe_code, reason = "the linker puts this in place of a C function that takes a pointer")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

const SETUP_IOPOLL: u32 = 1 << 0;
const SETUP_COOP_TASKRUN: u32 = 1 << 8;
const SYS_IO_URING_SETUP: i64 = 425;
/// Where `flags` stands in `struct io_uring_params`, counted in numbers of 32 bits.
const FLAGS_AT: usize = 2;
/// Length of `struct io_uring_params`, counted alike.
const PARAMS: usize = 30;

static COOP_TASKRUN_RINGS: AtomicU32 = AtomicU32::new(0);
static KERNEL_KNOWS: LazyLock<bool> = LazyLock::new(kernel_knows);

/// How many rings of this process were set up with COOP_TASKRUN: two an executor when the wrap took hold.
#[must_use]
pub fn coop_taskrun_rings() -> u32 {
    COOP_TASKRUN_RINGS.load(Ordering::Relaxed)
}

/// Whether this process may set up a ring; tried with a small one, which is closed at once. Nothing else tells of a
/// filter, such as many containers have, and glommio ends a shard's thread where it can't have its rings.
///
/// # Errors
/// What the system says.
pub fn try_ring() -> io::Result<()> {
    let mut params = [0_u32; PARAMS];
    // SAFETY: `params` is a whole `struct io_uring_params`, zeroed, and outlives the call.
    let answer = unsafe { syscall(SYS_IO_URING_SETUP, 1_u32, params.as_mut_ptr()) };
    let fd = c_int::try_from(answer).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave this descriptor to nobody else.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

/// Whether the kernel has the flag, which came with Linux 5.19.
fn kernel_knows() -> bool {
    let uname = rustix::system::uname();
    parse_release(&uname.release().to_string_lossy()).is_some_and(|release| release >= (5, 19))
}

fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
}

/// Stands in for liburing's wrapper of io_uring_setup, see the module.
///
/// # Safety
/// `params` points to a `struct io_uring_params`, as for the function that this one replaces.
#[unsafe(no_mangle)]
#[expect(unreachable_pub, reason = "the linker reaches it")]
pub unsafe extern "C" fn __wrap___sys_io_uring_setup(entries: u32, params: *mut u32) -> c_int {
    // SAFETY: the caller gives a whole `struct io_uring_params`, of which `flags` is the third number.
    let flags = unsafe { &mut *params.add(FLAGS_AT) };
    // A polled ring has no interrupts to spare, and refuses the flag on some kernels.
    let sleeps = *flags & SETUP_IOPOLL == 0;
    if sleeps && *KERNEL_KNOWS {
        *flags |= SETUP_COOP_TASKRUN;
        COOP_TASKRUN_RINGS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the same call as the one that is replaced, with the same arguments.
    let answer = unsafe { syscall(SYS_IO_URING_SETUP, entries, params) };
    c_int::try_from(answer).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::{parse_release, try_ring};

    #[test]
    fn a_ring_is_to_be_had_where_tests_of_a_log_run() {
        try_ring().unwrap();
    }

    #[test]
    fn the_release_of_a_kernel_is_read() {
        assert_eq!(parse_release("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(parse_release("5.4"), Some((5, 4)));
        assert_eq!(parse_release("unknown"), None);
    }
}
