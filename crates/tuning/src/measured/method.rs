//! Which way of committing do timed writes speak for?

use super::{Method, Timed};
use crate::settings::{Log, LogSync};

/// Sizes of commits that count: a lone small append to a well-filled group.
const COMMIT_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=64 << 10;
/// Largest commit that a head log makes in place.
const IN_PLACE_BYTES_MAX: u64 = 16 << 10;
/// Size at which further commits start beside others, and so the one that depths are compared at.
const DEEP_BYTES: u64 = 64 << 10;
/// What part of the default's time another way must take at most, to be preferred to it.
const RATIO_MAX: f64 = 0.95;
/// A write in place holds up everything else of its shard: longer than this, in microseconds, it goes through the ring.
const IN_PLACE_US_MAX: f64 = 1_000.0;
/// How many times the bytes more commits in flight must bring: they also cut commits smaller, and pad each.
const GAIN_MIN: f64 = 1.5;
/// Depths at which the two ways to sync are compared: what a shard mostly has in flight.
const SYNC_DEPTH_MAX: u16 = 2;
/// Most commits in flight that the setting takes.
const IN_FLIGHT_MAX: u16 = 8;
/// Size whose times are told.
const SHOWN_BYTES: u64 = 16 << 10;

/// How a head log should commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitMethod {
    /// How a write through the ring is made durable.
    pub sync: LogSync,
    /// Whether a small commit with nothing else in flight is one blocking write.
    pub inline_commit: bool,
    /// Commits in flight at once.
    pub commits_in_flight: u16,
    /// What was measured, in a line.
    pub how: String,
}

impl CommitMethod {
    /// The settings that it is about.
    pub const SETTINGS: [&str; 3] = ["log.sync", "log.inline_commit", "log.commits_in_flight"];

    /// What writes speak for: the defaults, but where something else is clearly better. None when they say nothing about
    /// commits.
    #[must_use]
    pub fn judge(writes: &[Timed]) -> Option<Self> {
        let writes = Writes(writes);
        let sync = writes.sync()?;
        Some(Self {
            sync,
            inline_commit: writes.suits_in_place(sync),
            commits_in_flight: writes.in_flight(sync),
            how: writes.told(sync),
        })
    }

    /// Its settings as text, in the order of [`SETTINGS`](Self::SETTINGS).
    #[must_use]
    pub fn values(&self) -> [String; 3] {
        [self.sync.to_string(), self.inline_commit.to_string(), self.commits_in_flight.to_string()]
    }
}

/// The method of a ring that syncs so.
const fn ring(sync: LogSync) -> Method {
    match sync {
        LogSync::Dsync => Method::RingDsync,
        LogSync::Fdatasync => Method::RingFdatasync,
    }
}

/// The number in the middle: what something else disturbed does not count.
fn middle(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

struct Writes<'a>(&'a [Timed]);

impl Writes<'_> {
    fn find(&self, method: Method, depth: u16, bytes: u64) -> Option<&Timed> {
        self.0.iter().find(|timed| (timed.method, timed.depth, timed.write_bytes) == (method, depth, bytes))
    }

    /// A method's times over another's, in the middle of all sizes up to a bound, at depths up to a bound.
    fn ratio(&self, [method, other]: [Method; 2], bytes_max: u64, depth_max: u16) -> Option<f64> {
        let counts = |timed: &&Timed| {
            let is_commit = COMMIT_BYTES.contains(&timed.write_bytes) && timed.write_bytes <= bytes_max;
            timed.method == method && timed.depth <= depth_max && is_commit
        };
        let pairs = self.0.iter().filter(counts).filter_map(|timed| {
            let other = self.find(other, timed.depth, timed.write_bytes)?;
            Some(timed.p50_us / other.p50_us)
        });
        middle(pairs)
    }

    /// By writes through a ring, or else by blocking ones.
    fn sync(&self) -> Option<LogSync> {
        let ratio = |methods| self.ratio(methods, *COMMIT_BYTES.end(), SYNC_DEPTH_MAX);
        let through_ring = ratio([Method::RingFdatasync, Method::RingDsync]);
        let ratio = through_ring.or_else(|| ratio([Method::WriteFdatasync, Method::Dsync]))?;
        Some(if ratio < RATIO_MAX { LogSync::Fdatasync } else { LogSync::Dsync })
    }

    fn suits_in_place(&self, sync: LogSync) -> bool {
        let is_small = |timed: &&Timed| timed.method == Method::RwfDsync && timed.write_bytes <= IN_PLACE_BYTES_MAX;
        let held_us = middle(self.0.iter().filter(is_small).map(|timed| timed.p50_us));
        let holds_up = held_us.is_some_and(|us| us > IN_PLACE_US_MAX);
        let ratio = self.ratio([Method::RwfDsync, ring(sync)], IN_PLACE_BYTES_MAX, 1);
        !holds_up && ratio.map_or_else(|| Log::default().inline_commit, |ratio| ratio * RATIO_MAX <= 1.0)
    }

    fn in_flight(&self, sync: LogSync) -> u16 {
        let usual = Log::default().commits_in_flight;
        let rate = |depth| self.find(ring(sync), depth, DEEP_BYTES).map(|timed| timed.bytes_per_s);
        let Some(usual_rate) = rate(usual) else { return usual };
        if rate(1).is_some_and(|alone| usual_rate < alone * RATIO_MAX) {
            return 1;
        }
        let is_worth_it = |depth: &u16| rate(*depth).is_some_and(|rate| rate >= usual_rate * GAIN_MIN);
        (usual + 1..=IN_FLIGHT_MAX).find(is_worth_it).unwrap_or(usual)
    }

    fn told(&self, sync: LogSync) -> String {
        let of_commits = self.0.iter().map(|timed| timed.write_bytes).filter(|bytes| COMMIT_BYTES.contains(bytes));
        let bytes = of_commits.min_by_key(|bytes| bytes.abs_diff(SHOWN_BYTES)).unwrap_or(SHOWN_BYTES);
        let has_ring = self.0.iter().any(|timed| timed.method.is_ring());
        let [dsync, fdatasync] =
            if has_ring { [Method::RingDsync, Method::RingFdatasync] } else { [Method::Dsync, Method::WriteFdatasync] };
        let ways = [(Method::RwfDsync, "in place"), (dsync, "by dsync"), (fdatasync, "by fdatasync")];
        let times = ways.iter().filter_map(|(method, words)| {
            let timed = self.find(*method, 1, bytes)?;
            Some(format!("{:.0} µs {words}", timed.p50_us))
        });
        let times = times.collect::<Vec<_>>().join(", ");
        let rates = self.0.iter().filter(|timed| timed.method == ring(sync) && timed.write_bytes == DEEP_BYTES);
        let rates: Vec<String> =
            rates.map(|timed| format!("{:.0} MB/s {} at once", timed.bytes_per_s / 1e6, timed.depth)).collect();
        let kib = bytes >> 10;
        match rates[..] {
            [] => format!("{kib} KiB are durable after {times}"),
            _ => format!("{kib} KiB are durable after {times}; {} KiB go at {}", DEEP_BYTES >> 10, rates.join(", ")),
        }
    }
}
