//! Checks what the fleet shares: its rate, and the slots of dead instances.

use std::time::Duration;

use forebay::Instant;
use forebay_fleet::{RateMode, StoreOutagePolicy};

use super::{Assertion, Judge, RESERVE};
use crate::outcome::about;
use crate::scenario::Scenario;

/// When instances could last reach the table and watch each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableAccess {
    /// How many faults keep instances from the table at present.
    cuts: u32,
    /// When the last such fault ended.
    restored: Instant,
    /// When an instance was last lost that may have been watching others.
    watcher_lost: Instant,
}

impl TableAccess {
    pub(super) fn new(start: Instant) -> Self {
        Self { cuts: 0, restored: start, watcher_lost: start }
    }
}

/// A token bucket (GCRA) in true time. The judge has its own on purpose: with the limiter's code it would
/// share the limiter's bugs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    interval: Duration,
    tolerance: Duration,
    due: Instant,
    /// What the fleet shares.
    mode: RateMode,
}

impl Bucket {
    /// The fleet's shared bucket, if it is large enough to absorb clock and network errors; or its shared window, which has no
    /// burst: any time of this length contains parts of one second more, at both ends, besides those errors.
    pub(super) fn of(scenario: &Scenario, start: Instant) -> Option<Self> {
        let (mode, per_second) = (scenario.limiter.mode?, scenario.limiter.per_second);
        let interval = Duration::from_secs_f64(1.0 / per_second);
        let has_room = f64::from(scenario.limiter.burst) > 2.0 * RESERVE * per_second;
        let tolerance = match mode {
            RateMode::Bucket if has_room => interval.saturating_mul(scenario.limiter.burst - 1),
            RateMode::Bucket => return None,
            RateMode::Window => Duration::from_secs_f64(1.0 + RESERVE),
        };
        Some(Self { interval, tolerance, due: start, mode })
    }

    /// What it checks.
    pub(super) fn assertion(&self) -> Assertion {
        match self.mode {
            RateMode::Bucket => Assertion::WithinBucket,
            RateMode::Window => Assertion::WithinWindow,
        }
    }

    /// Counts one connect. Returns whether the bucket admits it.
    fn admits(&mut self, now: Instant) -> bool {
        let within = self.due <= now + self.tolerance;
        self.due = self.due.max(now) + self.interval;
        within
    }
}

/// How long an instance may still use its local rate after it reaches the table again: it must call the table
/// first.
const LOCAL: Duration = Duration::from_secs(60);
/// The timeout of a call; a shorter delay is not late.
const SLACK: Duration = Duration::from_secs(5);

impl Judge {
    /// A fault keeps instances from the table.
    pub(crate) fn table_cut_off(&mut self) {
        self.table_access.cuts += 1;
    }

    /// Such a fault is over.
    pub(crate) fn table_reconnected(&mut self, now: Instant) {
        self.table_access.cuts -= 1;
        self.table_access.restored = now;
    }

    /// From now on an instance may own this many connections.
    pub(crate) fn resized(&mut self, instance: usize, max_open: usize) {
        self.instances[instance].max_open = max_open;
    }

    pub(crate) fn paused(&mut self, instance: usize) {
        self.instances[instance].resumed = Instant::NEVER;
    }

    pub(crate) fn resumed(&mut self, instance: usize, now: Instant) {
        self.instances[instance].resumed = now;
        self.lost_a_watcher(now);
    }

    /// An instance is gone, or could not watch the others until now.
    pub(crate) fn lost_a_watcher(&mut self, now: Instant) {
        self.table_access.watcher_lost = now;
    }

    /// Checks a connect against the shared bucket.
    pub(super) fn draw_from_bucket(&mut self, now: Instant) {
        let TableAccess { cuts, restored, .. } = self.table_access;
        let recently = restored > self.start && now.since(restored) < LOCAL;
        let alone = self.scenario.away == StoreOutagePolicy::Local && (cuts > 0 || recently);
        let Some(bucket) = self.bucket.as_mut().filter(|_| !alone) else { return };
        if !bucket.admits(now) {
            let (assertion, mode) = (bucket.assertion(), bucket.mode);
            self.find(assertion, now, || {
                format!("the fleet connects faster than its shared {mode:?}").to_lowercase()
            });
        }
    }

    /// The slots of a dead instance are free again, or still held. Returns whether that is late.
    pub(crate) fn reaped(&mut self, name: &str, died: Instant, slots: u64, now: Instant) -> bool {
        let is_watched = self.table_access.cuts == 0 && !self.finished;
        let Some(leases) = self.scenario.leases.filter(|_| is_watched) else { return false };
        let TableAccess { restored, watcher_lost, .. } = self.table_access;
        let from = died.max(restored).max(watcher_lost);
        // A lost call is repeated at the next heartbeat.
        let again = if self.is_lossy() { leases.beat } else { Duration::ZERO };
        let allowed = self.stretched(leases.length + 2 * leases.beat + again) + SLACK;
        let late = now.since(from) > allowed;
        if late {
            self.find(Assertion::Reaped, now, || {
                let (ago, allowed) = (about(now.since(died)), about(allowed));
                format!("{name} died {ago} ago, and its {slots} slots were not free after {allowed}")
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

    #[test]
    fn a_window_admits_what_falls_into_the_seconds_around_it() {
        let start = Instant::ZERO + Duration::from_secs(9);
        let keys = ["limiter.mode=window", "limiterPerSec=10"].map(str::to_owned);
        let scenario = Scenario::parse("test", "services: [{name: a}]", &keys).unwrap();
        let mut window = Bucket::of(&scenario, start).expect("it needs no burst");
        assert_eq!(window.assertion(), Assertion::WithinWindow);
        assert_eq!((0..100).filter(|_| window.admits(start)).count(), 36);
    }
}
