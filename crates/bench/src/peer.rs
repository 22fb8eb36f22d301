//! How do other servers do under the same appends?

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::append::{self, AppendOptions};
use crate::error::BenchError;
use crate::load::{self, peers};
use crate::progress::OnProgress;
use crate::report::{LoadReport, Made, Settings};

/// A server that the user has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// Redis Streams.
    Redis,
    /// NATS JetStream.
    Nats,
    /// S2 in one process, over its HTTP interface.
    S2Lite,
}

impl Peer {
    /// The word that users write.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Nats => "nats",
            Self::S2Lite => "s2-lite",
        }
    }

    /// Where it listens unless it is told otherwise.
    #[must_use]
    pub const fn addr(self) -> &'static str {
        match self {
            Self::Redis => "127.0.0.1:6379",
            Self::Nats => "127.0.0.1:4222",
            Self::S2Lite => "127.0.0.1:8080",
        }
    }

    /// What it has to be started with for an ack to mean that the record is on the disk, as nova's does.
    #[must_use]
    pub const fn durable(self) -> &'static str {
        match self {
            Self::Redis => "redis-server --appendonly yes --appendfsync always --save ''",
            Self::Nats => "jetstream { sync_interval: always } in its configuration, and nats-server -js",
            Self::S2Lite => "s2 lite --local-root DIR, whose acks wait for the store's put",
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A word that is no peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is none of redis, nats and s2-lite")]
pub struct NoPeer {
    text: String,
}

impl FromStr for Peer {
    type Err = NoPeer;

    fn from_str(text: &str) -> Result<Self, NoPeer> {
        let all = [Self::Redis, Self::Nats, Self::S2Lite];
        let found = all.into_iter().find(|peer| peer.word() == text);
        found.ok_or_else(|| NoPeer { text: text.chars().take(40).collect() })
    }
}

/// The appends to send to a peer, and to which.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerOptions {
    /// Which server.
    pub peer: Peer,
    /// The load. Of a session's window, class and bucket a peer knows nothing; s2-lite takes one request of a connection at a time.
    #[serde(flatten)]
    pub load: AppendOptions,
    /// What the server says of its durability; filled in by the run.
    pub says: String,
}

impl fmt::Display for PeerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, load, says } = self;
        writeln!(f, "{peer} at {load}")?;
        writeln!(f, "durable    when started as: {}", peer.durable())?;
        write!(f, "says       {says}")
    }
}

/// Appends to a peer as the options say, and reports as for nova.
///
/// # Errors
/// [`BenchError`] of what kept the run from its end.
pub fn run(options: &PeerOptions, on_progress: OnProgress<'_>) -> Result<LoadReport, BenchError> {
    if options.load.one_shot {
        return Err(BenchError::option("one_shot", true, "absent: peers have no such appends"));
    }
    let mut load = options.load.load()?;
    load.peer = Some(options.peer);
    let says = peers::prepare(&load, options.peer)?;
    let made = Made::here(None);
    let mut followed = append::Followed::begin(&options.load.files)?;
    let outcome = load::run(&load, on_progress, &mut |slice| followed.see(slice))?;
    let settings = Settings::Peer(PeerOptions { says, ..options.clone() });
    let mut report = LoadReport::new(made, settings, append::shape(&load), &outcome);
    // What a peer acks has no class.
    report.class = None;
    if let Some(why) = &outcome.tally.why {
        report.warnings.push(format!("the first refusal says: {why}"));
    }
    followed.end(&mut report)?;
    options.load.files.write(&report)?;
    append::verdict(report, &outcome)
}

#[cfg(test)]
mod tests {
    use super::{Peer, PeerOptions, run};
    use crate::append::AppendOptions;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    /// A server that answers each connection so.
    fn stand_in(serve: fn(TcpStream)) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || serve(stream.unwrap()));
            }
        });
        addr
    }

    /// Every `XADD` gets an id, and a question for the configuration its answer.
    fn redis(mut stream: TcpStream) {
        let mut scratch = [0; 64 << 10];
        while let Ok(bytes @ 1..) = stream.read(&mut scratch) {
            let said = &scratch[..bytes];
            let adds = said.windows(4).filter(|four| *four == b"XADD").count();
            let mut out = b"$3\r\n1-1\r\n".repeat(adds);
            if said.windows(6).any(|six| six == b"CONFIG") {
                out = b"*4\r\n$10\r\nappendonly\r\n$3\r\nyes\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n".to_vec();
            }
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    }

    #[test]
    fn a_peer_is_measured_by_the_same_generator_and_says_how_durable_it_is() {
        let load = AppendOptions {
            addr: stand_in(redis),
            streams: 3,
            connections: 2,
            window: 1,
            warm_up: Duration::ZERO,
            duration: Duration::from_millis(200),
            ..AppendOptions::default()
        };
        let options = PeerOptions { peer: Peer::Redis, load, says: String::new() };
        let report = run(&options, &mut |_| ()).unwrap();
        assert!(report.acks > 20 && report.latency_us.samples == report.acks, "{report}");
        let text = report.to_string();
        assert!(text.contains("appendonly yes appendfsync always") && text.contains("--appendfsync always"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["settings"]["measure"], &json["settings"]["peer"]), (&"peer".into(), &"redis".into()));
        assert_eq!("nats".parse::<Peer>(), Ok(Peer::Nats));
        assert!("kafka".parse::<Peer>().is_err());
    }

    /// Every request is answered that all is well.
    fn s2_lite(mut stream: TcpStream) {
        let mut scratch = [0; 64 << 10];
        while let Ok(1..) = stream.read(&mut scratch) {
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").is_err() {
                return;
            }
        }
    }

    #[test]
    fn a_server_that_can_t_be_asked_is_not_said_to_have_promised_anything() {
        let load = AppendOptions { addr: stand_in(s2_lite), ..AppendOptions::default() };
        let says = crate::load::peers::prepare(&load.load().unwrap(), Peer::S2Lite).unwrap();
        assert!(says.starts_with("nothing; ") && says.contains("how it was started"), "{says}");
    }
}
