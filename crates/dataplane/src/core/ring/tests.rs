//! What the ring still has is what was written.

use proptest::prelude::*;

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

/// What the log does with the next entry before it is kept.
#[derive(Debug, Clone, Copy)]
enum Jump {
    None,
    /// It goes behind the header of another frame.
    Frame,
    /// It goes to the next segment.
    Segment,
}

fn entry() -> impl Strategy<Value = (u32, Jump)> {
    (0..250_u32, prop_oneof![6 => Just(Jump::None), 2 => Just(Jump::Frame), 1 => Just(Jump::Segment)])
}

const RING_BYTES: usize = 1_000;

/// Entries that were kept, each with its place and the byte that all of it is.
#[derive(Default)]
struct Kept(Vec<(u64, u32, u32, u8)>);

impl Kept {
    fn add(&mut self, ring: &mut Ring, bytes: u32, jump: Jump) {
        let (segment, end) = self.0.last().map_or((1, 4_096), |(segment, offset, bytes, _)| (*segment, offset + bytes));
        let (segment, offset) = match jump {
            Jump::None => (segment, end + 4),
            Jump::Frame => (segment, end.next_multiple_of(4_096) + 84),
            Jump::Segment => (segment + 1, 4_096 + 84),
        };
        let byte = u8::try_from(self.0.len() % 251).unwrap();
        push(ring, pos(segment, offset, bytes), &vec![byte; bytes as usize]);
        self.0.push((segment, offset, bytes, byte));
    }

    /// Each is found whole and right, or not at all; the last one always.
    fn check(&self, ring: &Ring) {
        for (at, (segment, offset, bytes, byte)) in self.0.iter().enumerate() {
            let need = 4 + *bytes as usize;
            let found = ring.get(SegmentId::new(*segment), offset - 4, *bytes + 4);
            if let Some(found) = found {
                assert_eq!((found[..4].to_vec(), found.len()), (bytes.to_le_bytes().to_vec(), need));
                assert!(found[4..].iter().all(|found| found == byte), "{byte} at {offset} of {segment}");
            }
            assert!(found.is_some() || at + 1 < self.0.len(), "the last entry is not there");
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_found_is_right(entries in prop::collection::vec(entry(), 1..120)) {
        let (mut ring, mut kept) = (small(RING_BYTES), Kept::default());
        for (bytes, jump) in entries {
            kept.add(&mut ring, bytes, jump);
            kept.check(&ring);
        }
    }
}
