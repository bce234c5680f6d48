//! What the tests share.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use flight_local::{Config, FlightLocal};
use forebay_flight::{AsyncFlightSQLPool, PoolConfig, QueryResult};

pub(crate) async fn server() -> FlightLocal {
    server_with(Config::default()).await
}

pub(crate) async fn server_with(config: Config) -> FlightLocal {
    crate::spans::listen();
    FlightLocal::start(config).await.expect("the server starts")
}

pub(crate) fn blocking_server(config: Config) -> FlightLocal {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(server_with(config))
}

pub(crate) fn small(max_size: usize) -> PoolConfig {
    PoolConfig { max_size, ..PoolConfig::default() }
}

pub(crate) async fn pool(server: &FlightLocal, max_size: usize) -> AsyncFlightSQLPool {
    AsyncFlightSQLPool::new(&server.url(), small(max_size)).await.expect("the pool starts")
}

/// A pool with all of its sessions open. It opens no other, so a fault that the server injects into the next
/// statement hits a caller's, not the first of a new session.
pub(crate) async fn warm_pool(server: &FlightLocal, max_size: usize) -> AsyncFlightSQLPool {
    let config = PoolConfig { min_idle: 0, ..small(max_size) };
    let pool = AsyncFlightSQLPool::new(&server.url(), config).await.expect("the pool starts");
    let mut held = Vec::new();
    for _ in 0..max_size {
        held.push(pool.acquire_session().await.expect("there is a session"));
    }
    drop(held);
    pool
}

/// The whole numbers of the first column.
pub(crate) fn integers(result: &QueryResult) -> Vec<i64> {
    let column = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    result.batches().iter().flat_map(column).collect()
}

/// A batch with one column of whole numbers.
pub(crate) fn numbers(values: impl IntoIterator<Item = i64>) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(values))]).unwrap()
}

/// Waits until `holds`, for what happens on the server's side of the network, where no virtual time reaches.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        pause(Duration::from_millis(10)).await;
    }
    panic!("not within 5 s: {what}");
}

/// As [`eventually`], on this thread, which leaves the processor to others meanwhile.
#[allow(clippy::disallowed_methods, reason = "the server keeps real time")]
pub(crate) fn eventually_blocking(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within 5 s: {what}");
}

#[allow(clippy::disallowed_methods, reason = "the server keeps real time")]
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
