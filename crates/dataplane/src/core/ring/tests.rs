//! What the ring still has is what was written.

use super::*;

fn pos(segment: u64, offset: u32, bytes: u32) -> EntryPos {
    EntryPos { segment: SegmentId::new(segment), offset, bytes }
}

fn small(ring_bytes: usize) -> Ring {
    Ring { bytes: vec![0; ring_bytes], write_at: 0, spans: VecDeque::new() }
}

fn push(ring: &mut Ring, pos: EntryPos, entry: &[u8]) {
    let _ = ring.push_with(entry.len(), |bytes| bytes.copy_from_slice(entry), |_| ((), pos));
}

#[test]
fn neighbours_are_read_as_one_and_the_oldest_go_first() {
    let mut ring = small(100);
    push(&mut ring, pos(1, 4, 16), &[1; 16]);
    push(&mut ring, pos(1, 24, 16), &[2; 16]);
    let both = ring.get(SegmentId::new(1), 0, 40).unwrap();
    assert_eq!((both[0], both[4], both[24]), (16, 1, 2));
    assert!(ring.get(SegmentId::new(1), 0, 41).is_none());
    push(&mut ring, pos(2, 4, 16), &[3; 16]);
    push(&mut ring, pos(2, 24, 36), &[4; 36]);
    assert_eq!(ring.get(SegmentId::new(2), 20, 40).unwrap()[4..], [4; 36]);
    push(&mut ring, pos(3, 4, 16), &[5; 16]);
    assert!(ring.get(SegmentId::new(1), 0, 40).is_none(), "overwritten");
    assert_eq!(ring.get(SegmentId::new(3), 0, 20).unwrap()[4..], [5; 16]);
}

#[test]
fn whatever_is_found_is_right() {
    let mut ring = small(1000);
    let mut written = Vec::new();
    let (mut offset, mut seed) = (4096u32, 7u32);
    for n in 0..2000u32 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let bytes = 1 + seed % 90;
        if seed.is_multiple_of(7) {
            offset += 512;
        }
        let entry = vec![(n % 251) as u8; bytes as usize];
        push(&mut ring, pos(1, offset + 4, bytes), &entry);
        written.push((offset, entry));
        offset += 4 + bytes;
        let mut found = 0;
        for (offset, entry) in written.iter().rev().take(40) {
            if let Some(bytes) = ring.get(SegmentId::new(1), *offset, 4 + u32::try_from(entry.len()).unwrap()) {
                assert_eq!(bytes[4..], entry[..]);
                found += 1;
            }
        }
        assert!(found > 0);
    }
}
