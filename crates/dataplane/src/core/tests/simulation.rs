//! Whole stars without their shells: shards on head logs that crash, a store, and clients that send again; each history chosen
//! by one number, and mistakes that are planted in the shards, to show that the histories would tell of them.
//!
//! `NOVA_SIM_SEEDS` says how many histories there are, `NOVA_SIM_SEED` which alone. One that fails prints the line that
//! runs it again.

mod clients;
mod star;
mod truth;

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use wire::config::{Class, ProducerPolicy};

use self::clients::{Clients, DEADLINE_TURNS};
use self::star::{Left, Star, Tenure, log_options};
use super::history::Random;
use crate::planted::{Planted, plant};

/// Histories of an ordinary run.
const SEEDS: u64 = 200;
/// In how many of them a mistake must be found.
const MISTAKE_SEEDS: u64 = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Outcome {
    trace: u64,
    acked: u64,
    resent: u64,
    crashes: u64,
}

/// How often things happen in a history, in parts of 1,000.
#[derive(Debug)]
struct Swarm {
    lives: u64,
    turns: u64,
    steps: u64,
    store: u64,
    settle: u64,
    wait: u64,
    long_wait: u64,
    stall: u64,
}

impl Swarm {
    fn draw(random: &mut Random) -> Self {
        let mut parts = |most: u64| if random.below(3) == 0 { 0 } else { 1 + random.below(most) };
        let (store, settle, wait) = (parts(600), parts(300), parts(300));
        let (long_wait, stall) = (parts(100), parts(20));
        let (lives, turns, steps) = (1 + random.below(4), 20 + random.below(150), 1 + random.below(25));
        Self { lives, turns, steps, store, settle, wait, long_wait, stall }
    }
}

/// Lives through the history of `seed`.
///
/// # Panics
/// When what clients were told does not hold.
fn run(seed: u64) -> Outcome {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let swarm = Swarm::draw(&mut random);
    let options = log_options(&mut random);
    let mut clients = Clients::new();
    let mut outcome = Outcome::default();
    let mut left = Left::default();
    for life in 0..=swarm.lives {
        let tenure = Tenure {
            shards: u16::try_from(1 + random.below(3)).unwrap(),
            rows_max: if random.below(2) == 0 { 1_000 } else { usize::try_from(random.below(3)).unwrap() },
            ring_bytes_max: if random.below(2) == 0 { 0 } else { 64 << 10 },
            options,
        };
        let mut star = come_back(left, tenure, &mut clients, &mut random);
        for _ in 0..random.below(1 + swarm.turns) {
            happen(&swarm, &mut star, &mut clients, &mut random);
        }
        if life == swarm.lives {
            come_to_rest(&mut star, &mut clients, &mut random);
        }
        outcome.trace = outcome.trace.rotate_left(9) ^ star.trace();
        outcome.crashes += 1;
        left = star.crash(&mut random);
    }
    let tenure = Tenure { shards: 2, rows_max: 1_000, ring_bytes_max: 0, options };
    come_back(left, tenure, &mut clients, &mut random);
    (outcome.acked, outcome.resent) = (clients.acked, clients.resent);
    outcome
}

/// Starts on what is left, and the clients read all of it: of what was under way before, nothing happens any more.
fn come_back(left: Left, tenure: Tenure, clients: &mut Clients, random: &mut Random) -> Star {
    let mut star = Star::start(left, tenure, random);
    let deleting = clients.deleting();
    clients.connect(&mut star);
    clients.set_deleting(deleting);
    clients.read_back(&mut star, random);
    clients.set_deleting(Default::default());
    star
}

fn happen(swarm: &Swarm, star: &mut Star, clients: &mut Clients, random: &mut Random) {
    for _ in 0..random.below(4) {
        clients.act(star, random);
    }
    for at in 0..star.shards.len() {
        star.run_log(at, random.below(1 + swarm.steps));
    }
    let happens = |random: &mut Random, parts: u64| random.below(1_000) < parts;
    if happens(random, swarm.store) {
        star.lay_chunk(random);
    }
    if happens(random, swarm.store) {
        star.commit_chunk();
    }
    if happens(random, swarm.store) {
        star.apply_chunk();
    }
    if happens(random, swarm.settle) {
        star.settle(random.below(12), random);
    }
    if happens(random, swarm.wait) {
        star.wait(random.below(300));
    }
    if happens(random, swarm.long_wait) {
        star.wait(11_000);
    }
    if happens(random, swarm.stall) {
        star.stall(random.below(2) == 0);
    }
    if random.below(3) > 0 {
        star.serve_control();
        star.serve_fetches();
    }
    clients.hear(star);
}

/// Nothing goes wrong any more: everything is answered, and all is there.
fn come_to_rest(star: &mut Star, clients: &mut Clients, random: &mut Random) {
    star.stall(false);
    for _ in 0..DEADLINE_TURNS {
        if clients.is_content() {
            break;
        }
        clients.finish(star, random);
        star.work(random);
        star.wait(50);
    }
    assert!(clients.is_content(), "somebody never gets an answer: {clients:#?}");
    clients.read_back(star, random);
}

/// Says how to run a history again when it ends in a panic.
struct Again(u64);

impl Drop for Again {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again: NOVA_SIM_SEED={} cargo test -p dataplane --lib what_clients_were_told", self.0);
        }
    }
}

#[test]
fn what_clients_were_told_holds_in_every_history() {
    let number_of = |variable| std::env::var(variable).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number_of("NOVA_SIM_SEED") {
        let _again = Again(seed);
        eprintln!("{:?}", run(seed));
        return;
    }
    let seeds = number_of("NOVA_SIM_SEEDS").unwrap_or(SEEDS);
    let half = |from: u64| {
        (from..seeds).step_by(2).fold((0, 0, 0), |(acked, resent, crashes), seed| {
            let _again = Again(seed);
            let outcome = run(seed);
            (acked + outcome.acked, resent + outcome.resent, crashes + outcome.crashes)
        })
    };
    let (one, other) = std::thread::scope(|scope| {
        let (one, other) = (scope.spawn(|| half(0)), scope.spawn(|| half(1)));
        (one.join().expect("every history holds"), other.join().expect("every history holds"))
    });
    let (acked, resent, crashes) = (one.0 + other.0, one.1 + other.1, one.2 + other.2);
    eprintln!("{seeds} histories: {acked} acked, {resent} sent again, {crashes} crashes");
    assert!(acked > 10 * seeds && resent * 10 > seeds && crashes > 2 * seeds, "{acked} {resent} {crashes}");
}

/// The store stops after the delete of a stream has entered, which is refused then: whether it happens is open.
fn with_a_delete_in_doubt(random: &mut Random) -> (Star, Clients, Tenure) {
    let tenure = Tenure { shards: 1, rows_max: 1_000, ring_bytes_max: 0, options: log_options(random) };
    let mut clients = Clients::new();
    let mut star = come_back(Left::default(), tenure, &mut clients, random);
    clients.create_as(&mut star, 0, Class::Standard, ProducerPolicy::Any);
    come_to_rest(&mut star, &mut clients, random);
    clients.delete(&mut star, 0);
    star.lay_chunk(random);
    star.stall(true);
    star.wait(11_000);
    clients.hear(&mut star);
    assert!(clients.known[0].stream_id.is_some() && clients.deleting()[0], "it is refused, and leaves that open");
    (star, clients, tenure)
}

#[test]
fn a_delete_that_is_refused_in_doubt_has_happened_or_not() {
    let is_gone = |seed| {
        let mut random = Random(seed);
        let (star, mut clients, tenure) = with_a_delete_in_doubt(&mut random);
        come_back(star.crash(&mut random), tenure, &mut clients, &mut random);
        clients.known[0].stream_id.is_none()
    };
    assert_eq!((0..40).map(is_gone).collect::<BTreeSet<_>>(), BTreeSet::from([false, true]));
}

#[test]
fn a_delete_that_is_refused_in_doubt_is_asked_for_until_it_has_happened() {
    let mut random = Random(1);
    let (mut star, mut clients, _) = with_a_delete_in_doubt(&mut random);
    come_to_rest(&mut star, &mut clients, &mut random);
    assert_eq!(clients.known[0].stream_id, None);
}

#[test]
fn one_number_gives_one_history_of_a_star() {
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed), "history {seed}");
    }
}

#[test]
fn each_mistake_that_is_planted_in_a_shard_is_found() {
    let mut found = Vec::new();
    for mistake in Planted::ALL {
        plant(Some(mistake));
        let first = (0..MISTAKE_SEEDS).find(|seed| catch_unwind(|| run(*seed)).is_err());
        plant(None);
        found.push((mistake, first));
    }
    eprintln!("{found:?}");
    assert!(found.iter().all(|(_, first)| first.is_some()), "{found:?}");
}
