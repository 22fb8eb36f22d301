//! What is done to a star whose power is to go, and what does its recording get to know of it?

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use client::{
    Client, ConfigPatch, OneShot, Options, Producer, ProducerOptions, Reason, SeqNum, SubscribeOptions, Subscription,
    Ticket,
};
use tests::{Dice, Novad, bucket};
use tokio::time::{sleep, timeout};

use crate::known::{Fact, What};
use crate::recording::Recording;
use crate::stream::{Batch, FENCED, Name, Place, REBORN, SESSIONS, token};

/// Calls that a session has in flight.
const IN_FLIGHT: usize = 6;
/// Writers leave each other so much time.
const PAUSE: Duration = Duration::from_millis(2);
/// Records that stay of a session's stream, about, and of one that is fenced.
const KEPT: u64 = 200;
const KEPT_FENCED: u64 = 40;
const KEPT_LARGE: u64 = 8;
/// One of large records leaves the others more time.
const PAUSE_LARGE: Duration = Duration::from_millis(8);
/// Appends under one token.
const UNDER_ONE_TOKEN: usize = 5;
/// Appends in one life.
const IN_ONE_LIFE: u64 = 4;

/// A client that gives up soon: the star may be dead.
pub(crate) fn impatient(novad: &Novad) -> Client {
    let soon = Duration::from_millis(300);
    let options = Options::new([novad.addr().to_string()]).retry_budget(soon).connect_budget(soon);
    Client::new(options.request_timeout(Duration::from_secs(5))).expect("a client")
}

/// Writers of every kind, and a reader.
pub(crate) struct Load {
    sessions: Vec<Session>,
    fenced: Vec<Fenced>,
    reborn: Vec<Reborn>,
    reader: Reader,
    acks: [Cell<usize>; 2],
    /// Appends that were refused for want of room.
    refused: Rc<Cell<usize>>,
}

/// Writes down what is known of a stream.
#[derive(Debug, Clone)]
struct Notes {
    place: Place,
    recording: Recording,
}

impl Notes {
    fn add(&self, what: What) {
        self.recording.note(Fact::Of(self.place, what));
    }

    /// Trims to where about `kept` records before `tail` stay.
    async fn trim(&self, client: &Client, tail: u64, kept: u64) {
        let to = tail.saturating_sub(kept);
        self.add(What::Trimming(to));
        if client.trim(&self.place.address(), SeqNum::new(to)).await.is_ok() {
            self.add(What::Trimmed(to));
        }
    }
}

impl Load {
    /// Makes the bucket and the streams that stay.
    pub(crate) async fn new(client: &Client, recording: &Recording, seed: u64) -> Self {
        client.ensure_bucket(bucket()).await.expect("the bucket");
        recording.note(Fact::BucketMade);
        let notes = |place: Place| Notes { place, recording: recording.clone() };
        for place in SESSIONS.into_iter().chain(FENCED) {
            notes(place).add(What::Creating);
            let config = ConfigPatch { class: Some(place.class()), ..ConfigPatch::default() };
            client.create_stream(&place.address(), config).await.expect("a stream");
            notes(place).add(What::Created);
        }
        let session = |(number, place): (usize, Place)| Session::new(notes(place), seed ^ number as u64);
        let refused = Rc::<Cell<usize>>::default();
        let fenced = |(number, place): (usize, Place)| {
            let dice = Dice::new(seed ^ 16 ^ number as u64);
            Fenced { notes: notes(place), generation: 0, next: 0, dice, refused: Rc::clone(&refused) }
        };
        Self {
            sessions: SESSIONS.into_iter().enumerate().map(session).collect(),
            fenced: FENCED.into_iter().enumerate().map(fenced).collect(),
            reborn: REBORN.into_iter().map(|place| Reborn::new(notes(place))).collect(),
            reader: Reader { notes: notes(SESSIONS[0]), next: 0 },
            acks: Default::default(),
            refused: Rc::clone(&refused),
        }
    }

    /// Writes until each session has got so many acks, or until something else is so.
    pub(crate) async fn run(&mut self, client: &Client, acks: usize, mut is_over: impl FnMut() -> bool) {
        let before = self.acks.each_ref().map(Cell::get);
        let counts = &self.acks;
        let is_enough = || counts.iter().zip(before).all(|(now, before)| now.get() >= before.saturating_add(acks));
        let sessions = self.sessions.iter_mut().zip(counts).map(|(one, count)| one.run(client, count));
        let sessions = futures_util::future::join_all(sessions);
        let fenced = futures_util::future::join_all(self.fenced.iter_mut().map(|one| one.run(client)));
        let reborn = futures_util::future::join_all(self.reborn.iter_mut().map(|one| one.run(client)));
        let all = async { tokio::join!(sessions, fenced, reborn, self.reader.run(client)) };
        let enough = async {
            while !is_enough() && !is_over() {
                sleep(PAUSE).await;
            }
        };
        first(all, enough).await;
    }

    /// Counts appends that were refused for want of room.
    pub(crate) fn refused(&self) -> Rc<Cell<usize>> {
        Rc::clone(&self.refused)
    }
}

/// Goes on with the first until the second is done; the first is let go wherever it is.
async fn first<T>(all: impl Future<Output = T>, enough: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = enough => {}
        _ = all => {}
    }
}

/// A session that outlives its star, and sends again by itself.
struct Session {
    notes: Notes,
    producer: Option<Producer>,
    tickets: VecDeque<(Batch, Ticket)>,
    next: u64,
    tail: u64,
    dice: Dice,
}

impl Session {
    fn new(notes: Notes, seed: u64) -> Self {
        Self { notes, producer: None, tickets: VecDeque::new(), next: 0, tail: 0, dice: Dice::new(seed) }
    }

    async fn run(&mut self, client: &Client, acks: &Cell<usize>) {
        let place = self.notes.place;
        for turn in 1_u64.. {
            self.take_acks(acks).await;
            let Some(producer) = &self.producer else {
                self.producer = client.open(&place.address(), ProducerOptions::default()).await.ok();
                sleep(PAUSE).await;
                continue;
            };
            if self.tickets.len() < IN_FLIGHT {
                let batch = Batch { first: self.next, records: 1 + self.dice.below(4) };
                self.next += batch.records;
                self.notes.add(What::Sending(batch));
                let ticket = producer.submit(batch.bodies(place, 1)).await.ok();
                // One that takes nothing has ended.
                self.producer = self.producer.take().filter(|_| ticket.is_some());
                self.tickets.extend(ticket.map(|ticket| (batch, ticket)));
            }
            if turn.is_multiple_of(64) {
                self.notes.trim(client, self.tail, KEPT).await;
            }
        }
    }

    /// Takes the acks that are there, and waits a moment for the first.
    async fn take_acks(&mut self, acks: &Cell<usize>) {
        while let Some((batch, ticket)) = self.tickets.front_mut() {
            let Ok(answer) = timeout(PAUSE, ticket).await else { return };
            if let Ok(ack) = answer {
                self.notes.add(What::Acked { first: batch.first, seq_num: ack.start.seq_num.get() });
                self.tail = ack.end.seq_num.get();
                acks.set(acks.get() + 1);
            }
            self.tickets.pop_front();
        }
    }
}

/// Writers that take a stream over from each other by tokens, and say where each of their batches must stand.
struct Fenced {
    notes: Notes,
    generation: u32,
    next: u64,
    dice: Dice,
    refused: Rc<Cell<usize>>,
}

impl Fenced {
    async fn run(&mut self, client: &Client) {
        let address = self.notes.place.address();
        loop {
            sleep(PAUSE).await;
            self.generation += 1;
            self.notes.add(What::Fencing(self.generation));
            if client.fence(&address, &token(self.generation)).await.is_err() {
                continue;
            }
            self.notes.add(What::Fenced(self.generation));
            let Ok(tail) = client.check_tail(&address).await else { continue };
            let tail = self.append_all(client, tail.seq_num).await;
            let kept = if self.notes.place.is_large { KEPT_LARGE } else { KEPT_FENCED };
            self.notes.trim(client, tail.get(), kept).await;
        }
    }

    /// Appends under one token, each batch where the one before ended.
    async fn append_all(&mut self, client: &Client, mut tail: SeqNum) -> SeqNum {
        for _ in 0..UNDER_ONE_TOKEN {
            let Some(end) = self.append(client, tail).await else { return tail };
            tail = end;
            sleep(if self.notes.place.is_large { PAUSE_LARGE } else { PAUSE }).await;
        }
        tail
    }

    async fn append(&mut self, client: &Client, tail: SeqNum) -> Option<SeqNum> {
        let place = self.notes.place;
        let batch = Batch { first: self.next, records: 1 + self.dice.below(3) };
        self.next += batch.records;
        self.notes.add(What::Sending(batch));
        let with = OneShot {
            fencing_token: token(self.generation),
            match_seq_num: Some(tail),
            idempotency_key: Some(batch.key(place, 1)),
            ..OneShot::default()
        };
        match client.append_with(&place.address(), with, batch.bodies(place, 1)).await {
            Ok(ack) => {
                self.notes.add(What::Acked { first: batch.first, seq_num: ack.start.seq_num.get() });
                Some(ack.end.seq_num)
            }
            Err(error) => {
                if error.reason() == Reason::ResourceExhausted {
                    self.refused.set(self.refused.get() + 1);
                }
                assert!(error.retryable() || error.reason() == Reason::SequenceMismatch, "{}: {error}", place.key);
                None
            }
        }
    }
}

/// A stream that is deleted and made again.
struct Reborn {
    notes: Notes,
    life: u32,
    is_there: bool,
    may_be_gone: bool,
    next: u64,
}

impl Reborn {
    fn new(notes: Notes) -> Self {
        Self { notes, life: 0, is_there: false, may_be_gone: false, next: 0 }
    }

    async fn run(&mut self, client: &Client) {
        loop {
            sleep(PAUSE).await;
            if self.may_be_gone || self.next >= IN_ONE_LIFE {
                self.delete(client).await;
            } else if self.is_there {
                self.append(client).await;
            } else {
                self.create(client).await;
            }
        }
    }

    async fn create(&mut self, client: &Client) {
        let place = self.notes.place;
        let config = ConfigPatch { class: Some(place.class()), ..ConfigPatch::default() };
        self.notes.add(What::Creating);
        let made = client.create_stream(&place.address(), config).await;
        // Its own, whose answer was lost, is as good.
        if made.is_ok() || made.is_err_and(|error| error.reason() == Reason::AlreadyExists) {
            self.notes.add(What::Created);
            (self.is_there, self.life) = (true, self.life + 1);
        }
    }

    async fn append(&mut self, client: &Client) {
        let batch = Batch { first: self.next, records: 1 };
        self.next += 1;
        self.notes.add(What::Sending(batch));
        let place = self.notes.place;
        if let Ok(ack) = client.append(&place.address(), batch.bodies(place, self.life)).await {
            self.notes.add(What::Acked { first: batch.first, seq_num: ack.start.seq_num.get() });
        }
    }

    async fn delete(&mut self, client: &Client) {
        self.may_be_gone = true;
        self.notes.add(What::Deleting);
        let gone = client.delete_stream(&self.notes.place.address()).await;
        if gone.is_ok() || gone.is_err_and(|error| error.reason() == Reason::NotFound) {
            self.notes.add(What::Deleted);
            (self.is_there, self.may_be_gone, self.next) = (false, false, 0);
        }
    }
}

/// Follows a session's stream: what it gets must stay.
struct Reader {
    notes: Notes,
    next: u64,
}

impl Reader {
    async fn run(&mut self, client: &Client) {
        loop {
            let from = SubscribeOptions::from(self.next).clamp();
            if let Ok(subscription) = client.subscribe(&self.notes.place.address(), from).await {
                self.follow(subscription).await;
            }
            sleep(PAUSE).await;
        }
    }

    async fn follow(&mut self, mut subscription: Subscription) {
        while let Some(Ok(page)) = subscription.next().await {
            let Some(record) = page.records.last() else { continue };
            let Name { index, .. } = self.notes.place.name(record).expect("what was written");
            let seq_num = record.seq_num.get();
            self.notes.add(What::Seen { index, seq_num });
            self.next = seq_num + 1;
        }
    }
}
