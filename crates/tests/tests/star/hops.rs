//! Is every stream reached from every connection, whichever shard the system gave it to?

use std::collections::BTreeMap;

use client::{BucketId, Client, ProducerOptions, SubscribeOptions};
use futures_util::future::join_all;
use tests::{Heard, Novad, Scratch, Speaker, at, text, within};
use wire::frame::Kind;
use wire::hot::{AppendHead, RecordsHead, walk_acks};
use wire::ids::{BatchNo, ProducerId, SeqNum};
use wire::message::{
    Appended, CheckTail, Close, Credit, Done, Message as _, Open, Opened, Read, Start, Subscribe, Subscribed, Tail,
    Unsubscribe,
};
use wire::names::{FencingToken, Key};
use wire::slot::{SLOTS, Slot};

const SHARDS: u16 = 3;

struct Shards {
    novad: Novad,
    client: Client,
    /// A key for each slot.
    keys: BTreeMap<u8, String>,
    _scratch: Scratch,
}

impl Shards {
    async fn start() -> Self {
        let scratch = Scratch::new();
        let novad = Novad::start(&scratch.join("data"), &["--shards", &SHARDS.to_string()]);
        let client = novad.client_with_bucket().await;
        let bucket = client.get_bucket(&at("x").bucket).await.expect("the bucket");
        Self { keys: a_key_a_slot(bucket.id), novad, client, _scratch: scratch }
    }

    /// A connection on each shard.
    fn speakers(&self) -> Vec<Speaker> {
        let mut found = BTreeMap::new();
        for _ in 0..1_000 {
            let (speaker, welcome) = Speaker::greeted(self.novad.addr());
            assert_eq!(welcome.shards, SHARDS);
            found.entry(welcome.shard).or_insert(speaker);
            if found.len() == usize::from(SHARDS) {
                return found.into_values().collect();
            }
        }
        panic!("no connection of some shard among 1000: {:?}", found.keys())
    }

    async fn counted(&self, name: &str) -> u64 {
        let star = self.client.star().await.expect("the star");
        star.counters.iter().filter(|counter| counter.name == name).map(|counter| counter.value).sum()
    }
}

fn a_key_a_slot(bucket: BucketId) -> BTreeMap<u8, String> {
    let mut keys = BTreeMap::new();
    for number in 0.. {
        let key = format!("key-{number}");
        keys.entry(Slot::of(bucket, &Key::new(&key).expect("a key")).get()).or_insert(key);
        if keys.len() == usize::from(SLOTS) {
            break;
        }
    }
    keys
}

fn append_once(speaker: &mut Speaker, key: &str, body: &str) -> Appended {
    let (batch, batch_crc) = Speaker::batch(&[body.as_bytes()]);
    speaker.ask_with(&Speaker::once(key, batch_crc), &batch).expect("an ack")
}

#[test]
fn a_stream_of_every_slot_is_written_read_and_asked_for_from_every_shard() {
    within(60, async {
        let star = Shards::start().await;
        let mut speakers = star.speakers();
        for key in star.keys.values() {
            for (round, speaker) in speakers.iter_mut().enumerate() {
                let appended = append_once(speaker, key, &format!("{round}"));
                assert_eq!(appended.start.seq_num.get(), round as u64, "all shards land on one stream");
                let tail: Tail = speaker.ask(&CheckTail { address: at(key) }).expect("the tail");
                assert_eq!(tail.tail, appended.end);
                let read = Read {
                    address: at(key),
                    start: Start::SeqNum(SeqNum::ZERO),
                    clamp: false,
                    limit: 0,
                    max_bytes: 0,
                    until_ms: None,
                };
                let correlation = speaker.tell(&read);
                let page = speaker.hear_of(correlation);
                assert_eq!(page.kind, Kind::Page, "{page:?}");
                let head = RecordsHead::decode(&page.head).expect("a head");
                assert_eq!((head.start.get(), head.end.get(), head.at_tail), (0, round as u64 + 1, true));
            }
        }
        assert!(star.counted("hops_total").await > 100);
    });
}

/// A session on a connection that has served other requests before stays where it is, and its batches hop.
#[test]
fn sessions_of_all_shards_share_one_connection() {
    within(60, async {
        let star = Shards::start().await;
        for mut speaker in star.speakers() {
            append_once(&mut speaker, "first", "so that the connection is not handed over");
            let mut sessions = Vec::new();
            for (number, key) in (1..).zip(star.keys.values().take(12)) {
                let open = Open {
                    address: at(key),
                    producer: ProducerId::new(number),
                    fencing_token: FencingToken::default(),
                    resume: None,
                };
                let opened: Opened = speaker.ask(&open).expect("a session");
                sessions.push((opened.session, opened.tail.seq_num.get()));
            }
            let (batch, batch_crc) = Speaker::batch(&[b"a", b"b"]);
            for no in 0..5 {
                for (session, _) in &sessions {
                    let no = BatchNo::new(no);
                    let head = AppendHead { session: *session, no, match_seq_num: None, resent: false, batch_crc };
                    speaker.append(head, &batch);
                }
            }
            let mut acked: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
            while acked.values().map(Vec::len).sum::<usize>() < 5 * sessions.len() {
                let heard = speaker.hear().expect("acks");
                assert_eq!(heard.kind, Kind::Acks, "{heard:?}");
                walk_acks(&heard.head, |group, ack| {
                    acked.entry(group.session).or_default().push(ack.start.seq_num.get());
                })
                .expect("acks");
            }
            for (session, tail) in &sessions {
                let places: Vec<u64> = (0..5).map(|no| tail + 2 * no).collect();
                assert_eq!(acked[session], places, "in order, each once");
                let Done {} = speaker.ask(&Close { session: *session }).expect("it closes");
            }
        }
    });
}

#[test]
fn subscriptions_of_all_shards_share_one_connection_and_each_keeps_to_its_credit() {
    within(60, async {
        let star = Shards::start().await;
        let keys: Vec<&String> = star.keys.values().take(9).collect();
        for key in &keys {
            star.client.append(&at(key), [vec![b'x'; 1_000]]).await.expect("an ack");
        }
        let mut speaker = star.speakers().remove(0);
        append_once(&mut speaker, "first", "so that the connection is not handed over");
        for (handle, key) in (0..).zip(&keys) {
            let subscribe = Subscribe {
                address: at(key),
                start: Start::SeqNum(SeqNum::ZERO),
                clamp: false,
                subscription: handle,
                credit_bytes: 1,
                resume: None,
            };
            speaker.tell(&subscribe);
        }
        let mut seen: BTreeMap<u32, u64> = BTreeMap::new();
        let mut hear = |speaker: &mut Speaker| {
            let heard = speaker.hear().expect("records");
            if heard.kind == Kind::Records {
                let head = RecordsHead::decode(&heard.head).expect("a head");
                let next = seen.entry(head.subscription).or_default();
                assert_eq!(head.start.get(), *next, "no gap and no repeat");
                *next = head.end.get();
            } else {
                assert_eq!(heard.message::<Subscribed>().start.get(), 0);
            }
            seen.values().sum::<u64>()
        };
        while hear(&mut speaker) < 9 {}
        // The first records come at once, for there was credit; what is appended now waits for more.
        for key in &keys {
            star.client.append(&at(key), [vec![b'y'; 1_000]]).await.expect("an ack");
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        for handle in 0..9 {
            speaker.tell(&Credit { subscription: handle, bytes: 10_000 });
        }
        while hear(&mut speaker) < 18 {}
        for handle in 0..9 {
            let Done {} = speaker.ask(&Unsubscribe { subscription: handle }).expect("it ends");
        }
        for key in &keys {
            star.client.append(&at(key), ["after the end"]).await.expect("an ack");
        }
        let tail: Tail = speaker.ask(&CheckTail { address: at(keys[0]) }).expect("the tail");
        assert_eq!(tail.tail.seq_num.get(), 3, "nothing of an ended subscription came before");
    });
}

#[test]
fn a_fresh_connection_that_opens_is_handed_over_with_what_it_sent_behind() {
    within(60, async {
        let star = Shards::start().await;
        for key in star.keys.values() {
            let mut speaker = Speaker::new(star.novad.addr());
            // Open and the first batches in one piece, before the answer: the handle is not known yet, so that only
            // requests that need none may follow.
            let open = Open {
                address: at(key),
                producer: ProducerId::new(7),
                fencing_token: FencingToken::default(),
                resume: None,
            };
            let mut bytes = Vec::new();
            open.frame(1, &mut bytes);
            for correlation in 2..20 {
                CheckTail { address: at(key) }.frame(correlation, &mut bytes);
            }
            speaker.send(&bytes);
            let heard: Vec<Heard> = (1..20).map(|correlation| speaker.hear_of(correlation)).collect();
            let opened: Opened = heard[0].message();
            assert!(heard[1..].iter().all(|heard| heard.message::<Tail>().tail == opened.tail));
            let (batch, batch_crc) = Speaker::batch(&[b"x"]);
            let no = BatchNo::new(0);
            speaker.append(
                AppendHead { session: opened.session, no, match_seq_num: None, resent: false, batch_crc },
                &batch,
            );
            assert_eq!(speaker.hear().expect("acks").kind, Kind::Acks);
        }
        let (handed, accepted) =
            (star.counted("hand_overs_total").await, star.counted("connections_accepted_total").await);
        assert!(handed > 0 && handed < accepted, "{handed} of {accepted}");
    });
}

#[test]
fn a_list_merges_the_shards_in_key_order_over_all_its_pages() {
    within(60, async {
        let star = Shards::start().await;
        let keys: Vec<String> = (0..137).map(|number| format!("list/{:03}/é", number * 7 % 1_000)).collect();
        join_all(keys.iter().map(async |key| star.client.append(&at(key), ["x"]).await.expect("an ack"))).await;
        let mut expected = keys.clone();
        expected.sort();
        for limit in [1, 10, 50, 137, 1_000] {
            let (mut found, mut after, mut pages) = (Vec::new(), Vec::new(), 0);
            loop {
                let page = star.client.list_streams(&at("x").bucket, &after, limit).await.expect("a page");
                pages += 1;
                assert!(page.streams.len() <= limit as usize);
                found.extend(page.streams.into_iter().map(|stream| stream.key.as_str().to_owned()));
                after = page.next;
                if after.is_empty() {
                    break;
                }
            }
            assert_eq!(found, expected, "at {limit} a page");
            assert!(pages <= 137_u32.div_ceil(limit) + 1, "{pages} pages at {limit}");
        }
        star.client.delete_stream(&at(&expected[3])).await.expect("a delete");
        let page = star.client.list_streams(&at("x").bucket, expected[2].as_bytes(), 1).await.expect("a page");
        assert_eq!(page.streams[0].key.as_str(), expected[4]);
    });
}

#[test]
fn producers_and_subscribers_of_many_streams_work_at_once_over_all_shards() {
    within(60, async {
        let star = Shards::start().await;
        let keys: Vec<&String> = star.keys.values().take(16).collect();
        let lives = keys.iter().map(async |key| {
            let client = star.novad.client();
            let producer = client.open(&at(key), ProducerOptions::default()).await.expect("a session");
            let mut subscription = client.subscribe(&at(key), SubscribeOptions::from(0)).await.expect("one");
            let writes = async {
                for index in 0..50 {
                    producer.append([format!("{key}:{index}")]).await.expect("an ack");
                }
            };
            let reads = async {
                let mut seen = Vec::new();
                while seen.len() < 50 {
                    let page = subscription.next().await.expect("more").expect("records");
                    seen.extend(page.records.iter().map(text));
                }
                seen
            };
            let ((), seen) = tokio::join!(writes, reads);
            assert_eq!(seen, (0..50).map(|index| format!("{key}:{index}")).collect::<Vec<_>>());
        });
        join_all(lives).await;
    });
}
