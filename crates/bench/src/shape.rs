//! Which streams get more appends than others, and how large are the records?

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use tuning::units::Bytes;

use crate::random::Random;

/// How the appends of a connection are shared out over its streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spread {
    /// Each stream in turn.
    Uniform,
    /// The stream of rank r gets a share that goes with r to the power of minus the exponent, as words in a text do.
    Zipf {
        /// The exponent, above 0.
        exponent: f64,
    },
    /// The first stream gets this share, the others the rest in turn.
    Hot {
        /// Above 0, at most 1.
        share: f64,
    },
}

/// How large the records are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// All alike, as large as the option that says so.
    Fixed,
    /// Every size of a range alike often.
    Uniform {
        /// Smallest, in bytes.
        low: usize,
        /// Largest.
        high: usize,
    },
    /// Small ones often and large ones seldom, with this mean.
    Exponential {
        /// In bytes.
        mean: usize,
    },
    /// The lines of a file, in order.
    Lines(PathBuf),
}

/// Why a text says no spread or no sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is none of {choices}")]
pub struct NoShape {
    text: String,
    choices: &'static str,
}

fn none(text: &str, choices: &'static str) -> NoShape {
    NoShape { text: text.chars().take(80).collect(), choices }
}

impl FromStr for Spread {
    type Err = NoShape;

    fn from_str(text: &str) -> Result<Self, NoShape> {
        let no = || none(text, "uniform, zipf:EXPONENT and hot:SHARE, such as zipf:1.1 or hot:0.5");
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let number = rest.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
        match (kind, number) {
            ("uniform", None) if rest.is_empty() => Ok(Self::Uniform),
            ("zipf", Some(exponent)) if exponent <= 10.0 => Ok(Self::Zipf { exponent }),
            ("hot", Some(share)) if share <= 1.0 => Ok(Self::Hot { share }),
            _ => Err(no()),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { exponent } => write!(f, "zipf:{exponent}"),
            Self::Hot { share } => write!(f, "hot:{share}"),
        }
    }
}

impl FromStr for Sizes {
    type Err = NoShape;

    fn from_str(text: &str) -> Result<Self, NoShape> {
        let no = || none(text, "fixed, uniform:LOW..HIGH, exp:MEAN and lines:FILE, such as uniform:100..4KiB");
        let bytes =
            |text: &str| text.parse::<Bytes>().map(Bytes::as_usize).ok().filter(|bytes| *bytes > 0).ok_or_else(no);
        match text.split_once(':').unwrap_or((text, "")) {
            ("fixed", "") => Ok(Self::Fixed),
            ("uniform", rest) => {
                let (low, high) = rest.split_once("..").ok_or_else(no)?;
                let (low, high) = (bytes(low)?, bytes(high)?);
                if low <= high { Ok(Self::Uniform { low, high }) } else { Err(no()) }
            }
            ("exp", mean) => Ok(Self::Exponential { mean: bytes(mean)? }),
            ("lines", file) if !file.is_empty() => Ok(Self::Lines(PathBuf::from(file))),
            _ => Err(no()),
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("fixed"),
            Self::Uniform { low, high } => write!(f, "uniform:{low}..{high}"),
            Self::Exponential { mean } => write!(f, "exp:{mean}"),
            Self::Lines(path) => write!(f, "lines:{}", path.display()),
        }
    }
}

impl Serialize for Spread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Sizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Sizes {
    /// Draws a size, at least 1 and at most `max`; `fixed` is what all have when they are alike.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and bounded by max")]
    pub(crate) fn draw(&self, fixed: usize, max: usize, random: &mut Random) -> usize {
        let bytes = match self {
            Self::Fixed | Self::Lines(_) => fixed,
            Self::Uniform { low, high } => {
                let above = random.below((high - low) as u64 + 1);
                low + usize::try_from(above).unwrap_or(0)
            }
            Self::Exponential { mean } => (-random.unit().ln() * crate::progress::as_f64(*mean as u64)) as usize,
        };
        bytes.clamp(1, max)
    }
}

/// Draws which of a connection's streams the next append goes to.
#[derive(Debug)]
pub(crate) struct Picker {
    spread: Spread,
    random: Random,
    zipf: Option<Zipf>,
}

impl Picker {
    pub(crate) const fn new(spread: Spread, seed: u64) -> Self {
        Self { spread, random: Random::new(seed), zipf: None }
    }

    /// One of so many, or `None` for the one whose turn it is.
    pub(crate) fn pick(&mut self, count: usize) -> Option<usize> {
        match self.spread {
            Spread::Uniform => None,
            Spread::Hot { share } => (self.random.unit() <= share).then_some(0),
            Spread::Zipf { exponent } => {
                if self.zipf.as_ref().is_none_or(|zipf| zipf.count != count) {
                    self.zipf = Some(Zipf::new(count, exponent));
                }
                self.zipf.as_ref().map(|zipf| zipf.draw(&mut self.random))
            }
        }
    }
}

/// Draws ranks by rejection-inversion (Hörmann and Derflinger 1996), which takes the same time whatever their number.
#[derive(Debug)]
struct Zipf {
    count: usize,
    exponent: f64,
    low: f64,
    high: f64,
    slack: f64,
}

impl Zipf {
    fn new(count: usize, exponent: f64) -> Self {
        let mut zipf = Self { count, exponent, low: 0.0, high: 0.0, slack: 0.0 };
        zipf.low = zipf.area(1.5) - 1.0;
        zipf.high = zipf.area(crate::progress::as_f64(count as u64) + 0.5);
        zipf.slack = 2.0 - zipf.unarea(zipf.area(2.5) - 2_f64.powf(-exponent));
        zipf
    }

    /// The area under the curve up to `x`.
    fn area(&self, x: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        if rest.abs() < 1e-9 { x.ln() } else { x.powf(rest) / rest }
    }

    /// Where the area is this.
    fn unarea(&self, area: f64) -> f64 {
        let rest = 1.0 - self.exponent;
        if rest.abs() < 1e-9 { area.exp() } else { (rest * area).powf(1.0 / rest) }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank from 1 to the count")]
    fn draw(&self, random: &mut Random) -> usize {
        loop {
            let area = self.high + random.unit() * (self.low - self.high);
            let x = self.unarea(area);
            let rank = x.round().clamp(1.0, crate::progress::as_f64(self.count as u64));
            if rank - x <= self.slack || area >= self.area(rank + 0.5) - rank.powf(-self.exponent) {
                return (rank as usize).saturating_sub(1).min(self.count.saturating_sub(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Picker, Sizes, Spread};
    use crate::random::Random;

    fn counts(spread: Spread) -> Vec<u32> {
        let mut picker = Picker::new(spread, 7);
        let mut counts = vec![0; 100];
        (0..100_000).filter_map(|_| picker.pick(100)).for_each(|at| counts[at] += 1);
        counts
    }

    #[test]
    fn ranks_get_the_shares_that_the_exponent_says() {
        for exponent in [0.7, 1.0, 1.3] {
            let counts = counts(Spread::Zipf { exponent });
            let whole: f64 = (1..=100).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1, 2, 5, 20] {
                let expected = 1e5 * f64::from(rank).powf(-exponent) / whole;
                let found = f64::from(counts[usize::try_from(rank).unwrap() - 1]);
                // Six standard deviations.
                assert!(
                    (found - expected).abs() < 6.0 * expected.sqrt(),
                    "{rank} of {exponent}: {found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn one_is_hot_and_uniform_takes_turns() {
        let hot = counts(Spread::Hot { share: 0.25 });
        assert!((24_000..26_000).contains(&hot[0]) && hot[1..].iter().all(|count| *count == 0), "{hot:?}");
        assert_eq!(counts(Spread::Uniform).iter().sum::<u32>(), 0);
        assert_eq!(Picker::new(Spread::Zipf { exponent: 1.0 }, 1).pick(1), Some(0));
    }

    #[test]
    fn sizes_stay_in_their_range_and_have_their_mean() {
        let mut random = Random::new(3);
        let mut mean = |sizes: &Sizes| {
            let all: Vec<_> = (0..10_000).map(|_| sizes.draw(64, 5_000, &mut random)).collect();
            assert!(all.iter().all(|bytes| (1..=5_000).contains(bytes)));
            all.iter().sum::<usize>() / all.len()
        };
        assert_eq!(mean(&Sizes::Fixed), 64);
        assert!((240..260).contains(&mean(&Sizes::Uniform { low: 100, high: 400 })));
        assert!((185..215).contains(&mean(&Sizes::Exponential { mean: 200 })));
    }

    #[test]
    fn shapes_are_written_as_they_are_read() {
        for text in ["uniform", "zipf:1.1", "hot:0.5"] {
            assert_eq!(text.parse::<Spread>().unwrap().to_string(), text);
        }
        for text in ["fixed", "uniform:100..4096", "exp:300", "lines:/a/b"] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
        assert!("zipf".parse::<Spread>().is_err() && "hot:2".parse::<Spread>().is_err());
        assert!("uniform:5..1".parse::<Sizes>().is_err() && "exp:0".parse::<Sizes>().is_err());
        let error = "big".parse::<Sizes>().unwrap_err();
        assert!(error.to_string().starts_with("`big` is none of fixed, uniform:LOW..HIGH"), "{error}");
    }
}
