//! Where do tests keep their data, and what do they call it?

use std::path::{Path, PathBuf};

use client::{Address, BucketName, BucketSpec, ConfigPatch, Key, Record};
use tempfile::TempDir;

use crate::combination::class;

/// The bucket of most tests: streams of the class under test, made on append.
pub const BUCKET: &str = "demo";

/// A directory on a disk, removed in the end. A temporary directory is often in memory, where nothing can be durable.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// An empty directory, below `NOVA_TEST_DIR` if that is set.
    ///
    /// # Panics
    /// When there is no place for one.
    #[must_use]
    pub fn new() -> Self {
        let place = std::env::var_os("NOVA_TEST_DIR").unwrap_or_else(|| "/var/tmp".into());
        Self(tempfile::Builder::new().prefix("nova-test-").tempdir_in(place).expect("a directory for the test"))
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// A stream of [`BUCKET`].
///
/// # Panics
/// When `key` can't be a key.
#[must_use]
pub fn at(key: &str) -> Address {
    Address { bucket: BucketName::new(BUCKET).expect("a bucket name"), key: Key::new(key).expect("a key") }
}

/// What [`BUCKET`] is made of.
///
/// # Panics
/// Never: the name is one.
#[must_use]
pub fn bucket() -> BucketSpec {
    BucketSpec {
        create_stream_on_append: true,
        defaults: ConfigPatch { class: Some(class()), ..ConfigPatch::default() },
        ..BucketSpec::named(BucketName::new(BUCKET).expect("a bucket name"))
    }
}

/// The body of a record as text.
#[must_use]
pub fn text(record: &Record) -> String {
    String::from_utf8_lossy(&record.body).into_owned()
}
