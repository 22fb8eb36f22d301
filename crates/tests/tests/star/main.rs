//! Does the real `novad` keep what it promises, asked by the Rust client and by the command line?

mod bad_input;
mod corruption;
mod files;
mod hops;
mod host;
mod hostile;
mod kill9;
mod races;
mod restart;
mod verbs;
mod wire_bounds;
