//! What do the commands `nova` and `novad` do? The only place where the parts of nova are joined.

pub mod nova;
pub mod novad;

mod surfaces;
mod usage;
