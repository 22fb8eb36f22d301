//! How are latencies gathered, merged and told?

use std::collections::BTreeMap;
use std::fmt;
use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::progress::as_f64;

/// Longest latency that is told apart; longer ones count as this.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Shortest latency that is told apart.
const LATENCY_NS_MIN: u64 = 100;

/// A quantile needs this many samples beyond it.
const SAMPLES_BEYOND_MIN: f64 = 10.0;

/// Latencies of a thread, with three digits.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram takes.
    pub(crate) fn new() -> Self {
        match Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, 3) {
            Ok(histogram) => Self(histogram),
            Err(error) => unreachable!("{error}"),
        }
    }

    /// None yet, with two digits: a twentieth of the memory.
    ///
    /// # Panics
    /// Never, as [`Latencies::new`].
    pub(crate) fn coarse() -> Self {
        match Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, 2) {
            Ok(histogram) => Self(histogram),
            Err(error) => unreachable!("{error}"),
        }
    }

    /// Adds one, in nanoseconds.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds those of another thread.
    ///
    /// # Panics
    /// Never: all have the same bounds.
    pub(crate) fn merge(&mut self, others: &Self) {
        if let Err(error) = self.0.add(&others.0) {
            unreachable!("{error}");
        }
    }

    /// All of them as text, from which others can go on.
    ///
    /// # Panics
    /// Never: memory takes what is written to it, and the bounds fit the format.
    pub(crate) fn encoded(&self) -> String {
        let mut bytes = Vec::new();
        match V2DeflateSerializer::new().serialize(&self.0, &mut bytes) {
            Ok(_) => STANDARD.encode(bytes),
            Err(error) => unreachable!("{error:?}"),
        }
    }

    /// Latencies that [`Latencies::encoded`] has written, or why they can't be read.
    pub(crate) fn decoded(text: &str) -> Result<Self, String> {
        let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
        let read = Deserializer::new().deserialize::<u64, _>(&mut Cursor::new(bytes));
        let read = read.map_err(|error| format!("{error:?}"))?;
        let mut latencies = Self::new();
        latencies.0.add(&read).map_err(|error| error.to_string())?;
        Ok(latencies)
    }

    /// How many there are.
    pub(crate) fn samples(&self) -> u64 {
        self.0.len()
    }

    /// What they are kept in.
    pub(crate) const fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// Points of their distribution, as far as samples carry it: quantiles and microseconds.
    pub(crate) fn distribution(&self) -> Vec<(f64, f64)> {
        let quantiles = (0..=60).map(|step| 1.0 - 10_f64.powf(-f64::from(step) / 10.0));
        let carried = quantiles.filter(|quantile| as_f64(self.samples()) * (1.0 - quantile) >= 1.0);
        carried.map(|quantile| (quantile, as_f64(self.0.value_at_quantile(quantile)) / 1e3)).collect()
    }

    /// Their quantiles.
    pub(crate) fn quantiles(&self) -> Quantiles {
        let us = |ns: u64| as_f64(ns) / 1e3;
        let at = |quantile: f64| {
            let beyond = as_f64(self.samples()) * (1.0 - quantile);
            // A hair of slack, since 1 - 0.999 is not exact.
            (beyond >= SAMPLES_BEYOND_MIN - 1e-6).then(|| us(self.0.value_at_quantile(quantile)))
        };
        Quantiles {
            samples: self.samples(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.999_9),
            max: (self.samples() > 0).then(|| us(self.0.max())),
        }
    }
}

/// The latencies of a run in full, so that runs can be merged: each a histogram of nanoseconds with three digits, as HdrHistogram's V2
/// format has it, deflated, in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encoded {
    /// From when an append was due to its ack.
    pub ack: String,
    /// From its send, in an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// From when it was due, of each class, when there are several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_class: BTreeMap<String, String>,
}

/// Quantiles in microseconds; one is absent where fewer than ten samples lie beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many samples they are of.
    pub samples: u64,
    /// Half lie at or below.
    pub p50: Option<f64>,
    /// 90 in 100.
    pub p90: Option<f64>,
    /// 99 in 100.
    pub p99: Option<f64>,
    /// 999 in 1 000.
    pub p99_9: Option<f64>,
    /// 9 999 in 10 000.
    pub p99_99: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

impl Quantiles {
    /// The heads of the columns that its `Display` prints.
    pub(crate) const HEADS: &str = "       p50       p90       p99     p99.9    p99.99       max";
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for value in [self.p50, self.p90, self.p99, self.p99_9, self.p99_99, self.max] {
            match value {
                Some(us) if us < 1e5 => write!(f, "{us:10.1}")?,
                Some(us) => write!(f, "{us:10.0}")?,
                None => write!(f, "{:>10}", "-")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
