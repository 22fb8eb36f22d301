//! What needs more than one crate: the real process, conformance, tidy.
