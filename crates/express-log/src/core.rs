//! What a head log decides: no async, no clock, no I/O, no locks.

pub(crate) mod choice;
pub(crate) mod pipeline;
pub(crate) mod release;
pub(crate) mod scan;
pub(crate) mod space;

#[cfg(test)]
mod tests;
