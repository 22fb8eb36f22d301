pub(crate) mod harness;

use std::time::{Duration, Instant};

use tuning::units::{Bytes, Millis};
use wire::batch::VerifiedBatch;
use wire::entry::Entry;
use wire::frame::{self, HEADER_BYTES, Kind};
use wire::hot::RecordsHead;
use wire::ids::SeqNum;
use wire::message::{
    BucketGet, CheckTail, Credit, GoAway, Hello, Message, Ping, Read, Refused, Start, StreamAnswer, StreamCreate,
    StreamList, StreamPage, Subscribe, Subscribed, Tail,
};
use wire::names::{Address, BucketName};
use wire::reason::Reason;

use harness::{BUCKET, Client, Running, append_frame, data, open_of, serve, serve_with, settings};

fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    Hello { client: "test".to_owned() }.frame(1, &mut bytes);
    bytes
}

fn tail(client: &mut Client, key: &str) -> u64 {
    let tail: Tail = client.call(&CheckTail { address: Address::new(BUCKET, key).unwrap() }).unwrap();
    tail.tail.seq_num.get()
}

/// The bodies of a page from the start, which after a restart come from the disk.
fn read_all(client: &mut Client, key: &str) -> Vec<Vec<u8>> {
    let correlation = client.ask(&Read {
        address: Address::new(BUCKET, key).unwrap(),
        start: Start::SeqNum(SeqNum::ZERO),
        clamp: false,
        limit: 0,
        max_bytes: 0,
        until_ms: None,
    });
    let got = client.next().unwrap();
    assert_eq!((got.kind, got.correlation), (Kind::Page, correlation));
    bodies(&got.payload)
}

fn bodies(mut entries: &[u8]) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while !entries.is_empty() {
        let (entry, bytes) = Entry::decode(entries).unwrap();
        let Entry::Batch { head, batch, .. } = entry else { panic!("a verb among records") };
        let batch = VerifiedBatch::verify(batch, head.batch_crc).unwrap();
        bodies.extend(batch.iter().map(|record| record.body.to_vec()));
        entries = &entries[bytes..];
    }
    bodies
}

/// What a connection hears that sends these bytes: a refusal as `invalid`, then the end.
fn is_refused_and_closed(mut client: Client, bytes: &[u8]) -> String {
    client.send(bytes);
    let refused = loop {
        let got = client.next().expect("a refusal before the end");
        if got.kind == Kind::Refused {
            break Refused::get(&got.head).unwrap().refusal;
        }
    };
    assert_eq!(refused.reason, Reason::Invalid);
    assert!(client.next().is_none(), "nothing follows the refusal");
    refused.message
}

#[test]
fn appends_are_acked_in_order_and_found_again_after_a_restart_with_another_number_of_shards() {
    let data = data();
    let star = serve(data.path(), 1);
    let mut client = star.client();
    let opened = client.open("orders");
    let acks: Vec<_> =
        (0..10).flat_map(|turn| client.append(opened.session, turn * 10..turn * 10 + 10, b"hello")).collect();
    let starts: Vec<u64> = acks.iter().map(|ack| ack.start.seq_num.get()).collect();
    assert_eq!(starts, (0..100).collect::<Vec<_>>());
    drop(client);
    star.stop();
    let star = serve(data.path(), 2);
    assert_eq!(tail(&mut star.client(), "orders"), 100);
    assert_eq!(read_all(&mut star.client(), "orders"), vec![b"hello".to_vec(); 100]);
    star.stop();
    let star = serve(data.path(), 1);
    assert_eq!(tail(&mut star.client(), "orders"), 100);
    star.stop();
}

#[test]
fn frames_may_come_byte_by_byte() {
    let data = data();
    let star = serve(data.path(), 1);
    let mut client = star.stranger();
    let mut bytes = hello();
    Ping { echo: 42 }.frame(2, &mut bytes);
    for byte in bytes {
        client.send(&[byte]);
    }
    assert_eq!(client.next().unwrap().kind, Kind::Welcome);
    let pong = client.next().unwrap();
    assert_eq!((pong.kind, pong.correlation), (Kind::Pong, 2));
    star.stop();
}

#[test]
fn what_is_no_frame_is_refused_and_ends_its_connection_only() {
    let data = data();
    let star = serve(data.path(), 1);
    let mut bystander = star.client();
    let mut flipped = hello();
    flipped[HEADER_BYTES + 1] ^= 4;
    let mut other_version = hello();
    other_version[4] = 9;
    let mut oversized = Vec::new();
    let open = frame::begin(&mut oversized);
    oversized.resize(HEADER_BYTES + (70 << 10), 0);
    open.end(Kind::Hello, 1, &mut oversized);
    let mut early = Vec::new();
    Ping { echo: 1 }.frame(1, &mut early);
    assert!(is_refused_and_closed(star.stranger(), &flipped).contains("damaged"));
    assert!(is_refused_and_closed(star.stranger(), &other_version).contains("wire version 9"));
    assert!(is_refused_and_closed(star.stranger(), &oversized).contains("71680 bytes"));
    assert!(
        is_refused_and_closed(star.stranger(), b"GET / HTTP/1.1\r\nhost: nova\r\n\r\n\r\n\r\n")
            .contains("speaking nova")
    );
    assert!(is_refused_and_closed(star.stranger(), &early).contains("Hello"));
    let mut cut = star.stranger();
    cut.send(&hello()[..HEADER_BYTES + 3]);
    drop(cut);
    assert_eq!(bystander.open("orders").window, 16);
    star.stop();
}

#[test]
fn any_bytes_in_a_whole_frame_of_any_kind_are_answered_and_end_no_shard() {
    let data = data();
    let star = serve(data.path(), 2);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut client = star.client();
    let session = client.open("orders").session;
    for kind in Kind::ALL.iter().copied().cycle().take(Kind::ALL.len() * 40) {
        let mut bytes = Vec::new();
        let open = frame::begin(&mut bytes);
        let head = random() % 200;
        bytes.extend((0..head).map(|_| random().to_le_bytes()[0]));
        if kind == Kind::Append && head >= 4 {
            bytes[HEADER_BYTES..HEADER_BYTES + 4]
                .copy_from_slice(&(session ^ u32::from(random() % 4 == 0)).to_le_bytes());
        }
        let open = open.head_ends(&bytes);
        let payload = random() % 300;
        bytes.extend((0..payload).map(|_| random().to_le_bytes()[0]));
        open.end(kind, random(), &mut bytes);
        client.send(&bytes);
    }
    let correlation = client.ask(&CheckTail { address: Address::new(BUCKET, "orders").unwrap() });
    while client.next().expect("the connection lives on").correlation != correlation {}
    assert_eq!(tail(&mut star.client(), "orders"), 0);
    star.stop();
}

#[test]
fn acks_of_a_connection_that_is_gone_never_reach_the_next_one() {
    let data = data();
    let star = serve(data.path(), 1);
    for turn in 0..100_u64 {
        let mut client = star.client();
        let session = client.open("orders").session;
        let mut bytes = Vec::new();
        (0..16).for_each(|no| append_frame(session, turn * 16 + no, &[1; 2_000], &mut bytes));
        client.send(&bytes);
        drop(client);
        let mut client = star.client();
        let correlation = client.ask(&open_of("other"));
        let got = client.next().unwrap();
        assert_eq!((got.kind, got.correlation), (Kind::Opened, correlation));
    }
    let until = Instant::now() + Duration::from_secs(5);
    while star.counted("sessions") > 0 {
        assert!(Instant::now() < until, "a session outlives its connection");
    }
    star.stop();
}

#[test]
fn who_does_not_say_hello_is_closed() {
    let data = data();
    let star = serve(data.path(), 1);
    let mut client = star.stranger();
    let since = Instant::now();
    assert!(client.next().is_none());
    let after = since.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(8)).contains(&after), "{after:?}");
    star.stop();
}

#[test]
fn a_silent_peer_is_pinged_three_times_and_closed() {
    let data = data();
    let mut settings = settings();
    settings.keepalive_ms = Millis::seconds(1);
    let star = serve_with(data.path(), 1, settings);
    let mut client = star.client();
    let kinds: Vec<Kind> = std::iter::from_fn(|| client.next()).map(|got| got.kind).collect();
    assert_eq!(kinds, [Kind::Ping; 3]);
    star.stop();
}

#[test]
fn a_connection_moves_to_the_shard_that_owns_its_stream_and_other_requests_hop() {
    let data = data();
    let star = serve(data.path(), 2);
    let keys = [Running::key_on(0, 2), Running::key_on(1, 2)];
    let mut acked = 0;
    for round in 0..8_u64 {
        let mut client = star.client();
        for (at, key) in keys.iter().enumerate() {
            let opened = client.open(key);
            let first = acked + u64::try_from(at).unwrap() * 10;
            let acks = client.append(opened.session, first..first + 10, &[0; 3_000]);
            assert!(acks.windows(2).all(|pair| pair[0].start.seq_num < pair[1].start.seq_num));
        }
        acked += 20;
        for key in &keys {
            assert_eq!(tail(&mut client, key), (round + 1) * 10);
        }
    }
    let page: StreamPage = star.client().call(&list(1)).unwrap();
    let mut sorted = keys;
    sorted.sort();
    assert_eq!(page.streams.iter().map(|stream| stream.key.as_str()).collect::<Vec<_>>(), [&sorted[0]]);
    assert_eq!(page.next, sorted[0].as_bytes());
    let rest = StreamList { after: page.next, ..list(0) };
    let page: StreamPage = star.client().call(&rest).unwrap();
    assert_eq!((page.streams.len(), page.next.len()), (1, 0));
    assert!(star.counted("hand_overs_total") > 0, "some of 8 connections were accepted on the other shard");
    assert!(star.counted("hops_total") >= 8);
    star.stop();
}

fn list(limit: u32) -> StreamList {
    StreamList { bucket: BucketName::new(BUCKET).unwrap(), after: Vec::new(), limit }
}

#[test]
fn a_session_on_another_shard_takes_as_much_as_comes() {
    let data = data();
    let star = serve(data.path(), 2);
    let mut client = star.client();
    let here = client.welcome.as_ref().unwrap().shard;
    client.open(&Running::key_on(here, 2));
    let opened = client.open(&Running::key_on(1 - here, 2));
    for round in 0..20 {
        let acks = client.append(opened.session, round * 16..(round + 1) * 16, &[7; 100_000]);
        assert_eq!(acks.last().unwrap().end().seq_num.get(), (round + 1) * 16);
    }
    star.stop();
}

#[test]
fn a_slow_subscriber_of_another_shards_stream_gets_every_record_once_and_in_order() {
    const RECORDS: u64 = 640;
    let data = data();
    let mut settings = settings();
    settings.memory.ring_bytes_max = Bytes::mib(1);
    let star = serve_with(data.path(), 2, settings);
    let mut client = star.client();
    let here = client.welcome.as_ref().unwrap().shard;
    let key = Running::key_on(1 - here, 2);
    let mut writer = star.client();
    let opened = writer.open(&key);
    for turn in 0..RECORDS / 16 {
        writer.append(opened.session, turn * 16..turn * 16 + 16, &[9; 50_000]);
    }
    client.open(&Running::key_on(here, 2));
    let subscribed: Subscribed = client
        .call(&Subscribe {
            address: Address::new(BUCKET, &key).unwrap(),
            start: Start::SeqNum(SeqNum::ZERO),
            clamp: false,
            subscription: 5,
            credit_bytes: 4 << 20,
            resume: None,
        })
        .unwrap();
    assert_eq!(subscribed.start, SeqNum::ZERO);
    let mut next = SeqNum::ZERO;
    while next.get() < RECORDS {
        let got = client.next().unwrap();
        assert_eq!(got.kind, Kind::Records);
        let head = RecordsHead::decode(&got.head).unwrap();
        assert_eq!((head.subscription, head.start), (5, next));
        assert_eq!(bodies(&got.payload).len() as u64, head.end.since(head.start));
        next = head.end;
        client.ask(&Credit { subscription: 5, bytes: u32::try_from(got.payload.len()).unwrap() });
        std::thread::sleep(Duration::from_millis(2));
    }
    star.stop();
}

#[test]
fn bucket_verbs_go_to_control_with_a_ticket() {
    let data = data();
    let star = serve(data.path(), 1);
    let mut client = star.client();
    let correlation = client.ask(&BucketGet { name: BucketName::new(BUCKET).unwrap() });
    while !star.told.lock().unwrap().iter().any(|told| told.contains("Get(")) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let refusal = wire::refusal::Refusal::new(Reason::NotFound, "not here");
    let reply = wire::handoff::ToShard::BucketReply { ticket: 1, result: Err(refusal.clone()) };
    star.star.shard_senders()[0](reply).unwrap();
    let answer = client.answer::<wire::message::BucketAnswer>(correlation);
    assert_eq!(answer.unwrap_err(), refusal);
    star.stop();
}

#[test]
fn a_port_that_another_star_listens_on_is_refused_though_shards_share_theirs() {
    let data = data();
    let star = serve(data.path(), 2);
    let error = crate::Doors::open(star.star.addr(), 2).unwrap_err().to_string();
    assert!(error.contains("choose another address with --listen"), "{error}");
    star.stop();
}

#[test]
fn draining_asks_clients_to_go_and_answers_what_is_under_way() {
    let data = data();
    let star = serve(data.path(), 2);
    let mut client = star.client();
    let opened = client.open("orders");
    let mut bytes = Vec::new();
    (0..10).for_each(|no| append_frame(opened.session, no, b"x", &mut bytes));
    client.send(&bytes);
    star.star.drain();
    let mut acked = 0;
    let mut is_told = false;
    while let Some(got) = client.next() {
        match got.kind {
            Kind::Acks => wire::hot::walk_acks(&got.head, |_, _| acked += 1).unwrap(),
            Kind::GoAway => is_told = !GoAway::get(&got.head).unwrap().why.is_empty(),
            kind => panic!("{kind:?}"),
        }
    }
    assert!(is_told);
    star.star.join().unwrap();
    let star = serve(data.path(), 2);
    let stored = tail(&mut star.client(), "orders");
    assert_eq!(acked, stored, "all that was served was answered before the end");
    star.stop();
}

#[test]
fn a_peer_that_does_not_take_its_answers_is_not_read_and_loses_nothing() {
    let data = data();
    let star = serve(data.path(), 1);
    let mut client = star.client();
    let key = "k".repeat(512);
    let config = wire::config::ConfigPatch::default();
    let address = Address::new(BUCKET, &key).unwrap();
    let _: StreamAnswer = client.call(&StreamCreate { address: address.clone(), config }).unwrap();
    let mut asked = Vec::new();
    const ASKED: u64 = 60_000;
    for correlation in 100..100 + ASKED {
        wire::message::StreamGet { address: address.clone() }.frame(correlation, &mut asked);
    }
    let mut sending = client.socket.try_clone().unwrap();
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut sending, &asked).unwrap());
    std::thread::sleep(Duration::from_millis(300));
    assert!(!sender.is_finished(), "the star stops to read before it has buffered 60 000 answers");
    for correlation in 100..100 + ASKED {
        let got = client.next().unwrap();
        assert_eq!((got.kind, got.correlation), (Kind::StreamAnswer, correlation));
    }
    sender.join().unwrap();
    star.stop();
}
