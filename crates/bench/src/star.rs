//! How is a star of this host started, watched, killed and ended?

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::BenchError;

/// A start takes at most so long, recovery too.
const START_MAX: Duration = Duration::from_secs(600);
/// An end takes at most so long before it is a kill.
const END_MAX: Duration = Duration::from_secs(60);

/// A `novad` that this process started; it is killed when this is dropped.
#[derive(Debug)]
pub struct Star {
    program: PathBuf,
    args: Vec<String>,
    addr: String,
    child: Option<Child>,
}

impl Star {
    /// Starts `program` with `args` and waits until it says where it listens. What it logs goes to `log`, or nowhere.
    ///
    /// # Errors
    /// [`BenchError::Star`] when it can't be started, or ends or is silent instead.
    pub fn start(program: &Path, args: &[String], log: Option<&Path>) -> Result<Self, BenchError> {
        let mut star = Self { program: program.to_owned(), args: args.to_owned(), addr: String::new(), child: None };
        star.launch(log)?;
        // It comes back where it was, so that clients find it.
        if !star.args.iter().any(|arg| arg == "--listen" || arg.starts_with("--listen=")) {
            star.args.extend(["--listen".to_owned(), star.addr.clone()]);
        } else if let Some(at) = star.args.iter().position(|arg| arg == "--listen") {
            star.args[at + 1].clone_from(&star.addr);
        }
        Ok(star)
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Ends it at once, as a crash does.
    ///
    /// # Errors
    /// [`BenchError::System`] when it can't be waited for.
    pub fn kill(&mut self) -> Result<(), BenchError> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        // One that has ended by itself needs no kill.
        let _gone = child.kill();
        child.wait().map(drop).map_err(|source| BenchError::System { action: "waiting for novad", source })
    }

    /// Starts it again where it was, and answers how long it took until it listened.
    ///
    /// # Errors
    /// As [`Star::start`].
    pub fn restart(&mut self, log: Option<&Path>) -> Result<Duration, BenchError> {
        self.kill()?;
        let began = Instant::now();
        self.launch(log)?;
        Ok(began.elapsed())
    }

    /// Asks it to end, and kills it when it does not within a minute.
    ///
    /// # Errors
    /// [`BenchError::System`] when it can't be waited for.
    pub fn end(mut self) -> Result<(), BenchError> {
        if let Some(child) = &mut self.child {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _gone = pid.map(|pid| kill_process(pid, Signal::TERM));
            let until = Instant::now() + END_MAX;
            while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(20));
            }
        }
        self.kill()
    }

    fn launch(&mut self, log: Option<&Path>) -> Result<(), BenchError> {
        let failed = |why: String| BenchError::Star { program: self.program.clone(), why };
        let log = match log {
            Some(path) => {
                let file = fs::File::options().create(true).append(true).open(path);
                file.map_err(|error| failed(format!("{}: {error}", path.display())))?.into()
            }
            None => Stdio::null(),
        };
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        // Many may run beside each other; a flag among the arguments goes over this.
        command.env("NOVA_HTTP", "off");
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let heard = listen(&mut child);
        self.child = Some(child);
        match heard.recv_timeout(START_MAX) {
            Ok(addr) => {
                self.addr = addr;
                Ok(())
            }
            Err(_) => {
                let code = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
                self.kill()?;
                let why = match code {
                    Some(status) => format!("it ended with {status} before it listened"),
                    None => "it did not say where it listens".to_owned(),
                };
                Err(BenchError::Star { program: self.program.clone(), why })
            }
        }
    }
}

impl Drop for Star {
    fn drop(&mut self) {
        let _gone = self.kill();
    }
}

/// Gets where a process says that it listens; cut off when it says no more.
fn listen(child: &mut Child) -> Receiver<String> {
    let (send, receive) = channel();
    let out = child.stdout.take();
    thread::spawn(move || {
        let lines = out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok);
        for line in lines {
            if let Some(addr) = line.strip_prefix("listening on ") {
                // Whoever started it may have given up on it.
                let _gone = send.send(addr.to_owned());
            }
        }
    });
    receive
}

/// What a process holds: resident bytes and open files; `None` when it has ended, or is another user's.
#[must_use]
pub(crate) fn holds(pid: u32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some((kib << 10, files as u64))
}

/// Files below a directory and the bytes that they take on the disk, without what lies below `but`. What goes away while it is
/// looked at does not count.
pub(crate) fn files_below(directory: &Path, but: Option<&Path>) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if !meta.is_dir() {
                files += 1;
                bytes += meta.blocks() * 512;
            } else if but != Some(path.as_path()) {
                open.push(path);
            }
        }
    }
    (files, bytes)
}

#[cfg(test)]
mod tests {
    use super::{files_below, holds};

    #[test]
    fn files_and_their_bytes_are_counted_without_what_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::create_dir_all(at("store")).unwrap();
        for name in ["one", "a/two", "a/b/three", "store/four"] {
            std::fs::write(at(name), [7; 5_000]).unwrap();
        }
        assert_eq!(files_below(directory.path(), Some(&at("store"))).0, 3);
        let (files, bytes) = files_below(directory.path(), None);
        assert!(files == 4 && bytes >= 4 * 5_000, "{files} {bytes}");
    }

    #[test]
    fn a_process_holds_memory_and_files_until_it_ends() {
        let (bytes, files) = holds(std::process::id()).unwrap();
        assert!(bytes > 100_000 && files >= 3, "{bytes} {files}");
        assert_eq!(holds(u32::MAX - 7), None);
    }
}
