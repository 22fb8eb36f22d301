//! How fast is it, and how far from what the host allows?
//!
//! * [`append`]: producers over the wire, in a closed or an open loop; a checker of sequence numbers too.
//! * [`subscribe`]: how long a record takes from a producer to a live subscriber.
//! * [`disk`]: durable writes by size and by method, the floor under every ack.
//! * [`read`]: readers that catch up, by pages or by subscriptions.
//! * [`store`]: puts and gets of whole objects, the floor under Standard acks and reads of settled records.
//! * [`soak`]: all of it together for hours, with a verdict on memory, files and p99.
//! * [`find_max`]: the highest rate at which acks stay quick.
//! * [`verify`]: whether what is acked is kept, across kills of the star and of this process.
//! * [`settle`] and [`recover`]: how long a record takes into the standard store, and a star to come back after a kill.
//! * [`peer`]: the same appends to Redis, NATS or s2-lite, by the same generator; [`compare`] lays two reports side by side.
//! * [`merge`]: one report of those that generators on several hosts made, which began together ([`start_at`]).
//! * [`net`]: the same producers against an echo in this process, the floor under every round trip.
//!
//! Each takes a struct of options and answers a report, which prints as text and serialises to JSON. Quantiles come from
//! HDR histograms that are merged, never averaged, and are withheld where samples are too few to carry them.

pub mod append;
pub mod arrivals;
pub mod compare;
pub mod disk;
pub mod error;
pub mod files;
pub mod find_max;
pub mod floors;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod latency;
pub mod merge;
pub mod net;
pub mod peer;
pub mod progress;
pub mod read;
pub mod recover;
pub mod report;
pub mod server;
pub mod settle;
pub mod shape;
pub mod soak;
pub mod star;
pub mod start_at;
pub mod store;
pub mod subscribe;
pub mod verify;

mod batch;
mod chain;
mod cpu;
mod dial;
mod load;
mod places;
mod random;

#[cfg(test)]
mod tests;
