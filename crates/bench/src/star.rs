//! How is a star of this host started, watched, killed and ended?

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::BenchError;

/// A start takes at most so long, recovery too.
const START_MAX: Duration = Duration::from_secs(600);
/// An end takes at most so long before it is a kill.
const END_MAX: Duration = Duration::from_secs(60);

/// How often it is looked whether a star has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Holds the process of a star, so that another thread than the one that uses the star can end it.
#[derive(Debug, Clone, Default)]
pub struct Leash(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    child: Option<Child>,
    /// No other may be started.
    is_over: bool,
}

impl Leash {
    /// Asks the star to end, and kills it when it does not within a minute, or when `pause`, which waits so long, says that there is no time for
    /// that. No other is started on this leash, and whoever uses the star waits meanwhile.
    ///
    /// # Errors
    /// [`BenchError::System`] when it can't be waited for.
    pub fn end(&self, mut pause: impl FnMut(Duration) -> bool) -> Result<(), BenchError> {
        let mut held = self.held();
        held.is_over = true;
        let Some(mut child) = held.child.take() else { return Ok(()) };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let _gone = pid.map(|pid| kill_process(pid, Signal::TERM));
        let until = Instant::now() + END_MAX;
        while Instant::now() < until && matches!(child.try_wait(), Ok(None)) && !pause(LOOK_EVERY) {}
        end_now(child)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a process as a crash does, unless it has ended by itself.
fn end_now(mut child: Child) -> Result<(), BenchError> {
    let _gone = child.kill();
    child.wait().map(drop).map_err(|source| BenchError::System { action: "waiting for novad", source })
}

/// A `novad` that this process started; it is killed when this is dropped, and ends by itself when the thread that started it ends.
#[derive(Debug)]
pub struct Star {
    program: PathBuf,
    args: Vec<String>,
    addr: String,
    leash: Leash,
}

impl Star {
    /// Starts `program` with `args` and waits until it says where it listens. What it logs goes to `log`, or nowhere.
    ///
    /// # Errors
    /// [`BenchError::Star`] when it can't be started, or ends or is silent instead.
    pub fn start(program: &Path, args: &[String], log: Option<&Path>, leash: Leash) -> Result<Self, BenchError> {
        let mut star = Self { program: program.to_owned(), args: args.to_owned(), addr: String::new(), leash };
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
        self.leash.held().child.as_ref().map(Child::id)
    }

    /// Ends it at once, as a crash does.
    ///
    /// # Errors
    /// [`BenchError::System`] when it can't be waited for.
    pub fn kill(&mut self) -> Result<(), BenchError> {
        self.leash.held().child.take().map_or(Ok(()), end_now)
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
    pub fn end(self) -> Result<(), BenchError> {
        self.leash.end(|time| {
            thread::sleep(time);
            false
        })
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
        command.args(&self.args).arg("--end-with").arg(std::process::id().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        // Many may run beside each other; a flag among the arguments goes over this.
        command.env("NOVA_HTTP", "off");
        let heard = {
            let mut held = self.leash.held();
            if held.is_over {
                return Err(failed("this command is being ended".to_owned()));
            }
            let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
            let heard = listen(&mut child);
            held.child = Some(child);
            heard
        };
        match heard.recv_timeout(START_MAX) {
            Ok(addr) => {
                self.addr = addr;
                Ok(())
            }
            Err(_) => {
                let code = self.leash.held().child.as_mut().and_then(|child| child.try_wait().ok().flatten());
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
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::thread;

    use super::{Leash, Star, files_below, holds};

    /// A program that says where it listens, and heeds no SIGTERM.
    fn deaf(directory: &Path) -> std::path::PathBuf {
        let program = directory.join("deaf");
        std::fs::write(&program, "#!/bin/sh\ntrap '' TERM\necho listening on 127.0.0.1:1\nwhile :; do sleep 1; done\n")
            .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    fn a_star_ends_with_its_leash_and_no_other_is_started_on_it() {
        let directory = tempfile::tempdir().unwrap();
        let leash = Leash::default();
        let mut star = Star::start(&deaf(directory.path()), &[], None, leash.clone()).unwrap();
        let pid = star.pid().unwrap();
        let mut pauses = 0;
        let ender = thread::spawn(move || {
            leash.end(|_| {
                pauses += 1;
                pauses == 3
            })
        });
        ender.join().unwrap().unwrap();
        assert_eq!((holds(pid), star.pid()), (None, None), "it was killed, since there was no time");
        let error = star.restart(None).unwrap_err();
        assert!(error.to_string().contains("being ended"), "{error}");
    }

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
