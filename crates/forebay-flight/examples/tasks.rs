//! A pool of sessions for tasks: streaming, a deadline that stops the server, cancellation, ingest.
//!
//! Starts a local server, so there is nothing to set up.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch};
use flight_local::{Config, FlightLocal};
use forebay_flight::{AsyncFlightSQLPool, CancelHandle, Ingest, QueryOptions};
use futures_util::stream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = FlightLocal::start(Config::default()).await?;
    let pool = AsyncFlightSQLPool::with_default(&server.url()).await?;

    let column = |from: i64| Arc::new(Int64Array::from_iter_values(from..from + 10_000)) as _;
    let batches = (0..10).map(move |n| RecordBatch::try_from_iter([("a", column(n * 10_000))]));
    let loaded = pool.ingest(Ingest::into_table("numbers").create(), stream::iter(batches)).await?;
    println!("loaded {:?} rows", loaded.rows_affected());

    let mut rows = pool.query_stream("SELECT a FROM numbers WHERE a % 2 = 0").await?;
    let mut even = 0;
    while let Some(batch) = rows.next_batch().await {
        even += batch?.num_rows();
    }
    println!("{even} of them are even");

    let minute = "SELECT sleep_ms(60000)";
    let options = QueryOptions::new().with_timeout_ms(100);
    println!("{}", pool.query_with_options(minute, options).await.expect_err("it takes a minute"));

    let cancel = CancelHandle::new();
    let handle = cancel.clone();
    let stopper = std::thread::Builder::new().spawn(move || {
        std::thread::park_timeout(Duration::from_millis(100));
        handle.cancel();
    })?;
    let options = QueryOptions::new().with_cancel(cancel);
    println!("{}", pool.query_with_options(minute, options).await.expect_err("it takes a minute"));
    stopper.join().expect("no panic");

    println!("the pool goes on at once: {} row", pool.query("SELECT 1").await?.row_count());
    assert!(pool.drain(Duration::from_secs(5)).await);
    println!("{} sessions are left on the server", server.counters().sessions_open);
    Ok(())
}
