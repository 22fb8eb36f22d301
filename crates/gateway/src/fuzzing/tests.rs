//! The corpora of this crate's targets.

use wire::fuzzing::{Seed, replay};

use super::*;
use crate::s2::fuzzing::tests::{sample_frames, sample_messages};

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |target, name: &str, bytes: &[u8]| seeds.push(Seed::new(target, name, bytes));
    let object = br#"{"records":[{"body":"a\n"},{"body":"b","headers":[["n","v"]],"timestamp_ms":-5}],"match_seq_num":7,"fencing_token":"t"}"#;
    add("http_append", "object", &[&[0], &object[..]].concat());
    add("http_append", "object-base64", b"\x01{\"records\":[{\"body\":\"/w==\",\"headers\":[[\"bg==\",\"\"]]}]}");
    add("http_append", "lines", b"\x02{\"body\":\"a\"}\n\n {\"body\":\"\\u00fc\",\"timestamp_ms\":3}");
    add("http_append", "lines-base64", b"\x03{\"body\":\"aGk=\"}\n{\"body\":\"\"}\n");
    let change = br#"{"create_stream_on_append":true,"default_class":"express","default_retention_max_age_ms":5,"default_batch_max_records":0}"#;
    add("http_bodies", "bucket", change);
    add("http_bodies", "stream", br#"{"class":"standard","timestamping_mode":"arrival","retention_by_arrival":null}"#);
    add("http_query", "read", b"from=7&limit=10&until_ms=-3&clamp&encoding=base64");
    add("http_query", "append", b"match_seq_num=0&fencing_token=a+b%2Bc&timestamp_ms=5");
    add("http_query", "list", b"after=orders%2Feu&limit=0");
    add("http_query", "accept", b"text/*;q=0.3, application/json; q=0.5, */*;q=0.1");
    sample_messages().iter().for_each(|(name, message)| add("s2_append", name, message));
    sample_frames().iter().for_each(|(name, frames)| add("s2_frames", name, frames));
    let batch =
        br#"{"records":[{"body":"hi","headers":[["a","b"]],"timestamp":5},{}],"match_seq_num":0,"fencing_token":""}"#;
    add("s2_json", "batch", &[&[0], &batch[..]].concat());
    add("s2_json", "batch-base64", b"\x01{\"records\":[{\"body\":\"/w==\",\"headers\":[[\"\",\"ZmVuY2U=\"]]}]}");
    let stream = br#"{"storage_class":"express","retention_policy":{"age":60},"timestamping":{"mode":"arrival","uncapped":true},"delete_on_empty":{"min_age_secs":9}}"#;
    add("s2_json", "stream", &[&[2], &stream[..]].concat());
    let basin = br#"{"default_stream_config":{"retention_policy":{"infinite":{}}},"create_stream_on_append":true,"stream_cipher":null}"#;
    add("s2_json", "basin", &[&[3], &basin[..]].concat());
    add("s2_requests", "accept", b"\x00text/event-stream, application/json");
    add("s2_requests", "encoding", b"\x01gzip;q=0.5, zstd;q=0");
    add("s2_requests", "last-event", b"\x037,2,100");
    add("s2_requests", "stream", b"\x06{\"storage_class\":\"standard\"}");
    add("s2_requests", "listing", b"\x09prefix=b%2Fc&start_after=b&limit=3");
    add("s2_requests", "reading", b"\x09seq_num=3&count=5&bytes=100&until=9&wait=1&clamp=true");
    seeds
}

#[test]
fn what_the_corpora_hold_is_judged_as_it_should_be() {
    replay(TARGETS, &seeds());
}
