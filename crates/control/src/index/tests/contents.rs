//! All that an index answers, to be compared with what another answers.

use std::collections::{BTreeMap, BTreeSet};

use slatedb::config::DurabilityLevel;
use wire::ids::StreamId;
use wire::stream_row::StreamRow;

use crate::index::rows::extent::Located;
use crate::index::rows::object::{self, ObjectRow};
use crate::index::rows::queue;
use crate::index::rows::stream::Known;
use crate::index::rows::{count, name};
use crate::index::{Index, ObjectId};

/// What an index has, without what it still has to drop.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    names: BTreeMap<Vec<u8>, StreamId>,
    pub(crate) streams: BTreeMap<StreamId, Option<StreamRow>>,
    /// By stream and last record.
    pub(crate) extents: BTreeMap<(StreamId, u64), Located>,
    counts: BTreeMap<Vec<u8>, u64>,
    live_bytes: BTreeMap<ObjectId, u64>,
    dead: BTreeSet<ObjectId>,
    /// Streams that are looked at for age.
    aging: BTreeSet<StreamId>,
}

impl Contents {
    pub(crate) async fn of(index: &Index) -> Self {
        let mut found = Self::default();
        for open in index.open_slots().await.unwrap() {
            let mut rows = open.scan(vec![0]..vec![0xff], DurabilityLevel::Memory).await.unwrap();
            while let Some((key, value)) = rows.next().await.unwrap() {
                found.add(&key, &value);
            }
        }
        let Self { streams, extents, aging, .. } = &mut found;
        extents.retain(|(stream_id, _), extent| {
            streams.get(stream_id).and_then(Option::as_ref).is_some_and(|row| extent.end > row.trim_point)
        });
        // One without records leaves the queue when its time has come.
        aging.retain(|stream_id| extents.keys().any(|(with_records, _)| with_records == stream_id));
        found
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        match key[0] {
            b'N' => drop(self.names.insert(key.to_vec(), name::decode(value).unwrap())),
            b'S' => {
                let (stream_id, known) = Known::of(key, value).unwrap();
                if matches!(known, Known::Lives { due_ms, .. } if due_ms != 0) {
                    self.aging.insert(stream_id);
                }
                self.streams.insert(stream_id, known.into_row());
            }
            b'X' => {
                let extent = Located::decode(key, value).unwrap();
                let stream_id = StreamId::from_bytes(key[1..17].try_into().unwrap());
                self.extents.insert((stream_id, extent.end.get() - 1), extent);
            }
            b'C' => {
                let count = count::decode(value).unwrap();
                if count > 0 {
                    self.counts.insert(key.to_vec(), count);
                }
            }
            b'O' => {
                let row = ObjectRow::decode(value).unwrap();
                if row.live_bytes > 0 {
                    self.live_bytes.insert(object::decode_key(key).unwrap(), row.live_bytes);
                }
            }
            b'G' => drop(self.dead.insert(queue::decode_dead(key).unwrap().1)),
            b'E' | b'T' | b'D' | b'M' => {}
            other => panic!("a row of kind {other}"),
        }
    }
}
