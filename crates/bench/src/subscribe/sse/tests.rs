//! Are the events of an answer taken apart as they come, however they are cut?

use std::sync::atomic::{AtomicBool, AtomicU64};

use super::*;
use crate::latency::Latencies;
use crate::load::Clock;
use crate::subscribe::Live;

fn live() -> Live {
    let (has_failed, acks) = (AtomicBool::new(false), AtomicU64::new(0));
    Live {
        clock: Clock::start(),
        has_failed,
        acks,
        measured_ns: 0,
        end_ns: u64::MAX,
        due: 2,
        records: AtomicU64::new(2),
    }
}

fn sse() -> Sse {
    Sse { chunks: Vec::new(), events: Vec::new(), next: SeqNum::new(7) }
}

fn event(seq_num: u64) -> String {
    let body = "00000000000000ff-and-more";
    format!("id: {seq_num}\ndata: {{\"seq_num\":{seq_num},\"timestamp_ms\":1,\"headers\":[],\"body\":\"{body}\"}}\n\n")
}

fn chunk(data: &str) -> Vec<u8> {
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}

/// Takes `bytes`, so many at a time; answers how many records came, and what went wrong.
fn taken(bytes: &[u8], at_a_time: usize) -> (u64, SeqNum, Result<(), BenchError>) {
    let (live, mut latencies, mut sse) = (live(), Latencies::new(), sse());
    let outcome =
        bytes.chunks(at_a_time).try_for_each(|piece| sse.take(piece, &mut Delivery::new(&live, &mut latencies, 1_000)));
    (latencies.samples(), sse.next(), outcome)
}

#[test]
fn records_are_found_however_the_answer_is_cut() {
    let (first, second) = (event(7), event(8));
    let mut bytes = chunk("retry: 1000\n\n");
    bytes.extend(chunk(": heartbeat\n\n"));
    // An event may lie across chunks, and a chunk hold several.
    bytes.extend(chunk(&first[..20]));
    bytes.extend(chunk(&format!("{}{second}", &first[20..])));
    for at_a_time in [1, 2, 7, 64, bytes.len()] {
        let (records, next, outcome) = taken(&bytes, at_a_time);
        outcome.unwrap();
        assert_eq!((records, next), (2, SeqNum::new(9)), "{at_a_time}");
    }
}

#[test]
fn what_is_out_of_order_or_no_record_ends_the_run() {
    let (_, _, outcome) = taken(&chunk(&event(8)), 64);
    assert!(matches!(outcome, Err(BenchError::Seam { expected: 7, found: 8 })), "{outcome:?}");
    for text in ["event: error\ndata: {\"code\":\"not_found\"}\n\n", "id: x\ndata: {}\n\n", "id: 7\ndata: {}\n\n"] {
        let (_, _, outcome) = taken(&chunk(text), 64);
        assert!(matches!(outcome, Err(BenchError::Peer { .. })), "{text}: {outcome:?}");
    }
    for bytes in [&b"no number\r\n"[..], b"ffffffffffffffff\r\n", b"fffffffff\r\n"] {
        let (_, _, outcome) = taken(bytes, 64);
        assert!(matches!(outcome, Err(BenchError::Peer { .. })), "{bytes:?}: {outcome:?}");
    }
}

#[test]
fn a_head_is_found_whole_and_what_is_none_is_told() {
    let fine = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nd\r\n";
    assert_eq!(head_of(fine), Ok(Some(Head { status: 200, bytes: fine.len() - 3 })));
    assert_eq!(head_of(&fine[..30]), Ok(None));
    assert!(matches!(head_of(b"HTTP/1.1 404 Not Found\r\n\r\n"), Ok(Some(Head { status: 404, .. }))));
    for none in [&b"SSH-2.0-OpenSSH\r\n"[..], b"NOVA\x02\x06\0\0", &[b'x'; HEAD_BYTES_MAX]] {
        assert!(head_of(none).is_err(), "{none:?}");
    }
}

/// What a subscription is told by a server that gives this answer and closes.
fn opened(answer: &'static [u8]) -> BenchError {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let serving = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut request = [0; 1024];
        let _bytes = stream.read(&mut request).unwrap();
        stream.write_all(answer).unwrap();
    });
    let error = Sse::open(&at, &Address::new("bench", "key").unwrap(), SeqNum::ZERO).map(drop).unwrap_err();
    serving.join().unwrap();
    error
}

#[test]
fn a_refusal_is_told_in_its_words_and_whoever_is_not_nova_is_named() {
    let refusal = b"HTTP/1.1 404 Not Found\r\ncontent-length: 56\r\n\r\n{\"code\":\"not_found\",\"message\":\"there is no such stream\"}";
    let error = opened(refusal);
    assert_eq!((error.reason(), error.to_string().contains("no such stream")), (Reason::NotFound, true), "{error}");
    for strange in [&b"HTTP/1.1 404 Not Found\r\n\r\n"[..], b"220 mail\r\n", b""] {
        let error = opened(strange);
        assert!(error.to_string().starts_with("sse is 127.0.0.1:"), "{error}");
    }
}
