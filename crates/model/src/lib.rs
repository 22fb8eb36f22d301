//! Do the protocols of the store keep their promises in every order of events, and which promise does each of their rules keep?
//!
//! Each model is a protocol at small bounds. With all of its rules, an exhaustive search finds no broken property; with one of
//! them left out, it finds the shortest story in which one breaks. `docs/model.md` says which code each rule stands for.

pub mod channel;
pub mod reclaim;
pub mod reserve;
pub mod slots;

use std::fmt::{Debug, Display};
use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// A protocol of which one rule can be left out.
pub trait Protocol: Model<State: Hash + Clone + PartialEq + Send + Sync, Action: Clone + PartialEq + Display> {
    /// One of its rules.
    type Rule: Copy + Debug + 'static;

    /// Every rule, with the property that breaks without it.
    const RULES: &'static [(Self::Rule, &'static str)];

    /// How large it is, in words.
    fn bounds(&self) -> String;

    /// The protocol with all of its rules, or with all but one, at each of its bounds.
    fn without(left_out: Option<Self::Rule>) -> Vec<Self>;
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Different states that were reached.
    pub states: usize,
    /// Steps to the state that is furthest away.
    pub depth: usize,
    /// The properties that break first, and the steps to where they do.
    pub broken: Vec<(&'static str, Vec<String>)>,
    /// What must be possible and is not.
    pub missed: Vec<&'static str>,
}

/// Searches every state of a protocol, or finds the shortest way to one that breaks a property.
#[must_use]
pub fn search<P: Protocol + Copy + Send + Sync + 'static>(protocol: P) -> Found {
    let mut found = search_within(protocol, None);
    let shortest = |found: &Found| found.broken.iter().map(|(_, steps)| steps.len()).min();
    // Of some thousand states that it looks at together, the checker tells of the last that breaks.
    while let Some(steps) = shortest(&found) {
        let Some(fewer) = steps.checked_sub(1) else { break };
        let nearer = search_within(protocol, Some(fewer));
        if nearer.broken.is_empty() {
            return search_within(protocol, Some(steps));
        }
        found = nearer;
    }
    found
}

/// The same among states that are not more than so many steps away.
fn search_within<P: Protocol + Send + Sync + 'static>(protocol: P, steps_max: Option<usize>) -> Found {
    let properties = protocol.properties();
    let mut checker = protocol.checker().finish_when(HasDiscoveries::AnyFailures);
    if let Some(steps) = steps_max {
        // It counts states, the first one too, and leaves out the last.
        checker = checker.target_max_depth(steps + 2);
    }
    let checker = checker.spawn_bfs().join();
    let mut found = checker.discoveries();
    let (mut broken, mut missed) = (Vec::new(), Vec::new());
    for property in properties {
        let (name, path) = (property.name, found.remove(property.name));
        match (property.expectation, path) {
            (Expectation::Sometimes, None) => missed.push(name),
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
            (_, Some(path)) => {
                let steps: Vec<P::Action> = path.into_actions();
                broken.push((name, steps.iter().map(ToString::to_string).collect()));
            }
        }
    }
    Found { states: checker.unique_state_count(), depth: checker.max_depth() - 1, broken, missed }
}
