//! A statement of more than a minute, cancelled after 100 ms: by a deadline, a dropped future, a dropped
//! stream, a handle in another thread.

use std::time::Duration;

use anyhow::{bail, ensure};
use forebay_flight::{AsyncFlightSQLPool, CancelHandle, Error, QueryOptions};
use futures_util::future::{Either, select};

use super::Effort;
use crate::clock;
use crate::flight::full;
use crate::flight::server::Server;
use crate::race::Figures;
use crate::report::Report;
use crate::section::progress;

/// When its caller gives up.
const CANCEL_AFTER: Duration = Duration::from_millis(100);
/// It computes all the time and never sleeps.
pub(super) const ENDLESS: &str = "SELECT sum(value) FROM generate_series(1, 100000000000)";
/// The same, with rows.
const ENDLESS_ROWS: &str = "SELECT value FROM generate_series(1, 100000000000)";
/// The statement has ended when its steps do not change for this time.
const STILL: Duration = Duration::from_millis(300);
/// How long the server may take to stop.
const WATCHED: Duration = Duration::from_secs(20);

/// How a caller cancels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancellation {
    Deadline,
    DroppedFuture,
    DroppedStream,
    Handle,
}

impl Cancellation {
    const ALL: [Self; 4] = [Self::Deadline, Self::DroppedFuture, Self::DroppedStream, Self::Handle];

    fn name(self) -> &'static str {
        match self {
            Self::Deadline => "a timeout of 100 ms",
            Self::DroppedFuture => "a dropped future",
            Self::DroppedStream => "a dropped stream",
            Self::Handle => "a handle in another thread",
        }
    }

    /// Starts a statement and cancels it. Returns when the caller cancelled, and when it was free.
    async fn run(self, pool: &AsyncFlightSQLPool) -> anyhow::Result<(u64, u64)> {
        let options = QueryOptions::new();
        let begun = clock::nanos();
        match self {
            Self::Deadline => {
                let outcome = pool.query_with_options(ENDLESS, options.with_timeout(CANCEL_AFTER)).await;
                let free = clock::nanos();
                ensure!(matches!(outcome, Err(Error::QueryTimeout { .. })), "not a timeout: {outcome:?}");
                Ok((begun + clock::whole_nanos(CANCEL_AFTER), free))
            }
            Self::DroppedFuture => {
                let query = Box::pin(pool.query(ENDLESS));
                match select(query, Box::pin(clock::pause(CANCEL_AFTER))).await {
                    Either::Left((outcome, _)) => bail!("the statement ended: {outcome:?}"),
                    Either::Right(((), query)) => {
                        let cancelled = clock::nanos();
                        drop(query);
                        Ok((cancelled, clock::nanos()))
                    }
                }
            }
            Self::DroppedStream => {
                let mut rows = pool.query_stream(ENDLESS_ROWS).await?;
                // Without a reader, the server would pause.
                while clock::nanos() < begun + clock::whole_nanos(CANCEL_AFTER) {
                    ensure!(rows.next_batch().await.transpose()?.is_some(), "the statement ended");
                }
                let cancelled = clock::nanos();
                drop(rows);
                Ok((cancelled, clock::nanos()))
            }
            Self::Handle => {
                let cancel = CancelHandle::new();
                let options = options.with_cancel(cancel.clone());
                let canceller = std::thread::Builder::new().spawn(move || {
                    clock::nap(CANCEL_AFTER);
                    let cancelled = clock::nanos();
                    cancel.cancel();
                    cancelled
                })?;
                let outcome = pool.query_with_options(ENDLESS, options).await;
                let free = clock::nanos();
                ensure!(matches!(outcome, Err(Error::Cancelled { .. })), "not cancelled: {outcome:?}");
                let Ok(cancelled) = canceller.join() else { bail!("the other thread panicked") };
                Ok((cancelled, free))
            }
        }
    }
}

pub(super) async fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let [mut freed, mut stopped, mut next] = [const { Vec::new() }; 3];
    for kind in Cancellation::ALL {
        progress(&format!("a statement cancelled by {}", kind.name()));
        let server = Server::start()?;
        // One connection: the next caller needs the session of the cancelled statement.
        let pool = AsyncFlightSQLPool::new(&server.url(), full(1)).await?;
        let mut found = [const { Vec::new() }; 3];
        let mut tries = 0;
        while found[0].len() < effort.rounds {
            tries += 1;
            ensure!(tries < effort.rounds * 20, "the statements do nothing");
            let before = server.count("steps")?;
            let (cancelled, free) = kind.run(&pool).await?;
            // On a busy machine the statement may not have started in time: there was nothing to stop.
            if server.count("steps")? == before {
                continue;
            }
            let sent = clock::nanos();
            let answer = pool.query("SELECT 1").await?;
            let answered = clock::nanos();
            ensure!(answer.row_count() == 1, "no answer");
            let still = stand_still(&server).await?;
            ensure!(server.count("statements_running")? == 0, "the statement still runs");
            found[0].push(milliseconds(cancelled, free));
            found[1].push(milliseconds(cancelled, still));
            found[2].push(milliseconds(sent, answered));
        }
        let [one, two, three] = found;
        freed.push(Figures::of(kind.name(), one)?);
        stopped.push(Figures::of(kind.name(), two)?);
        next.push(Figures::of(kind.name(), three)?);
    }
    add_goals(report, "until its caller is free", freed, 100.0);
    add_goals(report, "until the server's step counter stands still", stopped, 1_000.0);
    add_goals(report, "until the next query on the only connection is answered", next, 100.0);
    report.note(
        "a statement is cancelled after 100 ms; times are from then on, at worst. The step counter counts \
         the work of the server's SQLite; it includes the next query, so the statement stopped no later",
    );
    Ok(())
}

pub(super) fn add_goals(report: &mut Report, what: &str, rows: Vec<Figures>, bound: f64) {
    for row in &rows {
        report.at_most(format!("cancelled by {}: {what}", row.name), row.max, bound, "ms");
    }
    report.table(format!("a cancelled statement: {what}"), "ms", rows);
}

/// Waits until the server's step counter stands still. Returns when it changed last.
pub(super) async fn stand_still(server: &Server) -> anyhow::Result<u64> {
    let begun = clock::nanos();
    let (mut steps, mut changed) = (server.count("steps")?, begun);
    while clock::nanos() < changed + clock::whole_nanos(STILL) {
        ensure!(clock::nanos() < begun + clock::whole_nanos(WATCHED), "the server continues the statement");
        clock::pause(Duration::from_millis(2)).await;
        let now = server.count("steps")?;
        if now != steps {
            (steps, changed) = (now, clock::nanos());
        }
    }
    Ok(changed)
}

pub(super) fn milliseconds(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64() * 1e3
}
