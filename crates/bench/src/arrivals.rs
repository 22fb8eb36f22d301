//! When does an open loop want its appends sent, whatever the server does?

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};
use tuning::units::Millis;

use crate::random::Random;

/// How the appends of an open loop are spread over time, beside their rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Evenly.
    Constant,
    /// Each without regard to the others, so that they come in clusters as those of many users do.
    Poisson,
    /// At the rate until a time after the start, then at another.
    Step {
        /// Appends a second from then on.
        to: f64,
        /// When.
        at: Duration,
    },
    /// From the rate to another one, in a straight line over the whole run.
    Ramp {
        /// Appends a second at the end.
        to: f64,
    },
    /// At the rate, and over it in bursts.
    Burst {
        /// Appends a second within a burst.
        peak: f64,
        /// How long a burst is.
        on: Duration,
        /// From the beginning of one to that of the next.
        every: Duration,
    },
}

/// Why a text says no arrivals.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is none of constant, poisson, step:RATE@TIME, ramp:RATE and burst:RATE/TIME/EVERY, such as burst:50000/100ms/1s"
)]
pub struct NoArrivals {
    text: String,
}

impl FromStr for Arrivals {
    type Err = NoArrivals;

    fn from_str(text: &str) -> Result<Self, NoArrivals> {
        let no = || NoArrivals { text: text.chars().take(80).collect() };
        let rate =
            |text: &str| text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate >= 0.001).ok_or_else(no);
        let time = |text: &str| text.parse::<Millis>().map(Millis::duration).map_err(|_| no());
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("constant", "") => Ok(Self::Constant),
            ("poisson", "") => Ok(Self::Poisson),
            ("ramp", to) => Ok(Self::Ramp { to: rate(to)? }),
            ("step", rest) => {
                let (to, at) = rest.split_once('@').ok_or_else(no)?;
                Ok(Self::Step { to: rate(to)?, at: time(at)? })
            }
            ("burst", rest) => {
                let parts: Vec<_> = rest.split('/').collect();
                let [peak, on, every] = parts[..] else { return Err(no()) };
                let (on, every) = (time(on)?, time(every)?);
                let is_burst = !on.is_zero() && on < every;
                if is_burst { Ok(Self::Burst { peak: rate(peak)?, on, every }) } else { Err(no()) }
            }
            _ => Err(no()),
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: &Duration| Millis::new(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Poisson => f.write_str("poisson"),
            Self::Step { to, at } => write!(f, "step:{to}@{}", ms(at)),
            Self::Ramp { to } => write!(f, "ramp:{to}"),
            Self::Burst { peak, on, every } => write!(f, "burst:{peak}/{}/{}", ms(on), ms(every)),
        }
    }
}

impl Serialize for Arrivals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A stretch of time in which the rate goes from one value to another in a straight line.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    seconds: f64,
    from: f64,
    to: f64,
}

impl Stretch {
    /// How many are due within it.
    fn count(&self) -> f64 {
        self.seconds * (self.from + self.to) / 2.0
    }

    /// When so many are due, in seconds from its beginning: the root of from·t + (to − from)·t²/2s = count.
    fn at(&self, count: f64) -> f64 {
        let half_slope = (self.to - self.from) / (2.0 * self.seconds);
        if half_slope == 0.0 || !self.seconds.is_finite() {
            return count / self.from;
        }
        let root = half_slope.mul_add(4.0 * count, self.from * self.from).max(0.0).sqrt();
        2.0 * count / (self.from + root)
    }
}

/// The due times of one thread among several, one after the other. A due time is a formula of its number (with Poisson arrivals
/// of the one before), so that appends that can't be sent yet wait without a queue.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    start_ns: u64,
    stretches: Vec<Stretch>,
    /// Whether the stretches come again and again; else the last one goes on.
    repeats: bool,
    /// The stretch that the next number lies in, and what came before it.
    at: usize,
    before_s: f64,
    before: f64,
    number: f64,
    step: f64,
    gaps: Option<(Random, f64)>,
    due_ns: u64,
}

/// Threads that share a schedule, and which one this is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) thread: u16,
    pub(crate) threads: u16,
}

impl Schedule {
    /// The schedule of one of the threads that together send at `per_s` from `start_ns` on, for as long as `run`.
    pub(crate) fn new(start_ns: u64, (per_s, arrivals): (f64, Arrivals), share: Share, run: Duration) -> Self {
        let flat = |seconds, rate| Stretch { seconds, from: rate, to: rate };
        let stretches = match arrivals {
            Arrivals::Constant | Arrivals::Poisson => vec![flat(f64::INFINITY, per_s)],
            Arrivals::Step { to, at } => vec![flat(at.as_secs_f64(), per_s), flat(f64::INFINITY, to)],
            Arrivals::Ramp { to } => {
                vec![Stretch { seconds: run.as_secs_f64(), from: per_s, to }, flat(f64::INFINITY, to)]
            }
            Arrivals::Burst { peak, on, every } => {
                vec![flat(on.as_secs_f64(), peak), flat((every - on).as_secs_f64(), per_s)]
            }
        };
        let Share { thread, threads } = share;
        let gaps = matches!(arrivals, Arrivals::Poisson)
            .then(|| (Random::new(0x5eed ^ u64::from(thread)), f64::from(threads) / per_s * 1e9));
        let mut schedule = Self {
            start_ns,
            stretches,
            repeats: matches!(arrivals, Arrivals::Burst { .. }),
            at: 0,
            before_s: 0.0,
            before: 0.0,
            number: f64::from(thread),
            step: f64::from(threads),
            gaps,
            due_ns: start_ns,
        };
        schedule.due_ns = schedule.due();
        schedule
    }

    /// When the next append is due.
    pub(crate) const fn next_ns(&self) -> u64 {
        self.due_ns
    }

    /// Takes the next append if it is due.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.due_ns;
        (due_ns <= now_ns).then(|| {
            self.number += self.step;
            self.due_ns = self.due();
            due_ns
        })
    }

    /// How many were due before `end_ns` and are not taken.
    pub(crate) fn untaken_before(&self, end_ns: u64) -> u64 {
        let mut rest = self.clone();
        let mut untaken = 0;
        while rest.due_ns < end_ns {
            rest.take(u64::MAX);
            untaken += 1;
        }
        untaken
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and nanoseconds of a run stay below 2^53"
    )]
    fn due(&mut self) -> u64 {
        if let Some((random, mean_ns)) = &mut self.gaps {
            // The gap between arrivals that know nothing of each other is exponential.
            return self.due_ns + (-random.unit().ln() * *mean_ns) as u64;
        }
        loop {
            let stretch = self.stretches[self.at];
            let left = self.number - self.before;
            let is_last = self.at + 1 == self.stretches.len() && !self.repeats;
            if is_last || left < stretch.count() {
                return self.start_ns + ((self.before_s + stretch.at(left)) * 1e9) as u64;
            }
            self.before += stretch.count();
            self.before_s += stretch.seconds;
            self.at = (self.at + 1) % self.stretches.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Arrivals, Schedule, Share};

    const S: u64 = 1_000_000_000;
    const RUN: Duration = Duration::from_secs(10);

    /// Of every second, how many are due in it, over all of three threads.
    fn per_second(rate: f64, arrivals: Arrivals) -> Vec<u64> {
        let mut counts = vec![0; 10];
        for thread in 0..3 {
            let mut schedule = Schedule::new(S, (rate, arrivals), Share { thread, threads: 3 }, RUN);
            while let Some(due_ns) = schedule.take(11 * S - 1) {
                counts[usize::try_from((due_ns - S) / S).unwrap()] += 1;
            }
        }
        counts
    }

    #[test]
    fn the_threads_together_send_evenly_at_the_rate() {
        let due = |thread| {
            let mut schedule = Schedule::new(1_000, (1e6, Arrivals::Constant), Share { thread, threads: 3 }, RUN);
            std::iter::from_fn(move || schedule.take(30_000)).collect::<Vec<_>>()
        };
        let mut all: Vec<u64> = (0..3).flat_map(due).collect();
        all.sort_unstable();
        assert_eq!(all, (0..30).map(|at| 1_000 + at * 1_000).collect::<Vec<_>>());
    }

    #[test]
    fn what_waits_keeps_its_due_time_and_what_is_left_is_counted() {
        let mut schedule = Schedule::new(0, (1e3, Arrivals::Constant), Share { thread: 0, threads: 1 }, RUN);
        assert_eq!(schedule.take(0), Some(0));
        assert_eq!(schedule.take(500_000), None);
        assert_eq!(schedule.take(9_000_000), Some(1_000_000));
        assert_eq!(schedule.take(9_000_000), Some(2_000_000));
        assert_eq!((schedule.untaken_before(9_000_000), schedule.untaken_before(3_000_000)), (6, 0));
    }

    #[test]
    fn every_shape_has_its_rates() {
        assert_eq!(per_second(100.0, Arrivals::Constant), [100; 10]);
        let step = Arrivals::Step { to: 300.0, at: Duration::from_secs(4) };
        assert_eq!(per_second(100.0, step), [100, 100, 100, 100, 300, 300, 300, 300, 300, 300]);
        let ramp = per_second(100.0, Arrivals::Ramp { to: 1_100.0 });
        let expected = [150, 250, 350, 450, 550, 650, 750, 850, 950, 1_050];
        assert!(
            ramp.iter().zip(expected).all(|(found, expected): (&u64, u64)| found.abs_diff(expected) <= 1),
            "{ramp:?}"
        );
        let burst = Arrivals::Burst { peak: 900.0, on: Duration::from_millis(500), every: Duration::from_secs(1) };
        assert_eq!(per_second(100.0, burst), [500; 10]);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_come_in_clusters() {
        let counts = per_second(1_000.0, Arrivals::Poisson);
        let all: u64 = counts.iter().sum();
        // Ten thousand with a deviation of a hundred.
        assert!((9_500..10_500).contains(&all), "{counts:?}");
        assert!(counts.iter().any(|count| *count != counts[0]), "{counts:?}");
        let mut schedule = Schedule::new(0, (1e3, Arrivals::Poisson), Share { thread: 0, threads: 1 }, RUN);
        let due: Vec<_> = std::iter::from_fn(|| schedule.take(10 * S)).collect();
        let close = due.windows(2).filter(|pair| pair[1] - pair[0] < 100_000).count();
        // A tenth of the mean gap: 9.5 in 100 of exponential gaps are shorter.
        assert!((700..1_250).contains(&close), "{close} of {}", due.len());
    }

    #[test]
    fn arrivals_are_written_as_they_are_read() {
        for text in ["constant", "poisson", "step:300@4s", "ramp:1100", "burst:50000/100ms/1s"] {
            assert_eq!(text.parse::<Arrivals>().unwrap().to_string(), text);
        }
        for text in ["", "ramp", "ramp:0", "step:5", "burst:5/2s/1s", "burst:5/1s", "poisson:3", "step:x@1s"] {
            let error = text.parse::<Arrivals>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("`{text}` is none of constant")), "{error}");
        }
    }
}
