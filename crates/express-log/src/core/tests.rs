mod machine;

use std::time::Duration;

use wire::ids::{Epoch, LogId, Lsn, SegmentId};
use wire::log_frame::FrameHeader;
use wire::superblock::{Superblock, SuperblockError};

use super::choice::{Choice, ChoiceError, choose};
use super::pipeline::{Pipeline, Policy};
use super::scan::{Judged, Scan, Span};
use super::space::{Blank, Space, SpaceLimits};
use crate::metrics::CommitTimes;
use crate::room::RoomClass;

fn superblock(sequence: u64, parent_crc: u32, epoch: u64) -> (Vec<u8>, Superblock, u32) {
    let superblock = Superblock {
        clean: false,
        incompat: 0,
        log: LogId::from_bytes([1; 16]),
        sequence,
        parent_crc,
        epoch: Epoch::new(epoch),
        durable_lsn: Lsn::new(5),
        next_segment: SegmentId::new(3),
        first_segment: SegmentId::new(1),
        first_lsn: Lsn::new(1),
        segments: Vec::new(),
    };
    let bytes = superblock.encode(0).unwrap();
    let crc = Superblock::decode(&bytes).unwrap().1;
    (bytes, superblock, crc)
}

fn check(copies: &[&[u8]], expected: Result<Choice, ChoiceError>) {
    assert_eq!(choose(copies), expected);
}

const BLANK: [u8; 4096] = [0; 4096];

#[test]
fn the_newest_copy_that_holds_is_chosen() {
    let (old, old_block, old_crc) = superblock(1, 0, 1);
    let (new, block, crc) = superblock(2, old_crc, 2);
    let mut torn = new.clone();
    torn[60] ^= 1;
    check(&[&new, &old, &old, &old], Ok(Choice::Found(Box::new(block.clone()), crc)));
    check(&[&torn, &new, &old, &torn], Ok(Choice::Found(Box::new(block), crc)));
    check(&[&torn, &old, &old, &old], Ok(Choice::Found(Box::new(old_block), old_crc)));
}

#[test]
fn a_file_that_was_never_written_or_torn_at_the_first_copy_is_fresh() {
    let (mut torn, ..) = superblock(1, 0, 1);
    torn[60] ^= 1;
    check(&[], Ok(Choice::Fresh));
    check(&[&BLANK, &BLANK, &BLANK, &BLANK], Ok(Choice::Fresh));
    check(&[&torn, &BLANK, &BLANK, &BLANK], Ok(Choice::Fresh));
}

#[test]
fn copies_that_were_written_and_do_not_hold_are_not_taken_for_fresh() {
    let (mut torn, ..) = superblock(1, 0, 1);
    torn[60] ^= 1;
    let refused = choose(&[&torn, &torn, &BLANK, &BLANK]);
    assert!(matches!(refused, Err(ChoiceError::NoneHolds { first: SuperblockError::Crc { .. } })), "{refused:?}");
    check(&[&BLANK, &torn, &BLANK, &BLANK], Err(ChoiceError::NoneHolds { first: SuperblockError::Absent }));
}

#[test]
fn two_superblocks_of_one_number_or_without_their_parent_are_refused() {
    let (old, _, old_crc) = superblock(1, 0, 1);
    let (one, ..) = superblock(2, old_crc, 2);
    let (two, ..) = superblock(2, old_crc, 3);
    let (orphan, ..) = superblock(2, old_crc ^ 1, 2);
    check(&[&one, &two, &old, &old], Err(ChoiceError::Forked { sequence: 2 }));
    check(&[&orphan, &old, &old, &old], Err(ChoiceError::Orphan { sequence: 2 }));
}

#[test]
fn the_last_sequence_there_can_be_has_none_behind_it() {
    let (first, ..) = superblock(0, 0, 1);
    let (last, block, crc) = superblock(u64::MAX, 0, 2);
    check(&[&last, &last, &first, &first], Ok(Choice::Found(Box::new(block), crc)));
}

#[test]
fn a_log_of_a_newer_nova_is_refused_though_older_copies_hold() {
    let (old, _, old_crc) = superblock(1, 0, 1);
    let (_, mut newer, _) = superblock(2, old_crc, 2);
    newer.incompat = 1 << 9;
    let newer = newer.encode(0).unwrap();
    check(&[&newer, &old, &old, &old], Err(ChoiceError::Newer(SuperblockError::Incompatible { incompat: 1 << 9 })));
}

/// A pipeline with nothing in it.
fn pipeline() -> Pipeline<Vec<u8>> {
    let limits = SpaceLimits {
        segment_bytes: 1 << 20,
        log_bytes_max: 1 << 30,
        segments_max: 9,
        ready_segments: 1,
        idle_segments: 1,
    };
    let mut space = Space::new(limits, Blank { segment: SegmentId::new(1), salt: 1 }, 1 << 20);
    for id in 2..4 {
        assert!(space.take_wish(false).is_some());
        space.on_made(Blank { segment: SegmentId::new(id), salt: 1 });
    }
    let policy =
        Policy { commits_in_flight: 2, start_bytes: 64 << 10, commit_bytes_max: 1 << 20, pending_bytes_max: 8 << 20 };
    Pipeline::new(policy, Epoch::new(1), space, Lsn::new(1))
}

#[test]
fn a_commit_says_how_long_it_was_written_and_how_long_it_waited_to_be_durable() {
    let us = Duration::from_micros;
    let mut pipeline = pipeline();
    let start = |pipeline: &mut Pipeline<Vec<u8>>, at| {
        pipeline.room(100, RoomClass::Data).unwrap();
        pipeline.append(100, |bytes| vec![0; bytes], |out| out.fill(1));
        pipeline.take_commit(us(at)).unwrap().id
    };
    let (first, second, third) = (start(&mut pipeline, 10), start(&mut pipeline, 20), start(&mut pipeline, 30));
    // The second one is on the disk first, and waits for the first.
    pipeline.on_bytes_written(second, us(50));
    pipeline.on_written(second, us(60));
    assert_eq!(pipeline.next_durable(), None);
    pipeline.on_bytes_written(first, us(90));
    pipeline.on_written(first, us(100));
    assert_eq!(pipeline.next_durable(), Some(Lsn::new(1)));
    assert_eq!(pipeline.commit_times(), CommitTimes { write: us(80), sync: us(10) });
    assert_eq!(pipeline.next_durable(), Some(Lsn::new(2)));
    assert_eq!(pipeline.commit_times(), CommitTimes { write: us(30), sync: us(50) });
    // One whose write made it durable says nothing of its bytes alone.
    pipeline.on_written(third, us(130));
    assert_eq!(pipeline.next_durable(), Some(Lsn::new(3)));
    assert_eq!(pipeline.commit_times(), CommitTimes { write: us(100), sync: us(0) });
}

#[test]
fn a_small_commit_goes_in_place_only_when_the_one_before_was_small_too() {
    let mut pipeline = pipeline();
    let mut commits = 0;
    let mut commit_of = |entry_bytes: usize| {
        pipeline.room(entry_bytes, RoomClass::Data).unwrap();
        pipeline.append(entry_bytes, |bytes| vec![0u8; bytes], |out| out.fill(1));
        let goes_in_place = pipeline.is_small_and_alone(4096);
        pipeline.take_commit(Duration::ZERO).unwrap();
        pipeline.on_written(commits, Duration::ZERO);
        assert!(pipeline.next_durable().is_some());
        commits += 1;
        goes_in_place
    };
    let went: Vec<bool> = [100, 100, 9000, 100, 100].into_iter().map(&mut commit_of).collect();
    assert_eq!(went, [true, true, false, false, true]);
}

const SPAN: Span =
    Span { segment: SegmentId::new(1), salt: 7, epoch: Epoch::new(1), limit: 1 << 20, loss_accepted: false };

fn frame(offset: u32, lsns: std::ops::Range<u64>, durable_lsn: u64) -> FrameHeader {
    FrameHeader {
        seal: false,
        entries: u32::try_from(lsns.end - lsns.start).unwrap(),
        first_lsn: Lsn::new(lsns.start),
        durable_lsn: Lsn::new(durable_lsn),
        epoch: SPAN.epoch,
        segment: SPAN.segment,
        salt: SPAN.salt,
        offset,
        body_bytes: 100,
        body_crc: 0,
        prev_header_crc: 0,
    }
}

fn lost(scan: &Scan) -> Vec<(u64, u64, bool)> {
    scan.damages().map(|damage| (damage.lsns.start.get(), damage.lsns.end.get(), damage.accepted)).collect()
}

#[test]
fn what_a_later_frame_tells_of_a_loss_counts_for_it() {
    let mut scan = Scan::new(Lsn::new(1), Lsn::ZERO);
    assert_eq!(scan.on_frame(&SPAN, &frame(4096, 1..2, 0)), Judged::Deliver);
    scan.on_hole(&SPAN, 8192, true);
    assert_eq!(scan.on_frame(&SPAN, &frame(12288, 4..5, 2)), Judged::Deliver);
    assert_eq!(lost(&scan), [(2, 3, false)]);
    assert_eq!(scan.on_frame(&SPAN, &frame(16384, 5..6, 4)), Judged::Deliver);
    assert_eq!(lost(&scan), [(2, 4, false)]);
}

#[test]
fn a_durable_lsn_that_no_log_reaches_is_a_loss_of_all_up_to_it() {
    let told_by_superblock = Scan::new(Lsn::new(1), Lsn::new(u64::MAX));
    let mut told_by_frame = Scan::new(Lsn::new(1), Lsn::ZERO);
    assert_eq!(told_by_frame.on_frame(&SPAN, &frame(4096, 1..2, u64::MAX)), Judged::Deliver);
    for (mut scan, first) in [(told_by_superblock, 1), (told_by_frame, 2)] {
        scan.on_end((SegmentId::new(2), 4096));
        assert_eq!(lost(&scan), [(first, u64::MAX, false)]);
    }
}

#[test]
fn what_is_lost_of_a_segment_whose_end_is_known_is_no_part_of_its_neighbours_loss() {
    let accepted = Span { segment: SegmentId::new(2), loss_accepted: true, ..SPAN };
    let next = Span { segment: SegmentId::new(3), ..SPAN };
    let mut scan = Scan::new(Lsn::new(1), Lsn::new(9));
    scan.on_known_end(&SPAN, 8192, Lsn::new(4));
    scan.on_known_end(&accepted, 4096, Lsn::new(7));
    scan.on_known_end(&next, 4096, Lsn::new(9));
    scan.on_end((SegmentId::new(4), 4096));
    assert_eq!(lost(&scan), [(1, 4, false), (4, 7, true), (7, 9, false), (9, 10, false)]);
}
