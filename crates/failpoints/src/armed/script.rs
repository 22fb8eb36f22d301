//! What does a script say?

use std::str::FromStr;

use crate::Point;

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// The process ends, the so manieth time.
    Kill(u32),
    /// So many milliseconds pass.
    Sleep(u32),
    /// What is asked of the store fails.
    Fail,
    /// Whoever reaches it panics.
    Panic,
    /// Whoever reaches it works on and never goes on.
    Spin,
}

/// A whole script.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Script {
    pub(super) rules: Vec<(Point, Rule)>,
    pub(super) clock_ms: i64,
    pub(super) is_hurried: bool,
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut script = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if line == "hurry" {
                script.is_hurried = true;
                continue;
            }
            let wrong = || format!("`{line}` is no line of a script");
            let (name, what) = line.split_once(": ").ok_or_else(wrong)?;
            if name == "clock" {
                script.clock_ms = what.parse().map_err(|_| wrong())?;
                continue;
            }
            let point = Point::ALL.into_iter().find(|point| point.name() == name);
            let point = point.ok_or_else(|| format!("there is no point `{name}`"))?;
            script.rules.push((point, rule(point, what).ok_or_else(wrong)?));
        }
        Ok(script)
    }
}

fn rule(point: Point, what: &str) -> Option<Rule> {
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
    match what.split_once(' ') {
        Some(("kill", count)) => number(count).map(Rule::Kill),
        Some(("sleep", ms)) => number(ms).map(Rule::Sleep),
        None if what == "panic" => Some(Rule::Panic),
        None if what == "spin" => Some(Rule::Spin),
        None if what == "fail" && point.is_of_the_store() => Some(Rule::Fail),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_says_what_it_says_and_nothing_else_is_one() {
        let script: Script = "chunk-put: kill 2\nstore-write: fail\nhead-write: panic\n\nhead-written: spin\n\
             clock: -31536000000\nhurry\n"
            .parse()
            .unwrap();
        let rules = vec![
            (Point::ChunkPut, Rule::Kill(2)),
            (Point::StoreWrite, Rule::Fail),
            (Point::HeadWrite, Rule::Panic),
            (Point::HeadWritten, Rule::Spin),
        ];
        assert_eq!(script, Script { rules, clock_ms: -31_536_000_000, is_hurried: true });
        for wrong in
            ["chunk-put", "chunk-put: kill", "chunk-put: kill 0", "chunk-put: fail", "chunk: kill 1", "clock: x"]
        {
            assert!(wrong.parse::<Script>().is_err(), "{wrong}");
        }
    }
}
