//! The pools of a page, with their histories and the events. It has no clock and no socket.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay::{ConnectionStatus, Instant};

use crate::ages::Ages;
use crate::change::Change;
use crate::event_log::EventLog;
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
    /// Asks the source. Call it without a lock: a source is somebody else's code.
    pub(crate) fn take(name: String, source: Arc<dyn PoolSource>, with_connections: bool) -> Self {
        let snapshot = source.snapshot();
        let connections = with_connections.then(|| source.connections());
        Self { name, source, snapshot, connections }
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
        match self.tracker.last().filter(|_| !self.tracker.is_gone()) {
            Some(sample) => sentence::describe(sample, &self.history.rates(), self.tracker.has_filled()),
            None => sentence::gone(),
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
    /// Notes from before the first sample.
    notes: Vec<String>,
}

impl Board {
    pub(crate) fn add(&mut self, name: String, source: Arc<dyn PoolSource>) {
        let watched = Watched {
            source,
            tracker: Tracker::default(),
            history: History::default(),
            ages: None,
            gone_since: None,
            was_filled: false,
        };
        self.pools.insert(name, watched);
    }

    pub(crate) fn sources(&self) -> Vec<(String, Arc<dyn PoolSource>)> {
        self.pools.iter().map(|(name, pool)| (name.clone(), Arc::clone(&pool.source))).collect()
    }

    /// Notes an event of the program. `now` is `None` before the page has a clock.
    pub(crate) fn note(&mut self, now: Option<Now>, text: String) {
        match now {
            Some(now) => self.log.add(self.tick + 1, now, None, Change::Note { text }),
            None => self.notes.push(text),
        }
    }

    /// Begins a new tick.
    pub(crate) fn begin(&mut self, now: Now) {
        self.tick += 1;
        self.now = now;
        self.started.get_or_insert(now);
        for text in std::mem::take(&mut self.notes) {
            self.log.add(self.tick, now, None, Change::Note { text });
        }
        // A pool that is gone leaves the page with its history.
        self.pools.retain(|_, pool| pool.gone_since.is_none_or(|since| now.at.since(since) <= SPAN));
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

    /// Takes in the connections of a pool, for somebody who looks now.
    pub(crate) fn take_in_connections(&mut self, name: &str, connections: &[ConnectionStatus]) {
        if let Some(pool) = self.pools.get_mut(name)
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
            let Some(pool) = self.pools.get_mut(&reading.name) else { continue };
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
        if self.pools.is_empty() {
            return vec!["no pool is on the page yet".into()];
        }
        let reasons = self.pools.iter().filter_map(|(name, pool)| Some((name, pool.unready()?)));
        reasons.map(|(name, reason)| format!("{name}: {reason}")).collect()
    }
}
