use proptest::prelude::*;

use super::*;
use crate::batch::BatchBuilder;
use crate::entry::{BatchHead, Numbered, Place, Stamping, Verb, batch_entry_bytes, encode_batch};
use crate::handoff::ParcelItem;

fn header(kind: ObjectKind) -> ObjectHeader {
    ObjectHeader {
        kind,
        cluster: ClusterId::from_bytes(*b"0123456789abcdef"),
        star: StarId::from_bytes(*b"fedcba9876543210"),
        incarnation: Epoch::new(7),
        position: 42,
        slot: Slot::default(),
        created_ms: 1_700_000_000_000,
    }
}

/// Which stream of which slot, and where in it.
#[derive(Debug, Clone, Copy)]
struct Spot {
    slot: u8,
    stream: u8,
    epoch: u64,
    rev: u64,
}

impl Spot {
    fn place(self) -> Place {
        Place {
            stream_id: StreamId::from_bytes([self.stream; 16]),
            slot: Slot::new(self.slot).unwrap(),
            slot_epoch: Epoch::new(self.epoch),
            rev: Rev::new(self.rev),
        }
    }

    fn item(self, entry: &[u8], content_bytes: u32, first_ms: i64) -> ParcelItem {
        let Place { slot, stream_id, .. } = self.place();
        ParcelItem { slot, stream_id, bytes: u32::try_from(entry.len()).unwrap(), content_bytes, first_ms }
    }
}

pub(crate) type Given = (ParcelItem, Vec<u8>);

/// Two records from ten times the rev on, that arrived at a hundred times the rev.
fn batch(spot: Spot) -> Given {
    let mut builder = BatchBuilder::new();
    for body in ["one", "three"] {
        builder.push::<&str, &str>(None, &[], body.as_bytes()).unwrap();
    }
    let mut bytes = Vec::new();
    let batch_crc = builder.finish(&mut bytes).unwrap();
    let arrival_ms = i64::try_from(spot.rev).unwrap() * 100;
    let head = BatchHead {
        place: spot.place(),
        first: SeqNum::new(spot.rev * 10),
        records: 2,
        stamping: Stamping { arrival_ms, previous_ms: 0, capped: true, client_stamps: true },
        last_ms: arrival_ms,
        numbered: Numbered::default(),
        session_epoch: 0,
        batch_crc,
    };
    let mut entry = vec![0; batch_entry_bytes(bytes.len())];
    encode_batch(&head, &bytes, &mut entry);
    (spot.item(&entry, 8, arrival_ms - 1), entry)
}

fn verb(spot: Spot) -> Given {
    let entry = Verb::Trim { to: SeqNum::new(3) }.encode(spot.place());
    (spot.item(&entry, 0, 0), entry)
}

const fn spot(slot: u8, stream: u8, epoch: u64, rev: u64) -> Spot {
    Spot { slot, stream, epoch, rev }
}

pub(crate) fn given() -> Vec<Given> {
    vec![
        batch(spot(9, 2, 5, 1)),
        batch(spot(3, 7, 5, 4)),
        verb(spot(9, 2, 5, 2)),
        batch(spot(9, 1, 5, 8)),
        batch(spot(9, 2, 5, 3)),
        batch(spot(9, 2, 6, 4)),
        verb(spot(3, 6, 5, 2)),
    ]
}

fn settles() -> [Settles; 2] {
    let log = |id| LogId::from_bytes([id; 16]);
    [
        Settles { log: log(1), from: Lsn::new(10), to: Lsn::new(17) },
        Settles { log: log(2), from: Lsn::new(5), to: Lsn::new(5) },
    ]
}

pub(crate) fn built(given: &[Given]) -> Built {
    let mut builder = ObjectBuilder::new(header(ObjectKind::Chunk));
    assert!(builder.is_empty());
    given.iter().for_each(|(item, entry)| builder.push(item, entry));
    settles().into_iter().for_each(|settles| builder.settles(settles));
    assert_eq!(builder.is_empty(), given.is_empty());
    let body_bytes = builder.body_bytes();
    let built = builder.finish();
    assert_eq!(body_bytes, built.footer.extents.iter().map(|row| row.bytes as usize).sum());
    built
}

fn extent<'a>(row: &ExtentRow, object: &'a [u8]) -> &'a [u8] {
    &object[row.offset as usize..(row.offset + row.bytes) as usize]
}

fn decode(bytes: &[u8]) -> Result<Footer, ObjectError> {
    Footer::decode_suffix(bytes, bytes.len() as u64)
}

#[test]
fn entries_are_grouped_by_slot_and_stream_and_split_where_the_epoch_changes() {
    let given = given();
    let Built { bytes, footer } = built(&given);
    let rows: Vec<_> = footer.extents.iter().map(|row| (row.slot.get(), row.stream_id.to_bytes()[0])).collect();
    assert_eq!(rows, [(3, 6), (3, 7), (9, 1), (9, 2), (9, 2)]);
    let row = &footer.extents[3];
    assert_eq!((row.slot_epoch, row.first_rev, row.last_rev), (Epoch::new(5), Rev::new(1), Rev::new(3)));
    assert_eq!((row.has_records, row.first, row.end), (true, SeqNum::new(10), SeqNum::new(32)));
    assert_eq!((row.first_ms, row.last_ms, row.arrival_ms), (99, 300, 300));
    assert_eq!((row.content_bytes, row.entries), (16, 3));
    let found: Vec<&[u8]> = entries(extent(row, &bytes)).map(|entry| entry.unwrap().1).collect();
    assert_eq!(found, [&given[0].1, &given[2].1, &given[4].1]);
    assert_eq!(footer.extents[4].slot_epoch, Epoch::new(6));
    let verbs = &footer.extents[0];
    assert_eq!((verbs.has_records, verbs.first, verbs.end, verbs.first_ms), (false, SeqNum::ZERO, SeqNum::ZERO, 0));
}

#[test]
fn revs_with_a_gap_or_out_of_order_lie_in_extents_of_their_own() {
    let given = [4, 5, 9, 1, 2].map(|rev| batch(spot(0, 1, 5, rev)));
    let revs: Vec<_> =
        built(&given).footer.extents.iter().map(|row| (row.first_rev.get(), row.last_rev.get())).collect();
    assert_eq!(revs, [(1, 2), (4, 5), (9, 9)]);
}

#[test]
fn an_extent_ends_where_it_is_told_to() {
    let given = [1, 2, 3].map(|rev| batch(spot(0, 1, 5, rev)));
    let mut builder = ObjectBuilder::new(header(ObjectKind::Bundle));
    builder.end_extent(spot(0, 1, 5, 1).place().slot, spot(0, 1, 5, 1).place().stream_id);
    for (item, entry) in &given {
        builder.push(item, entry);
        builder.end_extent(item.slot, StreamId::from_bytes([2; 16]));
        if item.first_ms == given[1].0.first_ms {
            builder.end_extent(item.slot, item.stream_id);
        }
    }
    let built = builder.finish();
    let revs = built.footer.extents.iter().map(|row| (row.first_rev.get(), row.last_rev.get()));
    assert_eq!(revs.collect::<Vec<_>>(), [(1, 2), (3, 3)]);
    assert_eq!(decode(&built.bytes), Ok(built.footer));
}

#[test]
fn an_object_reads_as_it_was_built() {
    let Built { bytes, footer } = built(&given());
    assert_eq!(decode(&bytes), Ok(footer.clone()));
    assert_eq!(ObjectHeader::decode(&bytes), Ok(header(ObjectKind::Chunk)));
    assert_eq!(footer.settles, settles());
    for row in &footer.extents {
        assert_eq!(check_extent(row, extent(row, &bytes)), Ok(()));
    }
}

#[test]
fn a_suffix_that_is_too_short_says_how_much_is_needed() {
    let Built { bytes, footer } = built(&given());
    let object_bytes = bytes.len() as u64;
    let suffix = |len: usize| Footer::decode_suffix(&bytes[bytes.len() - len..], object_bytes);
    let needed = 5 * EXTENT_ROW_BYTES + 2 * SETTLES_ROW_BYTES + TRAILER_BYTES;
    assert_eq!(suffix(10), Err(ObjectError::NeedMore { bytes: TRAILER_BYTES as u64 }));
    assert_eq!(suffix(TRAILER_BYTES), Err(ObjectError::NeedMore { bytes: needed as u64 }));
    assert_eq!(suffix(needed - 1), Err(ObjectError::NeedMore { bytes: needed as u64 }));
    assert_eq!(suffix(needed), Ok(Footer { header: None, ..footer }));
}

#[test]
fn a_fence_is_a_head_and_an_end() {
    let built = ObjectBuilder::new(header(ObjectKind::Fence)).finish();
    assert_eq!(built.bytes.len(), HEADER_BYTES + TRAILER_BYTES);
    let footer = Footer { header: Some(header(ObjectKind::Fence)), extents: Vec::new(), settles: Vec::new() };
    assert_eq!(decode(&built.bytes), Ok(footer));
}

#[test]
fn any_flipped_bit_is_found_by_the_sum_of_its_part() {
    let Built { bytes, footer } = built(&given());
    let is_found = |bad: &[u8]| {
        decode(bad).map_or(true, |footer| footer.extents.iter().any(|row| check_extent(row, extent(row, bad)).is_err()))
    };
    assert!(!is_found(&bytes));
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(is_found(&bad), "bit {bit}");
        assert_eq!(ObjectHeader::decode(&bad).is_err(), bit / 8 < HEADER_BYTES, "bit {bit}");
    }
    let row = &footer.extents[0];
    let cut = &extent(row, &bytes)[1..];
    assert!(matches!(check_extent(row, cut), Err(ObjectError::Short { what: "extent", .. })));
}

#[test]
fn an_object_cut_or_grown_is_refused() {
    let bytes = built(&given()).bytes;
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    let length = |object_bytes| Footer::decode_suffix(&bytes, object_bytes);
    assert!(matches!(length(bytes.len() as u64 + 1), Err(ObjectError::Length { .. })));
    assert!(matches!(length(bytes.len() as u64 - 1), Err(ObjectError::Length { .. })));
}

#[test]
fn a_header_of_another_build_is_refused_by_what_differs() {
    let with = |at: usize, value: u16| {
        let mut bytes = header(ObjectKind::Bundle).to_bytes();
        put_u16(&mut bytes, at, value);
        let sum = crc32c(&bytes[..HEADER_CRC_AT]);
        put_u32(&mut bytes, HEADER_CRC_AT, sum);
        ObjectHeader::decode(&bytes).unwrap_err()
    };
    assert_eq!(with(4, 2), ObjectError::Format { found: 2 });
    assert_eq!(with(6, 5), ObjectError::Kind { found: 5 });
    assert_eq!(with(64, 64), ObjectError::Slot { found: 64 });
    assert_eq!((with(66, 1), with(90, 1 << 15)), (unknown("header"), unknown("header")));
    assert!(matches!(with(0, 0), ObjectError::Magic { what: "header", .. }));
}

const fn unknown(what: &'static str) -> ObjectError {
    ObjectError::Unknown { what }
}

#[test]
fn a_footer_that_says_what_this_build_does_not_know_is_refused_though_its_sums_hold() {
    let Built { bytes, footer } = built(&given());
    let trailer_at = bytes.len() - TRAILER_BYTES;
    let rows_at = trailer_at - 5 * EXTENT_ROW_BYTES - 2 * SETTLES_ROW_BYTES;
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        let sum = crc32c(&bytes[rows_at..trailer_at]);
        put_u32(&mut bytes, trailer_at + 24, sum);
        let sum = crc32c(&bytes[trailer_at..trailer_at + 40]);
        put_u32(&mut bytes, trailer_at + 40, sum);
        decode(&bytes)
    };
    let flags_at = rows_at + EXTENT_ROW_BYTES + 2;
    assert_eq!(with(flags_at, 1), Ok(footer));
    assert_eq!(with(flags_at, 3), Err(ObjectError::Row { row: 1, what: "its flags are unknown" }));
    assert_eq!(
        (with(trailer_at + 28, 1), with(trailer_at + 39, 1)),
        (Err(unknown("trailer")), Err(unknown("trailer")))
    );
}

/// An object whose footer holds other rows than its builder made, with sums that hold.
fn with_rows(change: impl Fn(&mut Footer)) -> Result<Footer, ObjectError> {
    let Built { mut bytes, mut footer } = built(&given());
    bytes.truncate(HEADER_BYTES + footer.extents.iter().map(|row| row.bytes as usize).sum::<usize>());
    change(&mut footer);
    footer.encode(&mut bytes);
    decode(&bytes)
}

#[test]
fn rows_that_contradict_each_other_are_refused_though_the_sum_holds() {
    let row = |result| match result {
        Err(ObjectError::Row { row, what }) => (row, what),
        other => panic!("{other:?}"),
    };
    assert!(with_rows(|_| ()).is_ok());
    let order = with_rows(|footer| footer.extents[1].slot = Slot::default());
    assert_eq!(row(order), (1, "it is out of order"));
    let gap = with_rows(|footer| footer.extents[2].offset += 1);
    assert_eq!(row(gap), (2, "its extent does not start where the one before ends"));
    let short = with_rows(|footer| footer.extents[4].bytes -= 1);
    assert_eq!(row(short), (5, "the extents do not end where the footer begins"));
    let verbs = with_rows(|footer| footer.extents[1].has_records = false);
    assert_eq!(row(verbs), (1, "it has no records and says where they are"));
}

#[test]
fn a_row_whose_range_is_empty_or_goes_backwards_is_refused_with_its_ends() {
    let range = |change: &dyn Fn(&mut Footer)| match with_rows(change) {
        Err(ObjectError::Range { row, what, from, to }) => (row, what, from, to),
        other => panic!("{other:?}"),
    };
    let seq_num = SeqNum::new;
    assert_eq!(range(&|footer| footer.extents[0].last_rev = Rev::ZERO), (0, "revs", 2, 0));
    assert_eq!(range(&|footer| footer.extents[1].end = seq_num(40)), (1, "records", 40, 40));
    assert_eq!(range(&|footer| footer.extents[1].first = seq_num(43)), (1, "records", 43, 42));
    assert_eq!(range(&|footer| footer.extents[1].entries = 0), (1, "entries", 0, 0));
    assert_eq!(range(&|footer| footer.settles[1].to = Lsn::ZERO), (6, "settled LSNs", 5, 0));
}

#[test]
#[should_panic(expected = "the stream and length of an entry")]
fn an_entry_of_another_stream_is_not_taken() {
    let (_, entry) = batch(spot(0, 1, 1, 1));
    let item = spot(0, 2, 1, 1).item(&entry, 8, 0);
    ObjectBuilder::new(header(ObjectKind::Chunk)).push(&item, &entry);
}

#[test]
fn entries_whose_lengths_do_not_add_up_end_with_an_error() {
    let Built { bytes, footer } = built(&given());
    let whole = extent(&footer.extents[3], &bytes);
    let errors = |bytes: &[u8]| entries(bytes).filter(Result::is_err).count();
    assert_eq!((entries(whole).count(), errors(whole)), (3, 0));
    for len in [1, 3, 4, 100, whole.len() - 1] {
        assert_eq!(errors(&whole[..len]), 1, "{len} bytes");
    }
    let mut longer = whole[..ENTRY_PREFIX_BYTES + u32_at(whole, 0) as usize].to_vec();
    longer.push(0);
    let entry_bytes = u32_at(whole, 0) + 1;
    put_u32(&mut longer, 0, entry_bytes);
    let what = "its own and the one before it";
    assert_eq!(entries(&longer).next().unwrap(), Err(EntryError::Length { what }));
}

#[test]
fn the_bytes_of_objects_are_golden() {
    let sums = [built(&given()).bytes, built(&[]).bytes].map(|bytes| {
        let body = HEADER_BYTES..bytes.len() - TRAILER_BYTES;
        (bytes.len(), u32_at(&bytes, HEADER_CRC_AT), crc32c(&bytes[body]), u32_at(&bytes, bytes.len() - 8))
    });
    assert_eq!(sums, GOLDEN, "a layout changed: it needs a new format");
}

const GOLDEN: [(usize, u32, u32, u32); 2] =
    [(1700, 2374689201, 794530665, 2966244244), (208, 2374689201, 239857725, 3823127152)];

proptest! {
    #[test]
    fn whatever_is_pushed_comes_back_in_the_order_of_its_stream(
        picks in prop::collection::vec((0..3u8, 0..4u8, any::<bool>(), prop::bool::weighted(0.1)), 0..60),
    ) {
        let mut state = std::collections::BTreeMap::<(u8, u8), (u64, u64)>::new();
        let mut pushed = std::collections::BTreeMap::<(u8, u8), Vec<Vec<u8>>>::new();
        let mut given = Vec::new();
        for (slot, stream, is_verb, new_epoch) in picks {
            let (epoch, rev) = state.entry((slot, stream)).or_insert((1, 0));
            *epoch += u64::from(new_epoch);
            *rev += 1;
            let spot = spot(slot, stream, *epoch, *rev);
            let (item, entry) = if is_verb { verb(spot) } else { batch(spot) };
            pushed.entry((slot, stream)).or_default().push(entry.clone());
            given.push((item, entry));
        }
        let Built { bytes, footer } = built(&given);
        prop_assert_eq!(decode(&bytes), Ok(footer.clone()));
        let mut found = std::collections::BTreeMap::<(u8, u8), Vec<Vec<u8>>>::new();
        for row in &footer.extents {
            prop_assert_eq!(check_extent(row, extent(row, &bytes)), Ok(()));
            let list = found.entry((row.slot.get(), row.stream_id.to_bytes()[0])).or_default();
            for entry in entries(extent(row, &bytes)) {
                let (entry, bytes) = entry.unwrap();
                prop_assert_eq!(entry.place().slot_epoch, row.slot_epoch);
                list.push(bytes.to_vec());
            }
        }
        prop_assert_eq!(found, pushed);
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..300), object_bytes in any::<u64>()) {
        let _ = (ObjectHeader::decode(&bytes), decode(&bytes), Footer::decode_suffix(&bytes, object_bytes));
        entries(&bytes).for_each(drop);
    }

    #[test]
    fn a_mutated_object_is_judged(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)) {
        let mut bytes = built(&given()).bytes;
        let end = bytes.len();
        for (at, value) in edits {
            bytes[end - TRAILER_BYTES..][at.index(CRC_AT)] = value;
        }
        let sum = crc32c(&bytes[end - TRAILER_BYTES..end - 8]);
        put_u32(&mut bytes, end - 8, sum);
        let _ = decode(&bytes);
    }
}

const CRC_AT: usize = TRAILER_BYTES - 8;
