//! The corpora of this crate's targets, and whether the checks find what they are for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wire::fuzzing::{Seed, replay};

use super::damage::{
    COPY, CUT, FILL, FILL_BLOCK, FLIP, FLIP_SUPER, FORGE_FRAME, FORGE_HEADER, FORGE_SUPER, GROW, REMOVE, RENAME,
    ZERO_SUPER,
};
use super::*;
use crate::planted::{Planted, plant};

/// A damage: what, to which file, at which place, how much, with which value.
fn damage(what: u8, which: u8, at: u16, (count, value): (u8, u8)) -> Vec<u8> {
    let [low, high] = at.to_le_bytes();
    vec![what, which, low, high, 0, 1, count, value]
}

/// Scripts by what they do.
fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let of = |log: u8, damages: &[Vec<u8>]| [&[log][..], &damages.concat()].concat();
    // In every copy alike.
    let high_super = |at: u16| (at..at + 8).map(|at| damage(FLIP_SUPER, 4, at, (0, 0xff))).collect::<Vec<_>>();
    vec![
        ("first-log", of(0, &[])),
        ("second-log", of(1, &[])),
        ("third-log", of(2, &[])),
        ("fourth-log", of(3, &[])),
        ("a-flipped-body", of(2, &[damage(FLIP, 0, 4096 + 90, (0, 4))])),
        ("a-flipped-header", of(3, &[damage(FLIP, 0, 4096 + 17, (0, 1))])),
        ("a-flipped-segment-header", of(3, &[damage(FLIP, 0, 41, (0, 1))])),
        ("a-hole", of(3, &[damage(FILL_BLOCK, 0, 8192, (0, 0))])),
        ("a-cut-file", of(2, &[damage(CUT, 1, 9_000, (0, 0))])),
        ("a-longer-file", of(2, &[damage(GROW, 1, 0, (9, 0xA0))])),
        ("a-lost-segment", of(7, &[damage(REMOVE, 0, 0, (0, 0))])),
        ("a-block-of-another-segment", of(3, &[damage(COPY, 1, 4096, (0, 0))])),
        ("a-renamed-segment", of(3, &[damage(RENAME, 0, 0, (0, 90))])),
        ("a-damaged-superblock", of(3, &[damage(FLIP_SUPER, 0, 60, (0, 1)), damage(ZERO_SUPER, 1, 20, (0, 0))])),
        ("no-superblock", of(1, &[damage(ZERO_SUPER, 4, 0, (0, 0))])),
        ("a-forged-frame", of(3, &[damage(FILL, 0, 4096 + 24, (8, 0xff)), damage(FORGE_FRAME, 0, 4096, (0, 0))])),
        ("a-forged-header", of(3, &[damage(FLIP, 0, 16, (0, 1)), damage(FORGE_HEADER, 0, 0, (0, 0))])),
        ("a-forged-superblock", of(3, &[high_super(64).concat(), damage(FORGE_SUPER, 4, 0, (0, 0))])),
        ("a-forged-sequence", of(3, &[high_super(40).concat(), damage(FORGE_SUPER, 4, 0, (0, 0))])),
    ]
}

#[test]
fn what_the_corpora_hold_is_judged_as_it_should_be() {
    let scripts = scripts();
    let seeds = TARGETS
        .iter()
        .flat_map(|target| scripts.iter().map(|(name, script)| Seed::new(target.name, *name, &script[..])));
    replay(TARGETS, &seeds.collect::<Vec<_>>());
}

#[test]
fn the_logs_that_are_damaged_have_entries_of_several_lives() {
    let logs: Vec<&Lived> = (0..8).map(lives::log).collect();
    assert!(logs.iter().all(|log| log.kept.len() >= 10 && log.remains.segments.len() >= 2));
    assert!(logs.iter().any(|log| log.appended.values().any(|all| all.len() > 1)), "a crash took what was not acked");
    assert!(logs.iter().any(|log| *log.kept.keys().next().unwrap() > Lsn::new(1)), "something was settled");
}

/// Whether any script shows that recovery makes this mistake.
fn is_found(mistake: Planted, scripts: &[Vec<u8>]) -> bool {
    plant(Some(mistake));
    let found = scripts.iter().any(|script| catch_unwind(AssertUnwindSafe(|| head_log(script))).is_err());
    plant(None);
    found
}

#[test]
fn a_recovery_that_makes_mistakes_is_found_out() {
    // The logs are made before any mistake is.
    lives::log(0);
    let places = (1..8).flat_map(|block: u16| [block * 4096 + 20, block * 4096 + 90]);
    let flips = places.flat_map(|at| (0..8).map(move |log| [&[log][..], &damage(FLIP, log % 2, at, (0, 4))].concat()));
    let flips: Vec<Vec<u8>> = flips.collect();
    flips.iter().for_each(|script| head_log(script));
    for mistake in [Planted::BodySumIgnored, Planted::DurableLsnIgnored] {
        assert!(is_found(mistake, &flips), "{mistake:?}");
    }
}
