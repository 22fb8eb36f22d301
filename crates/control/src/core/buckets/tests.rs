use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use wire::bucket::{Bucket, BucketPatch, BucketSpec, BucketState};
use wire::config::ConfigPatch;
use wire::handoff::{BucketAnswer, BucketTable, BucketVerb, ReplyTo, ToShard};
use wire::ids::{BucketId, ShardId};
use wire::names::BucketName;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::{Buckets, Command, ROUNDS_MAX, Stored, WAITING_MAX};
use crate::store::{Effect, Version};

type Answer = Result<BucketAnswer, Refusal>;

const SHARDS: u16 = 3;

fn name(text: &str) -> BucketName {
    BucketName::new(text).unwrap()
}

fn spec(text: &str, token: &str) -> BucketSpec {
    BucketSpec { creation_token: token.to_owned(), ..BucketSpec::named(name(text)) }
}

fn create(text: &str) -> BucketVerb {
    BucketVerb::Create(spec(text, ""))
}

fn delete(text: &str) -> BucketVerb {
    BucketVerb::Delete(name(text))
}

fn get(text: &str) -> BucketVerb {
    BucketVerb::Get(name(text))
}

/// How the store takes one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Luck {
    Good,
    Refuses,
    LosesRequest,
    LosesResponse,
}

#[derive(Debug, Default)]
struct FakeShard {
    queue: VecDeque<ToShard>,
    table: Arc<BucketTable>,
    frozen: BTreeSet<BucketId>,
    streams: BTreeMap<BucketId, u64>,
}

/// The core with a store and shards around it that move only when told.
#[derive(Debug)]
struct World {
    core: Buckets,
    objects: BTreeMap<BucketName, (Bucket, Version)>,
    versions: u64,
    asked: VecDeque<Command>,
    shards: Vec<FakeShard>,
    answers: BTreeMap<u64, Answer>,
    /// What the verbs that are not answered yet would change.
    changes: BTreeMap<u64, BucketName>,
    tickets: u64,
}

impl World {
    fn new(objects: BTreeMap<BucketName, (Bucket, Version)>) -> Self {
        let (core, commands) = Buckets::on_loaded(SHARDS, objects.values().cloned().collect());
        let shards = (0..SHARDS).map(|_| FakeShard::default()).collect();
        let mut world = Self {
            core,
            objects,
            versions: 0,
            asked: VecDeque::new(),
            shards,
            answers: BTreeMap::new(),
            changes: BTreeMap::new(),
            tickets: 0,
        };
        world.perform(commands);
        world
    }

    fn empty() -> Self {
        let mut world = Self::new(BTreeMap::new());
        world.settle();
        world
    }

    /// Starts again from what the store holds; streams live on, answers that were not given never are.
    fn crash(&mut self) {
        let (core, commands) = Buckets::on_loaded(SHARDS, self.objects.values().cloned().collect());
        self.core = core;
        self.asked.clear();
        for shard in &mut self.shards {
            *shard = FakeShard { streams: std::mem::take(&mut shard.streams), ..FakeShard::default() };
        }
        self.perform(commands);
    }

    fn perform(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Tell(message) => {
                    self.shards.iter_mut().for_each(|shard| shard.queue.push_back(message.clone()))
                }
                Command::Reply { to, result } => self.answer(to.ticket, result),
                asked => self.asked.push_back(asked),
            }
        }
    }

    fn answer(&mut self, ticket: u64, result: Answer) {
        let changed = self.changes.remove(&ticket);
        for shard in &self.shards {
            match (&changed, &result) {
                (Some(name), Ok(BucketAnswer::Bucket(bucket))) => {
                    assert_eq!(shard.table.buckets.get(name), Some(bucket))
                }
                (Some(name), Ok(BucketAnswer::Deleted)) => assert_eq!(shard.table.buckets.get(name), None),
                _ => {}
            }
        }
        assert!(self.answers.insert(ticket, result).is_none(), "ticket {ticket} was answered twice");
    }

    /// Asks; the answer may come later.
    fn ask(&mut self, verb: BucketVerb) -> u64 {
        self.tickets += 1;
        let changed = match &verb {
            BucketVerb::Create(spec) | BucketVerb::Ensure(spec) => Some(&spec.name),
            BucketVerb::Update(name, _) | BucketVerb::Delete(name) => Some(name),
            BucketVerb::Get(_) | BucketVerb::List { .. } => None,
        };
        self.changes.extend(changed.map(|name| (self.tickets, name.clone())));
        let reply_to = ReplyTo { shard: ShardId::new(0), ticket: self.tickets };
        let id = BucketId::from_bytes(u128::from(self.tickets).to_be_bytes());
        let commands = self.core.on_verb(reply_to, verb, 1_000, id);
        self.perform(commands);
        self.tickets
    }

    /// Asks and lets everything happen.
    fn call(&mut self, verb: BucketVerb) -> Answer {
        let ticket = self.ask(verb);
        self.settle();
        self.answers.remove(&ticket).expect("an answer")
    }

    fn bucket(&mut self, verb: BucketVerb) -> Arc<Bucket> {
        match self.call(verb) {
            Ok(BucketAnswer::Bucket(bucket)) => bucket,
            other => panic!("no bucket: {other:?}"),
        }
    }

    fn refusal(&mut self, verb: BucketVerb) -> (Reason, String) {
        let refusal = self.call(verb).expect_err("a refusal");
        (refusal.reason, refusal.message)
    }

    fn next_version(&mut self) -> Version {
        self.versions += 1;
        Version::new(&self.versions.to_string())
    }

    fn apply(&mut self, command: &Command) -> Stored {
        match command {
            Command::Put { bucket, expected } => {
                if self.objects.get(&bucket.name).map(|(_, version)| version) != expected.as_ref() {
                    return Stored::Conflict;
                }
                let version = self.next_version();
                self.objects.insert(bucket.name.clone(), (Bucket::clone(bucket), version.clone()));
                Stored::Kept(version)
            }
            Command::Remove { name, expected } => {
                let Some((bucket, version)) = self.objects.get(name) else { return Stored::Conflict };
                if version != expected {
                    return Stored::Conflict;
                }
                assert_eq!(self.streams(bucket.id), 0, "a bucket with streams is removed");
                self.objects.remove(name);
                Stored::Removed
            }
            Command::Read { name } => Stored::Found(self.objects.get(name).cloned()),
            other => panic!("not for the store: {other:?}"),
        }
    }

    /// The store takes its command number `at`.
    fn store_step(&mut self, at: usize, luck: Luck) {
        let command = self.asked.remove(at).unwrap();
        let name = match &command {
            Command::Put { bucket, .. } => bucket.name.clone(),
            Command::Remove { name, .. } | Command::Read { name } => name.clone(),
            other => panic!("not for the store: {other:?}"),
        };
        let applied = (luck != Luck::Refuses && luck != Luck::LosesRequest).then(|| self.apply(&command));
        let refusal = Refusal::new(Reason::Unavailable, "the store is down");
        let stored = match (luck, applied) {
            (Luck::Good, Some(stored)) => stored,
            (Luck::Refuses, _) => Stored::Failed { effect: Effect::None, refusal },
            _ => Stored::Failed { effect: Effect::Unknown, refusal },
        };
        let commands = self.core.on_stored(&name, stored);
        self.perform(commands);
    }

    /// A shard takes its next message, as the real ones do.
    fn shard_step(&mut self, at: u16) {
        let shard = &mut self.shards[usize::from(at)];
        let commands = match shard.queue.pop_front().unwrap() {
            ToShard::Buckets(table) => {
                assert!(table.version > shard.table.version);
                shard.table = table;
                shard.frozen.clear();
                self.core.on_confirmed(ShardId::new(at), shard.table.version)
            }
            ToShard::Freeze { bucket } => {
                shard.frozen.insert(bucket);
                let streams = shard.streams.get(&bucket).copied().unwrap_or(0);
                self.core.on_frozen(ShardId::new(at), bucket, streams)
            }
            other => panic!("not told by buckets: {other:?}"),
        };
        self.perform(commands);
    }

    /// A shard makes a stream, if its table lets it.
    fn make_stream(&mut self, at: u16, bucket: &BucketName) -> bool {
        let shard = &mut self.shards[usize::from(at)];
        let live = shard.table.buckets.get(bucket).filter(|b| b.state == BucketState::Live);
        let Some(id) = live.map(|bucket| bucket.id).filter(|id| !shard.frozen.contains(id)) else {
            return false;
        };
        *shard.streams.entry(id).or_default() += 1;
        true
    }

    fn streams(&self, id: BucketId) -> u64 {
        self.shards.iter().filter_map(|shard| shard.streams.get(&id)).sum()
    }

    /// Lets all shards take all messages.
    fn shards_catch_up(&mut self) {
        while let Some(at) = (0..SHARDS).find(|at| !self.shards[usize::from(*at)].queue.is_empty()) {
            self.shard_step(at);
        }
    }

    /// Lets everything happen, without trouble.
    fn settle(&mut self) {
        loop {
            self.shards_catch_up();
            if self.asked.is_empty() {
                let commands = self.core.on_tick();
                self.perform(commands);
            }
            if self.asked.is_empty() {
                break;
            }
            self.store_step(0, Luck::Good);
        }
        self.check_settled();
    }

    fn check_settled(&self) {
        let table: Vec<_> = self.objects.values().map(|(bucket, _)| bucket.clone()).collect();
        for shard in &self.shards {
            let served: Vec<_> = shard.table.buckets.values().map(|bucket| Bucket::clone(bucket)).collect();
            assert_eq!(served, table);
        }
        assert!(table.iter().all(|bucket| bucket.state == BucketState::Live), "{table:?}");
        assert!(self.core.jobs.is_empty() && self.core.waiting == 0, "{:?}", self.core.jobs);
        assert!(self.core.versions.iter().eq(self.objects.iter().map(|(name, (_, version))| (name, version))));
    }
}

#[test]
fn a_create_is_answered_only_when_it_is_durable_and_every_shard_serves_it() {
    let mut world = World::empty();
    let ticket = world.ask(create("orders"));
    assert!(world.shards.iter().all(|shard| shard.queue.is_empty()));
    world.store_step(0, Luck::Good);
    for at in 0..SHARDS {
        assert!(!world.answers.contains_key(&ticket));
        let seen = world.ask(get("orders"));
        assert!(world.answers[&seen].is_err(), "seen before every shard serves it");
        world.shard_step(at);
    }
    assert!(world.answers[&ticket].is_ok());
    assert_eq!(world.bucket(get("orders")).created_at_ms, 1_000);
}

#[test]
fn only_the_same_creation_token_gives_the_same_bucket() {
    let mut world = World::empty();
    let first = world.bucket(BucketVerb::Create(spec("orders", "job-7")));
    let again = world.bucket(BucketVerb::Create(BucketSpec { create_stream_on_read: true, ..spec("orders", "job-7") }));
    assert_eq!(first, again);
    for token in ["job-8", ""] {
        let (reason, message) = world.refusal(BucketVerb::Create(spec("orders", token)));
        assert_eq!((reason, message.as_str()), (Reason::AlreadyExists, "bucket orders already exists"));
    }
    world.bucket(create("tokenless"));
    assert_eq!(world.refusal(create("tokenless")).0, Reason::AlreadyExists);
}

#[test]
fn an_ensure_makes_a_bucket_once_and_then_changes_nothing() {
    let mut world = World::empty();
    let first = world.bucket(BucketVerb::Ensure(spec("orders", "")));
    let other = BucketSpec { create_stream_on_append: true, location: "eu".to_owned(), ..spec("orders", "t") };
    let objects = world.objects.clone();
    assert_eq!(world.bucket(BucketVerb::Ensure(other)), first);
    assert_eq!(world.objects, objects);
}

#[test]
fn an_update_leaves_what_is_absent_and_sets_zero_to_zero() {
    let mut world = World::empty();
    let defaults =
        ConfigPatch { retention_max_bytes: Some(9), retention_max_age_ms: Some(5), ..ConfigPatch::default() };
    let made =
        world.bucket(BucketVerb::Create(BucketSpec { create_stream_on_read: true, defaults, ..spec("orders", "") }));
    let patch = BucketPatch {
        create_stream_on_append: Some(true),
        defaults: ConfigPatch { retention_max_bytes: Some(0), ..ConfigPatch::default() },
        ..BucketPatch::default()
    };
    let changed = world.bucket(BucketVerb::Update(name("orders"), patch));
    assert!(changed.create_stream_on_append && changed.create_stream_on_read);
    assert_eq!((changed.defaults.retention.max_bytes, changed.defaults.retention.max_age_ms), (0, 5));
    assert_eq!((changed.id, changed.created_at_ms), (made.id, made.created_at_ms));

    let objects = world.objects.clone();
    assert_eq!(world.bucket(BucketVerb::Update(name("orders"), patch)), changed);
    assert_eq!(world.objects, objects, "an update that changes nothing writes nothing");
}

#[test]
fn uncapped_stamps_with_an_age_are_refused_on_the_merged_defaults() {
    let mut world = World::empty();
    let uncapped = ConfigPatch { timestamping_uncapped: Some(true), ..ConfigPatch::default() };
    let aged = ConfigPatch { retention_max_age_ms: Some(1), ..ConfigPatch::default() };
    let both = ConfigPatch { retention_max_age_ms: Some(1), ..uncapped };
    for verb in [BucketVerb::Create, BucketVerb::Ensure] {
        assert_eq!(world.refusal(verb(BucketSpec { defaults: both, ..spec("both", "") })).0, Reason::Invalid);
    }
    for (at, (first, second)) in [(uncapped, aged), (aged, uncapped)].into_iter().enumerate() {
        let bucket = format!("bucket-{at}");
        let made = world.bucket(BucketVerb::Create(BucketSpec { defaults: first, ..spec(&bucket, "") }));
        let patch = BucketPatch { defaults: second, ..BucketPatch::default() };
        assert_eq!(world.refusal(BucketVerb::Update(name(&bucket), patch)).0, Reason::Invalid);
        assert_eq!(world.bucket(get(&bucket)), made);
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let mut world = World::empty();
    let patch = BucketPatch { create_stream_on_append: Some(true), ..BucketPatch::default() };
    for verb in [get("orders"), delete("orders"), BucketVerb::Update(name("orders"), patch)] {
        assert_eq!(world.refusal(verb), (Reason::NotFound, "there is no bucket orders".to_owned()));
    }
}

#[test]
fn an_empty_bucket_goes_once_every_shard_has_counted_none() {
    let mut world = World::empty();
    let first = world.bucket(create("orders"));
    let ticket = world.ask(delete("orders"));
    world.store_step(0, Luck::Good);
    assert_eq!(world.objects[&name("orders")].0.state, BucketState::Deleting);
    for at in 0..SHARDS {
        assert!(world.asked.is_empty(), "removed before shard {at} has counted");
        world.shard_step(at);
        assert!(!world.make_stream(at, &name("orders")), "a shard that knows of the deletion makes no stream");
        world.shard_step(at);
    }
    world.store_step(0, Luck::Good);
    assert!(!world.answers.contains_key(&ticket), "answered while shards still know the bucket");
    world.settle();
    assert_eq!(world.answers[&ticket], Ok(BucketAnswer::Deleted));
    assert_eq!(world.refusal(delete("orders")).0, Reason::NotFound);
    assert_ne!(world.bucket(create("orders")).id, first.id);
}

#[test]
fn a_bucket_with_streams_is_refused_and_serves_on() {
    let mut world = World::empty();
    let made = world.bucket(create("orders"));
    assert!(world.make_stream(1, &name("orders")) && world.make_stream(2, &name("orders")));
    let (reason, message) = world.refusal(delete("orders"));
    assert_eq!(reason, Reason::BucketNotEmpty);
    assert_eq!(message, "bucket orders still has 2 streams: delete them first");
    assert_eq!(world.bucket(get("orders")), made);
    assert!(world.make_stream(0, &name("orders")));
}

#[test]
fn a_deletion_cut_by_a_crash_is_brought_to_an_end_at_start() {
    for streams in [0, 1] {
        let mut world = World::empty();
        world.bucket(create("orders"));
        for _ in 0..streams {
            assert!(world.make_stream(1, &name("orders")));
        }
        world.ask(delete("orders"));
        world.store_step(0, Luck::Good);
        world.crash();
        let waits = world.ask(create("orders"));
        world.settle();
        assert_eq!(world.answers[&waits].is_ok(), streams == 0, "{:?}", world.answers[&waits]);
        world.bucket(get("orders"));
    }
}

#[test]
fn verbs_of_one_bucket_wait_for_each_other_and_those_of_others_do_not() {
    let mut world = World::empty();
    let (first, second) = (world.ask(create("orders")), world.ask(BucketVerb::Ensure(spec("orders", ""))));
    let other = world.ask(create("others"));
    assert_eq!(world.asked.len(), 2);
    world.store_step(1, Luck::Good);
    world.shards_catch_up();
    assert!(world.answers.contains_key(&other) && !world.answers.contains_key(&first));
    world.settle();
    assert_eq!(world.answers[&first], world.answers[&second]);
}

#[test]
fn a_lost_answer_of_the_store_is_unavailable_and_then_read_back() {
    for luck in [Luck::LosesRequest, Luck::LosesResponse] {
        let mut world = World::empty();
        let ticket = world.ask(BucketVerb::Create(spec("orders", "job-7")));
        world.store_step(0, luck);
        assert_eq!(world.answers[&ticket].as_ref().unwrap_err().reason, Reason::Unavailable);
        let again = world.ask(BucketVerb::Create(spec("orders", "job-7")));
        assert!(!world.answers.contains_key(&again), "decided on what is not known");
        world.settle();
        let Ok(BucketAnswer::Bucket(bucket)) = &world.answers[&again] else { panic!("{luck:?}") };
        let by = if luck == Luck::LosesResponse { ticket } else { again };
        assert_eq!(bucket.id.to_bytes(), u128::from(by).to_be_bytes());
    }
}

#[test]
fn a_store_that_refuses_changes_nothing_and_is_asked_again_by_the_next_verb() {
    let mut world = World::empty();
    let ticket = world.ask(create("orders"));
    world.store_step(0, Luck::Refuses);
    assert!(world.answers[&ticket].is_err());
    world.check_settled();
    world.bucket(create("orders"));
}

#[test]
fn a_deletion_that_the_store_fails_half_way_goes_on_by_itself() {
    for streams in [0, 1] {
        for luck in [Luck::Refuses, Luck::LosesRequest, Luck::LosesResponse] {
            let mut world = World::empty();
            world.bucket(create("orders"));
            for _ in 0..streams {
                assert!(world.make_stream(0, &name("orders")));
            }
            let ticket = world.ask(delete("orders"));
            world.store_step(0, Luck::Good);
            world.shards_catch_up();
            world.store_step(0, luck);
            assert_eq!(world.answers[&ticket].as_ref().unwrap_err().reason, Reason::Unavailable);
            world.settle();
            assert_eq!(world.objects.len(), streams);
        }
    }
}

#[test]
fn a_change_by_another_is_read_and_the_verb_decided_on_it() {
    let mut world = World::empty();
    let theirs = Bucket::made(&spec("orders", "job-7"), BucketId::from_bytes([9; 16]), 5);
    let version = world.next_version();
    world.objects.insert(name("orders"), (theirs.clone(), version));
    assert_eq!(*world.bucket(BucketVerb::Create(spec("orders", "job-7"))), theirs);

    let version = world.next_version();
    world.objects.insert(name("orders"), (Bucket { create_stream_on_read: true, ..theirs }, version));
    let patch = BucketPatch { create_stream_on_append: Some(true), ..BucketPatch::default() };
    let changed = world.bucket(BucketVerb::Update(name("orders"), patch));
    assert!(changed.create_stream_on_append && changed.create_stream_on_read);

    world.objects.clear();
    assert_eq!(world.refusal(delete("orders")).0, Reason::NotFound);
}

#[test]
fn a_create_over_anothers_unfinished_deletion_ends_that_and_is_then_decided() {
    for streams in [0, 1] {
        let mut world = World::empty();
        let theirs = Bucket::made(&spec("orders", ""), BucketId::from_bytes([9; 16]), 5);
        world.shards[1].streams.insert(theirs.id, streams);
        let version = world.next_version();
        world.objects.insert(name("orders"), (Bucket { state: BucketState::Deleting, ..theirs.clone() }, version));
        let answer = world.call(create("orders"));
        if streams == 0 {
            assert!(matches!(answer, Ok(BucketAnswer::Bucket(bucket)) if bucket.id != theirs.id));
        } else {
            assert_eq!(answer.unwrap_err().reason, Reason::AlreadyExists);
            assert_eq!(*world.bucket(get("orders")), theirs);
        }
    }
}

#[test]
fn a_bucket_that_others_keep_changing_is_unavailable_in_the_end() {
    let mut world = World::empty();
    world.bucket(create("orders"));
    let patch = BucketPatch { create_stream_on_append: Some(true), ..BucketPatch::default() };
    let ticket = world.ask(BucketVerb::Update(name("orders"), patch));
    for _ in 0..ROUNDS_MAX {
        assert!(!world.answers.contains_key(&ticket));
        let version = world.next_version();
        world.objects.get_mut(&name("orders")).unwrap().1 = version;
        world.store_step(0, Luck::Good);
        world.store_step(0, Luck::Good);
    }
    assert_eq!(world.answers[&ticket].as_ref().unwrap_err().reason, Reason::Unavailable);
    world.settle();
    world.bucket(BucketVerb::Update(name("orders"), patch));
}

#[test]
fn a_bucket_whose_object_can_not_be_read_serves_on_and_refuses_changes() {
    let mut world = World::empty();
    let made = world.bucket(create("orders"));
    let patch = BucketPatch { create_stream_on_append: Some(true), ..BucketPatch::default() };
    let first = world.ask(BucketVerb::Update(name("orders"), patch));
    world.store_step(0, Luck::LosesRequest);
    let second = world.ask(delete("orders"));
    let commands = world.core.on_tick();
    world.perform(commands);
    world.store_step(0, Luck::Refuses);
    for ticket in [first, second] {
        assert!(world.answers[&ticket].is_err());
    }
    let seen = world.ask(get("orders"));
    assert_eq!(world.answers[&seen], Ok(BucketAnswer::Bucket(made)));
    world.settle();
}

#[test]
fn a_listing_is_by_name_in_pages() {
    let mut world = World::empty();
    for bucket in ["ccc", "aaa", "bbb", "ddd"] {
        world.bucket(create(bucket));
    }
    let mut list = |after: &str, limit| match world.call(BucketVerb::List { after: after.to_owned(), limit }) {
        Ok(BucketAnswer::Page(rows, next)) => {
            (rows.iter().map(|row| row.name.to_string()).collect::<Vec<_>>().join(" "), next)
        }
        other => panic!("no page: {other:?}"),
    };
    let page = |rows: &str, next: &str| (rows.to_owned(), next.to_owned());
    assert_eq!(list("", 2), page("aaa bbb", "bbb"));
    assert_eq!(list("bbb", 2), page("ccc ddd", ""));
    assert_eq!(list("aab!", 1), page("bbb", "bbb"));
    assert_eq!(list("zzz", 1), page("", ""));
    assert_eq!(list("", 0), page("aaa bbb ccc ddd", ""));
    assert_eq!(list("", u32::MAX), page("aaa bbb ccc ddd", ""));
}

#[test]
fn too_many_waiting_changes_are_refused_at_once() {
    let mut world = World::empty();
    for _ in 0..=WAITING_MAX {
        world.ask(BucketVerb::Ensure(spec("orders", "")));
    }
    assert_eq!(world.answers.len(), 0);
    let over = world.ask(create("others"));
    assert_eq!(world.answers[&over].as_ref().unwrap_err().reason, Reason::ResourceExhausted);
    world.settle();
    assert_eq!(world.answers.len(), WAITING_MAX + 2);
}

#[test]
fn a_stop_answers_everyone_who_waits() {
    let mut world = World::empty();
    let asked = [world.ask(create("orders")), world.ask(delete("orders")), world.ask(create("others"))];
    let commands = world.core.on_stop();
    world.perform(commands);
    for ticket in asked {
        assert_eq!(world.answers[&ticket].as_ref().unwrap_err().reason, Reason::Unavailable);
    }
}

#[test]
fn a_report_that_nothing_waits_for_is_ignored() {
    let mut world = World::empty();
    let made = world.bucket(create("orders"));
    for id in [made.id, BucketId::from_bytes([1; 16])] {
        assert!(world.core.on_frozen(ShardId::new(0), id, 0).is_empty());
    }
    assert!(world.core.on_confirmed(ShardId::new(SHARDS + 7), 99).is_empty());
    world.settle();
}

/// A small generator, so that a seed is a whole run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    fn verb(&mut self) -> BucketVerb {
        let bucket = ["aaa", "bbb", "ccc"][self.index(3)];
        match self.below(6) {
            0 => create(bucket),
            1 => BucketVerb::Create(spec(bucket, "token")),
            2 => BucketVerb::Ensure(spec(bucket, "")),
            3 => {
                let patch = BucketPatch { create_stream_on_read: Some(self.below(2) == 0), ..BucketPatch::default() };
                BucketVerb::Update(name(bucket), patch)
            }
            _ => delete(bucket),
        }
    }

    fn luck(&mut self) -> Luck {
        match self.below(12) {
            0 => Luck::Refuses,
            1 => Luck::LosesRequest,
            2 => Luck::LosesResponse,
            _ => Luck::Good,
        }
    }

    fn turn(&mut self, world: &mut World) {
        let at = u16::try_from(self.below(u64::from(SHARDS))).unwrap();
        match self.below(40) {
            0..8 => drop(world.ask(self.verb())),
            8..20 if !world.asked.is_empty() => world.store_step(self.index(world.asked.len()), self.luck()),
            20..34 if !world.shards[usize::from(at)].queue.is_empty() => world.shard_step(at),
            34..36 => drop(world.make_stream(at, &name("aaa"))),
            36 => world.shards[usize::from(at)].streams.clear(),
            37 => {
                let commands = world.core.on_tick();
                world.perform(commands);
            }
            38 if self.below(10) == 0 => {
                world.crash();
                world.answers.extend((1..=world.tickets).map(|lost| (lost, Ok(BucketAnswer::Deleted))));
            }
            _ => {}
        }
    }
}

#[test]
fn in_any_order_of_events_each_verb_is_answered_once_and_no_stream_is_lost() {
    for seed in 0..400 {
        let (mut dice, mut world) = (Dice(seed), World::empty());
        let mut ids = BTreeMap::new();
        for _ in 0..400 {
            dice.turn(&mut world);
            for (bucket, _) in world.objects.values() {
                assert_eq!(ids.entry(bucket.id).or_insert_with(|| bucket.name.clone()), &bucket.name, "seed {seed}");
            }
        }
        world.settle();
        assert_eq!(world.answers.len() as u64, world.tickets, "seed {seed}");
        for shard in &world.shards {
            for (id, streams) in &shard.streams {
                let there = world.objects.values().any(|(bucket, _)| bucket.id == *id);
                assert!(there || *streams == 0, "seed {seed}: streams of a bucket that is gone");
            }
        }
    }
}
