//! How is the real `novad` started, stopped and killed, and what did it say?

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Options};
use rustix::process::Signal;

use crate::bounded::{child_ended, child_started, signal};
use crate::built::binary;
use crate::combination::store_of;
use crate::failing::Script;
use crate::nova::Nova;
use crate::scratch::bucket;

/// A start takes at most so long, with the disk and the cores taken by other tests.
const START_MAX: Duration = Duration::from_secs(40);
/// So does an end.
const END_MAX: Duration = Duration::from_secs(40);
/// Small enough that tests roll segments and leave memory, large enough that none runs full by chance.
const SETTINGS: [(&str, &str); 5] = [
    ("NOVA_LOG_SEGMENT_BYTES", "8MiB"),
    ("NOVA_LOG_BYTES_MAX", "1GiB"),
    ("NOVA_MEMORY_RING_BYTES_MAX", "4MiB"),
    ("NOVA_SHARDS", "1"),
    ("NOVA_HTTP", "off"),
];
/// Ports that the system gives to no outgoing connection: between two starts of a star nobody else must get its own, and
/// a client that knocks on a closed port of the other range may end up connected to itself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How a `novad` ended that did not serve.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Its last words: the last line on stderr.
    pub line: String,
    /// All it said since it was started.
    pub log: String,
}

/// One `novad`, killed when this is dropped.
#[derive(Debug)]
pub struct Novad {
    child: Option<Child>,
    addr: SocketAddr,
    http: Option<SocketAddr>,
    data: PathBuf,
    args: Vec<String>,
    /// The script of its fail points.
    script: Option<PathBuf>,
    log: Arc<Mutex<String>>,
}

impl Novad {
    /// Starts one on `data` with more arguments, and waits until it serves.
    ///
    /// # Panics
    /// When it doesn't.
    #[must_use]
    pub fn start(data: &Path, args: &[&str]) -> Self {
        Self::try_start(data, args).unwrap_or_else(|ended| panic!("novad does not start: {}", ended.log))
    }

    /// Starts one, or tells how it ended.
    ///
    /// # Errors
    /// [`Ended`] when it ends before it serves.
    ///
    /// # Panics
    /// When it neither serves nor ends.
    pub fn try_start(data: &Path, args: &[&str]) -> Result<Self, Ended> {
        let mut novad = Self::unstarted(data, args);
        novad.try_restart().map(|()| novad)
    }

    /// One that is still to be started.
    #[must_use]
    pub fn unstarted(data: &Path, args: &[&str]) -> Self {
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { child: None, addr, http: None, data: data.to_owned(), args, script: None, log: Arc::default() }
    }

    /// As [`Novad::start`], with the script of its fail points.
    ///
    /// # Panics
    /// When it doesn't serve.
    #[must_use]
    pub fn start_failing(data: &Path, args: &[&str], script: &Script) -> Self {
        let mut novad = Self::unstarted(data, args);
        novad.script = Some(script.path().to_owned());
        novad.restart();
        novad
    }

    /// How a start ends that must be refused.
    ///
    /// # Panics
    /// When it serves, or hangs.
    #[must_use]
    pub fn refused(data: &Path, args: &[&str]) -> Ended {
        match Self::try_start(data, args) {
            Ok(novad) => panic!("it serves: {}", novad.log()),
            Err(ended) => ended,
        }
    }

    /// The command that serves `data`, for tests that wrap it in another.
    #[must_use]
    pub fn command(data: &Path) -> Command {
        let mut command = Command::new(binary("novad"));
        Self::settle(&mut command);
        store_of(data, &mut command);
        command.arg("--data").arg(data);
        command
    }

    /// Gives a command the settings of tests, and nothing of the environment that this process has.
    pub fn settle(command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("NOVA_") {
                command.env_remove(name);
            }
        }
        command.envs(SETTINGS);
    }

    /// Starts a command that becomes a `novad`, and waits until it serves at the address it tells.
    ///
    /// # Errors
    /// [`Ended`] when it ends before it serves.
    ///
    /// # Panics
    /// When it neither serves nor ends.
    pub fn launch_as(&mut self, command: &mut Command) -> Result<(), Ended> {
        self.end();
        let before = self.log().len();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("novad starts");
        child_started(child.id());
        let heard = listen(&mut child, &self.log);
        self.child = Some(child);
        let until = Instant::now() + START_MAX;
        match heard.recv_timeout(until - Instant::now()) {
            Ok((http, addr)) => {
                (self.http, self.addr) = (http, addr);
                Ok(())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait();
                let log = self.log().split_off(before);
                let line = log.lines().last().unwrap_or_default().to_owned();
                Err(Ended { code: status.code(), line, log })
            }
            Err(RecvTimeoutError::Timeout) => panic!("novad neither serves nor ends: {}", self.log()),
        }
    }

    /// Ends it at once, as a crash of the process does.
    pub fn kill9(&mut self) {
        if let Some(child) = &self.child {
            signal(child.id(), Signal::KILL);
            self.wait();
        }
    }

    /// Asks it to end, and waits for it.
    ///
    /// # Panics
    /// When it doesn't end in time.
    pub fn sigterm(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait().code()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it has ended.
    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Starts it again, on the same data at the same address.
    ///
    /// # Panics
    /// When it doesn't serve again.
    pub fn restart(&mut self) {
        self.try_restart().unwrap_or_else(|ended| panic!("novad does not start again: {}", ended.log));
    }

    /// As [`Novad::restart`], with other arguments.
    ///
    /// # Panics
    /// When it doesn't serve again.
    pub fn restart_with(&mut self, args: &[&str]) {
        self.take_args(args);
        self.restart();
    }

    /// The next starts are given these arguments.
    pub fn take_args(&mut self, args: &[&str]) {
        self.args = args.iter().map(|arg| (*arg).to_owned()).collect();
    }

    /// Starts it again, or tells how it ended.
    ///
    /// # Errors
    /// [`Ended`] when it ends before it serves.
    pub fn try_restart(&mut self) -> Result<(), Ended> {
        let mut command = Self::command(&self.data);
        command.arg("--listen").arg(self.addr.to_string()).args(&self.args);
        if let Some(script) = &self.script {
            command.env(failpoints::VARIABLE, script);
        }
        self.launch_as(&mut command)
    }

    /// Does what blocks (a restart, a wait) beside the tasks of the runtime, which go on meanwhile.
    ///
    /// # Panics
    /// When what is done panics.
    pub async fn beside(mut self, what: impl FnOnce(&mut Self) + Send + 'static) -> Self {
        let done = tokio::task::spawn_blocking(move || {
            what(&mut self);
            self
        });
        done.await.expect("it is done")
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it doesn't end in time; it is killed then.
    pub fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("a process that has not been waited for");
        let until = Instant::now() + END_MAX;
        loop {
            if let Some(status) = child.try_wait().expect("the state of the process") {
                child_ended(child.id());
                return status;
            }
            if Instant::now() > until {
                signal(child.id(), Signal::KILL);
                let killed = child.wait();
                child_ended(child.id());
                panic!("novad does not end ({killed:?}): {}", self.log());
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(&mut self) {
        if self.child.is_some() {
            self.kill9();
        }
    }

    /// Its process.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a process that runs").id()
    }

    /// Whether it has not ended by itself.
    ///
    /// # Panics
    /// When the system can't tell.
    pub fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().expect("the state of the process").is_none())
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it serves HTTP, when its arguments say that it does.
    ///
    /// # Panics
    /// When it doesn't.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http.expect("a star that serves HTTP")
    }

    /// Its data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// All it said so far, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A client of it.
    ///
    /// # Panics
    /// Never: the address is one.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(Options::new([self.addr.to_string()])).expect("a client")
    }

    /// A client of it, once the bucket of most tests is there.
    ///
    /// # Panics
    /// When the bucket can't be made.
    pub async fn client_with_bucket(&self) -> Client {
        let client = self.client();
        client.ensure_bucket(bucket()).await.expect("the bucket");
        client
    }

    /// The command line, pointed at it.
    #[must_use]
    pub fn nova(&self) -> Nova {
        Nova::of(self.addr)
    }

    /// Bytes of memory it holds.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a process that runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of KiB");
        kib << 10
    }
}

impl Drop for Novad {
    fn drop(&mut self) {
        self.end();
        if thread::panicking() {
            eprintln!("--- log of novad on {} ---\n{}---", self.data.display(), self.log());
        }
    }
}

/// Where a process serves HTTP, and where the wire.
type Addrs = (Option<SocketAddr>, SocketAddr);

/// Collects what a process says; the receiver gets the addresses it listens at, and is cut off when it says no more.
fn listen(child: &mut Child, log: &Arc<Mutex<String>>) -> mpsc::Receiver<Addrs> {
    let (send, receive) = mpsc::channel();
    let told = |line: &str, what: &str| line.strip_prefix(what).and_then(|addr| addr.parse().ok());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let add = |log: &Arc<Mutex<String>>, line: &str| {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push_str(line);
        log.push('\n');
    };
    let said = {
        let log = Arc::clone(log);
        thread::spawn(move || {
            for line in lines(err) {
                add(&log, &line);
            }
        })
    };
    let log = Arc::clone(log);
    thread::spawn(move || {
        let mut http = None;
        for line in lines(out) {
            add(&log, &line);
            http = told(&line, "serving http on ").or(http);
            if let Some(addr) = told(&line, "listening on ") {
                // Whoever started it may have given up on it.
                let _gone = send.send((http, addr));
            }
        }
        // Its last words are there before its end is told.
        said.join().expect("what it said");
        drop(send);
    });
    receive
}

fn lines(from: Option<impl std::io::Read>) -> impl Iterator<Item = String> {
    let lines = from.into_iter().flat_map(|from| BufReader::new(from).split(b'\n'));
    lines.map_while(Result::ok).map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// A port that nobody listens on, another for each caller.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let width = PORTS.end - PORTS.start;
    let first = u16::try_from(std::process::id() % u32::from(width)).expect("within the width");
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (first + step % width) % width;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
