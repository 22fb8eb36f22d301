//! Which file takes the writes of the disk floor, and how?

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use tuning::measured::Method;

use super::WRITE_BYTES_MAX;
use crate::error::BenchError;
use crate::random::Random;

/// What direct I/O asks of addresses and lengths.
const ALIGN: usize = 4 << 10;

/// A file of written zeroes that is removed in the end.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    plain: File,
    dsync: File,
    is_direct: bool,
    file_bytes: u64,
    at: u64,
    buffer: AlignedBytes,
}

impl Target {
    /// Makes the file and writes its zeroes.
    pub(super) fn create(directory: &Path, file_bytes: u64) -> Result<Self, BenchError> {
        let name = format!("nova-bench-disk-{}", std::process::id());
        let path = directory.join(name);
        let refuse = |action: &'static str| {
            let path = path.clone();
            move |source| BenchError::File { action, path, source }
        };
        let (plain, is_direct) = open(&path, OFlags::empty(), None).map_err(refuse("making"))?;
        let dsync = open(&path, OFlags::DSYNC, Some(is_direct));
        let dsync = dsync.map_err(refuse("opening")).map(|(dsync, _)| dsync);
        let made = dsync.and_then(|dsync| {
            zero(&plain, file_bytes).map_err(refuse("writing zeroes to"))?;
            Ok(dsync)
        });
        let dsync = match made {
            Ok(dsync) => dsync,
            Err(error) => {
                // The first error is the one to tell.
                drop(fs::remove_file(&path));
                return Err(error);
            }
        };
        let mut buffer = AlignedBytes::zeroed(WRITE_BYTES_MAX);
        Random::new(0).fill_printable(buffer.as_mut_slice());
        Ok(Self { path, plain, dsync, is_direct, file_bytes, at: 0, buffer })
    }

    /// Whether writes go past the file system's cache.
    pub(super) const fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes, which are all written.
    pub(super) const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Writes so many bytes behind the last ones, round the file, and returns once they are durable.
    pub(super) fn write(&mut self, bytes: usize, method: Method) -> Result<(), BenchError> {
        let (at, end) = (self.at, self.at + bytes as u64);
        let (at, end) = if end > self.file_bytes { (0, bytes as u64) } else { (at, end) };
        let written = self.write_at(&self.buffer.as_slice()[..bytes], at, method);
        self.at = end;
        written.map_err(|source| BenchError::File { action: "writing to", path: self.path.clone(), source })
    }

    fn write_at(&self, bytes: &[u8], at: u64, method: Method) -> io::Result<()> {
        match method {
            Method::Dsync => self.dsync.write_all_at(bytes, at),
            Method::WriteFdatasync => {
                self.plain.write_all_at(bytes, at)?;
                self.plain.sync_data()
            }
            Method::RwfDsync => {
                let slices = [IoSlice::new(bytes)];
                let written = pwritev2(self.plain.as_fd(), &slices, at, ReadWriteFlags::DSYNC)?;
                if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
            }
            Method::RingFdatasync | Method::RingDsync => unreachable!("a ring writes by itself"),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Nothing depends on it, and there is nobody to tell.
        drop(fs::remove_file(&self.path));
    }
}

/// Opens the file, direct if the file system takes it, or as `direct` says.
fn open(path: &Path, flags: OFlags, direct: Option<bool>) -> io::Result<(File, bool)> {
    let with = |flags: OFlags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(flags.bits().cast_signed()).open(path)
    };
    if direct != Some(false) {
        match with(flags | OFlags::DIRECT) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
            opened => return Ok((opened?, true)),
        }
    }
    Ok((with(flags)?, false))
}

fn zero(file: &File, file_bytes: u64) -> io::Result<()> {
    let zeroes = AlignedBytes::zeroed(WRITE_BYTES_MAX);
    for at in (0..file_bytes).step_by(WRITE_BYTES_MAX) {
        file.write_all_at(zeroes.as_slice(), at)?;
    }
    file.sync_all()
}

/// Bytes that start on a block's boundary, cut from a longer vector.
#[derive(Debug)]
struct AlignedBytes {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    fn zeroed(len: usize) -> Self {
        let bytes = vec![0; len + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN);
        Self { bytes, start, len }
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
