//! How is a surface served: its address taken, connections accepted and bounded, and all of it ended?

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};
use wire::reason::Reason;

/// Connections held at once, when nothing else is asked for.
const CONNECTIONS_MAX_DEFAULT: usize = 4_096;
/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 1_024;
/// Silence of a connection after which the system asks whether the other side is there, how often it asks again, and how many
/// answers are missed until the connection is broken.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_MISSED_MAX: u32 = 3;
/// Time that requests have to finish, when nothing else is asked for.
const END_WITHIN: Duration = Duration::from_secs(5);
/// Time for what still runs once requests had theirs.
const CUT_OFF_WITHIN: Duration = Duration::from_millis(100);

/// How a surface is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// Connections held at once; one more is turned away.
    pub connections_max: usize,
    /// CPUs that its threads may run on; empty is any.
    pub cpus: Vec<usize>,
    /// Threads that serve; 0 is one.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections_max: CONNECTIONS_MAX_DEFAULT, cpus: Vec::new(), threads: 1 }
    }
}

/// What is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// HTTP.
    Http,
    /// The façade for S2's clients.
    S2,
}

impl Kind {
    const fn thread(self) -> &'static str {
        match self {
            Self::Http => "nova-http",
            Self::S2 => "nova-s2",
        }
    }

    const fn flag(self) -> &'static str {
        match self {
            Self::Http => "--http",
            Self::S2 => "--s2",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Http => "HTTP",
            Self::S2 => "the façade for S2's clients",
        })
    }
}

/// An address that is taken, though nobody can connect to it yet.
#[derive(Debug)]
pub struct Bound {
    kind: Kind,
    socket: TcpSocket,
    listen: SocketAddr,
}

impl Bound {
    /// Takes an address; port 0 is any that is free.
    ///
    /// # Errors
    /// [`StartError::Listen`], such as when another process is there.
    pub fn bind(kind: Kind, listen: SocketAddr) -> Result<Self, StartError> {
        let bind = || {
            let socket = if listen.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // A star that was just ended may be started again at once.
            socket.set_reuseaddr(true)?;
            socket.bind(listen)?;
            Ok(socket)
        };
        let socket = bind().map_err(|error| StartError::Listen { kind, listen, error })?;
        Ok(Self { kind, socket, listen })
    }
}

/// Why a surface is not served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address can't be listened on.
    #[error(
        "{kind} can't listen on {listen}: {error}; is another process there? {flag} names another address, {flag} off none",
        flag = kind.flag()
    )]
    Listen {
        /// What was to be served.
        kind: Kind,
        /// Where.
        listen: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// No thread or runtime.
    #[error("{kind} can't be served: {error}")]
    Runtime {
        /// What was to be served.
        kind: Kind,
        /// What the system says.
        error: io::Error,
    },
}

impl StartError {
    /// Why, to branch on.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Listen { .. } => Reason::FailedPrecondition,
            Self::Runtime { .. } => Reason::Internal,
        }
    }
}

/// Tells when a surface is about to end.
#[derive(Debug, Clone)]
pub(crate) struct Draining(watch::Receiver<Option<Instant>>);

impl Draining {
    pub(crate) fn has_begun(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits for it, and says until when requests may take; a server that is gone ends at once.
    pub(crate) async fn begun(&mut self) -> Instant {
        match self.0.wait_for(Option::is_some).await {
            Ok(until) => until.unwrap_or_else(Instant::now),
            Err(_) => Instant::now(),
        }
    }
}

/// What happens to connections.
pub(crate) trait Serve: Clone + Send + 'static {
    /// Serves a connection to its end.
    fn connection(self, socket: TcpStream) -> impl Future<Output = ()> + Send;

    /// A connection over the bound; it is closed then.
    fn turn_away(&self, socket: &TcpStream);
}

/// A surface, served by threads of its own until it is stopped or dropped.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    addr: SocketAddr,
    draining: watch::Sender<Option<Instant>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and serves by what `make` makes.
    pub(crate) fn start<S: Serve>(
        bound: Bound,
        options: &Options,
        make: impl FnOnce(Draining) -> S + Send + 'static,
    ) -> Result<Self, StartError> {
        let Bound { kind, socket, listen } = bound;
        let stuck = |error| StartError::Runtime { kind, error };
        let runtime = runtime(kind, options).map_err(stuck)?;
        let listener = {
            let _entered = runtime.enter();
            socket.listen(BACKLOG).map_err(|error| StartError::Listen { kind, listen, error })?
        };
        let addr = listener.local_addr().map_err(|error| StartError::Listen { kind, listen, error })?;
        let (draining, watching) = watch::channel(None);
        let (connections_max, cpus) = (options.connections_max, options.cpus.clone());
        let serve = move || {
            stay_on(&cpus);
            let draining = Draining(watching);
            runtime.block_on(accept(kind, listener, make(draining.clone()), draining, connections_max));
            runtime.shutdown_timeout(CUT_OFF_WITHIN);
        };
        let thread = thread::Builder::new().name(kind.thread().to_owned()).spawn(serve).map_err(stuck)?;
        Ok(Self { kind, addr, draining, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Takes no more connections, ends what is followed, and gives requests so long to finish; [`Server::stop`] waits for it.
    pub fn drain(&self, within: Duration) {
        self.draining.send_if_modified(|until| {
            let begins = until.is_none();
            until.get_or_insert(Instant::now() + within);
            begins
        });
    }

    /// Ends it, within a few seconds unless [`Server::drain`] said otherwise before.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.drain(END_WITHIN);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the threads of {} ended by a panic", self.kind);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn runtime(kind: Kind, options: &Options) -> io::Result<tokio::runtime::Runtime> {
    let mut builder = match options.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    let cpus = options.cpus.clone();
    builder.thread_name(kind.thread()).on_thread_start(move || stay_on(&cpus)).enable_all().build()
}

/// Keeps the current thread off the CPUs that others have for themselves.
fn stay_on(cpus: &[usize]) {
    if cpus.is_empty() {
        return;
    }
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        set.set(*cpu);
    }
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::debug!(%error, "a thread of a surface runs on any CPU");
    }
}

/// Lets the system find out that the other side is gone without a word, which whoever waits for it would not.
fn keep_alive(socket: &TcpStream) {
    let set = || {
        sockopt::set_tcp_keepidle(socket, KEEPALIVE_AFTER)?;
        sockopt::set_tcp_keepintvl(socket, KEEPALIVE_EVERY)?;
        sockopt::set_tcp_keepcnt(socket, KEEPALIVE_MISSED_MAX)?;
        sockopt::set_socket_keepalive(socket, true)
    };
    if let Err(error) = set() {
        tracing::debug!(%error, "a connection is not asked whether its other side is there");
    }
}

async fn accept(kind: Kind, listener: TcpListener, serve: impl Serve, mut draining: Draining, connections_max: usize) {
    let places = Arc::new(Semaphore::new(connections_max));
    let until = loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            until = draining.begun() => break until,
        };
        match accepted {
            Ok((socket, _)) => match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => {
                    keep_alive(&socket);
                    let connection = serve.clone().connection(socket);
                    tokio::spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(_) => serve.turn_away(&socket),
            },
            Err(error) => {
                tracing::warn!(%error, "{kind} can't accept a connection");
                // Most of these pass, such as a want of descriptors; some would be told again at once.
                sleep(Duration::from_millis(20)).await;
            }
        }
    };
    drop(listener);
    // Once all places are back nobody is being served.
    let all = u32::try_from(connections_max).unwrap_or(u32::MAX);
    if timeout_at(until, places.acquire_many(all)).await.is_err() {
        tracing::warn!("{kind} cuts some requests off");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Tells each client whether, and after which silence, it is asked whether it is there.
    #[derive(Clone)]
    struct Telling;

    impl Serve for Telling {
        async fn connection(self, mut socket: TcpStream) {
            let (is_asked, after) =
                (sockopt::socket_keepalive(&socket).unwrap(), sockopt::tcp_keepidle(&socket).unwrap());
            socket.write_all(format!("{is_asked} {}", after.as_secs()).as_bytes()).await.unwrap();
        }

        fn turn_away(&self, _socket: &TcpStream) {}
    }

    #[test]
    fn every_connection_is_asked_whether_its_other_side_is_there() {
        let bound = Bound::bind(Kind::Http, "127.0.0.1:0".parse().unwrap()).unwrap();
        let server = Server::start(bound, &Options::default(), |_| Telling).unwrap();
        let mut told = String::new();
        std::net::TcpStream::connect(server.addr()).unwrap().read_to_string(&mut told).unwrap();
        assert_eq!(told, "true 30");
        server.stop();
    }
}
