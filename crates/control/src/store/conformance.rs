//! Does a store keep the promises that nova stands on?
//!
//! The tests run this over every implementation, and `novad store check` over an operator's store. Each case works below a name
//! that nothing else uses, and what was made is removed at the end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Effect, ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError, Version};

/// Writers of a race.
const RACERS: usize = 8;
/// Rounds of the create race.
const RACES: usize = 20;
/// Increments a writer makes in the counter race.
const INCREMENTS: u64 = 8;
/// Attempts at one increment before the store is said to make no progress.
const ATTEMPTS_MAX: usize = 1_000;
/// Bytes of the largest object tried: about those of the largest that nova writes at once.
const LARGE_BYTES: usize = 8 << 20;
/// How long the writer of an object waits before it gives up, so that it does so midway.
const PATIENCE: Duration = Duration::from_millis(3);

const CREATES_ONCE: &str = "a second create is refused and changes nothing";
const COMPARES: &str = "only the current version is replaced";
const COMPARES_AND_REMOVES: &str = "only the current version is removed";
const RACES_TO_CREATE: &str = "a race to create has one winner";
const RACES_TO_COUNT: &str = "a race of replacements loses none";

/// What a case found instead of what was promised.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The store failed where it had to answer.
    #[error("{doing}: {source}")]
    Failed {
        /// What was tried.
        doing: &'static str,
        /// How it failed.
        source: StoreError,
    },
    /// The store answered something else than it promised.
    #[error("{promise}, but it answered {found}")]
    Answer {
        /// The promise.
        promise: &'static str,
        /// What came instead.
        found: String,
    },
    /// A count is not what it must be.
    #[error("{promise}, but {found} of {expected} did")]
    Count {
        /// The promise.
        promise: &'static str,
        /// How many did.
        found: u64,
        /// How many had to.
        expected: u64,
    },
}

/// One promise and whether the store keeps it.
#[derive(Debug)]
pub struct Case {
    /// The promise, as a sentence.
    pub name: &'static str,
    /// What broke it.
    pub outcome: Result<(), Broken>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(()) => write!(f, "ok    {}", self.name),
            Err(broken) => write!(f, "FAIL  {}: {broken}", self.name),
        }
    }
}

/// Runs every case over `store`, below `check/<a fresh id>/`, and hands each on as soon as it is known. Inside a tokio runtime.
pub async fn check<S: Store + ?Sized>(store: Arc<S>, mut on_case: impl FnMut(&Case)) -> Vec<Case> {
    let ground = Ground { root: format!("check/{}", uuid::Uuid::now_v7().simple()), store };
    let mut cases = Vec::new();
    let mut keep = |name, outcome| {
        let case = Case { name, outcome };
        on_case(&case);
        cases.push(case);
    };
    keep("a new object is read back, whole and by its head", ground.reads_back().await);
    keep(CREATES_ONCE, ground.creates_once().await);
    keep("a put repeated with its nonce succeeds", ground.repeats().await);
    keep(COMPARES, ground.compares_and_swaps().await);
    keep("equal bytes written twice are two versions", ground.tells_versions_apart().await);
    keep("ranges and suffixes are the bytes they name", ground.reads_spans().await);
    keep("a large object is read back, whole and in parts", ground.reads_large().await);
    keep("what is removed is gone and can be made again", ground.removes().await);
    keep(COMPARES_AND_REMOVES, ground.compares_and_removes().await);
    keep("a listing has every object once, in byte order", ground.lists().await);
    keep("a listing shows each write at once", ground.lists_what_was_written().await);
    keep("any name keeps its own object", ground.keeps_names_apart().await);
    keep("a put that is given up leaves a whole object or none", ground.gives_up().await);
    keep(RACES_TO_CREATE, ground.races_to_create().await);
    keep(RACES_TO_COUNT, ground.races_to_count().await);
    keep("everything made can be listed and removed", ground.sweep().await);
    cases
}

/// What the broken promises of the cases say of the store, where that is plain: conditions that it does not judge.
#[must_use]
pub fn lies(cases: &[Case]) -> Vec<&'static str> {
    let known = [
        (CREATES_ONCE, "it ignores If-None-Match, so that two writers can create the same object"),
        (COMPARES, "it ignores If-Match, so that a writer can undo another's write"),
        (COMPARES_AND_REMOVES, "it ignores If-Match of removals, so that one can take another's write with it"),
        (RACES_TO_CREATE, "it judges If-None-Match, but not in one step with the write"),
        (RACES_TO_COUNT, "it judges If-Match, but not in one step with the write"),
    ];
    let is_broken = |name: &str| {
        let mut outcomes = cases.iter().filter(|case| case.name == name).map(|case| &case.outcome);
        outcomes.any(|outcome| matches!(outcome, Err(Broken::Answer { .. } | Broken::Count { .. })))
    };
    let mut lies: Vec<_> = known.into_iter().filter(|(name, _)| is_broken(name)).collect();
    // A condition that is not judged at all is not judged in one step either.
    let has = |lies: &[(&str, _)], name| lies.iter().any(|(lie, _)| *lie == name);
    let (no_create, no_swap) = (has(&lies, CREATES_ONCE), has(&lies, COMPARES));
    lies.retain(|(name, _)| !(no_create && *name == RACES_TO_CREATE || no_swap && *name == RACES_TO_COUNT));
    lies.into_iter().map(|(_, lie)| lie).collect()
}

struct Ground<S: ?Sized> {
    root: String,
    store: Arc<S>,
}

fn failed(doing: &'static str) -> impl Fn(StoreError) -> Broken {
    move |source| Broken::Failed { doing, source }
}

fn expect(promise: &'static str, held: bool, found: &impl fmt::Debug) -> Result<(), Broken> {
    if held { Ok(()) } else { Err(Broken::Answer { promise, found: format!("{found:?}") }) }
}

fn number(body: &[u8]) -> u64 {
    body.try_into().map_or(0, u64::from_le_bytes)
}

impl<S: Store + ?Sized> Ground<S> {
    fn name(&self, rest: &str) -> Result<ObjectName, Broken> {
        let name = format!("{}/{rest}", self.root);
        ObjectName::parse(&name)
            .map_err(|e| Broken::Answer { promise: "the check's own names are valid", found: e.to_string() })
    }

    async fn create(&self, name: &ObjectName, body: &'static [u8]) -> Result<Version, Broken> {
        let made = self.store.put_if_absent(name, Bytes::from_static(body), PutNonce::fresh()).await;
        made.map_err(failed("creating an object that is absent"))
    }

    async fn replace(&self, name: &ObjectName, from: &Version, body: &'static [u8]) -> Result<Version, StoreError> {
        self.store.put_if_match(name, from, Bytes::from_static(body), PutNonce::fresh()).await
    }

    async fn body(&self, name: &ObjectName, span: Span) -> Result<Bytes, Broken> {
        self.store.get(name, span).await.map(|object| object.body).map_err(failed("reading an object"))
    }

    async fn reads_back(&self) -> Result<(), Broken> {
        for (rest, body) in [("back/full", &b"some bytes"[..]), ("back/empty", b"")] {
            let name = self.name(rest)?;
            let nonce = PutNonce::fresh();
            let made = self.store.put_if_absent(&name, Bytes::from_static(body), nonce).await;
            let version = made.map_err(failed("creating an object that is absent"))?;
            let object = self.store.get(&name, Span::Whole).await.map_err(failed("reading an object"))?;
            expect("a read gives the bytes written", object.body == body, &object.body)?;
            let head = self.store.head(&name).await.map_err(failed("reading a head"))?;
            expect("head and get agree", head == object.meta, &(&head, &object.meta))?;
            let same = head.version == version && head.nonce == nonce && head.size_bytes == body.len() as u64;
            expect("the head has the version, nonce and size written", same, &head)?;
        }
        let absent = self.name("back/absent")?;
        let answer = self.store.get(&absent, Span::Whole).await;
        expect("reading an absent object is NotFound", matches!(answer, Err(StoreError::NotFound { .. })), &answer)?;
        let answer = self.store.head(&absent).await;
        expect("an absent object's head is NotFound", matches!(answer, Err(StoreError::NotFound { .. })), &answer)
    }

    async fn creates_once(&self) -> Result<(), Broken> {
        let name = self.name("once")?;
        let version = self.create(&name, b"first").await?;
        let second = self.store.put_if_absent(&name, Bytes::from_static(b"second"), PutNonce::fresh()).await;
        let refused = matches!(&second, Err(StoreError::AlreadyExists { current, .. }) if *current == version);
        expect("a second create is AlreadyExists with the current version", refused, &second)?;
        let body = self.body(&name, Span::Whole).await?;
        expect("a refused create changes nothing", body == "first", &body)
    }

    async fn repeats(&self) -> Result<(), Broken> {
        let name = self.name("again")?;
        let (first, second) = (PutNonce::fresh(), PutNonce::fresh());
        let mut versions = Vec::new();
        for _ in 0..2 {
            let made = self.store.put_if_absent(&name, Bytes::from_static(b"one"), first).await;
            versions.push(made.map_err(failed("creating with the same nonce again"))?);
        }
        let created = versions[0].clone();
        for _ in 0..2 {
            let made = self.store.put_if_match(&name, &created, Bytes::from_static(b"two"), second).await;
            versions.push(made.map_err(failed("replacing with the same nonce again"))?);
        }
        let same = versions[0] == versions[1] && versions[2] == versions[3] && versions[1] != versions[2];
        expect("a repeated put answers the version of the first", same, &versions)?;
        let late = self.store.put_if_absent(&name, Bytes::from_static(b"one"), first).await;
        let refused = matches!(&late, Err(StoreError::AlreadyExists { current, .. }) if *current == versions[3]);
        expect("a create repeated after a replacement is AlreadyExists", refused, &late)?;
        let body = self.body(&name, Span::Whole).await?;
        expect("a repeated put changes nothing", body == "two", &body)
    }

    async fn compares_and_swaps(&self) -> Result<(), Broken> {
        let name = self.name("swap")?;
        let absent = self.replace(&name, &Version::new("nothing"), b"x").await;
        expect("replacing nothing is NotFound", matches!(absent, Err(StoreError::NotFound { .. })), &absent)?;
        let first = self.create(&name, b"first").await?;
        let second = self.replace(&name, &first, b"second").await.map_err(failed("replacing the current version"))?;
        let stale = self.replace(&name, &first, b"third").await;
        let refused = matches!(&stale, Err(StoreError::VersionMismatch { current, .. }) if *current == second);
        expect("replacing an old version is VersionMismatch with the current one", refused, &stale)?;
        let body = self.body(&name, Span::Whole).await?;
        expect("a refused replacement changes nothing", body == "second", &body)
    }

    async fn tells_versions_apart(&self) -> Result<(), Broken> {
        let name = self.name("aba")?;
        let first = self.create(&name, b"a").await?;
        let second = self.replace(&name, &first, b"b").await.map_err(failed("replacing the current version"))?;
        let third = self.replace(&name, &second, b"a").await.map_err(failed("replacing the current version"))?;
        expect("equal bytes written twice are two versions", first != third, &(&first, &third))?;
        let stale = self.replace(&name, &first, b"c").await;
        let refused = matches!(&stale, Err(StoreError::VersionMismatch { .. }));
        expect("a version does not come back with its bytes", refused, &stale)
    }

    async fn reads_spans(&self) -> Result<(), Broken> {
        let name = self.name("spans")?;
        self.create(&name, b"0123456789").await?;
        let spans: [(Span, &[u8]); 7] = [
            (Span::Range { start: 0, end: 10 }, b"0123456789"),
            (Span::Range { start: 3, end: 5 }, b"34"),
            (Span::Range { start: 9, end: 100 }, b"9"),
            (Span::Suffix(1), b"9"),
            (Span::Suffix(4), b"6789"),
            (Span::Suffix(10), b"0123456789"),
            (Span::Suffix(11), b"0123456789"),
        ];
        for (span, bytes) in spans {
            let object = self.store.get(&name, span).await.map_err(failed("reading a span"))?;
            expect("a span is the bytes it names", object.body == bytes, &(span, &object.body))?;
            let size = object.meta.size_bytes;
            expect("a part says the size of the whole", size == 10, &(span, size))?;
        }
        let past = self.store.get(&name, Span::Range { start: 10, end: 11 }).await;
        let refused = matches!(past, Err(StoreError::OutOfRange { start: 10, size_bytes: 10, .. }));
        expect("a range that starts at the end is OutOfRange", refused, &past)
    }

    async fn reads_large(&self) -> Result<(), Broken> {
        let name = self.name("big")?;
        // A prime number of different bytes, so that no two pages are alike.
        let body: Bytes = (0..=250_u8).cycle().take(LARGE_BYTES).collect();
        let made = self.store.put_if_absent(&name, body.clone(), PutNonce::fresh()).await;
        made.map_err(failed("creating an object of 8 MiB"))?;
        let size = LARGE_BYTES as u64;
        let middle = Span::Range { start: size / 2 - 1, end: size / 2 + 1_000 };
        for span in [Span::Whole, middle, Span::Suffix(100_000)] {
            let found = self.body(&name, span).await?;
            let range = span.within(size).unwrap_or_default();
            let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            let same = found == body.slice(index(range.start)..index(range.end));
            expect("a large object is what was written", same, &(span, found.len()))?;
        }
        Ok(())
    }

    async fn removes(&self) -> Result<(), Broken> {
        let name = self.name("removed")?;
        let first = self.create(&name, b"first").await?;
        for _ in 0..2 {
            self.store.delete(&name).await.map_err(failed("removing an object, and what is not there"))?;
        }
        let gone = self.store.get(&name, Span::Whole).await;
        expect("a removed object is NotFound", matches!(gone, Err(StoreError::NotFound { .. })), &gone)?;
        let back = self.replace(&name, &first, b"back").await;
        expect("a replacement does not bring it back", matches!(back, Err(StoreError::NotFound { .. })), &back)?;
        let second = self.create(&name, b"first").await?;
        expect("made again it is another version", first != second, &(&first, &second))
    }

    async fn compares_and_removes(&self) -> Result<(), Broken> {
        let name = self.name("removed-if")?;
        let first = self.create(&name, b"first").await?;
        let second = self.replace(&name, &first, b"second").await.map_err(failed("replacing the current version"))?;
        let stale = self.store.delete_if_match(&name, &first).await;
        let refused = matches!(&stale, Err(StoreError::VersionMismatch { current, .. }) if *current == second);
        expect("removing an old version is VersionMismatch with the current one", refused, &stale)?;
        let body = self.body(&name, Span::Whole).await?;
        expect("a refused removal changes nothing", body == "second", &body)?;
        self.store.delete_if_match(&name, &second).await.map_err(failed("removing the current version"))?;
        let gone = self.store.delete_if_match(&name, &second).await;
        expect("removing it again is NotFound", matches!(gone, Err(StoreError::NotFound { .. })), &gone)
    }

    async fn listed(&self, prefix: &str, limit: usize) -> Result<Vec<String>, Broken> {
        let start = format!("{}/", self.root);
        let prefix = ObjectPrefix::parse(&format!("{start}{prefix}"))
            .map_err(|e| Broken::Answer { promise: "the check's own prefixes are valid", found: e.to_string() })?;
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.list(&prefix, after.as_ref(), limit).await.map_err(failed("listing"))?;
            let kept = page.objects.len() <= limit && (!page.more || !page.objects.is_empty());
            expect("a page has at most its limit, and something if more follow", kept, &page)?;
            names.extend(page.objects.iter().map(|row| row.name.as_str().trim_start_matches(&start).to_owned()));
            after = page.objects.last().map(|row| row.name.clone());
            if !page.more {
                return Ok(names);
            }
        }
    }

    async fn lists(&self) -> Result<(), Broken> {
        // In byte order, in which `-` and `.` come before `/` and digits after it.
        let sorted = ["l", "l-a", "l.b", "l/a", "l/a-b", "l/a/b", "l/a/b/c", "l/a0", "l/é", "l0", "la"];
        for rest in sorted.iter().rev() {
            self.create(&self.name(rest)?, b"row").await?;
        }
        for limit in [1, 2, 3, 100] {
            let found = self.listed("l", limit).await?;
            expect("a listing is complete and in byte order", found == sorted, &(limit, &found))?;
        }
        for (prefix, from, to) in [("l/", 3, 9), ("l/a", 3, 8), ("l/a/", 5, 7), ("l/a/b/c", 6, 7), ("none/", 0, 0)] {
            let found = self.listed(prefix, 2).await?;
            expect("a listing has what its prefix names", found == sorted[from..to], &(prefix, &found))?;
        }
        self.store.delete(&self.name("l/a")?).await.map_err(failed("removing an object"))?;
        let found = self.listed("l/a", 100).await?;
        let rest = ["l/a-b", "l/a/b", "l/a/b/c", "l/a0"];
        expect("a removed object leaves the listing, and those below it stay", found == rest, &found)
    }

    async fn lists_what_was_written(&self) -> Result<(), Broken> {
        let name = self.name("seen/it")?;
        let prefix = ObjectPrefix::parse(name.as_str())
            .map_err(|e| Broken::Answer { promise: "the check's own prefixes are valid", found: e.to_string() })?;
        for _ in 0..5 {
            let first = self.create(&name, b"1").await?;
            self.expect_sizes(&prefix, &[1]).await?;
            self.replace(&name, &first, b"four").await.map_err(failed("replacing the current version"))?;
            self.expect_sizes(&prefix, &[4]).await?;
            self.store.delete(&name).await.map_err(failed("removing an object"))?;
            self.expect_sizes(&prefix, &[]).await?;
        }
        Ok(())
    }

    async fn expect_sizes(&self, prefix: &ObjectPrefix, sizes: &[u64]) -> Result<(), Broken> {
        let page = self.store.list(prefix, None, 10).await.map_err(failed("listing"))?;
        let found: Vec<_> = page.objects.iter().map(|row| row.size_bytes).collect();
        expect("a listing has what was just written, with its size, and lacks what was removed", found == sizes, &page)
    }

    async fn gives_up(&self) -> Result<(), Broken> {
        let name = self.name("given-up")?;
        let (body, nonce) = (Bytes::from(vec![7; LARGE_BYTES]), PutNonce::fresh());
        let given_up = tokio::time::timeout(PATIENCE, self.store.put_if_absent(&name, body.clone(), nonce)).await;
        if let Ok(made) = given_up {
            made.map_err(failed("creating an object that is absent"))?;
        }
        match self.store.get(&name, Span::Whole).await {
            Err(StoreError::NotFound { .. }) => {}
            Ok(object) => expect("what stands there is whole", object.body == body, &object.body.len())?,
            Err(source) => return Err(failed("reading what was given up")(source)),
        }
        let again = self.store.put_if_absent(&name, body.clone(), nonce).await;
        again.map_err(failed("repeating a put that was given up"))?;
        let found = self.body(&name, Span::Whole).await?;
        expect("the repeated put stands there", found == body, &found.len())
    }

    async fn keeps_names_apart(&self) -> Result<(), Broken> {
        let long = format!("n/{}", "z".repeat(ObjectName::SEGMENT_BYTES_MAX));
        let odd =
            ["n/a b", "n/a%20b", "n/a+b", "n/A", "n/a", "n/.hidden", "n/a.obj", "n/a.obj/b", "n/-", "n/\u{1F980}?*"];
        let names = odd.into_iter().chain([long.as_str()]);
        let mut made = Vec::new();
        for rest in names {
            let name = self.name(rest)?;
            let body = Bytes::copy_from_slice(rest.as_bytes());
            let put = self.store.put_if_absent(&name, body.clone(), PutNonce::fresh()).await;
            put.map_err(failed("creating an object with an unusual name"))?;
            made.push((name, body));
        }
        for (name, body) in &made {
            let found = self.body(name, Span::Whole).await?;
            expect("a name keeps its own bytes", found == body, &(name, &found))?;
        }
        let listed = self.listed("n/", 100).await?;
        expect("every name is listed", listed.len() == made.len(), &listed)
    }

    async fn races_to_create(&self) -> Result<(), Broken> {
        for round in 0..RACES {
            let name = self.name(&format!("race/{round}"))?;
            let racers: Vec<_> = (0..RACERS)
                .map(|racer| tokio::spawn(create_own(Arc::clone(&self.store), name.clone(), racer)))
                .collect();
            let mut winners = Vec::new();
            for (racer, running) in racers.into_iter().enumerate() {
                let won =
                    running.await.map_err(|e| Broken::Answer { promise: "a racer ends", found: e.to_string() })??;
                winners.extend(won.then_some(racer));
            }
            let [winner] = winners[..] else {
                return Err(Broken::Count { promise: "one racer wins", found: winners.len() as u64, expected: 1 });
            };
            let body = self.body(&name, Span::Whole).await?;
            expect("the object is the winner's", number(&body) == winner as u64, &(winner, &body))?;
        }
        Ok(())
    }

    async fn races_to_count(&self) -> Result<(), Broken> {
        let name = self.name("count")?;
        self.create(&name, &[0; RACERS * 8]).await?;
        let racers: Vec<_> =
            (0..RACERS).map(|racer| tokio::spawn(count_up(Arc::clone(&self.store), name.clone(), racer))).collect();
        for running in racers {
            let ended = running.await;
            ended.map_err(|e| Broken::Answer { promise: "a racer ends", found: e.to_string() })??;
        }
        let body = self.body(&name, Span::Whole).await?;
        let (found, expected) = (body.chunks(8).map(number).sum(), RACERS as u64 * INCREMENTS);
        if found != expected {
            return Err(Broken::Count { promise: "every increment stays", found, expected });
        }
        Ok(())
    }

    async fn sweep(&self) -> Result<(), Broken> {
        for rest in self.listed("", 100).await? {
            self.store.delete(&self.name(&rest)?).await.map_err(failed("removing an object"))?;
        }
        let left = self.listed("", 100).await?;
        expect("nothing is left", left.is_empty(), &left)
    }
}

/// Tries to create the object; answers whether it did, rather than another.
async fn create_own<S: Store + ?Sized>(store: Arc<S>, name: ObjectName, racer: usize) -> Result<bool, Broken> {
    let body = Bytes::copy_from_slice(&(racer as u64).to_le_bytes());
    match store.put_if_absent(&name, body, PutNonce::fresh()).await {
        Ok(_) => Ok(true),
        Err(StoreError::AlreadyExists { .. }) => Ok(false),
        Err(source) => Err(failed("creating in a race")(source)),
    }
}

/// Adds to the racer's own counter in the object, each time from what it has just read. A put of unknown fate shows in that
/// counter at the next read; one that went through and does not show was lost.
async fn count_up<S: Store + ?Sized>(store: Arc<S>, name: ObjectName, racer: usize) -> Result<(), Broken> {
    let (mut known, mut unsure, mut attempts) = (0, false, 0);
    loop {
        let object = store.get(&name, Span::Whole).await.map_err(failed("reading in a race"))?;
        let own = racer * 8..racer * 8 + 8;
        let found = object.body.get(own.clone()).map_or(0, number);
        if found != known && !(unsure && found == known + 1) {
            return Err(Broken::Count { promise: "every increment stays", found, expected: known });
        }
        (known, unsure) = (found, false);
        if known == INCREMENTS {
            return Ok(());
        }
        let mut next = object.body.to_vec();
        next[own].copy_from_slice(&(known + 1).to_le_bytes());
        match store.put_if_match(&name, &object.meta.version, Bytes::from(next), PutNonce::fresh()).await {
            Ok(_) => known += 1,
            Err(StoreError::VersionMismatch { .. }) => attempts += 1,
            Err(source) if source.effect() == Effect::Unknown => (unsure, attempts) = (true, attempts + 1),
            Err(source) => return Err(failed("replacing in a race")(source)),
        }
        if attempts > ATTEMPTS_MAX {
            return Err(Broken::Count { promise: "an increment gets through among others", found: 0, expected: 1 });
        }
    }
}
