//! Do the same batches, commands and reads over the wire and over S2's façade give the same answers and the same log?

use client::{
    Address, AppendRecord, Client, ConfigPatch, Effect, Error, FencingToken, OneShot, Page, Position, ReadOptions,
    Reason, Record, SeqNum, Terms, TimestampingMode,
};
use serde_json::{Value, json};
use tests::{Http, Novad, Reply, Scratch, class_name, soaked, within};

use super::{Numbers, STEPS, seeds};

const BASIN: &str = "basin-of-tests";
/// The name of the header that the façade keeps commands under.
const COMMAND: &str = "s2-command";
const TOKENS: [&str; 3] = ["", "gen-1", "gen-2"];

/// One record of a batch.
#[derive(Debug, Clone)]
enum Sent {
    Plain { timestamp_ms: i64, header: Option<(String, String)>, body: String },
    Fence { timestamp_ms: i64, token: &'static str },
    Trim { timestamp_ms: i64, to: u64 },
}

#[derive(Debug, Clone)]
enum Operation {
    Append { records: Vec<Sent>, installed: Option<&'static str>, matched: Option<u64> },
    Read { from: u64, count: u32 },
    Tail,
}

/// What an operation answers, as both can tell it: places with their stamps, and records with what they hold.
#[derive(Debug, PartialEq)]
enum Outcome {
    Acked(Place, Place, Place),
    Mismatch(u64),
    FencedOut(String),
    Records(Vec<Found>),
    /// There is nothing from there on: the tail.
    Nothing(u64),
    Tail(Place),
    Refused,
}

/// A sequence number and a stamp.
type Place = (u64, i64);
/// Where a record stands, its headers and its body.
type Found = (Place, Vec<(String, String)>, String);

impl Sent {
    fn timestamp_ms(&self) -> i64 {
        match self {
            Self::Plain { timestamp_ms, .. } | Self::Fence { timestamp_ms, .. } | Self::Trim { timestamp_ms, .. } => {
                *timestamp_ms
            }
        }
    }

    /// Its header, as S2 has it, and its body.
    fn parts(&self) -> (Option<(String, String)>, String) {
        let command = |name: &str| Some((String::new(), name.to_owned()));
        match self {
            Self::Plain { header, body, .. } => (header.clone(), body.clone()),
            Self::Fence { token, .. } => (command("fence"), (*token).to_owned()),
            Self::Trim { to, .. } => {
                (command("trim"), String::from_utf8(to.to_be_bytes().to_vec()).expect("bytes of ASCII alone"))
            }
        }
    }

    fn in_json(&self) -> Value {
        let (header, body) = self.parts();
        let headers: Vec<[String; 2]> = header.into_iter().map(|(name, value)| [name, value]).collect();
        json!({"timestamp": self.timestamp_ms(), "headers": headers, "body": body})
    }

    /// The same as nova keeps it.
    fn kept(&self) -> AppendRecord {
        let (header, body) = self.parts();
        let record = AppendRecord::new(body).timestamp_ms(self.timestamp_ms());
        match header {
            Some((name, value)) if name.is_empty() => record.header(COMMAND, value),
            Some((name, value)) => record.header(name, value),
            None => record,
        }
    }
}

/// The next operation on a stream whose tail is about `tail`.
fn drawn(numbers: &mut Numbers, tail: u64, now_ms: &mut i64) -> Operation {
    match numbers.below(10) {
        0..3 => {
            Operation::Read { from: numbers.below(tail + 3), count: 1 + u32::try_from(numbers.below(9)).expect("few") }
        }
        3 => Operation::Tail,
        _ => {
            let mut records: Vec<Sent> = (0..1 + numbers.below(4)).map(|_| plain(numbers, now_ms)).collect();
            // A command is the last of its batch: a trim with records behind it goes by other rules on each side.
            match numbers.below(8) {
                0 => records.push(Sent::Fence { timestamp_ms: *now_ms, token: TOKENS[numbers.index(3)] }),
                // Bytes of ASCII alone, for a text.
                1 => records.push(Sent::Trim { timestamp_ms: *now_ms, to: numbers.below(tail + 1) & 0x7f7f }),
                _ => {}
            }
            Operation::Append {
                records,
                installed: (numbers.below(3) == 0).then(|| TOKENS[numbers.index(3)]),
                matched: (numbers.below(3) == 0).then(|| numbers.below(2) + tail.saturating_sub(1)),
            }
        }
    }
}

fn plain(numbers: &mut Numbers, now_ms: &mut i64) -> Sent {
    *now_ms += numbers.below(3).cast_signed();
    let mut text = |most| -> String { numbers.bytes(most).iter().map(|byte| char::from(b' ' + byte % 94)).collect() };
    let (body, value) = (text(200), text(9));
    let header = (value.len() > 4).then(|| ("name".to_owned(), value));
    Sent::Plain { timestamp_ms: *now_ms, header, body }
}

fn place(position: Position) -> Place {
    (position.seq_num.get(), position.timestamp_ms)
}

/// Over the wire, as the façade says that it is kept.
async fn over_wire(client: &Client, address: &Address, operation: &Operation) -> Outcome {
    match operation {
        Operation::Append { records, installed, matched } => {
            let token = |token: &str| FencingToken::new(token).expect("a token");
            let (mut fence, mut trim) = (None, None);
            for record in records {
                match record {
                    Sent::Fence { token: named, .. } => fence = Some(token(named)),
                    Sent::Trim { to, .. } => trim = Some(SeqNum::new(*to)),
                    Sent::Plain { .. } => {}
                }
            }
            let with = OneShot {
                fencing_token: token(installed.unwrap_or_default()),
                match_seq_num: matched.map(SeqNum::new),
                terms: Terms {
                    installed: installed.map(token),
                    ignores_stamps: true,
                    chained: false,
                    effect: Effect::of(fence, trim),
                },
                ..OneShot::default()
            };
            let acked = client.append_with(address, with, records.iter().map(Sent::kept)).await;
            acked.map_or_else(Outcome::from, |acked| {
                Outcome::Acked(place(acked.start), place(acked.end), place(acked.tail))
            })
        }
        Operation::Read { from, count } => {
            let read = async |from: u64| client.read(address, ReadOptions::from(from).limit(*count)).await;
            let page = match read(*from).await {
                // S2 goes on at the first record that is left.
                Err(error) if error.reason() == Reason::Trimmed => {
                    read(error.trim_point().expect("the trim point").get()).await
                }
                page => page,
            };
            page.map_or_else(Outcome::from, Outcome::from)
        }
        Operation::Tail => {
            client.check_tail(address).await.map_or_else(Outcome::from, |tail| Outcome::Tail(place(tail)))
        }
    }
}

impl From<Page> for Outcome {
    fn from(page: Page) -> Self {
        if page.records.is_empty() {
            return Self::Nothing(page.tail.seq_num.get());
        }
        Self::Records(page.records.iter().map(found).collect())
    }
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        match (error.reason(), error.tail(), error.fencing_token()) {
            (Reason::SequenceMismatch, Some(tail), _) => Self::Mismatch(tail.seq_num.get()),
            (Reason::FencedOut, _, Some(token)) => Self::FencedOut(token.as_str().to_owned()),
            (Reason::OutOfRange, Some(tail), _) => Self::Nothing(tail.seq_num.get()),
            _ => Self::Refused,
        }
    }
}

fn found(record: &Record) -> Found {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let name = |name: &[u8]| if name == COMMAND.as_bytes() { String::new() } else { text(name) };
    let headers = record.headers.iter().map(|(header, value)| (name(header), text(value))).collect();
    ((record.seq_num.get(), record.timestamp_ms), headers, text(&record.body))
}

/// Over S2's façade.
struct S2 {
    http: Http,
}

impl S2 {
    fn ask(&self, method: &str, path: &str, body: &Value) -> Reply {
        let headers = format!("s2-basin: {BASIN}\r\ncontent-type: application/json\r\n");
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        self.http.ask_with(method, path, &headers, &body)
    }

    fn done(&self, stream: &str, operation: &Operation) -> Outcome {
        let records = format!("/v1/streams/{stream}/records");
        match operation {
            Operation::Append { records: sent, installed, matched } => {
                let sent: Vec<Value> = sent.iter().map(Sent::in_json).collect();
                let mut body = json!({ "records": sent });
                if let Some(installed) = installed {
                    body["fencing_token"] = json!(installed);
                }
                if let Some(matched) = matched {
                    body["match_seq_num"] = json!(matched);
                }
                told(&self.ask("POST", &records, &body))
            }
            Operation::Read { from, count } => {
                told(&self.ask("GET", &format!("{records}?seq_num={from}&count={count}"), &Value::Null))
            }
            Operation::Tail => told(&self.ask("GET", &format!("{records}/tail"), &Value::Null)),
        }
    }
}

fn told(reply: &Reply) -> Outcome {
    let body = reply.json();
    let place = |value: &Value| -> Place {
        let stamp = value["timestamp"].as_i64().expect("a stamp");
        (value["seq_num"].as_u64().expect("a number"), stamp)
    };
    match reply.status {
        200 if body["records"].is_array() => {
            let records = body["records"].as_array().expect("records");
            Outcome::Records(records.iter().map(|record| (place(record), headers(record), body_of(record))).collect())
        }
        200 if body["end"].is_object() => {
            Outcome::Acked(place(&body["start"]), place(&body["end"]), place(&body["tail"]))
        }
        200 => Outcome::Tail(place(&body["tail"])),
        412 if body["seq_num_mismatch"].is_u64() => {
            Outcome::Mismatch(body["seq_num_mismatch"].as_u64().expect("a number"))
        }
        412 => Outcome::FencedOut(body["fencing_token_mismatch"].as_str().expect("a token").to_owned()),
        416 => Outcome::Nothing(body["tail"]["seq_num"].as_u64().expect("a number")),
        422 => Outcome::Refused,
        status => panic!("{status}: {body}"),
    }
}

fn headers(record: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let headers = record["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
    headers.iter().map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn body_of(record: &Value) -> String {
    record["body"].as_str().unwrap_or_default().to_owned()
}

fn start(scratch: &Scratch) -> (Novad, S2) {
    let s2 = Novad::unstarted(&scratch.join("unused"), &[]).addr();
    let novad = Novad::start(&scratch.join("data"), &["--shards", "2", "--s2", &s2.to_string()]);
    let s2 = S2 { http: Http::of(s2) };
    let config = json!({"basin": BASIN, "config": {"create_stream_on_append": true,
        "default_stream_config": {"storage_class": class_name()}}});
    assert_eq!(s2.ask("POST", "/v1/basins", &config).status, 201);
    (novad, s2)
}

fn address(key: &str) -> Address {
    format!("nova://{BASIN}/{key}").parse().expect("an address")
}

#[test]
fn the_same_operations_over_the_wire_and_over_s2_give_the_same_answers_and_the_same_log() {
    let scratch = Scratch::new();
    let (novad, s2) = start(&scratch);
    within(120 * u64::from(soaked(1)), async {
        let wire = novad.client();
        for seed in seeds() {
            let (left, right) = (format!("wire-{seed}"), format!("s2-{seed}"));
            for key in [&left, &right] {
                // Stamps are all the writer's, so that two logs can be alike.
                let mode = Some(TimestampingMode::ClientRequire);
                let stamped = ConfigPatch { timestamping_mode: mode, ..ConfigPatch::default() };
                wire.create_stream(&address(key), stamped).await.expect("a stream");
            }
            let (mut numbers, mut now_ms, mut acked) = (Numbers::new(seed), 1_000_i64, 0);
            for step in 0..STEPS {
                let tail = wire.check_tail(&address(&left)).await.expect("a tail");
                let operation = drawn(&mut numbers, tail.seq_num.get(), &mut now_ms);
                let one = over_wire(&wire, &address(&left), &operation).await;
                let other = s2.done(&right, &operation);
                assert_eq!(one, other, "seed {seed}, step {step}: {operation:?}");
                acked += usize::from(matches!(one, Outcome::Acked(..)));
            }
            assert!(acked > 20, "only {acked} appends of seed {seed} were stored");
            let whole = async |key: &str| {
                let page = wire.read(&address(key), ReadOptions::default().clamp()).await.expect("a page");
                assert!(page.at_tail);
                (page.trim_point, page.records.iter().map(found).collect::<Vec<Found>>())
            };
            assert_eq!(whole(&left).await, whole(&right).await, "seed {seed}");
            let token = async |key: &str| wire.fencing_token(&address(key)).await.expect("the token");
            assert_eq!(token(&left).await, token(&right).await, "seed {seed}");
            eprintln!("check 7: {STEPS} operations alike over wire and S2, seed {seed}");
        }
    });
}
