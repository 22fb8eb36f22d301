//! Where does one line of an input of any size end and the next begin?

use std::io::{self, Read};

use bytes::{Bytes, BytesMut};

/// Bytes asked of the input at once.
const READ_BYTES: usize = 256 << 10;

/// A longer line is told as being at least this long, so that an input without any newline ends too.
const MEASURED_BYTES_MAX: u64 = 1 << 30;

/// Why an input can't be cut into lines any further.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    /// The input failed.
    #[error("standard input can't be read: {0}")]
    Input(#[from] io::Error),
    /// A line that is longer than any record.
    #[error("line {line} has {bytes} bytes: at most {bytes_max} are allowed")]
    TooLong {
        /// Its number, from 1.
        line: u64,
        /// Its length without the newline; where it is longer than can be measured, the length measured.
        bytes: u64,
        /// The bound.
        bytes_max: usize,
    },
}

/// Cuts an input into lines, holding no more than one read and one line of it.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    line_bytes_max: usize,
    held: BytesMut,
    lines_cut: u64,
    at_end: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R, line_bytes_max: usize) -> Self {
        Self { input, line_bytes_max, held: BytesMut::new(), lines_cut: 0, at_end: false }
    }

    /// Lines cut so far.
    pub(super) fn lines_cut(&self) -> u64 {
        self.lines_cut
    }

    /// The lines that end within the next read, without their newlines; none at the end. A last line needs no newline.
    pub(super) fn next_lines(&mut self) -> Result<Option<Vec<Bytes>>, LineError> {
        let mut lines = Vec::new();
        while lines.is_empty() {
            if self.held.len() > self.line_bytes_max {
                return Err(self.measure());
            }
            if self.at_end {
                return Ok(self.last_line().map(|line| vec![line]));
            }
            let scanned = self.held.len();
            self.read()?;
            self.cut(scanned, &mut lines);
        }
        Ok(Some(lines))
    }

    fn read(&mut self) -> Result<(), LineError> {
        let held = self.held.len();
        self.held.resize(held + READ_BYTES, 0);
        let outcome = loop {
            match self.input.read(&mut self.held[held..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome,
            }
        };
        self.held.truncate(held + *outcome.as_ref().unwrap_or(&0));
        self.at_end = outcome? == 0;
        Ok(())
    }

    /// Takes every whole line; stops before one that is too long, which then starts what is held.
    fn cut(&mut self, scanned: usize, lines: &mut Vec<Bytes>) {
        let mut from = scanned;
        while let Some(at) = self.held[from..].iter().position(|byte| *byte == b'\n') {
            let end = from + at;
            if end > self.line_bytes_max {
                return;
            }
            let mut line = self.held.split_to(end + 1);
            line.truncate(end);
            lines.push(line.freeze());
            self.lines_cut += 1;
            from = 0;
        }
    }

    fn last_line(&mut self) -> Option<Bytes> {
        if self.held.is_empty() {
            return None;
        }
        self.lines_cut += 1;
        Some(self.held.split().freeze())
    }

    /// How long the line is that starts what is held, keeping none of it.
    fn measure(&mut self) -> LineError {
        let mut bytes = 0;
        loop {
            if let Some(at) = self.held.iter().position(|byte| *byte == b'\n') {
                bytes += widen(at);
                break;
            }
            bytes += widen(self.held.len());
            self.held.clear();
            if self.at_end || bytes >= MEASURED_BYTES_MAX {
                break;
            }
            if let Err(error) = self.read() {
                return error;
            }
        }
        LineError::TooLong { line: self.lines_cut + 1, bytes, bytes_max: self.line_bytes_max }
    }
}

fn widen(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{LineError, Lines};
    use bytes::Bytes;
    use std::io::Read;

    /// Gives its bytes a few at a time, as a pipe may.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let n = self.1.min(self.0.len()).min(out.len());
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn cut_all(input: impl Read, line_bytes_max: usize) -> (Vec<String>, Option<String>) {
        let mut lines = Lines::new(input, line_bytes_max);
        let mut cut = Vec::new();
        loop {
            match lines.next_lines() {
                Ok(Some(some)) => cut.extend(some),
                Ok(None) => return (texts(&cut), None),
                Err(error) => return (texts(&cut), Some(error.to_string())),
            }
        }
    }

    fn texts(lines: &[Bytes]) -> Vec<String> {
        lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }

    /// The lines and the fault of an input, which must not depend on how it is read.
    fn check(input: &[u8], line_bytes_max: usize) -> (Vec<String>, Option<String>) {
        let outcome = cut_all(input, line_bytes_max);
        for step in [1, 2, 3, 7] {
            let trickled = cut_all(Trickle(input, step), line_bytes_max);
            assert_eq!(outcome, trickled, "{step} bytes a read");
        }
        outcome
    }

    #[test]
    fn every_line_is_cut_at_its_newline_and_empty_ones_count() {
        let (lines, error) = check(b"one\n\nthree\n", 10);
        assert_eq!((lines, error), (vec!["one".into(), String::new(), "three".into()], None));
    }

    #[test]
    fn a_last_line_needs_no_newline() {
        assert_eq!(check(b"a\nb", 10).0, ["a", "b"]);
        assert!(check(b"", 10).0.is_empty());
    }

    #[test]
    fn a_line_over_the_bound_is_told_with_number_and_size_after_those_before_it() {
        let (lines, error) = check(b"fits.\n123456\nmore\n", 5);
        assert_eq!(lines, ["fits."]);
        assert_eq!(error.unwrap(), "line 2 has 6 bytes: at most 5 are allowed");
        assert_eq!(check(b"123456789", 5).1.unwrap(), "line 1 has 9 bytes: at most 5 are allowed");
    }

    #[test]
    fn an_input_that_fails_says_so() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("gone"))
            }
        }
        let error = Lines::new(Broken, 5).next_lines().unwrap_err();
        assert!(matches!(error, LineError::Input(_)), "{error}");
    }
}
