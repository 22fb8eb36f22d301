//! Which streams does a run touch, and what are they called?

use wire::names::{Address, BucketName, NameError};

/// The streams of a run: their keys are a prefix and a number, derived when they are asked for and never stored.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    buckets: Vec<String>,
    key_prefix: String,
    streams: u32,
    active: u32,
}

impl Places {
    /// So many streams, in as many equal runs of numbers as there are buckets; of them the share `active_share` (above 0, at
    /// most 1), evenly spread, at least one.
    ///
    /// # Errors
    /// [`NameError`] when a bucket or a key is none.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most a share of the streams, and not negative"
    )]
    pub(crate) fn new(
        buckets: Vec<String>,
        key_prefix: &str,
        streams: u32,
        active_share: f64,
    ) -> Result<Self, NameError> {
        for bucket in &buckets {
            BucketName::new(bucket)?;
        }
        let active = ((f64::from(streams) * active_share).round() as u32).clamp(1, streams.max(1));
        let places = Self { buckets, key_prefix: key_prefix.to_owned(), streams, active };
        // The longest key: if it is one, so are all.
        Address::new(&places.buckets[0], &places.key(u32::MAX))?;
        Ok(places)
    }

    /// How many streams there are.
    pub(crate) const fn streams(&self) -> u32 {
        self.streams
    }

    /// How many of them are appended to in sessions.
    pub(crate) const fn active(&self) -> u32 {
        self.active
    }

    /// How many buckets they are in.
    pub(crate) const fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// The number of an active stream, by its place among the active ones.
    pub(crate) fn active_at(&self, place: u32) -> u32 {
        let number = u64::from(place) * u64::from(self.streams) / u64::from(self.active);
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// The key of stream `number`.
    pub(crate) fn key(&self, number: u32) -> String {
        format!("{}-{number:07}", self.key_prefix)
    }

    /// Where stream `number` is.
    pub(crate) fn address(&self, number: u32) -> Result<Address, NameError> {
        let at = u64::from(number) * self.buckets.len() as u64 / u64::from(self.streams.max(1));
        let at = usize::try_from(at).unwrap_or(usize::MAX).min(self.buckets.len() - 1);
        Address::new(&self.buckets[at], &self.key(number))
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    fn places(buckets: &[&str], streams: u32, share: f64) -> Places {
        Places::new(buckets.iter().map(|name| (*name).to_owned()).collect(), "k", streams, share).unwrap()
    }

    #[test]
    fn the_active_streams_are_spread_over_all_and_over_the_buckets() {
        let all = places(&["one", "two"], 10_000_000, 0.01);
        assert_eq!(all.active(), 100_000);
        assert_eq!((all.active_at(0), all.active_at(1), all.active_at(99_999)), (0, 100, 9_999_900));
        let of = |number| all.address(number).unwrap().to_string();
        assert_eq!((of(0), of(5_000_000)), ("nova://one/k-0000000".to_owned(), "nova://two/k-5000000".to_owned()));
        let mut active: Vec<_> = (0..all.active()).map(|at| all.active_at(at)).collect();
        active.dedup();
        assert_eq!(active.len(), 100_000);
    }

    #[test]
    fn a_share_of_few_streams_is_at_least_one_and_a_whole_is_all() {
        assert_eq!(places(&["one"], 3, 0.01).active(), 1);
        let all = places(&["one"], 7, 1.0);
        assert_eq!((0..7).map(|at| all.active_at(at)).collect::<Vec<_>>(), (0..7).collect::<Vec<_>>());
        assert!(Places::new(vec!["No".to_owned()], "k", 1, 1.0).is_err());
        assert!(Places::new(vec!["one".to_owned()], &"k".repeat(510), 1, 1.0).is_err());
    }
}
