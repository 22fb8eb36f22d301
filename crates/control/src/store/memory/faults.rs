//! Which operation of the store in memory goes wrong, how, and how long does each take?

use std::time::Duration;

use bytes::Bytes;

use crate::store::{Object, StoreOp};

/// What an operation does instead of succeeding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is reset on the way there: nothing changes, and the caller can't know that.
    BeforeApply,
    /// It is applied, then the answer is lost.
    AfterApply,
    /// The caller is told of a lost connection at once; the operation is applied this much later, judged as things stand then.
    Late(Duration),
    /// Status 500; nothing changes, and the caller can't know that.
    ServerError,
    /// Status 503, slow down: nothing changes, and the caller knows it.
    SlowDown,
    /// Status 409, another conditional write of the same name is under way: nothing changes, and the caller knows it.
    Conflict,
    /// A read gives only the first half of its bytes, as if the object had no more. Other operations are spared.
    Truncated,
    /// A read gives its bytes with one bit flipped. Other operations are spared.
    Flipped,
    /// It never answers, and changes nothing.
    Hang,
}

impl Fault {
    fn fits(self, op: StoreOp) -> bool {
        !matches!(self, Self::Truncated | Self::Flipped) || op == StoreOp::Get
    }

    /// The object as a reader gets it.
    pub(super) fn spoil(self, object: Object) -> Object {
        let Object { mut meta, body } = object;
        let body = match self {
            Self::Truncated => {
                meta.size_bytes -= (body.len() - body.len() / 2) as u64;
                body.slice(..body.len() / 2)
            }
            Self::Flipped if !body.is_empty() => {
                let mut bytes = body.to_vec();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                Bytes::from(bytes)
            }
            _ => body,
        };
        Object { meta, body }
    }
}

/// Which of the operations that a rule is about it strikes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Every one.
    Always,
    /// The one with this number, from 1; the rule then is used up.
    Nth(u64),
    /// Each with this probability, within 0 and 1.
    Chance(f64),
}

/// One kind of trouble: an operation that it is about and that no earlier rule struck may meet its fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    fault: Fault,
    op: Option<StoreOp>,
    prefix: String,
    part: String,
    when: When,
    seen: u64,
}

impl Rule {
    /// Every operation meets `fault`, until narrowed.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self { fault, op: None, prefix: String::new(), part: String::new(), when: When::Always, seen: 0 }
    }

    /// Only this operation.
    #[must_use]
    pub fn of(self, op: StoreOp) -> Self {
        Self { op: Some(op), ..self }
    }

    /// Only objects, and listings, whose names begin so.
    #[must_use]
    pub fn under(self, prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..self }
    }

    /// Only objects, and listings, whose names have this in them.
    #[must_use]
    pub fn with(self, part: &str) -> Self {
        Self { part: part.to_owned(), ..self }
    }

    /// Only these of them.
    #[must_use]
    pub fn when(self, when: When) -> Self {
        Self { when, ..self }
    }

    fn is_about(&self, op: StoreOp, target: &str) -> bool {
        self.op.is_none_or(|of| of == op)
            && self.fault.fits(op)
            && target.starts_with(&self.prefix)
            && target.contains(&self.part)
    }
}

/// How long operations take: a log-normal distribution with these two percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Half take at most this.
    pub p50: Duration,
    /// All but one in a hundred take at most this; at least `p50`.
    pub p99: Duration,
}

impl Latency {
    /// Draws a time by two uniform numbers.
    fn draw(self, random: &mut Random) -> Duration {
        /// Standard deviations between the median and the 99th percentile of a normal distribution.
        const P99_DEVIATIONS: f64 = 2.326_347_9;
        if self.p50.is_zero() {
            return Duration::ZERO;
        }
        let spread = self.p99.max(self.p50).div_duration_f64(self.p50).ln() / P99_DEVIATIONS;
        // Box and Muller's normal number; 1 less a number in 0..1 is never 0, whose logarithm is infinite.
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * random.unit()).cos();
        self.p50.mul_f64((spread * normal).exp())
    }
}

/// Numbers that a seed decides (splitmix64).
#[derive(Clone, Debug, Default)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In 0..1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What one operation meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) delay: Duration,
    pub(super) fault: Option<Fault>,
}

/// Decides what each operation meets: the same operations in the same order meet the same under the same seed.
#[derive(Clone, Debug, Default)]
pub(super) struct Weather {
    random: Random,
    rules: Vec<Rule>,
    latency: Option<Latency>,
}

impl Weather {
    pub(super) fn seeded(seed: u64) -> Self {
        Self { random: Random(seed), ..Self::default() }
    }

    pub(super) fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
        self.latency = None;
    }

    pub(super) fn set_latency(&mut self, latency: Latency) {
        self.latency = Some(latency);
    }

    pub(super) fn plan(&mut self, op: StoreOp, target: &str) -> Plan {
        let delay = self.latency.map_or(Duration::ZERO, |latency| latency.draw(&mut self.random));
        let struck = self.rules.iter_mut().position(|rule| {
            if !rule.is_about(op, target) {
                return false;
            }
            rule.seen += 1;
            match rule.when {
                When::Always => true,
                When::Nth(number) => rule.seen == number,
                When::Chance(probability) => self.random.unit() < probability,
            }
        });
        let fault = struck.map(|at| self.rules[at].fault);
        if let Some(at) = struck.filter(|at| matches!(self.rules[*at].when, When::Nth(_))) {
            self.rules.remove(at);
        }
        Plan { delay, fault }
    }
}

#[cfg(test)]
mod tests;
