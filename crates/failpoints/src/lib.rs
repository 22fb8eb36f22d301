//! Where may a test end the real process, make its store slow or take it away, or move its clock?
//!
//! The lines are the [`Point`]s. Without the feature `armed`, as in every build for users, all of this is empty functions that
//! leave nothing in a binary. With it, [`watch`] reads a script from the file that the variable [`VARIABLE`] names, and
//! again whenever that file is replaced. A line of it is one of
//!
//! | line | what it does |
//! |---|---|
//! | `<point>: kill <n>` | the n-th time from now that the point is reached, the process ends as by `kill -9` |
//! | `<point>: sleep <ms>` | whoever reaches it waits so long; the store's points wait without holding a thread up |
//! | `<point>: panic` | whoever reaches it panics |
//! | `<point>: spin` | whoever reaches it works on and never goes on, until the script says otherwise |
//! | `<point>: fail` | a request to the store fails; of the store's points only |
//! | `clock: <ms>` | the wall clock is so much ahead of the system's, or behind it when negative |
//! | `hurry` | what the background does in minutes or days, it does in parts of a second; from the start only |

mod point;

#[cfg(feature = "armed")]
mod armed;
#[cfg(not(feature = "armed"))]
mod disarmed;

#[cfg(feature = "armed")]
pub use armed::{at_store, hit, is_hurried, wall_shift_ms, watch};
#[cfg(not(feature = "armed"))]
pub use disarmed::{at_store, hit, is_hurried, wall_shift_ms, watch};
pub use point::{Phase, Point};

use std::time::Duration;

/// Names the file of the script. It is no setting: builds for users know nothing of it.
pub const VARIABLE: &str = "FAILPOINTS";

/// What a request to the store meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// It takes so much longer.
    Slow(Duration),
    /// It does not get there.
    Down,
}
