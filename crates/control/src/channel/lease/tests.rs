use super::{Known, Lease, LeaseDecodeError, LeaseState, Tenure, object_of};
use wire::ids::{Epoch, StarId};

fn fenced() -> Lease {
    let by = Tenure { star: StarId::from_bytes(*b"0123456789abcdef"), incarnation: Epoch::new(9) };
    Lease { state: LeaseState::Fenced(by), ttl_ms: 6_000, incarnation: Epoch::new(7), renewals: 300, low: 12, hint: 64 }
}

#[test]
fn the_layout_of_a_lease_is_fixed() {
    let bytes = fenced().encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(&hex[..16], "4e566c7301000200");
    assert_eq!(
        &hex[24..],
        concat!(
            "70170000",
            "07000000000000002c010000000000000c000000000000004000000000000000",
            "303132333435363738396162636465660900000000000000"
        )
    );
    assert_eq!(object_of(StarId::from_bytes([1; 16])).as_str(), "stars/01010101-0101-0101-0101-010101010101/lease");
}

#[test]
fn every_state_comes_back() {
    let released = Lease { state: LeaseState::Released, ..Lease::held(Epoch::new(3)) };
    for lease in [Lease::held(Epoch::new(3)), released, Lease::never_held(), fenced()] {
        assert_eq!(Lease::decode(&lease.encode()).unwrap(), lease);
    }
}

#[test]
fn no_cut_or_changed_lease_is_read_as_another() {
    let good = fenced().encode();
    for len in 0..good.len() {
        assert!(Lease::decode(&good[..len]).is_err(), "{len} bytes");
    }
    assert!(Lease::decode(&[&good[..], b"x"].concat()).is_err());
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Lease::decode(&bad).is_err(), "bit {bit}");
    }
    let mut later = good;
    later[4] = 2;
    assert_eq!(Lease::decode(&later), Err(LeaseDecodeError::Format { found: 2 }));
}

#[test]
fn a_lease_tells_of_the_channel_of_its_own_incarnation_alone() {
    assert_eq!(fenced().known_of(Epoch::new(7)), Known { low: 12, hint: 64 });
    assert_eq!(fenced().known_of(Epoch::new(8)), Known::default());
}
