mod machine;

use super::BlockCache;

/// Asks for `key`, and takes it in when it is not there. Whether it was.
fn touch(cache: &mut BlockCache<u32, u32>, key: u32) -> bool {
    let was_there = cache.get(&key).copied() == Some(key);
    if !was_there {
        cache.insert(key, key, 1);
    }
    was_there
}

#[test]
fn one_pass_over_much_leaves_what_is_proven() {
    let mut cache = BlockCache::new(100);
    // Asked for, gone by more than fits, asked for again.
    (0..40).for_each(|key| _ = touch(&mut cache, key));
    (1000..1100).for_each(|key| _ = touch(&mut cache, key));
    (0..40).for_each(|key| _ = touch(&mut cache, key));
    for key in 5000..9000 {
        // A reader takes many records from each block.
        (0..10).for_each(|_| _ = touch(&mut cache, key));
    }
    assert_eq!((0..40).filter(|key| touch(&mut cache, *key)).count(), 40);
}

#[test]
fn while_nothing_is_proven_the_newest_have_all_the_room() {
    let mut cache = BlockCache::new(100);
    (0..500).for_each(|key| _ = touch(&mut cache, key));
    assert!((400..500).all(|key| cache.contains(&key)));
}

#[test]
fn of_the_proven_the_used_stay() {
    let mut cache = BlockCache::new(100);
    (0..90).for_each(|key| _ = touch(&mut cache, key));
    for round in 0..40 {
        // What is used between the passes stays; the others of the first pass give way to those of the second.
        (200 + round * 50..250 + round * 50).for_each(|key| _ = touch(&mut cache, key));
        (0..30).for_each(|key| _ = touch(&mut cache, key));
    }
    assert_eq!((0..30).filter(|key| cache.contains(key)).count(), 30);
}

#[test]
fn what_is_heavier_than_the_room_is_handed_back() {
    let mut cache = BlockCache::new(10);
    cache.insert(1, "one", 4);
    assert_eq!(cache.insert(2, "two", 11), [(2, "two")]);
    assert_eq!(cache.insert(1, "one again", 11), [(1, "one again")]);
    assert_eq!((cache.len(), cache.weight()), (0, 0));
}

#[test]
fn a_removed_one_begins_anew() {
    let mut cache = BlockCache::new(8);
    (0..10).for_each(|key| _ = touch(&mut cache, key));
    assert!(!cache.contains(&0));
    assert_eq!(cache.remove(&0), None);
    // Forgotten, so not proven by coming back: a pass takes it along.
    touch(&mut cache, 0);
    (20..28).for_each(|key| _ = touch(&mut cache, key));
    assert!(!cache.contains(&0));
}
