use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use client::{
    Bucket, BucketId, BucketName, BucketState, Client, ClusterId, ConfigPatch, Options, Position, SeqNum, StarId,
    StreamConfig, StreamId,
};
use wire::frame::{self, Frame, Kind, Next};
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{
    BucketAnswer, BucketGet, Hello, Message, StreamAnswer, StreamCreate, StreamGet, StreamReconfigure, Welcome, refuse,
};
use wire::refusal::Refusal;

use super::*;
use crate::surface::{self, Bound, Kind as Surface, Server};

/// Longer than any step takes on a busy host.
const PATIENCE: Duration = Duration::from_secs(20);
const BASIN: &str = "basin-of-tests";
/// The default of the bucket.
const MAX_AGE_MS: u64 = 7_000;

/// What becomes of the next create or change of a stream.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    /// It is not done, and the connection breaks.
    Lost,
    /// It is done, and the connection breaks.
    Unanswered,
    /// It is refused, as it would be by a star that has no room.
    Refused,
}

/// A star that keeps what streams are like, and nothing in them.
#[derive(Debug, Default)]
struct Star {
    streams: BTreeMap<Address, StreamInfo>,
    fates: VecDeque<Fate>,
    made: u8,
}

impl Star {
    /// Makes a stream, as any surface does.
    fn make(&mut self, address: &Address, config: ConfigPatch) -> Result<StreamInfo, Refusal> {
        if self.streams.contains_key(address) {
            return Err(Refusal::new(Reason::AlreadyExists, "it is there"));
        }
        self.made += 1;
        let stream = StreamInfo {
            stream_id: StreamId::from_bytes([self.made; 16]),
            bucket: address.bucket.clone(),
            key: address.key.clone(),
            config: config.fill(&bucket().defaults),
            tail: Position::default(),
            trim_point: SeqNum::ZERO,
            settled: SeqNum::ZERO,
            bytes: 0,
            created_at_ms: 5,
        };
        self.streams.insert(address.clone(), stream.clone());
        Ok(stream)
    }

    fn reconfigure(&mut self, address: &Address, config: ConfigPatch) -> Result<StreamInfo, Refusal> {
        let stream = self.streams.get_mut(address).ok_or_else(not_there)?;
        stream.config = config.apply(&stream.config);
        Ok(stream.clone())
    }

    /// Does what changes something, unless it has another fate; `None` breaks the connection.
    fn change(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<StreamInfo, Refusal>,
    ) -> Option<Result<StreamInfo, Refusal>> {
        match self.fates.pop_front() {
            None | Some(Fate::Answered) => Some(change(self)),
            Some(Fate::Lost) => None,
            Some(Fate::Unanswered) => change(self).err().map(Err),
            Some(Fate::Refused) => Some(Err(Refusal::new(Reason::ResourceExhausted, "no room"))),
        }
    }

    /// Answers a frame; false breaks the connection.
    fn answer(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> bool {
        let answered = match frame.kind {
            Kind::Hello => {
                Hello::of(frame).unwrap();
                welcome().frame(frame.correlation, out);
                return true;
            }
            Kind::BucketGet => {
                assert_eq!(BucketGet::of(frame).unwrap().name.as_str(), BASIN);
                BucketAnswer { bucket: bucket() }.frame(frame.correlation, out);
                return true;
            }
            Kind::StreamGet => {
                let StreamGet { address } = StreamGet::of(frame).unwrap();
                Some(self.streams.get(&address).cloned().ok_or_else(not_there))
            }
            Kind::StreamCreate => {
                let StreamCreate { address, config } = StreamCreate::of(frame).unwrap();
                self.change(|star| star.make(&address, config))
            }
            Kind::StreamReconfigure => {
                let StreamReconfigure { address, config } = StreamReconfigure::of(frame).unwrap();
                self.change(|star| star.reconfigure(&address, config))
            }
            kind => panic!("{kind:?} is not asked here"),
        };
        match answered {
            Some(Ok(stream)) => StreamAnswer { stream }.frame(frame.correlation, out),
            Some(Err(refusal)) => refuse(frame.correlation, refusal, out),
            None => return false,
        }
        true
    }
}

fn not_there() -> Refusal {
    Refusal::new(Reason::NotFound, "it is not there")
}

fn bucket() -> Bucket {
    let defaults = ConfigPatch { retention_max_age_ms: Some(MAX_AGE_MS), ..ConfigPatch::default() };
    Bucket {
        id: BucketId::default(),
        name: BucketName::new(BASIN).unwrap(),
        location: String::new(),
        create_stream_on_append: false,
        create_stream_on_read: false,
        defaults: defaults.apply(&StreamConfig::default()),
        creation_token: String::new(),
        created_at_ms: 5,
        state: BucketState::Live,
    }
}

fn welcome() -> Welcome {
    Welcome {
        cluster_id: ClusterId::default(),
        star_id: StarId::default(),
        version: "of tests".to_owned(),
        shard: 0,
        shards: 1,
        append_window: 1,
        keepalive_ms: 60_000,
        frame_body_bytes_max: 1 << 20,
    }
}

fn serve(star: &Mutex<Star>, mut socket: TcpStream) {
    let (mut input, mut chunk) = (Vec::new(), [0; 4 << 10]);
    loop {
        let bytes = socket.read(&mut chunk).unwrap_or(0);
        input.extend_from_slice(&chunk[..bytes]);
        let (mut at, mut out, mut goes_on) = (0, Vec::new(), bytes > 0);
        while let Next::Frame(frame) = frame::next(&input[at..], FRAME_BODY_BYTES_MAX).unwrap() {
            at += frame.frame_bytes;
            goes_on &= star.lock().unwrap().answer(&frame, &mut out);
        }
        input.drain(..at);
        if !goes_on || socket.write_all(&out).is_err() {
            return;
        }
    }
}

/// The façade before such a star.
struct Served {
    star: Arc<Mutex<Star>>,
    facade: Server,
}

impl Served {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let star = Arc::new(Mutex::new(Star::default()));
        let serving = Arc::clone(&star);
        // It runs until the process of the tests ends.
        thread::spawn(move || {
            for socket in listener.incoming() {
                let star = Arc::clone(&serving);
                thread::spawn(move || serve(&star, socket.unwrap()));
            }
        });
        let client = Client::new(Options::new([at]).request_timeout(PATIENCE)).unwrap();
        let bound = Bound::bind(Surface::S2, "127.0.0.1:0".parse().unwrap()).unwrap();
        let facade = crate::s2::start(bound, &surface::Options::default(), client).unwrap();
        Self { star, facade }
    }

    fn star(&self) -> std::sync::MutexGuard<'_, Star> {
        self.star.lock().unwrap()
    }

    /// A create of a stream with a token: what it is answered.
    fn create(&self, name: &str, token: &str, config: &str) -> (u16, String) {
        let body = format!(r#"{{"stream":"{name}","config":{config}}}"#);
        let answer = post(self.facade.addr(), &format!("s2-request-token: {token}\r\n"), &body);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let how = head.lines().find_map(|line| line.strip_prefix("s2-provision-result: "));
        let body: Value = serde_json::from_str(body).unwrap();
        (status, how.or_else(|| body["code"].as_str()).unwrap().to_owned())
    }
}

fn post(at: SocketAddr, header: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let bytes = body.len();
    let head = format!(
        "POST /v1/streams HTTP/1.1\r\nhost: s2\r\ns2-basin: {BASIN}\r\n{header}content-type: application/json\r\n\
         content-length: {bytes}\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn address(name: &str) -> Address {
    Address::new(BASIN, name).unwrap()
}

const PLAIN: &str = "{}";
const FOREVER: &str = r#"{"retention_policy":{"infinite":{}}}"#;

fn told(status: u16, what: &str) -> (u16, String) {
    (status, what.to_owned())
}

#[test]
fn a_create_whose_answer_was_lost_is_found_by_its_token_and_by_no_other() {
    let served = Served::start();
    served.star().fates.push_back(Fate::Unanswered);
    assert_eq!(served.create("s", "t-1", PLAIN), told(503, "unavailable"));
    assert_eq!(served.create("s", "t-2", PLAIN), told(409, "resource_already_exists"));
    assert_eq!(served.create("s", "t-1", FOREVER), told(409, "resource_already_exists"));
    for _ in 0..2 {
        assert_eq!(served.create("s", "t-1", PLAIN), told(201, "noop"));
    }
    assert_eq!(served.star().made, 1);
}

#[test]
fn a_create_that_was_lost_is_done_by_the_next_try() {
    let served = Served::start();
    served.star().fates.extend([Fate::Lost, Fate::Lost]);
    for _ in 0..2 {
        assert_eq!(served.create("s", "t-1", PLAIN), told(503, "unavailable"));
    }
    assert_eq!(served.create("s", "t-1", PLAIN), told(201, "created"));
    assert_eq!(served.create("s", "t-1", PLAIN), told(201, "noop"));
}

#[test]
fn a_create_claims_nothing_that_somebody_else_has_made() {
    let served = Served::start();
    served.star().fates.push_back(Fate::Lost);
    assert_eq!(served.create("raced", "t-1", PLAIN), told(503, "unavailable"));
    assert_eq!(served.create("raced", "t-2", PLAIN), told(201, "created"));
    assert_eq!(served.create("raced", "t-1", PLAIN), told(409, "resource_already_exists"));

    served.star().make(&address("before"), ConfigPatch::default()).unwrap();
    served.star().fates.push_back(Fate::Lost);
    assert_eq!(served.create("before", "t-1", PLAIN), told(503, "unavailable"));
    assert_eq!(served.create("before", "t-1", PLAIN), told(409, "resource_already_exists"));

    served.star().fates.push_back(Fate::Refused);
    assert_eq!(served.create("refused", "t-1", PLAIN), told(429, "rate_limited"));
    served.star().make(&address("refused"), ConfigPatch::default()).unwrap();
    assert_eq!(served.create("refused", "t-1", PLAIN), told(409, "resource_already_exists"));
}

#[test]
fn a_stream_that_was_made_and_not_configured_is_configured_by_the_next_try() {
    let served = Served::start();
    let max_age_ms = |name: &str| served.star().streams[&address(name)].config.retention.max_age_ms;
    for (name, fate) in [("refused", Fate::Refused), ("lost", Fate::Lost), ("unanswered", Fate::Unanswered)] {
        served.star().fates.extend([Fate::Answered, fate]);
        assert_eq!(served.create(name, "t-1", FOREVER), told(503, "unavailable"), "{name}");
        assert_eq!(served.create(name, "t-1", FOREVER), told(201, "noop"), "{name}");
        assert_eq!(max_age_ms(name), 0, "{name}");
    }
    let other_age = ConfigPatch { retention_max_age_ms: Some(9), ..ConfigPatch::default() };
    served.star().reconfigure(&address("lost"), other_age).unwrap();
    assert_eq!(served.create("lost", "t-1", FOREVER), told(201, "noop"));
    assert_eq!(max_age_ms("lost"), 9, "what was changed after it was made stays");
}
