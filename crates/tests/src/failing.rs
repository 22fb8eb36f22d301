//! How does a test choose where the real process dies, how its store behaves and what its clock says?

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

use failpoints::Point;

use crate::novad::Novad;
use crate::scratch::Scratch;

/// A star that runs takes a new script within this.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);
const HURRY: &str = "hurry";

/// What happens at the fail points of a star, over all its starts; its background is in a hurry.
#[derive(Debug)]
pub struct Script {
    path: PathBuf,
}

impl Script {
    /// One for a star of this test; nothing happens yet.
    ///
    /// # Panics
    /// When it can't be written.
    #[must_use]
    pub fn new(scratch: &Scratch) -> Self {
        let script = Self { path: scratch.join("failpoints") };
        script.write(&[]);
        script
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the next start these lines, and none of those before.
    ///
    /// # Panics
    /// When it can't be written.
    pub fn write(&self, lines: &[&str]) {
        let text: String = [&[HURRY], lines].concat().iter().map(|line| format!("{line}\n")).collect();
        let next = self.path.with_extension("next");
        fs::write(&next, text).and_then(|()| fs::rename(&next, &self.path)).expect("a script is written");
    }

    /// Gives a star that runs these lines; they hold when this returns.
    ///
    /// # Panics
    /// When it doesn't take them.
    pub fn tell(&self, novad: &Novad, lines: &[&str]) {
        self.write(lines);
        let said = format!("fail points set: {}.", [&[HURRY], lines].concat().join(", "));
        let until = Instant::now() + TAKEN_WITHIN;
        let last = |log: &str| log.lines().rfind(|line| line.starts_with("fail points set: ")).map(str::to_owned);
        while last(&novad.log()).is_none_or(|last| last != said) {
            assert!(Instant::now() < until, "the star does not take its script: {}", novad.log());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What a star says when it dies at a point.
#[must_use]
pub fn last_words(point: Point) -> String {
    format!("fail point {}: the process ends", point.name())
}
