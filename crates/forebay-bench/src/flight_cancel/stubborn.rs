//! Servers that do not cancel a statement: they have no cancel action, or list it and refuse it, and continue
//! an abandoned statement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::bail;
use forebay_flight::{AsyncFlightSQLPool, Error, PoolConfig, QueryOptions};
use tokio::runtime::Handle;

use super::stop::milliseconds;
use crate::clock;
use crate::flight::full;
use crate::flight::server::{Cancels, Server};
use crate::report::Report;
use crate::section::progress;

const CONNECTIONS: usize = 4;
const BUDGET: usize = 8;
/// It sleeps, so that a dozen at once use little of the processor.
const SQL: &str = "SELECT sleep_ms(3000)";
const CANCEL_AFTER: Duration = Duration::from_millis(100);
/// How long sessions may take to become available: statements end after three seconds.
const TIMEOUT_MS: u64 = 15_000;

pub(super) async fn measure(report: &mut Report) -> anyhow::Result<()> {
    for (cancels, name) in [
        (Cancels::Unknown, "a server without any cancel action"),
        (Cancels::Refused, "a server that lists cancel actions and refuses them"),
    ] {
        progress(name);
        one(report, cancels, name).await?;
    }
    Ok(())
}

async fn one(report: &mut Report, cancels: Cancels, name: &str) -> anyhow::Result<()> {
    let server = Arc::new(Server::with_cancels(cancels)?);
    let config = PoolConfig {
        session_budget: Some(BUDGET),
        quarantine_ms: 2 * TIMEOUT_MS,
        acquire_timeout_ms: TIMEOUT_MS,
        ..full(CONNECTIONS)
    };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await?;
    let (watching, is_over) = (Arc::clone(&server), Arc::new(AtomicBool::new(false)));
    let most = Handle::current().spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            let mut most = 0;
            while !is_over.load(Ordering::Acquire) {
                most = most.max(watching.count("sessions_open")?);
                clock::pause(Duration::from_millis(5)).await;
            }
            anyhow::Ok(most)
        }
    });

    // Every connection has a statement that continues, so the pool must replace all of them.
    let mut freed = cancel_all(&pool, CONNECTIONS).await?;
    let begun = clock::nanos();
    let capacity = capacity(&pool).await;
    let waited = milliseconds(begun, clock::nanos());
    // More than the session budget.
    freed = freed.max(cancel_all(&pool, 3 * BUDGET).await?);
    let later = self::capacity(&pool).await;
    is_over.store(true, Ordering::Release);
    let most = most.await??;
    report.at_most(format!("{name}: until a caller is free, of 28, at worst"), freed, 100.0, "ms");
    let (whole, unit) = (CONNECTIONS as f64, "connections");
    report.at_least(format!("{name}: capacity while 4 of 4 statements continue"), capacity, whole, unit);
    report.at_least(format!("{name}: capacity after 28 were cancelled"), later, whole, unit);
    let goal = format!("{name}: sessions on it at most, of a budget of {BUDGET}");
    report.at_most(goal, most, BUDGET as f64, "sessions");
    report.note(format!(
        "{name}: after 4 statements on 4 connections were cancelled, 4 sessions were available again after \
         {waited:.0} ms"
    ));
    pool.drain(Duration::from_secs(5)).await;
    Ok(())
}

/// This many callers give up at the same time. Returns the milliseconds until the last of them is free.
async fn cancel_all(pool: &AsyncFlightSQLPool, callers: usize) -> anyhow::Result<f64> {
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let pool = pool.clone();
            Handle::current().spawn(async move {
                let begun = clock::nanos();
                let outcome =
                    pool.query_with_options(SQL, QueryOptions::new().with_timeout(CANCEL_AFTER)).await;
                match outcome {
                    Err(Error::QueryTimeout { .. }) => {
                        Ok(milliseconds(begun + clock::whole_nanos(CANCEL_AFTER), clock::nanos()))
                    }
                    other => bail!("not a timeout: {other:?}"),
                }
            })
        })
        .collect();
    let mut longest: f64 = 0.0;
    for caller in callers {
        longest = longest.max(caller.await??);
    }
    Ok(longest)
}

/// How many sessions are available at the same time, and answer.
async fn capacity(pool: &AsyncFlightSQLPool) -> usize {
    let mut held = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        if let Ok(mut session) = pool.acquire_session().await
            && session.query("SELECT 1").await.is_ok()
        {
            held.push(session);
        }
    }
    held.len()
}
