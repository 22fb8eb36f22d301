use proptest::prelude::*;

use super::*;

fn sample() -> Superblock {
    let ended = |id, end_offset, loss_accepted| EndedSegment {
        segment: SegmentId::new(id),
        salt: 0x1122_3344_5566_7788,
        epoch: Epoch::new(3),
        end_lsn: Lsn::new(100 * id),
        end_offset,
        loss_accepted,
    };
    Superblock {
        clean: true,
        incompat: 0,
        log: LogId::from_bytes(*b"0123456789abcdef"),
        sequence: 12,
        parent_crc: 0xAABB_CCDD,
        epoch: Epoch::new(4),
        durable_lsn: Lsn::new(799),
        next_segment: SegmentId::new(9),
        first_segment: SegmentId::new(7),
        first_lsn: Lsn::new(650),
        segments: vec![ended(7, 4096 * 20, false), ended(8, 4096 * 3, true)],
    }
}

#[test]
fn the_superblock_keeps_its_golden_bytes() {
    let golden = include_bytes!("../../golden/superblock.bin");
    let bytes = sample().encode(2).unwrap();
    assert_eq!(bytes[..golden.len()], golden[..]);
    assert!(bytes[golden.len()..].iter().all(|&byte| byte == 0), "the rest of the block is zero");
    assert_eq!(bytes.len(), 4096);
    let (decoded, crc) = Superblock::decode(golden).unwrap();
    assert_eq!(decoded, sample());
    assert_eq!(crc, u32_at(golden, 4));
}

#[test]
fn copies_differ_in_their_number_and_sum_alike() {
    let (one, two) = (sample().encode(0).unwrap(), sample().encode(3).unwrap());
    assert_ne!(one, two);
    assert_eq!(Superblock::decode(&one), Superblock::decode(&two));
}

#[test]
fn any_flipped_bit_but_in_the_copy_number_is_found() {
    let bytes = sample().encode(1).unwrap();
    let end = HEADER_BYTES + 2 * SEGMENT_BYTES;
    for bit in (0..end * 8).filter(|bit| !(64..96).contains(bit)) {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&bad).is_err(), "bit {bit}");
    }
}

#[test]
fn a_newer_log_is_refused_by_name() {
    let with = |at: usize, byte: u8| {
        let mut bytes = sample().encode(0).unwrap();
        bytes[at] = byte;
        let crc = crc32c(&bytes[SUMMED_FROM..HEADER_BYTES + 2 * SEGMENT_BYTES]);
        put_u32(&mut bytes, 4, crc);
        Superblock::decode(&bytes).unwrap_err()
    };
    assert_eq!(with(12, 2), SuperblockError::Version { version: 2 });
    assert_eq!(with(14, 2), SuperblockError::Version { version: 1 });
    assert_eq!(with(HEADER_BYTES + SEGMENT_BYTES + 36, 3), SuperblockError::Version { version: 1 });
    assert_eq!(with(16, 5), SuperblockError::Incompatible { incompat: 5 });
}

#[test]
fn as_many_segments_fit_as_it_says_and_no_more() {
    let mut superblock = sample();
    superblock.segments.resize(SEGMENTS_MAX, superblock.segments[0]);
    let bytes = superblock.encode(0).unwrap();
    assert!(bytes.len() <= COPY_BYTES);
    assert_eq!(Superblock::decode(&bytes).unwrap().0, superblock);
    superblock.segments.push(superblock.segments[0]);
    assert_eq!(superblock.encode(0), Err(SuperblockError::TooMany { segments: SEGMENTS_MAX + 1 }));
}

proptest! {
    #[test]
    fn a_superblock_round_trips(
        numbers in any::<[u64; 6]>(),
        (clean, parent_crc, log) in (any::<bool>(), any::<u32>(), any::<[u8; 16]>()),
        ends in proptest::collection::vec((any::<[u64; 4]>(), any::<u32>(), any::<bool>()), 0..200),
    ) {
        let segments = ends
            .into_iter()
            .map(|(ids, end_offset, loss_accepted)| EndedSegment {
                segment: SegmentId::new(ids[0]),
                salt: ids[1],
                epoch: Epoch::new(ids[2]),
                end_lsn: Lsn::new(ids[3]),
                end_offset,
                loss_accepted,
            })
            .collect();
        let superblock = Superblock {
            clean,
            incompat: 0,
            log: LogId::from_bytes(log),
            sequence: numbers[0],
            parent_crc,
            epoch: Epoch::new(numbers[1]),
            durable_lsn: Lsn::new(numbers[2]),
            next_segment: SegmentId::new(numbers[3]),
            first_segment: SegmentId::new(numbers[4]),
            first_lsn: Lsn::new(numbers[5]),
            segments,
        };
        let bytes = superblock.encode(3).unwrap();
        prop_assert_eq!(Superblock::decode(&bytes).unwrap().0, superblock);
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), magic in any::<bool>()) {
        if magic && bytes.len() >= HEADER_BYTES {
            put_u32(&mut bytes, 0, MAGIC);
            put_u32(&mut bytes, 52, 1);
        }
        let _ = Superblock::decode(&bytes);
    }
}
