//! Why is a measurement that is there not gone by?

use std::io;

use thiserror::Error;

use super::{AGE_DAYS_MAX, FORMAT};

/// Why a measurement is not gone by. None of it stands in the way of a start.
#[derive(Debug, Error)]
pub enum Doubt {
    /// The file can't be read.
    #[error("it can't be read: {source}")]
    Unreadable {
        /// What the system said.
        source: io::Error,
    },
    /// It holds something else than a measurement.
    #[error("it is damaged: {why}")]
    Damaged {
        /// What is wrong with it.
        why: String,
    },
    /// Another version of nova kept it.
    #[error("it has format {found}, and this version reads format {FORMAT}")]
    OtherFormat {
        /// Its format.
        found: u64,
    },
    /// It is of another disk, or of another state of this one.
    #[error("it was measured on {measured}, and the data are on {found}")]
    OtherDisk {
        /// The disk that it is of.
        measured: String,
        /// The disk of the data.
        found: String,
    },
    /// What the data lie on can't be told.
    #[error("the disk of the data can't be told: {source}")]
    DiskUnknown {
        /// What the system said.
        source: io::Error,
    },
    /// It says nothing about a disk.
    #[error("its writes went through the page cache, as commits do not")]
    Cached,
    /// It was long ago.
    #[error("it was measured {days} days ago, and counts for {AGE_DAYS_MAX}")]
    Old {
        /// How long ago.
        days: u64,
    },
    /// One of two clocks was wrong, so that its age can't be told.
    #[error("by this clock it is from {days} days ahead")]
    Ahead {
        /// How far.
        days: u64,
    },
    /// It lacks what a choice is made by.
    #[error("it has too few writes of the sizes that commits have")]
    TooFew,
}
