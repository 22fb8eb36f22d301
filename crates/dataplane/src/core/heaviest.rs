//! Which streams take most of what is appended to a shard?
//!
//! A sketch that counts a few streams and lets a new one take the place of the lightest, whose count it goes on from (Metwally, Agrawal,
//! El Abbadi: "Efficient computation of frequent and top-k elements in data streams", 2005). All is charged to streams by samples, each
//! for what was appended since the one before: few under load, each batch when there is little. What was charged fades.

use wire::ids::StreamId;
use wire::names::Key;
use wire::star_detail::HeavyStream;

use super::shard::Shard;

/// Streams that are counted.
const PLACES: usize = 16;
/// Streams that are told.
const TOLD_MAX: usize = 8;
/// Samples between two fadings, at most and about; with more each stands for twice as much.
const SAMPLES_MAX: u32 = 1_024;
/// The part of what was charged that fades each time. At a constant rate there is as many times what is charged in between.
const FADES: u64 = 4;

/// A stream that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    row: u32,
    stream_id: StreamId,
    /// What was charged to it, and to those whose place it took.
    bytes: u64,
    /// What of it may be of those.
    others_bytes: u64,
}

/// The streams that weigh most.
#[derive(Debug)]
pub(crate) struct Heaviest {
    places: Vec<Place>,
    /// Bytes since the last sample.
    passed: u64,
    /// With so many the next one is taken.
    due: u64,
    /// Bytes between two samples, on average.
    stride: u64,
    /// Samples since the last fading, or since the stride was doubled.
    samples: u32,
    noise: u32,
}

impl Heaviest {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self { places: Vec::with_capacity(PLACES), passed: 0, due: 1, stride: 1, samples: 0, noise: 0x9e37_79b9 }
    }

    /// Content was appended to a stream.
    #[inline]
    pub(super) fn note(&mut self, row: u32, stream_id: StreamId, content_bytes: u32) {
        self.passed += u64::from(content_bytes);
        if self.passed >= self.due {
            self.sample(row, stream_id);
        }
    }

    fn sample(&mut self, row: u32, stream_id: StreamId) {
        let bytes = std::mem::take(&mut self.passed);
        self.samples += 1;
        if self.samples >= SAMPLES_MAX {
            (self.stride, self.samples) = (self.stride.saturating_mul(2), 0);
        }
        // At even distances, streams that take turns would be sampled as they do.
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 17;
        self.noise ^= self.noise << 5;
        self.due = 1 + u64::from(self.noise) % self.stride.saturating_mul(2);
        self.charge(row, stream_id, bytes);
    }

    fn charge(&mut self, row: u32, stream_id: StreamId, bytes: u64) {
        // A row may have gone to another stream.
        let is_it = |place: &&mut Place| place.row == row && place.stream_id == stream_id;
        if let Some(place) = self.places.iter_mut().find(is_it) {
            place.bytes += bytes;
        } else if self.places.len() < PLACES {
            self.places.push(Place { row, stream_id, bytes, others_bytes: 0 });
        } else if let Some(lightest) = self.places.iter_mut().min_by_key(|place| place.bytes) {
            *lightest = Place { row, stream_id, bytes: lightest.bytes + bytes, others_bytes: lightest.bytes };
        }
    }

    /// A second has passed.
    fn fade(&mut self) {
        for place in &mut self.places {
            place.bytes -= place.bytes.div_ceil(FADES);
            place.others_bytes -= place.others_bytes.div_ceil(FADES);
        }
        self.places.retain(|place| place.bytes > 0);
        if self.samples < SAMPLES_MAX / 2 {
            self.stride = (self.stride / 2).max(1);
        }
        self.samples = 0;
    }

    /// The rows and ids of the heaviest, with what surely was appended to each, in bytes a second; the heaviest first.
    fn told(&self) -> Vec<(u32, StreamId, u64)> {
        let sure = |place: &Place| (place.row, place.stream_id, (place.bytes - place.others_bytes) / FADES);
        let mut told: Vec<_> = self.places.iter().map(sure).filter(|(.., bytes_per_s)| *bytes_per_s > 0).collect();
        told.sort_by_key(|(.., bytes_per_s)| std::cmp::Reverse(*bytes_per_s));
        told.truncate(TOLD_MAX);
        told
    }
}

impl Shard {
    /// A second has passed, about: what streams weigh is what they took of late.
    pub(crate) fn fade(&mut self) {
        self.heaviest.fade();
    }

    /// The streams that weigh most, the heaviest first.
    pub(super) fn heavy_streams(&self) -> Vec<HeavyStream> {
        let heavy_stream = |(row, stream_id, bytes_per_s)| {
            let row = self.streams.row(row).filter(|row| row.stream_id == stream_id)?;
            let bucket = self.bucket_name(self.streams.bucket_id(row.bucket))?;
            Some(HeavyStream { shard: self.config.shard.get(), bucket, key: Key::new(&row.key).ok()?, bytes_per_s })
        };
        self.heaviest.told().into_iter().filter_map(heavy_stream).collect()
    }
}

#[cfg(test)]
mod tests;
