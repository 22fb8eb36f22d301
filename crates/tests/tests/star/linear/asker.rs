//! How does one client ask a stream, and what do its answers come to?

use std::time::Duration;

use client::{Client, Error, FencingToken, OneShot, Producer, ReadOptions, Reason, Record, SeqNum};
use tests::linear::{Answer, Ask, Token};
use tests::{Dice, text};

use super::Watched;

/// A batch with an idempotency key is sent again so often at most.
const TRIES_MAX: u32 = 100;
/// With more of them after it, and those under way, a key may be one that the stream has forgotten.
const KEYED_MAX: u64 = 8;

/// The body of a record, of many lengths.
fn body(record: u64) -> String {
    let mut body = format!("{record}:");
    body.extend(std::iter::repeat_n('.', usize::try_from(record * 37 % 700).expect("few")));
    body
}

pub(super) fn number(record: &Record) -> u64 {
    let body = text(record);
    let number = body.split(':').next().and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("a foreign record: {body}"))
}

fn named(token: Token) -> FencingToken {
    let name = if token == Token::NONE { String::new() } else { format!("gen-{}", token.number()) };
    FencingToken::new(&name).expect("a token")
}

pub(super) fn token(named: &FencingToken) -> Token {
    match named.as_str().strip_prefix("gen-") {
        None => Token::NONE,
        Some(number) => Token::new(number.parse().expect("a token of ours")),
    }
}

/// Whether an error says that bytes were changed on their way, or ended on it.
pub(crate) fn is_about_damage(error: &Error) -> bool {
    let says = |what: &&str| error.message().contains(what);
    match error.reason() {
        Reason::Invalid | Reason::Internal => ["is damaged", "don't start a frame", "broke off"].iter().any(says),
        // Such a refusal may be lost as well: asked again, the star knows only that there was one.
        Reason::FailedPrecondition => says(&"was refused, and later ones are stored"),
        _ => false,
    }
}

/// What an answer comes to; none when the operation may have happened or not.
fn told<T>(outcome: Result<T, Error>, yes: impl FnOnce(T) -> Answer) -> Option<Answer> {
    let error = match outcome {
        Ok(value) => return Some(yes(value)),
        Err(error) => error,
    };
    let tail = || error.tail().expect("the tail").seq_num.get();
    match error.reason() {
        _ if !error.no_side_effect() => None,
        Reason::SequenceMismatch => Some(Answer::Mismatch(tail())),
        Reason::FencedOut => Some(Answer::FencedOut(token(error.fencing_token().expect("the token")))),
        Reason::OutOfRange => Some(Answer::PastTail(tail())),
        Reason::Trimmed => {
            let trim_point = error.trim_point().expect("the trim point").get();
            Some(Answer::BelowTrimPoint { tail: tail(), trim_point })
        }
        _ => {
            assert!(error.retryable() || is_about_damage(&error), "{error}");
            Some(Answer::Refused)
        }
    }
}

/// One of those who ask.
pub(crate) struct Asker {
    pub(super) number: u32,
    pub(super) client: Client,
    /// Of each stream that takes more than one writer, for a client that appends so.
    pub(super) sessions: Vec<Option<Producer>>,
    pub(super) dice: Dice,
}

impl Asker {
    pub(super) async fn put(&mut self, index: usize, watched: &Watched, ask: &Ask) -> Option<Answer> {
        let (client, address) = (&self.client, &watched.address);
        match ask {
            Ask::Append { records, match_seq_num, token } => {
                let bodies: Vec<String> = records.clone().map(body).collect();
                let match_seq_num = match_seq_num.map(SeqNum::new);
                if let (Some(Some(session)), Token::NONE) = (self.sessions.get(index), *token) {
                    let outcome = match match_seq_num {
                        Some(match_seq_num) => session.append_match(match_seq_num, bodies).await,
                        None => session.append(bodies).await,
                    };
                    return told(outcome, |ack| Answer::Appended(ack.start.seq_num.get()));
                }
                let high = u128::from(self.dice.below(u64::MAX)) << 64;
                let idempotency_key = self.dice.is_one_of(3).then(|| high | u128::from(records.start + 1));
                let with =
                    OneShot { fencing_token: named(*token), match_seq_num, idempotency_key, ..OneShot::default() };
                append_once(client, watched, with, bodies).await
            }
            Ask::Fence(token) => {
                told(client.fence(address, &named(*token)).await, |boundary| Answer::Fenced(boundary.seq_num.get()))
            }
            Ask::Trim(to) => told(client.trim(address, SeqNum::new(*to)).await, |point| Answer::Trimmed(point.get())),
            Ask::Read(from) => {
                let limit = u32::try_from(1 + self.dice.below(40)).expect("few");
                let page = client.read(address, ReadOptions::from(*from).limit(limit)).await;
                told(page, |page| {
                    let is_dense =
                        (page.start.get()..).zip(&page.records).all(|(at, record)| record.seq_num.get() == at);
                    assert!(is_dense && page.start.get() == *from, "a page from {from}: {page:?}");
                    let (tail, trim_point) = (page.tail.seq_num.get(), page.trim_point.get());
                    Answer::Page { records: page.records.iter().map(number).collect(), tail, trim_point }
                })
            }
            Ask::Tail => told(client.check_tail(address).await, |tail| Answer::Tail(tail.seq_num.get())),
            Ask::Token => told(client.fencing_token(address).await, |named| Answer::Token(token(&named))),
        }
    }
}

/// Under an idempotency key a batch is sent until somebody knows what became of it, or it may be forgotten.
async fn append_once(client: &Client, watched: &Watched, with: OneShot, bodies: Vec<String>) -> Option<Answer> {
    let mut may_be = false;
    let keyed = watched.keyed.get() + u64::from(with.idempotency_key.is_some());
    watched.keyed.set(keyed);
    for _ in 0..TRIES_MAX {
        let outcome = client.append_with(&watched.address, with.clone(), bodies.clone()).await;
        match told(outcome, |ack| Answer::Appended(ack.start.seq_num.get())) {
            Some(Answer::Refused) if may_be => {}
            Some(answer) => return Some(answer),
            None => may_be = true,
        }
        // Without one it is not to be sent twice.
        with.idempotency_key?;
        if watched.keyed.get() > keyed + KEYED_MAX {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (!may_be).then_some(Answer::Refused)
}
