//! How does the shell take over a descriptor, and send on one without waiting?

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use glommio::net::{TcpListener, TcpStream};
use rustix::net::{SendFlags, Shutdown};

/// Makes a stream of the executor of this thread from a connected socket.
#[expect(unsafe_code, reason = "glommio has no safe way to adopt a socket")]
pub(crate) fn adopt_stream(socket: OwnedFd) -> TcpStream {
    // SAFETY: the descriptor is open and owned by `socket`, which gives it up here; the stream closes it.
    unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) }
}

/// Makes a listener of the executor of this thread from a listening socket.
#[expect(unsafe_code, reason = "glommio has no safe way to adopt a socket")]
pub(crate) fn adopt_listener(socket: OwnedFd) -> TcpListener {
    // SAFETY: the descriptor is open and owned by `socket`, which gives it up here; the listener closes it.
    unsafe { TcpListener::from_raw_fd(socket.into_raw_fd()) }
}

#[expect(unsafe_code, reason = "glommio's sockets lend their descriptor as a number only")]
fn with_fd<R>(stream: &TcpStream, call: impl FnOnce(BorrowedFd<'_>) -> R) -> R {
    // SAFETY: `stream` owns the descriptor and outlives this call, and with it the borrow.
    call(unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) })
}

/// Sends what the kernel takes at once; [`io::ErrorKind::WouldBlock`] when that is nothing.
pub(crate) fn send_now(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    with_fd(stream, |fd| {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match rustix::net::send(fd, bytes, flags) {
                Err(rustix::io::Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    })
}

/// Tells the peer that nothing more comes.
pub(crate) fn shutdown_sending(stream: &TcpStream) {
    // A peer that is gone already needs no telling.
    let _ = with_fd(stream, |fd| rustix::net::shutdown(fd, Shutdown::Write));
}

/// Ends both directions, which wakes whoever waits for the socket.
pub(crate) fn shutdown(stream: &TcpStream) {
    // A peer that is gone already needs no telling.
    let _ = with_fd(stream, |fd| rustix::net::shutdown(fd, Shutdown::Both));
}

/// A second descriptor of the same socket.
pub(crate) fn duplicate(stream: &TcpStream) -> io::Result<OwnedFd> {
    with_fd(stream, |fd| Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?))
}
