//! Is this directory a store, and what did killed processes leave in it?
//!
//! Beside the objects a store directory holds `.nova-store` (which says that it is one, and of which layout), `.nova-locks/`
//! (a fixed number of lock files) and `.nova-scratch/` (one directory a process, locked while the process lives).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use uuid::Uuid;

const MARKER: &str = ".nova-store";
const MARKER_TEXT: &str = "nova store, layout 1\n";
const SCRATCH: &str = ".nova-scratch";
const LOCKS: &str = ".nova-locks";
const OWNER: &str = "owner.lock";
/// Names with this beginning are the store's own.
const OWN_PREFIX: &str = ".nova-";
/// What a newly made file system holds.
pub(super) const LOST_AND_FOUND: &str = "lost+found";

/// Why a directory can't be opened as a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path, or a part of it, is a file.
    #[error("{path} is not a directory; name a directory for the store")]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Nothing can be written there.
    #[error("{path} can't be written ({source}); give nova's user write access, or mount it read-write")]
    ReadOnly {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no room.
    #[error("the disk of {path} is full ({source}); free some space")]
    Full {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else lives there.
    #[error("{path} holds {found:?} and is not a nova store; name an empty directory or an existing store")]
    Foreign {
        /// The path.
        path: PathBuf,
        /// One of the names in it.
        found: String,
    },
    /// A nova of another version made it.
    #[error("{path} says {found:?}; this nova reads {known:?}")]
    Layout {
        /// The marker file.
        path: PathBuf,
        /// What it says.
        found: String,
        /// What it should say.
        known: String,
    },
    /// The file system has no hard links, so that create-if-absent can't be atomic.
    #[error(
        "the file system of {path} makes no hard links ({source}); put the store on one that does, such as ext4 or xfs"
    )]
    NoHardLinks {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else the system refused.
    #[error("can't {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    fn from_io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotADirectory => Self::NotADirectory { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path, source },
            _ => Self::Io { doing, path, source },
        }
    }
}

/// A directory of this process's own for files that are not objects yet; gone when dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    directory: PathBuf,
    /// Says to other processes that this one lives.
    _owner: File,
}

impl Scratch {
    /// A path that no other file has.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.join(Uuid::now_v7().simple().to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only tidiness: the next to open the store clears it otherwise. With a file left in it it must stay, and does.
        if fs::read_dir(&self.directory).is_ok_and(|entries| entries.count() == 1) {
            fs::remove_dir_all(&self.directory).ok();
        }
    }
}

/// Opens or makes a store; answers its absolute path and a scratch directory for this process.
pub(super) fn open(root: &Path) -> Result<(PathBuf, Scratch), OpenError> {
    match fs::metadata(root) {
        Ok(found) if !found.is_dir() => return Err(OpenError::NotADirectory { path: root.to_owned() }),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(root).map_err(|e| OpenError::from_io("make the directory", root, e))?;
        }
        Err(e) => return Err(OpenError::from_io("look at", root, e)),
    }
    let root = fs::canonicalize(root).map_err(|e| OpenError::from_io("resolve", root, e))?;
    check_marker(&root)?;
    let scratch = claim_scratch(&root)?;
    probe_links(&root, &scratch)?;
    make_directory(&root.join(LOCKS))?;
    sync_directory(&root).map_err(|e| OpenError::from_io("sync", &root, e))?;
    Ok((root, scratch))
}

/// The lock file of a name; names share lock files, of which there are 64.
pub(super) fn lock_path(root: &Path, name: &str) -> PathBuf {
    let stripe = xxhash_rust::xxh3::xxh3_64(name.as_bytes()) % 64;
    root.join(LOCKS).join(format!("{stripe:02}"))
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn check_marker(root: &Path) -> Result<(), OpenError> {
    let path = root.join(MARKER);
    match fs::read(&path) {
        Ok(text) if text == MARKER_TEXT.as_bytes() => Ok(()),
        Ok(text) => Err(OpenError::Layout {
            path,
            found: String::from_utf8_lossy(&text[..text.len().min(64)]).into_owned(),
            known: MARKER_TEXT.to_owned(),
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => write_marker(root, &path),
        Err(e) => Err(OpenError::from_io("read", &path, e)),
    }
}

fn write_marker(root: &Path, path: &Path) -> Result<(), OpenError> {
    let failed = |e| OpenError::from_io("list", root, e);
    for entry in fs::read_dir(root).map_err(failed)? {
        let found = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !found.starts_with(OWN_PREFIX) && found != LOST_AND_FOUND {
            return Err(OpenError::Foreign { path: root.to_owned(), found });
        }
    }
    let draft = root.join(format!("{MARKER}-{}", Uuid::now_v7().simple()));
    let written = File::create_new(&draft).and_then(|mut file| {
        file.write_all(MARKER_TEXT.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    });
    written.map_err(|e| OpenError::from_io("write in", root, e))?;
    sync_ancestors(root)
}

/// Makes the root's own name durable, and those of directories that may have been made with it.
fn sync_ancestors(root: &Path) -> Result<(), OpenError> {
    for directory in root.ancestors().skip(1) {
        match sync_directory(directory) {
            // Whoever may not even look into it did not make what is in it.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => break,
            synced => synced.map_err(|e| OpenError::from_io("sync", directory, e))?,
        }
    }
    Ok(())
}

fn make_directory(path: &Path) -> Result<(), OpenError> {
    match fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(OpenError::from_io("make the directory", path, e)),
        _ => Ok(()),
    }
}

/// Clears the scratch directories of dead processes and makes one for this process, alone in doing so.
fn claim_scratch(root: &Path) -> Result<Scratch, OpenError> {
    let all = root.join(SCRATCH);
    make_directory(&all)?;
    let gate = open_lock(&all.join(OWNER)).and_then(|gate| gate.lock().map(|()| gate));
    let gate = gate.map_err(|e| OpenError::from_io("lock", &all, e))?;
    clear_dead(root, &all).map_err(|e| OpenError::from_io("clear", &all, e))?;
    let directory = all.join(Uuid::now_v7().simple().to_string());
    let claimed = fs::create_dir(&directory)
        .and_then(|()| open_lock(&directory.join(OWNER)))
        .and_then(|owner| owner.lock().map(|()| owner))
        .map_err(|e| OpenError::from_io("make the directory", &directory, e))?;
    drop(gate);
    Ok(Scratch { directory, _owner: claimed })
}

fn clear_dead(root: &Path, all: &Path) -> io::Result<()> {
    let mut dead = Vec::new();
    for entry in fs::read_dir(all)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let owner = open_lock(&entry.path().join(OWNER))?;
        match owner.try_lock() {
            Ok(()) => dead.push((entry.path(), owner)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
    if dead.is_empty() {
        return Ok(());
    }
    rustix::fs::syncfs(File::open(root)?)?;
    dead.iter().try_for_each(|(path, _)| fs::remove_dir_all(path))
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

fn probe_links(root: &Path, scratch: &Scratch) -> Result<(), OpenError> {
    let (from, to) = (scratch.path(), scratch.path());
    File::create_new(&from).map_err(|e| OpenError::from_io("write in", root, e))?;
    let linked = fs::hard_link(&from, &to);
    let cleared = fs::remove_file(&from).and_then(|()| if linked.is_ok() { fs::remove_file(&to) } else { Ok(()) });
    linked.map_err(|source| match OpenError::from_io("link in", root, source) {
        OpenError::Io { path, source, .. } | OpenError::ReadOnly { path, source } => {
            OpenError::NoHardLinks { path, source }
        }
        other => other,
    })?;
    cleared.map_err(|e| OpenError::from_io("write in", root, e))
}
