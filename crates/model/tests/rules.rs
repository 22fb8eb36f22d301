//! Does each protocol hold with all of its rules, and break without any one of them?
//!
//! What was searched, and the stories of what breaks, are printed: `cargo test --workspace --test rules -- --nocapture`.

use std::fmt::Write;
use std::time::Instant;

use model::channel::Channel;
use model::reclaim::Reclaim;
use model::reserve::Reserve;
use model::slots::Slots;
use model::{Found, Protocol, search};

fn told(broken: &[(&str, Vec<String>)]) -> String {
    let mut out = String::new();
    for (property, steps) in broken {
        let steps = steps.iter().enumerate().map(|(at, step)| format!("\n  {}. {step}", at + 1));
        writeln!(out, "  BROKEN: {property}{}", steps.collect::<String>()).expect("a string takes all");
    }
    out
}

/// Searches every state, each at its bounds, and says how many there are.
fn check_all<P: Protocol + Copy + Send + Sync + 'static>(name: &str, protocols: Vec<P>) -> String {
    let mut out = String::new();
    for protocol in protocols {
        let (bounds, began) = (protocol.bounds(), Instant::now());
        let Found { states, depth, broken, missed } = search(protocol);
        assert!(broken.is_empty(), "{name} ({bounds}):\n{}", told(&broken));
        assert!(missed.is_empty(), "{name} ({bounds}) never gets to: {missed:?}");
        let seconds = began.elapsed().as_secs_f32();
        writeln!(out, "{name}: {states} states, {depth} steps deep, in {seconds:.1} s ({bounds})")
            .expect("a string takes all");
    }
    out
}

/// Leaves out one rule after the other, and tells what breaks first.
fn check_each<P: Protocol + Copy + Send + Sync + 'static>(name: &str) -> String {
    let mut out = String::new();
    for (rule, property) in P::RULES {
        let mut found = P::without(Some(*rule)).into_iter().map(search);
        let broken = found.find_map(|found| (!found.broken.is_empty()).then_some(found.broken));
        let broken = broken.unwrap_or_else(|| panic!("{name} holds without {rule:?}: what is it for?"));
        let expected = broken.into_iter().partition(|(broken, _)| broken == property);
        let (story, other): (Vec<_>, Vec<_>) = expected;
        assert!(!story.is_empty(), "{name} without {rule:?} breaks otherwise:\n{}", told(&other));
        let story = told(&story);
        write!(out, "{name} without {rule:?}\n{story}").expect("a string takes all");
    }
    out
}

#[test]
fn a_channel_keeps_what_was_acked() {
    println!("{}", check_all("channel", Channel::without(None)));
}

#[test]
fn a_channel_needs_each_of_its_rules() {
    println!("{}", check_each::<Channel>("channel"));
}

#[test]
fn reclaim_keeps_what_is_needed() {
    println!("{}", check_all("reclaim", Reclaim::without(None)));
}

#[test]
fn reclaim_needs_each_of_its_rules() {
    println!("{}", check_each::<Reclaim>("reclaim"));
}

#[test]
fn a_slot_passes_from_owner_to_owner_whole() {
    println!("{}", check_all("slots", Slots::without(None)));
}

#[test]
fn a_slot_needs_each_rule_of_its_passing() {
    println!("{}", check_each::<Slots>("slots"));
}

#[test]
fn an_accepted_loss_gives_no_sequence_number_twice() {
    println!("{}", check_all("reserve", Reserve::without(None)));
}

#[test]
fn an_accepted_loss_needs_each_of_its_rules() {
    println!("{}", check_each::<Reserve>("reserve"));
}
