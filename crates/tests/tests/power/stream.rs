//! Which streams are written, and what stands in their records?

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use client::{Address, Class, FencingToken, Record};
use tests::{Dice, at};

/// Digits that one number gives.
const DIGITS_AT_ONCE: u64 = 16;

/// A stream that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) key: &'static str,
    /// How its entries become durable.
    pub(crate) is_express: bool,
    /// Its records are so large that segments fill.
    pub(crate) is_large: bool,
}

/// Streams that sessions write.
pub(crate) const SESSIONS: [Place; 2] = both("session-express", "session-standard");
/// Streams that are taken over by tokens.
pub(crate) const FENCED: [Place; 3] = {
    let [express, standard] = both("fenced-express", "fenced-standard");
    [express, standard, Place { key: "large-express", is_large: true, ..express }]
};
/// Streams that are deleted and made again.
pub(crate) const REBORN: [Place; 2] = both("reborn-express", "reborn-standard");

const fn both(express: &'static str, standard: &'static str) -> [Place; 2] {
    let express = Place { key: express, is_express: true, is_large: false };
    [express, Place { key: standard, is_express: false, ..express }]
}

impl Place {
    pub(crate) fn address(self) -> Address {
        at(self.key)
    }

    pub(crate) fn class(self) -> Class {
        if self.is_express { Class::Express } else { Class::Standard }
    }

    /// The body of a record: from a few bytes to some fifty blocks, another for each.
    pub(crate) fn body(self, record: Name) -> String {
        let Name { life, index } = record;
        let mut hasher = DefaultHasher::new();
        (self.key, life, index).hash(&mut hasher);
        let mut dice = Dice::new(hasher.finish());
        let digits = match dice.below(32) {
            _ if self.is_large => 100_000 + dice.below(100_000),
            0 => 20_000 + dice.below(70_000),
            1..8 => 600 + dice.below(6_000),
            _ => dice.below(300),
        };
        let mut body = format!("{}:{life}:{index}:", self.key);
        for _ in 0..digits / DIGITS_AT_ONCE {
            write!(body, "{:016x}", dice.below(u64::MAX)).expect("a text takes text");
        }
        body
    }

    /// Which record it is.
    ///
    /// # Errors
    /// That it is none, or not as it was written.
    pub(crate) fn name(self, record: &Record) -> Result<Name, String> {
        let text = std::str::from_utf8(&record.body).unwrap_or_default();
        let mut parts = text.split(':');
        let is_ours = parts.next() == Some(self.key);
        let (life, index) =
            (parts.next().and_then(|part| part.parse().ok()), parts.next().and_then(|part| part.parse().ok()));
        let name = life.zip(index).filter(|_| is_ours).map(|(life, index)| Name { life, index });
        let name = name.filter(|name| self.body(*name).as_bytes() == &record.body[..]);
        let begins: String = text.chars().take(40).collect();
        name.ok_or_else(|| format!("{}: nobody wrote the record at {}: `{begins}…`", self.key, record.seq_num))
    }
}

/// Which life of its stream wrote a record, and as its how manieth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) life: u32,
    pub(crate) index: u64,
}

/// Records that are appended as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The index of its first record.
    pub(crate) first: u64,
    /// How many it has.
    pub(crate) records: u64,
}

impl Batch {
    pub(crate) fn bodies(self, place: Place, life: u32) -> impl Iterator<Item = String> {
        (self.first..self.first + self.records).map(move |index| place.body(Name { life, index }))
    }

    /// The key under which it is stored once.
    pub(crate) fn key(self, place: Place, life: u32) -> u128 {
        let mut hasher = DefaultHasher::new();
        (place.key, life).hash(&mut hasher);
        u128::from(hasher.finish()) << 64 | u128::from(self.first + 1)
    }
}

/// The token of a generation; none for the generation before all.
pub(crate) fn token(generation: u32) -> FencingToken {
    let text = if generation == 0 { String::new() } else { format!("generation-{generation}") };
    FencingToken::new(&text).expect("a token")
}
