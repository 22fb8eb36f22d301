//! Does the HTTP surface of a real `novad` do what the specification says, and carry what clients do to it?

mod appends;
mod bad_input;
mod buckets;
mod console;
mod differential;
mod guide;
mod operators;
mod plane;
mod reads;
mod star;
mod subscribers;
mod watching;
