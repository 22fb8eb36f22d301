use tokio::time::timeout;
use wire::crc::crc32c;
use wire::message::{Done, Pong};

use super::*;
use crate::peer::{PATIENCE, Peer, Wire};

async fn linked(peer: &Peer) -> (Link, Wire) {
    let (options, addr) = (peer.options(), peer.addr());
    let (link, wire) = tokio::join!(Link::dial(&addr, &options), peer.accept());
    (link.unwrap(), wire)
}

async fn dial_against(answer: &[u8]) -> Error {
    let peer = Peer::new().await;
    let (options, addr) = (peer.options(), peer.addr());
    let script = async {
        let mut wire = peer.accept_raw().await;
        wire.frame().await.expect("a hello");
        wire.bytes(answer).await;
    };
    tokio::join!(Link::dial(&addr, &options), script).0.unwrap_err()
}

#[tokio::test]
async fn what_does_not_speak_the_wire_is_told_apart_from_a_star_that_is_away() {
    let error = dial_against(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(error.reason(), Reason::Invalid);
    assert!(error.message().contains("doesn't speak"), "{error}");
    let mut other_version = framed(0, &Done {}).to_vec();
    other_version[4] = 9;
    assert_eq!(dial_against(&other_version).await.reason(), Reason::Invalid);
    let error = dial_against(&framed(0, &Done {})[..20]).await;
    assert_eq!((error.reason(), error.no_side_effect()), (Reason::Unavailable, true));
    assert_eq!(dial_against(&framed(0, &Done {})).await.reason(), Reason::Unavailable);
}

#[tokio::test]
async fn a_star_that_never_answers_the_hello_is_given_up() {
    let peer = Peer::new().await;
    let options = peer.options().connect_timeout(Duration::from_millis(50));
    let addr = peer.addr();
    let (dialed, _open) = tokio::join!(Link::dial(&addr, &options), peer.accept_raw());
    let error = dialed.unwrap_err();
    assert_eq!(error.reason(), Reason::Unavailable);
    assert!(error.message().contains("50 ms"), "{error}");
}

#[tokio::test]
async fn frames_come_whole_however_they_are_cut() {
    let peer = Peer::new().await;
    let (mut link, mut wire) = linked(&peer).await;
    let script = async {
        let bytes = [framed(1, &Done {}), framed(2, &Pong { echo: 1 }), framed(3, &Done {})].concat();
        for byte in bytes {
            wire.bytes(&[byte]).await;
            tokio::task::yield_now().await;
        }
        wire
    };
    let read = async { (link.next().await.unwrap().correlation, link.next().await.unwrap().correlation) };
    assert_eq!(tokio::join!(read, script).0, (1, 3));
}

#[tokio::test]
async fn a_wait_that_is_dropped_loses_nothing() {
    let peer = Peer::new().await;
    let (mut link, mut wire) = linked(&peer).await;
    let frame = framed(7, &Pong { echo: 1 }).to_vec();
    let done = framed(8, &Done {});
    for part in [&frame[..10], &frame[10..], &done[..20]] {
        wire.bytes(part).await;
        assert!(timeout(Duration::from_millis(20), link.next()).await.is_err());
    }
    wire.bytes(&done[20..]).await;
    assert_eq!(timeout(PATIENCE, link.next()).await.unwrap().unwrap().correlation, 8);
}

#[tokio::test]
async fn damaged_and_oversized_frames_break_the_connection() {
    let oversized = {
        let mut bytes = framed(1, &Done {}).to_vec();
        bytes[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        let sum = crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    let flipped = {
        let mut bytes = framed(1, &Pong { echo: 5 }).to_vec();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        bytes
    };
    for bytes in [oversized, flipped] {
        let peer = Peer::new().await;
        let (mut link, mut wire) = linked(&peer).await;
        wire.bytes(&bytes).await;
        let broken = timeout(PATIENCE, link.next()).await.unwrap().unwrap_err();
        assert!(matches!(broken, Broken::Frame(_)), "{broken}");
    }
}

#[tokio::test]
async fn a_ping_is_answered_with_what_it_carried() {
    let peer = Peer::new().await;
    let (mut link, mut wire) = linked(&peer).await;
    let script = async {
        wire.send(4, &Ping { echo: 77 }).await;
        assert_eq!(wire.expect().await, (4, Pong { echo: 77 }));
        wire.send(5, &Done {}).await;
    };
    let (frame, ()) = tokio::join!(link.next(), script);
    assert_eq!(frame.unwrap().correlation, 5);
}

#[tokio::test]
async fn a_silent_star_is_pinged_then_given_up() {
    let mut peer = Peer::new().await;
    peer.keepalive_ms = 60;
    let (mut link, mut wire) = linked(&peer).await;
    let script = async {
        // Answered once, the connection lives on; the second ping finds no answer.
        let (correlation, Ping { echo }) = wire.expect().await;
        wire.send(correlation, &Pong { echo }).await;
        wire.expect::<Ping>().await;
        wire
    };
    let (broken, _wire) = tokio::join!(timeout(PATIENCE, link.next()), script);
    let broken = broken.unwrap().unwrap_err();
    assert!(matches!(broken, Broken::Silent { silent_ms } if silent_ms >= 120), "{broken}");
}

/// What was silent meanwhile was this process, or its host.
#[tokio::test]
async fn a_client_that_was_stopped_asks_the_star_before_it_gives_it_up() {
    let mut peer = Peer::new().await;
    peer.keepalive_ms = 200;
    let (mut link, mut wire) = linked(&peer).await;
    std::thread::sleep(Duration::from_millis(500));
    let script = async {
        let (correlation, Ping { echo }) = wire.expect().await;
        wire.send(correlation, &Pong { echo }).await;
        wire.send(5, &Done {}).await;
        wire
    };
    let (frame, _wire) = tokio::join!(timeout(PATIENCE, link.next()), script);
    assert_eq!(frame.unwrap().unwrap().correlation, 5);
}

#[tokio::test]
async fn frames_that_the_socket_took_are_told_from_those_that_it_did_not() {
    let peer = Peer::new().await;
    let (mut link, mut wire) = linked(&peer).await;
    let begun = link.begun();
    let places: Vec<_> = (0..3).map(|_| link.send(Bytes::from(vec![0; 64 << 20]))).collect();
    // The star doesn't read, so the socket is full within the first.
    assert!(timeout(Duration::from_millis(100), link.next()).await.is_err());
    assert_eq!(places, [begun, begun + 1, begun + 2]);
    assert_eq!(link.begun(), begun + 1);
    wire.send(9, &Done {}).await;
    assert_eq!(timeout(PATIENCE, link.next()).await.unwrap().unwrap().correlation, 9);
}
