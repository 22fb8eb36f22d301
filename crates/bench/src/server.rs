//! What does a star say of itself before and after a run?

use std::collections::BTreeMap;

use serde::Serialize;
use wire::message::{StarAnswer, StarGet};

use crate::dial::Dialled;
use crate::error::BenchError;

/// A star and what it counted during a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerFacts {
    /// The cluster.
    pub cluster_id: String,
    /// The star.
    pub star_id: String,
    /// Its version.
    pub version: String,
    /// Its tenure.
    pub epoch: u64,
    /// Every counter by its name, over all shards.
    pub counters: BTreeMap<String, Counted>,
}

/// A counter over a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// What it stood at after the run.
    pub value: u64,
    /// By how much it rose; negative for what can fall.
    pub rose: i64,
}

/// What a star says now; `None` when it does not answer such a question.
pub(crate) fn ask(addr: &str) -> Result<Option<StarAnswer>, BenchError> {
    match Dialled::connect(addr)?.call("asking for the star's counters", &StarGet {}) {
        Ok(answer) => Ok(Some(answer)),
        Err(BenchError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl ServerFacts {
    /// What was counted between two answers.
    pub(crate) fn between(before: &StarAnswer, after: &StarAnswer) -> Self {
        let sums = |answer: &StarAnswer| {
            let mut sums = BTreeMap::<String, u64>::new();
            for counter in &answer.counters {
                let sum = sums.entry(counter.name.clone()).or_default();
                *sum = sum.saturating_add(counter.value);
            }
            sums
        };
        let (before, counted) = (sums(before), sums(after));
        let rose = |name: &str, value: u64| {
            let from = before.get(name).copied().unwrap_or(0);
            i64::try_from(i128::from(value) - i128::from(from)).unwrap_or(i64::MAX)
        };
        let counters = counted.into_iter().map(|(name, value)| {
            let counted = Counted { value, rose: rose(&name, value) };
            (name, counted)
        });
        Self {
            cluster_id: after.cluster_id.to_string(),
            star_id: after.star_id.to_string(),
            version: after.version.clone(),
            epoch: after.epoch.get(),
            counters: counters.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, ServerFacts};
    use wire::ids::{ClusterId, Epoch, StarId};
    use wire::message::{Counter, StarAnswer};

    fn answer(values: [u64; 3]) -> StarAnswer {
        let counter = |shard, name: &str, value| Counter { shard, name: name.to_owned(), value };
        StarAnswer {
            cluster_id: ClusterId::default(),
            star_id: StarId::default(),
            version: "it".to_owned(),
            epoch: Epoch::new(3),
            counters: vec![counter(0, "acks", values[0]), counter(1, "acks", values[1]), counter(0, "open", values[2])],
        }
    }

    #[test]
    fn counters_are_summed_over_shards_and_what_fell_is_negative() {
        let facts = ServerFacts::between(&answer([10, 20, 9]), &answer([15, 22, 4]));
        assert_eq!(facts.counters["acks"], Counted { value: 37, rose: 7 });
        assert_eq!(facts.counters["open"], Counted { value: 4, rose: -5 });
    }
}
