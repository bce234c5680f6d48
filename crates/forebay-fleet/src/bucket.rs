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
        let rate = i64::try_from(per_second.max(1).saturating_mul(hundredths)).unwrap_or(i64::MAX);
        let interval = (1_000_000_000 * 100 / rate).max(1);
        let reserve = per_second.saturating_mul(nanos_u64(SKEW + SPREAD + PERMIT_LIFE)) / 1_000_000_000;
        let burst = (burst.saturating_mul(hundredths) / 100).saturating_sub(reserve).max(1);
        let burst = i64::try_from(burst).unwrap_or(i64::MAX);
        Self {
            key: key(endpoint),
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
            update.when(Condition::Any(idle.into())).change(Change::set("due_ns", begin + ahead))
        }
    }

    /// It was done: these are the turns, by the time of day.
    pub(crate) fn granted(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> Verdict {
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
        let room = (nanos(self.horizon) + nanos(wall) - due).div_euclid(self.interval) + 1;
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
mod tests {
    use super::*;
    use crate::memory::MemoryTable;
    use crate::table::{Table, TableError};
    use forebay::rt::VirtualTime;

    const WALL: Duration = Duration::from_secs(1_800_000_000);

    fn reserve(bucket: &mut Bucket, table: &MemoryTable, mut count: u32, wall: Duration) -> Verdict {
        loop {
            let update = bucket.ask(count, wall);
            let verdict = match VirtualTime::new().run(table.update(&update)) {
                Ok(item) => bucket.granted(count, wall, item.as_ref()),
                Err(TableError::ConditionFailed(item)) => bucket.refused(count, wall, item.as_deref()),
                Err(error) => panic!("{error}"),
            };
            match verdict {
                Verdict::Again(fewer) => count = fewer,
                verdict => return verdict,
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
        for (permits, at_once) in [(50, 500), (0, 550), (100_000, 1)] {
            let table = MemoryTable::new();
            let mut bucket = Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
            bucket.hold_back(permits);
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
        let ahead = turns(reserve(&mut bucket, &table, 2800, WALL));
        let last = *ahead.last().unwrap();
        assert_eq!((ahead.len(), last), (2700, WALL + Duration::from_secs(27)), "none after the horizon");
        match reserve(&mut bucket, &table, 1, WALL) {
            Verdict::Later(pause) => assert_eq!(pause, Duration::from_millis(13_510)),
            other => panic!("{other:?}"),
        }
        assert_eq!(Bucket::new("host", 1, 1, false, Duration::from_secs(30)).most(), 27);
    }

    #[test]
    fn a_turn_that_a_wrong_clock_moved_is_brought_back_by_whoever_saw_it_in_its_place() {
        let (table, hour) = (MemoryTable::new(), Duration::from_secs(3600));
        let new = || Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
        let (mut good, mut wrong) = (new(), new());
        turns(reserve(&mut good, &table, 1000, WALL));
        turns(reserve(&mut wrong, &table, 1, WALL + hour));
        let after = turns(reserve(&mut good, &table, 1, WALL));
        assert_eq!(after[0], WALL + Duration::from_millis(2510), "where it was");
        turns(reserve(&mut wrong, &table, 1, WALL + hour));
        let soon = WALL + Duration::from_secs(1);
        assert!(matches!(reserve(&mut good, &table, 1, soon), Verdict::Later(_)), "not again and again");
        turns(reserve(&mut good, &table, 1, WALL + Duration::from_secs(28)));
    }

    #[test]
    fn whoever_may_be_wrong_itself_leaves_a_busy_line_alone() {
        let (table, hour) = (MemoryTable::new(), Duration::from_secs(3600));
        let new = || Bucket::new("host", 100, 1000, false, Duration::from_secs(30));
        let (mut late, mut others) = (new(), new());
        for second in 0..300 {
            let wall = WALL + Duration::from_secs(second);
            turns(reserve(&mut others, &table, 100, wall + hour));
            match reserve(&mut late, &table, 1, wall) {
                Verdict::Later(pause) => {
                    assert_eq!(pause, Duration::from_secs(27), "it may be mended by then")
                }
                other => panic!("{other:?}"),
            }
        }
        let quiet = WALL + Duration::from_secs(330);
        turns(reserve(&mut late, &table, 1, quiet));
        // What it took back, the others know better.
        let next = turns(reserve(&mut others, &table, 1, quiet + hour));
        assert!(next[0] >= quiet + hour - Duration::from_millis(7490), "no more than they have saved");
        table.expire(&key("host"));
        turns(reserve(&mut others, &table, 749, quiet + hour));
        let next = turns(reserve(&mut others, &table, 1, quiet + hour));
        assert!(next[0] >= quiet + hour, "the burst once, also if the item is deleted");
    }

    #[test]
    fn numbers_that_make_no_sense_do_no_harm() {
        let table = MemoryTable::new();
        for (rate, burst, wait) in
            [(u64::MAX, u64::MAX, Duration::MAX), (1, u64::MAX, Duration::ZERO), (0, 0, Duration::ZERO)]
        {
            let mut bucket = Bucket::new("host", rate, burst, true, wait);
            table.expire(&key("host"));
            turns(reserve(&mut bucket, &table, 1, WALL));
            turns(reserve(&mut bucket, &table, 1, WALL + Duration::from_secs(3)));
        }
    }
}
