//! Futures that are dropped.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use forebay::Rng;
use forebay_flight::{AsyncFlightSQLPool, Error};
use tokio::runtime::Handle;

use super::{
    AT_ONCE, CONNECTIONS, Ends, LONG, Left, MANY_ROWS, MAX_TIME, SETTLE_TIMEOUT, SHORT, WRITE, config,
    is_idle, rng,
};
use crate::clock;
use crate::flight::server::Server;
use crate::section;

pub(super) fn drop_many(server: &Server, count: u32) -> anyhow::Result<Left> {
    let runtime = section::runtime()?;
    runtime.block_on(async {
        let pool = AsyncFlightSQLPool::new(&server.url(), config()).await?;
        pool.update("CREATE TABLE t (a INTEGER)").await?;
        let left_to_drop = Arc::new(AtomicU32::new(count));
        let droppers: Vec<_> = (0..AT_ONCE)
            .map(|dropper| {
                Handle::current().spawn(keep_dropping(pool.clone(), rng(dropper), Arc::clone(&left_to_drop)))
            })
            .collect();
        let mut ends = Ends::default();
        for dropper in droppers {
            ends.add(dropper.await?);
        }
        let until = clock::nanos() + clock::whole_nanos(SETTLE_TIMEOUT);
        while !is_idle(&pool.status()) && clock::nanos() < until {
            clock::pause(Duration::from_millis(5)).await;
        }
        let mut held = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            if let Ok(mut session) = pool.acquire_session().await
                && session.query(SHORT).await.is_ok()
            {
                held.push(session);
            }
        }
        let capacity = held.len();
        drop(held);
        pool.drain(SETTLE_TIMEOUT).await;
        anyhow::Ok(Left { capacity, ends, sessions: 0, statements: 0, threads: 0 })
    })
}

/// Starts calls and drops them, until enough were dropped.
async fn keep_dropping(pool: AsyncFlightSQLPool, mut rng: Rng, left: Arc<AtomicU32>) -> Ends {
    let mut ends = Ends::default();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let (kind, polls, time) = (rng.below(7), rng.below(40), rng.up_to(MAX_TIME));
        // Half of them are dropped after a number of polls: some awaits are too short for a clock.
        let is_over = if rng.below(2) == 0 {
            run_for(call(&pool, kind), |polled| polled > polls, MAX_TIME * 10).await
        } else {
            run_for(call(&pool, kind), |_| false, time).await
        };
        if let Some(end) = is_over {
            ends.note(end);
            left.fetch_add(1, Ordering::Relaxed);
        }
    }
    ends
}

/// Polls a future until it ends, `is_enough` holds or its time is up, and drops it then.
async fn run_for<T>(
    future: impl Future<Output = T>,
    is_enough: impl Fn(u64) -> bool,
    time: Duration,
) -> Option<T> {
    let (mut future, mut alarm) = (pin!(future), pin!(clock::pause(time)));
    let mut polled = 0;
    poll_fn(|context| {
        polled += 1;
        if is_enough(polled) || alarm.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}

async fn call(pool: &AsyncFlightSQLPool, kind: u64) -> Result<(), Error> {
    match kind {
        0 => drop(pool.query(SHORT).await?),
        1 => drop(pool.query(LONG).await?),
        2 => drop(pool.update(WRITE).await?),
        3 => {
            let mut rows = pool.query_stream(MANY_ROWS).await?;
            while rows.next_batch().await.transpose()?.is_some() {}
        }
        4 => {
            let mut session = pool.acquire_session().await?;
            session.begin_transaction().await?;
            session.update(WRITE).await?;
            session.query(LONG).await?;
            session.rollback().await?;
        }
        5 => {
            let mut session = pool.acquire_session().await?;
            session.update("CREATE TEMP TABLE mine (a INTEGER)").await?;
            let mut prepared = session.prepare_query(SHORT).await?;
            prepared.query().await?;
        }
        _ => drop(pool.acquire().await?),
    }
    Ok(())
}
