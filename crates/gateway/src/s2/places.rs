//! Who has a place for a session, and who is asked to give one up when all are taken?
//!
//! S2's sessions may be silent for as long as they like. Over HTTP/2 the client of a silent one is asked by pings whether it is
//! alive. Over HTTP/1.1 nothing tells a client that hangs from one that has nothing to say, so when there is no place for
//! another session, the one over HTTP/1.1 that has been silent for longest is asked to go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Version;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::failure::{Code, Failure, Result};

/// How long a session is silent before it may be asked to go.
const SILENT_MIN: Duration = Duration::from_secs(60);

/// The places for sessions of one kind.
#[derive(Debug)]
pub(super) struct Places {
    places_max: usize,
    free: Arc<Semaphore>,
    askable: Arc<Mutex<Askable>>,
}

/// The sessions that may be asked to go, by number.
#[derive(Debug, Default)]
struct Askable {
    next: u64,
    sessions: HashMap<u64, Silence>,
}

/// Since when a session is silent, and what asks it to go.
#[derive(Debug)]
struct Silence {
    since: Instant,
    ask: Arc<Notify>,
}

/// A place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _free: OwnedSemaphorePermit,
    ask: Arc<Notify>,
    /// Its number among those that may be asked.
    askable: Option<(u64, Arc<Mutex<Askable>>)>,
}

fn lock(askable: &Mutex<Askable>) -> MutexGuard<'_, Askable> {
    askable.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Places {
    pub(super) fn new(places_max: usize) -> Self {
        Self { places_max, free: Arc::new(Semaphore::new(places_max)), askable: Arc::default() }
    }

    /// A place for a session over this version of HTTP.
    ///
    /// # Errors
    /// `hot_server` when there is none; a session that is silent for long is asked to make one free.
    pub(super) fn take(&self, version: Version) -> Result<Place> {
        let Ok(free) = Arc::clone(&self.free).try_acquire_owned() else {
            self.ask_one();
            let places_max = self.places_max;
            let message = format!("{places_max} sessions of this kind are open, which is the bound: come back later");
            return Err(Failure::new(Code::HotServer, message));
        };
        let ask = Arc::new(Notify::new());
        if version >= Version::HTTP_2 {
            return Ok(Place { _free: free, ask, askable: None });
        }
        let mut askable = lock(&self.askable);
        let number = askable.next;
        askable.next += 1;
        askable.sessions.insert(number, Silence { since: Instant::now(), ask: Arc::clone(&ask) });
        Ok(Place { _free: free, ask, askable: Some((number, Arc::clone(&self.askable))) })
    }

    /// How many places are taken.
    pub(super) fn taken(&self) -> usize {
        self.places_max - self.free.available_permits()
    }

    /// Asks the session that is silent for longest, if it is for long enough; each is asked once.
    fn ask_one(&self) {
        let mut askable = lock(&self.askable);
        let now = Instant::now();
        let silent = askable.sessions.iter().filter(|(_, silence)| now.duration_since(silence.since) >= SILENT_MIN);
        let Some(number) = silent.min_by_key(|(_, silence)| silence.since).map(|(number, _)| *number) else { return };
        if let Some(silence) = askable.sessions.remove(&number) {
            silence.ask.notify_one();
        }
    }
}

impl Place {
    /// Notes that the session is not silent: records came or went.
    pub(super) fn heard(&self) {
        let Some((number, askable)) = &self.askable else { return };
        if let Some(silence) = lock(askable).sessions.get_mut(number) {
            silence.since = Instant::now();
        }
    }

    /// Waits until it is asked for, and says what the session ends with.
    pub(super) async fn asked_for(&self) -> Failure {
        self.ask.notified().await;
        let message = "the session was silent for long, and its place is needed: come back later";
        Failure::new(Code::HotServer, message)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((number, askable)) = &self.askable {
            lock(askable).sessions.remove(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::advance;

    use super::*;

    fn is_asked_for(place: &Place) -> bool {
        place.asked_for().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_is_silent_for_longest_is_asked_when_all_places_are_taken() {
        let places = Places::new(3);
        let pinged = places.take(Version::HTTP_2).unwrap();
        let busy = places.take(Version::HTTP_11).unwrap();
        let silent = places.take(Version::HTTP_11).unwrap();
        advance(SILENT_MIN - Duration::from_millis(1)).await;
        assert!(places.take(Version::HTTP_2).is_err());
        assert!(!is_asked_for(&silent), "it is not silent for long");
        advance(Duration::from_millis(1)).await;
        busy.heard();
        assert!(!is_asked_for(&silent), "nobody needs its place");
        assert!(matches!(places.take(Version::HTTP_11), Err(Failure::Coded { code: Code::HotServer, .. })));
        assert_eq!((is_asked_for(&pinged), is_asked_for(&busy), is_asked_for(&silent)), (false, false, true));
        assert!(places.take(Version::HTTP_2).is_err(), "it is asked, and has not gone yet");
        drop(silent);
        let _another = places.take(Version::HTTP_2).unwrap();
        advance(SILENT_MIN).await;
        assert!(places.take(Version::HTTP_11).is_err());
        assert!(is_asked_for(&busy) && !is_asked_for(&pinged));
    }

    #[tokio::test(start_paused = true)]
    async fn who_needs_a_place_asks_one_session_and_who_has_gone_is_not_remembered() {
        let places = Places::new(2);
        let held = [places.take(Version::HTTP_11).unwrap(), places.take(Version::HTTP_10).unwrap()];
        advance(SILENT_MIN).await;
        assert!(places.take(Version::HTTP_2).is_err());
        assert_eq!(held.iter().filter(|place| is_asked_for(place)).count(), 1);
        drop(held);
        assert!(lock(&places.askable).sessions.is_empty());
    }
}
