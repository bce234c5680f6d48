//! Mode `bucket`: one shared item with the time of the next free permit (a token bucket by GCRA).
//!
//! A reservation moves that time forward, and the answer shows when its permits are valid. Later requests get later
//! permits, so that no request is refused and repeated.

use std::time::Duration;

use tracing::warn;

use crate::expression::{Change, Condition};
use crate::item::{Item, Value};
use crate::rate::{Period, ReserveOutcome, Source};
use crate::share;
use crate::table::Update;

/// How far apart the clocks of instances may be.
const SKEW: Duration = Duration::from_secs(1);
/// How much the time from a permit to the server varies.
const SPREAD: Duration = Duration::from_millis(500);
/// A limit for `max_wait`.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// A permit that is not used within this time lapses.
pub(crate) const PERMIT_LIFE: Duration = Duration::from_secs(1);

/// The shared rate of one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    key: String,
    /// The configured rate per second and burst.
    limits: (i64, i64),
    /// Limits of other instances that were already logged.
    logged: Option<(i64, i64)>,
    /// Nanoseconds between two permits.
    interval: i64,
    /// The most permits at once.
    burst: i64,
    /// How far in the past the next permit may be: the burst without the part of the shares.
    tolerance: i64,
    /// How far ahead permits are reserved.
    horizon: Duration,
    /// The next free permit, as last seen, in nanoseconds by the time of day.
    due: Option<i64>,
    /// The same, but only values that a correct clock can have written.
    plausible: i64,
    /// A value farther ahead than any correct clock would write, and when it was first seen.
    implausible: Option<(i64, Duration)>,
    /// When such a value was last corrected.
    corrected: Option<Duration>,
}

/// The key of the shared item.
pub(crate) fn key(endpoint: &str) -> String {
    format!("forebay_bucket#{endpoint}")
}

/// Whether permits were reserved within the last `recently`, by the time of day.
pub(crate) fn is_in_use(item: &Item, wall: Duration, recently: Duration) -> bool {
    item.number("due_ns").is_some_and(|due| due >= nanos(wall.saturating_sub(recently)))
}

impl Bucket {
    /// A bucket of `per_second` and `burst`. With `shared_out`, a part of both belongs to the shares of slots.
    pub(crate) fn new(
        endpoint: &str,
        per_second: u64,
        burst: u64,
        shared_out: bool,
        max_wait: Duration,
    ) -> Self {
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let limits = (count(per_second), count(burst));
        let hundredths = if shared_out { 100 - share::HUNDREDTHS } else { 100 };
        let rate = count(per_second.max(1).saturating_mul(hundredths));
        let interval = (1_000_000_000 * 100 / rate).max(1);
        let reserve = per_second.saturating_mul(nanos_u64(SKEW + SPREAD + PERMIT_LIFE)) / 1_000_000_000;
        let burst = (burst.saturating_mul(hundredths) / 100).saturating_sub(reserve).max(1);
        let burst = count(burst);
        Self {
            key: key(endpoint),
            limits,
            logged: None,
            interval,
            burst,
            tolerance: interval.saturating_mul(burst - 1),
            horizon: max_wait.min(LONGEST_WAIT) * 9 / 10,
            due: None,
            plausible: 0,
            implausible: None,
            corrected: None,
        }
    }

    /// Logs if another instance has other limits. Each instance uses its own, so the fleet has the largest.
    fn compare(&mut self, item: &Item) {
        let theirs = item.number("rate").zip(item.number("burst"));
        let Some(theirs) = theirs.filter(|theirs| *theirs != self.limits && self.logged != Some(*theirs))
        else {
            return;
        };
        self.logged = Some(theirs);
        let (ours, theirs) = (self.limits, theirs);
        warn!(target: "forebay", ?ours, ?theirs, "Distributed rate limiter: another instance has a different limit or burst; set \
            DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT and _BURST to the same values everywhere");
    }

    /// The latest value that a correct clock can have written, by our clock.
    fn farthest(&self, wall: Duration) -> i64 {
        nanos(wall + SKEW + 2 * self.horizon)
    }

    /// The permits known to be reserved.
    fn known(&self, wall: Duration) -> i64 {
        if self.plausible <= self.farthest(wall) { self.plausible } else { 0 }
    }

    /// Remembers `due` as plausible, or since when it is implausible.
    fn check(&mut self, due: i64, wall: Duration) {
        if due <= self.farthest(wall) {
            (self.plausible, self.implausible) = (self.plausible.max(due), None);
        } else if self.implausible.is_none_or(|(seen, _)| seen != due) {
            self.implausible = Some((due, wall));
            let ahead = until(due, wall);
            warn!(target: "forebay", ?ahead, "Distributed rate limiter: the next permit is farther ahead than any instance reserves; \
                the clock of an instance is wrong, perhaps of this one");
        }
    }

    /// An implausible value to correct, because it would block the fleet. An instance that has seen a plausible value
    /// knows that a wrong clock has moved it. Others may have a wrong clock themselves, so they wait until the value has
    /// not changed for one horizon. No instance corrects twice within a horizon: two with different clocks would never
    /// stop.
    fn to_correct(&self, wall: Duration) -> Option<i64> {
        let passed = |since: Duration| wall.saturating_sub(since) >= self.horizon;
        let (wrong, since) = self.implausible?;
        let sure = self.known(wall) > 0 || passed(since);
        (sure && self.corrected.is_none_or(passed)).then_some(wrong)
    }
}

impl Source for Bucket {
    fn name(&self) -> &'static str {
        "the fleet's bucket"
    }

    /// More would be valid later than any caller waits.
    fn max_batch(&self) -> u32 {
        u32::try_from(nanos(self.horizon) / self.interval).unwrap_or(u32::MAX).max(1)
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    fn per_second(&self) -> f64 {
        1e9 / self.interval as f64
    }

    fn hold_back(&mut self, permits: u64) {
        let permits = i64::try_from(permits).unwrap_or(i64::MAX).min(self.burst - 1);
        self.tolerance = self.interval.saturating_mul(self.burst - 1 - permits);
    }

    /// Known unless the burst may be complete again. The known value may be outdated, but it never moves back.
    fn unknown(&self, wall: Duration) -> Option<&str> {
        let known = self.due.is_some_and(|due| due >= nanos(wall) - self.tolerance);
        (!known).then_some(self.key.as_str())
    }

    fn saw(&mut self, item: Option<&Item>) {
        if let Some(item) = item {
            self.compare(item);
        }
        // A missing item is the same as an old one.
        self.due = Some(item.and_then(|item| item.number("due_ns")).unwrap_or(0));
    }

    fn queue(&self, wall: Duration) -> Duration {
        until(self.due.unwrap_or(0), wall).min(self.horizon)
    }

    fn reserve(&self, count: u32, wall: Duration) -> Update {
        let (now, ahead) = (nanos(wall), self.interval * i64::from(count));
        let floor = now - self.tolerance;
        let due = || "due_ns".into();
        let update = Update::of(&self.key);
        if let Some(wrong) = self.to_correct(wall) {
            let begin = now.max(self.known(wall));
            update
                .when(Condition::Equals(due(), Value::Number(wrong)))
                .change(Change::set("due_ns", begin + ahead))
        } else if self.due.is_some_and(|due| due >= floor) {
            // The last permit is within the horizon.
            let ceiling = now + nanos(self.horizon) - (ahead - self.interval);
            update
                .when(Condition::AtLeast(due(), floor))
                .when(Condition::AtMost(due(), ceiling))
                .change(Change::plus("due_ns", ahead))
        } else {
            // The burst is complete again after a quiet time, or another instance has moved the time back.
            let begin = floor.max(self.known(wall));
            let idle = [Condition::Missing(due()), Condition::Below(due(), floor)];
            update
                .when(Condition::Any(idle.into()))
                .change(Change::set("due_ns", begin + ahead))
                .change(Change::set("rate", self.limits.0))
                .change(Change::set("burst", self.limits.1))
        }
    }

    fn granted(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> ReserveOutcome {
        if let Some(item) = item {
            self.compare(item);
        }
        let Some(due) = item.and_then(|item| item.number("due_ns")) else {
            return ReserveOutcome::Retry(count);
        };
        if self.implausible.take().is_some() {
            self.corrected = Some(wall);
        }
        (self.due, self.plausible) = (Some(due), due);
        let first = due - self.interval * i64::from(count);
        let time = |number| u64::try_from(first + self.interval * i64::from(number)).unwrap_or(0);
        let period = |number| {
            let from = Duration::from_nanos(time(number));
            // A permit of the burst is valid from the request on.
            Period { from, until: from.max(wall) + PERMIT_LIFE }
        };
        ReserveOutcome::Reserved((0..count).map(period).collect())
    }

    fn refused(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> ReserveOutcome {
        self.saw(item);
        let due = self.due.unwrap_or(0);
        self.check(due, wall);
        // The item may contain any number.
        let ahead = (nanos(self.horizon) + nanos(wall)).saturating_sub(due);
        let room = ahead.div_euclid(self.interval).saturating_add(1);
        match u32::try_from(room.min(i64::from(count))) {
            // Another kind of write will succeed, or one for fewer permits.
            Ok(room @ 1..) => ReserveOutcome::Retry(room),
            _ if self.to_correct(wall).is_some() => ReserveOutcome::Retry(count),
            // The queue has its full length: return when about half of it is served. If its length is unknown, return
            // in time for callers that arrive now.
            _ => {
                let beyond = until(due, wall).saturating_sub(self.horizon);
                let most = (beyond + self.horizon / 2).min(self.horizon);
                ReserveOutcome::RetryAfter { pause: most / 2, spread: most / 2 }
            }
        }
    }
}

fn until(due: i64, wall: Duration) -> Duration {
    Duration::from_nanos(u64::try_from(due).unwrap_or(0)).saturating_sub(wall)
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn nanos_u64(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
