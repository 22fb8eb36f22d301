//! How fast is it, and how far from what the host allows?
//!
//! * [`append`]: producers over the wire, in a closed or an open loop; a checker of sequence numbers too.
//! * [`subscribe`]: how long a record takes from a producer to a live subscriber.
//! * [`disk`]: durable writes by size and by method, the floor under every ack.
//! * [`net`]: the same producers against an echo in this process, the floor under every round trip.
//!
//! Each takes a struct of options and answers a report, which prints as text and serialises to JSON. Quantiles come from
//! HDR histograms that are merged, never averaged, and are withheld where samples are too few to carry them.

pub mod append;
pub mod disk;
pub mod error;
pub mod floors;
pub mod latency;
pub mod net;
pub mod progress;
pub mod report;
pub mod subscribe;

mod batch;
mod cpu;
mod dial;
mod load;
mod random;

#[cfg(test)]
mod tests;
