//! What does a bucket verb answer, and what must the store and the shards be told before it may?
//!
//! One job a name at a time: it writes the store, tells the shards, waits until all have confirmed, and only then answers.
//! What the store holds is the truth: whenever it may differ from what is known here, the object is read again before
//! anything else of that name. A bucket found in `deleting`, at start or after such a read, is brought to an end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wire::bucket::{Bucket, BucketPatch, BucketSpec, BucketState};
use wire::handoff::{BucketAnswer, BucketTable, BucketVerb, ReplyTo, ToShard};
use wire::ids::{BucketId, ShardId};
use wire::limits::{LIST_PAGE_DEFAULT, LIST_PAGE_MAX};
use wire::names::BucketName;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::tables::Tables;
use crate::store::{Effect, Version};

/// Verbs that wait for another of the same bucket, all buckets together. More are refused with `resource_exhausted`.
const WAITING_MAX: usize = 1_024;
/// Buckets of a cluster: each change hands every shard a whole table. More are refused with `resource_exhausted`.
const BUCKETS_MAX: usize = 100_000;
/// How often one verb is decided again because someone else changed the object; then it is `unavailable`.
const ROUNDS_MAX: u8 = 8;

/// What the shell must do, in this order.
#[derive(Debug)]
pub(crate) enum Command {
    /// Keep the bucket: in place of version `expected`, or as a new object. Answered by [`Buckets::on_stored`].
    Put { bucket: Arc<Bucket>, expected: Option<Version> },
    /// Remove the bucket's object of this version. Answered by [`Buckets::on_stored`].
    Remove { name: BucketName, expected: Version },
    /// Read the bucket's object. Answered by [`Buckets::on_stored`].
    Read { name: BucketName },
    /// Tell every shard.
    Tell(ToShard),
    /// Answer a verb.
    Reply { to: ReplyTo, result: Result<BucketAnswer, Refusal> },
}

/// What the store answered to the one command that is under way for a name.
#[derive(Debug)]
pub(crate) enum Stored {
    /// The put is durable as this version.
    Kept(Version),
    /// The object is gone for good.
    Removed,
    /// The object as it stands, or that there is none.
    Found(Option<(Bucket, Version)>),
    /// The object is not the version that was expected.
    Conflict,
    /// The store failed; `refusal` is for those who wait.
    Failed { effect: Effect, refusal: Refusal },
}

/// A verb that changes a bucket, with what the shell adds: the time, and an id in case one is made.
#[derive(Debug)]
struct Request {
    reply_to: ReplyTo,
    verb: BucketVerb,
    now_ms: i64,
    id: BucketId,
}

/// What is under way for one name.
#[derive(Debug)]
struct Job {
    work: Work,
    /// The verb that is being served; none when only an earlier one's remains are.
    active: Option<Request>,
    waiting: VecDeque<Request>,
    rounds: u8,
}

#[derive(Debug)]
enum Work {
    /// The next verb can be decided.
    Ready,
    /// `next` is being put.
    Writing { next: Arc<Bucket>, then: Then },
    /// The shards count the bucket's streams.
    Freezing { bucket: Arc<Bucket>, reports: BTreeMap<ShardId, u64> },
    /// The object is being removed.
    Removing,
    /// The object is being read.
    Reading,
    /// The object must be read again, at the next tick.
    Unsure,
    /// The shards have yet to confirm `version`; then the active verb is answered, or decided anew when there is no result.
    Confirming { version: u64, result: Option<Result<BucketAnswer, Refusal>> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Answer,
    Freeze,
    Thaw { streams: u64 },
}

/// All buckets, and the verbs under way.
#[derive(Debug)]
pub(crate) struct Buckets {
    tables: Tables,
    /// The version that each bucket of the newest table has in the store.
    versions: BTreeMap<BucketName, Version>,
    jobs: BTreeMap<BucketName, Job>,
    waiting: usize,
}

impl Buckets {
    /// Takes what the store holds; answers the first table for the shards, and goes on with what was being deleted.
    pub(crate) fn on_loaded(shards: u16, loaded: Vec<(Bucket, Version)>) -> (Self, Vec<Command>) {
        let versions = loaded.iter().map(|(bucket, version)| (bucket.name.clone(), version.clone())).collect();
        let table = loaded.into_iter().map(|(bucket, _)| (bucket.name.clone(), Arc::new(bucket))).collect();
        let tables = Tables::new(shards, table);
        let mut out = vec![Command::Tell(ToShard::Buckets(Arc::clone(tables.newest())))];
        let mut buckets = Self { tables, versions, jobs: BTreeMap::new(), waiting: 0 };
        let deleting: Vec<_> =
            buckets.table().buckets.values().filter(|b| b.state == BucketState::Deleting).cloned().collect();
        for bucket in deleting {
            let mut job = Job::new();
            buckets.freeze(&mut job, bucket.clone(), &mut out);
            buckets.advance(&bucket.name, job, &mut out);
        }
        (buckets, out)
    }

    /// A client's verb. `now_ms` and `id` are what a bucket is made with, if one is.
    pub(crate) fn on_verb(&mut self, reply_to: ReplyTo, verb: BucketVerb, now_ms: i64, id: BucketId) -> Vec<Command> {
        let refuse = |refusal| vec![Command::Reply { to: reply_to, result: Err(refusal) }];
        let name = match &verb {
            BucketVerb::Get(name) => {
                let result = self.tables.served().buckets.get(name).cloned();
                let result = result.map(BucketAnswer::Bucket).ok_or_else(|| not_found(name));
                return vec![Command::Reply { to: reply_to, result }];
            }
            BucketVerb::List { after, limit } => {
                return vec![Command::Reply { to: reply_to, result: Ok(page(self.tables.served(), after, *limit)) }];
            }
            BucketVerb::Create(spec) | BucketVerb::Ensure(spec) => spec.name.clone(),
            BucketVerb::Update(name, _) | BucketVerb::Delete(name) => name.clone(),
        };
        if self.waiting >= WAITING_MAX {
            let message = format!("{WAITING_MAX} bucket changes already wait for earlier ones: try again");
            return refuse(Refusal::new(Reason::ResourceExhausted, message));
        }
        let mut job = self.jobs.remove(&name).unwrap_or_else(Job::new);
        job.waiting.push_back(Request { reply_to, verb, now_ms, id });
        self.waiting += 1;
        let mut out = Vec::new();
        self.advance(&name, job, &mut out);
        out
    }

    /// The store's answer to the command under way for `name`.
    ///
    /// # Panics
    /// When no such command is under way.
    pub(crate) fn on_stored(&mut self, name: &BucketName, stored: Stored) -> Vec<Command> {
        let mut out = Vec::new();
        let Some(mut job) = self.jobs.remove(name) else {
            panic!("the store answered about {name}, and nothing was asked");
        };
        match (std::mem::replace(&mut job.work, Work::Ready), stored) {
            (Work::Writing { next, then }, Stored::Kept(version)) => {
                self.versions.insert(name.clone(), version);
                out.push(Command::Tell(self.tables.replace(name, Some(Arc::clone(&next)))));
                match then {
                    Then::Answer => self.finish(&mut job, Ok(BucketAnswer::Bucket(next))),
                    Then::Freeze => self.freeze(&mut job, next, &mut out),
                    Then::Thaw { streams } => self.finish_delete(&mut job, Err(not_empty(name, streams))),
                }
            }
            (Work::Removing, Stored::Removed) => {
                self.forget(name, &mut out);
                self.finish_delete(&mut job, Ok(BucketAnswer::Deleted));
            }
            (Work::Reading, Stored::Found(found)) => self.adopt(name, &mut job, found, &mut out),
            (Work::Writing { .. } | Work::Removing, Stored::Conflict) => conflict(name, &mut job, &mut out),
            // Nothing was written, and what is known still stands.
            (
                Work::Writing { then: Then::Answer | Then::Freeze, .. },
                Stored::Failed { effect: Effect::None, refusal },
            ) => self.finish(&mut job, Err(refusal)),
            (Work::Writing { .. } | Work::Removing, Stored::Failed { refusal, .. }) => {
                job.refuse_active(&refusal, &mut out);
                job.work = Work::Unsure;
            }
            (Work::Reading, Stored::Failed { refusal, .. }) => {
                job.refuse_active(&refusal, &mut out);
                self.waiting -= job.waiting.len();
                job.refuse_waiting(&refusal, &mut out);
                job.work = Work::Unsure;
            }
            (work, stored) => panic!("the store answered {stored:?} about {name} to {work:?}"),
        }
        self.advance(name, job, &mut out);
        out
    }

    /// A shard serves by this table, or a later one.
    pub(crate) fn on_confirmed(&mut self, shard: ShardId, version: u64) -> Vec<Command> {
        self.tables.on_confirmed(shard, version);
        let mut out = Vec::new();
        let confirming = |job: &Job| matches!(job.work, Work::Confirming { .. });
        let names: Vec<_> = self.jobs.iter().filter(|(_, job)| confirming(job)).map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(job) = self.jobs.remove(&name) {
                self.advance(&name, job, &mut out);
            }
        }
        out
    }

    /// A shard makes no more streams in the bucket, and has this many. A report that nothing waits for is ignored.
    pub(crate) fn on_frozen(&mut self, shard: ShardId, id: BucketId, streams: u64) -> Vec<Command> {
        let mut out = Vec::new();
        let counting = |job: &Job| matches!(&job.work, Work::Freezing { bucket, .. } if bucket.id == id);
        let name = self.jobs.iter().find(|(_, job)| counting(job)).map(|(name, _)| name.clone());
        let Some((name, mut job)) = name.and_then(|name| self.jobs.remove_entry(&name)) else {
            return out;
        };
        if let Work::Freezing { reports, .. } = &mut job.work {
            reports.insert(shard, streams);
        }
        self.advance(&name, job, &mut out);
        out
    }

    /// Some time went by: reads what must be read again.
    pub(crate) fn on_tick(&mut self) -> Vec<Command> {
        let mut out = Vec::new();
        for (name, job) in &mut self.jobs {
            if matches!(job.work, Work::Unsure) {
                job.work = Work::Reading;
                out.push(Command::Read { name: name.clone() });
            }
        }
        out
    }

    /// Nothing more will be done: answers every verb that waits.
    pub(crate) fn on_stop(&mut self) -> Vec<Command> {
        let mut out = Vec::new();
        let refusal =
            Refusal::new(Reason::Unavailable, "the star is stopping: the change may or may not have been made");
        for job in std::mem::take(&mut self.jobs).values_mut() {
            job.refuse_active(&refusal, &mut out);
            job.refuse_waiting(&refusal, &mut out);
        }
        self.waiting = 0;
        out
    }

    fn table(&self) -> &BucketTable {
        self.tables.newest()
    }

    /// Goes on with a name until something must be waited for, and remembers it while there is.
    fn advance(&mut self, name: &BucketName, mut job: Job, out: &mut Vec<Command>) {
        loop {
            match std::mem::replace(&mut job.work, Work::Ready) {
                Work::Ready => match self.next_active(&mut job) {
                    Some(request) => job.work = self.decide(name, request, out),
                    None => return,
                },
                Work::Confirming { version, result } if version <= self.tables.confirmed_by_all() => {
                    result.into_iter().for_each(|result| job.answer_active(result, out));
                }
                Work::Freezing { bucket, reports } if reports.len() >= self.tables.shards() => {
                    job.work = self.counted(name, &bucket, reports.values().sum(), out);
                }
                waiting => {
                    job.work = waiting;
                    break;
                }
            }
        }
        self.jobs.insert(name.clone(), job);
    }

    /// The verb to serve now: the one that is being served, or the first that waits.
    fn next_active<'a>(&mut self, job: &'a mut Job) -> Option<&'a Request> {
        if job.active.is_none() {
            job.active = job.waiting.pop_front();
            self.waiting -= usize::from(job.active.is_some());
        }
        job.active.as_ref()
    }

    /// What a verb does to what is there now.
    fn decide(&self, name: &BucketName, request: &Request, out: &mut Vec<Command>) -> Work {
        let current = self.table().buckets.get(name);
        let decided = match (&request.verb, current) {
            (BucketVerb::Create(spec) | BucketVerb::Ensure(spec), None) => self.made(spec, request),
            (BucketVerb::Create(spec), Some(bucket)) => joined(spec, bucket),
            (BucketVerb::Ensure(spec), Some(bucket)) => {
                spec.check().map(|()| Decided::Answer(BucketAnswer::Bucket(Arc::clone(bucket))))
            }
            (BucketVerb::Update(_, patch), Some(bucket)) => changed(bucket, patch),
            (BucketVerb::Delete(_), Some(bucket)) => {
                Ok(Decided::Write(Bucket { state: BucketState::Deleting, ..Bucket::clone(bucket) }, Then::Freeze))
            }
            _ => Err(not_found(name)),
        };
        match decided {
            Ok(Decided::Write(next, then)) => self.write(next, then, out),
            Ok(Decided::Answer(answer)) => self.confirming(Some(Ok(answer))),
            Err(refusal) => self.confirming(Some(Err(refusal))),
        }
    }

    fn made(&self, spec: &BucketSpec, request: &Request) -> Result<Decided, Refusal> {
        spec.check()?;
        if self.table().buckets.len() >= BUCKETS_MAX {
            let message = format!("bucket {}: there are {BUCKETS_MAX} buckets, and no more are allowed", spec.name);
            return Err(Refusal::new(Reason::ResourceExhausted, message));
        }
        Ok(Decided::Write(Bucket::made(spec, request.id, request.now_ms), Then::Answer))
    }

    fn write(&self, next: Bucket, then: Then, out: &mut Vec<Command>) -> Work {
        let expected = self.versions.get(&next.name).cloned();
        let next = Arc::new(next);
        out.push(Command::Put { bucket: Arc::clone(&next), expected });
        Work::Writing { next, then }
    }

    fn freeze(&self, job: &mut Job, bucket: Arc<Bucket>, out: &mut Vec<Command>) {
        out.push(Command::Tell(ToShard::Freeze { bucket: bucket.id }));
        job.work = Work::Freezing { bucket, reports: BTreeMap::new() };
    }

    /// Every shard has counted: an empty bucket goes, another is served again.
    fn counted(&self, name: &BucketName, bucket: &Bucket, streams: u64, out: &mut Vec<Command>) -> Work {
        let Some(expected) = self.versions.get(name).filter(|_| streams == 0).cloned() else {
            let live = Bucket { state: BucketState::Live, ..bucket.clone() };
            return self.write(live, Then::Thaw { streams }, out);
        };
        out.push(Command::Remove { name: name.clone(), expected });
        Work::Removing
    }

    /// Takes what was read for what there is.
    fn adopt(&mut self, name: &BucketName, job: &mut Job, found: Option<(Bucket, Version)>, out: &mut Vec<Command>) {
        let Some((bucket, version)) = found else {
            self.forget(name, out);
            job.work = self.confirming(None);
            return;
        };
        let bucket = Arc::new(bucket);
        self.versions.insert(name.clone(), version);
        if self.table().buckets.get(name) != Some(&bucket) {
            out.push(Command::Tell(self.tables.replace(name, Some(Arc::clone(&bucket)))));
        }
        if bucket.state == BucketState::Deleting {
            self.freeze(job, bucket, out);
        } else {
            job.work = self.confirming(None);
        }
    }

    fn forget(&mut self, name: &BucketName, out: &mut Vec<Command>) {
        self.versions.remove(name);
        if self.table().buckets.contains_key(name) {
            out.push(Command::Tell(self.tables.replace(name, None)));
        }
    }

    fn confirming(&self, result: Option<Result<BucketAnswer, Refusal>>) -> Work {
        Work::Confirming { version: self.table().version, result }
    }

    fn finish(&self, job: &mut Job, result: Result<BucketAnswer, Refusal>) {
        job.work = self.confirming(Some(result));
    }

    /// A deletion ended. It may be an earlier one's, and the active verb another, which is then decided on the outcome.
    fn finish_delete(&self, job: &mut Job, result: Result<BucketAnswer, Refusal>) {
        let asked = job.active.as_ref().is_some_and(|request| matches!(request.verb, BucketVerb::Delete(_)));
        job.work = self.confirming(asked.then_some(result));
    }
}

enum Decided {
    Answer(BucketAnswer),
    Write(Bucket, Then),
}

impl Job {
    fn new() -> Self {
        Self { work: Work::Ready, active: None, waiting: VecDeque::new(), rounds: 0 }
    }

    fn answer_active(&mut self, result: Result<BucketAnswer, Refusal>, out: &mut Vec<Command>) {
        self.rounds = 0;
        out.extend(self.active.take().map(|request| Command::Reply { to: request.reply_to, result }));
    }

    fn refuse_active(&mut self, refusal: &Refusal, out: &mut Vec<Command>) {
        self.answer_active(Err(refusal.clone()), out);
    }

    fn refuse_waiting(&mut self, refusal: &Refusal, out: &mut Vec<Command>) {
        let refuse = |request: Request| Command::Reply { to: request.reply_to, result: Err(refusal.clone()) };
        out.extend(self.waiting.drain(..).map(refuse));
    }
}

/// Someone else changed the object: it is read, and the verb decided again, though not for ever.
fn conflict(name: &BucketName, job: &mut Job, out: &mut Vec<Command>) {
    job.rounds += 1;
    if job.rounds >= ROUNDS_MAX {
        let message = format!("bucket {name} was changed by others {ROUNDS_MAX} times meanwhile: try again");
        job.refuse_active(&Refusal::new(Reason::Unavailable, message), out);
    }
    job.work = Work::Reading;
    out.push(Command::Read { name: name.clone() });
}

/// A create of what is there: joins it by its creation token.
fn joined(spec: &BucketSpec, bucket: &Arc<Bucket>) -> Result<Decided, Refusal> {
    spec.check()?;
    if spec.creation_token.is_empty() || spec.creation_token != bucket.creation_token {
        return Err(Refusal::new(Reason::AlreadyExists, format!("bucket {} already exists", spec.name)));
    }
    Ok(Decided::Answer(BucketAnswer::Bucket(Arc::clone(bucket))))
}

fn changed(bucket: &Arc<Bucket>, patch: &BucketPatch) -> Result<Decided, Refusal> {
    let next = patch.apply(bucket);
    next.defaults.check()?;
    if next == **bucket {
        return Ok(Decided::Answer(BucketAnswer::Bucket(Arc::clone(bucket))));
    }
    Ok(Decided::Write(next, Then::Answer))
}

fn not_found(name: &BucketName) -> Refusal {
    Refusal::new(Reason::NotFound, format!("there is no bucket {name}"))
}

fn not_empty(name: &BucketName, streams: u64) -> Refusal {
    let message = format!("bucket {name} still has {streams} streams: delete them first");
    Refusal::new(Reason::BucketNotEmpty, message)
}

fn page(table: &BucketTable, after: &str, limit: u32) -> BucketAnswer {
    let limit = if limit == 0 { LIST_PAGE_DEFAULT } else { limit.min(LIST_PAGE_MAX) };
    let mut rows = table.buckets.iter().skip_while(|(name, _)| name.as_str() <= after);
    let rows_max = usize::try_from(limit).unwrap_or(usize::MAX);
    let found: Vec<_> = rows.by_ref().take(rows_max).map(|(_, bucket)| Arc::clone(bucket)).collect();
    let more = rows.next().is_some();
    let next = found.last().filter(|_| more).map(|bucket| bucket.name.to_string());
    BucketAnswer::Page(found, next.unwrap_or_default())
}

#[cfg(test)]
mod tests;
