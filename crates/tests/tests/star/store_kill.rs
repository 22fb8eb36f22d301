//! Does a star that dies at any line between two writes come back with all that it acked, and clean up after itself?
//!
//! The lines are those of [`failpoints::Point`]: one that is new is tried by itself.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use client::Class;
use failpoints::{Phase, Point};
use tests::{Novad, Scratch, Script, at, class, is_on_a_directory, last_words, objects, s3_server, within};

use crate::load::{Load, Whistle, impatient};

/// A point that is not reached within this is none.
const REACHED_WITHIN: Duration = Duration::from_secs(60);
/// Load before a star is stopped in order.
const LOAD: Duration = Duration::from_millis(300);
/// What nothing points to is gone within this.
const CLEAN_WITHIN: Duration = Duration::from_secs(40);
/// Bundles of what was deleted a moment ago.
const BUNDLES_MAX: usize = 3;
/// Chunks that a star puts side by side, but the one in whose place the fence is.
const UNDER_WAY_MAX: usize = 7;
const ARGS: [&str; 6] = ["--shards", "2", "--settle-age-ms", "20", "--settle-grace-ms", "100"];

/// A star under load that dies again and again.
pub(crate) struct Victim {
    script: Script,
    pub(crate) novad: Novad,
    pub(crate) load: Load,
    /// Goes last.
    scratch: Scratch,
}

impl Victim {
    pub(crate) async fn new(args: &[&str]) -> Self {
        let scratch = Scratch::new();
        let script = Script::new(&scratch);
        let novad = Novad::start_failing(&scratch.join("data"), args, &script);
        let load = Load::new(&novad).await;
        Self { scratch, script, novad, load }
    }

    /// Has it die at a point, the so manieth time, and holds what it comes back with against what is known.
    async fn die_at(mut self, point: Point, count: u32) -> Self {
        let line = format!("{}: kill {count}", point.name());
        let began = Instant::now();
        match point.phase() {
            Phase::Serving | Phase::Anywhere => {
                self.script.tell(&self.novad, &[&line]);
                let until = Instant::now() + REACHED_WITHIN;
                self.loaded(|novad| !novad.is_alive() || Instant::now() > until).await;
                assert!(!self.novad.is_alive(), "{} is not reached", point.name());
                self.novad.kill9();
            }
            Phase::Stopping => {
                let until = Instant::now() + LOAD;
                self.loaded(|_| Instant::now() > until).await;
                self.script.tell(&self.novad, &[&format!("{}: kill 1", point.name())]);
                let novad = self.novad.beside(|novad| assert_eq!(novad.sigterm(), None, "{}", novad.log()));
                self.novad = novad.await;
            }
            Phase::Starting => {
                let until = Instant::now() + LOAD;
                self.loaded(|_| Instant::now() > until).await;
                self.novad.kill9();
                self.script.write(&[&format!("{}: kill 1", point.name())]);
                let restart = |novad: &mut Novad| {
                    let ended = novad.try_restart().expect_err("it dies while it starts");
                    assert_eq!(ended.code, None, "{}", ended.log);
                };
                self.novad = self.novad.beside(restart).await;
            }
        }
        assert!(self.novad.log().contains(&last_words(point)), "it died of {}", point.name());
        let died_ms = began.elapsed().as_millis();
        self.script.write(&[]);
        self.novad = self.novad.beside(Novad::restart).await;
        let restarted_ms = began.elapsed().as_millis();
        self.load.check(&self.novad).await;
        let whole_ms = began.elapsed().as_millis();
        eprintln!("{}: died at {died_ms} ms, back at {restarted_ms}, whole at {whole_ms}", point.name());
        self
    }

    /// Has it die anywhere, and go on with other arguments.
    pub(crate) async fn die_and_go_on(mut self, args: &[&str]) -> Self {
        self.novad.kill9();
        self.novad.take_args(args);
        self.novad = self.novad.beside(Novad::restart).await;
        self.load.check(&self.novad).await;
        self
    }

    /// Writes until something is so.
    pub(crate) async fn loaded(&mut self, mut is_enough: impl FnMut(&mut Novad) -> bool) {
        let round = Whistle::default();
        let client = impatient(&self.novad);
        let watch = async {
            while !is_enough(&mut self.novad) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            round.is_over.set(true);
        };
        tokio::join!(self.load.run(&client, &round), watch);
    }

    /// Nothing that is live was deleted, and once nothing is live, nothing stays.
    pub(crate) async fn clean_up(self) {
        self.load.finish(&self.novad).await;
        self.load.check(&self.novad).await;
        let client = self.novad.client();
        for address in self.load.streams() {
            client.delete_stream(&address).await.expect("a delete");
        }
        for address in self.load.perhaps_streams() {
            // One that is not there is as good.
            let _gone = client.delete_stream(&address).await;
        }
        if !is_on_a_directory() {
            return;
        }
        let store = self.scratch.join("data").join("store");
        let is_clean = async || {
            // Each chunk that says so makes those before it free.
            client.append(&at("last"), ["the last"]).await.expect("an ack");
            client.delete_stream(&at("last")).await.expect("a delete");
            leftovers(&store).is_empty()
        };
        let until = Instant::now() + CLEAN_WITHIN;
        while !is_clean().await {
            assert!(Instant::now() < until, "it stays: {:#?}\n{}", leftovers(&store), self.novad.log());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// What a store has that it needs not, when it has no stream: bundles of more than a few, and of each channel but the last more
/// than its first object, its fence, and what was under way when its star died.
fn leftovers(store: &Path) -> Vec<String> {
    let names: Vec<String> = objects(store).iter().map(|path| path.display().to_string()).collect();
    let channel = |name: &str| Some(name.strip_prefix("c/")?.split('/').next()?.to_owned());
    let last = names.iter().filter_map(|name| channel(name)).max();
    let mut left: Vec<String> = names.iter().filter(|name| name.starts_with("d/")).skip(BUNDLES_MAX).cloned().collect();
    let earlier: Vec<&String> = names.iter().filter(|name| name.starts_with("c/") && channel(name) != last).collect();
    for of_channel in earlier.chunk_by(|one, next| channel(one) == channel(next)) {
        left.extend(of_channel.iter().skip(2 + UNDER_WAY_MAX).map(|name| (*name).clone()));
    }
    left
}

/// The same draw at each run.
fn draw(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 33).expect("31 bits") % below
}

/// The points that are tried here: all, where a death costs little; some on S3 and with the other class, which change nothing of
/// most of them.
fn chosen(part: Range<usize>) -> Vec<Point> {
    let all = &Point::ALL[part];
    if class() == Class::Express && s3_server().is_none() {
        return all.to_vec();
    }
    let mut state = 7 + u64::from(s3_server().is_some()) + 2 * u64::from(class() == Class::Standard);
    let mut some: Vec<Point> = (0..all.len().div_ceil(8)).map(|_| all[draw(&mut state, all.len())]).collect();
    some.sort_by_key(|point| *point as usize);
    some.dedup();
    // It takes what deaths at the points left out have left.
    some.retain(|point| *point != Point::OrphanDelete);
    some
}

fn die_at_each(part: Range<usize>) {
    within(400, async {
        let mut victim = Victim::new(&ARGS).await;
        for (no, point) in chosen(part).into_iter().enumerate() {
            victim = victim.die_at(point, 1 + u32::from(no % 2 == 1)).await;
        }
        assert!(victim.load.acked() > 0, "there was a load");
        victim.clean_up().await;
    });
}

const HALF: usize = Point::ALL.len() / 2;

#[test]
fn a_star_that_dies_at_each_line_of_head_logs_chunks_and_index_comes_back_whole() {
    die_at_each(0..HALF);
}

#[test]
fn a_star_that_dies_at_each_line_of_reclaim_leases_buckets_and_moves_comes_back_whole() {
    die_at_each(HALF..Point::ALL.len());
}
