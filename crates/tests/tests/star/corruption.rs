//! Is damage of what was acked told, and is a torn tail never mistaken for it?

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{Class, Client};
use tests::history::{Tag, read_all};
use tests::{Ended, Novad, Scratch, at, is_about, within};
use wire::ids::Lsn;
use wire::log_frame::{BLOCK_BYTES, FrameHeader};
use wire::segment::{FRAMES_AT, SegmentHeader};
use wire::superblock::{COPIES, COPY_BYTES};

const BLOCK: u64 = 4096;

/// A frame of a head log, as it lies on disk.
#[derive(Debug, Clone)]
struct Frame {
    path: PathBuf,
    header: FrameHeader,
}

impl Frame {
    fn offset(&self) -> u64 {
        u64::from(self.header.offset)
    }

    fn end(&self) -> u64 {
        self.offset() + self.header.disk_bytes() as u64
    }

    /// Changes the byte that lies `at` in the frame.
    fn flip(&self, at: u64) {
        flip(&self.path, self.offset() + at);
    }

    fn garble(&self, byte: u8) {
        write(&self.path, self.offset(), &vec![byte; self.header.disk_bytes()]);
    }
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).expect("a file of the log");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("a byte");
}

fn write(path: &Path, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).expect("a file of the log");
    file.write_all_at(bytes, at).expect("the bytes are written");
}

fn log_dir(data: &Path) -> PathBuf {
    data.join("log").join("0")
}

fn segments(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(log_dir(data)).expect("the head log").map(|entry| entry.expect("an entry").path());
    let is_segment = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seg-"));
    let mut segments: Vec<PathBuf> = entries.filter(|path| is_segment(path) && path.extension().is_none()).collect();
    segments.sort();
    segments
}

/// Every frame of the head log of shard 0, in order.
fn frames(data: &Path) -> Vec<Frame> {
    let mut frames = Vec::new();
    for path in segments(data) {
        let bytes = fs::read(&path).expect("a segment");
        let Ok(segment) = SegmentHeader::decode(&bytes) else { continue };
        let mut at = FRAMES_AT as usize;
        while at < bytes.len() {
            let header = FrameHeader::decode(&bytes[at..]).ok();
            let ours = header.filter(|header| (header.segment, header.salt) == (segment.segment, segment.salt));
            at += ours.map_or(BLOCK_BYTES, |header| header.disk_bytes());
            frames.extend(ours.map(|header| Frame { path: path.clone(), header }));
        }
    }
    frames
}

/// The frames with entries that a later frame says were durable.
fn told_durable(data: &Path) -> Vec<Frame> {
    let mut frames = frames(data);
    let durable = frames.iter().map(|frame| frame.header.durable_lsn).max().unwrap_or(Lsn::ZERO);
    frames.retain(|frame| frame.header.entries > 0 && frame.header.end_lsn().get() <= durable.get() + 1);
    frames
}

/// A star that was killed after `records` acked appends, one a commit.
struct Killed {
    novad: Novad,
    scratch: Scratch,
    records: u64,
}

impl Killed {
    /// With time for the log to say on disk how far it is durable, or without.
    fn after(records: u64, rest: Duration) -> Self {
        let scratch = Scratch::new();
        let mut novad = Novad::start(&scratch.join("data"), &[]);
        within(30, async {
            let client = novad.client_with_bucket().await;
            append(&client, 0..records).await;
            tokio::time::sleep(rest).await;
        });
        novad.kill9();
        Self { novad, scratch, records }
    }

    fn data(&self) -> PathBuf {
        self.scratch.join("data")
    }

    /// It must not start, and say where the damage is and what to do.
    fn is_refused(&mut self) -> Ended {
        let ended = self.novad.try_restart().expect_err("damage of what was acked is never skipped");
        assert_eq!(ended.code, Some(4), "{}", ended.log);
        ended
    }

    fn is_told(&mut self, frame: &Frame) {
        let ended = self.is_refused();
        let line = &ended.line;
        let header = &frame.header;
        for part in [
            format!("segment {:016x}", header.segment.get()),
            format!("offset {}", header.offset),
            format!("lsn {}", header.first_lsn),
            log_dir(&self.data()).display().to_string(),
        ] {
            assert!(line.contains(&part), "'{part}' is not told: {line}");
        }
    }

    /// It must start, with every acked record there but the last `lost`, and take more.
    fn opens_without(&mut self, lost: u64) {
        self.novad.restart();
        let kept = self.records - lost;
        within(30, async {
            let client = self.novad.client();
            let records = read_all(&client, &at("log")).await;
            let found: Vec<u64> = records.iter().map(|record| Tag::of(record).index).collect();
            assert_eq!(found, (0..kept).collect::<Vec<u64>>());
            append(&client, kept..kept + 1).await;
        });
        self.records = kept + 1;
        self.novad.kill9();
    }
}

async fn append(client: &Client, indices: std::ops::Range<u64>) {
    for index in indices {
        let ack = client.append(&at("log"), [Tag { writer: 1, index }.body(5_000)]).await.expect("an ack");
        assert_eq!(ack.start.seq_num.get(), index);
    }
}

const REST: Duration = Duration::from_millis(1_500);

#[test]
fn a_flipped_byte_in_an_acked_frame_is_told_with_its_place_and_never_skipped() {
    if !is_about(Class::Express) {
        return;
    }
    let mut star = Killed::after(30, REST);
    let durable = told_durable(&star.data());
    assert!(durable.len() > 20, "{}", durable.len());
    let last = durable.len() - 1;
    // In the header's fields, its sum, the first entry's length, the middle and the end of the body.
    for (frame, at) in [(3, 20), (5, 77), (7, 80), (9, 2_500), (11, 5_000), (0, 81), (last, 3_000)] {
        let frame = &durable[frame];
        frame.flip(at);
        star.is_told(frame);
        frame.flip(at);
    }
    star.opens_without(0);
    // What it said was no accident of the moment: damage is told after more was written as well.
    durable[4].flip(100);
    star.is_told(&durable[4]);
    durable[4].flip(100);
    star.opens_without(0);
}

#[test]
fn a_flipped_byte_is_told_after_a_clean_end_too() {
    if !is_about(Class::Express) {
        return;
    }
    let mut star = Killed::after(10, Duration::ZERO);
    star.opens_without(0);
    star.novad.restart();
    assert_eq!(star.novad.sigterm(), Some(0));
    let durable = told_durable(&star.data());
    let last = durable.last().expect("a frame");
    assert_eq!(
        last.header.end_lsn(),
        frames(&star.data()).iter().map(|frame| frame.header.end_lsn()).max().expect("one")
    );
    last.flip(200);
    star.is_told(last);
    last.flip(200);
    star.opens_without(0);
}

#[test]
fn a_hole_a_missing_segment_or_a_cut_one_in_acked_data_is_told() {
    if !is_about(Class::Express) {
        return;
    }
    let mut star = Killed::after(20, REST);
    // A later segment, so that the end of the first is not the end of all.
    star.opens_without(0);
    let durable = told_durable(&star.data());
    let frame = &durable[10];
    let bytes = fs::read(&frame.path).expect("a segment");
    frame.garble(0);
    star.is_told(frame);
    fs::write(&frame.path, &bytes).expect("it is put back");

    let cut = File::options().write(true).open(&frame.path).expect("a segment");
    cut.set_len(frame.offset()).expect("it is cut");
    star.is_refused();
    fs::write(&frame.path, &bytes).expect("it is put back");

    fs::remove_file(&frame.path).expect("it is removed");
    star.is_refused();
    fs::write(&frame.path, &bytes).expect("it is put back");

    // The block that says which segment it is.
    flip(&frame.path, 40);
    let started = star.novad.try_restart();
    if started.is_ok() {
        star.novad.kill9();
        star.opens_without(0);
    } else {
        flip(&frame.path, 40);
        star.opens_without(0);
    }
}

#[test]
fn one_damaged_superblock_copy_is_mended_and_four_are_told() {
    let mut star = Killed::after(5, REST);
    let path = log_dir(&star.data()).join("super");
    // In the epoch, which every copy has.
    let place = |copy: usize| copy * COPY_BYTES + 60;
    for copy in 0..COPIES {
        let mut damaged = fs::read(&path).expect("the superblock");
        damaged[place(copy)] ^= 1;
        fs::write(&path, damaged).expect("it is damaged");
        star.opens_without(0);
    }
    let bytes = fs::read(&path).expect("the superblock");
    let mut damaged = bytes.clone();
    (0..COPIES).for_each(|copy| damaged[place(copy)] ^= 1);
    fs::write(&path, damaged).expect("it is damaged");
    let ended = star.is_refused();
    assert!(ended.line.contains("super"), "{}", ended.line);
    fs::remove_file(&path).expect("it is removed");
    let ended = star.is_refused();
    assert!(ended.line.contains("no superblock"), "{}", ended.line);
    fs::write(&path, bytes).expect("it is put back");
    star.opens_without(0);
}

#[test]
fn whatever_lies_behind_the_last_durable_frame_a_torn_tail_opens() {
    if !is_about(Class::Express) {
        return;
    }
    let mut star = Killed::after(12, REST);
    for round in 0..6_u8 {
        let all = frames(&star.data());
        let (first, last) = (&all[0], all.last().expect("a frame"));
        let tail = last.end();
        match round {
            // Noise, as a device may leave it.
            0 => write(
                &last.path,
                tail,
                &(0..3 * BLOCK).map(|n| u8::try_from(n % 251).expect("a byte")).collect::<Vec<u8>>(),
            ),
            // A frame of another place, valid in itself.
            1 => {
                let bytes = fs::read(&first.path).expect("a segment");
                let start = usize::try_from(first.offset()).expect("a place");
                write(&last.path, tail, &bytes[start..start + first.header.disk_bytes()]);
            }
            // The header of the frame that would come next, without its body.
            2 => {
                let next = FrameHeader {
                    first_lsn: last.header.end_lsn(),
                    offset: u32::try_from(tail).expect("a place"),
                    entries: 1,
                    body_bytes: 5_000,
                    body_crc: 1,
                    ..last.header
                };
                let mut block = vec![0; BLOCK_BYTES];
                next.encode(&mut block);
                write(&last.path, tail, &block);
            }
            // A file that ends behind it, in the middle of a block.
            3 => {
                let file = File::options().write(true).open(&last.path).expect("a segment");
                file.set_len(tail + BLOCK + 100).expect("it is cut");
            }
            // A file that ends right behind it.
            4 => File::options().write(true).open(&last.path).expect("a segment").set_len(tail).expect("it is cut"),
            // A hole, then noise.
            _ => write(&last.path, tail + 2 * BLOCK, &[0xa5; 100]),
        }
        star.opens_without(0);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The last commit of a process that died at once: no later frame says that it was durable, so that damage of it can't be
/// told from a write that a power cut tore. It opens, and only that one is missing.
#[test]
fn the_last_frame_torn_before_anything_said_it_was_durable_opens_without_it() {
    if !is_about(Class::Express) {
        return;
    }
    for (byte, cut) in [(0, false), (0xff, false), (0, true)] {
        let mut star = Killed::after(12, Duration::ZERO);
        let all = frames(&star.data());
        let last = all.iter().rfind(|frame| frame.header.entries > 0).expect("a frame");
        let is_told = all.iter().any(|frame| frame.header.durable_lsn.get() + 1 >= last.header.end_lsn().get());
        assert!(!is_told, "the process was killed too late");
        if cut {
            // The second block of it never came.
            write(&last.path, last.offset() + BLOCK, &vec![0; BLOCK_BYTES]);
        } else {
            last.garble(byte);
        }
        star.opens_without(1);
    }
}
