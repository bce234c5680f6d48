//! The core's own suite for connectors.

use std::sync::Arc;

use forebay::rt::TokioRuntime;
use forebay_dsql::{ConnectorParts, Driver, Postgres, RawPostgres, Sqlx, TokenCache};

use super::cluster::{Keys, options, start};

async fn conforms<C: Driver>() {
    let cluster = start();
    let runtime = TokioRuntime::current().unwrap();
    let tokens = TokenCache::new(Keys::of(&cluster), runtime.clone(), "test");
    let parts = ConnectorParts::new(options(&cluster, 1).build().unwrap(), tokens, Arc::new(runtime));
    forebay::conformance::connect(&C::new(parts).unwrap()).await;
    super::cluster::eventually("all are closed", || cluster.counters().live == 0).await;
}

#[tokio::test]
async fn tokio_postgres_conforms() {
    conforms::<Postgres>().await;
}

#[tokio::test]
async fn sqlx_conforms() {
    conforms::<Sqlx>().await;
}

#[tokio::test]
async fn raw_conforms() {
    conforms::<RawPostgres<()>>().await;
}
