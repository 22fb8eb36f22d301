//! What happens when two want the same at once: a stream, a number, the writer role?

use std::time::Duration;

use client::{
    Address, AppendRecord, Client, ConfigPatch, Error, FencingToken, OneShot, Producer, ProducerOptions,
    ProducerPolicy, ReadOptions, Reason, SeqNum, SubscribeOptions, TimestampingMode,
};
use futures_util::future::join_all;
use tests::history::{Acked, Tag, check_dense, read_all};
use tests::{Novad, Scratch, at, load_of, text, within};

/// A star of two shards, so that a race is one between shards too.
struct Star {
    novad: Novad,
    client: Client,
    _scratch: Scratch,
}

impl Star {
    async fn start() -> Self {
        let scratch = Scratch::new();
        let novad = Novad::start(&scratch.join("data"), &["--shards", "2"]);
        let client = novad.client_with_bucket().await;
        Self { novad, client, _scratch: scratch }
    }

    async fn fenced_stream(&self, key: &str) -> Address {
        let config = ConfigPatch { producer_policy: Some(ProducerPolicy::Fenced), ..ConfigPatch::default() };
        self.client.create_stream(&at(key), config).await.expect("a stream");
        at(key)
    }
}

fn token(text: &str) -> FencingToken {
    FencingToken::new(text).expect("a token")
}

fn presenting(text: &str) -> ProducerOptions {
    ProducerOptions::default().fencing_token(token(text))
}

fn reason<T: std::fmt::Debug>(outcome: Result<T, Error>) -> Reason {
    outcome.expect_err("it is refused").reason()
}

/// Appends until it is refused, each record tagged; answers what was acked and the error.
async fn append_until_refused(producer: &Producer, writer: u32) -> (Acked, Error) {
    let mut acked = Acked::default();
    for index in 0.. {
        match producer.append([Tag { writer, index }.body(40)]).await {
            Ok(ack) => acked.add(index, ack.start.seq_num.get()),
            Err(error) => return (acked, error),
        }
    }
    unreachable!("an append is refused in the end")
}

#[test]
fn a_stream_is_made_once_however_many_appends_race_to_be_the_first() {
    within(60, async {
        let star = Star::start().await;
        for round in 0..8 {
            let address = at(&format!("new-{round}"));
            let clients: Vec<Client> = (0..24).map(|_| star.novad.client()).collect();
            let appends = clients.iter().enumerate().map(|(writer, client)| {
                let address = &address;
                async move {
                    let body = format!("{writer}");
                    if writer % 2 == 0 {
                        return client.append(address, [body]).await.expect("an ack").start.seq_num.get();
                    }
                    let producer = client.open(address, ProducerOptions::default()).await.expect("a session");
                    producer.append([body]).await.expect("an ack").start.seq_num.get()
                }
            });
            let mut places = join_all(appends).await;
            let records = read_all(&star.client, &address).await;
            for (writer, place) in places.iter().enumerate() {
                let place = usize::try_from(*place).expect("a place");
                assert_eq!(text(&records[place]), format!("{writer}"));
            }
            places.sort_unstable();
            assert_eq!(places, (0..24).collect::<Vec<u64>>());
            assert_eq!(records.len(), 24);
        }
    });
}

#[test]
fn of_racing_creates_one_makes_the_stream_and_the_others_are_told() {
    within(30, async {
        let star = Star::start().await;
        let clients: Vec<Client> = (0..12).map(|_| star.novad.client()).collect();
        let address = at("made");
        let creates =
            join_all(clients.iter().map(|client| client.create_stream(&address, ConfigPatch::default()))).await;
        let (made, refused): (Vec<_>, Vec<_>) = creates.into_iter().partition(Result::is_ok);
        assert_eq!((made.len(), refused.len()), (1, 11));
        assert!(refused.into_iter().all(|outcome| reason(outcome) == Reason::AlreadyExists));
    });
}

#[test]
fn racing_matches_have_one_winner_a_number_and_losers_that_know_the_tail() {
    within(60, async {
        let star = Star::start().await;
        let address = at("matched");
        let clients: Vec<Client> = (0..8).map(|_| star.novad.client()).collect();
        for seq_num in 0..60 {
            let attempts = clients.iter().enumerate().map(|(writer, client)| {
                client.append_match(&address, SeqNum::new(seq_num), [format!("{writer}:{seq_num}")])
            });
            let outcomes = join_all(attempts).await;
            let winners: Vec<usize> = (0..clients.len()).filter(|writer| outcomes[*writer].is_ok()).collect();
            assert_eq!(winners.len(), 1, "at {seq_num}: {outcomes:?}");
            for error in outcomes.into_iter().filter_map(Result::err) {
                assert_eq!(error.reason(), Reason::SequenceMismatch);
                assert!(error.no_side_effect() && !error.resent());
                // What it was judged on is durable by now, so that the tail is where to try again.
                assert_eq!(error.tail().expect("the tail").seq_num.get(), seq_num + 1);
            }
            let page = star.client.read(&address, ReadOptions::last(1)).await.expect("a page");
            assert_eq!(text(&page.records[0]), format!("{}:{seq_num}", winners[0]));
        }
        assert_eq!(read_all(&star.client, &address).await.len(), 60);
    });
}

#[test]
fn a_miss_in_a_pipeline_leaves_what_was_sent_after_it_alone() {
    within(30, async {
        let star = Star::start().await;
        let producer = star.client.open(&at("pipe"), ProducerOptions::default()).await.expect("a session");
        let first = producer.submit_match(SeqNum::new(0), ["a"]).await.expect("taken");
        let miss = producer.submit_match(SeqNum::new(7), ["b"]).await.expect("taken");
        let plain = producer.submit(["c"]).await.expect("taken");
        let second = producer.submit_match(SeqNum::new(2), ["d"]).await.expect("taken");
        assert_eq!(first.await.expect("an ack").start.seq_num.get(), 0);
        assert_eq!(reason(miss.await), Reason::SequenceMismatch);
        assert_eq!(plain.await.expect("an ack").start.seq_num.get(), 1);
        assert_eq!(second.await.expect("an ack").start.seq_num.get(), 2);
        producer.close().await.expect("it closes");
        let bodies: Vec<String> = read_all(&star.client, &at("pipe")).await.iter().map(text).collect();
        assert_eq!(bodies, ["a", "c", "d"]);
    });
}

/// All below the boundary came in under the token before, nothing of it at or after.
#[test]
fn a_fence_during_appends_is_a_boundary_between_tokens() {
    within(60, async {
        let star = Star::start().await;
        let address = at("fenced-under-load");
        star.client.append(&address, [Tag { writer: 0, index: 0 }.body(0)]).await.expect("an ack");
        let mut boundaries = vec![star.client.fence(&address, &token("gen-0")).await.expect("a fence").seq_num.get()];
        let mut all_acked = vec![Acked::default()];
        for generation in 1..8_u32 {
            let name = format!("gen-{}", generation - 1);
            let old = join_all((0..3).map(|_| star.client.open(&address, presenting(&name)))).await;
            let old: Vec<Producer> = old.into_iter().map(|opened| opened.expect("a session")).collect();
            let fence = async {
                tokio::time::sleep(Duration::from_millis(40)).await;
                star.client.fence(&address, &token(&format!("gen-{generation}"))).await.expect("a fence")
            };
            let loads = old.iter().zip(0..).map(|(producer, at)| append_until_refused(producer, generation * 10 + at));
            let (boundary, outcomes) = tokio::join!(fence, join_all(loads));
            for (acked, error) in outcomes {
                assert_eq!(error.reason(), Reason::FencedOut, "{error}");
                assert_eq!(error.fencing_token(), Some(&token(&format!("gen-{generation}"))));
                assert!(!acked.is_empty(), "there was a load");
                all_acked.push(acked);
            }
            boundaries.push(boundary.seq_num.get());
        }
        let records = read_all(&star.client, &address).await;
        check_dense(&records);
        for record in &records[1..] {
            let tag = Tag::of(record);
            let generation = usize::try_from(tag.writer / 10).expect("a generation");
            let under = boundaries[generation - 1]..boundaries[generation];
            assert!(under.contains(&record.seq_num.get()), "{tag:?} at {} outside of {under:?}", record.seq_num);
        }
        let acked: usize = all_acked.iter().map(Acked::len).sum();
        assert_eq!(records.len(), acked + 1, "a refused append left nothing");
    });
}

#[test]
fn a_takeover_by_token_deposes_the_writer_before() {
    within(30, async {
        let star = Star::start().await;
        let address = star.fenced_stream("ledger").await;
        let first = star.client.open(&address, ProducerOptions::default()).await.expect("a session");
        first.append(["of the first"]).await.expect("an ack");
        assert_eq!(reason(star.client.open(&address, ProducerOptions::default()).await), Reason::WriterHeld);
        assert_eq!(reason(star.client.append(&address, ["a one-shot"]).await), Reason::WriterHeld);

        let boundary = star.client.fence(&address, &token("second")).await.expect("a fence");
        assert_eq!(boundary.seq_num.get(), 1);
        let second = star.client.open(&address, presenting("second")).await.expect("a session");
        second.append_match(boundary.seq_num, ["of the second"]).await.expect("an ack");
        assert_eq!(reason(first.append(["too late"]).await), Reason::FencedOut);
        assert_eq!(reason(star.client.open(&address, ProducerOptions::default()).await), Reason::FencedOut);
        assert_eq!(reason(star.client.open(&address, presenting("first")).await), Reason::FencedOut);
        let bodies: Vec<String> = read_all(&star.client, &address).await.iter().map(text).collect();
        assert_eq!(bodies, ["of the first", "of the second"]);
    });
}

#[test]
fn a_session_of_the_same_token_supersedes_the_one_before_and_a_one_shot_nobody() {
    within(30, async {
        let star = Star::start().await;
        let address = star.fenced_stream("again").await;
        star.client.fence(&address, &token("mine")).await.expect("a fence");
        let hung = star.client.open(&address, presenting("mine")).await.expect("a session");
        hung.append(["1"]).await.expect("an ack");
        let shot = star.client.presenting(token("mine")).append(&address, ["2"]).await.expect("an ack");
        assert_eq!(shot.start.seq_num.get(), 1);
        hung.append(["3"]).await.expect("a one-shot supersedes nobody");
        let back = star.client.open(&address, presenting("mine")).await.expect("a session");
        assert_eq!(reason(hung.append(["too late"]).await), Reason::Superseded);
        assert_eq!(back.append(["4"]).await.expect("an ack").start.seq_num.get(), 3);
        back.close().await.expect("it closes");
        assert_eq!(star.client.check_tail(&address).await.expect("the tail").seq_num.get(), 4);
    });
}

#[test]
fn sessions_race_for_the_role_and_one_of_them_has_it() {
    within(30, async {
        let star = Star::start().await;
        let address = star.fenced_stream("role").await;
        for _ in 0..5 {
            let clients: Vec<Client> = (0..8).map(|_| star.novad.client()).collect();
            let opens = join_all(clients.iter().map(|client| client.open(&address, ProducerOptions::default()))).await;
            let (held, refused): (Vec<_>, Vec<_>) = opens.into_iter().partition(Result::is_ok);
            assert_eq!((held.len(), refused.len()), (1, 7));
            assert!(refused.into_iter().all(|outcome| reason(outcome) == Reason::WriterHeld));
            let holder = held.into_iter().flatten().next().expect("one");
            holder.append(["x"]).await.expect("an ack");
            holder.close().await.expect("it gives the role up");
        }
    });
}

#[test]
fn trims_under_load_never_move_back_and_take_nothing_above_them() {
    within(60, async {
        let star = Star::start().await;
        let address = at("trimmed");
        let all = load_of(1_500) as u64;
        let producer = star.client.open(&address, ProducerOptions::default()).await.expect("a session");
        let writes = async {
            for index in 0..all {
                producer.append([Tag { writer: 1, index }.body(200)]).await.expect("an ack");
            }
        };
        let trims = async {
            let mut trimmed = 0;
            for step in 0..60_u64 {
                let tail = star.client.check_tail(&address).await.expect("the tail").seq_num.get();
                let wanted = if step % 3 == 0 { tail / 2 } else { trimmed.min(tail / 3) };
                let now = star.client.trim(&address, SeqNum::new(wanted)).await.expect("a trim").get();
                assert!(now >= trimmed && now <= tail, "{trimmed} then {now}");
                assert!(now == wanted.max(trimmed));
                trimmed = now;
                let page = star.client.read(&address, ReadOptions::from(0).clamp()).await.expect("a page");
                assert!(page.trim_point.get() >= trimmed);
                assert!(page.records.first().is_none_or(|record| record.seq_num == page.trim_point));
            }
            trimmed
        };
        let ((), trimmed) = tokio::join!(writes, trims);
        let records = read_all(&star.client, &address).await;
        check_dense(&records);
        assert_eq!((records[0].seq_num.get(), records.len() as u64), (trimmed, all - trimmed));
        let error = star.client.read(&address, ReadOptions::from(0)).await.expect_err("it is trimmed");
        assert_eq!(error.reason(), Reason::Trimmed);
        assert_eq!(
            (error.trim_point().map(SeqNum::get), error.tail().map(|tail| tail.seq_num.get())),
            (Some(trimmed), Some(all))
        );
    });
}

#[test]
fn a_delete_under_load_ends_sessions_and_subscriptions_and_a_new_stream_starts_at_0() {
    within(60, async {
        let star = Star::start().await;
        for round in 0..10 {
            let address = at(&format!("deleted-{}", round % 3));
            let producer = star.client.open(&address, ProducerOptions::default()).await.expect("a session");
            let mut subscription = star.client.subscribe(&address, SubscribeOptions::from(0)).await.expect("one");
            let deletes = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                star.client.delete_stream(&address).await.expect("a delete");
                star.client.get_stream(&address).await
            };
            let (gone, (acked, error)) = tokio::join!(deletes, append_until_refused(&producer, round));
            assert_eq!(error.reason(), Reason::NotFound, "{error}");
            assert_eq!(reason(gone), Reason::NotFound);
            assert!(!acked.is_empty());
            let mut seen = 0;
            let ended = loop {
                match subscription.next().await.expect("an end") {
                    Ok(page) => seen += page.records.len(),
                    Err(error) => break error.reason(),
                }
            };
            assert_eq!(ended, Reason::NotFound);
            assert!(seen <= acked.len());
            star.client.delete_stream(&address).await.expect("what is gone may be deleted");
            let again = star.client.append(&address, ["new"]).await.expect("an ack");
            assert_eq!(again.start.seq_num.get(), 0);
            let made = star.client.get_stream(&address).await.expect("the new one");
            assert_ne!(made.stream_id, producer.stream_id());
            assert_eq!(reason(producer.append(["to the old one"]).await), Reason::NotFound);
            star.client.delete_stream(&address).await.expect("a delete");
        }
    });
}

/// Once the call returns every later append honours the new configuration, and sessions don't notice.
#[test]
fn a_reconfigure_under_load_is_honoured_by_every_later_append_and_breaks_no_session() {
    within(60, async {
        let star = Star::start().await;
        let address = at("reconfigured");
        let producer = star.client.open(&address, ProducerOptions::default()).await.expect("a session");
        let over = std::cell::Cell::new(false);
        let writes = async {
            let mut acked = Acked::default();
            for index in 0.. {
                if over.get() {
                    return (index, acked);
                }
                let stamped = AppendRecord::new(Tag { writer: 1, index }.body(100)).timestamp_ms(5);
                match producer.append([stamped]).await {
                    Ok(ack) => acked.add(index, ack.start.seq_num.get()),
                    // The arrival mode takes no stamps, which is what is asked of it.
                    Err(error) => assert_eq!(error.reason(), Reason::Invalid, "{error}"),
                }
            }
            unreachable!("it is over in the end")
        };
        let changes = async {
            for round in 0..20 {
                tokio::time::sleep(Duration::from_millis(15)).await;
                let arrival = round % 2 == 0;
                let mode = if arrival { TimestampingMode::Arrival } else { TimestampingMode::ClientPrefer };
                let config = ConfigPatch { timestamping_mode: Some(mode), ..ConfigPatch::default() };
                let changed = star.client.reconfigure_stream(&address, config).await.expect("a change");
                assert_eq!(changed.config.timestamping.mode, mode);
                let stamped = AppendRecord::new(Tag { writer: 2, index: round }.body(0)).timestamp_ms(5);
                let outcome = star.client.append(&address, [stamped]).await;
                assert_eq!(outcome.is_err(), arrival, "{outcome:?}");
            }
            over.set(true);
        };
        let ((written, acked), ()) = tokio::join!(writes, changes);
        assert!(
            acked.len() > load_of(20) && (acked.len() as u64) < written,
            "both modes were met: {} of {written}",
            acked.len()
        );
        let records = read_all(&star.client, &address).await;
        acked.check(1, &records);
        assert_eq!(records.len(), acked.len() + 10, "nothing of what was refused");
    });
}

#[test]
fn a_policy_made_strict_under_load_shuts_out_who_presents_nothing() {
    within(30, async {
        let star = Star::start().await;
        let address = at("strict");
        star.client.append(&address, ["0"]).await.expect("an ack");
        star.client.fence(&address, &token("only")).await.expect("a fence");
        let silent = star.client.open(&address, ProducerOptions::default()).await.expect("any may write");
        silent.append(["1"]).await.expect("an ack");
        let config = ConfigPatch { producer_policy: Some(ProducerPolicy::Fenced), ..ConfigPatch::default() };
        star.client.reconfigure_stream(&address, config).await.expect("a change");
        assert_eq!(reason(silent.append(["2"]).await), Reason::FencedOut);
        assert_eq!(reason(star.client.append(&address, ["3"]).await), Reason::FencedOut);
        let with = OneShot { fencing_token: token("only"), ..OneShot::default() };
        star.client.append_with(&address, with, ["4"]).await.expect("an ack");
        let bodies: Vec<String> = read_all(&star.client, &address).await.iter().map(text).collect();
        assert_eq!(bodies, ["0", "1", "4"]);
    });
}

/// Either the bucket goes, and with it every create that came too late, or it stays with what is in it.
#[test]
fn a_bucket_delete_that_races_first_appends_leaves_no_stream_without_a_bucket() {
    within(60, async {
        let star = Star::start().await;
        let (mut kept, mut gone) = (0, 0);
        for round in 0..30_u64 {
            let name = client::BucketName::new(&format!("racing-{round}")).expect("a name");
            let spec = client::BucketSpec { name: name.clone(), ..tests::bucket() };
            star.client.create_bucket(spec.clone()).await.expect("a bucket");
            let address =
                |key: u64| Address { bucket: name.clone(), key: client::Key::new(&format!("{key}")).expect("a key") };
            let others = star.novad.client();
            others.star().await.expect("a connection");
            let appends = join_all((0..4).map(async |key| {
                tokio::time::sleep(Duration::from_micros(150 * (round % 10))).await;
                others.append(&address(key), ["x"]).await
            }));
            let (deleted, appended) = tokio::join!(star.client.delete_bucket(&name), appends);
            let stored = appended.iter().filter(|outcome| outcome.is_ok()).count();
            match deleted {
                Ok(()) => {
                    gone += 1;
                    assert_eq!(stored, 0, "a stream was acked in a bucket that was empty");
                    assert_eq!(reason(star.client.list_streams(&name, b"", 0).await), Reason::NotFound);
                    star.client.create_bucket(spec).await.expect("its name is free");
                    let page = star.client.list_streams(&name, b"", 0).await.expect("a page");
                    assert!(page.streams.is_empty(), "a new bucket holds nothing of the old one");
                }
                Err(error) => {
                    kept += 1;
                    assert_eq!(error.reason(), Reason::BucketNotEmpty, "{error}");
                    let page = star.client.list_streams(&name, b"", 0).await.expect("a page");
                    assert!(page.streams.len() >= stored && !page.streams.is_empty());
                    for error in appended.into_iter().filter_map(Result::err) {
                        assert!(error.no_side_effect(), "{error}");
                    }
                    others.append(&address(9), ["x"]).await.expect("it is thawed");
                }
            }
        }
        assert!(kept > 0, "{kept} kept, {gone} gone");
    });
}
