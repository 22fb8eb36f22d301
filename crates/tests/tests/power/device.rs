//! How does a disk record what comes to it, and fail when it is told to?
//!
//! It is a file of a file system in user space; a loop device with direct I/O makes a block device of it. A write of the kernel
//! comes here as one, and a flush as an `fsync` of the file.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, Session, WriteFlags,
};
use rustix::fs::FallocateFlags;
use tests::{Dice, Scratch, run_tool};

use crate::cut::{lay, write};
use crate::recording::{Content, Event, Recording};

/// So many requests are worked on side by side.
const THREADS: usize = 4;
/// One in so many writes is answered late, so that flushes come while writes are open.
const LATE_ONE_OF: u64 = 4;
const LATE_MAX_US: u64 = 1_500;
/// What the kernel knows of a file holds for good.
const KNOWN_FOR: Duration = Duration::from_secs(1 << 20);
const FIRST_FILE: u64 = 2;

/// What a disk does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// The next flush fails, and no other.
    NextFlush,
    /// Every flush fails.
    Flushes,
    /// Every write fails, as a broken one does.
    Writes,
    /// Every write fails for want of room: the disk promised more than it has.
    Room,
}

/// Disks that record.
#[derive(Debug)]
pub(crate) struct Disks {
    session: Option<BackgroundSession>,
    dir: PathBuf,
    fault: Arc<Mutex<Fault>>,
}

impl Disks {
    /// So many disks of so many bytes that hold what is `left`, a list a disk, or nothing.
    ///
    /// # Errors
    /// Why there are none: it takes root and `/dev/fuse`.
    pub(crate) fn serve(
        scratch: &Scratch,
        recording: &Recording,
        bytes: u64,
        left: &[Vec<(u64, Content)>],
    ) -> Result<Self, String> {
        let dir = scratch.join("disks");
        let make = || -> io::Result<Vec<File>> {
            std::fs::create_dir(&dir)?;
            left.iter().enumerate().map(|(disk, left)| backing(scratch, disk, left, bytes)).collect()
        };
        let files = make().map_err(|error| format!("{}: {error}", scratch.path().display()))?;
        let fault = Arc::new(Mutex::new(Fault::None));
        let dice = Mutex::new(Dice::new(bytes ^ u64::from(std::process::id())));
        let device = Device { files, bytes, recording: recording.clone(), fault: Arc::clone(&fault), dice };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("nova-test".to_owned()), MountOption::NoExec];
        config.n_threads = Some(THREADS);
        let session = Session::new(device, &dir, &config).and_then(Session::spawn);
        let session = session.map_err(|error| format!("a file system on /dev/fuse, which takes root: {error}"))?;
        Ok(Self { session: Some(session), dir, fault })
    }

    /// The file that is a disk.
    pub(crate) fn file(&self, disk: usize) -> PathBuf {
        self.dir.join(disk.to_string())
    }

    /// Has all disks do something wrong from now on, or nothing again.
    pub(crate) fn fail(&self, fault: Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        // A loop device lets go of its file a moment after it was unmounted.
        let dir = self.dir.display().to_string();
        let is_gone = (0..100).any(|_| {
            let gone = run_tool("umount", &[&dir]);
            if gone.is_err() {
                thread::sleep(Duration::from_millis(50));
            }
            gone.is_ok()
        });
        if let Some(session) = self.session.take()
            && is_gone
            && let Err(error) = session.join()
        {
            eprintln!("the disks of {dir}: {error}");
        }
    }
}

/// The file behind a disk.
fn backing(scratch: &Scratch, disk: usize, left: &[(u64, Content)], bytes: u64) -> io::Result<File> {
    let path: &Path = &scratch.join(&format!("backing-{disk}"));
    lay(left, path, bytes)?;
    File::options().read(true).write(true).open(path)
}

/// The file system.
#[derive(Debug)]
struct Device {
    files: Vec<File>,
    bytes: u64,
    recording: Recording,
    fault: Arc<Mutex<Fault>>,
    dice: Mutex<Dice>,
}

impl Device {
    fn disk(&self, file: INodeNo) -> Option<usize> {
        let disk = usize::try_from(file.0.checked_sub(FIRST_FILE)?).ok()?;
        (disk < self.files.len()).then_some(disk)
    }

    fn attr(&self, file: INodeNo) -> Option<FileAttr> {
        let is_root = file == INodeNo::ROOT;
        if !is_root && self.disk(file).is_none() {
            return None;
        }
        let (kind, perm, size) =
            if is_root { (FileType::Directory, 0o700, 0) } else { (FileType::RegularFile, 0o600, self.bytes) };
        let then = SystemTime::UNIX_EPOCH;
        Some(FileAttr {
            ino: file,
            size,
            blocks: size / 512,
            atime: then,
            mtime: then,
            ctime: then,
            crtime: then,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn fault(&self) -> Fault {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the flush that came fails.
    fn fails_flush(&self) -> bool {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let fails = matches!(*fault, Fault::NextFlush | Fault::Flushes);
        if *fault == Fault::NextFlush {
            *fault = Fault::None;
        }
        fails
    }

    fn wait(&self) {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let wait_us = if dice.is_one_of(LATE_ONE_OF) { dice.below(LATE_MAX_US) } else { 0 };
        drop(dice);
        if wait_us > 0 {
            thread::sleep(Duration::from_micros(wait_us));
        }
    }

    /// Takes a write. One that fails may have landed all the same, in part or later, and is read as if it had not.
    fn take(&self, file: INodeNo, offset: u64, content: Content) -> Result<(), Errno> {
        let disk = self.disk(file).ok_or(Errno::ENOENT)?;
        let written = Event::Written { disk, offset, content: content.clone() };
        match self.fault() {
            Fault::Writes => {
                self.recording.add(written);
                return Err(Errno::EIO);
            }
            Fault::Room => return Err(Errno::ENOSPC),
            Fault::None | Fault::NextFlush | Fault::Flushes => {}
        }
        let at = self.recording.add(written);
        write(&self.files[disk], offset, &content)?;
        self.wait();
        self.recording.add(Event::Answered(at));
        Ok(())
    }
}

impl Filesystem for Device {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without it the loop device has one write under way at a time.
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(|_| io::ErrorKind::Unsupported.into())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
        let file = number.filter(|_| parent == INodeNo::ROOT).map(|number| INodeNo(FIRST_FILE + number));
        match file.and_then(|file| self.attr(file)) {
            Some(attr) => reply.entry(&KNOWN_FOR, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, file: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(file) {
            Some(attr) => reply.attr(&KNOWN_FOR, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(disk) = self.disk(file) else { return reply.error(Errno::ENOENT) };
        let left = self.bytes.saturating_sub(offset).min(u64::from(bytes));
        let mut read = vec![0; usize::try_from(left).expect("no more than was asked for")];
        match self.files[disk].read_exact_at(&mut read, offset) {
            Ok(()) => reply.data(&read),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.take(file, offset, Content::of(data)) {
            Ok(()) => reply.written(u32::try_from(data.len()).expect("a write is short")),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Request, file: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let Some(disk) = self.disk(file) else { return reply.error(Errno::ENOENT) };
        let came = self.recording.len();
        if self.fails_flush() {
            return reply.error(Errno::EIO);
        }
        self.wait();
        self.recording.add(Event::Flushed { disk, came });
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Request,
        file: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // A discard, or zeroes without their bytes: both read as zeroes.
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        if !mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        match self.take(file, offset, Content::Zeroes(length)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }
}
