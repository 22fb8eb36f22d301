use super::{ClusterDecodeError, decode, encode};
use wire::ids::ClusterId;

#[test]
fn the_layout_of_an_identity_is_fixed() {
    let bytes = encode(ClusterId::from_bytes(*b"0123456789abcdef"));
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "4e56636c010000009e11d34230313233343536373839616263646566");
    assert_eq!(decode(&bytes).unwrap(), ClusterId::from_bytes(*b"0123456789abcdef"));
}

#[test]
fn no_cut_or_changed_identity_is_read_as_another() {
    let good = encode(ClusterId::from_bytes([7; 16]));
    for len in 0..good.len() {
        assert!(decode(&good[..len]).is_err(), "{len} bytes");
    }
    assert!(decode(&[&good[..], b"x"].concat()).is_err());
    // Bytes 6 and 7 are zero and mean nothing yet.
    for bit in (0..good.len() * 8).filter(|bit| !(48..64).contains(bit)) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&bad).is_err(), "bit {bit}");
    }
}

#[test]
fn a_later_format_is_named() {
    let mut bytes = encode(ClusterId::from_bytes([7; 16]));
    bytes[4] = 2;
    bytes.extend_from_slice(&[0; 100]);
    assert_eq!(decode(&bytes), Err(ClusterDecodeError::Format { found: 2 }));
}
