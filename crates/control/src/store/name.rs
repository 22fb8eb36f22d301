//! Which names may objects have?

use std::fmt;
use std::sync::Arc;

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing, or more bytes than a store takes.
    #[error("an object name has 1 to {max} bytes, not {found}")]
    Length {
        /// Bytes found.
        found: usize,
        /// Bytes at most.
        max: usize,
    },
    /// A part between slashes is empty or too long for a file name.
    #[error("the part {segment:?} of an object name has 1 to {max} bytes, not {found}")]
    Segment {
        /// The part.
        segment: String,
        /// Bytes found.
        found: usize,
        /// Bytes at most.
        max: usize,
    },
    /// `.` or `..` between slashes.
    #[error("the part {segment:?} is not allowed in an object name")]
    Dots {
        /// The part.
        segment: String,
    },
    /// A control character, NUL among them.
    #[error("the control character {found:?} is not allowed in an object name")]
    Control {
        /// The character.
        found: char,
    },
}

/// The name of an object: parts of 1–80 bytes with slashes between, 1–1024 bytes of UTF-8 in all, no control character, no
/// part `.` or `..`. Sorts by bytes, as listings do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(Arc<str>);

impl ObjectName {
    /// Bytes of a name at most: what S3 takes.
    pub const BYTES_MAX: usize = 1024;
    /// Bytes of one part at most: escaped three for one it still is a file name.
    pub const SEGMENT_BYTES_MAX: usize = 80;

    /// Takes a name, or says what is wrong with it.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn parse(name: &str) -> Result<Self, NameError> {
        if name.is_empty() || name.len() > Self::BYTES_MAX {
            return Err(NameError::Length { found: name.len(), max: Self::BYTES_MAX });
        }
        if let Some(found) = name.chars().find(|c| c.is_control()) {
            return Err(NameError::Control { found });
        }
        name.split('/').try_for_each(check_segment)?;
        Ok(Self(name.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parts between the slashes; at least one.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

fn check_segment(segment: &str) -> Result<(), NameError> {
    let max = ObjectName::SEGMENT_BYTES_MAX;
    if segment.is_empty() || segment.len() > max {
        return Err(NameError::Segment { segment: segment.to_owned(), found: segment.len(), max });
    }
    if segment == "." || segment == ".." {
        return Err(NameError::Dots { segment: segment.to_owned() });
    }
    Ok(())
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectName({})", self.0)
    }
}

/// What the names of a listing begin with: nothing, a name, or a name and a slash.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectPrefix(Arc<str>);

impl ObjectPrefix {
    /// The prefix of every name.
    #[must_use]
    pub fn all() -> Self {
        Self("".into())
    }

    /// Takes a prefix, or says what is wrong with it.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn parse(prefix: &str) -> Result<Self, NameError> {
        let name = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() {
            ObjectName::parse(name)?;
        }
        Ok(Self(prefix.into()))
    }

    /// The prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectPrefix({})", self.0)
    }
}
