//! Does an append that is sent again under its key get its first answer, wherever its records have gone meanwhile?

use std::time::Duration;

use client::{Address, Appended, Client, OneShot, Options, Reason, SeqNum};
use tests::history::read_all;
use tests::{Novad, Scratch, at, eventually, text, within};

const SOON: Duration = Duration::from_secs(60);
/// Fills more than one segment of the head log of tests.
const FILLER: usize = 14;
const FILLER_BYTES: usize = 900_000;

/// What was sent under each key, and its first answer.
struct Sent {
    address: Address,
    first: Vec<(u128, Appended)>,
}

fn under(key: u128) -> OneShot {
    OneShot { idempotency_key: Some(key), ..OneShot::default() }
}

fn body(key: u128) -> String {
    format!("under {key}")
}

impl Sent {
    async fn by(client: &Client) -> Self {
        let address = at("once");
        let mut first = Vec::new();
        for key in 1..=4 {
            let acked = client.append_with(&address, under(key), [body(key)]).await.expect("an ack");
            first.push((key, acked));
        }
        Self { address, first }
    }

    /// Sends all of it again, by each of these clients, and other bytes under the same keys.
    async fn again(&self, clients: &[Client], when: &str) {
        for client in clients {
            let tail = client.check_tail(&self.address).await.expect("the tail");
            for (key, first) in &self.first {
                let again = client.append_with(&self.address, under(*key), [body(*key)]).await;
                let again = again.unwrap_or_else(|error| panic!("{when}: {error}"));
                assert_eq!((again.start, again.end), (first.start, first.end), "{when}");
                let other = client.append_with(&self.address, under(*key), ["something else"]).await;
                let other = other.expect_err("other bytes under the key");
                assert_eq!((other.reason(), other.retryable()), (Reason::Invalid, false), "{when}: {other}");
            }
            assert_eq!(client.check_tail(&self.address).await.expect("the tail"), tail, "{when}: nothing was stored");
        }
        eprintln!("check 10: {} answers given again", clients.len() * self.first.len());
    }
}

async fn is_settled(client: &Client, address: &Address) -> bool {
    let info = client.get_stream(address).await.expect("the stream");
    info.settled == info.tail.seq_num
}

fn clients(novad: &Novad) -> [Client; 2] {
    let http = Options::new([format!("http://{}", novad.http())]);
    [novad.client(), Client::new(http).expect("a client")]
}

#[test]
fn an_append_that_is_sent_again_gets_its_first_answer_when_it_is_settled_trimmed_and_started_over() {
    let scratch = Scratch::new();
    let mut novad = Novad::start(&scratch.join("data"), &["--settle-age-ms", "50", "--http", "127.0.0.1:0"]);
    within(240, async {
        let client = novad.client_with_bucket().await;
        let sent = Sent::by(&client).await;
        sent.again(&clients(&novad), "at once").await;
        for _ in 0..FILLER {
            client.append(&at("filler"), [vec![b'x'; FILLER_BYTES]]).await.expect("an ack");
        }
        for address in [&sent.address, &at("filler")] {
            eventually(SOON, "all is settled", async || is_settled(&client, address).await).await;
        }
        sent.again(&clients(&novad), "settled").await;
        novad.kill9();
        novad.restart();
        sent.again(&clients(&novad), "settled, and started over").await;
        let client = novad.client();
        let bodies: Vec<String> = read_all(&client, &sent.address).await.iter().map(text).collect();
        assert_eq!(bodies, (1..=4).map(body).collect::<Vec<_>>());
        client.trim(&sent.address, SeqNum::new(4)).await.expect("a trim");
        sent.again(&clients(&novad), "trimmed").await;
        novad.kill9();
        novad.restart();
        sent.again(&clients(&novad), "trimmed, and started over").await;
        assert!(read_all(&novad.client(), &sent.address).await.is_empty(), "nothing came back");
    });
}
