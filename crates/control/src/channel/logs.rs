//! Are the head logs that are here those that the store knows, or is one missing, an old copy or another store's?

use std::collections::BTreeSet;

use wire::ids::{Epoch, LogId, Lsn, StarId};

use super::cluster::{Cluster, HeadLog};

/// Settled logs that are not here and yet are remembered: their disk may come back. Past it those of the lowest epochs go.
const ABSENT_MAX: usize = 1_024;

/// What a head log on this disk says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFacts {
    /// The log.
    pub log: LogId,
    /// Its number in the data directory.
    pub number: u16,
    /// The highest epoch in it; 0 for a fresh one.
    pub last_epoch: Epoch,
    /// One past its last entry, 1 for an empty one; 0 while that is not known, before it is read.
    pub end_lsn: Lsn,
    /// All of it is settled. Read by a release only: while a star runs, each of its logs may hold what is nowhere else.
    pub clean: bool,
}

/// Why a head log can't be served as if nothing had happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogFault {
    /// It was in use and is not among those that are here.
    #[error(
        "head log {log} (number {number} of star {star}) is not here: it reached {} or went further, and may hold \
         acknowledged records that are nowhere else", place(*epoch, *end_lsn)
    )]
    Missing {
        /// The log.
        log: LogId,
        /// Its number.
        number: u16,
        /// The star that wrote it.
        star: StarId,
        /// The epoch that it is known to have reached.
        epoch: Epoch,
        /// The end that it is known to have reached.
        end_lsn: Lsn,
    },
    /// It has reached less than the store knows it did.
    #[error(
        "head log {log} (number {number}) is an old copy, or has lost its end: it ends in {}, and had reached {}",
        place(*found_epoch, *found_end), place(*epoch, *end_lsn)
    )]
    Old {
        /// The log.
        log: LogId,
        /// Its number.
        number: u16,
        /// The highest epoch in it.
        found_epoch: Epoch,
        /// Its end.
        found_end: Lsn,
        /// The epoch that it is known to have reached.
        epoch: Epoch,
        /// The end that it is known to have reached.
        end_lsn: Lsn,
    },
    /// It has entries, and this store, which is not new, does not know it.
    #[error(
        "head log {log} (number {number}) belongs to another store: it ends in {}, and this store has never seen it",
        place(*epoch, *end_lsn)
    )]
    Foreign {
        /// The log.
        log: LogId,
        /// Its number.
        number: u16,
        /// The highest epoch in it.
        epoch: Epoch,
        /// Its end.
        end_lsn: Lsn,
    },
    /// It was written in an epoch that this store has not given out.
    #[error(
        "head log {log} (number {number}) was written in epoch {found_epoch}, and this store has given out none from \
         {next_epoch} on: the store is an older copy, or another; name the one that the log was written over"
    )]
    Ahead {
        /// The log.
        log: LogId,
        /// Its number.
        number: u16,
        /// The highest epoch in it.
        found_epoch: Epoch,
        /// The epoch that the store would give out next.
        next_epoch: Epoch,
    },
}

/// How far a log has come, as far as that is known.
fn place(epoch: Epoch, end_lsn: Lsn) -> String {
    if end_lsn == Lsn::ZERO { format!("epoch {epoch}") } else { format!("epoch {epoch} at LSN {end_lsn}") }
}

impl LogFault {
    /// The log.
    #[must_use]
    pub fn log(&self) -> LogId {
        match self {
            Self::Missing { log, .. } | Self::Old { log, .. } | Self::Foreign { log, .. } | Self::Ahead { log, .. } => {
                *log
            }
        }
    }
}

/// The head logs that a store knew before a star joined.
#[derive(Clone, Debug)]
pub(crate) struct KnownLogs {
    logs: Vec<HeadLog>,
    is_new: bool,
    next_epoch: Epoch,
}

impl KnownLogs {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self { logs: cluster.logs.clone(), is_new: cluster.owner.is_none(), next_epoch: cluster.next_epoch }
    }

    /// What is wrong with a log that is here.
    fn fault(&self, facts: &LogFacts) -> Option<LogFault> {
        let LogFacts { log, number, last_epoch: found_epoch, end_lsn: found_end, .. } = *facts;
        let next_epoch = self.next_epoch;
        if !self.is_new && found_epoch >= next_epoch {
            return Some(LogFault::Ahead { log, number, found_epoch, next_epoch });
        }
        let Some(HeadLog { epoch, end_lsn, .. }) = self.logs.iter().find(|known| known.log == log).copied() else {
            // One that was begun and never noted holds nothing.
            let is_foreign = !self.is_new && found_end > Lsn::ZERO.next();
            return is_foreign.then_some(LogFault::Foreign { log, number, epoch: found_epoch, end_lsn: found_end });
        };
        // A settled one that is older is refused too: it would give out LSNs again that count as settled.
        let is_old = found_epoch < epoch || (found_end != Lsn::ZERO && found_end < end_lsn);
        is_old.then_some(LogFault::Old { log, number, found_epoch, found_end, epoch, end_lsn })
    }

    /// What is wrong with the logs that are here.
    pub(crate) fn faults(&self, logs: &[LogFacts]) -> Vec<LogFault> {
        logs.iter().filter_map(|facts| self.fault(facts)).collect()
    }
}

/// What is wrong with the logs that are here, against those that the store knows; and which of those are not here.
pub(crate) fn judge(cluster: &Cluster, logs: &[LogFacts]) -> Vec<LogFault> {
    let here: BTreeSet<LogId> = logs.iter().map(|facts| facts.log).collect();
    let missing = cluster.logs.iter().filter(|known| !known.clean && !here.contains(&known.log));
    let missing = missing.map(|known| {
        let HeadLog { log, star, number, epoch, end_lsn, .. } = *known;
        LogFault::Missing { log, number, star, epoch, end_lsn }
    });
    missing.chain(KnownLogs::of(cluster).faults(logs)).collect()
}

/// Notes that these logs are in use by a star, and forgets those with a fault: they are given up. One that the store does not know
/// is noted only once it is read, for it may be another store's.
pub(crate) fn take(cluster: &mut Cluster, star: StarId, logs: &[LogFacts], faults: &[LogFault], is_new: bool) {
    let is_given_up = |log: LogId| faults.iter().any(|fault| fault.log() == log);
    cluster.logs.retain(|known| !is_given_up(known.log));
    let is_known = |log: LogId| is_new || cluster.logs.iter().any(|known| known.log == log);
    let taken: Vec<_> = logs.iter().filter(|facts| !is_given_up(facts.log) && is_known(facts.log)).copied().collect();
    note(cluster, star, &taken, |_| false);
    let mut absent: Vec<_> = cluster.logs.iter().filter(|known| known.clean).copied().collect();
    if absent.len() > ABSENT_MAX {
        absent.sort_by_key(|known| std::cmp::Reverse(known.epoch));
        let kept: Vec<_> = absent[..ABSENT_MAX].iter().map(|known| known.log).collect();
        cluster.logs.retain(|known| !known.clean || kept.contains(&known.log));
    }
}

/// Notes how far logs have come, as far as that is known, and which are clean.
pub(crate) fn note(cluster: &mut Cluster, star: StarId, logs: &[LogFacts], is_clean: impl Fn(&LogFacts) -> bool) {
    for facts in logs {
        let LogFacts { log, number, last_epoch: epoch, end_lsn, .. } = *facts;
        let row = HeadLog { log, star, number, epoch, end_lsn, clean: is_clean(facts) };
        match cluster.logs.iter_mut().find(|known| known.log == log) {
            Some(known) => *known = HeadLog { end_lsn: end_lsn.max(known.end_lsn), ..row },
            None => cluster.logs.push(row),
        }
    }
}

#[cfg(test)]
mod tests;
