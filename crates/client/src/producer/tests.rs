use std::time::Duration;

use tokio::time::timeout;
use wire::frame::Kind;
use wire::ids::BatchNo;
use wire::message::{AppendRefused, Close, GoAway, Open, Opened, Refused, SessionEnded};
use wire::names::FencingToken;
use wire::refusal::Refusal;

use super::*;
use crate::peer::{PATIENCE, Peer, SESSION, STREAM, WINDOW, Wire, address, opened, position};

fn options() -> ProducerOptions {
    ProducerOptions::default()
}

/// A producer and the connection that its session is on.
async fn producing(peer: &Peer, options: ProducerOptions) -> (Producer, Wire, Open) {
    let (client, address) = (peer.client(), address());
    let (producer, (wire, open)) = tokio::join!(client.open(&address, options), peer.accept_session());
    (producer.unwrap(), wire, open)
}

async fn within<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("in time")
}

fn ended(reason: Reason) -> SessionEnded {
    SessionEnded { session: SESSION, refusal: Refusal::new(reason, "so it is") }
}

/// Submits single records that leave one by one until the window is full.
async fn fill(producer: &Producer, wire: &mut Wire) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    for no in 1..=u64::from(WINDOW) {
        tickets.push(producer.submit([format!("full {no}")]).await.unwrap());
        assert_eq!(wire.expect_batch().await.head.no, BatchNo::new(no));
    }
    tickets
}

#[tokio::test]
async fn an_idle_append_leaves_at_once_and_learns_where_it_is() {
    let peer = Peer::new().await;
    let (producer, mut wire, open) = producing(&peer, options()).await;
    assert_eq!((open.resume, open.fencing_token.is_empty()), (None, true));
    assert_ne!(open.producer.get(), 0);
    assert_eq!((producer.stream_id(), producer.address(), producer.opened_at()), (STREAM, &address(), position(0, 0)));
    let script = async {
        let batch = wire.expect_batch().await;
        assert_eq!((batch.head.no.get(), batch.head.resent, batch.bodies), (1, false, vec!["a".into(), "b".into()]));
        wire.ack(&[(1, 7, 2)]).await;
    };
    let (appended, ()) = tokio::join!(within(producer.append(["a", "b"])), script);
    let appended = appended.unwrap();
    assert_eq!((appended.start, appended.end, appended.tail), (position(7, 10), position(9, 10), position(9, 10)));
}

#[tokio::test]
async fn what_comes_while_the_window_is_full_rides_as_one_batch() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let first = fill(&producer, &mut wire).await;
    let mut tickets = Vec::new();
    for body in ["x", "y", "z"] {
        tickets.push(producer.submit([body]).await.unwrap());
    }
    wire.expect_silence().await;
    wire.ack(&[(1, 0, 1)]).await;
    assert_eq!(wire.expect_batch().await.bodies, ["x", "y", "z"]);
    wire.ack(&[(2, 1, 1), (3, 2, 3)]).await;
    let mut starts = Vec::new();
    for ticket in first.into_iter().chain(tickets) {
        starts.push(within(ticket).await.unwrap().start.seq_num.get());
    }
    assert_eq!(starts, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_miss_rejects_its_batch_alone() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let missed = producer.submit_match(SeqNum::new(4), ["no"]).await.unwrap();
    let stored = producer.submit(["yes"]).await.unwrap();
    assert_eq!(wire.expect_batch().await.head.match_seq_num, Some(SeqNum::new(4)));
    assert_eq!(wire.expect_batch().await.bodies, ["yes"]);
    let refusal = Refusal::new(Reason::SequenceMismatch, "the next is 3").with_tail(position(3, 9));
    wire.send(0, &AppendRefused { session: SESSION, no: BatchNo::new(1), refusal }).await;
    wire.ack(&[(2, 3, 1)]).await;
    let error = within(missed).await.unwrap_err();
    assert_eq!((error.reason(), error.tail(), error.resent()), (Reason::SequenceMismatch, Some(position(3, 9)), false));
    assert_eq!(within(stored).await.unwrap().start.seq_num.get(), 3);
}

#[tokio::test]
async fn a_broken_connection_is_resumed_and_the_unacked_sent_again_in_order() {
    let peer = Peer::new().await;
    let (producer, mut wire, open) = producing(&peer, options()).await;
    let tickets = fill(&producer, &mut wire).await;
    let later = producer.submit(["later"]).await.unwrap();
    drop(wire);
    let (mut wire, again) = peer.accept_session().await;
    assert_eq!((again.producer, again.resume, again.address), (open.producer, Some(STREAM), open.address));
    for no in 1..=2 {
        let head = wire.expect_batch().await.head;
        assert_eq!((head.no.get(), head.resent), (no, true));
    }
    wire.ack(&[(1, 0, 1), (2, 1, 1)]).await;
    let batch = wire.expect_batch().await;
    assert_eq!((batch.head.no.get(), batch.head.resent, batch.bodies), (3, false, vec!["later".to_owned()]));
    wire.ack(&[(3, 2, 1)]).await;
    for ticket in tickets.into_iter().chain([later]) {
        within(ticket).await.unwrap();
    }
}

/// A frame that arrives damaged ends the connection, and with it the answers to those that arrived well before it.
#[tokio::test]
async fn what_was_sent_before_a_damaged_frame_may_have_landed_and_is_sent_again() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let ticket = producer.submit(["x"]).await.unwrap();
    wire.expect_batch().await;
    wire.send(0, &Refused { refusal: Refusal::invalid("the frame header is damaged") }).await;
    drop(wire);
    // So does one of the next handshake.
    let mut wire = peer.accept().await;
    let (correlation, _): (_, Open) = wire.expect().await;
    wire.send(correlation, &Refused { refusal: Refusal::invalid("the head of a frame is damaged") }).await;
    let (mut wire, again) = peer.accept_session().await;
    assert_eq!(again.resume, Some(STREAM));
    let head = wire.expect_batch().await.head;
    assert_eq!((head.no.get(), head.resent), (1, true));
    wire.ack(&[(1, 0, 1)]).await;
    within(ticket).await.unwrap();
}

#[tokio::test]
async fn a_miss_after_a_resend_says_that_it_may_have_landed() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let ticket = producer.submit_match(SeqNum::ZERO, ["x"]).await.unwrap();
    wire.expect_batch().await;
    drop(wire);
    let (mut wire, _) = peer.accept_session().await;
    assert!(wire.expect_batch().await.head.resent);
    let refusal = Refusal::new(Reason::SequenceMismatch, "the next is 1");
    wire.send(0, &AppendRefused { session: SESSION, no: BatchNo::new(1), refusal }).await;
    let error = within(ticket).await.unwrap_err();
    assert_eq!((error.resent(), error.no_side_effect()), (true, false));
}

#[tokio::test]
async fn a_hand_off_shows_neither_to_the_caller_nor_as_a_resend() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let ticket = producer.submit(["x"]).await.unwrap();
    wire.expect_batch().await;
    wire.send(0, &ended(Reason::Unavailable)).await;
    let (mut wire, again) = peer.accept_session().await;
    assert_eq!(again.resume, Some(STREAM));
    let head = wire.expect_batch().await.head;
    assert_eq!((head.no.get(), head.resent), (1, false));
    wire.ack(&[(1, 0, 1)]).await;
    within(ticket).await.unwrap();
}

#[tokio::test]
async fn a_star_that_goes_away_is_left_once_all_in_flight_is_answered() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let first = producer.submit(["x"]).await.unwrap();
    wire.expect_batch().await;
    wire.send(0, &GoAway { why: "drain".into() }).await;
    wire.expect_silence().await;
    let second = producer.submit(["y"]).await.unwrap();
    wire.expect_silence().await;
    wire.ack(&[(1, 0, 1)]).await;
    within(first).await.unwrap();
    let (mut wire, _) = peer.accept_session().await;
    let batch = wire.expect_batch().await;
    assert_eq!((batch.head.no.get(), batch.head.resent, batch.bodies), (2, false, vec!["y".to_owned()]));
    wire.ack(&[(2, 1, 1)]).await;
    within(second).await.unwrap();
}

#[tokio::test]
async fn being_fenced_out_or_superseded_or_deleted_ends_the_producer_at_once() {
    for reason in [Reason::FencedOut, Reason::Superseded, Reason::NotFound] {
        let peer = Peer::new().await;
        let (producer, mut wire, _) = producing(&peer, options()).await;
        let pending = producer.submit(["x"]).await.unwrap();
        wire.expect_batch().await;
        wire.send(0, &ended(reason)).await;
        let error = within(pending).await.unwrap_err();
        assert_eq!((error.reason(), error.no_side_effect()), (reason, true));
        assert_eq!(within(producer.append(["y"])).await.unwrap_err().reason(), reason);
        assert_eq!(within(producer.close()).await.unwrap_err().reason(), reason);
    }
}

#[tokio::test]
async fn a_refusal_at_the_reopen_surfaces_at_once_and_tells_what_may_have_landed() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let pending = fill(&producer, &mut wire).await;
    let staged = producer.submit(["never sent"]).await.unwrap();
    drop(wire);
    let mut wire = peer.accept().await;
    let (correlation, _): (_, Open) = wire.expect().await;
    wire.send(correlation, &Refused { refusal: Refusal::new(Reason::FencedOut, "another token") }).await;
    for ticket in pending {
        let error = within(ticket).await.unwrap_err();
        assert_eq!((error.reason(), error.resent(), error.no_side_effect()), (Reason::FencedOut, true, false));
    }
    let error = within(staged).await.unwrap_err();
    assert_eq!((error.reason(), error.resent(), error.no_side_effect()), (Reason::FencedOut, false, true));
}

#[tokio::test]
async fn a_stream_made_again_is_not_the_one_that_was_opened() {
    let peer = Peer::new().await;
    let (producer, wire, _) = producing(&peer, options()).await;
    drop(wire);
    let mut wire = peer.accept().await;
    let (correlation, _): (_, Open) = wire.expect().await;
    let other = Opened { stream_id: StreamId::from_bytes([8; 16]), ..opened() };
    wire.send(correlation, &other).await;
    let ticket = producer.submit(["x"]).await;
    let error = match ticket {
        Ok(ticket) => within(ticket).await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.reason(), Reason::NotFound);
}

#[tokio::test]
async fn a_spent_budget_makes_every_append_unavailable() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options().retry_budget(Duration::from_millis(100))).await;
    let sent = producer.submit(["sent"]).await.unwrap();
    wire.expect_batch().await;
    drop((wire, peer));
    let error = within(sent).await.unwrap_err();
    assert_eq!((error.reason(), error.resent(), error.no_side_effect()), (Reason::Unavailable, true, false));
    assert!(error.message().contains("retry budget"), "{error}");
    let error = within(producer.append(["later"])).await.unwrap_err();
    assert_eq!((error.reason(), error.no_side_effect()), (Reason::Unavailable, true));
}

#[tokio::test]
async fn a_connection_that_keeps_breaking_without_an_answer_spends_one_budget() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options().retry_budget(Duration::from_millis(200))).await;
    let ticket = producer.submit(["x"]).await.unwrap();
    wire.expect_batch().await;
    drop(wire);
    let flapping = async {
        loop {
            drop(peer.accept_session().await);
        }
    };
    let error = tokio::select! {
        answer = within(ticket) => answer.unwrap_err(),
        () = flapping => unreachable!(),
    };
    assert_eq!(error.reason(), Reason::Unavailable);
}

#[tokio::test]
async fn an_answer_that_answers_nothing_breaks_the_connection() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let ticket = producer.submit(["x"]).await.unwrap();
    wire.expect_batch().await;
    wire.ack(&[(1, 0, 2)]).await;
    let (mut wire, _) = peer.accept_session().await;
    wire.expect_batch().await;
    wire.ack(&[(7, 0, 1)]).await;
    let (mut wire, _) = peer.accept_session().await;
    wire.expect_batch().await;
    wire.ack(&[(1, 0, 1)]).await;
    within(ticket).await.unwrap();
}

#[tokio::test]
async fn a_megabyte_is_staged_then_callers_wait() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let _first = fill(&producer, &mut wire).await;
    let half = vec![0; 512 << 10];
    let _staged = [producer.submit([half.clone()]).await.unwrap(), producer.submit([half.clone()]).await.unwrap()];
    let waiting = timeout(Duration::from_millis(50), producer.submit(["one more"])).await;
    assert!(waiting.is_err());
    let mut waiting = std::pin::pin!(producer.submit(["one more"]));
    assert!(timeout(Duration::from_millis(50), waiting.as_mut()).await.is_err());
    wire.ack(&[(1, 0, 1)]).await;
    assert_eq!(wire.frame().await.unwrap().kind, Kind::Append);
    let _ticket = within(waiting).await.unwrap();
}

#[tokio::test]
async fn records_over_a_bound_are_refused_before_they_are_sent() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let headers = |count| AppendRecord { headers: vec![("n".into(), "v".into()); count], ..AppendRecord::default() };
    let cases: [(Vec<AppendRecord>, Reason, &str); 7] = [
        (vec![], Reason::Invalid, "0 records"),
        (vec!["x".into(); 1001], Reason::TooLarge, "1001 records"),
        (vec![vec![0; (1 << 20) + 1].into()], Reason::TooLarge, "1048577 bytes"),
        (vec![vec![0; 1 << 20].into(), "x".into()], Reason::TooLarge, "1048577 bytes"),
        (vec!["ok".into(), headers(101)], Reason::Invalid, "101 headers"),
        (vec![AppendRecord::from("x").header("", "v")], Reason::Invalid, "empty name"),
        (vec![AppendRecord::from("x").timestamp_ms(i64::MIN)], Reason::Invalid, "timestamp"),
    ];
    for (records, reason, says) in cases {
        let error = within(producer.append(records)).await.unwrap_err();
        assert_eq!((error.reason(), error.no_side_effect()), (reason, true), "{error}");
        assert!(error.message().contains(says), "{error}");
    }
    wire.expect_silence().await;
    let _ticket = producer.submit([headers(100)]).await.unwrap();
    assert_eq!(wire.expect_batch().await.head.no.get(), 1);
}

#[tokio::test]
async fn a_linger_gathers_and_close_does_not_wait_for_it() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options().linger(Duration::from_millis(300))).await;
    let mut tickets = vec![producer.submit(["a"]).await.unwrap()];
    wire.expect_silence().await;
    tickets.push(producer.submit(["b"]).await.unwrap());
    assert_eq!(wire.expect_batch().await.bodies, ["a", "b"]);
    tickets.push(producer.submit(["c"]).await.unwrap());
    let asked_at = tokio::time::Instant::now();
    let script = async {
        assert_eq!(wire.expect_batch().await.bodies, ["c"]);
        assert!(asked_at.elapsed() < Duration::from_millis(250));
        wire.expect_silence().await;
        wire.ack(&[(1, 0, 2), (2, 2, 1)]).await;
        wire.closes().await;
    };
    let (closed, ()) = tokio::join!(within(producer.close()), script);
    closed.unwrap();
    for ticket in tickets {
        within(ticket).await.unwrap();
    }
}

#[tokio::test]
async fn a_full_batch_does_not_linger() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options().linger(Duration::from_secs(1)).batch_bytes_max(8)).await;
    let asked_at = tokio::time::Instant::now();
    let _tickets = [producer.submit(["1234"]).await.unwrap(), producer.submit(["5678"]).await.unwrap()];
    assert_eq!(wire.expect_batch().await.bodies, ["1234", "5678"]);
    // One that doesn't fit behind another sends the first on its way; a call larger than the size rides alone.
    let _tickets = [producer.submit(["12345"]).await.unwrap(), producer.submit(["larger than that"]).await.unwrap()];
    assert_eq!(wire.expect_batch().await.bodies, ["12345"]);
    wire.ack(&[(1, 0, 2), (2, 2, 1)]).await;
    assert_eq!(wire.expect_batch().await.bodies, ["larger than that"]);
    assert!(asked_at.elapsed() < Duration::from_millis(900));
}

#[tokio::test]
async fn options_out_of_their_bounds_are_refused() {
    let client = Peer::new().await.client();
    for bad in [
        options().linger(Duration::from_millis(1001)),
        options().batch_bytes_max(0),
        options().batch_bytes_max((1 << 20) + 1),
    ] {
        let error = client.open(&address(), bad).await.unwrap_err();
        assert_eq!(error.reason(), Reason::Invalid, "{error}");
    }
}

#[tokio::test]
async fn a_closed_producer_takes_no_more() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let (closed, ()) = tokio::join!(within(producer.close()), wire.closes());
    closed.unwrap();
    assert!(wire.frame().await.is_none());
    let error = producer.append(["x"]).await.unwrap_err();
    assert_eq!((error.reason(), error.no_side_effect()), (Reason::FailedPrecondition, true));
    producer.close().await.unwrap();
}

#[tokio::test]
async fn a_close_comes_back_over_a_broken_connection_to_give_the_role_up() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options()).await;
    let script = async {
        wire.expect::<Close>().await;
        drop(wire);
        let (mut wire, open) = peer.accept_session().await;
        assert_eq!(open.resume, Some(STREAM));
        wire.closes().await;
    };
    let (closed, ()) = tokio::join!(within(producer.close()), script);
    closed.unwrap();
}

#[tokio::test]
async fn the_last_handle_that_goes_flushes_and_closes() {
    let peer = Peer::new().await;
    let (producer, mut wire, _) = producing(&peer, options().linger(Duration::from_secs(1))).await;
    let ticket = producer.clone().submit(["x"]).await.unwrap();
    wire.expect_silence().await;
    drop(producer);
    assert_eq!(wire.expect_batch().await.bodies, ["x"]);
    wire.ack(&[(1, 0, 1)]).await;
    wire.closes().await;
    within(ticket).await.unwrap();
}

#[tokio::test]
async fn an_open_presents_its_token_and_follows_to_the_leader() {
    let (peer, leader) = (Peer::new().await, Peer::new().await);
    let (client, address) = (peer.client(), address());
    let token = FencingToken::new("gen-42").unwrap();
    let script = async {
        let mut wire = peer.accept().await;
        let (correlation, _): (_, Open) = wire.expect().await;
        let mut refusal = Refusal::new(Reason::NotOwner, "another star leads");
        refusal.details.get_or_insert_default().leader = Some(leader.addr());
        wire.send(correlation, &Refused { refusal }).await;
        let (_, open) = leader.accept_session().await;
        assert_eq!(open.fencing_token.as_str(), "gen-42");
    };
    let (producer, ()) = tokio::join!(client.open(&address, options().fencing_token(token)), script);
    assert_eq!(producer.unwrap().stream_id(), STREAM);
}

#[tokio::test]
async fn an_open_that_is_refused_says_why_at_once() {
    for reason in [Reason::WriterHeld, Reason::FencedOut, Reason::NotFound, Reason::FailedPrecondition] {
        let peer = Peer::new().await;
        let (client, address) = (peer.client(), address());
        let script = async {
            let mut wire = peer.accept().await;
            let (correlation, _): (_, Open) = wire.expect().await;
            wire.send(correlation, &Refused { refusal: Refusal::new(reason, "no") }).await;
        };
        let (opened, ()) = tokio::join!(within(client.open(&address, options())), script);
        assert_eq!(opened.unwrap_err().reason(), reason);
    }
}

#[test]
fn tickets_outlive_their_runtime_with_an_answer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ticket, producer) = runtime.block_on(async {
        let peer = Peer::new().await;
        let (producer, mut wire, _) = producing(&peer, options()).await;
        let ticket = producer.submit(["x"]).await.unwrap();
        wire.expect_batch().await;
        (ticket, producer)
    });
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = other.block_on(ticket).unwrap_err();
    assert_eq!((error.reason(), error.no_side_effect()), (Reason::Unavailable, false));
    let error = other.block_on(producer.append(["y"])).unwrap_err();
    assert_eq!(error.reason(), Reason::Unavailable);
    assert_eq!(other.block_on(producer.close()).unwrap_err().reason(), Reason::Unavailable);
}
