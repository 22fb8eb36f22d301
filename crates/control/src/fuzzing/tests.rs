//! The corpora of this crate's targets.

use wire::fuzzing::{Seed, replay};

use super::*;
use crate::channel;
use crate::index::fuzzing::tests::{sample_extents, sample_record, sample_rows};
use crate::store;

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |target, name: &str, bytes: &[u8]| seeds.push(Seed::new(target, name, bytes));
    for (name, extent) in sample_extents() {
        add("fold", name, &extent);
        add("extent_walk", name, &[&[9, 3, 2][..], &extent].concat());
        add("extent_walk", &format!("{name}-by-time"), &[&[60, 128, 255][..], &extent].concat());
    }
    sample_rows().iter().for_each(|(name, row)| add("index_rows", name, row));
    for name in [
        "meta/cluster",
        "c/0000000000000007/000000000000002a",
        "d/3f/0000000000000004-00000000000000000000000000000001",
        "s/05/0000000000000007-0000000000000003-delta",
        "orders%2Feu.obj",
    ] {
        let short: String = name.chars().filter(char::is_ascii_alphabetic).collect();
        add("object_names", &short, name.as_bytes());
    }
    channel::fuzzing::tests::samples().iter().for_each(|(name, bytes)| add("store_meta", name, bytes));
    add("store_meta", "clock", &[&[2], &clock::sample()[..]].concat());
    add("store_meta", "record", &[&[3], &sample_record()[..]].concat());
    add("store_meta", "object", &[&[4], &store::fuzzing::tests::sample()[..]].concat());
    seeds
}

#[test]
fn what_the_corpora_hold_is_judged_as_it_should_be() {
    replay(TARGETS, &seeds());
}
