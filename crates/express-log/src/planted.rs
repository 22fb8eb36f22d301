//! Which mistakes can a simulation plant, to show that it would find them?
//!
//! Each stands at its line as `is_planted`, which is false wherever it is compiled, but in the tests of this crate.

/// A mistake that the log does not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A commit is answered when its write has ended, and is never synced.
    AckBeforeSync,
    /// Of two commits in flight the one that ends first is answered first.
    AckOutOfOrder,
    /// A sync that failed is taken for one that was done.
    SyncErrorIgnored,
    /// A write that ended early is taken for a whole one.
    ShortWriteTaken,
    /// The sum of a frame's body is not looked at.
    BodySumIgnored,
    /// A frame counts whatever segment and epoch it was written for.
    FrameIdentityIgnored,
    /// What frames and superblocks say of durable entries is not looked at.
    DurableLsnIgnored,
    /// A frame behind a hole counts though nothing says that the hole was durable.
    HoleSkipped,
    /// What stands behind the end of a log is neither cut off nor left out when it is read again.
    TailNotCut,
    /// A new epoch begins without a superblock that says so.
    EpochNotWritten,
    /// A new epoch takes the segment ids that the superblock has not seen used.
    SegmentIdReused,
    /// The files of settled segments go before the superblock that does not list them.
    FreedBeforeSuperblock,
    /// A segment goes when all but its last entry are settled.
    FreedUnsettled,
    /// A frame says of entries that they are durable when they are only assigned.
    DurableLsnAhead,
}

#[cfg(not(test))]
#[inline(always)]
#[must_use]
pub(crate) const fn is_planted(_: Planted) -> bool {
    false
}

#[cfg(test)]
pub(crate) use self::choice::{is_planted, plant};

#[cfg(test)]
mod choice {
    use std::cell::Cell;

    use super::Planted;

    std::thread_local! {
        static CHOSEN: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    pub(crate) fn is_planted(mistake: Planted) -> bool {
        CHOSEN.get() == Some(mistake)
    }

    /// Has this thread make one mistake, or none, from here on.
    pub(crate) fn plant(mistake: Option<Planted>) {
        CHOSEN.set(mistake);
    }

    impl Planted {
        /// Every one of them.
        pub(crate) const ALL: [Self; 14] = [
            Self::AckBeforeSync,
            Self::AckOutOfOrder,
            Self::SyncErrorIgnored,
            Self::ShortWriteTaken,
            Self::BodySumIgnored,
            Self::FrameIdentityIgnored,
            Self::DurableLsnIgnored,
            Self::HoleSkipped,
            Self::TailNotCut,
            Self::EpochNotWritten,
            Self::SegmentIdReused,
            Self::FreedBeforeSuperblock,
            Self::FreedUnsettled,
            Self::DurableLsnAhead,
        ];
    }
}
