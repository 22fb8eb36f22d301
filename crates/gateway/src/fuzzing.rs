//! What must hold of what clients send over HTTP, and in S2's protocol?

use wire::fuzzing::Target;

pub use crate::http::fuzzing::{http_append, http_bodies, http_query};
pub use crate::s2::fuzzing::{s2_append, s2_frames, s2_json, s2_requests};

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "http_append", check: http_append },
    Target { name: "http_bodies", check: http_bodies },
    Target { name: "http_query", check: http_query },
    Target { name: "s2_append", check: s2_append },
    Target { name: "s2_frames", check: s2_frames },
    Target { name: "s2_json", check: s2_json },
    Target { name: "s2_requests", check: s2_requests },
];

#[cfg(test)]
mod tests;
