//! What happens at a point, as the script says?

mod script;

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use super::{Obstacle, Point, VARIABLE};
use script::{Rule, Script};

/// Between looks at the file.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What stands for no rule, then each kind of one, in the three highest bits of its cell; its number is in the others.
const SHIFT: u32 = 61;
const NUMBER: u64 = (1 << SHIFT) - 1;
const KILL: u64 = 1;
const SLEEP: u64 = 2;
const FAIL: u64 = 3;
const PANIC: u64 = 4;
const SPIN: u64 = 5;

static RULES: [AtomicU64; Point::ALL.len()] = [const { AtomicU64::new(0) }; Point::ALL.len()];
static CLOCK_MS: AtomicI64 = AtomicI64::new(0);
static HURRIED: AtomicBool = AtomicBool::new(false);

fn pack(rule: Rule) -> u64 {
    match rule {
        Rule::Kill(count) => KILL << SHIFT | u64::from(count),
        Rule::Sleep(ms) => SLEEP << SHIFT | u64::from(ms),
        Rule::Fail => FAIL << SHIFT,
        Rule::Panic => PANIC << SHIFT,
        Rule::Spin => SPIN << SHIFT,
    }
}

/// A line is reached that a test may have chosen: the process ends here, or waits.
///
/// # Panics
/// When the script says so.
#[inline]
pub fn hit(point: Point) {
    let rule = RULES[point as usize].load(Ordering::Relaxed);
    if rule != 0 {
        meet(point, rule);
    }
}

fn meet(point: Point, rule: u64) {
    match rule >> SHIFT {
        SLEEP => thread::sleep(Duration::from_millis(rule & NUMBER)),
        KILL if RULES[point as usize].fetch_sub(1, Ordering::Relaxed) & NUMBER == 1 => end(point),
        PANIC => panic!("fail point {}", point.name()),
        SPIN => spin(point),
        _ => {}
    }
}

/// Works on without an end, as long as the script says so.
fn spin(point: Point) {
    while RULES[point as usize].load(Ordering::Relaxed) >> SHIFT == SPIN {
        std::hint::spin_loop();
    }
}

/// Ends the process as a crash of it does, at once and without a clean-up.
fn end(point: Point) {
    // Nobody may be reading it any more.
    let _gone = writeln!(std::io::stderr(), "fail point {}: the process ends", point.name());
    // It ends within the call.
    let _ended = kill_process(getpid(), Signal::KILL);
}

/// The store is about to be asked something: what gets into the way of it.
#[inline]
#[must_use]
pub fn at_store(point: Point) -> Option<Obstacle> {
    let rule = RULES[point as usize].load(Ordering::Relaxed);
    match rule >> SHIFT {
        SLEEP => Some(Obstacle::Slow(Duration::from_millis(rule & NUMBER))),
        FAIL => Some(Obstacle::Down),
        _ => {
            hit(point);
            None
        }
    }
}

/// How far the wall clock is moved, in milliseconds.
#[inline]
#[must_use]
pub fn wall_shift_ms() -> i64 {
    CLOCK_MS.load(Ordering::Relaxed)
}

/// Whether the background is in a hurry.
#[must_use]
pub fn is_hurried() -> bool {
    HURRIED.load(Ordering::Relaxed)
}

/// Follows the script from here on: what it says now holds when this returns. Does nothing where no script is named.
///
/// # Panics
/// When the script can't be read or understood.
pub fn watch() {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let read = move || std::fs::read_to_string(&path).expect("the script of the fail points is there");
    let mut text = read();
    take(&text);
    let follow = move || {
        loop {
            thread::sleep(LOOK_EVERY);
            let now = read();
            if now != text {
                take(&now);
                text = now;
            }
        }
    };
    thread::Builder::new().name("nova-failpoints".to_owned()).spawn(follow).expect("a thread to follow the script");
}

fn take(text: &str) {
    let script: Script = text.parse().unwrap_or_else(|error| panic!("the script of the fail points: {error}"));
    for (point, rule) in Point::ALL.iter().zip(&RULES) {
        let found = script.rules.iter().find(|(at, _)| at == point);
        rule.store(found.map_or(0, |(_, rule)| pack(*rule)), Ordering::Relaxed);
    }
    CLOCK_MS.store(script.clock_ms, Ordering::Relaxed);
    HURRIED.store(script.is_hurried, Ordering::Relaxed);
    let said = text.split('\n').filter(|line| !line.is_empty()).collect::<Vec<_>>().join(", ");
    let _gone = writeln!(std::io::stderr(), "fail points set: {said}.");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All in one: the rules are the whole process's.
    #[test]
    fn a_point_does_what_the_script_says_and_nothing_without_a_rule() {
        hit(Point::ChunkPut);
        take("chunk-put: kill 3\nstore-read: fail\nstore-write: sleep 7\nclock: -5\nhurry\n");
        hit(Point::ChunkPut);
        hit(Point::ChunkPut);
        assert_eq!(
            RULES[Point::ChunkPut as usize].load(Ordering::Relaxed),
            pack(Rule::Kill(1)),
            "the next one ends it"
        );
        assert_eq!(at_store(Point::StoreRead), Some(Obstacle::Down));
        assert_eq!(at_store(Point::StoreWrite), Some(Obstacle::Slow(Duration::from_millis(7))));
        assert_eq!((wall_shift_ms(), is_hurried()), (-5, true));
        take("");
        hit(Point::ChunkPut);
        assert_eq!(at_store(Point::StoreRead), None);
        assert_eq!((wall_shift_ms(), is_hurried()), (0, false));
    }
}
