use std::time::Duration;

use tokio::time::timeout;
use wire::frame::Kind;
use wire::message::{Credit, Done, GoAway, Refused, Subscribe, Subscribed, SubscriptionEnded, Unsubscribe};
use wire::refusal::Refusal;

use super::*;
use crate::peer::{PATIENCE, Peer, STREAM, Wire, address, plain_entry, records_head};

async fn subscribed(peer: &Peer, options: SubscribeOptions, start: u64) -> (Subscription, Wire, Subscribe) {
    let (client, address) = (peer.client(), address());
    let (subscription, (wire, request)) =
        tokio::join!(client.subscribe(&address, options), peer.accept_subscription(start));
    (subscription.unwrap(), wire, request)
}

async fn records(wire: &mut Wire, start: u64, bodies: &[&str]) {
    let head = records_head(1, start, start + bodies.len() as u64);
    wire.records(Kind::Records, 0, &head, &[plain_entry(start, bodies)]).await;
}

async fn next(subscription: &mut Subscription) -> Option<Result<Vec<u64>>> {
    let page = timeout(PATIENCE, subscription.next()).await.expect("in time")?;
    Some(page.map(|page| page.records.iter().map(|record| record.seq_num.get()).collect()))
}

async fn expect(subscription: &mut Subscription, seq_nums: &[u64]) {
    assert_eq!(next(subscription).await.unwrap().unwrap(), seq_nums);
}

async fn expect_end(mut subscription: Subscription) -> Error {
    let error = next(&mut subscription).await.unwrap().unwrap_err();
    assert!(next(&mut subscription).await.is_none());
    error
}

#[tokio::test]
async fn records_come_in_order_and_a_time_is_resolved_once() {
    let peer = Peer::new().await;
    let (mut subscription, mut wire, request) = subscribed(&peer, SubscribeOptions::from_ms(500).clamp(), 40).await;
    assert_eq!((request.start, request.clamp, request.resume), (Start::Timestamp(500), true, None));
    assert_eq!((subscription.start().get(), subscription.stream_id()), (40, STREAM));
    records(&mut wire, 40, &["a", "b"]).await;
    records(&mut wire, 42, &["c"]).await;
    expect(&mut subscription, &[40, 41]).await;
    expect(&mut subscription, &[42]).await;
    drop(wire);
    let (mut wire, again) = peer.accept_subscription(43).await;
    assert_eq!((again.start, again.clamp, again.resume), (Start::SeqNum(SeqNum::new(43)), false, Some(STREAM)));
    records(&mut wire, 43, &["d"]).await;
    expect(&mut subscription, &[43]).await;
}

#[tokio::test]
async fn whole_batches_that_reach_back_show_no_record_twice() {
    let peer = Peer::new().await;
    let (mut subscription, mut wire, _) = subscribed(&peer, SubscribeOptions::from(1), 1).await;
    wire.records(Kind::Records, 0, &records_head(1, 1, 3), &[plain_entry(0, &["a", "b", "c"])]).await;
    wire.records(Kind::Records, 0, &records_head(1, 2, 4), &[plain_entry(2, &["c", "d"])]).await;
    expect(&mut subscription, &[1, 2]).await;
    expect(&mut subscription, &[3]).await;
}

#[tokio::test]
async fn credit_comes_back_as_records_are_taken_and_only_then() {
    let peer = Peer::new().await;
    let (mut subscription, mut wire, request) =
        subscribed(&peer, SubscribeOptions::from(0).credit_bytes(64 << 10), 0).await;
    assert_eq!(request.credit_bytes, 64 << 10);
    let body = "x".repeat(20 << 10);
    for start in 0..3 {
        records(&mut wire, start, &[&body]).await;
    }
    wire.expect_silence().await;
    let entry_bytes = u32::try_from(plain_entry(0, &[&body]).len()).unwrap();
    for start in 0..3 {
        expect(&mut subscription, &[start]).await;
        assert_eq!(wire.expect().await, (0, Credit { subscription: 1, bytes: entry_bytes }));
    }
}

#[tokio::test]
async fn a_reconnect_asks_only_for_what_there_is_room_for() {
    let peer = Peer::new().await;
    let (mut subscription, mut wire, _) = subscribed(&peer, SubscribeOptions::from(0).credit_bytes(64 << 10), 0).await;
    let body = "x".repeat(20 << 10);
    records(&mut wire, 0, &[&body]).await;
    records(&mut wire, 1, &[&body]).await;
    wire.send(0, &GoAway { why: "drain".into() }).await;
    let (mut wire, again) = peer.accept_subscription(2).await;
    let entry_bytes = u32::try_from(plain_entry(0, &[&body]).len()).unwrap();
    assert_eq!((again.start, again.credit_bytes), (Start::SeqNum(SeqNum::new(2)), (64 << 10) - 2 * entry_bytes));
    expect(&mut subscription, &[0]).await;
    assert_eq!(wire.expect().await, (0, Credit { subscription: 1, bytes: entry_bytes }));
    records(&mut wire, 2, &["c"]).await;
    expect(&mut subscription, &[1]).await;
    expect(&mut subscription, &[2]).await;
}

#[tokio::test]
async fn a_star_that_sends_past_the_credit_is_left() {
    let peer = Peer::new().await;
    let (_subscription, mut wire, _) = subscribed(&peer, SubscribeOptions::from(0).credit_bytes(64 << 10), 0).await;
    let body = "x".repeat((1 << 20) - 16);
    for start in 0..5 {
        records(&mut wire, start, &[&body]).await;
    }
    assert_eq!(peer.accept_subscription(4).await.1.start, Start::SeqNum(SeqNum::new(4)));
}

#[tokio::test]
async fn damaged_records_are_asked_for_again() {
    let peer = Peer::new().await;
    let (mut subscription, mut wire, _) = subscribed(&peer, SubscribeOptions::from(0), 0).await;
    let mut damaged = plain_entry(0, &["some body"]);
    let last = damaged.len() - 30;
    damaged[last] ^= 1;
    wire.records(Kind::Records, 0, &records_head(1, 0, 1), &[damaged]).await;
    let (mut wire, again) = peer.accept_subscription(0).await;
    assert_eq!(again.start, Start::SeqNum(SeqNum::ZERO));
    records(&mut wire, 0, &["some body"]).await;
    expect(&mut subscription, &[0]).await;
}

#[tokio::test]
async fn a_hand_off_is_invisible() {
    let peer = Peer::new().await;
    let (mut subscription, mut wire, _) = subscribed(&peer, SubscribeOptions::from(0), 0).await;
    let refusal = Refusal::new(Reason::Unavailable, "handed off");
    wire.send(0, &SubscriptionEnded { subscription: 1, refusal }).await;
    let (mut wire, _) = peer.accept_subscription(0).await;
    records(&mut wire, 0, &["a"]).await;
    expect(&mut subscription, &[0]).await;
}

#[tokio::test]
async fn trimmed_and_not_found_end_it() {
    for reason in [Reason::Trimmed, Reason::NotFound] {
        let peer = Peer::new().await;
        let (subscription, mut wire, _) = subscribed(&peer, SubscribeOptions::from(0), 0).await;
        let refusal = Refusal::new(reason, "gone").with_trim_point(SeqNum::new(5));
        wire.send(0, &SubscriptionEnded { subscription: 1, refusal }).await;
        let error = expect_end(subscription).await;
        assert_eq!((error.reason(), error.trim_point()), (reason, Some(SeqNum::new(5))));
    }
}

#[tokio::test]
async fn a_frame_that_arrives_damaged_does_not_end_it() {
    let peer = Peer::new().await;
    let (mut subscription, mut wire, _) = subscribed(&peer, SubscribeOptions::from(0), 0).await;
    wire.send(0, &Refused { refusal: Refusal::invalid("the frame header is damaged") }).await;
    drop(wire);
    let mut wire = peer.accept().await;
    let (correlation, _): (_, Subscribe) = wire.expect().await;
    wire.send(correlation, &Refused { refusal: Refusal::invalid("the head of a frame is damaged") }).await;
    let (mut wire, _) = peer.accept_subscription(0).await;
    records(&mut wire, 0, &["a"]).await;
    expect(&mut subscription, &[0]).await;
}

#[tokio::test]
async fn a_refusal_at_the_resume_and_another_stream_end_it() {
    let peer = Peer::new().await;
    let (subscription, wire, _) = subscribed(&peer, SubscribeOptions::from(0), 0).await;
    drop(wire);
    let mut wire = peer.accept().await;
    let (correlation, _): (_, Subscribe) = wire.expect().await;
    wire.send(correlation, &Refused { refusal: Refusal::new(Reason::Trimmed, "gone") }).await;
    assert_eq!(expect_end(subscription).await.reason(), Reason::Trimmed);

    let (subscription, wire, _) = subscribed(&peer, SubscribeOptions::from(0), 0).await;
    drop(wire);
    let mut wire = peer.accept().await;
    let (correlation, _): (_, Subscribe) = wire.expect().await;
    let stream_id = StreamId::from_bytes([9; 16]);
    wire.send(correlation, &Subscribed { subscription: 1, stream_id, start: SeqNum::ZERO }).await;
    assert_eq!(expect_end(subscription).await.reason(), Reason::NotFound);
}

#[tokio::test]
async fn a_spent_budget_ends_it_after_what_was_delivered() {
    let peer = Peer::new().await;
    let options = SubscribeOptions::from(0).retry_budget(Duration::from_millis(100));
    let (mut subscription, mut wire, _) = subscribed(&peer, options, 0).await;
    records(&mut wire, 0, &["a"]).await;
    drop((wire, peer));
    expect(&mut subscription, &[0]).await;
    let error = expect_end(subscription).await;
    assert_eq!((error.reason(), error.no_side_effect()), (Reason::Unavailable, true));
}

#[tokio::test]
async fn dropping_it_ends_it_quietly() {
    let peer = Peer::new().await;
    let (subscription, mut wire, _) = subscribed(&peer, SubscribeOptions::from(0), 0).await;
    drop(subscription);
    let (correlation, Unsubscribe { subscription }) = wire.expect().await;
    assert_eq!(subscription, 1);
    wire.send(correlation, &Done {}).await;
    assert!(wire.frame().await.is_none());
}

#[tokio::test]
async fn a_credit_out_of_its_range_is_refused() {
    let client = Peer::new().await.client();
    for bytes in [0, (64 << 10) - 1, (16 << 20) + 1] {
        let error = client.subscribe(&address(), SubscribeOptions::from(0).credit_bytes(bytes)).await.unwrap_err();
        assert_eq!(error.reason(), Reason::Invalid);
        assert!(error.message().contains(&bytes.to_string()), "{error}");
    }
}
