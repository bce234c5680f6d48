//! The server is killed under load, and started again a little later.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use forebay_flight::{AsyncFlightSQLPool, Error, PoolConfig};
use tokio::runtime::Handle;

use super::server::Server;
use super::{Effort, full};
use crate::clock;
use crate::race::Figures;
use crate::report::Report;
use crate::section::progress;

const CONNECTIONS: usize = 16;
/// The callers of each kind.
const CALLERS: [(Habit, usize); 4] =
    [(Habit::Reads, 6), (Habit::Updates, 3), (Habit::Executes, 3), (Habit::Transacts, 4)];
/// How long the server runs before it is killed, how long it is down, and how long it runs afterwards.
const BEFORE: Duration = Duration::from_millis(500);
const DOWN: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(2);
/// Shorter than the server is down, so that some callers get no connection.
const ACQUIRE_TIMEOUT_MS: u64 = 300;
/// The pause after a write and after an error.
const PAUSE: Duration = Duration::from_millis(2);

/// What a caller repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Reads,
    /// One row, by `update`.
    Updates,
    /// One row, by `query`, which retries only reads.
    Executes,
    /// Two rows, in a transaction.
    Transacts,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// The client is certain that the write was not executed.
    NotDone,
    Unknown,
}

/// What one caller observed.
#[derive(Debug, Default)]
struct Observations {
    /// When its calls succeeded.
    served: Vec<u64>,
    /// Its writes: the number, how many rows have it, and the outcome.
    written: Vec<(i64, i64, Outcome)>,
    errors: BTreeMap<&'static str, u64>,
    /// The first error that is not one of an unreachable server.
    unexpected: Option<String>,
}

pub(super) async fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    progress("a server that is killed");
    let home = tempfile::tempdir()?;
    let mut server = Server::with_database(home.path().join("tables"))?;
    let config = PoolConfig { acquire_timeout_ms: ACQUIRE_TIMEOUT_MS, ..full(CONNECTIONS) };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await?;
    pool.update("CREATE TABLE written (number INTEGER)").await?;

    let (stop, numbers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let habits = CALLERS.iter().flat_map(|&(habit, count)| std::iter::repeat_n(habit, count));
    let callers: Vec<_> = habits
        .map(|habit| {
            Handle::current().spawn(call(habit, pool.clone(), Arc::clone(&stop), Arc::clone(&numbers)))
        })
        .collect();
    let mut returns = Vec::with_capacity(effort.kills);
    let mut refilled: Vec<f64> = Vec::with_capacity(effort.kills);
    for _ in 0..effort.kills {
        clock::pause(BEFORE).await;
        server.kill()?;
        clock::pause(DOWN).await;
        server.restart()?;
        let returned = clock::nanos();
        while pool.status().idle + pool.status().in_use < CONNECTIONS {
            ensure!(clock::nanos() < returned + clock::whole_nanos(AFTER * 5), "the pool is not full again");
            clock::pause(Duration::from_millis(1)).await;
        }
        refilled.push(seconds(clock::nanos() - returned));
        returns.push(returned);
        clock::pause(AFTER).await;
    }
    stop.store(true, Ordering::Release);
    let mut found = Vec::with_capacity(callers.len());
    for caller in callers {
        found.push(caller.await?);
    }
    pool.drain(Duration::from_secs(5)).await;
    add_goals(report, &found, &returns, &refilled)?;
    drop(server);
    count(report, home.path(), &found).await
}

/// Adds how long it took until all callers were served, and the kinds of errors.
fn add_goals(
    report: &mut Report,
    found: &[Observations],
    returns: &[u64],
    refilled: &[f64],
) -> anyhow::Result<()> {
    let name = "server killed under load";
    let served = |returned: &u64| {
        let first =
            |caller: &Observations| caller.served.iter().find(|at| *at > returned).map(|at| at - returned);
        found.iter().map(|caller| first(caller).map_or(f64::INFINITY, seconds)).fold(0.0, f64::max)
    };
    let served: Vec<f64> = returns.iter().map(served).collect();
    let whole = served.iter().zip(refilled).map(|(served, full)| served.max(*full)).fold(0.0, f64::max);
    let goal = format!("{name}: until all 16 callers are served and all 16 connections are open, at worst");
    report.at_most(goal, whole, 1.0, "s");
    let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
    found.iter().flat_map(|caller| &caller.errors).for_each(|(kind, count)| {
        *errors.entry(kind).or_default() += count;
    });
    let unexpected: Vec<&String> = found.iter().filter_map(|caller| caller.unexpected.as_ref()).collect();
    let goal = format!("{name}: callers with an error that is not of an unreachable server");
    report.at_most(goal, unexpected.len(), 0.0, "callers");
    report.note(format!(
        "{name}: after each of {} kills it was down for {DOWN:?}; {} calls succeeded; errors by kind: \
         {errors:?}{}",
        returns.len(),
        found.iter().map(|caller| caller.served.len()).sum::<usize>(),
        unexpected.first().map_or_else(String::new, |first| format!("; the first unexpected one: {first}")),
    ));
    let rows = vec![
        Figures::of("all callers served", served)?,
        Figures::of("all connections open", refilled.to_vec())?,
    ];
    report.table(format!("{name}: time since it listens again"), "s", rows);
    Ok(())
}

/// Checks that each row is stored as often as its writer was told.
async fn count(report: &mut Report, home: &Path, found: &[Observations]) -> anyhow::Result<()> {
    let server = Server::with_database(home.join("tables"))?;
    let pool = AsyncFlightSQLPool::new(&server.url(), full(1)).await?;
    let counted = pool.query("SELECT number, count(*) FROM written GROUP BY number").await?;
    let mut rows = BTreeMap::new();
    for batch in counted.batches() {
        let columns = [0, 1].map(|column| batch.column(column).as_primitive::<Int64Type>().values());
        rows.extend(columns[0].iter().copied().zip(columns[1].iter().copied()));
    }
    pool.drain(Duration::from_secs(5)).await;
    let written: Vec<_> = found.iter().flat_map(|caller| &caller.written).collect();
    let stored = |number: &i64| rows.get(number).copied().unwrap_or(0);
    let twice = written.iter().filter(|(number, whole, _)| stored(number) > *whole).count();
    let wrong = written
        .iter()
        .filter(|(number, whole, outcome)| match outcome {
            Outcome::Done => stored(number) != *whole,
            Outcome::NotDone => stored(number) != 0,
            Outcome::Unknown => ![0, *whole].contains(&stored(number)),
        })
        .count();
    let of = |wanted| written.iter().filter(|(_, _, outcome)| *outcome == wanted).count();
    let name = "server killed under load: writes";
    report.at_most(format!("{name} that ran twice"), twice, 0.0, "writes");
    let other = format!("{name} whose outcome differs from what their caller was told");
    report.at_most(other, wrong, 0.0, "writes");
    report.note(format!(
        "{} writes: {} done, {} certainly not, {} unknown to their callers",
        written.len(),
        of(Outcome::Done),
        of(Outcome::NotDone),
        of(Outcome::Unknown),
    ));
    Ok(())
}

async fn call(
    habit: Habit,
    pool: AsyncFlightSQLPool,
    stop: Arc<AtomicBool>,
    numbers: Arc<AtomicI64>,
) -> Observations {
    let mut found = Observations::default();
    while !stop.load(Ordering::Acquire) {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let insert = format!("INSERT INTO written VALUES ({number})");
        let done = match habit {
            Habit::Reads => pool.query("SELECT 1").await.map(drop),
            Habit::Updates => pool.update(&insert).await.map(drop),
            Habit::Executes => pool.query(&format!("{insert} RETURNING number")).await.map(drop),
            Habit::Transacts => transact(&pool, &insert).await,
        };
        let outcome = match &done {
            Ok(()) => Outcome::Done,
            Err(error) if error.is_not_executed() => Outcome::NotDone,
            Err(_) => Outcome::Unknown,
        };
        if habit != Habit::Reads {
            let rows = if habit == Habit::Transacts { 2 } else { 1 };
            found.written.push((number, rows, outcome));
        }
        let is_over = done.is_ok();
        match done {
            Ok(()) => found.served.push(clock::nanos()),
            Err(error) => found.note(&error),
        }
        if habit != Habit::Reads || !is_over {
            clock::pause(PAUSE).await;
        }
    }
    found
}

async fn transact(pool: &AsyncFlightSQLPool, insert: &str) -> Result<(), Error> {
    let mut session = pool.acquire_session().await?;
    session.begin_transaction().await?;
    session.update(insert).await?;
    session.update(insert).await?;
    session.commit().await
}

impl Observations {
    fn note(&mut self, error: &Error) {
        let kind = match error {
            Error::Transport { .. } => "Transport",
            Error::SessionLost { .. } => "SessionLost",
            Error::PoolTimeout { .. } => "PoolTimeout",
            Error::QueryTimeout { .. } => "QueryTimeout",
            _ => "other",
        };
        *self.errors.entry(kind).or_default() += 1;
        if kind == "other" {
            self.unexpected.get_or_insert_with(|| error.to_string());
        }
    }
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
