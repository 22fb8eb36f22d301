use super::{Answer, Heard, Peer, PeerWork, Sent, Tally, http, nats, redis};
use crate::append::AppendOptions;

type Hear = fn(&[u8]) -> Result<Heard, crate::error::BenchError>;

/// What is heard in turn, as words; the input may come in any parts.
fn check(hear: Hear, input: &[u8]) -> Vec<String> {
    let (mut at, mut words) = (0, Vec::new());
    for end in 1..=input.len() {
        match hear(&input[at..end]).unwrap() {
            Heard::Part => {}
            Heard::Aside { bytes, back } => {
                at += bytes;
                words.push(format!("aside {}", String::from_utf8_lossy(back).trim_end()));
            }
            Heard::Answer { bytes, no, of } => {
                at += bytes;
                let no = no.map_or_else(String::new, |no| format!(" {no}"));
                words.push(match of {
                    Answer::Stored => format!("stored{no}"),
                    Answer::Refused(why) => format!("refused{no}: {why}"),
                });
            }
        }
    }
    assert_eq!(at, input.len(), "all is heard");
    words
}

#[test]
fn answers_of_redis_are_ids_and_errors() {
    let input = b"$15\r\n1526919030474-0\r\n-OOM command not allowed\r\n$3\r\n1-1\r\n";
    assert_eq!(check(redis::hear, input), ["stored", "refused: OOM command not allowed", "stored"]);
    assert!(redis::hear(b"*3\r\n").is_err());
    let mut out = Vec::new();
    assert_eq!(redis::put("k", &[b"ab".to_vec()], &mut out), 1);
    assert_eq!(out, b"*5\r\n$4\r\nXADD\r\n$1\r\nk\r\n$1\r\n*\r\n$1\r\nf\r\n$2\r\nab\r\n");
}

#[test]
fn answers_of_nats_name_their_append_and_pings_are_answered() {
    let input =
        b"INFO {}\r\nPING\r\nMSG _INBOX.novabench.0000000000000007.12 1 22\r\n{\"stream\":\"s\",\"seq\":5 }\r\n\
        MSG _INBOX.novabench.0000000000000007.13 1 14\r\n{\"error\":{\"a\"}\r\n";
    assert_eq!(check(nats::hear, input), ["aside ", "aside PONG", "stored 12", "refused 13: {\"error\":{\"a\"}"]);
    let mut out = Vec::new();
    assert_eq!(nats::put("k", (7, 12), &[b"ab".to_vec()], &mut out), 1);
    assert_eq!(out, b"PUB k _INBOX.novabench.0000000000000007.12 2\r\nab\r\n");
}

#[test]
fn answers_of_s2_lite_are_responses_with_a_length_or_in_chunks() {
    let input = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\n{ }\r\n0\r\n\r\nHTTP/1.1 503 No\r\ncontent-length: 4\r\n\r\nbusy";
    assert_eq!(check(http::hear, input), ["stored", "stored", "refused: 503: busy"]);
    let mut out = Vec::new();
    http::put("h:1", "k", &[b"ab".to_vec(), b"c".to_vec()], &mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("POST /v1/streams/k/records HTTP/1.1\r\nHost: h:1\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\n{\"records\":[{\"body\":\"ab\"},{\"body\":\"c\"}]}"), "{text}");
}

/// Acks and refusals of one append of three records that gets these answers of Redis.
fn counted(answers: &[u8]) -> (u64, u64) {
    let load = AppendOptions { records_per_batch: 3, ..AppendOptions::default() }.load().unwrap();
    let (mut work, mut tally, mut out) = (PeerWork::new(&load, (Peer::Redis, 0), 0, 1), Tally::new(false), Vec::new());
    tally.measure(0..u64::MAX);
    assert!(work.launch(&load, Sent::at(1), &mut out));
    assert_eq!(work.walk(answers, &mut out, (&mut tally, 5)).unwrap(), answers.len());
    assert_eq!((work.in_flight(), tally.violations), (0, 0));
    (tally.acks, tally.refusals.values().sum())
}

#[test]
fn an_append_of_which_any_command_is_refused_is_refused_once_and_no_ack() {
    let stored = "$3\r\n1-1\r\n";
    assert_eq!(counted(stored.repeat(3).as_bytes()), (1, 0));
    for refused in [1, 2, 3, 4, 6, 7] {
        let answer = |at: u32| if (refused >> at) & 1 == 1 { "-OOM\r\n" } else { stored };
        let answers: String = (0..3).map(answer).collect();
        assert_eq!(counted(answers.as_bytes()), (0, 1), "{answers}");
    }
}
