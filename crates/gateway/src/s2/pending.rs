//! What is remembered for a while of basins and streams that are being deleted, or were made?
//!
//! nova deletes at once and has no memory of it, where S2's clients expect that deleting twice succeeds, that a basin with
//! streams goes with all of them, and that a create with the same token finds what the first one made, also when nobody could
//! say whether it made anything. What stands here is lost when the process ends; every table is bounded, and the oldest goes
//! first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::{Address, BucketName, StreamId};
use tokio::time::Instant;

use super::failure::{Code, Failure, Result};

/// Basins that are emptied at once.
const BASINS_MAX: usize = 64;
/// Notes about streams that are kept, of each kind.
const NOTES_MAX: usize = 4_096;
/// How long a delete is remembered.
const DELETED_FOR: Duration = Duration::from_secs(60);
/// How long a create is remembered.
const CREATED_FOR: Duration = Duration::from_secs(600);

/// The tables.
#[derive(Debug, Default)]
pub(super) struct Pending {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Basins that are being emptied, and since when, in milliseconds since the Unix epoch.
    basins: HashMap<BucketName, i64>,
    deleted: Recent<Address, ()>,
    created: Recent<Create, Outcome>,
}

/// A create of a stream that is tried again until it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Create {
    pub(super) address: Address,
    /// Its token, and all else that it asks for.
    pub(super) asked: String,
}

/// What a create has come to.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    /// Attempts that may have made a stream, or still may.
    in_doubt: u32,
    /// The stream that it made.
    made: Option<StreamId>,
}

/// Why a stream that is there is the one that a create asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// It was answered with it.
    Made,
    /// It may have made it, and nobody else is known to have; it may still have to be configured.
    InDoubt,
}

/// What was noted lately.
#[derive(Debug)]
struct Recent<K, V> {
    values: HashMap<K, (Instant, V)>,
    order: VecDeque<(Instant, K)>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    fn note(&mut self, key: K, value: V, now: Instant) {
        while self.order.len() >= NOTES_MAX
            && let Some((at, oldest)) = self.order.pop_front()
        {
            if self.values.get(&oldest).is_some_and(|(noted, _)| *noted == at) {
                self.values.remove(&oldest);
            }
        }
        self.order.push_back((now, key.clone()));
        self.values.insert(key, (now, value));
    }

    fn get(&self, key: &K, within: Duration, now: Instant) -> Option<&V> {
        self.values.get(key).filter(|(at, _)| now.duration_since(*at) < within).map(|(_, value)| value)
    }

    fn forget(&mut self, key: &K) {
        self.values.remove(key);
    }
}

impl Recent<Create, Outcome> {
    fn outcome(&self, create: &Create) -> Option<Outcome> {
        self.get(create, CREATED_FOR, Instant::now()).copied()
    }

    /// Whether another create of the same name is known to have made this stream.
    fn is_of_another(&self, create: &Create, stream: StreamId) -> bool {
        let made = |other: &Create, outcome: &Outcome| {
            other.address == create.address && other != create && outcome.made == Some(stream)
        };
        self.values.iter().any(|(other, (_, outcome))| made(other, outcome))
    }
}

impl Pending {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that a basin is not being deleted.
    ///
    /// # Errors
    /// `basin_deletion_pending`.
    pub(super) fn check(&self, basin: &BucketName) -> Result<()> {
        match self.deleting_since(basin) {
            None => Ok(()),
            Some(_) => Err(Failure::new(Code::BasinDeletionPending, format!("basin '{basin}' is being deleted"))),
        }
    }

    /// Since when a basin is being deleted, in milliseconds since the Unix epoch.
    pub(super) fn deleting_since(&self, basin: &BucketName) -> Option<i64> {
        self.tables().basins.get(basin).copied()
    }

    /// Notes that a basin is being deleted; false when it was noted already.
    ///
    /// # Errors
    /// `rate_limited` when too many are.
    pub(super) fn begin(&self, basin: &BucketName, now_ms: i64) -> Result<bool> {
        let mut tables = self.tables();
        if tables.basins.contains_key(basin) {
            return Ok(false);
        }
        if tables.basins.len() >= BASINS_MAX {
            let message = format!("{BASINS_MAX} basins are being deleted, which is the bound: come back later");
            return Err(Failure::new(Code::RateLimited, message));
        }
        tables.basins.insert(basin.clone(), now_ms);
        Ok(true)
    }

    /// Notes that a basin is deleted, or that it can't be.
    pub(super) fn end(&self, basin: &BucketName) {
        self.tables().basins.remove(basin);
    }

    /// Notes that a stream was deleted.
    pub(super) fn note_deleted(&self, address: &Address) {
        self.tables().deleted.note(address.clone(), (), Instant::now());
    }

    /// Whether a stream was deleted lately.
    pub(super) fn was_deleted(&self, address: &Address) -> bool {
        self.tables().deleted.get(address, DELETED_FOR, Instant::now()).is_some()
    }

    /// Whether a create was tried before.
    pub(super) fn knows(&self, create: &Create) -> bool {
        self.tables().created.outcome(create).is_some()
    }

    /// Notes that a create is sent: until it is answered it may have made a stream.
    pub(super) fn begin_create(&self, create: &Create) {
        let created = &mut self.tables().created;
        let before = created.outcome(create).unwrap_or_default();
        let outcome = Outcome { in_doubt: before.in_doubt.saturating_add(1), ..before };
        created.note(create.clone(), outcome, Instant::now());
    }

    /// Notes that a create that was sent has certainly made nothing.
    pub(super) fn end_create(&self, create: &Create) {
        let created = &mut self.tables().created;
        let Some(before) = created.outcome(create) else { return };
        let outcome = Outcome { in_doubt: before.in_doubt.saturating_sub(1), ..before };
        if outcome.in_doubt == 0 && outcome.made.is_none() {
            created.forget(create);
        } else {
            created.note(create.clone(), outcome, Instant::now());
        }
    }

    /// Notes what a create made: none of its attempts is in doubt any more.
    pub(super) fn note_created(&self, create: &Create, stream: StreamId) {
        let outcome = Outcome { in_doubt: 0, made: Some(stream) };
        self.tables().created.note(create.clone(), outcome, Instant::now());
    }

    /// Whether a stream that is there under the name of a create is what the create made.
    pub(super) fn claim(&self, create: &Create, stream: StreamId) -> Option<Claim> {
        let created = &self.tables().created;
        let outcome = created.outcome(create)?;
        if outcome.made == Some(stream) {
            return Some(Claim::Made);
        }
        (outcome.in_doubt > 0 && !created.is_of_another(create, stream)).then_some(Claim::InDoubt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(key: usize) -> Address {
        Address::new("a-basin-of-tests", &key.to_string()).unwrap()
    }

    #[test]
    fn the_oldest_goes_when_too_many_are_noted() {
        let pending = Pending::default();
        for key in (0..=NOTES_MAX).chain([1]) {
            pending.note_deleted(&address(key));
        }
        assert!(!pending.was_deleted(&address(0)));
        assert!(pending.was_deleted(&address(1)) && pending.was_deleted(&address(NOTES_MAX)));
        assert!(pending.tables().deleted.order.len() <= NOTES_MAX);
        assert!(pending.tables().deleted.values.len() <= NOTES_MAX);
    }

    fn create(key: usize, asked: &str) -> Create {
        Create { address: address(key), asked: asked.to_owned() }
    }

    fn stream(no: u8) -> StreamId {
        StreamId::from_bytes([no; 16])
    }

    #[test]
    fn a_create_is_known_again_only_by_what_it_asked_for_and_made() {
        let pending = Pending::default();
        let first = create(1, "token and config");
        pending.begin_create(&first);
        pending.note_created(&first, stream(1));
        assert_eq!(pending.claim(&first, stream(1)), Some(Claim::Made));
        assert_eq!(pending.claim(&first, stream(2)), None, "it was made again by somebody else");
        assert_eq!(pending.claim(&create(1, "token and other config"), stream(1)), None);
        assert_eq!(pending.claim(&create(2, "token and config"), stream(1)), None);
    }

    #[test]
    fn a_create_is_in_doubt_from_when_it_is_sent_until_all_its_attempts_are_answered() {
        let pending = Pending::default();
        let lost = create(1, "lost");
        assert!(!pending.knows(&lost));
        pending.begin_create(&lost);
        assert!(pending.knows(&lost));
        pending.begin_create(&lost);
        pending.end_create(&lost);
        assert_eq!(pending.claim(&lost, stream(1)), Some(Claim::InDoubt), "the other attempt was not answered");
        pending.end_create(&lost);
        assert_eq!((pending.claim(&lost, stream(1)), pending.knows(&lost)), (None, false));
    }

    #[test]
    fn a_create_in_doubt_does_not_claim_what_another_one_made() {
        let pending = Pending::default();
        let (lost, other) = (create(1, "lost"), create(1, "other"));
        pending.begin_create(&lost);
        pending.begin_create(&other);
        pending.note_created(&other, stream(1));
        assert_eq!(pending.claim(&lost, stream(1)), None);
        assert_eq!(pending.claim(&other, stream(1)), Some(Claim::Made));
        assert_eq!(pending.claim(&lost, stream(2)), Some(Claim::InDoubt));
        pending.note_created(&lost, stream(2));
        assert_eq!(pending.claim(&lost, stream(3)), None, "what it made is known");
    }

    #[test]
    fn so_many_basins_are_emptied_at_once_and_each_by_one() {
        let pending = Pending::default();
        let basin = |no: usize| BucketName::new(&format!("basin-no-{no}")).unwrap();
        for no in 0..BASINS_MAX {
            assert_eq!(pending.begin(&basin(no), 5), Ok(true));
        }
        assert_eq!(pending.begin(&basin(0), 6), Ok(false));
        assert!(pending.begin(&basin(BASINS_MAX), 6).is_err());
        assert_eq!(pending.deleting_since(&basin(0)), Some(5));
        assert!(pending.check(&basin(0)).is_err());
        pending.end(&basin(0));
        assert_eq!(pending.begin(&basin(BASINS_MAX), 6), Ok(true));
    }
}
