//! Callers who leave everything behind that can be left, sockets that are cut meanwhile, and one rule: whoever takes a
//! connection finds it clean.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use forebay::{Rng, Seed};
use forebay_dsql::{ConnectionState, Dsql, PooledConnection, Postgres, Session};

use super::cluster::{PATIENCE, eventually, pool, start};

/// Polls a future a few times, letting others run in between, and drops it.
async fn abandon(future: impl Future, polls: u64) {
    let mut future = pin!(future);
    for _ in 0..polls {
        if poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Does one thing that callers do, and does not tidy up. What fails has failed because a socket was cut.
async fn misuse(lent: &mut PooledConnection<'_, Postgres>, rng: &mut Rng) {
    let polls = rng.below(6);
    match rng.below(8) {
        0 => drop(lent.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await),
        1 => abandon(lent.batch_execute("BEGIN"), polls).await,
        2 => abandon(lent.begin(), polls).await,
        3 => drop(lent.batch_execute("SET TimeZone = 'Europe/Rome'").await),
        4 => abandon(lent.query("SELECT generate_series FROM generate_series(1, 300)", &[]), polls).await,
        5 => {
            let transaction = lent.transaction().await;
            if let Ok(transaction) = transaction {
                drop(transaction.batch_execute("SELECT no_such_column").await);
            }
        }
        6 => drop(lent.query_typed("SELECT 1", &[]).await),
        _ => {
            if lent.begin().await.is_ok() {
                abandon(lent.rollback(), polls).await;
            }
        }
    }
}

/// One caller: takes a connection, finds it clean, misuses it. How many it found.
async fn caller(pool: Dsql, seed: Seed, rounds: usize) -> usize {
    let mut rng = seed.rng();
    let mut found = 0;
    for _ in 0..rounds {
        let mut lent = match pool.acquire_within(PATIENCE).await {
            Ok(lent) => lent,
            Err(error) => panic!("{error}"),
        };
        // Waiting, since the driver may just be reading the answer to a statement that was closed in passing.
        match lent.tracker().answered().await {
            // Cut between being lent and this look: there is nothing to find out about it.
            ConnectionState::Broken => continue,
            shape => assert_eq!(shape, ConnectionState::Clean),
        }
        let row = lent.query_typed("SELECT count(*) FROM t", &[]).await;
        let Ok(rows) = row else { continue };
        assert_eq!(rows[0].get::<_, i64>(0), 0, "somebody else's transaction");
        let shape = lent.tracker().answered().await;
        assert!(matches!(shape, ConnectionState::Clean | ConnectionState::Broken), "{shape:?}");
        let zone = lent.simple_query("SHOW TimeZone").await;
        if let Ok(messages) = zone {
            let utc = messages.iter().any(|message| {
                matches!(message, tokio_postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some("UTC"))
            });
            assert!(utc, "somebody else's setting");
        }
        found += 1;
        misuse(&mut lent, &mut rng).await;
    }
    found
}

async fn nobody_finds_what_others_left(reservoir: bool, seed: u64) {
    const CALLERS: u64 = 6;
    let cluster = start();
    let pool: Dsql = pool(&cluster, 4, reservoir).await;
    pool.acquire().await.unwrap().batch_execute("CREATE TABLE t (a bigint)").await.unwrap();
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let seed = Seed::new(seed).fork(&number.to_string());
            tokio::spawn(caller(pool.clone(), seed, 40))
        })
        .collect();
    let mut cut = 0;
    while callers.iter().any(|caller| !caller.is_finished()) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        cut += cluster.sever(0.3);
    }
    let mut found = 0;
    for caller in callers {
        found += caller.await.unwrap();
    }
    assert!(found > 40, "only {found} connections were looked at, {cut} were cut");
    eventually("it is full and at rest again", || pool.status().idle == 4).await;
    assert!(pool.drain(PATIENCE).await.is_complete());
    eventually("nothing is left", || cluster.counters().live == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_finds_what_others_left_in_a_reservoir() {
    nobody_finds_what_others_left(true, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_finds_what_others_left_in_standard_mode() {
    nobody_finds_what_others_left(false, 2).await;
}

#[tokio::test]
async fn nobody_finds_what_others_left_on_one_thread() {
    nobody_finds_what_others_left(true, 3).await;
}
