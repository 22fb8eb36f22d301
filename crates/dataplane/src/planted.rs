//! Which mistakes can a simulation plant in a shard, to show that it would find them?
//!
//! Each stands at its line as `is_planted`, which is false wherever it is compiled, but in the tests of this crate.

/// A mistake that a shard does not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A fence is answered before it is durable.
    FenceAfterReply,
    /// A fence leaves the sessions open that it shuts out.
    FenceLeavesSessions,
    /// `match_seq_num` is judged on the committed tail.
    MatchOnCommitted,
    /// A refusal goes out before what it was judged on is durable.
    RefusedTooSoon,
    /// The answer to a batch that is sent again goes out before the first one is durable.
    ResendAckedTooSoon,
    /// What is durable takes effect last come, first served.
    OutOfOrder,
    /// Replay forgets which batches were sent.
    DedupeForgotten,
    /// Replay forgets trims.
    TrimForgotten,
    /// Replay forgets the token.
    TokenForgotten,
    /// Replay forgets deletes.
    DeleteForgotten,
    /// A stream goes to the store before all of it in the head log is there.
    LaneNotRested,
    /// A row leaves memory before the index has it.
    EvictedUnsettled,
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
        pub(crate) const ALL: [Self; 12] = [
            Self::FenceAfterReply,
            Self::FenceLeavesSessions,
            Self::MatchOnCommitted,
            Self::RefusedTooSoon,
            Self::ResendAckedTooSoon,
            Self::OutOfOrder,
            Self::DedupeForgotten,
            Self::TrimForgotten,
            Self::TokenForgotten,
            Self::DeleteForgotten,
            Self::LaneNotRested,
            Self::EvictedUnsettled,
        ];
    }
}
