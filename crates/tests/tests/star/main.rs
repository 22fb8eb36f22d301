//! Does the real `novad` keep what it promises, asked by the Rust client and by the command line?

#![expect(clippy::excessive_nesting, reason = "a test stands in `within`, which takes a level of its own")]

mod bad_input;
mod corruption;
mod files;
mod hops;
mod host;
mod hostile;
mod kill9;
mod races;
mod restart;
mod store_damage;
mod store_moves;
mod store_outage;
mod store_refused;
mod store_restart;
mod store_settle;
mod verbs;
mod wire_bounds;
