//! Sessions that outlive their connections.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

use crate::world::{Plan, eventually};

#[tokio::test]
async fn a_client_is_served() {
    let world = Plan::default().start().await;
    let client = world.client().await;
    let row = client.query_one("SELECT 1 + $1::int", &[&41]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 42);
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)").await.unwrap();
    assert_eq!(client.query("SELECT id FROM t", &[]).await.unwrap().len(), 2);
    let error = client.query("SELEKT 1", &[]).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::SYNTAX_ERROR));
    client.batch_execute("SELECT 1").await.unwrap();
    drop(client);
    eventually("the backend is back", || world.in_use() == 0 && world.gateway.clients() == 0).await;
}

#[tokio::test]
async fn nobody_notices_that_all_backends_were_cut() {
    let world = Plan { workers: 2, ..Plan::default() }.start().await;
    let clients = [world.client().await, world.client().await, world.client().await];
    let mut statements = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        client.batch_execute(&format!("SET application_name = 'app{number}'")).await.unwrap();
        statements.push(client.prepare("SELECT $1::int + 1").await.unwrap());
    }
    for round in 0..5 {
        world.cut().await;
        for (number, client) in clients.iter().enumerate() {
            let row = client.query_one(&statements[number], &[&round]).await.unwrap();
            assert_eq!(row.get::<_, i32>(0), round + 1);
            let row = client.query_one("SHOW application_name", &[]).await.unwrap();
            assert_eq!(row.get::<_, String>(0), format!("app{number}"));
        }
    }
}

#[tokio::test]
async fn a_transaction_that_loses_its_backend_is_told_so() {
    let world = Plan::default().start().await;
    let client = world.client().await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute("INSERT INTO t VALUES (1)").await.unwrap();
    world.cut().await;
    let error = client.batch_execute("COMMIT").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "08006", "{error}");
    // The session goes on.
    let _ = client.batch_execute("ROLLBACK").await;
    assert!(client.query("SELECT id FROM t", &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_statement_is_cancelled_and_the_session_goes_on() {
    let plan = Plan { engine: dsql_local::EngineKind::Postgres, ..Plan::default() };
    let world = plan.start().await;
    let client = world.client().await;
    let token = client.cancel_token();
    let slow = async {
        let error = client.batch_execute("SELECT pg_sleep(60)").await.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
    };
    // A request that comes before the statement has no effect, so it is repeated.
    let mut slow = pin!(slow);
    while timeout(Duration::from_millis(20), slow.as_mut()).await.is_err() {
        token.cancel_query(NoTls).await.unwrap();
    }
    client.batch_execute("SELECT 1").await.unwrap();
}
