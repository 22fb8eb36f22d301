//! Frames, whole and broken.

use proptest::prelude::*;

use super::*;

fn frame(kind: Kind, correlation: u64, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let open = begin(&mut out);
    out.extend_from_slice(head);
    let open = open.head_ends(&out);
    out.extend_from_slice(payload);
    open.end(kind, correlation, &mut out);
    out
}

#[test]
fn the_bytes_of_a_header_are_golden() {
    let bytes = frame(Kind::Append, 0x0102, b"head", b"payload");
    let hex: String = bytes[..HEADER_BYTES].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, GOLDEN, "the layout changed: it needs a new wire version");
}

const GOLDEN: &str = "4e4f56410232000002010000000000000b00000004000000e8977cea07fd5db6";

#[test]
fn a_frame_is_short_until_its_last_byte() {
    let bytes = frame(Kind::Ping, 7, b"abc", b"");
    for cut in 0..bytes.len() {
        assert!(matches!(next(&bytes[..cut], 100), Ok(Next::Short { .. })), "{cut}");
    }
    let Ok(Next::Frame(found)) = next(&bytes, 100) else { panic!("a whole frame") };
    assert_eq!(
        (found.kind, found.correlation, found.head, found.frame_bytes),
        (Kind::Ping, 7, &b"abc"[..], bytes.len())
    );
}

#[test]
fn a_long_body_is_refused_before_it_is_awaited() {
    let bytes = frame(Kind::Ping, 7, &[0; 200], b"");
    assert_eq!(next(&bytes[..HEADER_BYTES], 199), Err(FrameError::BodyLength { bytes: 200, bytes_max: 199 }));
}

#[test]
fn another_protocol_and_another_version_are_told_apart() {
    assert!(matches!(next(&[b'G'; 32], 100), Err(FrameError::Magic { .. })));
    let mut bytes = frame(Kind::Ping, 7, b"", b"");
    for found in [1, 3] {
        bytes[4] = found;
        assert_eq!(next(&bytes, 100), Err(FrameError::Version { found }));
    }
}

proptest! {
    #[test]
    fn a_flipped_bit_in_header_or_head_is_found(
        head in prop::collection::vec(any::<u8>(), 0..50),
        at in any::<prop::sample::Index>(),
        bit in 0..8u32,
    ) {
        let mut bytes = frame(Kind::Append, 3, &head, b"");
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(next(&bytes, 1000).is_err());
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = next(&bytes, 1000);
    }
}
