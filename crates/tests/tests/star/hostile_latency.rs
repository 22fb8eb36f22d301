//! What does an honest writer wait beside clients that mean harm?
//!
//! It is a matter of microseconds, so that nothing else may run beside it: `scripts/checks` runs it alone.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use client::{Producer, ProducerOptions};
use tests::{Novad, Scratch, Speaker, at, within};
use wire::message::{Hello, Message as _};

use crate::hostile::deaf_reader;

/// Appends whose latencies are a sample.
const SAMPLE: usize = 1_500;
/// Samples of each kind, in turn; the middle one counts.
const ROUNDS: usize = 3;
/// Connections that say nothing, or half of something.
const IDLE: usize = 1_000;
/// Those on which a byte comes now and then.
const DRIPPING: usize = 50;
const DEAF: usize = 8;
const PAUSE: Duration = Duration::from_millis(20);

/// Those who mean harm, until they are called off.
struct Mob {
    is_over: Arc<AtomicBool>,
    harm: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
    /// They only have to be there.
    _idle: (Vec<TcpStream>, Vec<Speaker>),
}

/// Does something that ends a connection or holds it up, again and again.
fn harass(addr: SocketAddr, bytes: &[u8], is_over: &AtomicBool, harm: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(mut socket) = TcpStream::connect(addr) {
            // It is cut off in the middle of it.
            let _cut_off = socket.write_all(bytes);
            harm.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(PAUSE);
    }
}

/// Lets a hello come byte by byte on many connections, and begins anew when it is cut off.
fn drip(addr: SocketAddr, is_over: &AtomicBool, harm: &AtomicU64) {
    let mut hello = Vec::new();
    Hello { client: "slow".to_owned() }.frame(1, &mut hello);
    let mut sockets: Vec<(TcpStream, usize)> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        sockets.retain_mut(|(socket, at)| {
            *at += 1;
            harm.fetch_add(1, Ordering::Relaxed);
            socket.write_all(&hello[*at - 1..*at]).is_ok() && *at < hello.len()
        });
        while sockets.len() < DRIPPING
            && let Ok(socket) = TcpStream::connect(addr)
        {
            sockets.push((socket, 0));
        }
        thread::sleep(PAUSE);
    }
}

impl Mob {
    fn on(novad: &Novad) -> Self {
        let addr = novad.addr();
        let (is_over, harm) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        // A length that is no frame's, and as much of it as is taken; bytes of nobody; half of a header.
        let mut giant = Vec::new();
        Hello { client: "giant".to_owned() }.frame(1, &mut giant);
        giant[8..16].fill(0xff);
        giant.resize(256 << 10, 0xff);
        let noise: Vec<u8> =
            (0..64_u32 << 10).map(|at| (at.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
        let mut threads = Vec::new();
        for bytes in [giant, noise, b"NOVA\x01\x01\x00".to_vec()] {
            let (is_over, harm) = (Arc::clone(&is_over), Arc::clone(&harm));
            threads.push(thread::spawn(move || harass(addr, &bytes, &is_over, &harm)));
        }
        let (over, harmed) = (Arc::clone(&is_over), Arc::clone(&harm));
        threads.push(thread::spawn(move || drip(addr, &over, &harmed)));
        let silent: Vec<TcpStream> = (0..IDLE).map(|_| TcpStream::connect(addr).expect("a connection")).collect();
        let greeted = (0..IDLE).map(|_| Speaker::new(addr)).collect();
        let deaf = (0..DEAF).map(|number| deaf_reader(novad, number));
        Self { is_over, harm, threads, _idle: (silent.into_iter().chain(deaf).collect(), greeted) }
    }

    fn call_off(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("it comes to an end");
        }
        self.harm.load(Ordering::Relaxed)
    }
}

/// The latency below which 99 of 100 appends stay, one after the other.
async fn p99(producer: &Producer) -> Duration {
    let mut latencies = Vec::with_capacity(SAMPLE);
    for _ in 0..SAMPLE {
        let began = Instant::now();
        producer.append(["honest"]).await.expect("an ack");
        latencies.push(began.elapsed());
    }
    latencies.sort_unstable();
    latencies[SAMPLE * 99 / 100]
}

#[test]
#[ignore = "measures, so that nothing else may run: scripts/checks runs it"]
fn an_honest_writer_waits_less_than_twice_as_long_beside_a_mob() {
    let scratch = Scratch::new();
    let novad = Novad::start(&scratch.join("data"), &["--shards", "1", "--connections-max", "6000"]);
    within(240, async {
        let client = novad.client_with_bucket().await;
        for key in ["big-0", "big-1", "big-2", "big-3"] {
            client.append(&at(key), [vec![b'x'; 1_000_000]]).await.expect("an ack");
        }
        let producer = client.open(&at("honest"), ProducerOptions::default()).await.expect("a session");
        p99(&producer).await;
        let (mut ratios, mut harm) = (Vec::new(), 0);
        for _ in 0..ROUNDS {
            let alone = p99(&producer).await;
            let mob = Mob::on(&novad);
            let beside = p99(&producer).await;
            harm += mob.call_off();
            eprintln!("p99 {} us alone, {} us beside them", alone.as_micros(), beside.as_micros());
            ratios.push(beside.as_secs_f64() / alone.as_secs_f64());
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        ratios.sort_unstable_by(f64::total_cmp);
        assert!(harm > 100, "there was a mob: {harm}");
        assert!(ratios[ROUNDS / 2] < 2.0, "{ratios:?}");
        eprintln!("check 24: {} appends beside {harm} acts of harm", SAMPLE * ROUNDS);
    });
}
