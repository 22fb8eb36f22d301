//! How can a store operation fail, and may it have happened all the same?

use std::error::Error;
use std::fmt;
use std::io;

use wire::reason::Reason;

use super::{ObjectName, S3Failure, Version};

/// The operations of a store, as errors, hooks and counters name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoreOp {
    /// [`super::Store::put_if_absent`]
    PutIfAbsent,
    /// [`super::Store::put_if_match`]
    PutIfMatch,
    /// [`super::Store::get`]
    Get,
    /// [`super::Store::head`]
    Head,
    /// [`super::Store::delete`]
    Delete,
    /// [`super::Store::delete_if_match`]
    DeleteIfMatch,
    /// [`super::Store::list`]
    List,
}

impl StoreOp {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::List)
    }
}

impl fmt::Display for StoreOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PutIfAbsent => "put-if-absent",
            Self::PutIfMatch => "put-if-match",
            Self::Get => "get",
            Self::Head => "head",
            Self::Delete => "delete",
            Self::DeleteIfMatch => "delete-if-match",
            Self::List => "list",
        })
    }
}

/// Whether a failed operation may have changed the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing changed.
    None,
    /// It may have been applied, or may yet be: read back before acting on it.
    Unknown,
}

/// What is wrong with an object's stored form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorruptObject {
    /// Shorter than the bytes that close every object.
    #[error("it has {found} bytes, and the closing bytes alone are {expected}")]
    Short {
        /// Bytes there.
        found: u64,
        /// Bytes of the closing part.
        expected: u64,
    },
    /// The closing bytes are not a store's.
    #[error("its last {0} bytes are not those of a nova object, or were changed")]
    Trailer(usize),
    /// Written by another version of the layout.
    #[error("its layout is version {found}; this nova reads {known}")]
    Layout {
        /// Version found.
        found: u16,
        /// Version known.
        known: u16,
    },
    /// The length on disk is not the length written.
    #[error("{found} bytes of body are there, {expected} were written")]
    Length {
        /// Bytes there.
        found: u64,
        /// Bytes written.
        expected: u64,
    },
    /// The bytes on disk are not the bytes written.
    #[error("its bytes hash to {found:016x}, those written to {expected:016x}")]
    Body {
        /// Hash of the bytes there.
        found: u64,
        /// Hash of the bytes written.
        expected: u64,
    },
    /// A file among the objects has a name that no object has.
    #[error("no object has a file of this name")]
    FileName,
}

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The object is there, made by another put.
    #[error("object {name} already exists (version {current})")]
    AlreadyExists {
        /// The object.
        name: ObjectName,
        /// What stands there.
        current: Version,
    },
    /// The object was replaced since `expected` was read.
    #[error("object {name} is at version {current}, not {expected}")]
    VersionMismatch {
        /// The object.
        name: ObjectName,
        /// What the caller knew.
        expected: Version,
        /// What stands there.
        current: Version,
    },
    /// There is no such object.
    #[error("there is no object {name}")]
    NotFound {
        /// The object.
        name: ObjectName,
    },
    /// The range starts at or past the end.
    #[error("object {name} has {size_bytes} bytes; nothing starts at {start}")]
    OutOfRange {
        /// The object.
        name: ObjectName,
        /// First byte asked for.
        start: u64,
        /// Bytes there are.
        size_bytes: u64,
    },
    /// The store has no room. Nothing changed.
    #[error("the store has no room for {target} ({source}); free some space")]
    Full {
        /// Object or prefix.
        target: String,
        /// What the system said.
        source: io::Error,
    },
    /// The store does not let this process write or read. Nothing changed.
    #[error("the store refuses {op} of {target} ({source}); give nova's user read and write access")]
    Denied {
        /// What was tried.
        op: StoreOp,
        /// Object or prefix.
        target: String,
        /// What the system said.
        source: io::Error,
    },
    /// The store answered that it will not do this until somebody changes something. Nothing changed.
    #[error("the store refuses {op} of {target} ({answer}); {remedy}")]
    Refused {
        /// What was tried.
        op: StoreOp,
        /// Object or prefix, with the bucket.
        target: String,
        /// What the store said.
        answer: Box<S3Failure>,
        /// What to change.
        remedy: String,
    },
    /// What is stored is not what was written. It is left as it stands.
    #[error("{target} is damaged: {fault}; restore it from a copy")]
    Corrupt {
        /// Object or file.
        target: String,
        /// How it shows.
        fault: CorruptObject,
    },
    /// The store could not be reached, or failed.
    #[error("the store failed at {op} of {target}: {source}")]
    Unavailable {
        /// What was tried.
        op: StoreOp,
        /// Object or prefix.
        target: String,
        /// Whether it may have happened.
        effect: Effect,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl StoreError {
    /// Whether the operation may have changed the store, though it failed.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Unavailable { effect, .. } => *effect,
            _ => Effect::None,
        }
    }

    /// Whether the store did what it promises, and only an object is or is not there, or has changed.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::AlreadyExists { .. } | Self::VersionMismatch { .. } | Self::NotFound { .. } | Self::OutOfRange { .. }
        )
    }

    /// Whether the store can't be reached or has lost an answer: the same may succeed later, with nothing changed.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// What a client that waits for the operation is told.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::AlreadyExists { .. } => Reason::AlreadyExists,
            Self::NotFound { .. } => Reason::NotFound,
            Self::OutOfRange { .. } => Reason::OutOfRange,
            Self::Full { .. } => Reason::ResourceExhausted,
            Self::Denied { .. } | Self::Refused { .. } => Reason::FailedPrecondition,
            Self::Corrupt { .. } => Reason::Internal,
            Self::VersionMismatch { .. } | Self::Unavailable { .. } => Reason::Unavailable,
        }
    }

    /// Sorts what the system said into the errors above.
    pub(super) fn from_io(op: StoreOp, target: &str, effect: Effect, source: io::Error) -> Self {
        let target = target.to_owned();
        if effect == Effect::Unknown {
            return Self::Unavailable { op, target, effect, source: Box::new(source) };
        }
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { target, source },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Denied { op, target, source },
            _ => Self::Unavailable { op, target, effect, source: Box::new(source) },
        }
    }
}
