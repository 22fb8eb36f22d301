//! How are sizes and durations written and read back?

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

const BYTE_UNITS: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const MILLI_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A number of bytes. Written as a plain integer or with a binary unit: `4096`, `64MiB`, `1 GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// This many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// This many MiB.
    #[must_use]
    pub const fn mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// This many GiB.
    #[must_use]
    pub const fn gib(gib: u64) -> Self {
        Self(gib << 30)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes as an index; nova runs on 64-bit hosts only, where it always fits.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_exact(f, self.0, &BYTE_UNITS, "B")
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, &BYTE_UNITS).map(Self)
    }
}

/// A number of milliseconds. Written as a plain integer or with a unit: `250`, `250ms`, `30s`, `5m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(u64);

impl Millis {
    /// This many milliseconds.
    #[must_use]
    pub const fn new(millis: u64) -> Self {
        Self(millis)
    }

    /// This many seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1_000)
    }

    /// The number of milliseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The same span as the standard library's type.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_exact(f, self.0, &MILLI_UNITS, "ms")
    }
}

impl FromStr for Millis {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text, &MILLI_UNITS).map(Self)
    }
}

/// Why a text is not a size or a duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnitError {
    /// There is no whole number in front of the unit.
    #[error("`{text}` does not start with a whole number: {source}")]
    Number {
        /// What was given.
        text: String,
        /// What the number's parser said.
        source: ParseIntError,
    },
    /// The letters behind the number are not a known unit.
    #[error("`{unit}` is not a unit; the units are {known}")]
    Unit {
        /// The letters that were found.
        unit: String,
        /// The units there are, smallest last.
        known: String,
    },
    /// The value does not fit into 64 bits.
    #[error("`{text}` is larger than 2^64 - 1 of the smallest unit")]
    Overflow {
        /// What was given.
        text: String,
    },
}

/// Writes `value` in the largest unit that divides it, so that it reads back as exactly itself.
fn write_exact(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)], smallest: &str) -> fmt::Result {
    let fitting = units.iter().find(|(_, scale)| value >= *scale && value.is_multiple_of(*scale));
    let (unit, scale) = fitting.copied().unwrap_or((smallest, 1));
    f.pad(&format!("{}{unit}", value / scale))
}

fn parse(text: &str, units: &[(&str, u64)]) -> Result<u64, UnitError> {
    let trimmed = text.trim();
    let digits_end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (digits, rest) = trimmed.split_at(digits_end);
    let number: u64 = digits.parse().map_err(|source| UnitError::Number { text: text.to_owned(), source })?;
    let unit = rest.trim();
    let scale = if unit.is_empty() {
        1
    } else {
        let known = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
        known.map(|(_, scale)| *scale).ok_or_else(|| UnitError::Unit {
            unit: unit.to_owned(),
            known: units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        })?
    };
    number.checked_mul(scale).ok_or_else(|| UnitError::Overflow { text: text.to_owned() })
}

#[cfg(test)]
mod tests;
