use proptest::prelude::*;

use super::*;

fn sample() -> FrameHeader {
    FrameHeader {
        seal: false,
        entries: 2,
        first_lsn: Lsn::new(7),
        durable_lsn: Lsn::new(5),
        epoch: Epoch::new(3),
        segment: SegmentId::new(9),
        salt: 0x1122_3344_5566_7788,
        offset: 8192,
        body_bytes: 13,
        body_crc: 0xAABB_CCDD,
        prev_header_crc: 0x0102_0304,
    }
}

fn frame_of(entries: &[&[u8]]) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    for entry in entries {
        let mut prefix = [0; ENTRY_PREFIX_BYTES];
        put_entry_prefix(&mut prefix, entry.len());
        frame.extend_from_slice(&prefix);
        frame.extend_from_slice(entry);
    }
    let body = &frame[HEADER_BYTES..];
    let header = FrameHeader {
        entries: u32::try_from(entries.len()).unwrap(),
        body_bytes: u32::try_from(body.len()).unwrap(),
        body_crc: crc32c(body),
        ..sample()
    };
    header.encode(&mut frame);
    frame
}

#[test]
fn the_header_keeps_its_golden_bytes() {
    let mut bytes = [0; HEADER_BYTES];
    let crc = sample().encode(&mut bytes);
    let golden = include_bytes!("../../golden/log_frame_header.bin");
    assert_eq!(&bytes, golden);
    assert_eq!(crc, u32_at(golden, CRC_AT));
    assert_eq!(FrameHeader::decode(golden), Ok(sample()));
}

#[test]
fn entries_come_back_with_their_offsets() {
    let frame = frame_of(&[b"one", b"", b"three"]);
    let header = FrameHeader::decode(&frame).unwrap();
    assert!(header.body_holds(&frame));
    let entries: Vec<_> = header.entries(&frame).collect();
    assert_eq!(entries, [(84, &b"one"[..]), (91, b""), (95, b"three")]);
}

#[test]
fn any_flipped_bit_is_found() {
    let frame = frame_of(&[b"one", b"two"]);
    for bit in 0..frame.len() * 8 {
        let mut bad = frame.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!FrameHeader::decode(&bad).is_ok_and(|header| header.body_holds(&bad)), "bit {bit}");
    }
}

#[test]
fn zeroed_space_is_no_frame() {
    assert_eq!(FrameHeader::decode(&[0; BLOCK_BYTES]), Err(FrameHeaderError::Absent));
    assert_eq!(FrameHeader::decode(&[]), Err(FrameHeaderError::Short { bytes: 0 }));
}

fn refused_with(change: impl FnOnce(&mut [u8])) -> FrameHeaderError {
    let mut bytes = [0; HEADER_BYTES];
    sample().encode(&mut bytes);
    change(&mut bytes);
    let crc = crc32c(&bytes[..CRC_AT]);
    put_u32(&mut bytes, CRC_AT, crc);
    FrameHeader::decode(&bytes).unwrap_err()
}

#[test]
fn another_version_or_flag_is_refused() {
    assert_eq!(refused_with(|bytes| bytes[4] = 2), FrameHeaderError::Version { version: 2 });
    assert_eq!(refused_with(|bytes| bytes[6] = 96), FrameHeaderError::Version { version: 1 });
    assert_eq!(refused_with(|bytes| bytes[8] = 4), FrameHeaderError::Version { version: 1 });
    assert_eq!(refused_with(|bytes| bytes[75] = 1), FrameHeaderError::Version { version: 1 });
}

#[test]
fn lengths_that_cannot_be_are_refused_though_the_sum_holds() {
    let shape = |entries, body_bytes| FrameHeaderError::Shape { entries, body_bytes };
    assert_eq!(refused_with(|bytes| bytes[63] = 0xFF), shape(2, 0xFF00_000D));
    assert_eq!(refused_with(|bytes| bytes[12] = 4), shape(4, 13));
    assert_eq!(refused_with(|bytes| bytes[12] = 0), shape(0, 13));
    assert_eq!(refused_with(|bytes| bytes[16..24].fill(0xFF)), shape(2, 13));
}

proptest! {
    #[test]
    fn a_header_round_trips(
        numbers in proptest::array::uniform4(0..u64::MAX / 2),
        sums in proptest::array::uniform3(any::<u32>()),
        (entries, each, block, seal) in (0u32..1000, 0u32..100, 0u32..1000, any::<bool>()),
    ) {
        let header = FrameHeader {
            seal,
            entries,
            first_lsn: Lsn::new(numbers[0]),
            durable_lsn: Lsn::new(numbers[1]),
            epoch: Epoch::new(numbers[2]),
            segment: SegmentId::new(numbers[3]),
            salt: numbers[0] ^ numbers[1],
            offset: block * 4096,
            body_bytes: entries * (4 + each),
            body_crc: sums[0],
            prev_header_crc: sums[1],
        };
        let mut bytes = [0; HEADER_BYTES];
        header.encode(&mut bytes);
        prop_assert_eq!(FrameHeader::decode(&bytes), Ok(header));
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), summed in any::<bool>()) {
        if summed && bytes.len() >= HEADER_BYTES {
            put_u32(&mut bytes, 0, MAGIC);
            bytes[4..12].copy_from_slice(&[1, 0, 80, 0, 0, 0, 0, 0]);
            bytes[62..64].fill(0);
            let crc = crc32c(&bytes[..CRC_AT]);
            put_u32(&mut bytes, CRC_AT, crc);
        }
        if let Ok(header) = FrameHeader::decode(&bytes) {
            let _ = header.body_holds(&bytes);
            for (at, entry) in header.entries(&bytes) {
                prop_assert!(at + entry.len() <= bytes.len());
            }
        }
    }
}
