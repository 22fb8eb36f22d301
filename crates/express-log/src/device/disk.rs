//! The real disk: io_uring through glommio, past the page cache.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use failpoints::{Point, hit};
use glommio::io::{Directory, DmaBuffer, DmaFile, OpenOptions};
use glommio::{GlommioError, allocate_dma_buffer};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use wire::ids::SegmentId;
use wire::log_frame::BLOCK_BYTES;
use wire::segment::SegmentHeader;
use wire::superblock::{COPIES, COPY_BYTES, Superblock};

use super::{Blankness, Device};
use crate::names::{SEED, SUPER, UNFINISHED, segment_name};
use crate::options::SyncMode;

/// Zeroes are written in pieces of this, so that commits of the same disk come in between.
const ZERO_BYTES: usize = 256 << 10;

/// The directory of one log, on the executor of the shard that writes it.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    sync: SyncMode,
    started: Instant,
}

impl Disk {
    /// The disk of `dir`, after a write, a sync and a read of it have shown that they work here.
    ///
    /// Called inside a glommio executor, before any other file is opened on it: the first file of a device decides how the
    /// executor polls that device, and must have written blocks.
    ///
    /// # Errors
    /// What the system says, or that other bytes came back than were written.
    pub(crate) async fn open(dir: &Path, sync: SyncMode) -> io::Result<Self> {
        open_seed(dir).await?;
        Ok(Self { dir: dir.to_owned(), sync, started: Instant::now() })
    }

    fn path(&self, segment: SegmentId) -> PathBuf {
        self.dir.join(segment_name(segment))
    }

    async fn sync_dir(&self) -> io::Result<()> {
        let dir = Directory::open(&self.dir).await.map_err(plain)?;
        let synced = dir.sync().await.map_err(plain);
        dir.close().await.map_err(plain)?;
        synced
    }

    /// Fills the file that is to become a segment.
    async fn fill(&self, file: &DmaFile, header: &SegmentHeader, blank: Blankness) -> io::Result<()> {
        let bytes = u64::from(header.bytes);
        let is_reserved = match file.pre_allocate(bytes, false).await.map_err(plain) {
            Err(error) if error.raw_os_error() != Some(Errno::OPNOTSUPP.raw_os_error()) => return Err(error),
            reserved => reserved.is_ok(),
        };
        let mut first = allocate_dma_buffer(BLOCK_BYTES);
        header.encode(first.as_bytes_mut());
        write_all(file.write_at(first, 0), BLOCK_BYTES).await?;
        hit(Point::SegmentZero);
        if is_reserved && blank == Blankness::Reserved {
            return file.fdatasync().await.map_err(plain);
        }
        let mut zeroes = allocate_dma_buffer(ZERO_BYTES);
        zeroes.as_bytes_mut().fill(0);
        let mut zeroes = Rc::new(zeroes);
        let mut at = BLOCK_BYTES as u64;
        while at < bytes {
            let left = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(ZERO_BYTES);
            if left < zeroes.len() {
                let mut rest = allocate_dma_buffer(left);
                rest.as_bytes_mut().fill(0);
                zeroes = Rc::new(rest);
            }
            write_all(file.write_rc_at(Rc::clone(&zeroes), at), left).await?;
            at += left as u64;
        }
        file.fdatasync().await.map_err(plain)
    }
}

impl Device for Disk {
    type Buffer = DmaBuffer;
    type Segment = DmaFile;

    fn buffer(&self, bytes: usize) -> DmaBuffer {
        allocate_dma_buffer(bytes)
    }

    async fn create(&self, header: SegmentHeader, blank: Blankness) -> io::Result<DmaFile> {
        let path = self.path(header.segment);
        let unfinished = self.dir.join(segment_name(header.segment) + UNFINISHED);
        let file = options().create(true).dma_open(&unfinished).await.map_err(plain)?;
        let filled = self.fill(&file, &header, blank).await;
        hit(Point::SegmentZeroed);
        let filled = match filled {
            Ok(()) => file.rename(&path).await.map_err(plain),
            Err(error) => file.remove().await.map_err(plain).and(Err(error)),
        };
        file.close().await.map_err(plain)?;
        filled?;
        hit(Point::SegmentNamed);
        self.sync_dir().await?;
        let mut options = options();
        if self.sync == SyncMode::Dsync {
            options.custom_flags(OFlags::DSYNC.bits().cast_signed());
        }
        let file = options.dma_open(&path).await.map_err(plain)?;
        rustix::fs::flock(borrow(&file), FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    }

    async fn write(&self, file: &DmaFile, mut buffer: DmaBuffer, bytes: usize, offset: u32) -> io::Result<usize> {
        buffer.trim_to_size(bytes);
        file.write_at(buffer, u64::from(offset)).await.map_err(plain)
    }

    async fn sync(&self, file: &DmaFile) -> io::Result<()> {
        match self.sync {
            SyncMode::Dsync => Ok(()),
            SyncMode::Fdatasync => file.fdatasync().await.map_err(plain),
        }
    }

    fn write_now(&self, file: &DmaFile, buffer: &DmaBuffer, bytes: usize, offset: u32) -> io::Result<usize> {
        let slices = [io::IoSlice::new(&buffer.as_bytes()[..bytes])];
        Ok(rustix::io::pwritev2(borrow(file), &slices, u64::from(offset), ReadWriteFlags::DSYNC)?)
    }

    async fn close(&self, file: DmaFile) {
        if let Err(error) = file.close().await {
            tracing::warn!(%error, "closing a segment that is full");
        }
    }

    async fn write_superblock(&self, superblock: &Superblock) -> io::Result<()> {
        let path = self.dir.join(SUPER);
        let file = options().create(true).dma_open(&path).await.map_err(plain)?;
        let written = write_copies(&file, superblock).await;
        file.close().await.map_err(plain)?;
        written?;
        self.sync_dir().await
    }

    async fn truncate(&self, segment: SegmentId, bytes: u32) -> io::Result<()> {
        let file = options().dma_open(self.path(segment)).await.map_err(plain)?;
        let cut = file.truncate(u64::from(bytes)).await.map_err(plain);
        file.close().await.map_err(plain)?;
        cut
    }

    async fn remove(&self, segment: SegmentId) -> io::Result<()> {
        glommio::io::remove(self.path(segment)).await.map_err(plain)
    }

    async fn sync_names(&self) -> io::Result<()> {
        self.sync_dir().await
    }

    fn random(&self) -> io::Result<u64> {
        getrandom::u64().map_err(io::Error::from)
    }

    fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_add_signed(failpoints::wall_shift_ms())
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        glommio::spawn_local(task).detach();
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    async fn sleep(&self, time: Duration) {
        glommio::timer::sleep(time).await;
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

async fn write_copies(file: &DmaFile, superblock: &Superblock) -> io::Result<()> {
    for copy in 0..COPIES {
        let number = u32::try_from(copy).expect("there are four copies");
        let bytes = superblock.encode(number).map_err(io::Error::other)?;
        let mut buffer = allocate_dma_buffer(bytes.len());
        buffer.as_bytes_mut().copy_from_slice(&bytes);
        write_all(file.write_at(buffer, (copy * COPY_BYTES) as u64), bytes.len()).await?;
        file.fdatasync().await.map_err(plain)?;
    }
    Ok(())
}

/// Makes or opens the seed file of `dir` and shows that write, sync and read work on its device.
async fn open_seed(dir: &Path) -> io::Result<()> {
    let path = dir.join(SEED);
    if std::fs::metadata(&path).map_or(true, |seed| seed.len() < BLOCK_BYTES as u64) {
        let file = std::fs::File::create(&path)?;
        rustix::io::pwrite(&file, &[0x5E; BLOCK_BYTES], 0)?;
        file.sync_all()?;
    }
    let file = options().dma_open(&path).await.map_err(plain)?;
    let tested = self_test(&file).await;
    file.close().await.map_err(plain)?;
    tested
}

async fn self_test(file: &DmaFile) -> io::Result<()> {
    let mark = getrandom::u64().map_err(io::Error::from)?.to_le_bytes();
    let mut buffer = allocate_dma_buffer(BLOCK_BYTES);
    buffer.as_bytes_mut().fill(0x5E);
    buffer.as_bytes_mut()[..mark.len()].copy_from_slice(&mark);
    write_all(file.write_at(buffer, 0), BLOCK_BYTES).await?;
    file.fdatasync().await.map_err(plain)?;
    let read = file.read_at_aligned(0, BLOCK_BYTES).await.map_err(plain)?;
    if read.len() == BLOCK_BYTES && read[..mark.len()] == mark {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the disk gave back other bytes than it was given"))
}

async fn write_all(write: impl Future<Output = glommio::Result<usize, ()>>, bytes: usize) -> io::Result<()> {
    match write.await.map_err(plain)? {
        written if written == bytes => Ok(()),
        written => Err(io::Error::new(io::ErrorKind::WriteZero, format!("{written} of {bytes} bytes were written"))),
    }
}

/// The system's own error, whose number callers look at.
pub(crate) fn plain(error: GlommioError<()>) -> io::Error {
    match error {
        GlommioError::IoError(source) | GlommioError::EnhancedIoError { source, .. } => source,
        other => other.into(),
    }
}

#[expect(unsafe_code, reason = "glommio gives no safe borrow of a file's descriptor")]
fn borrow(file: &DmaFile) -> BorrowedFd<'_> {
    // SAFETY: the descriptor belongs to `file`, which outlives the borrow and is closed only by value.
    unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) }
}
