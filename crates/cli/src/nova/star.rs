//! What a star is, and what its shards count.

use super::failure::Failure;
use super::row::Row;
use super::{Star, row};

/// Shows the star, then each counter of each shard; in JSON one object.
pub(super) async fn show(star: &Star) -> Result<(), Failure> {
    let answer = star.client.star().await?;
    let about = Row::new()
        .with("cluster_id", answer.cluster_id.to_string())
        .with("star_id", answer.star_id.to_string())
        .with("version", row::one_line(&answer.version))
        .with("epoch", answer.epoch.get());
    let counted = answer
        .counters
        .iter()
        .fold(about, |shown, counter| shown.with(format!("shard_{}_{}", counter.shard, counter.name), counter.value));
    star.show(&counted)
}
