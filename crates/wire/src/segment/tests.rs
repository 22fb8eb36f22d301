use proptest::prelude::*;

use super::*;

fn sample() -> SegmentHeader {
    SegmentHeader {
        log: LogId::from_bytes(*b"0123456789abcdef"),
        segment: SegmentId::new(9),
        salt: 0x1122_3344_5566_7788,
        epoch: Epoch::new(3),
        bytes: 64 << 20,
    }
}

fn encoded() -> Vec<u8> {
    let mut bytes = vec![0xEE; BLOCK_BYTES];
    sample().encode(&mut bytes);
    bytes
}

#[test]
fn the_header_keeps_its_golden_bytes() {
    let golden = include_bytes!("../../golden/segment_header.bin");
    let bytes = encoded();
    assert_eq!(&bytes[..HEADER_BYTES], golden);
    assert!(bytes[HEADER_BYTES..].iter().all(|&byte| byte == 0), "the rest of the block is zero");
    assert_eq!(SegmentHeader::decode(golden), Ok(sample()));
}

#[test]
fn any_flipped_bit_is_found() {
    for bit in 0..HEADER_BYTES * 8 {
        let mut bad = encoded();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
    }
}

#[test]
fn another_version_is_refused() {
    for (at, version) in [(8, 3), (10, 1), (15, 1), (60, 1), (71, 1)] {
        let mut bytes = encoded();
        bytes[at] |= 2;
        let crc = crc32c(&bytes[8..HEADER_BYTES]);
        put_u32(&mut bytes, 4, crc);
        assert_eq!(SegmentHeader::decode(&bytes), Err(SegmentHeaderError::Version { version }), "byte {at}");
    }
}

proptest! {
    #[test]
    fn a_header_round_trips(log in any::<[u8; 16]>(), numbers in any::<[u64; 3]>(), bytes in any::<u32>()) {
        let header = SegmentHeader {
            log: LogId::from_bytes(log),
            segment: SegmentId::new(numbers[0]),
            salt: numbers[1],
            epoch: Epoch::new(numbers[2]),
            bytes,
        };
        let mut block = [0; BLOCK_BYTES];
        header.encode(&mut block);
        prop_assert_eq!(SegmentHeader::decode(&block), Ok(header));
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = SegmentHeader::decode(&bytes);
    }
}
