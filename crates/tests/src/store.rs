//! How does a test take the store away from a star, slow it down, and look into it?

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::combination::s3_server;
use crate::scratch::Scratch;

/// A store that a test can take away: a directory that is moved, or a proxy before an S3 server that is closed.
#[derive(Debug)]
pub struct Store {
    place: Place,
    args: Vec<String>,
}

#[derive(Debug)]
enum Place {
    Directory { at: PathBuf, away: PathBuf },
    S3(Proxy),
}

impl Store {
    /// One for stars of this test.
    ///
    /// # Panics
    /// When there is no port for a proxy.
    #[must_use]
    pub fn new(scratch: &Scratch) -> Self {
        if let Some(server) = s3_server() {
            let proxy = Proxy::before(server);
            let args = vec!["--s3-endpoint".to_owned(), format!("http://{}", proxy.addr)];
            return Self { place: Place::S3(proxy), args: [args, attempts()].concat() };
        }
        let at = scratch.join("store");
        let args = vec!["--store".to_owned(), at.display().to_string()];
        Self { place: Place::Directory { at, away: scratch.join("store-is-away") }, args }
    }

    /// The arguments of a star that uses it, and more.
    #[must_use]
    pub fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.args.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }

    /// Takes it away: nothing is answered any more.
    ///
    /// # Panics
    /// When it can't be.
    pub fn take_away(&self) {
        match &self.place {
            Place::Directory { at, away } => std::fs::rename(at, away).expect("the store is moved away"),
            Place::S3(proxy) => proxy.close(),
        }
    }

    /// Gives it back as it was.
    ///
    /// # Panics
    /// When it can't be, for something else took its place.
    pub fn give_back(&self) {
        match &self.place {
            Place::Directory { at, away } => std::fs::rename(away, at).expect("the store is moved back"),
            Place::S3(proxy) => {
                proxy.hangs.store(false, Ordering::Release);
                proxy.is_open.store(true, Ordering::Release);
            }
        }
    }

    /// Has it take connections and requests and answer none, until it is given back: what was asked is answered then. Answers
    /// whether that can be.
    #[must_use]
    pub fn hang(&self) -> bool {
        let Place::S3(proxy) = &self.place else { return false };
        proxy.hangs.store(true, Ordering::Release);
        true
    }

    /// Where it answers, as a star's log names it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        match &self.place {
            Place::Directory { at, .. } => at.display().to_string(),
            Place::S3(proxy) => format!("http://{}", proxy.addr),
        }
    }

    /// Makes each request to it so much slower; answers whether that can be.
    #[must_use]
    pub fn slow_down(&self, by: Duration) -> bool {
        let Place::S3(proxy) = &self.place else { return false };
        proxy.delay_ms.store(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
        true
    }
}

/// A request that was cut off is tried again soon.
fn attempts() -> Vec<String> {
    vec!["--s3-attempt-timeout-ms".to_owned(), "1s".to_owned()]
}

/// Every object of a store directory, by its path in it.
///
/// # Panics
/// When a directory can't be read.
#[must_use]
pub fn objects(store: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![store.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("a directory of the store") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "obj") {
                found.push(path.strip_prefix(store).expect("it lies in the store").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Bytes that the files below a directory hold on the disk; 0 when it is not there. A file that goes meanwhile is gone.
#[must_use]
pub fn kept_bytes(dir: &Path) -> u64 {
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => kept_bytes(&entry.path()),
        Ok(meta) => meta.blocks() * 512,
        Err(_) => 0,
    };
    std::fs::read_dir(dir).map_or(0, |entries| entries.flatten().map(of).sum())
}

/// Passes connections on to a server, while it is open.
#[derive(Debug)]
struct Proxy {
    addr: SocketAddr,
    is_open: Arc<AtomicBool>,
    delay_ms: Arc<AtomicU64>,
    hangs: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Self {
            addr: listener.local_addr().expect("its address"),
            is_open: Arc::new(AtomicBool::new(true)),
            delay_ms: Arc::default(),
            hangs: Arc::default(),
            connections: Arc::default(),
        };
        let running = proxy.running();
        thread::spawn(move || running.accept(&listener, &server));
        proxy
    }

    /// The same one, for its thread.
    fn running(&self) -> Self {
        Self {
            addr: self.addr,
            is_open: Arc::clone(&self.is_open),
            delay_ms: Arc::clone(&self.delay_ms),
            hangs: Arc::clone(&self.hangs),
            connections: Arc::clone(&self.connections),
        }
    }

    fn accept(&self, listener: &TcpListener, server: &str) {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(server) else { continue };
            if !self.is_open.load(Ordering::Acquire) {
                continue;
            }
            // Whatever fails here ends one connection, and its client tries another.
            let _ended = self.pass_both(&client, &server);
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            connections.extend([client, server]);
        }
    }

    fn close(&self) {
        self.is_open.store(false, Ordering::Release);
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in connections.drain(..) {
            // One that has ended needs no end.
            let _ended = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Proxy {
    fn pass_both(&self, client: &TcpStream, server: &TcpStream) -> io::Result<()> {
        let (up_from, up_to) = (client.try_clone()?, server.try_clone()?);
        let (down_from, down_to) = (server.try_clone()?, client.try_clone()?);
        let (delay_ms, up_hangs, down_hangs) =
            (Arc::clone(&self.delay_ms), Arc::clone(&self.hangs), Arc::clone(&self.hangs));
        thread::spawn(move || pass(up_from, up_to, &AtomicU64::new(0), &up_hangs));
        thread::spawn(move || pass(down_from, down_to, &delay_ms, &down_hangs));
        Ok(())
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, delay_ms: &AtomicU64, hangs: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        thread::sleep(Duration::from_millis(delay_ms.load(Ordering::Acquire)));
        while hangs.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // Both ways end together.
    let _ended = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
