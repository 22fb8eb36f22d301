//! Does a bad network between a star and its store lose anything, and does Express go on meanwhile?

use std::cell::Cell;
use std::time::Duration;

use client::{Address, Class, Client, ConfigPatch, Options, ProducerOptions, Reason};
use tests::history::{Tag, read_all};
use tests::{Counted, Novad, Proxy, Scratch, Weather, at, eventually, s3_server, within};

use crate::linear;
use crate::network::{Books, opened};

/// Records that Express acks in each gust.
const GUST: usize = 100;
/// Records that Standard acks between two gusts.
const CALM: usize = 5;
const SOON: Duration = Duration::from_secs(60);
/// A writer leaves the others so much time.
const PAUSE: Duration = Duration::from_millis(2);

/// The weather on the way to the store and back, how it is felt, and how much is enough.
struct StoreWeather {
    there: Weather,
    back: Weather,
    felt: fn(&Counted) -> u64,
    enough: u64,
    /// It lasts until a Standard append is refused.
    is_refusing: bool,
}

impl StoreWeather {
    fn both(weather: Weather, felt: fn(&Counted) -> u64, enough: u64) -> Self {
        Self { there: weather, back: weather, felt, enough, is_refusing: false }
    }
}

/// A stream of a class, and what its writers know.
struct Written {
    address: Address,
    books: Books,
    /// Appends that were refused, or answered by nobody.
    unacked: Cell<usize>,
}

impl Written {
    async fn new(client: &Client, class: Class) -> Self {
        let address = at(&class.to_string());
        let config = ConfigPatch { class: Some(class), ..ConfigPatch::default() };
        client.create_stream(&address, config).await.expect("a stream");
        Self { address, books: Books::default(), unacked: Cell::new(0) }
    }

    /// Appends one after the other; what is not acked says honestly that the store is not to be reached.
    async fn write(&self, client: &Client, writer: u32, is_over: &Cell<bool>) {
        let producer = match writer {
            0 => None,
            _ => Some(opened(client, &self.address, &ProducerOptions::default()).await.expect("a session")),
        };
        for index in 0.. {
            if is_over.get() {
                return;
            }
            let tag = Tag { writer, index };
            let body = self.books.send(tag);
            let outcome = match &producer {
                Some(producer) => producer.append([body]).await,
                None => client.append(&self.address, [body]).await,
            };
            if let Err(error) = &outcome {
                self.unacked.set(self.unacked.get() + 1);
                assert_eq!(error.reason(), Reason::Unavailable, "{error}");
            }
            self.books.learn(tag, &outcome);
            tokio::time::sleep(if outcome.is_ok() { PAUSE } else { 10 * PAUSE }).await;
        }
    }

    async fn is_settled(&self, client: &Client) -> bool {
        let info = client.get_stream(&self.address).await.expect("the stream");
        info.settled == info.tail.seq_num
    }
}

fn check(count: u32, weather: &StoreWeather) {
    let Some(server) = s3_server() else { return eprintln!("skipped: it is about a store on S3") };
    let scratch = Scratch::new();
    let proxy = Proxy::before(server, linear::seed());
    let endpoint = format!("http://{}", proxy.addr());
    let hasty = ["--shards", "2", "--settle-age-ms", "50", "--s3-attempt-timeout-ms", "2s"];
    let args = [&["--s3-endpoint", &endpoint], &hasty[..]].concat();
    let mut novad = Novad::start(&scratch.join("data"), &args);
    within(240, async {
        novad.client_with_bucket().await;
        // Longer than the star takes to tell that its store is away.
        let patient = Options::new([novad.addr().to_string()]).request_timeout(SOON);
        let client = Client::new(patient).expect("a client");
        let express = Written::new(&client, Class::Express).await;
        let standard = Written::new(&client, Class::Standard).await;
        let is_over = Cell::new(false);
        let gusts = async {
            for _ in 0..count {
                gust(&proxy, weather, (&express, &standard)).await;
            }
            is_over.set(true);
        };
        tokio::join!(
            gusts,
            express.write(&client, 0, &is_over),
            express.write(&client, 1, &is_over),
            standard.write(&client, 0, &is_over),
            standard.write(&client, 1, &is_over),
        );
        assert_eq!(express.unacked.get(), 0, "Express waits for no store");
        for written in [&express, &standard] {
            eventually(SOON, "all is settled", async || written.is_settled(&client).await).await;
            written.books.check(&read_all(&client, &written.address).await);
        }
        eprintln!("{:?}, {} and {} acked", proxy.counted(), express.books.acked(), standard.books.acked());
        novad.kill9();
        novad.restart();
        for written in [&express, &standard] {
            eventually(SOON, "it serves", async || client.check_tail(&written.address).await.is_ok()).await;
            written.books.check(&read_all(&client, &written.address).await);
        }
    });
}

/// Express goes on while the weather is bad, and Standard when it is not.
async fn gust(proxy: &Proxy, weather: &StoreWeather, (express, standard): (&Written, &Written)) {
    let (felt, acked, unacked) = ((weather.felt)(&proxy.counted()), express.books.acked(), standard.unacked.get());
    proxy.set_ways(weather.there, weather.back);
    let goes_on = async || {
        let is_felt = (weather.felt)(&proxy.counted()) >= felt + weather.enough;
        let is_told = !weather.is_refusing || standard.unacked.get() > unacked;
        is_felt && is_told && express.books.acked() >= acked + GUST
    };
    eventually(SOON, "the weather is felt, and Express goes on", goes_on).await;
    proxy.set(Weather::Clear);
    let acked = standard.books.acked();
    eventually(SOON, "Standard is back", async || standard.books.acked() >= acked + CALM).await;
}

#[test]
fn a_store_that_answers_late_is_waited_for() {
    check(2, &StoreWeather::both(Weather::Delay { by: Duration::from_millis(150) }, |counted| counted.late, 20));
}

#[test]
fn a_store_whose_bytes_drip_is_waited_for() {
    let drip = Weather::Drip { bytes: 500, pause: Duration::from_millis(2) };
    check(2, &StoreWeather::both(drip, |counted| counted.late, 200));
}

#[test]
fn requests_to_a_store_that_are_reset_are_asked_again_and_lose_nothing() {
    check(3, &StoreWeather::both(Weather::Reset { bytes_max: 6_000 }, |counted| counted.resets, 10));
}

#[test]
fn requests_to_a_store_that_end_in_the_middle_lose_nothing() {
    check(3, &StoreWeather::both(Weather::HalfClose { bytes_max: 6_000 }, |counted| counted.half_closes, 10));
}

#[test]
fn a_store_that_falls_silent_is_away_until_it_answers_again() {
    let hole = StoreWeather::both(Weather::BlackHole, |counted| counted.lost_bytes, 1);
    check(1, &StoreWeather { is_refusing: true, ..hole });
}

/// What was put is there, and the star has not heard of it.
#[test]
fn a_store_whose_answers_never_come_is_away_and_what_it_took_is_found() {
    let hole = StoreWeather::both(Weather::BlackHole, |counted| counted.lost_bytes, 1);
    check(1, &StoreWeather { there: Weather::Clear, is_refusing: true, ..hole });
}

#[test]
fn answers_of_a_store_with_flipped_bits_lose_nothing() {
    let flips = StoreWeather::both(Weather::Flip { bytes_max: 4_000 }, |counted| counted.flips, 20);
    check(3, &StoreWeather { there: Weather::Clear, ..flips });
}
