use std::time::Duration;

use super::{Fault, Latency, Rule, Weather, When};
use crate::store::StoreOp;

fn faults(weather: &mut Weather, count: usize) -> Vec<Option<Fault>> {
    (0..count).map(|_| weather.plan(StoreOp::Get, "c/1").fault).collect()
}

#[test]
fn a_rule_strikes_only_what_it_is_about() {
    let mut weather = Weather::default();
    weather.add(Rule::new(Fault::Hang).of(StoreOp::Get).under("c/").with("7"));
    let mut meets = |op, target| weather.plan(op, target).fault.is_some();
    assert!(meets(StoreOp::Get, "c/17"));
    assert!(!meets(StoreOp::Head, "c/17"));
    assert!(!meets(StoreOp::Get, "d/17"));
    assert!(!meets(StoreOp::Get, "c/16"));
}

#[test]
fn a_numbered_rule_strikes_once_and_lets_later_rules_see_the_rest() {
    let mut weather = Weather::default();
    weather.add(Rule::new(Fault::SlowDown).when(When::Nth(2)));
    weather.add(Rule::new(Fault::Conflict).when(When::Nth(1)));
    weather.add(Rule::new(Fault::ServerError).when(When::Nth(2)));
    let met = faults(&mut weather, 5);
    assert_eq!(met, [Some(Fault::Conflict), Some(Fault::SlowDown), None, Some(Fault::ServerError), None].to_vec());
}

#[test]
fn a_damaged_body_is_a_fault_of_reads_alone() {
    let mut weather = Weather::default();
    weather.add(Rule::new(Fault::Flipped));
    assert_eq!(weather.plan(StoreOp::PutIfAbsent, "a").fault, None);
    assert_eq!(weather.plan(StoreOp::Get, "a").fault, Some(Fault::Flipped));
}

#[test]
fn the_same_seed_brings_the_same_weather_and_another_another() {
    let run = |seed| {
        let mut weather = Weather::seeded(seed);
        weather.add(Rule::new(Fault::SlowDown).when(When::Chance(0.25)));
        weather.set_latency(Latency { p50: Duration::from_millis(40), p99: Duration::from_millis(250) });
        (0..1_000).map(|_| weather.plan(StoreOp::Get, "c/1")).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    let struck = run(7).iter().filter(|plan| plan.fault.is_some()).count();
    assert!((200..300).contains(&struck), "{struck} of 1000 at a chance of a quarter");
}

#[test]
fn latencies_have_the_percentiles_that_were_asked_for() {
    let mut weather = Weather::seeded(1);
    weather.set_latency(Latency { p50: Duration::from_millis(40), p99: Duration::from_millis(250) });
    let mut drawn: Vec<_> = (0..10_000).map(|_| weather.plan(StoreOp::Get, "a").delay).collect();
    drawn.sort_unstable();
    let (p50, p99) = (drawn[5_000].as_millis(), drawn[9_900].as_millis());
    assert!((37..=43).contains(&p50) && (215..=290).contains(&p99), "p50 {p50} ms, p99 {p99} ms");
}
