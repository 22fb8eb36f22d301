//! Under which path does an object lie, and which object lies under a path?
//!
//! A part of a name becomes a directory, its last part a file that ends in `.obj`. Bytes other than letters, digits, `-`, `_`
//! and `=` are escaped as `%XX`, the dot among them: so no object is mistaken for a directory, a hidden file or the store's own.

use std::path::PathBuf;

use crate::store::ObjectName;

const OBJECT_SUFFIX: &str = ".obj";

/// What a directory entry is, by its name; the text is the part of the object name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Object(String),
    Directory(String),
}

/// The path of an object below the root.
pub(super) fn of_object(name: &ObjectName) -> PathBuf {
    let mut path: PathBuf = name.segments().map(escape).collect();
    path.as_mut_os_string().push(OBJECT_SUFFIX);
    path
}

/// Reads back the name of a file; `None` if no object has such a file.
pub(super) fn object_entry(file_name: &str) -> Option<Entry> {
    unescape(file_name.strip_suffix(OBJECT_SUFFIX)?).map(Entry::Object)
}

/// Reads back the name of a directory; `None` if no part of a name becomes it.
pub(super) fn directory_entry(file_name: &str) -> Option<Entry> {
    unescape(file_name).map(Entry::Directory)
}

/// What must hold of the name of a file, see [`crate::fuzzing`].
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::store) fn check(file_name: &str) {
    let as_directory = directory_entry(file_name);
    match object_entry(file_name) {
        Some(Entry::Object(part)) => {
            assert_eq!(format!("{}{OBJECT_SUFFIX}", escape(&part)), file_name);
            assert_eq!(as_directory, None, "an object is no directory");
        }
        other => assert_eq!(other, None),
    }
    if let Some(Entry::Directory(part)) = as_directory {
        assert_eq!(escape(&part), file_name);
    }
    if let Ok(name) = ObjectName::parse(file_name) {
        let path = of_object(&name);
        let mut parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        let last = parts.pop().and_then(object_entry);
        let parts = parts.into_iter().map(directory_entry).chain([last]);
        let read = parts.map(|part| match part {
            Some(Entry::Object(part) | Entry::Directory(part)) => part,
            None => panic!("{} is not read back", path.display()),
        });
        assert_eq!(read.collect::<Vec<_>>().join("/"), name.as_str());
    }
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=')
}

fn escape(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        if *byte == b'%' {
            let digits = text_of(after.get(0..2)?)?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            out.push(*byte);
            rest = after;
        }
    }
    let segment = String::from_utf8(out).ok()?;
    // One spelling a name: a file that would be escaped otherwise is nobody's.
    (!segment.is_empty() && escape(&segment) == text).then_some(segment)
}

fn text_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
