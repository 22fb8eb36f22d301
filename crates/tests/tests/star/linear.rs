//! Do the answers of a star to clients of every kind fit one order, with and without kills?

mod asker;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::{Address, Client, ConfigPatch, Options, ProducerOptions, ProducerPolicy};
use futures_util::future::join_all;
use tests::history::{check_dense, read_all};
use tests::linear::{self, Answer, Ask, History, Operation, ReadBack, Token};
use tests::{Dice, Novad, Scratch, at, load_of, soaked, within};

pub(crate) use self::asker::is_about_damage;
use self::asker::{Asker, number, token};

/// Decides what is asked, as far as the times don't; drawn anew where it isn't set.
const SEED: &str = "NOVA_TEST_LINEAR_SEED";
/// Clients of each kind: one-shots over the wire, over HTTP, and sessions.
const MIXED: [u32; 3] = [3, 3, 2];
const WIRE_ALONE: [u32; 3] = [5, 0, 3];
const HTTP_ALONE: [u32; 3] = [0, 8, 0];
/// A history that is searched.
const SEARCHED: Length = Length { operations_max: 3_000, steps_max: 3_000_000 };
/// One that is too long for it, and held against its times.
const LONG: Length = Length { operations_max: 400_000, steps_max: 0 };
/// Clients ask for so long at most.
const LOAD_MAX: Duration = Duration::from_secs(7);
const KILLS: u32 = 8;
/// Operations between a start and a kill, and how long that may take.
const LOAD: Range<u64> = 300..1_200;
/// The same of a long history.
const LONG_KILLS: u32 = 3;
const LONG_LOAD: Range<u64> = 8_000..16_000;
const LOAD_WITHIN: Duration = Duration::from_secs(8);

/// How long a history gets, and how many steps a search of it may take; none when it is not searched.
#[derive(Debug, Clone, Copy)]
struct Length {
    operations_max: usize,
    steps_max: u64,
}

/// A stream, and all that is known of it.
#[derive(Debug)]
struct Watched {
    address: Address,
    is_fenced: bool,
    operations: RefCell<Vec<Operation>>,
    /// Records that were sent.
    records: Cell<u64>,
    /// Tokens that were made.
    tokens: Cell<u32>,
    /// Batches with an idempotency key that were sent.
    keyed: Cell<u64>,
    /// The tail and the trim point, as they were told last.
    tail: Cell<u64>,
    trim_point: Cell<u64>,
}

impl Watched {
    async fn new(client: &Client, key: &str, producer_policy: ProducerPolicy) -> Self {
        let config = ConfigPatch { producer_policy: Some(producer_policy), ..ConfigPatch::default() };
        client.create_stream(&at(key), config).await.expect("a stream");
        Self {
            address: at(key),
            is_fenced: producer_policy == ProducerPolicy::Fenced,
            operations: RefCell::default(),
            records: Cell::new(0),
            tokens: Cell::new(0),
            keyed: Cell::new(0),
            tail: Cell::new(0),
            trim_point: Cell::new(0),
        }
    }

    /// What to ask next: mostly something that is near to what the stream will take.
    fn ask(&self, dice: &mut Dice) -> Ask {
        let tail = self.tail.get();
        match dice.below(100) {
            0..45 => self.append(dice),
            45..50 => {
                self.tokens.set(self.tokens.get() + 1);
                Ask::Fence(Token::new(self.tokens.get()))
            }
            50..51 => Ask::Fence(Token::NONE),
            51..54 => Ask::Trim(tail.saturating_sub(dice.below(120))),
            54..74 if dice.is_one_of(3) => Ask::Read((self.trim_point.get() + 2).saturating_sub(dice.below(4))),
            54..74 => Ask::Read((tail + 2).saturating_sub(dice.below(40))),
            74..90 => Ask::Tail,
            _ => Ask::Token,
        }
    }

    fn append(&self, dice: &mut Dice) -> Ask {
        let start = self.records.get();
        let end = start + 1 + dice.below(3);
        self.records.set(end);
        let match_seq_num = dice.is_one_of(3).then(|| self.tail.get() + dice.below(6) / 5);
        let newest = self.tokens.get();
        let token = match dice.below(8) {
            0 => newest.saturating_sub(1),
            1..3 => 0,
            _ if self.is_fenced || dice.is_one_of(2) => newest,
            _ => 0,
        };
        let token = if token == 0 { Token::NONE } else { Token::new(token) };
        Ask::Append { records: start..end, match_seq_num, token }
    }

    fn note(&self, operation: Operation) {
        match operation.answer {
            Some((_, Answer::Tail(tail) | Answer::Mismatch(tail) | Answer::PastTail(tail))) => self.tail.set(tail),
            Some((_, Answer::Page { tail, trim_point, .. } | Answer::BelowTrimPoint { tail, trim_point })) => {
                self.tail.set(tail);
                self.trim_point.set(trim_point);
            }
            Some((_, Answer::Appended(start))) => self.tail.set(start + 1),
            _ => {}
        }
        self.operations.borrow_mut().push(operation);
    }

    /// What is there, after all were answered.
    async fn read_back(&self, client: &Client) -> ReadBack {
        let info = client.get_stream(&self.address).await.expect("the stream");
        let records = read_all(client, &self.address).await;
        check_dense(&records);
        let (trim_point, tail) = (info.trim_point.get(), info.tail.seq_num.get());
        assert_eq!(records.len() as u64, tail - trim_point, "{}: {trim_point}..{tail}", self.address);
        assert!(records.first().is_none_or(|first| first.seq_num == info.trim_point), "{}", self.address);
        ReadBack { trim_point, records: records.iter().map(number).collect() }
    }
}

/// All that goes on.
pub(crate) struct Run {
    seed: u64,
    length: Length,
    since: Instant,
    streams: Vec<Watched>,
    pub(crate) is_over: Cell<bool>,
    /// Counts what may end a connection.
    turns: Box<dyn Fn() -> u64>,
}

/// What decides a run, and is told to who wants to see it again.
pub(crate) fn seed() -> u64 {
    let drawn = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros() % 1_000_000_007;
    let set = std::env::var(SEED).ok().filter(|seed| !seed.is_empty());
    let seed = set.map_or_else(
        || u64::try_from(drawn()).expect("below the bound"),
        |seed| seed.parse().unwrap_or_else(|_| panic!("{SEED} is `{seed}`: it must be a number")),
    );
    eprintln!("{SEED}={seed}");
    seed
}

impl Run {
    pub(crate) async fn new(client: &Client, seed: u64, turns: impl Fn() -> u64 + 'static) -> Self {
        let streams = vec![
            Watched::new(client, "shared", ProducerPolicy::Any).await,
            Watched::new(client, "also-shared", ProducerPolicy::Any).await,
            Watched::new(client, "fenced", ProducerPolicy::Fenced).await,
        ];
        let (since, is_over) = (Instant::now(), Cell::new(false));
        Self { seed, length: SEARCHED, since, streams, is_over, turns: Box::new(turns) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).expect("centuries")
    }

    /// Askers with clients of the wire and of HTTP.
    pub(crate) async fn askers(&self, wire: &Options, http: &Options) -> Vec<Asker> {
        self.askers_of(MIXED, wire, http).await
    }

    /// So many of each kind.
    async fn askers_of(&self, many_of: [u32; 3], wire: &Options, http: &Options) -> Vec<Asker> {
        let mut askers = Vec::new();
        for (kind, many) in many_of.into_iter().enumerate() {
            for _ in 0..many {
                let number = u32::try_from(askers.len()).expect("few");
                let client = Client::new(if kind == 1 { http.clone() } else { wire.clone() }).expect("a client");
                let mut sessions = Vec::new();
                for watched in self.streams.iter().filter(|watched| kind == 2 && !watched.is_fenced) {
                    let options = ProducerOptions::default();
                    sessions.push(Some(client.open(&watched.address, options).await.expect("a session")));
                }
                askers.push(Asker { number, client, sessions, dice: Dice::new(self.seed ^ u64::from(number) << 32) });
            }
        }
        askers
    }

    /// Asks one thing after the other until it is over.
    pub(crate) async fn ask(&self, mut asker: Asker) {
        let is_long = |watched: &Watched| watched.operations.borrow().len() >= self.length.operations_max;
        while !self.is_over.get() && !self.streams.iter().all(is_long) {
            let index = usize::try_from(asker.dice.below(self.streams.len() as u64)).expect("few");
            let watched = &self.streams[index];
            if is_long(watched) {
                continue;
            }
            let ask = watched.ask(&mut asker.dice);
            let (call, turn) = (self.now(), (self.turns)());
            let answer = asker.put(index, watched, &ask).await;
            let client = asker.number;
            if matches!(ask, Ask::Trim(_)) && answer.is_some() && turn != (self.turns)() {
                // A trim that is asked again may have been done by the first attempt, and be answered by the second.
                watched.note(Operation { client, call, ask: ask.clone(), answer: None });
            }
            watched.note(Operation { client, call, ask, answer: answer.map(|answer| (self.now(), answer)) });
        }
    }

    /// Waits until so many more operations are done.
    async fn load(&self, operations: u64) {
        let done = || self.streams.iter().map(|watched| watched.operations.borrow().len() as u64).sum::<u64>();
        let (until, enough) = (Instant::now() + LOAD_WITHIN, done() + operations);
        while done() < enough && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Holds all that was answered against what is there; answers the history of each stream.
    pub(crate) async fn check(&self, client: &Client) -> Vec<History> {
        let mut histories = Vec::new();
        for watched in &self.streams {
            let mut operations = watched.operations.borrow().clone();
            let call = self.now();
            let token = token(&client.fencing_token(&watched.address).await.expect("the token"));
            let answer = Some((self.now(), Answer::Token(token)));
            operations.push(Operation { client: u32::MAX, call, ask: Ask::Token, answer });
            let history =
                History { is_fenced: watched.is_fenced, operations, read_back: watched.read_back(client).await };
            match linear::check(&history, self.length.steps_max) {
                Ok(checked) => {
                    eprintln!("{}: {checked:?}", watched.address);
                    let kind =
                        if checked.steps > 0 { "operations in one order" } else { "operations true to their times" };
                    eprintln!("check 7: {} {kind}, seed {}", checked.operations, self.seed);
                }
                Err(fault) => panic!("{} of {SEED}={}: {fault}", watched.address, self.seed),
            }
            histories.push(history);
        }
        histories
    }

    /// There was a load on each stream, with answers of each kind; and without kills all was answered.
    fn check_load(&self, histories: &[History]) {
        self.streams.iter().zip(histories).for_each(|(watched, history)| self.check_load_of(watched, history));
    }

    fn check_load_of(&self, watched: &Watched, history: &History) {
        let many = |is: fn(&Answer) -> bool| {
            history
                .operations
                .iter()
                .filter_map(|operation| operation.answer.as_ref())
                .filter(|(_, told)| is(told))
                .count()
        };
        let appended = many(|told| matches!(told, Answer::Appended(_)));
        assert!(appended >= load_of(100), "{}: {appended} appends", watched.address);
        for (what, found) in [
            ("mismatch", many(|told| matches!(told, Answer::Mismatch(_)))),
            ("fenced out", many(|told| matches!(told, Answer::FencedOut(_)))),
            ("trim", many(|told| matches!(told, Answer::Trimmed(_)))),
            ("page", many(|told| matches!(told, Answer::Page { .. }))),
        ] {
            assert!(found > 0, "{}: no {what} among {} operations", watched.address, history.operations.len());
        }
        let open = history.operations.iter().find(|operation| operation.answer.is_none());
        assert!((self.turns)() > 0 || open.is_none(), "{}: nobody answered {open:?}", watched.address);
    }
}

/// Clients ask without a kill, until there is enough.
fn play(clients: [u32; 3], seed: u64) {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &["--shards", "2", "--http", "127.0.0.1:0"]);
    within(60, async {
        let client = novad.client_with_bucket().await;
        let run = Run::new(&client, seed, || 0).await;
        let askers = run.askers_of(clients, &of_wire(&novad), &of_http(novad.http())).await;
        let clock = async {
            tokio::time::sleep(LOAD_MAX).await;
            run.is_over.set(true);
            // What is asked is still to be answered.
            std::future::pending().await
        };
        tokio::select! {
            _ = join_all(askers.into_iter().map(|asker| run.ask(asker))) => {}
            () = clock => {}
        }
        run.check_load(&run.check(&client).await);
    });
}

/// Seeds from the first on, as many as are wanted.
fn seeds() -> impl Iterator<Item = u64> {
    let first = seed();
    (0..u64::from(soaked(1))).map(move |number| first.wrapping_add(number))
}

#[test]
fn all_answers_fit_one_order() {
    seeds().for_each(|seed| play(MIXED, seed));
}

#[test]
fn all_answers_over_the_wire_alone_fit_one_order() {
    seeds().for_each(|seed| play(WIRE_ALONE, seed));
}

#[test]
fn all_answers_over_http_alone_fit_one_order() {
    seeds().for_each(|seed| play(HTTP_ALONE, seed));
}

fn of_wire(novad: &Novad) -> Options {
    Options::new([novad.addr().to_string()])
}

fn of_http(addr: SocketAddr) -> Options {
    Options::new([format!("http://{addr}")])
}

/// Clients ask while the star is killed `kills` times, with `load` operations before each, and after the last one.
fn play_over_kills(length: Length, seed: u64, (kills, load): (u32, Range<u64>)) {
    let scratch = Scratch::new();
    // A port of its own, so that clients find it again after a kill.
    let http = Novad::unstarted(&scratch.join("unused"), &[]).addr().to_string();
    let mut novad = Novad::start(&scratch.join("data"), &["--shards", "2", "--http", &http]);
    within(90, async {
        let client = novad.client_with_bucket().await;
        let turns = Rc::new(Cell::new(0));
        let count = Rc::clone(&turns);
        let run = Run { length, ..Run::new(&client, seed, move || count.get()).await };
        let askers = run.askers(&of_wire(&novad), &of_http(novad.http())).await;
        let kills = async {
            let mut dice = Dice::new(run.seed);
            for _ in 0..kills {
                run.load(load.start + dice.below(load.end - load.start)).await;
                turns.set(turns.get() + 1);
                novad.kill9();
                novad = novad.beside(Novad::restart).await;
                turns.set(turns.get() + 1);
            }
            run.load(load.start).await;
            run.is_over.set(true);
            novad
        };
        let (mut novad, _asked) = tokio::join!(kills, join_all(askers.into_iter().map(|asker| run.ask(asker))));
        run.check_load(&run.check(&client).await);
        let is_open = |operation: &Operation| operation.answer.is_none();
        let open = run.streams.iter().any(|watched| watched.operations.borrow().iter().any(is_open));
        assert!(open, "the kills came under load");
        novad.kill9();
        novad.restart();
        run.check_load(&run.check(&client).await);
    });
}

#[test]
fn all_answers_fit_one_order_over_kills() {
    seeds().for_each(|seed| play_over_kills(SEARCHED, seed, (KILLS, LOAD)));
}

/// The more there is, the more of it goes on at once with what a search has no time for.
#[test]
fn a_long_history_over_kills_is_true_to_its_times() {
    seeds().for_each(|seed| play_over_kills(LONG, seed, (LONG_KILLS, LONG_LOAD)));
}
