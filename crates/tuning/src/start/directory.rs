//! Is the data directory ours to use: writable, on a disk that keeps what it acks, of our format,
//! and used by nobody else?

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use thiserror::Error;

use crate::host::{self, FileSystem, Fitness};

/// Version of the layout of a data directory; a directory of another one is refused.
const DATA_FORMAT: u32 = 2;

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_DRAFT: &str = "FORMAT.new";
const FORMAT_WORDS: &str = "nova data ";
const FORMAT_BYTES_MAX: u64 = 64;
const LOCK_FILE: &str = "LOCK";

/// What may lie in a directory that is still to become a data directory.
const HARMLESS: [&str; 3] = [LOCK_FILE, FORMAT_DRAFT, "lost+found"];

/// Why the data directory can't be used.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// It can't be made or opened.
    #[error("the data directory {path} can't be made: {source}")]
    Make {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not a directory.
    #[error("the data directory {path} is not a directory: name one with --data")]
    NotDirectory {
        /// What was named.
        path: PathBuf,
    },
    /// It can't be written.
    #[error(
        "the data directory {path} can't be written: {source}; give this user write access to it \
         or name another with --data"
    )]
    ReadOnly {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its disk is full.
    #[error("the disk of the data directory {path} is full: free some room")]
    Full {
        /// The directory.
        path: PathBuf,
    },
    /// Its file system can't keep what was acked.
    #[error(
        "the data directory {path} is on {kind}, where {why}: name a directory on a local disk \
         with --data"
    )]
    Unfit {
        /// The directory.
        path: PathBuf,
        /// Its file system.
        kind: FileSystem,
        /// What is wrong with that.
        why: &'static str,
    },
    /// Another process uses it.
    #[error(
        "the data directory {path} is in use by another novad{}: stop that one, or name another \
         directory with --data",
        by_pid(*pid)
    )]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that holds it, when known.
        pid: Option<u32>,
    },
    /// Another version of nova wrote it.
    #[error(
        "the data directory {path} has format {found} and this novad writes format {DATA_FORMAT}: \
         use the novad that wrote it, or name another directory with --data"
    )]
    OtherFormat {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It holds something else.
    #[error(
        "the directory {path} holds `{found}` and no readable {FORMAT_FILE}, so it is not a nova \
         data directory: name an empty or a new one with --data"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Something that lies in it.
        found: String,
    },
    /// Something else went wrong with it.
    #[error("the data directory {path} can't be checked: {source}")]
    Io {
        /// The directory or a file of it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn by_pid(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// A data directory of our format, locked for this process until this value is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    file_system: FileSystem,
    _lock: File,
}

impl DataDirectory {
    /// Makes the directory when it is absent, locks it, and checks or writes its format. A crash
    /// anywhere in between leaves a directory that opens as new.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        make(path)?;
        let io_error = |source| DirectoryError::Io { path: path.to_owned(), source };
        let path = &fs::canonicalize(path).map_err(io_error)?;
        let file_system = host::file_system(path).map_err(io_error)?;
        if let Fitness::Unfit(why) = file_system.fitness() {
            return Err(DirectoryError::Unfit { path: path.clone(), kind: file_system, why });
        }
        let found = stranger(path)?;
        // A directory of ours has its format before anything else; in one of another's not even a lock is left.
        if let Some(found) = found.clone().filter(|_| !path.join(FORMAT_FILE).exists()) {
            return Err(DirectoryError::Foreign { path: path.clone(), found });
        }
        let lock = lock(path)?;
        match read_format(path)? {
            Some(DATA_FORMAT) => {}
            Some(found) => {
                return Err(DirectoryError::OtherFormat { path: path.clone(), found });
            }
            None => {
                if let Some(found) = found {
                    return Err(DirectoryError::Foreign { path: path.clone(), found });
                }
                // Whoever finds the format there relies on the names that lead to it.
                let written = sync_above(path).and_then(|()| write_format(path));
                written.map_err(|source| write_error(path, source))?;
            }
        }
        Ok(Self { path: path.clone(), file_system, _lock: lock })
    }

    /// Its path, absolute and without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system that it lies on.
    #[must_use]
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Bytes that can still be written to it.
    pub fn free_bytes(&self) -> Result<u64, DirectoryError> {
        host::free_bytes(&self.path).map_err(|source| self.failed(source))
    }

    /// Why something that was asked of it failed.
    pub(super) fn failed(&self, source: io::Error) -> DirectoryError {
        write_error(&self.path, source)
    }
}

fn make(path: &Path) -> Result<(), DirectoryError> {
    let make_error = |source: io::Error| match source.kind() {
        io::ErrorKind::StorageFull => DirectoryError::Full { path: path.to_owned() },
        _ => DirectoryError::Make { path: path.to_owned(), source },
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(DirectoryError::NotDirectory { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(make_error(source)),
    }
    fs::create_dir_all(path).map_err(make_error)
}

/// Makes the directory's own name durable, and those of the ones that may have been made with it, which lie on its file system.
fn sync_above(path: &Path) -> io::Result<()> {
    let device = fs::metadata(path)?.dev();
    for above in path.ancestors().skip(1) {
        let above = match File::open(above) {
            // Whoever may not even look into it did not make what is in it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            opened => opened?,
        };
        if above.metadata()?.dev() != device {
            break;
        }
        above.sync_all()?;
    }
    Ok(())
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Something in the directory that a directory still to become ours would not hold.
fn stranger(path: &Path) -> Result<Option<String>, DirectoryError> {
    let io_error = |source| DirectoryError::Io { path: path.to_owned(), source };
    for entry in fs::read_dir(path).map_err(io_error)? {
        let name = entry.map_err(io_error)?.file_name().to_string_lossy().into_owned();
        if !HARMLESS.contains(&name.as_str()) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn lock(path: &Path) -> Result<File, DirectoryError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path.join(LOCK_FILE));
    let mut file = file.map_err(|source| write_error(path, source))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let read = (&file).take(FORMAT_BYTES_MAX).read_to_string(&mut text);
            let pid = read.ok().and_then(|_| text.trim().parse().ok());
            return Err(DirectoryError::Locked { path: path.to_owned(), pid });
        }
        Err(errno) => return Err(write_error(path, errno.into())),
    }
    // In place, and what is longer is cut off after that: on a disk without a free block there must be no need for one.
    let line = format!("{}\n", std::process::id());
    let written = file.rewind().and_then(|()| file.write_all(line.as_bytes()));
    let written = written.and_then(|()| file.set_len(line.len() as u64));
    written.map_err(|source| write_error(path, source))?;
    Ok(file)
}

/// The format that the directory says it has; none when it says nothing.
fn read_format(path: &Path) -> Result<Option<u32>, DirectoryError> {
    let marker = path.join(FORMAT_FILE);
    let mut text = String::new();
    match File::open(&marker).and_then(|file| file.take(FORMAT_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) if source.kind() != io::ErrorKind::InvalidData => {
            return Err(DirectoryError::Io { path: marker, source });
        }
        Err(_) => text.clear(),
    }
    let version = text.strip_prefix(FORMAT_WORDS).and_then(|rest| rest.trim_end().parse().ok());
    version.map(Some).ok_or_else(|| DirectoryError::Foreign { path: path.to_owned(), found: FORMAT_FILE.to_owned() })
}

/// Durable before it is visible under its name, and the name before anything else is made.
fn write_format(path: &Path) -> io::Result<()> {
    let draft = path.join(FORMAT_DRAFT);
    let mut file = File::create(&draft)?;
    writeln!(file, "{FORMAT_WORDS}{DATA_FORMAT}")?;
    file.sync_all()?;
    fs::rename(&draft, path.join(FORMAT_FILE))?;
    sync_directory(path)
}

fn write_error(path: &Path, source: io::Error) -> DirectoryError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DirectoryError::Full { path },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            DirectoryError::ReadOnly { path, source }
        }
        _ => DirectoryError::Io { path, source },
    }
}
