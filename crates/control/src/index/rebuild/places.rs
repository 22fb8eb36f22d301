//! Which of the extents that objects have are the places of a stream's records? Values in, values out.
//!
//! What was copied lies in more than one object for a while, and for ever when a star died in between. The newest copy counts; of the
//! others only what it does not have.

use std::ops::Range;

use wire::chunk::ExtentRow;
use wire::ids::SeqNum;
use wire::stream_row::StreamRow;

/// Records that a loss which was accepted skips, or a multiple of it.
const GAP_RECORDS: u64 = 1 << 32;

/// How much of an extent counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    /// These records of it.
    Records(Range<u64>),
}

/// Places of a stream's records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// The extents, by their place in what was given, and what of each.
    pub(super) chosen: Vec<(usize, Part)>,
    /// Records that are nowhere.
    pub(super) holes: Vec<Range<u64>>,
    /// Records past the tail by an extent: the row is too old.
    pub(super) past_tail: Option<u64>,
}

/// Ranges without overlap, in order.
#[derive(Debug, Default)]
struct Covered(Vec<Range<u64>>);

impl Covered {
    /// What of a range is not covered.
    fn lacks(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut lacks, mut at) = (Vec::new(), range.start);
        let first = self.0.partition_point(|one| one.end <= range.start);
        for one in self.0[first..].iter().take_while(|one| one.start < range.end) {
            if one.start > at {
                lacks.push(at..one.start);
            }
            at = at.max(one.end);
        }
        if at < range.end {
            lacks.push(at..range.end);
        }
        lacks
    }

    /// Covers a range of which nothing is covered.
    fn add(&mut self, range: Range<u64>) {
        let at = self.0.partition_point(|one| one.end <= range.start);
        self.0.insert(at, range);
    }
}

/// Chooses among extents with records of one stream, those that count first coming first.
pub(super) fn choose(row: &StreamRow, extents: &[ExtentRow]) -> Places {
    let (trim_point, tail) = (row.trim_point.get(), row.tail.seq_num.get());
    let (mut places, mut covered) = (Places::default(), Covered::default());
    for (at, extent) in extents.iter().enumerate() {
        let (first, end) = (extent.first.get(), extent.end.get());
        if end > tail {
            places.past_tail = places.past_tail.max(Some(end));
        }
        if end <= trim_point || end > tail {
            continue;
        }
        let wanted = first.max(trim_point)..end;
        let lacks = covered.lacks(wanted.clone());
        for range in &lacks {
            covered.add(range.clone());
        }
        if lacks == [wanted] {
            places.chosen.push((at, Part::Whole));
        } else {
            places.chosen.extend(lacks.into_iter().map(|range| (at, Part::Records(range))));
        }
    }
    places.holes = covered.lacks(trim_point..tail.max(trim_point));
    places.holes.retain(|hole| !(hole.end - hole.start).is_multiple_of(GAP_RECORDS));
    places
}

/// A range of sequence numbers.
pub(super) fn seq_nums(range: &Range<u64>) -> (SeqNum, SeqNum) {
    (SeqNum::new(range.start), SeqNum::new(range.end))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use wire::config::StreamConfig;
    use wire::entry::{Place, Verb};
    use wire::ids::{BucketId, Epoch, Position, Rev, StreamId};
    use wire::names::Key;
    use wire::slot::Slot;

    fn row(trim_point: u64, tail: u64) -> StreamRow {
        let verb = Verb::Create {
            bucket: BucketId::from_bytes([1; 16]),
            key: Key::new("key").unwrap(),
            config: StreamConfig::default(),
            created_at_ms: 0,
        };
        let (stream_id, slot) = (StreamId::default(), Slot::default());
        let place = Place { stream_id, slot, slot_epoch: Epoch::new(1), rev: Rev::new(1) };
        let row = StreamRow::created(place, &verb).unwrap();
        StreamRow { trim_point: SeqNum::new(trim_point), tail: Position::new(SeqNum::new(tail), 0), ..row }
    }

    pub(crate) fn extent(records: &Range<u64>) -> ExtentRow {
        ExtentRow {
            slot: Slot::default(),
            stream_id: StreamId::default(),
            slot_epoch: Epoch::new(1),
            first_rev: Rev::new(1),
            last_rev: Rev::new(1),
            has_records: true,
            first: SeqNum::new(records.start),
            end: SeqNum::new(records.end),
            first_ms: 0,
            last_ms: 0,
            arrival_ms: 0,
            offset: 0,
            bytes: 1,
            content_bytes: 1,
            entries: 1,
            crc: 0,
        }
    }

    fn check(bounds: (u64, u64), extents: &[Range<u64>]) -> Places {
        let extents: Vec<_> = extents.iter().map(extent).collect();
        choose(&row(bounds.0, bounds.1), &extents)
    }

    #[test]
    fn the_first_copy_counts_and_the_others_fill_what_it_lacks() {
        let places = check((0, 30), &[10..20, 0..30, 0..10]);
        let rest = [(1, Part::Records(0..10)), (1, Part::Records(20..30))];
        assert_eq!(places.chosen, [&[(0, Part::Whole)][..], &rest].concat());
        assert!(places.holes.is_empty());
        let places = check((0, 30), &[20..30, 0..10, 5..10, 10..20]);
        assert_eq!(places.chosen, [(0, Part::Whole), (1, Part::Whole), (3, Part::Whole)]);
    }

    #[test]
    fn what_is_trimmed_is_set_aside_and_an_extent_across_the_trim_point_stays_whole() {
        let places = check((15, 30), &[0..10, 0..15, 10..20, 12..18, 20..30]);
        assert_eq!(places.chosen, [(2, Part::Whole), (4, Part::Whole)]);
        assert!(places.holes.is_empty());
        assert_eq!(check((30, 30), &[0..30, 0..30]).chosen, []);
    }

    #[test]
    fn records_that_are_nowhere_are_told_unless_a_loss_was_accepted() {
        assert_eq!(check((5, 40), &[10..20, 25..30]).holes, [5..10, 20..25, 30..40]);
        assert_eq!(check((0, 10), &[4..5, 4..5]).holes, [0..4, 5..10]);
        let to = 20 + 2 * GAP_RECORDS;
        assert!(check((0, to + 5), &[0..20, to..to + 5]).holes.is_empty());
        assert_eq!(check((0, to + 5), &[0..19, to..to + 4]).holes, [19..to, to + 4..to + 5]);
        assert!(check((0, GAP_RECORDS), &[]).holes.is_empty());
    }

    #[test]
    fn a_row_that_is_too_old_is_found_out() {
        let places = check((0, 10), &[0..10, 10..20]);
        assert_eq!((places.past_tail, places.chosen), (Some(20), vec![(0, Part::Whole)]));
    }
}
