//! Histories of a log on a disk that crashes, fails, fills up and lies, each chosen by one number; and mistakes that are
//! planted in the log, to show that the histories would tell of them.
//!
//! `NOVA_SIM_SEEDS` says how many histories there are, `NOVA_SIM_SEED` which alone. One that fails prints the line that
//! runs it again.

mod history;
mod swarm;
mod truth;

use std::ops::Range;
use std::panic::catch_unwind;

use self::history::{Outcome, run};
use crate::planted::{Planted, plant};

/// Histories of an ordinary run.
const SEEDS: u64 = 2_000;
const THREADS: usize = 2;

fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text}, which is no number")))
}

/// Says how to run a history again when it ends in a panic.
struct Again(u64);

impl Drop for Again {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again: NOVA_SIM_SEED={} cargo test -p express-log --lib every_history", self.0);
        }
    }
}

fn run_all(seeds: Range<u64>) -> Outcome {
    let parts = |thread: usize| seeds.clone().skip(thread).step_by(THREADS);
    let run_part = |thread: usize| {
        parts(thread).fold(Outcome::default(), |all, seed| {
            let _again = Again(seed);
            all.and(run(seed))
        })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run_part(thread))).collect();
        let ends = threads.into_iter().map(|thread| thread.join().expect("every history holds"));
        ends.fold(Outcome::default(), Outcome::and)
    })
}

#[test]
fn every_history_keeps_what_was_acked_and_tells_of_what_is_gone() {
    if let Some(seed) = number_of("NOVA_SIM_SEED") {
        let _again = Again(seed);
        eprintln!("{:?}", run(seed));
        return;
    }
    let seeds = number_of("NOVA_SIM_SEEDS").unwrap_or(SEEDS);
    let all = run_all(0..seeds);
    eprintln!("{seeds} histories: {all:?}");
    let least = |number: u64, of_thousand: u64| assert!(number * 1_000 >= seeds * of_thousand, "{all:?}");
    least(all.crashes, 3_000);
    least(all.acked, 20_000);
    least(all.freed, 500);
    least(all.failed, 20);
    least(all.reported, 50);
    assert!(all.undecidable * 10 < all.acked, "{all:?}");
}

#[test]
fn one_number_gives_one_history() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "history {seed}");
    }
    assert_ne!(run(1).trace, run(2).trace);
}

/// In how many histories a mistake must be found.
const fn budget(mistake: Planted) -> u64 {
    match mistake {
        // A blank segment must show just the frame that comes next.
        Planted::FrameIdentityIgnored => 10_000,
        _ => 2_000,
    }
}

#[test]
fn each_planted_mistake_is_found() {
    let mut found = Vec::new();
    for mistake in Planted::ALL {
        plant(Some(mistake));
        let first = (0..budget(mistake)).find(|seed| catch_unwind(|| run(*seed)).is_err());
        plant(None);
        found.push((mistake, first));
    }
    eprintln!("{found:?}");
    assert!(found.iter().all(|(_, first)| first.is_some()), "{found:?}");
}
