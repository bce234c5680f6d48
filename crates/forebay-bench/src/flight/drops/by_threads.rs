//! Blocking calls that end early: by a deadline, by a handle in another thread, by dropping a reader, a
//! session or a statement.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::anyhow;
use forebay::Rng;
use forebay_flight::{CancelHandle, Error, FlightSQLPool, QueryOptions};

use super::{
    AT_ONCE, CONNECTIONS, Ends, LONG, Left, MANY_ROWS, MAX_TIME, SETTLE_TIMEOUT, SHORT, WRITE, config,
    is_idle, rng,
};
use crate::clock;
use crate::flight::server::Server;

pub(super) fn drop_many(server: &Server, count: u32) -> anyhow::Result<Left> {
    let pool = FlightSQLPool::new(&server.url(), config())?;
    pool.update("CREATE TABLE t (a INTEGER)")?;
    let left_to_drop = AtomicU32::new(count);
    let mut ends = Ends::default();
    std::thread::scope(|scope| {
        let (cancel, to_cancel) = channel();
        scope.spawn(move || keep_cancelling(&to_cancel));
        let droppers: Vec<_> = (0..AT_ONCE)
            .map(|dropper| {
                let (pool, left, cancel) = (&pool, &left_to_drop, cancel.clone());
                scope.spawn(move || keep_dropping(pool, rng(dropper), left, &cancel))
            })
            .collect();
        for dropper in droppers {
            ends.add(dropper.join().map_err(|_| anyhow!("a caller panicked"))?);
        }
        anyhow::Ok(())
    })?;
    let until = clock::nanos() + clock::whole_nanos(SETTLE_TIMEOUT);
    while !is_idle(&pool.status()) && clock::nanos() < until {
        clock::nap(Duration::from_millis(5));
    }
    let mut held = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        if let Ok(mut session) = pool.acquire_session()
            && session.query(SHORT).is_ok()
        {
            held.push(session);
        }
    }
    // Dropping the last handle closes everything and ends its thread.
    Ok(Left { capacity: held.len(), ends, sessions: 0, statements: 0, threads: 0 })
}

/// Cancels each handle a little later.
fn keep_cancelling(handles: &Receiver<CancelHandle>) {
    let mut rng = rng(AT_ONCE);
    for handle in handles {
        if rng.below(4) == 0 {
            clock::nap(rng.up_to(Duration::from_millis(1)));
        }
        handle.cancel();
    }
}

/// Starts calls and ends them early, until enough were.
fn keep_dropping(
    pool: &FlightSQLPool,
    mut rng: Rng,
    left: &AtomicU32,
    cancel: &Sender<CancelHandle>,
) -> Ends {
    let mut ends = Ends::default();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        match call(pool, &mut rng, cancel) {
            Ok(true) | Err(Error::QueryTimeout { .. } | Error::Cancelled { .. }) => {}
            end => {
                ends.note(end.map(drop));
                left.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    ends
}

/// Returns whether it ended early by dropping its result.
fn call(pool: &FlightSQLPool, rng: &mut Rng, cancel: &Sender<CancelHandle>) -> Result<bool, Error> {
    let options = QueryOptions::new();
    let sql = if rng.below(2) == 0 { SHORT } else { LONG };
    match rng.below(6) {
        0 => pool.query_with_options(sql, options.with_timeout(rng.up_to(MAX_TIME))).map(|_| false),
        1 => pool.update_with_options(WRITE, options.with_timeout(rng.up_to(MAX_TIME))).map(|_| false),
        2 => {
            let handle = CancelHandle::new();
            // The receiver lives until all callers have ended.
            let (Ok(()) | Err(_)) = cancel.send(handle.clone());
            pool.query_with_options(sql, options.with_cancel(handle)).map(|_| false)
        }
        3 => {
            let mut rows = pool.query_stream(MANY_ROWS)?;
            for _ in 0..rng.below(3) {
                rows.next().transpose()?;
            }
            Ok(true)
        }
        4 => {
            let mut session = pool.acquire_session()?;
            session.begin_transaction()?;
            session.update_with_options(WRITE, options.with_timeout(MAX_TIME * 200))?;
            Ok(true)
        }
        _ => {
            let mut session = pool.acquire_session()?;
            session.update("CREATE TEMP TABLE mine (a INTEGER)")?;
            let _prepared = session.prepare_query(sql)?;
            Ok(true)
        }
    }
}
