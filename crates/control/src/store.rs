//! What does nova ask of the place where objects live?
//!
//! One trait, [`Store`], and one suite of tests, `conformance`, that every implementation passes. Objects are small enough to be held
//! in memory, are replaced only by compare-and-swap, and are never seen half written.

pub mod conformance;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod layout;
mod local;
mod memory;
mod metered;
mod name;
mod s3;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

pub use error::{CorruptObject, Effect, StoreError, StoreOp};
pub use local::{LocalDirectory, OpenError};
pub use memory::{Fault, Latency, MemoryStore, Rule, When};
pub(crate) use metered::CostWindow;
pub use metered::{Dollars, Metered, OpCounts, Purpose, StoreCounts, StoreMeter};
pub use name::{NameError, ObjectName, ObjectPrefix};
pub use s3::{S3Failure, S3Store};

/// The future of one store operation. Boxed, so that the store can be chosen when novad starts.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A place for immutable and compare-and-swapped objects, shared by every star of a cluster.
///
/// Promises of each implementation, checked by `conformance::check`:
/// - an operation that answered `Ok` is durable and seen by every later operation of every process;
/// - conditions are judged atomically with the write, also between processes;
/// - a put is idempotent by its nonce: repeated after an error it answers `Ok` if an earlier attempt is what stands there;
/// - a reader sees a whole object or none.
///
/// A dropped future may or may not take effect, at once or later.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Makes an object that does not exist yet; fails with [`StoreError::AlreadyExists`] if it does.
    fn put_if_absent<'a>(&'a self, name: &'a ObjectName, body: Bytes, nonce: PutNonce) -> StoreFuture<'a, Version>;

    /// Replaces the object if it still is `expected`; fails with [`StoreError::VersionMismatch`] if it is another version,
    /// with [`StoreError::NotFound`] if there is none.
    fn put_if_match<'a>(
        &'a self,
        name: &'a ObjectName,
        expected: &'a Version,
        body: Bytes,
        nonce: PutNonce,
    ) -> StoreFuture<'a, Version>;

    /// Reads the bytes that `span` names, of one version. Fails with [`StoreError::NotFound`], or with
    /// [`StoreError::OutOfRange`] when a range starts at or past the end.
    fn get<'a>(&'a self, name: &'a ObjectName, span: Span) -> StoreFuture<'a, Object>;

    /// Says what [`Store::get`] would, without the body.
    fn head<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ObjectMeta>;

    /// Removes the object, whatever its version. Removing what is not there succeeds. For names that are never used again:
    /// a delayed removal would take a later object of the same name with it.
    fn delete<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ()>;

    /// Removes the object if it still is `expected`; fails with [`StoreError::VersionMismatch`] if it is another version, with
    /// [`StoreError::NotFound`] if there is none.
    fn delete_if_match<'a>(&'a self, name: &'a ObjectName, expected: &'a Version) -> StoreFuture<'a, ()>;

    /// Lists at most `limit` (at least 1) objects under `prefix` whose names sort after `after`, in byte order of names.
    /// Objects made or removed meanwhile may or may not be in it.
    fn list<'a>(
        &'a self,
        prefix: &'a ObjectPrefix,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> StoreFuture<'a, ListPage>;

    /// How far the store's clock is ahead of this process's, in milliseconds, as its last answer showed; `None` for a store
    /// without a clock of its own, or before its first answer.
    fn clock_skew_ms(&self) -> Option<i64> {
        None
    }

    /// How the attempts failed that were made since the last that did not; `None` when the last one did not, and for a store
    /// that makes one attempt at each operation.
    fn trouble(&self) -> Option<Trouble> {
        None
    }
}

/// Something that the store does not do, though it is tried again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// When it was tried first, or failed first.
    pub since: Instant,
    /// How it failed last.
    pub why: Arc<str>,
}

/// Which write an object's content is. Opaque: only equality means anything (an ETag on S3).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(Arc<str>);

impl Version {
    /// Takes what the store calls this version.
    #[must_use]
    pub fn new(opaque: &str) -> Self {
        Self(opaque.into())
    }

    /// The store's own word for it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({})", self.0)
    }
}

/// The identity of one intended put, kept with the object: "is what stands there mine?" has an answer after a lost response.
/// Retries of a put carry the same nonce; another put never does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PutNonce([u8; 16]);

impl PutNonce {
    /// Draws a nonce that no other put has.
    #[must_use]
    pub fn fresh() -> Self {
        Self(uuid::Uuid::now_v7().into_bytes())
    }

    /// Takes the bytes that were stored with an object.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes to store with an object.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for PutNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for PutNonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PutNonce({self})")
    }
}

/// Which bytes of an object to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// All of it; the only span whose body an implementation can check as a whole.
    Whole,
    /// The bytes `start..end`, cut at the object's end.
    Range {
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
    },
    /// The last so many bytes, or all if there are fewer.
    Suffix(u64),
}

impl Span {
    /// The bytes of an object of `size` that this span names, as `start..end`; `None` when it starts at or past the end.
    /// A suffix of an empty object, and all of it, is empty rather than out of range.
    #[must_use]
    pub fn within(self, size: u64) -> Option<std::ops::Range<u64>> {
        match self {
            Self::Whole => Some(0..size),
            Self::Suffix(len) => Some(size.saturating_sub(len)..size),
            Self::Range { start, end } => (start < size).then(|| start..end.clamp(start, size)),
        }
    }

    /// The same of the object `name`, refusing what starts at or past the end.
    fn of(self, name: &ObjectName, size_bytes: u64) -> Result<std::ops::Range<u64>, StoreError> {
        self.within(size_bytes).ok_or_else(|| {
            let start = if let Self::Range { start, .. } = self { start } else { 0 };
            StoreError::OutOfRange { name: name.clone(), start, size_bytes }
        })
    }
}

/// What is known of an object besides its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Bytes of the whole body, whatever part was read.
    pub size_bytes: u64,
    /// The version that stands there.
    pub version: Version,
    /// The put that made this version.
    pub nonce: PutNonce,
}

/// An object, or the part of it that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Of the whole object.
    pub meta: ObjectMeta,
    /// The bytes of the span.
    pub body: Bytes,
}

/// One row of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The object.
    pub name: ObjectName,
    /// Bytes of its body.
    pub size_bytes: u64,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// In byte order of names.
    pub objects: Vec<Listed>,
    /// Whether more follow; the last name here is then the next page's `after`.
    pub more: bool,
}

#[cfg(test)]
mod tests;
