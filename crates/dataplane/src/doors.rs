//! Where is listened for the shards of a star, from before there are any?

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tuning::bounds::ACCEPT_BACKLOG;
use wire::ids::{ClusterId, StarId};

use crate::porter::Porter;
use crate::start_error::StartError;

/// How long an address may be in use still: the rings of a star that was killed keep its sockets for a moment after its end.
const IN_USE_MAX: Duration = Duration::from_secs(2);
const TRY_EVERY: Duration = Duration::from_millis(20);

/// One listening socket a shard, all on one address. Whoever connects waits until a shard or a [`Porter`] accepts.
#[derive(Debug)]
pub struct Doors {
    addr: SocketAddr,
    listeners: Vec<TcpListener>,
}

impl Doors {
    /// Listens for so many shards; port 0 takes a free one, the same for all.
    ///
    /// # Errors
    /// [`StartError::Listen`] when the address can't be had.
    pub fn open(addr: SocketAddr, shards: usize) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { addr, source };
        // Sharing the port lets a second star take it without an error; a plain socket finds out.
        drop(bind_alone(addr).map_err(failed)?);
        let first = bind(addr, true).map_err(failed)?;
        let bound = first.local_addr().map_err(failed)?.as_socket().unwrap_or(addr);
        let rest = (1..shards).map(|_| bind(bound, true));
        let sockets: Vec<Socket> = std::iter::once(Ok(first)).chain(rest).collect::<io::Result<_>>().map_err(failed)?;
        let listen = |socket: Socket| socket.listen(ACCEPT_BACKLOG).map(|()| TcpListener::from(socket));
        let listeners = sockets.into_iter().map(listen).collect::<io::Result<_>>().map_err(failed)?;
        Ok(Self { addr: bound, listeners })
    }

    /// The address that is listened on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Puts someone there who refuses every request as `unavailable` with this sentence, until he leaves: that must be before
    /// shards serve. A star that has not joined a cluster yet knows none.
    ///
    /// # Errors
    /// [`StartError`] when there are no more descriptors or threads.
    pub fn porter(&self, (cluster, star): (Option<ClusterId>, StarId), why: &str) -> Result<Porter, StartError> {
        let failed = |source| StartError::Listen { addr: self.addr, source };
        Porter::start(self.clones().map_err(failed)?, (cluster, star), why).map_err(failed)
    }

    /// The listeners of so many shards.
    pub(crate) fn listeners(&self, shards: usize) -> Result<Vec<TcpListener>, StartError> {
        if shards != self.listeners.len() {
            return Err(StartError::Shards { recovered: self.listeners.len(), asked: shards });
        }
        self.clones().map_err(|source| StartError::Listen { addr: self.addr, source })
    }

    fn clones(&self) -> io::Result<Vec<TcpListener>> {
        self.listeners.iter().map(TcpListener::try_clone).collect()
    }
}

/// A socket that has the address for itself.
fn bind_alone(addr: SocketAddr) -> io::Result<Socket> {
    let until = Instant::now() + IN_USE_MAX;
    loop {
        match bind(addr, false) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(TRY_EVERY)
            }
            bound => return bound,
        }
    }
}

fn bind(addr: SocketAddr, shares_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of the star before may still be closing.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shares_port)?;
    socket.bind(&SockAddr::from(addr))?;
    Ok(socket)
}
