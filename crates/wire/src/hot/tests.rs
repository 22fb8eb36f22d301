//! The heads of the hot frames.

use proptest::prelude::*;

use super::*;

fn position(seq_num: u64, timestamp_ms: i64) -> Position {
    Position::new(SeqNum::new(seq_num), timestamp_ms)
}

#[test]
fn acks_come_back_in_their_groups() {
    let mut out = Vec::new();
    let mut writer = AckWriter::new();
    let acks = [1, 2, 3].map(|no| Ack { no: BatchNo::new(no), start: position(no * 10, 5), records: 2, last_ms: 6 });
    writer.begin_group(7, Class::Express, &mut out);
    writer.push(&acks[0], &mut out);
    writer.push(&acks[1], &mut out);
    writer.end_group(position(99, 9), &mut out);
    writer.begin_group(8, Class::Standard, &mut out);
    writer.push(&acks[2], &mut out);
    writer.end_group(position(98, 8), &mut out);
    let mut found = Vec::new();
    walk_acks(&out, |group, ack| found.push((group.session, group.class, group.tail, ack))).unwrap();
    assert_eq!(
        found,
        vec![
            (7, Class::Express, position(99, 9), acks[0]),
            (7, Class::Express, position(99, 9), acks[1]),
            (8, Class::Standard, position(98, 8), acks[2]),
        ]
    );
    assert_eq!(found[0].3.end(), position(12, 6));
    for cut in 1..out.len() {
        if cut != GROUP_BYTES + 2 * ACK_BYTES {
            assert_eq!(walk_acks(&out[..cut], |_, _| ()), Err(BadHead), "{cut}");
        }
    }
}

#[test]
fn an_ack_of_records_past_the_last_number_is_refused() {
    let check = |start: u64, records: u32, wanted: Result<(), BadHead>| {
        let (mut out, mut writer) = (Vec::new(), AckWriter::new());
        writer.begin_group(7, Class::Express, &mut out);
        writer.push(&Ack { no: BatchNo::new(1), start: position(start, 5), records, last_ms: 6 }, &mut out);
        writer.end_group(position(9, 9), &mut out);
        assert_eq!(walk_acks(&out, |_, ack| assert!(ack.end().seq_num >= ack.start.seq_num)), wanted);
    };
    check(u64::MAX - 2, 2, Ok(()));
    check(u64::MAX - 1, 2, Err(BadHead));
}

proptest! {
    #[test]
    fn an_append_head_comes_back(session: u32, no: u64, expected in prop::option::of(any::<u64>()), resent: bool, batch_crc: u32) {
        let head = AppendHead { session, no: BatchNo::new(no), match_seq_num: expected.map(SeqNum::new), resent, batch_crc };
        prop_assert_eq!(AppendHead::decode(&head.encode()), Ok(head));
        prop_assert_eq!(AppendHead::decode_on_terms(&head.encode()), Ok((head, Terms::default())));
        let terms = Terms { chained: true, ..Terms::default() };
        let on_terms = head.encode_on(&terms.to_bytes());
        prop_assert_eq!(AppendHead::decode(&on_terms), Err(BadHead));
        prop_assert_eq!(AppendHead::decode_on_terms(&on_terms), Ok((head, terms)));
        prop_assert!(AppendHead::decode_on_terms(&on_terms[..APPEND_HEAD_BYTES]).is_err());
        prop_assert!(AppendHead::decode_on_terms(&[&head.encode()[..], &[4, 0]].concat()).is_err());
    }

    #[test]
    fn a_records_head_comes_back(subscription: u32, at_tail: bool, start in 0..u64::MAX / 2, len: u32, tail: u64, ms: i64) {
        let head = RecordsHead {
            subscription,
            at_tail,
            start: SeqNum::new(start),
            end: SeqNum::new(start + u64::from(len)),
            tail: position(tail, ms),
            trim_point: SeqNum::new(start),
        };
        prop_assert_eq!(RecordsHead::decode(&head.encode()), Ok(head));
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (AppendHead::decode(&bytes), AppendHead::decode_on_terms(&bytes));
        let _ = RecordsHead::decode(&bytes);
        let _ = walk_acks(&bytes, |_, _| ());
    }
}

#[test]
fn the_bytes_of_the_heads_are_golden() {
    let append =
        AppendHead { session: 1, no: BatchNo::new(2), match_seq_num: Some(SeqNum::new(3)), resent: true, batch_crc: 4 };
    let mut golden = [0; APPEND_HEAD_BYTES];
    for (at, value) in [(0, 1), (4, 3), (8, 2), (16, 3), (24, 4)] {
        golden[at] = value;
    }
    assert_eq!(append.encode(), golden);
    let records = RecordsHead {
        subscription: 1,
        at_tail: true,
        start: SeqNum::new(2),
        end: SeqNum::new(3),
        tail: position(4, 5),
        trim_point: SeqNum::new(6),
    };
    let mut golden = [0; RECORDS_HEAD_BYTES];
    for (at, value) in [(0, 1), (4, 1), (8, 2), (16, 3), (24, 4), (32, 5), (40, 6)] {
        golden[at] = value;
    }
    assert_eq!(records.encode(), golden);
}
