//! Connections that end after a while, under clients that do not notice.

use std::time::Duration;

use dsql_local::EngineKind;
use tokio_postgres::error::SqlState;

use crate::world::{Plan, World, eventually};

/// Short lives, so that every connection is replaced several times.
async fn short_lived(engine: EngineKind, mode: &'static str, connections: usize) -> World {
    let mut plan = Plan { engine, mode, connections, workers: 2, ..Plan::default() };
    for (name, value) in [
        ("DSQL_RESERVOIR_BASE_LIFETIME", "600ms"),
        ("DSQL_RESERVOIR_LIFETIME_JITTER", "200ms"),
        ("DSQL_RESERVOIR_GUARD_WINDOW", "100ms"),
    ] {
        plan.variables.push((name, value.to_owned()));
    }
    plan.start().await
}

async fn clients_notice_nothing(engine: EngineKind, mode: &'static str, connections: usize, replaced: u64) {
    let world = short_lived(engine, mode, connections).await;
    let mut clients = Vec::new();
    for number in 0..4 {
        let client = world.client().await;
        client.batch_execute(&format!("SET application_name = 'app{number}'")).await.unwrap();
        let statement = client.prepare("SELECT $1::int + 1").await.unwrap();
        clients.push((number, client, statement));
    }
    let mut round = 0_i32;
    while world.cluster.counters().accepted < replaced {
        for (number, client, statement) in &clients {
            let row = client.query_one(statement, &[&round]).await.unwrap();
            assert_eq!(row.get::<_, i32>(0), round + 1);
            let row = client.query_one("SHOW application_name", &[]).await.unwrap();
            assert_eq!(row.get::<_, String>(0), format!("app{number}"));
        }
        round += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(clients);
    eventually("all are back", || world.in_use() == 0).await;
}

#[tokio::test]
async fn in_session_mode() {
    clients_notice_nothing(EngineKind::Builtin, "session", 6, 30).await;
}

#[tokio::test]
async fn in_elastic_mode_with_fewer_connections_than_clients() {
    clients_notice_nothing(EngineKind::Builtin, "elastic", 2, 15).await;
}

#[tokio::test]
async fn on_postgresql() {
    clients_notice_nothing(EngineKind::Postgres, "session", 5, 15).await;
}

#[tokio::test]
async fn the_next_connection_of_an_idle_client_has_its_settings_and_statements_before_it_asks() {
    let world = Plan::default().start().await;
    let client = world.client().await;
    client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
    client.batch_execute("SET application_name = 'app'").await.unwrap();
    let statement = client.prepare("SELECT id FROM t").await.unwrap();
    client.batch_execute("DROP TABLE t").await.unwrap();
    let backends = world.gateway.backends().remove(0).1;
    let connections = backends.pool().registry();
    let before = world.cluster.counters();
    // The client has one of them, and perhaps gets one that is retired next.
    for old in connections.list() {
        connections.retire(old.id);
        let is_replaced = || {
            let list = connections.list();
            list.len() == 4 && list.iter().all(|listed| listed.id != old.id)
        };
        eventually("it is replaced", is_replaced).await;
    }
    eventually("it is set", || world.cluster.counters().statements > before.statements).await;
    // That nobody hears of.
    eventually("it fails to prepare", || world.cluster.counters().errors > before.errors).await;
    assert_eq!(world.in_use(), 1);
    let row = client.query_one("SHOW application_name", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "app");
    let error = client.query(&statement, &[]).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::UNDEFINED_TABLE));
}
