//! Servers that do not stop a statement: they have no cancel action, or list it and refuse it, and go on with what was abandoned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::bail;
use forebay_flight::{AsyncFlightSQLPool, Error, PoolConfig, QueryOptions};
use tokio::runtime::Handle;

use super::stop::milliseconds;
use crate::checkout::progress;
use crate::clock;
use crate::flight::full;
use crate::flight::server::{Cancels, Server};
use crate::report::{Bound, Report};

const CONNECTIONS: usize = 4;
const BUDGET: usize = 8;
/// It sleeps, so that a dozen at once leave the machine to others.
const SQL: &str = "SELECT sleep_ms(3000)";
const GIVEN: Duration = Duration::from_millis(100);
/// How long it takes at most until sessions are at hand: statements end after three seconds, if nobody stops them.
const PATIENCE: u64 = 15_000;

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

#[allow(clippy::cast_precision_loss, reason = "small counts")]
async fn one(report: &mut Report, cancels: Cancels, name: &str) -> anyhow::Result<()> {
    let server = Arc::new(Server::that(cancels)?);
    let config = PoolConfig {
        session_budget: Some(BUDGET),
        quarantine_ms: 2 * PATIENCE,
        acquire_timeout_ms: PATIENCE,
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

    // Every connection has a statement that goes on; then the pool has none of these any more.
    let mut freed = give_up(&pool, CONNECTIONS).await?;
    let asked = clock::nanos();
    let capacity = capacity(&pool).await;
    let waited = milliseconds(asked, clock::nanos());
    // More than the server's sessions will bear.
    freed = freed.max(give_up(&pool, 3 * BUDGET).await?);
    let later = self::capacity(&pool).await;
    is_over.store(true, Ordering::Release);
    let most = most.await??;
    report.goal(
        format!("{name}: until a caller is free, of 28, at worst"),
        freed,
        Bound::AtMost(100.0),
        "ms",
    );
    let whole = Bound::AtLeast(CONNECTIONS as f64);
    let unit = "connections";
    report.goal(format!("{name}: capacity while 4 of 4 statements go on"), capacity as f64, whole, unit);
    report.goal(format!("{name}: capacity after 28 were given up"), later as f64, whole, unit);
    report.goal(
        format!("{name}: sessions on it at most, of a budget of {BUDGET}"),
        most as f64,
        Bound::AtMost(BUDGET as f64),
        "sessions",
    );
    report.note(format!(
        "{name}: after 4 statements on 4 connections were given up, 4 sessions could be had again after {waited:.0} ms"
    ));
    pool.drain(Duration::from_secs(5)).await;
    Ok(())
}

/// So many callers at the same time, who give up. Returns how long after that the last of them was free, in milliseconds.
async fn give_up(pool: &AsyncFlightSQLPool, callers: usize) -> anyhow::Result<f64> {
    let callers: Vec<_> = (0..callers)
        .map(|_| {
            let pool = pool.clone();
            Handle::current().spawn(async move {
                let begun = clock::nanos();
                let outcome = pool.query_with_options(SQL, QueryOptions::new().with_timeout(GIVEN)).await;
                match outcome {
                    Err(Error::QueryTimeout { .. }) => {
                        Ok(milliseconds(begun + clock::whole_nanos(GIVEN), clock::nanos()))
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

/// How many sessions can be had at the same time, and answer.
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
