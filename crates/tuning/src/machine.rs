//! What do a host's `/proc` and `/sys` say, and if they do not, why not?
//!
//! Every reader is total: a file that is missing, forbidden or full of something else is an [`Unknown`] with its reason. The
//! root is a value, so that a container may look at its host, and a test at a directory of files.

mod cgroup;
mod cpus;
mod device;
mod nics;
mod processes;
mod ring;
mod sample;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::host::{self, FileSystem};

pub use cpus::{CpuList, Numa, Threads};
pub use ring::RingOps;
pub use sample::Sample;

/// Most that is read of one file; `/proc/interrupts` of a large machine has about a MiB.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Most characters of a file that are repeated in a reason.
const SHOWN_MAX: usize = 60;

/// Why something about the host can't be told.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{why}")]
pub struct Unknown {
    why: String,
}

impl Unknown {
    /// The reason, in words.
    #[must_use]
    pub fn because(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    fn of(path: &str, error: &io::Error) -> Self {
        Self::because(match error.kind() {
            io::ErrorKind::NotFound => format!("there is no {path}"),
            io::ErrorKind::PermissionDenied => format!("{path} can't be read by this user"),
            _ => format!("{path} can't be read: {error}"),
        })
    }
}

/// Something about the host, or why it can't be told.
pub type Told<T> = Result<T, Unknown>;

/// What this process may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Whether it is root's.
    pub is_root: bool,
    /// Bytes that it may lock at most; none is no limit.
    pub memlock_max: Option<u64>,
    /// Files that it may open at most; none is no limit.
    pub files_max: Option<u64>,
    /// CPUs that it may run on.
    pub cpus: Vec<usize>,
}

impl Process {
    /// The process that runs.
    #[must_use]
    pub fn here() -> Self {
        let hard = |resource| rustix::process::getrlimit(resource).maximum;
        Self {
            is_root: rustix::process::geteuid().is_root(),
            memlock_max: hard(rustix::process::Resource::Memlock),
            files_max: hard(rustix::process::Resource::Nofile),
            cpus: host::cpus_allowed(),
        }
    }
}

/// What lies below the data directory, or below its nearest parent that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDisk {
    /// The directory.
    pub data: PathBuf,
    /// Its file system.
    pub file_system: Told<FileSystem>,
    /// Bytes that can still be written.
    pub free_bytes: Told<u64>,
    /// Bytes of the whole file system.
    pub disk_bytes: Told<u64>,
    /// Major and minor number of its device.
    pub device: Told<(u32, u32)>,
    /// Whether files can be opened for direct I/O.
    pub direct: Told<bool>,
}

impl DataDisk {
    /// Looks at the disk below `data`; leaves nothing there.
    #[must_use]
    pub fn below(data: &Path) -> Self {
        let place = host::nearest_directory(data);
        let unknown = |error: &io::Error| Unknown::of(&place.display().to_string(), error);
        let stat = rustix::fs::stat(&place).map_err(|error| unknown(&error.into()));
        Self {
            data: data.to_owned(),
            file_system: host::file_system(&place).map_err(|error| unknown(&error)),
            free_bytes: host::free_bytes(&place).map_err(|error| unknown(&error)),
            disk_bytes: host::disk_bytes(&place).map_err(|error| unknown(&error)),
            device: stat.map(|stat| (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev))),
            direct: takes_direct(&place),
        }
    }
}

/// Opens a file without a name for direct I/O.
fn takes_direct(place: &Path) -> Told<bool> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    match rustix::fs::open(place, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::INVAL) => Ok(false),
        Err(error) => Err(Unknown::because(format!("no file can be made in {}: {error}", place.display()))),
    }
}

/// One host as it is seen from one process.
#[derive(Debug, Clone)]
pub struct Machine {
    root: PathBuf,
    /// What this process may do.
    pub process: Process,
    /// The disk of the data.
    pub disk: DataDisk,
    /// What was counted a while ago; none if nothing is to be compared with it.
    pub before: Option<Sample>,
    /// Device of the data by name, where the file system does not tell.
    pub device: Option<String>,
    /// What a ring of this process told of its operations; none if none was opened.
    pub ring: Option<Told<RingOps>>,
}

impl Machine {
    /// The host whose `/` is at `root`.
    #[must_use]
    pub fn new(root: &Path, process: Process, disk: DataDisk) -> Self {
        Self { root: root.to_owned(), process, disk, before: None, device: None, ring: None }
    }

    /// Where a path of the host lies for this process.
    #[must_use]
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file.
    ///
    /// # Errors
    /// [`Unknown`] when it can't be read.
    pub fn text(&self, path: &str) -> Told<String> {
        let mut bytes = Vec::new();
        let file = File::open(self.at(path)).map_err(|error| Unknown::of(path, &error))?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| Unknown::of(path, &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The words of a file, with one space between them.
    ///
    /// # Errors
    /// [`Unknown`] when it can't be read, or has none.
    pub fn words(&self, path: &str) -> Told<String> {
        let words = self.text(path)?.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() { Err(Unknown::because(format!("{path} is empty"))) } else { Ok(words) }
    }

    /// The number that a file holds alone.
    ///
    /// # Errors
    /// [`Unknown`] when it can't be read, or holds anything else.
    pub fn number(&self, path: &str) -> Told<u64> {
        let words = self.words(path)?;
        words.parse().map_err(|_| odd(path, &words, "a whole number"))
    }

    /// The word that a file marks among several with brackets, or the only one.
    ///
    /// # Errors
    /// [`Unknown`] when it can't be read, or marks none.
    pub fn chosen(&self, path: &str) -> Told<String> {
        let words = self.words(path)?;
        chosen(&words).map(str::to_owned).ok_or_else(|| odd(path, &words, "one word in brackets"))
    }

    /// The CPUs that a file lists.
    ///
    /// # Errors
    /// [`Unknown`] when it can't be read, or lists something else.
    pub fn cpu_list(&self, path: &str) -> Told<CpuList> {
        let text = self.text(path)?;
        CpuList::parse(text.trim()).ok_or_else(|| odd(path, text.trim(), "a list of CPUs"))
    }

    /// The names in a directory, in order.
    ///
    /// # Errors
    /// [`Unknown`] when it can't be read.
    pub fn names(&self, path: &str) -> Told<Vec<String>> {
        let entries = fs::read_dir(self.at(path)).map_err(|error| Unknown::of(path, &error))?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_by_key(|name| (name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(), digits_behind(name)));
        Ok(names)
    }

    /// Whether something is there.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// The kind of container that this process runs in, if it can be told.
    #[must_use]
    pub fn container(&self) -> Option<&'static str> {
        let marks = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman"), ("/dev/lxd/sock", "lxd")];
        let marked = marks.into_iter().find(|(path, _)| self.has(path)).map(|(_, kind)| kind);
        let pods = || self.has("/var/run/secrets/kubernetes.io/serviceaccount").then_some("kubernetes");
        pods().or(marked)
    }
}

/// The word in brackets, or the only one there is.
pub(crate) fn chosen(words: &str) -> Option<&str> {
    let marked = words.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    marked.or_else(|| (!words.is_empty() && !words.contains(' ')).then_some(words))
}

/// Why a file that can be read says nothing.
fn odd(path: &str, found: &str, wanted: &str) -> Unknown {
    Unknown::because(format!("{path} says `{}`, which is not {wanted}", shown(found)))
}

/// Text of a file as it may stand in a line.
pub(crate) fn shown(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let short: String = text.chars().take(SHOWN_MAX).map(clean).collect();
    if text.chars().count() > SHOWN_MAX { format!("{short}…") } else { short }
}

fn digits_behind(name: &str) -> u64 {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    name[stem.len()..].parse().unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests;
