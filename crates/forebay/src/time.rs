//! Points in time of a [`Runtime`](crate::rt::Runtime).

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since an origin that the runtime chooses. The clock never goes backwards.
///
/// An instant is plain data: only a [`Runtime`](crate::rt::Runtime) knows the present time. Arithmetic
/// saturates. So a deadline that is computed from an infinite duration is [`NEVER`](Self::NEVER), and not a
/// panic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any time of a runtime.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The duration since `earlier`. Zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in nanoseconds, limited to 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEVER => f.write_str("never"),
            Self(nanos) => write!(f, "{:?}", Duration::from_nanos(nanos)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let second = Duration::from_secs(1);
        assert_eq!(Instant::ZERO - second, Instant::ZERO);
        assert_eq!(Instant::NEVER + second, Instant::NEVER);
        assert_eq!(Instant::ZERO + Duration::MAX, Instant::NEVER);
        assert_eq!(Instant::ZERO.since(Instant::ZERO + second), Duration::ZERO);
        assert_eq!((Instant::ZERO + second).since(Instant::ZERO), second);
    }

    #[test]
    fn debug_reads_like_a_duration() {
        assert_eq!(format!("{:?}", Instant::from_nanos(1_500_000_000)), "1.5s");
        assert_eq!(format!("{:?}", Instant::NEVER), "never");
    }
}
