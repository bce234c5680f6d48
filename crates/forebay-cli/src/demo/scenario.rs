//! What the demo plays: the server's terms, the load, and what a caller puts up with.
//!
//! The clock runs fast: a session ends after eight seconds, where Aurora DSQL's ends after an hour. The rate is what
//! a small share of a fleet's budget would be, and not to the same scale.

use std::time::Duration;

use forebay::Rng;

use super::wording::{count, seconds};

/// A range of durations to draw from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) shortest: Duration,
    pub(super) longest: Duration,
}

impl Span {
    pub(super) const fn millis(shortest: u64, longest: u64) -> Self {
        Self { shortest: Duration::from_millis(shortest), longest: Duration::from_millis(longest) }
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> Duration {
        self.shortest + rng.up_to(self.longest.saturating_sub(self.shortest))
    }
}

/// What the server grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Opens a second.
    pub(super) opens_per_second: u32,
    /// Opens at once after a quiet time.
    pub(super) burst: u32,
    /// What an open takes.
    pub(super) open_time: Span,
    /// What it takes to be refused one.
    pub(super) refusal_time: Duration,
    /// When a session is ended.
    pub(super) session_life: Duration,
}

/// A rush of callers, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rush {
    /// When the first begins.
    pub(super) first: Duration,
    /// From the beginning of one to the beginning of the next.
    pub(super) every: Duration,
    /// How long each lasts.
    pub(super) lasts: Duration,
    /// Callers a second while it lasts.
    pub(super) callers_per_second: u32,
}

impl Rush {
    /// Whether there is one at this time of the plan.
    pub(super) fn is_on(&self, at: Duration) -> bool {
        at.checked_sub(self.first)
            .is_some_and(|since| since.as_nanos() % self.every.as_nanos() < self.lasts.as_nanos())
    }
}

/// The demo's settings, the same for both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scenario {
    pub(super) terms: Terms,
    /// How many connections each side may have.
    pub(super) connections: usize,
    /// Callers a second when there is no rush.
    pub(super) callers_per_second: u32,
    pub(super) rush: Rush,
    /// What a caller's query takes.
    pub(super) query_time: Span,
    /// How long a caller waits for a connection.
    pub(super) patience: Duration,
    /// A caller who waited longer than this was served slowly.
    pub(super) slow: Duration,
}

impl Scenario {
    /// Eight connections are busy in quiet times and forty in a rush, of sixty. To replace each of the sixty once in
    /// its life takes ten opens a second, of twenty-five.
    pub(super) const DEMO: Self = Self {
        terms: Terms {
            opens_per_second: 25,
            burst: 10,
            open_time: Span::millis(20, 60),
            refusal_time: Duration::from_millis(5),
            session_life: Duration::from_secs(8),
        },
        connections: 60,
        callers_per_second: 500,
        // The first rush comes while all connections are new: both sides take it well. From then on there is one in
        // each session life. Every 4 s to every 12 s were tried: the pool fails callers in each. With no rush at all
        // it fails none, and is only slow to those who find a session ended and have to open another.
        rush: Rush {
            first: Duration::from_millis(500),
            every: Duration::from_secs(8),
            lasts: Duration::from_secs(1),
            callers_per_second: 2_500,
        },
        query_time: Span::millis(12, 20),
        patience: Duration::from_secs(1),
        slow: Duration::from_millis(5),
    };

    /// In words, on one line.
    pub(super) fn line(&self) -> String {
        let Self { terms, rush, .. } = self;
        format!(
            "server: {} opens a second, burst {}, sessions end after {}; callers: {} a second, and every {} a rush of {}",
            terms.opens_per_second,
            terms.burst,
            seconds(terms.session_life),
            count(self.callers_per_second.into()),
            seconds(rush.every),
            count(rush.callers_per_second.into()),
        )
    }

    /// How long a run must be to show anything: until the first rush that finds the first sessions ended.
    pub(super) fn telling(&self) -> Duration {
        self.rush.first + self.rush.every + self.rush.lasts
    }
}

#[cfg(test)]
mod tests {
    use forebay::Seed;

    use super::*;

    #[test]
    fn draws_stay_in_their_span() {
        let mut rng = Seed::new(1).rng();
        let span = Span::millis(20, 60);
        assert!((0..1000).map(|_| span.draw(&mut rng)).all(|d| span.shortest <= d && d <= span.longest));
    }

    #[test]
    fn rushes_come_and_go() {
        let rush = Scenario::DEMO.rush;
        let on = |millis| rush.is_on(Duration::from_millis(millis));
        assert!(!on(0) && !on(499) && on(500) && on(1_499) && !on(1_500) && !on(8_499) && on(8_500));
    }

    #[test]
    fn the_reservoir_has_room_to_spare() {
        let Scenario { terms, connections, rush, query_time, .. } = Scenario::DEMO;
        let busy = f64::from(rush.callers_per_second) * query_time.longest.as_secs_f64();
        assert!(busy * 1.2 <= connections as f64, "{busy} are busy in a rush, at most");
        // A connection is retired well before its session ends.
        let opens_per_second = connections as f64 / (terms.session_life.as_secs_f64() - 2.5);
        assert!(opens_per_second * 2.0 < f64::from(terms.opens_per_second), "{opens_per_second}");
    }
}
