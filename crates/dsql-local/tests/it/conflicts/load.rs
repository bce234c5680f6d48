//! Clients that disconnect at any moment leave nothing behind in the private PostgreSQL.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dsql_local::Cluster;
use dsql_local::postgres::Postgres;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use crate::harness::{PATIENCE, code, config, connect, eventually, options, tls};

const SESSIONS: u64 = 8;
const LIVES: u64 = 25;

/// Other connections that are not idle or hold a lock.
const LEFT: &str = "
    SELECT (SELECT count(*) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle')
         + (SELECT count(*) FROM pg_locks WHERE pid <> pg_backend_pid())";

/// Transactions on few rows, so that work is undone, repeated and copied.
const STATEMENTS: [&str; 7] = [
    "BEGIN",
    "UPDATE t SET n = n + 1 WHERE id = 1",
    "SELECT * FROM t WHERE id = 2 FOR UPDATE",
    "INSERT INTO t VALUES (7, 0) ON CONFLICT (id) DO UPDATE SET n = t.n + 1",
    "DELETE FROM t WHERE id = 3",
    "SELECT sum(n) FROM t",
    "COMMIT",
];

#[derive(Default)]
struct Counts {
    /// Confirmed commits, and requested ones.
    confirmed: AtomicU64,
    asked: AtomicU64,
    cut: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_disconnect_at_any_moment_leave_nothing_behind() {
    let mut directory = PathBuf::new();
    let cluster = Cluster::start_with(config(), |_, clock| {
        let postgres = Postgres::start(&config(), clock)?;
        postgres.directory().clone_into(&mut directory);
        Ok(postgres)
    });
    let cluster = Arc::new(cluster.unwrap());
    let mut underneath = tokio_postgres::Config::new();
    underneath.host_path(&directory).user(Postgres::SUPERUSER).dbname("postgres");
    let (database, connection) = underneath.connect(NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let count = async |sql: &str| -> i64 { database.query_one(sql, &[]).await.unwrap().get(0) };

    let client = connect(&cluster).await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY, n bigint NOT NULL)").await.unwrap();
    client.batch_execute("INSERT INTO t SELECT g, 0 FROM generate_series(1, 5) g").await.unwrap();
    drop(client);
    let counts = Arc::new(Counts::default());
    let sessions: Vec<_> =
        (0..SESSIONS).map(|seed| tokio::spawn(lives(cluster.clone(), counts.clone(), seed))).collect();
    for session in sessions {
        timeout(PATIENCE, session).await.expect("it goes on").unwrap();
    }
    eventually("the emulator has noticed", || cluster.counters().live == 0).await;
    let gone = async {
        while count(LEFT).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(PATIENCE, gone).await.is_ok(), "{} left", count(LEFT).await);
    // The others are idle: at most as many as there were at once, and the scheduler's own connection.
    let kept = count("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'").await - 1;
    assert!(kept <= i64::try_from(SESSIONS).unwrap() * 2 + 1, "{kept} connections are kept");

    let number = |of: &AtomicU64| i64::try_from(of.load(Ordering::SeqCst)).unwrap();
    let (confirmed, asked, cut) = (number(&counts.confirmed), number(&counts.asked), number(&counts.cut));
    let committed = count("SELECT n FROM t WHERE id = 1").await;
    assert!((confirmed..=asked).contains(&committed), "{committed} of {confirmed} to {asked}");
    assert!(confirmed > 0 && cut > 0, "{confirmed} confirmed, {cut} cut");
    // Nothing is locked.
    let client = connect(&cluster).await;
    client.batch_execute("UPDATE t SET n = 0").await.unwrap();
}

/// One client after another, each aborted at some moment.
async fn lives(cluster: Arc<Cluster>, counts: Arc<Counts>, seed: u64) {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..LIVES {
        let (client, connection) = options(&cluster).connect(tls(&cluster)).await.unwrap();
        let socket = tokio::spawn(async move { drop(connection.await) });
        let mut statements = STATEMENTS.iter().cycle();
        for statement in statements.by_ref().take(usize::try_from(chance.next_u64() % 20).unwrap()) {
            run(&client, statement, &counts).await;
        }
        let moment = Duration::from_micros(chance.next_u64() % 3_000);
        let last = statements.next().unwrap();
        if timeout(moment, run(&client, last, &counts)).await.is_err() {
            counts.cut.fetch_add(1, Ordering::SeqCst);
        }
        // The socket closes without a message, whatever is in progress.
        socket.abort();
    }
}

async fn run(client: &Client, statement: &str, counts: &Counts) {
    let commit = statement == "COMMIT";
    counts.asked.fetch_add(u64::from(commit), Ordering::SeqCst);
    match client.batch_execute(statement).await {
        Ok(()) => drop(counts.confirmed.fetch_add(u64::from(commit), Ordering::SeqCst)),
        Err(error) => assert_eq!((code(&error), commit), ("40001", true), "{statement}: {error:?}"),
    }
}
