//! How do those who don't speak the wire use nova? HTTP, and a façade that speaks S2's protocol, over the client.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod http;
pub mod s2;
mod surface;

pub use surface::{Bound, Kind, Options, Server, StartError};
