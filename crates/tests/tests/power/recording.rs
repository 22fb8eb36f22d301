//! What came to the disks, in which order, and what did clients know by then?

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::known::{Fact, Known};

/// Something that happened; events are told apart by their place in the recording.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A write came, which may land at any time from here on.
    Written { disk: usize, offset: u64, content: Content },
    /// The write that is this event was answered as done: the first flush that comes later covers it.
    Answered(usize),
    /// A flush was answered as done that came when there were so many events.
    Flushed { disk: usize, came: usize },
    /// A client did or learned something.
    Told(Fact),
    /// All that was known at this moment.
    Knew(Box<Known>),
    /// From here on something else is done to the star.
    Phase(&'static str),
}

/// What was written.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// So many zeroes.
    Zeroes(u64),
    /// A part of some bytes.
    Bytes(Arc<[u8]>, Range<usize>),
}

impl Content {
    /// A copy of what came.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            return Self::Zeroes(bytes.len() as u64);
        }
        Self::Bytes(bytes.into(), 0..bytes.len())
    }

    /// How many bytes it is.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Zeroes(bytes) => *bytes,
            Self::Bytes(_, range) => range.len() as u64,
        }
    }

    /// A part of it.
    pub(crate) fn part(&self, from: u64, to: u64) -> Self {
        match self {
            Self::Zeroes(_) => Self::Zeroes(to - from),
            Self::Bytes(bytes, range) => {
                let at = |place| range.start + usize::try_from(place).expect("a place in memory");
                Self::Bytes(Arc::clone(bytes), at(from)..at(to))
            }
        }
    }
}

/// What happens to some disks, as it happens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recording(Arc<Mutex<Vec<Event>>>);

impl Recording {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event; answers which it is.
    pub(crate) fn add(&self, event: Event) -> usize {
        let mut events = self.lock();
        events.push(event);
        events.len() - 1
    }

    /// How many events there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// A client did or learned something.
    pub(crate) fn note(&self, fact: Fact) {
        self.add(Event::Told(fact));
    }

    /// Something else is done to the star now.
    pub(crate) fn phase(&self, name: &'static str) {
        self.add(Event::Phase(name));
    }

    /// All there is so far.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.lock().clone()
    }
}
