//! Do the same operations over the wire, over HTTP and over S2's façade give the same answers and the same log?
//!
//! `NOVA_TEST_DIFFERENTIAL_SEED` chooses the first of the histories that are drawn anew; `NOVA_TEST_SOAK` how often there are more.

mod s2;

use std::time::{SystemTime, UNIX_EPOCH};

use client::{
    Address, AppendRecord, Client, ConfigPatch, Error, FencingToken, OneShot, Options, Page, Position, ReadOptions,
    Reason, SeqNum, TimestampingMode,
};
use serde_json::json;
use tests::{Http, at, soaked, within};

use crate::star::{Star, records_of};

/// Chooses the first seed that is drawn anew where it isn't set.
const SEED: &str = "NOVA_TEST_DIFFERENTIAL_SEED";
/// Histories that are always tried.
const FIXED: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];
/// Those that are drawn anew each time.
const DRAWN: u32 = 2;
/// Operations of a history.
const STEPS: u32 = 200;

/// Numbers from a seed, the same every time (xorshift64, Marsaglia 2003).
struct Numbers(u64);

/// The seeds of this run.
fn seeds() -> Vec<u64> {
    let drawn = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_micros() % 1_000_000_007;
    let first = std::env::var(SEED).ok().filter(|seed| !seed.is_empty()).map_or_else(
        || u64::try_from(drawn()).expect("below the bound"),
        |seed| seed.parse().unwrap_or_else(|_| panic!("{SEED} is `{seed}`: it must be a number")),
    );
    FIXED.into_iter().chain((0..u64::from(soaked(DRAWN))).map(|more| first.wrapping_add(more))).collect()
}

impl Numbers {
    /// Those of a seed; neighbouring seeds have nothing in common, and none gives nothing but zeroes.
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    /// An index into so many.
    fn index(&mut self, many: u64) -> usize {
        usize::try_from(self.below(many)).expect("few")
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Append { records: Vec<AppendRecord>, token: FencingToken, matched: Option<u64>, key: Option<u128> },
    Fence(FencingToken),
    Trim(u64),
    TrimFrom(i64),
    Read(ReadOptions),
}

/// What an operation answers, but for the words of a refusal.
#[derive(Debug, PartialEq)]
enum Outcome {
    Acked(Position, Position, Position),
    At(Position),
    TrimPoint(u64),
    Page(Page),
    Refused(Reason, bool, Option<Position>, Option<SeqNum>, Option<FencingToken>),
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        Self::Refused(
            error.reason(),
            error.no_side_effect(),
            error.tail(),
            error.trim_point(),
            error.fencing_token().cloned(),
        )
    }
}

/// The next operation on a stream whose tail is about `tail`.
fn drawn(numbers: &mut Numbers, tail: u64, now_ms: &mut i64) -> Operation {
    let tokens = ["", "gen-1", "gen-2"];
    let token = |numbers: &mut Numbers| {
        let token = tokens[numbers.index(3)];
        FencingToken::new(token).expect("a token")
    };
    match numbers.below(12) {
        0 => Operation::Fence(token(numbers)),
        1 => Operation::Trim(numbers.below(tail + 3)),
        2 => Operation::TrimFrom(numbers.below(u64::try_from(*now_ms).expect("later than 1970") + 5).cast_signed()),
        3..=5 => {
            let options = match numbers.below(3) {
                0 => ReadOptions::from(numbers.below(tail + 2)),
                1 => ReadOptions::from_ms(
                    numbers.below(u64::try_from(*now_ms).expect("later than 1970") + 5).cast_signed(),
                ),
                _ => ReadOptions::last(numbers.below(tail + 2)),
            };
            let options = options.limit(u32::try_from(numbers.below(9)).expect("small"));
            Operation::Read(if numbers.below(2) == 0 { options.clamp() } else { options })
        }
        _ => {
            let records = (0..1 + numbers.below(4)).map(|_| {
                *now_ms += numbers.below(3).cast_signed();
                let record = AppendRecord::new(numbers.bytes(200)).timestamp_ms(*now_ms);
                if numbers.below(2) == 0 { record.header(vec![7, 200], numbers.bytes(9)) } else { record }
            });
            let records = records.collect();
            Operation::Append {
                records,
                token: token(numbers),
                matched: (numbers.below(3) == 0).then(|| numbers.below(2) + tail.saturating_sub(1)),
                // Drawn from few, so that some come again.
                key: (numbers.below(4) == 0).then(|| 1 + u128::from(numbers.below(30))),
            }
        }
    }
}

async fn done(client: &Client, address: &Address, operation: Operation) -> Outcome {
    match operation {
        Operation::Append { records, token, matched, key } => {
            let match_seq_num = matched.map(SeqNum::new);
            let with = OneShot { fencing_token: token, match_seq_num, idempotency_key: key, ..OneShot::default() };
            let acked = client.append_with(address, with, records).await;
            acked.map_or_else(Outcome::from, |acked| Outcome::Acked(acked.start, acked.end, acked.tail))
        }
        Operation::Fence(token) => client.fence(address, &token).await.map_or_else(Outcome::from, Outcome::At),
        Operation::Trim(to) => {
            let trimmed = client.trim(address, SeqNum::new(to)).await;
            trimmed.map_or_else(Outcome::from, |point| Outcome::TrimPoint(point.get()))
        }
        Operation::TrimFrom(ms) => {
            let trimmed = client.trim_from(address, ms).await;
            trimmed.map_or_else(Outcome::from, |point| Outcome::TrimPoint(point.get()))
        }
        Operation::Read(options) => {
            let page = client.read(address, options).await;
            page.map_or_else(Outcome::from, |page| Outcome::Page(Page { stream_id: None, ..page }))
        }
    }
}

async fn whole(client: &Client, address: &Address) -> Page {
    let page = client.read(address, ReadOptions::default().clamp()).await.expect("a page");
    assert!(page.at_tail);
    Page { stream_id: None, ..page }
}

#[test]
fn the_same_operations_over_both_give_the_same_answers_and_the_same_log() {
    let star = Star::start();
    within(120 * u64::from(soaked(1)), async {
        let wire = star.novad.client();
        let http = Client::new(Options::new([format!("http://{}", star.novad.http())])).expect("a client");
        for seed in seeds() {
            let (left, right) = (at(&format!("wire-{seed}")), at(&format!("http-{seed}")));
            // Stamps are all the writer's, so that two logs can be alike.
            let stamped =
                ConfigPatch { timestamping_mode: Some(TimestampingMode::ClientRequire), ..ConfigPatch::default() };
            wire.create_stream(&left, stamped).await.expect("a stream");
            http.create_stream(&right, stamped).await.expect("a stream");
            let (mut numbers, mut now_ms) = (Numbers::new(seed), 1_000_i64);
            let mut acked = 0;
            for step in 0..STEPS {
                let tail = wire.check_tail(&left).await.expect("a tail");
                let operation = drawn(&mut numbers, tail.seq_num.get(), &mut now_ms);
                let (one, other) =
                    (done(&wire, &left, operation.clone()).await, done(&http, &right, operation.clone()).await);
                assert_eq!(one, other, "seed {seed}, step {step}: {operation:?}");
                acked += usize::from(matches!(one, Outcome::Acked(..)));
            }
            assert!(acked > 20, "only {acked} appends of seed {seed} were stored");
            assert_eq!(whole(&wire, &left).await, whole(&wire, &right).await);
            assert_eq!(whole(&http, &left).await, whole(&http, &right).await);
            eprintln!("check 7: {STEPS} operations alike over wire and HTTP, seed {seed}");
        }
    });
}

#[test]
fn every_form_of_an_append_stores_the_same_record() {
    let star = Star::start();
    let http: Http = star.http;
    let path = |key: &str, query: &str| format!("{}?{query}", records_of(key));
    let body = "{\"body\":\"eA==\",\"timestamp_ms\":5}";
    let sent = [
        http.json("POST", &path("a", ""), &json!({"records": [{"body": "x", "timestamp_ms": 5}]})),
        http.ask(
            "POST",
            &path("b", "encoding=base64"),
            "application/json",
            format!("{{\"records\":[{body}]}}").as_bytes(),
        ),
        http.ask("POST", &path("c", "encoding=base64"), "application/x-ndjson", body.as_bytes()),
        http.ask("POST", &path("d", "timestamp_ms=5"), "application/octet-stream", b"x"),
    ];
    for reply in &sent {
        assert_eq!((reply.status, &reply.body), (200, &sent[0].body));
    }
    within(60, async {
        let wire = star.novad.client();
        wire.append(&at("e"), [AppendRecord::from("x").timestamp_ms(5)]).await.expect("an ack");
        let due = whole(&wire, &at("e")).await;
        for key in ["a", "b", "c", "d"] {
            assert_eq!(whole(&wire, &at(key)).await, due, "{key}");
        }
    });
}
