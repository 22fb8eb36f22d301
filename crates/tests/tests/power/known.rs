//! What did clients know at a moment, and does a star still hold to it?
//!
//! What was acked is there, once, at its place, with its bytes. What was sent and not acked is there whole or not at all. What a reader
//! got is there. Nothing else is.

use std::collections::BTreeMap;

use client::{BucketName, Client, ReadOptions, Reason, Record};
use tests::BUCKET;

use crate::recording::Event;
use crate::stream::{Batch, Name, Place, token};

/// What a client did or learned.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fact {
    /// The bucket was made.
    BucketMade,
    /// Something of a stream.
    Of(Place, What),
}

/// What a client did to a stream, or learned of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Creating,
    Created,
    Sending(Batch),
    /// A batch that begins with this index stands at a sequence number.
    Acked {
        first: u64,
        seq_num: u64,
    },
    /// A reader got a record.
    Seen {
        index: u64,
        seq_num: u64,
    },
    Trimming(u64),
    Trimmed(u64),
    Fencing(u32),
    Fenced(u32),
    Deleting,
    Deleted,
}

impl Fact {
    /// Whether somebody relies on it from here on.
    pub(crate) fn is_answer(self) -> bool {
        use What::{Acked, Created, Deleted, Fenced, Seen, Trimmed};
        matches!(
            self,
            Self::BucketMade | Self::Of(_, Created | Acked { .. } | Seen { .. } | Trimmed(_) | Fenced(_) | Deleted)
        )
    }
}

/// Whether a stream is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Presence {
    #[default]
    Gone,
    /// A create of it was not answered.
    Coming,
    There,
    /// A delete of it was not answered.
    Going,
}

/// A batch that was sent, and where it stands once that is known.
#[derive(Debug, Clone, Copy)]
struct Sent {
    batch: Batch,
    seq_num: Option<u64>,
}

/// What is known of the present life of a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
    /// Counts the lives.
    number: u32,
    presence: Presence,
    sent: BTreeMap<u64, Sent>,
    /// The index that comes next, whatever became of those before.
    next: u64,
    /// What readers got: indexes by sequence number.
    seen: BTreeMap<u64, u64>,
    trimming: u64,
    trimmed: u64,
    fencing: u32,
    fenced: u32,
}

impl Life {
    pub(crate) fn is_there(&self) -> bool {
        self.presence == Presence::There
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The generation that holds it, once that is known.
    pub(crate) fn generation(&self) -> u32 {
        self.fenced
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The batch that was sent last of those that are not known to be gone.
    pub(crate) fn last(&self) -> Option<Batch> {
        self.sent.values().last().map(|sent| sent.batch)
    }

    /// Where the batch stands that begins with an index, once that is known.
    pub(crate) fn place_of(&self, first: u64) -> Option<u64> {
        self.sent.get(&first).and_then(|sent| sent.seq_num)
    }

    fn take(&mut self, what: What) {
        match what {
            What::Creating if self.presence == Presence::Gone => {
                *self = Self { number: self.number + 1, presence: Presence::Coming, ..Self::default() };
            }
            What::Creating => {}
            What::Created => self.presence = Presence::There,
            What::Sending(batch) => {
                self.next = self.next.max(batch.first + batch.records);
                // One that is sent again is known to stand where it was acked before.
                self.sent.entry(batch.first).or_insert(Sent { batch, seq_num: None });
            }
            What::Acked { first, seq_num } => {
                let sent = self.sent.get_mut(&first).expect("what is acked was sent");
                let before = sent.seq_num.replace(seq_num);
                assert!(before.is_none_or(|before| before == seq_num), "batch {first} at {before:?} and {seq_num}");
            }
            What::Seen { index, seq_num } => drop(self.seen.insert(seq_num, index)),
            What::Trimming(to) => self.trimming = self.trimming.max(to),
            What::Trimmed(to) => self.trimmed = self.trimmed.max(to),
            What::Fencing(generation) => self.fencing = generation,
            What::Fenced(generation) => self.fenced = generation,
            What::Deleting => self.presence = Presence::Going,
            What::Deleted => *self = Self { number: self.number, ..Self::default() },
        }
    }
}

/// All that is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    is_bucket_made: bool,
    lives: BTreeMap<Place, Life>,
}

impl Known {
    /// What was known when so many things had happened.
    pub(crate) fn of(events: &[Event]) -> Self {
        let mut known = Self::default();
        for event in events {
            match event {
                Event::Told(fact) => known.take(*fact),
                Event::Knew(all) => known = Self::clone(all),
                _ => {}
            }
        }
        known
    }

    pub(crate) fn take(&mut self, fact: Fact) {
        match fact {
            Fact::BucketMade => self.is_bucket_made = true,
            Fact::Of(place, what) => self.lives.entry(place).or_default().take(what),
        }
    }

    pub(crate) fn life(&self, place: Place) -> Option<&Life> {
        self.lives.get(&place)
    }

    /// How many batches are known to be durable.
    pub(crate) fn acked(&self) -> usize {
        let of = |life: &Life| life.sent.values().filter(|sent| sent.seq_num.is_some()).count();
        self.lives.values().map(of).sum()
    }

    /// Holds a star against it. From here on what was read is known, and what was not there may not come later.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(crate) async fn check(&mut self, client: &Client) -> Result<(), String> {
        let bucket = client.get_bucket(&BucketName::new(BUCKET).expect("a bucket name")).await;
        match bucket {
            Ok(_) => self.is_bucket_made = true,
            Err(error) if error.reason() == Reason::NotFound && !self.is_bucket_made => return Ok(()),
            Err(error) => return Err(format!("the bucket: {error}")),
        }
        for (place, life) in &mut self.lives {
            life.check(*place, client).await.map_err(|why| format!("{}: {why}", place.key))?;
        }
        Ok(())
    }
}

impl Life {
    async fn check(&mut self, place: Place, client: &Client) -> Result<(), String> {
        let info = match client.get_stream(&place.address()).await {
            Ok(info) => info,
            Err(error) if error.reason() == Reason::NotFound && self.presence != Presence::There => {
                *self = Self { number: self.number, ..Self::default() };
                return Ok(());
            }
            Err(error) => return Err(format!("life {} is gone: {error}", self.number)),
        };
        if self.presence == Presence::Gone {
            return Err(format!("it is back after life {}", self.number));
        }
        if info.config.class != place.class() {
            return Err(format!("it was made as {} and is {}", place.class(), info.config.class));
        }
        let (start, tail) = (info.trim_point.get(), info.tail.seq_num.get());
        if start < self.trimmed || start > self.trimming.max(self.trimmed) {
            let (trimmed, trimming) = (self.trimmed, self.trimming);
            return Err(format!("trimmed to {trimmed}, asked to {trimming}, and it begins at {start}"));
        }
        let records = read(client, place, start, tail).await?;
        self.hold(place, start, &records)?;
        self.hold_token(place, client).await?;
        (self.presence, self.trimmed) = (Presence::There, start);
        Ok(())
    }

    /// Holds records that begin at `start` against what was sent, acked and seen.
    fn hold(&mut self, place: Place, start: u64, records: &[Record]) -> Result<(), String> {
        let names = records.iter().map(|record| place.name(record)).collect::<Result<Vec<_>, _>>()?;
        let found = self.batches(start, &names)?;
        for sent in self.sent.values() {
            let (batch, at) = (sent.batch, found.get(&sent.batch.first).copied());
            if let Some(seq_num) = sent.seq_num
                && seq_num + batch.records > start
                && at != Some(seq_num)
            {
                let Batch { first, records } = batch;
                let there = at.map_or_else(|| "is not there".to_owned(), |at| format!("is at {at}"));
                return Err(format!("LOST: batch {first} of {records} records was acked at {seq_num} and {there}"));
            }
        }
        for (seq_num, index) in self.seen.range(start..) {
            let there = usize::try_from(seq_num - start).ok().and_then(|at| names.get(at));
            if there.map(|name| name.index) != Some(*index) {
                return Err(format!("LOST: a reader got record {index} at {seq_num}, where {there:?} is now"));
            }
        }
        self.sent.retain(|first, sent| {
            sent.seq_num = sent.seq_num.or_else(|| found.get(first).copied());
            sent.seq_num.is_some()
        });
        let numbered = (start..).zip(&names);
        self.seen = numbered.map(|(seq_num, name)| (seq_num, name.index)).collect();
        Ok(())
    }

    /// Where each batch begins; each is there whole, once, in the order in which they were sent.
    fn batches(&self, start: u64, names: &[Name]) -> Result<BTreeMap<u64, u64>, String> {
        let mut found = BTreeMap::new();
        let mut at = 0;
        while at < names.len() {
            let (Name { life, index }, seq_num) = (names[at], start + at as u64);
            if life != self.number {
                return Err(format!("life {life} is back at {seq_num} in life {}", self.number));
            }
            let sent = self.sent.range(..=index).next_back().map(|(_, sent)| sent.batch);
            let Some(batch) = sent.filter(|batch| index < batch.first + batch.records) else {
                return Err(format!("nobody sent record {index}, which is at {seq_num}"));
            };
            let before = index - batch.first;
            if before > 0 && at > 0 {
                return Err(format!("HALF: batch {} begins with its record {before} at {seq_num}", batch.first));
            }
            let here = names[at..].iter().map(|name| name.index).zip(index..batch.first + batch.records);
            let whole = here.take_while(|(is, wanted)| is == wanted).count() as u64;
            if whole < batch.records - before {
                return Err(format!("HALF: of batch {} at {seq_num} {whole} records are there", batch.first));
            }
            let last = found.last_key_value().map(|(first, _)| *first);
            if last.is_some_and(|last| last >= batch.first) {
                return Err(format!("batch {} at {seq_num} comes after {last:?}", batch.first));
            }
            let begins = seq_num.checked_sub(before).ok_or_else(|| format!("batch {} begins below 0", batch.first))?;
            found.insert(batch.first, begins);
            at += usize::try_from(whole).expect("a number of records");
        }
        Ok(found)
    }

    async fn hold_token(&mut self, place: Place, client: &Client) -> Result<(), String> {
        let found = client.fencing_token(&place.address()).await.map_err(|error| format!("its token: {error}"))?;
        let (fenced, fencing) = (self.fenced, self.fencing.max(self.fenced));
        let generation = (fenced..=fencing).find(|generation| token(*generation) == found);
        let Some(generation) = generation else {
            return Err(format!("LOST: fenced by generation {fenced}, asked by {fencing}, and its token is `{found}`"));
        };
        (self.fenced, self.fencing) = (generation, generation);
        Ok(())
    }
}

/// All records of a stream that begins and ends there.
async fn read(client: &Client, place: Place, start: u64, tail: u64) -> Result<Vec<Record>, String> {
    let mut records: Vec<Record> = Vec::new();
    let mut next = start;
    while next < tail {
        let page = client.read(&place.address(), ReadOptions::from(next)).await;
        let page = page.map_err(|error| format!("reading at {next} of {start}..{tail}: {error}"))?;
        if page.records.is_empty() {
            return Err(format!("nothing is read at {next} of {start}..{tail}"));
        }
        for record in page.records {
            if record.seq_num.get() != next {
                return Err(format!("{} is read where {next} should be", record.seq_num));
            }
            next += 1;
            records.push(record);
        }
    }
    Ok(records)
}
