//! Settings, limits and host facts.
