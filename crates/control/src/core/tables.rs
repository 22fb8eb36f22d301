//! By which bucket table does every shard serve?

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::bucket::Bucket;
use wire::handoff::{BucketTable, ToShard};
use wire::ids::ShardId;
use wire::names::BucketName;

/// The newest table, and the newest that every shard has confirmed. A verb looks at the latter, so that what it shows is what
/// every shard does.
#[derive(Debug)]
pub(super) struct Tables {
    newest: Arc<BucketTable>,
    served: Arc<BucketTable>,
    /// Told to the shards and not served yet, oldest first: at most one a verb under way.
    unconfirmed: VecDeque<Arc<BucketTable>>,
    /// By shard, the version that it confirmed.
    confirmed: Vec<u64>,
}

impl Tables {
    pub(super) fn new(shards: u16, buckets: BTreeMap<BucketName, Arc<Bucket>>) -> Self {
        // The index may know streams of all that were there before this run.
        let first = Arc::new(BucketTable { version: 1, buckets, ..BucketTable::default() });
        Self {
            served: Arc::clone(&first),
            unconfirmed: VecDeque::from([Arc::clone(&first)]),
            newest: first,
            confirmed: vec![0; usize::from(shards)],
        }
    }

    pub(super) fn shards(&self) -> usize {
        self.confirmed.len()
    }

    pub(super) fn newest(&self) -> &Arc<BucketTable> {
        &self.newest
    }

    pub(super) fn served(&self) -> &BucketTable {
        &self.served
    }

    /// Sets or removes a bucket; answers what every shard must be told.
    pub(super) fn replace(&mut self, name: &BucketName, bucket: Option<Arc<Bucket>>) -> ToShard {
        let mut next = BucketTable { version: self.newest.version + 1, ..BucketTable::clone(&self.newest) };
        if let Some(bucket) = &bucket
            && !next.buckets.contains_key(name)
        {
            next.fresh.insert(bucket.id);
        }
        match bucket {
            Some(bucket) => next.buckets.insert(name.clone(), bucket),
            None => next.buckets.remove(name),
        };
        self.newest = Arc::new(next);
        self.unconfirmed.push_back(Arc::clone(&self.newest));
        ToShard::Buckets(Arc::clone(&self.newest))
    }

    /// A shard serves by `version` or a later one.
    pub(super) fn on_confirmed(&mut self, shard: ShardId, version: u64) {
        if let Some(confirmed) = self.confirmed.get_mut(usize::from(shard.get())) {
            *confirmed = version.max(*confirmed);
        }
        let by_all = self.confirmed_by_all();
        while self.unconfirmed.front().is_some_and(|table| table.version <= by_all) {
            self.served = self.unconfirmed.pop_front().unwrap_or_else(|| Arc::clone(&self.newest));
        }
    }

    /// The newest version that every shard has confirmed.
    pub(super) fn confirmed_by_all(&self) -> u64 {
        self.confirmed.iter().copied().min().unwrap_or(self.newest.version)
    }
}
