//! What do the clients of S2 see?
//!
//! A façade that speaks S2's protocol on a listener of its own, so that S2's clients and command line run against nova. Basins
//! are buckets. Where S2 and nova differ it behaves as S2 does, over streams that the other surfaces read as any other; the
//! differences stand in `docs/s2.md`.

mod answer;
mod append;
mod basins;
mod config;
mod facade;
mod failure;
mod follow;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod json;
mod names;
mod pending;
mod places;
mod proto;
mod query;
mod read;
mod record;
mod request;
mod route;
mod server;
mod session;
mod streams;
mod weight;

pub use server::start;
