//! What do writers of every kind do to a star that dies under them, and what do they know of it afterwards?

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use client::{
    Address, BucketId, BucketName, BucketSpec, Class, Client, ConfigPatch, Options, Producer, ProducerOptions, Reason,
    Record, SeqNum, Ticket,
};
use tests::history::{Acked, Tag, read_all};
use tests::{Novad, at};

use crate::store_moves::{self, Known};

const RECORD_BYTES: usize = 300;
/// A large record, so that segments roll.
const LARGE_BYTES: usize = 60_000;
/// What a stream of large records keeps.
const LARGE_KEPT_BYTES: u64 = 1 << 20;
/// Batches that a session has in flight.
const IN_FLIGHT: usize = 8;
/// Records that a session's stream is trimmed to, about.
const KEPT: u64 = 600;
/// A one-shot writer and a session leave the others so much time.
const PAUSE: Duration = Duration::from_millis(2);

/// Tells writers that the star is gone.
#[derive(Debug, Default)]
pub(crate) struct Whistle {
    pub(crate) is_over: Cell<bool>,
}

/// A client that gives up soon: the star may be dead.
pub(crate) fn impatient(novad: &Novad) -> Client {
    let soon = Duration::from_millis(200);
    let options = Options::new([novad.addr().to_string()]).retry_budget(soon).connect_budget(soon);
    Client::new(options.request_timeout(Duration::from_secs(4))).expect("a client")
}

async fn made(client: &Client, key: &str, config: ConfigPatch) -> Address {
    let address = at(key);
    client.create_stream(&address, config).await.expect("a stream");
    address
}

fn of_class(class: Class) -> ConfigPatch {
    ConfigPatch { class: Some(class), ..ConfigPatch::default() }
}

/// All writers of a star.
pub(crate) struct Load {
    sessions: Vec<Session>,
    one_shots: Vec<OneShots>,
    reborn: Vec<Reborn>,
    moved: (Address, RefCell<Known>),
    passing: Passing,
    large: Large,
}

impl Load {
    pub(crate) async fn new(novad: &Novad) -> Self {
        let client = novad.client_with_bucket().await;
        let moved = made(&client, "moved", ConfigPatch::default()).await;
        client.fence(&moved, &store_moves::token(0)).await.expect("a fence");
        let (mut sessions, mut one_shots, mut reborn) = (Vec::new(), Vec::new(), Vec::new());
        for class in [Class::Express, Class::Standard] {
            sessions.push(Session::new(&client, class).await);
            one_shots.push(OneShots::new(&client, class).await);
            reborn.push(Reborn::new(class));
        }
        let large = Large::new(&client).await;
        Self { sessions, one_shots, reborn, moved: (moved, RefCell::default()), passing: Passing::default(), large }
    }

    /// Writes until the round is over.
    pub(crate) async fn run(&self, client: &Client, round: &Whistle) {
        let sessions = futures_util::future::join_all(self.sessions.iter().map(|one| one.run(client, round)));
        let one_shots = futures_util::future::join_all(self.one_shots.iter().map(|one| one.run(client, round)));
        let reborn = futures_util::future::join_all(self.reborn.iter().map(|one| one.run(client, round)));
        let moved = store_moves::work(client, &self.moved.0, &self.moved.1, &round.is_over);
        tokio::join!(
            sessions,
            one_shots,
            reborn,
            moved,
            self.passing.run(client, round),
            self.large.run(client, round)
        );
    }

    /// Holds what is there against what is known.
    pub(crate) async fn check(&self, novad: &Novad) {
        let client = novad.client();
        for one in &self.sessions {
            one.check(&client).await;
        }
        for one in &self.one_shots {
            one.check(&client).await;
        }
        for one in &self.reborn {
            one.check(&client).await;
        }
        let mut known = self.moved.1.take();
        store_moves::check(&client, &self.moved.0, &mut known).await;
        self.moved.1.replace(known);
        self.passing.check(&client).await;
        self.large.check(&client).await;
    }

    /// Waits for the acks of sessions, and holds each of their streams against all that was sent.
    pub(crate) async fn finish(&self, novad: &Novad) {
        for session in &self.sessions {
            session.finish().await;
            session.check(&novad.client()).await;
        }
    }

    /// How much was acked.
    pub(crate) fn acked(&self) -> u64 {
        self.sessions.iter().map(|one| one.known.borrow().sent).sum()
    }

    /// Every stream that is there.
    pub(crate) fn streams(&self) -> Vec<Address> {
        let sessions = self.sessions.iter().map(|one| &one.address);
        let one_shots = self.one_shots.iter().map(|one| &one.address);
        sessions.chain(one_shots).chain([&self.moved.0, &self.large.address]).cloned().collect()
    }

    /// Streams that may be there.
    pub(crate) fn perhaps_streams(&self) -> Vec<Address> {
        self.reborn.iter().map(|one| one.address.clone()).collect()
    }
}

/// What the writer of one stream knows.
#[derive(Debug, Default)]
struct Written {
    acked: Acked,
    sent: u64,
    trimmed: u64,
}

impl Written {
    /// Trims to where about `kept` records stay.
    async fn trim(known: &RefCell<Self>, client: &Client, address: &Address, kept: u64) {
        let wanted = known.borrow().acked.last().unwrap_or(0).saturating_sub(kept);
        if wanted > known.borrow().trimmed && client.trim(address, SeqNum::new(wanted)).await.is_ok() {
            let mut known = known.borrow_mut();
            known.trimmed = wanted;
            known.acked.forget_before(wanted);
        }
    }

    /// A trim that was not answered may have landed all the same; then it stays.
    async fn check(known: &RefCell<Self>, client: &Client, address: &Address) {
        let info = client.get_stream(address).await.expect("the stream");
        let (trim_point, tail) = (info.trim_point.get(), info.tail.seq_num.get());
        let trimmed = known.borrow().trimmed;
        assert!(trim_point >= trimmed, "{address} was trimmed to {trimmed} and is to {trim_point}");
        let records = read_all(client, address).await;
        // A session resends meanwhile.
        let first = records.first().map_or(tail, |record| record.seq_num.get());
        assert!(first == trim_point && records.len() as u64 >= tail - trim_point, "{address}: {trim_point}..{tail}");
        let mut known = known.borrow_mut();
        known.trimmed = trim_point;
        known.acked.forget_before(trim_point);
        known.acked.check(1, &records);
        assert!(records.iter().all(|record| Tag::of(record).index < known.sent), "{address} has what nobody sent");
    }
}

/// A session that outlives every death of its star, and resends by itself: all it sends is acked in the end.
struct Session {
    address: Address,
    producer: Producer,
    known: RefCell<Written>,
    tickets: RefCell<VecDeque<(u64, Ticket)>>,
}

impl Session {
    async fn new(client: &Client, class: Class) -> Self {
        let address = made(client, &format!("session-{class}"), of_class(class)).await;
        let producer = client.open(&address, ProducerOptions::default()).await.expect("a session");
        Self { address, producer, known: RefCell::default(), tickets: RefCell::default() }
    }

    async fn run(&self, client: &Client, round: &Whistle) {
        while !round.is_over.get() {
            if self.tickets.borrow().len() < IN_FLIGHT {
                let index = self.known.borrow().sent;
                let body = Tag { writer: 1, index }.body(RECORD_BYTES);
                let ticket = self.producer.submit([body]).await.expect("there is room for it");
                self.known.borrow_mut().sent += 1;
                self.tickets.borrow_mut().push_back((index, ticket));
            }
            self.take_acks(PAUSE).await;
            if self.known.borrow().sent.is_multiple_of(128) {
                Written::trim(&self.known, client, &self.address, KEPT).await;
            }
        }
    }

    /// Takes the acks that come within a time of each other.
    async fn take_acks(&self, within: Duration) {
        loop {
            let Some((index, mut ticket)) = self.tickets.borrow_mut().pop_front() else { return };
            let Ok(answer) = tokio::time::timeout(within, &mut ticket).await else {
                return self.tickets.borrow_mut().push_front((index, ticket));
            };
            let ack = answer.unwrap_or_else(|error| panic!("{}: a session goes on: {error}", self.address));
            self.known.borrow_mut().acked.add(index, ack.start.seq_num.get());
        }
    }

    async fn finish(&self) {
        self.take_acks(Duration::from_secs(30)).await;
        assert!(self.tickets.borrow().is_empty(), "{}: all is acked in the end", self.address);
        let known = self.known.borrow();
        assert_eq!(known.acked.last().map(|last| last + 1), Some(known.sent), "each record once, for all were acked");
    }

    async fn check(&self, client: &Client) {
        Written::check(&self.known, client, &self.address).await;
    }
}

/// Appends outside of sessions: what is not acked may be there or not.
struct OneShots {
    address: Address,
    known: RefCell<Written>,
}

impl OneShots {
    async fn new(client: &Client, class: Class) -> Self {
        let address = made(client, &format!("one-shots-{class}"), of_class(class)).await;
        Self { address, known: RefCell::default() }
    }

    async fn run(&self, client: &Client, round: &Whistle) {
        while !round.is_over.get() {
            let index = self.known.borrow().sent;
            self.known.borrow_mut().sent += 1;
            let body = Tag { writer: 1, index }.body(RECORD_BYTES);
            match client.append(&self.address, [body]).await {
                Ok(ack) => self.known.borrow_mut().acked.add(index, ack.start.seq_num.get()),
                Err(error) => assert!(error.retryable(), "{error}"),
            }
            if index % 50 == 49 {
                Written::trim(&self.known, client, &self.address, KEPT / 2).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn check(&self, client: &Client) {
        Written::check(&self.known, client, &self.address).await;
    }
}

/// A stream that is deleted and made again: nothing of a life that has ended comes back.
struct Reborn {
    address: Address,
    class: Class,
    known: RefCell<Life>,
}

/// What is known of the life of a stream.
#[derive(Debug, Default)]
struct Life {
    /// Counts the lives: who writes.
    number: u32,
    acked: Acked,
    sent: u64,
    /// A create of it was asked for and not answered, or was answered.
    may_be: bool,
    is_there: bool,
    /// A delete was asked for and not answered.
    may_be_gone: bool,
}

impl Reborn {
    fn new(class: Class) -> Self {
        Self { address: at(&format!("reborn-{class}")), class, known: RefCell::default() }
    }

    async fn run(&self, client: &Client, round: &Whistle) {
        while !round.is_over.get() {
            tokio::time::sleep(PAUSE).await;
            let (may_be_gone, is_there, sent) = {
                let known = self.known.borrow();
                (known.may_be_gone, known.is_there, known.sent)
            };
            if may_be_gone || sent >= 5 {
                self.delete(client).await;
            } else if is_there {
                self.append(client).await;
            } else {
                self.create(client).await;
            }
        }
    }

    async fn create(&self, client: &Client) {
        self.known.borrow_mut().may_be = true;
        match client.create_stream(&self.address, of_class(self.class)).await {
            Ok(_) => self.known.borrow_mut().is_there = true,
            // Its own, whose answer was lost.
            Err(error) if error.reason() == Reason::AlreadyExists => self.known.borrow_mut().is_there = true,
            Err(error) => assert!(error.retryable(), "{error}"),
        }
    }

    async fn append(&self, client: &Client) {
        let (writer, index) = {
            let mut known = self.known.borrow_mut();
            known.sent += 1;
            (known.number, known.sent - 1)
        };
        match client.append(&self.address, [Tag { writer, index }.body(RECORD_BYTES)]).await {
            Ok(ack) => self.known.borrow_mut().acked.add(index, ack.start.seq_num.get()),
            Err(error) => assert!(error.retryable(), "{}: {error}", self.address),
        }
    }

    async fn delete(&self, client: &Client) {
        self.known.borrow_mut().may_be_gone = true;
        match client.delete_stream(&self.address).await {
            Ok(()) => self.end_life(),
            Err(error) if error.reason() == Reason::NotFound => self.end_life(),
            Err(error) => assert!(error.retryable(), "{error}"),
        }
    }

    fn end_life(&self) {
        let mut known = self.known.borrow_mut();
        *known = Life { number: known.number + 1, ..Life::default() };
    }

    async fn check(&self, client: &Client) {
        let found = client.get_stream(&self.address).await;
        let records = if found.is_ok() { read_all(client, &self.address).await } else { Vec::new() };
        let known = self.known.borrow();
        if let Err(error) = &found {
            assert_eq!(error.reason(), Reason::NotFound, "{error}");
            assert!(!known.is_there || known.may_be_gone, "{} is gone in life {}", self.address, known.number);
            return;
        }
        assert!(known.may_be, "{} is back after life {}", self.address, known.number);
        assert!(records.iter().all(|record| Tag::of(record).writer == known.number), "an earlier life is back");
        known.acked.check(known.number, &records);
    }
}

/// A bucket that is made, used, and deleted again.
#[derive(Default)]
struct Passing {
    /// The one that is there; none when it is gone.
    known: RefCell<Option<BucketId>>,
    is_certain: Cell<bool>,
}

impl Passing {
    fn name() -> BucketName {
        BucketName::new("passing").expect("a bucket name")
    }

    async fn run(&self, client: &Client, round: &Whistle) {
        let address = Address { bucket: Self::name(), ..at("in-passing") };
        let spec = || BucketSpec { create_stream_on_append: true, ..BucketSpec::named(Self::name()) };
        while !round.is_over.get() {
            tokio::time::sleep(PAUSE).await;
            self.is_certain.set(false);
            let Ok(bucket) = client.ensure_bucket(spec()).await else { continue };
            self.known.replace(Some(bucket.id));
            self.is_certain.set(true);
            if client.append(&address, ["in passing"]).await.is_err() {
                continue;
            }
            let refused = client.delete_bucket(&Self::name()).await.expect_err("it has a stream");
            assert!(refused.retryable() || refused.reason() == Reason::BucketNotEmpty, "{refused}");
            if client.delete_stream(&address).await.is_err() {
                continue;
            }
            self.is_certain.set(false);
            if client.delete_bucket(&Self::name()).await.is_ok() {
                self.known.replace(None);
                self.is_certain.set(true);
            }
        }
    }

    async fn check(&self, client: &Client) {
        if !self.is_certain.get() {
            return;
        }
        match (client.get_bucket(&Self::name()).await, *self.known.borrow()) {
            (Ok(found), Some(id)) => assert_eq!(found.id, id, "it is the one that was made"),
            (Err(error), None) => assert_eq!(error.reason(), Reason::NotFound, "{error}"),
            (found, known) => panic!("{known:?} is known and {found:?} found"),
        }
    }
}

/// A stream of large records of which only some bytes are kept: segments roll, and are freed again.
struct Large {
    address: Address,
    acked: RefCell<Acked>,
    sent: Cell<u64>,
}

impl Large {
    async fn new(client: &Client) -> Self {
        let mut config = of_class(Class::Express);
        config.retention_max_bytes = Some(LARGE_KEPT_BYTES);
        let address = made(client, "large", config).await;
        Self { address, acked: RefCell::default(), sent: Cell::new(0) }
    }

    async fn run(&self, client: &Client, round: &Whistle) {
        while !round.is_over.get() {
            let index = self.sent.get();
            self.sent.set(index + 1);
            match client.append(&self.address, [Tag { writer: 1, index }.body(LARGE_BYTES)]).await {
                Ok(ack) => self.acked.borrow_mut().add(index, ack.start.seq_num.get()),
                Err(error) => assert!(error.retryable(), "{error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What is read while retention takes nothing away.
    async fn at_rest(&self, client: &Client) -> (u64, u64, Vec<Record>) {
        loop {
            let before = client.get_stream(&self.address).await.expect("the stream");
            let records = read_all(client, &self.address).await;
            let info = client.get_stream(&self.address).await.expect("the stream");
            if info.trim_point == before.trim_point {
                return (info.trim_point.get(), info.tail.seq_num.get(), records);
            }
        }
    }

    /// Retention takes from the front alone, and never what is to be kept.
    async fn check(&self, client: &Client) {
        let (trim_point, tail, records) = self.at_rest(client).await;
        assert_eq!(records.len() as u64, tail - trim_point);
        let mut acked = self.acked.borrow_mut();
        acked.forget_before(trim_point);
        acked.check(1, &records);
        // One more would be too much.
        let more = (tail - trim_point + 1) * LARGE_BYTES as u64;
        assert!(trim_point == 0 || more > LARGE_KEPT_BYTES, "{trim_point}..{tail} is less than is to be kept");
    }
}
