//! How entries are read again from the files of any log, while it is written or long after.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use glommio::io::{DmaFile, OpenOptions, ReadResult};
use wire::ids::SegmentId;

use crate::device::disk::plain;
use crate::names::segment_name;

/// Bytes that were read from a log, without a copy.
#[derive(Debug, Clone)]
pub struct ReadBytes(ReadResult);

impl Deref for ReadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for ReadBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Which segment of which log.
type Key = (usize, SegmentId);

/// Reads the files of several logs, of which it keeps a few open: of the thread that made it.
#[derive(Debug)]
pub struct HistoryReader {
    dirs: Vec<PathBuf>,
    files_max: usize,
    /// The files that are open, the one used last at the back.
    files: RefCell<VecDeque<(Key, Rc<DmaFile>)>>,
}

impl HistoryReader {
    /// A reader of the logs in `dirs`, with at most `files_max` files open besides those being read.
    ///
    /// Its first read comes after a log was opened on this thread.
    #[must_use]
    pub fn new(dirs: Vec<PathBuf>, files_max: usize) -> Self {
        Self { dirs, files_max: files_max.max(1), files: RefCell::default() }
    }

    /// Reads `bytes` bytes from `offset` of a segment of the log in directory number `log`; both need no alignment.
    ///
    /// # Errors
    /// What the system says; `NotFound` when the segment was freed, `UnexpectedEof` when it ends before.
    ///
    /// # Panics
    /// When there is no such directory.
    pub async fn read(&self, log: usize, segment: SegmentId, offset: u32, bytes: u32) -> io::Result<ReadBytes> {
        let file = self.file((log, segment)).await?;
        let read = file.read_at(u64::from(offset), bytes as usize).await.map_err(plain);
        self.close_spare().await;
        let read = read?;
        if read.len() == bytes as usize { Ok(ReadBytes(read)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Closes what is open of the segments of log number `log` below `first`, which were freed: their space comes back
    /// only then.
    pub async fn close_freed(&self, log: usize, first: SegmentId) {
        let is_freed = |(of, segment): &Key| *of == log && *segment < first;
        while let Some(file) = self.take_unread(|key| is_freed(key)) {
            close(file).await;
        }
    }

    async fn file(&self, key: Key) -> io::Result<Rc<DmaFile>> {
        if let Some(file) = self.take_up(key) {
            return Ok(file);
        }
        let (log, segment) = key;
        let path = self.dirs[log].join(segment_name(segment));
        let file = Rc::new(open(&path).await?);
        self.files.borrow_mut().push_back((key, Rc::clone(&file)));
        Ok(file)
    }

    fn take_up(&self, key: Key) -> Option<Rc<DmaFile>> {
        let mut files = self.files.borrow_mut();
        let at = files.iter().rposition(|(open, _)| *open == key)?;
        let found = files.remove(at)?;
        let file = Rc::clone(&found.1);
        files.push_back(found);
        Some(file)
    }

    /// Closes the files that were not used for longest, as long as there are too many that no one reads.
    async fn close_spare(&self) {
        while let Some(file) = self.take_spare() {
            close(file).await;
        }
    }

    fn take_spare(&self) -> Option<DmaFile> {
        let is_spare = self.files.borrow().len() > self.files_max;
        if is_spare { self.take_unread(|_| true) } else { None }
    }

    /// Takes the file out that was not used for longest among those that `may_go` and no one reads.
    fn take_unread(&self, may_go: impl Fn(&Key) -> bool) -> Option<DmaFile> {
        let mut files = self.files.borrow_mut();
        let at = files.iter().position(|(key, file)| may_go(key) && Rc::strong_count(file) == 1)?;
        let (_, file) = files.remove(at)?;
        Rc::into_inner(file)
    }
}

/// Opens a segment that may be freed meanwhile: glommio looks at the path once more after it has opened it, and panics when
/// nothing is there. The path of a descriptor stays.
async fn open(path: &Path) -> io::Result<DmaFile> {
    let held = std::fs::File::open(path)?;
    let stays = format!("/proc/self/fd/{}", held.as_raw_fd());
    OpenOptions::new().read(true).dma_open(stays).await.map_err(plain)
}

async fn close(file: DmaFile) {
    if let Err(error) = file.close().await {
        tracing::warn!(%error, "closing a segment that was read");
    }
}
