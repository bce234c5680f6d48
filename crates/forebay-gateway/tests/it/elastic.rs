//! Many clients on few connections.

use crate::world::{Plan, eventually};

#[tokio::test]
async fn more_clients_than_connections_are_served() {
    let world = Plan { workers: 3, ..Plan::elastic(2) }.start().await;
    let mut clients = Vec::new();
    for number in 0..20 {
        let client = world.client().await;
        client.batch_execute(&format!("SET application_name = 'app{number}'")).await.unwrap();
        clients.push(client);
    }
    for _ in 0..3 {
        for (number, client) in clients.iter().enumerate() {
            let row = client.query_one("SHOW application_name", &[]).await.unwrap();
            assert_eq!(row.get::<_, String>(0), format!("app{number}"));
        }
    }
    assert!(world.in_use() <= 2);
}

#[tokio::test]
async fn those_that_wait_are_served_when_a_transaction_ends() {
    let world = Plan::elastic(1).start().await;
    let [first, second, third] = [world.client().await, world.client().await, world.client().await];
    first.batch_execute("BEGIN").await.unwrap();
    let waiting = async { tokio::join!(second.batch_execute("SELECT 2"), third.batch_execute("SELECT 3")) };
    let end = async {
        let wanted = || world.gateway.backends()[0].1.pool().status().waiting == 2;
        eventually("both wait", wanted).await;
        first.batch_execute("COMMIT").await.unwrap();
    };
    let ((second, third), ()) = tokio::join!(waiting, end);
    second.unwrap();
    third.unwrap();
}

#[tokio::test]
async fn an_idle_client_holds_nothing() {
    let mut plan = Plan::elastic(2);
    plan.settings.push(("release_after", "100ms".to_owned()));
    let world = plan.start().await;
    let client = world.client().await;
    client.batch_execute("SELECT 1").await.unwrap();
    eventually("it is released", || world.in_use() == 0).await;
    assert_eq!(world.gateway.clients(), 1);
    client.batch_execute("SELECT 1").await.unwrap();
}
