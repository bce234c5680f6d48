//! The shared part of the rate: one item with the time of the next free turn, taken by reserving ahead.
//!
//! A reservation moves that time on by so many turns and learns from the answer when they are. Whoever comes later gets
//! later turns: nobody loses, and nobody asks again and again.

use std::time::Duration;

use tracing::warn;

use crate::expression::{Change, Condition};
use crate::item::{Item, Value};
use crate::rate::Verdict;
use crate::share;
use crate::table::Update;

/// Clients' clocks may be this far apart.
const SKEW: Duration = Duration::from_secs(1);
/// How differently long opens take on their way to the server.
const SPREAD: Duration = Duration::from_millis(500);
/// Nobody need wait longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// A permit not used by then is lost.
pub(crate) const PERMIT_LIFE: Duration = Duration::from_secs(1);

/// The shared item of one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    key: String,
    /// What it was set to: so many a second, so many at once.
    limits: (i64, i64),
    /// Limits of others that were told of.
    told: Option<(i64, i64)>,
    /// Nanoseconds from turn to turn.
    interval: i64,
    /// Turns to be had at once, at most.
    burst: i64,
    /// How far in the past the next turn may lie: what is left of the burst when shares have their part.
    tolerance: i64,
    /// How far ahead turns are reserved.
    horizon: Duration,
    /// The next free turn, as last seen, in nanoseconds by the time of day.
    due: Option<i64>,
    /// The same, as last seen where working clocks can have put it.
    sound: i64,
    /// A turn that is farther ahead than any working clock puts it, and when it was first seen there.
    astray: Option<(i64, Duration)>,
    /// When such a one was last brought back.
    mended: Option<Duration>,
}

/// The key of the shared item.
pub(crate) fn key(endpoint: &str) -> String {
    format!("forebay_bucket#{endpoint}")
}

/// Whether turns were taken within the last `recently`, by the time of day.
pub(crate) fn is_in_use(item: &Item, wall: Duration, recently: Duration) -> bool {
    item.number("due_ns").is_some_and(|due| due >= nanos(wall.saturating_sub(recently)))
}

impl Bucket {
    /// A bucket of `per_second` and `burst`, of which shares by slots have their part.
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
            told: None,
            interval,
            burst,
            tolerance: interval.saturating_mul(burst - 1),
            horizon: max_wait.min(LONGEST_WAIT) * 9 / 10,
            due: None,
            sound: 0,
            astray: None,
            mended: None,
        }
    }

    /// Turns to ask for at a time, at most: the last of more would come later than anyone waits for it.
    pub(crate) fn most(&self) -> u32 {
        u32::try_from(nanos(self.horizon) / self.interval).unwrap_or(u32::MAX).max(1)
    }

    /// Permits a second.
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    pub(crate) fn per_second(&self) -> f64 {
        1e9 / self.interval as f64
    }

    /// Shares may save so many permits more than their part of the burst: so many fewer are left here.
    pub(crate) fn hold_back(&mut self, permits: u64) {
        let permits = i64::try_from(permits).unwrap_or(i64::MAX).min(self.burst - 1);
        self.tolerance = self.interval.saturating_mul(self.burst - 1 - permits);
    }

    /// The key to look at before asking, if it is not known whether the burst is whole. Others may have asked meanwhile, but
    /// never has anyone taken a turn back.
    pub(crate) fn unknown(&self, wall: Duration) -> Option<&str> {
        let known = self.due.is_some_and(|due| due >= nanos(wall) - self.tolerance);
        (!known).then_some(self.key.as_str())
    }

    /// This is the item.
    pub(crate) fn saw(&mut self, item: Option<&Item>) {
        if let Some(item) = item {
            self.compare(item);
        }
        // One that is missing is as good as one of long ago.
        self.due = Some(item.and_then(|item| item.number("due_ns")).unwrap_or(0));
    }

    /// How long it is until the next free turn, as far as is known, and as far as turns are reserved: it is no longer than that, or not for
    /// long.
    pub(crate) fn line(&self, wall: Duration) -> Duration {
        until(self.due.unwrap_or(0), wall).min(self.horizon)
    }

    /// The write that reserves `count` turns.
    pub(crate) fn ask(&self, count: u32, wall: Duration) -> Update {
        let (now, ahead) = (nanos(wall), self.interval * i64::from(count));
        let floor = now - self.tolerance;
        let due = || "due_ns".into();
        let update = Update::of(&self.key);
        if let Some(astray) = self.to_mend(wall) {
            let begin = now.max(self.known(wall));
            update
                .when(Condition::Equals(due(), Value::Number(astray)))
                .change(Change::set("due_ns", begin + ahead))
        } else if self.due.is_some_and(|due| due >= floor) {
            // The last of them is within the horizon.
            let ceiling = now + nanos(self.horizon) - (ahead - self.interval);
            update
                .when(Condition::AtLeast(due(), floor))
                .when(Condition::AtMost(due(), ceiling))
                .change(Change::plus("due_ns", ahead))
        } else {
            // Nobody has opened for so long that the burst is whole again; or someone took turns back that were taken.
            let begin = floor.max(self.known(wall));
            let idle = [Condition::Missing(due()), Condition::Below(due(), floor)];
            update
                .when(Condition::Any(idle.into()))
                .change(Change::set("due_ns", begin + ahead))
                .change(Change::set("rate", self.limits.0))
                .change(Change::set("burst", self.limits.1))
        }
    }

    /// It was done: these are the turns, by the time of day.
    pub(crate) fn granted(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> Verdict {
        if let Some(item) = item {
            self.compare(item);
        }
        let Some(due) = item.and_then(|item| item.number("due_ns")) else { return Verdict::Again(count) };
        if self.astray.take().is_some() {
            self.mended = Some(wall);
        }
        (self.due, self.sound) = (Some(due), due);
        let first = due - self.interval * i64::from(count);
        let turn = |number| u64::try_from(first + self.interval * i64::from(number)).unwrap_or(0);
        Verdict::Turns((0..count).map(|number| Duration::from_nanos(turn(number))).collect())
    }

    /// It was refused: this is the item.
    pub(crate) fn refused(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> Verdict {
        self.saw(item);
        let due = self.due.unwrap_or(0);
        self.judge(due, wall);
        // Whatever somebody may have written there.
        let ahead = (nanos(self.horizon) + nanos(wall)).saturating_sub(due);
        let room = ahead.div_euclid(self.interval).saturating_add(1);
        match u32::try_from(room.min(i64::from(count))) {
            // The other kind of write will do, or one for so many.
            Ok(room @ 1..) => Verdict::Again(room),
            _ if self.to_mend(wall).is_some() => Verdict::Again(count),
            // The line is as long as it may be: come back when about half of it is served. If nobody knows how long it is, soon enough for
            // whoever comes now.
            _ => {
                let beyond = until(due, wall).saturating_sub(self.horizon);
                Verdict::Later((beyond + self.horizon / 2).min(self.horizon))
            }
        }
    }

    /// Says it if another instance was set to other limits: each takes turns by its own, and the fleet as many as the largest allows.
    fn compare(&mut self, item: &Item) {
        let theirs = item.number("rate").zip(item.number("burst"));
        let Some(theirs) = theirs.filter(|theirs| *theirs != self.limits && self.told != Some(*theirs))
        else {
            return;
        };
        self.told = Some(theirs);
        let (ours, theirs) = (self.limits, theirs);
        warn!(target: "forebay", ?ours, ?theirs, "Distributed rate limiter: another instance has another limit and burst; set \
            DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT and _BURST alike");
    }

    /// The last turn that a working clock can have put there, by ours.
    fn farthest(&self, wall: Duration) -> i64 {
        nanos(wall + SKEW + 2 * self.horizon)
    }

    /// What we know to be taken.
    fn known(&self, wall: Duration) -> i64 {
        if self.sound <= self.farthest(wall) { self.sound } else { 0 }
    }

    /// Keeps in mind what is seen, and where it cannot be, since when.
    fn judge(&mut self, due: i64, wall: Duration) {
        if due <= self.farthest(wall) {
            (self.sound, self.astray) = (self.sound.max(due), None);
        } else if self.astray.is_none_or(|(seen, _)| seen != due) {
            self.astray = Some((due, wall));
            let ahead = until(due, wall);
            warn!(target: "forebay", ?ahead, "Distributed rate limiter: the next turn is farther ahead than any instance reserves; \
                the clock of one is wrong, or this one's is");
        }
    }

    /// A turn to bring back, since it would stop everyone. Whoever has seen it in its place knows that it was moved by a wrong clock;
    /// anyone else may be wrong itself, and waits until nobody goes by it. And nobody does it again and again: two whose clocks differ
    /// would never come to an end.
    fn to_mend(&self, wall: Duration) -> Option<i64> {
        let passed = |since: Duration| wall.saturating_sub(since) >= self.horizon;
        let (astray, since) = self.astray?;
        let sure = self.known(wall) > 0 || passed(since);
        (sure && self.mended.is_none_or(passed)).then_some(astray)
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
