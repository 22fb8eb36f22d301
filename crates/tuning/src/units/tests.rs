//! Do sizes and durations read back as what was written?

use super::{Bytes, Millis, UnitError};

fn bytes(text: &str) -> Result<u64, UnitError> {
    text.parse::<Bytes>().map(Bytes::get)
}

fn millis(text: &str) -> Result<u64, UnitError> {
    text.parse::<Millis>().map(Millis::get)
}

#[test]
fn a_plain_number_is_the_smallest_unit() {
    assert_eq!(bytes("4096"), Ok(4096));
    assert_eq!(millis("250"), Ok(250));
}

#[test]
fn units_may_be_set_apart_and_their_case_does_not_matter() {
    for (text, want) in [("64MiB", 64 << 20), ("64 MiB", 64 << 20), ("1gib", 1 << 30), ("7B", 7)] {
        assert_eq!(bytes(text), Ok(want), "{text}");
    }
    for (text, want) in [("30s", 30_000), ("5m", 300_000), ("250ms", 250), ("2h", 7_200_000)] {
        assert_eq!(millis(text), Ok(want), "{text}");
    }
}

#[test]
fn decimal_units_fractions_and_signs_are_refused() {
    assert_eq!(bytes("64MB"), Err(UnitError::Unit { unit: "MB".into(), known: "TiB, GiB, MiB, KiB, B".into() }));
    assert!(matches!(bytes("1.5GiB"), Err(UnitError::Unit { .. })));
    assert!(matches!(bytes("-1"), Err(UnitError::Number { .. })));
    assert!(matches!(millis(""), Err(UnitError::Number { .. })));
    assert!(matches!(millis("s"), Err(UnitError::Number { .. })));
}

#[test]
fn a_value_past_64_bits_is_refused() {
    assert!(matches!(bytes("18446744073709551616"), Err(UnitError::Number { .. })));
    assert!(matches!(bytes("16777216TiB"), Err(UnitError::Overflow { .. })));
}

#[test]
fn what_is_shown_reads_back_as_itself() {
    for value in [0, 1, 1023, 1024, 1536, 1 << 20, (1 << 30) + 1, 3 << 40, u64::MAX] {
        assert_eq!(bytes(&Bytes::new(value).to_string()), Ok(value));
    }
    for value in [0, 1, 999, 1000, 1500, 60_000, 90_000, 3_600_000, 86_400_000, u64::MAX] {
        assert_eq!(millis(&Millis::new(value).to_string()), Ok(value));
    }
}

#[test]
fn the_largest_exact_unit_is_shown() {
    assert_eq!(Bytes::mib(64).to_string(), "64MiB");
    assert_eq!(Bytes::new(1536).to_string(), "1536B");
    assert_eq!(Millis::seconds(90).to_string(), "90s");
    assert_eq!(Millis::seconds(120).to_string(), "2m");
}
