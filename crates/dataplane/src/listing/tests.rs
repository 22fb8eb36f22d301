use wire::config::StreamConfig;
use wire::dedupe::Dedupe;
use wire::handoff::{ReplyTo, ToControl};
use wire::ids::{BucketId, Epoch, Position, Rev, SeqNum, ShardId, StreamId};
use wire::message::{StreamInfo, StreamPage};
use wire::names::{BucketName, FencingToken, Key};
use wire::stream_row::StreamRow;

use super::{Listing, info_of};

const BUCKET: BucketId = BucketId::from_bytes([7; 16]);

fn name() -> BucketName {
    BucketName::new("demo").unwrap()
}

fn row(id: u8, key: &str) -> StreamRow {
    StreamRow {
        stream_id: StreamId::from_bytes([id; 16]),
        bucket: BUCKET,
        key: Key::new(key).unwrap(),
        config: StreamConfig::default(),
        created_at_ms: 5,
        epoch: Epoch::new(1),
        rev: Rev::new(3),
        tail: Position::new(SeqNum::new(10), 99),
        trim_point: SeqNum::ZERO,
        bytes: 100,
        token: FencingToken::default(),
        dedupe: Dedupe::default(),
        arrival_ms: 99,
        has_uncapped: false,
    }
}

/// A stream in memory that has gone on to this record.
fn in_memory(id: u8, key: &str, tail: u64) -> StreamInfo {
    let info = info_of(row(id, key), &name());
    StreamInfo { tail: Position::new(SeqNum::new(tail), 100), ..info }
}

fn listing(limit: usize) -> Listing {
    Listing::new(BUCKET, name(), String::new(), limit)
}

fn found(page: &StreamPage) -> Vec<(&str, u64)> {
    page.streams.iter().map(|stream| (stream.key.as_str(), stream.tail.seq_num.get())).collect()
}

#[test]
fn streams_of_shards_and_of_the_index_come_in_the_order_of_their_keys() {
    let mut listing = listing(10);
    listing.add(vec![in_memory(1, "d", 30)], Vec::new());
    listing.add(vec![in_memory(2, "b", 20)], Vec::new());
    let page = listing.page(vec![row(3, "a"), row(4, "c")]);
    assert_eq!(found(&page), [("a", 10), ("b", 20), ("c", 10), ("d", 30)]);
    assert!(page.next.is_empty());
    assert_eq!(page.streams[0].settled, SeqNum::new(10), "all of it is in the store");
}

#[test]
fn what_is_in_memory_is_newer_than_what_the_index_has() {
    let mut listing = listing(10);
    listing.add(vec![in_memory(1, "a", 30)], Vec::new());
    assert_eq!(found(&listing.page(vec![row(1, "a")])), [("a", 30)]);
}

#[test]
fn what_is_deleted_in_memory_is_not_listed_though_the_index_has_it_and_what_came_in_its_place_is() {
    let mut listing = listing(10);
    let gone = [1, 2].map(|id| StreamId::from_bytes([id; 16]));
    listing.add(vec![in_memory(3, "b", 1)], gone.to_vec());
    assert_eq!(found(&listing.page(vec![row(1, "a"), row(2, "b"), row(4, "c")])), [("b", 1), ("c", 10)]);
}

#[test]
fn a_page_that_is_full_says_where_the_next_begins() {
    let mut listing = listing(2);
    listing.add(vec![in_memory(1, "b", 20)], Vec::new());
    let page = listing.page(vec![row(2, "a"), row(3, "c")]);
    assert_eq!((found(&page), page.next.as_slice()), (vec![("a", 10), ("b", 20)], b"b".as_slice()));
}

#[test]
fn the_index_is_asked_for_as_many_more_as_are_deleted() {
    let mut listing = Listing::new(BUCKET, name(), "k".to_owned(), 2);
    listing.add(Vec::new(), vec![StreamId::from_bytes([1; 16])]);
    let asked = listing.ask(ReplyTo { shard: ShardId::new(1), ticket: 9 });
    let ToControl::ListIndex { reply_to, bucket, after, limit } = asked else { panic!("{asked:?}") };
    assert_eq!((reply_to.ticket, bucket, after.as_str(), limit), (9, BUCKET, "k", 4));
}
