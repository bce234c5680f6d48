//! Thousands of calls that are dropped half-way, wherever they are: what is left of the pool, the server and the threads.

mod by_tasks;
mod by_threads;

use std::fs;
use std::time::Duration;

use forebay::{Rng, Seed};
use forebay_flight::{Error, PoolConfig, PoolStatus};

use super::server::Server;
use super::{Effort, full};
use crate::checkout::progress;
use crate::clock;
use crate::report::{Bound, Report};

const CONNECTIONS: usize = 8;
/// How many calls there are at a time: there is always a line.
const AT_ONCE: u32 = 32;
/// A call is dropped within this, if it is not over before.
const LONGEST: Duration = Duration::from_millis(5);
/// How long everything may take to come to rest.
const REST: Duration = Duration::from_secs(30);

const SHORT: &str = "SELECT 1";
const LONG: &str = "SELECT sleep_ms(20)";
const MANY_ROWS: &str = "SELECT value FROM generate_series(1, 200000)";
const WRITE: &str = "INSERT INTO t VALUES (1)";

/// What was left when all were dropped.
#[derive(Debug)]
struct Left {
    /// Connections that could be had at the same time, and answered.
    capacity: usize,
    /// Sessions on the server when the pool had none any more.
    sessions: u64,
    /// Statements that still ran then.
    statements: u64,
    /// Threads more than before.
    threads: usize,
    ends: Ends,
}

/// Calls that were over before they could be dropped.
#[derive(Debug, Default)]
struct Ends {
    well: u32,
    badly: u32,
    /// What the first error was.
    error: Option<Error>,
}

impl Ends {
    fn note(&mut self, end: Result<(), Error>) {
        match end {
            Ok(()) => self.well += 1,
            Err(error) => {
                self.badly += 1;
                self.error.get_or_insert(error);
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.well += other.well;
        self.badly += other.badly;
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
        // The last have as long to end as everything else.
        left.threads = settled(|| Ok(self::threads()?.saturating_sub(threads)), 0)?;
        left.sessions = settled(|| server.count("sessions_open"), 0)?;
        left.statements = settled(|| server.count("statements_running"), 0)?;
        tell(report, name, effort.drops, &left);
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "small counts")]
fn tell(report: &mut Report, name: &str, drops: u32, left: &Left) {
    let goals = [
        ("connections that the pool has then", left.capacity as f64, Bound::AtLeast(CONNECTIONS as f64)),
        ("sessions left on the server", left.sessions as f64, Bound::AtMost(0.0)),
        ("statements left running there", left.statements as f64, Bound::AtMost(0.0)),
        ("threads left", left.threads as f64, Bound::AtMost(0.0)),
        ("calls of the others that failed", f64::from(left.ends.badly), Bound::AtMost(0.0)),
    ];
    for (what, value, bound) in goals {
        report.goal(format!("{drops} dropped {name}: {what}"), value, bound, "");
    }
    report.note(format!("{drops} dropped {name}: {} more were over before", left.ends.well));
    if let Some(error) = &left.ends.error {
        report.note(format!("{drops} dropped {name}: the first error of the others: {error}"));
    }
}

/// Threads of this process.
fn threads() -> anyhow::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Waits until a count is down to `wanted`, and returns what it is then, or in the end.
fn settled<T: PartialOrd>(count: impl Fn() -> anyhow::Result<T>, wanted: T) -> anyhow::Result<T> {
    let until = clock::nanos() + clock::whole_nanos(REST);
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

/// Each of those who drop has chances of its own, the same in every run.
fn rng(dropper: u32) -> Rng {
    Seed::new(9).fork(&dropper.to_string()).rng()
}

/// Whether nothing goes on any more.
fn is_at_rest(status: &PoolStatus) -> bool {
    status.cleaning == 0 && status.opening == 0 && status.closing == 0 && status.in_use == 0
}
