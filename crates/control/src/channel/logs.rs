//! Are the head logs that are here those that the store knows, or is one missing, an old copy or another store's?

use std::collections::BTreeMap;

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
    /// One past its last entry; 0 or 1 for an empty one.
    pub end_lsn: Lsn,
    /// All of it is settled. Read by a release only: while a star runs, each of its logs may hold what is nowhere else.
    pub clean: bool,
}

/// Why a head log can't be served as if nothing had happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogFault {
    /// It was in use and is not among those that are here.
    #[error(
        "head log {log} (number {number} of star {star}) is not here: it reached LSN {end_lsn} in epoch {epoch} or went \
         further, and may hold acknowledged records that are nowhere else"
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
        "head log {log} (number {number}) is an old copy, or has lost its end: it ends at LSN {found_end} in epoch \
         {found_epoch}, and had reached LSN {end_lsn} in epoch {epoch}"
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
        "head log {log} (number {number}) belongs to another store: it holds entries up to LSN {end_lsn} of epoch {epoch}, \
         and this store has never seen it"
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
}

impl LogFault {
    /// The log.
    #[must_use]
    pub fn log(&self) -> LogId {
        match self {
            Self::Missing { log, .. } | Self::Old { log, .. } | Self::Foreign { log, .. } => *log,
        }
    }
}

/// What is wrong with the logs that are here, against those that the store knows.
pub(crate) fn judge(cluster: &Cluster, logs: &[LogFacts]) -> Vec<LogFault> {
    let here: BTreeMap<LogId, &LogFacts> = logs.iter().map(|facts| (facts.log, facts)).collect();
    let known: BTreeMap<LogId, &HeadLog> = cluster.logs.iter().map(|known| (known.log, known)).collect();
    let mut faults = Vec::new();
    for known in &cluster.logs {
        let HeadLog { log, star, number, epoch, end_lsn, clean } = *known;
        match here.get(&log) {
            // A settled one that is older is refused too: it would give out LSNs again that count as settled.
            Some(facts) if facts.last_epoch < epoch || facts.end_lsn < end_lsn => {
                let (found_epoch, found_end) = (facts.last_epoch, facts.end_lsn);
                faults.push(LogFault::Old { log, number, found_epoch, found_end, epoch, end_lsn });
            }
            None if !clean => faults.push(LogFault::Missing { log, number, star, epoch, end_lsn }),
            _ => {}
        }
    }
    let is_new = cluster.owner.is_none();
    let foreign =
        logs.iter().filter(|facts| !is_new && !known.contains_key(&facts.log) && facts.end_lsn > Lsn::ZERO.next());
    faults.extend(foreign.map(|facts| LogFault::Foreign {
        log: facts.log,
        number: facts.number,
        epoch: facts.last_epoch,
        end_lsn: facts.end_lsn,
    }));
    faults
}

/// Notes that these logs are in use by a star, and forgets those with a fault: they are given up.
pub(crate) fn take(cluster: &mut Cluster, star: StarId, logs: &[LogFacts], faults: &[LogFault]) {
    let is_given_up = |log: LogId| faults.iter().any(|fault| fault.log() == log);
    cluster.logs.retain(|known| !is_given_up(known.log));
    let taken: Vec<_> = logs.iter().filter(|facts| !is_given_up(facts.log)).copied().collect();
    note(cluster, star, &taken, |_| false);
    let mut absent: Vec<_> = cluster.logs.iter().filter(|known| known.clean).copied().collect();
    if absent.len() > ABSENT_MAX {
        absent.sort_by_key(|known| std::cmp::Reverse(known.epoch));
        let kept: Vec<_> = absent[..ABSENT_MAX].iter().map(|known| known.log).collect();
        cluster.logs.retain(|known| !known.clean || kept.contains(&known.log));
    }
}

/// Notes how far logs have come, and which are clean.
pub(crate) fn note(cluster: &mut Cluster, star: StarId, logs: &[LogFacts], is_clean: impl Fn(&LogFacts) -> bool) {
    for facts in logs {
        let row = HeadLog {
            log: facts.log,
            star,
            number: facts.number,
            epoch: facts.last_epoch,
            end_lsn: facts.end_lsn,
            clean: is_clean(facts),
        };
        match cluster.logs.iter_mut().find(|known| known.log == facts.log) {
            Some(known) => *known = row,
            None => cluster.logs.push(row),
        }
    }
}

#[cfg(test)]
mod tests;
