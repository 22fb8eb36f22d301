//! Which names do S2's clients know: of basins, of streams, and when something was made?

use client::{BucketName, Key};
use percent_encoding::percent_decode_str;

const BASIN_BYTES_MIN: usize = 8;
const BASIN_BYTES_MAX: usize = 48;

/// Whether S2's clients can name a bucket; of the others they are told nothing.
pub(super) fn is_basin(name: &str) -> bool {
    (BASIN_BYTES_MIN..=BASIN_BYTES_MAX).contains(&name.len())
}

/// A basin's name, checked.
///
/// # Errors
/// What is wrong with it.
pub(super) fn basin(name: &str) -> Result<BucketName, String> {
    let bucket = BucketName::new(name).map_err(|error| error.to_string())?;
    if is_basin(name) {
        return Ok(bucket);
    }
    let bytes = name.len();
    Err(format!("basin name '{name}' has {bytes} bytes: it must have {BASIN_BYTES_MIN} to {BASIN_BYTES_MAX}"))
}

/// Whether S2's clients can name a stream; of the others they are told nothing.
pub(super) fn is_stream(key: &str) -> bool {
    key != "." && key != ".."
}

/// A stream's name, checked.
///
/// # Errors
/// What is wrong with it.
pub(super) fn stream(name: &str) -> Result<Key, String> {
    if !is_stream(name) {
        return Err(format!("stream name '{name}' can't be: paths lose it"));
    }
    Key::new(name).map_err(|error| error.to_string())
}

/// A segment of a path, decoded.
///
/// # Errors
/// When it is not UTF-8 once it is decoded, and for a `%` that two hexadecimal digits don't follow: it would be another name, kept as it is.
pub(super) fn segment(encoded: &str) -> Result<String, String> {
    let is_escape = |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if let Some(rest) = encoded.split('%').skip(1).find(|rest| !is_escape(rest)) {
        let shown: String = rest.chars().take(2).collect();
        return Err(format!(
            "a segment of the path has '%{shown}', which is no escape: two hexadecimal digits follow a '%'"
        ));
    }
    let decoded = percent_decode_str(encoded).decode_utf8();
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| "a segment of the path is not UTF-8".to_owned())
}

/// A location as S2's clients can read it.
pub(super) fn location(text: &str) -> Option<&str> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '.');
    Some(text).filter(|text| !text.is_empty() && text.chars().all(is_fit))
}

/// A moment as RFC 3339 has it, in UTC.
///
/// The date is found by Howard Hinnant's `civil_from_days`: years of 400 have as many days each, and begin in March.
pub(super) fn moment(ms: i64) -> String {
    const DAY_MS: i64 = 86_400_000;
    let ms = ms.clamp(0, 253_402_300_799_999);
    let (days, in_day) = (ms / DAY_MS + 719_468, ms % DAY_MS);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (in_day / 3_600_000, in_day / 60_000 % 60, in_day / 1_000 % 60);
    let milli = in_day % 1_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_decoded_once_and_what_is_no_escape_is_refused() {
        assert_eq!(segment("a%2Fb%25zz"), Ok("a/b%zz".to_owned()));
        for wrong in ["ev%zz", "ev%", "ev%2", "ev%é0", "%ff"] {
            assert!(segment(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (1_798_761_599_001, "2026-12-31T23:59:59.001Z"),
            (-5, "1970-01-01T00:00:00.000Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(moment(ms), expected);
        }
    }

    #[test]
    fn names_that_s2_has_not_are_refused() {
        assert!(basin("short").unwrap_err().contains("5 bytes"));
        assert!(basin("Upper-case-name").is_err() && basin("long-enough").is_ok());
        assert!(stream("..").is_err() && stream("").is_err() && stream("a\0b").is_err() && stream("a/b ☃").is_ok());
        assert_eq!(segment("bench%2F%E2%98%83").unwrap(), "bench/☃");
        assert!(segment("%ff").is_err());
        assert_eq!(
            (location("aws:us-east-1"), location("the moon"), location("")),
            (Some("aws:us-east-1"), None, None)
        );
    }
}
