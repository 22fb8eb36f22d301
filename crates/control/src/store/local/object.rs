//! In which order does each operation on an object touch the disk?

use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::draft::Drafts;
use super::open::{self, Scratch};
use super::path;
use crate::store::layout::{TRAILER_BYTES, Trailer};
use crate::store::{
    CorruptObject, Effect, Object, ObjectMeta, ObjectName, PutNonce, Span, StoreError, StoreOp, Version,
};

/// Directories remembered as durable; past it all are forgotten and synced again when next used.
const DURABLE_DIRECTORIES_MAX: usize = 4096;

/// The files of a store, one blocking operation at a time a thread.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    scratch: Scratch,
    drafts: Drafts,
    /// Directories below the root whose own entries, up to the root, are known to be durable. None is ever removed.
    durable: Mutex<HashSet<PathBuf>>,
    /// A directory could not be synced. What the disk then holds is unknown, and a later sync that succeeds says nothing of it.
    sync_failed: AtomicBool,
}

/// One put on its way: the operation and object that its errors name.
struct Put<'a> {
    op: StoreOp,
    name: &'a ObjectName,
    path: PathBuf,
    trailer: Trailer,
}

impl Put<'_> {
    fn failed(&self, effect: Effect) -> impl Fn(io::Error) -> StoreError {
        let (op, target) = (self.op, self.name.to_string());
        move |e| StoreError::from_io(op, &target, effect, e)
    }
}

/// A file that stands under its scratch name until it is dropped.
struct ScratchFile(PathBuf);

impl ScratchFile {
    /// Leaves it, for readers and for the next open to see that something may not be durable.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // Gone already, or for the next open to clear: what it links to is durable, or known not to be.
        fs::remove_file(&self.0).ok();
    }
}

impl Files {
    pub(super) fn new(root: PathBuf, scratch: Scratch) -> Self {
        Self {
            root,
            scratch,
            drafts: Drafts::default(),
            durable: Mutex::default(),
            sync_failed: AtomicBool::new(false),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// What a failed sync leaves.
    #[cfg(test)]
    pub(super) fn fail_syncs(&self) {
        self.sync_failed.store(true, Ordering::Release);
    }

    /// A scratch file's name of this process.
    #[cfg(test)]
    pub(super) fn scratch_path(&self) -> PathBuf {
        self.scratch.path()
    }

    pub(super) fn put_if_absent(&self, name: &ObjectName, body: &[u8], nonce: PutNonce) -> Result<Version, StoreError> {
        let put = self.start(StoreOp::PutIfAbsent, name, Trailer::of(body, nonce));
        let draft = self.write_draft(&put, body)?;
        match fs::hard_link(&draft.0, &put.path) {
            Ok(()) => self.finish(&put, draft),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.answer_taken(&put),
            Err(e) => Err(put.failed(Effect::None)(e)),
        }
    }

    pub(super) fn put_if_match(
        &self,
        name: &ObjectName,
        expected: &Version,
        body: &[u8],
        nonce: PutNonce,
    ) -> Result<Version, StoreError> {
        let put = self.start(StoreOp::PutIfMatch, name, Trailer::of(body, nonce));
        let _lock = self.lock_for(put.op, name)?;
        let current = self.read_trailer(put.op, name)?.1;
        if current == put.trailer {
            return Ok(current.version());
        }
        if current.version() != *expected {
            let current = current.version();
            return Err(StoreError::VersionMismatch { name: name.clone(), expected: expected.clone(), current });
        }
        let draft = self.write_draft(&put, body)?;
        // The rename takes one name away; the other stays until the directory is durable.
        let renamed = ScratchFile(self.scratch.path());
        fs::hard_link(&draft.0, &renamed.0).map_err(put.failed(Effect::None))?;
        fs::rename(&renamed.0, &put.path).map_err(put.failed(Effect::Unknown))?;
        self.finish(&put, draft)
    }

    pub(super) fn get(&self, name: &ObjectName, span: Span) -> Result<Object, StoreError> {
        let failed = |e| StoreError::from_io(StoreOp::Get, name.as_str(), Effect::None, e);
        let (mut file, trailer) = self.read_trailer(StoreOp::Get, name)?;
        let range = span.of(name, trailer.body_bytes)?;
        let len = usize::try_from(range.end - range.start).map_err(|e| failed(io::Error::other(e)))?;
        let mut body = Vec::new();
        body.try_reserve_exact(len).map_err(|e| failed(io::Error::other(e)))?;
        file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
        file.take(range.end - range.start).read_to_end(&mut body).map_err(failed)?;
        if body.len() != len {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        if len as u64 == trailer.body_bytes {
            let damaged = |fault| StoreError::Corrupt { target: name.to_string(), fault };
            trailer.check(&body).map_err(damaged)?;
        }
        Ok(Object { meta: trailer.meta(), body: Bytes::from(body) })
    }

    pub(super) fn head(&self, name: &ObjectName) -> Result<ObjectMeta, StoreError> {
        self.read_trailer(StoreOp::Head, name).map(|(_, trailer)| trailer.meta())
    }

    pub(super) fn delete(&self, name: &ObjectName) -> Result<(), StoreError> {
        // Without the lock a replacement that has just judged the old version would bring the object back.
        let _lock = self.lock_for(StoreOp::Delete, name)?;
        self.remove(StoreOp::Delete, name)
    }

    pub(super) fn delete_if_match(&self, name: &ObjectName, expected: &Version) -> Result<(), StoreError> {
        let _lock = self.lock_for(StoreOp::DeleteIfMatch, name)?;
        let current = self.read_trailer(StoreOp::DeleteIfMatch, name)?.1.version();
        if current != *expected {
            return Err(StoreError::VersionMismatch { name: name.clone(), expected: expected.clone(), current });
        }
        self.remove(StoreOp::DeleteIfMatch, name)
    }

    fn remove(&self, op: StoreOp, name: &ObjectName) -> Result<(), StoreError> {
        let failed = |effect| move |e| StoreError::from_io(op, name.as_str(), effect, e);
        let path = self.root.join(path::of_object(name));
        let intent = ScratchFile(self.scratch.path());
        File::create_new(&intent.0).map_err(failed(Effect::None))?;
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound && !parent(&path).exists() => return Ok(()),
            // Another process may have removed it and not have synced yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(Effect::None)(e)),
        }
        self.sync(parent(&path)).map_err(|e| {
            intent.keep();
            failed(Effect::Unknown)(e)
        })
    }

    fn start<'a>(&self, op: StoreOp, name: &'a ObjectName, trailer: Trailer) -> Put<'a> {
        Put { op, name, path: self.root.join(path::of_object(name)), trailer }
    }

    /// Makes an object's entry durable if its maker may not have done so yet, which shows in a second link to it.
    pub(super) fn sync_if_drafted(&self, object: &Metadata, directory: &Path) -> io::Result<()> {
        if object.nlink() > 1 { self.sync(directory) } else { Ok(()) }
    }

    /// Refuses once a sync has failed.
    fn check_syncs(&self) -> io::Result<()> {
        if self.sync_failed.load(Ordering::Acquire) {
            return Err(io::Error::other("an earlier sync failed: check the disk, then restart nova"));
        }
        Ok(())
    }

    /// Makes a directory's entries durable.
    fn sync(&self, directory: &Path) -> io::Result<()> {
        self.check_syncs()?;
        let file = File::open(directory)?;
        file.sync_all().inspect_err(|_| self.sync_failed.store(true, Ordering::Release))
    }

    /// Writes and syncs the object under a scratch name, and makes the directories it will stand in.
    fn write_draft(&self, put: &Put<'_>, body: &[u8]) -> Result<ScratchFile, StoreError> {
        self.check_syncs().and_then(|()| self.make_directories(&put.path)).map_err(put.failed(Effect::None))?;
        let draft = ScratchFile(self.scratch.path());
        let written = self.drafts.write(&draft.0, [body, &put.trailer.encode()]);
        written.map_err(put.failed(Effect::None))?;
        Ok(draft)
    }

    /// The name is taken: by an earlier attempt of this same put, or by another.
    fn answer_taken(&self, put: &Put<'_>) -> Result<Version, StoreError> {
        let current = match self.read_trailer(put.op, put.name) {
            Ok((_, current)) => current,
            // Taken a moment ago and removed since: the caller may simply try again.
            Err(StoreError::NotFound { .. }) => {
                return Err(put.failed(Effect::None)(io::ErrorKind::Interrupted.into()));
            }
            Err(e) => return Err(e),
        };
        if current == put.trailer {
            return Ok(current.version());
        }
        Err(StoreError::AlreadyExists { name: put.name.clone(), current: current.version() })
    }

    /// The object stands under its name: makes that durable, then forgets the draft.
    fn finish(&self, put: &Put<'_>, draft: ScratchFile) -> Result<Version, StoreError> {
        match self.sync(parent(&put.path)) {
            Ok(()) => Ok(put.trailer.version()),
            Err(e) => {
                draft.keep();
                Err(put.failed(Effect::Unknown)(e))
            }
        }
    }

    /// Opens an object and reads what closes it. Nothing is answered of an object that a power cut could still take back.
    fn read_trailer(&self, op: StoreOp, name: &ObjectName) -> Result<(File, Trailer), StoreError> {
        let failed = |e: io::Error| StoreError::from_io(op, name.as_str(), Effect::None, e);
        let damaged = |fault| StoreError::Corrupt { target: name.to_string(), fault };
        let path = self.root.join(path::of_object(name));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(StoreError::NotFound { name: name.clone() }),
            Err(e) => return Err(failed(e)),
        };
        let metadata = file.metadata().map_err(failed)?;
        self.sync_if_drafted(&metadata, parent(&path)).map_err(failed)?;
        let (found, expected) = (metadata.len(), TRAILER_BYTES as u64);
        let body_bytes =
            found.checked_sub(expected).ok_or_else(|| damaged(CorruptObject::Short { found, expected }))?;
        let mut bytes = [0; TRAILER_BYTES];
        file.read_exact_at(&mut bytes, body_bytes).map_err(failed)?;
        let trailer = Trailer::decode(&bytes, body_bytes).map_err(damaged)?;
        Ok((file, trailer))
    }

    /// Waits for the other holders of the name's lock, of this process and others; released when dropped or when they die.
    fn lock_for(&self, op: StoreOp, name: &ObjectName) -> Result<File, StoreError> {
        let path = open::lock_path(&self.root, name.as_str());
        let open = || OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let locked = self.check_syncs().and_then(|()| open()).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|e| StoreError::from_io(op, name.as_str(), Effect::None, e))
    }

    /// Makes the directories above `object`, and the entry of each durable, its own maker being maybe still about to.
    fn make_directories(&self, object: &Path) -> io::Result<()> {
        let directory = parent(object);
        if directory == self.root || self.durable().contains(directory) {
            return Ok(());
        }
        self.make_directories(directory)?;
        match fs::create_dir(directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        self.sync(parent(directory))?;
        let mut durable = self.durable();
        if durable.len() >= DURABLE_DIRECTORIES_MAX {
            durable.clear();
        }
        durable.insert(directory.to_owned());
        Ok(())
    }

    fn durable(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
