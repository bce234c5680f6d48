//! What a fleet shares, by what its table and the cluster count.

use std::time::Duration;

use forebay::Instant;
use forebay_fleet::{RateMode, StoreOutagePolicy};

use super::{Assertion, Judge, KEPT_BACK};
use crate::outcome::about;
use crate::scenario::Scenario;

/// What keeps instances from each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    /// In how many ways some do not reach the table at present.
    cuts: u32,
    /// When the last of those was over.
    reached: Instant,
    /// When somebody was last lost who may have been watching others.
    loss: Instant,
}

impl Trouble {
    pub(super) fn new(start: Instant) -> Self {
        Self { cuts: 0, reached: start, loss: start }
    }
}

/// A token bucket, in true time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    interval: Duration,
    tolerance: Duration,
    due: Instant,
}

impl Bucket {
    /// The one that the fleet shares, if it shares one, and one with room for what clocks and networks do to it.
    pub(super) fn of(scenario: &Scenario, start: Instant) -> Option<Self> {
        let has_room = f64::from(scenario.limiter.burst) > 2.0 * KEPT_BACK * scenario.limiter.per_second;
        (has_room && scenario.limiter.mode == Some(RateMode::Bucket)).then(|| {
            let interval = Duration::from_secs_f64(1.0 / scenario.limiter.per_second);
            Self { interval, tolerance: interval.saturating_mul(scenario.limiter.burst - 1), due: start }
        })
    }

    /// Whether one more is within it.
    fn admits(&mut self, now: Instant) -> bool {
        let within = self.due <= now + self.tolerance;
        self.due = self.due.max(now) + self.interval;
        within
    }
}

/// How long after it could not reach the table an instance may still open at its local rate: it has to ask again first.
const LOCAL: Duration = Duration::from_secs(60);
/// What a call takes at most, and what is late by less is not.
const SLACK: Duration = Duration::from_secs(5);

impl Judge {
    /// Some instances do not reach the table, or nobody does.
    pub(crate) fn cut(&mut self) {
        self.trouble.cuts += 1;
    }

    /// They do again.
    pub(crate) fn mended(&mut self, now: Instant) {
        self.trouble.cuts -= 1;
        self.trouble.reached = now;
    }

    /// An instance may own so many connections from now on.
    pub(crate) fn resized(&mut self, place: usize, max_open: usize) {
        self.members[place].max_open = max_open;
    }

    /// An instance stands still from now on.
    pub(crate) fn paused(&mut self, place: usize) {
        self.members[place].resumed = Instant::NEVER;
    }

    /// An instance stood still until now.
    pub(crate) fn resumed(&mut self, place: usize, now: Instant) {
        self.members[place].resumed = now;
        self.lost_a_watcher(now);
    }

    /// Somebody is gone, or sees nothing for a while.
    pub(crate) fn lost_a_watcher(&mut self, now: Instant) {
        self.trouble.loss = now;
    }

    /// Somebody connects.
    pub(super) fn draw_from_bucket(&mut self, now: Instant) {
        let Trouble { cuts, reached, .. } = self.trouble;
        let lately = reached > self.start && now.since(reached) < LOCAL;
        let alone = self.scenario.away == StoreOutagePolicy::Local && (cuts > 0 || lately);
        let Some(bucket) = self.bucket.as_mut().filter(|_| !alone) else { return };
        if !bucket.admits(now) {
            self.find(Assertion::WithinBucket, now, || {
                "the fleet connects faster than the bucket it shares".to_owned()
            });
        }
    }

    /// What `name` held, who died then, is free again, or not yet. Returns whether it is late.
    pub(crate) fn reaped(&mut self, name: &str, died: Instant, slots: u64, now: Instant) -> bool {
        let Some(leases) = self.scenario.leases.filter(|_| self.trouble.cuts == 0 && !self.finished) else {
            return false;
        };
        let Trouble { reached, loss, .. } = self.trouble;
        let from = died.max(reached).max(loss);
        let lossy = self.scenario.table.is_some_and(|table| table.error_rate + table.lost_answers > 0.0);
        // A look that is lost is made again at the next beat.
        let again = if lossy { leases.beat } else { Duration::ZERO };
        let allowed = self.stretched(leases.length + 2 * leases.beat + again) + SLACK;
        let late = now.since(from) > allowed;
        if late {
            self.find(Assertion::Reaped, now, || {
                format!(
                    "{name} died {} ago, and its {slots} slots were not free after {}",
                    about(now.since(died)),
                    about(allowed)
                )
            });
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_admits_its_burst_and_then_its_rate() {
        let start = Instant::ZERO + Duration::from_secs(9);
        let bucket = |settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
            let scenario = Scenario::parse("test", "services: [{name: a}]", &settings).unwrap();
            Bucket::of(&scenario, start)
        };
        assert!(bucket(&[]).is_none() && bucket(&["limiter.mode=bucket"]).is_none());
        let keys = ["limiter.mode=bucket", "limiterPerSec=10", "limiterBurst=60"];
        let mut bucket = bucket(&keys).expect("one with room");
        assert_eq!((0..61).filter(|_| bucket.admits(start)).count(), 60);
        let later = start + Duration::from_millis(250);
        assert!(bucket.admits(later) && !bucket.admits(later), "the one refused has been counted");
    }
}
