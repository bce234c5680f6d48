//! A deadpool whose connections to Aurora DSQL come from a reservoir.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::Pool;
use forebay::rt::TokioRuntime;
use forebay::{Metrics, Reservoir, ReservoirManager};
use forebay_aws::SdkSigner;
use forebay_dsql::{ConnectorParts, Driver, Options, Postgres, TokenCache};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The cluster and the reservoir's settings come from the environment.
    let options = Options::from_env()?;
    let runtime = TokioRuntime::current()?;
    let tokens = TokenCache::new(SdkSigner::from_env().await, runtime.clone(), options.service());
    let connector = Postgres::new(ConnectorParts::new(options.clone(), tokens, Arc::new(runtime)))?;
    let reservoir = Reservoir::builder(connector)
        .config(options.config().clone())
        .observer(Metrics::new("dsql").service(options.service()))
        .start()
        .await?;

    // The pool is smaller than the reservoir, so that a connection that gets old can be exchanged at once.
    let manager = ReservoirManager::new(reservoir.clone());
    let pool: Pool<_> = Pool::builder(manager).max_size(options.config().max_open - 2).build()?;
    for visitor in 1..=3_i64 {
        let connection = pool.get().await?; // derefs to tokio_postgres::Client
        let row = connection.query_one("SELECT $1::bigint * 2", &[&visitor]).await?;
        println!("visitor {visitor} has {} shoes", row.get::<_, i64>(0));
    }

    pool.close();
    let drained = reservoir.drain(Duration::from_secs(10)).await;
    println!("all connections are closed: {}", drained.is_complete());
    Ok(())
}
