//! A pool of sessions for threads: statements in parallel, parameters, a prepared statement, and a
//! transaction on one session.
//!
//! Starts a local server, so there is nothing to set up.

use std::error::Error;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use flight_local::{Config, FlightLocal};
use forebay_flight::{FlightSQLPool, PoolConfig, QueryOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = runtime.block_on(FlightLocal::start(Config::default()))?;

    let pool = FlightSQLPool::new(&server.url(), PoolConfig { max_size: 4, ..PoolConfig::default() })?;
    pool.update("CREATE TABLE account (name TEXT, balance INTEGER)")?;
    // One column for each parameter, and one row for each time the statement runs.
    let names: ArrayRef = Arc::new(StringArray::from(vec!["Ada", "Bob"]));
    let balances: ArrayRef = Arc::new(Int64Array::from(vec![100, 100]));
    let accounts = RecordBatch::try_from_iter([("name", names), ("balance", balances)])?;
    let options = QueryOptions::new().with_params(accounts).with_timeout_ms(2_000);
    pool.update_with_options("INSERT INTO account VALUES (?, ?)", options)?;

    let slow = "SELECT sleep_ms(200)";
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| pool.query(slow))).collect();
        callers.into_iter().try_for_each(|caller| caller.join().expect("no panic").map(drop))
    })?;
    println!("four statements ran on {} sessions, in parallel", server.counters().sessions_ever);

    let mut session = pool.acquire_session()?;
    let mut balance = session.prepare_query("SELECT balance FROM account WHERE name = ?")?;
    for name in ["Ada", "Bob"] {
        let name: ArrayRef = Arc::new(StringArray::from(vec![name]));
        let rows = balance.query_with_param(RecordBatch::try_from_iter([("name", name)])?)?;
        println!("{:?}", rows.batches());
    }
    let mut transfer = session.begin()?;
    transfer.update("UPDATE account SET balance = balance - 10 WHERE name = 'Ada'")?;
    transfer.update("UPDATE account SET balance = balance + 10 WHERE name = 'Bob'")?;
    transfer.commit()?;

    let mut forgotten = session.begin()?;
    forgotten.update("UPDATE account SET balance = 0")?;
    drop(forgotten); // rolled back
    drop(session);

    let rows = pool.query("SELECT name, balance FROM account WHERE balance > 0 ORDER BY name")?;
    println!("{} accounts with money on them: {:?}", rows.row_count(), rows.batches());
    Ok(())
}
