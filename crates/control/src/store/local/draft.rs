//! How do an object's bytes get to the disk without holding up what others write to it?
//!
//! A head log on the same disk waits, with each small commit, for whatever was handed to the disk before it. So a large object
//! goes past the page cache, a piece at a time, and one piece of all objects at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;

/// Smaller objects are one piece in any case.
const DIRECT_BYTES_MIN: usize = 128 << 10;
/// What the disk is given at a time: a tenth of a millisecond's work or so.
const PIECE_BYTES: usize = 256 << 10;
/// Direct writes start, end and lie in memory at multiples of this.
const ALIGN: usize = 4096;

/// Writes objects to files that nobody knows yet.
#[derive(Debug, Default)]
pub(super) struct Drafts {
    /// Held while a piece is on its way: the memory that it is written from.
    piece: Mutex<Vec<u8>>,
}

impl Drafts {
    /// Makes the file of these parts, one behind the other, durable but for its name.
    pub(super) fn write(&self, path: &Path, parts: [&[u8]; 2]) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes >= DIRECT_BYTES_MIN
            && let Some(file) = open_direct(path)?
        {
            self.write_pieces(&file, parts)?;
            file.set_len(bytes as u64)?;
            return file.sync_all();
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        file.sync_all()
    }

    fn write_pieces(&self, file: &File, mut parts: [&[u8]; 2]) -> io::Result<()> {
        let mut at = 0;
        loop {
            let mut memory = self.piece.lock().unwrap_or_else(PoisonError::into_inner);
            memory.resize(PIECE_BYTES + ALIGN, 0);
            let start = memory.as_ptr().align_offset(ALIGN);
            let piece = &mut memory[start..start + PIECE_BYTES];
            let filled = fill(piece, &mut parts);
            if filled == 0 {
                return Ok(());
            }
            let padded = filled.next_multiple_of(ALIGN);
            piece[filled..padded].fill(0);
            file.write_all_at(&piece[..padded], at)?;
            at += filled as u64;
        }
    }
}

/// Takes the parts' next bytes into `piece`; says how many.
fn fill(piece: &mut [u8], parts: &mut [&[u8]; 2]) -> usize {
    let mut filled = 0;
    for part in parts {
        let (taken, rest) = part.split_at(part.len().min(piece.len() - filled));
        piece[filled..filled + taken.len()].copy_from_slice(taken);
        (filled, *part) = (filled + taken.len(), rest);
    }
    filled
}

/// A new file for direct writes; `None` where its file system has none.
fn open_direct(path: &Path) -> io::Result<Option<File>> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    match OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(Some(file)),
        // Where the flag is refused the file may have been made all the same.
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_the_parts_whatever_their_sizes() {
        let dir = tempfile::tempdir().unwrap();
        let drafts = Drafts::default();
        let around =
            [0, 1, 24, ALIGN - 1, ALIGN, DIRECT_BYTES_MIN - 24, PIECE_BYTES - 24, PIECE_BYTES, 3 * PIECE_BYTES + 5];
        for (n, len) in around.into_iter().enumerate() {
            let body: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let path = dir.path().join(n.to_string());
            drafts.write(&path, [&body, b"the trailer of the object"]).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), [&body[..], b"the trailer of the object"].concat(), "{len}");
        }
    }
}
