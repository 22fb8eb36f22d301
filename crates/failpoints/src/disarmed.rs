//! What is left of all this in a build for users? Nothing.

use super::{Obstacle, Point};

/// A line is reached that a test may have chosen.
#[inline(always)]
pub const fn hit(_: Point) {}

/// The store is about to be asked something.
#[inline(always)]
#[must_use]
pub const fn at_store(_: Point) -> Option<Obstacle> {
    None
}

/// How far the wall clock is moved, in milliseconds.
#[inline(always)]
#[must_use]
pub const fn wall_shift_ms() -> i64 {
    0
}

/// Whether the background is in a hurry.
#[inline(always)]
#[must_use]
pub const fn is_hurried() -> bool {
    false
}

/// Begins to follow the script.
#[inline(always)]
pub const fn watch() {}
