//! What a session does on a server that keeps it after its end.

use std::time::Duration;

use flight_local::{Config, FlightLocal};

use super::AsyncSession;
use crate::connection::ConnectOptions;

async fn server(config: Config) -> FlightLocal {
    FlightLocal::start(Config { log_statements: true, ..config }).await.unwrap()
}

/// The options for SwanLake, with SQLite in place of DuckDB.
fn options(server: &FlightLocal) -> ConnectOptions {
    let mut options = ConnectOptions::new(&server.url()).unwrap().for_swanlake();
    options.reset.sql = vec!["SELECT 'DROP TABLE temp.' || name FROM sqlite_temp_master".to_owned()];
    options.reset.setting = Some("PRAGMA {name} = -2000".to_owned());
    options
}

fn ran(server: &FlightLocal, sql: &str) -> usize {
    server.statements().iter().filter(|statement| *statement == sql).count()
}

#[tokio::test]
async fn a_session_that_cannot_be_closed_is_left_clean() {
    let server = server(Config::like_swanlake()).await;
    let mut session = AsyncSession::connect(options(&server)).await.unwrap();
    session.update("CREATE TEMP TABLE mine (n INTEGER)").await.unwrap();
    session.update("PRAGMA cache_size = 7").await.unwrap();
    session.begin_transaction().await.unwrap();
    session.close().await.unwrap();
    for sql in ["ROLLBACK", "DROP TABLE temp.mine", "PRAGMA cache_size = -2000"] {
        assert_eq!(ran(&server, sql), 1, "{sql}: {:?}", server.statements());
    }
    assert_eq!(server.counters().sessions_open, 1, "the server keeps it");
}

#[tokio::test]
async fn a_session_that_can_be_closed_or_holds_nothing_needs_no_reset() {
    for (config, sql) in [
        (Config::default(), "CREATE TEMP TABLE mine (n INTEGER)"),
        (Config::like_swanlake(), "SELECT 1"),
        (Config::like_swanlake(), "ATTACH ':memory:' AS other"),
    ] {
        let server = server(config).await;
        let mut session = AsyncSession::connect(options(&server)).await.unwrap();
        session.update(sql).await.unwrap();
        session.close().await.unwrap();
        assert_eq!(server.statements(), [sql]);
    }
}

#[tokio::test]
async fn the_end_of_a_session_does_not_cross_a_rollback() {
    for config in [Config::default(), Config::like_swanlake()] {
        let server = server(config).await;
        let mut other = AsyncSession::connect(options(&server)).await.unwrap();
        other.update("CREATE TABLE t (n INTEGER)").await.unwrap();
        for round in 0..10 {
            let mut session = AsyncSession::connect(options(&server)).await.unwrap();
            let mut transaction = session.begin().await.unwrap();
            transaction.update("INSERT INTO t VALUES (1)").await.unwrap();
            drop(transaction);
            match round % 2 {
                0 => session.close().await.unwrap(),
                _ => drop(session),
            }
            // It would wait for an open transaction, and fail.
            other.update("DELETE FROM t WHERE n = 2").await.unwrap();
            assert!(ran(&server, "ROLLBACK") <= round + 1, "{:?}", server.statements());
        }
        assert_eq!(other.query("SELECT n FROM t").await.unwrap().row_count(), 0);
    }
}

#[tokio::test]
async fn a_session_that_holds_something_is_kept_alive_until_it_is_dropped() {
    let server = server(Config::like_swanlake()).await;
    let interval = Duration::from_millis(5);
    let mut session = AsyncSession::connect(options(&server).session_keep_alive(interval)).await.unwrap();
    let mut idle = AsyncSession::connect(options(&server).session_keep_alive(interval)).await.unwrap();
    idle.query("SELECT 'idle'").await.unwrap();
    session.begin_transaction().await.unwrap();
    let runtime = session.connection.server.runtime.clone();
    for _ in 0..1_000 {
        if ran(&server, "SELECT 1") >= 3 {
            break;
        }
        runtime.sleep_until(runtime.now() + interval).await;
    }
    assert!(ran(&server, "SELECT 1") >= 3, "{:?}", server.statements());
    session.rollback().await.unwrap();
    // Its last ping may be on its way. Then it holds nothing, like the other.
    session.connection.all_done().await;
    let pings = ran(&server, "SELECT 1");
    runtime.sleep_until(runtime.now() + interval * 4).await;
    assert_eq!(ran(&server, "SELECT 1"), pings);
}
