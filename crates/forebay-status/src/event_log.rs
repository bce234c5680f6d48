//! The recent events of all pools.

use std::collections::VecDeque;
use std::time::Duration;

use crate::change::Change;

/// How many events are kept.
const KEPT: usize = 200;

/// A change that repeats this soon is counted in the event that is there.
const PAUSE: Duration = Duration::from_secs(10);

/// An event that goes on for longer gets a new line, so that the list shows that it still goes on.
const LONGEST: Duration = Duration::from_secs(60);

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Consecutive numbers. An entry that grows keeps its number.
    pub(crate) id: u64,
    /// The time of day when it began, and when it last grew, since 1970.
    pub(crate) began: Duration,
    pub(crate) latest: Duration,
    /// The pool. `None`: a note about the process.
    pub(crate) pool: Option<String>,
    pub(crate) change: Change,
    /// The tick in which it last grew.
    pub(crate) tick: u64,
}

/// The last events, oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    entries: VecDeque<Entry>,
    next: u64,
}

impl EventLog {
    /// Adds `change`, or counts it in an entry of the same kind that is still going on.
    pub(crate) fn add(&mut self, tick: u64, wall: Duration, pool: Option<&str>, change: Change) {
        let recent =
            self.entries.iter_mut().rev().take_while(|entry| wall.saturating_sub(entry.began) < LONGEST);
        for entry in recent {
            let goes_on = wall.saturating_sub(entry.latest) < PAUSE;
            if goes_on && entry.pool.as_deref() == pool && entry.change.absorb(&change) {
                (entry.latest, entry.tick) = (wall, tick);
                return;
            }
        }
        let id = self.next;
        self.next += 1;
        let pool = pool.map(str::to_owned);
        self.entries.push_back(Entry { id, began: wall, latest: wall, pool, change, tick });
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

    fn opened(count: u64) -> Change {
        Change::Opened { count }
    }

    #[test]
    fn what_goes_on_stays_one_entry() {
        let mut log = EventLog::default();
        let at = |seconds: u64| Duration::from_secs(1_000 + seconds);
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
            log.add(second, Duration::from_secs(second), Some("a"), opened(1));
        }
        assert_eq!(texts(&log), ["0 opened 60 connections", "1 opened 60 connections"]);
    }

    #[test]
    fn two_hundred_are_kept() {
        let mut log = EventLog::default();
        for second in 0..500 {
            log.add(second, Duration::from_secs(second), None, Change::Note { text: second.to_string() });
        }
        assert_eq!(log.entries().count(), KEPT);
        assert_eq!(log.entries().next().map(|entry| entry.id), Some(300));
    }
}
