//! When do generators on several hosts begin together?

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

const MS_A_DAY: u64 = 86_400_000;
/// The first millisecond that has no place in RFC 3339: that of the year 10000.
const MS_END: u64 = 253_402_300_800_000;

/// A moment by the wall clock, to the millisecond. It reads RFC 3339 and seconds since 1970, and prints as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StartAt {
    unix_ms: u64,
}

/// A text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no time: give one such as 2026-12-01T10:00:00Z, or seconds since 1970")]
pub struct NoTime {
    text: String,
}

impl StartAt {
    /// The moment after so many milliseconds since 1970.
    #[must_use]
    pub fn of_unix_ms(unix_ms: u64) -> Self {
        Self { unix_ms: unix_ms.min(MS_END - 1) }
    }

    /// How far it lies ahead of `now`; how long ago it was, as an error.
    pub(crate) fn ahead_of(self, now: SystemTime) -> Result<Duration, Duration> {
        let at = UNIX_EPOCH + Duration::from_millis(self.unix_ms);
        at.duration_since(now).map_err(|error| error.duration())
    }

    /// The moment that `now` is.
    pub(crate) fn of(now: SystemTime) -> Self {
        let ms = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Self::of_unix_ms(u64::try_from(ms).unwrap_or(MS_END))
    }
}

impl FromStr for StartAt {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, NoTime> {
        let unix_ms = of_seconds(text).or_else(|| of_rfc3339(text)).filter(|ms| *ms < MS_END);
        unix_ms.map(|unix_ms| Self { unix_ms }).ok_or_else(|| NoTime { text: text.chars().take(40).collect() })
    }
}

/// Milliseconds of `1764583200` or `1764583200.25`.
fn of_seconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    number(whole)?.checked_mul(1_000)?.checked_add(millis(part)?)
}

/// Milliseconds of `2026-12-01T10:00:00Z`, with parts of a second and an offset from UTC if there are any.
fn of_rfc3339(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let (clock, part) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = fields(clock, ':', [2, 2, 2])?;
    let is_time = hour < 24 && minute < 60 && second < 60;
    let days = days_since_1970(year, month, day).filter(|_| is_time)?;
    let ms = days * MS_A_DAY + (hour * 3_600 + minute * 60 + second) * 1_000 + millis(part)?;
    let (sign, offset) = zone.split_at(1);
    if sign.eq_ignore_ascii_case("z") {
        return offset.is_empty().then_some(ms);
    }
    let [hours, minutes] = fields(offset, ':', [2, 2])?;
    let offset_ms = (hours * 3_600 + minutes * 60) * 1_000;
    // East of Greenwich clocks are ahead.
    if sign == "+" { ms.checked_sub(offset_ms) } else { ms.checked_add(offset_ms) }
}

/// Numbers of so many digits each, with a mark between them.
fn fields<const N: usize>(text: &str, mark: char, digits: [usize; N]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let mut words = text.split(mark);
    for (number_at, digits) in numbers.iter_mut().zip(digits) {
        *number_at = words.next().filter(|word| word.len() == digits).and_then(number)?;
    }
    words.next().is_none().then_some(numbers)
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Milliseconds of the digits behind a point; what is finer is cut off.
fn millis(part: &str) -> Option<u64> {
    number(part)?;
    let first: String = part.chars().chain("000".chars()).take(3).collect();
    number(&first)
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_day = year >= 1970 && (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    let years: u64 = (1970..year).map(|year| 365 + u64::from(is_leap(year))).sum();
    let months: u64 = (1..month).map(|month| days_of(year, month)).sum();
    is_day.then(|| years + months + day - 1)
}

impl fmt::Display for StartAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut days, ms) = (self.unix_ms / MS_A_DAY, self.unix_ms % MS_A_DAY);
        let (mut year, mut month) = (1970, 1);
        while days >= 365 + u64::from(is_leap(year)) {
            days -= 365 + u64::from(is_leap(year));
            year += 1;
        }
        while days >= days_of(year, month) {
            days -= days_of(year, month);
            month += 1;
        }
        let (seconds, ms) = (ms / 1_000, ms % 1_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}", days + 1)?;
        if ms > 0 {
            write!(f, ".{ms:03}")?;
        }
        f.write_str("Z")
    }
}

impl Serialize for StartAt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::StartAt;

    #[test]
    fn a_time_is_read_in_each_form_and_printed_in_one() {
        let check = |text: &str, unix_ms: u64, printed: &str| {
            let at: StartAt = text.parse().unwrap();
            assert_eq!((at, at.to_string().as_str()), (StartAt::of_unix_ms(unix_ms), printed), "{text}");
            assert_eq!(printed.parse(), Ok(at), "{printed}");
        };
        check("0", 0, "1970-01-01T00:00:00Z");
        check("1764583200", 1_764_583_200_000, "2025-12-01T10:00:00Z");
        check("1764583200.2567", 1_764_583_200_256, "2025-12-01T10:00:00.256Z");
        check("2024-02-29T23:59:59.5Z", 1_709_251_199_500, "2024-02-29T23:59:59.500Z");
        check("2025-12-01T11:30:00+01:30", 1_764_583_200_000, "2025-12-01T10:00:00Z");
        check("2025-12-01 05:00:00-05:00", 1_764_583_200_000, "2025-12-01T10:00:00Z");
        check("2000-12-31t00:00:00z", 978_220_800_000, "2000-12-31T00:00:00Z");
        check("9999-12-31T23:59:59.999Z", 253_402_300_799_999, "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn what_is_no_time_is_refused_by_name() {
        for text in [
            "",
            "soon",
            "-5",
            "1e9",
            "1.",
            "2025-12-01",
            "2025-12-01T10:00:00",
            "2025-02-29T10:00:00Z",
            "2025-13-01T10:00:00Z",
            "2025-12-00T10:00:00Z",
            "2025-12-01T24:00:00Z",
            "2025-12-01T10:60:00Z",
            "2025-12-1T10:00:00Z",
            "2025-12-01T10:00:00Zulu",
            "2025-12-01T10:00:00+1:00",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "253402300800",
            "99999999999999999999",
        ] {
            let error = text.parse::<StartAt>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("2026-12-01T10:00:00Z"), "{error}");
        }
    }

    #[test]
    fn a_start_lies_ahead_or_is_past() {
        let now = UNIX_EPOCH + Duration::from_millis(5_000);
        assert_eq!(StartAt::of_unix_ms(7_500).ahead_of(now), Ok(Duration::from_millis(2_500)));
        assert_eq!(StartAt::of_unix_ms(4_000).ahead_of(now), Err(Duration::from_secs(1)));
        assert_eq!(StartAt::of(now), StartAt::of_unix_ms(5_000));
    }
}
