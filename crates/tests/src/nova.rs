//! How is the command line run, with what on its input, and what came of it?

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::bounded::{child_ended, child_started, signal};
use crate::built::binary;

/// A run that takes more is killed.
const RUN_MAX: Duration = Duration::from_secs(60);

/// The command line, pointed at one star.
#[derive(Debug, Clone, Copy)]
pub struct Nova {
    addr: SocketAddr,
}

/// How a run of a command ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its exit code; none when it was killed.
    pub code: Option<i32>,
    /// What it wrote.
    pub stdout: Vec<u8>,
    /// What it said.
    pub stderr: String,
}

/// A command that serves, killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a command whose output is read line by line.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn of(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("nova starts");
        child_started(child.id());
        let said = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, said }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a crash does, and waits for its end.
    ///
    /// # Panics
    /// When it can't be waited for.
    pub fn kill9(mut self) {
        signal(self.child.id(), Signal::KILL);
        self.child.wait().expect("its end");
    }

    /// The next line that it says.
    ///
    /// # Panics
    /// When it says no more.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.said.read_line(&mut line).expect("its output") > 0, "it says nothing more");
        line.trim_end().to_owned()
    }

    /// Asks it to end, and waits for its exit code.
    ///
    /// # Panics
    /// When it can't be waited for.
    pub fn stop(mut self) -> Option<i32> {
        signal(self.child.id(), Signal::TERM);
        self.child.wait().expect("its end").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that ended meanwhile is waited for again, which does no harm.
        let _gone = self.child.kill();
        let _waited = self.child.wait();
        child_ended(self.child.id());
    }
}

impl Nova {
    /// A command line whose star listens at `addr`.
    #[must_use]
    pub fn of(addr: SocketAddr) -> Self {
        Self { addr }
    }

    /// The command with these arguments, not yet run.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(binary("nova"));
        command.env("NOVA_ADDR", self.addr.to_string()).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a command that serves until it is stopped.
    ///
    /// # Panics
    /// When it can't be started.
    #[must_use]
    pub fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> Running {
        Running::of(self.command(args))
    }

    /// Runs a command with `stdin` as its input, to its end.
    ///
    /// # Panics
    /// When it can't be started, or hangs.
    pub fn run_with<S: AsRef<OsStr>>(&self, args: &[S], stdin: &[u8]) -> Outcome {
        finish(self.command(args).spawn().expect("nova starts"), stdin.to_vec(), RUN_MAX)
    }

    /// Runs a command without input, to its end.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Outcome {
        self.run_with(args, b"")
    }

    /// Runs a command that must succeed, with `--output json`: its objects.
    ///
    /// # Panics
    /// When it fails, or says something else than JSON.
    pub fn rows<S: AsRef<OsStr>>(&self, args: &[S]) -> Vec<Value> {
        self.rows_with(args, b"")
    }

    /// As [`Nova::rows`], with an input.
    ///
    /// # Panics
    /// When it fails, or says something else than JSON.
    pub fn rows_with<S: AsRef<OsStr>>(&self, args: &[S], stdin: &[u8]) -> Vec<Value> {
        let outcome = self.run_with(&json(args), stdin);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.rows()
    }

    /// Runs a command that must answer one object, with `--output json`.
    ///
    /// # Panics
    /// When it fails, or answers anything else.
    pub fn row<S: AsRef<OsStr>>(&self, args: &[S]) -> Value {
        let mut rows = self.rows(args);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0)
    }

    /// Runs a command that must fail with this exit code, with `--output json`: the object on stderr.
    ///
    /// # Panics
    /// When it succeeds, fails otherwise, or says more than one line.
    pub fn refusal<S: AsRef<OsStr>>(&self, code: i32, args: &[S], stdin: &[u8]) -> Value {
        let outcome = self.run_with(&json(args), stdin);
        assert_eq!(outcome.code, Some(code), "{} {}", outcome.text(), outcome.stderr);
        let line = outcome.one_line();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

fn json<S: AsRef<OsStr>>(args: &[S]) -> Vec<&OsStr> {
    let mut all: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    all.extend([OsStr::new("--output"), OsStr::new("json")]);
    all
}

impl Outcome {
    /// What it wrote, as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What it wrote, an object a line.
    ///
    /// # Panics
    /// When a line is no JSON.
    #[must_use]
    pub fn rows(&self) -> Vec<Value> {
        let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.text().lines().map(read).collect()
    }

    /// What it said, which must be one line.
    ///
    /// # Panics
    /// When it is none, or more.
    #[must_use]
    pub fn one_line(&self) -> &str {
        let line = self.stderr.trim_end_matches('\n');
        assert!(!line.is_empty() && !line.contains('\n'), "not one line: {:?}", self.stderr);
        line
    }
}

/// Feeds a process and waits for its end.
pub(crate) fn finish(mut child: Child, stdin: Vec<u8>, limit: Duration) -> Outcome {
    let pid = child.id();
    child_started(pid);
    if let Some(mut input) = child.stdin.take() {
        // One that doesn't read all of its input has its reason, which its exit code tells.
        thread::spawn(move || input.write_all(&stdin).is_ok());
    }
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let said = thread::spawn(move || read(err.as_mut()));
    let (send, wrote) = mpsc::channel();
    thread::spawn(move || send.send(read(out.as_mut())).is_ok());
    let stdout = wrote.recv_timeout(limit);
    if stdout.is_err() {
        signal(pid, Signal::KILL);
    }
    let status = child.wait().expect("the end of the process");
    child_ended(pid);
    let stderr = String::from_utf8_lossy(&said.join().expect("what it said")).into_owned();
    let Ok(stdout) = stdout else { panic!("it hangs: {stderr}") };
    Outcome { code: status.code(), stdout, stderr }
}

fn read(from: Option<&mut impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.read_to_end(&mut bytes).expect("the output of the process");
    }
    bytes
}
