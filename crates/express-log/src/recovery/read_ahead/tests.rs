//! Segments larger than a window, read in order and out of it.

use std::fs;

use tempfile::TempDir;
use wire::ids::Epoch;

use super::*;
use crate::recovery::replay::BLOCK;

/// A window, as a distance in a file.
const WINDOW: u32 = 8 << 20;
/// One longer than two windows, one that holds no frame, one that fits in a window, one of exactly a window of frames.
const LENGTHS: [u32; 4] = [2 * WINDOW + 5 * BLOCK, FRAMES_AT, 3 * BLOCK, FRAMES_AT + WINDOW];

fn id(number: usize) -> SegmentId {
    SegmentId::new(number as u64 + 1)
}

/// What block `block` of segment `number` is filled with.
fn fill(number: usize, block: u32) -> u32 {
    u32::try_from(number + 1).unwrap() << 24 | block
}

fn segments() -> (TempDir, Files) {
    let dir = tempfile::tempdir().unwrap();
    for (number, bytes) in LENGTHS.into_iter().enumerate() {
        let blocks = (0..bytes / BLOCK).flat_map(|block| fill(number, block).to_le_bytes().repeat(BLOCK_BYTES / 4));
        fs::write(dir.path().join(segment_name(id(number))), blocks.collect::<Vec<_>>()).unwrap();
    }
    let files = Files::new(dir.path().to_owned());
    (dir, files)
}

fn span(number: usize, limit: u32) -> Span {
    Span { segment: id(number), salt: 0, epoch: Epoch::new(1), limit, loss_accepted: false }
}

fn expect_all(files: &mut Files) {
    files.expect(LENGTHS.into_iter().enumerate().map(|(number, limit)| span(number, limit)));
}

/// Reads `blocks` blocks and compares each.
fn check(files: &mut Files, number: usize, at: u32, blocks: u32) {
    let bytes = files.read(id(number), at, (blocks * BLOCK) as usize).unwrap();
    for block in 0..blocks {
        let start = (block * BLOCK) as usize;
        let expected = fill(number, at / BLOCK + block).to_le_bytes();
        assert!(bytes[start..start + BLOCK_BYTES].chunks(4).all(|word| word == expected), "{number} {at} {block}");
    }
}

/// Reads all frames of all segments in steps of different lengths, up to the longest frame.
fn check_all(files: &mut Files) {
    for (number, bytes) in LENGTHS.into_iter().enumerate() {
        let longest = u32::try_from(ASKED_BYTES_MAX).unwrap() / BLOCK;
        let (mut at, mut step) = (FRAMES_AT, 1);
        while at < bytes {
            let blocks = step.min((bytes - at) / BLOCK);
            check(files, number, at, 1);
            check(files, number, at, blocks);
            at += blocks * BLOCK;
            step = (step * 7 + 3) % longest + 1;
        }
    }
}

#[test]
fn every_byte_is_that_of_the_file_whether_or_not_it_was_expected() {
    let (_dir, mut files) = segments();
    check_all(&mut files);
    assert!(files.ahead.is_none());
    expect_all(&mut files);
    check_all(&mut files);
    check_all(&mut files);
}

#[test]
fn a_reader_may_leave_the_order_and_come_back() {
    let (_dir, mut files) = segments();
    expect_all(&mut files);
    let places =
        [(0, 1, 9), (3, 1, 2), (0, 2_040, 20), (0, 4_090, 3), (2, 2, 1), (0, 2_047, 600), (0, 0, 1), (3, 9, 1)];
    for (number, block, blocks) in places {
        check(&mut files, number, block * BLOCK, blocks);
    }
}

/// Which bytes of which segment are read ahead.
fn ahead(files: &mut Files) -> Option<(SegmentId, Range<u64>)> {
    let ahead = files.ahead.take()?;
    let window = ahead.wait().unwrap();
    Some((window.segment, window.offset..window.end()))
}

#[test]
fn one_window_is_read_ahead_and_nothing_behind_the_last_that_is_expected() {
    let (_dir, mut files) = segments();
    let limit = u64::from(2 * WINDOW);
    files.expect([span(0, 2 * WINDOW), span(1, FRAMES_AT), span(2, 2 * BLOCK)].into_iter());
    let (first, window) = (u64::from(FRAMES_AT), WINDOW_BYTES as u64);
    check(&mut files, 0, 0, 1);
    assert_eq!(ahead(&mut files), Some((id(0), first..first + window)));
    check(&mut files, 0, FRAMES_AT, 1);
    assert_eq!(ahead(&mut files), Some((id(0), first + window..limit)), "no further than frames may stand");
    check(&mut files, 0, FRAMES_AT + WINDOW, 1);
    assert_eq!(files.window.end(), limit);
    assert_eq!(ahead(&mut files), Some((id(2), first..2 * first)), "a segment without room for frames is passed over");
    check(&mut files, 2, FRAMES_AT, 1);
    assert_eq!(ahead(&mut files), None);
}

#[test]
fn a_file_that_cannot_be_read_fails_those_who_ask_for_its_bytes() {
    let (dir, mut files) = segments();
    expect_all(&mut files);
    fs::remove_file(dir.path().join(segment_name(id(2)))).unwrap();
    let mut at = FRAMES_AT;
    while at < LENGTHS[0] {
        check(&mut files, 0, at, 1);
        at += BLOCK;
    }
    assert_eq!(files.ahead.as_ref().map(|ahead| ahead.segment), Some(id(2)));
    for _ in 0..2 {
        assert_eq!(files.read(id(2), FRAMES_AT, BLOCK_BYTES).unwrap_err().kind(), io::ErrorKind::NotFound);
        check(&mut files, 0, LENGTHS[0] - BLOCK, 1);
    }
    check(&mut files, 3, FRAMES_AT, 1);
}

#[test]
fn a_read_ahead_ends_with_its_reader() {
    let (dir, mut files) = segments();
    expect_all(&mut files);
    check(&mut files, 0, FRAMES_AT, 1);
    let (told, ended) = std::sync::mpsc::channel();
    let slow = move || {
        thread::sleep(std::time::Duration::from_millis(50));
        told.send(()).unwrap();
        Ok(Window::default())
    };
    ahead(&mut files);
    files.ahead = Some(Ahead { segment: id(3), offset: 0, thread: thread::spawn(slow) });
    drop(files);
    ended.try_recv().unwrap();
    drop(dir);
}
