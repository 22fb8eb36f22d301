//! What is done to the files of a log?

use wire::fuzzing::mend_sum;
use wire::ids::SegmentId;
use wire::log_frame::{BLOCK_BYTES, HEADER_BYTES};
use wire::segment;
use wire::superblock::{COPIES, COPY_BYTES};

use crate::device::memory::Remains;

/// Bytes of a damage: what is done, to which file, at which place of it (u16, little-endian), to what of another file (two bytes), how
/// much, and with which value.
pub(super) const BYTES: usize = 8;
/// Most that are done.
pub(super) const MAX: usize = 32;
/// Most bytes that a file grows to.
const FILE_BYTES_MAX: usize = 256 << 10;

/// A byte is another one.
pub(super) const FLIP: u8 = 0;
/// Some bytes have a value.
pub(super) const FILL: u8 = 1;
/// A block has a value.
pub(super) const FILL_BLOCK: u8 = 2;
/// The file ends earlier.
pub(super) const CUT: u8 = 3;
/// The file ends later.
pub(super) const GROW: u8 = 4;
/// The block of another file.
pub(super) const COPY: u8 = 5;
/// The file is gone.
pub(super) const REMOVE: u8 = 6;
/// The file has another name.
pub(super) const RENAME: u8 = 7;
/// A byte of a copy of the superblock, or of all of them, is another one.
pub(super) const FLIP_SUPER: u8 = 8;
/// A copy, or all of them, is zero from a place on.
pub(super) const ZERO_SUPER: u8 = 9;
/// The sums of a frame hold.
pub(super) const FORGE_FRAME: u8 = 10;
/// The sum of the file's header holds.
pub(super) const FORGE_HEADER: u8 = 11;
/// The sum of a copy of the superblock, or of all of them, holds.
pub(super) const FORGE_SUPER: u8 = 12;
const KINDS: u8 = 13;

/// Does what `damage` says; answers whether a sum was made to hold for what nobody wrote.
pub(super) fn inflict(remains: &mut Remains, damage: [u8; BYTES]) -> bool {
    let [what, which, at_low, at_high, other, other_block, count, value] = damage;
    let (what, at) = (what % KINDS, usize::from(u16::from_le_bytes([at_low, at_high])));
    let segment = nth(remains, which);
    match (what, segment) {
        (FLIP_SUPER | ZERO_SUPER | FORGE_SUPER, _) => on_superblock(remains, what, (which, at), value),
        (_, None) => {}
        (REMOVE, Some(segment)) => drop(remains.segments.remove(&segment)),
        (RENAME, Some(segment)) => rename(remains, segment, value.cast_signed()),
        (COPY, Some(segment)) => {
            let block = nth(remains, other).and_then(|other| block_of(remains, other, other_block));
            let file = remains.segments.entry(segment).or_default();
            overwrite(file, at / BLOCK_BYTES * BLOCK_BYTES, &block.unwrap_or_default());
        }
        (_, Some(segment)) => on_file(remains.segments.entry(segment).or_default(), what, at, (count, value)),
    }
    what >= FORGE_FRAME
}

/// The segment of this number, of those that are there.
fn nth(remains: &Remains, number: u8) -> Option<SegmentId> {
    let number = usize::from(number).checked_rem(remains.segments.len())?;
    remains.segments.keys().nth(number).copied()
}

fn block_of(remains: &Remains, segment: SegmentId, block: u8) -> Option<Vec<u8>> {
    remains.segments[&segment].chunks(BLOCK_BYTES).nth(block.into()).map(<[u8]>::to_vec)
}

/// Puts `bytes` at `at`, as far as the file goes.
fn overwrite(file: &mut [u8], at: usize, bytes: &[u8]) {
    file.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from);
}

fn on_file(file: &mut Vec<u8>, what: u8, at: usize, (count, value): (u8, u8)) {
    let block_at = at / BLOCK_BYTES * BLOCK_BYTES;
    match what {
        FLIP => file.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= value.max(1)),
        FILL => overwrite(file, at, &vec![value; count.into()]),
        FILL_BLOCK => overwrite(file, block_at, &[value; BLOCK_BYTES]),
        CUT => file.truncate(at),
        GROW => {
            let bytes = file.len() + usize::from(count) * 512;
            file.resize(bytes.min(FILE_BYTES_MAX).max(file.len()), value);
        }
        FORGE_FRAME => {
            let frame = file.get_mut(block_at..).unwrap_or_default();
            let body_bytes =
                frame.get(60..).and_then(|rest| rest.first_chunk()).map_or(0, |it| u32::from_le_bytes(*it));
            mend_sum(frame, HEADER_BYTES..HEADER_BYTES + body_bytes as usize, 64);
            mend_sum(frame, 0..HEADER_BYTES - 4, HEADER_BYTES - 4);
        }
        _ => mend_sum(file, 8..segment::HEADER_BYTES, 4),
    }
}

fn on_superblock(remains: &mut Remains, what: u8, (which, at): (u8, usize), value: u8) {
    let number = usize::from(which) % (COPIES + 1);
    let copies = remains.superblock.chunks_mut(COPY_BYTES).enumerate();
    for (_, copy) in copies.filter(|(no, _)| number == COPIES || *no == number) {
        match what {
            FLIP_SUPER => copy.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= value.max(1)),
            ZERO_SUPER => copy.iter_mut().skip(at).for_each(|byte| *byte = 0),
            _ => {
                let segments =
                    copy.get(52..).and_then(|rest| rest.first_chunk()).map_or(0, |it| u16::from_le_bytes(*it));
                mend_sum(copy, 12..96 + 40 * usize::from(segments), 4);
            }
        }
    }
}

/// Gives a segment the name of another number, unless there is one.
fn rename(remains: &mut Remains, segment: SegmentId, by: i8) {
    let to = segment.get().checked_add_signed(by.into()).map(SegmentId::new);
    let Some(to) = to.filter(|to| !remains.segments.contains_key(to)) else { return };
    if let Some(file) = remains.segments.remove(&segment) {
        remains.segments.insert(to, file);
    }
}
