//! The corpora of this crate's targets.

use wire::fuzzing::{Seed, replay};

use super::*;

#[test]
fn what_the_corpora_hold_is_judged_as_it_should_be() {
    let entry = |stream: u8, place: u8| {
        let mut entry = [0; 24];
        (entry[0], entry[4], entry[12]) = (stream, place, place * 7);
        mend_sum(&mut entry, 0..20, 20);
        entry
    };
    let entries = [entry(1, 1), entry(2, 1), entry(1, 2)].concat();
    let torn = &entries[..entries.len() - 3];
    replay(TARGETS, &[Seed::new("verify_journal", "whole", &entries[..]), Seed::new("verify_journal", "torn", torn)]);
}
