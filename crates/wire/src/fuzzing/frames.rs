//! What must hold of the frames of the wire, and of what is in their heads?

use std::fmt::Debug;

use super::with_mended_sums;
use crate::bytes::u32_at;
use crate::entry::Effect;
use crate::frame::{self, Frame, FrameError, HEADER_BYTES, Kind, Next};
use crate::fuzzing::mend_sum;
use crate::hot::{Ack, AckGroup, AckWriter, AppendHead, RecordsHead, walk_acks};
use crate::limits::FRAME_BODY_BYTES_BEFORE_HELLO_MAX as BODY_BYTES_MAX;
use crate::message::{Message, check_head};
use crate::terms::Terms;

/// A stream of frames, cut into pieces: its first byte says how long those are.
///
/// Frames are the same however they arrive, and written again they are the bytes that were received.
///
/// # Panics
/// When that is not so.
pub fn frames(bytes: &[u8]) {
    let Some((piece_bytes, stream)) = bytes.split_first() else { return };
    let piece_bytes = usize::from(*piece_bytes) + 1;
    with_mended_sums(stream, mend_frames, |stream| check_frames(stream, piece_bytes));
}

fn mend_frames(mut rest: &mut [u8]) {
    while rest.len() >= HEADER_BYTES {
        let (body_bytes, head_bytes) = (u32_at(rest, 16) as usize, u32_at(rest, 20) as usize);
        mend_sum(rest, HEADER_BYTES..HEADER_BYTES + head_bytes, 24);
        mend_sum(rest, 0..28, 28);
        let end = rest.len().min(HEADER_BYTES + body_bytes);
        rest = rest.split_at_mut(end).1;
    }
}

fn check_frames(stream: &[u8], piece_bytes: usize) {
    let mut at_once = Vec::new();
    let left = part(stream, &mut at_once).map(<[u8]>::to_vec);
    let (mut in_pieces, mut held) = (Vec::new(), Ok(Vec::new()));
    for piece in stream.chunks(piece_bytes) {
        let Ok(bytes) = &mut held else { break };
        bytes.extend_from_slice(piece);
        held = part(bytes, &mut in_pieces).map(<[u8]>::to_vec);
    }
    assert_eq!((in_pieces, held), (at_once, left), "frames are the same however they arrive");
}

/// Takes the frames off the front of `stream`; answers what is left.
fn part<'a>(mut stream: &'a [u8], frames: &mut Vec<Vec<u8>>) -> Result<&'a [u8], FrameError> {
    loop {
        match frame::next(stream, BODY_BYTES_MAX)? {
            Next::Short { bytes_needed } => {
                let possible = stream.len() + 1..=HEADER_BYTES + BODY_BYTES_MAX;
                assert!(possible.contains(&bytes_needed), "{bytes_needed} bytes are asked for");
                return Ok(stream);
            }
            Next::Frame(frame) => {
                let (bytes, rest) = stream.split_at(frame.frame_bytes);
                assert_eq!(again(&frame), bytes, "a frame written again is the same");
                frames.push(bytes.to_vec());
                stream = rest;
            }
        }
    }
}

fn again(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let open = frame::begin(&mut out);
    out.extend_from_slice(frame.head);
    let open = open.head_ends(&out);
    out.extend_from_slice(frame.payload);
    open.end(frame.kind, frame.correlation, &mut out);
    out
}

/// The head of a frame, behind the code of its kind.
///
/// A message that is taken is the same once it is written and read again.
///
/// # Panics
/// When that is not so.
pub fn messages(bytes: &[u8]) {
    let Some((code, head)) = bytes.split_first() else { return };
    if let Some(kind) = Kind::of_code(*code) {
        check_head(kind, head);
    }
}

pub(crate) fn check_message<M: Message + PartialEq + Debug>(head: &[u8]) {
    let Ok(message) = M::get(head) else { return };
    let mut again = Vec::new();
    message.put(&mut again);
    assert_eq!(M::get(&again), Ok(message), "a message read again is the same");
}

/// The heads that are laid by hand, the terms and the effect of an append: the first byte says which.
///
/// What is taken is the same once it is written and read again.
///
/// # Panics
/// When that is not so.
pub fn hot_heads(bytes: &[u8]) {
    let Some((which, head)) = bytes.split_first() else { return };
    match which {
        0 => check_append(head),
        1 => check_acks(head),
        2 => {
            let decoded = RecordsHead::decode(head);
            assert!(decoded.is_err() || decoded.is_ok_and(|decoded| decoded.encode() == head), "{decoded:?}");
        }
        3 => {
            let Ok(terms) = Terms::from_bytes(head) else { return };
            assert_eq!(Terms::from_bytes(&terms.to_bytes()), Ok(terms));
        }
        _ => {
            let decoded = Effect::from_bytes(head);
            assert!(decoded.as_ref().map_or(true, |decoded| decoded.to_bytes() == head), "{decoded:?}");
        }
    }
}

fn check_append(head: &[u8]) {
    let plain = AppendHead::decode(head);
    let Ok((append, terms)) = AppendHead::decode_on_terms(head) else {
        assert!(plain.is_err(), "a head is taken without terms and refused with them");
        return;
    };
    let bytes = terms.to_bytes();
    let again = if bytes.is_empty() { append.encode().to_vec() } else { append.encode_on(&bytes) };
    assert_eq!(AppendHead::decode_on_terms(&again), Ok((append, terms)));
}

fn check_acks(head: &[u8]) {
    let walk = |head: &[u8]| -> Option<Vec<(AckGroup, Ack)>> {
        let mut acks = Vec::new();
        walk_acks(head, |group, ack| acks.push((*group, ack))).ok()?;
        Some(acks)
    };
    let Some(acks) = walk(head) else { return };
    let (mut again, mut writer, mut rest) = (Vec::new(), AckWriter::new(), &acks[..]);
    while let Some((group, _)) = rest.first() {
        let (of_group, behind) = rest.split_at(group.count.into());
        writer.begin_group(group.session, group.class, &mut again);
        for (_, ack) in of_group {
            assert!(ack.end().seq_num >= ack.start.seq_num);
            writer.push(ack, &mut again);
        }
        writer.end_group(group.tail, &mut again);
        rest = behind;
    }
    assert_eq!(walk(&again), Some(acks));
}
