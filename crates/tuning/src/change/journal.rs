//! What was written where, and how is it taken back? Notes in a file, durable before each write.
//!
//! A line a note: item, file, value, file that takes it back, value that does, with tabs between. The first line names the
//! start of the host that the notes belong to. A last line without its end was never followed by a write, and does not count.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::ChangeError;

const HEAD: &str = "nova host journal 1";
/// A journal is far smaller; what is larger is something else.
const BYTES_MAX: u64 = 16 << 20;
/// Times that the file may be another one by the time it is locked.
const LOCK_TRIES_MAX: usize = 8;

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) item: String,
    pub(super) path: String,
    pub(super) value: String,
    pub(super) undo_path: String,
    pub(super) undo: String,
}

impl Note {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split('\t').map(str::to_owned);
        let mut next = || parts.next();
        let note = Self { item: next()?, path: next()?, value: next()?, undo_path: next()?, undo: next()? };
        next().is_none().then_some(note)
    }

    fn line(&self) -> String {
        let Self { item, path, value, undo_path, undo } = self;
        format!("{item}\t{path}\t{value}\t{undo_path}\t{undo}\n")
    }
}

/// The notes of one start of the host, locked against others while this lives.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    boot: String,
    notes: Vec<Note>,
}

impl Journal {
    /// The journal at `path`, made if it is not there; one of an earlier start begins anew.
    pub(super) fn open(path: &Path, boot: &str) -> Result<Self, ChangeError> {
        let io_error = |source| ChangeError::Journal { path: path.to_owned(), source };
        if let Some(folder) = folder(path) {
            fs::create_dir_all(folder).map_err(io_error)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut journal = Self::locked(path, boot, || options.open(path))?;
        let is_current = journal.read()?;
        if !is_current {
            journal.begin().map_err(io_error)?;
        }
        Ok(journal)
    }

    /// The journal at `path`, if there is one of this start; an earlier one is removed.
    pub(super) fn existing(path: &Path, boot: &str) -> Result<Option<Self>, ChangeError> {
        let open = || OpenOptions::new().read(true).write(true).open(path);
        let mut journal = match Self::locked(path, boot, open) {
            Err(ChangeError::Journal { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            journal => journal?,
        };
        if journal.read()? {
            return Ok(Some(journal));
        }
        journal.keep(&[])?;
        Ok(None)
    }

    /// Opens and locks the file at `path`; anew when it was removed or replaced in between, as [`Journal::keep`] does: the lock
    /// of a file that has no name any more keeps nobody out.
    fn locked(path: &Path, boot: &str, open: impl Fn() -> io::Result<File>) -> Result<Self, ChangeError> {
        let io_error = |source| ChangeError::Journal { path: path.to_owned(), source };
        for _ in 0..LOCK_TRIES_MAX {
            let file = open().map_err(io_error)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(&file, path) => {
                    return Ok(Self { path: path.to_owned(), file, boot: boot.to_owned(), notes: Vec::new() });
                }
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => break,
                Err(error) => return Err(io_error(error.into())),
            }
        }
        Err(ChangeError::Busy { path: path.to_owned() })
    }

    /// Reads the notes, and cuts a last line off that has no end; whether they are of this start.
    fn read(&mut self) -> Result<bool, ChangeError> {
        let mut bytes = Vec::new();
        (&self.file).take(BYTES_MAX).read_to_end(&mut bytes).map_err(|source| self.error(source))?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = whole.lines().enumerate();
        let damaged = |line: usize| ChangeError::Damaged { path: self.path.clone(), line: line + 1 };
        let Some((_, head)) = lines.next() else {
            // A head that was cut off is ours; anything else is somebody's file.
            let is_cut_off = HEAD.as_bytes().starts_with(&bytes) || bytes.starts_with(format!("{HEAD} ").as_bytes());
            return if is_cut_off { Ok(false) } else { Err(damaged(0)) };
        };
        let boot = head.strip_prefix(HEAD).ok_or_else(|| damaged(0))?.trim();
        let is_current = boot == self.boot;
        let notes: Result<Vec<Note>, ChangeError> =
            lines.map(|(number, line)| Note::parse(line).ok_or_else(|| damaged(number))).collect();
        self.notes = notes?;
        let length = u64::try_from(end).unwrap_or(BYTES_MAX);
        let cut = self.file.set_len(length).and_then(|()| self.file.seek(SeekFrom::End(0)));
        cut.map_err(|source| self.error(source))?;
        Ok(is_current)
    }

    fn begin(&mut self) -> io::Result<()> {
        self.notes.clear();
        self.file.set_len(0)?;
        self.file.rewind()?;
        writeln!(self.file, "{HEAD} {}", self.boot)?;
        self.file.sync_all()?;
        sync_folder(&self.path)
    }

    /// Notes a write; durable when this answers.
    pub(super) fn note(&mut self, note: &Note) -> Result<(), ChangeError> {
        let written = self.file.write_all(note.line().as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|source| self.error(source))?;
        self.notes.push(note.clone());
        Ok(())
    }

    /// Of each file the first note and the last, those of the latest file first.
    pub(super) fn first_and_last(&self) -> Vec<(Note, Note)> {
        let mut pairs: Vec<(Note, Note)> = Vec::new();
        for note in &self.notes {
            match pairs.iter_mut().find(|(first, _)| first.path == note.path) {
                Some((_, last)) => *last = note.clone(),
                None => pairs.push((note.clone(), note.clone())),
            }
        }
        pairs.reverse();
        pairs
    }

    /// Keeps these notes alone; with none the journal goes.
    pub(super) fn keep(&mut self, notes: &[Note]) -> Result<(), ChangeError> {
        if notes.is_empty() {
            let gone = fs::remove_file(&self.path).and_then(|()| sync_folder(&self.path));
            return gone.map_err(|source| self.error(source));
        }
        let draft = self.path.with_extension("new");
        let text: String = notes.iter().rev().map(Note::line).collect();
        let written = File::create(&draft).and_then(|mut file| {
            write!(file, "{HEAD} {}\n{text}", self.boot)?;
            file.sync_all()
        });
        let renamed = written.and_then(|()| fs::rename(&draft, &self.path)).and_then(|()| sync_folder(&self.path));
        renamed.map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> ChangeError {
        ChangeError::Journal { path: self.path.clone(), source }
    }
}

fn folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty())
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path).unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Whether the file that is open is the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let opened = rustix::fs::fstat(file).map(place);
    opened.is_ok_and(|opened| rustix::fs::stat(path).is_ok_and(|there| place(there) == opened))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::{self, File, OpenOptions};
    use std::io;

    use super::{Journal, is_at};
    use crate::change::ChangeError;

    #[test]
    fn a_journal_that_another_process_removes_or_replaces_before_it_is_locked_is_opened_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("journal"), folder.path().join("other"));
        let taken_away = |is_replaced: bool| {
            fs::remove_file(&path)?;
            if is_replaced {
                File::create(&other)?;
                fs::rename(&other, &path)?;
            }
            io::Result::Ok(())
        };
        for is_replaced in [false, true] {
            let opened = Cell::new(0);
            let open = || {
                let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
                opened.set(opened.get() + 1);
                let is_first = opened.get() == 1;
                is_first.then(|| taken_away(is_replaced)).transpose()?;
                Ok(file)
            };
            let journal = Journal::locked(&path, "3f1c", open).unwrap();
            assert_eq!(opened.get(), 2);
            assert!(is_at(&journal.file, &path));
            let second = Journal::open(&path, "3f1c").unwrap_err();
            assert!(matches!(second, ChangeError::Busy { .. }), "{second}");
        }
        let never = || File::create(&path).and_then(|file| fs::remove_file(&path).map(|()| file));
        assert!(matches!(Journal::locked(&path, "3f1c", never), Err(ChangeError::Busy { .. })));
        let gone = || Err(io::ErrorKind::NotFound.into());
        assert!(matches!(Journal::locked(&path, "3f1c", gone), Err(ChangeError::Journal { .. })));
    }
}
