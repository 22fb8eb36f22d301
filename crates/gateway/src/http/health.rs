//! Is the process there, and can it do what it is for?

use std::collections::BTreeMap;

use client::{Counter, StarAnswer};
use http::StatusCode;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::answer;
use super::bounds::PROBE_WAIT_MAX;
use super::route::{Ask, Outcome};

/// What is told of each shard, of all that it counts.
const OF_SHARD: &[&str] =
    &["streams", "connections", "held_bytes", "log_used_bytes", "standard_unapplied_bytes", "stall_last_ms"];
/// What is told of the backlog between the shards and the index.
const OF_BACKLOG: &[&str] = &["index_unapplied_chunks", "unbundled_chunks", "unbundled_bytes", "unbundled_age_ms"];

/// This process answers.
pub(super) async fn health(_ask: Ask) -> Outcome {
    answer::json(StatusCode::OK, &json!({"healthy": true}))
}

/// The star answers, and its store takes what it is given. A star serves only once it has recovered.
pub(super) async fn ready(ask: Ask) -> Outcome {
    match timeout(PROBE_WAIT_MAX, ask.client().star()).await {
        Ok(Ok(star)) => {
            let (is_ready, told) = judge(&star);
            answer::json(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &told)
        }
        Ok(Err(error)) => not_ready(&error.to_string()),
        Err(_) => not_ready(&format!("no answer within {} s", PROBE_WAIT_MAX.as_secs())),
    }
}

fn not_ready(why: &str) -> Outcome {
    answer::json(StatusCode::SERVICE_UNAVAILABLE, &json!({"ready": false, "star": null, "why": why}))
}

fn judge(star: &StarAnswer) -> (bool, Value) {
    let mut shards: BTreeMap<u16, Map<String, Value>> = BTreeMap::new();
    let mut backlog = Map::new();
    let mut stalled = false;
    for counter in &star.counters {
        let shard = (counter.shard != Counter::OF_STAR).then(|| shards.entry(counter.shard).or_default());
        if let Some(shard) = shard.filter(|_| OF_SHARD.contains(&counter.name.as_str())) {
            shard.insert(counter.name.clone(), counter.value.into());
        }
        if OF_BACKLOG.contains(&counter.name.as_str()) {
            backlog.insert(counter.name.clone(), counter.value.into());
        }
        stalled |= counter.name == "store_is_stalled" && counter.value > 0;
    }
    let shards: Vec<Value> = shards
        .into_iter()
        .map(|(number, mut told)| {
            told.insert("shard".to_owned(), number.into());
            told.insert("recovered".to_owned(), true.into());
            told.into()
        })
        .collect();
    let told = json!({
        "ready": !stalled,
        "star": {"star_id": star.star_id.to_string(), "version": star.version, "epoch": star.epoch.get()},
        "shards": shards,
        "store": {"stalled": stalled},
        "backlog": backlog,
    });
    (!stalled, told)
}

#[cfg(test)]
mod tests {
    use super::judge;
    use client::{ClusterId, Counter, Epoch, StarAnswer, StarId};

    fn star(counters: &[(u16, &str, u64)]) -> StarAnswer {
        let counters = counters.iter().map(|(shard, name, value)| Counter {
            shard: *shard,
            name: (*name).to_owned(),
            value: *value,
        });
        StarAnswer {
            cluster_id: ClusterId::from_bytes([1; 16]),
            star_id: StarId::from_bytes([2; 16]),
            version: "1".to_owned(),
            epoch: Epoch::new(3),
            counters: counters.collect(),
        }
    }

    #[test]
    fn a_star_whose_store_stands_still_is_not_ready() {
        let (is_ready, told) =
            judge(&star(&[(0, "held_bytes", 7), (1, "held_bytes", 8), (Counter::OF_STAR, "unbundled_chunks", 2)]));
        assert!(is_ready && told["ready"] == true);
        assert_eq!(told["shards"].as_array().map(Vec::len), Some(2), "what is the star's is no shard's");
        assert_eq!(told["shards"][1]["held_bytes"], 8);
        assert_eq!(told["backlog"]["unbundled_chunks"], 2);
        let (is_ready, told) = judge(&star(&[(Counter::OF_STAR, "store_is_stalled", 1)]));
        assert!(!is_ready && told["store"]["stalled"] == true);
    }
}
