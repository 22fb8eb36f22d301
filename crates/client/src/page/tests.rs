use proptest::prelude::*;
use wire::entry::Stamping;

use super::*;
use crate::peer::{STREAM, entry, gap_entry, plain_entry, records_head};

fn page(start: u64, end: u64, entries: &[Vec<u8>]) -> Result<Page, PageError> {
    let head = records_head(0, start, end);
    decode(&head, head.start, &Bytes::from(entries.concat()), Some(STREAM))
}

fn found(page: &Page) -> Vec<(u64, &str)> {
    page.records.iter().map(|it| (it.seq_num.get(), std::str::from_utf8(&it.body).unwrap())).collect()
}

#[test]
fn what_was_asked_for_is_cut_out_of_whole_batches() {
    let entries = [plain_entry(4, &["a", "b", "c"]), plain_entry(7, &["d"]), plain_entry(8, &["e", "f"])];
    let page = page(5, 9, &entries).unwrap();
    assert_eq!(found(&page), [(5, "b"), (6, "c"), (7, "d"), (8, "e")]);
    assert_eq!((page.start.get(), page.end.get(), page.at_tail), (5, 9, true));
    let header = (Bytes::from("name"), Bytes::from("value"));
    assert!(page.records.iter().all(|it| it.headers == [header.clone()] && it.timestamp_ms == 10));
}

#[test]
fn the_last_numbers_there_are_name_records_too() {
    let first = u64::MAX - 2;
    let page = page(first, u64::MAX, &[plain_entry(first, &["y", "z"])]).unwrap();
    assert_eq!(found(&page), [(first, "y"), (first + 1, "z")]);
}

#[test]
fn what_was_delivered_before_is_left_out() {
    let payload = Bytes::from([plain_entry(4, &["a", "b"]), plain_entry(6, &["c"])].concat());
    let page = decode(&records_head(1, 4, 7), SeqNum::new(6), &payload, None).unwrap();
    assert_eq!(found(&page), [(6, "c")]);
}

#[test]
fn bodies_and_headers_are_slices_of_the_payload() {
    let payload = Bytes::from(plain_entry(0, &["body"]));
    let page = decode(&records_head(0, 0, 1), SeqNum::ZERO, &payload, None).unwrap();
    let within = payload.as_ptr_range();
    let record = &page.records[0];
    for slice in [&record.body, &record.headers[0].0, &record.headers[0].1] {
        assert!(within.contains(&slice.as_ptr()));
    }
}

#[test]
fn records_that_a_gap_gave_up_are_crossed() {
    let entries = [plain_entry(0, &["a"]), gap_entry(1, 4), plain_entry(4, &["b"])];
    assert_eq!(found(&page(0, 5, &entries).unwrap()), [(0, "a"), (4, "b")]);
    assert_eq!(found(&page(2, 5, &entries[1..]).unwrap()), [(4, "b")]);
    assert_eq!(page(1, 3, &entries[1..2]).unwrap().records, []);
}

#[test]
fn missing_records_are_never_passed_over() {
    let missing = |from, to| Err(PageError::Missing { from: SeqNum::new(from), to: SeqNum::new(to) });
    assert_eq!(page(0, 3, &[plain_entry(0, &["a"]), plain_entry(2, &["c"])]), missing(1, 2));
    assert_eq!(page(0, 3, &[plain_entry(0, &["a"])]), missing(1, 3));
    assert_eq!(page(0, 1, &[]), missing(0, 1));
    assert_eq!(page(0, 5, &[gap_entry(1, 5)]), missing(0, 5));
    assert_eq!(page(7, 7, &[]).unwrap().records, []);
}

#[test]
fn entries_of_another_stream_are_refused() {
    let head = records_head(0, 0, 1);
    let payload = Bytes::from(plain_entry(0, &["a"]));
    let other = StreamId::from_bytes([8; 16]);
    let error = decode(&head, head.start, &payload, Some(other)).unwrap_err();
    assert_eq!(error, PageError::Stream { expected: other, found: STREAM });
}

#[test]
fn no_flipped_bit_gets_through() {
    let entry = plain_entry(0, &["some", "records"]);
    let good = page(0, 2, std::slice::from_ref(&entry)).unwrap();
    for at in 0..entry.len() {
        let mut damaged = entry.clone();
        damaged[at] ^= 0x10;
        let judged = page(0, 2, &[damaged]);
        assert!(judged.is_err() || judged == Ok(good.clone()), "byte {at}");
    }
}

proptest! {
    #[test]
    fn stamps_are_those_that_the_leader_gives(
        arrival_ms in -50..50_i64, previous_ms in -50..50_i64, capped: bool, client_stamps: bool,
        stamps in prop::collection::vec(prop::option::of(-60..60_i64), 1..8),
    ) {
        let stamping = Stamping { arrival_ms, previous_ms, capped, client_stamps };
        let records: Vec<_> = stamps.iter().map(|stamp| (*stamp, "x")).collect();
        let page = page(3, 3 + stamps.len() as u64, &[entry(3, stamping, &records)]).unwrap();
        let mut before = previous_ms;
        for (record, sent) in page.records.iter().zip(stamps) {
            before = stamping.effective(sent, before);
            prop_assert_eq!(record.timestamp_ms, before);
        }
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..300), from in 0..10_u64, len in 0..10_u64) {
        let head = records_head(0, from, from + len);
        let _ = decode(&head, head.start, &Bytes::from(bytes), None);
    }
}
