//! The shared part of the rate: one item with the time of the next free turn, taken by reserving ahead.
//!
//! A reservation moves that time on by so many turns and learns from the answer when they are. Whoever comes later gets
//! later turns: nobody loses, and nobody asks again and again.

use std::time::Duration;

use crate::expression::{Change, Condition};
use crate::item::Item;
use crate::rate::Verdict;
use crate::share;
use crate::table::Update;

/// Clients' clocks may be this far apart.
const SKEW: Duration = Duration::from_secs(1);
/// How differently long opens take on their way to the server.
const SPREAD: Duration = Duration::from_millis(500);
/// A permit not used by then is lost.
pub(crate) const PERMIT_LIFE: Duration = Duration::from_secs(1);

/// The shared item of one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    key: String,
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
}

/// The key of the shared item.
pub(crate) fn key(endpoint: &str) -> String {
    format!("forebay_bucket#{endpoint}")
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
        let hundredths = if shared_out { 100 - share::HUNDREDTHS } else { 100 };
        let interval =
            1_000_000_000 * 100 / i64::try_from(per_second.max(1) * hundredths).unwrap_or(i64::MAX);
        let reserve = per_second.saturating_mul(nanos_u64(SKEW + SPREAD + PERMIT_LIFE)) / 1_000_000_000;
        let burst = (burst * hundredths / 100).saturating_sub(reserve).max(1);
        let burst = i64::try_from(burst).unwrap_or(i64::MAX);
        Self {
            key: key(endpoint),
            interval: interval.max(1),
            burst,
            tolerance: interval.saturating_mul(burst - 1),
            horizon: max_wait * 9 / 10,
            due: None,
        }
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
        // One that is missing is as good as one of long ago.
        self.due = Some(item.and_then(|item| item.number("due_ns")).unwrap_or(0));
    }

    /// How long it is until the next free turn, as far as is known.
    pub(crate) fn line(&self, wall: Duration) -> Duration {
        let due = u64::try_from(self.due.unwrap_or(0)).unwrap_or(0);
        Duration::from_nanos(due).saturating_sub(wall)
    }

    /// The write that reserves `count` turns.
    pub(crate) fn ask(&self, count: u32, wall: Duration) -> Update {
        let (now, ahead) = (nanos(wall), self.interval * i64::from(count));
        let floor = now - self.tolerance;
        let due = || "due_ns".into();
        let update = Update::of(&self.key);
        if self.due.is_some_and(|due| due >= floor) {
            let ceiling = now + nanos(self.horizon);
            update
                .when(Condition::AtLeast(due(), floor))
                .when(Condition::AtMost(due(), ceiling))
                .change(Change::plus("due_ns", ahead))
        } else {
            // Nobody has opened for so long that the burst is whole again.
            let idle = [Condition::Missing(due()), Condition::Below(due(), floor)];
            update.when(Condition::Any(idle.into())).change(Change::set("due_ns", floor + ahead))
        }
    }

    /// It was done: these are the turns, by the time of day.
    pub(crate) fn granted(&mut self, count: u32, item: Option<&Item>) -> Verdict {
        let Some(due) = item.and_then(|item| item.number("due_ns")) else { return Verdict::Again(count) };
        self.due = Some(due);
        let first = due - self.interval * i64::from(count);
        let turn = |number| u64::try_from(first + self.interval * i64::from(number)).unwrap_or(0);
        Verdict::Turns((0..count).map(|number| Duration::from_nanos(turn(number))).collect())
    }

    /// It was refused: this is the item.
    pub(crate) fn refused(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> Verdict {
        self.saw(item);
        let ahead = self.due.unwrap_or(0) - nanos(wall);
        match u64::try_from(ahead - nanos(self.horizon)) {
            // The line is as long as it may be: come back when about half of it is served.
            Ok(beyond) => Verdict::Later(Duration::from_nanos(beyond) + self.horizon / 2),
            // The other kind of write will do.
            Err(_) => Verdict::Again(count),
        }
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn nanos_u64(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryTable;
    use crate::table::{Table, TableError};
    use forebay::rt::VirtualTime;

    const WALL: Duration = Duration::from_secs(1_800_000_000);

    fn reserve(bucket: &mut Bucket, table: &MemoryTable, count: u32, wall: Duration) -> Verdict {
        loop {
            let update = bucket.ask(count, wall);
            let verdict = match VirtualTime::new().run(table.update(&update)) {
                Ok(item) => bucket.granted(count, item.as_ref()),
                Err(TableError::ConditionFailed(item)) => bucket.refused(count, wall, item.as_deref()),
                Err(error) => panic!("{error}"),
            };
            if !matches!(verdict, Verdict::Again(_)) {
                return verdict;
            }
        }
    }

    fn turns(verdict: Verdict) -> Vec<Duration> {
        match verdict {
            Verdict::Turns(turns) => turns,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_burst_then_the_rate_whoever_asks() {
        let table = MemoryTable::new();
        let new = || Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
        let (mut one, mut other) = (new(), new());
        let mut all = turns(reserve(&mut one, &table, 400, WALL));
        all.extend(turns(reserve(&mut other, &table, 400, WALL)));
        let at_once = all.iter().filter(|turn| **turn <= WALL).count();
        assert_eq!(at_once, 550, "four fifths of the burst, less the reserve of 2.5 s");
        assert_eq!(all[799] - all[550], Duration::from_micros(12_500) * 249, "80 a second");
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        let later = WALL + Duration::from_secs(3600);
        let again = turns(reserve(&mut one, &table, 551, later));
        assert_eq!(
            again.iter().filter(|turn| **turn <= later).count(),
            550,
            "a burst, and no more for the quiet"
        );
    }

    #[test]
    fn what_shares_may_save_beyond_their_part_is_held_back() {
        let table = MemoryTable::new();
        let mut bucket = Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
        for (permits, at_once) in [(50, 500), (0, 550), (100_000, 1)] {
            bucket.hold_back(permits);
            table.expire(&key("host"));
            let turns = turns(reserve(&mut bucket, &table, 600, WALL));
            assert_eq!(turns.iter().filter(|turn| **turn <= WALL).count(), at_once, "{permits} held back");
        }
    }

    #[test]
    fn one_looks_only_when_the_burst_may_be_whole() {
        let table = MemoryTable::new();
        let mut bucket = Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
        assert_eq!(bucket.unknown(WALL), Some("forebay_bucket#host"));
        bucket.saw(None);
        assert_eq!(bucket.line(WALL), Duration::ZERO);
        turns(reserve(&mut bucket, &table, 850, WALL));
        assert_eq!((bucket.unknown(WALL), bucket.line(WALL)), (None, Duration::from_millis(1010)));
        let later = WALL + Duration::from_secs(8);
        assert_eq!((bucket.unknown(later), bucket.line(later)), (None, Duration::ZERO));
        assert!(bucket.unknown(later + Duration::from_secs(1)).is_some());
    }

    #[test]
    fn a_line_that_is_too_long_is_left_alone_for_a_while() {
        let table = MemoryTable::new();
        let mut bucket = Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
        turns(reserve(&mut bucket, &table, 750, WALL));
        turns(reserve(&mut bucket, &table, 2800, WALL));
        match reserve(&mut bucket, &table, 1, WALL) {
            Verdict::Later(pause) => assert_eq!(pause, Duration::from_millis(14_510)),
            other => panic!("{other:?}"),
        }
    }
}
