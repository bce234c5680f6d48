//! The pools of a page, with their histories and the events. It has no clock and no socket.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use forebay::{ConnectionStatus, Instant};

use crate::ages::Ages;
use crate::change::Change;
use crate::event_log::{self, EventLog};
use crate::history::{History, SPAN};
use crate::sample::Sample;
use crate::sentence::{self, Sentence};
use crate::source::{PoolSnapshot, PoolSource};
use crate::tracker::Tracker;

/// The present time, on both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    pub(crate) at: Instant,
    /// Since 1970.
    pub(crate) wall: Duration,
}

/// What was read from one source.
pub(crate) struct Reading {
    pub(crate) name: String,
    pub(crate) source: Arc<dyn PoolSource>,
    pub(crate) snapshot: Option<PoolSnapshot>,
    /// `None` if nobody looks.
    pub(crate) connections: Option<Vec<ConnectionStatus>>,
}

impl Reading {
    /// Asks the source. Call it without a lock: a source is somebody else's code. `None` if it panics: the page
    /// and the other pools go on without it.
    pub(crate) fn take(name: &str, source: &Arc<dyn PoolSource>, with_connections: bool) -> Option<Self> {
        let ask = || (source.snapshot(), with_connections.then(|| source.connections()));
        let (snapshot, connections) = catch_unwind(AssertUnwindSafe(ask)).ok()?;
        Some(Self { name: name.to_owned(), source: Arc::clone(source), snapshot, connections })
    }
}

/// One pool.
pub(crate) struct Watched {
    source: Arc<dyn PoolSource>,
    pub(crate) tracker: Tracker,
    pub(crate) history: History,
    /// Not older than the last sample, if somebody looks.
    pub(crate) ages: Option<Ages>,
    gone_since: Option<Instant>,
    /// Whether a sample or a probe has seen the low watermark reached.
    was_filled: bool,
}

impl Watched {
    pub(crate) fn sentence(&self) -> Sentence {
        match self.tracker.last() {
            _ if self.tracker.is_gone() => sentence::gone(),
            Some(sample) => sentence::describe(sample, &self.history.rates(), self.tracker.has_filled()),
            None => sentence::unknown(),
        }
    }

    /// Why the pool is not ready. `None` if it is.
    pub(crate) fn unready(&self) -> Option<String> {
        let sample = self.tracker.last().filter(|sample| !self.tracker.is_gone() && !sample.levels.closed);
        match sample {
            Some(_) if self.was_filled => None,
            _ => Some(self.sentence().text),
        }
    }
}

/// The pools and the events.
#[derive(Default)]
pub(crate) struct Board {
    pub(crate) pools: BTreeMap<String, Watched>,
    pub(crate) log: EventLog,
    /// Counts the samples.
    pub(crate) tick: u64,
    /// The time of the first and of the last sample.
    pub(crate) started: Option<Now>,
    pub(crate) now: Now,
    /// Why the process is not ready, if the program decides it itself.
    pub(crate) decided: Option<Vec<String>>,
    /// Notes from before the first sample.
    notes: VecDeque<String>,
}

impl Board {
    /// Adds a pool. Returns the one that it replaces: drop it without a lock, as its source is somebody else's
    /// code.
    #[must_use]
    pub(crate) fn add(&mut self, name: String, source: Arc<dyn PoolSource>) -> Option<Watched> {
        let watched = Watched {
            source,
            tracker: Tracker::default(),
            history: History::default(),
            ages: None,
            gone_since: None,
            was_filled: false,
        };
        self.pools.insert(name, watched)
    }

    pub(crate) fn sources(&self) -> Vec<(String, Arc<dyn PoolSource>)> {
        self.pools.iter().map(|(name, pool)| (name.clone(), Arc::clone(&pool.source))).collect()
    }

    /// Notes an event of the program. `now` is `None` before the page has a clock.
    pub(crate) fn note(&mut self, now: Option<Now>, text: String) {
        match now {
            Some(now) => self.log.add(self.tick + 1, now, None, Change::Note { text }),
            None => {
                self.notes.push_back(text);
                while self.notes.len() > event_log::KEPT {
                    self.notes.pop_front();
                }
            }
        }
    }

    /// Begins a new tick. Returns the pools that leave the page: drop them without a lock.
    pub(crate) fn begin(&mut self, now: Now) -> Vec<Watched> {
        self.tick += 1;
        self.now = now;
        self.started.get_or_insert(now);
        for text in std::mem::take(&mut self.notes) {
            self.log.add(self.tick, now, None, Change::Note { text });
        }
        // A pool that is gone leaves the page with its history.
        let leaves = |pool: &Watched| pool.gone_since.is_some_and(|since| now.at.since(since) > SPAN);
        self.pools.extract_if(.., |_, pool| leaves(pool)).map(|(_, pool)| pool).collect()
    }

    /// Takes in what was read at `now`, unless the pool was replaced meanwhile. What changed is told with the
    /// message of `tick`.
    pub(crate) fn take_in(&mut self, tick: u64, now: Now, reading: Reading) {
        let Some(pool) = self.pools.get_mut(&reading.name) else { return };
        if !Arc::ptr_eq(&pool.source, &reading.source) {
            return;
        }
        let changes = match reading.snapshot {
            Some(snapshot) => {
                let sample = Sample::new(now.at, now.wall, snapshot);
                pool.ages = reading.connections.map(|list| Ages::of(&list, &sample.lifecycle));
                pool.history.add(&sample);
                pool.tracker.next(sample)
            }
            None => {
                pool.ages = None;
                pool.gone_since.get_or_insert(now.at);
                pool.tracker.gone()
            }
        };
        pool.was_filled |= pool.tracker.has_filled();
        for change in changes {
            self.log.add(tick, now, Some(&reading.name), change);
        }
    }

    /// Takes in the connections of a pool, for somebody who looks now, unless the pool was replaced meanwhile.
    pub(crate) fn take_in_connections(
        &mut self,
        name: &str,
        source: &Arc<dyn PoolSource>,
        connections: &[ConnectionStatus],
    ) {
        if let Some(pool) = self.pools.get_mut(name).filter(|pool| Arc::ptr_eq(&pool.source, source))
            && let Some(sample) = pool.tracker.last().filter(|_| !pool.tracker.is_gone())
        {
            pool.ages = Some(Ages::of(connections, &sample.lifecycle));
        }
    }

    /// Why the process is not ready, by what a probe has just read: a line for each reason. It is no sample,
    /// and leaves no trace in the history.
    pub(crate) fn probe(&mut self, readings: &[Reading]) -> Vec<String> {
        let mut closing = Vec::new();
        for reading in readings {
            let same = |pool: &&mut Watched| Arc::ptr_eq(&pool.source, &reading.source);
            let Some(pool) = self.pools.get_mut(&reading.name).filter(same) else { continue };
            match &reading.snapshot {
                Some(PoolSnapshot { status, .. }) if !status.closed => {
                    pool.was_filled |= status.size() >= status.low_watermark;
                }
                // The last sample may be from before it was closed.
                _ if pool.unready().is_none() => closing.push(format!("{}: draining", reading.name)),
                _ => {}
            }
        }
        closing.extend(self.unready());
        closing
    }

    /// Why the process is not ready, a line for each reason. Empty if it is.
    pub(crate) fn unready(&self) -> Vec<String> {
        if let Some(reasons) = &self.decided {
            return reasons.clone();
        }
        if self.pools.is_empty() {
            return vec!["no pool is on the page yet".into()];
        }
        let reasons = self.pools.iter().filter_map(|(name, pool)| Some((name, pool.unready()?)));
        reasons.map(|(name, reason)| format!("{name}: {reason}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay::memory::Memory;
    use forebay::rt::VirtualTime;
    use forebay::{Config, Reservoir};

    use super::*;

    fn source(time: &VirtualTime) -> (Reservoir<Memory>, Arc<dyn PoolSource>) {
        let config = Config::default().max_open(2).startup_jitter(Duration::ZERO);
        let builder = Reservoir::builder(Memory::new(time.clone())).config(config).runtime(time.clone());
        let reservoir = time.run(builder.start()).unwrap();
        let source = Arc::new(reservoir.downgrade());
        (reservoir, source)
    }

    #[test]
    fn a_reading_of_a_replaced_pool_says_nothing_about_the_new_one() {
        let time = VirtualTime::new();
        let ((_old, old), (_new, new)) = (source(&time), source(&time));
        let mut board = Board::default();
        assert!(board.add("orders".into(), Arc::clone(&old)).is_none());
        let readings: Vec<_> = Reading::take("orders", &old, true).into_iter().collect();
        assert!(board.add("orders".into(), new).is_some());
        board.probe(&readings);
        assert!(!board.pools["orders"].was_filled);
    }

    #[test]
    fn a_pool_that_was_not_read_yet_is_not_gone() {
        let time = VirtualTime::new();
        let (_reservoir, source) = source(&time);
        let mut board = Board::default();
        assert!(board.add("orders".into(), source).is_none());
        assert_eq!(board.unready(), ["orders: starting: it was not read yet"]);
    }

    #[test]
    fn notes_without_a_clock_do_not_pile_up() {
        let mut board = Board::default();
        for number in 0..1_000 {
            board.note(None, number.to_string());
        }
        board.begin(Now::default());
        assert_eq!(board.log.entries().next().map(|entry| entry.change.text()), Some("800".into()));
    }
}
