//! Random durations, and the conversion of numbers.

use std::time::Duration;

use forebay::Rng;

/// A log-normal duration, given by its median and its 99th percentile. It is constant if both are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
}

/// The 99th percentile of a normal distribution, in standard deviations above the mean.
const Z99: f64 = 2.326_347_874;
/// The cut-off, in standard deviations. One draw in thirty thousand would exceed it.
const Z_MOST: f64 = 4.0;

impl Latency {
    /// Always the same duration.
    #[must_use]
    pub const fn constant(time: Duration) -> Self {
        Self { p50: time, p99: time }
    }

    /// The longest duration that can be drawn.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.at(Z_MOST)
    }

    /// Draws one duration.
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        if self.p99 <= self.p50 {
            return self.p50;
        }
        self.at(normal(rng).min(Z_MOST))
    }

    fn at(&self, z: f64) -> Duration {
        if self.p99 <= self.p50 || self.p50.is_zero() {
            return self.p50;
        }
        let sigma = libm::log(self.p99.as_secs_f64() / self.p50.as_secs_f64()) / Z99;
        let seconds = self.p50.as_secs_f64() * libm::exp(sigma * z);
        // Longer than any run, if the number overflows.
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(1 << 32))
    }
}

/// A uniform number between zero and one, both excluded.
pub(crate) fn fraction(rng: &mut Rng) -> f64 {
    ((rng.bits() >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0
}

/// A standard normal number. Uses `libm`: the last digits of the platform's functions differ.
fn normal(rng: &mut Rng) -> f64 {
    let (u, v) = (fraction(rng), fraction(rng));
    libm::sqrt(-2.0 * libm::log(u)) * libm::cos(std::f64::consts::TAU * v)
}

/// The whole part of a number; zero below zero, and saturating above.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates at both ends")]
pub(crate) fn truncate(number: f64) -> u64 {
    number as u64
}

/// A share of a count, rounded down.
pub(crate) fn share(count: usize, share: f64) -> usize {
    usize::try_from(truncate(count as f64 * share)).unwrap_or(usize::MAX)
}

/// The time until the next arrival of a Poisson process.
pub(crate) fn exponential(per_second: f64, rng: &mut Rng) -> Duration {
    let nanos = -libm::log(fraction(rng)) * 1e9 / per_second;
    Duration::from_nanos(truncate(nanos))
}

#[cfg(test)]
mod tests {
    use forebay::Seed;

    use super::*;

    #[test]
    fn half_are_below_the_median_and_one_in_a_hundred_above_the_99th() {
        let latency = Latency { p50: Duration::from_millis(15), p99: Duration::from_millis(120) };
        let mut rng = Seed::new(1).rng();
        let times: Vec<_> = (0..100_000).map(|_| latency.draw(&mut rng)).collect();
        let above = |limit: Duration| times.iter().filter(|time| **time > limit).count();
        assert!((49_000..51_000).contains(&above(latency.p50)), "{}", above(latency.p50));
        assert!((900..1100).contains(&above(latency.p99)), "{}", above(latency.p99));
        assert_eq!(above(latency.longest()), 0);
    }

    #[test]
    fn a_constant_is_one() {
        let mut rng = Seed::new(1).rng();
        let second = Duration::from_secs(1);
        assert_eq!(Latency::constant(second).draw(&mut rng), second);
        assert_eq!(Latency::constant(second).longest(), second);
        assert_eq!(Latency { p50: Duration::ZERO, p99: second }.draw(&mut rng), Duration::ZERO);
    }

    #[test]
    fn arrivals_keep_their_mean() {
        let mut rng = Seed::new(1).rng();
        let total: Duration = (0..100_000).map(|_| exponential(100.0, &mut rng)).sum();
        assert!((990..1010).contains(&total.as_secs()), "{total:?}");
    }
}
