//! How fast are chunks applied?

use std::sync::Arc;
use std::time::Instant;

use super::world::{Stream, World, block_on};
use crate::store::MemoryStore;

/// Chunks of one small extent for each of many streams, and of a large one for a few.
#[test]
#[ignore = "a measurement"]
fn chunks_are_applied_fast() {
    block_on(async {
        for (streams, rounds, records, bytes) in [(2_000_u32, 100, 1, 100), (4, 100, 15, 64 * 1024)] {
            let mut world = World::new(Arc::new(MemoryStore::new())).await;
            let mut all: Vec<_> = (0..streams).map(|number| Stream::numbered(number, &format!("s{number}"))).collect();
            let created = all.iter_mut().map(Stream::create).collect();
            world.commit(created).await.unwrap();
            let mut chunks = Vec::new();
            for _ in 0..rounds {
                let entries: Vec<_> = all.iter_mut().map(|stream| stream.append(records, bytes)).collect();
                chunks.push(world.build(&entries, 0));
                world.position += 1;
            }
            let total: usize = chunks.iter().map(|chunk| chunk.0.bytes.len()).sum();
            let start = Instant::now();
            for chunk in &chunks {
                world.index.apply(&chunk.0).await.unwrap();
            }
            let took = start.elapsed().as_secs_f64();
            let (extents, mib) = (f64::from(streams * rounds) / took, total as f64 / took / 1e6);
            eprintln!("{streams} streams: {extents:.0} extents/s, {mib:.0} MB/s, {took:.2} s");
            let start = Instant::now();
            world.index.checkpoint().await.unwrap();
            eprintln!("checkpoint {:?}", start.elapsed());
        }
    });
}
