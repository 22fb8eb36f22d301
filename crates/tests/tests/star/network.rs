//! Does a bad network between clients and a star lose, double, reorder or change anything?

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use client::{
    Address, Appended, Client, ConfigPatch, Error, FencingToken, Options, Producer, ProducerOptions, ProducerPolicy,
    Reason, Record, SubscribeOptions, Subscription, Ticket,
};
use futures_util::future::join_all;
use rustix::process::Signal;
use tests::history::{Tag, check_dense, read_all};
use tests::{Counted, Novad, Proxy, Scratch, Weather, at, eventually, text, within};

use crate::linear::{self, Run, is_about_damage};

/// Records of a session that wait for their acks.
const IN_FLIGHT: usize = 32;
const RECORD_BYTES: usize = 300;
/// A session leaves the others so much time.
const PAUSE: Duration = Duration::from_millis(1);
/// Records of each fencing token.
const GENERATION: u64 = 30;
/// Records that are acked between two gusts.
const CALM: usize = 100;
/// A gust and a calm take at most so long.
const SOON: Duration = Duration::from_secs(30);
/// Longer than clients bear silence.
const STOPPED: Duration = Duration::from_secs(5);
/// Who writes the last record of a stream that is followed.
const LAST: u32 = u32::MAX;

/// What became of a record, as far as its writer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It may be there or not.
    Open,
    /// It was acked here.
    At(u64),
    /// It was refused, and is not there.
    Refused,
}

/// What the writers of a stream know of their records.
#[derive(Debug, Default)]
pub(crate) struct Books(RefCell<BTreeMap<Tag, Fate>>);

impl Books {
    /// A record is sent; answers its body.
    pub(crate) fn send(&self, tag: Tag) -> String {
        assert_eq!(self.0.borrow_mut().insert(tag, Fate::Open), None, "{tag:?} is sent once");
        tag.body(RECORD_BYTES)
    }

    /// The writer of a record was told this.
    pub(crate) fn learn(&self, tag: Tag, outcome: &Result<Appended, Error>) {
        let fate = match outcome {
            Ok(ack) => Fate::At(ack.start.seq_num.get()),
            Err(error) if error.no_side_effect() => Fate::Refused,
            Err(_) => Fate::Open,
        };
        self.0.borrow_mut().insert(tag, fate);
    }

    pub(crate) fn acked(&self) -> usize {
        self.0.borrow().values().filter(|fate| matches!(fate, Fate::At(_))).count()
    }

    /// Holds a whole stream against what was sent and told: each acked record stands where it was acked and no other is
    /// there than those that may be, each once, as it was sent, in the order of its writer.
    pub(crate) fn check(&self, records: &[Record]) {
        self.check_set(records);
        let mut last = BTreeMap::new();
        for record in records {
            let tag = Tag::of(record);
            let before = last.insert(tag.writer, tag.index);
            assert!(before < Some(tag.index), "{tag:?} at {} comes after {before:?}", record.seq_num);
        }
    }

    /// The same in any order.
    fn check_set(&self, records: &[Record]) {
        check_dense(records);
        let fates = self.0.borrow();
        let mut found = BTreeSet::new();
        for record in records {
            let (tag, seq_num) = (Tag::of(record), record.seq_num.get());
            assert_eq!(text(record), tag.body(RECORD_BYTES), "as it was sent");
            match fates.get(&tag) {
                Some(Fate::At(place)) => assert_eq!(*place, seq_num, "{tag:?} stands elsewhere than it was acked"),
                Some(Fate::Open) => {}
                fate => panic!("{tag:?} stands at {seq_num}: {fate:?}"),
            }
            assert!(found.insert(tag), "{tag:?} stands twice");
        }
        let is_missing = |(tag, fate): &(&Tag, &Fate)| matches!(fate, Fate::At(_)) && !found.contains(*tag);
        let missing: Vec<_> = fates.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "acked and not there: {missing:?}");
    }
}

/// A session, opened as often as it takes.
pub(crate) async fn opened(client: &Client, address: &Address, options: &ProducerOptions) -> Result<Producer, Error> {
    loop {
        match client.open(address, options.clone()).await {
            Ok(producer) => return Ok(producer),
            Err(error) if error.retryable() || is_about_damage(&error) => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A star, its clients, and the network between them.
struct Scene {
    wire: Rc<Proxy>,
    http: Rc<Proxy>,
    /// On the way of who follows over HTTP.
    feed: Proxy,
    /// Connections end also where the proxies see nothing of it: inside of the star.
    is_stopped: Rc<Cell<bool>>,
    direct: Client,
    /// Reaches the star through the network.
    client: Client,
    run: Run,
    session: Books,
    generations: Books,
    /// Where each generation began that was told so, with its number.
    boundaries: RefCell<Vec<(u32, u64)>>,
}

/// Counts what may have ended a connection; once the star was stopped, as if one ended at any time.
fn turns(ways: [&Rc<Proxy>; 2], is_stopped: &Rc<Cell<bool>>) -> impl Fn() -> u64 + 'static {
    let (ways, is_stopped, asked) = (ways.map(Rc::clone), Rc::clone(is_stopped), Cell::new(0));
    move || {
        asked.set(asked.get() + u64::from(is_stopped.get()));
        ways.iter().map(|way| way.counted().breaks()).sum::<u64>() + asked.get()
    }
}

/// Clients that take a star for gone neither because its machine is busy nor for good.
fn options(addr: impl ToString) -> Options {
    Options::new([addr.to_string()])
        .connect_timeout(Duration::from_secs(10))
        .connect_budget(Duration::from_secs(30))
        .request_timeout(Duration::from_secs(8))
        .retry_budget(Duration::from_secs(60))
}

/// The same over HTTP, where silence is noticed by nothing else than this.
fn over_http(proxy: &Proxy) -> Options {
    options(format!("http://{}", proxy.addr())).request_timeout(Duration::from_secs(3))
}

impl Scene {
    async fn new(novad: &Novad) -> Self {
        let seed = linear::seed();
        let wire = Rc::new(Proxy::before(novad.addr().to_string(), seed));
        let http = Rc::new(Proxy::before(novad.http().to_string(), !seed));
        let feed = Proxy::before(novad.http().to_string(), seed.rotate_left(32));
        let direct = novad.client_with_bucket().await;
        let fenced = ConfigPatch { producer_policy: Some(ProducerPolicy::Fenced), ..ConfigPatch::default() };
        direct.create_stream(&at("generations"), fenced).await.expect("a stream");
        direct.create_stream(&at("session"), ConfigPatch::default()).await.expect("a stream");
        let is_stopped = Rc::new(Cell::new(false));
        let run = Run::new(&direct, seed, turns([&wire, &http], &is_stopped)).await;
        let client = Client::new(options(wire.addr())).expect("a client");
        let (session, generations) = (Books::default(), Books::default());
        let boundaries = RefCell::default();
        Self { wire, http, feed, is_stopped, direct, client, run, session, generations, boundaries }
    }

    /// Goes on in one session whatever happens: all it sends is acked, but for what arrives damaged.
    async fn write_session(&self) {
        let with = ProducerOptions::default().batch_bytes_max(4 * RECORD_BYTES);
        let producer = opened(&self.client, &at("session"), &with).await.expect("a session");
        let mut tickets: VecDeque<(Tag, Ticket)> = VecDeque::new();
        let take = async |(tag, ticket): (Tag, Ticket)| {
            let outcome = ticket.await;
            let damage = outcome.as_ref().err().filter(|error| !is_about_damage(error));
            assert!(damage.is_none(), "the session goes on: {damage:?}");
            self.session.learn(tag, &outcome);
        };
        for index in 0.. {
            if self.run.is_over.get() {
                break;
            }
            let tag = Tag { writer: 1, index };
            let ticket = producer.submit([self.session.send(tag)]).await.expect("the session goes on");
            tickets.push_back((tag, ticket));
            if tickets.len() >= IN_FLIGHT {
                take(tickets.pop_front().expect("one")).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
        for ticket in tickets {
            take(ticket).await;
        }
        producer.close().await.expect("it closes");
    }

    /// Takes a stream over again and again, with a token of its own each time.
    async fn write_generations(&self) {
        for generation in 1.. {
            if self.run.is_over.get() {
                return;
            }
            let token = FencingToken::new(&format!("gen-{generation}")).expect("a token");
            // One that was not answered may be in force all the same, or come late; the next one is the answer to that.
            let Ok(boundary) = self.client.fence(&at("generations"), &token).await else { continue };
            self.boundaries.borrow_mut().push((generation, boundary.seq_num.get()));
            match opened(&self.client, &at("generations"), &ProducerOptions::default().fencing_token(token)).await {
                Ok(producer) => self.write_generation(generation, &producer).await,
                Err(error) => assert_eq!(error.reason(), Reason::FencedOut, "{error}"),
            }
        }
    }

    async fn write_generation(&self, writer: u32, producer: &Producer) {
        let mut tickets = Vec::new();
        for index in 0..GENERATION {
            let tag = Tag { writer, index };
            match producer.submit([self.generations.send(tag)]).await {
                Ok(ticket) => tickets.push((tag, ticket)),
                Err(error) => self.generations.learn(tag, &Err(error)),
            }
        }
        for (tag, ticket) in tickets {
            let outcome = ticket.await;
            let is_honest = |error: &Error| error.reason() == Reason::FencedOut || is_about_damage(error);
            assert!(outcome.as_ref().map_or_else(is_honest, |_| true), "{tag:?}: {outcome:?}");
            self.generations.learn(tag, &outcome);
        }
    }

    /// Blows so often until this much more has happened, and waits each time until the writers are back.
    async fn blow(&self, gusts: u32, weather: &Blow) {
        for _ in 0..gusts {
            let before = (weather.felt)(&self.wire.counted());
            self.wire.set_ways(weather.there, weather.back);
            if weather.over_http {
                self.http.set_ways(weather.there, weather.back);
            }
            if weather.over_http && weather.back != Weather::BlackHole {
                // A read that waits is given up only after its wait.
                self.feed.set_ways(weather.there, weather.back);
            }
            let is_felt = async || (weather.felt)(&self.wire.counted()) >= before + weather.enough;
            eventually(SOON, "the weather is felt", is_felt).await;
            [&*self.wire, &*self.http, &self.feed].into_iter().for_each(|way| way.set(Weather::Clear));
            self.is_calm().await;
        }
    }

    /// Waits until the session has gone on for a while.
    async fn is_calm(&self) {
        let before = self.session.acked();
        let goes_on = async || self.session.acked() >= before + CALM;
        eventually(SOON, "the session goes on", goes_on).await;
    }

    /// Lets all clients work through a storm and then come to an end, and holds what they know against what is there.
    async fn play(&self, storm: impl Future<Output = ()>) {
        let askers = self.run.askers(&options(self.wire.addr()), &over_http(&self.http)).await;
        let mut followers = Vec::new();
        let http = Client::new(over_http(&self.feed)).expect("a client");
        for (client, credit_bytes) in [(&self.client, 64 << 10), (&self.client, 1 << 20), (&http, 1 << 20)] {
            let with = SubscribeOptions::from(0).credit_bytes(credit_bytes);
            followers.push(client.subscribe(&at("session"), with).await.expect("a subscription"));
        }
        let writers = async {
            let asked = join_all(askers.into_iter().map(|asker| self.run.ask(asker)));
            let storm = async {
                self.is_calm().await;
                storm.await;
                self.run.is_over.set(true);
            };
            tokio::join!(asked, self.write_session(), self.write_generations(), storm);
            let last = Tag { writer: LAST, index: 0 };
            let outcome = self.direct.append(&at("session"), [self.session.send(last)]).await;
            self.session.learn(last, &outcome);
        };
        let ((), followed) = tokio::join!(writers, join_all(followers.into_iter().map(follow)));
        self.check(&followed).await;
    }

    async fn check(&self, followed: &[Vec<Record>]) {
        let records = read_all(&self.direct, &at("session")).await;
        self.session.check(&records);
        for seen in followed {
            assert_eq!(seen.len(), records.len(), "a follower sees each record once");
            assert!(*seen == records, "as it is there");
        }
        let records = read_all(&self.direct, &at("generations")).await;
        self.generations.check(&records);
        for (generation, boundary) in self.boundaries.borrow().iter() {
            let is_before = |record: &Record| record.seq_num.get() < *boundary;
            let fits = records.iter().all(|record| is_before(record) == (Tag::of(record).writer < *generation));
            assert!(fits, "generation {generation} begins at {boundary}");
        }
        assert!(self.boundaries.borrow().len() > 1 && self.generations.acked() > 0, "there was a load");
        self.run.check(&self.direct).await;
        eprintln!("{:?}, {} acked, {:?}", self.wire.counted(), self.session.acked(), self.http.counted());
    }
}

/// Takes what comes up to the last record.
async fn follow(mut subscription: Subscription) -> Vec<Record> {
    let mut seen: Vec<Record> = Vec::new();
    loop {
        let page = subscription.next().await.expect("more").expect("it resumes by itself");
        for record in page.records {
            assert_eq!(record.seq_num.get(), seen.len() as u64, "no gap and no repeat");
            seen.push(record);
        }
        if seen.last().is_some_and(|last| Tag::of(last).writer == LAST) {
            return seen;
        }
    }
}

/// The weather of a gust, how it is felt on the wire, and how much is enough.
struct Blow {
    there: Weather,
    back: Weather,
    over_http: bool,
    felt: fn(&Counted) -> u64,
    enough: u64,
}

impl Blow {
    fn both(weather: Weather, felt: fn(&Counted) -> u64, enough: u64) -> Self {
        Self { there: weather, back: weather, over_http: true, felt, enough }
    }
}

fn star(scratch: &Scratch) -> Novad {
    // So that the silence of a hole is noticed soon.
    let more = ["--shards", "2", "--keepalive-ms", "2s", "--http", "127.0.0.1:0"];
    Novad::start(&scratch.join("data"), &more)
}

fn check(gusts: u32, weather: &Blow) {
    let scratch = Scratch::new();
    let novad = star(&scratch);
    within(120, async {
        let scene = Scene::new(&novad).await;
        scene.play(scene.blow(gusts, weather)).await;
    });
}

#[test]
fn delays_change_nothing() {
    check(2, &Blow::both(Weather::Delay { by: Duration::from_millis(30) }, |counted| counted.late, 300));
}

#[test]
fn bytes_that_drip_change_nothing() {
    let drip = Weather::Drip { bytes: 160, pause: Duration::from_millis(1) };
    check(2, &Blow::both(drip, |counted| counted.late, 3_000));
}

#[test]
fn frames_in_small_pieces_change_nothing() {
    check(2, &Blow::both(Weather::Split { bytes_max: 60 }, |counted| counted.split, 10_000));
}

#[test]
fn resets_lose_and_double_nothing() {
    check(4, &Blow::both(Weather::Reset { bytes_max: 20_000 }, |counted| counted.resets, 20));
}

#[test]
fn ways_that_end_in_the_middle_of_a_frame_lose_and_double_nothing() {
    check(4, &Blow::both(Weather::HalfClose { bytes_max: 20_000 }, |counted| counted.half_closes, 20));
}

#[test]
fn connections_that_fall_silent_are_given_up_and_lose_and_double_nothing() {
    check(1, &Blow::both(Weather::BlackHole, |counted| counted.lost_bytes, 2_000));
}

/// What was sent is done, and nobody hears of it.
#[test]
fn answers_that_never_come_double_nothing() {
    let hole = Blow::both(Weather::BlackHole, |counted| counted.lost_bytes, 2_000);
    check(1, &Blow { there: Weather::Clear, ..hole });
}

/// HTTP has no sums of its own, so that it stays in the clear.
#[test]
fn flipped_bits_are_found_and_change_nothing() {
    let flips = Blow::both(Weather::Flip { bytes_max: 12_000 }, |counted| counted.flips, 40);
    check(4, &Blow { over_http: false, ..flips });
}

#[test]
fn a_star_that_is_stopped_for_seconds_goes_on_where_it_was() {
    let scratch = Scratch::new();
    let novad = star(&scratch);
    within(120, async {
        let scene = Scene::new(&novad).await;
        let stop = async {
            scene.is_stopped.set(true);
            novad.signal(Signal::STOP);
            tokio::time::sleep(STOPPED).await;
            novad.signal(Signal::CONT);
            scene.is_calm().await;
        };
        scene.play(stop).await;
    });
}
