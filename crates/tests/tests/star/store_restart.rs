//! Does a restart read back what was acked, whatever of it was settled, in both classes at once?

use std::time::Duration;

use client::{Address, Class, Client, ConfigPatch, SeqNum};
use futures_util::future::join_all;
use tests::history::{Acked, Tag, check_dense, read_all};
use tests::{Novad, Scratch, at, s3_server, within};

const RECORD_BYTES: usize = 700;

/// One stream, its class, and what is known of it.
struct Load {
    address: Address,
    writer: u32,
    acked: Acked,
    sent: u64,
    trimmed: u64,
}

impl Load {
    async fn new(client: &Client, writer: u32) -> Self {
        let class = if writer.is_multiple_of(2) { Class::Express } else { Class::Standard };
        let address = at(&format!("{class}-{writer}"));
        let config = ConfigPatch { class: Some(class), ..ConfigPatch::default() };
        client.create_stream(&address, config).await.expect("a stream");
        Self { address, writer, acked: Acked::default(), sent: 0, trimmed: 0 }
    }

    /// Appends until the star is gone, and trims now and then.
    async fn run(&mut self, client: &Client) {
        loop {
            let index = self.sent;
            self.sent += 1;
            let body = Tag { writer: self.writer, index }.body(RECORD_BYTES);
            let Ok(ack) = client.append(&self.address, [body]).await else { return };
            self.acked.add(index, ack.start.seq_num.get());
            if index % 50 == 49 {
                let wanted = self.trimmed.max(ack.start.seq_num.get() / 2);
                let Ok(trimmed) = client.trim(&self.address, SeqNum::new(wanted)).await else { return };
                assert_eq!(trimmed.get(), wanted);
                self.trimmed = wanted;
            }
        }
    }

    async fn check(&self, client: &Client) {
        let info = client.get_stream(&self.address).await.expect("the stream");
        // A trim that was not answered may have landed all the same.
        let trim_point = info.trim_point.get();
        assert!(trim_point >= self.trimmed, "{} was trimmed to {} and is to {trim_point}", self.address, self.trimmed);
        assert!(info.settled.get() <= info.tail.seq_num.get());
        let records = read_all(client, &self.address).await;
        check_dense(&records);
        if let Some(first) = records.first() {
            assert_eq!(first.seq_num.get(), trim_point);
        }
        assert_eq!(records.len() as u64, info.tail.seq_num.get() - trim_point);
        self.acked.since(trim_point).check(self.writer, &records);
    }
}

/// The same at each run, and another at each call.
fn pause(state: &mut u64) -> Duration {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    Duration::from_millis(20 + *state % 400)
}

#[test]
fn random_kills_with_fast_settling_lose_nothing_acked_of_either_class() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--shards", "2", "--settle-age-ms", "20"]);
    let cycles = if s3_server().is_none() { 15 } else { 5 };
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    eprintln!("the kills follow from {state}");
    within(150, async {
        let client = novad.client_with_bucket().await;
        let mut loads = join_all((0..6).map(|writer| Load::new(&client, writer))).await;
        for _ in 0..cycles {
            let after = pause(&mut state);
            let client = novad.client();
            let running = join_all(loads.iter_mut().map(|load| load.run(&client)));
            let kill = novad.beside(move |novad| {
                std::thread::sleep(after);
                novad.kill9();
            });
            let (_, killed) = tokio::join!(running, kill);
            novad = killed;
            novad.restart();
            let client = novad.client();
            join_all(loads.iter().map(|load| load.check(&client))).await;
        }
        for class in [0, 1] {
            let acked: usize = loads.iter().skip(class).step_by(2).map(|load| load.acked.len()).sum();
            assert!(acked > 20, "there was a load: {acked}");
        }
    });
}

/// The first start after it finds every row in the index and nothing to recover.
#[test]
fn a_clean_end_leaves_everything_settled() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--settle-age-ms", "60s"]);
    within(60, async {
        let client = novad.client_with_bucket().await;
        for index in 0..50 {
            client.append(&at("kept"), [Tag { writer: 1, index }.body(RECORD_BYTES)]).await.expect("an ack");
        }
    });
    assert_eq!(novad.sigterm(), Some(0), "{}", novad.log());
    novad.restart();
    within(60, async {
        let client = novad.client();
        let info = client.get_stream(&at("kept")).await.expect("the stream");
        assert_eq!((info.settled.get(), info.tail.seq_num.get()), (50, 50));
        let records = read_all(&client, &at("kept")).await;
        assert_eq!(records.len(), 50);
        check_dense(&records);
    });
}
