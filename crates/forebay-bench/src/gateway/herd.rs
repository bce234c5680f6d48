//! Many clients at once: idle ones, active ones, and ones that ask rarely. A thread blocks for each that is asking.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;

use super::client::{Connection, Failure};
use super::door::Door;
use super::wire;
use crate::clock::{self, Stopwatch, whole_nanos};
use crate::race::histogram;

/// How many connections are opened at once.
const OPENING: usize = 16;
/// How many clients of [`trickle`] may wait at once.
const ASKING: usize = 250;

/// Answers and failures of many clients.
#[derive(Debug)]
pub(super) struct Tally {
    /// How long answers took, in nanoseconds.
    pub(super) times: Histogram<u64>,
    /// Failures, by what the client was told.
    pub(super) failures: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self { times: histogram()?, failures: BTreeMap::new() })
    }

    pub(super) fn record(&mut self, time: Duration, answer: Result<(), Failure>) {
        match answer {
            Ok(()) => self.times.saturating_record(whole_nanos(time)),
            Err(failure) => *self.failures.entry(failure.to_string()).or_default() += 1,
        }
    }

    pub(super) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        self.times.add(&other.times).context("both have the same bounds")?;
        for (failure, count) in &other.failures {
            *self.failures.entry(failure.clone()).or_default() += count;
        }
        Ok(())
    }

    pub(super) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// A quantile of the times, in milliseconds.
    pub(super) fn millis(&self, quantile: f64) -> f64 {
        self.times.value_at_quantile(quantile) as f64 / 1e6
    }

    /// The failures, for a note.
    pub(super) fn describe(&self) -> String {
        let each = self.failures.iter().take(5).map(|(failure, count)| format!("{count} times {failure:?}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// Opens connections. Each asks once, so that its session has had a connection to the server.
pub(super) fn open(door: &Door, count: usize) -> anyhow::Result<Vec<Connection>> {
    let threads = OPENING.min(count);
    let open_some = |thread: usize| {
        let share = count / threads + usize::from(thread < count % threads);
        let mut connections = Vec::with_capacity(share);
        for _ in 0..share {
            let mut connection = Connection::open(door)?;
            connection.ask(wire::SELECT_1)?;
            connections.push(connection);
        }
        anyhow::Ok(connections)
    };
    let parts = in_threads((0..threads).collect(), open_some);
    Ok(parts.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Clients that ask again and again for some time, each with a pause after each answer.
pub(super) fn active(door: &Door, clients: usize, pause: Duration, time: Duration) -> anyhow::Result<Tally> {
    let ask = |mut connection: Connection| {
        let (mut tally, watch) = (Tally::new()?, Stopwatch::start());
        while watch.elapsed() < time {
            let one = Stopwatch::start();
            let answer = connection.ask(wire::SELECT_1);
            tally.record(one.elapsed(), answer);
            clock::nap(pause);
        }
        anyhow::Ok(tally)
    };
    sum(in_threads(open(door, clients)?, ask))
}

/// Clients of which each asks once in every `period`, at a time of its own.
pub(super) fn trickle(
    connections: &mut [Connection],
    period: Duration,
    time: Duration,
) -> anyhow::Result<Tally> {
    let share = connections.len().div_ceil(ASKING).max(1);
    let threads = connections.len().div_ceil(share);
    let watch = Stopwatch::start();
    let ask = |(thread, mine): (usize, &mut [Connection])| {
        let mut tally = Tally::new()?;
        let mut due = period.mul_f64(thread as f64 / (threads * share) as f64);
        let step = period / u32::try_from(share)?;
        for turn in 0.. {
            clock::nap(due.saturating_sub(watch.elapsed()));
            if due >= time {
                break;
            }
            let at = turn % mine.len();
            let one = Stopwatch::start();
            let answer = mine[at].ask(wire::SELECT_1);
            tally.record(one.elapsed(), answer);
            due += step;
        }
        anyhow::Ok(tally)
    };
    sum(in_threads(connections.chunks_mut(share).enumerate().collect(), ask))
}

fn sum(tallies: Vec<anyhow::Result<Tally>>) -> anyhow::Result<Tally> {
    let mut all = Tally::new()?;
    for tally in tallies {
        all.add(&tally?)?;
    }
    Ok(all)
}

/// Does the work of each in a thread of its own. The results are in the same order.
pub(super) fn in_threads<T: Send, R: Send>(work: Vec<T>, each: impl Fn(T) -> R + Sync) -> Vec<R> {
    let each = &each;
    thread::scope(|scope| {
        let threads: Vec<_> = work.into_iter().map(|one| scope.spawn(move || each(one))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, R>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}
