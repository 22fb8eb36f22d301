//! A real star on a directory of its own, and a client that speaks bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tempfile::TempDir;
use tuning::room::Rooms;
use tuning::settings::Settings;
use tuning::units::{Bytes, Millis};
use wire::batch::BatchBuilder;
use wire::bucket::{Bucket, BucketSpec};
use wire::config::{Class, ConfigPatch};
use wire::frame::{self, Kind, Next};
use wire::handoff::{BucketTable, Full, ToControl, ToShard};
use wire::hot::{Ack, AppendHead, walk_acks};
use wire::ids::{BatchNo, BucketId, ClusterId, Epoch, ProducerId, StarId};
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{Hello, Message, Open, Opened, Refused, Welcome};
use wire::names::{Address, BucketName, FencingToken};
use wire::refusal::Refusal;

use crate::{Doors, HeadLogs, NothingSettled, Options, RecoveredStar, Star, StartError, TellShard, start};

/// The one bucket there is.
pub(crate) const BUCKET: &str = "demo";

pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.log.segment_bytes = Bytes::mib(8);
    settings.drain_timeout_ms = Millis::new(2_000);
    settings
}

pub(crate) struct Running {
    pub(crate) star: Star,
    pub(crate) told: Arc<Mutex<Vec<String>>>,
}

/// Recovers the logs for a tenure after all that are in them.
pub(crate) fn recover(data: &Path, shards: u16) -> Result<RecoveredStar, StartError> {
    let logs = HeadLogs::open(data, shards)?;
    let last = logs.facts().iter().map(|facts| facts.last_epoch).max().unwrap();
    logs.recover(last.next(), &mut NothingSettled, |_| ())
}

/// A star with a control that has nothing in its index and settles nothing.
pub(crate) fn serve_with(data: &Path, shards: usize, settings: Settings) -> Running {
    serve_behind(&doors(shards), data, shards, settings)
}

/// Doors at an address that is free.
pub(crate) fn doors(shards: usize) -> Doors {
    Doors::open(SocketAddr::from(([127, 0, 0, 1], 0)), shards).unwrap()
}

/// The same behind doors that are there already.
pub(crate) fn serve_behind(doors: &Doors, data: &Path, shards: usize, settings: Settings) -> Running {
    let cpus = tuning::host::cpus_allowed();
    let shard_cpus: Vec<usize> = cpus.iter().copied().cycle().take(shards).collect();
    let recovered = recover(data, u16::try_from(shards).unwrap()).unwrap();
    let options = Options {
        shard_cpus,
        settings,
        log_bytes_max: 128 << 20,
        rooms: Rooms::open(data, None, 1 << 20).unwrap(),
        version: "test",
        cluster_id: ClusterId::from_bytes([1; 16]),
        star_id: StarId::from_bytes([2; 16]),
        loss_epoch: Epoch::ZERO,
    };
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let shards: Arc<OnceLock<Mutex<Vec<TellShard>>>> = Arc::default();
    let to_control = {
        let (told, shards) = (Arc::clone(&told), Arc::clone(&shards));
        move |message: ToControl| {
            told.lock().unwrap().push(format!("{message:?}"));
            let (to, answer) = match message {
                ToControl::Load { reply_to, .. } => {
                    (reply_to.shard, ToShard::Loaded { ticket: reply_to.ticket, result: Ok(None) })
                }
                ToControl::ListIndex { reply_to, .. } => {
                    (reply_to.shard, ToShard::Listed { ticket: reply_to.ticket, result: Ok(Vec::new()) })
                }
                ToControl::Settle { .. } | ToControl::Flush => return Err(Full),
                _ => return Ok(()),
            };
            shards.get().unwrap().lock().unwrap()[usize::from(to.get())](answer)
        }
    };
    let star = start(&options, doors, recovered, to_control).unwrap();
    let senders = star.shard_senders();
    for send in &senders {
        send(ToShard::Buckets(Arc::new(table()))).unwrap();
    }
    assert!(shards.set(Mutex::new(senders)).is_ok());
    Running { star, told }
}

pub(crate) fn serve(data: &Path, shards: usize) -> Running {
    serve_with(data, shards, settings())
}

fn table() -> BucketTable {
    let mut spec = BucketSpec::named(BucketName::new(BUCKET).unwrap());
    spec.create_stream_on_append = true;
    spec.defaults = ConfigPatch { class: Some(Class::Express), ..ConfigPatch::default() };
    let bucket = Arc::new(Bucket::made(&spec, BucketId::from_bytes([7; 16]), 0));
    let fresh = BTreeSet::from([bucket.id]);
    let buckets = BTreeMap::from([(bucket.name.clone(), bucket)]);
    BucketTable { version: 1, buckets, fresh }
}

impl Running {
    pub(crate) fn client(&self) -> Client {
        let mut client = self.stranger();
        client.welcome = Some(client.call(&Hello { client: "test".to_owned() }).unwrap());
        client
    }

    /// A client that has not said hello.
    pub(crate) fn stranger(&self) -> Client {
        Client::stranger(self.star.addr())
    }

    /// A key whose stream lies on this shard.
    pub(crate) fn key_on(shard: u16, shards: u16) -> String {
        let placement = crate::core::Placement::even(shards);
        let is_there = |key: &String| {
            let slot = wire::slot::Slot::of(BucketId::from_bytes([7; 16]), &wire::names::Key::new(key).unwrap());
            placement.shard(slot).get() == shard
        };
        (0..).map(|n| format!("key-{n}")).find(is_there).unwrap()
    }

    /// A counter summed over all shards.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        let answer: wire::message::StarAnswer = self.client().call(&wire::message::StarGet {}).unwrap();
        answer.counters.iter().filter(|counter| counter.name == name).map(|counter| counter.value).sum()
    }

    pub(crate) fn stop(self) {
        self.star.drain();
        self.star.join().unwrap();
    }
}

pub(crate) fn data() -> TempDir {
    tempfile::tempdir_in(std::env::var("NOVA_TEST_DIR").unwrap_or_else(|_| "/var/tmp".to_owned())).unwrap()
}

pub(crate) struct Got {
    pub(crate) kind: Kind,
    pub(crate) correlation: u64,
    pub(crate) head: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    received: Vec<u8>,
    correlation: u64,
    pub(crate) welcome: Option<Welcome>,
}

impl Client {
    pub(crate) fn stranger(addr: SocketAddr) -> Self {
        let socket = TcpStream::connect(addr).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { socket, received: Vec::new(), correlation: 0, welcome: None }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// The next frame; none when the star has closed.
    pub(crate) fn next(&mut self) -> Option<Got> {
        loop {
            if let Next::Frame(frame) = frame::next(&self.received, FRAME_BODY_BYTES_MAX).unwrap() {
                let got = Got {
                    kind: frame.kind,
                    correlation: frame.correlation,
                    head: frame.head.to_vec(),
                    payload: frame.payload.to_vec(),
                };
                let bytes = frame.frame_bytes;
                self.received.drain(..bytes);
                return Some(got);
            }
            let mut more = vec![0; 64 << 10];
            match self.socket.read(&mut more) {
                Ok(0) => return None,
                Ok(bytes) => self.received.extend_from_slice(&more[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn ask(&mut self, request: &impl Message) -> u64 {
        self.correlation += 1;
        let mut bytes = Vec::new();
        request.frame(self.correlation, &mut bytes);
        self.send(&bytes);
        self.correlation
    }

    pub(crate) fn answer<A: Message>(&mut self, correlation: u64) -> Result<A, Refusal> {
        loop {
            let got = self.next().expect("an answer before the end");
            if got.correlation != correlation || got.kind == Kind::Acks {
                continue;
            }
            if got.kind == Kind::Refused {
                return Err(Refused::get(&got.head).unwrap().refusal);
            }
            assert_eq!(got.kind, A::KIND);
            return Ok(A::get(&got.head).unwrap());
        }
    }

    pub(crate) fn call<A: Message>(&mut self, request: &impl Message) -> Result<A, Refusal> {
        let correlation = self.ask(request);
        self.answer(correlation)
    }

    pub(crate) fn open(&mut self, key: &str) -> Opened {
        self.call(&open_of(key)).unwrap()
    }

    /// `count` appends of one record each, in flight together; their acks.
    pub(crate) fn append(&mut self, session: u32, numbers: std::ops::Range<u64>, body: &[u8]) -> Vec<Ack> {
        let count = numbers.clone().count();
        let mut bytes = Vec::new();
        for no in numbers {
            append_frame(session, no, body, &mut bytes);
        }
        self.send(&bytes);
        let mut acks = Vec::new();
        while acks.len() < count {
            let got = self.next().expect("acks before the end");
            assert_eq!(got.kind, Kind::Acks);
            walk_acks(&got.head, |group, ack| {
                assert_eq!(group.session, session);
                acks.push(ack);
            })
            .unwrap();
        }
        acks
    }
}

pub(crate) fn open_of(key: &str) -> Open {
    Open {
        address: Address::new(BUCKET, key).unwrap(),
        producer: ProducerId::new(77),
        fencing_token: FencingToken::default(),
        resume: None,
    }
}

pub(crate) fn append_frame(session: u32, no: u64, body: &[u8], out: &mut Vec<u8>) {
    let mut batch = Vec::new();
    let mut builder = BatchBuilder::new();
    builder.push::<&[u8], &[u8]>(None, &[], body).unwrap();
    let batch_crc = builder.finish(&mut batch).unwrap();
    let head = AppendHead { session, no: BatchNo::new(no), match_seq_num: None, resent: false, batch_crc };
    let open = frame::begin(out);
    out.extend_from_slice(&head.encode());
    let open = open.head_ends(out);
    out.extend_from_slice(&batch);
    open.end(Kind::Append, 0, out);
}
