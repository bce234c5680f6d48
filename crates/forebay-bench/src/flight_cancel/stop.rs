//! A statement that would go on for more than a minute, given up after 100 ms: by a deadline, a dropped future, a dropped
//! stream, a handle in another thread.

use std::time::Duration;

use anyhow::{bail, ensure};
use forebay_flight::{AsyncFlightSQLPool, CancelHandle, Error, QueryOptions};
use futures_util::future::{Either, select};

use super::Effort;
use crate::checkout::progress;
use crate::clock;
use crate::flight::full;
use crate::flight::server::Server;
use crate::race::Figures;
use crate::report::{Bound, Report, Table};

/// When its caller gives up.
const GIVEN: Duration = Duration::from_millis(100);
/// It computes all the time, and never sleeps.
pub(super) const ENDLESS: &str = "SELECT sum(value) FROM generate_series(1, 100000000000)";
/// The same, with rows.
const ENDLESS_ROWS: &str = "SELECT value FROM generate_series(1, 100000000000)";
/// Steps that have not changed for so long have come to an end.
const STILL: Duration = Duration::from_millis(300);
/// How long it is watched at most.
const WATCHED: Duration = Duration::from_secs(20);

/// How a caller gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Deadline,
    DroppedFuture,
    DroppedStream,
    Handle,
}

impl Way {
    const ALL: [Self; 4] = [Self::Deadline, Self::DroppedFuture, Self::DroppedStream, Self::Handle];

    fn name(self) -> &'static str {
        match self {
            Self::Deadline => "a timeout of 100 ms",
            Self::DroppedFuture => "a dropped future",
            Self::DroppedStream => "a dropped stream",
            Self::Handle => "a handle in another thread",
        }
    }

    /// Begins a statement and gives it up. Returns when the caller gave up, and when it was free.
    async fn give_up(self, pool: &AsyncFlightSQLPool) -> anyhow::Result<(u64, u64)> {
        let options = QueryOptions::new();
        let begun = clock::nanos();
        match self {
            Self::Deadline => {
                let outcome = pool.query_with_options(ENDLESS, options.with_timeout(GIVEN)).await;
                let free = clock::nanos();
                ensure!(matches!(outcome, Err(Error::QueryTimeout { .. })), "not a timeout: {outcome:?}");
                Ok((begun + clock::whole_nanos(GIVEN), free))
            }
            Self::DroppedFuture => {
                let query = Box::pin(pool.query(ENDLESS));
                match select(query, Box::pin(clock::pause(GIVEN))).await {
                    Either::Left((outcome, _)) => bail!("it has ended: {outcome:?}"),
                    Either::Right(((), query)) => {
                        let given_up = clock::nanos();
                        drop(query);
                        Ok((given_up, clock::nanos()))
                    }
                }
            }
            Self::DroppedStream => {
                let mut rows = pool.query_stream(ENDLESS_ROWS).await?;
                // Read all the time, or the server would be at rest already.
                while clock::nanos() < begun + clock::whole_nanos(GIVEN) {
                    ensure!(rows.next_batch().await.transpose()?.is_some(), "it has ended");
                }
                let given_up = clock::nanos();
                drop(rows);
                Ok((given_up, clock::nanos()))
            }
            Self::Handle => {
                let cancel = CancelHandle::new();
                let options = options.with_cancel(cancel.clone());
                let canceller = std::thread::Builder::new().spawn(move || {
                    clock::nap(GIVEN);
                    let given_up = clock::nanos();
                    cancel.cancel();
                    given_up
                })?;
                let outcome = pool.query_with_options(ENDLESS, options).await;
                let free = clock::nanos();
                ensure!(matches!(outcome, Err(Error::Cancelled { .. })), "not cancelled: {outcome:?}");
                let Ok(given_up) = canceller.join() else { bail!("the other thread has panicked") };
                Ok((given_up, free))
            }
        }
    }
}

pub(super) async fn measure(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let [mut freed, mut stopped, mut next] = [const { Vec::new() }; 3];
    for way in Way::ALL {
        progress(&format!("a statement given up by {}", way.name()));
        let server = Server::start()?;
        // One connection: whoever comes next needs the very session of the one who gave up.
        let pool = AsyncFlightSQLPool::new(&server.url(), full(1)).await?;
        let mut found = [const { Vec::new() }; 3];
        let mut tries = 0;
        while found[0].len() < effort.rounds {
            tries += 1;
            ensure!(tries < effort.rounds * 20, "the statements do nothing");
            let before = server.count("steps")?;
            let (given_up, free) = way.give_up(&pool).await?;
            // A machine may be too busy to begin with it in time; then there was nothing to stop.
            if server.count("steps")? == before {
                continue;
            }
            let asked = clock::nanos();
            let answer = pool.query("SELECT 1").await?;
            let answered = clock::nanos();
            ensure!(answer.row_count() == 1, "no answer");
            let still = stand_still(&server).await?;
            ensure!(server.count("statements_running")? == 0, "the statement still runs");
            found[0].push(milliseconds(given_up, free));
            found[1].push(milliseconds(given_up, still));
            found[2].push(milliseconds(asked, answered));
        }
        let [one, two, three] = found;
        freed.push(Figures::of(way.name(), one)?);
        stopped.push(Figures::of(way.name(), two)?);
        next.push(Figures::of(way.name(), three)?);
    }
    tell(report, "until its caller is free", freed, 100.0);
    tell(report, "until the server's step counter stands still", stopped, 1_000.0);
    tell(report, "until the next query on the only connection is answered", next, 100.0);
    report.note(
        "a statement is given up after 100 ms; times are from then on, at worst. The step counter is the server's own count of \
         what SQLite has done; the next query is part of it, so the statement has stopped no later",
    );
    Ok(())
}

pub(super) fn tell(report: &mut Report, what: &str, rows: Vec<Figures>, aim: f64) {
    for row in &rows {
        report.goal(format!("given up by {}: {what}", row.name), row.max, Bound::AtMost(aim), "ms");
    }
    report.tables.push(Table { name: format!("a statement given up: {what}"), unit: "ms", rows });
}

/// When the server's steps changed for the last time.
pub(super) async fn stand_still(server: &Server) -> anyhow::Result<u64> {
    let begun = clock::nanos();
    let (mut steps, mut changed) = (server.count("steps")?, begun);
    while clock::nanos() < changed + clock::whole_nanos(STILL) {
        ensure!(
            clock::nanos() < begun + clock::whole_nanos(WATCHED),
            "the server goes on with the statement"
        );
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
