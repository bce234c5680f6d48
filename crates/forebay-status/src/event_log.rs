//! The recent events of all pools.

use std::collections::VecDeque;
use std::time::Duration;

use forebay::Instant;

use crate::board::Now;
use crate::change::Change;

/// How many events are kept.
pub(crate) const KEPT: usize = 200;

/// A change that repeats this soon is counted in the event that is there.
const PAUSE: Duration = Duration::from_secs(10);

/// An event that goes on for longer gets a new line, so that the list shows that it still goes on.
const LONGEST: Duration = Duration::from_secs(60);

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Consecutive numbers. An entry that grows keeps its number.
    pub(crate) id: u64,
    /// When it began. Only this is told by the time of day, which can be set back.
    began: Now,
    /// When it last grew.
    latest: Instant,
    /// The pool. `None`: a note about the process.
    pub(crate) pool: Option<String>,
    pub(crate) change: Change,
    /// The tick in which it last grew.
    pub(crate) tick: u64,
}

impl Entry {
    /// The time of day when it began, since 1970.
    pub(crate) fn time(&self) -> Duration {
        self.began.wall
    }

    /// The time of day when it last grew, since 1970.
    pub(crate) fn until(&self) -> Duration {
        self.began.wall + self.latest.since(self.began.at)
    }
}

/// The last events, oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    entries: VecDeque<Entry>,
    next: u64,
}

impl EventLog {
    /// Adds `change`, or counts it in an entry of the same kind that is still going on.
    pub(crate) fn add(&mut self, tick: u64, now: Now, pool: Option<&str>, change: Change) {
        let recent = self.entries.iter_mut().rev().take_while(|entry| now.at.since(entry.began.at) < LONGEST);
        for entry in recent {
            let goes_on = now.at.since(entry.latest) < PAUSE;
            if goes_on && entry.pool.as_deref() == pool && entry.change.absorb(&change) {
                (entry.latest, entry.tick) = (now.at, tick);
                return;
            }
        }
        let id = self.next;
        self.next += 1;
        let pool = pool.map(str::to_owned);
        self.entries.push_back(Entry { id, began: now, latest: now.at, pool, change, tick });
        while self.entries.len() > KEPT {
            self.entries.pop_front();
        }
    }

    /// All entries, oldest first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(log: &EventLog) -> Vec<String> {
        log.entries().map(|entry| format!("{} {}", entry.id, entry.change.text())).collect()
    }

    fn at(seconds: u64) -> Now {
        let since = Duration::from_secs(1_000 + seconds);
        Now { at: Instant::from_nanos(0) + since, wall: since }
    }

    fn opened(count: u64) -> Change {
        Change::Opened { count }
    }

    #[test]
    fn what_goes_on_stays_one_entry() {
        let mut log = EventLog::default();
        log.add(1, at(0), Some("a"), opened(4));
        log.add(2, at(1), Some("a"), Change::Died { count: 1 });
        log.add(3, at(9), Some("a"), opened(5));
        assert_eq!(texts(&log), ["0 opened 9 connections", "1 1 connection died"]);
        assert_eq!(log.entries().next().map(|entry| entry.tick), Some(3));
        log.add(4, at(19), Some("a"), opened(1));
        assert_eq!(texts(&log).len(), 3, "a pause ends it");
        log.add(5, at(19), Some("b"), opened(1));
        assert_eq!(texts(&log).len(), 4, "another pool");
    }

    #[test]
    fn a_long_one_is_told_again() {
        let mut log = EventLog::default();
        for second in 0..120 {
            log.add(second, at(second), Some("a"), opened(1));
        }
        assert_eq!(texts(&log), ["0 opened 60 connections", "1 opened 60 connections"]);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_revive_old_events() {
        let mut log = EventLog::default();
        log.add(1, at(0), Some("a"), opened(1));
        let set_back = |seconds| Now { wall: at(seconds).wall - Duration::from_secs(900), ..at(seconds) };
        log.add(2, set_back(300), Some("a"), opened(2));
        log.add(3, set_back(301), Some("a"), opened(2));
        assert_eq!(texts(&log), ["0 opened 1 connection", "1 opened 4 connections"]);
        let times: Vec<_> = log.entries().map(|entry| (entry.time(), entry.until())).collect();
        assert_eq!(
            times,
            [(1_000, 1_000), (400, 401)].map(|(a, b)| (Duration::from_secs(a), Duration::from_secs(b)))
        );
    }

    #[test]
    fn two_hundred_are_kept() {
        let mut log = EventLog::default();
        for second in 0..500 {
            log.add(second, at(second), None, Change::Note { text: second.to_string() });
        }
        assert_eq!(log.entries().count(), KEPT);
        assert_eq!(log.entries().next().map(|entry| entry.id), Some(300));
    }
}
