//! What nothing knows of, and what only looks like it.

use std::sync::Arc;

use wire::chunk::ObjectHeader;

use super::world::{LATER_MS, World, right};
use super::{Orphans, check};
use crate::channel::{ChunkId, chunk_name};
use crate::index::tests::world::block_on;
use crate::shell::unix_ms;
use crate::store::{Fault, MemoryStore, ObjectName, PutNonce, Rule, Span, Store, StoreOp};

/// A copy of a bundle under the name of another one of the same slot and tenure.
async fn copy_bundle(store: &dyn Store, name: &str, id: u128) -> String {
    let body = store.get(&ObjectName::parse(name).unwrap(), Span::Whole).await.unwrap().body;
    let (start, _) = name.split_once('-').unwrap();
    let copy = format!("{start}-{id:032x}");
    store.put_if_absent(&ObjectName::parse(&copy).unwrap(), body, PutNonce::fresh()).await.unwrap();
    copy
}

/// A chunk at this place, with what another one has.
async fn put_chunk(store: &dyn Store, at: ChunkId, like: ChunkId) {
    let body = store.get(&chunk_name(like), Span::Whole).await.unwrap().body;
    let header = ObjectHeader { position: at.position, ..ObjectHeader::decode(&body).unwrap() };
    let body = [&header.to_bytes()[..], &body[ObjectHeader::BYTES..]].concat();
    store.put_if_absent(&chunk_name(at), body.into(), PutNonce::fresh()).await.unwrap();
}

#[test]
fn a_bundle_that_the_index_never_heard_of_goes_and_no_other() {
    check(async |store| {
        let mut world = World::new(Arc::clone(&store)).await;
        world.create(5).await;
        world.write(5, 100).await;
        world.settle().await;
        let live = world.names("d/").await;
        let orphan = copy_bundle(&*store, &live[0], 7).await;
        let with_orphan = world.names("d/").await;
        let none = Orphans::default();
        assert_eq!(world.settler.orphan_step(unix_ms() + LATER_MS).await.unwrap(), none, "it is of this tenure");
        let mut world = world.crash().await;
        assert_eq!(world.settler.orphan_step(unix_ms() + LATER_MS).await.unwrap(), none, "the clock is not known");
        world.believe().await;
        // What settled before was made an hour ahead of its time.
        assert_eq!(world.settler.orphan_step(unix_ms() + LATER_MS).await.unwrap(), none, "it is young");
        assert_eq!(world.names("d/").await, with_orphan);
        let later_ms = unix_ms() + 2 * LATER_MS;
        assert_eq!(world.settler.orphan_step(later_ms).await.unwrap(), Orphans { bundles: 1, chunks: 0 });
        assert_eq!(world.names("d/").await, live);
        assert!(!live.contains(&orphan));
        world.check_cold().await;
        world.write(1, 10).await;
        world.settle().await;
        assert_eq!(world.settler.orphan_step(later_ms).await.unwrap(), none);
        world.check_cold().await;
    });
}

#[test]
fn what_can_not_be_read_is_not_deleted() {
    block_on(async {
        let store = MemoryStore::new();
        let mut world = World::new(Arc::new(store.clone())).await;
        world.create(2).await;
        world.write(2, 100).await;
        world.settle().await;
        let live = world.names("d/").await;
        let orphan = copy_bundle(&store, &live[0], 7).await;
        let mut world = world.crash().await;
        world.believe().await;
        let later_ms = unix_ms() + 2 * LATER_MS;
        let all = world.names("d/").await;
        store.add(Rule::new(Fault::ServerError).of(StoreOp::Get).under("d/"));
        assert!(world.settler.orphan_step(later_ms).await.is_err());
        store.calm();
        let name = ObjectName::parse(&orphan).unwrap();
        let good = store.get(&name, Span::Whole).await.unwrap().body;
        store.tamper(&name, good.slice(..good.len() - 1));
        assert_eq!(world.settler.orphan_step(later_ms).await.unwrap(), Orphans::default());
        assert_eq!(world.names("d/").await, all);
        // A slot without an index says nothing of what is in it.
        store.tamper(&name, good);
        let slot = (0..64).find(|slot| !all.iter().any(|name| name.starts_with(&format!("d/{slot:02x}/")))).unwrap();
        let stray = ObjectName::parse(&format!("d/{slot:02x}/0000000000000001-{:032x}", 9)).unwrap();
        store.put_if_absent(&stray, b"anything".as_slice().into(), PutNonce::fresh()).await.unwrap();
        drop(world.settler.orphan_step(later_ms).await);
        assert!(world.names("d/").await.contains(&stray.to_string()));
        world.write(1, 10).await;
        world.check_cold().await;
    });
}

#[test]
fn the_chunks_of_a_forgotten_channel_go_and_those_of_others_stay() {
    block_on(async {
        let store = MemoryStore::new();
        let mut world = World::new(Arc::new(store.clone())).await;
        world.create(2).await;
        world.write(5, 100).await;
        let first = world.incarnation;
        let mut world = world.crash().await;
        let end = world.prior[0].end;
        world.write(1, 10).await;
        world.bundle().await;
        world.index.checkpoint().await.unwrap();
        // It forgets the channel, and dies before a chunk of it is gone.
        store.add(Rule::new(Fault::BeforeApply).of(StoreOp::Delete));
        assert!(world.settler.delete_step().await.is_err());
        store.calm();
        let second = world.incarnation;
        let mut world = world.crash().await;
        assert!(world.prior.iter().all(|prior| prior.incarnation != first));
        // It was on its way when its star died, and came to be behind the fence.
        let fence = ChunkId { incarnation: first, position: end };
        let late = ChunkId { position: end + 2, ..fence };
        put_chunk(&store, late, ChunkId { position: 1, ..fence }).await;
        world.write(1, 10).await;
        let (of_first, of_second) = (world.chunks(first).await.len(), world.chunks(second).await.len());
        world.retain(right(unix_ms())).await;
        let found = world.settler.orphan_step(unix_ms() + LATER_MS).await.unwrap();
        assert_eq!(found, Orphans { bundles: 0, chunks: of_first - 1 });
        assert_eq!(world.chunks(first).await, [chunk_name(fence).to_string()]);
        assert_eq!(world.chunks(second).await.len(), of_second);
        world.check_cold().await;
        let world = world.crash().await;
        world.check().await;
    });
}
