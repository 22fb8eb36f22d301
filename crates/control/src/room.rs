//! What is done about disks that fill up?

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tuning::room::{Room, Rooms};

use crate::plane::Plane;

/// Between looks at disks: in that time no more than what is left at the mark of low may be written.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often what waits is settled at once while a disk is low.
const FLUSH_LOOKS: u32 = 10;

/// Looks at the disks for as long as the star lives. While one is low, what waits for a chunk goes at once: a trim in the head
/// log frees nothing before it is in the store.
pub(crate) async fn watch(plane: Arc<Plane>, rooms: Rooms) {
    let rooms: Vec<Arc<Room>> = rooms.each().map(Arc::clone).collect();
    let mut was_low: Vec<bool> = rooms.iter().map(|room| room.is_low()).collect();
    let mut looks = 0_u32;
    loop {
        for (room, was_low) in rooms.iter().zip(&mut was_low) {
            look(room).await;
            tell(room, was_low);
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(FLUSH_LOOKS) && was_low.contains(&true) {
            plane.uploader.flush();
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn look(room: &Arc<Room>) {
    let looked = Arc::clone(room);
    match spawn_blocking(move || looked.look()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(%room, %error, "what is kept back of a disk can't be changed: it is tried again")
        }
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

fn tell(room: &Room, was_low: &mut bool) {
    let is_low = room.is_low();
    if std::mem::replace(was_low, is_low) == is_low {
        return;
    }
    if is_low {
        tracing::warn!(%room, "the disk is full: no records are taken until some are trimmed or deleted, or other files go");
    } else {
        tracing::info!(%room, "the disk has room again: records are taken");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tuning::room::Marks;

    use super::*;
    use crate::Options;
    use crate::index::tests::world::{Stream, block_on};
    use crate::shell::tests::{Star, options, parcel};
    use crate::store::{MemoryStore, ObjectPrefix, Store};

    fn has_bundle(store: &MemoryStore) -> bool {
        let prefix = ObjectPrefix::parse("d/").unwrap();
        !block_on(store.list(&prefix, None, 1)).unwrap().objects.is_empty()
    }

    #[test]
    fn a_low_disk_hurries_settling_only_if_the_store_lies_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let marks = Marks { reserve_bytes: 0, low_bytes: u64::MAX, ample_bytes: u64::MAX };
        let room = Arc::new(Room::open(folder.path(), marks, false).unwrap());
        assert!(room.is_low());
        let start = |has_store: bool| {
            let store = MemoryStore::new();
            let rooms = Rooms { data: Arc::clone(&room), store: has_store.then(|| Arc::clone(&room)) };
            let star = Star::start_with(Arc::new(store.clone()), Options { rooms: Some(rooms), ..options() }).unwrap();
            let mut stream = Stream::new(1, "a");
            star.hand_over(0, 2, parcel(&[stream.create(), stream.append(3, 100)]));
            (star, store)
        };
        let ((elsewhere, other), (here, disk)) = (start(false), start(true));
        let until = Instant::now() + Duration::from_secs(20);
        while !has_bundle(&disk) {
            assert!(Instant::now() < until, "nothing is bundled");
            std::thread::sleep(Duration::from_millis(10));
        }
        // The other one had as much time, and has some more.
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(!has_bundle(&other));
        here.stop();
        elsewhere.stop();
    }
}
