use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use wire::handoff::ToShard;

use super::{Causes, STALL_AFTER, tell};
use crate::outbox::Outboxes;
use crate::store::Trouble;

const MOMENT: Duration = Duration::from_millis(1);

/// What a shard was told of stalls.
type Heard = Arc<Mutex<Vec<Option<Arc<str>>>>>;

fn sink(heard: Heard) -> crate::ShardSink {
    Box::new(move |message| {
        let ToShard::Stall { why } = message else { panic!("told {message:?}") };
        heard.lock().unwrap().push(why);
        Ok(())
    })
}

/// All causes, and what two shards have been told.
struct Told {
    uploader: watch::Sender<Option<Arc<str>>>,
    index: watch::Sender<Option<Trouble>>,
    lease: watch::Sender<Option<Trouble>>,
    shards: [Heard; 2],
}

impl Told {
    fn start() -> Self {
        let shards: [Heard; 2] = Default::default();
        let outboxes = Outboxes::new(shards.iter().cloned().map(sink).collect());
        let ((uploader, stalls), (index, untaken)) = (watch::channel(None), watch::channel(None));
        let (lease, unrenewed) = watch::channel(None);
        let causes = Causes { uploader: stalls, index: untaken, lease: unrenewed };
        tokio::spawn(async move { tell(&outboxes, causes, |_| {}).await });
        Self { uploader, index, lease, shards }
    }

    fn index_fails(&self, since: Instant, why: &str) {
        self.index.send_replace(Some(Trouble { since, why: why.into() }));
    }

    /// What the shards were told since they were asked last.
    async fn hear(&self) -> Vec<Option<String>> {
        sleep(MOMENT).await;
        let [one, two] = self.shards.each_ref().map(|told| std::mem::take(&mut *told.lock().unwrap()));
        assert_eq!(one, two);
        one.into_iter().map(|why| why.map(|why| why.to_string())).collect()
    }
}

fn because(why: &str) -> Vec<Option<String>> {
    vec![Some(why.to_owned())]
}

#[tokio::test(start_paused = true)]
async fn an_index_that_fails_for_a_short_while_stalls_nothing() {
    let told = Told::start();
    let since = Instant::now();
    told.index_fails(since, "the store is away");
    sleep(STALL_AFTER - 5 * MOMENT).await;
    told.index_fails(since, "the store is away still");
    assert_eq!(told.hear().await, []);
    told.index.send_replace(None);
    sleep(STALL_AFTER).await;
    assert_eq!(told.hear().await, []);
}

#[tokio::test(start_paused = true)]
async fn an_index_that_goes_on_failing_stalls_until_it_takes_the_chunk() {
    let told = Told::start();
    let since = Instant::now();
    told.index_fails(since, "one");
    // Even while an attempt is under way that takes long.
    sleep(STALL_AFTER).await;
    assert_eq!(told.hear().await, because("one"));
    told.index_fails(since, "one");
    assert_eq!(told.hear().await, [], "that it fails as before is no news");
    told.index_fails(since, "two");
    assert_eq!(told.hear().await, because("two"));
    told.index.send_replace(None);
    assert_eq!(told.hear().await, [None]);
}

#[tokio::test(start_paused = true)]
async fn shards_are_told_the_uploaders_reason_or_else_the_indexs() {
    let told = Told::start();
    told.uploader.send_replace(Some("no puts".into()));
    assert_eq!(told.hear().await, because("no puts"));
    told.index_fails(Instant::now(), "no rows");
    sleep(STALL_AFTER).await;
    assert_eq!(told.hear().await, []);
    told.uploader.send_replace(None);
    assert_eq!(told.hear().await, because("no rows"));
    told.uploader.send_replace(Some("no puts".into()));
    assert_eq!(told.hear().await, because("no puts"));
    told.index.send_replace(None);
    assert_eq!(told.hear().await, [], "the uploader is stalled still");
    told.uploader.send_replace(None);
    assert_eq!(told.hear().await, [None]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_stalls_until_it_is() {
    let told = Told::start();
    told.lease.send_replace(Some(Trouble { since: Instant::now(), why: "no lease".into() }));
    assert_eq!(told.hear().await, []);
    sleep(STALL_AFTER).await;
    assert_eq!(told.hear().await, because("no lease"));
    told.index_fails(Instant::now() - STALL_AFTER, "no rows");
    assert_eq!(told.hear().await, because("no rows"));
    told.index.send_replace(None);
    assert_eq!(told.hear().await, because("no lease"));
    told.lease.send_replace(None);
    assert_eq!(told.hear().await, [None]);
}
