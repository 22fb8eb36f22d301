//! How recovery reads segments at the rate of the disk: the next bytes come in while those before are looked at.

use std::fs::File;
use std::io;
use std::mem;
use std::ops::Range;
use std::panic;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use wire::ids::SegmentId;
use wire::log_frame::{BLOCK_BYTES, BODY_BYTES_MAX, HEADER_BYTES, padded_bytes};
use wire::segment::FRAMES_AT;

use super::replay::Source;
use crate::core::scan::Span;
use crate::names::segment_name;

/// Bytes read at once.
const WINDOW_BYTES: usize = 8 << 20;
/// The most that is asked for at once, a longest frame. What a window ends with and does not suffice is shorter.
const ASKED_BYTES_MAX: usize = padded_bytes(HEADER_BYTES + BODY_BYTES_MAX);

/// The segments of a directory, read through a window that moves forward, past the page cache where the file system can.
///
/// Of what is [expected](Source::expect), a thread reads the window behind this one, and nothing further, while this one
/// is looked at. What goes wrong there is told to whoever asks for those bytes.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    window: Window,
    ahead: Option<Ahead>,
    /// The window before this one, for its memory.
    spare: Window,
    /// What is going to be read, in order.
    expected: Vec<(SegmentId, Range<u64>)>,
}

impl Files {
    /// The segments of `dir`, of which nothing is read yet.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, window: Window::default(), ahead: None, spare: Window::default(), expected: Vec::new() }
    }

    /// Moves the window so that it holds `bytes` from `offset` of `segment`, or what its file has of them.
    fn move_to(&mut self, segment: SegmentId, offset: u64, bytes: usize) -> io::Result<()> {
        let kept = self.window.held(segment, offset);
        match self.ahead.take() {
            Some(ahead) if ahead.segment == segment && ahead.offset == offset + kept.len() as u64 => {
                let mut next = ahead.wait()?;
                next.put_before(kept);
                self.spare = mem::replace(&mut self.window, next);
            }
            other => {
                // Nobody asked for what this one holds or met.
                self.spare = other.and_then(|ahead| ahead.wait().ok()).unwrap_or_default();
                let range = self.window_at(segment, offset, bytes);
                self.window.load(&self.dir, segment, range)?;
            }
        }
        self.start_ahead()
    }

    /// The window that starts at `offset`. The first block of a file is asked for by itself.
    fn window_at(&self, segment: SegmentId, offset: u64, bytes: usize) -> Range<u64> {
        let asked_end = offset + bytes as u64;
        if offset == 0 {
            return offset..asked_end;
        }
        let expected = self.expected.iter().find(|(expected, _)| *expected == segment);
        first_window(offset..expected.map_or(u64::MAX, |(_, range)| range.end.max(asked_end)))
    }

    /// Has the window read that is expected behind this one, if one is.
    fn start_ahead(&mut self) -> io::Result<()> {
        let mut expected = self.expected.iter().cloned().skip_while(|(segment, _)| *segment != self.window.segment);
        let rest = expected.next().map(|(segment, range)| (segment, range.start.max(self.window.end())..range.end));
        let behind = rest.into_iter().chain(expected).find(|(_, range)| !range.is_empty());
        if let Some((segment, range)) = behind {
            let memory = mem::take(&mut self.spare);
            self.ahead = Some(Ahead::start(&self.dir, segment, first_window(range), memory)?);
        }
        Ok(())
    }
}

impl Source for Files {
    fn read(&mut self, segment: SegmentId, offset: u32, bytes: usize) -> io::Result<&[u8]> {
        let offset = u64::from(offset);
        if self.window.held(segment, offset).len() < bytes {
            self.move_to(segment, offset, bytes)?;
        }
        Ok(self.window.held(segment, offset))
    }

    fn expect(&mut self, spans: impl Iterator<Item = Span>) {
        let frames = |span: Span| u64::from(FRAMES_AT)..u64::from(span.limit).next_multiple_of(BLOCK_BYTES as u64);
        self.expected = spans.map(|span| (span.segment, frames(span))).collect();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some(ahead) = self.ahead.take() {
            // Nobody is left who could ask for what it met.
            let _ = ahead.thread.join();
        }
    }
}

fn first_window(range: Range<u64>) -> Range<u64> {
    range.start..range.end.min(range.start + WINDOW_BYTES as u64)
}

/// A window that is being read by a thread of its own: starting one takes some hundredth of the time of the read.
#[derive(Debug)]
struct Ahead {
    segment: SegmentId,
    offset: u64,
    thread: JoinHandle<io::Result<Window>>,
}

impl Ahead {
    fn start(dir: &Path, segment: SegmentId, range: Range<u64>, memory: Window) -> io::Result<Self> {
        let (dir, offset, mut window) = (dir.to_owned(), range.start, memory);
        let read = move || window.load(&dir, segment, range).map(|()| window);
        let thread = thread::Builder::new().name("read-ahead".to_owned()).spawn(read)?;
        Ok(Self { segment, offset, thread })
    }

    fn wait(self) -> io::Result<Window> {
        self.thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    }
}

/// Bytes of one segment that follow each other.
#[derive(Debug, Default)]
pub(crate) struct Window {
    segment: SegmentId,
    /// Where in the file they start.
    offset: u64,
    /// None until the window is used.
    buffer: Vec<u8>,
    /// Where in the buffer they are.
    filled: Range<usize>,
}

impl Window {
    /// The bytes from `offset` of `segment` on, none when they are not here.
    pub(crate) fn held(&self, segment: SegmentId, offset: u64) -> &[u8] {
        let bytes = &self.buffer[self.filled.clone()];
        match offset.checked_sub(self.offset).and_then(|skip| usize::try_from(skip).ok()) {
            Some(skip) if self.segment == segment => bytes.get(skip..).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Whether the bytes end at `offset` of `segment` or behind it, and begin at or before it.
    pub(crate) fn reaches(&self, segment: SegmentId, offset: u64) -> bool {
        self.segment == segment && !self.filled.is_empty() && (self.offset..=self.end()).contains(&offset)
    }

    /// Holds nothing from here on, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.filled.end = self.filled.start;
    }

    /// Where in the file the bytes end.
    fn end(&self) -> u64 {
        self.offset + self.filled.len() as u64
    }

    /// Reads `range` of the file of `segment`, whole blocks, or what the file has of it.
    pub(crate) fn load(&mut self, dir: &Path, segment: SegmentId, range: Range<u64>) -> io::Result<()> {
        let bytes = usize::try_from(range.end - range.start).expect("a window is bounded");
        if self.buffer.is_empty() {
            // One block more, so that the bytes can be aligned, and what is put before them.
            self.buffer = vec![0; BLOCK_BYTES + ASKED_BYTES_MAX + WINDOW_BYTES];
        }
        let start = self.buffer.as_ptr().align_offset(BLOCK_BYTES) + ASKED_BYTES_MAX;
        (self.segment, self.offset, self.filled) = (segment, range.start, start..start);
        let file = open(&dir.join(segment_name(segment)))?;
        while self.filled.end < start + bytes {
            let at = self.end();
            let count = match rustix::io::pread(&file, &mut self.buffer[self.filled.end..start + bytes], at) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            self.filled.end += count;
            if count == 0 || !count.is_multiple_of(BLOCK_BYTES) {
                break;
            }
        }
        Ok(())
    }

    /// Puts what stands before the bytes in their file there.
    fn put_before(&mut self, bytes: &[u8]) {
        let start = self.filled.start - bytes.len();
        self.buffer[start..self.filled.start].copy_from_slice(bytes);
        self.filled.start = start;
        self.offset -= bytes.len() as u64;
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
        Err(Errno::INVAL) => rustix::fs::open(path, flags, Mode::empty())?,
        other => other?,
    };
    Ok(File::from(fd))
}

#[cfg(test)]
mod tests;
