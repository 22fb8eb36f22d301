//! Messages, whole and broken.

use proptest::prelude::*;

use super::*;
use crate::config::StreamConfig;
use crate::crc::crc32c;
use crate::entry::Effect;
use crate::frame::Next;
use crate::ids::BucketId;
use crate::names::Key;
use crate::reason::Reason;
use crate::refusal::Details;

fn address() -> Address {
    Address::new("demo", "orders/eu").unwrap()
}

fn position() -> Position {
    Position::new(SeqNum::new(12), -5)
}

fn spec() -> BucketSpec {
    BucketSpec { create_stream_on_append: true, ..BucketSpec::named(address().bucket) }
}

fn bucket() -> Bucket {
    Bucket::made(&spec(), BucketId::from_bytes([9; 16]), 77)
}

fn stream() -> StreamInfo {
    StreamInfo {
        stream_id: StreamId::from_bytes([8; 16]),
        bucket: address().bucket,
        key: Key::new("k").unwrap(),
        config: StreamConfig::default(),
        tail: position(),
        trim_point: SeqNum::new(1),
        settled: SeqNum::new(2),
        bytes: 3,
        created_at_ms: 4,
    }
}

fn refusal() -> Refusal {
    let details = Details {
        tail: Some(position()),
        trim_point: Some(SeqNum::new(3)),
        fencing_token: Some(FencingToken::new("t").unwrap()),
        leader: Some("host:1".into()),
        retry_after_ms: Some(50),
    };
    Refusal { reason: Reason::FencedOut, message: "no".into(), details: Some(Box::new(details)) }
}

/// Every message there is, each through `check`.
pub(crate) fn each(mut check: impl FnMut(Kind, Vec<u8>, &dyn Fn(&[u8]) -> Option<bool>)) {
    macro_rules! all {
        ($($message:expr;)*) => {$({
            let message = $message;
            fn kind_of<M: Message>(_: &M) -> Kind { M::KIND }
            fn get<M: Message + PartialEq>(one: &M, head: &[u8]) -> Option<bool> {
                M::get(head).ok().map(|other| other == *one)
            }
            let mut bytes = Vec::new();
            message.put(&mut bytes);
            check(kind_of(&message), bytes, &|head| get(&message, head));
        })*};
    }
    let (token, refusal) = (FencingToken::new("gen").unwrap(), refusal());
    all! {
        Hello { client: "test".into() };
        Welcome {
            cluster_id: ClusterId::from_bytes([1; 16]), star_id: StarId::from_bytes([2; 16]), version: "v".into(),
            shard: 3, shards: 4, append_window: 5, keepalive_ms: 6, frame_body_bytes_max: 7,
        };
        Ping { echo: 1 };
        Pong { echo: 2 };
        GoAway { why: "drain".into() };
        Refused { refusal: refusal.clone() };
        Done {};
        BucketCreate { spec: spec() };
        BucketEnsure { spec: spec() };
        BucketUpdate { name: address().bucket, patch: BucketPatch { create_stream_on_read: Some(false), ..BucketPatch::default() } };
        BucketGet { name: address().bucket };
        BucketDelete { name: address().bucket };
        BucketList { after: "a".into(), limit: 9 };
        BucketAnswer { bucket: bucket() };
        BucketPage { buckets: vec![bucket(), bucket()], next: "n".into() };
        StreamCreate { address: address(), config: ConfigPatch { batch_max_records: Some(0), ..ConfigPatch::default() } };
        StreamGet { address: address() };
        StreamReconfigure { address: address(), config: ConfigPatch::default() };
        StreamDelete { address: address() };
        StreamList { bucket: address().bucket, after: vec![0, 255], limit: 1 };
        StreamAnswer { stream: stream() };
        StreamPage { streams: vec![stream()], next: vec![] };
        Open { address: address(), producer: ProducerId::new(1), fencing_token: token.clone(), resume: Some(StreamId::from_bytes([6; 16])) };
        Opened { session: 1, stream_id: StreamId::from_bytes([6; 16]), slot_epoch: Epoch::new(2), tail: position(), window: 16 };
        AppendRefused { session: 1, no: BatchNo::new(2), refusal: refusal.clone() };
        Close { session: 1 };
        SessionEnded { session: 1, refusal: Refusal::invalid("x") };
        AppendOnce {
            address: address(), fencing_token: token.clone(), match_seq_num: Some(SeqNum::new(0)), idempotency: (1, 2),
            terms: Terms { effect: Some(Effect::Trim(SeqNum::new(4))), ..Terms::default() }, batch_crc: 5,
        };
        Appended { start: position(), end: position(), tail: position(), class: Class::Express };
        Read { address: address(), start: Start::Timestamp(-1), clamp: true, limit: 1, max_bytes: 2, until_ms: Some(-3) };
        Subscribe { address: address(), start: Start::Last(3), clamp: false, subscription: 1, credit_bytes: 2, resume: None };
        Subscribed { subscription: 1, stream_id: StreamId::from_bytes([6; 16]), start: SeqNum::new(2) };
        Credit { subscription: 1, bytes: 2 };
        Unsubscribe { subscription: 1 };
        SubscriptionEnded { subscription: 1, refusal };
        CheckTail { address: address() };
        Tail { tail: position() };
        Trim { address: address(), to: TrimTo::Timestamp(i64::MIN) };
        Trimmed { trim_point: SeqNum::new(4) };
        Fence { address: address(), fencing_token: token.clone() };
        Fenced { tail: position() };
        GetToken { address: address() };
        Token { fencing_token: token };
        StarGet {};
        StarAnswer {
            cluster_id: ClusterId::from_bytes([1; 16]), star_id: StarId::from_bytes([2; 16]), version: "v".into(), epoch: Epoch::new(3),
            counters: vec![Counter { shard: 1, name: "acks".into(), value: 2 }],
        };
    }
}

#[test]
fn every_message_comes_back_as_it_was() {
    let mut kinds = 0;
    each(|kind, bytes, get| {
        kinds += 1;
        assert_eq!(get(&bytes), Some(true), "{kind:?}");
    });
    let hot = [Kind::Append, Kind::Acks, Kind::Page, Kind::Records];
    assert_eq!(kinds + hot.len(), Kind::ALL.len(), "a kind has no case here");
}

#[test]
fn no_mutation_does_more_than_be_judged() {
    each(|_, bytes, get| {
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff, bytes[at] ^ 0x10] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let _ = get(&damaged);
            }
            let _ = get(&bytes[at..]);
        }
    });
}

#[test]
fn the_bytes_of_the_messages_are_golden() {
    let mut sums = Vec::new();
    each(|kind, bytes, _| sums.extend_from_slice(format!("{kind:?} {:08x}\n", crc32c(&bytes)).as_bytes()));
    let golden = include_str!("../../golden/messages.txt");
    assert_eq!(String::from_utf8(sums).unwrap(), golden, "a layout changed: it needs a new wire version");
}

#[test]
fn a_message_travels_in_a_frame_with_its_payload() {
    let mut out = Vec::new();
    Ping { echo: 3 }.frame_with(9, b"rest", &mut out);
    let Ok(Next::Frame(frame)) = frame::next(&out, 1000) else { panic!("a whole frame") };
    assert_eq!((frame.correlation, frame.payload), (9, &b"rest"[..]));
    assert_eq!(Ping::of(&frame), Ok(Ping { echo: 3 }));
    assert!(Pong::of(&frame).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        each(|_, _, get| { let _ = get(&bytes); });
    }
}
