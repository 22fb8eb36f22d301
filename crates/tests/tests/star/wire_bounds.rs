//! What does a star answer to frames that no client of ours sends, and does it serve the others on?

use client::Reason;
use tests::{BUCKET, Heard, Novad, Scratch, Speaker, at, bucket, within};
use wire::crc::crc32c;
use wire::frame::{self, HEADER_BYTES, Kind, VERSION};
use wire::hot::{AppendHead, RecordsHead, walk_acks};
use wire::ids::{BatchNo, ProducerId, SeqNum, StreamId};
use wire::limits::{FRAME_BODY_BYTES_BEFORE_HELLO_MAX, FRAME_BODY_BYTES_MAX};
use wire::message::{
    AppendRefused, Appended, CheckTail, Close, Done, Hello, Message, Open, Opened, Ping, Pong, Read, Start, Subscribe,
    Tail, Welcome,
};
use wire::names::FencingToken;
use wire::refusal::Refusal;

struct Star {
    novad: Novad,
    honest: Speaker,
    appended: u64,
    _scratch: Scratch,
}

impl Star {
    fn start() -> Self {
        let scratch = Scratch::new();
        let novad = Novad::start(&scratch.join("data"), &["--shards", "2"]);
        within(20, async { novad.client().create_bucket(bucket()).await.expect("the bucket") });
        let honest = Speaker::new(novad.addr());
        let mut star = Self { novad, honest, appended: 0, _scratch: scratch };
        star.goes_on();
        star
    }

    fn stranger(&self) -> Speaker {
        Speaker::stranger(self.novad.addr())
    }

    fn speaker(&self) -> Speaker {
        Speaker::new(self.novad.addr())
    }

    /// A connection that was there before is served as before, and nothing of what was refused was stored.
    fn goes_on(&mut self) {
        let ack = append_once(&mut self.honest, "honest", &Speaker::batch(&[b"x"])).expect("an ack");
        assert_eq!(ack.start.seq_num.get(), self.appended);
        self.appended += 1;
        assert!(self.novad.is_alive());
        let log = self.novad.log();
        assert!(!log.contains("panicked"), "{log}");
    }
}

fn append_once(speaker: &mut Speaker, key: &str, (batch, batch_crc): &(Vec<u8>, u32)) -> Result<Appended, Refusal> {
    speaker.ask_with(&Speaker::once(key, *batch_crc), batch)
}

fn opened(speaker: &mut Speaker, key: &str, producer: u64) -> Opened {
    let producer = ProducerId::new(producer);
    let open = Open { address: at(key), producer, fencing_token: FencingToken::default(), resume: None };
    speaker.ask(&open).expect("a session")
}

fn hello() -> Vec<u8> {
    framed(&Hello { client: "tests".to_owned() })
}

fn framed<M: Message>(message: &M) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.frame(9, &mut bytes);
    bytes
}

/// A frame of any kind with any head and payload, whose sums hold.
fn frame_of(kind: Kind, correlation: u64, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let open = frame::begin(&mut bytes);
    bytes.extend_from_slice(head);
    let open = open.head_ends(&bytes);
    bytes.extend_from_slice(payload);
    open.end(kind, correlation, &mut bytes);
    bytes
}

/// Sums the header anew, so that only the field that was changed is wrong.
fn resum(bytes: &mut [u8]) {
    let sum = crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// An archive of byte vectors and the like, laid by hand: the vectors' bytes, then for each how far back it begins and
/// how many elements it has.
fn archive(vectors: &[(&[u8], usize)]) -> Vec<u8> {
    let mut out: Vec<u8> = vectors.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
    let mut begins = 0;
    for (bytes, elements) in vectors {
        let back = i32::try_from(begins).expect("short") - i32::try_from(out.len()).expect("short");
        out.extend_from_slice(&back.to_le_bytes());
        out.extend_from_slice(&u32::try_from(*elements).expect("few").to_le_bytes());
        begins += bytes.len();
    }
    out
}

fn check_tail(bucket: &[u8], key: &[u8]) -> Vec<u8> {
    archive(&[(bucket, bucket.len()), (key, key.len())])
}

/// The columns of a batch, each as it is sent.
#[derive(Default)]
struct ByHand {
    ends: Vec<u32>,
    stamps: Vec<i64>,
    header_counts: Vec<u8>,
    header_lens: Vec<u32>,
    payload: Vec<u8>,
}

impl ByHand {
    /// So many records of one byte.
    fn of(records: u32) -> Self {
        Self { ends: (1..=records).collect(), payload: vec![b'x'; records as usize], ..Self::default() }
    }

    /// One record with these headers and the body `x`.
    fn with_headers(headers: &[(&str, &str)]) -> Self {
        let mut payload: Vec<u8> =
            headers.iter().flat_map(|(name, value)| [*name, *value].concat().into_bytes()).collect();
        payload.push(b'x');
        let len = |bytes: usize| u32::try_from(bytes).expect("short");
        Self {
            ends: vec![len(payload.len())],
            header_counts: vec![u8::try_from(headers.len()).expect("few")],
            header_lens: headers.iter().flat_map(|(name, value)| [len(name.len()), len(value.len())]).collect(),
            payload,
            ..Self::default()
        }
    }

    fn batch(&self) -> (Vec<u8>, u32) {
        let ends: Vec<u8> = self.ends.iter().flat_map(|end| end.to_le_bytes()).collect();
        let stamps: Vec<u8> = self.stamps.iter().flat_map(|stamp| stamp.to_le_bytes()).collect();
        let lens: Vec<u8> = self.header_lens.iter().flat_map(|len| len.to_le_bytes()).collect();
        let bytes = archive(&[
            (&ends, self.ends.len()),
            (&stamps, self.stamps.len()),
            (&self.header_counts, self.header_counts.len()),
            (&lens, self.header_lens.len()),
            (&self.payload, self.payload.len()),
        ]);
        let sum = crc32c(&bytes);
        (bytes, sum)
    }
}

#[test]
fn bytes_that_are_no_frame_are_answered_with_what_is_wrong_and_the_connection_is_closed() {
    let mut star = Star::start();
    let changed = |at: usize, to: u8, is_resummed: bool| {
        let mut bytes = hello();
        bytes[at] = to;
        if is_resummed {
            resum(&mut bytes);
        }
        bytes
    };
    let oversized = |body_bytes: usize| {
        let mut bytes = hello();
        bytes[16..20].copy_from_slice(&u32::try_from(body_bytes).expect("32 bits").to_le_bytes());
        resum(&mut bytes);
        bytes
    };
    let head_flipped = {
        let mut bytes = hello();
        bytes[HEADER_BYTES + 1] ^= 0x40;
        bytes
    };
    let cases = [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), "don't start a frame"),
        (vec![0; 64], "don't start a frame"),
        (changed(4, VERSION + 1, true), "wire version 3"),
        (changed(9, 1, false), "header is damaged"),
        (changed(5, 200, true), "frame kind 200"),
        (changed(6, 4, true), "flags 0x0004"),
        (oversized(FRAME_BODY_BYTES_BEFORE_HELLO_MAX + 1), "65537"),
        (oversized(u32::MAX as usize), "4294967295"),
        (changed(21, 1, true), "frame head of"),
        (head_flipped, "head of a frame of kind Hello is damaged"),
        (framed(&Ping { echo: 1 }), "Ping"),
        (framed(&CheckTail { address: at("x") }), "CheckTail"),
        (frame_of(Kind::Hello, 1, b"\x01", b""), "Hello"),
    ];
    for (bytes, part) in cases {
        let mut stranger = star.stranger();
        stranger.offer(&bytes);
        let refusal = stranger.last_word();
        assert_eq!(refusal.reason, Reason::Invalid);
        assert!(refusal.message.contains(part), "'{part}' is not told: {refusal}");
        star.goes_on();
    }
}

#[test]
fn the_same_holds_after_the_welcome_where_frames_may_be_longer() {
    let mut star = Star::start();
    let mut long = framed(&CheckTail { address: at("x") });
    long[16..20].copy_from_slice(&u32::try_from(FRAME_BODY_BYTES_MAX + 1).expect("32 bits").to_le_bytes());
    resum(&mut long);
    for (bytes, part) in [(long, "4194305"), (vec![0xff; 40], "don't start a frame")] {
        let mut speaker = star.speaker();
        speaker.offer(&bytes);
        assert!(speaker.last_word().message.contains(part));
        star.goes_on();
    }
}

#[test]
fn a_frame_that_is_cut_anywhere_is_waited_for_and_harms_nobody_when_it_never_comes() {
    let mut star = Star::start();
    let bytes = [hello(), framed(&CheckTail { address: at("honest") })].concat();
    for cut in 1..bytes.len() {
        let mut speaker = star.stranger();
        speaker.send(&bytes[..cut]);
        if cut.is_multiple_of(3) {
            // Gone in the middle of a frame.
            continue;
        }
        speaker.send(&bytes[cut..]);
        let _welcome: Welcome = speaker.hear().expect("a welcome").message();
        let _tail: Tail = speaker.hear().expect("the tail").message();
    }
    let mut slow = star.stranger();
    for byte in &bytes {
        slow.send(std::slice::from_ref(byte));
    }
    let _welcome: Welcome = slow.hear().expect("a welcome").message();
    let _tail: Tail = slow.hear().expect("the tail").message();
    star.goes_on();
}

#[test]
fn names_that_can_not_be_are_refused_and_the_connection_lives_on() {
    let mut star = Star::start();
    let mut speaker = star.speaker();
    let mut ask = |bucket: &[u8], key: &[u8]| -> Heard {
        speaker.send(&frame_of(Kind::CheckTail, 77, &check_tail(bucket, key), b""));
        speaker.hear_of(77)
    };
    // What is laid by hand is right where the names are.
    let _tail: Tail = ask(BUCKET.as_bytes(), b"honest").message();
    assert_eq!(ask(BUCKET.as_bytes(), &[b'k'; 512]).refusal().reason, Reason::NotFound);
    let long = [b'k'; 513];
    let cases: [(&[u8], &[u8], &str); 9] = [
        (BUCKET.as_bytes(), &long, "513 bytes"),
        (BUCKET.as_bytes(), b"", "0 bytes"),
        (BUCKET.as_bytes(), b"a\0b", "NUL at byte 1"),
        (BUCKET.as_bytes(), b"ab\xff", "not UTF-8 from byte 2"),
        (BUCKET.as_bytes(), b"\xed\xa0\x80", "not UTF-8"),
        (b"de", b"x", "'de' has 2 bytes"),
        (b"Demo", b"x", "'Demo'"),
        (b"demo\0", b"x", "bucket name"),
        (b"", b"x", "bucket name"),
    ];
    for (bucket, key, part) in cases {
        let refusal = ask(bucket, key).refusal();
        assert_eq!(refusal.reason, Reason::Invalid);
        assert!(refusal.message.contains(part), "'{part}' is not told: {refusal}");
    }
    star.goes_on();
}

#[test]
fn archives_that_do_not_validate_are_refused_and_the_connection_lives_on() {
    let mut star = Star::start();
    let mut speaker = star.speaker();
    // These are answered by other frames than their own, or by none.
    let apart = [Kind::Ping, Kind::Pong, Kind::Append, Kind::Credit];
    let mut noise = Noise(7);
    for kind in Kind::ALL.iter().copied().filter(|kind| !apart.contains(kind)) {
        for bytes in [0, 1, 7, 64, 1_000] {
            let head: Vec<u8> = (0..bytes).map(|_| noise.byte()).collect();
            // What asks for nothing but itself needs no head.
            if bytes == 0 && matches!(kind, Kind::StarGet) {
                continue;
            }
            speaker.send(&frame_of(kind, 55, &head, b""));
            let heard = speaker.hear_of(55);
            match heard.kind {
                // A number of four bytes is one whatever they are: a session that is not there.
                Kind::Refused if kind == Kind::Close && bytes > 0 => {
                    assert!(matches!(heard.refusal().reason, Reason::Invalid | Reason::NotFound), "{bytes}");
                }
                Kind::Refused => assert_eq!(heard.refusal().reason, Reason::Invalid, "{kind:?} {bytes}"),
                Kind::StarAnswer => assert_eq!(kind, Kind::StarGet),
                Kind::Done => assert_eq!(kind, Kind::Unsubscribe),
                other => panic!("{other:?} for {kind:?} of {bytes}"),
            }
        }
    }
    star.goes_on();
}

/// A generator that gives the same at each run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below the bound")
    }
}

/// Every request with changed bytes under right sums: each is answered or ends the connection, and the star goes on.
#[test]
fn requests_with_changed_bytes_are_answered_and_end_no_shard() {
    let mut star = Star::start();
    let (batch, batch_crc) = Speaker::batch(&[b"payload"]);
    let open = Open {
        address: at("noise"),
        producer: ProducerId::new(5),
        fencing_token: FencingToken::default(),
        resume: None,
    };
    let subscribe = Subscribe {
        address: at("noise"),
        start: Start::SeqNum(SeqNum::ZERO),
        clamp: true,
        subscription: 3,
        credit_bytes: 9_000,
        resume: Some(StreamId::from_bytes([3; 16])),
    };
    let read =
        Read { address: at("noise"), start: Start::Last(3), clamp: true, limit: 5, max_bytes: 77, until_ms: Some(5) };
    let head =
        AppendHead { session: 1, no: BatchNo::new(0), match_seq_num: Some(SeqNum::ZERO), resent: true, batch_crc };
    let frames = [framed(&open), framed(&subscribe), framed(&read), framed(&CheckTail { address: at("noise") })];
    let mut noise = Noise(99);
    for round in 0..60 {
        let mut speaker = star.speaker();
        for _ in 0..40 {
            let mut changed = frames[noise.below(frames.len())].clone();
            if noise.below(4) == 0 {
                changed = frame_of(Kind::Append, 0, &head.encode(), &batch);
            }
            let kind = Kind::of_code(changed[5]).expect("a kind");
            let body = &mut changed[HEADER_BYTES..];
            for _ in 0..1 + noise.below(3) {
                let place = noise.below(body.len());
                body[place] = noise.byte();
            }
            let cut = if kind == Kind::Append { head.encode().len() } else { body.len() };
            speaker.offer(&frame_of(kind, 1, &body[..cut], &body[cut..]));
        }
        speaker.offer(&framed(&Ping { echo: round }));
        while let Some(heard) = speaker.hear() {
            if heard.kind == Kind::Pong {
                assert_eq!(heard.message::<Pong>().echo, round);
                break;
            }
        }
    }
    star.goes_on();
}

#[test]
fn batches_over_a_bound_or_against_themselves_are_refused_and_nothing_of_them_is_stored() {
    let mut star = Star::start();
    let mut speaker = star.speaker();
    append_once(&mut speaker, "batches", &ByHand::of(2).batch()).expect("what is laid by hand is right");
    append_once(&mut speaker, "batches", &ByHand::with_headers(&[("a", "b"); 100]).batch()).expect("at the bound");
    append_once(&mut speaker, "batches", &ByHand::of(1_000).batch()).expect("at the bound");
    let mebibyte = 1 << 20;
    let one = |bytes: u32| ByHand { ends: vec![bytes], payload: vec![b'x'; bytes as usize], ..ByHand::default() };
    append_once(&mut speaker, "batches", &one(mebibyte).batch()).expect("at the bound");
    let two = ByHand { ends: vec![mebibyte, mebibyte + 1], ..one(mebibyte + 1) };
    let cases = [
        (ByHand::of(0), Reason::Invalid, "0 records"),
        (ByHand::of(1_001), Reason::TooLarge, "1001"),
        (one(mebibyte + 1), Reason::TooLarge, "1048577"),
        (two, Reason::TooLarge, "1048577"),
        (ByHand::with_headers(&[("a", "b"); 101]), Reason::Invalid, "101"),
        (ByHand::with_headers(&[("", "b")]), Reason::Invalid, "empty name"),
        (ByHand { ends: vec![2, 1], ..ByHand::of(2) }, Reason::Invalid, "doesn't validate"),
        (ByHand { ends: vec![1, 3], ..ByHand::of(2) }, Reason::Invalid, "doesn't validate"),
        (ByHand { ends: vec![1], ..ByHand::of(2) }, Reason::Invalid, "doesn't validate"),
        (ByHand { stamps: vec![1], ..ByHand::of(2) }, Reason::Invalid, "doesn't validate"),
        (ByHand { header_counts: vec![1, 0], ..ByHand::of(2) }, Reason::Invalid, "doesn't validate"),
        (
            ByHand { header_counts: vec![1], header_lens: vec![1, u32::MAX], ..ByHand::of(1) },
            Reason::Invalid,
            "doesn't validate",
        ),
        (
            ByHand { header_counts: vec![1], header_lens: vec![1, 1, 1], ..ByHand::of(1) },
            Reason::Invalid,
            "doesn't validate",
        ),
    ];
    for (columns, reason, part) in cases {
        let refusal = append_once(&mut speaker, "batches", &columns.batch()).expect_err(part);
        assert_eq!(refusal.reason, reason, "{refusal}");
        assert!(refusal.message.contains(part), "'{part}' is not told: {refusal}");
    }
    let (mut batch, sum) = Speaker::batch(&[b"a body that is damaged on its way"]);
    batch[5] ^= 1;
    let refusal = append_once(&mut speaker, "batches", &(batch, sum)).expect_err("a flipped bit");
    assert!(refusal.message.contains("checksum"), "{refusal}");
    let refusal = append_once(&mut speaker, "batches", &(vec![7; 90], crc32c(&[7; 90]))).expect_err("no archive");
    assert_eq!(refusal.reason, Reason::Invalid);
    let tail: Tail = speaker.ask(&CheckTail { address: at("batches") }).expect("the tail");
    assert_eq!(tail.tail.seq_num.get(), 2 + 1 + 1_000 + 1);
    star.goes_on();
}

/// Sends batches and hears exactly one answer for each: where it was stored, or why not.
fn answers(speaker: &mut Speaker, count: usize) -> Vec<(u64, Result<u64, Refusal>)> {
    let mut answers = Vec::new();
    while answers.len() < count {
        let heard = speaker.hear().expect("an answer");
        match heard.kind {
            Kind::Acks => walk_acks(&heard.head, |_, ack| answers.push((ack.no.get(), Ok(ack.start.seq_num.get()))))
                .expect("acks"),
            Kind::AppendRefused => {
                let AppendRefused { no, refusal, .. } = heard.message();
                answers.push((no.get(), Err(refusal)));
            }
            kind => panic!("{kind:?}"),
        }
    }
    answers
}

#[test]
fn a_session_that_breaks_its_rules_is_told_and_lives_on() {
    let mut star = Star::start();
    let mut speaker = star.speaker();
    let Opened { session, window, .. } = opened(&mut speaker, "rules", 11);
    let (batch, batch_crc) = Speaker::batch(&[b"x"]);
    let head = |no: u64| AppendHead { session, no: BatchNo::new(no), match_seq_num: None, resent: false, batch_crc };

    // A flipped bit in one of three.
    speaker.append(head(0), &batch);
    let mut flipped = batch.clone();
    flipped[3] ^= 2;
    speaker.append(head(1), &flipped);
    speaker.append(head(2), &batch);
    let heard = answers(&mut speaker, 3);
    assert_eq!((&heard[0], &heard[2]), (&(0, Ok(0)), &(2, Ok(1))));
    assert!(heard[1].1.as_ref().expect_err("a flipped bit").message.contains("checksum"));

    // More than the window at once: each is answered, those that are stored in order.
    let mut bytes = Vec::new();
    for no in 3..3 + 4 * u64::from(window) {
        bytes.extend(frame_of(Kind::Append, 0, &head(no).encode(), &batch));
    }
    speaker.send(&bytes);
    let heard = answers(&mut speaker, 4 * window as usize);
    let stored: Vec<u64> = heard.iter().filter_map(|(_, outcome)| outcome.as_ref().ok().copied()).collect();
    assert_eq!(stored, (2..2 + stored.len() as u64).collect::<Vec<_>>());
    assert!(stored.len() >= window as usize);
    for refusal in heard.iter().filter_map(|(_, outcome)| outcome.as_ref().err()) {
        assert_eq!(refusal.reason, Reason::ResourceExhausted);
        assert!(refusal.message.contains("window"), "{refusal}");
    }

    // The same number again: its first answer, or an error when it is another batch.
    let last = heard.iter().rfind(|(_, outcome)| outcome.is_ok()).expect("a stored one").clone();
    speaker.append(AppendHead { resent: true, ..head(last.0) }, &batch);
    assert_eq!(answers(&mut speaker, 1), std::slice::from_ref(&last));
    let (other, other_crc) = Speaker::batch(&[b"other"]);
    speaker.append(AppendHead { batch_crc: other_crc, resent: true, ..head(last.0) }, &other);
    assert!(answers(&mut speaker, 1)[0].1.is_err());

    // Sessions of nobody, and of somebody else.
    for stolen in [session + 1, u32::MAX, session ^ (1 << 24)] {
        speaker.append(AppendHead { session: stolen, ..head(0) }, &batch);
        let refusal = answers(&mut speaker, 1)[0].1.clone().expect_err("no session");
        assert_eq!(refusal.reason, Reason::NotFound, "{stolen}: {refusal}");
    }
    let mut thief = star.speaker();
    thief.append(head(900), &batch);
    assert_eq!(answers(&mut thief, 1)[0].1.as_ref().expect_err("not its own").reason, Reason::NotFound);
    let closed: Result<Done, Refusal> = thief.ask(&Close { session });
    assert_eq!(closed.expect_err("not its own").reason, Reason::NotFound);

    speaker.append(head(1_000), &batch);
    assert!(answers(&mut speaker, 1)[0].1.is_ok(), "it lives on");
    let Done {} = speaker.ask(&Close { session }).expect("it closes");
    let nobody = Open {
        address: at("rules"),
        producer: ProducerId::new(0),
        fencing_token: FencingToken::default(),
        resume: None,
    };
    let refused: Result<Opened, Refusal> = speaker.ask(&nobody);
    assert_eq!(refused.expect_err("producer 0").reason, Reason::Invalid);
    let gone = Open { producer: ProducerId::new(1), resume: Some(StreamId::from_bytes([9; 16])), ..nobody };
    let refused: Result<Opened, Refusal> = speaker.ask(&gone);
    assert_eq!(refused.expect_err("another stream").reason, Reason::NotFound);
    star.goes_on();
}

#[test]
fn page_limits_clamp_and_a_page_has_one_record_at_least() {
    let mut star = Star::start();
    let mut speaker = star.speaker();
    for _ in 0..3 {
        append_once(&mut speaker, "pages", &ByHand::of(1_000).batch()).expect("an ack");
    }
    let large = Speaker::batch(&[&vec![b'y'; 700_000]]);
    append_once(&mut speaker, "pages", &large).expect("an ack");
    append_once(&mut speaker, "pages", &large).expect("an ack");
    let mut page = |from: u64, limit: u32, max_bytes: u32| {
        let start = Start::SeqNum(SeqNum::new(from));
        let correlation =
            speaker.tell(&Read { address: at("pages"), start, clamp: false, limit, max_bytes, until_ms: None });
        let heard = speaker.hear_of(correlation);
        assert_eq!(heard.kind, Kind::Page, "{heard:?}");
        assert!(heard.payload.len() <= FRAME_BODY_BYTES_MAX);
        let head = RecordsHead::decode(&heard.head).expect("a head");
        assert_eq!((head.start.get(), head.tail.seq_num.get()), (from, 3_002));
        head.end.get() - from
    };
    assert_eq!(page(0, 0, 0), 1_000);
    assert_eq!(page(500, u32::MAX, u32::MAX), 1_000, "more is clamped");
    assert_eq!(page(0, 7, 0), 7);
    assert_eq!(page(0, 0, 10), 10, "one byte a record");
    assert_eq!(page(3_000, 0, 0), 1, "two would be over 1 MiB");
    assert_eq!(page(3_000, 5, 1), 1, "one is always answered");
    star.goes_on();
}

#[test]
fn kinds_that_only_a_star_sends_and_a_second_hello_are_refused() {
    let mut star = Star::start();
    let mut speaker = star.speaker();
    for bytes in [hello(), framed(&Done {}), framed(&Tail { tail: wire::ids::Position::default() })] {
        speaker.send(&bytes);
        assert_eq!(speaker.hear_of(9).refusal().reason, Reason::Invalid);
    }
    let pong: Pong = speaker.ask(&Ping { echo: 5 }).expect("a pong");
    assert_eq!(pong.echo, 5);
    star.goes_on();
}
