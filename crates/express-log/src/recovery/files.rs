//! How recovery finds and locks the files of a log, what they say of themselves, and how all of them are given up.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use wire::ids::{LogId, SegmentId};
use wire::log_frame::BLOCK_BYTES;
use wire::segment::SegmentHeader;
use wire::superblock::{COPIES, COPY_BYTES, Superblock};

use super::read_ahead::Files;
use super::replay::{BLOCK, Found, Source};
use super::{RecoveryError, io_error};
use crate::core::choice::{Choice, choose};
use crate::names::{SUPER, is_unfinished, parse_segment_name, segment_name};

/// How long to wait for the writes of a process that was killed.
const LOCK_WAIT: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Directories above a log's own that its first start may make, and the one that these stand in.
const NEW_DIRS_MAX: usize = 2;

/// Makes `dir` if it is not there, with its name durable as far up as it may be new, and locks it.
pub(super) fn lock_dir(dir: &Path) -> Result<OwnedFd, RecoveryError> {
    fs::create_dir_all(dir).map_err(|source| io_error(dir, source))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(|source| io_error(dir, source.into()))?;
    lock(&fd, dir, Instant::now() + LOCK_WAIT)?;
    rustix::fs::fsync(&fd).map_err(|source| io_error(dir, source.into()))?;
    for above in dir.ancestors().skip(1).take(NEW_DIRS_MAX).filter(|above| !above.as_os_str().is_empty()) {
        File::open(above).and_then(|above| above.sync_all()).map_err(|source| io_error(above, source))?;
    }
    Ok(fd)
}

fn lock(fd: impl AsFd, path: &Path, until: Instant) -> Result<(), RecoveryError> {
    loop {
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => return Err(RecoveryError::InUse { path: path.to_owned() }),
            Err(error) => return Err(io_error(path, error.into())),
        }
    }
}

type Survey = (Option<(Superblock, u32)>, Vec<Found>, Files);

/// Reads what the files of `dir` say of themselves.
pub(super) fn survey(dir: &Path) -> Result<Survey, RecoveryError> {
    let segments = list(dir).map_err(|source| io_error(dir, source))?;
    let superblock = read_superblock(dir)?;
    let Some((block, _)) = &superblock else {
        return match segments.len() {
            0 => Ok((None, Vec::new(), Files::new(dir.to_owned()))),
            segments => Err(RecoveryError::NoSuperblock { path: dir.to_owned(), segments }),
        };
    };
    let until = Instant::now() + LOCK_WAIT;
    let mut found = Vec::with_capacity(segments.len());
    let mut files = Files::new(dir.to_owned());
    for segment in segments {
        let path = dir.join(segment_name(segment));
        let ended = block.segments.iter().any(|ended| ended.segment == segment);
        if !ended {
            settle(&path, until)?;
        }
        let file_bytes = length(&path)?;
        let first = files.read(segment, 0, BLOCK_BYTES).map_err(|source| io_error(&path, source))?;
        let header = SegmentHeader::decode(first).ok().filter(|header| header.segment == segment);
        belongs(&path, header.as_ref(), block.log)?;
        found.push(Found { segment, file_bytes, header });
    }
    Ok((superblock, found, files))
}

/// The ids of the segments in `dir`, ascending.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<SegmentId>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(dir)? {
        segments.extend(entry?.file_name().to_str().and_then(parse_segment_name));
    }
    segments.sort_unstable();
    Ok(segments)
}

/// Writes all copies of the superblock, one after the other, each durable before the next.
pub(super) fn write_superblock(dir: &Path, superblock: &Superblock) -> io::Result<()> {
    let file = File::options().write(true).open(dir.join(SUPER))?;
    for (copy, at) in (0..).zip((0..).step_by(COPY_BYTES)).take(COPIES) {
        let bytes = superblock.encode(copy).map_err(io::Error::other)?;
        file.write_all_at(&bytes, at)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Removes all segments in `dir`, those whose making was cut short too.
pub(super) fn remove_segments(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_segment = |name: &str| parse_segment_name(name).is_some() || is_unfinished(name);
        if entry.file_name().to_str().is_some_and(is_segment) {
            fs::remove_file(entry.path())?;
        }
    }
    File::open(dir)?.sync_all()
}

/// Waits for writes still on their way, and makes durable what was written: no decision stands on bytes that a power
/// cut may still take.
fn settle(path: &Path, until: Instant) -> Result<(), RecoveryError> {
    let file = File::options().read(true).write(true).open(path).map_err(|source| io_error(path, source))?;
    lock(&file, path, until)?;
    file.sync_all().map_err(|source| io_error(path, source))
}

/// The whole blocks of a segment file: a block that is cut holds nothing, and whether something was lost with it is told
/// by what later frames say.
fn length(path: &Path) -> Result<u32, RecoveryError> {
    let bytes = fs::metadata(path).map_err(|source| io_error(path, source))?.len();
    whole_blocks(bytes).ok_or_else(|| RecoveryError::Length { path: path.to_owned(), bytes })
}

/// The same of a file that has `bytes`; none when no segment has as many.
pub(crate) fn whole_blocks(bytes: u64) -> Option<u32> {
    let short = u32::try_from(bytes).ok()?;
    Some(short - short % BLOCK)
}

fn belongs(path: &Path, header: Option<&SegmentHeader>, expected: LogId) -> Result<(), RecoveryError> {
    match header {
        Some(header) if header.log != expected => {
            Err(RecoveryError::Foreign { path: path.to_owned(), found: header.log, expected })
        }
        _ => Ok(()),
    }
}

pub(crate) fn read_superblock(dir: &Path) -> Result<Option<(Superblock, u32)>, RecoveryError> {
    let path = dir.join(SUPER);
    let bytes = match File::options().read(true).write(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io_error(&path, source)),
        Ok(file) => file.sync_all().and_then(|()| fs::read(&path)).map_err(|source| io_error(&path, source))?,
    };
    let copies: Vec<&[u8]> = bytes.chunks(COPY_BYTES).take(COPIES).collect();
    match choose(&copies) {
        Ok(Choice::Fresh) => Ok(None),
        Ok(Choice::Found(superblock, crc)) => Ok(Some((*superblock, crc))),
        Err(source) => Err(RecoveryError::Superblock { path, source }),
    }
}
