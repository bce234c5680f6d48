//! A pool of sessions for threads: statements side by side, and a transaction on one session.
//!
//! Starts a local server, so there is nothing to set up.

use std::error::Error;

use flight_local::{Config, FlightLocal};
use forebay_flight::{FlightSQLPool, PoolConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = runtime.block_on(FlightLocal::start(Config::default()))?;

    let pool = FlightSQLPool::new(&server.url(), PoolConfig { max_size: 4, ..PoolConfig::default() })?;
    pool.update("CREATE TABLE account (name TEXT, balance INTEGER)")?;
    pool.update("INSERT INTO account VALUES ('Ada', 100), ('Bob', 100)")?;

    let slow = "SELECT sleep_ms(200)";
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| pool.query(slow))).collect();
        callers.into_iter().try_for_each(|caller| caller.join().expect("no panic").map(drop))
    })?;
    println!("four statements ran on {} sessions, side by side", server.counters().sessions_ever);

    let mut session = pool.acquire_session()?;
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
