//! Thousands of calls that are dropped at random points: what is left in the pool, on the server and of the
//! threads.

mod by_tasks;
mod by_threads;

use std::fs;
use std::time::Duration;

use forebay::{Rng, Seed};
use forebay_flight::{Error, PoolConfig, PoolStatus};

use super::server::Server;
use super::{Effort, full};
use crate::clock;
use crate::report::Report;
use crate::section::progress;

const CONNECTIONS: usize = 8;
/// How many calls run at once: more than there are connections, so that callers wait.
const AT_ONCE: u32 = 32;
/// A call is dropped within this time, unless it ends before.
const MAX_TIME: Duration = Duration::from_millis(5);
/// How long pool, server and threads may take to settle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

const SHORT: &str = "SELECT 1";
const LONG: &str = "SELECT sleep_ms(20)";
const MANY_ROWS: &str = "SELECT value FROM generate_series(1, 200000)";
const WRITE: &str = "INSERT INTO t VALUES (1)";

/// What was left after all drops.
#[derive(Debug)]
struct Left {
    /// Connections that were available at the same time, and answered.
    capacity: usize,
    /// Sessions on the server after the pool was closed.
    sessions: u64,
    /// Statements that were still running then.
    statements: u64,
    /// Additional threads.
    threads: usize,
    ends: Ends,
}

/// Calls that ended before they were dropped.
#[derive(Debug, Default)]
struct Ends {
    succeeded: u32,
    failed: u32,
    /// The first error.
    error: Option<Error>,
}

impl Ends {
    fn note(&mut self, end: Result<(), Error>) {
        match end {
            Ok(()) => self.succeeded += 1,
            Err(error) => {
                self.failed += 1;
                self.error.get_or_insert(error);
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.error = self.error.take().or(other.error);
    }
}

pub(super) fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    for (name, drop) in [
        ("futures of the pool for tasks", by_tasks::drop_many as fn(&Server, u32) -> anyhow::Result<Left>),
        ("calls of the blocking pool", by_threads::drop_many),
    ] {
        progress(&format!("dropped {name}"));
        let server = Server::start()?;
        let threads = self::threads()?;
        let mut left = drop(&server, effort.drops)?;
        left.threads = settled(|| Ok(self::threads()?.saturating_sub(threads)), 0)?;
        left.sessions = settled(|| server.count("sessions_open"), 0)?;
        left.statements = settled(|| server.count("statements_running"), 0)?;
        add_goals(report, name, effort.drops, &left);
    }
    Ok(())
}

fn add_goals(report: &mut Report, name: &str, drops: u32, left: &Left) {
    let what = format!("{drops} dropped {name}");
    let goal = format!("{what}: connections that the pool has afterwards");
    report.at_least(goal, left.capacity, CONNECTIONS as f64, "");
    report.at_most(format!("{what}: sessions left on the server"), left.sessions, 0.0, "");
    report.at_most(format!("{what}: statements left running there"), left.statements, 0.0, "");
    report.at_most(format!("{what}: threads left"), left.threads, 0.0, "");
    report.at_most(format!("{what}: other calls that failed"), left.ends.failed, 0.0, "");
    report.note(format!("{what}: {} more ended before their drop", left.ends.succeeded));
    if let Some(error) = &left.ends.error {
        report.note(format!("{what}: the first error of another call: {error}"));
    }
}

/// Threads of this process.
fn threads() -> anyhow::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Waits until a count is down to `wanted`, and returns it; or what it is at the timeout.
fn settled<T: PartialOrd>(count: impl Fn() -> anyhow::Result<T>, wanted: T) -> anyhow::Result<T> {
    let until = clock::nanos() + clock::whole_nanos(SETTLE_TIMEOUT);
    loop {
        let now = count()?;
        if now <= wanted || clock::nanos() > until {
            return Ok(now);
        }
        clock::nap(Duration::from_millis(5));
    }
}

fn config() -> PoolConfig {
    PoolConfig { acquire_timeout_ms: 30_000, ..full(CONNECTIONS) }
}

/// Each task that drops calls has its own random numbers, the same in every run.
fn rng(dropper: u32) -> Rng {
    Seed::new(9).fork(&dropper.to_string()).rng()
}

/// Whether the pool has settled.
fn is_idle(status: &PoolStatus) -> bool {
    status.cleaning == 0 && status.opening == 0 && status.closing == 0 && status.in_use == 0
}
