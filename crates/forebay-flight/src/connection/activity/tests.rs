//! A server that replaces idle sessions, and a clock that tests move on.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use flight_local::{Config, FlightLocal};
use forebay::Instant;
use forebay::rt::{Runtime, Starved, Task, TokioRuntime};
use parking_lot::Mutex;

use crate::connection::ConnectOptions;
use crate::error::{Error, Result};
use crate::pool::{AsyncFlightSQLPool, PoolConfig};
use crate::session::AsyncSession;

/// tokio's clocks, and how far each is ahead.
#[derive(Clone, Debug)]
struct MovableClock {
    tokio: TokioRuntime,
    ahead: Arc<Mutex<[Duration; 2]>>,
}

impl MovableClock {
    fn new() -> Self {
        Self { tokio: TokioRuntime::current().unwrap(), ahead: Arc::default() }
    }

    fn advance(&self, time: Duration) {
        self.ahead.lock()[0] += time;
        self.suspend(time);
    }

    /// The machine sleeps: its monotonic clock stands still.
    fn suspend(&self, time: Duration) {
        self.ahead.lock()[1] += time;
    }
}

impl Runtime for MovableClock {
    fn now(&self) -> Instant {
        self.tokio.now() + self.ahead.lock()[0]
    }

    fn wall(&self) -> Duration {
        self.tokio.wall() + self.ahead.lock()[1]
    }

    fn sleep_until(&self, at: Instant) -> Task {
        self.tokio.sleep_until(self.tokio.now() + at.since(self.now()))
    }

    fn spawn(&self, task: Task) {
        self.tokio.spawn(task);
    }

    fn entropy(&self) -> u64 {
        self.tokio.entropy()
    }

    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
        self.tokio.block(wait)
    }
}

const MINUTE: Duration = Duration::from_secs(60);

async fn server() -> FlightLocal {
    let server = FlightLocal::start(Config::like_swanlake()).await.unwrap();
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    session.update("CREATE TABLE t (n INTEGER)").await.unwrap();
    server
}

async fn session(server: &FlightLocal, clock: &MovableClock) -> AsyncSession {
    let options = ConnectOptions::new(&server.url()).unwrap().for_swanlake();
    AsyncSession::connect_on(Arc::new(clock.clone()), options).await.unwrap()
}

/// The server forgets its sessions after 15 minutes.
fn leave_idle(server: &FlightLocal, clock: &MovableClock) {
    clock.advance(15 * MINUTE);
    assert!(server.replace_sessions() > 0);
}

async fn rows(server: &FlightLocal) -> i64 {
    let mut session = AsyncSession::connect(server.url().as_str()).await.unwrap();
    let count = session.query("SELECT count(*) FROM t").await.unwrap();
    count.batches()[0].column(0).as_primitive::<Int64Type>().value(0)
}

fn assert_lost<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::SessionLost { may_have_run: false, .. }), "{error:?}");
    assert!(error.is_not_executed(), "{error:?}");
    assert!(error.to_string().contains("the server may have replaced it after 840 s"), "{error}");
}

#[tokio::test]
async fn without_a_limit_a_part_of_a_transaction_is_lost_in_silence() {
    let (server, clock) = (server().await, MovableClock::new());
    let options = ConnectOptions::new(&server.url()).unwrap();
    let mut session = AsyncSession::connect_on(Arc::new(clock.clone()), options).await.unwrap();
    session.begin_transaction().await.unwrap();
    session.update("INSERT INTO t VALUES (1)").await.unwrap();
    leave_idle(&server, &clock);
    session.update("INSERT INTO t VALUES (2)").await.unwrap();
    session.commit().await.unwrap();
    assert_eq!(rows(&server).await, 1, "this is what the limit is for");
}

#[tokio::test]
async fn an_idle_transaction_is_lost_aloud() {
    let (server, clock) = (server().await, MovableClock::new());
    for by_sql in [false, true] {
        for ends in [false, true] {
            let mut session = session(&server, &clock).await;
            match by_sql {
                false => session.begin_transaction().await.unwrap(),
                true => drop(session.update("BEGIN").await.unwrap()),
            }
            session.update("INSERT INTO t VALUES (1)").await.unwrap();
            leave_idle(&server, &clock);
            match (ends, by_sql) {
                (false, _) => assert_lost(session.update("INSERT INTO t VALUES (2)").await),
                (true, false) => assert_lost(session.commit().await),
                (true, true) => assert_lost(session.update("COMMIT").await),
            }
            assert!(!session.is_connected());
            assert!(matches!(session.query("SELECT 1").await, Err(Error::SessionLost { .. })));
            assert_eq!(rows(&server).await, 0);
        }
    }
}

#[tokio::test]
async fn a_machine_that_slept_was_idle_too() {
    let (server, clock) = (server().await, MovableClock::new());
    let mut session = session(&server, &clock).await;
    session.begin_transaction().await.unwrap();
    clock.suspend(15 * MINUTE);
    assert_lost(session.query("SELECT 1").await);
}

#[tokio::test]
async fn each_statement_that_the_server_answers_begins_the_time_again() {
    let (server, clock) = (server().await, MovableClock::new());
    let mut session = session(&server, &clock).await;
    session.begin_transaction().await.unwrap();
    for _ in 0..3 {
        clock.advance(13 * MINUTE);
        session.update("INSERT INTO t VALUES (1)").await.unwrap();
        clock.advance(13 * MINUTE);
        session.query("SELECT 1").await.unwrap();
        clock.advance(13 * MINUTE);
        session.ping().await.unwrap();
        clock.advance(13 * MINUTE);
        drop(session.prepare_query("SELECT 1").await.unwrap());
    }
    session.commit().await.unwrap();
    assert_eq!(rows(&server).await, 3);
    // What the server did not run does not count.
    session.begin_transaction().await.unwrap();
    clock.advance(13 * MINUTE);
    session.sql_info(&[]).await.unwrap();
    clock.advance(2 * MINUTE);
    assert_lost(session.commit().await);
}

#[tokio::test]
async fn a_statement_that_takes_longer_counts_from_its_beginning() {
    let (server, clock) = (server().await, MovableClock::new());
    let mut session = session(&server, &clock).await;
    session.begin_transaction().await.unwrap();
    let mut rows = session.query_stream("SELECT 1").await.unwrap();
    clock.advance(15 * MINUTE);
    while let Some(batch) = rows.next_batch().await {
        batch.unwrap();
    }
    drop(rows);
    assert_lost(session.commit().await);
}

#[tokio::test]
async fn temporary_tables_and_settings_are_lost_aloud_too() {
    let (server, clock) = (server().await, MovableClock::new());
    for alters in ["CREATE TEMP TABLE mine (n INTEGER)", "PRAGMA cache_size = 7"] {
        let mut session = session(&server, &clock).await;
        session.update(alters).await.unwrap();
        leave_idle(&server, &clock);
        assert_lost(session.query("SELECT 1").await);
    }
}

#[tokio::test]
async fn a_session_that_holds_nothing_goes_on_without_its_prepared_statements() {
    let (server, clock) = (server().await, MovableClock::new());
    let mut session = session(&server, &clock).await;
    let mut old = session.prepare_query("SELECT 1").await.unwrap();
    leave_idle(&server, &clock);
    session.query("SELECT 1").await.unwrap();
    let error = old.query().await.unwrap_err();
    assert!(matches!(error, Error::SessionLost { may_have_run: false, .. }), "{error:?}");
    let mut new = session.prepare_query("SELECT 2").await.unwrap();
    clock.advance(15 * MINUTE);
    assert!(matches!(new.query().await, Err(Error::SessionLost { .. })), "it is the first to notice");
    session.query("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_pool_counts_a_lost_session_and_reuses_an_idle_one() {
    let (server, clock) = (server().await, MovableClock::new());
    let config = PoolConfig {
        max_size: 1,
        reset_sql: vec!["SELECT 'DROP TABLE temp.' || name FROM sqlite_temp_master".to_owned()],
        ..PoolConfig::for_swanlake()
    };
    let options = ConnectOptions::new(&server.url()).unwrap();
    let pool = AsyncFlightSQLPool::start(Arc::new(clock.clone()), options, config).await.unwrap();
    leave_idle(&server, &clock);
    pool.query("SELECT 1").await.unwrap();

    // Given back after the time, it is restored, whether or not the server has replaced it.
    for replaced in [true, false] {
        let mut session = pool.acquire_session().await.unwrap();
        session.update("CREATE TEMP TABLE mine (n INTEGER)").await.unwrap();
        match replaced {
            true => leave_idle(&server, &clock),
            false => clock.advance(15 * MINUTE),
        }
        drop(session);
        let left = pool.query("SELECT * FROM sqlite_temp_master").await.unwrap();
        assert_eq!((left.row_count(), pool.status().sessions), (0, 1));
    }

    let mut session = pool.acquire_session().await.unwrap();
    session.begin_transaction().await.unwrap();
    session.update("INSERT INTO t VALUES (1)").await.unwrap();
    clock.advance(14 * MINUTE + MINUTE / 2);
    assert_lost(session.commit().await);
    drop(session);
    pool.query("SELECT 1").await.unwrap();
    assert_eq!(pool.status().sessions, 2, "the server may still have it");
    pool.update("INSERT INTO t VALUES (2)").await.unwrap(); // The transaction does not lock the table any more.
    assert_eq!(rows(&server).await, 1);
}
