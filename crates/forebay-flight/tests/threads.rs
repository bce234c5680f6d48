//! The private threads of the blocking types end. In its own binary, since it counts the threads of the
//! process.
#![cfg(target_os = "linux")]

use std::time::Duration;

use flight_local::{Config, FlightLocal};
use forebay_flight::{FlightSQLClient, FlightSQLPool, PoolConfig, QueryOptions};

fn private_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "forebay-flight").count()
}

/// Ends in the background, so it is waited for.
#[allow(clippy::disallowed_methods, reason = "threads end in real time")]
fn eventually(holds: impl Fn() -> bool) -> bool {
    (0..1_000).any(|_| {
        let held = holds();
        if !held {
            std::thread::sleep(Duration::from_millis(10));
        }
        held
    })
}

#[test]
fn no_thread_and_no_session_is_left() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(FlightLocal::start(Config::default())).unwrap();
    for round in 0..20 {
        let pool =
            FlightSQLPool::new(&server.url(), PoolConfig { max_size: 2, ..PoolConfig::default() }).unwrap();
        let client = FlightSQLClient::connect(server.url().as_str()).unwrap();
        assert_eq!(private_threads(), 2);
        let session = pool.acquire_session().unwrap();
        let options = QueryOptions::new().with_timeout_ms(round % 4);
        drop(pool.query_with_options("SELECT sleep_ms(60000)", options));
        // In every order of ending.
        match round % 3 {
            0 => drop((pool, session, client)),
            1 => drop((session, client, pool)),
            _ => drop((client, session, pool)),
        }
        assert!(eventually(|| private_threads() == 0), "{} threads left", private_threads());
    }
    assert!(FlightSQLPool::with_default("grpc://127.0.0.1:1").is_err());
    assert!(FlightSQLClient::connect("grpc://127.0.0.1:1").is_err());
    assert!(eventually(|| private_threads() == 0));
    assert!(eventually(|| server.counters().sessions_open == 0), "{:?}", server.counters());
    assert!(eventually(|| server.counters().statements_running == 0));
}
