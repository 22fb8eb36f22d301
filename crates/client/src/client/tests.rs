use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::time::timeout;
use wire::bucket::{Bucket, BucketPatch, BucketSpec};
use wire::ids::{BucketId, SeqNum};
use wire::message::{
    AppendOnce, BucketList, BucketPage, CheckTail, Done, GoAway, Read, Start, Tail, Trim, TrimTo, Trimmed,
};
use wire::names::{BucketName, FencingToken};
use wire::refusal::Refusal;

use super::*;
use crate::peer::{PATIENCE, Peer, Wire, address, plain_entry, position, records_head};
use crate::{OneShot, ReadOptions};

async fn within<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("in time")
}

async fn refuse(wire: &mut Wire, correlation: u64, refusal: Refusal) {
    wire.send(correlation, &Refused { refusal }).await;
}

#[tokio::test]
async fn many_calls_share_a_connection_and_are_answered_in_any_order() {
    let peer = Peer::new().await;
    let (client, address) = (peer.client(), address());
    let script = async {
        let mut wire = peer.accept().await;
        let mut asked = Vec::new();
        for _ in 0..3 {
            asked.push(wire.expect::<CheckTail>().await.0);
        }
        for (at, correlation) in asked.iter().enumerate().rev() {
            wire.send(*correlation, &Tail { tail: position(at as u64, 0) }).await;
        }
        wire
    };
    let tail = || async { within(client.check_tail(&address)).await.unwrap().seq_num.get() };
    let (first, second, third, _wire) = tokio::join!(tail(), tail(), tail(), script);
    assert_eq!((first, second, third), (0, 1, 2));
}

#[tokio::test]
async fn a_refusal_comes_with_all_its_data() {
    let peer = Peer::new().await;
    let client = peer.client();
    let address = address();
    let script = async {
        let mut wire = peer.accept().await;
        let (correlation, _): (_, AppendOnce) = wire.expect().await;
        let refusal = Refusal::new(Reason::FencedOut, "another token is installed")
            .with_fencing_token(FencingToken::new("gen-7").unwrap())
            .with_tail(position(3, 4))
            .with_trim_point(SeqNum::new(1))
            .with_retry_after_ms(20);
        refuse(&mut wire, correlation, refusal).await;
        wire
    };
    let view = client.presenting(FencingToken::new("gen-6").unwrap());
    let (appended, _wire) = tokio::join!(within(view.append(&address, ["x"])), script);
    let error = appended.unwrap_err();
    assert_eq!(error.to_string(), "fenced_out: another token is installed");
    assert_eq!(error.fencing_token().unwrap().as_str(), "gen-7");
    assert_eq!((error.tail(), error.trim_point()), (Some(position(3, 4)), Some(SeqNum::new(1))));
    assert_eq!(error.retry_after(), Some(Duration::from_millis(20)));
    assert_eq!((error.retryable(), error.no_side_effect(), error.resent(), error.leader()), (false, true, false, None));
}

#[tokio::test]
async fn with_nobody_there_a_call_is_unavailable_and_had_no_effect() {
    let peer = Peer::new().await;
    let client = peer.client();
    drop(peer);
    let error = within(client.append(&address(), ["x"])).await.unwrap_err();
    assert_eq!((error.reason(), error.no_side_effect(), error.retryable()), (Reason::Unavailable, true, true));
}

#[tokio::test]
async fn a_star_that_comes_up_within_the_budget_is_found() {
    let peer = Peer::new().await;
    let mut options = peer.options().connect_budget(PATIENCE);
    let gone = Peer::new().await;
    options.addrs.insert(0, gone.addr());
    drop(gone);
    let client = Client::new(options).unwrap();
    let address = address();
    let script = async {
        let mut wire = peer.accept().await;
        let correlation = wire.expect::<CheckTail>().await.0;
        wire.send(correlation, &Tail { tail: position(1, 1) }).await;
        wire
    };
    let (tail, _wire) = tokio::join!(within(client.check_tail(&address)), script);
    assert_eq!(tail.unwrap(), position(1, 1));
}

#[tokio::test]
async fn a_question_is_asked_again_over_a_broken_connection() {
    let peer = Peer::new().await;
    let (client, address) = (peer.client(), address());
    let script = async {
        let mut wire = peer.accept().await;
        wire.expect::<CheckTail>().await;
        drop(wire);
        let mut wire = peer.accept().await;
        let correlation = wire.expect::<CheckTail>().await.0;
        // Half of an answer is none.
        let frame = framed(correlation, &Tail { tail: position(5, 5) });
        wire.bytes(&frame[..frame.len() / 2]).await;
        drop(wire);
        let mut wire = peer.accept().await;
        let correlation = wire.expect::<CheckTail>().await.0;
        refuse(&mut wire, correlation, Refusal::new(Reason::Unavailable, "handing off")).await;
        let correlation = wire.expect::<CheckTail>().await.0;
        wire.send(correlation, &Tail { tail: position(6, 6) }).await;
        wire
    };
    let (tail, _wire) = tokio::join!(within(client.check_tail(&address)), script);
    assert_eq!(tail.unwrap(), position(6, 6));
}

#[tokio::test]
async fn a_one_shot_that_was_sent_is_never_sent_again() {
    let peer = Peer::new().await;
    let client = peer.client();
    let address = address();
    let with =
        OneShot { idempotency_key: Some(1 << 64 | 2), match_seq_num: Some(SeqNum::new(3)), ..OneShot::default() };
    let script = async {
        let mut wire = peer.accept().await;
        let (_, once): (_, AppendOnce) = wire.expect().await;
        assert_eq!((once.idempotency, once.match_seq_num), ((1, 2), Some(SeqNum::new(3))));
        drop(wire);
    };
    let (appended, ()) = tokio::join!(within(client.append_with(&address, with, ["x"])), script);
    let error = appended.unwrap_err();
    assert_eq!((error.reason(), error.no_side_effect()), (Reason::Unavailable, false));
    assert!(timeout(Duration::from_millis(50), peer.accept_raw()).await.is_err());
}

#[tokio::test]
async fn a_call_that_is_not_answered_in_time_tells_whether_it_may_have_had_an_effect() {
    let peer = Peer::new().await;
    let client = Client::new(peer.options().request_timeout(Duration::from_millis(80))).unwrap();
    let address = address();
    let (tail, mut wire) = tokio::join!(within(client.check_tail(&address)), peer.accept());
    let error = tail.unwrap_err();
    assert_eq!((error.reason(), error.no_side_effect()), (Reason::DeadlineExceeded, true));
    let late = wire.expect::<CheckTail>().await.0;
    let error = within(client.append(&address, ["x"])).await.unwrap_err();
    assert_eq!((error.reason(), error.no_side_effect()), (Reason::DeadlineExceeded, false));
    // A late answer disturbs nobody.
    wire.send(late, &Tail { tail: position(0, 0) }).await;
    let script = async {
        wire.expect::<AppendOnce>().await;
        let correlation = wire.expect::<CheckTail>().await.0;
        wire.send(correlation, &Tail { tail: position(2, 2) }).await;
    };
    let (tail, ()) = tokio::join!(within(client.check_tail(&address)), script);
    assert_eq!(tail.unwrap(), position(2, 2));
}

#[tokio::test]
async fn a_star_that_goes_away_finishes_what_it_has_and_gets_nothing_new() {
    let peer = Peer::new().await;
    let (client, address) = (peer.client(), address());
    let first = async { within(client.check_tail(&address)).await.unwrap() };
    let script = async {
        let mut old = peer.accept().await;
        let asked = old.expect::<CheckTail>().await.0;
        old.send(0, &GoAway { why: "drain".into() }).await;
        old.expect_silence().await;
        let second = async { within(client.check_tail(&address)).await.unwrap() };
        let answer = async {
            let mut new = peer.accept().await;
            let correlation = new.expect::<CheckTail>().await.0;
            new.send(correlation, &Tail { tail: position(2, 2) }).await;
            new
        };
        let (second, new) = tokio::join!(second, answer);
        old.send(asked, &Tail { tail: position(1, 1) }).await;
        assert!(old.frame().await.is_none());
        (second, new)
    };
    let (first, (second, _new)) = tokio::join!(first, script);
    assert_eq!((first, second), (position(1, 1), position(2, 2)));
}

#[tokio::test]
async fn the_leader_is_followed() {
    let (peer, leader) = (Peer::new().await, Peer::new().await);
    let (client, address) = (peer.client(), address());
    let script = async {
        let mut wire = peer.accept().await;
        let (correlation, _): (_, AppendOnce) = wire.expect().await;
        let mut refusal = Refusal::new(Reason::NotOwner, "another star leads");
        refusal.details.get_or_insert_default().leader = Some(leader.addr());
        refuse(&mut wire, correlation, refusal).await;
        let mut other = leader.accept().await;
        let (correlation, _): (_, AppendOnce) = other.expect().await;
        let refusal = Refusal::new(Reason::SequenceMismatch, "the next is 0").with_tail(position(0, 0));
        refuse(&mut other, correlation, refusal).await;
        (wire, other)
    };
    let (appended, _wires) = tokio::join!(within(client.append_match(&address, SeqNum::new(9), ["x"])), script);
    let error = appended.unwrap_err();
    assert_eq!((error.reason(), error.resent(), error.no_side_effect()), (Reason::SequenceMismatch, false, true));
}

#[tokio::test]
async fn an_answer_of_another_kind_or_damaged_is_an_error_of_its_call_alone() {
    let peer = Peer::new().await;
    let (client, address) = (peer.client(), address());
    let script = async {
        let mut wire = peer.accept().await;
        let correlation = wire.expect::<CheckTail>().await.0;
        wire.send(correlation, &Done {}).await;
        let correlation = wire.expect::<Read>().await.0;
        wire.records(Kind::Page, correlation, &records_head(0, 0, 2), &[plain_entry(0, &["only one"])]).await;
        let correlation = wire.expect::<Trim>().await.0;
        wire.send(correlation, &Trimmed { trim_point: SeqNum::new(4) }).await;
        wire
    };
    let calls = async {
        let error = within(client.check_tail(&address)).await.unwrap_err();
        assert_eq!((error.reason(), error.no_side_effect()), (Reason::Internal, true));
        let error = within(client.read(&address, ReadOptions::from(0))).await.unwrap_err();
        assert_eq!(error.reason(), Reason::Internal);
        assert!(error.message().contains("1..2 are missing"), "{error}");
        assert_eq!(within(client.trim(&address, SeqNum::new(4))).await.unwrap().get(), 4);
    };
    tokio::join!(calls, script);
}

#[tokio::test]
async fn a_read_asks_for_what_its_options_say() {
    let peer = Peer::new().await;
    let (client, address) = (peer.client(), address());
    let options = ReadOptions::last(7).limit(3).max_bytes(900).until_ms(-4).clamp();
    let script = async {
        let mut wire = peer.accept().await;
        let (correlation, read): (_, Read) = wire.expect().await;
        assert_eq!((read.start, read.limit, read.max_bytes), (Start::Last(7), 3, 900));
        assert_eq!((read.until_ms, read.clamp), (Some(-4), true));
        wire.records(Kind::Page, correlation, &records_head(0, 4, 6), &[plain_entry(3, &["a", "b", "c"])]).await;
        let (correlation, trim): (_, Trim) = wire.expect().await;
        assert_eq!(trim.to, TrimTo::Timestamp(12));
        wire.send(correlation, &Trimmed { trim_point: SeqNum::new(5) }).await;
        wire
    };
    let calls = async {
        let page = within(client.read(&address, options)).await.unwrap();
        let bodies: Vec<_> = page.records.iter().map(|record| record.body.as_ref()).collect();
        assert_eq!(bodies, [b"b", b"c"]);
        assert_eq!(within(client.trim_from(&address, 12)).await.unwrap().get(), 5);
    };
    tokio::join!(calls, script);
}

#[tokio::test]
async fn a_list_pages_by_itself() {
    let peer = Peer::new().await;
    let client = peer.client();
    let bucket = |name: &str| {
        let spec = BucketSpec::named(BucketName::new(name).unwrap());
        Bucket::made(&spec, BucketId::from_bytes([0; 16]), 0)
    };
    let script = async {
        let mut wire = peer.accept().await;
        for (after, names, next) in [("", ["aaa", "bbb"].as_slice(), "bbb"), ("bbb", &["ccc"], "")] {
            let (correlation, list): (_, BucketList) = wire.expect().await;
            assert_eq!((list.after.as_str(), list.limit), (after, 1000));
            let buckets = names.iter().map(|name| bucket(name)).collect();
            wire.send(correlation, &BucketPage { buckets, next: next.into() }).await;
        }
        wire
    };
    let (buckets, _wire) = tokio::join!(within(client.buckets().try_collect::<Vec<_>>()), script);
    let names: Vec<_> = buckets.unwrap().iter().map(|bucket| bucket.name.to_string()).collect();
    assert_eq!(names, ["aaa", "bbb", "ccc"]);
}

#[tokio::test]
async fn a_change_that_may_have_happened_is_not_made_again() {
    let peer = Peer::new().await;
    let client = peer.client();
    let name = BucketName::new("demo").unwrap();
    let script = async {
        for _ in 0..2 {
            let mut wire = peer.accept().await;
            wire.frame().await.expect("a request");
        }
    };
    let calls = async {
        let error = within(client.delete_bucket(&name)).await.unwrap_err();
        assert_eq!((error.reason(), error.no_side_effect()), (Reason::Unavailable, false));
        let error = within(client.update_bucket(&name, BucketPatch::default())).await.unwrap_err();
        assert_eq!((error.reason(), error.no_side_effect()), (Reason::Unavailable, false));
    };
    tokio::join!(calls, script);
    assert!(timeout(Duration::from_millis(50), peer.accept_raw()).await.is_err());
}

#[test]
fn a_client_is_used_from_one_runtime_after_another() {
    let mut client = None;
    for round in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let peer = Peer::new().await;
            let options = peer.options();
            let client = client.get_or_insert_with(|| Client::new(options).unwrap()).clone();
            if round == 1 {
                // The first round's star is gone, and its connection with the runtime it ran on.
                let error = within(client.check_tail(&address())).await.unwrap_err();
                assert_eq!(error.reason(), Reason::Unavailable);
                return;
            }
            let script = async {
                let mut wire = peer.accept().await;
                let correlation = wire.expect::<CheckTail>().await.0;
                wire.send(correlation, &Tail { tail: position(round, 0) }).await;
                wire
            };
            let address = address();
            let (tail, _wire) = tokio::join!(within(client.check_tail(&address)), script);
            assert_eq!(tail.unwrap().seq_num.get(), round);
        });
    }
}
