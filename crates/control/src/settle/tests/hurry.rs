//! Is room given back also where no star lives long, and sooner where the disk is low?

use std::sync::Arc;
use std::time::Duration;

use tuning::room::{Marks, Room};

use super::world::{World, settle_options};
use crate::index::tests::world::block_on;
use crate::settle::{Bundled, SettleOptions};
use crate::shell::unix_ms;
use crate::store::MemoryStore;

/// No star of these tests lives as long.
const GRACE: Duration = Duration::from_secs(3_600);

fn options() -> SettleOptions {
    SettleOptions { grace: GRACE, ..settle_options() }
}

#[test]
fn stars_that_never_live_for_the_time_of_grace_delete_what_was_unneeded_when_they_started() {
    block_on(async {
        let mut world = World::with(Arc::new(MemoryStore::new()), options()).await;
        world.create(3).await;
        for _ in 0..4 {
            world.write(5, 100).await;
            world.bundle().await;
            world.delete_chunks().await;
            let incarnation = world.incarnation;
            assert!(world.chunks(incarnation).await.len() > 5, "within the grace all of them stay");
            world = world.crash().await;
            world.settler.note_unneeded().await.unwrap();
            world.settler.delete_step().await.unwrap();
            assert!(world.chunks(incarnation).await.len() > 5, "no chunk of this star says yet what they say");
            world.write(1, 100).await;
            world.delete_chunks().await;
            assert_eq!(world.chunks(incarnation).await.len(), 1, "the fence");
            world.check_cold().await;
        }
    });
}

#[test]
fn what_moves_while_a_star_runs_stays_for_the_time_of_grace() {
    block_on(async {
        let mut world = World::with(Arc::new(MemoryStore::new()), options()).await;
        world.create(3).await;
        world.write(5, 100).await;
        let incarnation = world.incarnation;
        world = world.crash().await;
        world.index.checkpoint().await.unwrap();
        world.settler.note_unneeded().await.unwrap();
        world.write(1, 100).await;
        world.bundle().await;
        world.delete_chunks().await;
        assert!(world.chunks(incarnation).await.len() > 5, "a read may have been told of them before they moved");
        assert!(world.prior.iter().any(|prior| prior.incarnation == incarnation));
        // A start in between finds them as they were.
        let world = world.crash().await;
        assert!(world.prior.iter().any(|prior| prior.incarnation == incarnation));
        world.check_cold().await;
    });
}

#[test]
fn while_the_disk_is_low_chunks_and_bundles_go_at_once() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let marks = Marks { reserve_bytes: 0, low_bytes: 0, ample_bytes: 0 };
        let room = Arc::new(Room::open(folder.path(), marks, false).unwrap());
        let mut world = World::within(Arc::new(MemoryStore::new()), options(), Arc::clone(&room)).await;
        world.create(3).await;
        world.write(5, 100).await;
        world.believe().await;
        let later_ms = unix_ms() + 2_000;
        assert_eq!(world.settler.bundle_step(later_ms).await.unwrap(), Bundled::default(), "neither old nor large");

        assert!(!room.takes(u64::MAX));
        assert!(world.settler.bundle_step(later_ms).await.unwrap().extents > 0);
        world.index.checkpoint().await.unwrap();
        world.settler.delete_step().await.unwrap();
        let chunks = world.chunks(world.incarnation).await.len();
        tokio::time::sleep(Duration::from_millis(2_100)).await;
        let deleted = world.settler.delete_step().await.unwrap();
        assert!(deleted.chunks >= 5 && world.chunks(world.incarnation).await.len() < chunks, "{deleted:?}");
        world.check_cold().await;

        let trims = vec![world.delete(0), world.delete(1), world.delete(2)];
        world.commit(trims).await;
        world.index.checkpoint().await.unwrap();
        world.settler.reclaim_step(unix_ms()).await.unwrap();
        assert_eq!(world.names("d/").await, Vec::<String>::new());
    });
}
