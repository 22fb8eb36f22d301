//! What was acked and what was read, kept so that no crash of this process forgets it?
//!
//! A file a writer, of entries of 24 bytes, little-endian: stream (u32), place (u64), hash (u64), CRC-32C of the 20 before. The last
//! whole entry of a stream counts; what a crash left torn at the end is cut off. A file that is long is written anew, the last
//! entry of each stream only, beside the old one and then over it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use wire::crc::crc32c;

use crate::chain::Link;
use crate::error::BenchError;

const ENTRY_BYTES: usize = 24;
/// Entries after which the file is written anew.
const ENTRIES_MAX: usize = 1 << 20;

/// The journal of one writer, or of the readers.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    entries: usize,
    latest: BTreeMap<u32, Link>,
}

impl Journal {
    /// Opens it, made if it is not there, with what it says of each stream.
    pub(super) fn open(path: &Path) -> Result<Self, BenchError> {
        let failed = failed("opening", path);
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(&failed)?,
        };
        let mut journal = Self {
            path: path.to_owned(),
            file: File::create(path.with_extension("new")).map_err(&failed)?,
            entries: 0,
            latest: latest(&bytes),
        };
        journal.compact()?;
        Ok(journal)
    }

    /// What it says of each stream.
    pub(super) fn latest(&self) -> &BTreeMap<u32, Link> {
        &self.latest
    }

    /// Notes where a stream stands; it is durable when this answers, if it is to be.
    pub(super) fn note(&mut self, stream: u32, link: Link, is_durable: bool) -> Result<(), BenchError> {
        self.latest.insert(stream, link);
        self.entries += 1;
        let written = self.file.write_all(&encode(stream, link));
        written.map_err(failed("writing", &self.path))?;
        if is_durable {
            self.file.sync_data().map_err(failed("syncing", &self.path))?;
        }
        if self.entries > ENTRIES_MAX { self.compact() } else { Ok(()) }
    }

    fn compact(&mut self) -> Result<(), BenchError> {
        let failed = failed("writing", &self.path);
        let new = self.path.with_extension("new");
        let mut file = File::create(&new).map_err(&failed)?;
        file.write_all(&written(&self.latest)).and_then(|()| file.sync_all()).map_err(&failed)?;
        fs::rename(&new, &self.path).map_err(&failed)?;
        // The name is durable with its directory.
        let directory = self.path.parent().unwrap_or_else(|| Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(&failed)?;
        (self.file, self.entries) = (file, self.latest.len());
        Ok(())
    }
}

/// The last whole entry of each stream, up to the first that is not whole.
fn latest(bytes: &[u8]) -> BTreeMap<u32, Link> {
    bytes.chunks_exact(ENTRY_BYTES).map_while(decode).collect()
}

/// A file that says this of each stream.
fn written(latest: &BTreeMap<u32, Link>) -> Vec<u8> {
    latest.iter().flat_map(|(stream, link)| encode(*stream, *link)).collect()
}

/// What must hold of a file, see [`crate::fuzzing`].
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check(bytes: &[u8]) {
    let found = latest(bytes);
    assert_eq!(latest(&written(&found)), found, "a file written anew says the same");
    let whole = bytes.chunks_exact(ENTRY_BYTES).take_while(|entry| decode(entry).is_some()).count() * ENTRY_BYTES;
    assert_eq!(latest(&[&bytes[..whole], &[0xff; 7]].concat()), found, "what is torn counts for nothing");
    if let Some((stream, link)) = bytes.get(..ENTRY_BYTES).and_then(decode) {
        assert_eq!(encode(stream, link), bytes[..ENTRY_BYTES]);
    }
}

fn encode(stream: u32, link: Link) -> [u8; ENTRY_BYTES] {
    let mut out = [0; ENTRY_BYTES];
    out[..4].copy_from_slice(&stream.to_le_bytes());
    out[4..12].copy_from_slice(&link.place.to_le_bytes());
    out[12..20].copy_from_slice(&link.hash.to_le_bytes());
    let crc = crc32c(&out[..20]);
    out[20..].copy_from_slice(&crc.to_le_bytes());
    out
}

fn decode(entry: &[u8]) -> Option<(u32, Link)> {
    let number = |range: std::ops::Range<usize>| entry[range].try_into().map(u64::from_le_bytes).unwrap_or_default();
    let word = |at: usize| entry[at..at + 4].try_into().map(u32::from_le_bytes).unwrap_or_default();
    let is_whole = word(20) == crc32c(&entry[..20]);
    is_whole.then(|| (word(0), Link { place: number(4..12), hash: number(12..20) }))
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> BenchError + use<> {
    let path = path.to_owned();
    move |source| BenchError::File { action, path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::{ENTRY_BYTES, Journal};
    use crate::chain::Link;

    fn link(place: u64) -> Link {
        Link { place, hash: place * 7 + 1 }
    }

    #[test]
    fn what_was_noted_is_there_again_up_to_what_a_crash_tore() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acks-0");
        let mut journal = Journal::open(&path).unwrap();
        for place in 1..=9 {
            journal.note(1, link(place), true).unwrap();
            journal.note(2, link(place * 2), false).unwrap();
        }
        drop(journal);
        let at = |path| Journal::open(path).unwrap().latest().clone();
        assert_eq!(at(&path).into_iter().collect::<Vec<_>>(), [(1, link(9)), (2, link(18))]);
        // Only the latest entries are left by now; the last of them is torn.
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 2 * ENTRY_BYTES);
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        assert_eq!(at(&path).into_iter().collect::<Vec<_>>(), [(1, link(9))]);
    }
}
