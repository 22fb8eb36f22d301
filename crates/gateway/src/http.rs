//! What do those see who come with curl, a browser, or any HTTP client?
//!
//! Everything of the wire but writer sessions and the admin plane, as JSON under `/v1`; beside it what operators ask:
//! whether the star is well, and what it counts.

mod answer;
mod append;
mod body;
mod bounds;
mod buckets;
mod budget;
mod console;
mod events;
mod failure;
mod feed;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod gateway;
mod health;
mod metrics;
mod openapi;
mod percent;
mod query;
mod read;
mod route;
mod routes;
mod server;
mod socket;
mod streams;

pub use server::start;
