//! What users call things: bucket names, keys, fencing tokens and addresses.

use std::fmt;
use std::str::FromStr;

use crate::limits::{BUCKET_NAME_BYTES_MAX, BUCKET_NAME_BYTES_MIN, FENCING_TOKEN_BYTES_MAX, KEY_BYTES_MAX};

/// Why a text can't be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A bucket name of the wrong length.
    #[error("bucket name '{name}' has {bytes} bytes: it must have {BUCKET_NAME_BYTES_MIN} to {BUCKET_NAME_BYTES_MAX}")]
    BucketLength {
        /// The name, cut to a readable length.
        name: String,
        /// Its length.
        bytes: usize,
    },
    /// A bucket name with a byte that names don't have.
    #[error("bucket name '{name}' must be of a-z, 0-9 and '-', the first and last of them a letter or digit")]
    BucketBytes {
        /// The name, cut to a readable length.
        name: String,
    },
    /// A key of the wrong length.
    #[error("key '{key}' has {bytes} bytes: it must have 1 to {KEY_BYTES_MAX}")]
    KeyLength {
        /// The key, cut to a readable length.
        key: String,
        /// Its length.
        bytes: usize,
    },
    /// A key with a NUL.
    #[error("key '{key}' has a NUL at byte {at}: keys have none")]
    KeyNul {
        /// The key, cut to a readable length.
        key: String,
        /// Where.
        at: usize,
    },
    /// Bytes that are not UTF-8.
    #[error("{what} is not UTF-8 from byte {valid_up_to} on")]
    NotUtf8 {
        /// Which name.
        what: &'static str,
        /// Bytes before the fault.
        valid_up_to: usize,
    },
    /// A fencing token that is too long.
    #[error("fencing token has {bytes} bytes: at most {FENCING_TOKEN_BYTES_MAX} are allowed")]
    TokenLength {
        /// Its length.
        bytes: usize,
    },
    /// A text that is no `nova://bucket/key`.
    #[error("'{text}' is not an address of the form nova://bucket/key")]
    Address {
        /// The text, cut to a readable length.
        text: String,
    },
}

/// The first bytes of a text that may be long or strange, fit for a one-line message.
fn shown(text: &str) -> String {
    const CHARS: usize = 80;
    let mut out: String = text.chars().take(CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(CHARS).is_some() {
        out.push('…');
    }
    out
}

fn utf8<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a str, NameError> {
    std::str::from_utf8(bytes).map_err(|e| NameError::NotUtf8 { what, valid_up_to: e.valid_up_to() })
}

/// The name of a bucket: 3 to 63 of `a-z 0-9 -`, the first and last of them alphanumeric.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketName(Box<str>);

impl BucketName {
    /// Checks a text.
    ///
    /// # Errors
    /// [`NameError`] with the name and the rule it breaks.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if !(BUCKET_NAME_BYTES_MIN..=BUCKET_NAME_BYTES_MAX).contains(&name.len()) {
            return Err(NameError::BucketLength { name: shown(name), bytes: name.len() });
        }
        let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
        if !name.as_bytes().iter().all(inner) || name.starts_with('-') || name.ends_with('-') {
            return Err(NameError::BucketBytes { name: shown(name) });
        }
        Ok(Self(name.into()))
    }

    /// Checks bytes that came from outside.
    ///
    /// # Errors
    /// As [`BucketName::new`], and when they are not UTF-8.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
        Self::new(utf8("bucket name", bytes)?)
    }

    /// The name as text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The key of a stream in its bucket: 1 to 512 bytes of UTF-8 without NUL, never parsed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// Checks a text.
    ///
    /// # Errors
    /// [`NameError`] with the key and the rule it breaks.
    pub fn new(key: &str) -> Result<Self, NameError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(NameError::KeyLength { key: shown(key), bytes: key.len() });
        }
        if let Some(at) = key.bytes().position(|b| b == 0) {
            return Err(NameError::KeyNul { key: shown(key), at });
        }
        Ok(Self(key.into()))
    }

    /// Checks bytes that came from outside.
    ///
    /// # Errors
    /// As [`Key::new`], and when they are not UTF-8.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
        Self::new(utf8("key", bytes)?)
    }

    /// The key as text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A fencing token: at most 36 bytes of UTF-8; the empty one clears.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FencingToken(Box<str>);

impl FencingToken {
    /// Checks a text.
    ///
    /// # Errors
    /// [`NameError::TokenLength`] over 36 bytes.
    pub fn new(token: &str) -> Result<Self, NameError> {
        if token.len() > FENCING_TOKEN_BYTES_MAX {
            return Err(NameError::TokenLength { bytes: token.len() });
        }
        Ok(Self(token.into()))
    }

    /// Checks bytes that came from outside.
    ///
    /// # Errors
    /// As [`FencingToken::new`], and when they are not UTF-8.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.len() > FENCING_TOKEN_BYTES_MAX {
            return Err(NameError::TokenLength { bytes: bytes.len() });
        }
        Self::new(utf8("fencing token", bytes)?)
    }

    /// The token as text.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the empty one, which stands for no token.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a stream is found: its bucket and its key, written `nova://bucket/key`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The bucket.
    pub bucket: BucketName,
    /// The key; everything after the slash that ends the bucket, as it stands.
    pub key: Key,
}

impl Address {
    /// The address of two texts.
    ///
    /// # Errors
    /// [`NameError`] of the part that is none.
    pub fn new(bucket: &str, key: &str) -> Result<Self, NameError> {
        Ok(Self { bucket: BucketName::new(bucket)?, key: Key::new(key)? })
    }

    /// The address of two byte strings that came from outside.
    ///
    /// # Errors
    /// [`NameError`] of the part that is none.
    pub fn from_bytes(bucket: &[u8], key: &[u8]) -> Result<Self, NameError> {
        Ok(Self { bucket: BucketName::from_bytes(bucket)?, key: Key::from_bytes(key)? })
    }
}

impl FromStr for Address {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (bucket, key) = text
            .strip_prefix("nova://")
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(|| NameError::Address { text: shown(text) })?;
        Self::new(bucket, key)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nova://{}/{}", self.bucket, self.key)
    }
}

#[cfg(test)]
mod tests;
